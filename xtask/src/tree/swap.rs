//! Replacing a whole tree in one step.
//!
//! A staged tree is a copy of the old one made of hard links: unchanged files keep their inode
//! and their time stamps, so that a build sees only what really changed. Changed files are new
//! inodes. One `renameat2(RENAME_EXCHANGE)` then puts the staged tree in the old one's place:
//! a kill at any moment leaves the old tree or the new one, and never needs a repair. Where the
//! file system cannot exchange, two renames do it, and [`stage`] finishes what a kill between
//! them left.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, ResultExt};
use crate::tree::RelPath;

/// Called before every change to the disk. Tests make it fail at the n-th call, which leaves the
/// disk as a kill at that moment would.
fn step() -> Result<()> {
    #[cfg(test)]
    return fault::step();
    #[cfg(not(test))]
    Ok(())
}

/// Simulated kills; see [`step`].
#[cfg(test)]
pub mod fault {
    use std::cell::Cell;

    use crate::error::{Error, Result};

    thread_local! {
        static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
    }

    /// The next `calls` steps of this thread work, the one after is a kill.
    pub fn kill_after(calls: usize) {
        LEFT.set(Some(calls));
    }

    /// No more kills; whether there was one.
    pub fn disarm() -> bool {
        LEFT.take() == Some(0)
    }

    /// Whether the simulated process is dead: it must not clean up either.
    pub fn is_dead() -> bool {
        LEFT.get() == Some(0)
    }

    /// One step; see [`super::step`].
    pub fn step() -> Result<()> {
        match LEFT.get() {
            Some(0) => Err(Error::internal("killed")),
            Some(1) => {
                LEFT.set(Some(0));
                Err(Error::internal("killed"))
            }
            Some(left) => {
                LEFT.set(Some(left - 1));
                Ok(())
            }
            None => Ok(()),
        }
    }
}

/// A tree that is being prepared beside the one it will replace.
#[derive(Debug)]
pub struct Staged {
    target: PathBuf,
    dir: PathBuf,
    fresh: Vec<PathBuf>,
    keep: bool,
}

/// Name of the folder beside `target` in which its next state is prepared.
fn staging_dir(target: &Path, suffix: &str) -> PathBuf {
    let name = target.file_name().unwrap_or_default().to_string_lossy();
    target.with_file_name(format!(".{name}.{suffix}"))
}

/// Begins a new state of the tree at `target`, with all its present files. The caller holds the
/// lock. Leftovers of a killed run are removed first.
pub fn stage(target: &Path) -> Result<Staged> {
    recover(target)?;
    let dir = staging_dir(target, "next");
    let staged = Staged {
        target: target.to_path_buf(),
        dir,
        fresh: Vec::new(),
        keep: false,
    };
    if target.exists() {
        link_tree(target, &staged.dir)
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
            fs_err::remove_dir_all(leftover)?;
        }
    }
    Ok(())
}

fn link_tree(from: &Path, to: &Path) -> Result<()> {
    for entry in walkdir::WalkDir::new(from) {
        let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
        let below = entry.path().strip_prefix(from).unwrap_or(entry.path());
        let dest = to.join(below);
        step()?;
        if entry.file_type().is_dir() {
            fs_err::create_dir_all(&dest)?;
        } else {
            // Hard-links a symbolic link as such.
            fs_err::hard_link(entry.path(), &dest)?;
        }
    }
    Ok(())
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

impl Staged {
    /// Where the staged tree lies.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// Writes a file in the place of a file, a link or a folder without files; the old content
    /// stays untouched in the old tree.
    pub fn write(&mut self, path: &RelPath, content: &[u8], executable: bool) -> Result<()> {
        let replacing = || format!("replacing {path}");
        let dest = path.resolve_parent(&self.dir)?;
        if let Some(parent) = dest.parent() {
            fs_err::create_dir_all(parent).context(replacing)?;
        }
        // Never write into the shared inode, nor through a link.
        step()?;
        clear(&dest).context(replacing)?;
        step()?;
        fs_err::write(&dest, content)?;
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = if executable { 0o755 } else { 0o644 };
            fs_err::set_permissions(&dest, std::fs::Permissions::from_mode(mode))?;
        }
        #[cfg(not(unix))]
        let _ = executable;
        self.fresh.push(dest);
        Ok(())
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

    /// Puts the staged tree in the old one's place and removes the old one.
    pub fn commit(mut self) -> Result<()> {
        for file in &self.fresh {
            step()?;
            fs_err::File::open(file)?.sync_all()?;
        }
        let mut dirs: Vec<&Path> = self.fresh.iter().filter_map(|file| file.parent()).collect();
        dirs.push(&self.dir);
        dirs.sort_unstable();
        dirs.dedup();
        for dir in dirs {
            step()?;
            fs_err::File::open(dir)?.sync_all()?;
        }
        step()?;
        if self.target.exists() {
            self.exchange()?;
        } else {
            // Nothing is shared with an old tree: all of it is new.
            flush(&self.dir)?;
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
            fs_err::remove_dir_all(&self.dir)?;
        }
        Ok(())
    }

    fn exchange(&self) -> Result<()> {
        if crate::tree::exchange(&self.dir, &self.target)? {
            return Ok(());
        }
        let old = staging_dir(&self.target, "old");
        fs_err::rename(&self.target, &old)?;
        step()?;
        fs_err::rename(&self.dir, &self.target)?;
        fs_err::remove_dir_all(&old)?;
        Ok(())
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
        if fault::is_dead() {
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
