//! The working tree of the new base while a conflict is being solved.

use std::collections::BTreeMap;

use crate::authoring::with_hooks;
use crate::ctx::Ctx;
use crate::diff;
use crate::error::{Error, Result};
use crate::model::{Base, Digest};
use crate::patchset::{self, Images, Patch, Series};
use crate::sync::port::{Conflict, Port};
use crate::sync::store::step;
use crate::tree::{Difference, RelPath};
use crate::vendor::Pristine;

/// How many patches of its own series the working tree of `base` has; none where there is no
/// tree.
pub(super) fn position(ctx: &Ctx, base: &Base) -> Result<Option<usize>> {
    let root = ctx.project.working_tree(&base.id);
    if !root.exists() {
        return Ok(None);
    }
    let state = patchset::read_state(&root)?;
    Ok(Some(state.map_or(0, |state| state.applied.len())))
}

/// Refuses where edits in the working tree would be lost.
pub(super) fn refuse_edits(ctx: &Ctx, pristine: &Pristine, series: &Series) -> Result<()> {
    let root = ctx.project.working_tree(&pristine.base.id);
    if !root.exists() {
        return Ok(());
    }
    let images = Images::compute(pristine, series)?;
    let status = patchset::status(ctx, pristine, series, &images)?;
    match status.edited.first() {
        None => Ok(()),
        Some(first) => Err(Error::finding(format!(
            "{} has edits that would be lost: {first}",
            ctx.project.show(&root)
        ))
        .hint(format!(
            "keep them elsewhere, or cargo xtask revert --base {} --discard-edits",
            pristine.base.id
        ))),
    }
}

/// The working tree at a conflict.
pub(super) struct Shown {
    /// Its name.
    pub tree: String,
    /// The id of the patch set that it is.
    pub patchset: Digest,
    /// Where what it held before was put.
    pub saved_to: Option<String>,
}

/// Puts the working tree at `conflict`: the patches before it, and its own files with markers.
/// `ours`: it shows an earlier conflict, whose solution has been taken.
pub(super) fn show(
    ctx: &Ctx,
    pristine: &Pristine,
    old: &Series,
    port: &Port,
    conflict: &Conflict,
    ours: bool,
) -> Result<Shown> {
    let so_far = Series::of(&ctx.project, &pristine.base, port.patches.clone())?;
    let images = Images::compute(pristine, &so_far)?;
    let mut hooks = Vec::new();
    for (path, text) in &conflict.files {
        let before = match images.at(path, images.patches()) {
            Some(image) => Some(image.content.clone()),
            None => patchset::pristine_image(pristine, path)?.map(|image| image.content),
        };
        if let Some(before) = before {
            hooks.extend(diff::between(path, &before, text));
        }
    }
    let patch = &old.patches[conflict.at];
    let mut patches = port.patches.clone();
    patches.push(with_hooks(ctx, patch, &pristine.base.id, hooks)?);
    let series = Series::of(&ctx.project, &pristine.base, patches)?;
    let moved = patchset::apply(ctx, pristine, &series, series.patches.len(), ours)?;
    Ok(Shown {
        tree: moved.tree,
        patchset: series.id,
        saved_to: moved.saved_to,
    })
}

/// What the working tree makes of each file that `patch` changes: all that differs from `images`,
/// the patches before it.
pub(super) fn solution(
    ctx: &Ctx,
    pristine: &Pristine,
    images: &Images,
    patch: &Patch,
) -> Result<BTreeMap<RelPath, Vec<u8>>> {
    let root = ctx.project.working_tree(&pristine.base.id);
    let found = patchset::scan(&root)?;
    let mut expected = pristine.manifest.clone();
    for path in images.paths() {
        if let Some(image) = images.at(path, images.patches()) {
            expected.insert(path.clone(), image.entry());
        }
    }
    let mut solved = BTreeMap::new();
    for difference in expected.differences(&found) {
        let path = difference.path();
        let overlay = patch.overlay.iter().find(|file| file.path == *path);
        match (&difference, overlay) {
            (_, Some(file)) => {
                if fs_err::read(path.resolve(&root)?)? != file.content {
                    return Err(Error::finding(format!(
                        "{path} is an overlay file of `{}`, which all bases share",
                        patch.id()
                    ))
                    .hint(format!(
                        "edit patches/{}/src/{path} instead, and begin the sync again",
                        patch.id()
                    )));
                }
            }
            (Difference::Missing { .. }, None) => {
                return Err(Error::finding(format!("{path} was removed"))
                    .hint("a hook is an edit in place; bring the file back"));
            }
            (Difference::Unknown { .. }, None) => {
                return Err(
                    Error::finding(format!("{path} is a new file")).hint(format!(
                        "put it under patches/{}/src, or take it away",
                        patch.id()
                    )),
                );
            }
            _ => {
                solved.insert(path.clone(), fs_err::read(path.resolve(&root)?)?);
            }
        }
    }
    Ok(solved)
}

/// Makes the working tree what it was before the sync. Returns where edits were put.
pub(super) fn put_back(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    before: Option<usize>,
) -> Result<Option<String>> {
    let root = ctx.project.working_tree(&pristine.base.id);
    if !root.exists() && before.is_none() {
        return Ok(None);
    }
    let count = before.unwrap_or(0).min(series.patches.len());
    let moved = patchset::apply(ctx, pristine, series, count, true)?;
    // A repository that the user keeps in the tree is theirs, and the tree with it.
    if before.is_none() && !root.join(".git").exists() {
        let gone = ctx.project.vendor().join(".sync").join("gone");
        if gone.exists() {
            step()?;
            fs_err::remove_dir_all(&gone)?;
        }
        let _lock = crate::lock::checkout(ctx)?;
        let found = patchset::scan(&root)?;
        if let Some(edit) = pristine.manifest.differences(&found).first() {
            return Err(Error::finding(format!(
                "{} was edited meanwhile: {edit}",
                ctx.project.show(&root)
            ))
            .hint("cargo xtask sync --abort once more"));
        }
        // Renamed first, so that a kill does not leave half a tree under its name.
        step()?;
        fs_err::rename(&root, &gone)?;
        step()?;
        fs_err::remove_dir_all(&gone)?;
    }
    Ok(moved.saved_to)
}
