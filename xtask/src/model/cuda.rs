//! What a build for CUDA needs, and which GPUs it is for.

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::model::{Digest, Version};

/// The section `[cuda]` of `registry/toolchains.toml`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaTools {
    /// The oldest CMake that reads the backend's build files.
    pub cmake: Version,
    /// The oldest toolkit, as `nvcc --version` tells it.
    pub toolkit: Version,
    /// Folders in which a toolkit is looked for, besides those that the environment names.
    pub folders: Vec<String>,
    /// The oldest driver that runs what a toolkit built, by the toolkit's first number. A later toolkit needs no older one.
    pub driver: BTreeMap<String, Version>,
    /// Where the toolkit lies below the folder that the wheels are unpacked into.
    pub prefix: String,
    /// What is unpacked into the cache where no toolkit is installed.
    #[serde(rename = "wheel")]
    pub wheels: Vec<CudaWheel>,
}

/// A pinned part of a toolkit, from the Python package index.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaWheel {
    /// Package name.
    pub package: String,
    /// Exact version.
    pub version: String,
    /// Digests of the accepted wheels, one for each platform.
    pub sha256: Vec<Digest>,
}

impl CudaTools {
    /// A driver without which what `toolkit` built does not run: that of the newest toolkit of the registry that is not
    /// newer. For a toolkit of after the registry it is too old rather than too new. `None` where all of them are newer.
    pub fn driver_for(&self, toolkit: &Version) -> Option<&Version> {
        let first = |text: &str| text.split('.').next()?.parse::<u64>().ok();
        let wanted = first(&toolkit.to_string())?;
        let known = self.driver.iter();
        known
            .filter_map(|(major, driver)| Some((first(major)?, driver)))
            .filter(|(major, _)| *major <= wanted)
            .max_by_key(|(major, _)| *major)
            .map(|(_, driver)| driver)
    }
}

/// Architectures of GPUs, as CMake names them: `90` is machine code for sm_90 and PTX, `90-real`
/// the first alone, `90-virtual` the second alone; sorted, each once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct CudaArchs(Vec<CudaArch>);

/// One of [`CudaArchs`].
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaArch {
    /// Ten times the compute capability: 90.
    pub number: u32,
    /// `a` or `f`, for code that only this architecture or its family runs; else empty.
    pub suffix: String,
    /// Whether machine code is wanted.
    pub real: bool,
    /// Whether PTX is wanted.
    pub ptx: bool,
}

impl CudaArch {
    /// Number and suffix: `90`, `120a`.
    pub fn name(&self) -> String {
        format!("{}{}", self.number, self.suffix)
    }
}

impl CudaArchs {
    /// Those of GPUs with these compute capabilities, such as `9.0`; `None` where one cannot be
    /// read, or where there is none.
    pub fn of_capabilities<'a>(list: impl IntoIterator<Item = &'a str>) -> Option<Self> {
        let number = |text: &str| {
            let (major, minor) = text.trim().split_once('.')?;
            let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
            (digits(major) && digits(minor) && minor.len() == 1).then(|| format!("{major}{minor}"))
        };
        let names: Option<Vec<String>> = list.into_iter().map(number).collect();
        names?.join(";").parse().ok()
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = &CudaArch> {
        self.0.iter()
    }
}

impl FromStr for CudaArchs {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut list: Vec<CudaArch> = Vec::new();
        for word in text.split([';', ',']).map(str::trim) {
            let wrong = || format!("`{word}` is no architecture of a GPU");
            let (name, real, ptx) = match word.split_once('-') {
                None => (word, true, true),
                Some((name, "real")) => (name, true, false),
                Some((name, "virtual")) => (name, false, true),
                Some(_) => return Err(wrong()),
            };
            let digits = name.trim_end_matches(['a', 'f']);
            let suffix = &name[digits.len()..];
            let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
            if !plain || !(2..=3).contains(&digits.len()) || suffix.len() > 1 {
                return Err(wrong());
            }
            let number = digits.parse().map_err(|_| wrong())?;
            let same = |arch: &&mut CudaArch| arch.number == number && arch.suffix == suffix;
            match list.iter_mut().find(same) {
                Some(there) => {
                    there.real |= real;
                    there.ptx |= ptx;
                }
                None => list.push(CudaArch {
                    number,
                    suffix: suffix.to_owned(),
                    real,
                    ptx,
                }),
            }
        }
        list.sort();
        Ok(CudaArchs(list))
    }
}

impl fmt::Display for CudaArchs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, arch) in self.0.iter().enumerate() {
            let between = if at == 0 { "" } else { ";" };
            let kind = match (arch.real, arch.ptx) {
                (true, false) => "-real",
                (false, true) => "-virtual",
                _ => "",
            };
            write!(f, "{between}{}{kind}", arch.name())?;
        }
        Ok(())
    }
}

impl From<CudaArchs> for String {
    fn from(archs: CudaArchs) -> String {
        archs.to_string()
    }
}

impl TryFrom<String> for CudaArchs {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_sorted_and_each_is_there_once() {
        for (text, wanted) in [
            ("90", "90"),
            ("120, 80;90", "80;90;120"),
            ("90a;90;90", "90;90a"),
            ("80-virtual,80-real", "80"),
            ("86-real", "86-real"),
        ] {
            let archs: CudaArchs = text.parse().unwrap();
            assert_eq!(archs.to_string(), wanted, "{text}");
        }
    }

    #[test]
    fn what_is_no_architecture_is_refused() {
        for text in [
            "",
            ";",
            "9",
            "9.0",
            "sm_90",
            "native",
            "all",
            "1200",
            "90b",
            "90af",
            "90-",
            "90-real-x",
            "-1",
            "９０",
            "90;;80",
        ] {
            assert!(text.parse::<CudaArchs>().is_err(), "{text}");
        }
    }

    #[test]
    fn capabilities_become_architectures() {
        let of = |list: &[&str]| {
            CudaArchs::of_capabilities(list.iter().copied()).map(|archs| archs.to_string())
        };
        assert_eq!(of(&["9.0", "8.6", "9.0"]).as_deref(), Some("86;90"));
        assert_eq!(of(&["12.0"]).as_deref(), Some("120"));
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["[N/A]"]), None);
        assert_eq!(of(&["9.12"]), None);
    }
}
