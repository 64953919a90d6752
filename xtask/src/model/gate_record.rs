//! `target/gate/records/<run>/<id>.json`: what a gate found, with the provenance of both sides.

use serde::{Deserialize, Serialize};

use crate::model::{
    AcceptanceRecord, Artifact, CheckRecord, CounterRecord, Digest, Flavour, GateKind,
    GoldenRecord, LogitsRecord, PatchSetStamp, PerfRecord, ProbeStamp, RetrievalRecord, RunStamp,
    Verdict,
};

/// The record of one gate.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GateRecord {
    /// Version of this format; 1.
    pub schema: u32,
    /// The run that it belongs to; absent in a record that was never stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStamp>,
    /// The definition's id.
    pub gate: String,
    /// Its kind.
    pub kind: GateKind,
    /// Its title.
    pub title: String,
    /// Digest of the definition and of the prompt files that it names.
    pub definition: Digest,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// How long it took.
    pub seconds: f64,
    /// Whether only the quick subset ran.
    pub quick: bool,
    /// The sum of all cells, unless `reason` overrides them.
    pub verdict: Verdict,
    /// Why the whole run says nothing, whatever its cells say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The model.
    pub model: ModelStamp,
    /// What was compared with.
    pub baseline: SideStamp,
    /// What was judged.
    pub candidate: SideStamp,
    /// Tokens generated for each prompt.
    pub n_predict: usize,
    /// Longest drafts tried.
    pub n_max: Vec<u32>,
    /// Numbers of slots tried.
    pub slots: Vec<usize>,
    /// Prompts, in the definition's order.
    pub prompts: Vec<PromptStamp>,
    /// What was measured; only in a gate of kind `perf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub perf: Option<PerfRecord>,
    /// Accepted shares by `n_max`; only in a gate of kind `acceptance`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acceptance: Vec<AcceptanceRecord>,
    /// What was asked, one by one; only in gates of kind `integrity` and `artifacts`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<CheckRecord>,
    /// By setting and prompt; only in a gate of kind `logits`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub logits: Vec<LogitsRecord>,
    /// What read the logits; only in a gate of kind `logits`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeStamp>,
    /// By `n_max` and name; only in a gate of kind `counters`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub counters: Vec<CounterRecord>,
    /// By length and depth; only in a gate of kind `retrieval`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub retrieval: Vec<RetrievalRecord>,
    /// What was recorded for this run; only in gates of kind `chash` and `logits`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub golden: Option<GoldenRecord>,
    /// Every cell, by slots, `n_max`, prompt.
    pub cells: Vec<CellRecord>,
    /// Drafted against plain decoding on the baseline. Information, unless the definition
    /// asks for a verdict.
    pub drafted_against_plain: Vec<PlainRecord>,
    /// Remarks on the whole run.
    pub notes: Vec<String>,
}

/// The model that a gate ran on; see [`ModelStamp::none`] for one that runs nothing.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ModelStamp {
    /// The fixture's name, or the file's.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Digest,
}

impl ModelStamp {
    /// Of a gate that needs no model.
    pub fn none() -> Self {
        ModelStamp {
            name: "none".to_owned(),
            size: 0,
            sha256: Digest::of(b""),
        }
    }

    /// Whether it is that.
    pub fn is_none(&self) -> bool {
        *self == Self::none()
    }
}

/// Provenance of one side, as checked against the files just before the run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SideStamp {
    /// The server that was started.
    pub server: String,
    /// The base; absent for a server that was named by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// The flavour; absent for a server that was named by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flavour: Option<Flavour>,
    /// The patch set; absent for vanilla, and for a server that was named by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patchset: Option<PatchSetStamp>,
    /// Digest over the sources of the build; absent for a server that was named by path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Digest>,
    /// Switches, as `NAME=value`.
    pub env: Vec<String>,
    /// What could not be checked of a server that ran already, and what it says of itself.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unverified: Vec<String>,
    /// The device that its log proves to have run, as `Vulkan0: llvmpipe (…)`; absent for processors
    /// and for a server that ran already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub device: Option<String>,
    /// The server and the libraries beside it.
    pub artifacts: Vec<Artifact>,
}

/// One prompt.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PromptStamp {
    /// Name.
    pub name: String,
    /// Number of ids.
    pub length: usize,
    /// Digest of its ids as u32 little-endian.
    pub sha256: Digest,
    /// Digest of the text that both sides made these ids of, after the model's template; absent
    /// where the definition has ids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Digest>,
}

/// One cell: a prompt, a longest draft and a number of slots. With more than one slot the
/// following prompts of the definition are decoded beside it and compared as well.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CellRecord {
    /// The setting, where the definition has some; not in a gate of kind `drafts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The prompt that leads the cell; in a gate of kind `drafts` the setting.
    pub prompt: String,
    /// Longest draft.
    pub n_max: u32,
    /// Slots.
    pub slots: usize,
    /// Drafted steps that were compared; only in a gate of kind `drafts`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<usize>,
    /// What can be said.
    pub verdict: Verdict,
    /// Why, where it is not a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Remarks that decide nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<String>,
    /// Where the baseline's two runs differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub control_difference: Option<TokenDifference>,
    /// Where candidate and baseline differ.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<TokenDifference>,
    /// First run of the baseline, by slot order.
    pub baseline: Vec<AnswerRecord>,
    /// Second run of the baseline, in a process of its own.
    pub control: Vec<AnswerRecord>,
    /// The candidate.
    pub candidate: Vec<AnswerRecord>,
}

/// One generated sequence.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct AnswerRecord {
    /// The prompt.
    pub prompt: String,
    /// Number of tokens.
    pub tokens: usize,
    /// Digest of the token ids as u32 little-endian: what is compared.
    pub sha256: Digest,
    /// Its first ten digits, for people.
    pub chash: String,
    /// Tokens drafted.
    pub drafted: u64,
    /// Drafted tokens that were accepted.
    pub accepted: u64,
}

/// The first place where two sequences differ.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TokenDifference {
    /// The prompt.
    pub prompt: String,
    /// Its place in the cell, from 0.
    pub place: usize,
    /// Index of the token, from 0.
    pub index: usize,
    /// Index of the first id in `left` and `right`.
    pub from: usize,
    /// Ids around it, of the run that is compared with.
    pub left: Vec<u32>,
    /// Ids around it, of the run that is judged.
    pub right: Vec<u32>,
}

/// Drafted against plain decoding of one prompt, both on the baseline.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PlainRecord {
    /// The setting, where the definition has some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub setting: Option<String>,
    /// The prompt that leads the cell.
    pub prompt: String,
    /// Longest draft.
    pub n_max: u32,
    /// Slots.
    pub slots: usize,
    /// Whether all tokens are equal.
    pub equal: bool,
    /// Where they differ first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub difference: Option<TokenDifference>,
}
