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

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::lock::{self, Lock};
use crate::model::Base;
use crate::patchset::{self, Series};
use crate::sync::drift::Drift;
use crate::sync::port::Port;
use crate::sync::proof::{Proof, prove};
use crate::sync::store::{Session, folder};
use crate::sync::verdict::PatchVerdict;
use crate::sync::work::Work;
use crate::sync::{record, stage};
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
    /// The new base has a series already; carry over in its place.
    pub replace: bool,
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
    /// Declarations that the series uses and that changed.
    pub drift: Vec<Drift>,
    /// Conflicts that were solved from memory in this step.
    pub recalled: usize,
    /// Where solved files of the working tree were put when it moved on.
    pub saved_to: Option<String>,
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
    /// A decision is needed that is none about lines.
    Decide {
        /// The patch.
        patch: String,
        /// Whether the sync waits for it; otherwise nothing was written, and it is to begin again.
        open: bool,
    },
}

/// What a sync would do. Writes nothing.
pub fn look(ctx: &Ctx, from: &Base, to: &Base, choices: &Choices) -> Result<Step> {
    let mut session = Session::begin(ctx, from, to)?;
    session.choose(ctx, choices)?;
    let work = Work::load(ctx, &session)?;
    let (port, recalled) = work.port(ctx, &mut session, false)?;
    let proof = if port.complete {
        let series = Series::of(&ctx.project, &work.new.base, port.patches.clone())?;
        Some(prove(&work.old, &work.series, &work.new, &series)?)
    } else {
        None
    };
    work.step(port, End::Looked { proof }, recalled, None)
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
    let there = Series::load(&ctx.project, to)?;
    if !there.patches.is_empty() && !choices.replace {
        return Err(Error::usage(format!(
            "{} has a series already: {}",
            to.id,
            there.ids().join(", ")
        ))
        .hint(
            "--replace carries the series over anew: hooks of that base, and patches that only it \
             has, go from its series",
        ));
    }
    if from.partial && !to.partial {
        return Err(Error::usage(format!(
            "{} is partial: hooks whose files it lacks would be lost on {}",
            from.id, to.id
        ))
        .hint("--from names a whole base"));
    }
    let mut session = Session::begin(ctx, from, to)?;
    session.choose(ctx, choices)?;
    advance(ctx, session)
}

/// Takes what the working tree shows as the solution, and goes on.
pub fn resume(ctx: &Ctx, choices: &Choices) -> Result<Step> {
    let _lock = hold(ctx)?;
    let mut session = Session::must_be_open(ctx)?;
    session.choose(ctx, choices)?;
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
    session.choose(ctx, choices)?;
    let Some(stopped) = &session.stopped else {
        return Err(Error::usage("the sync has not stopped at a conflict")
            .hint("cargo xtask sync --continue says what it waits for"));
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
    let series = Series::load(&ctx.project, &to)?;
    if session.result.is_some_and(|result| result == series.id) {
        return Err(Error::usage(
            "the new series is written already; only its tree is not there yet",
        )
        .hint("cargo xtask sync --continue finishes; git takes the series back"));
    }
    let saved_to = match session.shown {
        true => {
            let pristine = vendor::ensure(ctx, &to)?;
            stage::put_back(ctx, &pristine, &series, session.tree)?
        }
        // The tree was never ours.
        false => None,
    };
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
    let work = Work::load(ctx, &session)?;
    let (port, recalled) = work.port(ctx, &mut session, true)?;
    if !session.shown && (port.complete || port.conflict.is_some()) {
        // Before anything is written: the tree is somebody's.
        let there = Series::load(&ctx.project, &work.new.base)?;
        stage::refuse_edits(ctx, &work.new, &there)?;
    }
    if port.complete {
        return finish(ctx, session, work, port, recalled);
    }
    let Some(conflict) = port.conflict.clone() else {
        let patch = port
            .reports
            .iter()
            .find(|report| !report.verdict.is_automatic())
            .map(|report| report.patch.clone())
            .unwrap_or_default();
        // What was decided so far stays; without any of it there is nothing to come back to.
        let open = session.shown || !session.solved.is_empty();
        if open {
            session.stopped = None;
            session.save(ctx)?;
        }
        return work.step(port, End::Decide { patch, open }, recalled, None);
    };
    // In this order: a kill before the tree is there must not leave a session that takes the
    // tree as it was for a solution.
    let ours = std::mem::replace(&mut session.shown, true);
    session.stopped = None;
    session.save(ctx)?;
    let shown = stage::show(ctx, &work.new, &work.series, &port, &conflict, ours)?;
    let files = session.stop(ctx, &conflict, shown.patchset)?;
    let end = End::Conflict {
        patch: conflict.patch.clone(),
        files,
        tree: shown.tree,
    };
    work.step(port, end, recalled, shown.saved_to)
}

/// Writes the whole series, and puts it on the working tree.
fn finish(
    ctx: &Ctx,
    mut session: Session,
    work: Work,
    port: Port,
    recalled: usize,
) -> Result<Step> {
    let there = Series::load(&ctx.project, &work.new.base)?;
    let series = Series::of(&ctx.project, &work.new.base, port.patches.clone())?;
    let proof = prove(&work.old, &work.series, &work.new, &series)?;
    // All that can fail comes before the series is written.
    let end = End::Done {
        proof,
        series: Box::new(series.clone()),
        files: Vec::new(),
    };
    let retired = retired(&port);
    let mut step = work.step(port, end, recalled, None)?;
    session.stopped = None;
    session.result = Some(series.id);
    session.save(ctx)?;
    let (old, new) = &step.pristine;
    let wrote = record::write(ctx, (&old.base, &step.old), new, &there, &series, &retired)?;
    let series = Series::load(&ctx.project, &new.base)?;
    let all = series.patches.len();
    let moved = patchset::apply(ctx, new, &series, all, session.shown)?;
    session.end(ctx)?;
    step.saved_to = moved.saved_to;
    if let End::Done { files, .. } = &mut step.end {
        *files = wrote;
    }
    Ok(step)
}

/// The patches to write down as retired, and what says that they are upstream.
fn retired(port: &Port) -> Vec<(String, String)> {
    port.reports
        .iter()
        .filter_map(|report| match &report.verdict {
            PatchVerdict::Retired { evidence } => Some((report.patch.clone(), evidence.join("; "))),
            _ => None,
        })
        .collect()
}

/// The sync that is going on, if one is.
pub fn open(ctx: &Ctx) -> Result<Option<Open>> {
    Ok(Session::open(ctx)?.map(|session| Open {
        from: session.from,
        to: session.to,
        patch: session.stopped.map(|stopped| stopped.patch),
    }))
}

/// A sync that is not finished.
#[derive(Clone, Debug, Serialize)]
pub struct Open {
    /// The base that the series comes from.
    pub from: String,
    /// The base that it goes to.
    pub to: String,
    /// The patch whose conflict the working tree of that base shows.
    pub patch: Option<String>,
}
