//! Moving a working tree to a position of the series: all of it or nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Base, Digest, TrackedFile, TreeState};
use crate::patchset::images::{Image, pristine_image};
use crate::patchset::memory::{self, Begun, Memory};
use crate::patchset::status::{
    STAMPS, STATE_DIR, Traces, TreeStatus, classify_by, count, glance, read_state, remember,
};
use crate::patchset::{Images, Series};
use crate::tree::{Difference, Entry, RelPath, Scan, TreeManifest, recover, stage_without};
use crate::vendor::Pristine;

/// What a move changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Moved {
    /// The working tree, as a user reads it.
    pub tree: String,
    /// The applied patches.
    pub applied: Vec<String>,
    /// The working tree was made anew from the base.
    pub created: bool,
    /// Files that were written.
    pub written: Vec<RelPath>,
    /// Files that were removed.
    pub removed: Vec<RelPath>,
    /// Edits that were taken back on request, and where a copy of them lies.
    pub discarded: Vec<RelPath>,
    /// See `discarded`.
    pub saved_to: Option<String>,
}

/// Applies the first `count` patches of the series. Edits in the working tree are named and
/// refuse the move, unless `discard_edits` says to put them away.
pub fn apply(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    count: usize,
    discard_edits: bool,
) -> Result<Moved> {
    let images = Images::compute(pristine, series)?;
    move_to(ctx, pristine, series, &images, count, discard_edits)
}

/// A working tree where it should be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The patch-set id of the series.
    pub patchset: Digest,
    /// What was changed for it.
    pub moved: Moved,
}

/// As [`apply`], of the series that `load` reads, up to and with the patch `until`, else all of
/// it. Where the tree is there already and nothing changed since the series was read last, it is
/// not read again: see `memory.rs`.
pub fn reach(
    ctx: &Ctx,
    base: &Base,
    until: Option<&str>,
    discard_edits: bool,
    load: impl FnOnce() -> Result<(Pristine, Series)>,
) -> Result<Reached> {
    let begun = match stay(ctx, base, until)? {
        Stay::There(reached) => return Ok(*reached),
        Stay::Perhaps(begun) => begun,
        Stay::No => None,
    };
    let (pristine, series) = load()?;
    let count = match until {
        Some(id) => series.position(id)?,
        None => series.patches.len(),
    };
    let images = Images::compute(&pristine, &series)?;
    let moved = move_to(ctx, &pristine, &series, &images, count, discard_edits)?;
    if let Some(begun) = begun.filter(|_| moved.is_nothing()) {
        let _lock = crate::lock::reading(ctx)?;
        Memory::keep(ctx, &begun, &pristine, &series, &images);
    }
    Ok(Reached {
        patchset: series.id,
        moved,
    })
}

/// Whether a tree has to be moved.
enum Stay {
    /// It is where it should be.
    There(Box<Reached>),
    /// Who reads the series will know, and can remember it.
    Perhaps(Option<Begun>),
    /// It has.
    No,
}

fn stay(ctx: &Ctx, base: &Base, until: Option<&str>) -> Result<Stay> {
    let root = ctx.project.working_tree(&base.id);
    let is_folder = std::fs::symlink_metadata(&root).is_ok_and(|meta| meta.is_dir());
    // What the state file says is not believed, but a tree that is elsewhere by it has to move.
    let ends = |state: &TreeState| match (state.applied.last(), until) {
        (Some(last), Some(until)) => last == until,
        (last, _) => last.is_some(),
    };
    if !is_folder || !matches!(read_state(&root), Ok(Some(state)) if ends(&state)) {
        return Ok(Stay::No);
    }
    let _lock = crate::lock::checkout(ctx)?;
    recover(&root)?;
    let Some((pristine, memory)) = memory::recall(ctx, base, &root) else {
        return Ok(Stay::Perhaps(memory::begin(ctx, base)));
    };
    let ids = memory.ids();
    let count = match until {
        Some(id) => ids.iter().position(|other| other == id).map(|at| at + 1),
        None => Some(ids.len()),
    };
    let Some(count) = count else {
        return Ok(Stay::No);
    };
    // Without a look at its files: they may all have to be hashed.
    let state = state_of(&pristine, memory.id, &memory, count);
    if !matches!(read_state(&root), Ok(Some(found)) if found == state) {
        return Ok(Stay::No);
    }
    let scan = glance(&root)?;
    let found = &scan.manifest;
    let status = classify_by(&pristine.manifest, &memory, found, Some(&state));
    let is_there = status.edited.is_empty()
        && status.outdated.is_empty()
        && memory
            .paths()
            .all(|path| memory.at(path, count) == found.get(path));
    if !is_there {
        return Ok(Stay::No);
    }
    scan.remember();
    Ok(Stay::There(Box::new(Reached {
        patchset: memory.id,
        moved: Moved::nothing(ctx.project.show(&root), state.applied),
    })))
}

impl Moved {
    fn nothing(tree: String, applied: Vec<String>) -> Self {
        Moved {
            tree,
            applied,
            created: false,
            written: Vec::new(),
            removed: Vec::new(),
            discarded: Vec::new(),
            saved_to: None,
        }
    }

    fn is_nothing(&self) -> bool {
        *self == Moved::nothing(self.tree.clone(), self.applied.clone())
    }
}

/// Takes the series off: the working tree is the base again. Works from the state file too, so
/// that a series that no longer applies can still be reverted.
pub fn revert(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    discard_edits: bool,
) -> Result<Moved> {
    let (images, _) = Images::attempt(pristine, series)?;
    move_to(ctx, pristine, series, &images, 0, discard_edits)
}

fn move_to(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    count: usize,
    discard_edits: bool,
) -> Result<Moved> {
    let _lock = crate::lock::checkout(ctx)?;
    let root = ctx.project.working_tree(&pristine.base.id);
    let mut moved = Moved::nothing(ctx.project.show(&root), series.ids()[..count].to_vec());
    if std::fs::symlink_metadata(&root).is_ok_and(|meta| !meta.is_dir()) {
        return Err(Error::finding(format!(
            "{} is no folder but a link or a file; it is replaced as a whole, by one rename",
            moved.tree
        ))
        .hint("take it away, or mount a folder of another disk there"));
    }
    recover(&root)?;
    moved.created = !root.exists();
    let old_state = if moved.created {
        None
    } else {
        read_state(&root).or_else(|error| {
            // A broken state file costs nothing but the knowledge of earlier forms.
            ctx.sink
                .warn(&format!("{error}; going by the base and the series alone"));
            Ok::<_, Error>(None)
        })?
    };
    let scan = (!moved.created).then(|| glance(&root)).transpose()?;
    let found = scan
        .as_ref()
        .map_or(&pristine.manifest, |scan| &scan.manifest);
    let status = super::status::classify(pristine, series, images, found, old_state.as_ref());
    if !status.edited.is_empty() {
        if !discard_edits {
            return Err(refuse_edits(&moved.tree, &status));
        }
        moved.saved_to = Some(save_edits(ctx, &root, &status)?);
        moved.discarded = status.edited.iter().map(|d| d.path().clone()).collect();
    }
    let changes = changes(pristine, images, found, &status, count)?;
    let state = state_of(pristine, series.id, &(series, images), count);
    if changes.is_empty() && !moved.created && old_state.as_ref() == Some(&state) {
        scan.map(Scan::remember);
        return Ok(moved);
    }
    let writes: Vec<(&RelPath, &Image)> = changes
        .iter()
        .filter_map(|(path, image)| Some((path, image.as_deref()?)))
        .collect();
    let memory = RelPath::new(format!("{STATE_DIR}{STAMPS}"))?;
    let mut left_out: BTreeSet<&RelPath> = writes.iter().map(|(path, _)| *path).collect();
    // Linking gives every file another stamp.
    left_out.insert(&memory);
    let mut staged = stage_without(&root, &left_out)?;
    if moved.created {
        materialise(ctx, pristine, staged.dir())?;
    }
    // First what goes: a file may have to come where an edit put a folder or a link.
    for (path, image) in &changes {
        if image.is_none() {
            staged.remove(path)?;
            moved.removed.push(path.clone());
        }
    }
    moved.written = writes.iter().map(|(path, _)| (*path).clone()).collect();
    let made = writes.iter().map(|(path, image)| (*path, image.sha256()));
    let made: Vec<(&RelPath, Digest)> = made.collect();
    let writes = writes
        .into_iter()
        .map(|(path, image)| (path, image.content.as_slice(), image.executable));
    staged.write_all(writes.collect())?;
    let mut json =
        serde_json::to_vec_pretty(&state).map_err(|error| Error::internal(error.to_string()))?;
    json.push(b'\n');
    let path = RelPath::new(format!("{STATE_DIR}state.json"))?;
    staged.write(&path, &json, false)?;
    ctx.cancel.check()?;
    let mut written = staged.commit()?;
    if let Some(scan) = scan {
        let made = made.into_iter();
        let made = made.filter_map(|(path, digest)| Some((path, (written.remove(path)?, digest))));
        remember(scan, &made.collect());
    }
    Ok(moved)
}

/// Every file that has to change, with its new image, or none where it has to go.
fn changes<'a>(
    pristine: &Pristine,
    images: &'a Images,
    found: &TreeManifest,
    status: &TreeStatus,
    count: usize,
) -> Result<Vec<(RelPath, Option<Cow<'a, Image>>)>> {
    let mut paths: BTreeSet<RelPath> = images.paths().cloned().collect();
    paths.extend(status.edited.iter().map(|d| d.path().clone()));
    paths.extend(status.outdated.iter().cloned());
    let mut changes = Vec::new();
    for path in paths {
        let target = target(pristine, images, &path, count)?;
        if target.as_deref().map(Image::entry) != found.get(&path) {
            changes.push((path, target));
        }
    }
    Ok(changes)
}

/// A touched or edited file as it has to be with the first `count` patches applied.
fn target<'a>(
    pristine: &Pristine,
    images: &'a Images,
    path: &RelPath,
    count: usize,
) -> Result<Option<Cow<'a, Image>>> {
    if images.steps(path).is_empty() {
        return Ok(pristine_image(pristine, path)?.map(Cow::Owned));
    }
    Ok(images.at(path, count).map(Cow::Borrowed))
}

fn state_of(
    pristine: &Pristine,
    patchset: Digest,
    traces: &impl Traces,
    count: usize,
) -> TreeState {
    let touched = traces
        .paths()
        .filter(|path| traces.patches_of(path).any(|patch| patch < count));
    let files = touched.filter_map(|path| {
        Some(TrackedFile {
            path: path.to_string(),
            pre: traces.pristine(path).map(|entry| entry.sha256),
            post: traces.at(path, count)?.sha256,
        })
    });
    TreeState {
        schema: 1,
        base: pristine.base.id.clone(),
        tree: pristine.base.tree,
        applied: traces.ids().drain(..count).collect(),
        patchset,
        files: files.collect(),
    }
}

/// Copies the base into `dir`.
fn materialise(ctx: &Ctx, pristine: &Pristine, dir: &Path) -> Result<()> {
    let task = ctx.sink.task(
        &format!("Copying {}", pristine.base.id),
        Some(pristine.manifest.len() as u64),
    );
    let files: Vec<&RelPath> = pristine.manifest.iter().map(|(path, _)| path).collect();
    let mut copied = Vec::with_capacity(files.len());
    for some in files.chunks(256) {
        ctx.cancel.check()?;
        let entries = some.par_iter().map(|path| {
            let (from, to) = (path.below(&pristine.root), path.below(dir));
            if let Some(parent) = to.parent() {
                fs_err::create_dir_all(parent)?;
            }
            copy_file(&from, &to)?;
            Ok(((*path).clone(), Entry::of_file(&to)?))
        });
        copied.extend(entries.collect::<Result<Vec<_>>>()?);
        task.progress(copied.len() as u64, files.len() as u64);
    }
    let copied: TreeManifest = copied.into_iter().collect();
    if let Some(first) = pristine.manifest.differences(&copied).first() {
        return Err(Error::finding(format!(
            "the cached base {} is not what it should be: {first}",
            pristine.base.id
        ))
        .hint(format!(
            "cargo xtask vendor --base {} --force",
            pristine.base.id
        )));
    }
    task.finish(&count(pristine.manifest.len(), "file"));
    Ok(())
}

/// Copies a file or a link; the copy can be written to.
pub fn copy_file(from: &Path, to: &Path) -> Result<()> {
    let meta = fs_err::symlink_metadata(from)?;
    if meta.file_type().is_symlink() {
        #[cfg(unix)]
        std::os::unix::fs::symlink(fs_err::read_link(from)?, to)
            .context(|| format!("linking {}", to.display()))?;
    } else {
        fs_err::copy(from, to)?;
        #[cfg(unix)]
        {
            // A shared cache may be read-only; the copy is to be edited.
            use std::os::unix::fs::PermissionsExt;
            let mode = meta.permissions().mode() | 0o200;
            fs_err::set_permissions(to, std::fs::Permissions::from_mode(mode))?;
        }
    }
    Ok(())
}

fn refuse_edits(tree: &str, status: &TreeStatus) -> Error {
    let mut text = format!(
        "{} in {tree} would be lost",
        count(status.edited.len(), "edit")
    );
    for edit in status.edited.iter().take(20) {
        text.push_str(&format!("\n- {edit}"));
    }
    if status.edited.len() > 20 {
        text.push_str(&format!("\n- and {} more", status.edited.len() - 20));
    }
    Error::finding(text).hint(
        "keep them elsewhere, or add --discard-edits: it puts a copy under vendor/.discarded first",
    )
}

/// Puts a copy of every edited file under `vendor/.discarded/<time>/` and returns that folder.
fn save_edits(ctx: &Ctx, root: &Path, status: &TreeStatus) -> Result<String> {
    let time = jiff::Timestamp::now()
        .strftime("%Y%m%d-%H%M%S-%f")
        .to_string();
    let dir = ctx.project.vendor().join(".discarded").join(time);
    for edit in &status.edited {
        if matches!(edit, Difference::Missing { .. }) {
            continue;
        }
        let to = edit.path().below(&dir);
        if let Some(parent) = to.parent() {
            fs_err::create_dir_all(parent)?;
        }
        copy_file(&edit.path().below(root), &to)?;
    }
    fs_err::create_dir_all(&dir)?;
    Ok(ctx.project.show(&dir))
}
