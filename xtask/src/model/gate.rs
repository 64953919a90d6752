//! `gates/<id>.toml`: what a gate runs and compares.
//!
//! A definition is read twice: once for its [`GateHeader`], which says what kind it is, and
//! once whole as that kind's own type, so that every kind keeps strict keys with line and column.

use serde::{Deserialize, Serialize};

use crate::model::{Flavour, GateBackend, GateDevice, GateSetting, SideDefinition};

/// What every kind of gate definition begins with.
#[derive(Clone, Debug, Deserialize)]
pub struct GateHeader {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// Which comparison it is.
    pub kind: GateKind,
}

/// The kinds of gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GateKind {
    /// Same tokens.
    Chash,
    /// Same drafts, bit for bit.
    Drafts,
    /// Not slower.
    Perf,
    /// No fewer drafted tokens accepted.
    Acceptance,
    /// The tree is what base and series make.
    Integrity,
    /// The patched build is vanilla's and what the patches add.
    Artifacts,
    /// Same logits, bit for bit.
    Logits,
    /// The same counts, or better ones.
    Counters,
    /// What a prompt holds is found again.
    Retrieval,
}

/// A definition of kind `chash`: same tokens from two builds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ChashGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `chash`.
    pub kind: GateKind,
    /// One line.
    pub title: String,
    /// Whether it runs where no gate is named.
    #[serde(default = "yes")]
    pub default: bool,
    /// The model.
    pub model: ModelSource,
    /// The fixture that drafts, where it is a file of its own: given to both servers where `n-max` is not 0.
    #[serde(default)]
    pub draft_model: Option<DraftModel>,
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
    /// Numbers of server slots to try. That many prompts are decoded at the same time.
    pub slots: Vec<usize>,
    /// Tokens to generate for each prompt.
    pub n_predict: usize,
    /// Context cells of each slot.
    #[serde(default = "default_context")]
    pub context: usize,
    /// Sampling seed. Without effect at temperature 0, but fixed all the same.
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
    /// Whether drafted decoding must give the tokens of plain decoding too. Without it the
    /// difference is only reported: batch shapes may change a model's roundings.
    #[serde(default)]
    pub drafted_equals_plain: bool,
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
    pub quick: Option<QuickSubset>,
    /// Ways to run both servers; one without a name and without flags where there is none.
    #[serde(default, rename = "setting")]
    pub settings: Vec<GateSetting>,
    /// The prompts.
    #[serde(rename = "prompt")]
    pub prompts: Vec<PromptDefinition>,
}

/// Where a gate's model comes from. Externally tagged, so that errors keep line and column.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ModelSource {
    /// A fixture of this project, by name.
    Fixture(String),
    /// A GGUF file; relative to the checkout.
    Path(String),
    /// A GGUF file named by an environment variable.
    Env(String),
    /// No model: a gate that runs nothing.
    #[serde(skip)]
    None,
}

/// Where a gate's draft model comes from.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct DraftModel {
    /// A fixture of this project, by name.
    pub fixture: String,
}

/// Time limits of a gate, in seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct GateLimits {
    /// From the start of a server until it is ready.
    pub start: u64,
    /// From sending one request until its whole answer is there.
    pub request: u64,
    /// From asking a server to end until it is killed.
    pub stop: u64,
}

impl Default for GateLimits {
    fn default() -> Self {
        GateLimits {
            start: 60,
            request: 120,
            stop: 5,
        }
    }
}

/// What `--quick` keeps of a definition.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct QuickSubset {
    /// Of `n-max`.
    pub n_max: Vec<u32>,
    /// Of `slots`.
    pub slots: Vec<usize>,
    /// Of the prompts, by name.
    pub prompts: Vec<String>,
    /// Of the settings, by name; all where absent.
    #[serde(default)]
    pub settings: Option<Vec<String>>,
}

/// One prompt: a name and exactly one of `ids`, `file`, `generate`, `text` and `messages`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct PromptDefinition {
    /// Name, unique in the definition.
    pub name: String,
    /// The token ids themselves.
    #[serde(default)]
    pub ids: Option<Vec<u32>>,
    /// A file under `gates/`. One that ends in `.ids` holds ids: decimal numbers between blanks,
    /// `#` to the end of line is a comment. One that ends in `.txt` or `.md` holds text.
    #[serde(default)]
    pub file: Option<String>,
    /// Text, which the server makes ids of.
    #[serde(default)]
    pub text: Option<String>,
    /// A conversation, of which the server makes text by the model's template, and then ids.
    #[serde(default)]
    pub messages: Option<Vec<MessageDefinition>>,
    /// Ids drawn at random from a fixed seed.
    #[serde(default)]
    pub generate: Option<GeneratedPrompt>,
}

/// One message of a conversation, with exactly one of `content` and `file`.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MessageDefinition {
    /// Who says it.
    pub role: Role,
    /// What.
    #[serde(default)]
    pub content: Option<String>,
    /// A file under `gates/` that holds it; ends in `.txt` or `.md`.
    #[serde(default)]
    pub file: Option<String>,
}

/// Who says a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// What the model is to be.
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

/// A prompt of ids drawn evenly from `low..high`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GeneratedPrompt {
    /// The same seed gives the same ids for ever.
    pub seed: u64,
    /// Number of ids.
    pub length: usize,
    /// Lowest id.
    pub low: u32,
    /// One above the highest id: at most the model's vocabulary.
    pub high: u32,
}

pub(super) fn default_context() -> usize {
    1024
}

pub(super) fn default_seed() -> u32 {
    42
}

pub(super) fn default_spec_type() -> String {
    "draft-mtp".to_owned()
}

pub(super) fn yes() -> bool {
    true
}

pub(super) fn one() -> usize {
    1
}

fn baseline() -> SideDefinition {
    side(Flavour::Vanilla)
}

fn candidate() -> SideDefinition {
    side(Flavour::Patched)
}

pub(super) fn side(build: Flavour) -> SideDefinition {
    SideDefinition::of_build(build)
}
