//! What a kind of gate is given, and what it gives back.

use crate::build::Build;
use crate::ctx::{Ctx, Task};
use crate::gate::definition::ChashPlan;
use crate::gate::perf::judge;
use crate::gate::runner::ServerRunner;
use crate::gate::session::Halt;
use crate::model::{
    AcceptanceRecord, CellRecord, CheckRecord, CounterRecord, LogitsRecord, PerfRecord,
    PlainRecord, ProbeStamp, RetrievalRecord, Verdict,
};
use crate::patchset::Series;
use crate::vendor::Pristine;

/// One gate at work.
pub struct Work<'a> {
    /// Where things are, and where messages go.
    pub ctx: &'a Ctx,
    /// What all kinds of definitions have.
    pub plan: &'a ChashPlan,
    /// Starts the servers of both sides.
    pub runner: &'a ServerRunner<'a>,
    /// Sessions that may run at the same time.
    pub parallel: usize,
    /// Stops them.
    pub halt: &'a Halt,
    /// Shows how far it is.
    pub task: &'a dyn Task,
    /// What the builds were made from; `None` where the user named the servers.
    pub origin: Option<Origin<'a>>,
}

/// What the two builds of this project were made from.
#[derive(Clone, Copy)]
pub struct Origin<'a> {
    /// The base.
    pub pristine: &'a Pristine,
    /// The series.
    pub series: &'a Series,
    /// The build of the base.
    pub vanilla: &'a Build,
    /// The build of the base with the series.
    pub patched: &'a Build,
}

/// What a gate found: each kind fills what is its own.
#[derive(Clone, Debug, Default)]
pub struct Found {
    /// See [`crate::model::GateRecord::cells`].
    pub cells: Vec<CellRecord>,
    /// See [`crate::model::GateRecord::drafted_against_plain`].
    pub drafted_against_plain: Vec<PlainRecord>,
    /// See [`crate::model::GateRecord::perf`].
    pub perf: Option<PerfRecord>,
    /// See [`crate::model::GateRecord::acceptance`].
    pub acceptance: Vec<AcceptanceRecord>,
    /// See [`crate::model::GateRecord::checks`].
    pub checks: Vec<CheckRecord>,
    /// See [`crate::model::GateRecord::logits`].
    pub logits: Vec<LogitsRecord>,
    /// See [`crate::model::GateRecord::probes`].
    pub probes: Vec<ProbeStamp>,
    /// See [`crate::model::GateRecord::counters`].
    pub counters: Vec<CounterRecord>,
    /// See [`crate::model::GateRecord::retrieval`].
    pub retrieval: Vec<RetrievalRecord>,
    /// Why the gate could not be asked at all, where it could not.
    pub skipped: Option<String>,
    /// Remarks that decide nothing.
    pub notes: Vec<String>,
}

impl Found {
    /// Nothing, for a reason that is said.
    pub fn skip(reason: &str) -> Self {
        Found {
            skipped: Some(reason.to_owned()),
            ..Found::default()
        }
    }

    /// Over all parts; nothing at all is inconclusive.
    pub fn verdict(&self) -> Verdict {
        // All fields are named: a new kind of part that nobody judges here is a compile error.
        let Found {
            cells,
            drafted_against_plain: _,
            perf,
            acceptance,
            checks,
            logits,
            probes: _,
            counters,
            retrieval,
            skipped,
            notes: _,
        } = self;
        if skipped.is_some() {
            return Verdict::Skipped;
        }
        let mut all: Vec<Verdict> = cells.iter().map(|cell| cell.verdict).collect();
        all.extend(acceptance.iter().map(|share| share.verdict));
        all.extend(checks.iter().map(|check| check.verdict));
        all.extend(logits.iter().map(|record| record.verdict));
        all.extend(counters.iter().filter_map(|counter| counter.verdict));
        all.extend(retrieval.iter().map(|record| record.verdict));
        if let Some(perf) = perf {
            all.push(judge::verdict(&perf.metrics, &perf.counters));
        }
        Verdict::all(all)
    }
}
