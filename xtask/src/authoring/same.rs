//! What a move must leave as it was, and what it may not begin with.

use std::collections::BTreeMap;

use crate::authoring::markers::remarked;
use crate::authoring::save::edit_manifest;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset::{Images, Patch, Series, is_patch_id};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// The whole series makes what it made before, but for what `expected` changes in a content.
pub(super) fn same_result(
    pristine: &Pristine,
    old: &Images,
    fresh: &Series,
    expected: &dyn Fn(&RelPath, &[u8]) -> Vec<u8>,
) -> Result<()> {
    let new = Images::compute(pristine, fresh)?;
    for path in old.paths().chain(new.paths()) {
        let before = old.at(path, old.patches());
        let after = new.at(path, new.patches());
        let wanted = before.map(|image| (expected(path, &image.content), image.executable));
        let made = after.map(|image| (image.content.clone(), image.executable));
        if wanted != made {
            return Err(Error::finding(format!(
                "{path} would not be what the series makes of it now"
            ))
            .hint("nothing was written; the patches depend on each other's order"));
        }
    }
    Ok(())
}

/// As [`same_result`], where the markers of `id` became those of `new_id`.
pub(super) fn same_but_for_markers(
    pristine: &Pristine,
    old: &Images,
    fresh: &Series,
    id: &str,
    new_id: &str,
) -> Result<()> {
    let expected = |_: &RelPath, content: &[u8]| remarked(content, id, new_id);
    same_result(pristine, old, fresh, &expected)
}

pub(super) fn refuse_taken(ctx: &Ctx, id: &str) -> Result<()> {
    if !is_patch_id(id) {
        return Err(Error::usage(format!("`{id}` is no patch id"))
            .hint("lowercase letters, digits and single hyphens, beginning with a letter"));
    }
    if ctx.project.patch_dir(id).exists() {
        return Err(Error::usage(format!("there is a patch `{id}` already")));
    }
    Ok(())
}

pub(super) fn require(
    ctx: &Ctx,
    patch: &mut Patch,
    old: &str,
    new: &str,
    manifests: &mut BTreeMap<String, String>,
) -> Result<()> {
    let mut needed: Vec<String> = Vec::new();
    for id in &patch.manifest.requires {
        let id = if id == old { new } else { id };
        if id != patch.id() && !needed.iter().any(|known| known == id) {
            needed.push(id.to_owned());
        }
    }
    patch.manifest.requires.clone_from(&needed);
    let file = ctx.project.patch_dir(patch.id()).join("patch.toml");
    let text = edit_manifest(&fs_err::read_to_string(file)?, |document| {
        let array: toml_edit::Array = needed.into_iter().collect();
        document["requires"] = toml_edit::value(array);
    })?;
    manifests.insert(patch.id().to_owned(), text);
    Ok(())
}
