//! A whole diff on a tree, all or nothing.
//!
//! The rules are git's, whose diffs do not depend on the order of their files: a rename or copy
//! takes the file as it was before the diff, so that two files can change places; an edit takes
//! the file as the diff has left it so far. What git takes without meaning it (an edit of a file
//! that is then renamed without the edit) is refused.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use crate::diff::{FilePatch, Mismatch, Operation, apply_hunks};
use crate::error::{Error, Result};
use crate::tree::{Blob, FileMode, Files, RelPath};

/// What a diff makes of each file that it touches, sorted by path; none for a file that is gone.
pub type Changes = Vec<(RelPath, Option<Blob>)>;

/// Why a diff does not sit on a tree.
#[derive(Debug)]
pub struct Refusal {
    /// Number of the file in the diff, from 1; absent where the tree cannot be read or no single
    /// file is at fault.
    pub number: usize,
    /// The file.
    pub path: RelPath,
    /// What is wrong.
    pub fault: Fault,
}

/// What is wrong with one file of a diff.
#[derive(Debug)]
pub enum Fault {
    /// There is no such file to edit, delete, rename or copy.
    Missing,
    /// There is no such file, and the hunks are those of a new one, but the header does not say so.
    Unannounced,
    /// The diff creates a file that is there.
    Exists,
    /// An earlier part of the diff has deleted or renamed the file.
    Gone,
    /// Two parts of the diff make the same file.
    MadeTwice,
    /// The diff deletes or renames the file after it has changed it.
    ChangedBefore,
    /// The deletion does not take all of the file.
    Leftover,
    /// A mode of the header is not the file's.
    Mode {
        /// The kind of file in the diff.
        stated: FileMode,
        /// The kind of file in the tree.
        found: FileMode,
    },
    /// A file would become a link or a link a file, in one step.
    Kind,
    /// A hunk does not sit on the file.
    Hunk(Box<Mismatch>),
    /// The result is a link that leaves the tree, or could.
    Escapes {
        /// The link's target.
        target: String,
    },
    /// A component before the last is a file or a link.
    InTheWay {
        /// That component.
        blocker: RelPath,
    },
    /// There is a folder with other files at the path.
    Folder,
    /// The tree cannot be read.
    Unreadable(Error),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.path)?;
        match &self.fault {
            Fault::Missing => f.write_str("there is no such file"),
            Fault::Unannounced => {
                f.write_str("there is no such file, and the diff does not say that it is new")
            }
            Fault::Exists => f.write_str("the diff creates a file that is there already"),
            Fault::Gone => f.write_str("the diff has deleted or renamed it before"),
            Fault::MadeTwice => f.write_str("two parts of the diff make this file"),
            Fault::ChangedBefore => f.write_str("the diff changes it and then takes it away"),
            Fault::Leftover => f.write_str("the diff deletes it, but not all of its content"),
            Fault::Mode { stated, found } => write!(
                f,
                "the diff says that it is of kind {stated:?}, but it is of kind {found:?}"
            ),
            Fault::Kind => f.write_str("a file cannot turn into a link or back in one step"),
            Fault::Hunk(mismatch) => mismatch.fmt(f),
            Fault::Escapes { target } => write!(f, "its target {target:?} leaves the tree"),
            Fault::InTheWay { blocker } => write!(f, "{blocker} is in its way and no folder"),
            Fault::Folder => f.write_str("there is a folder of this name"),
            Fault::Unreadable(error) => error.fmt(f),
        }
    }
}

impl From<Refusal> for Error {
    fn from(refusal: Refusal) -> Self {
        let text = refusal.to_string();
        match refusal.fault {
            Fault::Unreadable(error) => error.context(refusal.path.as_str()),
            _ => Error::finding(text).hint(
                "nothing was changed; write the diff anew against the tree that it is meant for",
            ),
        }
    }
}

/// What earlier parts of a diff have made of a path.
enum State {
    /// This content.
    Now(Blob),
    /// Deleted or renamed.
    Gone,
}

/// A diff on its way through a tree.
struct Sequence<'a> {
    tree: &'a dyn Files,
    states: BTreeMap<RelPath, State>,
    /// Paths that some part of the diff, perhaps a later one, deletes or renames.
    leaving: BTreeSet<&'a RelPath>,
    removed: BTreeSet<RelPath>,
    written: BTreeMap<RelPath, Blob>,
    /// Paths whose file was edited in place.
    edited: BTreeSet<RelPath>,
}

/// Applies `files` to `tree`, which is not changed.
pub fn apply_files(files: &[FilePatch], tree: &dyn Files) -> Result<Changes, Box<Refusal>> {
    let leaving = files.iter().filter_map(|file| match &file.operation {
        Operation::Delete(path) | Operation::Rename { from: path, .. } => Some(path),
        _ => None,
    });
    let mut sequence = Sequence {
        tree,
        states: BTreeMap::new(),
        leaving: leaving.collect(),
        removed: BTreeSet::new(),
        written: BTreeMap::new(),
        edited: BTreeSet::new(),
    };
    for (at, file) in files.iter().enumerate() {
        sequence
            .add(file)
            .map_err(|(path, fault)| refusal(at + 1, path, fault))?;
    }
    for path in sequence.written.keys() {
        if let Some(fault) = sequence
            .blocked(path)
            .unwrap_or_else(|error| Some(Fault::Unreadable(error)))
        {
            let at = files.iter().rposition(|file| file.new_path() == Some(path));
            return Err(refusal(at.map_or(0, |at| at + 1), path.clone(), fault));
        }
    }
    let mut changes: BTreeMap<RelPath, Option<Blob>> = sequence
        .removed
        .into_iter()
        .map(|path| (path, None))
        .collect();
    for (path, blob) in sequence.written {
        changes.insert(path, Some(blob));
    }
    Ok(changes.into_iter().collect())
}

fn refusal(number: usize, path: RelPath, fault: Fault) -> Box<Refusal> {
    Box::new(Refusal {
        number,
        path,
        fault,
    })
}

type Step<T> = Result<T, (RelPath, Fault)>;

impl Sequence<'_> {
    fn add(&mut self, file: &FilePatch) -> Step<()> {
        match &file.operation {
            Operation::Edit(path) => {
                let before = self.current(path).map_err(|fault| match fault {
                    (path, Fault::Missing) if file.hunks.iter().all(|hunk| hunk.old_len == 0) => {
                        (path, Fault::Unannounced)
                    }
                    fault => fault,
                })?;
                let after = changed(file, path, before)?;
                self.edited.insert(path.clone());
                self.put(path, after);
            }
            Operation::Create(path) => {
                self.make_room(path)?;
                let mode = file.new_mode.unwrap_or(FileMode::Plain);
                let after = changed(file, path, Blob::new("", mode))?;
                self.put(path, after);
            }
            Operation::Delete(path) => {
                if self.written.contains_key(path) {
                    return Err((path.clone(), Fault::ChangedBefore));
                }
                let before = self.current(path)?;
                if !changed(file, path, before)?.content.is_empty() {
                    return Err((path.clone(), Fault::Leftover));
                }
                self.remove(path);
            }
            Operation::Rename { from, to } => {
                if self.edited.contains(from) {
                    return Err((from.clone(), Fault::ChangedBefore));
                }
                if self.removed.contains(from) {
                    return Err((from.clone(), Fault::Gone));
                }
                self.make_room(to)?;
                let after = changed(file, to, self.original(from)?)?;
                self.put(to, after);
                self.remove(from);
            }
            Operation::Copy { from, to } => {
                self.make_room(to)?;
                let after = changed(file, to, self.original(from)?)?;
                self.put(to, after);
            }
        }
        Ok(())
    }

    fn put(&mut self, path: &RelPath, blob: Blob) {
        self.states.insert(path.clone(), State::Now(blob.clone()));
        self.written.insert(path.clone(), blob);
    }

    fn remove(&mut self, path: &RelPath) {
        self.states.insert(path.clone(), State::Gone);
        self.removed.insert(path.clone());
    }

    /// The file as the tree has it.
    fn original(&self, path: &RelPath) -> Step<Blob> {
        match self.tree.file(path) {
            Ok(Some(blob)) => Ok(blob),
            Ok(None) => Err((path.clone(), Fault::Missing)),
            Err(error) => Err((path.clone(), Fault::Unreadable(error))),
        }
    }

    /// The file as the diff leaves it so far.
    fn current(&self, path: &RelPath) -> Step<Blob> {
        match self.states.get(path) {
            Some(State::Now(blob)) => Ok(blob.clone()),
            Some(State::Gone) => Err((path.clone(), Fault::Gone)),
            None => self.original(path),
        }
    }

    /// Checks that a file can be made at `path`: nothing is there, or it goes away.
    fn make_room(&self, path: &RelPath) -> Step<()> {
        if self.written.contains_key(path) {
            return Err((path.clone(), Fault::MadeTwice));
        }
        if self.leaving.contains(path) {
            return Ok(());
        }
        match self.tree.file(path) {
            Ok(None) => Ok(()),
            Ok(Some(_)) => Err((path.clone(), Fault::Exists)),
            Err(error) => Err((path.clone(), Fault::Unreadable(error))),
        }
    }

    /// Why a file cannot be at `path` once all is done.
    fn blocked(&self, path: &RelPath) -> Result<Option<Fault>> {
        for (end, _) in path.as_str().match_indices('/') {
            let above = RelPath::new(&path.as_str()[..end])?;
            let stands = self.written.contains_key(&above)
                || (!self.removed.contains(&above) && self.tree.file(&above)?.is_some());
            if stands {
                return Ok(Some(Fault::InTheWay { blocker: above }));
            }
        }
        let stays = |below: &RelPath| !self.removed.contains(below);
        if self.tree.below(path)?.iter().any(stays) {
            return Ok(Some(Fault::Folder));
        }
        Ok(None)
    }
}

/// The file `before`, with the modes and hunks of `file`.
fn changed(file: &FilePatch, path: &RelPath, before: Blob) -> Step<Blob> {
    let fault = |fault| Err((path.clone(), fault));
    let is_link = |mode: FileMode| mode == FileMode::Link;
    if let Some(stated) = file.old_mode
        && stated != before.mode
    {
        let found = before.mode;
        return fault(Fault::Mode { stated, found });
    }
    // As git does: the mode of the `index` line says only what kind of file it is.
    if let Some(stated) = file.index.as_ref().and_then(|index| index.mode)
        && is_link(stated) != is_link(before.mode)
    {
        let found = before.mode;
        return fault(Fault::Mode { stated, found });
    }
    let mode = file.new_mode.unwrap_or(before.mode);
    if is_link(mode) != is_link(before.mode) {
        return fault(Fault::Kind);
    }
    let content = match apply_hunks(&file.hunks, &before.content) {
        Ok(content) => content,
        Err(mismatch) => return fault(Fault::Hunk(mismatch)),
    };
    if is_link(mode) && file.new_path().is_some() && !stays_inside(path, &content) {
        let target = String::from_utf8_lossy(&content).into_owned();
        return fault(Fault::Escapes { target });
    }
    Ok(Blob { content, mode })
}

/// Whether the link at `path` to `target` leads to somewhere in the tree: a relative target that
/// first goes up (not above the root) and then only down. What goes up behind a name depends on
/// whether that name is itself a link.
fn stays_inside(path: &RelPath, target: &[u8]) -> bool {
    let Ok(target) = std::str::from_utf8(target) else {
        return false;
    };
    let mut depth = path.as_str().matches('/').count();
    let mut rest = target;
    while let Some(above) = rest.strip_prefix("../") {
        if depth == 0 {
            return false;
        }
        depth -= 1;
        rest = above;
    }
    match rest {
        "." => true,
        ".." => depth > 0,
        rest => RelPath::new(rest.strip_suffix('/').unwrap_or(rest)).is_ok(),
    }
}

#[cfg(test)]
#[path = "sequence_tests.rs"]
mod tests;
