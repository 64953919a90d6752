//! The gate "what a prompt holds is found again".
//!
//! A needle, which is a sentence with a number that stands nowhere else, is put at several depths
//! into haystacks of several lengths. Three servers are asked for the number, the baseline twice.
//! Where the model can answer, both sides must find enough of the needles, and the candidate all
//! that the baseline finds. Of a model that cannot, only sameness counts.

use crate::ctx::Task;
use crate::error::{Error, Result, ResultExt};
use crate::gate::chash::one_id;
use crate::gate::pool;
use crate::gate::session::{Answers, Halt, Prompt, Run, Runner, Session};
use crate::gate::table::Signs;
use crate::gate::work::{Found, Work};
use crate::model::{CheckRecord, MadeUp, RetrievalGate, RetrievalRecord, Verdict};
use haystack::Case;

pub mod haystack;
mod words;

pub use words::{ServerWords, Words};

/// What a definition asks for, beside what all kinds have.
#[derive(Clone, Debug, PartialEq)]
pub struct RetrievalPlan {
    /// By length and depth.
    pub cases: Vec<Case>,
    /// The least share that must be found.
    pub recall: Option<f64>,
    /// Ids of words, where the model has no text.
    pub vocabulary: Option<MadeUp>,
    /// Whether this is the quick subset.
    pub quick: bool,
}

impl RetrievalPlan {
    /// Of a definition, or of its quick subset, checked.
    pub fn new(definition: &RetrievalGate, quick: bool) -> Result<Self> {
        let (mut words, mut depths) = (definition.words.clone(), definition.depths.clone());
        let subset = definition.quick.as_ref().filter(|_| quick);
        if let Some(subset) = subset {
            let known = subset.words.iter().all(|n| words.contains(n))
                && subset.depths.iter().all(|depth| depths.contains(depth));
            if !known {
                return Err(Error::config(
                    "quick names words or depths that the full gate does not run",
                ));
            }
            (words, depths) = (subset.words.clone(), subset.depths.clone());
        }
        if words.is_empty() || depths.is_empty() || words.contains(&0) {
            return Err(Error::config(
                "words or depths is empty, or words holds 0; nothing would be asked",
            ));
        }
        let share = |value: &f64| (0.0..=1.0).contains(value);
        if !depths.iter().all(share) || !definition.recall.iter().all(share) {
            return Err(Error::config("depths and recall are fractions from 0 to 1"));
        }
        if definition.recall == Some(0.0) {
            return Err(Error::config(
                "recall is 0; answers that find nothing would pass, whatever they are",
            )
            .hint("take it out: without it the answers must be the same"));
        }
        // Every word has at least one token, but for what a vocabulary joins.
        let most = definition.context.saturating_mul(4);
        if let Some(many) = words.iter().find(|many| **many > most) {
            return Err(Error::config(format!(
                "a haystack of {many} words cannot fit into a context of {} cells",
                definition.context
            ))
            .hint("raise context, or take fewer words"));
        }
        if definition.n_predict == 0 || definition.parallel == 0 {
            return Err(Error::config(
                "n-predict or parallel is 0; nothing would be answered",
            ));
        }
        if let Some(made_up) = definition.vocabulary {
            if made_up.low >= made_up.high {
                return Err(Error::config("vocabulary: low must be below high"));
            }
            if definition.recall.is_some() {
                return Err(Error::config(
                    "recall cannot be judged in a made-up vocabulary: take one of the two out",
                ));
            }
        }
        let mut cases = Vec::new();
        for &words in &words {
            for &depth in &depths {
                cases.push(Case::new(words, depth, u64::from(definition.seed)));
            }
        }
        Ok(RetrievalPlan {
            cases,
            recall: definition.recall,
            vocabulary: definition.vocabulary,
            quick: subset.is_some(),
        })
    }
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, plan: &RetrievalPlan) -> Result<Found> {
    let definition = &work.plan.definition;
    let comparison = Comparison {
        plan,
        n_max: definition.n_max.first().copied().unwrap_or(0),
        n_predict: definition.n_predict,
        context: definition.context,
        parallel: work.parallel,
    };
    let own = ServerWords::new(work.runner, work.halt);
    let words: &dyn Words = match &plan.vocabulary {
        Some(made_up) => made_up,
        None => &own,
    };
    comparison.run(work.runner, words, work.halt, work.task)
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// What is asked.
    pub plan: &'a RetrievalPlan,
    /// Longest draft.
    pub n_max: u32,
    /// Tokens to generate for each question.
    pub n_predict: usize,
    /// Context cells.
    pub context: usize,
    /// Sessions that may run at the same time.
    pub parallel: usize,
}

impl Comparison<'_> {
    /// Runs all sessions and judges them. The first error stops the others.
    pub fn run(
        &self,
        runner: &dyn Runner,
        words: &dyn Words,
        halt: &Halt,
        task: &dyn Task,
    ) -> Result<Found> {
        let texts: Vec<&str> = self
            .plan
            .cases
            .iter()
            .map(|case| case.prompt.as_str())
            .collect();
        let ids = words
            .ids(&texts)
            .context(|| "splitting the haystacks into tokens".to_owned())?;
        let prompts: Vec<Prompt> = (self.plan.cases.iter().zip(ids))
            .map(|(case, ids)| Prompt {
                name: case.name(),
                ids,
            })
            .collect();
        for prompt in &prompts {
            let need = prompt.ids.len() + self.n_predict + self.n_max as usize + 1;
            if need > self.context {
                return Err(Error::config(format!(
                    "the haystack of {} needs {need} cells of this model, but context is {}",
                    prompt.name, self.context
                ))
                .hint("raise context, or take fewer words"));
            }
        }
        let sessions = [Run::Baseline, Run::Control, Run::Candidate].map(|run| Session {
            run,
            n_max: self.n_max,
            slots: 1,
            flags: &[],
            trace: None,
            waves: prompts.iter().map(|prompt| vec![prompt]).collect(),
        });
        let run = |session: &Session<'_>| {
            let answers = runner.run(session, halt)?;
            session.check(&answers)?;
            Ok(answers)
        };
        let answers = pool::run_all(&sessions, self.parallel, halt, task, &run)?;
        let mut texts = Vec::new();
        for run in &answers {
            let ids: Vec<&[u32]> = ids_of(run);
            texts.push(
                words
                    .texts(&ids)
                    .context(|| "reading the answers".to_owned())?,
            );
        }
        let [baseline, control, candidate] = texts.as_slice() else {
            return Err(Error::internal("a session is missing"));
        };
        let ids: Vec<Vec<&[u32]>> = answers.iter().map(ids_of).collect();
        let mut records = Vec::new();
        for (at, (case, prompt)) in self.plan.cases.iter().zip(&prompts).enumerate() {
            let text = |texts: &[String]| texts.get(at).cloned().unwrap_or_default();
            let tokens = |run: usize| ids.get(run).and_then(|run| run.get(at));
            records.push(self.judge(
                case,
                prompt.ids.len(),
                [text(baseline), text(control), text(candidate)],
                [tokens(0) == tokens(1), tokens(0) == tokens(2)],
            ));
        }
        let mut checks = Vec::new();
        checks.extend(self.plan.recall.map(|least| recall(&records, least)));
        checks.extend((self.n_max > 0).then(|| drafting(&answers)));
        checks.extend(computing(&answers));
        Ok(Found {
            checks,
            retrieval: records,
            ..Found::default()
        })
    }

    /// `same` says whether control and candidate gave the baseline's tokens.
    fn judge(
        &self,
        case: &Case,
        tokens: usize,
        [baseline, control, candidate]: [String; 3],
        [control_same, same]: [bool; 2],
    ) -> RetrievalRecord {
        let recalled = [&baseline, &candidate].map(|text| case.is_in(text));
        let strict = self.plan.recall.is_none();
        let (verdict, reason) = match (strict, control_same, same, recalled) {
            (_, true, true, _) => (Verdict::Pass, None),
            (_, false, _, _) => (
                Verdict::Inconclusive,
                Some("the baseline differs from itself (A/A)".to_owned()),
            ),
            (true, true, false, _) => (
                Verdict::Fail,
                Some(format!("{candidate:?} in place of {baseline:?}")),
            ),
            (false, true, false, [true, false]) => (
                Verdict::Fail,
                Some(format!("{} is no longer found: {candidate:?}", case.needle)),
            ),
            // Another wording, with what was asked for in it or in neither of the two.
            (false, true, false, _) => (Verdict::Pass, None),
        };
        RetrievalRecord {
            words: case.words,
            depth: case.depth,
            needle: case.needle.clone(),
            tokens,
            verdict,
            reason,
            baseline,
            control,
            candidate,
            recalled,
        }
    }
}

fn ids_of(answers: &Answers) -> Vec<&[u32]> {
    let answers = answers.waves.iter().flatten();
    answers.map(|answer| answer.tokens.as_slice()).collect()
}

/// What is wrong with runs that give one id and no other; nothing where all is well.
fn computing(answers: &[Answers]) -> Option<CheckRecord> {
    let runs = [Run::Baseline, Run::Control, Run::Candidate];
    let sessions: Vec<(Run, &Answers)> = runs.into_iter().zip(answers).collect();
    one_id(&sessions).map(|reason| CheckRecord {
        name: "computing".to_owned(),
        verdict: Verdict::Inconclusive,
        found: String::new(),
        reason: Some(reason),
    })
}

/// Whether each run drafted: else equal answers say nothing about drafting.
fn drafting(answers: &[Answers]) -> CheckRecord {
    let drafted: Vec<u64> = (answers.iter())
        .map(|run| {
            run.waves
                .iter()
                .flatten()
                .map(|answer| answer.drafted)
                .sum()
        })
        .collect();
    let idle = drafted.contains(&0);
    CheckRecord {
        name: "drafting".to_owned(),
        verdict: if idle {
            Verdict::Inconclusive
        } else {
            Verdict::Pass
        },
        found: format!("{drafted:?} tokens drafted"),
        reason: idle.then(|| "nothing was speculated: a run drafted no token".to_owned()),
    }
}

/// Whether both sides find enough. A baseline that does not says nothing of the candidate.
fn recall(records: &[RetrievalRecord], least: f64) -> CheckRecord {
    let share = |side: usize| {
        let found = records
            .iter()
            .filter(|record| record.recalled.get(side) == Some(&true));
        found.count() as f64 / records.len().max(1) as f64
    };
    let (baseline, candidate) = (share(0), share(1));
    let (verdict, reason) = if baseline < least {
        (
            Verdict::Inconclusive,
            Some("the baseline itself finds too few: take a better model, or a lower recall"),
        )
    } else if candidate < least {
        (Verdict::Fail, Some("the candidate finds too few"))
    } else {
        (Verdict::Pass, None)
    };
    CheckRecord {
        name: "recall".to_owned(),
        verdict,
        found: format!(
            "baseline {:.0} %, candidate {:.0} %; at least {:.0} %",
            100.0 * baseline,
            100.0 * candidate,
            100.0 * least
        ),
        reason: reason.map(str::to_owned),
    }
}

/// Rows of a table, the first one being its head.
pub fn rows(records: &[RetrievalRecord], signs: Signs) -> Vec<Vec<String>> {
    let head = [
        "words",
        "depth",
        "tokens",
        "baseline",
        "candidate",
        "verdict",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let show = |found: bool| if found { "found" } else { "not found" }.to_owned();
    rows.extend(records.iter().map(|record| {
        vec![
            record.words.to_string(),
            format!("{:.2}", record.depth),
            record.tokens.to_string(),
            show(record.recalled[0]),
            show(record.recalled[1]),
            format!("{} {}", signs.verdict(record.verdict), record.verdict),
        ]
    }));
    rows
}

/// What did not pass, a line each.
pub fn faults(records: &[RetrievalRecord], signs: Signs) -> Vec<String> {
    let bad = records
        .iter()
        .filter(|record| record.verdict != Verdict::Pass);
    bad.map(|record| {
        format!(
            "{} {} words, depth {:.2}: {}",
            signs.verdict(record.verdict),
            record.words,
            record.depth,
            record.reason.as_deref().unwrap_or_default()
        )
    })
    .collect()
}

#[cfg(test)]
mod tests;
