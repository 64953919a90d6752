//! Bases: fetch, check, unpack, and keep them in the shared cache.
//!
//! [`ensure`] is what everything else calls: it finds the base in the cache, or takes it from
//! the first of its sources that delivers exactly the pinned tree. Every source writes through
//! one unpacker (`unpack`), into a temporary folder that is hashed as it lies on the disk and
//! renamed only when the digest is right.

mod archive;
mod cache;
mod child;
mod git;
mod local;
mod pypi;
mod source;
mod unpack;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result};
use crate::model::{Base, Digest, Source};
use crate::tree::{Difference, TreeManifest};
use archive::Selection;
pub use cache::Cached;
use cache::Cache;
use child::Patience;
use unpack::{Exclude, Limits};

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

/// A source that did not deliver.
#[derive(Clone, Debug, Serialize)]
pub struct Failure {
    /// The source, in words.
    pub source: String,
    /// Why.
    pub reason: String,
    #[serde(skip)]
    kind: Kind,
    #[serde(skip)]
    hints: Vec<String>,
    /// What it delivered instead of the pinned tree.
    #[serde(skip)]
    manifest: Option<TreeManifest>,
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

/// The user's programs, and how long each may be silent.
struct Programs {
    git: OsString,
    python: OsString,
    patience: Patience,
    patience_pip: Patience,
}

impl Default for Programs {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Programs {
            git: "git".into(),
            python: "python3".into(),
            patience: git::PATIENCE,
            patience_pip: Patience {
                first: minute,
                idle: minute,
            },
        }
    }
}

struct Vendor<'a> {
    ctx: &'a Ctx,
    cache: Cache,
    programs: Programs,
}

/// A tree that a source delivered, still in its temporary folder.
struct Delivered {
    temp: tempfile::TempDir,
    manifest: TreeManifest,
}

/// How many differing files a message names.
const NAMED: usize = 4;

impl<'a> Vendor<'a> {
    fn new(ctx: &'a Ctx) -> Self {
        Vendor {
            ctx,
            cache: Cache::of(&ctx.project),
            programs: Programs::default(),
        }
    }

    fn obtain(&self, base: &Base, force: bool) -> Result<Obtained> {
        source::check(base)?;
        let sink = &*self.ctx.sink;
        self.cache.sweep_if_idle(sink);
        if !force && let Some(found) = self.found(base)? {
            return Ok(found);
        }
        let _lock = self.cache.lock(sink)?;
        if !force {
            // Another process may have brought it while we waited.
            if let Some(found) = self.found(base)? {
                return Ok(found);
            }
            if let Cached::Incomplete(reason) = self.cache.look(base)? {
                sink.warn(&format!(
                    "{}: {reason}; unpacking it anew",
                    self.cache.entry(base).display()
                ));
            }
        }
        let mut failed = Vec::new();
        for source in &base.source {
            let label = source::label(source);
            match self.attempt(base, source) {
                Ok(delivered) if delivered.manifest.digest() == base.tree => {
                    let Delivered { temp, manifest } = delivered;
                    let pristine = self
                        .cache
                        .install(self.ctx, temp, base, manifest, &label)?;
                    self.report(base, &label, &mut failed, Some(&pristine.manifest));
                    return Ok(Obtained {
                        pristine,
                        origin: label,
                        fresh: true,
                        failed,
                    });
                }
                Ok(delivered) => failed.push(Failure::mismatch(label, base, delivered.manifest)),
                Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                Err(error) => failed.push(Failure::new(label, &error)),
            }
        }
        let known = self.cache.recorded(base);
        explain(&mut failed, known.as_ref());
        Err(self.all_failed(base, failed))
    }

    /// The base, if the cache has it; an error if it is not what it was.
    fn found(&self, base: &Base) -> Result<Option<Obtained>> {
        match self.cache.look(base)? {
            Cached::Absent | Cached::Incomplete(_) => Ok(None),
            Cached::Present(pristine, origin) => Ok(Some(Obtained {
                pristine: *pristine,
                origin,
                fresh: false,
                failed: Vec::new(),
            })),
            Cached::Changed(faults) => Err(Error::finding(format!(
                "the pristine tree of base `{}` was changed after it was unpacked:\n  {}",
                base.id,
                some(&faults, "\n  ")
            ))
            .hint(format!(
                "`cargo xtask vendor --base {} --force` unpacks it anew; if the change is yours, \
                 save it first: {}",
                base.id,
                self.cache.entry(base).join("tree").display()
            ))),
        }
    }

    fn survey(&self, base: &Base) -> Result<Survey> {
        source::check(base)?;
        let _lock = self.cache.lock(&*self.ctx.sink)?;
        let mut failed = Vec::new();
        for source in &base.source {
            let label = source::label(source);
            match self.attempt(base, source) {
                Ok(Delivered { temp: _, manifest }) => {
                    self.report(base, &label, &mut failed, None);
                    let tree = manifest.digest();
                    return Ok(Survey {
                        tree,
                        files: manifest.len(),
                        source: label,
                        pinned: tree == base.tree,
                        failed,
                    });
                }
                Err(error) if error.kind() == Kind::Interrupted => return Err(error),
                Err(error) => failed.push(Failure::new(label, &error)),
            }
        }
        Err(self.all_failed(base, failed))
    }

    /// Unpacks one source into a temporary folder and hashes what then lies on the disk.
    fn attempt(&self, base: &Base, source: &Source) -> Result<Delivered> {
        let (ctx, programs) = (self.ctx, &self.programs);
        if let (Source::Git(_), true) = (source, ctx.offline) {
            return Err(Error::environment("not in the cache, and --offline was given"));
        }
        let temp = self.cache.temp_in(&self.cache.bases())?;
        let tree = temp.path().join("base/tree");
        let exclude = Exclude(&base.exclude);
        match source {
            Source::Git(git) => git::fetch(ctx, programs, git, exclude, temp.path(), &tree)?,
            Source::Pypi(pypi) => {
                let archive = pypi::archive(ctx, programs, &self.cache, pypi)?;
                self.unpack(&archive, &pypi.subdir, exclude, &tree)?;
            }
            Source::Tarball(tarball) => {
                let archive = local::tarball(ctx, tarball)?;
                self.unpack(&archive, &tarball.subdir, exclude, &tree)?;
            }
            Source::Dir(dir) => local::copy(ctx, dir, exclude, &tree)?,
        }
        ctx.cancel.check()?;
        let manifest = TreeManifest::of_tree(&tree, |_| false)?;
        if manifest.is_empty() {
            return Err(Error::finding("it holds no file"));
        }
        Ok(Delivered { temp, manifest })
    }

    fn unpack(
        &self,
        archive: &std::path::Path,
        subdir: &str,
        exclude: Exclude<'_>,
        tree: &std::path::Path,
    ) -> Result<()> {
        let name = archive.file_name().unwrap_or_default().to_string_lossy();
        let task = self.ctx.sink.task(&format!("unpacking {name}"), None);
        let selection = Selection { subdir, exclude };
        let limits = Limits::default();
        let cancel = &self.ctx.cancel;
        let files = archive::unpack(archive, selection, tree, limits, cancel, &*task)?;
        task.finish(&format!("{files} files"));
        Ok(())
    }

    /// One line about the sources that failed before `label` delivered.
    fn report(
        &self,
        base: &Base,
        label: &str,
        failed: &mut [Failure],
        known: Option<&TreeManifest>,
    ) {
        explain(failed, known);
        if failed.is_empty() {
            return;
        }
        let reasons: Vec<String> = failed
            .iter()
            .map(|failure| format!("{}: {}", failure.source, failure.reason))
            .collect();
        self.ctx.sink.warn(&format!(
            "took base {} from {label}; tried before: {}",
            base.id,
            reasons.join("; ")
        ));
    }

    fn all_failed(&self, base: &Base, failed: Vec<Failure>) -> Error {
        let mut message = format!("no source of base `{}` delivers it:", base.id);
        for failure in &failed {
            message.push_str(&format!("\n  {}: {}", failure.source, failure.reason));
        }
        let wrong = failed.iter().any(|failure| failure.kind == Kind::Finding);
        let kind = if wrong {
            Kind::Finding
        } else {
            Kind::Environment
        };
        let mut error = Error::new(kind, message);
        if self.ctx.offline {
            error = error.hint(format!(
                "run `cargo xtask vendor --base {}` once without --offline; all checkouts share \
                 what it fetches",
                base.id
            ));
        }
        let mut told = Vec::new();
        for hint in failed.into_iter().flat_map(|failure| failure.hints) {
            if !told.contains(&hint) {
                told.push(hint.clone());
                error = error.hint(hint);
            }
        }
        error
    }
}

impl Failure {
    fn new(source: String, error: &Error) -> Self {
        Failure {
            source,
            reason: error.to_string(),
            kind: error.kind(),
            hints: error.hints().to_vec(),
            manifest: None,
        }
    }

    fn mismatch(source: String, base: &Base, manifest: TreeManifest) -> Self {
        Failure {
            source,
            reason: format!(
                "its {} files have tree digest {}, pinned is {}",
                manifest.len(),
                manifest.digest(),
                base.tree
            ),
            kind: Kind::Finding,
            hints: vec![format!(
                "if this is a new base, `cargo xtask vendor --base {} --print-digest` prints the \
                 digest to pin in registry/upstreams.toml; otherwise the source has changed, and \
                 nothing of it was kept",
                base.id
            )],
            manifest: Some(manifest),
        }
    }
}

/// Adds the first differing files to the reason of each source that delivered another tree,
/// where it is known what the right one holds.
fn explain(failed: &mut [Failure], known: Option<&TreeManifest>) {
    let Some(known) = known else { return };
    for failure in failed {
        if let Some(manifest) = failure.manifest.take() {
            let lines: Vec<String> = known
                .differences(&manifest)
                .iter()
                .map(ToString::to_string)
                .collect();
            failure.reason = format!("{} ({})", failure.reason, some(&lines, "; "));
        }
    }
}

/// The first few of `lines`, and how many more there are.
fn some(lines: &[String], between: &str) -> String {
    let mut text = lines
        .iter()
        .take(NAMED)
        .cloned()
        .collect::<Vec<_>>()
        .join(between);
    if let Some(more @ 1..) = lines.len().checked_sub(NAMED) {
        text.push_str(&format!("{between}and {more} more"));
    }
    text
}

#[cfg(test)]
mod tests;
