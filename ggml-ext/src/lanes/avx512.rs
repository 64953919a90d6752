//! Lanes of AVX-512F.

use core::arch::x86_64::*;

use super::{Lanes, Vectored};

/// Does `work` with AVX-512F.
///
/// # Safety
/// The processor has AVX-512F.
#[target_feature(enable = "avx512f")]
pub unsafe fn enter<W: Vectored>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Sixteen>() }
}

/// Sixteen floats.
#[derive(Clone, Copy)]
pub struct Sixteen(__m512);

// SAFETY, for every block below: the caller says that the processor has AVX-512F; loads and stores take
// any address, and the caller says that sixteen floats are there.
#[allow(clippy::undocumented_unsafe_blocks)]
// SAFETY: as above.
unsafe impl Lanes for Sixteen {
    const N: usize = 16;
    /// A bit for each lane.
    type Seen = u16;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        Sixteen(unsafe { _mm512_loadu_ps(at) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        unsafe { _mm512_storeu_ps(at, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Sixteen(unsafe { _mm512_set1_ps(value) })
    }

    // The instruction gives its second operand where either is no number, or both are zeros.
    #[inline(always)]
    unsafe fn larger(self, old: Self) -> Self {
        Sixteen(unsafe { _mm512_max_ps(self.0, old.0) })
    }

    #[inline(always)]
    unsafe fn smaller(self, old: Self) -> Self {
        Sixteen(unsafe { _mm512_min_ps(self.0, old.0) })
    }

    #[inline(always)]
    unsafe fn gt(self, other: Self) -> u32 {
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_GT_OQ>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn ge(self, other: Self) -> u32 {
        u32::from(unsafe { _mm512_cmp_ps_mask::<_CMP_GE_OQ>(self.0, other.0) })
    }

    #[inline(always)]
    unsafe fn unseen() -> u16 {
        0
    }

    #[inline(always)]
    unsafe fn look(seen: u16, a: Self, b: Self) -> u16 {
        seen | unsafe { _mm512_cmp_ps_mask::<_CMP_UNORD_Q>(a.0, b.0) }
    }

    #[inline(always)]
    unsafe fn has_seen(seen: u16) -> bool {
        seen != 0
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let none = unsafe { Self::splat(f32::NEG_INFINITY) };
        // Lanes that are no number become minus infinity first.
        let all = unsafe { self.larger(none) };
        unsafe { _mm512_reduce_max_ps(all.0) }
    }
}
