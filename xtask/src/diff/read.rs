//! From text to [`FilePatch`]es: everything that git and quilt write.
//!
//! The reader is our own. Git, GNU patch and diffy end a hunk when the counts of its header are
//! met and take what follows for prose, so that a count that is too small silently drops the
//! rest of a hunk; here each line must belong to something.

use std::collections::HashMap;

use crate::diff::header;
use crate::diff::hunk::{Lines, WRITE_ANEW, hunk, ranges};
use crate::diff::{FilePatch, Strip};
use crate::error::{Error, Result, ResultExt as _};
use crate::tree::RelPath;

/// More than any diff that a person keeps; what is larger is a mistake or an attack.
const MAX_BYTES: usize = 64 << 20;
const MAX_FILES: usize = 100_000;
const MAX_HUNKS: usize = 1_000_000;

/// Where the reader is between two files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first file, or behind the first line of a mail: prose.
    Prose,
    /// Behind a hunk or a header: little may stand here.
    Between,
    /// Behind the line that begins a mail's signature.
    Signature,
}

/// Reads a diff whose names have one leading folder (`a/`, `b/`), with prose before it.
pub fn parse_files(text: &[u8]) -> Result<Vec<FilePatch>> {
    parse_files_stripped(text, Strip::One)
}

/// Reads a diff whose names have as many leading folders as `strip` says.
pub fn parse_files_stripped(text: &[u8], strip: Strip) -> Result<Vec<FilePatch>> {
    Ok(parse_with_end(text, strip)?.0)
}

/// As [`parse_files_stripped`], and says at which byte the last file's diff ends.
pub fn parse_with_end(text: &[u8], strip: Strip) -> Result<(Vec<FilePatch>, usize)> {
    if text.len() > MAX_BYTES {
        return Err(Error::config(format!(
            "the diff has {} bytes; at most {MAX_BYTES} are read",
            text.len()
        ))
        .hint("split it, or bring large files in an overlay"));
    }
    if !text.is_empty() && !text.ends_with(b"\n") {
        return Err(Error::config("the diff does not end with a line end")
            .hint("it was cut short, or an editor removed the last line end; write it anew"));
    }
    let mut lines = Lines::new(text);
    let mut files: Vec<FilePatch> = Vec::new();
    let (mut place, mut is_git, mut hunks, mut end) = (Place::Prose, false, 0usize, 0usize);
    while let Some(line) = lines.peek() {
        let file = if line.starts_with(b"diff --git ") {
            is_git = true;
            let (mut file, has_hunks) = header::git(&mut lines, strip)?;
            if has_hunks {
                hunks += read_hunks(&mut lines, &mut file)?;
            }
            file
        } else if line.starts_with(b"--- ") && begins_file(&lines, place)? {
            if is_git && place == Place::Between {
                return Err(lines.stray("begins a file without a `diff --git` header"));
            }
            let mut file = header::plain(&mut lines, strip)?;
            hunks += read_hunks(&mut lines, &mut file)?;
            file
        } else {
            place = pass(&lines, place)?;
            lines.advance();
            continue;
        };
        files.push(file);
        if files.len() > MAX_FILES || hunks > MAX_HUNKS {
            return Err(Error::config(format!(
                "the diff has more than {MAX_FILES} files or {MAX_HUNKS} hunks"
            )));
        }
        (place, end) = (Place::Between, lines.offset());
    }
    if files.is_empty() {
        return Err(Error::config("the diff changes no file").hint(WRITE_ANEW));
    }
    refuse_collisions(&files)?;
    Ok((files, end))
}

/// Whether `---` (the next line) begins a file, as the two lines behind it tell. In prose it may
/// be anything; behind a hunk it is a file or an error.
fn begins_file(lines: &Lines<'_>, place: Place) -> Result<bool> {
    let mut ahead = lines.clone();
    ahead.advance();
    let is_pair = ahead.peek().is_some_and(|line| line.starts_with(b"+++ "));
    ahead.advance();
    let has_hunk = ahead.peek().is_some_and(|line| line.starts_with(b"@@ -"));
    match (is_pair, has_hunk, place) {
        (true, true, _) => Ok(true),
        (true, false, _) => Err(lines.stray("names a file, but no hunk follows")),
        (false, _, Place::Prose) => Ok(false),
        (false, ..) => Err(lines.stray("stands after the end of its hunk")),
    }
}

/// Reads the hunks of a file, of which there must be one.
fn read_hunks(lines: &mut Lines<'_>, file: &mut FilePatch) -> Result<usize> {
    loop {
        let read = hunk(lines).context(|| format!("the diff of {}", file.path()))?;
        file.hunks.push(read);
        if !lines.peek().is_some_and(|line| line.starts_with(b"@@ ")) {
            return Ok(file.hunks.len());
        }
    }
}

/// Passes over a line that is part of no file, if it may be, and says where we are then.
fn pass(lines: &Lines<'_>, place: Place) -> Result<Place> {
    let line = lines.peek().unwrap_or_default();
    if ranges(line).is_some() {
        return Err(lines.stray("begins a hunk of no file"));
    }
    if let Some(what) = header::binary(lines) {
        return Err(lines.stray(&format!("is {what}")));
    }
    if line.starts_with(b"diff --cc ") || line.starts_with(b"diff --combined ") {
        return Err(lines.stray("begins the diff of a merge, which has two old sides"));
    }
    if is_left_out(line) {
        return Err(lines.stray("stands for a file that was left out; write it with `git diff`"));
    }
    match place {
        Place::Prose => Ok(Place::Prose),
        _ if is_mail_start(line) => Ok(Place::Prose),
        Place::Between if line == b"-- " => Ok(Place::Signature),
        _ if matches!(line.first(), Some(b' ' | b'+' | b'-' | b'\\' | b'@')) => {
            Err(lines.stray("stands after the end of its hunk"))
        }
        place => Ok(place),
    }
}

/// `Only in a/b: c` or `File a/b is a directory while file …`, which `diff -r` writes for a file
/// that it leaves out.
fn is_left_out(line: &[u8]) -> bool {
    let while_file = b" while file ";
    if line.starts_with(b"File ") && line.windows(while_file.len()).any(|at| at == while_file) {
        return true;
    }
    let Some(rest) = line.strip_prefix(b"Only in ") else {
        return false;
    };
    let at = rest.windows(2).position(|pair| pair == b": ");
    at.is_some_and(|at| !rest[..at].contains(&b' ') && !rest[at + 2..].contains(&b' '))
}

/// The first line of a mail as `git format-patch` writes it.
fn is_mail_start(line: &[u8]) -> bool {
    line.strip_prefix(b"From ")
        .and_then(|rest| rest.strip_suffix(b" Mon Sep 17 00:00:00 2001"))
        .is_some_and(|id| id.len() >= 40 && id.iter().all(u8::is_ascii_hexdigit))
}

/// Refuses two names that are one file, or a file and a folder, where case or the form of accents
/// does not count.
fn refuse_collisions(files: &[FilePatch]) -> Result<()> {
    let mut seen: HashMap<String, &str> = HashMap::new();
    for path in files.iter().filter_map(FilePatch::new_path) {
        let text = path.as_str();
        let ends = text.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([text.len()]) {
            let spelled = &text[..end];
            let first = *seen.entry(RelPath::folded(spelled)).or_insert(spelled);
            if first != spelled {
                // Two ways to write one letter look alike; `{:?}` shows which is which.
                return Err(Error::config(format!(
                    "the diff names {first:?} and {spelled:?}, which differ only in case or in \
                     the form of accents"
                ))
                .hint("on many file systems they are one file; rename one of them"));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
#[path = "read_tests.rs"]
mod tests;
