//! Two stretches of lines, an old and a new one, and where an edit of the old belongs in the new.

use crate::diff::lines_of;
use crate::sync::align::Alignment;
use crate::sync::edit::Edit;
use crate::sync::ground::{Anchor, Source};
use crate::sync::place::{Placed, title};
use crate::sync::verdict::HookVerdict;
use crate::tree::RelPath;

/// Lines of context that are compared to tell `shifted` from `merged`.
const CONTEXT: usize = 3;

/// How alike two lines must be to be one, edited: the share of their bytes that are in both, in
/// order.
const SAME_LINE: f32 = 0.5;

/// Two stretches of lines that are compared.
pub(super) struct Region<'a> {
    pub path: &'a RelPath,
    pub old: &'a Source,
    pub new: &'a Source,
    pub old_lines: std::ops::Range<usize>,
    pub new_start: usize,
}

impl Region<'_> {
    /// `edit` at the new line `at`, with the verdict that the lines around it give.
    pub fn placed(
        &self,
        edit: &Edit,
        at: usize,
        anchor: Option<&Anchor>,
        renamed: Option<String>,
    ) -> Placed {
        let (old, new) = (lines_of(&self.old.content), lines_of(&self.new.content));
        let len = edit.to - edit.from;
        // As many as the old file has there, up to the context of a hunk.
        let above = edit.from.min(CONTEXT);
        let below = (old.len() - edit.to).min(CONTEXT);
        let before = at
            .checked_sub(above)
            .is_some_and(|first| old[edit.from - above..edit.from] == new[first..at]);
        let behind = new
            .get(at + len..at + len + below)
            .is_some_and(|lines| *lines == old[edit.to..edit.to + below]);
        let verdict = match (&renamed, before && behind) {
            (Some(_), _) => HookVerdict::Moved,
            (None, true) if at == edit.from => HookVerdict::Clean,
            (None, true) => HookVerdict::Shifted,
            (None, false) => HookVerdict::Merged,
        };
        Placed {
            file: self.path.clone(),
            verdict,
            anchor: self
                .new
                .around(at)
                .map_or_else(|| title(anchor, edit), |anchor| anchor.name.clone()),
            note: renamed.unwrap_or_default(),
            edit: Edit {
                from: at,
                to: at + len,
                ..edit.clone()
            },
        }
    }

    /// Says that the lines around the place went from one function into another: one of the two
    /// is only on one side, and these lines, blanks aside, are there once in each file.
    pub fn relocated(&self, edit: &Edit, at: usize, anchor: Option<&Anchor>) -> Option<String> {
        let (from, to) = (anchor?, self.new.around(at)?);
        let fresh = self.old.named(&to.name).next().is_none();
        let gone = self.new.named(&from.name).next().is_none();
        if from.name == to.name || !(fresh || gone) {
            return None;
        }
        let (old, new) = (lines_of(&self.old.content), lines_of(&self.new.content));
        let window = |lines: &[&[u8]], at: usize| -> Option<Vec<Vec<u8>>> {
            let first = at.checked_sub(CONTEXT)?;
            let lines = lines.get(first..at + (edit.to - edit.from) + CONTEXT)?;
            Some(
                lines
                    .iter()
                    .map(|line| line.trim_ascii().to_vec())
                    .collect(),
            )
        };
        let there = window(&old, edit.from)?;
        let once = |lines: &[&[u8]]| {
            let lines = trimmed(lines);
            let same = |part: &[&[u8]]| part.iter().zip(&there).all(|(a, b)| a == b);
            lines.windows(there.len()).filter(|part| same(part)).count() == 1
        };
        let same = window(&new, at)? == there;
        (same && once(&old) && once(&new)).then(|| {
            format!(
                "the lines around it went from `{}` into `{}`",
                from.name, to.name
            )
        })
    }

    /// The new line before which an insertion belongs whose neighbour on one side was edited.
    pub fn beside_an_edit(&self, alignment: &Alignment, edit: &Edit) -> Option<usize> {
        if edit.from != edit.to {
            return None;
        }
        let (old, new) = (lines_of(&self.old.content), lines_of(&self.new.content));
        let alike = |a: usize, b: usize| {
            let (a, b) = (old[self.old_lines.start + a], new[self.new_start + b]);
            let (a, b) = (a.trim_ascii(), b.trim_ascii());
            !a.is_empty() && !b.is_empty() && likeness(a, b) >= SAME_LINE
        };
        let at = alignment.beside_an_edit(edit.from - self.old_lines.start, alike)?;
        Some(self.new_start + at)
    }

    /// The place of a hook that only includes headers, where one of the lines beside it is there
    /// and the lines up to the other one are includes as well.
    pub fn among_includes(
        &self,
        edit: &Edit,
        above: Option<usize>,
        below: Option<usize>,
    ) -> Option<usize> {
        let lines = lines_of(&edit.text);
        if edit.from != edit.to || !lines.iter().all(|line| is_include(line)) {
            return None;
        }
        let new = lines_of(&self.new.content);
        let include = |at: usize| new.get(at).is_some_and(|line| is_include(line));
        match (above, below) {
            (Some(above), Some(below)) if above < below => {
                (above + 1..below).all(include).then_some(above + 1)
            }
            (Some(above), None) => (include(above) || include(above + 1)).then_some(above + 1),
            (None, Some(below)) => {
                (include(below) || below.checked_sub(1).is_some_and(include)).then_some(below)
            }
            _ => None,
        }
    }

    /// `edit` at another line.
    pub fn at(&self, edit: &Edit, at: usize) -> Edit {
        Edit {
            from: at,
            to: at + (edit.to - edit.from),
            ..edit.clone()
        }
    }

    pub fn merged(&self, edit: Edit, at: usize, note: &str) -> Placed {
        Placed {
            file: self.path.clone(),
            verdict: HookVerdict::Merged,
            note: note.to_owned(),
            anchor: self
                .new
                .around(at)
                .map_or_else(String::new, |anchor| anchor.name.clone()),
            edit,
        }
    }

    /// `edit` at `at` with the indentation that the lines around it have there; none where they
    /// do not agree, or where lines would be replaced that are not the same.
    pub fn reindented(&self, edit: &Edit, at: usize) -> Option<Edit> {
        if edit.to != edit.from {
            return None;
        }
        let (old, new) = (lines_of(&self.old.content), lines_of(&self.new.content));
        let above = edit
            .from
            .checked_sub(1)
            .filter(|line| self.old_lines.contains(line));
        let below = Some(edit.from).filter(|line| self.old_lines.contains(line));
        let mut change = None;
        let pairs = [
            above.zip(at.checked_sub(1).filter(|line| *line >= self.new_start)),
            below.zip(Some(at)),
        ];
        for (a, b) in pairs.into_iter().flatten() {
            let (a, b) = (old.get(a)?, new.get(b)?);
            if a.trim_ascii().is_empty() {
                continue;
            }
            let (from, to) = (indent(a), indent(b));
            if a.trim_ascii() != b.trim_ascii() {
                return None;
            }
            let (from, to) = strip_common(from, to);
            let (from, to) = ((from, is_dos(a)), (to, is_dos(b)));
            match &change {
                None => change = Some((from, to)),
                Some(known) if *known == (from, to) => {}
                Some(_) => return None,
            }
        }
        let ((from, was_dos), (to, dos)) = change?;
        let mut text = Vec::new();
        for line in lines_of(&edit.text) {
            let (mut line, blank) = (line, line.trim_ascii().is_empty());
            if was_dos != dos {
                line = line.trim_ascii_end();
            }
            if !blank {
                text.extend_from_slice(to);
                line = line.strip_prefix(from)?;
            }
            text.extend_from_slice(line);
            if was_dos != dos {
                text.extend_from_slice(if dos { b"\r\n" } else { b"\n" });
            }
        }
        Some(Edit {
            from: at,
            to: at,
            text,
            heading: edit.heading.clone(),
        })
    }
}

pub(super) fn trimmed<'a>(lines: &[&'a [u8]]) -> Vec<&'a [u8]> {
    lines.iter().map(|line| line.trim_ascii()).collect()
}

fn is_include(line: &[u8]) -> bool {
    line.trim_ascii().starts_with(b"#include")
}

fn likeness(a: &[u8], b: &[u8]) -> f32 {
    similar::TextDiff::from_chars(
        String::from_utf8_lossy(a).into_owned(),
        String::from_utf8_lossy(b).into_owned(),
    )
    .ratio()
}

fn is_dos(line: &[u8]) -> bool {
    line.ends_with(b"\r\n")
}

fn indent(line: &[u8]) -> &[u8] {
    let end = line
        .iter()
        .position(|byte| !matches!(byte, b' ' | b'\t'))
        .unwrap_or(line.len());
    &line[..end]
}

/// Two indentations without what they begin with in common.
fn strip_common<'a>(from: &'a [u8], to: &'a [u8]) -> (&'a [u8], &'a [u8]) {
    let common = from.iter().zip(to).take_while(|(a, b)| a == b).count();
    (&from[common..], &to[common..])
}
