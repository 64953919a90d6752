//! Unified diffs: parse, and apply exactly.
//!
//! `diffy` reads the format; what it would let pass (lines after a complete hunk, offsets) is
//! checked here. Application is our own, since a patch on a pinned base sits at its exact line
//! with its exact context or not at all.

mod exact;
mod hook;
mod parse;
mod write;

pub use exact::{Mismatch, apply, is_applied};
pub use hook::{Hook, hooks};
pub use parse::parse;
pub use write::{between, to_text};

use crate::tree::RelPath;

/// The edits of one diff to one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDiff {
    /// The file, edited in place.
    pub path: RelPath,
    /// Hunks in file order.
    pub hunks: Vec<Hunk>,
}

/// One hunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hunk {
    /// First old line, from 1; where `old_len` is 0, the line after which is inserted.
    pub old_start: usize,
    /// Number of old lines.
    pub old_len: usize,
    /// First new line, from 1; where `new_len` is 0, the line after which was deleted.
    pub new_start: usize,
    /// Number of new lines.
    pub new_len: usize,
    /// What stands behind the second `@@`: the function or section around.
    pub heading: String,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

/// One line of a hunk, with its line end where it has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Line {
    /// In the old and the new file.
    Context(Vec<u8>),
    /// Only in the old file.
    Delete(Vec<u8>),
    /// Only in the new file.
    Insert(Vec<u8>),
}

impl Line {
    /// The bytes that the old file has here, if it has any.
    pub fn old_side(&self) -> Option<&[u8]> {
        match self {
            Line::Context(bytes) | Line::Delete(bytes) => Some(bytes),
            Line::Insert(_) => None,
        }
    }

    /// The bytes that the new file has here, if it has any.
    pub fn new_side(&self) -> Option<&[u8]> {
        match self {
            Line::Context(bytes) | Line::Insert(bytes) => Some(bytes),
            Line::Delete(_) => None,
        }
    }
}

/// The lines of a file, each with its line end.
pub fn lines_of(content: &[u8]) -> Vec<&[u8]> {
    content.split_inclusive(|byte| *byte == b'\n').collect()
}
