//! Why a hunk does not sit: as data, and in words.

use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};

use crate::diff::{Hunk, is_head};

/// Rows that are shown before and behind the one that fails.
const AROUND: usize = 3;
/// Widest column of the two that stand side by side, in characters.
const WIDTH: usize = 60;
/// Places that are named.
const PLACES: usize = 3;

/// Why a diff does not sit on a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mismatch {
    /// Number of the hunk in its file, from 1.
    pub hunk: usize,
    /// The hunk's heading.
    pub heading: String,
    /// The line of the file, from 1, at which it fails.
    pub line: usize,
    /// What the hunk expects there; absent where the hunk itself is wrong.
    pub expected: Option<String>,
    /// What stands there; absent at the end of the file.
    pub found: Option<String>,
    /// What is wrong, in words.
    pub reason: String,
    /// That line and those around it; none where the hunk itself is wrong.
    pub rows: Vec<Row>,
    /// Where the whole old side of the hunk does occur, the nearest first.
    pub elsewhere: Vec<Place>,
}

/// One line of the file, and what the hunk expects there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Its number, from 1.
    pub line: usize,
    /// What the hunk expects.
    pub expected: String,
    /// What stands there; absent behind the end of the file.
    pub found: Option<String>,
    /// Whether that is the same to the last byte.
    pub same: bool,
}

/// A place where the old side of a hunk occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The first of its lines, from 1.
    pub line: usize,
    /// How many lines further down than the hunk says; negative for up.
    pub offset: i64,
    /// The last line before it that looks like the head of something.
    pub heading: String,
}

/// What a piece of an explanation is, for whoever paints it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// Hunk and line.
    Where,
    /// What the hunk expects and the file lacks.
    Expected,
    /// What the file has in its place.
    Found,
    /// What is as it should be, and line numbers.
    Quiet,
    /// A place that could be meant.
    Place,
}

/// Paints a piece of an explanation.
pub type Paint<'a> = &'a dyn Fn(Part, &str) -> String;

impl Mismatch {
    pub(super) fn new(hunk: &Hunk, number: usize, line: usize, reason: &str) -> Box<Self> {
        Box::new(Mismatch {
            hunk: number,
            heading: hunk.heading_text(),
            line,
            expected: None,
            found: None,
            reason: reason.to_owned(),
            rows: Vec::new(),
            elsewhere: Vec::new(),
        })
    }

    /// Adds what is expected and found, where line `at` of `old` is the first that differs; `old`
    /// should begin at index `first` of `lines`.
    pub(super) fn compare(&mut self, old: &[&[u8]], lines: &[&[u8]], first: usize, at: usize) {
        self.expected = Some(show(old[at]));
        self.found = lines.get(first + at).map(|line| show(line));
        let from = at.saturating_sub(AROUND);
        let to = (at + AROUND + 1).min(old.len());
        self.rows = (from..to)
            .map(|at| {
                let found = lines.get(first + at);
                Row {
                    line: first + at + 1,
                    expected: show(old[at]),
                    found: found.map(|line| show(line)),
                    same: found == Some(&old[at]),
                }
            })
            .collect();
        self.elsewhere = places(old, lines, first);
    }

    /// The explanation, each piece of it painted.
    pub fn explain(&self, paint: Paint<'_>) -> String {
        let mut out = format!("hunk {}", self.hunk);
        if !self.heading.is_empty() {
            out.push_str(&format!(" ({})", self.heading));
        }
        out.push_str(&format!(", line {}", self.line));
        let mut out = format!("{}: {}", paint(Part::Where, &out), self.reason);
        self.table(&mut out, paint);
        match self.elsewhere.as_slice() {
            [] => {}
            [place] => {
                out.push_str("\n  the whole context occurs at ");
                out.push_str(&paint(Part::Place, &place.to_string()));
            }
            places => {
                out.push_str("\n  the whole context occurs at several places, the nearest first:");
                for place in places {
                    out.push_str("\n    ");
                    out.push_str(&paint(Part::Place, &place.to_string()));
                }
            }
        }
        out
    }

    /// Expected and found, side by side.
    fn table(&self, out: &mut String, paint: Paint<'_>) {
        let Some(last) = self.rows.last() else {
            return;
        };
        let digits = last.line.to_string().len().max(4);
        let width = (self.rows.iter())
            .map(|row| row.expected.chars().count().min(WIDTH))
            .chain(["expected".len()])
            .max()
            .unwrap_or(0);
        let head = format!("{:>digits$}    {:width$} | found", "line", "expected");
        let _ = write!(out, "\n  {}", paint(Part::Quiet, &head));
        for row in &self.rows {
            let number = format!("{:>digits$}", row.line);
            let expected = format!("{:width$}", cut(&row.expected));
            let found = row.found.as_deref().map_or("(end of file)".into(), cut);
            let (mark, left, right) = match row.same {
                true => (' ', Part::Quiet, Part::Quiet),
                false => ('!', Part::Expected, Part::Found),
            };
            let left = paint(left, &expected);
            let _ = write!(out, "\n  {} {mark}  {left} |", paint(Part::Quiet, &number));
            if !found.is_empty() {
                let _ = write!(out, " {}", paint(right, &found));
            }
        }
        // Two lines that differ only behind the cut would look alike.
        let long = |text: &str| text.chars().count() > WIDTH;
        let failing = self.rows.iter().find(|row| !row.same);
        if let Some(row) = failing
            && (long(&row.expected) || row.found.as_deref().is_some_and(long))
        {
            let found = row.found.as_deref().unwrap_or("(end of file)");
            let _ = write!(
                out,
                "\n  line {} whole:\n    expected: {}\n    found:    {}",
                row.line,
                paint(Part::Expected, &row.expected),
                paint(Part::Found, found)
            );
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.explain(&|_, text| text.to_owned()))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines = self.offset.unsigned_abs();
        let plural = if lines == 1 { "" } else { "s" };
        let way = if self.offset < 0 { "above" } else { "below" };
        write!(f, "line {}, {lines} line{plural} {way}", self.line)?;
        if !self.heading.is_empty() {
            write!(f, ", in `{}`", self.heading)?;
        }
        Ok(())
    }
}

/// Where all of `block` occurs in `lines`, the nearest to index `first` first; none where looking
/// for it would take long.
fn places(block: &[&[u8]], lines: &[&[u8]], first: usize) -> Vec<Place> {
    let mut found = occurrences(block, lines);
    found.sort_by_key(|at| at.abs_diff(first));
    found.truncate(PLACES);
    let signed = |at: usize| i64::try_from(at).unwrap_or(i64::MAX);
    found
        .into_iter()
        .map(|at| {
            let head = lines[..at].iter().rev().find(|line| is_head(line));
            Place {
                line: at + 1,
                offset: signed(at) - signed(first),
                heading: head.map_or_else(String::new, |line| show(line).trim().to_owned()),
            }
        })
        .collect()
}

/// The indices at which all of `block` occurs in `lines`; none where looking for it would take
/// long.
pub(super) fn occurrences(block: &[&[u8]], lines: &[&[u8]]) -> Vec<usize> {
    let mut budget = 10_000_000usize;
    if block.is_empty() {
        return Vec::new();
    }
    lines
        .windows(block.len())
        .enumerate()
        .filter(|(_, window)| {
            let same = block.iter().zip(*window).take_while(|(a, b)| a == b);
            let same = same.take(budget).count();
            budget -= same;
            same == block.len()
        })
        .map(|(at, _)| at)
        .collect()
}

/// A line that fits its column.
fn cut(text: &str) -> String {
    if text.chars().count() <= WIDTH {
        return text.replace('\t', "→");
    }
    let kept: String = text.chars().take(WIDTH - 1).collect();
    format!("{}…", kept.replace('\t', "→"))
}

/// A line as a person can read it: control characters and line ends visible.
fn show(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.strip_suffix('\n').unwrap_or(&text);
    let mut shown: String = text
        .chars()
        .map(|c| match c {
            '\t' => c.to_string(),
            c if c.is_control() => c.escape_default().to_string(),
            c => c.to_string(),
        })
        .collect();
    if !line.ends_with(b"\n") {
        shown.push_str(" (no line end)");
    }
    shown
}

#[cfg(test)]
mod tests {
    use crate::diff::{Mismatch, apply, parse};

    fn fault(hunk: &str, file: &str) -> Mismatch {
        let text = format!("--- a/f\n+++ b/f\n{hunk}");
        let diff = parse(text.as_bytes()).unwrap().remove(0);
        *apply(&diff, file.as_bytes()).unwrap_err()
    }

    #[test]
    fn every_place_is_named_the_nearest_first() {
        let body = "    open();\n    close();\n";
        let file = format!("static void foo(int a,\n{body}\n\n\nint bar()\n{body}}}\n{body}");
        let hunk = "@@ -6,2 +6,3 @@ int bar()\n     open();\n+    x();\n     close();\n";
        insta::assert_snapshot!(fault(hunk, &file), @r"
        hunk 1 (int bar()), line 6: the file is not what the hunk expects
          line    expected     | found
             6 !      open();  |
             7 !      close(); | int bar()
          the whole context occurs at several places, the nearest first:
            line 8, 2 lines below, in `int bar()`
            line 2, 4 lines above, in `static void foo(int a,`
            line 11, 5 lines below, in `int bar()`
        ");
    }

    #[test]
    fn what_differs_only_far_to_the_right_is_shown_whole() {
        let long = "call(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v";
        let hunk = format!("@@ -1,3 +1,4 @@\n a\n-{long}, w);\n+x\n+y\n \tb\n");
        let mismatch = fault(&hunk, &format!("a\n{long}, W);\n"));
        insta::assert_snapshot!(mismatch, @r"
        hunk 1, line 2: the file is not what the hunk expects
          line    expected                                                     | found
             1    a                                                            | a
             2 !  call(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, … | call(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, …
             3 !  →b                                                           | (end of file)
          line 2 whole:
            expected: call(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w);
            found:    call(a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, W);
        ");
        assert_eq!(mismatch.rows.len(), 3);
        assert_eq!(mismatch.rows[2].found, None);
    }
}
