//! The gate "the same counts, or better ones".
//!
//! For every longest draft three servers are run, the baseline twice. What they count does not
//! depend on the machine, so it is compared exactly, without statistics: a counter that differs
//! between the baseline's two runs, or that is not there, says nothing and never passes. The counts
//! are comparable only where all three did the same work, which is where their tokens are equal.

use std::collections::BTreeMap;

use crate::ctx::Task;
use crate::error::{Error, Result};
use crate::gate::chash::one_id;
use crate::gate::checks::check;
use crate::gate::perf::judge::counter;
use crate::gate::pool;
use crate::gate::session::{Answers, Halt, Prompt, Run, Runner, Session};
use crate::gate::table::Signs;
use crate::gate::work::{Found, Work};
use crate::model::{
    Bound, CheckRecord, CounterRecord, CountersGate, Relation, SideSamples, Verdict,
};

/// What a definition asks for, beside what all kinds have.
#[derive(Clone, Debug, PartialEq)]
pub struct CountersPlan {
    /// How counters must stand to each other.
    pub counters: BTreeMap<String, Relation>,
    /// Between what ends they must lie.
    pub bounds: BTreeMap<String, Bound>,
}

impl CountersPlan {
    /// Of a definition, checked.
    pub fn new(definition: &CountersGate) -> Result<Self> {
        if definition.counters.is_empty() && definition.bounds.is_empty() {
            return Err(Error::config(
                "neither counters nor bounds; nothing would be judged",
            ));
        }
        let bounds = definition.bounds.keys().flat_map(|key| key.split('/'));
        let mut names = definition.counters.keys().map(String::as_str).chain(bounds);
        if let Some(name) = names.find(|name| name.starts_with("us_")) {
            return Err(Error::config(format!(
                "`{name}` is a time and never the same twice"
            )));
        }
        for (key, bound) in &definition.bounds {
            let ends = [bound.min, bound.max];
            let sound = ends
                .iter()
                .flatten()
                .all(|end| end.is_finite() && *end >= 0.0);
            if !sound || ends == [None, None] || key.split('/').any(str::is_empty) {
                return Err(Error::config(format!(
                    "bounds of `{key}`: `min` or `max` is needed, 0 or above, of `name` or `name/other`"
                )));
            }
        }
        Ok(CountersPlan {
            counters: definition.counters.clone(),
            bounds: definition.bounds.clone(),
        })
    }
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, plan: &CountersPlan) -> Result<Found> {
    let comparison = Comparison {
        prompts: &work.plan.prompts,
        n_max: &work.plan.n_max,
        plan,
        parallel: work.parallel,
    };
    let (counters, checks) = comparison.run(work.runner, work.halt, work.task)?;
    Ok(Found {
        counters,
        checks,
        ..Found::default()
    })
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// Longest drafts.
    pub n_max: &'a [u32],
    /// What is asked for.
    pub plan: &'a CountersPlan,
    /// Sessions that may run at the same time.
    pub parallel: usize,
}

impl Comparison<'_> {
    /// Runs all sessions and judges them. The first error stops the others.
    pub fn run(
        &self,
        runner: &dyn Runner,
        halt: &Halt,
        task: &dyn Task,
    ) -> Result<(Vec<CounterRecord>, Vec<CheckRecord>)> {
        let sides = |n_max: &u32| {
            let n_max = *n_max;
            [Run::Baseline, Run::Control, Run::Candidate].map(|run| Session {
                run,
                n_max,
                slots: 1,
                flags: &[],
                trace: None,
                waves: self.prompts.iter().map(|prompt| vec![prompt]).collect(),
            })
        };
        let sessions: Vec<Session<'_>> = self.n_max.iter().flat_map(sides).collect();
        let run = |session: &Session<'_>| {
            let answers = runner.run(session, halt)?;
            session.check(&answers)?;
            Ok(answers)
        };
        let answers = pool::run_all(&sessions, self.parallel, halt, task, &run)?;
        let (mut counters, mut checks) = (Vec::new(), Vec::new());
        for (n_max, runs) in self.n_max.iter().zip(answers.chunks(3)) {
            let [baseline, control, candidate] = runs else {
                return Err(Error::internal("a session is missing"));
            };
            let same = same_work(*n_max, baseline, control, candidate);
            let [baseline, control, candidate] = [baseline, control, candidate].map(samples);
            checks.push(same);
            counters.extend(self.relations(*n_max, &[&baseline, &control], &candidate));
            let bounds = self.plan.bounds.iter();
            checks.extend(bounds.filter_map(|(key, bound)| ends(key, bound, *n_max, &candidate)));
        }
        let unjudged = self.unjudged(&counters, &checks);
        checks.extend(unjudged);
        Ok((counters, checks))
    }

    /// What is asked for, and was judged at no longest draft: what else was judged does not stand in for it.
    fn unjudged(&self, counters: &[CounterRecord], checks: &[CheckRecord]) -> Vec<CheckRecord> {
        let is_judged = |name: &String| {
            let mut all = counters.iter();
            all.any(|counter| counter.name == *name && counter.verdict.is_some())
        };
        let is_bound = |key: &String| {
            let mut names = self.n_max.iter().map(|n_max| bound_name(key, *n_max));
            names.any(|name| checks.iter().any(|check| check.name == name))
        };
        let relations = self.plan.counters.keys().filter(|name| !is_judged(name));
        let bounds = self.plan.bounds.keys().filter(|key| !is_bound(key));
        let record = |name: &String| {
            CheckRecord {
            name: name.clone(),
            verdict: Verdict::Inconclusive,
            found: String::new(),
            reason: Some(
                "it was judged at no n_max: without a drafter nothing is less, and there is nothing to divide by"
                    .to_owned(),
            ),
        }
        };
        relations.chain(bounds).map(record).collect()
    }

    fn relations(
        &self,
        n_max: u32,
        left: &[&SideSamples],
        right: &SideSamples,
    ) -> Vec<CounterRecord> {
        let counted = left
            .iter()
            .chain([&right])
            .filter_map(|side| side.counters.as_ref());
        let mut names: Vec<&String> = counted.flat_map(BTreeMap::keys).collect();
        names.extend(self.plan.counters.keys());
        names.sort();
        names.dedup();
        let judge = |name: &String| {
            let relation = self.plan.counters.get(name).copied();
            // Without a drafter there is nothing that could become less.
            let relation =
                relation.filter(|r| n_max > 0 || !matches!(r, Relation::Less | Relation::More));
            counter(name, n_max, relation, left, &[right])
        };
        names.into_iter().map(judge).collect()
    }
}

/// Whether the three runs gave the same tokens, and drafted where they were to.
fn same_work(
    n_max: u32,
    baseline: &Answers,
    control: &Answers,
    candidate: &Answers,
) -> CheckRecord {
    let mut reasons = Vec::new();
    for (name, run) in [("control", control), ("candidate", candidate)] {
        let tokens = |run: &Answers| -> Vec<Vec<u32>> {
            run.waves
                .iter()
                .flatten()
                .map(|answer| answer.tokens.clone())
                .collect()
        };
        if tokens(run) != tokens(baseline) {
            reasons.push(format!("the {name} gave other tokens than the baseline"));
        }
    }
    for (name, run) in [("baseline", baseline), ("candidate", candidate)] {
        let drafted: u64 = run
            .waves
            .iter()
            .flatten()
            .map(|answer| answer.drafted)
            .sum();
        if (drafted > 0) != (n_max > 0) {
            reasons.push(format!("the {name} drafted {drafted} tokens"));
        }
    }
    let runs = [
        (Run::Baseline, baseline),
        (Run::Control, control),
        (Run::Candidate, candidate),
    ];
    reasons.extend(one_id(&runs));
    let tokens: usize = baseline
        .waves
        .iter()
        .flatten()
        .map(|answer| answer.tokens.len())
        .sum();
    let mut record = check(
        &format!("same work, n_max {n_max}"),
        format!("{tokens} tokens"),
        reasons,
    );
    if record.verdict == Verdict::Fail {
        // Which of them is right is not this gate's question.
        record.verdict = Verdict::Inconclusive;
    }
    record
}

/// What a run counted over all prompts; no counters where one prompt has none.
fn samples(answers: &Answers) -> SideSamples {
    let mut sum: Option<BTreeMap<String, u64>> = Some(BTreeMap::new());
    for answer in answers.waves.iter().flatten() {
        match (&mut sum, &answer.counters) {
            (Some(sum), Some(counters)) => {
                for (name, value) in counters.iter().filter(|(name, _)| !name.starts_with("us_")) {
                    let all = sum.entry(name.clone()).or_default();
                    *all = all.saturating_add(*value);
                }
            }
            _ => sum = None,
        }
    }
    SideSamples {
        counters: sum,
        ..SideSamples::default()
    }
}

/// Name of the check of a bound.
fn bound_name(key: &str, n_max: u32) -> String {
    format!("{key}, n_max {n_max}")
}

/// Whether a counter, or the quotient of two, lies between its ends. `None` where there is nothing
/// to divide by, as without a drafter.
fn ends(key: &str, bound: &Bound, n_max: u32, side: &SideSamples) -> Option<CheckRecord> {
    let count = |name: &str| side.counters.as_ref()?.get(name).copied();
    let name = bound_name(key, n_max);
    let unknown = |reason: String| {
        Some(CheckRecord {
            name: name.clone(),
            verdict: Verdict::Inconclusive,
            found: String::new(),
            reason: Some(reason),
        })
    };
    let mut value = 1.0;
    for (at, part) in key.split('/').enumerate() {
        let Some(count) = count(part) else {
            return unknown(format!(
                "the candidate does not count {part}; set OPENCOTI_SPEC_COUNTERS=1"
            ));
        };
        match (at, count) {
            (0, count) => value = count as f64,
            (_, 0) if n_max == 0 => return None,
            (_, 0) => return unknown(format!("{part} is 0")),
            (_, count) => value /= count as f64,
        }
    }
    let below = bound.min.filter(|min| value < *min);
    let above = bound.max.filter(|max| value > *max);
    let reasons = [(below, "at least"), (above, "at most")];
    let reasons = reasons
        .into_iter()
        .filter_map(|(end, words)| Some(format!("{value:.4} is not {words} {}", end?)));
    Some(check(&name, format!("{value:.4}"), reasons.collect()))
}

/// Rows of a table, the first one being its head.
pub fn rows(counters: &[CounterRecord], checks: &[CheckRecord], signs: Signs) -> Vec<Vec<String>> {
    let head = [
        "counter",
        "n_max",
        "baseline",
        "candidate",
        "must be",
        "verdict",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let show = |value: Option<u64>| value.map_or("-".to_owned(), |value| value.to_string());
    rows.extend(counters.iter().map(|counter| {
        vec![
            counter.name.clone(),
            counter.n_max.to_string(),
            show(counter.baseline),
            show(counter.candidate),
            counter.relation.map_or("-", Relation::words).to_owned(),
            counter.verdict.map_or("-".to_owned(), |verdict| {
                format!("{} {verdict}", signs.verdict(verdict))
            }),
        ]
    }));
    rows.extend(checks.iter().map(|check| {
        let verdict = format!("{} {}", signs.verdict(check.verdict), check.verdict);
        let empty = String::new;
        vec![
            check.name.clone(),
            empty(),
            empty(),
            check.found.clone(),
            empty(),
            verdict,
        ]
    }));
    rows
}

/// What did not pass, a line each.
pub fn faults(counters: &[CounterRecord], signs: Signs) -> Vec<String> {
    let bad = counters.iter().filter_map(|counter| {
        let verdict = counter
            .verdict
            .filter(|verdict| *verdict != Verdict::Pass)?;
        Some(format!(
            "{} {}, n_max {}: {}",
            signs.verdict(verdict),
            counter.name,
            counter.n_max,
            counter.reason.as_deref().unwrap_or_default()
        ))
    });
    bad.collect()
}

#[cfg(test)]
mod tests;
