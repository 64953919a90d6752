//! What is brought to hosts: a checkout that has builds and no sources, and this program.
//!
//! ```text
//! xtask                                     this program, without what only a debugger reads
//! registry/ patches/ gates/                 as here, and the declared inputs of patches
//! target/llama/<base>/<flavour>-<backend>/  build.json, out/bin, probe/logits
//! target/fixtures/<name>.gguf               the models that are made here
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::lookup::Machine;
use crate::build::{self, Build};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::logits::probe;
use crate::hosts::probe::{Needs, features_here, glibc_of};
use crate::model::{Base, Digest, Flavour, Version};
use crate::patchset::Series;
use crate::process;

/// What is brought, in a folder that goes with this value.
#[derive(Debug)]
pub struct Kit {
    dir: tempfile::TempDir,
    _lock: std::fs::File,
    /// Backends whose builds are in it.
    backends: BTreeSet<String>,
    /// What of it records must name.
    brought: Brought,
    glibc: Option<Version>,
    /// Whether a build is for this very processor.
    is_native: bool,
    sizes: BTreeMap<PathBuf, u64>,
}

/// Digests of what is brought, by what records say that they ran.
#[derive(Clone, Debug, Default)]
pub struct Brought {
    /// Programs and libraries, by `<flavour>-<backend>`.
    builds: BTreeMap<String, BTreeSet<Digest>>,
    /// Programs that read logits, in the same way.
    probes: BTreeMap<String, Digest>,
    /// Models, by name.
    fixtures: BTreeMap<String, Digest>,
}

impl Brought {
    /// The name of the build that a side asks for. Without any patch the vanilla build stands in for the patched one.
    fn name(&self, flavour: Flavour, backend: &str) -> String {
        let names = [flavour, Flavour::Vanilla].map(|flavour| format!("{flavour}-{backend}"));
        let brought = names.iter().find(|name| self.builds.contains_key(*name));
        brought.unwrap_or(&names[0]).clone()
    }

    /// Whether programs and libraries of these digests are those of that very build: no other one, and none less.
    pub fn consists_of(&self, flavour: Flavour, backend: &str, files: &BTreeSet<Digest>) -> bool {
        self.builds.get(&self.name(flavour, backend)) == Some(files)
    }

    /// Whether the program that reads logits of that build has this digest.
    pub fn is_probe(&self, flavour: Flavour, backend: &str, digest: &Digest) -> bool {
        self.probes.get(&self.name(flavour, backend)) == Some(digest)
    }

    /// The digest of a model.
    pub fn fixture(&self, name: &str) -> Option<Digest> {
        self.fixtures.get(name).copied()
    }

    /// Adds a file of a build.
    pub fn add(&mut self, flavour: Flavour, backend: &str, digest: Digest) {
        let files = self.builds.entry(format!("{flavour}-{backend}"));
        files.or_default().insert(digest);
    }

    /// Adds the program that reads logits of a build.
    pub fn add_probe(&mut self, flavour: Flavour, backend: &str, digest: Digest) {
        self.probes.insert(format!("{flavour}-{backend}"), digest);
    }

    /// Adds a model.
    pub fn add_fixture(&mut self, name: &str, digest: Digest) {
        self.fixtures.insert(name.to_owned(), digest);
    }
}

/// What a host gets of a kit.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// Backends.
    pub backends: BTreeSet<String>,
    /// Models.
    pub fixtures: BTreeSet<String>,
}

/// A folder below `target/hosts` that is removed when its owner is gone, by it or by the next one.
fn scratch(ctx: &Ctx) -> Result<(tempfile::TempDir, std::fs::File)> {
    let all = ctx.project.target().join("hosts");
    fs_err::create_dir_all(&all)?;
    let _lock = crate::lock::file(ctx, &all.join(".lock"))?;
    for entry in fs_err::read_dir(&all)? {
        let path = entry?.path();
        let Ok(lock) = std::fs::File::open(path.join(".lock")) else {
            continue;
        };
        if lock.try_lock().is_ok() {
            fs_err::remove_dir_all(&path)?;
        }
    }
    let dir = tempfile::Builder::new().prefix("kit-").tempdir_in(&all)?;
    let lock = fs_err::File::create(dir.path().join(".lock"))?.into_file();
    lock.lock()
        .context(|| format!("locking {}", dir.path().display()))?;
    Ok((dir, lock))
}

impl Kit {
    /// Puts everything together but builds and models, which are added.
    pub fn new(ctx: &Ctx, base: &Base, series: &Series) -> Result<Self> {
        let (dir, lock) = scratch(ctx)?;
        let mut kit = Kit {
            dir,
            _lock: lock,
            backends: BTreeSet::new(),
            brought: Brought::default(),
            glibc: None,
            is_native: false,
            sizes: BTreeMap::new(),
        };
        fs_err::create_dir(kit.root())?;
        let root = ctx.project.root();
        let mut parts: BTreeSet<PathBuf> = ["patches", "gates"].map(PathBuf::from).into();
        for name in [
            "upstreams.toml",
            "series.toml",
            "hooks.toml",
            "toolchains.toml",
        ] {
            parts.insert(Path::new("registry").join(name));
        }
        for patch in &series.patches {
            let inputs = patch.manifest.inputs.iter();
            parts.extend(inputs.map(|input| PathBuf::from(input.trim_end_matches('/'))));
        }
        for part in parts {
            ctx.cancel.check()?;
            let from = root.join(&part);
            if from.exists() {
                copy(&from, &kit.root().join(&part))?;
            }
        }
        let own = std::env::current_exe()?;
        let to = kit.root().join("xtask");
        strip(ctx, &own, &to)?;
        kit.look(&to)?;
        // What a host has of the series must be what was built.
        let there = crate::project::Project::new(&kit.root(), ctx.project.cache())?;
        if Series::load(&there, base)?.id != series.id {
            return Err(Error::finding("the series changed while it was copied")
                .hint("run the same command again once nothing writes to patches/"));
        }
        Ok(kit)
    }

    /// The folder whose content is brought.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("kit")
    }

    /// A folder for what is of one host alone.
    pub fn of_host(&self, name: &str) -> Result<PathBuf> {
        let dir = self.dir.path().join("hosts").join(name);
        fs_err::create_dir_all(&dir)?;
        Ok(dir)
    }

    /// Adds a build, which must be what its manifest says, and not for the processor of another
    /// machine than this: what a host must have is read from this one.
    pub fn add_build(&mut self, ctx: &Ctx, build: &Build) -> Result<()> {
        ctx.cancel.check()?;
        let manifest = &build.manifest;
        let name = format!("{}-{}", manifest.flavour, manifest.backend);
        build::processor::check(&Machine, build)?;
        let to = self
            .root()
            .join("target/llama")
            .join(&manifest.base)
            .join(&name);
        let bin = to.join("out/bin");
        fs_err::create_dir_all(&bin)?;
        for artifact in &manifest.artifacts {
            let copied = to.join(&artifact.path);
            fs_err::copy(build.dir.join(&artifact.path), &copied)?;
            let digest = self.look(&copied)?;
            (self.brought).add(manifest.flavour, &manifest.backend, digest);
        }
        let from = build.dir.join("out/bin");
        for entry in fs_err::read_dir(&from)? {
            let entry = entry?;
            let target = bin.join(entry.file_name());
            if entry.file_type()?.is_symlink() {
                let leads = fs_err::read_link(entry.path())?;
                if leads.components().count() == 1 {
                    std::os::unix::fs::symlink(leads, target)?;
                }
            } else if entry.file_name() == build::BESIDE {
                fs_err::copy(entry.path(), target)?;
            }
        }
        crate::model::write_json(&to.join("build.json"), manifest)?;
        let broken = build::check_artifacts(&to, &manifest.artifacts)?;
        if let Some(first) = broken.first() {
            return Err(Error::finding(format!("{name}: {first}")).hint(
                "run `cargo xtask build` again; a build that is not what it says is not gated",
            ));
        }
        if build.dir.join("src/include").is_dir() {
            probe::ship(ctx, build, &to).context(|| format!("the logits probe of {name}"))?;
            let digest = self.look(&to.join(probe::BROUGHT))?;
            (self.brought).add_probe(manifest.flavour, &manifest.backend, digest);
        }
        self.is_native |= manifest.is_native();
        self.backends.insert(manifest.backend.clone());
        Ok(())
    }

    /// Adds the file of a model.
    pub fn add_fixture(&mut self, name: &str, file: &Path) -> Result<()> {
        let dir = self.root().join("target/fixtures");
        fs_err::create_dir_all(&dir)?;
        let to = dir.join(format!("{name}.gguf"));
        fs_err::copy(file, &to)?;
        self.brought.add_fixture(name, Digest::of_file(&to)?);
        Ok(())
    }

    /// Takes note of a program or library, and gives its digest.
    fn look(&mut self, file: &Path) -> Result<Digest> {
        let bytes = fs_err::read(file)?;
        self.glibc = self.glibc.take().max(glibc_of(&bytes));
        Ok(Digest::of(&bytes))
    }

    /// What of it records must name.
    pub fn brought(&self) -> &Brought {
        &self.brought
    }

    /// What rsync leaves out for a host that gets `part`.
    pub fn excludes(&self, part: &Part) -> Vec<String> {
        let backends = self.backends.difference(&part.backends);
        let backends = backends.map(|backend| format!("/target/llama/*/*-{backend}"));
        let fixtures = self.brought.fixtures.keys();
        let fixtures = fixtures.filter(|name| !part.fixtures.contains(*name));
        let fixtures = fixtures.map(|name| format!("/target/fixtures/{name}.gguf"));
        backends.chain(fixtures).collect()
    }

    /// What a host must have for `part`: room for it and for what gates leave.
    pub fn needs(&mut self, part: &Part) -> Result<Needs> {
        if self.sizes.is_empty() {
            for entry in walkdir::WalkDir::new(self.root()) {
                let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
                if entry.file_type().is_file() {
                    let size = fs_err::metadata(entry.path())?.len();
                    self.sizes.insert(entry.into_path(), size);
                }
            }
        }
        let root = self.root();
        let fixtures = root.join("target/fixtures");
        let builds = root.join("target/llama");
        let is_part = |path: &Path| {
            if let Ok(below) = path.strip_prefix(&fixtures) {
                let name = below.file_stem().unwrap_or_default().to_string_lossy();
                return part.fixtures.contains(&*name);
            }
            match path.strip_prefix(&builds) {
                Ok(below) => {
                    let build = below.components().nth(1);
                    let build = build.map(|part| part.as_os_str().to_string_lossy().into_owned());
                    let name = build.unwrap_or_default();
                    part.backends
                        .iter()
                        .any(|backend| name.ends_with(&format!("-{backend}")))
                }
                Err(_) => true,
            }
        };
        let size: u64 = (self.sizes.iter())
            .filter(|(path, _)| is_part(path))
            .map(|(_, size)| size)
            .sum();
        Ok(Needs {
            arch: std::env::consts::ARCH.to_owned(),
            glibc: self.glibc.clone(),
            features: match self.is_native && !part.backends.is_empty() {
                true => features_here(),
                false => BTreeSet::new(),
            },
            space: size + (64 << 20),
        })
    }
}

/// Copies a file or a folder, without what is hidden and without links.
fn copy(from: &Path, to: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
        let below = entry.path().strip_prefix(from).unwrap_or(entry.path());
        let to = match below.as_os_str().is_empty() {
            true => to.to_path_buf(),
            false => to.join(below),
        };
        if entry.file_type().is_dir() {
            fs_err::create_dir_all(&to)?;
        } else if entry.file_type().is_file() {
            if let Some(parent) = to.parent() {
                fs_err::create_dir_all(parent)?;
            }
            fs_err::copy(entry.path(), &to)?;
        }
    }
    Ok(())
}

/// Copies a program without what only a debugger reads, where this machine can take that off.
fn strip(ctx: &Ctx, from: &Path, to: &Path) -> Result<()> {
    let mut command = Command::new("strip");
    command.arg("-o").arg(to).arg(from);
    let done = process::capture(ctx, &mut command);
    match done {
        Ok(done) if done.status.success() && to.is_file() => Ok(()),
        Err(error) if error.kind() == crate::Kind::Interrupted => Err(error),
        _ => {
            fs_err::copy(from, to)?;
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::Lookup;
    use crate::model::{BuildManifest, Compiler};
    use crate::toy::{Toy, put};

    #[test]
    fn a_kit_is_a_checkout_of_the_same_series() {
        let toy = Toy::with_two_patches();
        put(&toy.root().join("gates/g.toml"), "x");
        put(&toy.root().join("registry/hosts.toml"), "secret");
        let (base, series) = (toy.pristine.base.clone(), toy.load());
        let mut kit = Kit::new(&toy.ctx, &base, &series).unwrap();
        let root = kit.root();
        for there in ["xtask", "gates/g.toml", "registry/series.toml", "patches"] {
            assert!(root.join(there).exists(), "{there}");
        }
        assert!(
            !root.join("registry/hosts.toml").exists(),
            "addresses stay here"
        );
        let model = toy.root().join("m");
        put(&model, &"m".repeat(3 << 20));
        kit.add_fixture("small", &model).unwrap();
        let none = Part::default();
        assert_eq!(kit.excludes(&none), ["/target/fixtures/small.gguf"]);
        let mut part = Part::default();
        part.fixtures.insert("small".to_owned());
        assert!(kit.excludes(&part).is_empty());
        let (with, without) = (kit.needs(&part).unwrap(), kit.needs(&none).unwrap());
        assert_eq!(with.space - without.space, 3 << 20);
        assert!(with.glibc.is_some() && with.features.is_empty());
        drop(kit);
        assert!(!root.exists());
    }

    #[test]
    fn a_build_for_another_processor_is_not_brought() {
        let toy = Toy::with_two_patches();
        let base = toy.pristine.base.clone();
        let mut kit = Kit::new(&toy.ctx, &base, &toy.load()).unwrap();
        let machine: &dyn Lookup = &Machine;
        let cc = machine.find("cc").unwrap();
        let compiler = Compiler {
            id: "GNU".to_owned(),
            version: "1".to_owned(),
            path: cc.display().to_string(),
        };
        let dir = toy.root().join("built");
        std::fs::create_dir_all(dir.join("out/bin")).unwrap();
        let mut build = Build {
            dir,
            manifest: BuildManifest {
                schema: 1,
                base: base.id.clone(),
                tree: base.tree,
                flavour: Flavour::Vanilla,
                backend: "vulkan".to_owned(),
                variant: Default::default(),
                patchset: None,
                source: base.tree,
                flags: [("GGML_NATIVE".to_owned(), "ON".to_owned())].into(),
                compilers: [("C".to_owned(), compiler)].into(),
                cmake: String::new(),
                ninja: String::new(),
                launcher: None,
                backend_tools: BTreeMap::new(),
                surroundings: Default::default(),
                artifacts: Vec::new(),
            },
        };
        let processor = |build: &mut Build, digest| {
            build.manifest.surroundings.processor = Some(digest);
        };
        processor(&mut build, Digest::of(b"another"));
        let error = kit.add_build(&toy.ctx, &build).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        assert!(
            error
                .to_string()
                .contains("not what its compiler makes of this one"),
            "{error}"
        );
        let place = kit.root().join("target/llama");
        assert!(!place.exists(), "nothing of it is brought");
        processor(&mut build, build::processor::here(machine, &cc));
        kit.add_build(&toy.ctx, &build).unwrap();
        assert!(kit.is_native && place.exists());
    }

    #[test]
    fn what_a_killed_run_left_goes_with_the_next_one() {
        let toy = Toy::with_two_patches();
        let dead = toy.root().join("target/hosts/kit-dead");
        put(&dead.join(".lock"), "");
        let (alive, _lock) = scratch(&toy.ctx).unwrap();
        assert!(!dead.exists());
        let (_second, _) = scratch(&toy.ctx).unwrap();
        assert!(alive.path().exists(), "its owner lives");
    }
}
