//! Exact application: the stated line, the whole context, no offset, no fuzz.

use crate::diff::{FileDiff, Hunk, Mismatch, lines_of};

/// Applies `diff` to `old`.
pub fn apply(diff: &FileDiff, old: &[u8]) -> Result<Vec<u8>, Box<Mismatch>> {
    apply_hunks(&diff.hunks, old)
}

/// Applies the hunks of one file to its content.
pub fn apply_hunks(hunks: &[Hunk], old: &[u8]) -> Result<Vec<u8>, Box<Mismatch>> {
    let inserted: usize = hunks
        .iter()
        .flat_map(|hunk| &hunk.lines)
        .filter_map(|line| line.new_side())
        .map(<[u8]>::len)
        .sum();
    let mut new = Vec::with_capacity(old.len() + inserted);
    // What of the old file is already copied, and lines of the new one that are written.
    let (mut done, mut written) = (Place::default(), 0usize);
    for (at, hunk) in hunks.iter().enumerate() {
        let (first, end) = locate(hunk, at + 1, old, done, written)?;
        new.extend_from_slice(&old[done.offset..first.offset]);
        written += first.line - done.line;
        for line in hunk.lines.iter().filter_map(|line| line.new_side()) {
            new.extend_from_slice(line);
        }
        done = end;
        written += hunk.new_len;
        if done.offset < old.len() && new.last().is_some_and(|byte| *byte != b'\n') {
            return Err(Mismatch::new(
                hunk,
                at + 1,
                done.line,
                "a line without line end would be followed by more lines",
            ));
        }
    }
    new.extend_from_slice(&old[done.offset..]);
    Ok(new)
}

/// The beginning of a line of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    /// Lines before it.
    line: usize,
    /// Bytes before it.
    offset: usize,
}

impl Place {
    /// The beginning of a later line; none where the file has not so many. The lines between are
    /// counted and not cut out: only hunks look into lines, and a file is gone through once for
    /// each patch that changes it.
    fn ahead(self, file: &[u8], line: usize) -> Option<Place> {
        let passed = length_of(&file[self.offset..], line - self.line)?;
        Some(Place {
            line,
            offset: self.offset + passed,
        })
    }
}

/// Line ends are counted in so many bytes at once.
const BLOCK: usize = 1024;

/// How many bytes the first `lines` lines have; none where there are not so many.
fn length_of(text: &[u8], lines: usize) -> Option<usize> {
    let (mut at, mut left) = (0, lines);
    while left > 0 {
        let block = &text[at..text.len().min(at + BLOCK)];
        if block.is_empty() {
            // The last line may lack its end.
            let unended = text.last().is_some_and(|byte| *byte != b'\n');
            return (left == 1 && unended).then_some(text.len());
        }
        let ends = memchr::memchr_iter(b'\n', block).count();
        if ends < left {
            left -= ends;
            at += block.len();
            continue;
        }
        return Some(at + memchr::memchr_iter(b'\n', block).nth(left - 1)? + 1);
    }
    Some(0)
}

/// What follows `line` in `rest`, where `rest` begins with that whole line.
fn behind<'a>(rest: &'a [u8], line: &[u8]) -> Option<&'a [u8]> {
    let after = rest.strip_prefix(line)?;
    // Only the last line of a file may lack its end.
    (line.ends_with(b"\n") || (after.is_empty() && !line.is_empty())).then_some(after)
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

/// Where the old lines of `hunk` begin and end, once every one of them is found there. `done` says
/// what of the old file is used up, and `written` how many lines of the new one are made.
fn locate(
    hunk: &Hunk,
    number: usize,
    file: &[u8],
    done: Place,
    written: usize,
) -> Result<(Place, Place), Box<Mismatch>> {
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
    if first < done.line {
        return wrong(
            first + 1,
            "it overlaps the hunk before it or is out of order",
        );
    }
    if new_first != written + (first - done.line) {
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
    let Some(first) = done.ahead(file, first) else {
        return wrong(
            lines_of(file).len() + 1,
            "the file ends before the hunk's place",
        );
    };
    let mut rest = &file[first.offset..];
    let old = || hunk.lines.iter().filter_map(|line| line.old_side());
    for (at, line) in old().enumerate() {
        match behind(rest, line) {
            Some(after) => rest = after,
            None => return Err(misfit(hunk, number, file, (first.line, at))),
        }
    }
    // As git does: a hunk without context behind its last change is one for the file's end.
    let ends_in_change = !matches!(
        hunk.lines.last(),
        Some(crate::diff::Line::Context(_)) | None
    );
    let end = Place {
        line: first.line + hunk.old_len,
        offset: file.len() - rest.len(),
    };
    if ends_in_change && !rest.is_empty() {
        return wrong(
            end.line + 1,
            "it has no context behind its last change, yet the file goes on",
        );
    }
    Ok((first, end))
}

/// The old line `at` of `hunk`, which begins behind `first` lines, is not what the file has there.
fn misfit(hunk: &Hunk, number: usize, file: &[u8], (first, at): (usize, usize)) -> Box<Mismatch> {
    let lines = lines_of(file);
    let old: Vec<&[u8]> = hunk
        .lines
        .iter()
        .filter_map(|line| line.old_side())
        .collect();
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
    fault.compare(&old, &lines, first, at);
    fault
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
    fn lines_are_counted_over_the_edges_of_blocks() {
        for width in [1, 7, 63, 1023, 1024, 1025] {
            for text in ["x".repeat(width - 1) + "\n", "\n".to_owned()] {
                let ended = text.repeat(3000 / text.len() + 5);
                for file in [ended.as_str(), &ended[..ended.len() - 1]] {
                    let lines = lines_of(file.as_bytes());
                    let mut bytes = 0;
                    for (count, line) in lines.iter().enumerate() {
                        assert_eq!(length_of(file.as_bytes(), count), Some(bytes));
                        bytes += line.len();
                    }
                    assert_eq!(length_of(file.as_bytes(), lines.len()), Some(file.len()));
                    assert_eq!(length_of(file.as_bytes(), lines.len() + 1), None);
                }
            }
        }
        assert_eq!(length_of(b"", 0), Some(0));
        assert_eq!(length_of(b"", 1), None);
    }

    #[test]
    fn an_empty_line_without_its_end_is_nowhere() {
        let mut patch = headed("@@ -1 +1,2 @@\n a\n+x\n");
        patch.hunks[0].lines[0] = crate::diff::Line::Context(Vec::new());
        assert!(apply(&patch, b"").is_err());
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
