//! How other tools decide that something became slower, written anew from what they publish.
//! Each is given all samples of either side, and history where it needs one.

#![allow(dead_code)]

use llama_patchset::stats::median;

use super::noise::Noise;

/// Whether the right side is called slower.
pub type Method = fn(&[f64], &[f64], &[f64]) -> bool;

/// All of them.
pub const METHODS: [(&str, Method); 5] = [
    ("compare-llama-bench (means, above 1 %)", ratio_of_means),
    ("LNT (Mann-Whitney p < 0.05, least above 1 %)", lnt),
    ("rustc-perf (IQR fence of 100 A/A runs)", rustc_perf),
    ("asv (Mann-Whitney p < 0.002, factor 1.1)", asv),
    ("asv with factor 1.01", asv_sharp),
];

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

fn least(values: &[f64]) -> f64 {
    values.iter().copied().fold(f64::INFINITY, f64::min)
}

/// compare-llama-bench prints the quotient of two means and decides nothing: here a reader who
/// takes more than 1 % for a loss.
fn ratio_of_means(left: &[f64], right: &[f64], _: &[f64]) -> bool {
    mean(right) / mean(left) > 1.01
}

/// LNT compares the least times, and takes a change of more than 1 % for real where a
/// Mann-Whitney test does not hold the samples for equal.
fn lnt(left: &[f64], right: &[f64], _: &[f64]) -> bool {
    least(right) / least(left) > 1.01 && mann_whitney(left, right) < 0.05
}

/// rustc-perf takes a change for significant where it is beyond the third quartile of the sizes
/// of earlier changes by three interquartile ranges, and keeps the least of repeated runs.
fn rustc_perf(left: &[f64], right: &[f64], history: &[f64]) -> bool {
    let mut sizes: Vec<f64> = history.iter().map(|change| change.abs()).collect();
    sizes.sort_by(f64::total_cmp);
    let quartile = |share: f64| sizes[(share * (sizes.len() - 1) as f64).round() as usize];
    let fence = quartile(0.75) + 3.0 * (quartile(0.75) - quartile(0.25));
    least(right) / least(left) - 1.0 > fence
}

/// asv: medians beyond a factor, where a Mann-Whitney test is sure.
fn asv(left: &[f64], right: &[f64], _: &[f64]) -> bool {
    median(right).unwrap() / median(left).unwrap() > 1.1 && mann_whitney(left, right) < 0.002
}

fn asv_sharp(left: &[f64], right: &[f64], _: &[f64]) -> bool {
    median(right).unwrap() / median(left).unwrap() > 1.01 && mann_whitney(left, right) < 0.002
}

/// Changes between runs of the same thing, each a process of its own, as rustc-perf has them.
pub fn history(noise: &Noise, rounds: usize, pairs: usize) -> Vec<f64> {
    (0..100)
        .map(|seed| {
            let (left, right) = noise.block(1_000_000 + seed, rounds * pairs, 0.0);
            least(&right) / least(&left) - 1.0
        })
        .collect()
}

/// Two-sided p of the Mann-Whitney U test, by its normal approximation; times have no ties.
fn mann_whitney(left: &[f64], right: &[f64]) -> f64 {
    use statrs::distribution::{ContinuousCDF, Normal};
    let mut all: Vec<(f64, bool)> = left.iter().map(|x| (*x, false)).collect();
    all.extend(right.iter().map(|x| (*x, true)));
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ranks = all.iter().zip(1..).filter(|((_, right), _)| *right);
    let sum: f64 = ranks.map(|(_, rank)| f64::from(rank)).sum();
    let (n, m) = (left.len() as f64, right.len() as f64);
    let u = sum - m * (m + 1.0) / 2.0;
    let deviation = (n * m * (n + m + 1.0) / 12.0).sqrt();
    let z = ((u - n * m / 2.0).abs() - 0.5).max(0.0) / deviation;
    2.0 * (1.0 - Normal::standard().cdf(z))
}

#[test]
fn mann_whitney_tells_apart_what_is_apart() {
    let low: Vec<f64> = (0..20).map(f64::from).collect();
    let high: Vec<f64> = (0..20).map(|x| f64::from(x) + 15.5).collect();
    assert!(mann_whitney(&low, &high) < 1e-4);
    let same: Vec<f64> = (0..20).map(|x| f64::from(x) + 0.5).collect();
    assert!(mann_whitney(&low, &same) > 0.7);
}
