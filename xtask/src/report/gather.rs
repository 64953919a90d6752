//! Runs of the store as one report.

use std::path::PathBuf;

use crate::error::Result;
use crate::gate::missing;
use crate::gate::store::{Store, StoredRun};
use crate::model::{GateRecord, RunRecord, SkippedGate, Verdict};
use crate::report::cases::{Case, cases, rank, worst};
use crate::report::history::{Past, past};
use crate::report::visible::{all_visible, visible};

/// Why a backend stands among the gates without a record.
const IDLE: &str = "nothing was computed on it: every gate of it was skipped, or there is none";

/// Everything that a page shows.
#[derive(Clone, Debug)]
pub struct Report {
    /// Over all gates; a missing one is inconclusive.
    pub verdict: Verdict,
    /// The runs, oldest first.
    pub runs: Vec<Run>,
    /// Their gates, worst first, else in their order.
    pub gates: Vec<Gate>,
    /// Files of these runs that could not be understood: name and reason.
    pub skipped: Vec<(String, String)>,
    /// What the newest runs of the store said, oldest first.
    pub history: Vec<Past>,
}

/// One run of a report.
#[derive(Clone, Debug)]
pub struct Run {
    /// Its id.
    pub id: String,
    /// What it set out to do, where that is known.
    pub plan: Option<RunRecord>,
}

/// One gate of a report.
#[derive(Clone, Debug)]
pub struct Gate {
    /// The definition's id.
    pub id: String,
    /// The run.
    pub run: String,
    /// What there is of it.
    pub state: State,
}

/// What there is of a gate.
#[derive(Clone, Debug)]
pub enum State {
    /// A record.
    Recorded {
        /// The record, every text in it as it may be shown.
        record: Box<GateRecord>,
        /// What it judged.
        cases: Vec<Case>,
        /// The file.
        file: PathBuf,
    },
    /// Planned, and without a record that can be read.
    Missing {
        /// Why.
        why: String,
    },
    /// Not run, since something is not there.
    Skipped {
        /// The definition's title.
        title: String,
        /// One case, which says why.
        cases: [Case; 1],
    },
}

impl Gate {
    /// The record's verdict, or a worse one that its own parts have; inconclusive where it is
    /// missing.
    pub fn verdict(&self) -> Verdict {
        match &self.state {
            State::Recorded { record, cases, .. } => worst(record.verdict, cases),
            State::Missing { .. } => Verdict::Inconclusive,
            State::Skipped { .. } => Verdict::Skipped,
        }
    }

    /// Its record, where there is one.
    pub fn record(&self) -> Option<&GateRecord> {
        match &self.state {
            State::Recorded { record, .. } => Some(record),
            State::Missing { .. } | State::Skipped { .. } => None,
        }
    }

    /// What it judged; nothing where it is missing.
    pub fn cases(&self) -> &[Case] {
        match &self.state {
            State::Recorded { cases, .. } => cases,
            State::Missing { .. } => &[],
            State::Skipped { cases, .. } => cases,
        }
    }

    /// Whether it was planned and has no record.
    pub fn is_missing(&self) -> bool {
        matches!(self.state, State::Missing { .. })
    }
}

impl Report {
    /// The records.
    pub fn records(&self) -> impl Iterator<Item = &GateRecord> {
        self.gates.iter().filter_map(Gate::record)
    }

    /// How many gates were skipped.
    pub fn skipped_gates(&self) -> usize {
        let verdicts = self.gates.iter().map(Gate::verdict);
        verdicts.filter(|v| *v == Verdict::Skipped).count()
    }

    /// `1 of 24 gates was skipped`, where one was.
    pub fn skipped_words(&self) -> Option<String> {
        let of = self.gates.len();
        match self.skipped_gates() {
            0 => None,
            1 => Some(format!("1 of {of} gates was skipped, which is no pass.")),
            some => Some(format!(
                "{some} of {of} gates were skipped, which is no pass."
            )),
        }
    }

    /// `llama-0.5.0, patch set 1a2b3c4d5e6f`, each different one; empty for servers that were
    /// named by path.
    pub fn subjects(&self) -> Vec<String> {
        let mut subjects: Vec<String> = Vec::new();
        for record in self.records() {
            let subject = subject(record);
            if !subject.is_empty() && !subjects.contains(&subject) {
                subjects.push(subject);
            }
        }
        subjects
    }
}

/// What a record judged: base and patch set of its candidate.
pub fn subject(record: &GateRecord) -> String {
    let side = &record.candidate;
    match (&side.base, &side.patchset) {
        (Some(base), Some(set)) => format!("{base}, patch set {}", set.id.short()),
        (Some(base), None) => format!("{base}, no patches"),
        (None, _) => String::new(),
    }
}

/// See [`crate::report::report`].
pub fn gather(store: &Store, wanted: &[String], last: usize) -> Result<Report> {
    let mut ids = match wanted {
        [] => vec![store.find("latest")?],
        wanted => (wanted.iter().map(|id| store.find(id))).collect::<Result<Vec<_>>>()?,
    };
    ids.sort();
    ids.dedup();
    let runs = ids.iter().map(|id| store.read(id));
    let runs = runs.collect::<Result<Vec<_>>>()?;
    let all = store.runs()?;
    let newest = all.len().saturating_sub(last);
    let history = all[newest..].iter().map(|id| Ok(past(&store.read(id)?)));
    let history = history.collect::<Result<Vec<Past>>>()?;
    report_of(runs, history)
}

/// The report over runs that were read.
pub fn report_of(runs: Vec<StoredRun>, history: Vec<Past>) -> Result<Report> {
    let mut report = Report {
        verdict: Verdict::Inconclusive,
        runs: Vec::new(),
        gates: Vec::new(),
        skipped: Vec::new(),
        history,
    };
    for run in runs {
        let id = visible(&run.id);
        for stored in &run.records {
            let record = all_visible(&stored.record)?;
            report.gates.push(Gate {
                id: record.gate.clone(),
                run: id.clone(),
                state: State::Recorded {
                    cases: cases(&record),
                    record: Box::new(record),
                    file: stored.file.clone(),
                },
            });
        }
        let idle = |gate: &str| {
            let mut idle = run.plan.iter().flat_map(|plan| &plan.idle);
            idle.any(|backend| RunRecord::idle_name(backend) == gate)
        };
        for gate in &run.missing {
            let name = format!("{gate}.json");
            let skipped = run.skipped.iter().find(|s| s.file.ends_with(&name));
            report.gates.push(Gate {
                id: visible(gate),
                run: id.clone(),
                state: State::Missing {
                    why: match skipped {
                        _ if idle(gate) => IDLE.to_owned(),
                        Some(skipped) => {
                            format!("its record cannot be read: {}", visible(&skipped.reason))
                        }
                        None => {
                            "it has no record: the run broke off, or is still running".to_owned()
                        }
                    },
                },
            });
        }
        for skipped in &run.skipped {
            report.skipped.push((
                format!("{id}/{}", super::file_name(&skipped.file)),
                visible(&skipped.reason),
            ));
        }
        for gate in run.plan.iter().flat_map(|plan| &plan.skipped) {
            let gate: SkippedGate = all_visible(gate)?;
            report.gates.push(Gate {
                id: gate.gate,
                run: id.clone(),
                state: State::Skipped {
                    title: gate.title,
                    cases: [Case::whole(
                        Verdict::Skipped,
                        Some(format!("{}; {}", gate.reason, gate.hint)),
                    )],
                },
            });
        }
        report.runs.push(Run {
            id,
            plan: run.plan.as_ref().map(all_visible).transpose()?,
        });
    }
    report.gates.sort_by_key(|gate| rank(gate.verdict()));
    let gates = report.gates.iter().map(|gate| {
        let plans = report.runs.iter().filter(|run| run.id == gate.run);
        let named = plans.flat_map(|run| &run.plan).any(|plan| plan.named);
        missing::counted(gate.verdict(), named)
    });
    // A file that cannot be read may have been a gate that failed.
    let unread = report.skipped.iter().map(|_| Verdict::Inconclusive);
    report.verdict = Verdict::all(gates.chain(unread));
    Ok(report)
}
