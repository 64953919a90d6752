//! Provenance: what a build was made of and what came out, and whether that still holds.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use rayon::prelude::*;
use serde::Serialize;

use crate::build::configure::Request;
use crate::build::cuda::CudaKit;
use crate::build::source::Sources;
use crate::build::vulkan::VulkanKit;
use crate::build::{Build, Recipe, cache, drift, ext, options, processor, provenance, stamp};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Artifact, BuildManifest, Digest, Provenance, RUSTC, Surroundings};
use crate::process;

/// Name of the manifest inside the build folder.
pub const FILE: &str = "build.json";

/// Name of the manifest that lies beside the built files and goes where they go: its paths are file
/// names.
pub const BESIDE: &str = "llama-patchset.json";

/// Where a build is not what its manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Difference {
    /// A recorded file is gone.
    Missing {
        /// Path relative to the build folder.
        path: String,
    },
    /// A recorded file has another content.
    Content {
        /// Path relative to the build folder.
        path: String,
        /// Recorded digest.
        expected: Digest,
        /// Digest found.
        found: Digest,
    },
    /// A program or library that was not built, beside those that were.
    Unknown {
        /// Path relative to the build folder.
        path: String,
    },
}

impl Difference {
    /// The path that differs, relative to the build folder.
    pub fn path(&self) -> &str {
        match self {
            Difference::Missing { path }
            | Difference::Content { path, .. }
            | Difference::Unknown { path } => path,
        }
    }
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Missing { path } => write!(f, "{path}: missing"),
            Difference::Content {
                path,
                expected,
                found,
            } => write!(f, "{path}: expected sha256 {expected}, found {found}"),
            Difference::Unknown { path } => write!(f, "{path}: not a product of this build"),
        }
    }
}

/// An option that two builds do not share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct FlagDifference {
    /// Option, or `compiler C`, `cmake`, `ninja`, `launcher`, `backend`, `base`, `processor`,
    /// `variable CPATH`.
    pub name: String,
    /// Value in the first build.
    pub first: Option<String>,
    /// Value in the second build.
    pub second: Option<String>,
}

impl std::fmt::Display for FlagDifference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let shown = |value: &Option<String>| value.clone().unwrap_or_else(|| "not set".to_owned());
        write!(
            f,
            "{}: {} and {}",
            self.name,
            shown(&self.first),
            shown(&self.second)
        )
    }
}

/// Hashes all artifacts of `build` and says where they are not what is recorded.
pub fn check(build: &Build) -> Result<Vec<Difference>> {
    let known: BTreeSet<&str> = build
        .manifest
        .artifacts
        .iter()
        .map(|artifact| &*artifact.path)
        .collect();
    let mut list = check_artifacts(&build.dir, &build.manifest.artifacts)?;
    let unknown = programs(&build.dir)?
        .into_iter()
        .filter(|path| !known.contains(&**path))
        .map(|path| Difference::Unknown { path });
    list.extend(unknown);
    list.extend(check_beside(build)?);
    Ok(list)
}

/// Where the manifest that goes with the files is not the one of the build.
fn check_beside(build: &Build) -> Result<Option<Difference>> {
    let path = format!("out/bin/{BESIDE}");
    let found = match fs_err::read(build.dir.join(&path)) {
        Ok(found) => found,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Some(Difference::Missing { path }));
        }
        Err(error) => return Err(error.into()),
    };
    let expected = Digest::of(&crate::model::json_bytes(&beside(&build.manifest))?);
    let found = Digest::of(&found);
    Ok((found != expected).then_some(Difference::Content {
        path,
        expected,
        found,
    }))
}

/// Hashes `artifacts`, whose paths are relative to `dir`, and says where they are not what is
/// recorded.
pub fn check_artifacts(dir: &Path, artifacts: &[Artifact]) -> Result<Vec<Difference>> {
    let found = artifacts
        .par_iter()
        .map(|artifact| check_one(dir, artifact))
        .collect::<Result<Vec<_>>>()?;
    Ok(found.into_iter().flatten().collect())
}

fn check_one(dir: &Path, artifact: &Artifact) -> Result<Option<Difference>> {
    let file = dir.join(&artifact.path);
    let path = artifact.path.clone();
    // A link is not what was built, wherever it leads.
    match std::fs::symlink_metadata(&file) {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Ok(Some(Difference::Unknown { path })),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(Some(Difference::Missing { path }));
        }
        Err(error) => return Err(error.into()),
    }
    let found = Digest::of_file(&file)?;
    Ok((found != artifact.sha256).then_some(Difference::Content {
        path,
        expected: artifact.sha256,
        found,
    }))
}

/// Options and tools in which two builds differ; those of the patches (`OPENCOTI_*`) do not
/// count.
pub fn compare_flags(first: &BuildManifest, second: &BuildManifest) -> Vec<FlagDifference> {
    let facts = |manifest: &BuildManifest| {
        let mut facts = manifest.flags.clone();
        facts.retain(|name, _| !name.starts_with("OPENCOTI_"));
        for (language, compiler) in &manifest.compilers {
            let text = format!("{} {} {}", compiler.id, compiler.version, compiler.path);
            facts.insert(format!("compiler {language}"), text);
        }
        for (name, value) in [
            ("base", Some(manifest.base.clone())),
            ("tree", Some(manifest.tree.to_string())),
            ("backend", Some(manifest.backend.clone())),
            ("cmake", Some(manifest.cmake.clone())),
            ("ninja", Some(manifest.ninja.clone())),
            ("launcher", manifest.launcher.clone()),
        ] {
            if let Some(value) = value {
                facts.insert(name.to_owned(), value);
            }
        }
        facts.extend(manifest.backend_tools.clone());
        facts.extend(manifest.surroundings.facts());
        // The Rust library is the patches' own, too.
        facts.remove(RUSTC);
        facts
    };
    let (first, second) = (facts(first), facts(second));
    let names: BTreeSet<&String> = first.keys().chain(second.keys()).collect();
    names
        .into_iter()
        .filter(|name| first.get(*name) != second.get(*name))
        .map(|name| FlagDifference {
            name: name.clone(),
            first: first.get(name).cloned(),
            second: second.get(name).cloned(),
        })
        .collect()
}

/// Whether CMake's cache in `dir` says what was asked for.
pub fn holds(request: &Request, dir: &Path) -> bool {
    cache::Cache::read(&dir.join("out"))
        .is_ok_and(|cached| drift::of_cache(&request.asked(), &cached).is_empty())
}

/// Reads what CMake and Ninja left in `dir`, and hashes what they made. Options that are cached
/// otherwise than asked for, and programs that are no product of the build, are findings.
pub fn collect(
    ctx: &Ctx,
    recipe: &Recipe,
    request: &Request,
    sources: &Sources,
    dir: &Path,
) -> Result<BuildManifest> {
    let out = dir.join("out");
    let cached = cache::Cache::read(&out)?;
    let compilers = cache::compilers(&out)?;
    let mut wrong = Vec::new();
    for (language, tool) in [("C", &request.tools.cc), ("CXX", &request.tools.cxx)] {
        if let Some(found) = compilers.get(language)
            && Path::new(&found.path) != tool.path
        {
            wrong.push(format!(
                "CMAKE_{language}_COMPILER: asked for {}, used {}",
                tool.path.display(),
                found.path
            ));
        }
    }
    for (language, compiler) in &compilers {
        if compiler.id.is_empty() || compiler.version.is_empty() {
            return Err(Error::environment(format!(
                "CMake does not recognise the {language} compiler {}",
                compiler.path
            ))
            .hint("name another one with CC and CXX"));
        }
    }
    if !wrong.is_empty() {
        return Err(Error::finding(format!(
            "CMake did not take the options as they were given: {}",
            wrong.join("; ")
        ))
        .hint("a build file of the tree sets them by force; see CMakeCache.txt in the build"));
    }
    drift::refuse(&drift::of_build(request, recipe.variant, dir)?)?;
    let files = files(ctx, request, dir)?;
    for target in &recipe.targets {
        let path = format!("out/bin/{target}");
        let library = format!("out/bin/lib{target}.so");
        if !files
            .iter()
            .any(|file| *file == path || file.starts_with(&library))
        {
            return Err(Error::finding(format!(
                "Ninja built `{target}` without a fault, and {path} is no program"
            ))
            .hint("look into build.log in the build folder"));
        }
    }
    let mut manifest = BuildManifest {
        schema: 1,
        base: recipe.base.clone(),
        tree: recipe.tree,
        flavour: recipe.flavour,
        backend: recipe.backend.clone(),
        variant: recipe.variant,
        patchset: recipe.patchset.clone(),
        source: sources.digest(),
        flags: cached.flags(&options::places(ctx, dir)),
        compilers,
        cmake: request.tools.cmake.version.to_string(),
        ninja: request.tools.ninja.version.to_string(),
        launcher: request.tools.launcher.as_ref().map(|tool| tool.name()),
        backend_tools: request
            .vulkan
            .as_ref()
            .map(VulkanKit::versions)
            .or_else(|| request.cuda.as_ref().map(CudaKit::versions))
            .unwrap_or_default(),
        surroundings: Surroundings {
            processor: None,
            rustc: match request.flags.contains_key(ext::LIB_FLAG) {
                true => ext::rustc_of(dir)?,
                false => None,
            },
            variables: request.variables(&options::places(ctx, dir)),
        },
        artifacts: Vec::new(),
    };
    manifest.surroundings.processor =
        Some(request.host).filter(|host| manifest.is_native() && *host != processor::unknown());
    manifest.artifacts = files
        .into_par_iter()
        .map(|path| stamp_one(dir, path, &manifest))
        .collect::<Result<_>>()?;
    Ok(manifest)
}

/// Writes the manifest that goes with the built files.
pub fn write_beside(dir: &Path, manifest: &BuildManifest) -> Result<()> {
    crate::model::write_json(&dir.join("out/bin").join(BESIDE), &beside(manifest))
}

/// The manifest that goes with the built files.
fn beside(manifest: &BuildManifest) -> BuildManifest {
    let mut beside = manifest.clone();
    for artifact in &mut beside.artifacts {
        let name = artifact.path.rsplit('/').next().unwrap_or_default();
        artifact.path = name.to_owned();
    }
    beside
}

/// Stamps a built file with where it comes from, and says what it then is.
fn stamp_one(dir: &Path, path: String, manifest: &BuildManifest) -> Result<Artifact> {
    let file = dir.join(&path);
    let stamping = || format!("stamping {}", file.display());
    let old = fs_err::read(&file)?;
    let mut plain = provenance::plain(&old);
    if let Some(patchset) = &manifest.patchset {
        stamp::set(&mut plain, &patchset.id.to_string(), &file)?;
    }
    let content = Digest::of(&plain);
    let name = path.rsplit('/').next().unwrap_or_default();
    let of = |content| Provenance::of(manifest, name, content);
    let new = provenance::stamped(&plain, of).unwrap_or(plain);
    if new != old {
        stamp::replace(&file, &new).context(stamping)?;
    }
    Ok(Artifact {
        size: new.len() as u64,
        sha256: Digest::of(&new),
        content: Some(content),
        path,
    })
}

/// Programs and libraries that were built. Others beside them are a finding.
fn files(ctx: &Ctx, request: &Request, dir: &Path) -> Result<Vec<String>> {
    let products = products(ctx, request, dir)?;
    let files = programs(dir)?;
    let foreign: Vec<&String> = files
        .iter()
        .filter(|file| !products.contains(*file))
        .collect();
    if !foreign.is_empty() {
        let names: Vec<String> = foreign
            .iter()
            .map(|file| ctx.project.show(&dir.join(file)))
            .collect();
        return Err(Error::finding(format!(
            "programs or libraries that are no product of this build lie among those that are: {}",
            names.join(", ")
        ))
        .hint(format!("rm {}", names.join(" "))));
    }
    Ok(files)
}

/// Everything that Ninja knows how to make, relative to the build folder.
fn products(ctx: &Ctx, request: &Request, dir: &Path) -> Result<BTreeSet<String>> {
    let mut command = Command::new(&request.tools.ninja.path);
    command
        .arg("-C")
        .arg(dir.join("out"))
        .args(["-t", "targets", "all"]);
    let done = process::capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(Error::internal(format!(
            "ninja does not list its targets: {}",
            process::last_lines(&done.output, 3)
        )));
    }
    Ok(done
        .output
        .lines()
        .filter_map(|line| line.rsplit_once(": "))
        .map(|(path, _)| format!("out/{path}"))
        .collect())
}

/// Programs and libraries in `out/bin`, by what they are, not by name; sorted. Links are left
/// out: what they lead to counts.
pub fn programs(dir: &Path) -> Result<Vec<String>> {
    let bin = dir.join("out/bin");
    let mut list = Vec::new();
    if !bin.is_dir() {
        return Ok(list);
    }
    for entry in fs_err::read_dir(&bin)? {
        let entry = entry?;
        if entry.file_type()?.is_file() && is_program(&entry.path())? {
            list.push(format!("out/bin/{}", entry.file_name().to_string_lossy()));
        }
    }
    list.sort_unstable();
    Ok(list)
}

/// Whether a file begins as ELF or Mach-O do.
fn is_program(file: &Path) -> Result<bool> {
    use std::io::Read;
    let mut start = Vec::with_capacity(4);
    fs_err::File::open(file)?.take(4).read_to_end(&mut start)?;
    Ok(matches!(
        &*start,
        b"\x7fELF" | [0xcf | 0xce, 0xfa, 0xed, 0xfe] | [0xca, 0xfe, 0xba, 0xbe]
    ))
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::model::{Compiler, Flavour};
    use std::collections::BTreeMap;
    use std::fs;

    /// A build of two files that begin as programs do.
    pub fn build(dir: &Path) -> Build {
        let bin = dir.join("out/bin");
        fs::create_dir_all(&bin).unwrap();
        let mut artifacts = Vec::new();
        for name in ["a", "b"] {
            let content = format!("\x7fELF{name}");
            fs::write(bin.join(name), &content).unwrap();
            artifacts.push(Artifact {
                path: format!("out/bin/{name}"),
                size: content.len() as u64,
                sha256: Digest::of(content.as_bytes()),
                content: None,
            });
        }
        fs::write(bin.join("notes.txt"), "text").unwrap();
        let compiler = Compiler {
            id: "GNU".to_owned(),
            version: "12.2.0".to_owned(),
            path: "/usr/bin/c++".to_owned(),
        };
        let build = Build {
            dir: dir.to_path_buf(),
            manifest: BuildManifest {
                schema: 1,
                base: "toy".to_owned(),
                tree: Digest::of(b""),
                flavour: Flavour::Vanilla,
                backend: "cpu".to_owned(),
                variant: Default::default(),
                patchset: None,
                source: Digest::of(b""),
                flags: [("GGML_NATIVE".to_owned(), "ON".to_owned())].into(),
                compilers: [("CXX".to_owned(), compiler)].into(),
                cmake: "3.25.1".to_owned(),
                ninja: "1.11.1".to_owned(),
                launcher: None,
                backend_tools: BTreeMap::new(),
                surroundings: Surroundings::default(),
                artifacts,
            },
        };
        write_beside(dir, &build.manifest).unwrap();
        build
    }

    #[test]
    fn the_manifest_that_goes_with_the_files_is_that_of_the_build() {
        let dir = tempfile::tempdir().unwrap();
        let build = build(dir.path());
        let told = || -> Vec<String> {
            let list = check(&build).unwrap();
            list.iter().map(ToString::to_string).collect()
        };
        let file = dir.path().join("out/bin").join(BESIDE);
        let mut other = build.manifest.clone();
        other.flavour = Flavour::Patched;
        write_beside(dir.path(), &other).unwrap();
        assert!(told()[0].starts_with("out/bin/llama-patchset.json: expected sha256"));
        fs::write(&file, "{").unwrap();
        assert!(told()[0].starts_with("out/bin/llama-patchset.json: expected sha256"));
        fs::remove_file(&file).unwrap();
        assert_eq!(told(), ["out/bin/llama-patchset.json: missing"]);
    }

    #[test]
    fn a_build_is_read_in_its_own_place_alone() {
        let root = tempfile::tempdir().unwrap();
        let own = root.path().join("toy/vanilla-cpu");
        let made = build(&own);
        crate::model::write_json(&own.join(FILE), &made.manifest).unwrap();
        assert!(Build::read_in_place(own.clone()).unwrap().is_some());
        for other in [
            "toy/patched-cpu",
            "toy/vanilla-vulkan",
            "toy/vanilla-cpu-asan",
            "other/vanilla-cpu",
        ] {
            let place = root.path().join(other);
            fs::create_dir_all(place.parent().unwrap()).unwrap();
            fs::rename(&own, &place).unwrap();
            let error = Build::read_in_place(place.clone()).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Finding);
            assert!(
                error
                    .to_string()
                    .contains("holds the vanilla build of toy for cpu"),
                "{error}"
            );
            fs::rename(&place, &own).unwrap();
        }
    }

    #[test]
    fn a_flipped_byte_a_missing_and_a_foreign_file_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let build = build(dir.path());
        assert_eq!(check(&build).unwrap(), []);
        let bin = dir.path().join("out/bin");
        fs::write(bin.join("a"), b"\x7fELFb").unwrap();
        fs::remove_file(bin.join("b")).unwrap();
        fs::write(bin.join("libgomp.so.1"), b"\x7fELFplanted").unwrap();
        let told: Vec<String> = check(&build)
            .unwrap()
            .iter()
            .map(ToString::to_string)
            .collect();
        let (expected, found) = (Digest::of(b"\x7fELFa"), Digest::of(b"\x7fELFb"));
        assert_eq!(
            told,
            [
                format!("out/bin/a: expected sha256 {expected}, found {found}"),
                "out/bin/b: missing".to_owned(),
                "out/bin/libgomp.so.1: not a product of this build".to_owned(),
            ]
        );
    }

    #[test]
    fn a_link_in_the_place_of_an_artifact_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let build = build(dir.path());
        let file = dir.path().join("out/bin/a");
        fs::rename(&file, dir.path().join("elsewhere")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("elsewhere"), &file).unwrap();
        assert_eq!(check(&build).unwrap().len(), 1);
    }

    #[test]
    fn flags_and_tools_are_compared_but_for_the_patches_own() {
        let dir = tempfile::tempdir().unwrap();
        let first = build(dir.path()).manifest;
        let mut second = first.clone();
        second.flavour = Flavour::Patched;
        second
            .flags
            .insert("OPENCOTI_EXT_LIB".to_owned(), "x".to_owned());
        second.surroundings.rustc = Some("1.90.0 (x)".to_owned());
        assert_eq!(compare_flags(&first, &second), []);
        second
            .flags
            .insert("GGML_NATIVE".to_owned(), "OFF".to_owned());
        second.flags.insert("GGML_LTO".to_owned(), "ON".to_owned());
        second.launcher = Some("ccache".to_owned());
        second.surroundings.processor = Some(Digest::of(b"another"));
        let variables = &mut second.surroundings.variables;
        variables.insert("NVCC_APPEND_FLAGS".to_owned(), "-use_fast_math".to_owned());
        if let Some(compiler) = second.compilers.get_mut("CXX") {
            compiler.version = "13.1.0".to_owned();
        }
        let told: Vec<String> = compare_flags(&first, &second)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            told,
            [
                "GGML_LTO: not set and ON",
                "GGML_NATIVE: ON and OFF",
                "compiler CXX: GNU 12.2.0 /usr/bin/c++ and GNU 13.1.0 /usr/bin/c++",
                "launcher: not set and ccache",
                &format!("processor: not set and {}", Digest::of(b"another").short()),
                "variable NVCC_APPEND_FLAGS: not set and -use_fast_math",
            ]
        );
    }
}
