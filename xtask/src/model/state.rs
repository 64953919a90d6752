//! `<working tree>/.patchset/state.json`: what was applied to a working tree.
//!
//! The file lies inside the tree, so that one atomic replacement changes both.

use serde::{Deserialize, Serialize};

use crate::model::Digest;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TreeState {
    /// Version of this format; 1.
    pub schema: u32,
    /// Base id.
    pub base: String,
    /// Digest of the base's manifest.
    pub tree: Digest,
    /// Applied patches, in order.
    pub applied: Vec<String>,
    /// The patch-set id of what was applied.
    pub patchset: Digest,
    /// Every file that the applied patches touch, as it was written.
    pub files: Vec<TrackedFile>,
}

/// One touched file of a working tree.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TrackedFile {
    /// Path inside the tree.
    pub path: String,
    /// The pristine file's digest; absent for a file that the series adds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pre: Option<Digest>,
    /// The digest with the series applied.
    pub post: Digest,
}
