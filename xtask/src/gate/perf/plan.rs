//! What a definition of kind `perf` asks for, checked.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::error::{Error, Result};
use crate::model::{Metric, PerfGate, Relation};
use crate::stats::bootstrap::FEWEST;

/// Beside what all kinds have.
#[derive(Clone, Debug, PartialEq)]
pub struct PerfPlan {
    /// Rounds of the control, and of the comparison.
    pub planned: [usize; 2],
    /// Pairs of measurements for each prompt in a round: two of each block.
    pub pairs: usize,
    /// Unmeasured runs of every prompt after the start of a server.
    pub warm_up: usize,
    /// Time for all of it.
    pub budget: Duration,
    /// By how much each metric may become worse, as a fraction.
    pub thresholds: BTreeMap<Metric, f64>,
    /// How counters must stand to each other.
    pub counters: BTreeMap<String, Relation>,
}

/// Most rounds, blocks and warm-ups: a typing error must not run for days.
const MOST: usize = 10_000;

impl PerfPlan {
    /// Of a definition, or of its quick subset.
    pub fn new(definition: &PerfGate, quick: bool) -> Result<Self> {
        let mut planned = [definition.control_rounds, definition.rounds];
        if quick && let Some(subset) = &definition.quick {
            planned = [subset.control_rounds, subset.rounds];
        }
        if planned.iter().any(|rounds| *rounds < FEWEST) {
            return Err(Error::config(format!(
                "rounds and control-rounds must be {FEWEST} at least: fewer say nothing"
            )));
        }
        let sizes = [definition.blocks, definition.warm_up];
        if planned.iter().chain(&sizes).any(|size| *size > MOST) {
            return Err(Error::config(format!(
                "rounds, control-rounds, blocks and warm-up may be {MOST} at most"
            )));
        }
        if definition.blocks == 0 || definition.budget == 0 {
            return Err(Error::config(
                "blocks or budget is 0; nothing would be measured",
            ));
        }
        if definition.n_predict < 2 {
            return Err(Error::config(
                "n-predict is below 2; the speed of decoding needs two tokens",
            ));
        }
        if definition.thresholds.is_empty() && definition.counters.is_empty() {
            return Err(Error::config(
                "neither threshold nor counters; nothing would be judged",
            ));
        }
        for (metric, threshold) in &definition.thresholds {
            if !threshold.is_finite() || *threshold < 0.0 || *threshold > 10.0 {
                return Err(Error::config(format!(
                    "threshold of {}: {threshold} is not between 0 and 10; 0.01 is 1 %",
                    metric.name()
                )));
            }
        }
        if let Some(name) = (definition.counters.keys()).find(|name| name.starts_with("us_")) {
            return Err(Error::config(format!(
                "counters holds `{name}`, which is a time and never the same twice"
            )));
        }
        Ok(PerfPlan {
            planned,
            pairs: 2 * definition.blocks,
            warm_up: definition.warm_up,
            budget: Duration::from_secs(definition.budget),
            thresholds: definition.thresholds.clone(),
            counters: definition.counters.clone(),
        })
    }
}
