//! Taking edits of the working tree into a patch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::authoring::rebase::{self, Conflict, Sides};
use crate::authoring::save::{save, unchanged, with_hooks};
use crate::ctx::Ctx;
use crate::diff::{self, FileDiff};
use crate::error::{Error, Result};
use crate::patchset::{Images, Overlay, Patch, Series, pristine_image, read_state, scan};
use crate::tree::{FileMode, RelPath, TreeManifest};
use crate::vendor::Pristine;

/// What a refresh did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Refreshed {
    /// The patch that took the edits.
    pub patch: String,
    /// Files of the working tree that it took.
    pub took: Vec<RelPath>,
    /// Later patches whose hooks were moved along.
    pub moved: Vec<String>,
    /// Files of the checkout that changed.
    pub files: Vec<RelPath>,
    /// Those of them that are gone.
    pub removed: Vec<RelPath>,
    /// Hooks without a marker, each as file and line.
    pub unmarked: Vec<String>,
}

/// Makes the patch `id`, which must be the last one applied to the working tree, what the
/// working tree says: edits to files that were there before it become its hooks, new files its
/// overlay. Later patches are moved along by a three-way merge; where that conflicts, nothing
/// is written.
pub fn refresh(ctx: &Ctx, pristine: &Pristine, series: &Series, id: &str) -> Result<Refreshed> {
    let count = series.position(id)?;
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let root = ctx.project.working_tree(&series.base.id);
    stands_at(&root, series, count, id)?;
    let images = Images::compute(pristine, series)?;
    let found = scan(&root)?;
    let before = Before {
        pristine,
        images: &images,
        count: count - 1,
    };
    let read = |path: &RelPath| fs_err::read(path.below(&root)).map_err(Error::from);
    let patch = taken(
        ctx,
        series,
        &series.patches[count - 1],
        &before,
        &found,
        &read,
    )?;
    let unmarked = patch
        .hooks
        .iter()
        .flat_map(diff::hooks)
        .filter(|hook| hook.inserted > 0 && !hook.is_marked(id))
        .map(|hook| format!("{}:{}", hook.path, hook.line))
        .collect();
    let took = differing(&before, &images, count, &found)?;

    let mut patches: Vec<Patch> = series.patches[..count - 1].to_vec();
    patches.push(patch);
    let moved = later(ctx, pristine, series, &images, &mut patches)?;
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    prove(pristine, &fresh, count, &found)?;
    let saved = save(ctx, &lock, pristine, series, &fresh, &BTreeMap::new(), &[])?;
    drop(lock);
    // The tree is as it must be; only its state file learns of it.
    crate::patchset::apply(ctx, pristine, &fresh, count, false)?;
    Ok(Refreshed {
        patch: id.to_owned(),
        took,
        moved,
        files: saved.files,
        removed: saved.removed,
        unmarked,
    })
}

/// Refuses a working tree that is not there, or does not hold the first `count` patches, of which
/// `id` is the last.
fn stands_at(root: &Path, series: &Series, count: usize, id: &str) -> Result<()> {
    if !root.exists() {
        return Err(Error::usage("there is no working tree").hint(format!("cargo xtask edit {id}")));
    }
    let applied = read_state(root)?.map_or(0, |state| state.applied.len());
    if applied == count {
        return Ok(());
    }
    let top = match applied.checked_sub(1).and_then(|at| series.patches.get(at)) {
        Some(top) => format!("`{}`", top.id()),
        None => "the base".to_owned(),
    };
    Err(
        Error::usage(format!("the working tree stands at {top}, not at `{id}`")).hint(format!(
            "cargo xtask edit {id} moves it there, if it holds no edits"
        )),
    )
}

/// Adds the patches of `series` behind those that `patches` holds in a new form, moved along.
/// Returns those whose hooks changed; refuses where one does not follow.
fn later(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    patches: &mut Vec<Patch>,
) -> Result<Vec<String>> {
    let mut moved = Vec::new();
    for (at, later) in series.patches.iter().enumerate().skip(patches.len()) {
        let so_far = Series::of(&ctx.project, &series.base, patches.clone())?;
        let new = Images::compute(pristine, &so_far)?;
        let to = (&new, patches.len());
        let fresh = follow(ctx, pristine, series, later, (images, at), to)?
            .map_err(|conflict| refuse(&conflict))?;
        if fresh.hooks != later.hooks {
            moved.push(later.id().to_owned());
        }
        patches.push(fresh);
    }
    Ok(moved)
}

/// The files as the patch found them.
struct Before<'a> {
    pristine: &'a Pristine,
    images: &'a Images,
    count: usize,
}

impl Before<'_> {
    fn content(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        if self.images.steps(path).is_empty() {
            return Ok(pristine_image(self.pristine, path)?.map(|image| image.content));
        }
        Ok(self
            .images
            .at(path, self.count)
            .map(|image| image.content.clone()))
    }
}

/// Every file that is not what it was before the patch.
fn touched(before: &Before<'_>, found: &TreeManifest) -> Result<BTreeSet<RelPath>> {
    let mut paths: BTreeSet<RelPath> = before.images.paths().cloned().collect();
    for difference in before.pristine.manifest.differences(found) {
        paths.insert(difference.path().clone());
    }
    let mut touched = BTreeSet::new();
    for path in paths {
        let entry = if before.images.steps(&path).is_empty() {
            before.pristine.manifest.get(&path)
        } else {
            before
                .images
                .at(&path, before.count)
                .map(|image| image.entry())
        };
        if entry != found.get(&path) {
            touched.insert(path);
        }
    }
    Ok(touched)
}

/// The patch that makes of the files before it what the working tree holds.
fn taken(
    ctx: &Ctx,
    series: &Series,
    patch: &Patch,
    before: &Before<'_>,
    found: &TreeManifest,
    read: &dyn Fn(&RelPath) -> Result<Vec<u8>>,
) -> Result<Patch> {
    let mut hooks: Vec<FileDiff> = Vec::new();
    let mut overlay: Vec<Overlay> = Vec::new();
    for path in touched(before, found)? {
        let there = found.get(&path);
        match (before.content(&path)?, there) {
            (Some(_), None) => {
                return Err(
                    Error::finding(format!("{path} was removed from the working tree"))
                        .hint("a patch cannot remove a file; leave it, and hook around it"),
                );
            }
            (_, Some(entry)) if entry.mode == FileMode::Link => {
                return Err(Error::finding(format!("{path} is a symbolic link"))
                    .hint("a patch brings plain files"));
            }
            (Some(old), Some(_)) => {
                let new = read(&path)?;
                match diff::between(&path, &old, &new) {
                    Some(diff) => hooks.push(diff),
                    None => {
                        return Err(Error::finding(format!("the mode of {path} was changed"))
                            .hint("a patch does not change modes; set it back"));
                    }
                }
            }
            (None, Some(entry)) => overlay.push(Overlay {
                content: read(&path)?,
                executable: entry.mode == FileMode::Executable,
                path,
            }),
            (None, None) => {}
        }
    }
    let mut fresh = with_hooks(ctx, patch, &series.base.id, hooks)?;
    fresh.overlay = overlay;
    Ok(fresh)
}

/// Files of the tree that are not what the series so far made of them.
fn differing(
    before: &Before<'_>,
    images: &Images,
    count: usize,
    found: &TreeManifest,
) -> Result<Vec<RelPath>> {
    let mut list = Vec::new();
    let mut paths: BTreeSet<RelPath> = images.paths().cloned().collect();
    for difference in before.pristine.manifest.differences(found) {
        paths.insert(difference.path().clone());
    }
    for path in paths {
        let entry = if images.steps(&path).is_empty() {
            before.pristine.manifest.get(&path)
        } else {
            images.at(&path, count).map(|image| image.entry())
        };
        if entry != found.get(&path) {
            list.push(path);
        }
    }
    Ok(list)
}

/// Moves a later patch from the old images (after `old.1` patches) to the new ones.
pub fn follow(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    patch: &Patch,
    old: (&Images, usize),
    new: (&Images, usize),
) -> Result<std::result::Result<Patch, Conflict>> {
    let mut hooks = Vec::new();
    for diff in &patch.hooks {
        let path = &diff.path;
        let content = |(images, count): (&Images, usize)| {
            Before {
                pristine,
                images,
                count,
            }
            .content(path)
        };
        let (Some(old_before), Some(new_before)) = (content(old)?, content(new)?) else {
            return Ok(Err(Conflict {
                patch: patch.id().to_owned(),
                path: path.clone(),
                text: "there is no such file any more".to_owned(),
            }));
        };
        if old_before == new_before {
            hooks.push(diff.clone());
            continue;
        }
        let Ok(old_after) = diff::apply(diff, &old_before) else {
            return Err(Error::internal(format!(
                "{path} does not take its own hooks"
            )));
        };
        let sides = Sides {
            old_before: &old_before,
            old_after: &old_after,
            new_before: &new_before,
        };
        match rebase::hooks(patch.id(), path, &sides)? {
            Ok(moved) => hooks.extend(moved),
            Err(conflict) => return Ok(Err(conflict)),
        }
    }
    Ok(Ok(with_hooks(ctx, patch, &series.base.id, hooks)?))
}

/// Re-applies in memory, before anything is written: byte for byte the working tree.
fn prove(pristine: &Pristine, fresh: &Series, count: usize, found: &TreeManifest) -> Result<()> {
    let images = Images::compute(pristine, fresh)?;
    let mut expected = pristine.manifest.clone();
    for path in images.paths() {
        if let Some(image) = images.at(path, count) {
            expected.insert(path.clone(), image.entry());
        }
    }
    match expected.differences(found).first() {
        None => Ok(()),
        Some(first) => Err(Error::internal(format!(
            "a re-apply would not give the working tree: {first}"
        ))
        .hint("nothing was written; please report this")),
    }
}

/// The error for a patch that does not follow.
pub fn refuse(conflict: &Conflict) -> Error {
    Error::finding(format!(
        "`{}` does not follow: its hooks in {} and the change meet\n{}",
        conflict.patch,
        conflict.path,
        excerpt(&conflict.text)
    ))
    .hint("nothing was written; make room around the later patch's lines, or fold the two patches")
}

/// The first conflict of a text with markers, with its surroundings.
fn excerpt(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    let Some(from) = lines.iter().position(|line| line.starts_with("<<<<<<<")) else {
        return text.to_owned();
    };
    let to = lines[from..]
        .iter()
        .position(|line| line.starts_with(">>>>>>>"))
        .map_or(lines.len(), |at| from + at + 1);
    lines[from.saturating_sub(3)..(to + 3).min(lines.len()).min(from + 40)].join("\n")
}
