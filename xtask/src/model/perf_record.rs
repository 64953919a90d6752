//! What a gate of kind `perf` adds to its record.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::model::{Digest, Metric, Relation, Verdict};

/// Everything measured, and what follows from it.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PerfRecord {
    /// Rounds asked for: of the control, and of the comparison.
    pub planned: [usize; 2],
    /// Rounds for which the time budget sufficed.
    pub done: [usize; 2],
    /// Pairs of measurements in each round.
    pub pairs_per_round: usize,
    /// The machine.
    pub machine: MachineStamp,
    /// By `n_max`, metric.
    pub metrics: Vec<MetricRecord>,
    /// By `n_max`, name.
    pub counters: Vec<CounterRecord>,
    /// The measurements, in the order in which they were made.
    pub rounds: Vec<RoundRecord>,
}

/// The machine, as far as it tells.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MachineStamp {
    /// Processors that may be used.
    pub processors: usize,
    /// Name of the first one.
    pub model: Option<String>,
    /// What chooses the frequency of the first one.
    pub governor: Option<String>,
    /// Mean frequency in MHz, before and after.
    pub mhz: [Option<f64>; 2],
    /// Processes that ran or waited, averaged over a minute, before and after.
    pub load: [Option<f64>; 2],
}

/// One metric at one `n_max`.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct MetricRecord {
    /// What was measured.
    pub metric: Metric,
    /// Longest draft.
    pub n_max: u32,
    /// The verdict; absent where the definition has no threshold for it.
    pub verdict: Option<Verdict>,
    /// Why, where it is not a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// By how much it may become worse, as a fraction.
    pub threshold: Option<f64>,
    /// Median of the baseline, in the unit of the metric.
    pub baseline: Option<f64>,
    /// Median of the candidate.
    pub candidate: Option<f64>,
    /// How much worse the candidate is.
    pub worse: Option<ChangeRecord>,
    /// How much worse the baseline is than itself: the A/A control.
    pub control: Option<ChangeRecord>,
    /// The smallest loss, in per cent, that this run would fail in 95 of 100 cases.
    pub detectable: Option<f64>,
    /// More pairs that would decide, if the estimate stays; 0 where it is decided, absent where
    /// no sensible number would do.
    pub more_pairs: Option<usize>,
}

/// A change in per cent with its interval of 95 %; above 0 is worse.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeRecord {
    /// The estimate.
    pub percent: f64,
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Pairs of measurements behind it.
    pub pairs: usize,
}

/// A counter at one `n_max`, summed over one run of all prompts.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CounterRecord {
    /// Its name.
    pub name: String,
    /// Longest draft.
    pub n_max: u32,
    /// How they must stand to each other; absent where it is only shown.
    pub relation: Option<Relation>,
    /// The verdict; absent where it is only shown.
    pub verdict: Option<Verdict>,
    /// Why, where it is not a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the baseline; absent where it is not counted, or not always the same.
    pub baseline: Option<u64>,
    /// Of the candidate.
    pub candidate: Option<u64>,
}

/// One round.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRecord {
    /// Whether both sides are the baseline.
    pub control: bool,
    /// Longest draft.
    pub n_max: u32,
    /// Of the baseline, in the order of measuring.
    pub baseline: SideSamples,
    /// Of the candidate, or of the baseline's second process; the one of the same place is its
    /// pair.
    pub candidate: SideSamples,
}

/// What one process gave.
#[derive(Clone, Debug, Default, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SideSamples {
    /// The timed ones, in the metric's unit.
    pub values: BTreeMap<Metric, Vec<f64>>,
    /// Counters of one run of all prompts; absent where it does not count.
    pub counters: Option<BTreeMap<String, u64>>,
    /// Counters of which a later run of the same prompts gave another value.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub vary: BTreeSet<String>,
    /// Digest over the tokens of one run of all prompts; absent in records from before it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tokens: Option<Digest>,
    /// Tokens drafted in one run of all prompts.
    pub drafted: u64,
    /// Of them accepted.
    pub accepted: u64,
}
