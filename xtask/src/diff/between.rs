//! From two contents to a diff, in the form that git writes.

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};

use crate::diff::{FileDiff, FilePatch, Hunk, Index, Line, Operation, is_head, lines_of};
use crate::error::{Error, Result};
use crate::tree::{Blob, FileMode, RelPath};

/// Context lines around a change.
const CONTEXT: usize = 3;

/// Git cuts a heading after this many bytes.
const HEADING: usize = 80;

/// The edits that make `new` of `old`, or none where they are equal. The patience algorithm
/// keeps inserted blocks whole; on insert-only edits every algorithm gives the same lines.
pub fn between(path: &RelPath, old: &[u8], new: &[u8]) -> Option<FileDiff> {
    if old == new {
        return None;
    }
    Some(FileDiff {
        path: path.clone(),
        hunks: hunks(old, new),
    })
}

/// What makes the file `new` of the file `old` at `path`: nothing where they are equal, one
/// change, or a deletion and a creation where a file becomes a link. Blob ids are written whole.
pub fn between_files(
    path: &RelPath,
    old: Option<&Blob>,
    new: Option<&Blob>,
) -> Result<Vec<FilePatch>> {
    if old == new {
        return Ok(Vec::new());
    }
    let is_link = |blob: &Blob| blob.mode == FileMode::Link;
    let operation = match (old, new) {
        (Some(before), Some(after)) if is_link(before) != is_link(after) => {
            let mut both = between_files(path, old, None)?;
            both.extend(between_files(path, None, new)?);
            return Ok(both);
        }
        (Some(_), Some(_)) => Operation::Edit(path.clone()),
        (None, _) => Operation::Create(path.clone()),
        (_, None) => Operation::Delete(path.clone()),
    };
    let content = |blob: Option<&Blob>| blob.map(|blob| blob.content.clone()).unwrap_or_default();
    let (before, after) = (content(old), content(new));
    let mode = |blob: Option<&Blob>| blob.map(|blob| blob.mode);
    let moved = mode(old) != mode(new);
    Ok(vec![FilePatch {
        operation,
        old_mode: mode(old).filter(|_| moved),
        new_mode: mode(new).filter(|_| moved),
        similarity: None,
        index: (before != after || old.is_none() || new.is_none())
            .then(|| {
                Ok::<_, Error>(Index {
                    old: blob_id(old)?,
                    new: blob_id(new)?,
                    mode: mode(old).filter(|_| !moved),
                })
            })
            .transpose()?,
        hunks: hunks(&before, &after),
    }])
}

/// The id that git gives to a content; zeros for none.
fn blob_id(blob: Option<&Blob>) -> Result<String> {
    let Some(blob) = blob else {
        return Ok("0".repeat(40));
    };
    git2::Oid::hash_object(git2::ObjectType::Blob, &blob.content)
        .map(|id| id.to_string())
        .map_err(|error| Error::internal(format!("hashing a blob: {error}")))
}

fn hunks(old: &[u8], new: &[u8]) -> Vec<Hunk> {
    let (old, new) = (lines_of(old), lines_of(new));
    let ops = capture_diff_slices(Algorithm::Patience, &old, &new);
    let mut headings = Headings {
        lines: &old,
        done: 0,
        last: None,
    };
    group_diff_ops(ops, CONTEXT)
        .iter()
        .filter(|group| group.iter().any(|op| op.tag() != DiffTag::Equal))
        .map(|group| hunk(group, &old, &new, &mut headings))
        .collect()
}

fn hunk(group: &[DiffOp], old: &[&[u8]], new: &[&[u8]], headings: &mut Headings<'_>) -> Hunk {
    let mut lines = Vec::new();
    for op in group {
        let (old_range, new_range) = (op.old_range(), op.new_range());
        if op.tag() == DiffTag::Equal {
            lines.extend(
                old[old_range]
                    .iter()
                    .map(|line| Line::Context(line.to_vec())),
            );
        } else {
            lines.extend(
                old[old_range]
                    .iter()
                    .map(|line| Line::Delete(line.to_vec())),
            );
            lines.extend(
                new[new_range]
                    .iter()
                    .map(|line| Line::Insert(line.to_vec())),
            );
        }
    }
    let count = |side: fn(&Line) -> Option<&[u8]>| lines.iter().filter_map(side).count();
    let (old_len, new_len) = (count(Line::old_side), count(Line::new_side));
    let first = group.first();
    let old_at = first.map_or(0, |op| op.old_range().start);
    let new_at = first.map_or(0, |op| op.new_range().start);
    Hunk {
        old_start: old_at + usize::from(old_len > 0),
        old_len,
        new_start: new_at + usize::from(new_len > 0),
        new_len,
        heading: headings.before(old_at),
        lines,
    }
}

/// Finds headings, going through the file once.
struct Headings<'a> {
    lines: &'a [&'a [u8]],
    /// Lines that are looked at already.
    done: usize,
    /// The last of them that is a heading.
    last: Option<&'a [u8]>,
}

impl Headings<'_> {
    /// The last line before line `at` that looks like the head of something.
    fn before(&mut self, at: usize) -> Vec<u8> {
        for line in &self.lines[self.done..at.max(self.done)] {
            if is_head(line) {
                self.last = Some(line);
            }
        }
        self.done = self.done.max(at);
        let head = self.last.unwrap_or_default();
        head[..head.len().min(HEADING)].trim_ascii_end().to_vec()
    }
}
