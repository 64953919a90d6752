//! `gates/<id>.toml` of kind `drafts`: the same drafts from one build with other switches.

use serde::Deserialize;

use super::gate::{default_context, default_seed, default_spec_type, one, side, yes};
use crate::model::{
    ChashGate, Flavour, GateBackend, GateDevice, GateKind, GateLimits, ModelSource,
    PromptDefinition, QuickSubset, SideDefinition,
};

/// A definition of kind `drafts`. What it shares with `chash` means the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DraftsGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `drafts`.
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
    /// Tokens to generate for each prompt.
    pub n_predict: usize,
    /// Context cells of each slot.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Sampling seed.
    #[serde(default = "default_seed")]
    pub seed: u32,
    /// `--spec-type`.
    #[serde(default = "default_spec_type")]
    pub spec_type: String,
    /// More flags for both servers, after the gate's own.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Servers that may run at the same time; `--jobs` lowers it.
    #[serde(default = "one")]
    pub parallel: usize,
    /// What is compared with: the patched build, without switches unless it says otherwise.
    #[serde(default = "patched")]
    pub baseline: SideDefinition,
    /// What is judged: the same build with switches.
    pub candidate: SideDefinition,
    /// Time limits.
    #[serde(default)]
    pub limits: GateLimits,
    /// What `--quick` keeps.
    #[serde(default)]
    pub quick: Option<DraftsQuick>,
    /// What is swept.
    #[serde(rename = "setting")]
    pub settings: Vec<DraftsSetting>,
    /// The prompts.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptDefinition>,
}

/// A way to run both servers.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DraftsSetting {
    /// Name, unique in the definition.
    pub name: String,
    /// Longest drafts to try; none of them 0.
    pub n_max: Vec<u32>,
    /// Numbers of server slots to try.
    pub slots: Vec<usize>,
    /// More flags for both servers, after the definition's.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Whether the candidate must submit fewer graphs of the draft context than the baseline:
    /// else it drafted as the baseline does, and equal drafts say nothing. Both sides need
    /// `OPENCOTI_SPEC_COUNTERS=1`.
    #[serde(default)]
    pub fewer_launches: bool,
    /// Whether the candidate drafts over a part of the vocabulary: then every difference must be a token
    /// that the part lacks. It needs `OPENCOTI_DRAFT_VOCAB`.
    #[serde(default)]
    pub part: bool,
    /// With `part`: logits may differ by what rounding makes, since other drafts make other batches (several slots,
    /// `p_min`), and sums of another shape are made in another order.
    #[serde(default)]
    pub part_rounds: bool,
}

/// What `--quick` keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DraftsQuick {
    /// Of the settings, by name.
    pub settings: Vec<String>,
    /// Of the prompts, by name.
    pub prompts: Vec<String>,
}

impl DraftsGate {
    /// What it shares with a gate of kind `chash`.
    pub fn common(&self) -> ChashGate {
        let mut n_max: Vec<u32> = Vec::new();
        let mut slots: Vec<usize> = Vec::new();
        for setting in &self.settings {
            n_max.extend(&setting.n_max);
            slots.extend(&setting.slots);
        }
        n_max.sort_unstable();
        n_max.dedup();
        slots.sort_unstable();
        slots.dedup();
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
                n_max: n_max.clone(),
                slots: slots.clone(),
                prompts: quick.prompts.clone(),
                settings: None,
            }),
            prompts: self.prompts.clone(),
            n_max,
            slots,
        }
    }
}

fn patched() -> SideDefinition {
    side(Flavour::Patched)
}
