//! `gates/goldens.toml`: digests that runs are expected to give, recorded by `gate --bless`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{Digest, Verdict};

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Goldens {
    /// Version of this format; 1.
    pub schema: u32,
    /// By gate, base, model, backend, machine.
    #[serde(default)]
    pub golden: Vec<Golden>,
}

/// What one gate gave for one base and model on one sort of machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Golden {
    /// The gate.
    pub gate: String,
    /// The base.
    pub base: String,
    /// Digest of the model's file.
    pub model: Digest,
    /// The backend.
    pub backend: String,
    /// What of machine and compiler may change a rounding; see docs/reference/gates.md.
    pub machine: String,
    /// Digest of the definition: another one asks another question.
    pub definition: Digest,
    /// Digests of tokens, or of logits, by what they are of: `short, n_max 3, 2 slots`.
    pub entry: BTreeMap<String, Digest>,
}

/// What a run has to do with what was recorded.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GoldenRecord {
    /// Pass where all recorded digests are those of the baseline, fail where one is not, skipped
    /// where nothing is recorded for this machine.
    pub verdict: Verdict,
    /// See [`Golden::machine`].
    pub machine: String,
    /// Digests that were compared.
    pub compared: usize,
    /// Why, where it is not a pass, in a line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Each that differs, or why nothing was compared.
    pub reasons: Vec<String>,
}
