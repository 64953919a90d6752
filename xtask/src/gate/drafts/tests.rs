use super::*;
use crate::ctx::{Cancel, Quiet};
use crate::gate::testing::{Fake, N_PREDICT, prompts};

const STEP: &str = "0 1 0 40 7 1 7:41000000\n";

/// A fake whose answers carry a trace, and launches.
struct Tracing<'a> {
    change: &'a (dyn Fn(&Session<'_>, &mut Answers) + Sync),
}

impl Runner for Tracing<'_> {
    fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
        let mut answers = Fake(&|_, _, _| {}).run(session, halt)?;
        assert_eq!(session.trace, Some("plain"));
        assert_eq!(session.flags, ["-x".to_owned()]);
        answers.trace = Some(STEP.repeat(3));
        let launches = if session.run == Run::Candidate { 2 } else { 4 };
        for answer in answers.waves.iter_mut().flatten() {
            answer.counters = Some([("launches_dft".to_owned(), launches)].into());
        }
        (self.change)(session, &mut answers);
        Ok(answers)
    }
}

fn cells(change: &(dyn Fn(&Session<'_>, &mut Answers) + Sync)) -> Result<Vec<CellRecord>> {
    let prompts = prompts();
    let settings = [DraftsSetting {
        name: "plain".to_owned(),
        n_max: vec![2, 3],
        slots: vec![1, 2],
        flags: vec!["-x".to_owned()],
        fewer_launches: true,
        part: false,
        part_rounds: false,
    }];
    let comparison = Comparison {
        prompts: &prompts,
        settings: &settings,
        n_predict: N_PREDICT,
        parallel: 2,
    };
    comparison.run(&Tracing { change }, &Halt::new(&Cancel::default()), &Quiet)
}

fn verdicts(change: &(dyn Fn(&Session<'_>, &mut Answers) + Sync)) -> Vec<(Verdict, String)> {
    let cells = cells(change).unwrap();
    let pairs = cells.into_iter();
    pairs
        .map(|cell| (cell.verdict, cell.reason.unwrap_or_default()))
        .collect()
}

#[test]
fn equal_drafts_pass_without_a_control() {
    let cells = cells(&|session, _| assert_ne!(session.run, Run::Control)).unwrap();
    assert_eq!(cells.len(), 4);
    for cell in cells {
        assert_eq!(cell.verdict, Verdict::Pass, "{:?}", cell.reason);
        assert_eq!(cell.steps, Some(3));
        assert_eq!(cell.candidate.len(), 3 * cell.slots);
    }
}

#[test]
fn one_bit_fails_the_cell_in_which_it_is() {
    let verdicts = verdicts(&|session, answers| {
        if session.run == Run::Candidate && (session.n_max, session.slots) == (3, 1) {
            answers.trace = Some(STEP.repeat(2) + "0 1 0 40 7 1 7:41000001\n");
        }
    });
    assert_eq!(verdicts[1].0, Verdict::Fail);
    assert!(
        verdicts[1].1.contains("drafted step 2"),
        "{}",
        verdicts[1].1
    );
    assert!(verdicts[1].1.contains("7:41000000 against 7:41000001"));
    assert_eq!(verdicts.iter().filter(|v| v.0 == Verdict::Pass).count(), 3);
}

#[test]
fn other_tokens_fail_though_the_drafts_are_equal() {
    let verdicts = verdicts(&|session, answers| {
        if session.run == Run::Candidate {
            answers.waves[1][0].tokens[5] = 0;
        }
    });
    for (verdict, reason) in verdicts {
        assert_eq!(verdict, Verdict::Fail);
        assert!(
            reason.contains("wave 1 sequence 0 differs from token 5"),
            "{reason}"
        );
    }
}

#[test]
fn a_baseline_that_differs_from_itself_judges_nobody() {
    let verdicts = verdicts(&|session, answers| {
        if session.run != Run::Baseline {
            answers.trace = Some(STEP.to_owned());
        }
    });
    for (verdict, reason) in verdicts {
        assert_eq!(verdict, Verdict::Inconclusive);
        assert!(reason.contains("A/A"), "{reason}");
    }
}

#[test]
fn what_does_not_do_its_work_proves_nothing() {
    type Change<'a> = &'a (dyn Fn(&Session<'_>, &mut Answers) + Sync);
    let cases: [(Change<'_>, &str); 7] = [
        (
            &|_, answers| answers.trace = Some(String::new()),
            "nothing was drafted",
        ),
        (&|_, answers| answers.trace = None, "nothing was drafted"),
        (
            &|_, answers| answers.waves[1][0].drafted = 0,
            "baseline drafted nothing for one of the sequences",
        ),
        // Equal bit for bit, and no number.
        (
            &|_, answers| answers.trace = Some(STEP.replace("41000000", "7fc00000")),
            "a logit is no number",
        ),
        (
            &|_, answers| {
                for answer in answers.waves.iter_mut().flatten() {
                    answer.counters = Some([("launches_dft".to_owned(), 4)].into());
                }
            },
            "drafted as the baseline does",
        ),
        (
            &|_, answers| {
                for answer in answers.waves.iter_mut().flatten() {
                    answer.counters = None;
                }
            },
            "does not count them",
        ),
        // Fewer than any other: nobody drafts without a launch.
        (
            &|session, answers| {
                for answer in answers.waves.iter_mut().flatten() {
                    let launches = if session.run == Run::Candidate { 0 } else { 4 };
                    answer.counters = Some([("launches_dft".to_owned(), launches)].into());
                }
            },
            "counts no launch at all",
        ),
    ];
    for (change, expected) in cases {
        for (verdict, reason) in verdicts(change) {
            assert_eq!(verdict, Verdict::Inconclusive);
            assert!(reason.contains(expected), "{reason}");
        }
    }
    let idle = verdicts(&|_, answers| answers.busy_slots = Some(1.0));
    assert_eq!(idle[0].0, Verdict::Pass);
    assert_eq!(idle[2].0, Verdict::Inconclusive);
}

#[test]
fn a_trace_that_cannot_be_read_is_an_error() {
    let error = cells(&|_, answers| answers.trace = Some("nonsense\n".to_owned())).unwrap_err();
    assert!(error.to_string().contains("nonsense"), "{error}");
}
