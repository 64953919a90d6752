//! Intervals of proportions: accepted of drafted tokens.
//!
//! - One proportion: Wilson's score interval. With `p = k / n` and `z` the normal quantile its
//!   centre is `(p + z²/2n) / (1 + z²/n)` and its half width
//!   `z √(p(1−p)/n + z²/4n²) / (1 + z²/n)`. Wilson, *Probable inference, the law of succession,
//!   and statistical inference*, J. Am. Stat. Assoc. 22 (1927).
//! - The difference of two: the hybrid score interval from both Wilson intervals. Newcombe,
//!   *Interval estimation for the difference between independent proportions*, Stat. Med. 17
//!   (1998), method 10.

use statrs::distribution::{ContinuousCDF, Normal};

/// A proportion, or a difference of two, with its interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proportion {
    /// The estimate.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// `part` of `whole` with Wilson's interval. `None` where `whole` is 0 or below `part`.
pub fn wilson(part: u64, whole: u64, level: f64) -> Option<Proportion> {
    if whole == 0 || part > whole {
        return None;
    }
    let (n, z) = (whole as f64, quantile(level));
    let value = part as f64 / n;
    let scale = 1.0 + z * z / n;
    let centre = (value + z * z / (2.0 * n)) / scale;
    let half = z * (value * (1.0 - value) / n + z * z / (4.0 * n * n)).sqrt() / scale;
    Some(Proportion {
        value,
        // Rounding must not move an end past the estimate.
        low: (centre - half).clamp(0.0, value),
        high: (centre + half).clamp(value, 1.0),
    })
}

/// `right` less `left`, each `(part, whole)`, with Newcombe's interval; the two are independent.
pub fn difference(left: (u64, u64), right: (u64, u64), level: f64) -> Option<Proportion> {
    let left = wilson(left.0, left.1, level)?;
    let right = wilson(right.0, right.1, level)?;
    let value = right.value - left.value;
    let down = (right.value - right.low).hypot(left.high - left.value);
    let up = (right.high - right.value).hypot(left.value - left.low);
    Some(Proportion {
        value,
        low: value - down,
        high: value + up,
    })
}

fn quantile(level: f64) -> f64 {
    Normal::standard().inverse_cdf((1.0 + level) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn near(found: Proportion, low: f64, high: f64) {
        assert!((found.low - low).abs() < 5e-5, "{found:?}");
        assert!((found.high - high).abs() < 5e-5, "{found:?}");
    }

    /// The examples of Newcombe's papers of 1998.
    #[test]
    fn published_examples_come_out() {
        near(wilson(81, 263, 0.95).unwrap(), 0.2553, 0.3662);
        near(wilson(15, 148, 0.95).unwrap(), 0.0624, 0.1605);
        near(wilson(0, 20, 0.95).unwrap(), 0.0, 0.1611);
        near(
            difference((48, 80), (56, 70), 0.95).unwrap(),
            0.0524,
            0.3339,
        );
        near(difference((0, 10), (10, 10), 0.95).unwrap(), 0.6075, 1.0);
    }

    #[test]
    fn nothing_drafted_says_nothing() {
        assert_eq!(wilson(0, 0, 0.95), None);
        assert_eq!(wilson(2, 1, 0.95), None);
        assert_eq!(difference((1, 2), (0, 0), 0.95), None);
    }

    #[test]
    fn equal_proportions_differ_by_nothing() {
        let found = difference((30, 60), (30, 60), 0.95).unwrap();
        assert_eq!(found.value, 0.0);
        assert!(found.low < 0.0 && 0.0 < found.high);
    }
}
