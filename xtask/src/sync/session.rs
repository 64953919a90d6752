//! A sync from its beginning to its end, over as many commands as it takes.
//!
//! What is kept between them is only what a person decided: patches to skip, retire or keep, and
//! what files look like where lines stood against each other. Everything else is computed anew,
//! so that a machine that stops in the middle loses nothing.
//!
//! ```text
//! vendor/.sync/lock              held while a sync works
//! vendor/.sync/session.json      the decisions, and where it stopped
//! vendor/.sync/files/<digest>    solved files, and files as they were marked
//! vendor/.sync/solutions/        see memory.rs; outlives the sync
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::diff::{self, lines_of};
use crate::error::{Error, Result};
use crate::lock::{self, Lock};
use crate::model::Base;
use crate::patchset::{self, Images, Patch, Series};
use crate::sync::history::History;
use crate::sync::port::{Port, port};
use crate::sync::proof::{Proof, prove};
use crate::sync::store::{Session, Stopped, folder, stored};
use crate::sync::{conflict, memory, record, stage};
use crate::tree::RelPath;
use crate::vendor::{self, Pristine};

/// What a user asks of a sync.
#[derive(Clone, Debug, Default)]
pub struct Choices {
    /// Patches to leave out.
    pub skip: Vec<String>,
    /// Patches to retire.
    pub retire: Vec<String>,
    /// Patches to keep although they seem to be upstream.
    pub keep: Vec<String>,
    /// A clone of upstream, for the commits that touched a place.
    pub history: Option<PathBuf>,
    /// Lines of hooks that a solution changes or leaves out are meant so.
    pub accept_changes: bool,
}

/// How a step of a sync ended.
#[derive(Debug)]
pub struct Step {
    /// The base that the series comes from.
    pub from: Base,
    /// The base that it goes to.
    pub to: Base,
    /// Both, unpacked.
    pub pristine: (Pristine, Pristine),
    /// The series on the old base.
    pub old: Series,
    /// What became of each patch.
    pub port: Port,
    /// How it ended.
    pub end: End,
    /// Conflicts that were solved from memory in this step.
    pub recalled: usize,
}

/// See [`Step`].
#[derive(Debug)]
pub enum End {
    /// Only looked at; nothing was written.
    Looked {
        /// The proof, where the series is whole.
        proof: Option<Proof>,
    },
    /// Done: the registry has the new series.
    Done {
        /// The proof.
        proof: Proof,
        /// The series on the new base.
        series: Box<Series>,
        /// Files of the checkout that changed.
        files: Vec<RelPath>,
    },
    /// The working tree shows a conflict.
    Conflict {
        /// The patch.
        patch: String,
        /// The files with markers, and how many conflicts each has.
        files: BTreeMap<RelPath, usize>,
        /// The working tree.
        tree: String,
    },
    /// A decision is needed that is none about lines. Nothing was written.
    Decide {
        /// The patch.
        patch: String,
    },
}

/// What a sync would do. Writes nothing.
pub fn look(ctx: &Ctx, from: &Base, to: &Base, choices: &Choices) -> Result<Step> {
    let mut session = Session::begin(ctx, from, to)?;
    session.choose(choices);
    let mut work = Work::load(ctx, &session)?;
    let (port, recalled) = work.port(ctx, &mut session, false)?;
    let proof = if port.complete {
        let series = Series::of(&ctx.project, &work.new.base, port.patches.clone())?;
        Some(prove(&work.old, &work.series, &work.new, &series)?)
    } else {
        None
    };
    Ok(work.step(port, End::Looked { proof }, recalled))
}

/// Begins a sync and goes as far as it goes without a person.
pub fn begin(ctx: &Ctx, from: &Base, to: &Base, choices: &Choices) -> Result<Step> {
    let _lock = hold(ctx)?;
    if let Some(open) = Session::open(ctx)? {
        return Err(Error::usage(format!(
            "a sync from {} to {} is not finished",
            open.from, open.to
        ))
        .hint(
            "cargo xtask sync --continue goes on, --skip leaves the patch out, --abort ends it",
        ));
    }
    let mut session = Session::begin(ctx, from, to)?;
    session.choose(choices);
    advance(ctx, session)
}

/// Takes what the working tree shows as the solution, and goes on.
pub fn resume(ctx: &Ctx, choices: &Choices) -> Result<Step> {
    let _lock = hold(ctx)?;
    let mut session = Session::must_be_open(ctx)?;
    session.choose(choices);
    if let Some(stopped) = session.stopped.clone()
        && !session.skip.contains(&stopped.patch)
        && !session.retire.contains(&stopped.patch)
    {
        let work = Work::load(ctx, &session)?;
        work.take(ctx, &mut session, &stopped, choices.accept_changes)?;
    }
    advance(ctx, session)
}

/// Leaves the patch out that the sync stopped at, and goes on.
pub fn skip(ctx: &Ctx, choices: &Choices) -> Result<Step> {
    let _lock = hold(ctx)?;
    let mut session = Session::must_be_open(ctx)?;
    session.choose(choices);
    let Some(stopped) = &session.stopped else {
        return Err(
            Error::usage("the sync has not stopped at a patch").hint("cargo xtask sync --continue")
        );
    };
    session.skip.insert(stopped.patch.clone());
    advance(ctx, session)
}

/// What `abort` did.
#[derive(Clone, Debug, Serialize)]
pub struct Aborted {
    /// The base that was left.
    pub from: String,
    /// The base that was aimed at.
    pub to: String,
    /// Where edits in the working tree were put.
    pub saved_to: Option<String>,
}

/// Ends a sync: the working tree is what it was before. Edits made meanwhile are kept aside.
pub fn abort(ctx: &Ctx) -> Result<Aborted> {
    let _lock = hold(ctx)?;
    let session = Session::must_be_open(ctx)?;
    let to = ctx.project.base(Some(&session.to))?;
    let pristine = vendor::ensure(ctx, &to)?;
    let series = Series::load(&ctx.project, &to)?;
    let saved_to = stage::put_back(ctx, &pristine, &series, session.tree)?;
    session.end(ctx)?;
    Ok(Aborted {
        from: session.from,
        to: session.to,
        saved_to,
    })
}

fn hold(ctx: &Ctx) -> Result<Lock> {
    let dir = folder(ctx);
    fs_err::create_dir_all(&dir)?;
    lock::file(ctx, &dir.join("lock"))
}

/// Goes on until it is done or a person is needed.
fn advance(ctx: &Ctx, mut session: Session) -> Result<Step> {
    let mut work = Work::load(ctx, &session)?;
    let (port, recalled) = work.port(ctx, &mut session, true)?;
    if port.complete {
        let series = Series::of(&ctx.project, &work.new.base, port.patches.clone())?;
        let proof = prove(&work.old, &work.series, &work.new, &series)?;
        // The tree first: edits that would be lost refuse before anything is written.
        let there = Series::load(&ctx.project, &work.new.base)?;
        if !session.shown {
            stage::refuse_edits(ctx, &work.new, &there)?;
        }
        let retired = session.retired(&port);
        let files = record::write(ctx, &work.new, &there, &series, &retired)?;
        let series = Series::load(&ctx.project, &work.new.base)?;
        let all = series.patches.len();
        patchset::apply(ctx, &work.new, &series, all, session.shown)?;
        session.end(ctx)?;
        let end = End::Done {
            proof,
            series: Box::new(series),
            files,
        };
        return Ok(work.step(port, end, recalled));
    }
    let Some(conflict) = port.conflict.clone() else {
        let patch = port
            .reports
            .iter()
            .find(|report| !report.verdict.is_automatic())
            .map(|report| report.patch.clone())
            .unwrap_or_default();
        // What was decided so far stays; without any of it there is nothing to come back to.
        if session.shown || !session.solved.is_empty() {
            session.stopped = None;
            session.save(ctx)?;
        }
        return Ok(work.step(port, End::Decide { patch }, recalled));
    };
    // In this order: a kill before the tree is there must not leave a session that takes the
    // tree as it was for a solution.
    let ours = std::mem::replace(&mut session.shown, true);
    session.stopped = None;
    session.save(ctx)?;
    let (tree, patchset) = stage::show(ctx, &work.new, &work.series, &port, &conflict, ours)?;
    let files = session.stop(ctx, &conflict, patchset)?;
    let end = End::Conflict {
        patch: conflict.patch.clone(),
        files,
        tree,
    };
    Ok(work.step(port, end, recalled))
}

/// What a step works on.
struct Work {
    old: Pristine,
    new: Pristine,
    series: Series,
    history: History,
}

impl Work {
    fn load(ctx: &Ctx, session: &Session) -> Result<Work> {
        let from = ctx.project.base(Some(&session.from))?;
        let to = ctx.project.base(Some(&session.to))?;
        let series = Series::load(&ctx.project, &from)?;
        if series.id != session.patchset {
            return Err(Error::finding(format!(
                "the series of {} changed since the sync began",
                from.id
            ))
            .hint("cargo xtask sync --abort, and begin again"));
        }
        let history = match &session.history {
            Some(dir) => History::of(ctx, dir.clone(), &from, &to)?,
            None => History::none(),
        };
        Ok(Work {
            old: vendor::ensure(ctx, &from)?,
            new: vendor::ensure(ctx, &to)?,
            series,
            history,
        })
    }

    fn step(self, port: Port, end: End, recalled: usize) -> Step {
        Step {
            from: self.old.base.clone(),
            to: self.new.base.clone(),
            pristine: (self.old, self.new),
            old: self.series,
            port,
            end,
            recalled,
        }
    }

    /// The port, with every conflict solved that is remembered.
    fn port(&mut self, ctx: &Ctx, session: &mut Session, write: bool) -> Result<(Port, usize)> {
        let mut recalled = 0;
        let mut decisions = session.decisions(ctx)?;
        for id in decisions.named() {
            self.series.position(id)?;
        }
        loop {
            let port = port(
                ctx,
                &self.old,
                &self.series,
                &self.new,
                &decisions,
                &self.history,
            )?;
            let Some(conflict) = &port.conflict else {
                return Ok((port, recalled));
            };
            let mut solved = BTreeMap::new();
            for (path, text) in &conflict.files {
                let regions = conflict::regions(text).len();
                if regions == 0 {
                    solved.insert(path.clone(), text.clone());
                } else if let Some(text) = memory::recall(ctx, text) {
                    recalled += regions;
                    solved.insert(path.clone(), text);
                }
            }
            let whole = solved.len() == conflict.files.len()
                && conflict
                    .files
                    .values()
                    .any(|text| !conflict::regions(text).is_empty());
            if !whole {
                return Ok((port, recalled));
            }
            if write {
                session.solve(ctx, &conflict.patch, &solved)?;
            }
            decisions.solved.insert(conflict.patch.clone(), solved);
        }
    }

    /// Reads the solution of `stopped` out of the working tree.
    fn take(
        &self,
        ctx: &Ctx,
        session: &mut Session,
        stopped: &Stopped,
        accept_changes: bool,
    ) -> Result<()> {
        let root = ctx.project.working_tree(&self.new.base.id);
        let state = patchset::read_state(&root)?;
        if state.is_none_or(|state| state.patchset != stopped.tree) {
            return Err(Error::finding(format!(
                "{} is not as the sync left it: another command moved it",
                ctx.project.show(&root)
            ))
            .hint("cargo xtask sync --abort, and begin again; solved conflicts are remembered"));
        }
        let decisions = session.decisions(ctx)?;
        let port = port(
            ctx,
            &self.old,
            &self.series,
            &self.new,
            &decisions,
            &self.history,
        )?;
        let series = Series::of(&ctx.project, &self.new.base, port.patches.clone())?;
        let images = Images::compute(&self.new, &series)?;
        let patch = self
            .series
            .patches
            .iter()
            .find(|patch| patch.id() == stopped.patch)
            .ok_or_else(|| Error::internal("the stopped patch is not in the series"))?;
        let solved = stage::solution(ctx, &self.new, &images, patch)?;
        for (path, text) in &solved {
            if let Some(line) = conflict::first_marker(text) {
                return Err(
                    Error::finding(format!("{path}:{line} still has a conflict marker"))
                        .hint("solve it, then cargo xtask sync --continue"),
                );
            }
        }
        if !accept_changes {
            refuse_lost_lines(patch, &solved)?;
        }
        for (path, digest) in &stopped.marked {
            let marked = fs_err::read(stored(ctx, digest))?;
            if let Some(text) = solved.get(path) {
                memory::remember(ctx, &marked, text)?;
            }
        }
        session.stopped = None;
        session.solve(ctx, &stopped.patch, &solved)
    }
}

/// Refuses a solution in which a line of a hook is nowhere.
fn refuse_lost_lines(patch: &Patch, solved: &BTreeMap<RelPath, Vec<u8>>) -> Result<()> {
    let lines: BTreeSet<&[u8]> = solved
        .values()
        .flat_map(|text| lines_of(text))
        .map(<[u8]>::trim_ascii)
        .collect();
    for hook in patch.hooks.iter().flat_map(diff::hooks) {
        for line in lines_of(&hook.text) {
            let line = line.trim_ascii();
            if !line.is_empty() && !lines.contains(line) {
                return Err(Error::finding(format!(
                    "the line `{}`, hooked into {}:{} on the old base, is nowhere",
                    String::from_utf8_lossy(line),
                    hook.path,
                    hook.line
                ))
                .hint(
                    "put it where it belongs; if it is meant to be another one or none, add \
                     --accept-changes",
                ));
            }
        }
    }
    Ok(())
}
