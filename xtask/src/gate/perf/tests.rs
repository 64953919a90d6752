use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use super::judge;
use super::*;
use crate::ctx::{Cancel, Quiet};
use crate::error::Error;
use crate::fixture::rng::Stream;
use crate::model::{Metric, MetricRecord, PerfGate, Relation, SideSamples, Verdict};

/// A machine with a slow drift and some jitter; `change` makes the candidate's times longer,
/// `control` those of the control.
struct Fake {
    change: f64,
    control: f64,
    counters: fn(&RoundPlan, bool) -> Option<BTreeMap<String, u64>>,
    stream: Mutex<(Stream, f64)>,
}

fn fake(change: f64, control: f64) -> Fake {
    Fake {
        change,
        control,
        counters: |_, right| Some(counted(if right { 40 } else { 80 })),
        stream: Mutex::new((Stream::new(11, "fake"), 1.0)),
    }
}

fn counted(launches: u64) -> BTreeMap<String, u64> {
    BTreeMap::from([
        ("launches_dft".to_owned(), launches),
        ("cycles".to_owned(), 20),
    ])
}

impl Bench for Fake {
    fn round(&self, plan: RoundPlan, _: &Halt) -> Result<RoundRecord> {
        let mut guard = self.stream.lock().unwrap();
        let (stream, time) = &mut *guard;
        let mut sides = [SideSamples::default(), SideSamples::default()];
        for _ in 0..plan.pairs {
            for (at, side) in sides.iter_mut().enumerate() {
                *time *= 1.001;
                let change = match (at, plan.control) {
                    (0, _) => 0.0,
                    (_, true) => self.control,
                    (_, false) => self.change,
                };
                let jitter = (0.01 * f64::from(stream.normal())).exp();
                let seconds = 0.01 * jitter * *time * (1.0 + change);
                let mut push = |metric, value| {
                    side.values
                        .entry(metric)
                        .or_insert_with(Vec::new)
                        .push(value);
                };
                push(Metric::Decode, 1.0 / seconds);
                push(Metric::FirstToken, 1000.0 * seconds);
            }
        }
        let [mut baseline, mut candidate] = sides;
        baseline.counters = (self.counters)(&plan, false);
        candidate.counters = (self.counters)(&plan, !plan.control);
        Ok(RoundRecord {
            control: plan.control,
            n_max: plan.n_max,
            baseline,
            candidate,
        })
    }
}

fn plan() -> PerfPlan {
    PerfPlan {
        planned: [10, 20],
        pairs: 4,
        warm_up: 0,
        budget: Duration::from_secs(600),
        thresholds: BTreeMap::from([(Metric::Decode, 0.01)]),
        counters: BTreeMap::from([("launches_dft".to_owned(), Relation::Less)]),
    }
}

fn with(plan: &PerfPlan, bench: &dyn Bench) -> Result<PerfRecord> {
    run(plan, &[0, 3], bench, &Halt::new(&Cancel::default()), &Quiet)
}

fn decode(record: &PerfRecord) -> &MetricRecord {
    let mut metrics = record.metrics.iter();
    metrics
        .find(|m| m.n_max == 3 && m.metric == Metric::Decode)
        .unwrap()
}

fn verdict(record: &PerfRecord) -> Verdict {
    judge::verdict(&record.metrics, &record.counters)
}

#[test]
fn equal_sides_pass_and_slower_ones_fail() {
    let record = with(&plan(), &fake(0.0, 0.0)).unwrap();
    assert_eq!(verdict(&record), Verdict::Pass, "{:?}", record.metrics);
    assert_eq!(decode(&record).more_pairs, Some(0));
    assert_eq!(record.done, [10, 20]);
    for change in [0.03, 0.1] {
        let record = with(&plan(), &fake(change, 0.0)).unwrap();
        assert_eq!(verdict(&record), Verdict::Fail);
        let found = decode(&record);
        let worse = found.worse.unwrap();
        assert!(worse.low < 100.0 * change && 100.0 * change < worse.high);
        assert!(found.reason.as_ref().unwrap().contains("allowed are 1.0 %"));
        assert!(found.candidate.unwrap() < found.baseline.unwrap());
    }
}

#[test]
fn a_change_as_large_as_the_threshold_is_inconclusive() {
    let record = with(&plan(), &fake(0.01, 0.0)).unwrap();
    assert_eq!(verdict(&record), Verdict::Inconclusive);
    let reason = decode(&record).reason.clone().unwrap();
    assert!(
        reason.contains("straddles the threshold of 1.0 %"),
        "{reason}"
    );
    assert!(reason.contains("would decide"), "{reason}");
}

#[test]
fn what_is_lacking_is_told_in_whole_rounds() {
    let mut few = plan();
    few.planned = [10, 6];
    let record = with(&few, &fake(0.004, 0.0)).unwrap();
    let found = decode(&record);
    assert_eq!(found.verdict, Some(Verdict::Inconclusive), "{found:?}");
    let more = found.more_pairs.unwrap();
    assert!(more > 0 && more.is_multiple_of(few.pairs), "{more}");
    let reason = found.reason.as_ref().unwrap();
    assert!(reason.contains(&format!("about {more} more pairs")));
}

#[test]
fn a_control_that_differs_is_never_a_verdict() {
    for (change, control) in [(0.0, 0.03), (0.1, 0.03), (0.1, -0.03)] {
        let record = with(&plan(), &fake(change, control)).unwrap();
        assert_eq!(verdict(&record), Verdict::Inconclusive);
        let reason = decode(&record).reason.clone().unwrap();
        assert!(
            reason.contains("the baseline differs from itself (A/A)"),
            "{reason}"
        );
    }
}

#[test]
fn what_has_no_threshold_is_shown_and_not_judged() {
    let record = with(&plan(), &fake(0.0, 0.0)).unwrap();
    let mut metrics = record.metrics.iter();
    let first = metrics.find(|m| m.metric == Metric::FirstToken).unwrap();
    assert_eq!((first.verdict, first.threshold), (None, None));
    assert!(first.worse.is_some());
    // Neither measured nor asked for.
    assert!(record.metrics.iter().all(|m| m.metric != Metric::Rss));
}

#[test]
fn what_was_not_measured_is_inconclusive() {
    let mut plan = plan();
    plan.thresholds.insert(Metric::Rss, 0.1);
    let record = with(&plan, &fake(0.0, 0.0)).unwrap();
    assert_eq!(verdict(&record), Verdict::Inconclusive);
}

fn counters(of: fn(&RoundPlan, bool) -> Option<BTreeMap<String, u64>>) -> (Verdict, String) {
    let mut bench = fake(0.0, 0.0);
    bench.counters = of;
    let record = with(&plan(), &bench).unwrap();
    let mut judged = record.counters.iter();
    let found = judged.find(|counter| counter.verdict.is_some()).unwrap();
    assert_eq!((found.name.as_str(), found.n_max), ("launches_dft", 3));
    (verdict(&record), found.reason.clone().unwrap_or_default())
}

#[test]
fn counters_are_compared_exactly() {
    let (found, reason) = counters(|_, _| Some(counted(80)));
    assert_eq!(found, Verdict::Fail);
    assert_eq!(reason, "80 against 80; it must be less");
    let (found, _) = counters(|_, right| Some(counted(if right { 79 } else { 80 })));
    assert_eq!(found, Verdict::Pass);
}

#[test]
fn counters_that_are_missing_or_vary_are_inconclusive() {
    let (found, reason) = counters(|_, _| None);
    assert_eq!(found, Verdict::Inconclusive);
    assert!(reason.contains("OPENCOTI_SPEC_COUNTERS=1"), "{reason}");
    let (found, reason) = counters(|_, right| (!right).then(|| counted(80)));
    assert_eq!(found, Verdict::Inconclusive);
    assert!(reason.contains("the candidate does not count"), "{reason}");
    let (found, reason) = counters(|plan, right| {
        let drifts = u64::from(right && plan.number == 7);
        Some(counted(if right { 40 } else { 80 } + drifts))
    });
    assert_eq!(found, Verdict::Inconclusive);
    assert!(
        reason.contains("not count the same in every run"),
        "{reason}"
    );
}

#[test]
fn a_budget_that_ends_early_says_so() {
    let mut plan = plan();
    plan.budget = Duration::from_nanos(1);
    let record = with(&plan, &fake(0.0, 0.0)).unwrap();
    assert_eq!(record.done, [0, 0]);
    assert_eq!(verdict(&record), Verdict::Inconclusive);
}

#[test]
fn an_error_ends_the_run() {
    struct Dies;
    impl Bench for Dies {
        fn round(&self, plan: RoundPlan, halt: &Halt) -> Result<RoundRecord> {
            match plan.number {
                3 => Err(Error::environment("the server ended")),
                _ => fake(0.0, 0.0).round(plan, halt),
            }
        }
    }
    let error = with(&plan(), &Dies).unwrap_err();
    assert_eq!(error.message(), "the server ended");
}

#[test]
fn a_counter_that_varies_does_not_spoil_the_others() {
    let plan = plan();
    let bench = fake(0.0, 0.0);
    let halt = Halt::new(&Cancel::default());
    let mut measured = measure(&plan, &[3], &bench, &halt, &Quiet).unwrap();
    for (name, expected) in [
        ("cycles", Verdict::Pass),
        ("launches_dft", Verdict::Inconclusive),
    ] {
        let vary = &mut measured.rounds[12].candidate.vary;
        vary.insert(name.to_owned());
        let records = judge::counters(&plan, &[3], &measured);
        let found = records.iter().find(|c| c.name == "launches_dft").unwrap();
        assert_eq!(found.verdict, Some(expected), "{name}");
    }
}

const GOOD: &str = r#"
schema = 1
id = "quick"
kind = "perf"
title = "Not slower"
model = { fixture = "tiny" }
n-max = [3]
n-predict = 8
threshold = { decode = 0.01 }
prompt = [{ name = "a", ids = [1] }]
"#;

#[test]
fn wrong_definitions_are_refused() {
    let read = |text: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("quick.toml");
        fs_err::write(&path, text).unwrap();
        let definition: PerfGate = crate::model::read_toml(&path)?;
        PerfPlan::new(&definition, false)
    };
    let plan = read(GOOD).unwrap();
    assert_eq!(plan.planned, [12, 24]);
    assert_eq!(plan.pairs, 4);
    let cases = [
        ("rounds = 4", "must be 5 at least"),
        ("control-rounds = 1", "must be 5 at least"),
        ("rounds = 100000", "10000 at most"),
        ("blocks = 0", "is 0"),
        ("budget = 0", "is 0"),
        ("counters = { us_draft = \"less\" }", "which is a time"),
        ("counters = { cycles = \"fewer\" }", "unknown variant"),
        ("pairs = 3", "unknown field"),
    ];
    for (line, expected) in cases {
        let error = read(&format!("{GOOD}{line}\n")).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config, "{line}: {error}");
        assert!(error.to_string().contains(expected), "{line}: {error}");
    }
    for (from, to, expected) in [
        ("0.01", "-0.01", "not between"),
        ("decode", "speed", "unknown variant"),
        ("n-predict = 8", "n-predict = 1", "below 2"),
        ("{ decode = 0.01 }", "{}", "nothing would be judged"),
    ] {
        let error = read(&GOOD.replace(from, to)).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
}
