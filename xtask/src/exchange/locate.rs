//! Where a hunk sits: at its line, or at the one place that cannot be another.
//!
//! A hunk that is not at its line may be moved only where all of this holds: it has context before
//! its first change and, unless it stands at the file's end, behind its last one; all its old lines,
//! to the byte, occur at exactly one place of the whole file; and the nearest heading above that
//! place is the one that the hunk names, which must stand only once and be no label. Two functions with the same body are then told apart by
//! their heads, and what cannot be told apart is refused. A hunk at its line below another heading
//! is refused as well: a twin may have taken the place of the one that is meant.

use std::collections::HashMap;
use std::fmt;

use serde::Serialize;

use crate::diff::{Hunk, Line, Mismatch, apply_hunks, lines_of};
use crate::tree::RelPath;

/// Comparisons of lines after which a search is given up: only made-up files need more.
const BUDGET: usize = 20_000_000;

/// Most places that a message lists.
const SHOWN: usize = 10;

/// A hunk that was moved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Offset {
    /// The file.
    pub file: RelPath,
    /// Number of the hunk in its file, from 1.
    pub hunk: usize,
    /// The line that it names, from 1.
    pub old_line: usize,
    /// The line at which it sits, from 1.
    pub new_line: usize,
    /// The heading that both places stand below.
    pub heading: String,
}

/// What became of the hunks of one file.
#[derive(Debug)]
pub(super) struct Placed {
    /// The content with the hunks applied.
    pub(super) content: Vec<u8>,
    /// Hunks that were moved.
    pub(super) offsets: Vec<Offset>,
    /// What a person should look at.
    pub(super) remarks: Vec<String>,
}

/// Why a hunk has no place.
#[derive(Debug)]
pub(super) enum Unplaced {
    /// The hunks contradict each other or the file.
    Mismatch(Box<Mismatch>),
    /// There is no place that is beyond doubt.
    Doubt {
        hunk: usize,
        heading: String,
        line: usize,
        reason: &'static str,
        /// Places with all its old lines: line, and the heading above.
        candidates: Vec<(usize, String)>,
        /// The first line that is not as expected: its number, what the hunk has, what is there.
        first: Option<(usize, String, String)>,
    },
}

impl fmt::Display for Unplaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unplaced::Mismatch(mismatch) => mismatch.fmt(f),
            Unplaced::Doubt {
                hunk,
                heading,
                line,
                reason,
                candidates,
                first,
            } => {
                write!(f, "hunk {hunk}")?;
                if !heading.is_empty() {
                    write!(f, " (below `{heading}`)")?;
                }
                write!(f, ", line {line}: {reason}")?;
                if let Some((line, expected, found)) = first {
                    write!(
                        f,
                        "\n  expected at line {line}: {expected}\n  found:    {found}"
                    )?;
                }
                for (line, heading) in candidates.iter().take(SHOWN) {
                    write!(
                        f,
                        "\n  its lines do occur at line {line}, {}",
                        below(heading)
                    )?;
                }
                if candidates.len() > SHOWN {
                    write!(f, "\n  and at {} more places", candidates.len() - SHOWN)?;
                }
                Ok(())
            }
        }
    }
}

/// Applies `hunks` to `content`, each at its line or at the one place that is beyond doubt.
///
/// `same_base`: the hunks were written for this very base, so that their line counts more than a
/// heading that was written by hand.
pub(super) fn place(
    path: &RelPath,
    hunks: &[Hunk],
    content: &[u8],
    same_base: bool,
) -> Result<Placed, Box<Unplaced>> {
    let mut file = File::new(content);
    let mut adjusted = Vec::with_capacity(hunks.len());
    let (mut offsets, mut remarks) = (Vec::new(), Vec::new());
    // Lines of the file that are used up, and lines of the new one that are made.
    let (mut done, mut made) = (0usize, 0usize);
    for (at, hunk) in hunks.iter().enumerate() {
        let first = file.locate(hunk, at + 1, same_base, &mut remarks)?;
        let stated = stated(hunk);
        if first != stated {
            if first < done {
                return Err(doubt(
                    hunk,
                    at + 1,
                    "its only place stands before the end of the hunk before it",
                    file.with_headings(&[first]),
                ));
            }
            offsets.push(Offset {
                file: path.clone(),
                hunk: at + 1,
                old_line: stated + 1,
                new_line: first + 1,
                heading: hunk.heading_text(),
            });
        }
        let start = |index: usize, len: usize| index + usize::from(len > 0);
        let new_index = made + first.saturating_sub(done);
        adjusted.push(Hunk {
            old_start: start(first, hunk.old_len),
            new_start: start(new_index, hunk.new_len),
            ..hunk.clone()
        });
        done = first + hunk.old_len;
        made = new_index + hunk.new_len;
    }
    // Where all is at its line, the numbers of the headers have to be right, too.
    let used = if offsets.is_empty() { hunks } else { &adjusted };
    match apply_hunks(used, content) {
        Ok(content) => Ok(Placed {
            content,
            offsets,
            remarks,
        }),
        Err(mismatch) => Err(Box::new(Unplaced::Mismatch(mismatch))),
    }
}

/// Index of the first old line that the header names; of the line before which is inserted where
/// there is no old line.
fn stated(hunk: &Hunk) -> usize {
    match hunk.old_len {
        0 => hunk.old_start,
        _ => hunk.old_start.saturating_sub(1),
    }
}

fn doubt(
    hunk: &Hunk,
    number: usize,
    reason: &'static str,
    candidates: Vec<(usize, String)>,
) -> Box<Unplaced> {
    Box::new(Unplaced::Doubt {
        hunk: number,
        heading: hunk.heading_text(),
        line: stated(hunk) + 1,
        reason,
        candidates,
        first: None,
    })
}

/// A file that is searched.
struct File<'a> {
    lines: Vec<&'a [u8]>,
    /// Each line to where it stands; made when it is first needed.
    index: Option<HashMap<&'a [u8], Vec<usize>>>,
    budget: usize,
}

impl<'a> File<'a> {
    fn new(content: &'a [u8]) -> Self {
        File {
            lines: lines_of(content),
            index: None,
            budget: BUDGET,
        }
    }

    /// The index of the hunk's first old line.
    fn locate(
        &mut self,
        hunk: &Hunk,
        number: usize,
        same_base: bool,
        remarks: &mut Vec<String>,
    ) -> Result<usize, Box<Unplaced>> {
        let old: Vec<&[u8]> = hunk.lines.iter().filter_map(Line::old_side).collect();
        let stated = stated(hunk);
        if self.stands_at(&old, stated) {
            // Nothing can stand above the first line, so that no heading can be wrong there.
            if old.is_empty() || stated == 0 || self.confirms(&hunk.heading, stated) {
                return Ok(stated);
            }
            let places = self.occurrences(&old, hunk, number)?;
            let above = below(&shown(self.heading(stated)));
            if hunk.heading.is_empty() {
                if places.len() > 1 {
                    remarks.push(format!(
                        "hunk {number} names no heading, and its lines occur at {} places; it is \
                         taken at its line {}, {above}",
                        places.len(),
                        stated + 1
                    ));
                }
                return Ok(stated);
            }
            if !same_base {
                let reason = "its lines stand there, but below another heading";
                return Err(doubt(hunk, number, reason, self.with_headings(&places)));
            }
            remarks.push(format!(
                "hunk {number} names `{}`, and sits at its line {}, {above}",
                hunk.heading_text(),
                stated + 1,
            ));
            return Ok(stated);
        }
        let places = match old.as_slice() {
            [] => Vec::new(),
            old => self.occurrences(old, hunk, number)?,
        };
        let listed = self.with_headings(&places);
        let refuse = |reason| Err(doubt(hunk, number, reason, listed.clone()));
        let is_context = |line: Option<&Line>| matches!(line, Some(Line::Context(_)));
        match places.as_slice() {
            [] => {
                let mut refusal = doubt(hunk, number, "its lines are not in the file", Vec::new());
                if let Unplaced::Doubt { first, .. } = &mut *refusal {
                    *first = self.first_difference(&old, stated);
                }
                Err(refusal)
            }
            [_] if !is_context(hunk.lines.first()) => {
                refuse("it has no context before its first change, and is not moved")
            }
            [place] if !is_context(hunk.lines.last()) && place + old.len() != self.lines.len() => {
                refuse("it has no context behind its last change, and is not moved")
            }
            [_] if !hunk.heading.is_empty() && !self.names_one(&hunk.heading) => refuse(
                "the heading that it names stands more than once or is a label, and tells no place",
            ),
            [place] if self.confirms(&hunk.heading, *place) => Ok(*place),
            [_] if hunk.heading.is_empty() => {
                refuse("it names no heading that would confirm the only other place")
            }
            [_] => refuse("its lines are not there; the only other place is below another heading"),
            _ => refuse("its lines are not there, and other places are alike"),
        }
    }

    fn stands_at(&self, old: &[&[u8]], at: usize) -> bool {
        at.checked_add(old.len())
            .and_then(|end| self.lines.get(at..end))
            .is_some_and(|there| there == old)
    }

    fn first_difference(&self, old: &[&[u8]], stated: usize) -> Option<(usize, String, String)> {
        let at = (0..old.len()).find(|at| self.lines.get(stated + at) != Some(&old[*at]))?;
        let found = self.lines.get(stated + at);
        let found = found.map_or("(end of file)".to_owned(), |line| shown(line));
        Some((stated + at + 1, shown(old[at]), found))
    }

    /// Whether the line that a hunk names is the nearest heading above index `at`, or stands
    /// between that and `at`: tools that know a language name a method, not its class.
    fn confirms(&self, heading: &[u8], at: usize) -> bool {
        for line in self.lines[..at.min(self.lines.len())].iter().rev() {
            if !heading.is_empty() && agrees(heading, line) {
                return true;
            }
            if is_head(line) {
                return false;
            }
        }
        heading.is_empty()
    }

    /// Whether that heading can only mean one place of the file. Overloads whose parameters begin on
    /// the next line share theirs, and so do all parts of a class behind `public:`.
    fn names_one(&self, heading: &[u8]) -> bool {
        let is_label = heading.trim_ascii().ends_with(b":");
        let alike = self.lines.iter().filter(|line| agrees(heading, line));
        !is_label && alike.count() <= 1
    }

    /// The last line before index `at` that looks like the head of something, as git's default
    /// rule has it.
    fn heading(&self, at: usize) -> &'a [u8] {
        let above = &self.lines[..at.min(self.lines.len())];
        let head = above.iter().rev().find(|line| is_head(line));
        head.copied().unwrap_or_default()
    }

    fn with_headings(&self, places: &[usize]) -> Vec<(usize, String)> {
        let text = |at: &usize| (at + 1, shown(self.heading(*at)));
        places.iter().map(text).collect()
    }

    /// Every place of the file with all of `old`, found by the rarest of its lines.
    fn occurrences(
        &mut self,
        old: &[&[u8]],
        hunk: &Hunk,
        number: usize,
    ) -> Result<Vec<usize>, Box<Unplaced>> {
        let lines = &self.lines;
        let index = self.index.get_or_insert_with(|| {
            let mut index: HashMap<&[u8], Vec<usize>> = HashMap::new();
            for (at, line) in lines.iter().enumerate() {
                index.entry(line).or_default().push(at);
            }
            index
        });
        let count = |line: &[u8]| index.get(line).map_or(0, Vec::len);
        let Some(rarest) = (0..old.len()).min_by_key(|at| count(old[*at])) else {
            return Ok(Vec::new());
        };
        let mut places = Vec::new();
        for at in index.get(old[rarest]).into_iter().flatten() {
            let Some(first) = at.checked_sub(rarest) else {
                continue;
            };
            let Some(there) = lines.get(first..first + old.len()) else {
                continue;
            };
            let same = old.iter().zip(there).take_while(|(a, b)| a == b).count();
            let Some(left) = self.budget.checked_sub(same + 1) else {
                let reason = "the file is too repetitive to say that a place is the only one";
                return Err(doubt(hunk, number, reason, Vec::new()));
            };
            self.budget = left;
            if same == old.len() {
                places.push(first);
            }
        }
        Ok(places)
    }
}

/// Whether a line looks like the head of something, as git's default rule has it.
fn is_head(line: &[u8]) -> bool {
    matches!(line.first(), Some(b'a'..=b'z' | b'A'..=b'Z' | b'_' | b'$'))
}

/// Whether a hunk's heading is that line, whole or as git (80 bytes) and GNU diff (40) cut it.
fn agrees(heading: &[u8], line: &[u8]) -> bool {
    let heading = heading.trim_ascii();
    [line.len(), 80, 40].into_iter().any(|cut| {
        let cut = &line[..cut.min(line.len())];
        cut.trim_ascii() == heading
    })
}

fn below(heading: &str) -> String {
    match heading {
        "" => "with no heading above".to_owned(),
        heading => format!("below `{heading}`"),
    }
}

fn shown(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim_end().to_owned()
}

#[cfg(test)]
#[path = "locate_tests.rs"]
mod tests;
