//! From two contents to a diff, in the form that git writes.

use std::fmt::Write as _;

use similar::{Algorithm, DiffOp, DiffTag, capture_diff_slices, group_diff_ops};

use crate::diff::{FileDiff, Hunk, Line, lines_of};
use crate::tree::RelPath;

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
    let (old, new) = (lines_of(old), lines_of(new));
    let ops = capture_diff_slices(Algorithm::Patience, &old, &new);
    let hunks = group_diff_ops(ops, CONTEXT)
        .iter()
        .map(|group| hunk(group, &old, &new))
        .collect();
    Some(FileDiff {
        path: path.clone(),
        hunks,
    })
}

fn hunk(group: &[DiffOp], old: &[&[u8]], new: &[&[u8]]) -> Hunk {
    let mut lines = Vec::new();
    for op in group {
        let (old_range, new_range) = (op.old_range(), op.new_range());
        match op.tag() {
            DiffTag::Equal => {
                lines.extend(
                    old[old_range]
                        .iter()
                        .map(|line| Line::Context(line.to_vec())),
                );
            }
            DiffTag::Delete | DiffTag::Insert | DiffTag::Replace => {
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
        heading: heading(&old[..old_at]),
        lines,
    }
}

/// The last line before a hunk that looks like the head of something: what git's default rule
/// takes, a line that begins with a letter, an underscore or a dollar sign.
fn heading(before: &[&[u8]]) -> String {
    let head = before
        .iter()
        .rev()
        .find(|line| matches!(line.first(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$')));
    let Some(head) = head else {
        return String::new();
    };
    let cut = &head[..head.len().min(HEADING)];
    String::from_utf8_lossy(cut).trim_end().to_owned()
}

/// The diff as text: `diff --git`, `---`, `+++` and the hunks.
pub fn to_text(diff: &FileDiff) -> Vec<u8> {
    let mut out = Vec::new();
    let (old, new) = (quoted("a/", &diff.path), quoted("b/", &diff.path));
    out.extend(format!("diff --git {old} {new}\n--- {old}\n+++ {new}\n").into_bytes());
    for hunk in &diff.hunks {
        let range = |start: usize, len: usize| match len {
            1 => start.to_string(),
            len => format!("{start},{len}"),
        };
        let old = range(hunk.old_start, hunk.old_len);
        let new = range(hunk.new_start, hunk.new_len);
        out.extend(format!("@@ -{old} +{new} @@").into_bytes());
        if !hunk.heading.is_empty() {
            out.push(b' ');
            out.extend_from_slice(hunk.heading.as_bytes());
        }
        out.push(b'\n');
        for line in &hunk.lines {
            let (sign, bytes) = match line {
                Line::Context(bytes) => (b' ', bytes),
                Line::Delete(bytes) => (b'-', bytes),
                Line::Insert(bytes) => (b'+', bytes),
            };
            out.push(sign);
            out.extend_from_slice(bytes);
            if !bytes.ends_with(b"\n") {
                out.extend_from_slice(b"\n\\ No newline at end of file\n");
            }
        }
    }
    out
}

/// A name as git writes it: in double quotes with C escapes where it holds a quote, a backslash,
/// a control character or anything outside ASCII.
fn quoted(prefix: &str, path: &RelPath) -> String {
    let name = format!("{prefix}{path}");
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if name.bytes().all(plain) {
        return name;
    }
    let mut out = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' => out.push_str("\\\""),
            byte if plain(byte) => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            byte => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::{apply, parse};
    use proptest::prelude::*;

    fn path(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn looks_like_git() {
        let old = "int f() {\n    a;\n    b;\n    c;\n    d;\n    e;\n}\n";
        let new = old.replace("    d;\n", "    d;\n    x;\n");
        let diff = between(&path("src/f.c"), old.as_bytes(), new.as_bytes()).unwrap();
        insta::assert_snapshot!(String::from_utf8(to_text(&diff)).unwrap(), @r"
        diff --git a/src/f.c b/src/f.c
        --- a/src/f.c
        +++ b/src/f.c
        @@ -3,5 +3,6 @@ int f() {
             b;
             c;
             d;
        +    x;
             e;
         }
        ");
    }

    #[test]
    fn names_that_need_it_are_quoted() {
        assert_eq!(quoted("a/", &path("b c")), "a/b c");
        assert_eq!(quoted("a/", &path("ä\"")), "\"a/\\303\\244\\\"\"");
    }

    proptest! {
        /// Written, read and applied, a diff gives the second content again, whatever the line
        /// ends, and whether or not the last line has one.
        #[test]
        fn round_trip(old in "([abc]{0,2}(\n|\r\n)){0,30}[ab]?", new in "([abc]{0,2}(\n|\r\n)){0,30}[ab]?",
                      name in "[a-zä\" ]{1,8}") {
            prop_assume!(old != new && RelPath::new(name.clone()).is_ok());
            let diff = between(&path(&name), old.as_bytes(), new.as_bytes()).unwrap();
            prop_assert_eq!(apply(&diff, old.as_bytes()).unwrap(), new.as_bytes());
            let text = to_text(&diff);
            let read = parse(&text).unwrap();
            prop_assert_eq!(&read, &vec![diff]);
        }
    }
}
