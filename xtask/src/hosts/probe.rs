//! What a host says of itself, and whether what is brought there can run.

use std::collections::BTreeSet;

use serde::Serialize;

use crate::error::{Error, Result};
use crate::hosts::script::MARK;
use crate::model::{HostStamp, Version};

/// What a host says of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Facts {
    /// `Linux`.
    pub os: String,
    /// `x86_64`.
    pub arch: String,
    /// `glibc 2.36`; another C library does not tell.
    pub libc: String,
    /// Where rsync is; absent where it is not.
    pub rsync: Option<String>,
    /// Processors.
    pub processors: usize,
    /// What the first processor is called.
    pub model: Option<String>,
    /// What it can do, as the system names it.
    #[serde(skip)]
    pub features: BTreeSet<String>,
    /// Bytes that are free for us.
    pub free: u64,
}

/// What is needed of a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// As [`Facts::arch`].
    pub arch: String,
    /// The newest version of glibc that a file asks for.
    pub glibc: Option<Version>,
    /// What the processor must be able to do.
    pub features: BTreeSet<String>,
    /// Bytes.
    pub space: u64,
}

impl Facts {
    /// Reads what the script prints.
    pub fn read(lines: &[String]) -> Result<Facts> {
        let said = |what: &str| {
            let start = format!("{MARK}{what} ");
            let found = lines.iter().find_map(|line| line.strip_prefix(&start));
            found.map(str::trim).filter(|text| !text.is_empty())
        };
        let (Some(os), Some(arch)) = (said("os"), said("arch")) else {
            return Err(Error::environment(
                "it does not answer as a machine with a POSIX shell does",
            )
            .hint(
                "its login shell must run commands that ssh is given, and print nothing else \
                   that begins like our lines",
            ));
        };
        let Some(free) = said("free").and_then(|text| text.parse::<u64>().ok()) else {
            return Err(Error::environment("the folder of our runs cannot be made there").hint(
                "see that the login may write to `dir` of registry/hosts.toml, or name another one",
            ));
        };
        Ok(Facts {
            os: os.to_owned(),
            arch: arch.to_owned(),
            libc: said("libc").unwrap_or("unknown").to_owned(),
            rsync: said("rsync")
                .filter(|path| *path != "none")
                .map(str::to_owned),
            processors: said("processors")
                .and_then(|text| text.parse().ok())
                .unwrap_or(1),
            model: said("model").map(str::to_owned),
            features: features(said("flags").unwrap_or_default()),
            free: free.saturating_mul(1024),
        })
    }

    /// As a record has it.
    pub fn stamp(&self, name: &str) -> HostStamp {
        HostStamp {
            name: Some(name.to_owned()),
            system: format!("{} {}", self.os.to_lowercase(), self.arch),
            processors: self.processors,
            model: self.model.clone(),
        }
    }

    /// Fails, with the reason, where what is brought cannot run.
    pub fn check(&self, needs: &Needs) -> Result<()> {
        let build_there = "build and gate there, with a checkout of its own: cargo xtask gate";
        let system = format!("{} {}", self.os, self.arch);
        if system != format!("Linux {}", needs.arch) {
            return Err(Error::environment(format!(
                "it is a machine of another kind: {system}, and what was built here is for Linux {}",
                needs.arch
            ))
            .hint(build_there));
        }
        if let Some(needed) = &needs.glibc {
            let there = self.libc.strip_prefix("glibc ");
            let there = there.and_then(|version| version.parse::<Version>().ok());
            match there {
                None => {
                    return Err(Error::environment(format!(
                        "its C library is not glibc ({}), and what was built here needs glibc \
                         {needed}",
                        self.libc
                    ))
                    .hint(build_there));
                }
                Some(there) if there < *needed => {
                    return Err(Error::environment(format!(
                        "its C library is too old: glibc {there}, and what was built here needs \
                         {needed}"
                    ))
                    .hint("build on the older system, which the newer one can run")
                    .hint(build_there));
                }
                Some(_) => {}
            }
        }
        let lacks: Vec<&str> = (needs.features.difference(&self.features))
            .map(String::as_str)
            .collect();
        if !lacks.is_empty() {
            return Err(Error::environment(format!(
                "its processor lacks what the builds were made for (GGML_NATIVE=ON): {}",
                lacks.join(", ")
            ))
            .hint(build_there));
        }
        if self.rsync.is_none() {
            return Err(
                Error::environment("rsync is not installed there").hint("install rsync on it")
            );
        }
        if self.free < needs.space {
            return Err(Error::environment(format!(
                "its disk is too full: {} MB are free, and {} MB are needed",
                self.free >> 20,
                (needs.space >> 20) + 1
            ))
            .hint("free some space there, or name another folder as its `dir`"));
        }
        Ok(())
    }
}

/// Features that compilers choose instructions by; others say nothing of what can run.
fn features(flags: &str) -> BTreeSet<String> {
    const EXACT: [&str; 22] = [
        "pni", "ssse3", "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "bmi1", "bmi2", "abm",
        "movbe", "asimd", "asimdhp", "asimddp", "fphp", "i8mm", "bf16", "fcma", "gfni", "sme",
        "sme2",
    ];
    const FAMILIES: [&str; 5] = ["avx512", "avx_", "avx10", "amx_", "sve"];
    flags
        .split_whitespace()
        .filter(|flag| {
            EXACT.contains(flag) || FAMILIES.iter().any(|family| flag.starts_with(family))
        })
        .map(str::to_owned)
        .collect()
}

/// What this machine's processor can do.
pub fn features_here() -> BTreeSet<String> {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let line = info.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim(), "flags" | "Features").then_some(value)
    });
    features(line.unwrap_or_default())
}

/// The newest version of glibc that a program or library names.
pub fn glibc_of(bytes: &[u8]) -> Option<Version> {
    const NAME: &[u8] = b"GLIBC_2.";
    let versions = memchr::memmem::find_iter(bytes, NAME).filter_map(|at| {
        let rest = &bytes[at + NAME.len()..];
        let end = rest
            .iter()
            .position(|byte| !byte.is_ascii_digit() && *byte != b'.')?;
        let text = std::str::from_utf8(&rest[..end]).ok()?;
        format!("2.{text}").parse::<Version>().ok()
    });
    versions.max()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(text: &str) -> Vec<String> {
        text.lines().map(|line| format!("{MARK}{line}")).collect()
    }

    const SAID: &str = "os Linux\narch x86_64\nlibc glibc 2.36\nrsync /usr/bin/rsync\n\
                        processors 8\nmodel  Some CPU\nflags  fpu avx avx2 avx512f smep\n\
                        free 1000000\nend ";

    fn needs() -> Needs {
        Needs {
            arch: "x86_64".to_owned(),
            glibc: Some("2.34".parse().unwrap()),
            features: features("avx avx2"),
            space: 10 << 20,
        }
    }

    #[test]
    fn a_host_is_read_through_what_its_shell_prints_besides() {
        let mut said = vec!["Welcome to os Windows!".to_owned()];
        said.extend(lines(SAID));
        let facts = Facts::read(&said).unwrap();
        assert_eq!(
            (facts.processors, facts.model.as_deref()),
            (8, Some("Some CPU"))
        );
        assert_eq!(facts.features, features("avx avx2 avx512f"));
        assert_eq!(facts.free, 1_024_000_000);
        assert_eq!(facts.stamp("a").system, "linux x86_64");
        facts.check(&needs()).unwrap();
        assert!(Facts::read(&["This account is for sftp only.".to_owned()]).is_err());
        let closed = Facts::read(&lines("os Linux\narch x86_64\nend ")).unwrap_err();
        assert!(closed.to_string().contains("cannot be made"), "{closed}");
    }

    #[test]
    fn what_cannot_run_there_is_said_with_both_sides() {
        let refused = |from: &str, to: &str| {
            let facts = Facts::read(&lines(&SAID.replace(from, to))).unwrap();
            facts.check(&needs()).unwrap_err().to_string()
        };
        let said = refused("x86_64", "aarch64");
        assert!(
            said.contains("Linux aarch64") && said.contains("Linux x86_64"),
            "{said}"
        );
        assert!(refused("os Linux", "os Darwin").contains("Darwin"));
        assert!(
            refused("2.36", "2.31").contains("glibc 2.31, and"),
            "too old"
        );
        assert!(refused("glibc 2.36", "unknown").contains("not glibc"));
        assert!(refused("avx2 ", "").ends_with(": avx2"));
        assert!(refused("/usr/bin/rsync", "none").contains("rsync"));
        let said = refused("1000000", "1024");
        assert!(said.contains("1 MB are free, and 11 MB"), "{said}");
    }

    #[test]
    fn a_program_names_the_glibc_that_it_needs() {
        let bytes = b"x\0GLIBC_2.2.5\0GLIBC_2.34\0GLIBC_2.9\0GLIBC_PRIVATE\0";
        assert_eq!(glibc_of(bytes), Some("2.34".parse().unwrap()));
        assert_eq!(glibc_of(b"GLIBC_2."), None);
        let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        assert!(glibc_of(&own).is_some());
    }
}
