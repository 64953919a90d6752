//! What a diff says of one file.

use crate::diff::Hunk;
use crate::tree::{FileMode, RelPath};

/// What a diff does to one file: any kind of change that git can write as text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePatch {
    /// What is done.
    pub operation: Operation,
    /// The kind of file before, where the header says it in a line of its own.
    pub old_mode: Option<FileMode>,
    /// The kind of file after, where the header says it in a line of its own.
    pub new_mode: Option<FileMode>,
    /// How alike git found the two contents.
    pub similarity: Option<Similarity>,
    /// The `index` line, kept as it was read.
    pub index: Option<Index>,
    /// Hunks in file order; none where only names or modes change, or for empty files.
    pub hunks: Vec<Hunk>,
}

/// What is done to a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Edited in place: content, mode, or both.
    Edit(RelPath),
    /// Created; nothing may be there.
    Create(RelPath),
    /// Deleted, with all its content.
    Delete(RelPath),
    /// Moved, perhaps edited on the way.
    Rename {
        /// Its place before.
        from: RelPath,
        /// Its place after.
        to: RelPath,
    },
    /// Copied, perhaps edited on the way.
    Copy {
        /// Where it is copied from: the file as it was before the whole diff.
        from: RelPath,
        /// Where the copy goes.
        to: RelPath,
    },
}

/// `similarity index` or `dissimilarity index`, in per cent. Only for people to read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Similarity {
    /// The contents are that much alike.
    Alike(u8),
    /// The contents are that much unlike.
    Unlike(u8),
}

/// The `index` line: abbreviated blob ids, and the mode where it does not change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Index {
    /// The old id in hexadecimal; zeros for a file that did not exist.
    pub old: String,
    /// The new id in hexadecimal; zeros for a file that no longer exists.
    pub new: String,
    /// The kind of file, before and after.
    pub mode: Option<FileMode>,
}

impl FilePatch {
    /// An operation without anything else.
    pub fn new(operation: Operation) -> Self {
        FilePatch {
            operation,
            old_mode: None,
            new_mode: None,
            similarity: None,
            index: None,
            hunks: Vec::new(),
        }
    }

    /// The file that it is about: the new place where there is one, else the old.
    pub fn path(&self) -> &RelPath {
        self.new_path().unwrap_or_else(|| self.operation.first())
    }

    /// Where the file was before.
    pub fn old_path(&self) -> Option<&RelPath> {
        match &self.operation {
            Operation::Create(_) => None,
            other => Some(other.first()),
        }
    }

    /// Where the file is after.
    pub fn new_path(&self) -> Option<&RelPath> {
        match &self.operation {
            Operation::Edit(path) | Operation::Create(path) => Some(path),
            Operation::Rename { to, .. } | Operation::Copy { to, .. } => Some(to),
            Operation::Delete(_) => None,
        }
    }
}

impl Operation {
    /// The first path that it names.
    fn first(&self) -> &RelPath {
        match self {
            Operation::Edit(path) | Operation::Create(path) | Operation::Delete(path) => path,
            Operation::Rename { from, .. } | Operation::Copy { from, .. } => from,
        }
    }
}

/// The mode in the form that diffs use.
pub(super) fn octal(mode: FileMode) -> &'static str {
    match mode {
        FileMode::Plain => "100644",
        FileMode::Executable => "100755",
        FileMode::Link => "120000",
    }
}
