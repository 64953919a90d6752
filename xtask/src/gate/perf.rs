//! The gate "not slower".
//!
//! Measured in one session, in rounds. Each round starts a fresh server of either side and sends
//! both every prompt in the order A B B A; so drift and slow spells of the machine meet both, and
//! what one start of a process brings along is part of the spread. First come rounds in which
//! both sides are the baseline: the A/A control, which shows what this machine makes of nothing.
//! What the numbers mean is [`crate::stats`]' part.

use std::time::{Duration, Instant};

use crate::ctx::Task;
use crate::error::Result;
use crate::gate::session::Halt;
use crate::gate::work::{Found, Work};
use crate::model::{Metric, PerfRecord, RoundRecord};
use crate::stats::bootstrap::FEWEST;

pub mod judge;
pub mod machine;
pub mod measure;
pub mod plan;
pub mod show;

pub use plan::PerfPlan;

/// One round to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoundPlan {
    /// Whether both sides are the baseline.
    pub control: bool,
    /// Longest draft.
    pub n_max: u32,
    /// Its number, from 0; the order of the sides turns with it.
    pub number: usize,
    /// Pairs of measurements for each prompt.
    pub pairs: usize,
}

/// What measures. Comparisons are written against it, so that they can be tested without servers.
pub trait Bench {
    /// Starts both sides, measures, ends them.
    fn round(&self, plan: RoundPlan, halt: &Halt) -> Result<RoundRecord>;
}

/// What was measured.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Measured {
    /// In the order of measuring.
    pub rounds: Vec<RoundRecord>,
    /// Rounds done of the control, and of the comparison, at each `n_max`.
    pub done: [usize; 2],
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, perf: &PerfPlan) -> Result<Found> {
    let bench = measure::ServerBench {
        runner: work.runner,
        prompts: &work.plan.prompts,
        warm_up: perf.warm_up,
    };
    let record = run(perf, &work.plan.n_max, &bench, work.halt, work.task)?;
    Ok(Found {
        notes: show::remarks(&record),
        perf: Some(record),
        ..Found::default()
    })
}

/// Measures and judges.
pub fn run(
    plan: &PerfPlan,
    n_max: &[u32],
    bench: &dyn Bench,
    halt: &Halt,
    task: &dyn Task,
) -> Result<PerfRecord> {
    let mut machine = machine::begin();
    let measured = measure(plan, n_max, bench, halt, task)?;
    machine::finish(&mut machine);
    let mut metrics = judge::metrics(plan, n_max, &measured);
    let mut counters = judge::counters(plan, n_max, &measured);
    judge::hold_work(&mut metrics, &mut counters, &measured);
    Ok(PerfRecord {
        planned: plan.planned,
        done: measured.done,
        pairs_per_round: (measured.rounds.iter())
            .find_map(|round| round.baseline.values.get(&Metric::Decode).map(Vec::len))
            .unwrap_or(0),
        machine,
        metrics,
        counters,
        rounds: measured.rounds,
    })
}

/// Measures as many of the planned rounds as the budget allows, the control first, each part
/// within its share. The `n_max` take turns, so that all see the same times of day. An
/// error of one round ends all.
pub fn measure(
    plan: &PerfPlan,
    n_max: &[u32],
    bench: &dyn Bench,
    halt: &Halt,
    task: &dyn Task,
) -> Result<Measured> {
    let begun = Instant::now();
    let mut measured = Measured::default();
    let total = plan.planned[0] + plan.planned[1];
    let mut at = 0;
    for (part, control) in [(0, true), (1, false)] {
        let until = match control {
            true => plan.budget.mul_f64(plan.planned[0] as f64 / total as f64),
            false => plan.budget,
        };
        let mut longest = Duration::ZERO;
        for number in 0..plan.planned[part] {
            let round_begun = Instant::now();
            // A control that is cut short would make all of it say nothing.
            let until = if number < FEWEST { plan.budget } else { until };
            if begun.elapsed() + longest > until {
                break;
            }
            for &n_max in n_max {
                halt.check()?;
                let round = RoundPlan {
                    control,
                    n_max,
                    number,
                    pairs: plan.pairs,
                };
                measured.rounds.push(bench.round(round, halt)?);
            }
            measured.done[part] += 1;
            longest = longest.max(round_begun.elapsed());
            at += 1;
            task.progress(at, total as u64);
        }
        at = plan.planned[0] as u64;
    }
    Ok(measured)
}

#[cfg(test)]
mod tests;
