//! One patch becomes two.

use std::collections::BTreeMap;

use crate::authoring::markers::{follow_markers, remark, remarked};
use crate::authoring::new::{gates, manifest_text};
use crate::authoring::same::{refuse_taken, same_result};
use crate::authoring::save::{Saved, save, unchanged, with_hooks};
use crate::ctx::Ctx;
use crate::diff::FileDiff;
use crate::error::{Error, Result};
use crate::model::PatchManifest;
use crate::patchset::{Images, Patch, Series};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// Moves the hooks in, and the overlay files, `paths` of the patch `id` into a new patch directly
/// behind it.
pub fn split(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    id: &str,
    new_id: &str,
    paths: &[RelPath],
) -> Result<Saved> {
    refuse_taken(ctx, new_id)?;
    let at = series.position(id)? - 1;
    let patch = &series.patches[at];
    for path in paths {
        let known = patch.hooks.iter().any(|diff| diff.path == *path)
            || patch.overlay.iter().any(|file| file.path == *path);
        if !known {
            return Err(Error::usage(format!("`{id}` does not touch {path}")));
        }
    }
    let (moved, kept): (Vec<FileDiff>, Vec<FileDiff>) = patch
        .hooks
        .iter()
        .cloned()
        .partition(|diff| paths.contains(&diff.path));
    let (moved_files, kept_files): (Vec<_>, Vec<_>) = patch
        .overlay
        .iter()
        .cloned()
        .partition(|file| paths.contains(&file.path));
    if kept.is_empty() && kept_files.is_empty() {
        return Err(Error::usage(format!("nothing would be left of `{id}`"))
            .hint("cargo xtask rename gives it another name"));
    }
    let moved_paths: Vec<RelPath> = moved.iter().map(|diff| diff.path.clone()).collect();
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let old = Images::compute(pristine, series)?;
    let text = manifest_text(
        new_id,
        &format!("Split from {id}"),
        Some(id),
        gates(ctx, pristine),
    );
    let manifest: PatchManifest =
        toml::from_str(&text).map_err(|error| Error::internal(error.to_string()))?;
    let empty = Patch {
        manifest,
        hooks: Vec::new(),
        overlay: moved_files,
        hooks_file: None,
        hooks_text: Vec::new(),
    };
    let mut first = with_hooks(ctx, patch, &series.base.id, kept)?;
    first.overlay = kept_files;
    let second = with_hooks(ctx, &empty, &series.base.id, remark(moved, id, new_id))?;
    let mut patches = series.patches.clone();
    patches.splice(at..=at, [first, second]);
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    let fresh = follow_markers(ctx, fresh, at + 2, id, new_id, paths)?;
    let manifests = BTreeMap::from([(new_id.to_owned(), text)]);
    let remark_moved = |path: &RelPath, content: &[u8]| {
        if moved_paths.contains(path) {
            remarked(content, id, new_id)
        } else {
            content.to_vec()
        }
    };
    same_result(pristine, &old, &fresh, &remark_moved)?;
    save(ctx, &lock, pristine, series, &fresh, &manifests, &[])
}
