//! Tools, CMake, ninja, stamps and build manifests.
//!
//! ```text
//! target/llama/<base>/<flavour>-<backend>/
//!   src              symbolic link to the tree that is built
//!   ext/             the Rust library and its header (patched builds)
//!   tools/           what is called in the place of glslc (Vulkan builds)
//!   out/             CMake's folder; programs and libraries are in out/bin
//!   configure.json   what CMake was asked for
//!   source.manifest  the sources that Ninja was last run on
//!   build.json       provenance; there only while it is true
//!   build.log        Ninja's output
//! ```
//!
//! Every build folder sees its inputs at the same relative paths. That, with
//! `-ffile-prefix-map`, makes the same source give the same bytes in every folder, and lets a
//! compiler cache serve one folder from what another one compiled.
//!
//! [`ensure`] always runs Ninja, which takes a moment when nothing changed. CMake is called only
//! when what it is asked for changed, and all is removed first when something changed that Ninja
//! cannot see: compilers, processor, environment, or a source with an old time stamp.

mod cache;
mod commands;
mod configure;
pub mod cuda;
pub mod debian;
pub mod drift;
mod engine;
mod ext;
mod inputs;
pub mod launcher;
pub mod lookup;
mod manifest;
mod ninja;
mod options;
pub mod packages;
pub mod processor;
pub mod provenance;
pub mod provision;
mod shaders;
mod source;
pub mod stamp;
#[cfg(test)]
pub mod testing;
pub mod tools;
pub mod vulkan;

use std::path::{Path, PathBuf};

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Base, BuildManifest, Digest, Flavour, PatchSetStamp, Variant};
use lookup::Lookup;

pub use commands::{ChangedCommand, CommandDifferences, compare_commands};
pub use ext::rustc;
pub use inputs::inputs;
pub use manifest::{BESIDE, Difference, FlagDifference, check, check_artifacts, compare_flags};
pub use options::{backend, compile_flags};

/// Programs that are built.
pub const TARGETS: [&str; 2] = ["llama-server", "llama-bench"];

/// A finished build: its folder, and what its manifest says of it.
#[derive(Clone, Debug)]
pub struct Build {
    /// `target/llama/<base>/<flavour>-<backend>`.
    pub dir: PathBuf,
    /// Provenance.
    pub manifest: BuildManifest,
}

impl Build {
    /// Path of the built program `name`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("out/bin").join(name)
    }

    /// The build in its folder as it was left; `None` where none was finished. Whether its
    /// files are still those, [`check`] says.
    pub fn find(ctx: &Ctx, base: &str, flavour: Flavour, backend: &str) -> Result<Option<Self>> {
        Self::find_variant(ctx, base, flavour, backend, Variant::default())
    }

    /// As [`Build::find`], of a variant.
    pub fn find_variant(
        ctx: &Ctx,
        base: &str,
        flavour: Flavour,
        backend: &str,
        variant: Variant,
    ) -> Result<Option<Self>> {
        let kind = format!("{backend}{}", variant.suffix());
        Self::read_in_place(ctx.project.build_dir(base, flavour, &kind))
    }

    /// All finished builds of `base`, of whatever backend, sorted by folder.
    pub fn all(ctx: &Ctx, base: &str) -> Result<Vec<Self>> {
        let mut list = Vec::new();
        let entries = match fs_err::read_dir(ctx.project.builds(base)) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(list),
            entries => entries?,
        };
        for entry in entries {
            list.extend(Self::read_in_place(entry?.path())?);
        }
        list.sort_by(|a, b| a.dir.cmp(&b.dir));
        Ok(list)
    }

    /// The finished build that the program at `path` belongs to; `None` where it lies elsewhere.
    pub fn of_program(path: &Path) -> Result<Option<Self>> {
        let bin = path.parent().filter(|bin| bin.ends_with("out/bin"));
        match bin.and_then(|bin| bin.ancestors().nth(2)) {
            Some(dir) => Self::read(dir.to_path_buf()),
            None => Ok(None),
        }
    }

    /// The finished build in a folder whose name says what it must be: one that was put into the place of another,
    /// vanilla in that of patched, is a finding.
    pub(crate) fn read_in_place(dir: PathBuf) -> Result<Option<Self>> {
        let found = Self::read(dir)?;
        if let Some(Build { dir, manifest }) = &found {
            let kind = format!("{}{}", manifest.backend, manifest.variant.suffix());
            let name = format!("{}-{kind}", manifest.flavour);
            let place: PathBuf = [&*manifest.base, &*name].iter().collect();
            let probe: PathBuf = [&*manifest.base, &*format!("{name}-probe")]
                .iter()
                .collect();
            if !dir.ends_with(&place) && !dir.ends_with(&probe) {
                return Err(Error::finding(format!(
                    "{} holds the {} build of {} for {kind}, as its {} says",
                    dir.display(),
                    manifest.flavour,
                    manifest.base,
                    manifest::FILE
                ))
                .hint("put it back where it was, or remove it and run cargo xtask build"));
            }
        }
        Ok(found)
    }

    fn read(dir: PathBuf) -> Result<Option<Self>> {
        let file = dir.join(manifest::FILE);
        if !file.is_file() {
            return Ok(None);
        }
        let manifest = crate::model::read_json(&file)
            .hint(|| "cargo xtask build writes it anew".to_owned())?;
        Ok(Some(Build { dir, manifest }))
    }
}

/// What to build: a tree and where it comes from.
#[derive(Clone, Debug)]
pub struct Recipe {
    /// Base id.
    pub base: String,
    /// Upstream commit; may be empty.
    pub commit: String,
    /// Upstream build number; 0 where unknown.
    pub build_number: u32,
    /// Digest of the base's manifest.
    pub tree: Digest,
    /// Which tree it is.
    pub flavour: Flavour,
    /// `cpu`, `vulkan` or `cuda`.
    pub backend: String,
    /// What is asked of a build for CUDA.
    pub cuda: cuda::Wish,
    /// How it is made besides.
    pub variant: Variant,
    /// The folder that holds the tree.
    pub source: PathBuf,
    /// Digest of the manifest that the folder had when the rest of the recipe was written. A
    /// build may wait for minutes before it reads its sources.
    pub content: Digest,
    /// The patch set, for patched trees.
    pub patchset: Option<PatchSetStamp>,
    /// Ninja targets.
    pub targets: Vec<String>,
}

impl Recipe {
    /// `llama-0.5.0 vanilla-cpu`.
    pub fn name(&self) -> String {
        format!("{} {}-{}", self.base, self.flavour, self.kind())
    }

    /// The build folder.
    pub fn dir(&self, ctx: &Ctx) -> PathBuf {
        ctx.project
            .build_dir(&self.base, self.flavour, &self.kind())
    }

    /// Backend and variant, as the build folder's name has them.
    fn kind(&self) -> String {
        match self.cuda.probe {
            true => "cuda-probe".to_owned(),
            false => format!("{}{}", self.backend, self.variant.suffix()),
        }
    }
}

/// Builds `flavour` of `base` for `backend` where anything changed, else finds it done.
///
/// Artifacts that were changed after they were built are named in a warning and made again.
pub fn ensure(ctx: &Ctx, base: &Base, flavour: Flavour, backend: &str) -> Result<Build> {
    ensure_variant(ctx, base, flavour, backend, Variant::default(), false)
}

/// As [`ensure`], of a variant; with `force` after removing all that was built before.
pub fn ensure_variant(
    ctx: &Ctx,
    base: &Base,
    flavour: Flavour,
    backend: &str,
    variant: Variant,
    force: bool,
) -> Result<Build> {
    ensure_with(
        ctx,
        &lookup::Machine,
        base,
        flavour,
        backend,
        variant,
        force,
    )
}

/// As [`ensure_variant`], with tools found by `lookup`.
pub fn ensure_with(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    base: &Base,
    flavour: Flavour,
    backend: &str,
    variant: Variant,
    force: bool,
) -> Result<Build> {
    let mut recipe = recipe(ctx, base, flavour, backend)?;
    recipe.variant = variant;
    build_with(ctx, lookup, &recipe, force)
}

/// Builds a recipe with the tools of this machine; `force` removes first what is there.
pub fn build(ctx: &Ctx, recipe: &Recipe, force: bool) -> Result<Build> {
    build_with(ctx, &lookup::Machine, recipe, force)
}

/// As [`build`], with tools found by `lookup`.
pub fn build_with(ctx: &Ctx, lookup: &dyn Lookup, recipe: &Recipe, force: bool) -> Result<Build> {
    engine::run(ctx, lookup, recipe, force)
}

fn recipe(ctx: &Ctx, base: &Base, flavour: Flavour, backend: &str) -> Result<Recipe> {
    // A wrong name must not cost a download.
    options::backend(backend)?;
    if base.partial {
        return Err(Error::usage(format!(
            "base `{}` is partial: its tree lacks folders that a build needs",
            base.id
        ))
        .hint("patches can be moved to it and compared; to build, take a base without `partial` in registry/upstreams.toml"));
    }
    let pristine = crate::vendor::ensure(ctx, base)?;
    let tree = pristine.manifest.digest();
    let (source, content, patchset) = match flavour {
        Flavour::Vanilla => (pristine.root.clone(), tree, None),
        Flavour::Patched => {
            let working = crate::patchset::applied(ctx, &pristine)?;
            let stamp = PatchSetStamp {
                id: working.series.id,
                patches: working.series.ids(),
            };
            (working.root, working.manifest.digest(), Some(stamp))
        }
    };
    Ok(Recipe {
        base: base.id.clone(),
        commit: base.commit.clone(),
        build_number: base.build_number,
        tree,
        flavour,
        backend: backend.to_owned(),
        cuda: cuda::Wish::default(),
        variant: Variant::default(),
        source,
        content,
        patchset,
        targets: TARGETS.map(str::to_owned).to_vec(),
    })
}
