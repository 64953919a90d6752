use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use super::*;
use crate::Kind;
use crate::gate::session::Answer;
use crate::gate::testing::{Fake, N_PREDICT, compare, tangle, with};
use crate::model::Digest;

type Change = fn(&Session<'_>, usize, &mut [Answer]);

/// The cell of prompt `b` with drafts of 3, and the sum over all cells.
fn cell(findings: &Findings, slots: usize) -> (&CellRecord, Verdict) {
    let cell = findings
        .cells
        .iter()
        .find(|cell| cell.prompt == "b" && cell.n_max == 3 && cell.slots == slots)
        .unwrap();
    let sum = Verdict::all(findings.cells.iter().map(|cell| cell.verdict));
    (cell, sum)
}

/// Whether this is the wave that prompt `b` leads with drafts of 3.
fn here(session: &Session<'_>, wave: usize, slots: usize) -> bool {
    wave == 1 && session.n_max == 3 && session.slots == slots
}

#[test]
fn equal_runs_pass_everywhere() {
    let findings = compare(&|_, _, _| {}).unwrap();
    assert_eq!(findings.cells.len(), 12);
    assert!(
        findings
            .cells
            .iter()
            .all(|cell| cell.verdict == Verdict::Pass)
    );
    assert!(
        findings
            .drafted_against_plain
            .iter()
            .all(|record| record.equal)
    );
    assert_eq!(findings.drafted_against_plain.len(), 6);
    assert!(findings.notes.is_empty(), "{:?}", findings.notes);
    // With two slots the next prompt is decoded beside the leading one.
    let (cell, _) = cell(&findings, 2);
    let names: Vec<&str> = cell.candidate.iter().map(|a| a.prompt.as_str()).collect();
    assert_eq!(names, ["b", "c"]);
}

#[test]
fn verdicts() {
    let cases: &[(&str, Change, usize, Verdict, &str)] = &[
        (
            "one token of the candidate",
            |s, w, a| {
                if here(s, w, 1) && s.run == Run::Candidate {
                    a[0].tokens[5] = 7;
                }
            },
            1,
            Verdict::Fail,
            "first at token 5: 205 against 7 (from token 2: [202, 203, 204, 205, 206, 207] \
             against [202, 203, 204, 7, 206, 207])",
        ),
        (
            "one token of the prompt beside it",
            |s, w, a| {
                if here(s, w, 2) && s.run == Run::Candidate {
                    a[1].tokens[0] = 7;
                }
            },
            2,
            Verdict::Fail,
            "prompt `c` beside it: baseline",
        ),
        (
            "the control",
            |s, w, a| {
                if here(s, w, 1) && s.run == Run::Control {
                    a[0].tokens[7] = 1;
                }
            },
            1,
            Verdict::Inconclusive,
            "the baseline differs from itself (A/A): first run",
        ),
        (
            "control and candidate alike",
            |s, w, a| {
                if here(s, w, 1) && s.run != Run::Baseline {
                    a[0].tokens[7] = 1;
                }
            },
            1,
            Verdict::Inconclusive,
            "differs from itself",
        ),
        (
            "no drafts at all",
            |s, w, a| {
                if here(s, w, 1) {
                    a[0].drafted = 0;
                }
            },
            1,
            Verdict::Inconclusive,
            "baseline drafted no token for prompt `b`",
        ),
        (
            "no drafts by the candidate",
            |s, w, a| {
                if here(s, w, 1) && s.run == Run::Candidate {
                    a[0].drafted = 0;
                }
            },
            1,
            Verdict::Inconclusive,
            "candidate drafted no token for prompt `b`",
        ),
        (
            "no drafts, and other tokens",
            |s, w, a| {
                if here(s, w, 1) && s.run == Run::Candidate {
                    a[0].drafted = 0;
                    a[0].tokens[0] = 7;
                }
            },
            1,
            Verdict::Fail,
            "first at token 0: 200 against 7",
        ),
        (
            "one slot of two drafts",
            |s, w, a| {
                if here(s, w, 2) {
                    a[0].drafted = 0;
                }
            },
            2,
            Verdict::Inconclusive,
            "baseline drafted no token for prompt `b`",
        ),
    ];
    for (what, change, slots, verdict, reason) in cases {
        let findings = compare(change).unwrap();
        let (cell, sum) = cell(&findings, *slots);
        let found = cell.reason.as_deref().unwrap_or_default();
        assert_eq!(cell.verdict, *verdict, "{what}: {found}");
        assert!(found.contains(reason), "{what}: {found}");
        assert_eq!(sum, *verdict, "{what}");
        let others = findings.cells.iter().filter(|c| c.verdict != Verdict::Pass);
        assert!(others.count() <= 1, "{what}: another cell is touched");
    }
}

#[test]
fn a_failure_has_both_hashes_and_the_place() {
    let findings = compare(&tangle).unwrap();
    let (cell, sum) = cell(&findings, 1);
    assert_eq!(sum, Verdict::Fail);
    let (baseline, candidate) = (&cell.baseline[0], &cell.candidate[0]);
    assert_ne!(baseline.sha256, candidate.sha256);
    let reason = cell.reason.as_deref().unwrap();
    assert!(reason.contains(&baseline.chash) && reason.contains(&candidate.chash));
    let difference = cell.difference.as_ref().unwrap();
    assert_eq!(
        (difference.index, difference.from, difference.place),
        (5, 2, 0)
    );
    assert_eq!(baseline.chash, baseline.sha256.to_string()[..10]);
}

#[test]
fn drafts_where_there_should_be_none_are_no_plain_decoding() {
    let findings = compare(&|s, _, a| {
        if s.n_max == 0 {
            a[0].drafted = 2;
        }
    })
    .unwrap();
    assert_eq!(findings.cells[0].verdict, Verdict::Inconclusive);
    assert!(
        findings.cells[0]
            .reason
            .as_deref()
            .unwrap()
            .contains("n_max is 0")
    );
}

#[test]
fn idle_slots_are_no_test_of_slots() {
    struct Idle;
    impl Runner for Idle {
        fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
            let mut answers = Fake(&|_, _, _| {}).run(session, halt)?;
            answers.busy_slots = Some(1.0);
            Ok(answers)
        }
    }
    let findings = with(&Idle, false).unwrap();
    for cell in findings.cells {
        let verdict = match cell.slots {
            1 => Verdict::Pass,
            _ => Verdict::Inconclusive,
        };
        assert_eq!(cell.verdict, verdict, "{:?}", cell.reason);
    }
}

#[test]
fn drafted_against_plain_is_information_unless_asked_for() {
    // The same on both sides, so that the comparison itself passes.
    let change: Change = |s, w, a| {
        if here(s, w, 1) {
            a[0].tokens[3] = 7;
        }
    };
    let findings = compare(&change).unwrap();
    assert_eq!(cell(&findings, 1), (cell(&findings, 1).0, Verdict::Pass));
    let differ = findings.drafted_against_plain.iter().filter(|r| !r.equal);
    assert_eq!(differ.count(), 1);
    assert!(
        findings.notes[0].contains("in 1 of 6 cells"),
        "{:?}",
        findings.notes
    );
    let findings = with(&Fake(&change), true).unwrap();
    let (cell, sum) = cell(&findings, 1);
    assert_eq!((cell.verdict, sum), (Verdict::Fail, Verdict::Fail));
}

#[test]
fn what_was_not_exercised_is_noted() {
    let findings = compare(&|_, _, a| a.iter_mut().for_each(|a| a.accepted = 0)).unwrap();
    assert!(findings.notes[0].contains("no draft was ever accepted"));
    let findings = compare(&|_, _, a| a.iter_mut().for_each(|a| a.accepted = a.drafted)).unwrap();
    assert!(findings.notes[0].contains("every draft was accepted"));
}

#[test]
fn the_first_error_stops_the_others_and_is_the_one_reported() {
    struct Failing(AtomicUsize);
    impl Runner for Failing {
        fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
            self.0.fetch_add(1, Ordering::SeqCst);
            if session.run == Run::Baseline {
                std::thread::sleep(Duration::from_millis(20));
                return Err(Error::environment("it burnt down"));
            }
            // Would go on for a minute if it were not stopped.
            for _ in 0..6000 {
                halt.check()?;
                std::thread::sleep(Duration::from_millis(10));
            }
            Fake(&|_, _, _| {}).run(session, halt)
        }
    }
    let runner = Failing(AtomicUsize::new(0));
    let error = with(&runner, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    assert!(error.to_string().contains("it burnt down"), "{error}");
    assert_eq!(runner.0.load(Ordering::SeqCst), 2);
}

#[test]
fn a_session_without_all_answers_is_no_pass() {
    struct Short;
    impl Runner for Short {
        fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
            let mut answers = Fake(&|_, _, _| {}).run(session, halt)?;
            answers.waves[0].pop();
            Ok(answers)
        }
    }
    assert_eq!(with(&Short, false).unwrap_err().kind(), Kind::Internal);
    let short: Change = |_, _, a| a[0].tokens.truncate(N_PREDICT - 1);
    assert_eq!(compare(&short).unwrap_err().kind(), Kind::Internal);
}

#[test]
fn the_hash_is_over_little_endian_ids() {
    // printf '\x01\0\0\0\x00\x02\0\0' | sha256sum
    assert_eq!(digest(&[1, 512]), Digest::of(b"\x01\0\0\0\0\x02\0\0"));
    assert_eq!(chash(&digest(&[])), "e3b0c44298");
}

fn swept(runner: &dyn Runner, halt: &Halt) -> Findings {
    let prompts = crate::gate::testing::prompts();
    let setting = |name: &str, n_max: Option<Vec<u32>>| Setting {
        name: Some(name.to_owned()),
        flags: vec![format!("--{name}")],
        n_max,
        slots: Some(vec![1]),
    };
    let comparison = Comparison {
        prompts: &prompts,
        n_max: &[0, 3],
        slots: &[1, 2],
        settings: &[setting("fa", None), setting("kv", Some(vec![3]))],
        n_predict: N_PREDICT,
        drafted_equals_plain: false,
        parallel: 1,
    };
    comparison.run(runner, halt, &crate::ctx::Quiet).unwrap()
}

#[test]
fn a_fault_in_one_setting_is_named_there() {
    let wrong = |session: &Session<'_>, wave: usize, answers: &mut [Answer]| {
        let here = session.flags == ["--kv"] && session.run == Run::Candidate;
        if here && wave == 1 {
            answers[0].tokens[5] = 7;
        }
    };
    let halt = Halt::new(&crate::ctx::Cancel::default());
    let findings = swept(&Fake(&wrong), &halt);
    // `fa` with both n_max, `kv` with one; one number of slots; three prompts.
    assert_eq!(findings.cells.len(), 9);
    let failed: Vec<&CellRecord> = (findings.cells.iter())
        .filter(|cell| cell.verdict != Verdict::Pass)
        .collect();
    assert_eq!(failed.len(), 1);
    assert_eq!(failed[0].setting.as_deref(), Some("kv"));
    assert_eq!((failed[0].prompt.as_str(), failed[0].n_max), ("b", 3));
    assert!(crate::gate::table::place(failed[0]).starts_with("setting `kv`, prompt `b`"));
    // Plain decoding in the same setting alone is what drafts are held against.
    assert_eq!(findings.drafted_against_plain.len(), 3);
}

#[test]
fn what_the_budget_leaves_no_time_for_is_inconclusive() {
    let late = Halt::new(&crate::ctx::Cancel::default()).within(Some(1));
    let slow = |session: &Session<'_>, wave: usize, _: &mut [Answer]| {
        if session.flags == ["--kv"] && wave == 0 && session.run == Run::Candidate {
            std::thread::sleep(Duration::from_millis(1100));
        }
    };
    struct Strict<'a>(Fake<'a>);
    impl Runner for Strict<'_> {
        fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
            let answers = self.0.run(session, halt)?;
            halt.check()?;
            Ok(answers)
        }
    }
    let findings = swept(&Strict(Fake(&slow)), &late);
    let (done, left): (Vec<_>, Vec<_>) =
        (findings.cells.iter()).partition(|cell| cell.verdict == Verdict::Pass);
    assert_eq!((done.len(), left.len()), (6, 3));
    for cell in left {
        assert_eq!(cell.verdict, Verdict::Inconclusive);
        let reason = cell.reason.as_deref().unwrap();
        assert_eq!(reason, "not run: the time budget of 1 s is used up");
    }
    let sum = Verdict::all(findings.cells.iter().map(|cell| cell.verdict));
    assert_eq!(sum, Verdict::Inconclusive);
}
