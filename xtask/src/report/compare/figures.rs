//! Acceptance and speed of two records.
//!
//! Shares are compared as in the gate: Newcombe's interval of their difference. A perf record
//! holds how much worse its candidate is than its own baseline; the difference of two such
//! changes has the interval that follows from both (MOVER: Zou and Donner, *Construction of
//! confidence limits about effect measures*, Stat. Med. 27, 2008), on logarithms.

use serde::Serialize;

use crate::model::{AcceptanceRecord, ChangeRecord, GateRecord, MetricRecord, Verdict};
use crate::stats::{LEVEL, percent, proportion};

/// One figure in both records.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Figure {
    /// `accepted, n_max 3`, `decode t/s, n_max 3`, `launches_dft, n_max 3`.
    pub name: String,
    /// In A and in B, as a person reads it.
    pub values: [String; 2],
    /// How much worse B is: points of acceptance, or per cent of the cost; absent for counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub worse: Option<[f64; 3]>,
    /// How much worse it may be, in the same unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub allowed: Option<f64>,
    /// The verdict; absent where nothing says how much is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// All figures that both have.
pub fn figures(a: &GateRecord, b: &GateRecord) -> Vec<Figure> {
    let mut figures = Vec::new();
    // Shares over other prompts are no shares of the same thing.
    if a.prompts == b.prompts {
        for left in &a.acceptance {
            let right = b.acceptance.iter().find(|r| r.n_max == left.n_max);
            figures.extend(right.and_then(|right| accepted(left, right)));
        }
    }
    if let (Some(left), Some(right)) = (&a.perf, &b.perf)
        && a.prompts == b.prompts
    {
        for metric in &left.metrics {
            let same = |m: &&MetricRecord| (m.metric, m.n_max) == (metric.metric, metric.n_max);
            let other = right.metrics.iter().find(same);
            figures.extend(other.and_then(|other| changed(metric, other)));
        }
        for counter in &left.counters {
            let mut others = right.counters.iter();
            let same = others.find(|c| (&c.name, c.n_max) == (&counter.name, counter.n_max));
            let Some(other) = same.filter(|other| other.candidate != counter.candidate) else {
                continue;
            };
            let show = |count: Option<u64>| count.map_or("-".to_owned(), |n| n.to_string());
            figures.push(Figure {
                name: format!("{}, n_max {}", counter.name, counter.n_max),
                values: [show(counter.candidate), show(other.candidate)],
                worse: None,
                allowed: None,
                verdict: None,
            });
        }
    }
    figures
}

fn accepted(a: &AcceptanceRecord, b: &AcceptanceRecord) -> Option<Figure> {
    let counts = |r: &AcceptanceRecord| (r.candidate.accepted, r.candidate.drafted);
    let (left, right) = (counts(a), counts(b));
    let found = proportion::difference(left, right, LEVEL)?;
    let allowed = b.drop.or(a.drop).map(|drop| 100.0 * drop);
    // Worse is less.
    // From 0, so that no change is no change of either sign.
    let worse = [found.value, found.high, found.low].map(|share| 0.0 - 100.0 * share);
    let verdict = match left == right {
        true => Some(Verdict::Pass),
        false => allowed.map(|allowed| judge(worse, allowed)),
    };
    let show = |(accepted, drafted): (u64, u64)| {
        let percent = 100.0 * accepted as f64 / drafted as f64;
        format!("{accepted}/{drafted} {percent:.1} %")
    };
    Some(Figure {
        name: format!("accepted, n_max {}", a.n_max),
        values: [show(left), show(right)],
        worse: Some(worse),
        allowed,
        verdict,
    })
}

fn changed(a: &MetricRecord, b: &MetricRecord) -> Option<Figure> {
    let (left, right) = (logs(&a.worse?)?, logs(&b.worse?)?);
    let value = right[0] - left[0];
    let low = value - (right[0] - right[1]).hypot(left[2] - left[0]);
    let high = value + (right[2] - right[0]).hypot(left[0] - left[1]);
    let worse = [value, low, high].map(percent);
    let allowed = b
        .threshold
        .or(a.threshold)
        .map(|threshold| 100.0 * threshold);
    let show = |c: &ChangeRecord| format!("{:+.2} % [{:+.2}, {:+.2}]", c.percent, c.low, c.high);
    Some(Figure {
        name: format!("{}, n_max {}", a.metric.name(), a.n_max),
        values: [show(&a.worse?), show(&b.worse?)],
        worse: Some(worse),
        allowed,
        // The very same figures, interval and all, are those of one run.
        verdict: allowed.map(|allowed| match a == b {
            true => Verdict::Pass,
            false => judge(worse, allowed),
        }),
    })
}

/// Estimate and ends as logarithms; `None` of what is no change of a cost.
fn logs(change: &ChangeRecord) -> Option<[f64; 3]> {
    let logs = [change.percent, change.low, change.high].map(|p| (p / 100.0).ln_1p());
    logs.iter().all(|log| log.is_finite()).then_some(logs)
}

fn judge([_, low, high]: [f64; 3], allowed: f64) -> Verdict {
    if high <= allowed {
        Verdict::Pass
    } else if low > allowed {
        Verdict::Fail
    } else {
        Verdict::Inconclusive
    }
}
