//! What a sync keeps on the disk between two commands.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Base, Digest, Retired, read_json, read_toml, write_atomic, write_json};
use crate::patchset::Series;
use crate::sync::port::{Conflict, Decisions};
use crate::sync::session::Choices;
use crate::sync::{conflict, stage};
use crate::tree::RelPath;

/// `session.json`.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Session {
    pub schema: u32,
    pub from: String,
    pub to: String,
    /// Digest of the series that is carried over: it must not change under a sync.
    pub patchset: Digest,
    /// The working tree of the new base as it was: absent, or with that many patches.
    pub tree: Option<usize>,
    pub skip: BTreeSet<String>,
    pub retire: BTreeSet<String>,
    pub keep: BTreeSet<String>,
    /// For each patch, its files and the digests of their contents.
    pub solved: BTreeMap<String, BTreeMap<RelPath, Digest>>,
    /// The working tree of the new base is ours: it shows conflicts and solutions.
    pub shown: bool,
    pub stopped: Option<Stopped>,
    /// The id of the new series, from the moment when it is about to be written.
    pub result: Option<Digest>,
    pub history: Option<PathBuf>,
}

/// The conflict that the working tree shows.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Stopped {
    pub patch: String,
    /// The patch set that the working tree was put at.
    pub tree: Digest,
    /// Digests of the files as they were marked.
    pub marked: BTreeMap<RelPath, Digest>,
}

/// Called before every change to the disk; tests make it fail, as a kill would.
pub(super) fn step() -> Result<()> {
    #[cfg(test)]
    return crate::tree::fault::step();
    #[cfg(not(test))]
    Ok(())
}

/// `vendor/.sync`.
pub(super) fn folder(ctx: &Ctx) -> PathBuf {
    ctx.project.vendor().join(".sync")
}

/// Where a content is kept while a sync goes on.
pub(super) fn stored(ctx: &Ctx, digest: &Digest) -> PathBuf {
    folder(ctx).join("files").join(digest.to_string())
}

fn store(ctx: &Ctx, content: &[u8]) -> Result<Digest> {
    let digest = Digest::of(content);
    step()?;
    write_atomic(&stored(ctx, &digest), content)?;
    Ok(digest)
}

impl Session {
    fn path(ctx: &Ctx) -> PathBuf {
        folder(ctx).join("session.json")
    }

    pub fn open(ctx: &Ctx) -> Result<Option<Session>> {
        let path = Session::path(ctx);
        if !path.exists() {
            return Ok(None);
        }
        let session: Session = read_json(&path).hint(|| {
            format!(
                "remove {} if it cannot be mended; solved files lie beside it",
                ctx.project.show(&path)
            )
        })?;
        if session.schema != 1 {
            return Err(Error::config("a sync of another version of this program")
                .context(ctx.project.show(&path)));
        }
        Ok(Some(session))
    }

    pub fn must_be_open(ctx: &Ctx) -> Result<Session> {
        Session::open(ctx)?.ok_or_else(|| {
            Error::usage("no sync is going on").hint("cargo xtask sync BASE begins one")
        })
    }

    pub fn begin(ctx: &Ctx, from: &Base, to: &Base) -> Result<Session> {
        if from.id == to.id {
            return Err(
                Error::usage(format!("the series stands on {} already", to.id))
                    .hint("name another base; registry/upstreams.toml lists them"),
            );
        }
        let series = Series::load(&ctx.project, from)?;
        if series.patches.is_empty() {
            return Err(Error::usage(format!("{} has no series", from.id))
                .hint("--from names the base that the series comes from"));
        }
        Ok(Session {
            schema: 1,
            from: from.id.clone(),
            to: to.id.clone(),
            patchset: series.id,
            tree: stage::position(ctx, to)?,
            skip: BTreeSet::new(),
            retire: BTreeSet::new(),
            keep: BTreeSet::new(),
            solved: BTreeMap::new(),
            shown: false,
            stopped: None,
            result: None,
            history: None,
        })
    }

    /// Takes what the user decided. Refused are patches that are not there, and decisions about
    /// what earlier solutions stand on.
    pub fn choose(&mut self, ctx: &Ctx, choices: &Choices) -> Result<()> {
        let from = ctx.project.base(Some(&self.from))?;
        let series = Series::load(&ctx.project, &from)?;
        let stopped = self.stopped.as_ref().map(|stopped| &stopped.patch);
        let mut behind = 0;
        for id in self.solved.keys().chain(stopped) {
            behind = behind.max(series.position(id)?);
        }
        let named = choices
            .skip
            .iter()
            .chain(&choices.retire)
            .chain(&choices.keep);
        for id in named {
            if series.position(id)? <= behind && Some(id) != stopped {
                return Err(Error::usage(format!(
                    "solved conflicts stand on what was decided about `{id}`"
                ))
                .hint("cargo xtask sync --abort, and begin again; solutions are remembered"));
            }
        }
        let twice = |a: &[String], b: &[String]| a.iter().find(|id| b.contains(id)).cloned();
        let both = twice(&choices.skip, &choices.retire)
            .or_else(|| twice(&choices.skip, &choices.keep))
            .or_else(|| twice(&choices.retire, &choices.keep));
        if let Some(id) = both {
            return Err(Error::usage(format!("two things are said of `{id}`"))
                .hint("say one of --skip-patch, --retire and --keep"));
        }
        self.skip.extend(choices.skip.iter().cloned());
        self.retire.extend(choices.retire.iter().cloned());
        self.keep.extend(choices.keep.iter().cloned());
        if let Some(dir) = &choices.history {
            self.history = Some(std::path::absolute(dir)?);
        }
        Ok(())
    }

    pub fn decisions(&self, ctx: &Ctx) -> Result<Decisions> {
        let mut solved = BTreeMap::new();
        for (patch, files) in &self.solved {
            let mut contents = BTreeMap::new();
            for (path, digest) in files {
                let content = fs_err::read(stored(ctx, digest))?;
                if Digest::of(&content) != *digest {
                    return Err(
                        Error::finding(format!("the solution of {path} was damaged"))
                            .hint("cargo xtask sync --abort, and begin again"),
                    );
                }
                contents.insert(path.clone(), content);
            }
            solved.insert(patch.clone(), contents);
        }
        // What is retired for the new base does not come back by itself.
        let mut skip = self.skip.clone();
        let retired = ctx.project.registry("retired.toml");
        if retired.exists() {
            let file: Retired = read_toml(&retired)?;
            let here = |base: &Option<String>| base.as_ref().is_none_or(|base| *base == self.to);
            let gone = file.patch.into_iter().filter(|patch| here(&patch.base));
            skip.extend(
                gone.map(|patch| patch.id)
                    .filter(|id| !self.keep.contains(id)),
            );
        }
        Ok(Decisions {
            skip,
            retire: self.retire.clone(),
            keep: self.keep.clone(),
            solved,
        })
    }

    pub fn solve(
        &mut self,
        ctx: &Ctx,
        patch: &str,
        files: &BTreeMap<RelPath, Vec<u8>>,
    ) -> Result<()> {
        let mut digests = BTreeMap::new();
        for (path, content) in files {
            digests.insert(path.clone(), store(ctx, content)?);
        }
        self.solved.insert(patch.to_owned(), digests);
        self.save(ctx)
    }

    /// Writes down that the sync stops at `conflict`; returns the files with conflicts.
    pub fn stop(
        &mut self,
        ctx: &Ctx,
        conflict: &Conflict,
        tree: Digest,
    ) -> Result<BTreeMap<RelPath, usize>> {
        let mut marked = BTreeMap::new();
        let mut files = BTreeMap::new();
        for (path, text) in &conflict.files {
            let regions = conflict::regions(text).len();
            if regions > 0 {
                marked.insert(path.clone(), store(ctx, text)?);
                files.insert(path.clone(), regions);
            }
        }
        self.stopped = Some(Stopped {
            patch: conflict.patch.clone(),
            tree,
            marked,
        });
        self.save(ctx)?;
        Ok(files)
    }

    pub fn save(&self, ctx: &Ctx) -> Result<()> {
        step()?;
        write_json(&Session::path(ctx), self)
    }

    /// Takes the session away; solutions stay.
    pub fn end(&self, ctx: &Ctx) -> Result<()> {
        for path in [Session::path(ctx), folder(ctx).join("files")] {
            step()?;
            let gone = if path.is_dir() {
                std::fs::remove_dir_all(&path)
            } else {
                std::fs::remove_file(&path)
            };
            match gone {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).context(|| format!("removing {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }
}
