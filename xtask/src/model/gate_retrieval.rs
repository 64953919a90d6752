//! `gates/<id>.toml` of kind `retrieval`: a needle in a haystack; and what its record adds.

use serde::{Deserialize, Serialize};

use super::gate::{default_context, default_seed, default_spec_type, one, side, yes};
use crate::model::{
    ChashGate, Flavour, GateBackend, GateDevice, GateKind, GateLimits, ModelSource, SideDefinition,
    Verdict,
};

/// A definition of kind `retrieval`. What it shares with `chash` means the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RetrievalGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `retrieval`.
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
    /// Longest draft; 0 is plain decoding without a drafter.
    #[serde(default)]
    pub n_max: u32,
    /// Haystacks to try, in words.
    pub words: Vec<usize>,
    /// Where the needle lies, as a fraction of the haystack.
    pub depths: Vec<f64>,
    /// The least share of needles that both sides must find; absent where the model cannot be
    /// expected to answer, so that only sameness counts.
    #[serde(default)]
    pub recall: Option<f64>,
    /// Ids to give to words, where the model's own vocabulary has no text, as that of a fixture;
    /// then nothing can be recalled.
    #[serde(default)]
    pub vocabulary: Option<MadeUp>,
    /// Tokens to generate for each question.
    pub n_predict: usize,
    /// Context cells.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Seed of the haystacks.
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
    #[serde(default = "baseline")]
    pub baseline: SideDefinition,
    /// What is judged.
    #[serde(default = "candidate")]
    pub candidate: SideDefinition,
    /// Time limits.
    #[serde(default)]
    pub limits: GateLimits,
    /// What `--quick` keeps.
    #[serde(default)]
    pub quick: Option<RetrievalQuick>,
}

/// A vocabulary in which every word has one id of `low..high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MadeUp {
    /// Lowest id.
    pub low: u32,
    /// One above the highest id.
    pub high: u32,
}

/// What `--quick` keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct RetrievalQuick {
    /// Of `words`.
    pub words: Vec<usize>,
    /// Of `depths`.
    pub depths: Vec<f64>,
}

/// One needle.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RetrievalRecord {
    /// Words of the haystack.
    pub words: usize,
    /// Where the needle lies.
    pub depth: f64,
    /// What is to be found.
    pub needle: String,
    /// Tokens of the prompt, as the server counts them.
    pub tokens: usize,
    /// What can be said.
    pub verdict: Verdict,
    /// Why, where it is not a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// What the baseline answered.
    pub baseline: String,
    /// What its second run answered.
    pub control: String,
    /// What the candidate answered.
    pub candidate: String,
    /// Whether the needle is in the baseline's answer, and in the candidate's.
    pub recalled: [bool; 2],
}

impl RetrievalGate {
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
            n_max: vec![self.n_max],
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
            quick: None,
            prompts: Vec::new(),
        }
    }
}

fn baseline() -> SideDefinition {
    side(Flavour::Vanilla)
}

fn candidate() -> SideDefinition {
    side(Flavour::Patched)
}
