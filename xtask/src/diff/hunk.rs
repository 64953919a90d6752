//! From the text of one hunk to [`Hunk`].

use crate::diff::{Hunk, Line};
use crate::error::{Error, Result};

/// Lines of a text with their numbers.
#[derive(Clone, Debug)]
pub(super) struct Lines<'a> {
    text: &'a [u8],
    at: usize,
    /// Where the next line ends; several ask for each.
    end: usize,
    number: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a [u8]) -> Self {
        let mut lines = Lines {
            text,
            at: 0,
            end: 0,
            number: 1,
        };
        lines.look();
        lines
    }

    /// Finds the end of the next line.
    fn look(&mut self) {
        let rest = &self.text[self.at..];
        let length = memchr::memchr(b'\n', rest);
        self.end = self.at + length.unwrap_or(rest.len());
    }

    /// The next line, without its line end.
    pub(super) fn peek(&self) -> Option<&'a [u8]> {
        (self.at < self.text.len()).then(|| &self.text[self.at..self.end])
    }

    /// Moves on by one line.
    pub(super) fn advance(&mut self) {
        if self.at < self.text.len() {
            self.at = (self.end + 1).min(self.text.len());
            self.number += 1;
            self.look();
        }
    }

    /// Takes the next line where it begins with `prefix`, and returns what follows.
    pub(super) fn take(&mut self, prefix: &[u8]) -> Option<&'a [u8]> {
        let rest = self.peek()?.strip_prefix(prefix)?;
        self.advance();
        Some(rest)
    }

    /// Offset of the next line.
    pub(super) fn offset(&self) -> usize {
        self.at
    }

    /// Number of the next line, from 1.
    pub(super) fn number(&self) -> usize {
        self.number
    }

    /// An error about the next line.
    pub(super) fn stray(&self, what: &str) -> Error {
        match self.peek() {
            Some(line) => at_line(self.number, line, what),
            None => Error::config(format!("the diff ends, and {what}")).hint(WRITE_ANEW),
        }
    }
}

/// What to do with a diff that is broken.
pub(super) const WRITE_ANEW: &str = "it was cut short, or the counts in a hunk's `@@` line are wrong after an edit by hand; mend \
     them, or write it anew with `git diff`";

/// An error about one line.
pub(super) fn at_line(number: usize, line: &[u8], what: &str) -> Error {
    let shown = &line[..line.len().min(200)];
    let error = Error::config(format!(
        "line {number} of the diff {what}: {:?}",
        String::from_utf8_lossy(shown)
    ));
    if line.ends_with(b"\r") {
        return error.hint(
            "its own lines end in CR LF: it was converted on checkout; set `*.patch -text` in \
             .gitattributes and check it out anew",
        );
    }
    error.hint("write the diff anew with `git diff`; a hand-edited hunk header has wrong counts")
}

/// The numbers of `@@ -a,b +c,d @@`, and what follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ranges<'a> {
    pub(super) old: (usize, usize),
    pub(super) new: (usize, usize),
    pub(super) rest: &'a [u8],
}

/// Reads a hunk header; none where the line is not one.
pub(super) fn ranges(line: &[u8]) -> Option<Ranges<'_>> {
    let (old, rest) = range(line.strip_prefix(b"@@ -")?)?;
    let (new, rest) = range(rest.strip_prefix(b" +")?)?;
    let rest = rest.strip_prefix(b" @@")?;
    Some(Ranges { old, new, rest })
}

fn range(text: &[u8]) -> Option<((usize, usize), &[u8])> {
    let (start, rest) = number(text)?;
    match rest.strip_prefix(b",") {
        Some(rest) => {
            let (len, rest) = number(rest)?;
            Some(((start, len), rest))
        }
        None => Some(((start, 1), rest)),
    }
}

/// A decimal number of at most nine digits: no file has more lines.
fn number(text: &[u8]) -> Option<(usize, &[u8])> {
    let end = text.iter().position(|byte| !byte.is_ascii_digit());
    let (digits, rest) = text.split_at(end.unwrap_or(text.len()));
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let value = digits
        .iter()
        .fold(0, |value, digit| value * 10 + usize::from(digit - b'0'));
    Some((value, rest))
}

/// Reads one hunk, whose header is the next line.
pub(super) fn hunk(lines: &mut Lines<'_>) -> Result<Hunk> {
    let header = lines.peek().and_then(ranges);
    let Some(header) = header.filter(|header| !header.rest.ends_with(b"\r")) else {
        return Err(lines.stray("is no hunk header"));
    };
    let start = lines.clone();
    lines.advance();
    let mut hunk = Hunk {
        old_start: header.old.0,
        old_len: header.old.1,
        new_start: header.new.0,
        new_len: header.new.1,
        heading: header
            .rest
            .strip_prefix(b" ")
            .unwrap_or(header.rest)
            .to_vec(),
        // The least that it can have, of what fits into a diff that somebody wrote.
        lines: Vec::with_capacity(header.old.1.max(header.new.1).min(64)),
    };
    let mut left = (hunk.old_len, hunk.new_len);
    // Whether the old and the new side have ended without a line end.
    let mut ended = (false, false);
    loop {
        if let Some(b'\\') = lines.peek().and_then(<[u8]>::first) {
            end_without_line_end(lines, &mut hunk, &mut ended)?;
            continue;
        }
        if left == (0, 0) {
            break;
        }
        let Some(line) = lines.peek() else {
            return Err(Error::config("the diff ends in the middle of a hunk").hint(WRITE_ANEW));
        };
        let misfit = || lines.stray("does not fit its hunk's line counts");
        let body = |from: usize| {
            let mut bytes = Vec::with_capacity(line.len() + 1);
            bytes.extend_from_slice(&line[from..]);
            bytes.push(b'\n');
            bytes
        };
        let (line, old, new) = match line.first() {
            None => (Line::Context(body(0)), 1, 1),
            Some(b' ') => (Line::Context(body(1)), 1, 1),
            Some(b'-') => (Line::Delete(body(1)), 1, 0),
            Some(b'+') => (Line::Insert(body(1)), 0, 1),
            Some(_) => return Err(misfit()),
        };
        left = match (left.0.checked_sub(old), left.1.checked_sub(new)) {
            (Some(old), Some(new)) => (old, new),
            _ => return Err(misfit()),
        };
        if (old == 1 && ended.0) || (new == 1 && ended.1) {
            return Err(lines.stray("follows a line without line end"));
        }
        hunk.lines.push(line);
        lines.advance();
    }
    if hunk
        .lines
        .iter()
        .all(|line| matches!(line, Line::Context(_)))
    {
        return Err(start.stray("begins a hunk that changes nothing"));
    }
    Ok(hunk)
}

/// Takes `\ No newline at end of file` (in whatever language) and the line end of the line before.
fn end_without_line_end(
    lines: &mut Lines<'_>,
    hunk: &mut Hunk,
    ended: &mut (bool, bool),
) -> Result<()> {
    let is_marker = lines
        .peek()
        .is_some_and(|line| line.starts_with(b"\\ ") && line.len() >= 11);
    let (old, new, bytes) = match hunk.lines.last_mut() {
        _ if !is_marker => return Err(lines.stray("is not part of a hunk")),
        Some(Line::Context(bytes)) => (true, true, bytes),
        Some(Line::Delete(bytes)) => (true, false, bytes),
        Some(Line::Insert(bytes)) => (false, true, bytes),
        None => return Err(lines.stray("follows no line")),
    };
    if (old && ended.0) || (new && ended.1) {
        return Err(lines.stray("says again what the line before it says"));
    }
    bytes.pop();
    if bytes.is_empty() {
        return Err(lines.stray("follows an empty line, which is no line at all without its end"));
    }
    *ended = (ended.0 || old, ended.1 || new);
    lines.advance();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Hunk> {
        hunk(&mut Lines::new(text.as_bytes()))
    }

    #[test]
    fn a_hunk_header_has_four_numbers_of_sane_size() {
        assert_eq!(ranges(b"@@ -1 +2,3 @@").unwrap().new, (2, 3));
        assert_eq!(ranges(b"@@ -1 +2,3 @@ f()").unwrap().rest, b" f()");
        for line in [
            "@@ -1 +2,3",
            "@@ -1, +2 @@",
            "@@ -x +2 @@",
            "@@ -1 +99999999999999999999 @@",
            "@@ -1,2 +1,2@@",
            "@@  -1 +1 @@",
        ] {
            assert_eq!(ranges(line.as_bytes()), None, "{line}");
        }
    }

    #[test]
    fn an_empty_line_is_an_empty_context_line() {
        let hunk = read("@@ -1,2 +1,3 @@\n\n+x\n b\n").unwrap();
        assert_eq!(hunk.lines[0], Line::Context(b"\n".to_vec()));
        // A line of a file with CR LF whose blank was lost is something else.
        assert!(read("@@ -1,2 +1,3 @@\n\r\n+x\n b\n").is_err());
    }

    #[test]
    fn the_marker_ends_each_side_once() {
        let good =
            "@@ -1 +1 @@\n-a\n\\ No newline at end of file\n+b\n\\ No newline at end of file\n";
        assert_eq!(read(good).unwrap().lines[1], Line::Insert(b"b".to_vec()));
        for bad in [
            "@@ -1 +1,2 @@\n-a\n+b\n\\ No newline at end of file\n+c\n",
            "@@ -1 +1 @@\n\\ No newline at end of file\n-a\n+b\n",
            "@@ -1 +1 @@\n-a\n+b\n\\ No newline at end of file\n\\ No newline at end of file\n",
            "@@ -1 +1 @@\n-a\n+b\n\\ No\n",
            "@@ -1 +1 @@\n-a\n+\n\\ No newline at end of file\n",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_hunk_that_changes_nothing_is_refused() {
        assert!(read("@@ -1,2 +1,2 @@\n a\n b\n").is_err());
        assert!(read("@@ -1,0 +1,0 @@\n").is_err());
    }
}
