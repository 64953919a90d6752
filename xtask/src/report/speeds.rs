//! Speed and acceptance by configuration, candidate beside baseline: the table that people who
//! tune speculative decoding send each other.

use serde::Serialize;

use crate::model::{GateRecord, Metric, RoundRecord, SideSamples};

/// One table: all that was measured on one model.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpeedTable {
    /// The gate.
    pub gate: String,
    /// The model.
    pub model: String,
    /// By longest draft.
    pub rows: Vec<SpeedRow>,
}

/// One configuration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SpeedRow {
    /// Longest draft; 0 is plain decoding.
    pub n_max: u32,
    /// Of what is judged.
    pub candidate: SpeedSide,
    /// Of what it is compared with.
    pub baseline: SpeedSide,
}

/// One side of a row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct SpeedSide {
    /// Tokens decoded per second, median; absent where it was not measured.
    pub decode: Option<f64>,
    /// Accepted of drafted tokens; absent where nothing was drafted.
    pub accepted: Option<f64>,
}

/// Head of every such table.
pub const HEAD: [&str; 5] = [
    "config",
    "ours decode t/s",
    "ours accept",
    "baseline decode t/s",
    "baseline accept",
];

/// The table of a record, where it measured speed or acceptance.
pub fn table(record: &GateRecord) -> Option<SpeedTable> {
    let mut rows: Vec<SpeedRow> = Vec::new();
    for shares in &record.acceptance {
        let side = |share: Option<[f64; 3]>| SpeedSide {
            decode: None,
            accepted: share.map(|share| share[0]),
        };
        rows.push(SpeedRow {
            n_max: shares.n_max,
            candidate: side(shares.candidate.share),
            baseline: side(shares.baseline.share),
        });
    }
    if let Some(perf) = &record.perf {
        let decode = perf.metrics.iter().filter(|m| m.metric == Metric::Decode);
        rows.extend(decode.map(|metric| {
            let accepted = |side: fn(&RoundRecord) -> &SideSamples| {
                let of = |round: &&RoundRecord| !round.control && round.n_max == metric.n_max;
                let sums = perf.rounds.iter().filter(of).map(side);
                let (accepted, drafted) = sums.fold((0u64, 0u64), |sum, side| {
                    (
                        sum.0.saturating_add(side.accepted),
                        sum.1.saturating_add(side.drafted),
                    )
                });
                (drafted > 0).then(|| accepted as f64 / drafted as f64)
            };
            SpeedRow {
                n_max: metric.n_max,
                candidate: SpeedSide {
                    decode: metric.candidate,
                    accepted: accepted(|round| &round.candidate),
                },
                baseline: SpeedSide {
                    decode: metric.baseline,
                    accepted: accepted(|round| &round.baseline),
                },
            }
        }));
    }
    rows.sort_by_key(|row| row.n_max);
    (!rows.is_empty()).then(|| SpeedTable {
        gate: record.gate.clone(),
        model: record.model.name.clone(),
        rows,
    })
}

/// The cells of a row.
pub fn cells(row: &SpeedRow) -> [String; 5] {
    let decode = |side: &SpeedSide| side.decode.map_or("—".to_owned(), |v| format!("{v:.1}"));
    let accepted = |side: &SpeedSide| side.accepted.map_or("—".to_owned(), |v| format!("{v:.3}"));
    [
        match row.n_max {
            0 => "base (no spec)".to_owned(),
            n_max => format!("n{n_max}"),
        },
        decode(&row.candidate),
        accepted(&row.candidate),
        decode(&row.baseline),
        accepted(&row.baseline),
    ]
}
