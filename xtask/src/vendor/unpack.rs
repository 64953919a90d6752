//! The one place that writes files of a base: every source hands its files to an [`Unpacker`],
//! which refuses whatever could leave the tree, be lost on another file system, or never end.

use std::collections::HashMap;
use std::collections::hash_map::Entry as Slot;
use std::io::Read;
use std::path::{Path, PathBuf};

use crate::ctx::Cancel;
use crate::error::{Error, Result, ResultExt};
use crate::tree::RelPath;

/// How much one tree may hold. A whole llama.cpp is 3,700 files and 150 MB.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Bytes of one file.
    pub file: u64,
    /// Bytes of all files; of an archive also those that are not unpacked.
    pub total: u64,
    /// Number of entries, folders included.
    pub entries: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            file: 1 << 30,
            total: 8 << 30,
            entries: 200_000,
        }
    }
}

/// The exclusion rule of a base.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exclude<'a>(pub &'a [String]);

impl Exclude<'_> {
    /// Whether the file or link at `path` is left out.
    pub(super) fn file(&self, path: &str) -> bool {
        self.0.iter().any(|rule| match rule.strip_suffix('/') {
            Some(_) => path.starts_with(rule.as_str()),
            None => path == rule,
        })
    }

    /// Whether the folder at `path` is left out with all that is in it.
    pub(super) fn folder(&self, path: &str) -> bool {
        self.0.iter().any(|rule| {
            rule.strip_suffix('/')
                .is_some_and(|folder| path == folder || path.starts_with(rule.as_str()))
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    Folder,
    File,
    Link,
}

/// Writes a tree into a fresh folder.
pub(super) struct Unpacker<'a> {
    root: PathBuf,
    cancel: &'a Cancel,
    limits: Limits,
    /// Every path so far, folded, with its spelling.
    taken: HashMap<String, (String, Taken)>,
    files: u64,
    bytes: u64,
    buffer: Vec<u8>,
}

/// What a refused tree is: something wrong with the source, not with this machine.
pub(super) fn refuse(path: &str, why: &str) -> Error {
    Error::finding(format!("refusing {path:?}: {why}"))
}

impl<'a> Unpacker<'a> {
    /// `root` must not exist yet.
    pub(super) fn new(root: &Path, cancel: &'a Cancel, limits: Limits) -> Result<Self> {
        fs_err::create_dir_all(root)?;
        Ok(Unpacker {
            root: root.to_path_buf(),
            cancel,
            limits,
            taken: HashMap::new(),
            files: 0,
            bytes: 0,
            buffer: vec![0; 1 << 16],
        })
    }

    /// Number of files and links so far.
    pub(super) fn files(&self) -> u64 {
        self.files
    }

    /// Notes a folder; it is made when a file needs it, since a tree holds no empty folders.
    pub(super) fn folder(&mut self, path: &str) -> Result<()> {
        let path = safe(path)?;
        self.take(path.as_str(), Taken::Folder)
    }

    /// Writes a file of `size` bytes.
    pub(super) fn file(
        &mut self,
        path: &str,
        executable: bool,
        size: u64,
        content: &mut dyn Read,
    ) -> Result<()> {
        let path = safe(path)?;
        self.take(path.as_str(), Taken::File)?;
        if size > self.limits.file {
            return Err(refuse(
                path.as_str(),
                &format!(
                    "it has {size} bytes, more than the {} that a file may have",
                    self.limits.file
                ),
            ));
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.total {
            return Err(refuse(
                path.as_str(),
                &format!("the tree has more than {} bytes", self.limits.total),
            ));
        }
        let dest = self.parent_of(&path)?;
        let mut out = fs_err::OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&dest)?;
        let mut left = size;
        while left > 0 {
            self.cancel.check()?;
            let want = usize::try_from(left)
                .unwrap_or(usize::MAX)
                .min(self.buffer.len());
            let got = content
                .read(&mut self.buffer[..want])
                .context(|| format!("reading {path}"))?;
            if got == 0 {
                return Err(refuse(
                    path.as_str(),
                    &format!("it ends {left} bytes early"),
                ));
            }
            std::io::Write::write_all(&mut out, &self.buffer[..got])?;
            left -= got as u64;
        }
        set_mode(&dest, executable)?;
        self.files += 1;
        Ok(())
    }

    /// Makes a symbolic link.
    pub(super) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        let path = safe(path)?;
        self.take(path.as_str(), Taken::Link)?;
        if let Some(why) = leaves(path.as_str(), target) {
            return Err(refuse(
                path.as_str(),
                &format!("it is a link to {target:?}, which {why}"),
            ));
        }
        let dest = self.parent_of(&path)?;
        #[cfg(unix)]
        std::os::unix::fs::symlink(target, &dest)
            .context(|| format!("making the link {}", dest.display()))?;
        #[cfg(not(unix))]
        return Err(refuse(path.as_str(), "links need a Unix file system"));
        self.files += 1;
        Ok(())
    }

    fn parent_of(&self, path: &RelPath) -> Result<PathBuf> {
        let dest = path.below(&self.root);
        if let Some(parent) = dest.parent() {
            fs_err::create_dir_all(parent)?;
        }
        Ok(dest)
    }

    /// Books `path` and all folders above it.
    fn take(&mut self, path: &str, kind: Taken) -> Result<()> {
        self.cancel.check()?;
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends {
            self.take_one(&path[..end], Taken::Folder, path)?;
        }
        self.take_one(path, kind, path)
    }

    fn take_one(&mut self, part: &str, kind: Taken, path: &str) -> Result<()> {
        match self.taken.entry(RelPath::folded(part)) {
            Slot::Vacant(slot) => {
                slot.insert((part.to_owned(), kind));
            }
            Slot::Occupied(slot) => {
                let (old, old_kind) = slot.get();
                let why = match (old_kind, kind) {
                    _ if old != part => {
                        format!(
                            "{old:?} differs from it only in upper and lower case or in the form of accents"
                        )
                    }
                    (Taken::Folder, Taken::Folder) => return Ok(()),
                    (Taken::Link, Taken::Folder) => {
                        format!("{part:?} is a link, and nothing is written through links")
                    }
                    (Taken::File, Taken::Folder) => format!("{part:?} is a file"),
                    (Taken::Folder, _) => "it is a folder already".to_owned(),
                    _ => "it is there twice".to_owned(),
                };
                return Err(refuse(path, &why));
            }
        }
        if self.taken.len() as u64 > self.limits.entries {
            return Err(refuse(
                path,
                &format!("the tree has more than {} entries", self.limits.entries),
            ));
        }
        Ok(())
    }
}

fn safe(path: &str) -> Result<RelPath> {
    RelPath::new(path).map_err(|error| Error::finding(error.message()))
}

/// Why the link `path` to `target` could lead out of the tree. A target is `../` any number of
/// times and then plain names: since a link lies in real folders and every other link obeys the
/// same rule, following it cannot leave the tree, whatever links it passes. A `..` after a name
/// could, if that name is a link itself.
fn leaves(path: &str, target: &str) -> Option<&'static str> {
    if target.is_empty() || target.contains('\0') {
        return Some("is no path");
    }
    if target.starts_with('/') || target.contains('\\') {
        return Some("is absolute");
    }
    let mut depth = path.matches('/').count();
    let mut named = false;
    for component in target.split('/') {
        match component {
            "" | "." => {}
            ".." if named => return Some("goes up after it went down"),
            ".." => match depth.checked_sub(1) {
                Some(less) => depth = less,
                None => return Some("leaves the tree"),
            },
            _ => named = true,
        }
    }
    None
}

/// Only the owner's execute bit counts, as in git.
fn set_mode(path: &Path, executable: bool) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let mode = if executable { 0o755 } else { 0o644 };
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
    }
    #[cfg(not(unix))]
    let _ = (path, executable);
    Ok(())
}

#[cfg(test)]
mod tests;
