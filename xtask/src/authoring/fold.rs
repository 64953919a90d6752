//! A patch goes into the one before it.

use std::collections::BTreeMap;

use crate::authoring::markers::{follow_markers, remark, remarked};
use crate::authoring::same::{require, same_but_for_markers};
use crate::authoring::save::{Saved, edit_manifest, save, unchanged, with_hooks};
use crate::ctx::Ctx;
use crate::diff;
use crate::error::{Error, Result};
use crate::model::PatchManifest;
use crate::patchset::{Images, Patch, Series};
use crate::vendor::Pristine;

/// Takes the patch `id` into `into`, the one directly before it.
pub fn fold(ctx: &Ctx, pristine: &Pristine, series: &Series, id: &str) -> Result<Saved> {
    let at = series.position(id)? - 1;
    let Some(before) = at.checked_sub(1) else {
        return Err(Error::usage(format!("`{id}` is the first patch"))
            .hint("fold takes a patch into the one before it"));
    };
    let (into, patch) = (&series.patches[before], &series.patches[at]);
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let old = Images::compute(pristine, series)?;
    let into_id = into.id().to_owned();
    let mut overlay = into.overlay.clone();
    let mut hooks = Vec::new();
    for path in old.paths() {
        let steps = old.steps(path);
        if !steps
            .iter()
            .any(|step| step.patch == before || step.patch == at)
        {
            continue;
        }
        let Some(after) = old.at(path, at + 1) else {
            continue;
        };
        match old.at(path, before) {
            Some(image) => hooks.extend(diff::between(path, &image.content, &after.content)),
            None => {
                overlay.retain(|file| file.path != *path);
                overlay.push(crate::patchset::Overlay {
                    path: path.clone(),
                    content: after.content.clone(),
                    executable: after.executable,
                });
            }
        }
    }
    overlay.sort_by(|a, b| a.path.cmp(&b.path));
    let hooks = remark(hooks, id, &into_id);
    let mut folded = with_hooks(ctx, into, &series.base.id, hooks)?;
    folded.overlay = overlay;
    for file in &mut folded.overlay {
        file.content = remarked(&file.content, id, &into_id);
    }
    let mut patches = series.patches.clone();
    patches.splice(before..=at, [folded]);
    let mut manifests = BTreeMap::new();
    for later in &mut patches {
        if later.manifest.requires.iter().any(|needed| needed == id) {
            require(ctx, later, id, &into_id, &mut manifests)?;
        }
    }
    inherit(ctx, &mut patches[before], &patch.manifest, &mut manifests)?;
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    let fresh = follow_markers(ctx, fresh, before + 1, id, &into_id, &[])?;
    same_but_for_markers(pristine, &old, &fresh, id, &into_id)?;
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

/// Adds to a manifest what that of a folded patch says: requirements, gates, switches, inputs,
/// notes and allowed deletions. Title and purpose stay.
fn inherit(
    ctx: &Ctx,
    into: &mut Patch,
    from: &PatchManifest,
    manifests: &mut BTreeMap<String, String>,
) -> Result<()> {
    let id = into.id().to_owned();
    let text = match manifests.remove(&id) {
        Some(text) => text,
        None => fs_err::read_to_string(ctx.project.patch_dir(&id).join("patch.toml"))?,
    };
    let own = &into.manifest;
    let missing = |own: &[String], from: &[String]| -> Vec<String> {
        let is_new = |item: &&String| **item != id && !own.contains(item);
        from.iter().filter(is_new).cloned().collect()
    };
    let lists = [
        ("requires", missing(&own.requires, &from.requires)),
        ("gates", missing(&own.gates, &from.gates)),
        ("switches", missing(&own.switches, &from.switches)),
        ("inputs", missing(&own.inputs, &from.inputs)),
    ];
    let text = edit_manifest(&text, |document| {
        for (key, items) in lists {
            if items.is_empty() {
                continue;
            }
            let list = document
                .entry(key)
                .or_insert(toml_edit::value(toml_edit::Array::new()));
            if let Some(list) = list.as_array_mut() {
                list.extend(items);
            }
        }
        for (switch, said) in &from.log {
            let log = document.entry("log").or_insert(toml_edit::table());
            let Some(log) = log.as_table_mut().filter(|log| !log.contains_key(switch)) else {
                continue;
            };
            log.set_implicit(true);
            let list = |texts: &[String]| -> toml_edit::Array { texts.iter().cloned().collect() };
            let mut table = toml_edit::Table::new();
            if let Some(says) = &said.says {
                table["says"] = toml_edit::value(says.as_str());
            }
            for (key, texts) in [("refuses", &said.refuses), ("aside", &said.aside)] {
                if !texts.is_empty() {
                    table[key] = toml_edit::value(list(texts));
                }
            }
            if said.fault {
                table["fault"] = toml_edit::value(true);
            }
            log[switch] = toml_edit::Item::Table(table);
        }
        for (path, note) in &from.notes {
            let note = match own.notes.get(path) {
                Some(own) if own.contains(note.as_str()) => continue,
                Some(own) => format!("{own} {note}"),
                None => note.clone(),
            };
            table(document, "notes").insert(path, toml_edit::value(note));
        }
        if from.allow.deletions > 0 {
            let allow = table(document, "allow");
            let deletions = own.allow.deletions + from.allow.deletions;
            let count = i64::try_from(deletions).unwrap_or(i64::MAX);
            allow.insert("deletions", toml_edit::value(count));
            let reason = format!("{} {}", own.allow.reason, from.allow.reason);
            allow.insert("reason", toml_edit::value(reason.trim()));
        }
    })?;
    into.manifest = toml::from_str(&text).map_err(|error| Error::internal(error.to_string()))?;
    manifests.insert(id, text);
    Ok(())
}

/// The table `key` of a document, which begins empty where there is none.
fn table<'a>(
    document: &'a mut toml_edit::DocumentMut,
    key: &str,
) -> &'a mut dyn toml_edit::TableLike {
    let entry = document.entry(key);
    let item = entry.or_insert(toml_edit::Item::Table(toml_edit::Table::new()));
    if !item.is_table_like() {
        *item = toml_edit::Item::Table(toml_edit::Table::new());
    }
    item.as_table_like_mut()
        .unwrap_or_else(|| unreachable!("it was made one"))
}
