//! What earlier runs said, in few words: of a run that is long past nobody wants every cell.

use serde::Serialize;

use crate::gate::store::StoredRun;
use crate::model::{GateRecord, Metric, Verdict};
use crate::report::gather::subject;
use crate::report::visible::visible;

/// One run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Past {
    /// Its id.
    pub run: String,
    /// When it began, RFC 3339, UTC; empty where that is not known.
    pub started: String,
    /// Base and patch set of what was judged; several where its gates differ, none for servers
    /// that were named by path.
    pub subjects: Vec<String>,
    /// Whether only quick subsets ran.
    pub quick: bool,
    /// Verdict of each gate, in their order; a missing one is inconclusive.
    pub gates: Vec<(String, Verdict)>,
    /// Files that could not be read.
    pub skipped: usize,
    /// How much slower the candidate decoded.
    pub decode: Vec<Measured>,
    /// Accepted share of the candidate.
    pub accepted: Vec<Measured>,
}

/// A figure with its interval of 95 %.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    /// The gate.
    pub gate: String,
    /// Longest draft.
    pub n_max: u32,
    /// The figure in per cent.
    pub value: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// What `run` said.
pub fn past(run: &StoredRun) -> Past {
    let records = || run.records.iter().map(|stored| &stored.record);
    let mut subjects: Vec<String> = Vec::new();
    for record in records() {
        let subject = visible(&subject(record));
        if !subject.is_empty() && !subjects.contains(&subject) {
            subjects.push(subject);
        }
    }
    let started = match &run.plan {
        Some(plan) => Some(&plan.started),
        None => records().map(|record| &record.started).min(),
    };
    let recorded = records().map(|record| (visible(&record.gate), record.verdict));
    let missing = run.missing.iter();
    let missing = missing.map(|gate| (visible(gate), Verdict::Inconclusive));
    Past {
        run: visible(&run.id),
        started: started.map(|text| visible(text)).unwrap_or_default(),
        subjects,
        quick: records().any(|record| record.quick),
        gates: recorded.chain(missing).collect(),
        skipped: run.skipped.len(),
        decode: records().flat_map(decode).collect(),
        accepted: records().flat_map(accepted).collect(),
    }
}

fn decode(record: &GateRecord) -> Vec<Measured> {
    let metrics = record.perf.iter().flat_map(|perf| &perf.metrics);
    let decode = metrics.filter(|metric| metric.metric == Metric::Decode);
    let measured = decode.filter_map(|metric| {
        let change = metric.worse?;
        Some(Measured {
            gate: visible(&record.gate),
            n_max: metric.n_max,
            value: change.percent,
            low: change.low,
            high: change.high,
        })
    });
    measured.collect()
}

fn accepted(record: &GateRecord) -> Vec<Measured> {
    let measured = record.acceptance.iter().filter_map(|shares| {
        let [value, low, high] = shares.candidate.share?.map(|share| 100.0 * share);
        Some(Measured {
            gate: visible(&record.gate),
            n_max: shares.n_max,
            value,
            low,
            high,
        })
    });
    measured.collect()
}

impl Past {
    /// `2026-11-29 18:45`.
    pub fn when(&self) -> String {
        let text = self.started.replace('T', " ");
        text.chars().take(16).collect()
    }
}
