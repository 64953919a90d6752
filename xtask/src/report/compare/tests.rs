use super::*;
use crate::gate::testing::record;
use crate::model::{AcceptanceRecord, ChangeRecord, Digest, GateKind, ShareRecord};

fn good() -> GateRecord {
    record(&|_, _, _| {})
}

/// What makes two records no comparison, and what is said then.
type Refused<'a> = (&'a dyn Fn(&mut GateRecord), &'a str);

/// One planted difference: its name, how to make it, the verdict, and what is said.
type Planted<'a> = (&'a str, &'a dyn Fn(&mut GateRecord), Verdict, &'a str);

fn told(a: &GateRecord, b: &GateRecord) -> (Verdict, String) {
    let gate = records(a, b).unwrap();
    let comparison = Comparison {
        verdict: gate.verdict,
        a: "A".to_owned(),
        b: "B".to_owned(),
        gates: vec![gate],
        lost: Vec::new(),
        new: Vec::new(),
    };
    let text = show::text(&comparison, crate::gate::table::Signs::Ascii);
    (comparison.verdict, text)
}

#[test]
fn planted_differences_have_their_verdict() {
    let set = |verdict: Verdict| {
        move |record: &mut GateRecord| {
            record.cells[5].verdict = verdict;
            record.cells[5].reason = Some("planted".to_owned());
            record.verdict = Verdict::all(record.cells.iter().map(|cell| cell.verdict));
        }
    };
    let (fail, open) = (set(Verdict::Fail), set(Verdict::Inconclusive));
    let other = Digest::of(b"other tokens");
    let table: [Planted<'_>; 9] = [
        ("nothing", &|_| {}, Verdict::Pass, "nothing became worse"),
        (
            "a cell fails",
            &fail,
            Verdict::Fail,
            "`c`, n_max 3, 1 slot: pass -> fail: planted",
        ),
        (
            "a cell says nothing",
            &open,
            Verdict::Inconclusive,
            "pass -> inconclusive: planted",
        ),
        (
            "a cell is gone",
            &|record| drop(record.cells.pop()),
            Verdict::Inconclusive,
            "`c`, n_max 3, 2 slots: only in A",
        ),
        (
            "a cell is gone from a quick run",
            &|record| {
                record.cells.pop();
                record.quick = true;
            },
            Verdict::Pass,
            "only one of them is a quick run",
        ),
        (
            "the gate was skipped",
            &|record| {
                record.verdict = Verdict::Skipped;
                record.cells.clear();
            },
            Verdict::Inconclusive,
            "pass -> skipped",
        ),
        (
            "the sides were no comparison",
            &|record| {
                record.verdict = Verdict::Inconclusive;
                record.reason = Some("the very same files".to_owned());
            },
            Verdict::Inconclusive,
            "the gate as a whole: only in B",
        ),
        (
            "both sides have other tokens",
            &|record| {
                let cell = &mut record.cells[0];
                for answers in [&mut cell.baseline, &mut cell.control, &mut cell.candidate] {
                    answers[0].sha256 = other;
                    answers[0].chash = "0123456789".to_owned();
                }
                record.baseline.artifacts[0].sha256 = other;
            },
            Verdict::Pass,
            "other tokens of both (prompt `a`, n_max 0, 1 slot), prompt `a`: 98ad4c45b6 -> 0123456789",
        ),
        (
            "another definition",
            &|record| record.definition = other,
            Verdict::Pass,
            "the definition or its prompts changed",
        ),
    ];
    for (name, plant, verdict, said) in table {
        let (a, mut b) = (good(), good());
        plant(&mut b);
        let (found, text) = told(&a, &b);
        assert_eq!(found, verdict, "{name}:\n{text}");
        assert!(text.contains(said), "{name}: no {said:?} in\n{text}");
    }
}

#[test]
fn two_quick_runs_must_have_their_cells_in_common() {
    let (mut a, mut b) = (good(), good());
    (a.quick, b.quick) = (true, true);
    assert_eq!(told(&a, &b).0, Verdict::Pass);
    b.cells.pop();
    assert_eq!(told(&a, &b).0, Verdict::Inconclusive);
    // A part of a whole run is enough, nothing of it is not.
    a.quick = false;
    assert_eq!(told(&a, &b).0, Verdict::Pass);
    for cell in &mut b.cells {
        cell.n_max += 10;
    }
    assert_eq!(told(&a, &b).0, Verdict::Inconclusive);
}

#[test]
fn what_failed_before_did_not_become_worse_and_what_passes_again_is_better() {
    let mut bad = good();
    bad.cells[5].verdict = Verdict::Fail;
    bad.verdict = Verdict::Fail;
    assert_eq!(told(&bad, &bad).0, Verdict::Pass);
    let (verdict, text) = told(&bad, &good());
    assert_eq!(verdict, Verdict::Pass);
    assert!(text.contains("fail -> pass"), "{text}");
    // From a failure to not knowing is no progress.
    let mut open = bad.clone();
    open.cells[5].verdict = Verdict::Inconclusive;
    open.verdict = Verdict::Inconclusive;
    assert_eq!(told(&bad, &open).0, Verdict::Inconclusive);
}

#[test]
fn other_questions_are_refused_with_the_reason() {
    let other = Digest::of(b"other");
    let table: [Refused<'_>; 5] = [
        (&|record| record.model.sha256 = other, "other models: tiny"),
        (
            &|record| record.prompts[1].sha256 = other,
            "the prompt `b` is another one",
        ),
        (&|record| record.n_predict = 9, "8 and 9 tokens"),
        (
            &|record| record.kind = GateKind::Drafts,
            "another kind (chash, drafts)",
        ),
        (
            &|record| record.prompts.iter_mut().for_each(|p| p.name.push('x')),
            "no prompt in common",
        ),
    ];
    for (plant, said) in table {
        let mut b = good();
        plant(&mut b);
        let error = records(&good(), &b).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
        assert!(error.to_string().contains(said), "{error}");
    }
}

fn accepting(accepted: u64, drafted: u64) -> GateRecord {
    let mut record = good();
    record.kind = GateKind::Acceptance;
    record.cells.clear();
    let share = |accepted| ShareRecord {
        drafted,
        accepted,
        share: None,
    };
    record.acceptance = vec![AcceptanceRecord {
        n_max: 3,
        verdict: Verdict::Pass,
        reason: None,
        baseline: share(accepted),
        candidate: share(accepted),
        difference: None,
        per_token: None,
        equal: true,
        drop: Some(0.01),
        positions: Vec::new(),
        positions_absent: None,
    }];
    record
}

/// Each record may pass against its own baseline, and acceptance still have been lost in between.
#[test]
fn acceptance_is_compared_by_its_interval() {
    let verdict = |left, right| told(&accepting(left, 10_000), &accepting(right, 10_000)).0;
    assert_eq!(verdict(7000, 7000), Verdict::Pass);
    assert_eq!(verdict(7000, 6000), Verdict::Fail);
    assert_eq!(verdict(6000, 7000), Verdict::Pass);
    assert_eq!(verdict(7000, 6950), Verdict::Inconclusive);
    let mut unknown = accepting(6000, 10_000);
    unknown.acceptance[0].drop = None;
    let mut before = accepting(7000, 10_000);
    before.acceptance[0].drop = None;
    let (verdict, text) = told(&before, &unknown);
    assert_eq!(verdict, Verdict::Pass);
    assert!(text.contains("+10.00 [+8.6"), "{text}");
}

#[test]
fn changes_of_speed_are_compared_by_their_interval() {
    let perf = |percent: f64, half: f64| {
        let mut record = crate::report::tests::perf();
        let perf = record.perf.as_mut().unwrap();
        for metric in &mut perf.metrics {
            metric.worse = Some(ChangeRecord {
                percent,
                low: percent - half,
                high: percent + half,
                pairs: 9,
            });
        }
        record
    };
    let verdict = |a: &GateRecord, b: &GateRecord| told(a, b).0;
    assert_eq!(verdict(&perf(-10.0, 0.2), &perf(-10.0, 0.2)), Verdict::Pass);
    assert_eq!(verdict(&perf(-10.0, 0.2), &perf(-9.9, 0.2)), Verdict::Pass);
    assert_eq!(verdict(&perf(-10.0, 0.2), &perf(-5.0, 0.2)), Verdict::Fail);
    assert_eq!(verdict(&perf(-10.0, 0.2), &perf(-20.0, 0.2)), Verdict::Pass);
    assert_eq!(
        verdict(&perf(-10.0, 3.0), &perf(-9.0, 3.0)),
        Verdict::Inconclusive
    );
    let (_, text) = told(&perf(-10.0, 0.2), &perf(-5.0, 0.2));
    assert!(text.contains("+5.56 [+5.23, +5.88]"), "{text}");
}

#[test]
fn runs_are_compared_gate_by_gate() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    let write = |gates: &[&str], planned: &[&str]| {
        let planned = planned.iter().map(|gate| (*gate).to_owned()).collect();
        let host = crate::model::HostStamp {
            name: None,
            system: "linux x86_64".to_owned(),
            processors: 2,
            model: None,
        };
        let intent = crate::gate::store::Intent {
            command: "cargo xtask gate".to_owned(),
            quick: false,
            named: false,
            gates: planned,
            skipped: Vec::new(),
            host,
        };
        let run = store.begin(intent).unwrap();
        for gate in gates {
            let mut record = good();
            record.gate = (*gate).to_owned();
            run.add(&mut record).unwrap();
        }
        run.stamp().id.clone()
    };
    let whole = write(&["a", "b"], &["a", "b"]);
    let broken = write(&["a"], &["a", "b"]);
    let more = write(&["a", "b", "c"], &["a", "b", "c"]);
    let other = write(&["z", "y"], &["z", "y"]);
    let found = in_store(&store, &whole, &more).unwrap();
    assert_eq!((found.verdict, found.gates.len()), (Verdict::Pass, 2));
    assert_eq!(found.new, ["c"]);
    let found = in_store(&store, &whole, &broken).unwrap();
    assert_eq!(
        (found.verdict, found.lost),
        (Verdict::Inconclusive, vec!["b".to_owned()])
    );
    let error = in_store(&store, &whole, &other).unwrap_err();
    assert!(error.to_string().contains("no gate in common"), "{error}");
    let found = in_store(&store, &format!("{whole}/a"), &format!("{other}/z")).unwrap();
    assert_eq!(found.gates[0].notes, ["records of two gates: a and z"]);
    let error = in_store(&store, &format!("{whole}/q"), &more).unwrap_err();
    assert!(
        error.to_string().contains("no readable record of `q`"),
        "{error}"
    );
    let file = dir.path().join(format!("records/{whole}/a.json"));
    let file = file.to_str().unwrap();
    assert!(in_store(&store, file, file).is_ok());
    fs_err::write(dir.path().join(format!("records/{more}/b.json")), "{").unwrap();
    let error = in_store(&store, &whole, &more).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Config);
    for (name, word) in [
        ("/dev/null", "neither a record nor a folder"),
        ("/no/such/file", "there is no file /no/such/file"),
    ] {
        let error = in_store(&store, name, &whole).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}
