//! Moving patches about: reorder, split, fold, rename.

use std::collections::BTreeMap;

use crate::authoring::new::{gates, manifest_text};
use crate::authoring::refresh::{follow, refuse};
use crate::authoring::save::{Saved, edit_manifest, save, unchanged, with_hooks};
use crate::ctx::Ctx;
use crate::diff::{self, FileDiff};
use crate::error::{Error, Result};
use crate::model::PatchManifest;
use crate::patchset::{Images, Patch, Series, is_patch_id};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// Puts the patch `id` directly behind `after`, or first where that is `None`. Every patch in
/// between is moved by a three-way merge; what the whole series makes stays the same.
pub fn reorder(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    id: &str,
    after: Option<&str>,
) -> Result<Saved> {
    let from = series.position(id)? - 1;
    if after == Some(id) {
        return Err(Error::usage(format!("`{id}` cannot stand behind itself")));
    }
    let mut order: Vec<usize> = (0..series.patches.len()).filter(|at| *at != from).collect();
    let to = match after {
        None => 0,
        Some(after) => {
            let at = series.position(after)? - 1;
            order
                .iter()
                .position(|other| *other == at)
                .map_or(0, |at| at + 1)
        }
    };
    order.insert(to, from);
    for (place, at) in order.iter().enumerate() {
        let patch = &series.patches[*at];
        for needed in &patch.manifest.requires {
            let ahead = order[..place]
                .iter()
                .any(|at| series.patches[*at].id() == needed);
            if !ahead {
                return Err(Error::usage(format!(
                    "`{}` requires `{needed}` and would stand before it",
                    patch.id()
                )));
            }
        }
    }
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let old = Images::compute(pristine, series)?;
    let mut patches: Vec<Patch> = Vec::new();
    for at in order {
        let so_far = Series::of(&ctx.project, &series.base, patches.clone())?;
        let new = Images::compute(pristine, &so_far)?;
        let patch = &series.patches[at];
        match follow(
            ctx,
            pristine,
            series,
            patch,
            (&old, at),
            (&new, patches.len()),
        )? {
            Ok(moved) => patches.push(moved),
            Err(conflict) => return Err(refuse(&conflict)),
        }
    }
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    same_result(pristine, &old, &fresh, &|_, content| content.to_vec())?;
    save(ctx, &lock, pristine, series, &fresh, &BTreeMap::new(), &[])
}

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

/// The whole series makes what it made before, but for what `expected` changes in a content.
fn same_result(
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
fn same_but_for_markers(
    pristine: &Pristine,
    old: &Images,
    fresh: &Series,
    id: &str,
    new_id: &str,
) -> Result<()> {
    let expected = |_: &RelPath, content: &[u8]| remarked(content, id, new_id);
    same_result(pristine, old, fresh, &expected)
}

fn refuse_taken(ctx: &Ctx, id: &str) -> Result<()> {
    if !is_patch_id(id) {
        return Err(Error::usage(format!("`{id}` is no patch id"))
            .hint("lowercase letters, digits and single hyphens, beginning with a letter"));
    }
    if ctx.project.patch_dir(id).exists() {
        return Err(Error::usage(format!("there is a patch `{id}` already")));
    }
    Ok(())
}

fn require(
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

const MARKER: &str = "opencoti-hook: ";

/// `line` with the marker of `old` made that of `new`.
fn remarked(content: &[u8], old: &str, new: &str) -> Vec<u8> {
    let (from, to) = (format!("{MARKER}{old}"), format!("{MARKER}{new}"));
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = find(rest, from.as_bytes()) {
        let end = at + from.len();
        // Not the beginning of a longer id.
        let whole = !rest
            .get(end)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'-');
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(if whole {
            to.as_bytes()
        } else {
            from.as_bytes()
        });
        rest = &rest[end..];
    }
    out.extend_from_slice(rest);
    out
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Inserted lines with other markers.
fn remark(mut hooks: Vec<FileDiff>, old: &str, new: &str) -> Vec<FileDiff> {
    for line in hooks
        .iter_mut()
        .flat_map(|diff| &mut diff.hunks)
        .flat_map(|hunk| &mut hunk.lines)
    {
        if let diff::Line::Insert(bytes) = line {
            *bytes = remarked(bytes, old, new);
        }
    }
    hooks
}

/// Later patches quote lines of earlier ones as context: those whose marker changed are changed
/// there too. `only` limits it to these files, where it is not empty.
fn follow_markers(
    ctx: &Ctx,
    series: Series,
    from: usize,
    old: &str,
    new: &str,
    only: &[RelPath],
) -> Result<Series> {
    let mut patches = series.patches;
    for patch in patches.iter_mut().skip(from) {
        let mut hooks = patch.hooks.clone();
        for diff in &mut hooks {
            if !only.is_empty() && !only.contains(&diff.path) {
                continue;
            }
            for line in diff.hunks.iter_mut().flat_map(|hunk| &mut hunk.lines) {
                if let diff::Line::Context(bytes) | diff::Line::Delete(bytes) = line {
                    *bytes = remarked(bytes, old, new);
                }
            }
        }
        *patch = with_hooks(ctx, patch, &series.base.id, hooks)?;
    }
    Series::of(&ctx.project, &series.base, patches)
}
