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
            rule.strip_suffix('/').is_some_and(|folder| {
                path == folder || path.starts_with(rule.as_str())
            })
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
    /// Every path so far, lower-cased, with its spelling.
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
            return Err(refuse(path.as_str(), &format!(
                "it has {size} bytes, more than the {} that a file may have",
                self.limits.file
            )));
        }
        self.bytes = self.bytes.saturating_add(size);
        if self.bytes > self.limits.total {
            return Err(refuse(path.as_str(), &format!(
                "the tree has more than {} bytes",
                self.limits.total
            )));
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
                return Err(refuse(path.as_str(), &format!("it ends {left} bytes early")));
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
        match self.taken.entry(part.to_lowercase()) {
            Slot::Vacant(slot) => {
                slot.insert((part.to_owned(), kind));
            }
            Slot::Occupied(slot) => {
                let (old, old_kind) = slot.get();
                let why = match (old_kind, kind) {
                    _ if old != part => {
                        format!("{old:?} differs from it only in upper and lower case")
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
mod tests {
    use super::*;

    fn with(work: impl FnOnce(&mut Unpacker<'_>, &Path)) {
        let dir = tempfile::tempdir().unwrap();
        let cancel = Cancel::default();
        let root = dir.path().join("tree");
        let limits = Limits {
            file: 10,
            total: 25,
            entries: 8,
        };
        let mut unpacker = Unpacker::new(&root, &cancel, limits).unwrap();
        work(&mut unpacker, &root);
    }

    fn put(unpacker: &mut Unpacker<'_>, path: &str, content: &str) -> Result<()> {
        unpacker.file(path, false, content.len() as u64, &mut content.as_bytes())
    }

    #[track_caller]
    fn refused(result: Result<()>, why: &str) {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding, "{error}");
        assert!(error.to_string().contains(why), "{error}");
    }

    #[test]
    fn files_keep_content_and_only_the_owners_execute_bit() {
        with(|unpacker, root| {
            unpacker.file("a/run", true, 2, &mut "ok".as_bytes()).unwrap();
            put(unpacker, "a/plain", "").unwrap();
            assert_eq!(std::fs::read(root.join("a/run")).unwrap(), b"ok");
            assert_eq!(unpacker.files(), 2);
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt;
                let mode = |path| {
                    let meta = std::fs::metadata(root.join(path)).unwrap();
                    meta.permissions().mode() & 0o777
                };
                assert_eq!((mode("a/run"), mode("a/plain")), (0o755, 0o644));
            }
        });
    }

    #[test]
    fn unsafe_paths_are_refused() {
        for path in ["/etc/x", "../x", "a/../../x", ".git/hooks/x", "a\\b", ".GIT"] {
            with(|unpacker, root| {
                refused(put(unpacker, path, "x"), "unsafe path");
                assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
            });
        }
    }

    #[test]
    fn names_that_collide_are_refused() {
        with(|unpacker, _| {
            put(unpacker, "a/File", "1").unwrap();
            refused(put(unpacker, "a/File", "1"), "there twice");
            refused(put(unpacker, "a/file", "1"), "upper and lower case");
            refused(put(unpacker, "A/other", "1"), "upper and lower case");
            refused(put(unpacker, "a/File/x", "1"), "is a file");
            refused(put(unpacker, "a", "1"), "a folder already");
            unpacker.folder("a").unwrap();
        });
    }

    #[cfg(unix)]
    #[test]
    fn links_stay_inside_and_nothing_is_written_through_them() {
        with(|unpacker, root| {
            unpacker.link("a/b/up", "../../c").unwrap();
            assert_eq!(
                std::fs::read_link(root.join("a/b/up")).unwrap(),
                Path::new("../../c")
            );
            refused(put(unpacker, "a/b/up/x", "1"), "written through");
            refused(put(unpacker, "a/b/up", "1"), "there twice");
        });
        for (path, target, why) in [
            ("l", "/etc/passwd", "absolute"),
            ("l", "..", "leaves"),
            ("a/b/l", "../../../x", "leaves"),
            ("a/l", "b/../../..", "goes up after"),
            ("l", "a/..", "goes up after"),
            ("l", "", "no path"),
        ] {
            with(|unpacker, root| {
                refused(unpacker.link(path, target), why);
                assert!(std::fs::symlink_metadata(root.join(path)).is_err());
            });
        }
    }

    #[test]
    fn sizes_and_numbers_are_bounded() {
        with(|unpacker, _| {
            refused(put(unpacker, "a", "12345678901"), "more than the 10");
        });
        with(|unpacker, _| {
            put(unpacker, "a", "1234567890").unwrap();
            put(unpacker, "b", "1234567890").unwrap();
            refused(put(unpacker, "c", "1234567890"), "more than 25 bytes");
        });
        with(|unpacker, _| {
            for at in 0..8 {
                put(unpacker, &at.to_string(), "").unwrap();
            }
            refused(put(unpacker, "9", ""), "more than 8 entries");
        });
        with(|unpacker, _| {
            refused(
                unpacker.file("a", false, 5, &mut "123".as_bytes()),
                "ends 2 bytes early",
            );
        });
    }

    #[test]
    fn cancelling_stops_it() {
        let dir = tempfile::tempdir().unwrap();
        let cancel = Cancel::default();
        let mut unpacker =
            Unpacker::new(&dir.path().join("t"), &cancel, Limits::default()).unwrap();
        cancel.set();
        let error = put(&mut unpacker, "a", "x").unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Interrupted);
    }

    #[test]
    fn the_exclusion_rule_is_exact() {
        let rules = [".git".to_owned(), "docs/".to_owned()];
        let rule = Exclude(&rules);
        assert!(rule.file(".git") && rule.file("docs/a/b"));
        assert!(!rule.file("docs") && !rule.file("docs2/a") && !rule.file("a/docs/b"));
        assert!(!rule.file(".git/config") && !rule.file(".gitignore"));
        assert!(rule.folder("docs") && rule.folder("docs/a"));
        assert!(!rule.folder(".git") && !rule.folder("docs2"));
    }
}
