//! From a series in memory to the files of the checkout.

use std::collections::BTreeMap;

use serde::Serialize;
use toml_edit::{Array, DocumentMut, Item, Value};

use crate::ctx::Ctx;
use crate::diff::{self, FileDiff};
use crate::error::{Error, Result, ResultExt};
use crate::journal::Changes;
use crate::lock::Lock;
use crate::model::Base;
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

/// A patch with other hooks, for `base`: the parsed form, its text, and the file that it belongs
/// into.
pub fn with_hooks(ctx: &Ctx, patch: &Patch, base: &str, mut hooks: Vec<FileDiff>) -> Result<Patch> {
    hooks.sort_by(|a, b| a.path.cmp(&b.path));
    let mut sorted = patch.hooks.clone();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    let text = match hooks == sorted {
        // Keep its text: it may be in another order, or carry headers of other tools.
        true => patch.hooks_text.clone(),
        false => hooks.iter().flat_map(diff::to_text).collect(),
    };
    let hooks = if text == patch.hooks_text {
        patch.hooks.clone()
    } else {
        hooks
    };
    Ok(Patch {
        hooks_file: hooks_file(ctx, patch.id(), base, &text)?,
        hooks,
        hooks_text: text,
        ..patch.clone()
    })
}

/// The two files that hooks of `base` can stand in: its own, and the one of all bases.
fn hooks_files(ctx: &Ctx, id: &str, base: &str) -> (String, String) {
    let dir = ctx.project.show(&ctx.project.patch_dir(id));
    (
        format!("{dir}/hooks.{base}.patch"),
        format!("{dir}/hooks.patch"),
    )
}

/// Where the hooks of a patch for `base` go: into the file of all bases where that says the same,
/// or where no other base reads it; else into one of its own. None where there are no hooks and no
/// file would be read in their place.
fn hooks_file(ctx: &Ctx, id: &str, base: &str, text: &[u8]) -> Result<Option<String>> {
    let root = ctx.project.root();
    let (own, common) = hooks_files(ctx, id, base);
    let series = ctx.project.series()?;
    let shared = series.series.iter().any(|(other, ids)| {
        other != base
            && ids.iter().any(|one| one == id)
            && !root.join(hooks_files(ctx, id, other).0).is_file()
    });
    let there = match root.join(&common).is_file() {
        true => Some(fs_err::read(root.join(&common))?),
        false => None,
    };
    let file = if !text.is_empty() && there.as_deref() == Some(text) {
        Some(common)
    } else if text.is_empty() && (there.is_none() || !shared) {
        None
    } else if shared || root.join(&own).is_file() {
        Some(own)
    } else {
        Some(common)
    };
    Ok(file)
}

/// An error where the series of `base` on the disk is no longer `known`: another command changed
/// it between reading and locking.
pub fn unchanged(ctx: &Ctx, base: &Base, known: &Series) -> Result<()> {
    if Series::load(&ctx.project, base)?.id == known.id {
        return Ok(());
    }
    Err(Error::finding(format!(
        "another command changed the series of {} meanwhile",
        base.id
    ))
    .hint("nothing was written; run the same command again"))
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
    let extra = Extra {
        manifests: manifests.clone(),
        gone: gone.to_vec(),
        ..Extra::default()
    };
    save_with(ctx, lock, pristine, old, new, &extra)
}

/// What else changes with a series.
#[derive(Clone, Debug, Default)]
pub struct Extra {
    /// New manifests, by patch id.
    pub manifests: BTreeMap<String, String>,
    /// Patches whose folder goes.
    pub gone: Vec<String>,
    /// Other files of the checkout to write.
    pub written: Vec<(RelPath, Vec<u8>)>,
    /// Other files of the checkout to remove.
    pub removed: Vec<RelPath>,
}

/// As `save`, with all that changes along with the series.
pub fn save_with(
    ctx: &Ctx,
    lock: &Lock,
    pristine: &Pristine,
    old: &Series,
    new: &Series,
    extra: &Extra,
) -> Result<Saved> {
    let images = Images::compute(pristine, new).context(|| "nothing was written".to_owned())?;
    let mut changes = Changes::default();
    for id in &extra.gone {
        remove_folder(ctx, id, &mut changes)?;
    }
    for patch in &new.patches {
        let before = old.patches.iter().find(|other| other.id() == patch.id());
        write_patch(ctx, &new.base.id, before, patch, extra, &mut changes)?;
    }
    changes.write(
        RelPath::new("registry/series.toml")?,
        series_text(ctx, new)?,
        false,
    );
    for (path, text) in &extra.written {
        changes.write(path.clone(), text.clone(), false);
    }
    for path in &extra.removed {
        changes.remove(path.clone());
    }
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
    base: &str,
    before: Option<&Patch>,
    patch: &Patch,
    extra: &Extra,
    changes: &mut Changes,
) -> Result<()> {
    let dir = ctx.project.show(&ctx.project.patch_dir(patch.id()));
    if let Some(text) = extra.manifests.get(patch.id()) {
        changes.write(
            RelPath::new(format!("{dir}/patch.toml"))?,
            text.as_bytes(),
            false,
        );
    }
    if let Some(name) = &patch.hooks_file {
        changes.write(RelPath::new(name.clone())?, patch.hooks_text.clone(), false);
    }
    // What this base would read in its place goes; what another base reads stays, since then the
    // hooks have a file of their own.
    let (own, common) = hooks_files(ctx, patch.id(), base);
    for name in [own, common] {
        let read_instead = match patch.hooks_file.as_deref() {
            Some(file) => name != file && file.ends_with("/hooks.patch"),
            None => true,
        };
        if read_instead && ctx.project.root().join(&name).is_file() {
            changes.remove(RelPath::new(name)?);
        }
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
