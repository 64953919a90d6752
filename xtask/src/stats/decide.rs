//! An interval against a threshold.
//!
//! With `m` the threshold, `[l, h]` the interval of the change and less being better: **pass**
//! where `h ≤ m`, **fail** where `l > m`, **inconclusive** where the interval straddles `m`. So a
//! noisy run is never a pass, and a wrong fail needs an interval that misses the truth.

use statrs::distribution::{ContinuousCDF, Normal};

use super::bootstrap::Estimate;
use crate::model::Verdict;

/// The probability with which the smallest detectable change is detected.
const POWER: f64 = 0.95;

/// More rounds than this many times those there were are not worth naming.
const MOST: f64 = 50.0;

/// The verdict on a change that may be `threshold` at most, both logarithms.
pub fn decide(change: &Estimate, threshold: f64) -> Verdict {
    if change.high <= threshold {
        Verdict::Pass
    } else if change.low > threshold {
        Verdict::Fail
    } else {
        Verdict::Inconclusive
    }
}

/// Whether a control, in which both sides are the same, shows a change beyond the threshold in
/// either direction: the machine, or the way of measuring, is not fit to judge by it.
pub fn is_biased(control: &Estimate, threshold: f64) -> bool {
    control.low > threshold.max(0.0) || control.high < -threshold.max(0.0)
}

/// The smallest change, a logarithm, that a run as noisy as this one fails with a probability of
/// 95 %: the threshold, half the interval's width, and `z(0.95)` standard errors (Cohen,
/// *Statistical Power Analysis*, 1988, for the normal approximation).
pub fn smallest_detectable(change: &Estimate, threshold: f64) -> f64 {
    let z = Normal::standard().inverse_cdf(POWER);
    threshold + (change.high - change.low) / 2.0 + z * change.error
}

/// How many values more would decide, if the estimate stays where it is: an interval is as wide
/// as one over the square root of their number, and must become narrower than the distance to
/// the threshold. `Some(0)` where it is decided; `None` where the estimate is so near to the
/// threshold that no sensible number would do.
pub fn more_needed(change: &Estimate, threshold: f64) -> Option<usize> {
    if decide(change, threshold) != Verdict::Inconclusive {
        return Some(0);
    }
    let towards = if change.value <= threshold {
        change.high - change.value
    } else {
        change.value - change.low
    };
    let factor = (towards / (change.value - threshold)).powi(2);
    if !factor.is_finite() || factor > MOST {
        return None;
    }
    let count = change.count as f64;
    Some((count * (factor - 1.0)).ceil().max(1.0) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn estimate(low: f64, value: f64, high: f64) -> Estimate {
        Estimate {
            value,
            low,
            high,
            error: 0.01,
            count: 10,
        }
    }

    #[test]
    fn the_interval_decides_and_not_the_estimate() {
        assert_eq!(decide(&estimate(-0.02, -0.01, 0.0), 0.01), Verdict::Pass);
        assert_eq!(decide(&estimate(0.02, 0.03, 0.04), 0.01), Verdict::Fail);
        for straddles in [estimate(0.0, 0.005, 0.02), estimate(0.005, 0.03, 0.05)] {
            assert_eq!(decide(&straddles, 0.01), Verdict::Inconclusive);
        }
        // Equal to the last bit, and no change allowed.
        assert_eq!(decide(&estimate(0.0, 0.0, 0.0), 0.0), Verdict::Pass);
    }

    #[test]
    fn a_control_may_not_lie_beyond_the_threshold_on_either_side() {
        assert!(is_biased(&estimate(0.011, 0.02, 0.03), 0.01));
        assert!(is_biased(&estimate(-0.03, -0.02, -0.011), 0.01));
        assert!(!is_biased(&estimate(0.001, 0.005, 0.009), 0.01));
        assert!(!is_biased(&estimate(-0.05, 0.0, 0.05), 0.01));
    }

    #[test]
    fn what_is_missing_grows_as_the_estimate_nears_the_threshold() {
        let decided = estimate(0.02, 0.03, 0.04);
        assert_eq!(more_needed(&decided, 0.01), Some(0));
        // Half the width is twice the distance: four times as many values, 30 more.
        assert_eq!(
            more_needed(&estimate(-0.02, 0.0, 0.02), 0.01 + 1e-12),
            Some(30)
        );
        assert_eq!(more_needed(&estimate(-0.02, 0.0, 0.02), 0.015), Some(8));
        assert_eq!(more_needed(&estimate(-0.02, 0.01, 0.04), 0.01), None);
        assert_eq!(more_needed(&estimate(-0.02, 0.0099, 0.04), 0.01), None);
    }

    #[test]
    fn the_smallest_detectable_change_is_beyond_the_threshold() {
        let found = smallest_detectable(&estimate(-0.02, 0.0, 0.02), 0.01);
        assert!((found - (0.03 + 0.016_448_536)).abs() < 1e-6, "{found}");
    }
}
