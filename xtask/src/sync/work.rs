//! What one command of a sync works on: both bases, the series, and what is remembered.

use std::collections::BTreeMap;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset::{self, Images, Series};
use crate::sync::drift::drift;
use crate::sync::history::History;
use crate::sync::port::{Conflict, Port, port};
use crate::sync::session::{End, Step};
use crate::sync::solution::{Files, lost_line, refuse_surprises};
use crate::sync::store::{Session, Stopped, stored};
use crate::sync::{conflict, memory, stage};
use crate::vendor::{self, Pristine};

/// What a step works on.
pub struct Work {
    /// The base that the series comes from.
    pub old: Pristine,
    /// The one it goes to.
    pub new: Pristine,
    /// The series as it stands on the old base.
    pub series: Series,
    /// Upstream's commits between the two.
    pub history: History,
}

impl Work {
    /// Reads both bases and the series; refuses a series that changed since the sync began.
    pub fn load(ctx: &Ctx, session: &Session) -> Result<Work> {
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

    /// The answer of a command.
    pub fn step(
        self,
        port: Port,
        end: End,
        recalled: usize,
        saved_to: Option<String>,
    ) -> Result<Step> {
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
    pub fn port(&self, ctx: &Ctx, session: &mut Session, write: bool) -> Result<(Port, usize)> {
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
    pub fn take(
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
