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

    /// What goes into files that others get: of values that name places of this machine only digests.
    pub fn without_places(&self) -> Self {
        let mut all = self.clone();
        for value in all
            .variables
            .values_mut()
            .filter(|value| value.contains('/'))
        {
            *value = format!("sha256 {}", Digest::of(value.as_bytes()).short());
        }
        all
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_tells_no_place_of_the_machine() {
        let mut all = Surroundings::default();
        for (name, value) in [("CPATH", "/home/a/include"), ("CFLAGS", "-DX")] {
            all.variables.insert(name.to_owned(), value.to_owned());
        }
        let told = all.without_places();
        assert_eq!(told.variables["CFLAGS"], "-DX");
        assert!(told.variables["CPATH"].starts_with("sha256 "), "{told:?}");
        // Another place is another build.
        let mut other = all.clone();
        other
            .variables
            .insert("CPATH".to_owned(), "/home/b/include".to_owned());
        assert_ne!(other.without_places(), told);
    }
}
