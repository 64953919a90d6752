//! Lanes without an instruction set.

use super::Lanes;

/// `N` floats, one after the other. With one it is what machines without vectors use, and what
/// the others are compared with; with 4, 8 and 16 it stands in tests for instruction sets that the
/// machine does not have.
#[derive(Clone, Copy, Debug)]
pub struct Portable<const N: usize>([f32; N]);

// SAFETY: nothing here needs an instruction set.
unsafe impl<const N: usize> Lanes for Portable<N> {
    const N: usize = N;
    type Seen = bool;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        // SAFETY: the caller says that `N` floats can be read.
        Portable(unsafe { at.cast::<[f32; N]>().read_unaligned() })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        // SAFETY: the caller says that `N` floats can be written.
        unsafe { at.cast::<[f32; N]>().write_unaligned(self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Portable([value; N])
    }

    #[inline(always)]
    unsafe fn larger(mut self, old: Self) -> Self {
        for (mine, old) in self.0.iter_mut().zip(old.0) {
            *mine = if *mine > old { *mine } else { old };
        }
        self
    }

    #[inline(always)]
    unsafe fn smaller(mut self, old: Self) -> Self {
        for (mine, old) in self.0.iter_mut().zip(old.0) {
            *mine = if *mine < old { *mine } else { old };
        }
        self
    }

    #[inline(always)]
    unsafe fn gt(self, other: Self) -> u32 {
        self.bits(other, |mine, other| mine > other)
    }

    #[inline(always)]
    unsafe fn ge(self, other: Self) -> u32 {
        self.bits(other, |mine, other| mine >= other)
    }

    #[inline(always)]
    unsafe fn unseen() -> bool {
        false
    }

    #[inline(always)]
    unsafe fn look(seen: bool, a: Self, b: Self) -> bool {
        let strange = |lanes: Self| lanes.0.iter().any(|value| value.is_nan());
        seen || strange(a) || strange(b)
    }

    #[inline(always)]
    unsafe fn has_seen(seen: bool) -> bool {
        seen
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let larger = |best, value| if value > best { value } else { best };
        self.0.into_iter().fold(f32::NEG_INFINITY, larger)
    }
}

impl<const N: usize> Portable<N> {
    #[inline(always)]
    fn bits(self, other: Self, is: impl Fn(f32, f32) -> bool) -> u32 {
        let mut bits = 0;
        for (at, (mine, other)) in self.0.into_iter().zip(other.0).enumerate() {
            bits |= u32::from(is(mine, other)) << at;
        }
        bits
    }
}
