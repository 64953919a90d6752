//! What a series makes of each file that it touches, computed in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rayon::prelude::*;
use serde::Serialize;

use crate::diff;
use crate::error::{Error, Result};
use crate::model::Digest;
use crate::patchset::load::Overlay;
use crate::patchset::status::STATE_DIR;
use crate::patchset::{Patch, Series};
use crate::tree::{Entry, FileMode, RelPath, has_below};
use crate::vendor::Pristine;

/// All images of a series on its base.
#[derive(Clone, Debug, Default)]
pub struct Images {
    files: BTreeMap<RelPath, FileImages>,
    len: usize,
}

/// The history of one file through the series.
#[derive(Clone, Debug)]
struct FileImages {
    pristine: Option<Image>,
    steps: Vec<Step>,
}

/// One content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The bytes.
    pub content: Vec<u8>,
    /// Their digest.
    pub sha256: Digest,
    /// Whether the file is executable.
    pub executable: bool,
}

/// What one patch makes of a file.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index of the patch in the series.
    pub patch: usize,
    /// The file after it.
    pub image: Image,
}

/// A patch that does not sit on the files as the patches before it leave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The patch.
    pub patch: String,
    /// The file; absent where the whole patch waits for another one.
    pub file: Option<RelPath>,
    /// What is wrong.
    pub detail: String,
    /// The patch whose failure this one follows from; absent for a root failure.
    pub follows_from: Option<String>,
    /// The file already is what the patch makes of it: the patch may have landed upstream.
    pub upstreamed: bool,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.patch)?;
        if let Some(file) = &self.file {
            write!(f, ": {file}")?;
        }
        write!(f, ": {}", self.detail)
    }
}

impl Images {
    /// Applies the series to the pristine files. All patches are tried; those that touch what a
    /// failed one touches, or require it, are reported as following from it.
    pub fn compute(pristine: &Pristine, series: &Series) -> Result<Images> {
        let (images, problems) = Self::attempt(pristine, series)?;
        if problems.is_empty() {
            return Ok(images);
        }
        Err(failure(series, &problems))
    }

    /// As [`Images::compute`], with the problems as values. The images are then those of the
    /// patches that could be applied.
    pub fn attempt(pristine: &Pristine, series: &Series) -> Result<(Images, Vec<Problem>)> {
        if let Some(images) = Self::by_file(pristine, series) {
            return Ok((images, Vec::new()));
        }
        Self::by_patch(pristine, series)
    }

    /// The images of a series without any fault, each file for itself on all processors. None
    /// where there is a fault: [`Images::by_patch`] then says which, in the order of the series.
    fn by_file(pristine: &Pristine, series: &Series) -> Option<Images> {
        let mut work: BTreeMap<&RelPath, Vec<(usize, Change<'_>)>> = BTreeMap::new();
        for (at, patch) in series.patches.iter().enumerate() {
            for diff in &patch.hooks {
                work.entry(&diff.path)
                    .or_default()
                    .push((at, Change::Hooks(diff)));
            }
            for file in &patch.overlay {
                work.entry(&file.path)
                    .or_default()
                    .push((at, Change::New(file)));
            }
        }
        let files = work
            .into_par_iter()
            .map(|(path, changes)| Some((path.clone(), history(pristine, path, &changes)?)))
            .collect::<Option<Vec<_>>>()?;
        let images = Images {
            files: files.into_iter().collect(),
            len: series.patches.len(),
        };
        let added = |(_, file): &(&RelPath, &FileImages)| file.pristine.is_none();
        let crowded = images
            .files
            .iter()
            .filter(added)
            .any(|(path, _)| images.no_room(pristine, path, &[]).is_some());
        (!crowded).then_some(images)
    }

    fn by_patch(pristine: &Pristine, series: &Series) -> Result<(Images, Vec<Problem>)> {
        let mut images = Images {
            files: BTreeMap::new(),
            len: series.patches.len(),
        };
        let mut problems: Vec<Problem> = Vec::new();
        // File to the patch that failed on it.
        let mut broken: BTreeMap<RelPath, String> = BTreeMap::new();
        let mut failed: BTreeSet<&str> = BTreeSet::new();
        for (at, patch) in series.patches.iter().enumerate() {
            let cause = patch
                .manifest
                .requires
                .iter()
                .find(|id| failed.contains(id.as_str()))
                .cloned()
                .or_else(|| touched(patch).find_map(|path| broken.get(path).cloned()));
            let found = match cause {
                Some(cause) => vec![Problem {
                    patch: patch.id().to_owned(),
                    file: None,
                    detail: format!("not tried, since `{cause}` failed"),
                    follows_from: Some(cause),
                    upstreamed: false,
                }],
                None => images.add(pristine, at, patch)?,
            };
            if !found.is_empty() {
                failed.insert(patch.id());
                for path in touched(patch) {
                    broken.insert(path.clone(), patch.id().to_owned());
                }
                problems.extend(found);
            }
        }
        Ok((images, problems))
    }

    /// Adds one patch; on a problem, none of its images stay.
    fn add(&mut self, pristine: &Pristine, at: usize, patch: &Patch) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        let mut steps: Vec<(RelPath, Option<Image>, Image)> = Vec::new();
        let problem = |file: &RelPath, detail: String, upstreamed: bool| Problem {
            patch: patch.id().to_owned(),
            file: Some(file.clone()),
            detail,
            follows_from: None,
            upstreamed,
        };
        for diff in &patch.hooks {
            let Some(before) = self.current(pristine, &diff.path)? else {
                problems.push(problem(
                    &diff.path,
                    "there is no such file".to_owned(),
                    false,
                ));
                continue;
            };
            match diff::apply(diff, &before.content) {
                Ok(content) => {
                    let after = Image::new(content, before.executable);
                    steps.push((diff.path.clone(), Some(before), after));
                }
                Err(mismatch) => {
                    let upstreamed = diff::is_applied(diff, &before.content);
                    let mut detail = mismatch.to_string();
                    if upstreamed {
                        detail.push_str("\n  the file already is what the hunks make of it");
                    }
                    problems.push(problem(&diff.path, detail, upstreamed));
                }
            }
        }
        for file in &patch.overlay {
            if let Some(detail) = self.no_room(pristine, &file.path, &steps) {
                problems.push(problem(&file.path, detail, false));
                continue;
            }
            if let Some(there) = self.current(pristine, &file.path)? {
                let same = there.content == file.content;
                let detail = "the overlay brings a file that is there already".to_owned();
                problems.push(problem(&file.path, detail, same));
                continue;
            }
            let after = Image::new(file.content.clone(), file.executable);
            steps.push((file.path.clone(), None, after));
        }
        if problems.is_empty() {
            for (path, before, image) in steps {
                let file = self.files.entry(path).or_insert_with(|| FileImages {
                    pristine: before,
                    steps: Vec::new(),
                });
                file.steps.push(Step { patch: at, image });
            }
        }
        Ok(problems)
    }

    /// Why no tree can hold a new file at `path`, where it cannot.
    fn no_room(
        &self,
        pristine: &Pristine,
        path: &RelPath,
        steps: &[(RelPath, Option<Image>, Image)],
    ) -> Option<String> {
        let text = path.as_str();
        if text.starts_with(STATE_DIR) {
            return Some(format!("{STATE_DIR} is this program's own folder"));
        }
        let is_file = |path: &RelPath| {
            pristine.manifest.get(path).is_some()
                || self.files.contains_key(path)
                || steps.iter().any(|(step, ..)| step == path)
        };
        if let Some(file) = path.folders().find(is_file) {
            return Some(format!("{file} is a file, not a folder"));
        }
        let below = pristine.manifest.has_below(path)
            || has_below(&self.files, path)
            || steps.iter().any(|(step, ..)| is_below(step.as_str(), text));
        below.then(|| format!("{text} is a folder"))
    }

    /// The file as the patches so far leave it.
    fn current(&self, pristine: &Pristine, path: &RelPath) -> Result<Option<Image>> {
        if let Some(file) = self.files.get(path) {
            let last = file.steps.last().map(|step| &step.image);
            return Ok(last.or(file.pristine.as_ref()).cloned());
        }
        pristine_image(pristine, path)
    }

    /// Number of patches in the series.
    pub fn patches(&self) -> usize {
        self.len
    }

    /// All touched files.
    pub fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.files.keys()
    }

    /// The pristine image of a touched file; absent for a file that the series adds.
    pub fn pristine(&self, path: &RelPath) -> Option<&Image> {
        self.files.get(path)?.pristine.as_ref()
    }

    /// What each patch makes of a file, in order.
    pub fn steps(&self, path: &RelPath) -> &[Step] {
        self.files.get(path).map_or(&[], |file| &file.steps)
    }

    /// A touched file with the first `count` patches applied; absent where it does not exist.
    pub fn at(&self, path: &RelPath, count: usize) -> Option<&Image> {
        let file = self.files.get(path)?;
        file.steps
            .iter()
            .rev()
            .find(|step| step.patch < count)
            .map(|step| &step.image)
            .or(file.pristine.as_ref())
    }
}

/// What a patch does to a file.
enum Change<'a> {
    Hooks(&'a diff::FileDiff),
    New(&'a Overlay),
}

/// A file through all its changes; none where one of them does not sit.
fn history(
    pristine: &Pristine,
    path: &RelPath,
    changes: &[(usize, Change<'_>)],
) -> Option<FileImages> {
    let pristine = pristine_image(pristine, path).ok()?;
    let mut steps: Vec<Step> = Vec::with_capacity(changes.len());
    for (patch, change) in changes {
        let before = steps.last().map(|step| &step.image).or(pristine.as_ref());
        let image = match (change, before) {
            (Change::Hooks(diff), Some(before)) => {
                Image::new(diff::apply(diff, &before.content).ok()?, before.executable)
            }
            (Change::New(file), None) => Image::new(file.content.clone(), file.executable),
            _ => return None,
        };
        steps.push(Step {
            patch: *patch,
            image,
        });
    }
    Some(FileImages { pristine, steps })
}

impl Image {
    fn new(content: Vec<u8>, executable: bool) -> Self {
        Image {
            sha256: Digest::of(&content),
            content,
            executable,
        }
    }

    /// Its entry in a manifest.
    pub fn entry(&self) -> Entry {
        Entry {
            mode: if self.executable {
                FileMode::Executable
            } else {
                FileMode::Plain
            },
            sha256: self.sha256,
        }
    }
}

/// A pristine file, checked against the base's manifest. Links cannot be patched.
pub fn pristine_image(pristine: &Pristine, path: &RelPath) -> Result<Option<Image>> {
    let Some(entry) = pristine.manifest.get(path) else {
        return Ok(None);
    };
    if entry.mode == FileMode::Link {
        return Err(Error::config(format!(
            "{path} is a symbolic link in the base"
        )));
    }
    let image = Image::new(
        fs_err::read(path.below(&pristine.root))?,
        entry.mode == FileMode::Executable,
    );
    if image.sha256 != entry.sha256 {
        return Err(Error::finding(format!(
            "the cached base {} was changed: {path}: expected sha256 {}, found {}",
            pristine.base.id, entry.sha256, image.sha256
        ))
        .hint(format!(
            "cargo xtask vendor --base {} --force",
            pristine.base.id
        )));
    }
    Ok(Some(image))
}

fn is_below(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder)
        .is_some_and(|rest| rest.starts_with('/'))
}

/// Every file that a patch touches.
fn touched(patch: &Patch) -> impl Iterator<Item = &RelPath> {
    let hooks = patch.hooks.iter().map(|diff| &diff.path);
    hooks.chain(patch.overlay.iter().map(|file| &file.path))
}

fn failure(series: &Series, problems: &[Problem]) -> Error {
    let roots = problems
        .iter()
        .filter(|problem| problem.follows_from.is_none());
    let cascades = problems
        .iter()
        .filter(|problem| problem.follows_from.is_some());
    let mut text = format!("the series does not apply to {}", series.base.id);
    for problem in roots.chain(cascades) {
        text.push_str("\n- ");
        text.push_str(&problem.to_string().replace('\n', "\n  "));
    }
    let mut files: Vec<&str> = Vec::new();
    for problem in problems
        .iter()
        .filter(|problem| problem.follows_from.is_none())
    {
        let patch = series
            .patches
            .iter()
            .find(|patch| patch.id() == problem.patch);
        if let Some(file) = patch.and_then(|patch| patch.hooks_file.as_deref())
            && !files.contains(&file)
        {
            files.push(file);
        }
    }
    let what = match files.as_slice() {
        [] => "the patches above".to_owned(),
        files => format!(
            "{} (or, for this base alone, a hooks.{}.patch beside it)",
            files.join(", "),
            series.base.id
        ),
    };
    Error::finding(text).hint(format!("nothing was changed; mend {what}"))
}
