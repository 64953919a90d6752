//! Unified diffs: read, write, and apply exactly.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `read.rs`, `header.rs`, `hunk.rs`, `name.rs` | from text to [`FilePatch`]: every kind of change |
//! | `parse.rs` | the restriction to edits in place, for hooks |
//! | `exact.rs` | hunks on one content: the stated line, the whole context |
//! | `sequence.rs` | a whole diff on a tree: creations, removals, renames, copies |
//! | `between.rs`, `write.rs` | from two contents to a diff, and from a diff to text |
//! | `mismatch.rs` | why a hunk does not sit, and where it would |
//! | `hook.rs`, `landed.rs` | the runs of inserted lines; those that a file already has |
//!
//! A patch on a pinned base sits at its exact line with its exact context or not at all. Where
//! this differs from `git apply`, `docs/deviations.md` says so and why.

mod between;
mod exact;
mod file;
mod header;
mod hook;
mod hunk;
mod landed;
mod mismatch;
mod name;
mod parse;
mod read;
mod sequence;
mod write;

pub use between::{between, between_files};
pub use exact::{apply, apply_hunks, is_applied};
pub use file::{FilePatch, Index, Operation, Similarity};
pub use hook::{Hook, hooks};
pub use landed::landed;
pub use mismatch::{Mismatch, Paint, Part, Place, Row};
pub use name::Strip;
pub use parse::parse;
pub use read::{parse_files, parse_files_stripped, parse_with_end};
pub use sequence::{Changes, Fault, Refusal, apply_files};
pub use write::{files_to_text, to_text};

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
    /// What stands behind the second `@@`, less one blank: the function or section around. Git
    /// cuts it after 80 bytes, if need be in the middle of a character.
    pub heading: Vec<u8>,
    /// The lines, in order.
    pub lines: Vec<Line>,
}

impl Hunk {
    /// The heading as a person can read it.
    pub fn heading_text(&self) -> String {
        String::from_utf8_lossy(&self.heading).trim().to_owned()
    }
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

/// Whether a line looks like the head of something: what git's default rule takes, a line that
/// begins with a letter, an underscore or a dollar sign.
fn is_head(line: &[u8]) -> bool {
    matches!(line.first(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$'))
}

/// The lines of a file, each with its line end.
pub fn lines_of(content: &[u8]) -> Vec<&[u8]> {
    use std::io::BufRead;
    let mut lines = Vec::with_capacity(content.len() / 32);
    let mut rest = content;
    while !rest.is_empty() {
        // Looks for the line end as libc does, also in a build without optimisation: whole trees
        // go through here. Reading from memory does not fail.
        let length = (&mut &*rest).skip_until(b'\n').unwrap_or(rest.len());
        let (line, after) = rest.split_at(length);
        lines.push(line);
        rest = after;
    }
    lines
}
