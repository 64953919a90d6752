//! From a series in memory to the files of the checkout.

use std::collections::BTreeMap;

use serde::Serialize;
use toml_edit::{Array, DocumentMut, Item, Value};

use crate::ctx::Ctx;
use crate::diff::{self, FileDiff};
use crate::error::{Error, Result, ResultExt};
use crate::journal::Changes;
use crate::lock::Lock;
use crate::patchset::{Images, Patch, Series};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// What was written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Saved {
    /// Files of the checkout that changed.
    pub files: Vec<RelPath>,
    /// Those of them that are gone.
    pub removed: Vec<RelPath>,
    /// The patches of the series, in order.
    pub patches: Vec<String>,
}

/// A patch with other hooks: the parsed form, its text, and the file that it belongs into.
pub fn with_hooks(ctx: &Ctx, patch: &Patch, base: &str, mut hooks: Vec<FileDiff>) -> Result<Patch> {
    hooks.sort_by(|a, b| a.path.cmp(&b.path));
    if hooks == patch.hooks {
        // Keep its text: it may be in another order, or carry headers of other tools.
        return Ok(patch.clone());
    }
    let text: Vec<u8> = hooks.iter().flat_map(diff::to_text).collect();
    let hooks_file = if hooks.is_empty() {
        None
    } else {
        Some(hooks_file(ctx, patch, base)?)
    };
    Ok(Patch {
        hooks,
        hooks_text: text,
        hooks_file,
        ..patch.clone()
    })
}

/// Where the hooks of a patch for `base` go: the file that they came from, unless another base
/// reads that one too.
fn hooks_file(ctx: &Ctx, patch: &Patch, base: &str) -> Result<String> {
    let dir = ctx.project.show(&ctx.project.patch_dir(patch.id()));
    let own = format!("{dir}/hooks.{base}.patch");
    let common = format!("{dir}/hooks.patch");
    if patch.hooks_file.as_deref() == Some(own.as_str()) {
        return Ok(own);
    }
    let series = ctx.project.series()?;
    let shared = series.series.iter().any(|(other, ids)| {
        other != base
            && ids.iter().any(|id| id == patch.id())
            && !ctx
                .project
                .root()
                .join(format!("{dir}/hooks.{other}.patch"))
                .is_file()
    });
    Ok(if shared { own } else { common })
}

/// Writes `new` in place of `old`, once it is seen to apply: hooks, overlays, new manifests
/// (`manifests`, by patch id), the series, the registry and the page of hooks. Patches that are
/// no longer in the series keep their folder unless `gone` names them.
pub fn save(
    ctx: &Ctx,
    lock: &Lock,
    pristine: &Pristine,
    old: &Series,
    new: &Series,
    manifests: &BTreeMap<String, String>,
    gone: &[String],
) -> Result<Saved> {
    save_with(ctx, lock, pristine, (old, new), manifests, gone, &[])
}

/// As `save`, from the first series to the second, and writes `more` files in the same step.
pub fn save_with(
    ctx: &Ctx,
    lock: &Lock,
    pristine: &Pristine,
    (old, new): (&Series, &Series),
    manifests: &BTreeMap<String, String>,
    gone: &[String],
    more: &[(RelPath, Vec<u8>)],
) -> Result<Saved> {
    let images = Images::compute(pristine, new).context(|| "nothing was written".to_owned())?;
    let mut changes = Changes::default();
    for id in gone {
        remove_folder(ctx, id, &mut changes)?;
    }
    for patch in &new.patches {
        let before = old.patches.iter().find(|other| other.id() == patch.id());
        write_patch(ctx, before, patch, manifests, &mut changes)?;
    }
    for (path, content) in more {
        changes.write(path.clone(), content.clone(), false);
    }
    changes.write(
        RelPath::new("registry/series.toml")?,
        series_text(ctx, new)?,
        false,
    );
    for (path, text) in crate::patchset::records(&ctx.project, new, &images)? {
        changes.write(path, text, false);
    }
    changes.drop_unchanged(ctx.project.root());
    let files: Vec<RelPath> = changes.paths().cloned().collect();
    let removed = changes.removed().cloned().collect();
    crate::patchset::book::warn(ctx, &new.base.id)?;
    changes.commit(ctx, lock)?;
    Ok(Saved {
        files,
        removed,
        patches: new.ids(),
    })
}

fn write_patch(
    ctx: &Ctx,
    before: Option<&Patch>,
    patch: &Patch,
    manifests: &BTreeMap<String, String>,
    changes: &mut Changes,
) -> Result<()> {
    let dir = ctx.project.show(&ctx.project.patch_dir(patch.id()));
    if let Some(text) = manifests.get(patch.id()) {
        changes.write(
            RelPath::new(format!("{dir}/patch.toml"))?,
            text.as_bytes(),
            false,
        );
    }
    if let Some(name) = &patch.hooks_file {
        changes.write(RelPath::new(name.clone())?, patch.hooks_text.clone(), false);
    }
    if let Some(name) = before.and_then(|before| before.hooks_file.as_ref())
        && patch.hooks_file.as_ref() != Some(name)
        && patch.hooks_file.is_none()
    {
        changes.remove(RelPath::new(name.clone())?);
    }
    for file in before.into_iter().flat_map(|before| &before.overlay) {
        if !patch.overlay.iter().any(|kept| kept.path == file.path) {
            changes.remove(RelPath::new(format!("{dir}/src/{}", file.path))?);
        }
    }
    for file in &patch.overlay {
        changes.write(
            RelPath::new(format!("{dir}/src/{}", file.path))?,
            file.content.clone(),
            file.executable,
        );
    }
    Ok(())
}

fn remove_folder(ctx: &Ctx, id: &str, changes: &mut Changes) -> Result<()> {
    let dir = ctx.project.patch_dir(id);
    for entry in walkdir::WalkDir::new(&dir) {
        let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
        if !entry.file_type().is_dir() {
            changes.remove(RelPath::new(ctx.project.show(entry.path()))?);
        }
    }
    Ok(())
}

/// `registry/series.toml` with this base's series; comments and the other bases stay.
fn series_text(ctx: &Ctx, series: &Series) -> Result<String> {
    let path = ctx.project.registry("series.toml");
    let text = fs_err::read_to_string(&path)?;
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Error::config(error.message().to_owned()))
        .context(|| ctx.project.show(&path))?;
    let ids: Array = series.ids().into_iter().collect();
    let broken = || Error::config("registry/series.toml has no [series] table");
    let table = document
        .entry("series")
        .or_insert(toml_edit::table())
        .as_table_like_mut()
        .ok_or_else(broken)?;
    match table.get_mut(&series.base.id) {
        Some(item) => {
            let mut value = Value::Array(ids);
            if let Some(old) = item.as_value() {
                *value.decor_mut() = old.decor().clone();
            }
            *item = Item::Value(value);
        }
        None => {
            table.insert(&series.base.id, Item::Value(Value::Array(ids)));
        }
    }
    Ok(document.to_string())
}

/// Changes one string of a manifest's text; comments stay.
pub fn edit_manifest(text: &str, edit: impl FnOnce(&mut DocumentMut)) -> Result<String> {
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Error::config(error.message().to_owned()))?;
    edit(&mut document);
    Ok(document.to_string())
}
