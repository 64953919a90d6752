//! The gate "same tokens".
//!
//! For every number of slots and every longest draft three servers are run: the baseline, the
//! baseline again as the A/A control, and the candidate. Each prompt leads one wave that fills
//! all slots; the prompts after it in the definition fill the rest. A cell passes where all
//! sequences of its wave are equal, token for token, in all three runs, and where the run did
//! what it was meant to do: draft where drafts were asked for, and keep all slots busy.

use std::collections::BTreeMap;

use crate::ctx::Task;
use crate::error::{Error, Result};
use crate::gate::pool;
use crate::gate::session::{Answers, Halt, Prompt, Run, Runner, Session};
use crate::gate::work::{Found, Work};
use crate::model::{CellRecord, PlainRecord, Verdict};
use judge::{first_difference, judge_cell, notes};

mod judge;

pub use judge::{chash, digest, first_difference as first_token_difference, record};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// Longest drafts.
    pub n_max: &'a [u32],
    /// Numbers of slots.
    pub slots: &'a [usize],
    /// Tokens that every sequence must have.
    pub n_predict: usize,
    /// Whether drafted decoding must give the tokens of plain decoding.
    pub drafted_equals_plain: bool,
    /// Sessions that may run at the same time.
    pub parallel: usize,
}

/// What came out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Findings {
    /// By slots, `n_max`, prompt.
    pub cells: Vec<CellRecord>,
    /// Drafted against plain decoding, in the same order.
    pub drafted_against_plain: Vec<PlainRecord>,
    /// Remarks on the whole run.
    pub notes: Vec<String>,
}

type Key = (usize, u32, Run);

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>) -> Result<Found> {
    let definition = &work.plan.definition;
    let comparison = Comparison {
        prompts: &work.plan.prompts,
        n_max: &work.plan.n_max,
        slots: &work.plan.slots,
        n_predict: definition.n_predict,
        drafted_equals_plain: definition.drafted_equals_plain,
        parallel: work.parallel,
    };
    let findings = comparison.run(work.runner, work.halt, work.task)?;
    Ok(Found {
        cells: findings.cells,
        drafted_against_plain: findings.drafted_against_plain,
        notes: findings.notes,
        ..Found::default()
    })
}

impl Comparison<'_> {
    /// Runs all sessions and judges them. The first error stops the others.
    pub fn run(&self, runner: &dyn Runner, halt: &Halt, task: &dyn Task) -> Result<Findings> {
        let mut sessions = Vec::new();
        for &slots in self.slots {
            for &n_max in self.n_max {
                for run in [Run::Baseline, Run::Control, Run::Candidate] {
                    sessions.push(Session {
                        run,
                        n_max,
                        slots,
                        flags: &[],
                        trace: None,
                        waves: (0..self.prompts.len())
                            .map(|lead| self.wave(lead, slots))
                            .collect(),
                    });
                }
            }
        }
        let run = |session: &Session<'_>| self.run_one(session, runner, halt);
        let answers = pool::run_all(&sessions, self.parallel, halt, task, &run)?;
        let keys = sessions.iter().map(|s| (s.slots, s.n_max, s.run));
        self.judge(&keys.zip(answers).collect())
    }

    /// The prompts that fill the slots when prompt `lead` leads.
    fn wave(&self, lead: usize, slots: usize) -> Vec<&Prompt> {
        self.prompts.iter().cycle().skip(lead).take(slots).collect()
    }

    fn run_one(&self, session: &Session<'_>, runner: &dyn Runner, halt: &Halt) -> Result<Answers> {
        let answers = runner.run(session, halt)?;
        let right = answers.waves.len() == session.waves.len()
            && answers.waves.iter().all(|wave| {
                wave.len() == session.slots && wave.iter().all(|a| a.tokens.len() == self.n_predict)
            });
        if right {
            Ok(answers)
        } else {
            Err(Error::internal("a session gave another number of answers"))
        }
    }

    fn judge(&self, answers: &BTreeMap<Key, Answers>) -> Result<Findings> {
        let get = |slots, n_max, run| {
            answers
                .get(&(slots, n_max, run))
                .ok_or_else(|| Error::internal("a session is missing"))
        };
        let mut findings = Findings::default();
        for &slots in self.slots {
            let plain = get(slots, 0, Run::Baseline).ok();
            for &n_max in self.n_max {
                let runs = [
                    get(slots, n_max, Run::Baseline)?,
                    get(slots, n_max, Run::Control)?,
                    get(slots, n_max, Run::Candidate)?,
                ];
                for lead in 0..self.prompts.len() {
                    let prompts = self.wave(lead, slots);
                    let mut cell = judge_cell(&prompts, n_max, runs, lead);
                    if let Some(plain) = plain.filter(|_| n_max > 0) {
                        let drafted = &runs[0].waves[lead];
                        let difference = first_difference(&prompts, &plain.waves[lead], drafted);
                        if self.drafted_equals_plain
                            && difference.is_some()
                            && cell.verdict == Verdict::Pass
                        {
                            cell.verdict = Verdict::Fail;
                            cell.reason =
                                Some("drafted decoding differs from plain decoding".to_owned());
                        }
                        findings.drafted_against_plain.push(PlainRecord {
                            prompt: prompts[0].name.clone(),
                            n_max,
                            slots,
                            equal: difference.is_none(),
                            difference,
                        });
                    }
                    findings.cells.push(cell);
                }
            }
        }
        findings.notes = notes(&findings);
        Ok(findings)
    }
}

#[cfg(test)]
mod tests;
