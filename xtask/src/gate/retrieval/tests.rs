//! Planted answers, and the verdict that each must give.

use super::*;
use crate::ctx::{Cancel, Quiet};
use crate::gate::session::Answer;
use crate::gate::testing::Fake;

/// A vocabulary in which each byte is a token.
struct Bytes;

impl Words for Bytes {
    fn ids(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>> {
        let ids = |text: &&str| text.bytes().map(u32::from).collect();
        Ok(texts.iter().map(ids).collect())
    }

    fn texts(&self, ids: &[&[u32]]) -> Result<Vec<String>> {
        let text = |ids: &&[u32]| -> String {
            let bytes: Vec<u8> = ids.iter().filter_map(|id| u8::try_from(*id).ok()).collect();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Ok(ids.iter().map(text).collect())
    }
}

fn definition(text: &str) -> RetrievalGate {
    let text = format!(
        "schema = 1\nid = \"r\"\nkind = \"retrieval\"\ntitle = \"t\"\nmodel = {{ fixture = \"f\" }}\n\
         words = [20, 40]\ndepths = [0.0, 1.0]\nn-predict = 8\n{text}"
    );
    toml::from_str(&text).unwrap()
}

/// What a server answers.
#[derive(Clone, Copy)]
enum Say {
    Needle,
    InOtherWords,
    Nonsense,
    OneId,
}

fn judged(recall: Option<f64>, say: &(dyn Fn(Run, usize) -> Say + Sync)) -> Found {
    let plan = RetrievalPlan {
        recall,
        ..RetrievalPlan::new(&definition(""), false).unwrap()
    };
    let comparison = Comparison {
        plan: &plan,
        n_max: 0,
        n_predict: 8,
        context: 4096,
        parallel: 1,
    };
    let answer = |session: &Session<'_>, wave: usize, answers: &mut [Answer]| {
        let needle = &plan.cases[wave].needle;
        let text = match say(session.run, wave) {
            Say::Needle => format!(" {needle}."),
            Say::InOtherWords => format!(" number {needle}, I think"),
            Say::Nonsense => " x".to_owned(),
            Say::OneId => "00000000".to_owned(),
        };
        answers[0].tokens = text.bytes().map(u32::from).collect();
    };
    let halt = Halt::new(&Cancel::default());
    comparison
        .run(&Fake(&answer), &Bytes, &halt, &Quiet)
        .unwrap()
}

#[test]
fn four_needles_that_are_found_pass() {
    for recall in [None, Some(1.0)] {
        let found = judged(recall, &|_, _| Say::Needle);
        assert_eq!(found.verdict(), Verdict::Pass);
        assert_eq!(found.retrieval.len(), 4);
        assert!(
            found
                .retrieval
                .iter()
                .all(|record| record.recalled == [true, true])
        );
    }
}

#[test]
fn each_planted_answer_gives_its_verdict() {
    fn candidate(run: Run, at: usize) -> bool {
        run == Run::Candidate && at == 2
    }
    // One needle lost by the candidate.
    let lost = |run, at| {
        if candidate(run, at) {
            Say::Nonsense
        } else {
            Say::Needle
        }
    };
    // The same, in other words.
    let worded = |run, at| {
        if candidate(run, at) {
            Say::InOtherWords
        } else {
            Say::Needle
        }
    };
    // A baseline that is not the same twice.
    let shaky = |run, at| {
        if run == Run::Control && at == 2 {
            Say::Nonsense
        } else {
            Say::Needle
        }
    };
    let blind = |_, _| Say::Nonsense;
    type Answer = dyn Fn(Run, usize) -> Say + Sync;
    let table: [(&str, &Answer, Option<f64>, Verdict); 8] = [
        ("lost", &lost, None, Verdict::Fail),
        ("lost", &lost, Some(0.5), Verdict::Fail),
        ("other words", &worded, None, Verdict::Fail),
        ("other words", &worded, Some(1.0), Verdict::Pass),
        ("shaky", &shaky, None, Verdict::Inconclusive),
        ("shaky", &shaky, Some(0.5), Verdict::Inconclusive),
        ("a model that cannot, sameness", &blind, None, Verdict::Pass),
        (
            "a model that cannot, recall",
            &blind,
            Some(0.5),
            Verdict::Inconclusive,
        ),
    ];
    for (name, say, recall, verdict) in table {
        let found = judged(recall, say);
        assert_eq!(found.verdict(), verdict, "{name} {recall:?}: {found:?}");
    }
}

#[test]
fn a_haystack_that_does_not_fit_is_refused() {
    let plan = RetrievalPlan::new(&definition(""), false).unwrap();
    let comparison = Comparison {
        plan: &plan,
        n_max: 0,
        n_predict: 8,
        context: 100,
        parallel: 1,
    };
    let halt = Halt::new(&Cancel::default());
    let error = comparison
        .run(&Fake(&|_, _, _| {}), &Bytes, &halt, &Quiet)
        .unwrap_err();
    assert!(error.to_string().contains("but context is 100"), "{error}");
}

/// A server that says nothing, every time.
struct Silent;

impl Runner for Silent {
    fn run(&self, _: &Session<'_>, _: &Halt) -> Result<Answers> {
        Ok(Answers::default())
    }
}

#[test]
fn no_answer_is_not_the_same_answer() {
    let plan = RetrievalPlan::new(&definition(""), false).unwrap();
    let comparison = Comparison {
        plan: &plan,
        n_max: 0,
        n_predict: 8,
        context: 4096,
        parallel: 1,
    };
    let halt = Halt::new(&Cancel::default());
    let found = comparison.run(&Silent, &Bytes, &halt, &Quiet);
    let error = found.unwrap_err();
    assert!(error.to_string().contains("number of answers"), "{error}");
}

#[test]
fn what_any_answer_reaches_and_what_fits_nowhere_is_refused() {
    for (text, word) in [
        ("recall = 0.0\n", "recall is 0"),
        ("context = 9\n", "40 words cannot fit"),
    ] {
        let error = RetrievalPlan::new(&definition(text), false).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn quick_keeps_a_part_and_nothing_else() {
    let quick = "[quick]\nwords = [40]\ndepths = [1.0]\n";
    let plan = RetrievalPlan::new(&definition(quick), true).unwrap();
    assert_eq!((plan.cases.len(), plan.quick), (1, true));
    for wrong in [
        "[quick]\nwords = [41]\ndepths = [1.0]\n",
        "[quick]\nwords = []\ndepths = []\n",
    ] {
        assert!(
            RetrievalPlan::new(&definition(wrong), true).is_err(),
            "{wrong}"
        );
    }
    assert!(RetrievalPlan::new(&definition("recall = 1.5\n"), false).is_err());
    // With it answers that find nothing would pass, whatever they are.
    assert!(RetrievalPlan::new(&definition("recall = 0.0\n"), false).is_err());
    assert!(RetrievalPlan::new(&definition("recall = 0.1\n"), false).is_ok());
    assert!(RetrievalPlan::new(&definition("context = 9\n"), false).is_err());
}

#[test]
fn a_made_up_vocabulary_gives_the_same_ids_within_its_ends() {
    let made_up = MadeUp { low: 4, high: 20 };
    let texts = ["one two one", "two"];
    let ids = made_up.ids(&texts).unwrap();
    assert_eq!(ids[0][0], ids[0][2]);
    assert_eq!(ids[0][1], ids[1][0]);
    assert_ne!(ids[0][0], ids[0][1]);
    assert!(ids.iter().flatten().all(|id| (4..20).contains(id)));
    assert_eq!(made_up.texts(&[&[7, 8]]).unwrap(), ["7 8"]);
    for (text, word) in [
        ("vocabulary = { low = 4, high = 4 }\n", "low must be below"),
        (
            "vocabulary = { low = 4, high = 9 }\nrecall = 0.5\n",
            "made-up",
        ),
    ] {
        let error = RetrievalPlan::new(&definition(text), false).unwrap_err();
        assert!(error.to_string().contains(word), "{error}");
    }
}

#[test]
fn nothing_drafted_says_nothing_of_drafting() {
    let plan = RetrievalPlan::new(&definition(""), false).unwrap();
    let comparison = Comparison {
        plan: &plan,
        n_max: 3,
        n_predict: 8,
        context: 4096,
        parallel: 1,
    };
    let halt = Halt::new(&Cancel::default());
    let run = |change: &(dyn Fn(&Session<'_>, usize, &mut [Answer]) + Sync)| {
        let found = comparison
            .run(&Fake(change), &Bytes, &halt, &Quiet)
            .unwrap();
        found.verdict()
    };
    assert_eq!(run(&|_, _, _| {}), Verdict::Pass);
    let idle = |session: &Session<'_>, _: usize, answers: &mut [Answer]| {
        if session.run == Run::Candidate {
            answers[0].drafted = 0;
        }
    };
    assert_eq!(run(&idle), Verdict::Inconclusive);
}

/// As where logits are no numbers on both sides: the same answers, of which none says anything.
#[test]
fn one_id_and_no_other_is_no_answer() {
    let found = judged(None, &|_, _| Say::OneId);
    assert_eq!(found.verdict(), Verdict::Inconclusive);
    let check = found.checks.last().unwrap();
    assert!(
        check
            .reason
            .as_ref()
            .unwrap()
            .contains("the id 48 and no other")
    );
    let found = judged(None, &|_, at| {
        if at == 0 { Say::OneId } else { Say::Needle }
    });
    assert_eq!(found.verdict(), Verdict::Pass);
}
