//! Replacing a whole tree in one step.
//!
//! A staged tree is a copy of the old one made of hard links: unchanged files keep their inode
//! and their time stamps, so that a build sees only what really changed. Changed files are new
//! inodes. One `renameat2(RENAME_EXCHANGE)` then puts the staged tree in the old one's place:
//! a kill at any moment leaves the old tree or the new one, and never needs a repair. Where the
//! file system cannot exchange, two renames do it, and [`stage`] finishes what a kill between
//! them left.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fs::Metadata;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;

use crate::error::{Result, ResultExt};
use crate::tree::RelPath;

/// Called before every change to the disk. Tests make it fail at the n-th call, which leaves the
/// disk as a kill at that moment would.
fn step() -> Result<()> {
    #[cfg(test)]
    return crate::tree::fault::step();
    #[cfg(not(test))]
    Ok(())
}

/// Does the same to all items, on all processors; in their order where a test simulates kills.
fn each<T: Send>(items: Vec<T>, act: impl Fn(T) -> Result<()> + Sync + Send) -> Result<()> {
    #[cfg(test)]
    if crate::tree::fault::is_armed() {
        return items.into_iter().try_for_each(act);
    }
    items.into_par_iter().try_for_each(act)
}

/// A tree that is being prepared beside the one it will replace.
#[derive(Debug)]
pub struct Staged {
    target: PathBuf,
    dir: PathBuf,
    fresh: Vec<PathBuf>,
    written: Mutex<BTreeMap<RelPath, Metadata>>,
    keep: bool,
}

/// Up to that many new files are written to disk one by one; more than that with all else that
/// waits to be written on that file system, in one call.
const FEW: usize = 32;

/// Name of the folder beside `target` in which its next state is prepared.
fn staging_dir(target: &Path, suffix: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{suffix}"))
}

/// Begins a new state of the tree at `target`, with all its present files. The caller holds the
/// lock. Leftovers of a killed run are removed first.
pub fn stage(target: &Path) -> Result<Staged> {
    stage_without(target, &BTreeSet::new())
}

/// As [`stage`], without those files: for what is going to be written anew.
pub fn stage_without(target: &Path, left_out: &BTreeSet<&RelPath>) -> Result<Staged> {
    recover(target)?;
    let dir = staging_dir(target, "next");
    let staged = Staged {
        target: target.to_path_buf(),
        dir,
        fresh: Vec::new(),
        written: Mutex::default(),
        keep: false,
    };
    if target.exists() {
        let left_out = left_out.iter().map(|path| path.below(target)).collect();
        link_tree(target, &staged.dir, &left_out)
            .context(|| format!("staging a copy of {}", target.display()))?;
    } else {
        fs_err::create_dir_all(&staged.dir)?;
    }
    Ok(staged)
}

/// Finishes or undoes what a killed run left beside `target`. The caller holds the lock.
pub fn recover(target: &Path) -> Result<()> {
    let (next, old) = (staging_dir(target, "next"), staging_dir(target, "old"));
    if old.exists() && !target.exists() {
        // Killed between the two renames of a file system that cannot exchange.
        step()?;
        fs_err::rename(&old, target)?;
    }
    for leftover in [next, old] {
        if leftover.exists() {
            step()?;
            remove_tree(&leftover)?;
        }
    }
    Ok(())
}

/// The files and links in a folder, and the folders in it.
fn entries(dir: &Path) -> Result<(Vec<PathBuf>, Vec<PathBuf>)> {
    let (mut files, mut folders) = (Vec::new(), Vec::new());
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        match entry.file_type()?.is_dir() {
            true => folders.push(entry.path()),
            false => files.push(entry.path()),
        }
    }
    Ok((files, folders))
}

fn link_tree(from: &Path, to: &Path, left_out: &HashSet<PathBuf>) -> Result<()> {
    step()?;
    fs_err::create_dir_all(to)?;
    let (files, folders) = entries(from)?;
    for file in files.iter().filter(|file| !left_out.contains(*file)) {
        step()?;
        // Hard-links a symbolic link as such.
        fs_err::hard_link(file, to.join(file.file_name().unwrap_or_default()))?;
    }
    each(folders, |folder| {
        let to = to.join(folder.file_name().unwrap_or_default());
        link_tree(&folder, &to, left_out)
    })
}

/// Removes a folder with all that is in it. It is no part of any tree any more.
fn remove_tree(dir: &Path) -> Result<()> {
    let (files, folders) = entries(dir)?;
    for file in files {
        fs_err::remove_file(file)?;
    }
    each(folders, |folder| remove_tree(&folder))?;
    Ok(fs_err::remove_dir(dir)?)
}

/// Makes room at `dest`: removes a file, a link, or a folder that holds nothing but folders.
fn clear(dest: &Path) -> std::io::Result<()> {
    match std::fs::symlink_metadata(dest) {
        Ok(meta) if meta.is_dir() => {
            for entry in walkdir::WalkDir::new(dest).contents_first(true) {
                // Fails at the first one that holds a file.
                std::fs::remove_dir(entry?.path())?;
            }
            Ok(())
        }
        Ok(_) => std::fs::remove_file(dest),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

/// Writes a file that is nobody else's: never into the shared inode, nor through a link.
fn write_fresh(dest: &Path, content: &[u8], executable: bool) -> Result<Metadata> {
    let mut options = fs_err::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    let mode = if executable { 0o755 } else { 0o644 };
    #[cfg(unix)]
    {
        use fs_err::os::unix::fs::OpenOptionsExt;
        options.mode(mode);
    }
    #[cfg(not(unix))]
    let _ = executable;
    step()?;
    let mut file = match options.open(dest) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            // Something is there, which is rare: what is written was left out.
            clear(dest)?;
            step()?;
            options.open(dest)?
        }
        opened => opened?,
    };
    file.write_all(content)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let made = file.metadata()?;
        if made.permissions().mode() & 0o777 == mode {
            return Ok(made);
        }
        // The user's mask took some of it.
        file.set_permissions(std::fs::Permissions::from_mode(mode))?;
    }
    Ok(file.metadata()?)
}

impl Staged {
    /// Where the staged tree lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file in the place of a file, a link or a folder without files; the old content
    /// stays untouched in the old tree.
    pub fn write(&mut self, path: &RelPath, content: &[u8], executable: bool) -> Result<()> {
        self.write_all(vec![(path, content, executable)])
    }

    /// Writes several files, as [`Staged::write`] does one. No two of them may need a folder
    /// where the other one is a file.
    pub fn write_all(&mut self, files: Vec<(&RelPath, &[u8], bool)>) -> Result<()> {
        let mut folders: BTreeMap<&str, Vec<_>> = BTreeMap::new();
        for file in files {
            let path = file.0.as_str();
            let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
            folders.entry(folder).or_default().push(file);
        }
        // Each folder once: finding out that no component is a link costs more than a file.
        let mut work = Vec::new();
        for files in folders.into_values() {
            let Some((first, ..)) = files.first() else {
                continue;
            };
            let dest = first.resolve_parent(&self.dir)?;
            let parent = dest.parent().unwrap_or(&self.dir).to_path_buf();
            fs_err::create_dir_all(&parent).context(|| format!("replacing {first}"))?;
            for (path, content, executable) in files {
                let name = path.as_str().rsplit('/').next().unwrap_or_default();
                let dest = parent.join(name);
                self.fresh.push(dest.clone());
                work.push((path, dest, content, executable));
            }
        }
        each(work, |(path, dest, content, executable)| {
            let meta =
                write_fresh(&dest, content, executable).context(|| format!("replacing {path}"))?;
            let mut written = self.written.lock().unwrap_or_else(PoisonError::into_inner);
            written.insert((*path).clone(), meta);
            Ok(())
        })
    }

    /// Writes a copy of the file or link `from`.
    pub fn copy(&mut self, path: &RelPath, from: &Path) -> Result<()> {
        let kind = fs_err::symlink_metadata(from)?;
        if kind.file_type().is_symlink() {
            let dest = path.resolve_parent(&self.dir)?;
            if let Some(parent) = dest.parent() {
                fs_err::create_dir_all(parent)?;
            }
            step()?;
            clear(&dest).context(|| format!("replacing {path}"))?;
            #[cfg(unix)]
            std::os::unix::fs::symlink(fs_err::read_link(from)?, &dest)
                .context(|| format!("linking {path}"))?;
            return Ok(());
        }
        let executable =
            crate::tree::Entry::of_file(from)?.mode == crate::tree::FileMode::Executable;
        self.write(path, &fs_err::read(from)?, executable)
    }

    /// Removes a file or link and the folders that it leaves empty.
    pub fn remove(&mut self, path: &RelPath) -> Result<()> {
        let dest = path.resolve_parent(&self.dir)?;
        step()?;
        fs_err::remove_file(&dest)?;
        let mut parent = dest.parent();
        while let Some(dir) = parent.filter(|dir| *dir != self.dir) {
            if std::fs::remove_dir(dir).is_err() {
                break;
            }
            parent = dir.parent();
        }
        Ok(())
    }

    /// Puts the staged tree in the old one's place and removes the old one. Returns what `fstat`
    /// said of each written file.
    pub fn commit(mut self) -> Result<BTreeMap<RelPath, Metadata>> {
        if self.target.exists() {
            self.flush_fresh()?;
            step()?;
            self.exchange()?;
        } else {
            // Nothing is shared with an old tree: all of it is new.
            step()?;
            flush(&self.dir)?;
            step()?;
            fs_err::rename(&self.dir, &self.target)?;
        }
        self.keep = true;
        step()?;
        if let Some(parent) = self.target.parent() {
            fs_err::File::open(parent)?.sync_all()?;
        }
        // Now the old tree, or nothing.
        step()?;
        if self.dir.exists() {
            remove_tree(&self.dir)?;
        }
        let written = std::mem::take(&mut self.written);
        Ok(written.into_inner().unwrap_or_else(PoisonError::into_inner))
    }

    /// Writes what is new to disk, and the folders that name it.
    fn flush_fresh(&self) -> Result<()> {
        if self.fresh.len() > FEW {
            step()?;
            return flush(&self.dir);
        }
        // At once, so that the file system writes its journal once and not for each.
        let write_out = |path: &Path| {
            step()?;
            Ok(fs_err::File::open(path)?.sync_all()?)
        };
        each(self.fresh.iter().map(PathBuf::as_path).collect(), write_out)?;
        let mut dirs: Vec<&Path> = self.fresh.iter().filter_map(|file| file.parent()).collect();
        dirs.push(&self.dir);
        dirs.sort_unstable();
        dirs.dedup();
        each(dirs, write_out)
    }

    fn exchange(&self) -> Result<()> {
        if crate::tree::exchange(&self.dir, &self.target)? {
            return Ok(());
        }
        let old = staging_dir(&self.target, "old");
        fs_err::rename(&self.target, &old)?;
        step()?;
        fs_err::rename(&self.dir, &self.target)?;
        remove_tree(&old)
    }
}

/// Writes all that is below `dir` to disk, so that the rename that follows cannot overtake it.
pub fn flush(dir: &Path) -> Result<()> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        // One call instead of thousands.
        let folder = fs_err::File::open(dir)?;
        rustix::fs::syncfs(folder.file())
            .map_err(std::io::Error::from)
            .context(|| format!("flushing {}", dir.display()))
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        for entry in walkdir::WalkDir::new(dir) {
            let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
            if !entry.path_is_symlink() {
                fs_err::File::open(entry.path())?.sync_all()?;
            }
        }
        Ok(())
    }
}

impl Drop for Staged {
    /// A staged tree that was not committed leaves nothing.
    fn drop(&mut self) {
        #[cfg(test)]
        if crate::tree::fault::is_dead() {
            return;
        }
        if !self.keep {
            let _ = std::fs::remove_dir_all(&self.dir);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn rel(path: &str) -> RelPath {
        RelPath::new(path).unwrap()
    }

    #[test]
    fn a_commit_changes_only_what_was_written() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("sub")).unwrap();
        fs::write(tree.join("sub/keep"), "keep").unwrap();
        fs::write(tree.join("sub/change"), "old").unwrap();
        fs::create_dir(tree.join("gone")).unwrap();
        fs::write(tree.join("gone/file"), "").unwrap();
        let stamp = fs::metadata(tree.join("sub/keep"))
            .unwrap()
            .modified()
            .unwrap();

        let mut staged = stage(&tree).unwrap();
        staged.write(&rel("sub/change"), b"new", false).unwrap();
        staged.write(&rel("a/b/c"), b"added", true).unwrap();
        staged.remove(&rel("gone/file")).unwrap();
        assert_eq!(
            fs::read(tree.join("sub/change")).unwrap(),
            b"old",
            "not before the commit"
        );
        staged.commit().unwrap();

        assert_eq!(fs::read(tree.join("sub/change")).unwrap(), b"new");
        assert_eq!(fs::read(tree.join("a/b/c")).unwrap(), b"added");
        assert!(!tree.join("gone").exists());
        let after = fs::metadata(tree.join("sub/keep"))
            .unwrap()
            .modified()
            .unwrap();
        assert_eq!(stamp, after);
        assert_eq!(
            fs::read_dir(dir.path()).unwrap().count(),
            1,
            "nothing left beside it"
        );
    }

    #[cfg(unix)]
    #[test]
    fn what_is_written_is_new_and_has_the_usual_mode_whatever_is_there() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir_all(tree.join("folder/empty")).unwrap();
        fs::create_dir_all(tree.join("full")).unwrap();
        fs::write(tree.join("full/file"), "kept").unwrap();
        fs::write(tree.join("file"), "old").unwrap();
        fs::set_permissions(tree.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(dir.path().join("outside"), "old").unwrap();
        symlink("../outside", tree.join("link")).unwrap();
        symlink("nowhere", tree.join("broken")).unwrap();
        let mut staged = stage(&tree).unwrap();
        for (at, name) in ["file", "link", "broken", "folder", "new"]
            .iter()
            .enumerate()
        {
            staged.write(&rel(name), b"new", at % 2 == 0).unwrap();
        }
        assert!(staged.write(&rel("full"), b"new", false).is_err());
        staged.commit().unwrap();
        for (at, name) in ["file", "link", "broken", "folder", "new"]
            .iter()
            .enumerate()
        {
            let meta = fs::symlink_metadata(tree.join(name)).unwrap();
            assert!(meta.is_file(), "{name}");
            let mode = if at % 2 == 0 { 0o755 } else { 0o644 };
            assert_eq!(meta.permissions().mode() & 0o777, mode, "{name}");
            assert_eq!(fs::read(tree.join(name)).unwrap(), b"new", "{name}");
        }
        assert_eq!(fs::read(dir.path().join("outside")).unwrap(), b"old");
        assert_eq!(fs::read(tree.join("full/file")).unwrap(), b"kept");
    }

    #[test]
    fn a_dropped_stage_leaves_the_tree_as_it_was() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).unwrap();
        fs::write(tree.join("f"), "old").unwrap();
        let mut staged = stage(&tree).unwrap();
        staged.write(&rel("f"), b"new", false).unwrap();
        drop(staged);
        assert_eq!(fs::read(tree.join("f")).unwrap(), b"old");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn leftovers_of_a_killed_run_are_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let tree = dir.path().join("tree");
        fs::create_dir(dir.path().join(".tree.old")).unwrap();
        fs::write(dir.path().join(".tree.old/f"), "old").unwrap();
        fs::create_dir(dir.path().join(".tree.next")).unwrap();
        let staged = stage(&tree).unwrap();
        drop(staged);
        assert_eq!(fs::read(tree.join("f")).unwrap(), b"old");
    }
}
