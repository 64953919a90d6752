//! `gates/<id>.toml` of kind `perf`: how quick two sides are, and what they need.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::gate::{default_context, default_seed, default_spec_type, one, side};
use crate::model::{
    ChashGate, Flavour, GateBackend, GateDevice, GateKind, GateLimits, ModelSource,
    PromptDefinition, QuickSubset, SideDefinition,
};

/// Rounds where a definition names no other number.
pub const PERF_ROUNDS: usize = 24;

/// Blocks of four measurements (A B B A) in each round where a definition names no other number.
pub const PERF_BLOCKS: usize = 2;

/// A definition of kind `perf`. What it shares with `chash` means the same.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PerfGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `perf`.
    pub kind: GateKind,
    /// One line.
    pub title: String,
    /// Whether it runs where no gate is named: not unless the definition says so, since a noisy
    /// machine makes it inconclusive.
    #[serde(default)]
    pub default: bool,
    /// The model.
    pub model: ModelSource,
    /// What the servers compute on.
    #[serde(default)]
    pub backend: GateBackend,
    /// Which of its devices, and what must be found to have run.
    #[serde(default)]
    pub device: GateDevice,
    /// Longest drafts to measure; 0 is plain decoding without a drafter.
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
    /// Rounds: fresh servers of both sides for each.
    #[serde(default = "rounds")]
    pub rounds: usize,
    /// Rounds of the A/A control before them.
    #[serde(default = "control_rounds")]
    pub control_rounds: usize,
    /// Blocks A B B A in each round, so twice as many pairs for each prompt.
    #[serde(default = "blocks")]
    pub blocks: usize,
    /// Unmeasured runs of every prompt after the start of a server.
    #[serde(default = "one")]
    pub warm_up: usize,
    /// Seconds for all of it; rounds that no longer fit are left out.
    #[serde(default = "budget")]
    pub budget: u64,
    /// What is compared with, in the control too.
    #[serde(default = "baseline")]
    pub baseline: SideDefinition,
    /// What is judged.
    #[serde(default = "candidate")]
    pub candidate: SideDefinition,
    /// Time limits.
    #[serde(default)]
    pub limits: GateLimits,
    /// By how much each metric may become worse, as a fraction; what is not named is only shown.
    #[serde(default, rename = "threshold")]
    pub thresholds: BTreeMap<Metric, f64>,
    /// How the candidate's counters must stand to the baseline's, by name.
    #[serde(default)]
    pub counters: BTreeMap<String, Relation>,
    /// What `--quick` keeps.
    #[serde(default)]
    pub quick: Option<PerfQuick>,
    /// The prompts.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptDefinition>,
}

/// What `--quick` keeps.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PerfQuick {
    /// Of `n-max`.
    pub n_max: Vec<u32>,
    /// Of the prompts, by name.
    pub prompts: Vec<String>,
    /// Rounds in place of the full number.
    pub rounds: usize,
    /// Rounds of the control in place of the full number.
    pub control_rounds: usize,
}

/// What is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Tokens generated per second, as the server says.
    Decode,
    /// Tokens of the prompt per second, as the server says.
    Prompt,
    /// Milliseconds from sending a request for one token until its answer is there.
    FirstToken,
    /// Most resident memory of the server's process, MiB.
    Rss,
}

impl Metric {
    /// All, in the order of reports.
    pub const ALL: [Metric; 4] = [
        Metric::Decode,
        Metric::Prompt,
        Metric::FirstToken,
        Metric::Rss,
    ];

    /// Name and unit for people.
    pub fn name(self) -> &'static str {
        match self {
            Metric::Decode => "decode t/s",
            Metric::Prompt => "prompt t/s",
            Metric::FirstToken => "first token ms",
            Metric::Rss => "peak RSS MiB",
        }
    }

    /// Whether more of it is better.
    pub fn is_speed(self) -> bool {
        matches!(self, Metric::Decode | Metric::Prompt)
    }
}

/// How a counter of the candidate must stand to the baseline's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Relation {
    /// The same.
    Equal,
    /// Less.
    Less,
    /// Less or the same.
    NotMore,
    /// More.
    More,
    /// More or the same.
    NotLess,
}

impl Relation {
    /// Whether it holds.
    pub fn holds(self, baseline: u64, candidate: u64) -> bool {
        match self {
            Relation::Equal => candidate == baseline,
            Relation::Less => candidate < baseline,
            Relation::NotMore => candidate <= baseline,
            Relation::More => candidate > baseline,
            Relation::NotLess => candidate >= baseline,
        }
    }

    /// What was asked for, in words.
    pub fn words(self) -> &'static str {
        match self {
            Relation::Equal => "equal",
            Relation::Less => "less",
            Relation::NotMore => "not more",
            Relation::More => "more",
            Relation::NotLess => "not less",
        }
    }
}

impl PerfGate {
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
            budget: None,
            settings: Vec::new(),
            n_max: self.n_max.clone(),
            slots: vec![1],
            n_predict: self.n_predict,
            context: self.context,
            seed: self.seed,
            spec_type: self.spec_type.clone(),
            flags: self.flags.clone(),
            parallel: 1,
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

fn rounds() -> usize {
    PERF_ROUNDS
}

fn control_rounds() -> usize {
    PERF_ROUNDS / 2
}

fn blocks() -> usize {
    PERF_BLOCKS
}

fn budget() -> u64 {
    600
}

fn baseline() -> SideDefinition {
    side(Flavour::Vanilla)
}

fn candidate() -> SideDefinition {
    side(Flavour::Patched)
}
