//! `gates/<id>.toml` of kind `counters`: what the builds count, compared exactly.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::gate::{default_context, default_seed, default_spec_type, one, side, yes};
use crate::model::{
    ChashGate, Flavour, GateBackend, GateDevice, GateKind, GateLimits, ModelSource,
    PromptDefinition, QuickSubset, Relation, SideDefinition,
};

/// A definition of kind `counters`. What it shares with `chash` means the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CountersGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `counters`.
    pub kind: GateKind,
    /// One line.
    pub title: String,
    /// Whether it runs where no gate is named.
    #[serde(default = "yes")]
    pub default: bool,
    /// The model.
    pub model: ModelSource,
    /// What the servers compute on.
    #[serde(default)]
    pub backend: GateBackend,
    /// Which of its devices, and what must be found to have run.
    #[serde(default)]
    pub device: GateDevice,
    /// Seconds for the whole gate: what is not done by then is inconclusive.
    #[serde(default)]
    pub budget: Option<u64>,
    /// Longest drafts to try; 0 is plain decoding without a drafter.
    pub n_max: Vec<u32>,
    /// Tokens to generate for each prompt.
    pub n_predict: usize,
    /// Context cells.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Sampling seed.
    #[serde(default = "default_seed")]
    pub seed: u32,
    /// `--spec-type` where `n-max` is not 0.
    #[serde(default = "default_spec_type")]
    pub spec_type: String,
    /// More flags for both servers, after the gate's own.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Servers that may run at the same time; `--jobs` lowers it.
    #[serde(default = "one")]
    pub parallel: usize,
    /// What is compared with: it is run twice, as the control.
    #[serde(default = "patched")]
    pub baseline: SideDefinition,
    /// What is judged.
    pub candidate: SideDefinition,
    /// Time limits.
    #[serde(default)]
    pub limits: GateLimits,
    /// How the candidate's counters must stand to the baseline's, by name.
    #[serde(default)]
    pub counters: BTreeMap<String, Relation>,
    /// Ends for the candidate's counters: `launches_tgt`, or `launches_dft/cycles` for the quotient
    /// of two.
    #[serde(default)]
    pub bounds: BTreeMap<String, Bound>,
    /// What `--quick` keeps.
    #[serde(default)]
    pub quick: Option<CountersQuick>,
    /// The prompts.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptDefinition>,
}

/// Ends between which a counter, or the quotient of two, must lie.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Bound {
    /// At least.
    pub min: Option<f64>,
    /// At most.
    pub max: Option<f64>,
}

/// What `--quick` keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct CountersQuick {
    /// Of `n-max`.
    pub n_max: Vec<u32>,
    /// Of the prompts, by name.
    pub prompts: Vec<String>,
}

impl CountersGate {
    /// What it shares with a gate of kind `chash`.
    pub fn common(&self) -> ChashGate {
        ChashGate {
            schema: self.schema,
            id: self.id.clone(),
            kind: self.kind,
            title: self.title.clone(),
            default: self.default,
            model: self.model.clone(),
            draft_model: None,
            backend: self.backend,
            device: self.device.clone(),
            budget: self.budget,
            settings: Vec::new(),
            n_max: self.n_max.clone(),
            slots: vec![1],
            n_predict: self.n_predict,
            context: self.context,
            seed: self.seed,
            spec_type: self.spec_type.clone(),
            flags: self.flags.clone(),
            parallel: self.parallel,
            drafted_equals_plain: false,
            baseline: self.baseline.clone(),
            candidate: self.candidate.clone(),
            limits: self.limits.clone(),
            quick: self.quick.as_ref().map(|quick| QuickSubset {
                n_max: quick.n_max.clone(),
                slots: vec![1],
                settings: None,
                prompts: quick.prompts.clone(),
            }),
            prompts: self.prompts.clone(),
        }
    }
}

fn patched() -> SideDefinition {
    side(Flavour::Patched)
}
