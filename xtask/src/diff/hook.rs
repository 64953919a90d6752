//! Hooks: the runs of inserted lines in a diff.

use crate::diff::{FileDiff, Line};
use crate::tree::RelPath;

/// One run of lines that a diff inserts (or deletes) at one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hook {
    /// The file.
    pub path: RelPath,
    /// The old line, from 1, before which the run stands.
    pub line: usize,
    /// The inserted bytes.
    pub text: Vec<u8>,
    /// Number of inserted lines.
    pub inserted: usize,
    /// Number of deleted lines.
    pub deleted: usize,
    /// The hunk's heading.
    pub heading: String,
}

impl Hook {
    /// Whether its first inserted line carries the marker of `patch`.
    pub fn is_marked(&self, patch: &str) -> bool {
        let first = self
            .text
            .split(|byte| *byte == b'\n')
            .next()
            .unwrap_or_default();
        let first = String::from_utf8_lossy(first);
        first
            .split_once("opencoti-hook:")
            .and_then(|(_, rest)| rest.split_whitespace().next())
            .is_some_and(|id| id == patch)
    }
}

/// All hooks of a diff, in order.
pub fn hooks(diff: &FileDiff) -> Vec<Hook> {
    let mut list = Vec::new();
    for hunk in &diff.hunks {
        let mut line = hunk.old_start + usize::from(hunk.old_len == 0);
        let mut open: Option<Hook> = None;
        for part in &hunk.lines {
            match part {
                Line::Context(_) => {
                    list.extend(open.take());
                    line += 1;
                }
                Line::Insert(_) | Line::Delete(_) => {
                    let hook = open.get_or_insert_with(|| Hook {
                        path: diff.path.clone(),
                        line,
                        text: Vec::new(),
                        inserted: 0,
                        deleted: 0,
                        heading: hunk.heading_text(),
                    });
                    if let Line::Insert(bytes) = part {
                        hook.inserted += 1;
                        hook.text.extend_from_slice(bytes);
                    } else {
                        hook.deleted += 1;
                        line += 1;
                    }
                }
            }
        }
        list.extend(open);
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_run_is_one_hook() {
        let text = "--- a/f\n+++ b/f\n@@ -5,4 +5,6 @@ fn\n a\n+// opencoti-hook: one\n+y\n b\n-c\n+z\n d\n";
        let files = crate::diff::parse(text.as_bytes()).unwrap();
        let list = hooks(&files[0]);
        assert_eq!(list.len(), 2);
        assert_eq!((list[0].line, list[0].inserted, list[0].deleted), (6, 2, 0));
        assert_eq!((list[1].line, list[1].inserted, list[1].deleted), (7, 1, 1));
        assert!(list[0].is_marked("one"));
        assert!(!list[0].is_marked("on"));
        assert!(!list[1].is_marked("one"));
    }
}
