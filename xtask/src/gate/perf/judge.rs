//! Verdicts of the gate "not slower": pure functions of what was measured.

use std::collections::BTreeSet;

use super::{Measured, PerfPlan};
use crate::model::{
    ChangeRecord, CounterRecord, Metric, MetricRecord, Relation, RoundRecord, SideSamples, Verdict,
};
use crate::stats::bootstrap::{Estimate, FEWEST};
use crate::stats::decide::{decide, is_biased, more_needed, smallest_detectable};
use crate::stats::paired::{self, Round};
use crate::stats::{log_of, median, percent};

/// Resamples are drawn from this seed, always: the same measurements give the same verdict.
const SEED: u64 = 1;

/// Judges every metric at every `n_max`.
pub fn metrics(plan: &PerfPlan, n_max: &[u32], measured: &Measured) -> Vec<MetricRecord> {
    let places = n_max
        .iter()
        .flat_map(|&n_max| Metric::ALL.map(|metric| (n_max, metric)));
    places
        .filter_map(|(n_max, metric)| {
            let of = |control: bool| -> Vec<&RoundRecord> {
                let rounds = measured.rounds.iter();
                rounds
                    .filter(|round| round.control == control && round.n_max == n_max)
                    .collect()
            };
            one(plan, n_max, metric, &of(true), &of(false))
        })
        .collect()
}

/// `None` where it was neither measured nor asked for.
fn one(
    plan: &PerfPlan,
    n_max: u32,
    metric: Metric,
    control: &[&RoundRecord],
    rounds: &[&RoundRecord],
) -> Option<MetricRecord> {
    let threshold = plan.thresholds.get(&metric).copied();
    let mut record = MetricRecord {
        metric,
        n_max,
        verdict: None,
        reason: None,
        threshold,
        baseline: typical(rounds, metric, |round| &round.baseline),
        candidate: typical(rounds, metric, |round| &round.candidate),
        worse: None,
        control: None,
        detectable: None,
        more_pairs: None,
    };
    let (Some(left), Some(right)) = (costs(control, metric), costs(rounds, metric)) else {
        threshold?;
        record.verdict = Some(Verdict::Inconclusive);
        record.reason = Some("it was not measured: the system does not tell".to_owned());
        return Some(record);
    };
    let (control, change) = (paired::change(&left, SEED), paired::change(&right, SEED));
    record.control = control.map(|control| show(&control, &left));
    record.worse = change.map(|change| show(&change, &right));
    let threshold = threshold.map(log_of);
    let (Some(control), Some(change)) = (control, change) else {
        if threshold.is_some() {
            record.verdict = Some(Verdict::Inconclusive);
            record.reason = Some(format!(
                "the time budget ended after {} rounds of the control and {} of the comparison; \
                 fewer than {FEWEST} say nothing",
                left.len(),
                right.len()
            ));
        }
        return Some(record);
    };
    let pairs = |rounds: usize| rounds * right.first().map_or(1, |round| round.left.len());
    record.detectable = Some(percent(smallest_detectable(
        &change,
        threshold.unwrap_or(0.0),
    )));
    if let Some(threshold) = threshold {
        let verdict = match is_biased(&control, threshold) {
            true => Verdict::Inconclusive,
            false => decide(&change, threshold),
        };
        let more = more_needed(&change, threshold).map(pairs);
        record.reason = match verdict {
            _ if is_biased(&control, threshold) => Some(format!(
                "the baseline differs from itself (A/A) by {}, which is beyond the threshold of \
                 {:.1} %",
                interval(&control),
                percent(threshold)
            )),
            Verdict::Pass => None,
            Verdict::Fail => Some(format!(
                "worse by {}; allowed are {:.1} %",
                interval(&change),
                percent(threshold)
            )),
            _ => Some(format!(
                "worse by {}, which straddles the threshold of {:.1} %: {}",
                interval(&change),
                percent(threshold),
                match more {
                    Some(more) => format!("about {more} more pairs would decide"),
                    None => "no sensible number of pairs would decide, so near is it".to_owned(),
                }
            )),
        };
        record.verdict = Some(verdict);
        record.more_pairs = more;
    }
    Some(record)
}

/// What a metric costs in each round; `None` where one lacks it.
fn costs(rounds: &[&RoundRecord], metric: Metric) -> Option<Vec<Round>> {
    let costs = |side: &SideSamples| -> Option<Vec<f64>> {
        let values = side
            .values
            .get(&metric)
            .filter(|values| !values.is_empty())?;
        let cost = |value: &f64| match metric.is_speed() {
            true => 1.0 / value,
            false => *value,
        };
        Some(values.iter().map(cost).collect())
    };
    let round = |round: &&RoundRecord| {
        Some(Round {
            left: costs(&round.baseline)?,
            right: costs(&round.candidate)?,
        })
    };
    rounds.iter().map(round).collect()
}

fn typical(
    rounds: &[&RoundRecord],
    metric: Metric,
    side: impl Fn(&RoundRecord) -> &SideSamples,
) -> Option<f64> {
    let values = rounds
        .iter()
        .filter_map(|round| side(round).values.get(&metric));
    median(&values.flatten().copied().collect::<Vec<f64>>())
}

fn show(estimate: &Estimate, rounds: &[Round]) -> ChangeRecord {
    ChangeRecord {
        percent: percent(estimate.value),
        low: percent(estimate.low),
        high: percent(estimate.high),
        pairs: rounds.iter().map(|round| round.left.len()).sum(),
    }
}

fn interval(estimate: &Estimate) -> String {
    format!(
        "{:+.2} % [{:+.2} %, {:+.2} %]",
        percent(estimate.value),
        percent(estimate.low),
        percent(estimate.high)
    )
}

/// Judges the counters at every `n_max`: what does not depend on the machine needs no statistics,
/// but it must be the same in every round.
pub fn counters(plan: &PerfPlan, n_max: &[u32], measured: &Measured) -> Vec<CounterRecord> {
    let mut records = Vec::new();
    for &n_max in n_max {
        let rounds = measured.rounds.iter().filter(|round| round.n_max == n_max);
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for round in rounds {
            left.push(&round.baseline);
            if round.control {
                left.push(&round.candidate);
            } else {
                right.push(&round.candidate);
            }
        }
        let counted = left
            .iter()
            .chain(&right)
            .filter_map(|side| side.counters.as_ref());
        let mut names: BTreeSet<&str> = counted
            .flat_map(|counters| counters.keys().map(String::as_str))
            .collect();
        names.extend(plan.counters.keys().map(String::as_str));
        for name in names {
            let relation = plan.counters.get(name).copied();
            // Without a drafter there is nothing that could become less.
            let relation =
                relation.filter(|r| n_max > 0 || !matches!(r, Relation::Less | Relation::More));
            records.push(counter(name, n_max, relation, &left, &right));
        }
    }
    records
}

/// Judges one counter of what the baseline and the candidate counted, each at least once.
pub fn counter(
    name: &str,
    n_max: u32,
    relation: Option<Relation>,
    left: &[&SideSamples],
    right: &[&SideSamples],
) -> CounterRecord {
    let (baseline, candidate) = (always(name, left), always(name, right));
    let (verdict, reason) = match (relation, &baseline, &candidate) {
        (None, ..) => (None, None),
        // Without a drafter, or with one that is no model, there may be none on both sides; nothing that a model did
        // is done without a launch.
        (Some(_), Ok(1..), Ok(0)) if name.starts_with("launches") && n_max > 0 => (
            Some(Verdict::Inconclusive),
            Some("the candidate drafted, and counts no launch at all".to_owned()),
        ),
        (Some(relation), Ok(baseline), Ok(candidate)) => {
            if relation.holds(*baseline, *candidate) {
                (Some(Verdict::Pass), None)
            } else {
                let words = relation.words();
                let what = format!("{candidate} against {baseline}; it must be {words}");
                (Some(Verdict::Fail), Some(what))
            }
        }
        (Some(_), Err(what), _) => (
            Some(Verdict::Inconclusive),
            Some(format!("the baseline {what}")),
        ),
        (Some(_), _, Err(what)) => (
            Some(Verdict::Inconclusive),
            Some(format!("the candidate {what}")),
        ),
    };
    CounterRecord {
        name: name.to_owned(),
        n_max,
        relation,
        verdict,
        reason,
        baseline: baseline.ok(),
        candidate: candidate.ok(),
    }
}

/// The value that all runs agree on.
fn always(name: &str, sides: &[&SideSamples]) -> Result<u64, &'static str> {
    let mut found = None;
    for side in sides {
        let value = side
            .counters
            .as_ref()
            .and_then(|counters| counters.get(name));
        let Some(value) = value else {
            return Err("does not count it; set OPENCOTI_SPEC_COUNTERS=1 on both sides");
        };
        if side.vary.contains(name) || found.is_some_and(|found| found != *value) {
            return Err("does not count the same in every run");
        }
        found = Some(*value);
    }
    found.ok_or("was not measured")
}

/// Stands among the counters of which a later run gave another value for the tokens themselves.
pub const TOKENS: &str = "tokens";

/// Where the two sides did other work, nothing can be said of which is slower or counts less: takes back
/// what was judged at such an `n_max`.
pub fn hold_work(
    metrics: &mut [MetricRecord],
    counters: &mut [CounterRecord],
    measured: &Measured,
) {
    let of = |n_max: u32| -> Vec<&RoundRecord> {
        let rounds = measured.rounds.iter();
        rounds.filter(|round| round.n_max == n_max).collect()
    };
    let hold = |n_max: u32, verdict: &mut Option<Verdict>, reason: &mut Option<String>| {
        if verdict.is_some()
            && let Some(what) = other_work(n_max, &of(n_max))
        {
            (*verdict, *reason) = (Some(Verdict::Inconclusive), Some(what));
        }
    };
    for metric in metrics {
        hold(metric.n_max, &mut metric.verdict, &mut metric.reason);
    }
    for counter in counters {
        hold(counter.n_max, &mut counter.verdict, &mut counter.reason);
    }
}

/// How the sides did not do the same, or not what they were to do.
fn other_work(n_max: u32, rounds: &[&RoundRecord]) -> Option<String> {
    let mut first = None;
    for round in rounds {
        let other = match round.control {
            true => "control",
            false => "candidate",
        };
        for (name, side) in [("baseline", &round.baseline), (other, &round.candidate)] {
            // What is only simulated has no tokens.
            let Some(tokens) = side.tokens else {
                continue;
            };
            if side.vary.contains(TOKENS) {
                return Some(format!(
                    "the {name} does not give the same tokens in every run"
                ));
            }
            if *first.get_or_insert(tokens) != tokens {
                return Some(format!(
                    "the {name} gave other tokens than the first baseline: the work is not the same"
                ));
            }
            if (side.drafted > 0) != (n_max > 0) {
                return Some(format!("the {name} drafted {} tokens", side.drafted));
            }
        }
    }
    None
}

/// Over all metrics and counters that are judged.
pub fn verdict(metrics: &[MetricRecord], counters: &[CounterRecord]) -> Verdict {
    let metrics = metrics.iter().filter_map(|metric| metric.verdict);
    Verdict::all(metrics.chain(counters.iter().filter_map(|counter| counter.verdict)))
}
