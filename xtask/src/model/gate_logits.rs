//! `gates/<id>.toml` of kind `logits`: the same logits, bit for bit; and what its record adds.

use serde::{Deserialize, Serialize};

use super::gate::{default_context, default_seed, default_spec_type, one, side, yes};
use crate::model::{
    Artifact, ChashGate, Digest, Flavour, GateBackend, GateDevice, GateKind, GateLimits,
    ModelSource, PromptDefinition, QuickSubset, SideDefinition, Verdict,
};

/// A definition of kind `logits`. What it shares with `chash` means the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogitsGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `logits`.
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
    /// Ids at the end of each prompt that are decoded one at a time; those before them in batches.
    pub single: usize,
    /// Context cells.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Probes that may run at the same time; `--jobs` lowers it.
    #[serde(default = "one")]
    pub parallel: usize,
    /// What is compared with: it is run twice, as the control.
    #[serde(default = "baseline")]
    pub baseline: SideDefinition,
    /// What is judged.
    #[serde(default = "candidate")]
    pub candidate: SideDefinition,
    /// Time limits; a run of the probe may take `start` and `request` together.
    #[serde(default)]
    pub limits: GateLimits,
    /// Differences that pass all the same; none where absent.
    #[serde(default)]
    pub allow: Option<LogitsAllow>,
    /// What `--quick` keeps.
    #[serde(default)]
    pub quick: Option<LogitsQuick>,
    /// What is swept.
    #[serde(rename = "setting")]
    pub settings: Vec<LogitsSetting>,
    /// The prompts.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptDefinition>,
}

/// Differences that pass.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogitsAllow {
    /// Largest difference of two logits.
    pub max_abs: f64,
    /// Largest divergence (KL, nats) of one position.
    pub kl: f64,
}

/// A way to decode.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogitsSetting {
    /// Name, unique in the definition.
    pub name: String,
    /// Tokens given to one decode at most.
    #[serde(default = "batch")]
    pub batch: u32,
    /// Tokens computed at the same time at most.
    #[serde(default = "batch")]
    pub ubatch: u32,
    /// Threads.
    #[serde(default = "one_thread")]
    pub threads: u32,
    /// Flash attention.
    #[serde(default)]
    pub flash: Flash,
    /// Type of the cached keys.
    #[serde(default = "half")]
    pub cache_k: String,
    /// Type of the cached values.
    #[serde(default = "half")]
    pub cache_v: String,
}

/// Whether attention is computed by the fused kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flash {
    /// As the library thinks best.
    #[default]
    Auto,
    /// Always.
    On,
    /// Never.
    Off,
}

/// What `--quick` keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct LogitsQuick {
    /// Of the settings, by name.
    pub settings: Vec<String>,
    /// Of the prompts, by name.
    pub prompts: Vec<String>,
}

/// One prompt in one setting.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogitsRecord {
    /// The setting.
    pub setting: String,
    /// The prompt.
    pub prompt: String,
    /// Positions that were compared.
    pub rows: usize,
    /// Logits of each.
    pub vocabulary: usize,
    /// What can be said.
    pub verdict: Verdict,
    /// Why, where it is not a pass without a difference.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Digest over all logits of the baseline, as float32 little-endian.
    pub baseline: Digest,
    /// The same of its second run.
    pub control: Digest,
    /// The same of the candidate.
    pub candidate: Digest,
    /// How the baseline's two runs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_difference: Option<LogitsDifference>,
    /// How candidate and baseline differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<LogitsDifference>,
}

/// How two runs differ.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct LogitsDifference {
    /// Positions that differ.
    pub rows: usize,
    /// Logits that differ.
    pub values: u64,
    /// Largest difference of two logits; absent where one of them is no number.
    pub max_abs: Option<f64>,
    /// Its position, from 0, and its token.
    pub max_abs_at: (usize, u32),
    /// Divergence (KL of the candidate from the baseline, nats), the largest of all positions;
    /// absent where a logit is no number.
    pub kl_max: Option<f64>,
    /// Its mean over all positions, those that are equal included.
    pub kl_mean: Option<f64>,
    /// Positions whose most likely token differs.
    pub tokens: usize,
    /// The first position that differs.
    pub first: RowDifference,
    /// The first position whose most likely token differs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_token: Option<RowDifference>,
}

/// A position at which two runs differ.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RowDifference {
    /// The position, from 0.
    pub row: usize,
    /// The first token whose logit differs.
    pub token: u32,
    /// Its logit in the run that is compared with, as the eight hex digits of its float32.
    pub left: String,
    /// The same of the run that is judged.
    pub right: String,
    /// The five most likely tokens of the run that is compared with, and their logits.
    pub left_top: Vec<(u32, f32)>,
    /// The same of the run that is judged.
    pub right_top: Vec<(u32, f32)>,
}

/// The probe of one side, and what it really loaded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ProbeStamp {
    /// `baseline` or `candidate`.
    pub side: String,
    /// Digest of its source.
    pub source: Digest,
    /// The compiler: id, version, path.
    pub compiler: String,
    /// Digest of the program.
    pub program: Digest,
    /// The llama.cpp libraries that it said it had loaded.
    pub libraries: Vec<Artifact>,
}

impl LogitsGate {
    /// What it shares with a gate of kind `chash`. Nothing is generated: what is needed of the
    /// context beyond the prompt is 1.
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
            n_max: vec![0],
            slots: vec![1],
            n_predict: 1,
            context: self.context,
            seed: default_seed(),
            spec_type: default_spec_type(),
            flags: Vec::new(),
            parallel: self.parallel,
            drafted_equals_plain: false,
            baseline: self.baseline.clone(),
            candidate: self.candidate.clone(),
            limits: self.limits.clone(),
            quick: self.quick.as_ref().map(|quick| QuickSubset {
                n_max: vec![0],
                slots: vec![1],
                settings: None,
                prompts: quick.prompts.clone(),
            }),
            prompts: self.prompts.clone(),
        }
    }
}

fn batch() -> u32 {
    512
}

fn one_thread() -> u32 {
    1
}

fn half() -> String {
    "f16".to_owned()
}

fn baseline() -> SideDefinition {
    side(Flavour::Vanilla)
}

fn candidate() -> SideDefinition {
    side(Flavour::Patched)
}
