//! What can be said about two sides from what was measured. Pure: numbers in, numbers out.
//!
//! | file | what it does |
//! | --- | --- |
//! | [`bootstrap`] | an interval of a trimmed mean |
//! | [`paired`] | rounds of paired samples into one such interval |
//! | [`decide`] | the interval against a threshold; what a run could have seen, and what it lacks |
//! | [`proportion`] | intervals of proportions and of their difference |
//!
//! A *cost* is a measure of which less is better: a time, a size, one over a speed. Changes are
//! natural logarithms of the ratio candidate / baseline of a cost, so that above 0 is worse; for
//! small ones the logarithm times 100 is about the change in per cent.

pub mod bootstrap;
pub mod decide;
pub mod paired;
pub mod proportion;

/// The share of intervals that hold the true value.
pub const LEVEL: f64 = 0.95;

/// The logarithm that a change by the fraction `change` is: 0.01 is 1 % more.
pub fn log_of(change: f64) -> f64 {
    change.ln_1p()
}

/// The change in per cent that a logarithm of a ratio is.
pub fn percent(log: f64) -> f64 {
    100.0 * log.exp_m1()
}

/// The median; of an even number the mean of the two in the middle. `None` of nothing.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let upper = *sorted.get(sorted.len() / 2)?;
    if sorted.len() % 2 == 1 {
        return Some(upper);
    }
    let lower = *sorted.get(sorted.len() / 2 - 1)?;
    Some((lower + upper) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_lies_in_the_middle() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }

    #[test]
    fn logarithms_and_per_cents_are_each_other() {
        for change in [-0.5, 0.0, 0.01, 2.0] {
            assert!((percent(log_of(change)) - 100.0 * change).abs() < 1e-9);
        }
    }
}
