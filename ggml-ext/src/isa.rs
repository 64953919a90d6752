//! Which instruction sets this machine has, and which one is used.

use core::ffi::CStr;
use core::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that kernels are compiled for.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(u8)]
pub enum Isa {
    /// No vectors: what every machine can do.
    Scalar = 1,
    /// 4 floats: AArch64.
    Neon = 2,
    /// 8 floats: AVX2 and FMA.
    Avx2 = 3,
    /// 16 floats: AVX-512F.
    Avx512 = 4,
}

/// What was chosen, as a number; 0 before the first use.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

impl Isa {
    /// All, the preferred ones last.
    pub const ALL: [Isa; 4] = [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512];

    /// As it is called in logs and in `ggml_ext_isa_force`.
    pub const fn name(self) -> &'static CStr {
        match self {
            Isa::Scalar => c"scalar",
            Isa::Neon => c"neon",
            Isa::Avx2 => c"avx2",
            Isa::Avx512 => c"avx512",
        }
    }

    /// The one that is called `name`.
    pub fn named(name: &CStr) -> Option<Isa> {
        Self::ALL.into_iter().find(|isa| isa.name() == name)
    }

    /// Whether this machine and its system can run it.
    pub fn is_here(self) -> bool {
        match self {
            Isa::Scalar => true,
            // Part of every AArch64 that Rust has a target with floats for.
            Isa::Neon => cfg!(all(target_arch = "aarch64", target_feature = "neon")),
            Isa::Avx2 => machine().avx2,
            Isa::Avx512 => machine().avx512,
        }
    }

    /// The one that kernels use: what was forced, else the best that is here.
    pub fn current() -> Isa {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        if let Some(isa) = Self::ALL.into_iter().find(|isa| *isa as u8 == chosen) {
            return isa;
        }
        let mut best = Isa::Scalar;
        for isa in Self::ALL {
            if isa.is_here() {
                best = isa;
            }
        }
        // Another thread comes to the same answer.
        CHOSEN.store(best as u8, Ordering::Relaxed);
        best
    }

    /// Makes kernels use this one from now on. `false`, and nothing changes, where it is not here.
    pub fn force(self) -> bool {
        let here = self.is_here();
        if here {
            CHOSEN.store(self as u8, Ordering::Relaxed);
        }
        here
    }
}

/// What the processor says of itself.
#[derive(Clone, Copy)]
struct Machine {
    avx2: bool,
    avx512: bool,
}

#[cfg(any(not(target_arch = "x86_64"), miri))]
fn machine() -> Machine {
    Machine {
        avx2: false,
        avx512: false,
    }
}

/// Asked once: a virtual machine leaves the question to its host, which takes microseconds.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn machine() -> Machine {
    const KNOWN: u8 = 1;
    const AVX2: u8 = 2;
    const AVX512: u8 = 4;
    static ANSWER: AtomicU8 = AtomicU8::new(0);

    let mut answer = ANSWER.load(Ordering::Relaxed);
    if answer == 0 {
        let Machine { avx2, avx512 } = ask();
        answer = KNOWN | (u8::from(avx2) * AVX2) | (u8::from(avx512) * AVX512);
        // Another thread gets the same answer.
        ANSWER.store(answer, Ordering::Relaxed);
    }
    Machine {
        avx2: answer & AVX2 != 0,
        avx512: answer & AVX512 != 0,
    }
}

/// `std` has the same question; asking it would link `std` into ggml.
#[cfg(all(target_arch = "x86_64", not(miri)))]
fn ask() -> Machine {
    use core::arch::x86_64::{__cpuid, __cpuid_count, _xgetbv};

    let bit = |word: u32, at: u32| word >> at & 1 == 1;
    let leaves = __cpuid(0).eax;
    let basic = __cpuid(1);
    // The system saves the registers, and `xgetbv` may be asked which.
    if leaves < 7 || !bit(basic.ecx, 27) {
        return Machine {
            avx2: false,
            avx512: false,
        };
    }
    let more = __cpuid_count(7, 0);
    // SAFETY: the processor has `xgetbv`, since bit 27 says that the system has switched it on.
    let saved = unsafe { xcr0() };
    #[target_feature(enable = "xsave")]
    fn xcr0() -> u64 {
        // SAFETY: register 0 exists wherever the instruction does.
        unsafe { _xgetbv(0) }
    }
    // The halves of the vector registers that AVX has, then those of AVX-512 and its masks.
    let ymm = saved & 0x6 == 0x6;
    let zmm = saved & 0xe6 == 0xe6;
    let avx2 = ymm && bit(basic.ecx, 28) && bit(basic.ecx, 12) && bit(more.ebx, 5);
    Machine {
        avx2,
        avx512: avx2 && zmm && bit(more.ebx, 16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_again() {
        for isa in Isa::ALL {
            assert_eq!(Isa::named(isa.name()), Some(isa));
        }
        assert_eq!(Isa::named(c"sse9"), None);
    }

    #[test]
    fn the_processor_is_asked_as_the_standard_library_asks_it() {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            let avx2 =
                std::is_x86_feature_detected!("avx2") && std::is_x86_feature_detected!("fma");
            assert_eq!(Isa::Avx2.is_here(), avx2);
            let avx512 = std::is_x86_feature_detected!("avx512f");
            assert_eq!(Isa::Avx512.is_here(), avx512);
        }
        assert!(Isa::Scalar.is_here());
    }

    #[test]
    fn what_is_not_here_cannot_be_forced() {
        let before = Isa::current();
        for isa in Isa::ALL {
            assert_eq!(isa.force(), isa.is_here());
            if isa.is_here() {
                assert_eq!(Isa::current(), isa);
            }
        }
        assert!(before.force());
    }
}
