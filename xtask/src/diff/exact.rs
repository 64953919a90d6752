//! Exact application: the stated line, the whole context, no offset, no fuzz.

use crate::diff::{FileDiff, Hunk, Mismatch, lines_of};

/// Applies `diff` to `old`.
pub fn apply(diff: &FileDiff, old: &[u8]) -> Result<Vec<u8>, Box<Mismatch>> {
    apply_hunks(&diff.hunks, old)
}

/// Applies the hunks of one file to its content.
pub fn apply_hunks(hunks: &[Hunk], old: &[u8]) -> Result<Vec<u8>, Box<Mismatch>> {
    let old_lines = lines_of(old);
    let inserted: usize = hunks
        .iter()
        .flat_map(|hunk| &hunk.lines)
        .filter_map(|line| line.new_side())
        .map(<[u8]>::len)
        .sum();
    let mut new = Vec::with_capacity(old.len() + inserted);
    // Lines of the old file that are already copied, and of the new one that are written.
    let (mut done, mut written) = (0usize, 0usize);
    for (at, hunk) in hunks.iter().enumerate() {
        let first = locate(hunk, at + 1, &old_lines, (done, written))?;
        new.extend_from_slice(span(old, &old_lines[done..first]));
        written += first - done;
        for line in hunk.lines.iter().filter_map(|line| line.new_side()) {
            new.extend_from_slice(line);
        }
        done = first + hunk.old_len;
        written += hunk.new_len;
        if done < old_lines.len() && new.last().is_some_and(|byte| *byte != b'\n') {
            return Err(Mismatch::new(
                hunk,
                at + 1,
                done,
                "a line without line end would be followed by more lines",
            ));
        }
    }
    new.extend_from_slice(span(old, &old_lines[done..]));
    Ok(new)
}

/// The bytes of `lines`, which follow each other in `file`.
fn span<'a>(file: &'a [u8], lines: &[&[u8]]) -> &'a [u8] {
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else {
        return &[];
    };
    let offset = |line: &[u8]| line.as_ptr().addr() - file.as_ptr().addr();
    &file[offset(first)..offset(last) + last.len()]
}

/// Whether `file` already is what `diff` makes: each hunk's new side stands at its new line.
pub fn is_applied(diff: &FileDiff, file: &[u8]) -> bool {
    let lines = lines_of(file);
    !diff.hunks.is_empty()
        && diff.hunks.iter().all(|hunk| {
            let first = if hunk.new_len == 0 {
                hunk.new_start
            } else {
                hunk.new_start.wrapping_sub(1)
            };
            let block: Vec<&[u8]> = hunk
                .lines
                .iter()
                .filter_map(|line| line.new_side())
                .collect();
            first
                .checked_add(block.len())
                .and_then(|end| lines.get(first..end))
                .is_some_and(|there| there == block)
        })
}

/// The index of the first old line of `hunk`, once every one of its old lines is found there.
/// `done` says how many lines of the old file are used up, and how many of the new one are made.
fn locate(
    hunk: &Hunk,
    number: usize,
    lines: &[&[u8]],
    done: (usize, usize),
) -> Result<usize, Box<Mismatch>> {
    let wrong = |line: usize, reason| Err(Mismatch::new(hunk, number, line, reason));
    let index = |start: usize, len: usize| match len {
        0 => Some(start),
        _ => start.checked_sub(1),
    };
    let (Some(first), Some(new_first)) = (
        index(hunk.old_start, hunk.old_len),
        index(hunk.new_start, hunk.new_len),
    ) else {
        return wrong(1, "the header names line 0 for lines that exist");
    };
    if first < done.0 {
        return wrong(
            first + 1,
            "it overlaps the hunk before it or is out of order",
        );
    }
    if new_first != done.1 + (first - done.0) {
        return wrong(
            first + 1,
            "the header's old and new line do not agree with the hunks before it",
        );
    }
    if first > 0 && hunk.old_start <= 1 {
        // As git does: what names line 0 or 1 sits at the file's beginning.
        return wrong(
            first + 1,
            "it names line 1, yet inserts behind it without any context",
        );
    }
    if first > lines.len() {
        return wrong(lines.len() + 1, "the file ends before the hunk's place");
    }
    let old: Vec<&[u8]> = hunk
        .lines
        .iter()
        .filter_map(|line| line.old_side())
        .collect();
    if let Some(at) = (0..old.len()).find(|at| lines.get(first + at) != Some(&old[*at])) {
        let found = lines.get(first + at).copied();
        // Git takes this: it compares lines without their blanks first, then only as many bytes as
        // the hunk has.
        let only_its_end = !old[at].ends_with(b"\n")
            && found
                .and_then(|line| line.strip_prefix(old[at]))
                .is_some_and(|rest| rest.trim_ascii().is_empty());
        let reason = if only_its_end {
            "the line has a line end, which the hunk says it lacks"
        } else {
            "the file is not what the hunk expects"
        };
        let mut fault = Mismatch::new(hunk, number, first + at + 1, reason);
        fault.compare(&old, lines, first, at);
        return Err(fault);
    }
    // As git does: a hunk without context behind its last change is one for the file's end.
    let ends_in_change = !matches!(
        hunk.lines.last(),
        Some(crate::diff::Line::Context(_)) | None
    );
    if ends_in_change && first + hunk.old_len != lines.len() {
        return wrong(
            first + hunk.old_len + 1,
            "it has no context behind its last change, yet the file goes on",
        );
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::parse;
    use proptest::prelude::*;

    fn diff(text: &str) -> FileDiff {
        parse(text.as_bytes()).unwrap().remove(0)
    }

    fn headed(hunks: &str) -> FileDiff {
        diff(&format!("diff --git a/f b/f\n--- a/f\n+++ b/f\n{hunks}"))
    }

    #[test]
    fn sits_at_its_line() {
        let patch = headed("@@ -2,2 +2,3 @@\n b\n+x\n c\n");
        assert_eq!(apply(&patch, b"a\nb\nc\nd\n").unwrap(), b"a\nb\nx\nc\nd\n");
    }

    #[test]
    fn an_offset_of_one_line_is_an_error_that_says_where_the_place_is() {
        let patch = headed("@@ -2,2 +2,3 @@ int f()\n b\n+x\n c\n");
        let fault = apply(&patch, b"a\na\nb\nc\nd\n").unwrap_err();
        assert_eq!((fault.line, fault.elsewhere[0].line), (2, 3));
        insta::assert_snapshot!(fault, @r"
        hunk 1 (int f()), line 2: the file is not what the hunk expects
          line    expected | found
             2 !  b        | a
             3 !  c        | b
          the whole context occurs at line 3, 1 line below, in `a`
        ");
    }

    #[test]
    fn two_equal_bodies_are_never_guessed_between() {
        let patch = headed("@@ -1,3 +1,4 @@ first\n {\n+x\n body\n }\n");
        let fault = apply(&patch, b"//\n{\nbody\n}\n//\n{\nbody\n}\n").unwrap_err();
        let lines: Vec<usize> = fault.elsewhere.iter().map(|place| place.line).collect();
        assert_eq!(lines, [2, 6]);
    }

    #[test]
    fn line_ends_count() {
        let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n");
        assert!(apply(&patch, b"a\r\nb\r\n").is_err());
        let fault = apply(&patch, b"a\nb").unwrap_err();
        assert_eq!(fault.found.as_deref(), Some("b (no line end)"));
    }

    #[test]
    fn ends_and_beginnings() {
        assert_eq!(apply(&headed("@@ -0,0 +1 @@\n+x\n"), b"").unwrap(), b"x\n");
        let append = headed("@@ -1,1 +1,2 @@\n a\n+x\n");
        assert_eq!(apply(&append, b"a\n").unwrap(), b"a\nx\n");
        assert!(
            apply(&append, b"a\nb\n").is_err(),
            "meant for the end of the file"
        );
        let joined = headed("@@ -1 +1 @@\n-a\n+x\n\\ No newline at end of file\n");
        assert!(apply(&joined, b"a\nb\n").is_err(), "would join two lines");
    }

    #[test]
    fn hunks_out_of_order_or_with_a_wrong_new_line_are_refused() {
        let mut swapped = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n@@ -3,2 +4,3 @@\n c\n+y\n d\n");
        assert!(apply(&swapped, b"a\nb\nc\nd\n").is_ok());
        swapped.hunks.reverse();
        assert!(apply(&swapped, b"a\nb\nc\nd\n").is_err());
        swapped.hunks.reverse();
        swapped.hunks[1].new_start = 3;
        assert!(
            apply(&swapped, b"a\nb\nc\nd\n").is_err(),
            "the new line must be 4"
        );
    }

    #[test]
    fn a_line_that_is_said_to_lack_its_end_must_lack_it() {
        let patch = headed("@@ -1,2 +1,3 @@\n+x\n a\n b\n\\ No newline at end of file\n");
        assert_eq!(apply(&patch, b"a\nb").unwrap(), b"x\na\nb");
        let fault = apply(&patch, b"a\nb\n").unwrap_err();
        assert!(fault.reason.contains("line end"), "{fault}");
        let fault = apply(&patch, b"a\nb \r\nc\n").unwrap_err();
        assert!(fault.reason.contains("line end"), "{fault}");
        assert!(apply(&patch, b"a\nbc").is_err());
    }

    #[test]
    fn without_context_an_insertion_behind_line_1_is_refused_as_git_does() {
        assert!(apply(&headed("@@ -1,0 +2 @@\n+x\n"), b"a\n").is_err());
        assert!(apply(&headed("@@ -2,0 +3 @@\n+x\n"), b"a\nb\n").is_ok());
    }

    #[test]
    fn knows_what_is_there_already() {
        let patch = headed("@@ -2,2 +2,3 @@\n b\n+x\n c\n");
        assert!(is_applied(&patch, b"a\nb\nx\nc\n"));
        assert!(!is_applied(&patch, b"a\nb\nc\n"));
        assert!(!is_applied(&patch, b"\na\nb\nx\nc\n"), "not at its line");
    }

    proptest! {
        /// What git's own algorithm would say of two texts, applied, gives the second text.
        #[test]
        fn a_diff_of_two_texts_gives_the_second(
            old in "([ab]\n){0,20}[ab]?", new in "([ab]\n){0,20}[ab]?"
        ) {
            prop_assume!(old != new && !old.is_empty() && !new.is_empty());
            let text = diffy::create_patch(&old, &new).to_string();
            let text = text.replace("--- original", "--- a/f").replace("+++ modified", "+++ b/f");
            let patch = diff(&text);
            prop_assert_eq!(apply(&patch, old.as_bytes()).unwrap(), new.as_bytes());
            prop_assert!(is_applied(&patch, new.as_bytes()));
        }

        /// No input panics, and an accepted one touches nothing outside its hunks.
        #[test]
        fn arbitrary_bytes_never_panic(text in proptest::collection::vec(any::<u8>(), 0..300),
                                       file in proptest::collection::vec(any::<u8>(), 0..100)) {
            let mut diff = b"--- a/f\n+++ b/f\n@@ -1,1 +1,2 @@\n".to_vec();
            diff.extend(text);
            if let Ok(files) = parse(&diff) {
                for parsed in &files {
                    let _ = apply(parsed, &file);
                    let _ = is_applied(parsed, &file);
                }
            }
        }
    }
}
