//! Planted counts, and the verdict that each must give.

use super::*;
use crate::ctx::{Cancel, Quiet};
use crate::gate::session::Answer;
use crate::gate::testing::{Fake, prompts};

fn plan(text: &str) -> Result<CountersPlan> {
    let text = format!(
        "schema = 1\nid = \"c\"\nkind = \"counters\"\ntitle = \"t\"\nmodel = {{ fixture = \"f\" }}\n\
         n-max = [3]\nn-predict = 8\ncandidate = {{ build = \"patched\" }}\nprompt = []\n{text}"
    );
    CountersPlan::new(&toml::from_str(&text).unwrap())
}

const RELATIONS: &str = "[counters]\ncycles = \"equal\"\nlaunches_dft = \"less\"\n\
     [bounds]\n\"launches_dft/cycles\" = { max = 3.0 }\n";

/// Judges runs in which the baseline counts 5 launches a cycle and the candidate 3, changed by
/// `change`.
fn judged(text: &str, change: &(dyn Fn(Run, &mut Answer) + Sync)) -> (Verdict, Vec<String>) {
    judged_at(&[3], text, change)
}

fn judged_at(
    n_max: &[u32],
    text: &str,
    change: &(dyn Fn(Run, &mut Answer) + Sync),
) -> (Verdict, Vec<String>) {
    let plan = plan(text).unwrap();
    let count = |session: &Session<'_>, _: usize, answers: &mut [Answer]| {
        for answer in answers {
            let launches = if session.run == Run::Candidate {
                30
            } else {
                50
            };
            let counters = [("cycles", 10), ("launches_dft", launches), ("us_x", 7)];
            let counters = counters.map(|(name, count)| (name.to_owned(), count));
            answer.counters = Some(counters.into());
            change(session.run, answer);
        }
    };
    let prompts = prompts();
    let comparison = Comparison {
        prompts: &prompts,
        n_max,
        plan: &plan,
        parallel: 1,
    };
    let halt = Halt::new(&Cancel::default());
    let (counters, checks) = comparison.run(&Fake(&count), &halt, &Quiet).unwrap();
    let mut faults = faults(&counters, Signs::Ascii);
    faults.extend(crate::gate::checks::faults(&checks, Signs::Ascii));
    let found = Found {
        counters,
        checks,
        ..Found::default()
    };
    (found.verdict(), faults)
}

fn set(answer: &mut Answer, name: &str, value: u64) {
    let counters = answer.counters.as_mut().unwrap();
    counters.insert(name.to_owned(), value);
}

#[test]
fn counts_as_they_must_be_pass() {
    assert_eq!(judged(RELATIONS, &|_, _| {}), (Verdict::Pass, vec![]));
}

#[test]
fn each_planted_count_gives_its_verdict() {
    type Change = &'static (dyn Fn(Run, &mut Answer) + Sync);
    let faults: [(&str, Change, Verdict, &str); 9] = [
        (
            "as many launches",
            &|_, answer| set(answer, "launches_dft", 30),
            Verdict::Fail,
            "it must be less",
        ),
        (
            "another cycle",
            &|run, answer| set(answer, "cycles", 10 + u64::from(run == Run::Candidate)),
            Verdict::Fail,
            "it must be equal",
        ),
        (
            "beyond the bound",
            &|run, answer| {
                set(
                    answer,
                    "launches_dft",
                    if run == Run::Candidate { 31 } else { 50 },
                )
            },
            Verdict::Fail,
            "is not at most 3",
        ),
        (
            "the candidate does not count",
            &|run, answer| {
                if run == Run::Candidate {
                    answer.counters = None;
                }
            },
            Verdict::Inconclusive,
            "the candidate does not count it",
        ),
        (
            "the baseline does not count",
            &|run, answer| {
                if run != Run::Candidate {
                    answer.counters = None;
                }
            },
            Verdict::Inconclusive,
            "the baseline does not count it",
        ),
        (
            "the baseline counts twice otherwise",
            &|run, answer| set(answer, "cycles", 10 + u64::from(run == Run::Control)),
            Verdict::Inconclusive,
            "does not count the same in every run",
        ),
        (
            "other tokens",
            &|run, answer| answer.tokens[0] += u32::from(run == Run::Candidate),
            Verdict::Inconclusive,
            "gave other tokens",
        ),
        (
            "fewer launches than any",
            &|run, answer| {
                if run == Run::Candidate {
                    set(answer, "launches_dft", 0);
                }
            },
            Verdict::Inconclusive,
            "counts no launch at all",
        ),
        (
            "nothing was drafted",
            &|_, answer| answer.drafted = 0,
            Verdict::Inconclusive,
            "drafted 0 tokens",
        ),
    ];
    for (name, change, verdict, word) in faults {
        let (found, reasons) = judged(RELATIONS, change);
        assert_eq!(found, verdict, "{name}: {reasons:?}");
        assert!(
            reasons.iter().any(|reason| reason.contains(word)),
            "{name}: {reasons:?}"
        );
    }
}

#[test]
fn one_missing_counter_of_a_quotient_says_nothing() {
    let text = "[bounds]\n\"launches_tgt/cycles\" = { max = 3.0 }\n";
    let (verdict, reasons) = judged(text, &|_, _| {});
    assert_eq!(verdict, Verdict::Inconclusive, "{reasons:?}");
    let (verdict, _) = judged("[bounds]\nlaunches_dft = { min = 91 }\n", &|_, _| {});
    assert_eq!(verdict, Verdict::Fail, "30 for each of three prompts");
}

#[test]
fn a_plan_that_judges_nothing_is_refused() {
    for (text, word) in [
        ("", "nothing would be judged"),
        ("[counters]\nus_wait = \"equal\"\n", "is a time"),
        ("[bounds]\n\"x/us_wait\" = { max = 1 }\n", "is a time"),
        ("[bounds]\nx = {}\n", "`min` or `max`"),
        ("[bounds]\nx = { max = -1 }\n", "0 or above"),
        ("[bounds]\n\"x/\" = { max = 1 }\n", "`name/other`"),
    ] {
        let error = plan(text).unwrap_err();
        assert!(error.to_string().contains(word), "{text}: {error}");
    }
}

#[test]
fn where_nothing_is_judged_nothing_passes() {
    let less = "[counters]\nlaunches_dft = \"less\"\n";
    let (verdict, reasons) = judged_at(&[0], less, &|_, _| {});
    assert_eq!(verdict, Verdict::Inconclusive, "{reasons:?}");
    assert!(reasons[0].contains("judged at no n_max"), "{reasons:?}");
    assert_eq!(judged_at(&[0, 3], less, &|_, _| {}).0, Verdict::Pass);
    let quotient = "[bounds]\n\"launches_dft/cycles\" = { max = 9 }\n";
    let idle = |_: Run, answer: &mut Answer| set(answer, "cycles", 0);
    assert_eq!(judged_at(&[0], quotient, &idle).0, Verdict::Inconclusive);
    assert_eq!(judged_at(&[3], quotient, &idle).0, Verdict::Inconclusive);
}

/// What else is judged does not stand in for it.
#[test]
fn a_bound_that_is_judged_nowhere_is_no_pass() {
    let idle = |_: Run, answer: &mut Answer| set(answer, "cycles", 0);
    let bound = "[bounds]\n\"launches_dft/cycles\" = { max = 9 }\n";
    let text = format!("[counters]\nlaunches_dft = \"not-more\"\n{bound}");
    let (verdict, reasons) = judged_at(&[0], &text, &idle);
    assert_eq!(verdict, Verdict::Inconclusive, "{reasons:?}");
    assert!(reasons[0].contains("launches_dft/cycles"), "{reasons:?}");
    let less = "[counters]\nlaunches_dft = \"less\"\ncycles = \"equal\"\n";
    let (verdict, reasons) = judged_at(&[0], less, &idle);
    assert_eq!(verdict, Verdict::Inconclusive, "{reasons:?}");
    assert!(reasons[0].contains("launches_dft"), "{reasons:?}");
    let by_mode = |_: Run, answer: &mut Answer| {
        if answer.drafted == 0 {
            set(answer, "cycles", 0);
        }
    };
    assert_eq!(judged_at(&[0, 3], &text, &by_mode).0, Verdict::Pass);
}

/// As where drafts come from n-grams.
#[test]
fn drafts_that_no_model_makes_need_no_launch() {
    let equal = "[counters]\nlaunches_dft = \"equal\"\n";
    let none = |_: Run, answer: &mut Answer| set(answer, "launches_dft", 0);
    let (verdict, reasons) = judged(equal, &none);
    assert_eq!(verdict, Verdict::Pass, "{reasons:?}");
}

/// As where logits are no numbers on both sides: the same work, which is none.
#[test]
fn one_id_and_no_other_is_no_work() {
    let (verdict, faults) = judged(RELATIONS, &|_, answer| answer.tokens.fill(0));
    assert_eq!(verdict, Verdict::Inconclusive);
    assert!(
        faults[0].contains("baseline gave the id 0 and no other"),
        "{faults:?}"
    );
}
