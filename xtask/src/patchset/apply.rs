//! Moving a working tree to a position of the series: all of it or nothing.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::Path;

use rayon::prelude::*;
use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Digest, TrackedFile, TreeState};
use crate::patchset::images::{Image, pristine_image};
use crate::patchset::status::{STAMPS, STATE_DIR, TreeStatus, count, glance, read_state, remember};
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
    let mut moved = Moved {
        tree: ctx.project.show(&root),
        applied: series.ids()[..count].to_vec(),
        created: !root.exists(),
        written: Vec::new(),
        removed: Vec::new(),
        discarded: Vec::new(),
        saved_to: None,
    };
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
    let state = state_of(pristine, series, images, count);
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

fn state_of(pristine: &Pristine, series: &Series, images: &Images, count: usize) -> TreeState {
    let files = images
        .paths()
        .filter(|path| images.steps(path).iter().any(|step| step.patch < count))
        .filter_map(|path| {
            Some(TrackedFile {
                path: path.to_string(),
                pre: images.pristine(path).map(|image| image.sha256()),
                post: images.at(path, count)?.sha256(),
            })
        })
        .collect();
    TreeState {
        schema: 1,
        base: pristine.base.id.clone(),
        tree: pristine.base.tree,
        applied: series.ids()[..count].to_vec(),
        patchset: series.id,
        files,
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
