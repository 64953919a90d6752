//! Trying the sources of a base in their order, and saying what came of each.

use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result};
use crate::model::{Base, Source};
use crate::process::Patience;
use crate::tree::TreeManifest;
use crate::vendor::archive::{self, Selection};
use crate::vendor::cache::{Cache, Cached};
use crate::vendor::unpack::{Exclude, Limits};
use crate::vendor::{Obtained, Survey, crates, git, local, pypi, source};

/// The user's programs, and how long each may be silent.
pub(super) struct Programs {
    pub git: OsString,
    pub python: OsString,
    pub cargo: OsString,
    pub patience: Patience,
    pub patience_pip: Patience,
    pub patience_cargo: Patience,
}

impl Default for Programs {
    fn default() -> Self {
        let minute = Duration::from_secs(60);
        Programs {
            git: "git".into(),
            python: "python3".into(),
            // The one that runs us, where one does.
            cargo: std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()),
            patience: git::PATIENCE,
            patience_pip: Patience {
                first: minute,
                idle: minute,
            },
            // Without a terminal it is silent while it downloads.
            patience_cargo: Patience {
                first: 5 * minute,
                idle: 5 * minute,
            },
        }
    }
}

/// The work on one base.
pub(super) struct Vendor<'a> {
    ctx: &'a Ctx,
    cache: Cache,
    pub programs: Programs,
}

/// A tree that a source delivered, still in its temporary folder.
struct Delivered {
    temp: tempfile::TempDir,
    manifest: TreeManifest,
}

/// How many differing files a message names.
const NAMED: usize = 4;

impl<'a> Vendor<'a> {
    pub(super) fn new(ctx: &'a Ctx) -> Self {
        Vendor {
            ctx,
            cache: Cache::of(&ctx.project),
            programs: Programs::default(),
        }
    }

    pub(super) fn obtain(&self, base: &Base, force: bool) -> Result<Obtained> {
        source::check(base)?;
        let sink = &*self.ctx.sink;
        self.cache.sweep_if_idle(sink);
        if !force && let Some(found) = self.found(base)? {
            return Ok(found);
        }
        let _lock = self.cache.lock(self.ctx)?;
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
                    let pristine = self.cache.install(self.ctx, temp, base, manifest, &label)?;
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

    pub(super) fn survey(&self, base: &Base) -> Result<Survey> {
        source::check(base)?;
        let _lock = self.cache.lock(self.ctx)?;
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
            return Err(Error::environment(
                "not in the cache, and --offline was given",
            ));
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
            Source::Crates(source) => {
                let archive = crates::archive(ctx, programs, &self.cache, source)?;
                self.unpack(&archive, &source.subdir, exclude, &tree)?;
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
        archive: &Path,
        subdir: &str,
        exclude: Exclude<'_>,
        tree: &Path,
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
pub(super) fn some(lines: &[String], between: &str) -> String {
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
