//! Rounds of paired samples.
//!
//! A **round** is one life of both sides: two fresh processes, and pairs of measurements in the
//! order A B B A. Within a round the median of the pairs' changes counts, which neither a slow
//! spell that both samples of a pair share nor an outlier moves, and from which a steady drift
//! falls out, since every other pair has the other order. Between rounds the trimmed mean and its
//! interval are taken: what one start of a process brings along (addresses, pages, frequencies)
//! is then part of the spread, and cannot pass for an effect.

use super::bootstrap::{Estimate, interval};
use super::{LEVEL, median};

/// What one round measured: costs, in the order in which they were measured on each side.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Round {
    /// Of what is compared with.
    pub left: Vec<f64>,
    /// Of what is judged; the one of the same place is its pair.
    pub right: Vec<f64>,
}

impl Round {
    /// The median change over the round's pairs.
    pub fn change(&self) -> Option<f64> {
        let pairs = self.left.iter().zip(&self.right);
        let changes: Vec<f64> = pairs.map(|(left, right)| (right / left).ln()).collect();
        median(&changes)
    }
}

/// The change over all rounds with its interval; `None` where there are too few.
pub fn change(rounds: &[Round], seed: u64) -> Option<Estimate> {
    let changes: Option<Vec<f64>> = rounds.iter().map(Round::change).collect();
    interval(&changes?, LEVEL, seed)
}

/// Whether the right side is measured before the left, for each pair of round `round`: A B B A,
/// and B A A B in every other round.
pub fn right_first(round: usize, pairs: usize) -> Vec<bool> {
    (0..pairs).map(|pair| (round + pair) % 2 == 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_is_abba_and_turns() {
        assert_eq!(right_first(0, 4), [false, true, false, true]);
        assert_eq!(right_first(1, 2), [true, false]);
    }

    #[test]
    fn drift_and_shared_slowness_fall_out_of_a_round() {
        let (mut time, mut round) = (0, Round::default());
        let mut measure = |effect: f64| {
            time += 1;
            let slow = if (5..9).contains(&time) { 3.0 } else { 1.0 };
            slow * effect * (0.01 * f64::from(time)).exp()
        };
        for right_first in right_first(0, 6) {
            let first = measure(if right_first { 1.02 } else { 1.0 });
            let second = measure(if right_first { 1.0 } else { 1.02 });
            let (left, right) = if right_first {
                (second, first)
            } else {
                (first, second)
            };
            round.left.push(left);
            round.right.push(right);
        }
        let change = round.change().unwrap();
        assert!((change - 1.02f64.ln()).abs() < 1e-9, "{change}");
    }

    #[test]
    fn a_round_without_pairs_says_nothing() {
        assert_eq!(Round::default().change(), None);
        assert_eq!(change(&vec![Round::default(); 9], 1), None);
    }
}
