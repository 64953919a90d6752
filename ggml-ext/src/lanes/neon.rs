//! Lanes of NEON, which every AArch64 has.

use core::arch::aarch64::*;

use super::{Lanes, Vectored};

/// Does `work` with NEON.
///
/// # Safety
/// The processor has it.
#[target_feature(enable = "neon")]
pub unsafe fn enter<W: Vectored>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Four>() }
}

/// Four floats.
#[derive(Clone, Copy)]
pub struct Four(float32x4_t);

impl Four {
    /// One bit of each lane of a comparison.
    #[inline(always)]
    unsafe fn bits(lanes: uint32x4_t) -> u32 {
        const BITS: [u32; 4] = [1, 2, 4, 8];
        // SAFETY: four numbers are there.
        unsafe { vaddvq_u32(vandq_u32(lanes, vld1q_u32(BITS.as_ptr()))) }
    }
}

// SAFETY, for every block below: the caller says that the processor has NEON; loads and stores take
// any address, and the caller says that four floats are there.
#[allow(clippy::undocumented_unsafe_blocks)]
// SAFETY: as above.
unsafe impl Lanes for Four {
    const N: usize = 4;
    /// A lane is 0 where something was seen, else all its bits are set.
    type Seen = uint32x4_t;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        Four(unsafe { vld1q_f32(at) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        unsafe { vst1q_f32(at, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Four(unsafe { vdupq_n_f32(value) })
    }

    // `vmaxq` would pass on what is no number.
    #[inline(always)]
    unsafe fn larger(self, old: Self) -> Self {
        Four(unsafe { vbslq_f32(vcgtq_f32(self.0, old.0), self.0, old.0) })
    }

    #[inline(always)]
    unsafe fn smaller(self, old: Self) -> Self {
        Four(unsafe { vbslq_f32(vcltq_f32(self.0, old.0), self.0, old.0) })
    }

    #[inline(always)]
    unsafe fn gt(self, other: Self) -> u32 {
        unsafe { Self::bits(vcgtq_f32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn ge(self, other: Self) -> u32 {
        unsafe { Self::bits(vcgeq_f32(self.0, other.0)) }
    }

    #[inline(always)]
    unsafe fn unseen() -> uint32x4_t {
        unsafe { vdupq_n_u32(u32::MAX) }
    }

    #[inline(always)]
    unsafe fn look(seen: uint32x4_t, a: Self, b: Self) -> uint32x4_t {
        let both = unsafe { vandq_u32(vceqq_f32(a.0, a.0), vceqq_f32(b.0, b.0)) };
        unsafe { vandq_u32(seen, both) }
    }

    #[inline(always)]
    unsafe fn has_seen(seen: uint32x4_t) -> bool {
        unsafe { vminvq_u32(seen) == 0 }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let none = unsafe { Self::splat(f32::NEG_INFINITY) };
        // Lanes that are no number become minus infinity first.
        unsafe { vmaxvq_f32(self.larger(none).0) }
    }
}
