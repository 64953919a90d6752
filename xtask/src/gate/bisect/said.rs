//! What a run of a gate says to a bisection.

use crate::error::{Error, Kind, Result};
use crate::gate::cases::parts;
use crate::gate::{Report, perf};
use crate::model::{GateRecord, Metric, Verdict};

/// A verdict with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// The verdict.
    pub verdict: Verdict,
    /// Why, or what else is to be known.
    pub reason: Option<String>,
    /// Whether another run may say something else.
    pub again: bool,
    /// Whether the server broke down.
    pub broke: bool,
}

/// What errors say of a server that broke down.
pub const BROKE: &str = "the server ended";

/// What a run says. Errors that no other prefix would change are errors.
pub fn said(report: Result<Report>, metric: Option<Metric>) -> Result<Said> {
    let plain = |verdict, reason| Said {
        verdict,
        reason,
        again: true,
        broke: false,
    };
    let report = match report {
        Ok(report) => report,
        Err(error) => {
            return match error.kind() {
                Kind::Interrupted | Kind::Usage | Kind::Config | Kind::Internal => Err(error),
                // It does not build, or its server breaks down or answers badly.
                Kind::Finding | Kind::Environment | Kind::Inconclusive => Ok(Said {
                    verdict: Verdict::Inconclusive,
                    again: error.kind() == Kind::Inconclusive,
                    broke: error.to_string().contains(BROKE),
                    reason: Some(error.to_string()),
                }),
            };
        }
    };
    if let Some(skipped) = report.skipped.first() {
        return Err(Error::environment(format!(
            "gate `{}` cannot run here: {}",
            skipped.gate, skipped.reason
        ))
        .hint(skipped.hint.clone()));
    }
    let Some(record) = report.records.first() else {
        return Err(Error::internal("a gate left no record"));
    };
    let verdict = match metric {
        // What the run says nothing of, its metrics do not either.
        Some(metric) if record.reason.is_none() => by_metric(record, metric),
        _ => record.verdict,
    };
    if verdict == Verdict::Inconclusive && same_sides(record) {
        // With nothing between them no patch can be at fault.
        let same = "both sides are the same here";
        let parts = metric.map_or_else(|| all_parts(record), |metric| by_metric(record, metric));
        return Ok(match parts {
            Verdict::Pass => plain(
                Verdict::Pass,
                Some(format!("{same}, and equal to themselves")),
            ),
            _ => Said {
                // Only a server that differs from itself may do so no more another time.
                again: record
                    .cells
                    .iter()
                    .any(|cell| cell.control_difference.is_some()),
                ..plain(
                    Verdict::Inconclusive,
                    Some(match first(record, Verdict::Inconclusive) {
                        Some(reason) => format!("{same}: {reason}"),
                        None => same.to_owned(),
                    }),
                )
            },
        });
    }
    Ok(plain(verdict, why(record)))
}

/// The first thing that a record holds against a pass.
fn why(record: &GateRecord) -> Option<String> {
    (record.reason.clone()).or_else(|| first(record, record.verdict))
}

/// The reason of the first part of a record with that verdict.
fn first(record: &GateRecord, verdict: Verdict) -> Option<String> {
    let mut found = parts(record)
        .into_iter()
        .filter(|part| part.verdict == verdict);
    found.find_map(|part| Some(format!("{}: {}", part.name, part.reason?)))
}

/// What all parts say, whatever is said of the run as a whole.
fn all_parts(record: &GateRecord) -> Verdict {
    if let Some(perf) = &record.perf {
        return perf::judge::verdict(&perf.metrics, &perf.counters);
    }
    Verdict::all(parts(record).into_iter().map(|part| part.verdict))
}

fn by_metric(record: &GateRecord, metric: Metric) -> Verdict {
    let metrics = record.perf.iter().flat_map(|perf| &perf.metrics);
    let metrics = metrics.filter(|found| found.metric == metric);
    Verdict::all(metrics.filter_map(|found| found.verdict))
}

fn same_sides(record: &GateRecord) -> bool {
    let (left, right) = (&record.baseline, &record.candidate);
    left.env == right.env && left.artifacts == right.artifacts && !left.artifacts.is_empty()
}
