//! Patches as mails: what `git format-patch` writes and `git am` takes.
//!
//! A mail carries what a diff cannot: who wrote it, when, and why. `mailparse` reads headers and
//! transfer encodings; what a patch mail means (brackets in the subject, headers in the body,
//! the separator, the signature) is read here as git reads it, but for two things: only the
//! leading bracket that says PATCH is taken off the subject, and line ends inside a diff are kept.

mod message;
mod read;
mod write;

pub use read::{read, read_mbox};
pub use write::write;

use crate::diff::{self, FilePatch};
use crate::error::Result;

/// One patch with its message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mail {
    /// Who wrote it.
    pub author: Author,
    /// When, as mails say it: `Sun, 29 Nov 2026 13:16:57 +0000`. Kept as it was read.
    pub date: String,
    /// Its place in a series.
    pub part: Option<Part>,
    /// The first line of the message, without `[PATCH …]` and with every other bracket.
    pub subject: String,
    /// The rest of the message, without blank lines at its ends.
    pub body: String,
    /// What stands between `---` and the diff, and is not for the history: a diffstat, remarks.
    /// Empty, or ended by one line end.
    pub notes: String,
    /// The diff as text; empty in a cover letter.
    pub diff: Vec<u8>,
}

/// A name and an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Author {
    /// The name as people write it.
    pub name: String,
    /// The address, without angle brackets.
    pub email: String,
}

/// `3/7` of `[PATCH 3/7]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// Its number, from 1; 0 for a cover letter.
    pub number: u32,
    /// How many there are.
    pub total: u32,
}

impl Mail {
    /// What the diff does; nothing in a cover letter.
    pub fn files(&self) -> Result<Vec<FilePatch>> {
        if self.diff.is_empty() {
            return Ok(Vec::new());
        }
        diff::parse_files(&self.diff)
    }
}

#[cfg(test)]
mod tests;
