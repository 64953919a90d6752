//! `registry/retired.toml`: patches that are no longer needed, and why.

use serde::Deserialize;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Retired {
    /// Version of this format; 1.
    pub schema: u32,
    /// The patches.
    #[serde(default)]
    pub patch: Vec<RetiredPatch>,
}

/// One retired patch.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RetiredPatch {
    /// Its id.
    pub id: String,
    /// The base for which it is retired; all bases where absent.
    #[serde(default)]
    pub base: Option<String>,
    /// The upstream commit or base since which it is not needed.
    pub since: String,
    /// Why.
    pub reason: String,
}
