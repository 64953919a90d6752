//! The changes of one patch to one file, as places and lines.

use crate::diff::{self, FileDiff, lines_of};
use crate::error::{Error, Result};

/// One hook: these lines in place of those.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The first old line that it replaces, from 0; the line before which it inserts.
    pub from: usize,
    /// Behind the last old line that it replaces; `from` where it only inserts.
    pub to: usize,
    /// The new lines.
    pub text: Vec<u8>,
    /// What git would write behind `@@`.
    pub heading: String,
}

/// The edits of a file's diff.
pub fn edits_of(diff: &FileDiff) -> Vec<Edit> {
    diff::hooks(diff)
        .into_iter()
        .map(|hook| Edit {
            from: hook.line - 1,
            to: hook.line - 1 + hook.deleted,
            text: hook.text,
            heading: hook.heading,
        })
        .collect()
}

/// `content` with edits, in any order. Edits of one place keep their order; two that replace the
/// same lines are an error.
pub fn with_edits(content: &[u8], edits: &[Edit]) -> Result<Vec<u8>> {
    let lines = lines_of(content);
    let mut sorted: Vec<&Edit> = edits.iter().collect();
    sorted.sort_by_key(|edit| (edit.from, edit.to));
    let mut out = Vec::with_capacity(content.len());
    let mut done = 0;
    for edit in sorted {
        if edit.from < done || edit.to > lines.len() || edit.to < edit.from {
            return Err(Error::internal(format!(
                "edits overlap at line {}",
                edit.from + 1
            )));
        }
        for line in &lines[done..edit.from] {
            out.extend_from_slice(line);
        }
        out.extend_from_slice(&edit.text);
        done = edit.to;
    }
    for line in &lines[done..] {
        out.extend_from_slice(line);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(at: usize, text: &str) -> Edit {
        Edit {
            from: at,
            to: at,
            text: text.as_bytes().to_vec(),
            heading: String::new(),
        }
    }

    #[test]
    fn edits_come_back_from_the_diff_that_they_make() {
        let old = b"a\nb\nc\nd\n";
        let edits = vec![insert(1, "x\ny\n"), insert(3, "z\n")];
        let path = crate::tree::RelPath::new("f").unwrap();
        let diff = diff::between(&path, old, &with_edits(old, &edits).unwrap()).unwrap();
        assert_eq!(edits_of(&diff), edits);
        assert_eq!(with_edits(old, &edits).unwrap(), b"a\nx\ny\nb\nc\nz\nd\n");
    }

    #[test]
    fn two_at_one_place_keep_their_order_and_overlaps_are_refused() {
        let old = b"a\nb\n";
        let both = [insert(1, "x\n"), insert(1, "y\n")];
        assert_eq!(with_edits(old, &both).unwrap(), b"a\nx\ny\nb\n");
        let replace = |from, to| Edit {
            to,
            ..insert(from, "r\n")
        };
        assert!(with_edits(old, &[replace(0, 2), replace(1, 2)]).is_err());
        assert!(with_edits(old, &[insert(3, "x\n")]).is_err());
    }
}
