//! A whole series on its way to another base, in memory. Nothing here writes.

use std::collections::{BTreeMap, BTreeSet};

use crate::authoring::with_hooks;
use crate::ctx::Ctx;
use crate::diff::FileDiff;
use crate::error::{Error, Result};
use crate::patchset::{Images, Patch, Series, pristine_image};
use crate::sync::conflict;
use crate::sync::edit::{Edit, edits_of, with_edits};
use crate::sync::ground::Ground;
use crate::sync::history::History;
use crate::sync::overlap::{FileDone, refuse_overlaps};
use crate::sync::place::{Pair, Unplaced, place};
use crate::sync::upstreamed;
use crate::sync::verdict::{HookReport, HookVerdict, PatchReport, PatchVerdict, Place};
use crate::tree::RelPath;
use crate::vendor::Pristine;

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

    /// Says what kind of failure it is.
    fn unplaced(&self, report: &mut HookReport, path: &RelPath, reason: String) {
        report.note = reason;
        let new = &self.ground.pristine;
        if let Some(patch) = self.broken.get(path) {
            report.verdict = HookVerdict::Blocked;
            report.blocked_by = Some(patch.clone());
        } else if let Some(patch) = self.owner_missing(path) {
            report.verdict = HookVerdict::Blocked;
            report.blocked_by = Some(patch);
        } else if new.base.partial && !self.ground.has(path) {
            report.verdict = HookVerdict::Absent;
            report.note.clear();
        }
    }

    /// The patch whose overlay would have brought the file, where it is not there.
    fn owner_missing(&self, path: &RelPath) -> Option<String> {
        if self.ground.has(path) {
            return None;
        }
        self.owners.get(path).cloned()
    }

    /// Why an overlay file cannot go into the new base, or that it is there already.
    fn overlay(&self, patch: &Patch) -> Result<Option<(bool, String)>> {
        for file in &patch.overlay {
            if let Some(there) = self.ground.source(&file.path)? {
                let same = there.content == file.content;
                return Ok(Some((same, format!("{} is in the new base", file.path))));
            }
        }
        Ok(None)
    }

    fn verdict(
        &self,
        patch: &Patch,
        reports: &mut [HookReport],
        overlay: Option<(bool, String)>,
        needs: Option<String>,
        solved: bool,
    ) -> Result<PatchVerdict> {
        let retire = self.decisions.retire.contains(patch.id());
        let keep = self.decisions.keep.contains(patch.id());
        let (mut evidence, wanted) = match keep {
            true => (Vec::new(), 0),
            false => {
                upstreamed::probes(&self.ground, &self.old_ground, &patch.manifest.upstreamed)?
            }
        };
        let by_probe = wanted > 0 && evidence.len() == wanted;
        if let (Some(by), false) = (needs, retire) {
            // What is upstream is so whatever the patches before it need: nobody is to mend it in vain.
            return Ok(match by_probe {
                true => PatchVerdict::Upstreamed {
                    wholly: true,
                    evidence,
                },
                false => PatchVerdict::Blocked { by },
            });
        }
        if !keep {
            let there = reports
                .iter()
                .filter(|report| report.verdict == HookVerdict::Upstreamed)
                .count();
            if there > 0 {
                evidence.push(format!(
                    "{there} of {} hooks are in the new base",
                    reports.len()
                ));
            }
            let same_file = overlay.as_ref().is_some_and(|(same, _)| *same);
            if let (true, Some((_, what))) = (same_file, &overlay) {
                evidence.push(format!("{what}, byte for byte"));
            }
            if retire && evidence.is_empty() {
                return Err(Error::usage(format!(
                    "nothing says that `{}` is in {}",
                    patch.id(),
                    self.ground.pristine.base.id
                ))
                .hint(format!(
                    "--skip-patch {} leaves it out of the new series without retiring it",
                    patch.id()
                )));
            }
            if retire {
                return Ok(PatchVerdict::Retired { evidence });
            }
            if !evidence.is_empty() {
                let by_hooks = there == reports.len() && there > 0;
                return Ok(PatchVerdict::Upstreamed {
                    wholly: by_probe || by_hooks,
                    evidence,
                });
            }
        }
        if let Some((_, reason)) = overlay {
            return Ok(PatchVerdict::Overlay { reason });
        }
        if solved {
            for report in reports
                .iter_mut()
                .filter(|report| !report.verdict.is_automatic())
            {
                report.verdict = HookVerdict::Merged;
                report.note = format!("solved by hand: {}", report.note);
            }
        }
        Ok(PatchVerdict::Hooks {
            worst: reports
                .iter()
                .map(|report| report.verdict)
                .max()
                .unwrap_or(HookVerdict::Clean),
        })
    }

    /// The file as the patch found it on the old base.
    fn before(&self, at: usize, path: &RelPath) -> Vec<u8> {
        self.images
            .at(path, at)
            .map(|image| image.content.clone())
            .unwrap_or_default()
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

    /// Each touched file of the new base, with all that could be placed.
    fn contents(&self, files: &BTreeMap<RelPath, FileDone>) -> Result<BTreeMap<RelPath, Vec<u8>>> {
        let mut contents = BTreeMap::new();
        for (path, edits) in placed_edits(files) {
            if let Some(source) = self.ground.source(&path)? {
                contents.insert(path, with_edits(&source.content, &edits)?);
            }
        }
        Ok(contents)
    }

    /// The same with markers where something could not be placed.
    fn marked(
        &self,
        (at, id): (usize, &str),
        files: &BTreeMap<RelPath, FileDone>,
        mut contents: BTreeMap<RelPath, Vec<u8>>,
    ) -> Result<BTreeMap<RelPath, Vec<u8>>> {
        let names = conflict::Names {
            ours: &self.ground.pristine.base.id,
            ancestor: &self.old.base.id,
            theirs: id,
        };
        for (path, file) in files {
            if file.unplaced.is_empty() {
                continue;
            }
            let Some(now) = self.ground.source(path)? else {
                continue;
            };
            // Both sides with what was placed, so that only the rest stands against each other.
            let before = self.before(at, path);
            let ours = contents.get(path).unwrap_or(&now.content).clone();
            let all: Vec<Edit> = self.placed_before(at, path, file)?;
            let ancestor = with_edits(&before, &all)?;
            let mut both = all;
            both.extend(file.unplaced.iter().cloned());
            let theirs = with_edits(&before, &both)?;
            let text = conflict::text(&ancestor, &ours, &theirs, &names)?;
            contents.insert(path.clone(), text);
        }
        Ok(contents)
    }

    /// The edits of this file that were placed, as they were on the old base.
    fn placed_before(&self, at: usize, path: &RelPath, file: &FileDone) -> Result<Vec<Edit>> {
        let after = self
            .images
            .at(path, at + 1)
            .map(|image| image.content.clone())
            .unwrap_or_default();
        let all = crate::diff::between(path, &self.before(at, path), &after);
        Ok(all
            .iter()
            .flat_map(edits_of)
            .filter(|edit| {
                !file
                    .unplaced
                    .iter()
                    .any(|other| (other.from, &other.text) == (edit.from, &edit.text))
            })
            .collect())
    }
}

/// What could be placed, by file.
fn placed_edits(files: &BTreeMap<RelPath, FileDone>) -> BTreeMap<RelPath, Vec<Edit>> {
    let mut edits: BTreeMap<RelPath, Vec<Edit>> = BTreeMap::new();
    for placed in files.values().flat_map(|file| &file.placed) {
        let list = edits.entry(placed.file.clone()).or_default();
        list.push(placed.edit.clone());
    }
    edits
}
