//! `registry/series.toml`: the ordered patches of each base.

use std::collections::BTreeMap;

use serde::Deserialize;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SeriesFile {
    /// Version of this format; 1.
    pub schema: u32,
    /// Base id to patch ids, in the order of application.
    #[serde(default)]
    pub series: BTreeMap<String, Vec<String>>,
}

impl SeriesFile {
    /// The patches of `base`; none where the base has no series.
    pub fn of(&self, base: &str) -> &[String] {
        self.series.get(base).map_or(&[], Vec::as_slice)
    }
}
