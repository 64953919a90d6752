//! The sources of a build: what they are, and whether they held still.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::{Error, Result, ResultExt};
use crate::model::Digest;
use crate::tree::TreeManifest;

/// What is no source: records of this program and of git.
fn skipped(path: &str) -> bool {
    matches!(path, ".patchset/" | ".git/" | ".git")
}

/// The files of a source tree at one moment.
#[derive(Clone, Debug)]
pub struct Sources {
    root: PathBuf,
    /// Per-file digests.
    pub manifest: TreeManifest,
    stamps: Vec<Stamp>,
}

/// Enough of a file to see that it was written to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Stamp {
    path: PathBuf,
    modified: SystemTime,
    size: u64,
}

impl Sources {
    /// Hashes the tree at `root`.
    pub fn read(root: &Path) -> Result<Self> {
        let reading = || format!("reading the sources in {}", root.display());
        Ok(Sources {
            root: root.to_path_buf(),
            stamps: stamps(root).context(reading)?,
            manifest: TreeManifest::of_tree(root, skipped).context(reading)?,
        })
    }

    /// Digest over paths, modes and contents.
    pub fn digest(&self) -> Digest {
        self.manifest.digest()
    }

    /// Digest over the paths alone: build files that list folders see a change here.
    pub fn paths_digest(&self) -> Digest {
        Digest::of_parts(
            self.manifest
                .iter()
                .map(|(path, _)| path.as_str().as_bytes()),
        )
    }

    /// Whether no file was written, added or removed since [`Sources::read`].
    pub fn unchanged(&self) -> Result<bool> {
        Ok(stamps(&self.root)? == self.stamps)
    }

    /// Files whose content is not that of `old`, and whose time stamp is not after `then`:
    /// Ninja, which knows only time stamps, would not see that they changed.
    pub fn changed_unseen(&self, old: &TreeManifest, then: SystemTime) -> Vec<String> {
        self.stamps
            .iter()
            .filter(|stamp| stamp.modified <= then)
            .filter_map(|stamp| {
                let below = stamp.path.strip_prefix(&self.root).ok()?;
                let path = crate::tree::RelPath::from_path(below).ok()?;
                let differs = old.get(&path)? != self.manifest.get(&path)?;
                differs.then(|| path.as_str().to_owned())
            })
            .collect()
    }
}

fn stamps(root: &Path) -> Result<Vec<Stamp>> {
    let mut list = Vec::new();
    let walk = walkdir::WalkDir::new(root).min_depth(1).into_iter();
    let kept = walk.filter_entry(|entry| {
        let below = entry.path().strip_prefix(root).unwrap_or(entry.path());
        let mut text = below.to_string_lossy().into_owned();
        if entry.file_type().is_dir() {
            text.push('/');
        }
        !skipped(&text)
    });
    for entry in kept {
        let failed = |error: walkdir::Error| Error::environment(error.to_string());
        let entry = entry.map_err(failed)?;
        if entry.file_type().is_dir() {
            continue;
        }
        let meta = entry.metadata().map_err(failed)?;
        list.push(Stamp {
            path: entry.into_path(),
            modified: meta.modified()?,
            size: meta.len(),
        });
    }
    list.sort_unstable();
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::time::Duration;

    #[test]
    fn records_are_no_sources() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a.c"), "a").unwrap();
        let before = Sources::read(dir.path()).unwrap();
        fs::create_dir(dir.path().join(".patchset")).unwrap();
        fs::write(dir.path().join(".patchset/state.json"), "{}").unwrap();
        fs::write(dir.path().join(".git"), "gitdir: nowhere").unwrap();
        assert!(before.unchanged().unwrap());
        let after = Sources::read(dir.path()).unwrap();
        assert_eq!(before.digest(), after.digest());
        fs::write(dir.path().join("b.c"), "").unwrap();
        assert!(!before.unchanged().unwrap());
        let after = Sources::read(dir.path()).unwrap();
        assert_ne!(before.paths_digest(), after.paths_digest());
    }

    #[test]
    fn a_change_with_an_old_time_stamp_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a.c");
        fs::write(&file, "a").unwrap();
        fs::write(dir.path().join("same.c"), "same").unwrap();
        let old = Sources::read(dir.path()).unwrap().manifest;
        let then = SystemTime::now();
        fs::write(&file, "b").unwrap();
        let handle = fs::File::options().write(true).open(&file).unwrap();
        handle.set_modified(then - Duration::from_secs(9)).unwrap();
        let now = Sources::read(dir.path()).unwrap();
        assert_eq!(now.changed_unseen(&old, then), ["a.c"]);
        handle.set_modified(then + Duration::from_secs(9)).unwrap();
        let now = Sources::read(dir.path()).unwrap();
        assert!(now.changed_unseen(&old, then).is_empty());
    }
}
