//! The gate "same drafts, bit for bit".
//!
//! For every setting, number of slots and longest draft two servers are run, baseline and
//! candidate, both writing what `spec-trace` records of each drafted step: the ids and the exact
//! logits of its candidates. A cell passes where all records and all tokens are equal, and where
//! the run did what it was meant to do. Where they differ the baseline is run again as the A/A
//! control, which decides between a fault and a server that is not deterministic by itself.

use crate::ctx::Task;
use crate::error::{Error, Result};
use crate::gate::chash::{first_token_difference, idle, record};
use crate::gate::pool;
use crate::gate::session::{Answer, Answers, Halt, Prompt, Run, Runner, Session};
use crate::gate::work::{Found, Work};
use crate::model::{CellRecord, DraftsSetting, Verdict};
use trace::Trace;

mod part;
mod trace;

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// What is swept.
    pub settings: &'a [DraftsSetting],
    /// Tokens that every sequence must have.
    pub n_predict: usize,
    /// Sessions that may run at the same time.
    pub parallel: usize,
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, settings: &[DraftsSetting]) -> Result<Found> {
    let comparison = Comparison {
        prompts: &work.plan.prompts,
        settings,
        n_predict: work.plan.definition.n_predict,
        parallel: work.parallel,
    };
    Ok(Found {
        cells: comparison.run(work.runner, work.halt, work.task)?,
        ..Found::default()
    })
}

/// One cell before it is judged.
#[derive(Clone, Copy, Debug)]
struct Place<'a> {
    setting: &'a DraftsSetting,
    n_max: u32,
    slots: usize,
}

impl Comparison<'_> {
    /// Runs all sessions and judges them. The first error stops the others.
    pub fn run(
        &self,
        runner: &dyn Runner,
        halt: &Halt,
        task: &dyn Task,
    ) -> Result<Vec<CellRecord>> {
        let places: Vec<Place<'_>> = (self.settings.iter())
            .flat_map(|setting| {
                let pairs = move |slots: &usize| {
                    let slots = *slots;
                    setting.n_max.iter().map(move |&n_max| Place {
                        setting,
                        n_max,
                        slots,
                    })
                };
                setting.slots.iter().flat_map(pairs)
            })
            .collect();
        let sessions: Vec<Session<'_>> = (places.iter())
            .flat_map(|place| [Run::Baseline, Run::Candidate].map(|run| self.session(*place, run)))
            .collect();
        let run = |session: &Session<'_>| self.run_one(session, runner, halt);
        let answers = pool::run_all(&sessions, self.parallel, halt, task, &run)?;
        let pairs: Vec<&[Answers]> = answers.chunks(2).collect();
        let doubtful: Vec<bool> = (pairs.iter())
            .map(|pair| difference(&pair[0], &pair[1]).is_some())
            .collect();
        let controls: Vec<Session<'_>> = (places.iter().zip(&doubtful))
            .filter(|(_, doubtful)| **doubtful)
            .map(|(place, _)| self.session(*place, Run::Control))
            .collect();
        let mut controls = pool::run_all(&controls, self.parallel, halt, task, &run)?.into_iter();
        let cells = places.iter().zip(pairs).zip(doubtful);
        Ok(cells
            .map(|((place, pair), doubtful)| {
                let control = if doubtful { controls.next() } else { None };
                self.judge(*place, &pair[0], control.as_ref(), &pair[1])
            })
            .collect())
    }

    fn session<'a>(&'a self, place: Place<'a>, run: Run) -> Session<'a> {
        let wave = |lead: usize| {
            let prompts = self.prompts.iter().cycle().skip(lead);
            prompts.take(place.slots).collect()
        };
        Session {
            run,
            n_max: place.n_max,
            slots: place.slots,
            flags: &place.setting.flags,
            trace: Some(&place.setting.name),
            waves: (0..self.prompts.len()).map(wave).collect(),
        }
    }

    fn run_one(&self, session: &Session<'_>, runner: &dyn Runner, halt: &Halt) -> Result<Answers> {
        let answers = runner.run(session, halt)?;
        let right = answers.waves.len() == session.waves.len()
            && answers.waves.iter().flatten().count() == session.waves.iter().flatten().count()
            && (answers.waves.iter().flatten()).all(|a| a.tokens.len() == self.n_predict);
        if !right {
            return Err(Error::internal("a session gave another number of answers"));
        }
        // What cannot be read must not be compared as text.
        Trace::read(answers.trace.as_deref().unwrap_or_default())?;
        Ok(answers)
    }

    fn judge(
        &self,
        place: Place<'_>,
        baseline: &Answers,
        control: Option<&Answers>,
        candidate: &Answers,
    ) -> CellRecord {
        let steps = steps(baseline);
        let mut notes = Vec::new();
        let found = match place.setting.part {
            true => part::compare(
                baseline,
                candidate,
                place.slots,
                place.setting.part_rounds,
                &mut notes,
            ),
            false => difference(baseline, candidate).map(part::Found::Fault),
        };
        let (verdict, reason) = if let Some(what) = control.and_then(|c| difference(baseline, c)) {
            let what = format!("the baseline differs from itself (A/A): {what}");
            (Verdict::Inconclusive, Some(what))
        } else if let Some(part::Found::Nothing(what)) = found {
            (Verdict::Inconclusive, Some(what))
        } else if let Some(part::Found::Fault(what)) = found {
            (
                Verdict::Fail,
                Some(format!("baseline against candidate: {what}")),
            )
        } else if let Some(what) = purpose_missed(place, steps, baseline, candidate) {
            (Verdict::Inconclusive, Some(what))
        } else {
            (Verdict::Pass, None)
        };
        let records = |answers: &Answers| {
            let prompts = (0..self.prompts.len())
                .flat_map(|lead| self.prompts.iter().cycle().skip(lead).take(place.slots));
            let answers = answers.waves.iter().flatten();
            (prompts
                .zip(answers)
                .map(|(prompt, answer)| record(prompt, answer)))
            .collect()
        };
        CellRecord {
            setting: None,
            prompt: place.setting.name.clone(),
            n_max: place.n_max,
            slots: place.slots,
            steps: Some(steps),
            verdict,
            reason,
            notes,
            control_difference: None,
            difference: None,
            baseline: records(baseline),
            control: control.map(records).unwrap_or_default(),
            candidate: records(candidate),
        }
    }
}

fn steps(answers: &Answers) -> usize {
    let trace = answers.trace.as_deref().unwrap_or_default();
    trace.lines().count()
}

/// The trace of a run, which was read before.
fn read(answers: &Answers) -> Trace<'_> {
    Trace::read(answers.trace.as_deref().unwrap_or_default()).unwrap_or_default()
}

/// Where two runs differ first: in what they drafted, else in what they gave.
fn difference(left: &Answers, right: &Answers) -> Option<String> {
    if left.trace != right.trace
        && let Some(what) = read(left).difference(&read(right))
    {
        return Some(what);
    }
    token_difference(left, right).map(|what| format!("equal drafts, but {what}"))
}

/// Where the generated tokens of two runs differ first.
fn token_difference(left: &Answers, right: &Answers) -> Option<String> {
    let none = Prompt {
        name: String::new(),
        ids: Vec::new(),
    };
    let waves = left.waves.iter().zip(&right.waves);
    waves.enumerate().find_map(|(wave, (left, right))| {
        let found = first_token_difference(&vec![&none; left.len()], left, right)?;
        Some(format!(
            "in wave {wave} sequence {} differs from token {}: {:?} against {:?}",
            found.place, found.index, found.left, found.right
        ))
    })
}

/// How the runs did not do what the cell is there to compare, where they did not.
fn purpose_missed(
    place: Place<'_>,
    steps: usize,
    baseline: &Answers,
    candidate: &Answers,
) -> Option<String> {
    if steps == 0 {
        return Some("nothing was drafted, or the server does not trace".to_owned());
    }
    for (run, answers) in [(Run::Baseline, baseline), (Run::Candidate, candidate)] {
        if let Some(what) = read(answers).unsound() {
            return Some(format!("{}: {what}", run.name()));
        }
        let mut drafted = answers.waves.iter().flatten().map(|answer| answer.drafted);
        if drafted.any(|drafted| drafted == 0) {
            return Some(format!(
                "{} drafted nothing for one of the sequences",
                run.name()
            ));
        }
        if let Some(what) = idle(run, answers, place.slots) {
            return Some(what);
        }
    }
    if place.setting.fewer_launches {
        let launches = |answers: &Answers| -> Option<u64> {
            let count = |answer: &Answer| answer.counters.as_ref()?.get("launches_dft").copied();
            answers.waves.iter().flatten().map(count).sum()
        };
        return match (launches(baseline), launches(candidate)) {
            // It drafted, so that something was launched.
            (Some(_), Some(0)) => {
                Some("the candidate drafted, and counts no launch at all".to_owned())
            }
            (Some(left), Some(right)) if right < left => None,
            (Some(left), Some(right)) => Some(format!(
                "the candidate drafted as the baseline does: {right} launches against {left}"
            )),
            _ => Some(
                "launches are to be compared, and a server does not count them; set \
                 OPENCOTI_SPEC_COUNTERS=1 on both sides"
                    .to_owned(),
            ),
        };
    }
    None
}

#[cfg(test)]
mod tests;
