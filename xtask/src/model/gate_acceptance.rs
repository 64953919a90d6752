//! `gates/<id>.toml` of kind `acceptance`: how many drafted tokens two sides accept.

use serde::{Deserialize, Serialize};

use super::gate::{default_context, default_seed, default_spec_type, one, side, yes};
use crate::model::{
    ChashGate, Flavour, GateBackend, GateDevice, GateKind, GateLimits, ModelSource,
    PromptDefinition, QuickSubset, SideDefinition, Verdict,
};

/// A definition of kind `acceptance`. What it shares with `chash` means the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcceptanceGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `acceptance`.
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
    /// Longest drafts to try; none of them 0.
    pub n_max: Vec<u32>,
    /// Tokens to generate for each prompt.
    pub n_predict: usize,
    /// Context cells.
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
    /// By how much the accepted share may drop: 0.01 is one of a hundred drafted tokens.
    pub drop: f64,
    /// The least share that the candidate must have accepted at each `n-max`, where both sides may be wrong
    /// alike; 0 asks nothing.
    #[serde(default)]
    pub least: f64,
    /// What is compared with.
    #[serde(default = "vanilla")]
    pub baseline: SideDefinition,
    /// What is judged.
    #[serde(default = "patched")]
    pub candidate: SideDefinition,
    /// Time limits.
    #[serde(default)]
    pub limits: GateLimits,
    /// What `--quick` keeps.
    #[serde(default)]
    pub quick: Option<AcceptanceQuick>,
    /// The prompts.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptDefinition>,
}

/// What `--quick` keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct AcceptanceQuick {
    /// Of `n-max`.
    pub n_max: Vec<u32>,
    /// Of the prompts, by name.
    pub prompts: Vec<String>,
}

impl AcceptanceGate {
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
                prompts: quick.prompts.clone(),
                settings: None,
            }),
            prompts: self.prompts.clone(),
        }
    }
}

/// The accepted shares at one `n_max`, over all prompts.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AcceptanceRecord {
    /// Longest draft.
    pub n_max: u32,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, where it is not a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Of the baseline.
    pub baseline: ShareRecord,
    /// Of the candidate.
    pub candidate: ShareRecord,
    /// Candidate less baseline, with its interval of 95 %; absent where nothing was drafted.
    pub difference: Option<[f64; 3]>,
    /// The same of accepted per generated token: who hardly drafts may well accept it all. Absent in
    /// records from before it was there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_token: Option<[f64; 3]>,
    /// Whether both sides drafted and accepted as many tokens for every prompt.
    pub equal: bool,
    /// By how much the share may drop.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<f64>,
    /// By position in the draft. Information: the verdict is on the whole.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub positions: Vec<PositionRecord>,
    /// Why there is nothing by position.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub positions_absent: Option<String>,
}

/// One position in the drafts of both sides.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PositionRecord {
    /// From 1.
    pub position: usize,
    /// Of the baseline.
    pub baseline: PositionShare,
    /// Of the candidate.
    pub candidate: PositionShare,
    /// Candidate less baseline, with its interval of 95 %.
    pub difference: Option<[f64; 3]>,
}

/// How often the token at one position was accepted.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PositionShare {
    /// Drafts that were verified, however long.
    pub drafts: u64,
    /// Fewest and most of them that can have had a token at this position: the server counts
    /// drafts and their tokens, and the last drafts of a sequence are shorter.
    pub drafted: [u64; 2],
    /// Accepted tokens at this position.
    pub accepted: u64,
    /// Accepted of all drafts, lower and upper end of its interval of 95 %.
    pub share: Option<[f64; 3]>,
}

/// An accepted share.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ShareRecord {
    /// Tokens drafted.
    pub drafted: u64,
    /// Of them accepted.
    pub accepted: u64,
    /// Share, lower and upper end of its interval of 95 %; absent where nothing was drafted.
    pub share: Option<[f64; 3]>,
}

fn vanilla() -> SideDefinition {
    side(Flavour::Vanilla)
}

fn patched() -> SideDefinition {
    side(Flavour::Patched)
}
