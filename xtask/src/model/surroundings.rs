//! What of the machine that builds goes into a build besides its tools.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::Digest;

/// Facts by which two builds with the same options and tools differ all the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct Surroundings {
    /// What the compiler makes of `-march=native`; absent where a build is not for the processor
    /// that it was made on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub processor: Option<Digest>,
    /// Variables that steer compilers and CMake, where set. Paths of the checkout are replaced as
    /// they are in options.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub variables: BTreeMap<String, String>,
    /// The compiler of the Rust library, as that says; absent in builds without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rustc: Option<String>,
}

/// Name of the fact that builds without the Rust library lack.
pub const RUSTC: &str = "rustc";

impl Surroundings {
    /// Whether it says nothing, as what was built before anybody looked does.
    pub fn is_empty(&self) -> bool {
        *self == Surroundings::default()
    }

    /// What it says, by name, for people to read.
    pub fn facts(&self) -> BTreeMap<String, String> {
        let variables = self.variables.iter();
        let mut facts: BTreeMap<String, String> = variables
            .map(|(name, value)| (format!("variable {name}"), value.clone()))
            .collect();
        if let Some(processor) = &self.processor {
            facts.insert("processor".to_owned(), processor.short());
        }
        if let Some(rustc) = &self.rustc {
            facts.insert(RUSTC.to_owned(), rustc.clone());
        }
        facts
    }
}
