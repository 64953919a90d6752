//! A whole series on its way to another base, in memory. Nothing here writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::authoring::with_hooks;
use crate::ctx::Ctx;
use crate::diff::FileDiff;
use crate::error::{Error, Result};
use crate::patchset::{Images, Patch, Series, pristine_image};
use crate::sync::edit::edits_of;
use crate::sync::ground::Ground;
use crate::sync::history::History;
use crate::sync::overlap::{FileDone, refuse_overlaps};
use crate::sync::place::{Pair, Unplaced, place};
use crate::sync::upstreamed;
use crate::sync::verdict::{HookReport, HookVerdict, PatchReport, PatchVerdict, Place};
use crate::tree::RelPath;
use crate::vendor::Pristine;

mod judge;
mod marked;

use marked::placed_edits;

/// What a person decided.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    /// Patches to leave out of the new series.
    pub skip: BTreeSet<String>,
    /// Patches to retire: they are in the new base.
    pub retire: BTreeSet<String>,
    /// Patches to keep although they seem to be in the new base.
    pub keep: BTreeSet<String>,
    /// For a patch, what files look like with it: solved conflicts.
    pub solved: BTreeMap<String, BTreeMap<RelPath, Vec<u8>>>,
}

impl Decisions {
    /// Every patch that a decision names.
    pub fn named(&self) -> impl Iterator<Item = &str> {
        let chosen = self.skip.iter().chain(&self.retire).chain(&self.keep);
        chosen.map(String::as_str)
    }
}

/// A conflict that somebody has to solve before the series is whole.
#[derive(Clone, Debug)]
pub struct Conflict {
    /// The patch.
    pub patch: String,
    /// Its place in the old series.
    pub at: usize,
    /// Each file that it touches, with all that could be placed, and with markers around what
    /// could not, all three sides between them.
    pub files: BTreeMap<RelPath, Vec<u8>>,
    /// Hooks whose file is gone, so that no marker stands for them.
    pub homeless: usize,
}

/// What a series becomes.
#[derive(Debug)]
pub struct Port {
    /// What became of each patch, in order.
    pub reports: Vec<PatchReport>,
    /// The patches up to the first that needs a decision, ready for the new base.
    pub patches: Vec<Patch>,
    /// The first patch that needs a decision, if it is one about lines.
    pub conflict: Option<Conflict>,
    /// Whether the series is whole: nothing needs a decision.
    pub complete: bool,
}

/// Carries `series` from `old` to `new`. Every patch is tried, also behind a conflict.
pub fn port(
    ctx: &Ctx,
    old: &Pristine,
    series: &Series,
    new: &Pristine,
    decisions: &Decisions,
    history: &History,
) -> Result<Port> {
    let images = Images::compute(old, series)?;
    let mut porter = Porter {
        ctx,
        old,
        images: &images,
        old_ground: Ground::new(old),
        ground: Ground::new(new),
        decisions,
        history,
        broken: BTreeMap::new(),
        owners: series
            .patches
            .iter()
            .flat_map(|patch| {
                let paths = patch.overlay.iter().map(|file| file.path.clone());
                paths.map(|path| (path, patch.id().to_owned()))
            })
            .collect(),
        failed: BTreeSet::new(),
    };
    let mut port = Port {
        reports: Vec::new(),
        patches: Vec::new(),
        conflict: None,
        complete: true,
    };
    for (at, patch) in series.patches.iter().enumerate() {
        ctx.cancel.check()?;
        let done = porter.patch(at, patch)?;
        porter.pass(patch)?;
        if done.report.verdict.is_automatic() {
            if port.complete {
                port.patches.extend(done.patch);
            }
        } else {
            if let (true, Some(files)) = (port.complete, done.marked) {
                port.conflict = Some(Conflict {
                    patch: patch.id().to_owned(),
                    at,
                    files,
                    homeless: done.homeless,
                });
            }
            port.complete = false;
        }
        port.reports.push(done.report);
    }
    Ok(port)
}

struct Porter<'a> {
    ctx: &'a Ctx,
    old: &'a Pristine,
    images: &'a Images,
    old_ground: Ground<'a>,
    ground: Ground<'a>,
    decisions: &'a Decisions,
    history: &'a History,
    /// Files that an unsolved patch leaves in the old form, and that patch.
    broken: BTreeMap<RelPath, String>,
    /// Which patch brings which overlay file.
    owners: BTreeMap<RelPath, String>,
    /// Patches that are not in the new tree.
    failed: BTreeSet<String>,
}

/// One patch, done.
struct Done {
    report: PatchReport,
    patch: Option<Patch>,
    /// Hooks whose file is gone.
    homeless: usize,
    /// Its files with markers, where lines stand against each other.
    marked: Option<BTreeMap<RelPath, Vec<u8>>>,
}

impl Porter<'_> {
    fn patch(&mut self, at: usize, patch: &Patch) -> Result<Done> {
        let id = patch.id();
        if self.decisions.skip.contains(id) {
            self.failed.insert(id.to_owned());
            return Ok(Done {
                report: PatchReport {
                    patch: id.to_owned(),
                    verdict: PatchVerdict::Skipped,
                    hooks: Vec::new(),
                    overlay: patch.overlay.len(),
                },
                patch: None,
                homeless: 0,
                marked: None,
            });
        }
        let needs = patch
            .manifest
            .requires
            .iter()
            .find(|needed| self.failed.contains(*needed))
            .cloned();
        let mut files = BTreeMap::new();
        for diff in &patch.hooks {
            files.insert(diff.path.clone(), self.file(patch, diff)?);
        }
        refuse_overlaps(&mut files);
        let mut reports: Vec<HookReport> = files
            .values_mut()
            .flat_map(|file| std::mem::take(&mut file.reports))
            .collect();
        let solved = self.decisions.solved.get(id);
        let overlay = self.overlay(patch)?;
        let verdict = self.verdict(patch, &mut reports, overlay, needs, solved.is_some())?;
        let mut done = Done {
            report: PatchReport {
                patch: id.to_owned(),
                verdict,
                hooks: reports,
                overlay: patch.overlay.len(),
            },
            patch: None,
            homeless: files
                .iter()
                .filter(|(path, _)| !self.ground.has(path))
                .map(|(_, file)| file.unplaced.len())
                .sum(),
            marked: None,
        };
        let contents = self.contents(&files)?;
        if let PatchVerdict::Retired { .. } = done.report.verdict {
            self.failed.insert(id.to_owned());
        } else if done.report.verdict.is_automatic() {
            let contents = solved.unwrap_or(&contents);
            let mut hooks = Vec::new();
            for (path, content) in contents {
                if let Some(before) = self.ground.source(path)? {
                    hooks.extend(crate::diff::between(path, &before.content, content));
                }
            }
            match solved {
                Some(contents) => {
                    for (path, content) in contents {
                        self.ground.put(path, content.clone());
                    }
                }
                None => self.place_all(&files)?,
            }
            for file in &patch.overlay {
                self.ground.put(&file.path, file.content.clone());
            }
            let base = &self.ground.pristine.base.id;
            done.patch = Some(with_hooks(self.ctx, patch, base, hooks)?);
        } else {
            self.failed.insert(id.to_owned());
            for (path, file) in &files {
                if !file.unplaced.is_empty() {
                    self.broken.insert(path.clone(), id.to_owned());
                }
            }
            if matches!(done.report.verdict, PatchVerdict::Hooks { .. }) {
                done.marked = Some(self.marked((at, id), &files, contents)?);
            }
            // What could be placed stays, so that later patches are tried on what will be there.
            self.place_all(&files)?;
            for file in &patch.overlay {
                if !self.ground.has(&file.path) {
                    self.ground.put(&file.path, file.content.clone());
                }
            }
        }
        Ok(done)
    }

    /// Places the hooks of one file.
    fn file(&self, patch: &Patch, diff: &FileDiff) -> Result<FileDone> {
        let old = self
            .old_ground
            .source(&diff.path)?
            .ok_or_else(|| Error::internal(format!("{} is gone from the old side", diff.path)))?;
        let pair = Pair::new(&diff.path, old, self.ground.source(&diff.path)?);
        let mut done = FileDone::default();
        for edit in edits_of(diff) {
            let from = Place {
                file: diff.path.clone(),
                line: edit.from + 1,
                anchor: pair
                    .old
                    .around(edit.from)
                    .map_or_else(|| edit.heading.clone(), |anchor| anchor.name.clone()),
            };
            let mut report = HookReport {
                verdict: HookVerdict::Conflict,
                before: from,
                after: None,
                note: String::new(),
                blocked_by: None,
                commits: Vec::new(),
                text: edit.text.clone(),
                new_text: None,
            };
            let kept = self.decisions.keep.contains(patch.id());
            if !kept && upstreamed::hook(&pair, &edit) {
                report.verdict = HookVerdict::Upstreamed;
            } else {
                match place(&self.ground, &self.old_ground, &pair, &edit)? {
                    Ok(placed) => {
                        report.verdict = placed.verdict;
                        report.note.clone_from(&placed.note);
                        report.after = Some(Place {
                            file: placed.file.clone(),
                            line: placed.edit.from + 1,
                            anchor: placed.anchor.clone(),
                        });
                        if placed.edit.text != edit.text {
                            report.new_text = Some(placed.edit.text.clone());
                        }
                        done.placed.push(placed);
                    }
                    Err(Unplaced(reason)) => {
                        self.unplaced(&mut report, &diff.path, reason);
                        if report.verdict != HookVerdict::Absent {
                            done.unplaced.push(edit.clone());
                        }
                    }
                }
            }
            if !matches!(report.verdict, HookVerdict::Clean | HookVerdict::Shifted) {
                let upstream = pristine_image(self.ground.pristine, &diff.path)?;
                let upstream = upstream.as_ref().map(|image| image.content.as_slice());
                report.commits = self.history.touching(self.ctx, &pair, upstream, &edit)?;
            }
            done.reports.push(report);
        }
        Ok(done)
    }

    /// Applies the patch to the old side, so that the next one finds there what it stood on.
    fn pass(&mut self, patch: &Patch) -> Result<()> {
        for diff in &patch.hooks {
            self.old_ground.edit(&diff.path, &edits_of(diff))?;
        }
        for file in &patch.overlay {
            self.old_ground.put(&file.path, file.content.clone());
        }
        Ok(())
    }

    /// Puts what could be placed into the new side.
    fn place_all(&mut self, files: &BTreeMap<RelPath, FileDone>) -> Result<()> {
        for (path, edits) in placed_edits(files) {
            self.ground.edit(&path, &edits)?;
        }
        Ok(())
    }
}
