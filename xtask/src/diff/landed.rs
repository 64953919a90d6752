//! Hooks that a file already has: what somebody sees whose patch was taken upstream.

use crate::diff::mismatch::occurrences;
use crate::diff::{FileDiff, Hunk, Line, lines_of};

/// For each hook of `diff`, in the order of [`crate::diff::hooks`], the line of `file` (from 1) at
/// which its lines already stand, between the very lines that it is to stand between. A hook that
/// only deletes lines stands where they are gone.
///
/// Upstream does not take markers: the hook's lines count as there with and without theirs. A
/// block that occurs more than once is not guessed between, unless one stands at the hook's own
/// line.
pub fn landed(diff: &FileDiff, file: &[u8]) -> Vec<Option<usize>> {
    let lines = lines_of(file);
    diff.hunks
        .iter()
        .flat_map(|hunk| runs(hunk).into_iter().map(|run| run.place(&lines)))
        .collect()
}

/// A hook with the context that it touches.
struct Run<'a> {
    before: Vec<&'a [u8]>,
    inserted: Vec<&'a [u8]>,
    after: Vec<&'a [u8]>,
    /// Index of its first line in the new file.
    at: usize,
}

fn runs(hunk: &Hunk) -> Vec<Run<'_>> {
    let mut list: Vec<Run<'_>> = Vec::new();
    let mut context: Vec<&[u8]> = Vec::new();
    let mut new = hunk.new_start.saturating_sub(usize::from(hunk.new_len > 0));
    let mut open = false;
    for line in &hunk.lines {
        match (line, list.last_mut()) {
            (Line::Context(bytes), last) => {
                if let Some(run) = last {
                    run.after.push(bytes);
                }
                if open {
                    context.clear();
                }
                context.push(bytes);
                open = false;
            }
            (Line::Insert(bytes), Some(run)) if open => run.inserted.push(bytes),
            (Line::Delete(_), Some(_)) if open => {}
            (Line::Insert(_) | Line::Delete(_), _) => {
                list.push(Run {
                    before: std::mem::take(&mut context),
                    inserted: line.new_side().into_iter().collect(),
                    after: Vec::new(),
                    at: new,
                });
                open = true;
            }
        }
        new += usize::from(line.new_side().is_some());
    }
    list
}

impl Run<'_> {
    fn place(&self, lines: &[&[u8]]) -> Option<usize> {
        let (first, last) = (self.before.is_empty(), self.after.is_empty());
        // A line that is gone was between two others.
        if (first && last) || (self.inserted.is_empty() && (first || last)) {
            return None;
        }
        let bare: Vec<Vec<u8>> = self
            .inserted
            .iter()
            .filter_map(|line| without_marker(line))
            .collect();
        let bare: Vec<&[u8]> = bare.iter().map(Vec::as_slice).collect();
        let place = |inserted: &[&[u8]]| {
            let block = [&self.before, inserted, &self.after].concat();
            let found = occurrences(&block, lines);
            let line = |at: usize| at + self.before.len() + 1;
            match found.as_slice() {
                [one] => Some(line(*one)),
                many => many
                    .iter()
                    .map(|at| line(*at))
                    .find(|line| *line == self.at + 1),
            }
        };
        place(&self.inserted).or_else(|| {
            // Nothing but a marker says nothing.
            (!bare.is_empty() && bare != self.inserted)
                .then(|| place(&bare))
                .flatten()
        })
    }
}

/// A line without the comment that marks a hook; none where it is nothing else.
fn without_marker(line: &[u8]) -> Option<Vec<u8>> {
    const MARKER: &[u8] = b"opencoti-hook:";
    let Some(at) = line.windows(MARKER.len()).position(|part| part == MARKER) else {
        return Some(line.to_vec());
    };
    let mut code = line[..at].trim_ascii_end();
    for opening in [&b"//"[..], b"/*", b"#"] {
        code = code.strip_suffix(opening).unwrap_or(code);
    }
    let code = code.trim_ascii_end();
    (!code.is_empty()).then(|| [code, b"\n"].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(file: &str) -> Vec<Option<usize>> {
        let text = "--- a/f\n+++ b/f\n@@ -2,4 +2,7 @@\n a\n b\n+// opencoti-hook: x\n+one();\n c\n\
                    +two(); // opencoti-hook: x\n d\n@@ -9,2 +12,1 @@\n e\n-f\n";
        let diff = crate::diff::parse(text.as_bytes()).unwrap().remove(0);
        let places = landed(&diff, file.as_bytes());
        assert_eq!(places.len(), crate::diff::hooks(&diff).len());
        places
    }

    #[test]
    fn hooks_are_found_each_for_itself_and_where_they_have_moved() {
        assert_eq!(places("\na\nb\nc\nd\ne\nf\n"), [None, None, None]);
        let one = "\n\n\na\nb\n// opencoti-hook: x\none();\nc\nd\n";
        assert_eq!(places(one), [Some(6), None, None]);
        let marked = "a\nb\n// opencoti-hook: x\none();\nc\ntwo(); // opencoti-hook: x\nd\n";
        assert_eq!(places(marked), [Some(3), Some(6), None]);
    }

    #[test]
    fn upstream_has_no_markers() {
        let both = "a\nb\none();\nc\ntwo();\nd\n";
        assert_eq!(places(both), [Some(3), Some(5), None]);
        assert_eq!(
            places("a\nb\none(); \nc\nd\n"),
            [None, None, None],
            "white space counts"
        );
        assert_eq!(
            places("a\nb\none();\n\nc\n"),
            [None, None, None],
            "not between them"
        );
    }

    #[test]
    fn two_places_are_none_unless_one_is_its_own() {
        let block = "a\nb\none();\nc\n";
        assert_eq!(places(&format!("{block}{block}"))[0], None);
        assert_eq!(places(&format!("\n{block}{block}"))[0], Some(4));
    }
}
