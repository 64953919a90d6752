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
use crate::gate::definition::Setting;
use crate::gate::pool;
use crate::gate::session::{Answers, Halt, Prompt, Run, Runner, Session};
use crate::gate::work::{Found, Work};
use crate::model::{CellRecord, PlainRecord, Verdict};
use judge::{first_difference, judge_cell, notes};

mod judge;

pub use judge::{chash, digest, first_difference as first_token_difference, idle, one_id, record};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// Longest drafts.
    pub n_max: &'a [u32],
    /// Numbers of slots.
    pub slots: &'a [usize],
    /// Ways to run both servers; each may narrow the two above.
    pub settings: &'a [Setting],
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

/// Number of the setting, slots, longest draft, run.
type Key = (usize, usize, u32, Run);

/// What is judged of one number of slots and one longest draft, in one setting.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    at: usize,
    setting: &'a Setting,
    slots: usize,
    n_max: u32,
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>) -> Result<Found> {
    let definition = &work.plan.definition;
    let comparison = Comparison {
        prompts: &work.plan.prompts,
        n_max: &work.plan.n_max,
        slots: &work.plan.slots,
        settings: &work.plan.settings,
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
    /// Runs all sessions and judges them. The first error stops the others; where the time budget
    /// ends, what was not run is inconclusive.
    pub fn run(&self, runner: &dyn Runner, halt: &Halt, task: &dyn Task) -> Result<Findings> {
        let places = self.places();
        let sessions = places.iter().flat_map(|place| {
            [Run::Baseline, Run::Control, Run::Candidate].map(|run| Session {
                run,
                n_max: place.n_max,
                slots: place.slots,
                flags: &place.setting.flags,
                trace: None,
                waves: (0..self.prompts.len())
                    .map(|lead| self.wave(lead, place.slots))
                    .collect(),
            })
        });
        let sessions: Vec<Session<'_>> = sessions.collect();
        let keys = places.iter().flat_map(|place| {
            [Run::Baseline, Run::Control, Run::Candidate]
                .map(|run| (place.at, place.slots, place.n_max, run))
        });
        let run = |session: &Session<'_>| self.run_one(session, runner, halt);
        let answers = pool::run_some(&sessions, self.parallel, halt, task, &run)?;
        let done = keys.zip(answers);
        let done = done.filter_map(|(key, answers)| Some((key, answers?)));
        self.judge(&places, &done.collect(), halt)
    }

    fn places(&self) -> Vec<Place<'_>> {
        let mut places = Vec::new();
        for (at, setting) in self.settings.iter().enumerate() {
            let wants = |slots: usize, n_max: u32| {
                setting.slots.as_ref().is_none_or(|s| s.contains(&slots))
                    && setting.n_max.as_ref().is_none_or(|n| n.contains(&n_max))
            };
            for &slots in self.slots {
                let n_max = self.n_max.iter().copied();
                places.extend(
                    n_max
                        .filter(|n_max| wants(slots, *n_max))
                        .map(|n_max| Place {
                            at,
                            setting,
                            slots,
                            n_max,
                        }),
                );
            }
        }
        places
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

    fn judge(
        &self,
        places: &[Place<'_>],
        answers: &BTreeMap<Key, Answers>,
        halt: &Halt,
    ) -> Result<Findings> {
        if places.is_empty() {
            return Err(Error::config("no setting is left to run"));
        }
        let mut findings = Findings::default();
        for place in places {
            let get = |n_max, run| answers.get(&(place.at, place.slots, n_max, run));
            let runs =
                [Run::Baseline, Run::Control, Run::Candidate].map(|run| get(place.n_max, run));
            for lead in 0..self.prompts.len() {
                let prompts = self.wave(lead, place.slots);
                let mut cell = match runs {
                    [Some(baseline), Some(control), Some(candidate)] => {
                        judge_cell(&prompts, place.n_max, [baseline, control, candidate], lead)
                    }
                    _ => judge::not_run(&prompts, place.n_max, halt.check().err()),
                };
                cell.setting.clone_from(&place.setting.name);
                if let (true, [Some(drafted), ..], Some(plain)) =
                    (place.n_max > 0, runs, get(0, Run::Baseline))
                {
                    self.against_plain(&mut findings, &mut cell, &prompts, [plain, drafted], lead);
                }
                findings.cells.push(cell);
            }
        }
        findings.notes = notes(&findings);
        Ok(findings)
    }

    fn against_plain(
        &self,
        findings: &mut Findings,
        cell: &mut CellRecord,
        prompts: &[&Prompt],
        [plain, drafted]: [&Answers; 2],
        lead: usize,
    ) {
        let waves = plain.waves.get(lead).zip(drafted.waves.get(lead));
        let difference =
            waves.and_then(|(plain, drafted)| first_difference(prompts, plain, drafted));
        if self.drafted_equals_plain && difference.is_some() && cell.verdict == Verdict::Pass {
            cell.verdict = Verdict::Fail;
            cell.reason = Some("drafted decoding differs from plain decoding".to_owned());
        }
        findings.drafted_against_plain.push(PlainRecord {
            setting: cell.setting.clone(),
            prompt: cell.prompt.clone(),
            n_max: cell.n_max,
            slots: cell.slots,
            equal: difference.is_none(),
            difference,
        });
    }
}

#[cfg(test)]
mod tests;
