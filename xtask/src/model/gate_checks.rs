//! `gates/<id>.toml` of the kinds `integrity` and `artifacts`, which need neither model nor
//! prompts; and what gates that ask several questions add to their record.

use serde::{Deserialize, Serialize};

use super::gate::{default_context, default_seed, default_spec_type, side, yes};
use crate::model::{
    ChashGate, Flavour, GateBackend, GateDevice, GateKind, GateLimits, ModelSource, Verdict,
};

/// A definition of kind `integrity`: is the tree what base and series make?
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct IntegrityGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `integrity`.
    pub kind: GateKind,
    /// One line.
    pub title: String,
    /// Whether it runs where no gate is named.
    #[serde(default = "yes")]
    pub default: bool,
}

/// A definition of kind `artifacts`: is the patched build vanilla's and what the patches add?
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct ArtifactsGate {
    /// Version of this format; 1.
    pub schema: u32,
    /// Name; equals the file's.
    pub id: String,
    /// `artifacts`.
    pub kind: GateKind,
    /// One line.
    pub title: String,
    /// Whether it runs where no gate is named.
    #[serde(default = "yes")]
    pub default: bool,
    /// What the patched build may have beyond what the overlays declare.
    #[serde(default)]
    pub allow: ArtifactsAllow,
}

/// See [`ArtifactsGate::allow`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct ArtifactsAllow {
    /// Exported symbols as the linker spells them; a `*` at the end stands for anything.
    pub added: Vec<String>,
    /// Exported symbols of vanilla that may be missing, spelt alike.
    pub lost: Vec<String>,
    /// Libraries that may be needed besides vanilla's: `<library>: <what it needs>`, a `*` at the
    /// end stands for anything.
    pub needed: Vec<String>,
}

/// One question that a gate asked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CheckRecord {
    /// What was asked.
    pub name: String,
    /// What can be said.
    pub verdict: Verdict,
    /// What was looked at, with numbers.
    pub found: String,
    /// Why, where it is not a pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A gate of a kind that has no model, as the rest of the engine sees it.
fn bare(schema: u32, id: &str, kind: GateKind, title: &str, default: bool) -> ChashGate {
    ChashGate {
        schema,
        id: id.to_owned(),
        kind,
        title: title.to_owned(),
        default,
        model: ModelSource::None,
        draft_model: None,
        backend: GateBackend::Cpu,
        device: GateDevice::default(),
        budget: None,
        settings: Vec::new(),
        n_max: Vec::new(),
        slots: Vec::new(),
        n_predict: 0,
        context: default_context(),
        seed: default_seed(),
        spec_type: default_spec_type(),
        flags: Vec::new(),
        parallel: 1,
        drafted_equals_plain: false,
        baseline: side(Flavour::Vanilla),
        candidate: side(Flavour::Patched),
        limits: GateLimits::default(),
        quick: None,
        prompts: Vec::new(),
    }
}

impl IntegrityGate {
    /// What it shares with a gate of kind `chash`.
    pub fn common(&self) -> ChashGate {
        bare(self.schema, &self.id, self.kind, &self.title, self.default)
    }
}

impl ArtifactsGate {
    /// What it shares with a gate of kind `chash`.
    pub fn common(&self) -> ChashGate {
        bare(self.schema, &self.id, self.kind, &self.title, self.default)
    }
}
