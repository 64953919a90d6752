//! A vector of floats, one implementation for each instruction set.
//!
//! A kernel is written once, over [`Lanes`], and [`run`] compiles it for each instruction set. What
//! differs between them are the dozen short functions of an implementation: the rest of a kernel is
//! tested with all widths on any machine, by [`Portable`].

use crate::isa::Isa;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
mod neon;
mod portable;

pub use portable::Portable;

/// `N` floats that are worked on at once.
///
/// # Safety
/// Every function of an implementation may be called only where the processor has its instruction
/// set: that is so inside [`Vectored::run`]. Comparisons are those of `f32`: nothing is larger than,
/// smaller than or equal to what is not a number, and `-0.0 == 0.0`.
pub unsafe trait Lanes: Copy {
    /// How many.
    const N: usize;
    /// Remembers whether any lane was no number.
    type Seen: Copy;

    /// The `N` floats from `at` on, which need not be aligned.
    ///
    /// # Safety
    /// They can be read.
    unsafe fn load(at: *const f32) -> Self;

    /// Writes them from `at` on, which need not be aligned.
    ///
    /// # Safety
    /// `N` floats can be written there.
    unsafe fn store(self, at: *mut f32);

    /// The same in every lane.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn splat(value: f32) -> Self;

    /// `self > old ? self : old`, so that what is no number in `self` is passed over.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn larger(self, old: Self) -> Self;

    /// `self < old ? self : old`.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn smaller(self, old: Self) -> Self;

    /// Bit `i` is set where lane `i` of `self` is larger.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn gt(self, other: Self) -> u32;

    /// Bit `i` is set where lane `i` of `self` is larger or equal.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn ge(self, other: Self) -> u32;

    /// Nothing was seen yet.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn unseen() -> Self::Seen;

    /// `seen`, and whether a lane of `a` or `b` is no number.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn look(seen: Self::Seen, a: Self, b: Self) -> Self::Seen;

    /// Whether anything was seen.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn has_seen(seen: Self::Seen) -> bool;

    /// The largest lane, passing over what is no number; minus infinity where nothing else is there.
    ///
    /// # Safety
    /// See the trait.
    unsafe fn largest(self) -> f32;
}

/// Work that is compiled for every instruction set. `run`, and all that it calls with lanes, must be
/// `#[inline(always)]`: what is not inlined is compiled without the instruction set, and slow.
pub trait Vectored {
    /// What comes of it.
    type Output;

    /// Does it.
    ///
    /// # Safety
    /// The processor has the instruction set of `L`.
    unsafe fn run<L: Lanes>(self) -> Self::Output;
}

/// Does `work` with the instruction set `isa`; where this machine does not have it, without any.
pub fn run<W: Vectored>(isa: Isa, work: W) -> W::Output {
    match isa {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor was asked.
        Isa::Avx512 if isa.is_here() => unsafe { avx512::enter(work) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the processor was asked.
        Isa::Avx2 if isa.is_here() => unsafe { avx2::enter(work) },
        #[cfg(all(target_arch = "aarch64", target_feature = "neon"))]
        // SAFETY: the whole crate is compiled for it.
        Isa::Neon => unsafe { neon::enter(work) },
        // SAFETY: it needs none.
        _ => unsafe { work.run::<Portable<1>>() },
    }
}

/// The largest of `values`, passing over what is no number; minus infinity where nothing else is
/// there. With `LOOK`, also whether any is no number.
///
/// # Safety
/// The processor has the instruction set of `L`.
#[inline(always)]
pub unsafe fn largest_of<L: Lanes, const LOOK: bool>(values: &[f32]) -> (f32, bool) {
    let start = values.as_ptr();
    let mut at = 0;
    // SAFETY: loads end at `at + 4 * N <= len`; the caller says that the instructions are there.
    let (mut found, mut strange) = unsafe {
        let mut best = [L::splat(f32::NEG_INFINITY); 4];
        let mut seen = L::unseen();
        while at + 4 * L::N <= values.len() {
            let a = L::load(start.add(at));
            let b = L::load(start.add(at + L::N));
            let c = L::load(start.add(at + 2 * L::N));
            let d = L::load(start.add(at + 3 * L::N));
            best = [
                a.larger(best[0]),
                b.larger(best[1]),
                c.larger(best[2]),
                d.larger(best[3]),
            ];
            if LOOK {
                seen = L::look(L::look(seen, a, b), c, d);
            }
            at += 4 * L::N;
        }
        let best = (best[0].larger(best[1])).larger(best[2].larger(best[3]));
        (best.largest(), LOOK && L::has_seen(seen))
    };
    for value in values.iter().skip(at) {
        if *value > found {
            found = *value;
        }
        strange |= LOOK && value.is_nan();
    }
    (found, strange)
}
