//! `registry/hooks.toml`: every hook and every image, generated from patches and bases,
//! committed, and checked by `verify`.

use serde::{Deserialize, Serialize};

use crate::model::Digest;

/// The whole file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HooksFile {
    /// Version of this format; 1.
    pub schema: u32,
    /// Hooks, by base, series order, file, line.
    #[serde(default)]
    pub hook: Vec<HookEntry>,
    /// Images, by base, series order, file.
    #[serde(default)]
    pub image: Vec<ImageEntry>,
}

/// One place where a patch inserts lines into an upstream file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HookEntry {
    /// Base id.
    pub base: String,
    /// Patch id.
    pub patch: String,
    /// Upstream file.
    pub file: String,
    /// The upstream line (from 1, in the pristine file or after the earlier patches) before
    /// which the lines are inserted.
    pub line: usize,
    /// Number of inserted lines.
    pub inserted: usize,
    /// Number of deleted upstream lines.
    pub deleted: usize,
    /// The function, class or section that it stands in, as the hunk's heading says.
    pub anchor: String,
    /// Digest of the inserted lines.
    pub sha256: Digest,
}

/// What a patch makes of one file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct ImageEntry {
    /// Base id.
    pub base: String,
    /// Patch id.
    pub patch: String,
    /// The file, upstream's or the overlay's.
    pub file: String,
    /// Digest before the patch; absent for a new file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<Digest>,
    /// Digest after the patch.
    pub post: Digest,
}
