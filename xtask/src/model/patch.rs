//! `patches/<id>/patch.toml`: what a patch is, needs and is allowed.

use std::collections::BTreeMap;

use serde::Deserialize;

/// What the name of every switch begins with; gates keep such variables of the user's from the
/// servers that they compare.
pub const SWITCH_PREFIX: &str = "OPENCOTI_";

/// One capability: manifest, hooks and overlay.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PatchManifest {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the folder's.
    pub id: String,
    /// One line.
    pub title: String,
    /// Why it exists and what it does when on.
    pub purpose: String,
    /// Patches that must come before it in a series.
    #[serde(default)]
    pub requires: Vec<String>,
    /// Gates that judge it.
    #[serde(default)]
    pub gates: Vec<String>,
    /// Environment variables that switch it on, each beginning with [`SWITCH_PREFIX`]; empty where
    /// there is nothing to switch.
    #[serde(default)]
    pub switches: Vec<String>,
    /// What a server's log says of a switch that is on, by switch: gates read it, since a switch that
    /// is refused compares off with off.
    #[serde(default)]
    pub log: BTreeMap<String, SwitchLog>,
    /// Files and folders of this project, outside the patch, that go into what is built and
    /// thus into the patch-set id.
    #[serde(default)]
    pub inputs: Vec<String>,
    /// For each upstream file that it hooks into: what to look for when the place has moved.
    #[serde(default)]
    pub notes: BTreeMap<String, String>,
    /// What a base holds that makes this patch needless; absent where only its own lines tell.
    #[serde(default)]
    pub upstreamed: Probes,
    /// What else than inserting lines it may do to upstream files.
    #[serde(default)]
    pub allow: Allow,
    /// Who wrote it, as mails say it: `Name <address>`. Filled in by `import`; empty where nobody
    /// is named.
    #[serde(default)]
    pub author: String,
    /// When it was written, as mails say it: `Sun, 29 Nov 2026 13:16:57 +0000`. Filled in by
    /// `import`.
    #[serde(default)]
    pub date: String,
}

/// What a server's log says of one switch. In each text `*` stands for anything within a line.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SwitchLog {
    /// Must stand in the log of a server that drafts with NextN heads, or of every one: see `when`.
    #[serde(default)]
    pub says: Option<String>,
    /// Which servers must say it.
    #[serde(default)]
    pub when: SaysWhen,
    /// Say that it is refused, and that all goes on as if it were off.
    #[serde(default)]
    pub refuses: Vec<String>,
    /// Say that it stands aside for a reason that is its own: no refusal, and in place of `says`.
    #[serde(default)]
    pub aside: Vec<String>,
    /// Whether it plants a fault, for tests: then nothing is asked of the others.
    #[serde(default)]
    pub fault: bool,
}

/// Which servers must say that a switch is in effect.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SaysWhen {
    /// Those that draft with NextN heads.
    #[default]
    Drafts,
    /// All that compute anything.
    Always,
}

/// Exceptions from additivity, each with its reason.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Allow {
    /// How many upstream lines the hooks may delete or rewrite.
    #[serde(default)]
    pub deletions: usize,
    /// Why.
    #[serde(default)]
    pub reason: String,
}

/// What says that a feature is upstream: all of it has to be in the new base, and none in the old.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probes {
    /// Symbols that upstream defines or declares, by name, qualified or not.
    #[serde(default)]
    pub symbols: Vec<String>,
    /// Texts in upstream's files.
    #[serde(default)]
    pub strings: Vec<String>,
}
