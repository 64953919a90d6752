//! Bases: fetch, check, unpack, and keep them in the shared cache.
//!
//! [`ensure`] is what everything else calls: it finds the base in the cache, or takes it from
//! the first of its sources that delivers exactly the pinned tree. Every source writes through
//! one unpacker (`unpack`), into a temporary folder that is hashed as it lies on the disk and
//! renamed only when the digest is right.

mod archive;
mod cache;
mod crates;
mod download;
mod git;
mod local;
mod obtain;
mod pypi;
mod source;
mod unpack;

use std::path::PathBuf;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Base, Digest};
use crate::tree::{Difference, TreeManifest};
use cache::Cache;
pub use cache::Cached;
pub use obtain::Failure;
use obtain::{Programs, Vendor};

/// An unpacked base whose manifest has the pinned digest.
#[derive(Clone, Debug)]
pub struct Pristine {
    /// The base.
    pub base: Base,
    /// The folder that holds the tree. Read-only by convention: everything else copies from it.
    pub root: PathBuf,
    /// Its per-file manifest.
    pub manifest: TreeManifest,
}

impl Pristine {
    /// Whether it can be built at all: there is a top-level `CMakeLists.txt`.
    pub fn is_buildable(&self) -> bool {
        self.manifest
            .iter()
            .any(|(path, _)| path.as_str() == "CMakeLists.txt")
    }
}

/// A base, and how it got into the cache.
#[derive(Clone, Debug)]
pub struct Obtained {
    /// The base.
    pub pristine: Pristine,
    /// The source that it was unpacked from, now or earlier.
    pub origin: String,
    /// Whether it was unpacked now.
    pub fresh: bool,
    /// The sources that were tried before and did not deliver.
    pub failed: Vec<Failure>,
}

/// What a source holds, whatever is pinned.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// Digest of the tree.
    pub tree: Digest,
    /// Number of files.
    pub files: usize,
    /// The source.
    pub source: String,
    /// Whether `tree` is what the registry pins.
    pub pinned: bool,
    /// The sources that were tried before and did not deliver.
    pub failed: Vec<Failure>,
}

/// Brings `base` into the cache from its first source that answers, or finds it there. Fast
/// where it is there: sizes and time stamps are looked at, not contents.
pub fn ensure(ctx: &Ctx, base: &Base) -> Result<Pristine> {
    obtain(ctx, base, false).map(|obtained| obtained.pristine)
}

/// Like [`ensure`], and says how. With `force` it is unpacked anew even if it is there.
///
/// A tree in the cache that was changed is an error: only `force` throws it away.
pub fn obtain(ctx: &Ctx, base: &Base, force: bool) -> Result<Obtained> {
    Vendor::new(ctx).obtain(base, force)
}

/// What the first source of `base` that answers holds; leaves only its archive in the cache.
pub fn survey(ctx: &Ctx, base: &Base) -> Result<Survey> {
    Vendor::new(ctx).survey(base)
}

/// What the cache holds for `base`; fetches nothing.
pub fn look(ctx: &Ctx, base: &Base) -> Result<Cached> {
    source::check(base)?;
    Cache::of(&ctx.project).look(base)
}

/// `base` as its manifest says, where the cache holds it. Its files are not looked at, as [`look`]
/// does: for whoever checks each of them that it reads, as images and working trees are made.
pub fn recorded(ctx: &Ctx, base: &Base) -> Result<Option<Pristine>> {
    source::check(base)?;
    Ok(Cache::of(&ctx.project).entire(base))
}

/// The folder that `base` has in the cache, whether or not it is there.
pub fn place(ctx: &Ctx, base: &Base) -> PathBuf {
    Cache::of(&ctx.project).entry(base)
}

/// Hashes every file of the cached base: where it is not what is pinned. An error where the
/// base is not in the cache.
pub fn check(ctx: &Ctx, base: &Base) -> Result<Vec<Difference>> {
    source::check(base)?;
    let cache = Cache::of(&ctx.project);
    let Some(recorded) = cache.recorded(base) else {
        return Err(
            Error::environment(format!("base `{}` is not in the cache", base.id)).hint(format!(
                "`cargo xtask vendor --base {}` brings it there",
                base.id
            )),
        );
    };
    let tree = cache.entry(base).join("tree");
    if !tree.is_dir() {
        return Ok(recorded.differences(&TreeManifest::default()));
    }
    let found = TreeManifest::of_tree(&tree, |_| false)
        .map_err(|error| error.context(format!("hashing {}", tree.display())))?;
    Ok(recorded.differences(&found))
}

#[cfg(test)]
mod tests;
