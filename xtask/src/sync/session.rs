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
use crate::diff::{self, lines_of};
use crate::error::{Error, Result};
use crate::lock::{self, Lock};
use crate::model::Base;
use crate::patchset::{self, Images, Patch, Series};
use crate::sync::drift::{Drift, drift};
use crate::sync::history::History;
use crate::sync::port::{Conflict, Port, port};
use crate::sync::proof::{Proof, prove};
use crate::sync::store::{Session, Stopped, folder, stored};
use crate::sync::verdict::PatchVerdict;
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
            Some(dir) => match History::of(ctx, dir.clone(), &from, &to) {
                Ok(history) => history,
                // It only adds words; a clone that went must not keep a sync from going on.
                Err(error) if session.shown => {
                    ctx.sink.warn(&error.to_string());
                    History::none()
                }
                Err(error) => return Err(error),
            },
            None => History::none(),
        };
        Ok(Work {
            old: vendor::ensure(ctx, &from)?,
            new: vendor::ensure(ctx, &to)?,
            series,
            history,
        })
    }

    fn step(self, port: Port, end: End, recalled: usize, saved_to: Option<String>) -> Result<Step> {
        Ok(Step {
            from: self.old.base.clone(),
            to: self.new.base.clone(),
            drift: drift(&self.old, &self.series, &self.new, &port)?,
            pristine: (self.old, self.new),
            old: self.series,
            port,
            end,
            recalled,
            saved_to,
        })
    }

    /// The port, with every conflict solved that is remembered.
    fn port(&self, ctx: &Ctx, session: &mut Session, write: bool) -> Result<(Port, usize)> {
        let mut recalled = 0;
        let mut decisions = session.decisions(ctx)?;
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
            let Some((solved, regions)) = self.recall(ctx, &port, conflict)? else {
                return Ok((port, recalled));
            };
            recalled += regions;
            if write {
                session.solve(ctx, &conflict.patch, &solved)?;
            }
            decisions.solved.insert(conflict.patch.clone(), solved);
        }
    }

    /// The solution of a conflict from memory, and how many conflicts it solved: only where all of
    /// them are known, every hook has its place between markers, and no line of one is lost.
    fn recall(
        &self,
        ctx: &Ctx,
        port: &Port,
        conflict: &Conflict,
    ) -> Result<Option<(Files, usize)>> {
        if conflict.homeless > 0 {
            return Ok(None);
        }
        let mut solved = BTreeMap::new();
        let mut count = 0;
        for (path, text) in &conflict.files {
            let regions = conflict::regions(text).len();
            count += regions;
            if regions == 0 {
                solved.insert(path.clone(), text.clone());
                continue;
            }
            match memory::recall(ctx, path, text) {
                Some(text) => solved.insert(path.clone(), text),
                None => return Ok(None),
            };
        }
        let patch = &self.series.patches[conflict.at];
        let before = self.before(ctx, port, &solved)?;
        let whole = count > 0 && lost_line(patch, &before, &solved).is_none();
        Ok(whole.then_some((solved, count)))
    }

    /// Each of `files` as the patches before the conflict leave it.
    fn before(&self, ctx: &Ctx, port: &Port, files: &Files) -> Result<Files> {
        let series = Series::of(&ctx.project, &self.new.base, port.patches.clone())?;
        let images = Images::compute(&self.new, &series)?;
        let mut before = BTreeMap::new();
        for path in files.keys() {
            let content = match images.at(path, images.patches()) {
                Some(image) => Some(image.content.clone()),
                None => patchset::pristine_image(&self.new, path)?.map(|image| image.content),
            };
            before.insert(path.clone(), content.unwrap_or_default());
        }
        Ok(before)
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
        let mut marked = BTreeMap::new();
        for (path, digest) in &stopped.marked {
            marked.insert(path.clone(), fs_err::read(stored(ctx, digest))?);
        }
        for (path, text) in &solved {
            let before = marked.get(path).map_or(&[][..], Vec::as_slice);
            if let Some(line) = conflict::first_marker(before, text) {
                return Err(
                    Error::finding(format!("{path}:{line} still has a conflict marker"))
                        .hint("solve it, then cargo xtask sync --continue"),
                );
            }
        }
        let before = self.before(ctx, &port, &solved)?;
        if !accept_changes {
            refuse_surprises(patch, &before, &solved)?;
        }
        match lost_line(patch, &before, &solved) {
            Some(lost) if !accept_changes => return Err(lost.error()),
            // What loses lines, or puts them elsewhere than between the markers, is for this time.
            Some(_) => {}
            None => {
                for (path, marked) in &marked {
                    if let Some(text) = solved.get(path) {
                        memory::remember(ctx, path, marked, text)?;
                    }
                }
            }
        }
        session.stopped = None;
        session.solve(ctx, &stopped.patch, &solved)
    }
}

/// Contents by file.
type Files = BTreeMap<RelPath, Vec<u8>>;

/// A line of a hook that a solution has fewer times than the patch inserts it.
struct Lost {
    line: String,
    file: RelPath,
    at: usize,
}

impl Lost {
    fn error(&self) -> Error {
        Error::finding(format!(
            "the line `{}`, hooked into {}:{} on the old base, is missing",
            self.line, self.file, self.at
        ))
        .hint(
            "put it where it belongs; if it is meant to be another one or none, add \
             --accept-changes",
        )
    }
}

/// Refuses a solution that takes away more of upstream's lines than the patch did, or inserts
/// lines without its marker where it had none such: most likely that was not meant.
fn refuse_surprises(patch: &Patch, before: &Files, solved: &Files) -> Result<()> {
    let old: Vec<diff::Hook> = patch.hooks.iter().flat_map(diff::hooks).collect();
    let mut new = Vec::new();
    for (path, text) in solved {
        let before = before.get(path).map_or(&[][..], Vec::as_slice);
        new.extend(
            diff::between(path, before, text)
                .iter()
                .flat_map(diff::hooks),
        );
    }
    let deleted = |hooks: &[diff::Hook]| hooks.iter().map(|hook| hook.deleted).sum::<usize>();
    let bare = |hook: &&diff::Hook| hook.inserted > 0 && !hook.is_marked(patch.id());
    let hint = "mend it in the working tree; if it is meant, add --accept-changes";
    if deleted(&new) > deleted(&old) {
        let first = new.iter().find(|hook| hook.deleted > 0);
        let place = first.map_or_else(String::new, |hook| {
            format!(" at {}:{}", hook.path, hook.line)
        });
        return Err(Error::finding(format!(
            "the solution deletes {}{place}, and the patch deleted {}",
            patchset::count(deleted(&new), "upstream line"),
            deleted(&old)
        ))
        .hint(hint));
    }
    if new.iter().filter(bare).count() > old.iter().filter(bare).count()
        && let Some(hook) = new.iter().find(bare)
    {
        return Err(Error::finding(format!(
            "the lines inserted at {}:{} do not carry the marker of `{}`",
            hook.path,
            hook.line,
            patch.id()
        ))
        .hint(hint));
    }
    Ok(())
}

/// The first line of the patch's hooks that `solved` does not add to `before` as often as they do.
fn lost_line(patch: &Patch, before: &Files, solved: &Files) -> Option<Lost> {
    let count = |files: &Files| {
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for line in files.values().flat_map(|text| lines_of(text)) {
            *counts.entry(line.trim_ascii().to_vec()).or_default() += 1;
        }
        counts
    };
    let (before, mut there) = (count(before), count(solved));
    for (line, count) in before {
        if let Some(now) = there.get_mut(&line) {
            *now = now.saturating_sub(count);
        }
    }
    for hook in patch.hooks.iter().flat_map(diff::hooks) {
        for line in lines_of(&hook.text) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match there.get_mut(line) {
                Some(left @ 1..) => *left -= 1,
                _ => {
                    return Some(Lost {
                        line: String::from_utf8_lossy(line).into_owned(),
                        file: hook.path,
                        at: hook.line,
                    });
                }
            }
        }
    }
    None
}
