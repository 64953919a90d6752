//! What a series makes of each file that it touches, computed in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::OnceLock;

use rayon::prelude::*;

use crate::diff;
use crate::error::{Error, Result};
use crate::model::Digest;
use crate::patchset::load::Overlay;
use crate::patchset::status::STATE_DIR;
use crate::patchset::{Collision, Patch, Problem, Series, collisions};
use crate::tree::{Entry, FileMode, RelPath, has_below};
use crate::vendor::Pristine;

/// All images of a series on its base.
#[derive(Clone, Debug, Default)]
pub struct Images {
    files: BTreeMap<RelPath, FileImages>,
    len: usize,
    /// Of each patch: hooks and new files that the files before it already have.
    landed: Vec<usize>,
}

/// The history of one file through the series.
#[derive(Clone, Debug)]
struct FileImages {
    pristine: Option<Image>,
    steps: Vec<Step>,
}

/// One content of a file.
#[derive(Clone, Debug)]
pub struct Image {
    /// The bytes.
    pub content: Vec<u8>,
    /// See [`Image::sha256`].
    digest: OnceLock<Digest>,
    /// Whether the file is executable.
    pub executable: bool,
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        self.executable == other.executable && self.content == other.content
    }
}

impl Eq for Image {}

/// What one patch makes of a file.
#[derive(Clone, Debug)]
pub struct Step {
    /// Index of the patch in the series.
    pub patch: usize,
    /// The file after it.
    pub image: Image,
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
            landed: vec![0; series.patches.len()],
        };
        let added = |(_, file): &(&RelPath, &FileImages)| file.pristine.is_none();
        let crowded = images
            .files
            .iter()
            .filter(added)
            .any(|(path, _)| images.no_room(pristine, path, &[]).is_some());
        (!crowded && collisions(pristine, series).is_empty()).then_some(images)
    }

    fn by_patch(pristine: &Pristine, series: &Series) -> Result<(Images, Vec<Problem>)> {
        let mut images = Images {
            files: BTreeMap::new(),
            len: series.patches.len(),
            landed: vec![0; series.patches.len()],
        };
        let mut problems: Vec<Problem> = Vec::new();
        // File to the patch that failed on it.
        let mut broken: BTreeMap<RelPath, String> = BTreeMap::new();
        let mut failed: BTreeSet<&str> = BTreeSet::new();
        let collisions = collisions(pristine, series);
        for (at, patch) in series.patches.iter().enumerate() {
            let cause = patch
                .manifest
                .requires
                .iter()
                .find(|id| failed.contains(id.as_str()))
                .cloned()
                .or_else(|| touched(patch).find_map(|path| broken.get(path).cloned()));
            let found = match cause {
                Some(cause) => {
                    let detail = format!("not tried, since `{cause}` failed");
                    let mut problem = Problem::new(patch.id(), None, detail);
                    problem.follows_from = Some(cause);
                    vec![problem]
                }
                None => {
                    let own = collisions.iter().filter(|one| one.patch == at).collect();
                    images.add(pristine, at, patch, own)?
                }
            };
            images.landed[at] = (found.iter().filter_map(|problem| problem.landed.as_ref()))
                .map(|landed| landed.hooks)
                .sum();
            // Where the base has all of it, those behind it find what they need.
            if !found.is_empty() && images.landed[at] < parts(patch) {
                failed.insert(patch.id());
                for path in touched(patch) {
                    broken.insert(path.clone(), patch.id().to_owned());
                }
            }
            problems.extend(found);
        }
        Ok((images, problems))
    }

    /// Adds one patch; on a problem, none of its images stay.
    fn add(
        &mut self,
        pristine: &Pristine,
        at: usize,
        patch: &Patch,
        collisions: Vec<&Collision>,
    ) -> Result<Vec<Problem>> {
        let mut problems = Vec::new();
        let mut steps: Vec<(RelPath, Option<Image>, Image)> = Vec::new();
        let problem = |file: &RelPath, detail: String| Problem::new(patch.id(), Some(file), detail);
        for diff in &patch.hooks {
            let Some(before) = self.current(pristine, &diff.path)? else {
                problems.push(problem(&diff.path, "there is no such file".to_owned()));
                continue;
            };
            match diff::apply(diff, &before.content) {
                Ok(content) => {
                    let after = Image::new(content, before.executable);
                    steps.push((diff.path.clone(), Some(before), after));
                }
                Err(mismatch) => {
                    let places = diff::landed(diff, &before.content);
                    let lines: Vec<usize> = places.iter().copied().flatten().collect();
                    let mut problem = problem(&diff.path, mismatch.to_string()).with_landed(
                        lines.len(),
                        places.len(),
                        lines,
                    );
                    problem.mismatch = Some(*mismatch);
                    problems.push(problem);
                }
            }
        }
        for file in &patch.overlay {
            let collision = collisions.iter().find(|one| one.path == file.path);
            let detail = collision
                .map(ToString::to_string)
                .or_else(|| self.no_room(pristine, &file.path, &steps));
            if let Some(detail) = detail {
                problems.push(problem(&file.path, detail));
                continue;
            }
            if let Some(there) = self.current(pristine, &file.path)? {
                let same = usize::from(there.content == file.content);
                let detail = "the overlay brings a file that is there already".to_owned();
                problems.push(problem(&file.path, detail).with_landed(same, 1, Vec::new()));
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

    /// How many hooks and new files of the patch at index `at` the base already has.
    pub fn landed(&self, at: usize) -> usize {
        self.landed.get(at).copied().unwrap_or(0)
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
    if let Some(last) = steps.last() {
        // Everybody asks for this one: here, beside the others.
        last.image.sha256();
    }
    Some(FileImages { pristine, steps })
}

impl Image {
    fn new(content: Vec<u8>, executable: bool) -> Self {
        Image {
            content,
            digest: OnceLock::new(),
            executable,
        }
    }

    /// The digest of the content. Computed when it is first asked for: of most images between
    /// base and series nobody ever does.
    pub fn sha256(&self) -> Digest {
        *self.digest.get_or_init(|| Digest::of(&self.content))
    }

    /// Its entry in a manifest.
    pub fn entry(&self) -> Entry {
        Entry {
            mode: if self.executable {
                FileMode::Executable
            } else {
                FileMode::Plain
            },
            sha256: self.sha256(),
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
    if image.sha256() != entry.sha256 {
        return Err(Error::finding(format!(
            "the cached base {} was changed: {path}: expected sha256 {}, found {}",
            pristine.base.id,
            entry.sha256,
            image.sha256()
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

/// Number of hooks and new files of a patch.
pub fn parts(patch: &Patch) -> usize {
    let hooks = patch.hooks.iter().map(|diff| diff::hooks(diff).len());
    hooks.sum::<usize>() + patch.overlay.len()
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
    let mut error = Error::finding(text).hint(format!("nothing was changed; mend {what}"));
    if problems.iter().any(|problem| problem.upstreamed) {
        error = error.hint(UPSTREAMED);
    }
    error.data(serde_json::json!({ "problems": problems }))
}

/// What to do with a patch that the base has.
pub const UPSTREAMED: &str = "what the base has is no longer ours to bring: take the patch out of registry/series.toml and say \
     why in registry/retired.toml, or take those hooks out of it";
