use super::*;
use crate::gate::Report;
use crate::gate::testing::{record, tangle};
use crate::model::{CheckRecord, GateRecord, MetricRecord, PerfRecord};

fn report(record: GateRecord) -> Report {
    Report {
        verdict: record.verdict,
        records: vec![record],
        files: Vec::new(),
        report: std::path::PathBuf::new(),
        skipped: Vec::new(),
        left_out: Vec::new(),
        blessed: Vec::new(),
        run: String::new(),
        errors: Vec::new(),
        lacking: false,
    }
}

#[test]
fn a_verdict_is_taken_from_the_record() {
    let good = said(Ok(report(record(&|_, _, _| {}))), None).unwrap();
    assert_eq!((good.verdict, good.reason), (Verdict::Pass, None));
    let bad = said(Ok(report(record(&tangle))), None).unwrap();
    assert_eq!(bad.verdict, Verdict::Fail);
    let reason = bad.reason.unwrap();
    assert!(
        reason.starts_with("prompt `b`, n_max 3, 1 slot: baseline"),
        "{reason}"
    );
}

#[test]
fn the_reason_of_any_kind_of_part_is_told() {
    let check = |name: &str, verdict, reason: &str| CheckRecord {
        name: name.to_owned(),
        verdict,
        found: String::new(),
        reason: Some(reason.to_owned()),
    };
    let mut bad = record(&|_, _, _| {});
    bad.verdict = Verdict::Fail;
    bad.checks = vec![
        check("needs", Verdict::Inconclusive, "unknown"),
        check("exports", Verdict::Fail, "one is gone"),
    ];
    let said = said(Ok(report(bad)), None).unwrap();
    assert_eq!(
        said.reason.as_deref(),
        Some("checks name exports: one is gone")
    );
}

#[test]
fn two_sides_that_are_the_same_are_no_fault_unless_the_control_is() {
    let same = |change| {
        let mut record = record(change);
        record.candidate = record.baseline.clone();
        record.verdict = Verdict::Inconclusive;
        record.reason = Some("the very same files".to_owned());
        said(Ok(report(record)), None).unwrap()
    };
    assert_eq!(same(&|_, _, _| {}).verdict, Verdict::Pass);
    let unclear = same(&|session, _, answers| {
        if session.run == crate::gate::session::Run::Control {
            answers[0].tokens[0] = 9;
        }
    });
    assert_eq!(unclear.verdict, Verdict::Inconclusive);
    assert!(unclear.again);
    // Other switches make them differ, and then the record's word counts.
    let mut other = record(&|_, _, _| {});
    other.candidate = other.baseline.clone();
    other.candidate.env = vec!["OPENCOTI_X=1".to_owned()];
    other.verdict = Verdict::Inconclusive;
    assert_eq!(
        said(Ok(report(other)), None).unwrap().verdict,
        Verdict::Inconclusive
    );
}

#[test]
fn errors_are_unclear_where_another_prefix_may_do_better() {
    for (error, broke, again) in [
        (Error::finding("the patched build fails"), false, false),
        (
            Error::environment("the server ended by signal 6 (SIGABRT)"),
            true,
            false,
        ),
        (Error::new(Kind::Inconclusive, "no trace"), false, true),
    ] {
        let said = said(Err(error), None).unwrap();
        assert_eq!(said.verdict, Verdict::Inconclusive);
        assert_eq!((said.broke, said.again), (broke, again));
    }
    for error in [Error::interrupted(), Error::usage("x"), Error::config("x")] {
        let kind = error.kind();
        assert_eq!(said(Err(error), None).unwrap_err().kind(), kind);
    }
    let mut skipped = report(record(&|_, _, _| {}));
    skipped.skipped.push(crate::model::SkippedGate {
        gate: "g".to_owned(),
        title: String::new(),
        reason: "no model".to_owned(),
        hint: "set it".to_owned(),
    });
    let error = said(Ok(skipped), None).unwrap_err();
    assert!(error.to_string().contains("no model"), "{error}");
}

fn metric(metric: Metric, verdict: Option<Verdict>) -> MetricRecord {
    MetricRecord {
        metric,
        n_max: 1,
        verdict,
        reason: None,
        threshold: None,
        baseline: None,
        candidate: None,
        worse: None,
        control: None,
        detectable: None,
        more_pairs: None,
    }
}

fn measured(metrics: Vec<MetricRecord>) -> PerfRecord {
    PerfRecord {
        planned: [5, 5],
        done: [5, 5],
        pairs_per_round: 2,
        machine: crate::gate::perf::machine::begin(),
        metrics,
        counters: Vec::new(),
        rounds: Vec::new(),
    }
}

#[test]
fn one_metric_can_be_looked_for() {
    let mut slow = record(&|_, _, _| {});
    let metrics = vec![
        metric(Metric::Decode, Some(Verdict::Fail)),
        metric(Metric::Rss, Some(Verdict::Pass)),
        metric(Metric::Prompt, None),
    ];
    slow.perf = Some(measured(metrics));
    slow.verdict = Verdict::Fail;
    for (metric, expected) in [
        (Some(Metric::Decode), Verdict::Fail),
        (Some(Metric::Rss), Verdict::Pass),
        (Some(Metric::Prompt), Verdict::Inconclusive),
        (None, Verdict::Fail),
    ] {
        let said = said(Ok(report(slow.clone())), metric).unwrap();
        assert_eq!(said.verdict, expected, "{metric:?}");
    }
}

#[test]
fn a_run_that_says_nothing_has_no_metric_that_passes() {
    let mut void = record(&|_, _, _| {});
    void.verdict = Verdict::Inconclusive;
    void.reason = Some("both servers have loaded libllama.so".to_owned());
    void.perf = Some(measured(vec![metric(Metric::Rss, Some(Verdict::Pass))]));
    let of = |record: &GateRecord| {
        let said = said(Ok(report(record.clone())), Some(Metric::Rss)).unwrap();
        said.verdict
    };
    assert_eq!(of(&void), Verdict::Inconclusive);
    // Of the very same files it is what the metric says: no patch can be at fault.
    void.candidate = void.baseline.clone();
    assert_eq!(of(&void), Verdict::Pass);
}

#[test]
fn parts_of_every_kind_count_where_both_sides_are_the_same() {
    let mut same = record(&|_, _, _| {});
    same.candidate = same.baseline.clone();
    same.verdict = Verdict::Inconclusive;
    same.reason = Some("the very same files".to_owned());
    same.cells.clear();
    let of = |record: &GateRecord| said(Ok(report(record.clone())), None).unwrap().verdict;
    assert_eq!(of(&same), Verdict::Inconclusive);
    let check = crate::gate::checks::check("asked", String::new(), Vec::new());
    same.checks.push(check);
    assert_eq!(of(&same), Verdict::Pass);
}

#[test]
fn the_result_names_what_is_to_blame_and_how_to_see_it() {
    let ids: Vec<String> = ["a", "b", "c"].map(str::to_owned).to_vec();
    let tested = [Tested {
        patches: 2,
        files: None,
        verdict: Verdict::Fail,
        reason: Some("token 19".to_owned()),
        seconds: 1.0,
    }];
    let conclude = |found| conclude(&found, &ids, "g", &tested);
    let (outcome, suspects, summary) = conclude(Found::Between { good: 1, bad: 2 });
    assert_eq!(
        (outcome, suspects),
        (BisectOutcome::Found, vec!["b".to_owned()])
    );
    assert!(
        summary.contains("`b` (patch 2 of 3) is the first"),
        "{summary}"
    );
    assert!(summary.contains("(token 19)"), "{summary}");
    let (_, suspects, summary) = conclude(Found::Between { good: 0, bad: 2 });
    assert_eq!(suspects, ["a", "b"]);
    assert!(summary.starts_with("one of a, b breaks"), "{summary}");
    let (_, suspects, summary) = conclude(Found::BadFromStart { at: 2 });
    assert_eq!(suspects, ["a", "b"]);
    assert!(summary.contains("first 2 patches already"), "{summary}");
    let (outcome, suspects, summary) = conclude(Found::BadFromStart { at: 0 });
    assert_eq!((outcome, suspects.len()), (BisectOutcome::Found, 0));
    assert!(summary.contains("without any patch"), "{summary}");
    assert_eq!(conclude(Found::Nothing).0, BisectOutcome::NothingWrong);
    for found in [Found::EndUnclear, Found::StartUnclear] {
        assert_eq!(conclude(found).0, BisectOutcome::Unclear);
    }
    let request = Request {
        base: Some("old".to_owned()),
        quick: true,
        ..Request::default()
    };
    assert_eq!(
        again(&request, "g", &ids, 2),
        "cargo xtask gate --gate g --upto b --base old --quick"
    );
    assert_eq!(
        again(&Request::default(), "g", &ids, 0),
        "cargo xtask gate --gate g --upto base"
    );
}
