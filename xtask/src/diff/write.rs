//! From a diff to text, in the form that git writes.

use crate::diff::file::octal;
use crate::diff::name::quoted;
use crate::diff::{FileDiff, FilePatch, Hunk, Line, Operation, Similarity};
use crate::tree::FileMode;

/// An edit in place as text: `diff --git`, `---`, `+++` and the hunks.
pub fn to_text(diff: &FileDiff) -> Vec<u8> {
    let mut out = Vec::new();
    let (old, new) = (quoted("a/", &diff.path), quoted("b/", &diff.path));
    out.extend(format!("diff --git {old} {new}\n").into_bytes());
    labels(&mut out, Some(&old), Some(&new));
    hunks(&mut out, &diff.hunks);
    out
}

/// Any diff as text. What git wrote and [`crate::diff::parse_files`] read comes out unchanged.
pub fn files_to_text(files: &[FilePatch]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut is_git = false;
    for file in files {
        if is_git || !is_plain_deletion(file) {
            header(&mut out, file);
            is_git = true;
        } else {
            labels(&mut out, Some(&quoted("a/", file.path())), None);
        }
        hunks(&mut out, &file.hunks);
    }
    out
}

/// Whether a diff that git did not write deletes the file: of which kind it is, nobody said, and a
/// header of git's would have to. Behind such a header it must have one itself.
fn is_plain_deletion(file: &FilePatch) -> bool {
    matches!(file.operation, Operation::Delete(_))
        && file.old_mode.is_none()
        && file.index.is_none()
        && file.similarity.is_none()
        && !file.hunks.is_empty()
}

fn header(out: &mut Vec<u8>, file: &FilePatch) {
    let path = file.path();
    let old = quoted("a/", file.old_path().unwrap_or(path));
    let new = quoted("b/", file.new_path().unwrap_or(path));
    let mut line = |text: String| {
        out.extend_from_slice(text.as_bytes());
        out.push(b'\n');
    };
    line(format!("diff --git {old} {new}"));
    let mode = |mode: Option<FileMode>| octal(mode.unwrap_or(FileMode::Plain));
    match &file.operation {
        Operation::Create(_) => line(format!("new file mode {}", mode(file.new_mode))),
        Operation::Delete(_) => line(format!("deleted file mode {}", mode(file.old_mode))),
        _ => {
            if let (Some(old), Some(new)) = (file.old_mode, file.new_mode) {
                line(format!("old mode {}", octal(old)));
                line(format!("new mode {}", octal(new)));
            }
        }
    }
    match file.similarity {
        Some(Similarity::Alike(value)) => line(format!("similarity index {value}%")),
        Some(Similarity::Unlike(value)) => line(format!("dissimilarity index {value}%")),
        None => {}
    }
    let pair = match &file.operation {
        Operation::Rename { from, to } => Some(("rename", from, to)),
        Operation::Copy { from, to } => Some(("copy", from, to)),
        _ => None,
    };
    if let Some((verb, from, to)) = pair {
        line(format!("{verb} from {}", quoted("", from)));
        line(format!("{verb} to {}", quoted("", to)));
    }
    if let Some(index) = &file.index {
        let mode = index.mode.map(|mode| format!(" {}", octal(mode)));
        let mode = mode.unwrap_or_default();
        line(format!("index {}..{}{mode}", index.old, index.new));
    }
    if !file.hunks.is_empty() {
        let old = file.old_path().map(|_| old.as_str());
        let new = file.new_path().map(|_| new.as_str());
        labels(out, old, new);
    }
}

/// `---` and `+++`. Git puts a tab behind a name with a blank, so that nobody takes what follows
/// the blank for a time stamp.
fn labels(out: &mut Vec<u8>, old: Option<&str>, new: Option<&str>) {
    for (sign, name) in [("---", old), ("+++", new)] {
        let name = name.unwrap_or("/dev/null");
        let tab = if name.contains(' ') { "\t" } else { "" };
        out.extend_from_slice(format!("{sign} {name}{tab}\n").as_bytes());
    }
}

fn hunks(out: &mut Vec<u8>, hunks: &[Hunk]) {
    for hunk in hunks {
        let range = |start: usize, len: usize| match len {
            1 => start.to_string(),
            len => format!("{start},{len}"),
        };
        let old = range(hunk.old_start, hunk.old_len);
        let new = range(hunk.new_start, hunk.new_len);
        out.extend(format!("@@ -{old} +{new} @@").into_bytes());
        if !hunk.heading.is_empty() {
            out.push(b' ');
            out.extend_from_slice(&hunk.heading);
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
}

#[cfg(test)]
#[path = "write_tests.rs"]
mod tests;
