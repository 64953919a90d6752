//! A diff with a description above it, as quilt, `git show` and people write it.

use crate::diff::{Strip, parse_files_stripped};
use crate::error::Result;
use crate::exchange::incoming::Incoming;
use crate::exchange::letter::without_trailer;

/// Whether a file is one mail or more: a mailbox line, or the three headers that a patch mail has.
pub(super) fn is_mail(text: &[u8]) -> bool {
    if text.starts_with(b"From ") {
        return true;
    }
    let mut wanted = ["from:", "date:", "subject:"].map(|name| (name, false));
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.trim_ascii_end();
        if line.is_empty() {
            break;
        }
        for (name, seen) in &mut wanted {
            let start = line.get(..name.len()).unwrap_or_default();
            *seen |= start.eq_ignore_ascii_case(name.as_bytes());
        }
    }
    wanted.iter().all(|(_, seen)| *seen)
}

/// Reads a diff; `stem`: the file's name without its ending, for a diff that says nothing.
pub(super) fn read(text: &[u8], origin: String, stem: &str, strip: Strip) -> Result<Incoming> {
    let files = parse_files_stripped(text, strip)?;
    let said = String::from_utf8_lossy(above(text)).into_owned();
    let mut incoming = Incoming {
        origin,
        id: None,
        title: String::new(),
        purpose: String::new(),
        author: String::new(),
        date: String::new(),
        folder: None,
        files,
        remarks: Vec::new(),
    };
    let mut rest: Vec<&str> = Vec::new();
    for line in said.lines().map(str::trim_end) {
        if line == "---" {
            break;
        }
        if !rest.is_empty() || !header(&mut incoming, line) {
            rest.push(line);
        }
    }
    let indented = rest
        .iter()
        .all(|line| line.is_empty() || line.starts_with("    "));
    let rest: Vec<&str> = rest
        .iter()
        .map(|line| if indented { line.trim_start() } else { line })
        .skip_while(|line| line.is_empty())
        .collect();
    let (id, message) = without_trailer(rest.join("\n").trim_end());
    incoming.id = id;
    if incoming.title.is_empty() {
        let (title, body) = message.split_once('\n').unwrap_or((&message, ""));
        incoming.title = title.trim().to_owned();
        incoming.purpose = body.trim_matches('\n').to_owned();
    } else {
        incoming.purpose = message.trim_matches('\n').to_owned();
    }
    if incoming.title.is_empty() {
        let name = stem.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-');
        incoming.title = name.replace(['-', '_'], " ");
    }
    Ok(incoming)
}

/// Takes a line above the description that says something about the patch, or nothing.
fn header(incoming: &mut Incoming, line: &str) -> bool {
    if line.is_empty() || line.starts_with('#') || line.starts_with("Patchset-Export: ") {
        return true;
    }
    if line
        .strip_prefix("commit ")
        .is_some_and(|id| id.len() >= 40 && id.bytes().all(|b| b.is_ascii_hexdigit()))
    {
        return true;
    }
    let Some((key, value)) = line.split_once(": ") else {
        return false;
    };
    let value = value.trim();
    match key.to_ascii_lowercase().as_str() {
        "subject" | "description" => incoming.title = value.to_owned(),
        "from" | "author" if value.ends_with('>') && value.contains(" <") => {
            incoming.author = value.to_owned();
        }
        "from" | "author" => {}
        "date" => {
            let dates = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
            if dates.parse_timestamp(value).is_ok() {
                incoming.date = value.to_owned();
            }
        }
        _ => return false,
    }
    true
}

/// What stands above the first file of a diff.
fn above(text: &[u8]) -> &[u8] {
    let mut at = 0;
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').peekable();
    while let Some(line) = lines.next() {
        let is_pair =
            line.starts_with(b"--- ") && lines.peek().is_some_and(|next| next.starts_with(b"+++ "));
        if is_pair || line.starts_with(b"diff -") || line.starts_with(b"Index: ") {
            break;
        }
        at += line.len();
    }
    &text[..at]
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIFF: &str = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n a\n+b\n";

    fn one(above: &str) -> Incoming {
        read(
            format!("{above}{DIFF}").as_bytes(),
            String::new(),
            "0001-fix_the-thing",
            Strip::One,
        )
        .unwrap()
    }

    #[test]
    fn descriptions_of_every_kind() {
        let bare = one("");
        assert_eq!(
            (bare.title.as_str(), bare.purpose.as_str()),
            ("fix the thing", "")
        );
        let quilt = one("Count it.\n\nBecause: why\nnot.\n\nIndex: linux/f\n===\n");
        assert_eq!(
            (quilt.title.as_str(), quilt.purpose.as_str()),
            ("Count it.", "Because: why\nnot.")
        );
        let dep3 = one("Description: Count it\nAuthor: Jörg <j@x>\nForwarded: no\n---\ncomment\n");
        assert_eq!(
            (dep3.title.as_str(), dep3.author.as_str()),
            ("Count it", "Jörg <j@x>")
        );
        assert_eq!(dep3.purpose, "Forwarded: no");
        let show = one(&format!(
            "commit {}\nAuthor: A <a@b>\nDate:   Sun Nov 29 13:16:57 2026 +0000\n\n    Title\n\n    Body\n\n",
            "a".repeat(40)
        ));
        assert_eq!(
            (show.title.as_str(), show.purpose.as_str()),
            ("Title", "Body")
        );
        assert_eq!((show.author.as_str(), show.date.as_str()), ("A <a@b>", ""));
        let named = one("Title\n\nWhy.\nPatchset-Id: my-id\n");
        assert_eq!(
            (named.id.as_deref(), named.purpose.as_str()),
            (Some("my-id"), "Why.")
        );
    }

    #[test]
    fn mails_are_told_from_descriptions() {
        assert!(is_mail(b"From 0000 Mon Sep 17 00:00:00 2001\n"));
        assert!(is_mail(b"Subject: x\r\nFROM: a\r\ndate: y\r\n\r\n"));
        assert!(!is_mail(b"From: a\nSubject: x\n\nDate: y\n"));
        assert!(!is_mail(b"diff --git a/f b/f\n"));
    }
}
