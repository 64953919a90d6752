//! What is applied, from hashes.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result, ResultExt};
use crate::model::{Digest, TreeState, read_json};
use crate::patchset::{Image, Images, Series, parts};
use crate::tree::{Difference, Entry, RelPath, Scan, TreeManifest};
use crate::vendor::Pristine;

/// The folder inside a working tree that belongs to this program.
pub const STATE_DIR: &str = ".patchset/";

/// The file in it that spares hashing a file twice; see [`glance`].
pub(super) const STAMPS: &str = "stamps";

/// What can be said of one patch in a working tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PatchState {
    /// Every file that it touches has its post-image, or that of a later patch.
    Applied,
    /// No file that it touches has.
    Absent,
    /// Some have, some have not.
    Partial,
    /// A file that it touches is none of the recorded images, and nothing says whose edit it is.
    Drifted,
    /// The last one applied, in a tree with edits: they are taken for edits of this patch.
    Edited,
    /// The base already has all that it does.
    Upstreamed,
    /// The base already has a part of what it does; see [`crate::patchset::Problem`].
    PartlyUpstreamed,
}

impl std::fmt::Display for PatchState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            PatchState::Applied => "applied",
            PatchState::Absent => "absent",
            PatchState::Partial => "partial",
            PatchState::Drifted => "drifted",
            PatchState::Edited => "edited",
            PatchState::Upstreamed => "upstreamed",
            PatchState::PartlyUpstreamed => "partly upstreamed",
        })
    }
}

/// A working tree that is exactly what the base and the whole series make.
#[derive(Clone, Debug)]
pub struct WorkingTree {
    /// The folder that holds the tree.
    pub root: PathBuf,
    /// What is applied.
    pub series: Series,
    /// Its per-file manifest.
    pub manifest: TreeManifest,
}

/// A working tree as it is.
#[derive(Clone, Debug, Default, Serialize)]
pub struct TreeStatus {
    /// Whether there is a working tree.
    pub exists: bool,
    /// Each patch of the series.
    pub patches: Vec<(String, PatchState)>,
    /// Files that are neither the base's nor any recorded image: edits.
    pub edited: Vec<Difference>,
    /// The patch that would take them: the last one applied, as the tree's state file says.
    pub editing: Option<String>,
    /// Touched files that are as an earlier form of the series left them.
    pub outdated: Vec<RelPath>,
    /// The patch-set id that the tree was left at, as its state file says.
    pub recorded: Option<Digest>,
}

impl TreeStatus {
    /// Whether the whole series, in its present form, is applied and nothing else differs.
    pub fn is_applied(&self) -> bool {
        self.exists
            && self.edited.is_empty()
            && self.outdated.is_empty()
            && self
                .patches
                .iter()
                .all(|(_, state)| *state == PatchState::Applied)
    }
}

/// The manifest of a working tree, without this program's own folder and without a repository
/// that the user keeps there.
pub fn scan(root: &Path) -> Result<TreeManifest> {
    TreeManifest::of_tree(root, is_skipped).map_err(|error| unreadable(root, error))
}

/// As [`scan`], but does not hash again what did not change since it was hashed, by its stamps.
/// For telling and for moving; what proves something uses [`scan`].
pub fn glance(root: &Path) -> Result<Scan> {
    let memory = root.join(STATE_DIR).join(STAMPS);
    TreeManifest::of_tree_with(root, is_skipped, &memory).map_err(|error| unreadable(root, error))
}

/// Remembers the files of a tree that was replaced; `made` are those that were written.
pub(super) fn remember(scan: Scan, made: &BTreeMap<&RelPath, (Metadata, Digest)>) {
    scan.remember_replaced(is_skipped, made);
}

fn is_skipped(path: &str) -> bool {
    path == STATE_DIR || matches!(path, ".git/" | ".git")
}

fn unreadable(root: &Path, error: Error) -> Error {
    let unsafe_name = error.kind() == Kind::Config;
    let error = error.context(format!("reading the working tree {}", root.display()));
    if unsafe_name {
        error.hint("no tree may hold a file of that name: take it out of the working tree")
    } else {
        error
    }
}

/// The state file of a working tree, where there is one.
pub fn read_state(root: &Path) -> Result<Option<TreeState>> {
    let path = state_file(root);
    if !path.exists() {
        return Ok(None);
    }
    read_json(&path)
        .map(Some)
        .hint(|| "cargo xtask apply writes it anew".to_owned())
}

/// `<tree>/.patchset/state.json`.
pub fn state_file(root: &Path) -> PathBuf {
    root.join(STATE_DIR).join("state.json")
}

/// Compares the working tree with the base and with every image of the series. A file whose
/// stamps say that it did not change since it was hashed is not hashed again.
pub fn status(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
) -> Result<TreeStatus> {
    compare(ctx, pristine, series, images, |root| {
        glance(root).map(Scan::remember)
    })
}

/// As [`status`], and hashes every file.
pub fn status_of_all_bytes(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
) -> Result<TreeStatus> {
    compare(ctx, pristine, series, images, scan)
}

fn compare(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    look: impl FnOnce(&Path) -> Result<TreeManifest>,
) -> Result<TreeStatus> {
    let root = ctx.project.working_tree(&pristine.base.id);
    let _lock = crate::lock::reading(ctx)?;
    if !root.exists() {
        return Ok(TreeStatus {
            exists: false,
            patches: series
                .ids()
                .into_iter()
                .enumerate()
                .map(|(at, id)| {
                    (
                        id,
                        upstreamed(series, images, at).unwrap_or(PatchState::Absent),
                    )
                })
                .collect(),
            edited: Vec::new(),
            editing: None,
            outdated: Vec::new(),
            recorded: None,
        });
    }
    let state = read_state(&root)?;
    let found = look(&root)?;
    Ok(classify(pristine, series, images, &found, state.as_ref()))
}

/// The pure part of [`status`], which is the same however the files were found.
pub fn classify(
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    found: &TreeManifest,
    state: Option<&TreeState>,
) -> TreeStatus {
    classify_by(&pristine.manifest, &(series, images), found, state)
}

/// What a series makes of each file, as far as telling files apart needs it.
pub(super) trait Traces {
    /// The ids of the patches, in order.
    fn ids(&self) -> Vec<String>;
    /// All touched files.
    fn paths(&self) -> impl Iterator<Item = &RelPath>;
    /// The indexes of the patches that change a file, in order.
    fn patches_of(&self, path: &RelPath) -> impl Iterator<Item = usize>;
    /// A touched file in the base.
    fn pristine(&self, path: &RelPath) -> Option<Entry>;
    /// A touched file with the first `count` patches applied.
    fn at(&self, path: &RelPath, count: usize) -> Option<Entry>;
    /// How many steps of the series a touched file has been through; absent where it is no image.
    fn place(&self, path: &RelPath, entry: Option<Entry>) -> Option<usize>;
    /// Whether the base has the patch at index `at`, wholly or partly.
    fn upstreamed(&self, at: usize) -> Option<PatchState>;
}

impl Traces for (&Series, &Images) {
    fn ids(&self) -> Vec<String> {
        self.0.ids()
    }

    fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.1.paths()
    }

    fn patches_of(&self, path: &RelPath) -> impl Iterator<Item = usize> {
        self.1.steps(path).iter().map(|step| step.patch)
    }

    fn pristine(&self, path: &RelPath) -> Option<Entry> {
        self.1.pristine(path).map(Image::entry)
    }

    fn at(&self, path: &RelPath, count: usize) -> Option<Entry> {
        self.1.at(path, count).map(Image::entry)
    }

    fn place(&self, path: &RelPath, entry: Option<Entry>) -> Option<usize> {
        place(self.1, path, entry)
    }

    fn upstreamed(&self, at: usize) -> Option<PatchState> {
        upstreamed(self.0, self.1, at)
    }
}

pub(super) fn classify_by(
    base: &TreeManifest,
    traces: &impl Traces,
    found: &TreeManifest,
    state: Option<&TreeState>,
) -> TreeStatus {
    let left: BTreeMap<&str, Digest> = state
        .iter()
        .flat_map(|state| &state.files)
        .map(|file| (file.path.as_str(), file.post))
        .collect();
    // Where the tree stands while somebody edits: an edited file is no image, yet the patches up to
    // there are in it and the others are not.
    let ids = traces.ids();
    let stands = state.and_then(|state| {
        let is_prefix = ids.starts_with(&state.applied);
        is_prefix.then_some(state.applied.len())
    });
    let mut edited = Vec::new();
    let mut outdated = Vec::new();
    // For each patch: files with its image (or a later one), without, and none of them.
    let mut tally = vec![(0usize, 0usize, 0usize); ids.len()];
    for path in traces.paths() {
        let entry = found.get(path);
        let mut place = traces.place(path, entry);
        if place.is_none() {
            match entry {
                Some(entry) if left.get(path.as_str()) == Some(&entry.sha256) => {
                    outdated.push(path.clone());
                }
                _ => {
                    let expected = traces.at(path, stands.unwrap_or(ids.len()));
                    edited.push(difference(path, expected, entry));
                    place = stands.map(|count| {
                        let patches = traces.patches_of(path);
                        patches.take_while(|patch| *patch < count).count()
                    });
                }
            }
        }
        for (at, patch) in traces.patches_of(path).enumerate() {
            let slot = &mut tally[patch];
            match place {
                Some(steps) if steps > at => slot.0 += 1,
                Some(_) => slot.1 += 1,
                None => slot.2 += 1,
            }
        }
    }
    for difference in base.differences(found) {
        let path = difference.path();
        if traces.patches_of(path).next().is_none() {
            let was_left = found
                .get(path)
                .is_some_and(|entry| left.get(path.as_str()) == Some(&entry.sha256));
            if was_left {
                outdated.push(path.clone());
            } else {
                edited.push(difference);
            }
        }
    }
    edited.sort_by(|a, b| a.path().cmp(b.path()));
    outdated.sort();
    // A patch that touches nothing goes with the others: as the state file says, else with those
    // that touch something.
    let any_applied = tally.iter().any(|(applied, _, _)| *applied > 0);
    let editing = stands
        .filter(|_| !edited.is_empty())
        .and_then(|count| count.checked_sub(1));
    let state_of = |(at, counts): (usize, (usize, usize, usize))| match counts {
        (_, _, drifted) if drifted > 0 => PatchState::Drifted,
        (0, 0, 0) if any_applied => PatchState::Applied,
        (0, _, _) if editing != Some(at) => PatchState::Absent,
        _ if editing == Some(at) => PatchState::Edited,
        (_, 0, _) => PatchState::Applied,
        _ => PatchState::Partial,
    };
    let editing_id = editing.map(|at| ids[at].clone());
    let patches = ids
        .into_iter()
        .zip(tally.into_iter().enumerate())
        .map(|(id, counted)| {
            let state = traces.upstreamed(counted.0);
            (id, state.unwrap_or_else(|| state_of(counted)))
        })
        .collect();
    TreeStatus {
        exists: true,
        patches,
        edited,
        editing: editing_id,
        outdated,
        recorded: state.map(|state| state.patchset),
    }
}

/// How many steps of the series a file has been through; absent where it is no image at all.
fn place(images: &Images, path: &RelPath, entry: Option<Entry>) -> Option<usize> {
    let steps = images.steps(path);
    let pristine = images.pristine(path);
    if entry == pristine.map(super::images::Image::entry) {
        // By the bytes: other lengths are told apart without hashing all that lies between.
        let same = |step: &super::Step| Some(&step.image) == pristine;
        return Some(steps.iter().rposition(same).map_or(0, |at| at + 1));
    }
    let same = |step: &super::Step| entry == Some(step.image.entry());
    steps.iter().rposition(same).map(|at| at + 1)
}

/// Whether the base has the patch at index `at`, wholly or partly.
fn upstreamed(series: &Series, images: &Images, at: usize) -> Option<PatchState> {
    match images.landed(at) {
        0 => None,
        landed if landed == parts(&series.patches[at]) => Some(PatchState::Upstreamed),
        _ => Some(PatchState::PartlyUpstreamed),
    }
}

/// How a file differs from what it should be.
fn difference(path: &RelPath, expected: Option<Entry>, entry: Option<Entry>) -> Difference {
    let path = path.clone();
    match (expected, entry) {
        (_, None) => Difference::Missing { path },
        (None, Some(_)) => Difference::Unknown { path },
        (Some(expected), Some(found)) if expected.mode == found.mode => Difference::Content {
            path,
            expected: expected.sha256,
            found: found.sha256,
        },
        (Some(expected), Some(found)) => Difference::Mode {
            path,
            expected: expected.mode,
            found: found.mode,
        },
    }
}

/// The working tree with the whole series applied, as its hashes say; an error names what is
/// missing or drifted. What the state file says does not count: it decides nothing that hashes
/// can, and the patch-set id also covers inputs that are no files of the tree.
pub fn applied(ctx: &Ctx, pristine: &Pristine) -> Result<WorkingTree> {
    let series = Series::load(&ctx.project, &pristine.base)?;
    let images = Images::compute(pristine, &series)?;
    let root = ctx.project.working_tree(&pristine.base.id);
    let name = ctx.project.show(&root);
    let _lock = crate::lock::reading(ctx)?;
    if !root.exists() {
        return Err(Error::usage(format!("there is no working tree {name}"))
            .hint("cargo xtask apply makes one"));
    }
    let manifest = scan(&root)?;
    let state = read_state(&root)?;
    let status = classify(pristine, &series, &images, &manifest, state.as_ref());
    if let Some(first) = status.edited.first() {
        return Err(Error::finding(format!(
            "{} {} in {name} not what the base and the series make: {first}",
            count(status.edited.len(), "file"),
            if status.edited.len() == 1 { "is" } else { "are" },
        ))
        .hint("cargo xtask status lists them; cargo xtask apply --discard-edits takes them back and keeps a copy"));
    }
    if !status.is_applied() {
        return Err(Error::finding(format!(
            "the series is not applied to {name} in its present form"
        ))
        .hint("cargo xtask apply"));
    }
    Ok(WorkingTree {
        root,
        series,
        manifest,
    })
}

/// How many patches of the series are applied to the working tree: 0 where it is the base, or
/// where there is none yet. An error where it is at no place of the series.
pub fn position(ctx: &Ctx, pristine: &Pristine, series: &Series) -> Result<usize> {
    let images = Images::compute(pristine, series)?;
    let status = status(ctx, pristine, series, &images)?;
    let is_applied = |(_, state): &&(String, PatchState)| {
        // Edits are for who moves the tree to see.
        matches!(state, PatchState::Applied | PatchState::Edited)
    };
    let count = status.patches.iter().take_while(is_applied).count();
    let rest = &status.patches[count..];
    if let Some((id, state)) = rest.iter().find(|(_, state)| *state != PatchState::Absent) {
        return Err(Error::finding(format!(
            "the working tree is at no place of the series: {id} is {state}"
        ))
        .hint("cargo xtask status says which files; cargo xtask apply brings it to the end"));
    }
    Ok(count)
}

/// `1 file`, `2 files`.
pub fn count(number: usize, what: &str) -> String {
    let ending = match (number, what.ends_with("ch")) {
        (1, _) => "",
        (_, true) => "es",
        (_, false) => "s",
    };
    format!("{number} {what}{ending}")
}
