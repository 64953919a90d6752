//! What of other people's work is in a build.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Deserialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// What is said of a work that has no licence, since it needs none.
pub const PUBLIC_DOMAIN: &str = "Public domain";

/// A folder of upstream's `vendor/` of which a build read something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Path below `vendor/`.
    pub name: String,
    /// Paths in the tree of what was read, sorted.
    pub files: Vec<String>,
    /// SPDX id, an expression, or what stands for the public domain; absent where nothing is said, and
    /// llama.cpp's own counts.
    pub licence: Option<String>,
    /// The file that says so.
    pub licence_in: Option<String>,
}

/// Whether a file of this name holds a licence.
pub fn is_licence(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["LICENSE", "LICENCE", "COPYING"]
        .iter()
        .any(|start| name.starts_with(start))
}

/// The parts of `vendor/` among `inputs`, which are paths in the tree.
pub fn vendored(pristine: &Pristine, inputs: &BTreeSet<String>) -> Result<Vec<Part>> {
    let mut folders: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for path in inputs {
        let Some((folder, _)) = path
            .strip_prefix("vendor/")
            .and_then(|below| below.rsplit_once('/'))
        else {
            continue;
        };
        // What a patch adds is the patch's.
        let is_upstreams =
            RelPath::new(path).is_ok_and(|path| pristine.manifest.get(&path).is_some());
        if is_upstreams {
            folders.entry(folder).or_default().push(path.clone());
        }
    }
    let mut parts = Vec::new();
    for (name, files) in folders {
        let start = format!("vendor/{name}/");
        let beside = pristine.manifest.iter().map(|(path, _)| path.as_str());
        let beside = beside.filter(|path| {
            let rest = path.strip_prefix(&*start);
            rest.is_some_and(|rest| !rest.contains('/') && is_licence(rest))
        });
        let candidates = beside.map(str::to_owned).chain(files.iter().cloned());
        let mut licence = None;
        for path in candidates {
            if let Some(found) = licence_of(&pristine.root.join(&path))? {
                licence = Some((found, path));
                break;
            }
        }
        let (licence, licence_in) = licence.unzip();
        parts.push(Part {
            name: name.to_owned(),
            files,
            licence,
            licence_in,
        });
    }
    Ok(parts)
}

/// The licence that a file names or quotes; several that one may choose from as an expression.
pub fn licence_of(path: &Path) -> Result<Option<String>> {
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = fs_err::read(path)?;
    Ok(licence_in(&String::from_utf8_lossy(&bytes)))
}

fn licence_in(text: &str) -> Option<String> {
    if let Some((_, rest)) = text.split_once("SPDX-License-Identifier:") {
        let id = rest.lines().next().unwrap_or_default();
        let id: String = id.trim().trim_end_matches("*/").trim().to_owned();
        if !id.is_empty() {
            return Some(id);
        }
    }
    // Comments break lines anywhere.
    let words: Vec<&str> = text
        .split_whitespace()
        .filter(|word| !matches!(*word, "*" | "//" | "#" | "/*"))
        .collect();
    let text = words.join(" ").to_ascii_lowercase();
    let mut found = Vec::new();
    if text.contains("mit no attribution") {
        found.push("MIT-0");
    } else if text.contains("permission is hereby granted, free of charge, to any person") {
        found.push("MIT");
    }
    if text.contains("bsd 2-clause license") {
        found.push("BSD-2-Clause");
    }
    if text.contains("this is free and unencumbered software released into the public domain") {
        found.push("Unlicense");
    }
    match found.as_slice() {
        [] if text.contains("public domain") => Some(PUBLIC_DOMAIN.to_owned()),
        [] => None,
        some => Some(some.join(" OR ")),
    }
}

/// A crate in the Rust library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crate {
    /// Its name.
    pub name: String,
    /// Its version.
    pub version: String,
    /// SHA-256 of its archive; absent for our own.
    pub checksum: Option<String>,
    /// SPDX expression, where known.
    pub licence: Option<String>,
}

#[derive(Deserialize)]
struct Lock {
    #[serde(default)]
    package: Vec<Locked>,
}

#[derive(Deserialize)]
struct Locked {
    name: String,
    version: String,
    checksum: Option<String>,
    #[serde(default)]
    dependencies: Vec<String>,
}

/// Our crate that is linked into the CPU backend.
const OWN: &str = "ggml-ext";

/// What is in the Rust library of a build: our crate, what it depends on, and the standard library.
pub fn crates(ctx: &Ctx, library: &Path) -> Result<Vec<Crate>> {
    let root = ctx.project.root();
    let read = |name: &str| -> Result<String> { Ok(fs_err::read_to_string(root.join(name))?) };
    let mut all = locked(&read("Cargo.lock")?, &read(&format!("{OWN}/Cargo.toml"))?)?;
    let bytes = fs_err::read(library)?;
    if let Some(version) = rustc(&bytes) {
        all.push(Crate {
            name: "rust-std".to_owned(),
            version,
            checksum: None,
            licence: Some("MIT OR Apache-2.0".to_owned()),
        });
    }
    Ok(all)
}

/// Our crate and all that it depends on when it is built, by the lock file.
fn locked(lock: &str, manifest: &str) -> Result<Vec<Crate>> {
    let broken = |error: toml::de::Error| Error::config(error.to_string()).context("Cargo.lock");
    let lock: Lock = toml::from_str(lock).map_err(broken)?;
    let manifest: toml::Table = toml::from_str(manifest).map_err(broken)?;
    let direct = manifest
        .get("dependencies")
        .and_then(|value| value.as_table());
    let direct = direct.into_iter().flat_map(|table| table.keys().cloned());
    let mut wanted: Vec<String> = direct.collect();
    let mut seen: BTreeSet<usize> = BTreeSet::new();
    while let Some(wish) = wanted.pop() {
        // `name`, or `name version` where there are several.
        let mut words = wish.split(' ');
        let (name, version) = (words.next().unwrap_or_default(), words.next());
        for (at, one) in lock.package.iter().enumerate() {
            let is_it = one.name == name && version.is_none_or(|version| one.version == version);
            if is_it && seen.insert(at) {
                wanted.extend(one.dependencies.clone());
            }
        }
    }
    let own = lock.package.iter().position(|one| one.name == OWN);
    let picked = own.into_iter().chain(seen);
    let picked = picked.filter_map(|at| lock.package.get(at));
    Ok(picked
        .map(|one| Crate {
            name: one.name.clone(),
            version: one.version.clone(),
            checksum: one.checksum.clone(),
            licence: one.checksum.is_none().then(|| "MIT".to_owned()),
        })
        .collect())
}

/// The compiler that made a library, which is the version of the standard library in it.
fn rustc(library: &[u8]) -> Option<String> {
    let text = crate::build::rustc(library)?;
    text.split(' ').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn licences_are_read_from_what_files_say() {
        for (text, licence) in [
            ("// SPDX-License-Identifier: MIT\n", Some("MIT")),
            (
                "MIT License\n\nPermission is hereby granted, free of\n * charge, to any person",
                Some("MIT"),
            ),
            (
                "This is free and unencumbered software released into the public domain. or\n\
                 MIT No Attribution: Permission is hereby granted, free of charge, to any person",
                Some("MIT-0 OR Unlicense"),
            ),
            (" * BSD 2-Clause License (https://x)", Some("BSD-2-Clause")),
            ("100% Public Domain", Some(PUBLIC_DOMAIN)),
            ("int x;", None),
        ] {
            assert_eq!(licence_in(text).as_deref(), licence, "{text}");
        }
    }

    #[test]
    fn crates_are_followed_and_tests_crates_are_not() {
        let lock = "version = 4\n[[package]]\nname = \"ggml-ext\"\nversion = \"0.1.0\"\n\
                    dependencies = [\"cc\", \"libm\"]\n[[package]]\nname = \"cc\"\nversion = \"1.0.0\"\n\
                    checksum = \"c\"\n[[package]]\nname = \"libm\"\nversion = \"0.2.0\"\nchecksum = \"d\"\n\
                    dependencies = [\"deep 2.0.0\"]\n[[package]]\nname = \"deep\"\nversion = \"1.0.0\"\n\
                    [[package]]\nname = \"deep\"\nversion = \"2.0.0\"\nchecksum = \"e\"\n";
        let manifest = "[dependencies]\nlibm = \"0.2\"\n[dev-dependencies]\ncc = \"1\"\n";
        let found = locked(lock, manifest).unwrap();
        let names: Vec<String> = found
            .iter()
            .map(|one| format!("{} {}", one.name, one.version))
            .collect();
        assert_eq!(names, ["ggml-ext 0.1.0", "libm 0.2.0", "deep 2.0.0"]);
        assert_eq!(found[0].checksum, None);
        assert!(locked("[", manifest).is_err());
    }

    #[test]
    fn the_compiler_is_read_from_the_library() {
        let library = b"!<arch>\n\0.comment\0rustc version 1.90.0 (1159e78c4 2026)\0";
        assert_eq!(rustc(library).as_deref(), Some("1.90.0"));
        assert_eq!(rustc(b"!<arch>\n"), None);
    }
}
