//! Another id for a patch.

use std::collections::BTreeMap;

use crate::authoring::markers::{follow_markers, remark, remarked};
use crate::authoring::same::{refuse_taken, require, same_but_for_markers};
use crate::authoring::save::{Saved, edit_manifest, save, unchanged, with_hooks};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset::{Images, Series};
use crate::vendor::Pristine;

/// Gives a patch another id: its folder, its manifest, its markers, and what others say of it.
pub fn rename(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    id: &str,
    new_id: &str,
) -> Result<Saved> {
    refuse_taken(ctx, new_id)?;
    let at = series.position(id)? - 1;
    let others = ctx.project.series()?;
    if let Some((base, _)) = others
        .series
        .iter()
        .find(|(base, ids)| **base != series.base.id && ids.iter().any(|other| other == id))
    {
        return Err(
            Error::usage(format!("`{id}` is in the series of {base} too"))
                .hint("take it out there first; a rename changes the hooks of one base"),
        );
    }
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let file = ctx.project.patch_dir(id).join("patch.toml");
    let text = edit_manifest(&fs_err::read_to_string(file)?, |document| {
        document["id"] = toml_edit::value(new_id);
    })?;
    let mut patches = series.patches.clone();
    let mut manifests = BTreeMap::from([(new_id.to_owned(), text)]);
    for (place, patch) in patches.iter_mut().enumerate() {
        if patch.manifest.requires.iter().any(|needed| needed == id) {
            require(ctx, patch, id, new_id, &mut manifests)?;
        }
        if place == at {
            patch.manifest.id = new_id.to_owned();
            for file in &mut patch.overlay {
                file.content = remarked(&file.content, id, new_id);
            }
            let hooks = remark(patch.hooks.clone(), id, new_id);
            patch.hooks = Vec::new();
            patch.hooks_file = None;
            *patch = with_hooks(ctx, patch, &series.base.id, hooks)?;
        }
    }
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    let fresh = follow_markers(ctx, fresh, at + 1, id, new_id, &[])?;
    let old = Images::compute(pristine, series)?;
    same_but_for_markers(pristine, &old, &fresh, id, new_id)?;
    save(
        ctx,
        &lock,
        pristine,
        series,
        &fresh,
        &manifests,
        &[id.to_owned()],
    )
}
