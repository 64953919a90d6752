//! `gates/fixtures.toml`: the tiny models that the gates run on.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Digest;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fixtures {
    /// Version of this format; 1.
    pub schema: u32,
    /// All fixtures.
    #[serde(default)]
    pub fixture: Vec<Fixture>,
}

/// One tiny model, and what its file must be.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Fixture {
    /// Name, and with `.gguf` the name of the file: lowercase letters, digits, `-`.
    pub name: String,
    /// Architecture, as `general.architecture` names it.
    pub arch: String,
    /// What it is for, in one line.
    #[serde(default)]
    pub about: String,
    /// Seed of all random numbers.
    pub seed: u64,
    /// Digest of the whole file.
    pub sha256: Digest,
    /// Dials that are not at their default; see `docs/reference/fixtures.md`.
    #[serde(default)]
    pub parameters: BTreeMap<String, f64>,
}
