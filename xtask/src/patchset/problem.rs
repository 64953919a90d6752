//! Why a patch does not sit, in words.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::diff::{Mismatch, Paint};
use crate::patchset::status::count;
use crate::tree::RelPath;

/// A patch that does not sit on the files as the patches before it leave them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// The patch.
    pub patch: String,
    /// The file; absent where the whole patch waits for another one.
    pub file: Option<RelPath>,
    /// What is wrong.
    pub detail: String,
    /// The patch whose failure this one follows from; absent for a root failure.
    pub follows_from: Option<String>,
    /// The hunk that does not sit, where it is one.
    pub mismatch: Option<Mismatch>,
    /// Where hooks of the patch, or the new file, already stand; absent where none does.
    pub landed: Option<Landed>,
    /// Everything that the patch does to the file is there already.
    pub upstreamed: bool,
}

/// How much of what a patch does to a file is there already: it may have landed upstream.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Landed {
    /// Number of hooks that stand there; 1 for a new file.
    pub hooks: usize,
    /// Of how many.
    pub of: usize,
    /// The lines, from 1, at which they stand.
    pub lines: Vec<usize>,
}

impl Problem {
    /// A root failure that is none of a single hunk.
    pub fn new(patch: &str, file: Option<&RelPath>, detail: impl Into<String>) -> Self {
        Problem {
            patch: patch.to_owned(),
            file: file.cloned(),
            detail: detail.into(),
            follows_from: None,
            mismatch: None,
            landed: None,
            upstreamed: false,
        }
    }

    /// The same with what stands there already: `hooks` of `of`, at `lines`.
    pub(super) fn with_landed(mut self, hooks: usize, of: usize, lines: Vec<usize>) -> Self {
        self.upstreamed = hooks > 0 && hooks == of;
        self.landed = (hooks > 0).then_some(Landed { hooks, of, lines });
        self
    }

    /// Patch, file, hunk, what is expected and found, and where the place may be.
    pub fn explain(&self, paint: Paint<'_>) -> String {
        let mut out = self.patch.clone();
        if let Some(file) = &self.file {
            out.push_str(&format!(": {file}"));
        }
        out.push_str(": ");
        match &self.mismatch {
            // It is there: what is expected instead is of no interest.
            _ if self.upstreamed => {}
            Some(mismatch) => out.push_str(&mismatch.explain(paint)),
            None => out.push_str(&self.detail),
        }
        if let Some(landed) = &self.landed {
            if !out.ends_with(": ") {
                out.push_str("\n  ");
            }
            out.push_str(&landed.to_string());
        }
        out
    }
}

impl fmt::Display for Landed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.lines.is_empty() {
            return f.write_str("the same file is there already");
        }
        let lines: Vec<String> = self.lines.iter().map(ToString::to_string).collect();
        let (verb, noun) = match (self.hooks, self.lines.len()) {
            (1, 1) => ("is", "line"),
            (_, 1) => ("are", "line"),
            _ => ("are", "lines"),
        };
        write!(
            f,
            "{} of {} {verb} there already, at {noun} {}",
            self.hooks,
            count(self.of, "hook"),
            lines.join(", ")
        )
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain(&|_, text| text.to_owned()))
    }
}
