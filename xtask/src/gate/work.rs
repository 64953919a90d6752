//! What a kind of gate is given, and what it gives back.

use crate::ctx::{Ctx, Task};
use crate::gate::definition::ChashPlan;
use crate::gate::perf::judge;
use crate::gate::runner::ServerRunner;
use crate::gate::session::Halt;
use crate::model::{AcceptanceRecord, CellRecord, PerfRecord, PlainRecord, Verdict};

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
    /// Remarks that decide nothing.
    pub notes: Vec<String>,
}

impl Found {
    /// Over all parts; nothing at all is inconclusive.
    pub fn verdict(&self) -> Verdict {
        let mut all: Vec<Verdict> = self.cells.iter().map(|cell| cell.verdict).collect();
        all.extend(self.acceptance.iter().map(|share| share.verdict));
        if let Some(perf) = &self.perf {
            all.push(judge::verdict(&perf.metrics, &perf.counters));
        }
        Verdict::all(all)
    }
}
