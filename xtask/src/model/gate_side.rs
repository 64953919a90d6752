//! What a gate's definition says of one of its two sides, and of what must be there to run it.

use std::collections::BTreeMap;

use serde::Deserialize;

use crate::model::{Flavour, GateBackend};

/// One of the two servers that are compared. Exactly one of `build`, `server`, `server-env`,
/// `url` and `url-env` says which.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SideDefinition {
    /// A build of this project.
    #[serde(default)]
    pub build: Option<Flavour>,
    /// What this side computes on, where it is not what the gate's `backend` says.
    #[serde(default)]
    pub backend: Option<GateBackend>,
    /// A llama-server program; relative to the checkout.
    #[serde(default)]
    pub server: Option<String>,
    /// A llama-server program that an environment variable names.
    #[serde(default)]
    pub server_env: Option<String>,
    /// A server that runs already: `http://127.0.0.1:8080`.
    #[serde(default)]
    pub url: Option<String>,
    /// As `url`, from an environment variable.
    #[serde(default)]
    pub url_env: Option<String>,
    /// The environment variable that holds the API key of a running server.
    #[serde(default)]
    pub api_key_env: Option<String>,
    /// Whether a running server may be on another machine.
    #[serde(default)]
    pub remote: bool,
    /// The longest draft that a running server was started with, since it does not tell.
    #[serde(default)]
    pub n_max: Option<u32>,
    /// Environment of a server that the gate starts: the switches. Nothing else of the names that
    /// `docs/reference/gates.md` lists as removed reaches the server.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

impl SideDefinition {
    /// A build of this project without switches.
    pub fn of_build(build: Flavour) -> Self {
        SideDefinition {
            build: Some(build),
            ..Default::default()
        }
    }

    /// Whether it is a server that runs already.
    pub fn is_running(&self) -> bool {
        self.url.is_some() || self.url_env.is_some()
    }
}

/// A way to run both servers of a gate of kind `chash`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct GateSetting {
    /// Name, unique in the definition.
    pub name: String,
    /// More flags for both servers, after the definition's.
    #[serde(default)]
    pub flags: Vec<String>,
    /// Longest drafts to try; the definition's where absent.
    #[serde(default)]
    pub n_max: Option<Vec<u32>>,
    /// Numbers of slots to try; the definition's where absent.
    #[serde(default)]
    pub slots: Option<Vec<usize>>,
}
