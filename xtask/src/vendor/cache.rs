//! The shared cache on disk: where archives and unpacked bases lie, and how they get there.
//!
//! ```text
//! <cache>/vendor.lock                       held while anything below is written
//! <cache>/downloads/<sha256>/<file name>    archives
//! <cache>/bases/<id>-<digest>/tree/         a pristine tree
//! <cache>/bases/<id>-<digest>/manifest      its per-file manifest; its digest is the pin
//! <cache>/bases/<id>-<digest>/index         origin, and size and time stamp of each file
//! <cache>/{downloads,bases}/.tmp-*          work in progress, or what a killed run left
//! ```
//!
//! Readers take no lock: an entry appears by one rename and is complete from then on.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use crate::ctx::{Ctx, Sink};
use crate::error::{Result, ResultExt};
use crate::lock::{self, Lock};
use crate::model::{Base, Digest};
use crate::project::Project;
use crate::tree::{Difference, Entry, FileMode, Listed, RelPath, TreeManifest, list};
use crate::vendor::Pristine;

const TEMP_PREFIX: &str = ".tmp-";

/// What the cache holds for a base, from a look at sizes and time stamps. A file whose stamp
/// changed is hashed; see [`super::check`] for hashing them all.
#[derive(Debug)]
pub enum Cached {
    /// Nothing.
    Absent,
    /// A folder that is no finished entry, and why.
    Incomplete(String),
    /// A finished entry whose tree was changed afterwards: a line for each file.
    Changed(Vec<String>),
    /// The base, and the source that it came from.
    Present(Box<Pristine>, String),
}

/// The parts of the cache that hold bases.
pub(super) struct Cache {
    root: PathBuf,
}

impl Cache {
    pub(super) fn of(project: &Project) -> Self {
        Cache {
            root: project.cache().to_path_buf(),
        }
    }

    pub(super) fn bases(&self) -> PathBuf {
        self.root.join("bases")
    }

    pub(super) fn downloads(&self) -> PathBuf {
        self.root.join("downloads")
    }

    /// The folder of a base.
    pub(super) fn entry(&self, base: &Base) -> PathBuf {
        self.bases()
            .join(format!("{}-{}", base.id, base.tree.short()))
    }

    /// The folder that holds the archive with that digest.
    pub(super) fn download_dir(&self, sha256: &Digest) -> PathBuf {
        self.downloads().join(sha256.to_string())
    }

    /// Takes the lock, makes the folders and clears what killed runs left.
    pub(super) fn lock(&self, ctx: &Ctx) -> Result<Lock> {
        for dir in [self.bases(), self.downloads()] {
            fs_err::create_dir_all(dir)?;
        }
        let lock = lock::file(ctx, &self.root.join("vendor.lock"))?;
        self.sweep(&*ctx.sink);
        Ok(lock)
    }

    /// Clears what killed runs left, unless another process is at work.
    pub(super) fn sweep_if_idle(&self, sink: &dyn Sink) {
        if self.leftovers().next().is_none() {
            return;
        }
        if let Ok(file) = std::fs::File::open(self.root.join("vendor.lock"))
            && file.try_lock().is_ok()
        {
            self.sweep(sink);
        }
    }

    /// The caller holds the lock, so every temporary folder belongs to a dead process.
    fn sweep(&self, sink: &dyn Sink) {
        for path in self.leftovers() {
            match std::fs::remove_dir_all(&path) {
                Ok(()) => sink.detail(&format!("removed leftover {}", path.display())),
                Err(error) => sink.detail(&format!("leftover {}: {error}", path.display())),
            }
        }
    }

    fn leftovers(&self) -> impl Iterator<Item = PathBuf> {
        [self.bases(), self.downloads()]
            .into_iter()
            .filter_map(|dir| std::fs::read_dir(dir).ok())
            .flatten()
            .filter_map(std::result::Result::ok)
            .filter(|entry| entry.file_name().to_string_lossy().starts_with(TEMP_PREFIX))
            .map(|entry| entry.path())
    }

    /// A folder for work in progress beside the bases; removed on drop.
    pub(super) fn temp_in(&self, dir: &Path) -> Result<tempfile::TempDir> {
        tempfile::Builder::new()
            .prefix(TEMP_PREFIX)
            .tempdir_in(dir)
            .context(|| format!("making a temporary folder in {}", dir.display()))
    }

    /// What is there for `base`. Writes nothing and takes no lock.
    pub(super) fn look(&self, base: &Base) -> Result<Cached> {
        let dir = self.entry(base);
        if !dir.exists() {
            return Ok(Cached::Absent);
        }
        let tree = dir.join("tree");
        // Side by side: every command waits for this.
        let (manifest, (index, found)) = rayon::join(
            || read_manifest(&dir, base),
            || {
                rayon::join(
                    || Index::read(&dir.join("index")),
                    || list(&tree, &|_| false),
                )
            },
        );
        let (manifest, index) = match (manifest, index) {
            (Ok(manifest), Ok(index)) => (manifest, index),
            (Err(reason), _) | (_, Err(reason)) => return Ok(Cached::Incomplete(reason)),
        };
        if !index.fits(&manifest) {
            return Ok(Cached::Incomplete(
                "its index and its manifest name different files".to_owned(),
            ));
        }
        let faults = index.faults(&tree, &manifest, found)?;
        if !faults.is_empty() {
            return Ok(Cached::Changed(faults));
        }
        let pristine = Pristine {
            base: base.clone(),
            root: tree,
            manifest,
        };
        Ok(Cached::Present(Box::new(pristine), index.origin))
    }

    /// The recorded manifest of a finished entry, whatever became of its tree.
    pub(super) fn recorded(&self, base: &Base) -> Option<TreeManifest> {
        read_manifest(&self.entry(base), base).ok()
    }

    /// A finished entry, whatever became of the files of its tree.
    pub(super) fn entire(&self, base: &Base) -> Option<Pristine> {
        let dir = self.entry(base);
        let root = dir.join("tree");
        if !root.is_dir() || !dir.join("index").is_file() {
            return None;
        }
        Some(Pristine {
            base: base.clone(),
            root,
            manifest: read_manifest(&dir, base).ok()?,
        })
    }

    /// Puts the tree in `<temp>/base/tree` in its place. The caller holds the lock and has
    /// checked that `manifest` has the pinned digest.
    pub(super) fn install(
        &self,
        ctx: &Ctx,
        temp: tempfile::TempDir,
        base: &Base,
        manifest: TreeManifest,
        origin: &str,
    ) -> Result<Pristine> {
        let staged = temp.path().join("base");
        fs_err::write(staged.join("manifest"), manifest.text())?;
        let index = Index::of_tree(&staged.join("tree"), &manifest, origin)?;
        fs_err::write(staged.join("index"), index.text())?;
        crate::tree::flush(&staged)?;
        ctx.cancel.check()?;
        let dest = self.entry(base);
        if dest.exists() {
            // Goes with the temporary folder. A kill between the two renames leaves no entry,
            // which the next run makes anew.
            fs_err::rename(&dest, temp.path().join("old"))?;
        }
        fs_err::rename(&staged, &dest)?;
        fs_err::File::open(self.bases())?.sync_all()?;
        Ok(Pristine {
            base: base.clone(),
            root: dest.join("tree"),
            manifest,
        })
    }
}

fn read_manifest(dir: &Path, base: &Base) -> std::result::Result<TreeManifest, String> {
    let text = std::fs::read_to_string(dir.join("manifest"))
        .map_err(|error| format!("its manifest cannot be read: {error}"))?;
    let found = Digest::of(text.as_bytes());
    if found != base.tree {
        return Err(format!(
            "its manifest has digest {found}, pinned is {}",
            base.tree
        ));
    }
    TreeManifest::parse(&text).map_err(|error| error.to_string())
}

/// Where an entry came from, and what `lstat` said of its files when they were written.
struct Index {
    origin: String,
    /// In the order of the manifest.
    files: Vec<(String, Stat)>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Stat {
    size: u64,
    /// Nanoseconds since 1970; 0 where the file system cannot say.
    modified: u128,
}

impl Stat {
    fn of(meta: &std::fs::Metadata) -> Self {
        let since = meta
            .modified()
            .ok()
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Stat {
            size: meta.len(),
            modified: since.map_or(0, |since| since.as_nanos()),
        }
    }
}

impl Index {
    fn of_tree(tree: &Path, manifest: &TreeManifest, origin: &str) -> Result<Self> {
        let files = manifest.iter().map(|(path, _)| {
            let meta = fs_err::symlink_metadata(path.below(tree))?;
            Ok((path.to_string(), Stat::of(&meta)))
        });
        Ok(Index {
            origin: origin.to_owned(),
            files: files.collect::<Result<_>>()?,
        })
    }

    fn text(&self) -> String {
        let mut text = format!("origin {}\n", self.origin);
        for (path, stat) in &self.files {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {} {path}", stat.size, stat.modified);
        }
        text
    }

    fn read(path: &Path) -> std::result::Result<Self, String> {
        let text = std::fs::read_to_string(path)
            .map_err(|error| format!("its index cannot be read: {error}"))?;
        let mut lines = text.lines();
        let origin = lines
            .next()
            .and_then(|line| line.strip_prefix("origin "))
            .ok_or("its index is broken")?
            .to_owned();
        let mut files = Vec::new();
        for line in lines {
            let mut parts = line.splitn(3, ' ');
            let mut next = || parts.next().ok_or("its index is broken");
            let (size, modified, path) = (next()?, next()?, next()?);
            let stat = Stat {
                size: size.parse().map_err(|_| "its index is broken")?,
                modified: modified.parse().map_err(|_| "its index is broken")?,
            };
            files.push((path.to_owned(), stat));
        }
        Ok(Index { origin, files })
    }

    /// Whether it speaks of the same files as `manifest`.
    fn fits(&self, manifest: &TreeManifest) -> bool {
        self.files.len() == manifest.len()
            && self
                .files
                .iter()
                .zip(manifest.iter())
                .all(|((ours, _), (theirs, _))| ours == theirs.as_str())
    }

    /// A line for each file of `tree` that is not as recorded.
    fn faults(
        &self,
        tree: &Path,
        manifest: &TreeManifest,
        found: Result<Vec<Listed>>,
    ) -> Result<Vec<String>> {
        let found = match found {
            Ok(found) => found,
            Err(error) => return Ok(vec![error.to_string()]),
        };
        // Both sorted by path: this runs for every file of the base at every command.
        let mut expected = self.files.iter().zip(manifest.iter()).peekable();
        let mut faults = Vec::new();
        let missing = |path: &RelPath| Difference::Missing { path: path.clone() }.to_string();
        for (path, meta) in found {
            while let Some((_, (before, _))) = expected.next_if(|(_, (at, _))| **at < path) {
                faults.push(missing(before));
            }
            let Some(((_, stat), (_, expected))) = expected.next_if(|(_, (at, _))| **at == path)
            else {
                faults.push(format!("{path}: not part of the tree"));
                continue;
            };
            if Stat::of(&meta) == *stat && FileMode::of(&meta) == expected.mode {
                continue;
            }
            // The stamp alone proves nothing: a copied cache has new ones.
            let found = Entry::of_file(&path.below(tree))?;
            if found != *expected {
                faults.push(difference(path, *expected, found).to_string());
            }
        }
        faults.extend(expected.map(|(_, (path, _))| missing(path)));
        faults.sort();
        Ok(faults)
    }
}

fn difference(path: RelPath, expected: Entry, found: Entry) -> Difference {
    if expected.mode == found.mode {
        Difference::Content {
            path,
            expected: expected.sha256,
            found: found.sha256,
        }
    } else {
        Difference::Mode {
            path,
            expected: expected.mode,
            found: found.mode,
        }
    }
}
