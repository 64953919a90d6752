//! Lanes of AVX2.

use core::arch::x86_64::*;

use super::{Lanes, Vectored};

/// Does `work` with AVX2.
///
/// # Safety
/// The processor has AVX2 and FMA.
#[target_feature(enable = "avx2,fma")]
pub unsafe fn enter<W: Vectored>(work: W) -> W::Output {
    // SAFETY: the caller says so.
    unsafe { work.run::<Eight>() }
}

/// Eight floats.
#[derive(Clone, Copy)]
pub struct Eight(__m256);

// SAFETY, for every block below: the caller says that the processor has AVX2; loads and stores take
// any address, and the caller says that eight floats are there.
#[allow(clippy::undocumented_unsafe_blocks)]
// SAFETY: as above.
unsafe impl Lanes for Eight {
    const N: usize = 8;
    /// All bits of a lane are set where something was seen.
    type Seen = __m256;

    #[inline(always)]
    unsafe fn load(at: *const f32) -> Self {
        Eight(unsafe { _mm256_loadu_ps(at) })
    }

    #[inline(always)]
    unsafe fn store(self, at: *mut f32) {
        unsafe { _mm256_storeu_ps(at, self.0) }
    }

    #[inline(always)]
    unsafe fn splat(value: f32) -> Self {
        Eight(unsafe { _mm256_set1_ps(value) })
    }

    // The instruction gives its second operand where either is no number, or both are zeros.
    #[inline(always)]
    unsafe fn larger(self, old: Self) -> Self {
        Eight(unsafe { _mm256_max_ps(self.0, old.0) })
    }

    #[inline(always)]
    unsafe fn smaller(self, old: Self) -> Self {
        Eight(unsafe { _mm256_min_ps(self.0, old.0) })
    }

    #[inline(always)]
    unsafe fn gt(self, other: Self) -> u32 {
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GT_OQ>(self.0, other.0)).cast_unsigned() }
    }

    #[inline(always)]
    unsafe fn ge(self, other: Self) -> u32 {
        unsafe { _mm256_movemask_ps(_mm256_cmp_ps::<_CMP_GE_OQ>(self.0, other.0)).cast_unsigned() }
    }

    #[inline(always)]
    unsafe fn unseen() -> __m256 {
        unsafe { _mm256_setzero_ps() }
    }

    #[inline(always)]
    unsafe fn look(seen: __m256, a: Self, b: Self) -> __m256 {
        unsafe { _mm256_or_ps(seen, _mm256_cmp_ps::<_CMP_UNORD_Q>(a.0, b.0)) }
    }

    #[inline(always)]
    unsafe fn has_seen(seen: __m256) -> bool {
        unsafe { _mm256_movemask_ps(seen) != 0 }
    }

    #[inline(always)]
    unsafe fn largest(self) -> f32 {
        let none = unsafe { Self::splat(f32::NEG_INFINITY) };
        // Lanes that are no number become minus infinity first.
        let all = unsafe { self.larger(none) };
        // Halves, then quarters, then eighths.
        unsafe {
            let low = _mm256_castps256_ps128(all.0);
            let four = _mm_max_ps(low, _mm256_extractf128_ps::<1>(all.0));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps::<1>(two, two)))
        }
    }
}
