//! Per-file manifests of a tree: what a base is pinned by.
//!
//! The text form is one line per file, sorted by path: `<sha256> <mode> <path>`, where mode is
//! `-` for a plain file, `x` for an executable one and `l` for a symbolic link (whose digest is
//! that of its target's text). The digest of a tree is the SHA-256 of that text.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::Metadata;
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::Serialize;

use crate::error::{Error, Result};
use crate::model::Digest;
use crate::tree::RelPath;
use crate::tree::stamps::{Clock, Stamps};
use crate::tree::walk::list;

/// What kind of file an [`Entry`] is. Only what git would record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileMode {
    /// A plain file.
    Plain,
    /// A plain file with the owner's execute bit.
    Executable,
    /// A symbolic link.
    Link,
}

impl FileMode {
    /// What `lstat` or `fstat` says of a link or file.
    pub fn of(meta: &std::fs::Metadata) -> Self {
        if meta.file_type().is_symlink() {
            return FileMode::Link;
        }
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            if meta.permissions().mode() & 0o100 != 0 {
                return FileMode::Executable;
            }
        }
        FileMode::Plain
    }
}

/// One file of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Kind of file.
    pub mode: FileMode,
    /// Digest of its content, or of the link's target.
    pub sha256: Digest,
}

/// All files of a tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TreeManifest {
    files: BTreeMap<RelPath, Entry>,
}

/// A tree as it was found, and what of it was hashed only now.
pub struct Scan {
    /// The files.
    pub manifest: TreeManifest,
    root: PathBuf,
    memory: PathBuf,
    /// What is known of the files that cannot change without another stamp.
    settled: Stamps,
    /// To write that, where it is news.
    news: Option<Clock>,
}

/// Where a tree is not what its manifest says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "what", rename_all = "kebab-case")]
pub enum Difference {
    /// A file that should be there is not.
    Missing {
        /// Path inside the tree.
        path: RelPath,
    },
    /// A file that should not be there.
    Unknown {
        /// Path inside the tree.
        path: RelPath,
    },
    /// The content differs.
    Content {
        /// Path inside the tree.
        path: RelPath,
        /// Recorded digest.
        expected: Digest,
        /// Digest found.
        found: Digest,
    },
    /// The kind of file differs.
    Mode {
        /// Path inside the tree.
        path: RelPath,
        /// Recorded mode.
        expected: FileMode,
        /// Mode found.
        found: FileMode,
    },
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Difference::Missing { path } => write!(f, "{path}: missing"),
            Difference::Unknown { path } => write!(f, "{path}: not part of the tree"),
            Difference::Content {
                path,
                expected,
                found,
            } => {
                write!(f, "{path}: expected sha256 {expected}, found {found}")
            }
            Difference::Mode {
                path,
                expected,
                found,
            } => {
                write!(
                    f,
                    "{path}: expected a file of kind {expected:?}, found {found:?}"
                )
            }
        }
    }
}

impl TreeManifest {
    /// Hashes the tree at `root`, leaving out what `skip` says. `skip` is asked for folders too
    /// (with a trailing slash), so that whole folders are not even listed.
    pub fn of_tree(root: &Path, skip: impl Fn(&str) -> bool + Sync) -> Result<Self> {
        let files = list(root, &skip)?
            .into_par_iter()
            .map(|(path, meta)| {
                let entry = Entry::of_listed(&path.below(root), &meta)?;
                Ok((path, entry))
            })
            .collect::<Result<Vec<_>>>()?;
        Ok(files.into_iter().collect())
    }

    /// As [`TreeManifest::of_tree`], but a file that is as it was when it was last hashed, by the
    /// stamps in the file `memory`, is not hashed again. `memory` must be left out by `skip`.
    /// [`Scan::remember`] writes it.
    pub fn of_tree_with(
        root: &Path,
        skip: impl Fn(&str) -> bool + Sync,
        memory: &Path,
    ) -> Result<Scan> {
        let (listed, stamps) = rayon::join(|| list(root, &skip), || Stamps::read(memory));
        let listed = listed?;
        let known: Vec<Option<Digest>> = listed
            .iter()
            .map(|(path, meta)| stamps.digest(path, meta))
            .collect();
        let is_news = |((_, meta), known): (&(RelPath, Metadata), &Option<Digest>)| {
            known.is_none() && meta.file_type().is_file()
        };
        let news = listed.iter().zip(&known).any(is_news);
        // Before anything is hashed: what changes later has a later stamp.
        let clock = news.then(|| Clock::read(memory.parent()?)).flatten();
        let files = listed
            .par_iter()
            .zip(&known)
            .map(|((path, meta), known)| match known {
                Some(sha256) => Ok(Entry {
                    mode: FileMode::of(meta),
                    sha256: *sha256,
                }),
                None => Entry::of_listed(&path.below(root), meta),
            })
            .collect::<Result<Vec<_>>>()?;
        let fresh = clock.map(|clock| {
            let hashed = listed.iter().zip(&files);
            let hashed = hashed.filter(|((_, meta), _)| meta.file_type().is_file());
            let hashed = hashed.map(|((path, meta), entry)| (path, meta, entry.sha256));
            (Stamps::of(&clock, &stamps, hashed), clock)
        });
        let (settled, news) = match fresh {
            Some((fresh, clock)) if fresh != stamps => (fresh, Some(clock)),
            _ => (stamps, None),
        };
        let paths = listed.into_iter().map(|(path, _)| path);
        Ok(Scan {
            manifest: paths.zip(files).collect(),
            root: root.to_path_buf(),
            memory: memory.to_path_buf(),
            settled,
            news,
        })
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Result<Self> {
        let mut files = BTreeMap::new();
        for (at, line) in text.lines().enumerate() {
            let broken =
                || Error::config(format!("line {} of the tree manifest is broken", at + 1));
            let mut parts = line.splitn(3, ' ');
            let (Some(digest), Some(mode), Some(path)) = (parts.next(), parts.next(), parts.next())
            else {
                return Err(broken());
            };
            let entry = Entry {
                sha256: digest.parse().map_err(|_| broken())?,
                mode: match mode {
                    "-" => FileMode::Plain,
                    "x" => FileMode::Executable,
                    "l" => FileMode::Link,
                    _ => return Err(broken()),
                },
            };
            files.insert(RelPath::new(path)?, entry);
        }
        Ok(TreeManifest { files })
    }

    /// The text form.
    pub fn text(&self) -> String {
        let mut text = String::with_capacity(self.files.len() * 110);
        for (path, entry) in &self.files {
            let mode = match entry.mode {
                FileMode::Plain => '-',
                FileMode::Executable => 'x',
                FileMode::Link => 'l',
            };
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{} {mode} {path}", entry.sha256);
        }
        text
    }

    /// The digest of the tree.
    pub fn digest(&self) -> Digest {
        Digest::of(self.text().as_bytes())
    }

    /// Adds or replaces a file.
    pub fn insert(&mut self, path: RelPath, entry: Entry) {
        self.files.insert(path, entry);
    }

    /// One file.
    pub fn get(&self, path: &RelPath) -> Option<Entry> {
        self.files.get(path).copied()
    }

    /// Whether there is a file below the folder `path`.
    pub fn has_below(&self, path: &RelPath) -> bool {
        has_below(&self.files, path)
    }

    /// All files, sorted by path.
    pub fn iter(&self) -> impl Iterator<Item = (&RelPath, &Entry)> {
        self.files.iter()
    }

    /// Number of files.
    pub fn len(&self) -> usize {
        self.files.len()
    }

    /// Whether there is no file.
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// Where `found` is not what `self` says, sorted by path.
    pub fn differences(&self, found: &TreeManifest) -> Vec<Difference> {
        self.differing(found)
            .map(|(path, expected, found)| {
                let path = path.clone();
                match (expected, found) {
                    (Some(expected), Some(found)) if found.mode != expected.mode => {
                        Difference::Mode {
                            path,
                            expected: expected.mode,
                            found: found.mode,
                        }
                    }
                    (Some(expected), Some(found)) => Difference::Content {
                        path,
                        expected: expected.sha256,
                        found: found.sha256,
                    },
                    (_, None) => Difference::Missing { path },
                    (None, Some(_)) => Difference::Unknown { path },
                }
            })
            .collect()
    }

    /// The files of either that are not the same in both, sorted by path: expected and found.
    fn differing<'a>(
        &'a self,
        found: &'a TreeManifest,
    ) -> impl Iterator<Item = (&'a RelPath, Option<Entry>, Option<Entry>)> {
        let (mut ours, mut theirs) = (self.files.iter().peekable(), found.files.iter().peekable());
        // One pass over both: this runs for every file of a tree at every command.
        let next = move || {
            use std::cmp::Ordering;
            let order = match (ours.peek(), theirs.peek()) {
                (None, None) => return None,
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((ours, _)), Some((theirs, _))) => ours.cmp(theirs),
            };
            let expected = (order != Ordering::Greater).then(|| ours.next()).flatten();
            let found = (order != Ordering::Less).then(|| theirs.next()).flatten();
            let (path, _) = expected.or(found)?;
            Some((
                path,
                expected.map(|(_, entry)| *entry),
                found.map(|(_, entry)| *entry),
            ))
        };
        std::iter::from_fn(next).filter(|(_, expected, found)| expected != found)
    }
}

/// Whether a key lies below the folder `path`.
pub fn has_below<T>(files: &BTreeMap<RelPath, T>, path: &RelPath) -> bool {
    let folder = path.as_str();
    // `.`, `-` and others sort before `/`: between a folder's name and its files may stand
    // files beside it.
    files
        .range(path..)
        .map(|(at, _)| at.as_str())
        .take_while(|at| at.starts_with(folder))
        .any(|at| at[folder.len()..].starts_with('/'))
}

impl FromIterator<(RelPath, Entry)> for TreeManifest {
    fn from_iter<I: IntoIterator<Item = (RelPath, Entry)>>(files: I) -> Self {
        TreeManifest {
            files: files.into_iter().collect(),
        }
    }
}

impl Scan {
    /// Remembers what was hashed, for the next time. A failure costs time only, and is none.
    pub fn remember(self) -> TreeManifest {
        if let Some(clock) = self.news {
            self.settled.save(clock, &self.memory);
        }
        self.manifest
    }

    /// As [`Scan::remember`], once the tree was replaced by one in which `made` is new and all
    /// else is linked: spares hashing all of it for another time of change. An edit while it was
    /// replaced shows, unless it keeps the size and sets the time stamp back.
    pub fn remember_replaced(
        self,
        skip: impl Fn(&str) -> bool + Sync,
        made: &BTreeMap<&RelPath, (Metadata, Digest)>,
    ) {
        let Some(clock) = self.memory.parent().and_then(Clock::read) else {
            return;
        };
        let Ok(mut now) = list(&self.root, &skip) else {
            return;
        };
        now.retain(|(_, meta)| meta.file_type().is_file());
        self.settled
            .after(&clock, made, &now)
            .save(clock, &self.memory);
    }
}

impl Difference {
    /// The path that differs.
    pub fn path(&self) -> &RelPath {
        match self {
            Difference::Missing { path }
            | Difference::Unknown { path }
            | Difference::Content { path, .. }
            | Difference::Mode { path, .. } => path,
        }
    }
}

impl Entry {
    /// Looks at the file at `path`. Anything but files and links is refused.
    pub fn of_file(path: &Path) -> Result<Self> {
        let meta = fs_err::symlink_metadata(path)?;
        Self::of_listed(path, &meta)
    }

    /// As [`Entry::of_file`], where `lstat` was asked already.
    fn of_listed(path: &Path, meta: &Metadata) -> Result<Self> {
        let kind = meta.file_type();
        if kind.is_symlink() {
            let target = fs_err::read_link(path)?;
            return Ok(Entry {
                mode: FileMode::Link,
                sha256: Digest::of(target.to_string_lossy().as_bytes()),
            });
        }
        if !kind.is_file() {
            return Err(Error::finding(format!(
                "{} is neither a file nor a link",
                path.display()
            )));
        }
        Ok(Entry {
            mode: FileMode::of(meta),
            sha256: Digest::of_file(path)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn text_form_round_trips() {
        let dir = tree(&[("b/c with blank", "x"), ("a", ""), ("skip/me", "y")]);
        let manifest = TreeManifest::of_tree(dir.path(), |path| path == "skip/").unwrap();
        assert_eq!(manifest.len(), 2);
        assert_eq!(TreeManifest::parse(&manifest.text()).unwrap(), manifest);
    }

    #[test]
    fn each_kind_of_difference_is_named() {
        let old = tree(&[
            ("same", "1"),
            ("gone", "2"),
            ("changed", "3"),
            ("mode", "4"),
        ]);
        let new = tree(&[("same", "1"), ("changed", "x"), ("new", "5"), ("mode", "4")]);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(new.path().join("mode"), mode).unwrap();
        }
        let all = |_: &str| false;
        let old = TreeManifest::of_tree(old.path(), all).unwrap();
        let new = TreeManifest::of_tree(new.path(), all).unwrap();
        let list = old.differences(&new);
        let kinds: Vec<String> = list.iter().map(ToString::to_string).collect();
        assert_eq!(kinds.len(), 4, "{kinds:?}");
        assert!(kinds[0].starts_with("changed: expected sha256 "));
        assert_eq!(kinds[1], "gone: missing");
        assert!(kinds[2].starts_with("mode: expected a file of kind Plain"));
        assert_eq!(kinds[3], "new: not part of the tree");
        assert!(old.differences(&old).is_empty());
    }
}
