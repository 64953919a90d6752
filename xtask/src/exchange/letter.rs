//! A patch as a mail.

use crate::diff::{self, FileDiff};
use crate::error::{Error, Result};
use crate::exchange::folder::{self, Folder};
use crate::mail::{Author, Mail, Part};
use crate::model::PatchManifest;
use crate::patchset::Patch;
use crate::tree::{Blob, FileMode};

/// Who a patch is from where its manifest names nobody. Fixed, so that bytes are stable.
pub const NEUTRAL_AUTHOR: &str = "llama-patchset <patchset@invalid.example>";

/// When a patch is from where its manifest does not say. Fixed, so that bytes are stable.
pub const NEUTRAL_DATE: &str = "Sat, 1 Jan 2000 00:00:00 +0000";

/// The line of a message that names the patch; it survives `git am` and `git format-patch`.
const TRAILER: &str = "Patchset-Id: ";

/// Lines of a message are not longer than this where they can be broken.
const WIDTH: usize = 72;

/// The mail of a patch; `folder`: the files of its folder that the diff does not give back.
pub(super) fn mail(patch: &Patch, folder: &Folder, part: Option<Part>) -> Result<Mail> {
    let manifest = &patch.manifest;
    let date = match manifest.date.trim() {
        "" => NEUTRAL_DATE,
        date => date,
    };
    Ok(Mail {
        author: author(manifest)?,
        date: date.to_owned(),
        part,
        subject: subject(manifest),
        body: with_trailer(&message(&manifest.purpose), patch.id()),
        notes: folder::quote(folder),
        diff: diff_of(patch)?,
    })
}

/// `Name <address>` of a manifest.
fn author(manifest: &PatchManifest) -> Result<Author> {
    let text = match manifest.author.trim() {
        "" => NEUTRAL_AUTHOR,
        text => text,
    };
    let parts = text
        .strip_suffix('>')
        .and_then(|text| text.rsplit_once(" <"))
        .filter(|(name, email)| !name.trim().is_empty() && !email.is_empty());
    match parts {
        Some((name, email)) => Ok(Author {
            name: name.to_owned(),
            email: email.to_owned(),
        }),
        None => Err(Error::config(format!("its author {text:?} cannot be read"))
            .hint("write `author = \"Name <address>\"` into its patch.toml")),
    }
}

/// As a manifest says it.
pub(super) fn author_text(author: &Author) -> String {
    format!("{} <{}>", author.name, author.email)
}

/// The title in one line; the id where there is none.
fn subject(manifest: &PatchManifest) -> String {
    let words: Vec<&str> = manifest.title.split_whitespace().collect();
    match words.as_slice() {
        [] => manifest.id.clone(),
        words => words.join(" "),
    }
}

/// The purpose as a message: long paragraphs broken anew, and no line that a reader of mails
/// would take for the end of the message.
fn message(purpose: &str) -> String {
    let text = purpose.replace("\r\n", "\n");
    let text: String = text
        .chars()
        .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
        .collect();
    let paragraphs: Vec<String> = text
        .trim_end()
        .trim_start_matches('\n')
        .split("\n\n")
        .map(paragraph)
        .collect();
    let body = paragraphs.join("\n\n");
    let lines: Vec<String> = body
        .lines()
        .map(|line| match ends_message(line) {
            true => format!("| {}", line.trim_end()),
            false => line.trim_end().to_owned(),
        })
        .collect();
    lines.join("\n").trim_matches('\n').to_owned()
}

/// Whether a reader of mails would take a line for the end of the message, or GNU patch, which
/// looks behind blanks and `X`, for the beginning of a diff.
fn ends_message(line: &str) -> bool {
    let line = line.trim_start_matches([' ', '\t', 'X']);
    let begins = [
        "diff -", "Index: ", "Prereq: ", "---", "+++ ", "*** ", "@@ -", "From ", "-- ",
    ];
    // A command of ed: `5,7d`.
    let is_command = line.starts_with(|c: char| c.is_ascii_digit())
        && line
            .chars()
            .all(|c| c.is_ascii_digit() || ",acd".contains(c))
        && line.contains(['a', 'c', 'd']);
    is_command || line.trim_end() == "--" || begins.iter().any(|begin| line.starts_with(begin))
}

fn paragraph(text: &str) -> String {
    let is_long = text.lines().any(|line| line.chars().count() > WIDTH + 4);
    let is_verbatim = text.lines().any(|line| line.starts_with([' ', '\t']));
    if !is_long || is_verbatim || is_trailers(text) {
        return text.to_owned();
    }
    let mut out = String::new();
    let mut width = 0;
    for word in text.split_whitespace() {
        let len = word.chars().count();
        if width > 0 && width + 1 + len > WIDTH {
            out.push('\n');
            width = 0;
        } else if width > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += len;
    }
    out
}

/// Whether a paragraph is lines as `Signed-off-by: …`.
fn is_trailers(text: &str) -> bool {
    let is_trailer = |line: &str| {
        line.split_once(": ").is_some_and(|(key, _)| {
            !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
        })
    };
    !text.is_empty() && text.lines().all(is_trailer)
}

fn with_trailer(body: &str, id: &str) -> String {
    let last = body.rsplit("\n\n").next().unwrap_or_default();
    let gap = match (body.is_empty(), is_trailers(last)) {
        (true, _) => "",
        (_, true) => "\n",
        (_, false) => "\n\n",
    };
    format!("{body}{gap}{TRAILER}{id}")
}

/// The id that a message names, and the message without that line.
pub(super) fn without_trailer(body: &str) -> (Option<String>, String) {
    let at = body
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(TRAILER));
    let Some(id) = at else {
        return (None, body.to_owned());
    };
    let rest: Vec<&str> = body
        .lines()
        .filter(|line| !line.starts_with(TRAILER))
        .collect();
    let rest = rest.join("\n").trim_end().to_owned();
    (Some(id.trim().to_owned()), rest)
}

/// All that a patch does, as one diff: hooks, then new files, each sorted by path.
fn diff_of(patch: &Patch) -> Result<Vec<u8>> {
    let mut text = canonical(&patch.hooks);
    for file in &patch.overlay {
        let mode = match file.executable {
            true => FileMode::Executable,
            false => FileMode::Plain,
        };
        let blob = Blob::new(file.content.clone(), mode);
        let made = diff::between_files(&file.path, None, Some(&blob))?;
        if file.content.contains(&0) {
            return Err(binary(file.path.as_str()));
        }
        text.extend(diff::files_to_text(&made));
    }
    if text.contains(&0) {
        return Err(binary("a hooked file"));
    }
    if text.is_empty() {
        return Err(
            Error::usage("it changes nothing, and no mail or diff can say so").hint(
                "take edits into it with `cargo xtask refresh`, or leave it out of the export",
            ),
        );
    }
    Ok(text)
}

/// The refusal of a file that no text diff can carry.
pub(super) fn binary(path: &str) -> Error {
    Error::usage(format!(
        "{path} is binary: it holds a NUL byte, which no text diff can carry"
    ))
    .hint("bring it as text, or make it when it is built; patches/<id>/ can be copied as it is")
}

/// Hooks as `refresh` writes them.
pub(super) fn canonical(hooks: &[FileDiff]) -> Vec<u8> {
    let mut sorted: Vec<&FileDiff> = hooks.iter().collect();
    sorted.sort_by(|a, b| a.path.cmp(&b.path));
    sorted.into_iter().flat_map(diff::to_text).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_paragraphs_are_broken_and_the_rest_is_kept() {
        let long = "word ".repeat(30);
        let text = message(&format!(
            "Short\nlines stay.\n\n{long}\n\n  code   {long}\n\nSigned-off-by: {long}\nX: y\n"
        ));
        let paragraphs: Vec<&str> = text.split("\n\n").collect();
        assert_eq!(paragraphs[0], "Short\nlines stay.");
        assert!(paragraphs[1].lines().count() == 3 && paragraphs[1].lines().all(|l| l.len() <= 72));
        assert_eq!(paragraphs[2], format!("  code   {}", long.trim_end()));
        assert_eq!(paragraphs[3].lines().count(), 2);
    }

    #[test]
    fn no_line_ends_the_message() {
        let text = message(
            "a\n---\ndiff -u x\nFrom here\n-- \nIndex: x\n  --- a/x\r\nb\u{1b}[0m\n5,7d\n5 apples",
        );
        assert_eq!(
            text,
            "a\n| ---\n| diff -u x\n| From here\n| --\n| Index: x\n|   --- a/x\nb[0m\n| 5,7d\n5 apples"
        );
    }

    #[test]
    fn the_id_stands_among_trailers() {
        let body = with_trailer("Why.\n\nSigned-off-by: x", "a-b");
        assert_eq!(body, "Why.\n\nSigned-off-by: x\nPatchset-Id: a-b");
        assert_eq!(
            without_trailer(&body),
            (Some("a-b".into()), "Why.\n\nSigned-off-by: x".into())
        );
        assert_eq!(
            without_trailer(&with_trailer("", "a")),
            (Some("a".into()), String::new())
        );
        assert_eq!(without_trailer("Why."), (None, "Why.".into()));
    }
}
