//! From [`Mail`]s to mails.

use std::fmt::Write as _;

use crate::error::{Error, Result};
use crate::mail::{Mail, read};

/// Longest line of a header with encoded words, as git has it.
const ENCODED_LINE: usize = 76;
/// Longest line of any other header.
const PLAIN_LINE: usize = 78;

/// The mail as `git am` takes it. The bytes depend on nothing but `mail`: no commit id, no
/// version of a tool. Use `git am --keep-non-patch` to keep brackets in the subject, and
/// `--keep-cr` where files have CR LF line ends.
///
/// # Errors
///
/// Where the mail would not be read back as it is: a message with a line that begins a diff, a
/// subject of two lines, no diff.
pub fn write(mail: &Mail) -> Result<Vec<u8>> {
    if mail.diff.is_empty() {
        return Err(Error::usage("a mail without a diff is no patch"));
    }
    let text = compose(mail, false);
    if read(&text).is_ok_and(|back| back == *mail) {
        return Ok(text);
    }
    // A message that begins like a header needs one before it, which git takes for the header.
    let text = compose(mail, true);
    match read(&text) {
        Ok(back) if back == *mail => Ok(text),
        Ok(back) => Err(Error::usage(format!(
            "the mail would be read back with another {}",
            difference(mail, &back)
        ))
        .hint("no line of a message may look like the beginning of a diff or of a mail")),
        Err(error) => Err(error.context("the mail could not be read back")),
    }
}

/// Which part is not the same.
fn difference(mail: &Mail, back: &Mail) -> &'static str {
    let parts = [
        (mail.author == back.author, "author"),
        (mail.date == back.date, "date"),
        (mail.part == back.part, "place in the series"),
        (mail.subject == back.subject, "subject"),
        (mail.body == back.body, "message"),
        (mail.notes == back.notes, "text before the diff"),
    ];
    let first = parts.iter().find(|(same, _)| !same);
    first.map_or("diff", |(_, what)| what)
}

fn compose(mail: &Mail, with_author_in_body: bool) -> Vec<u8> {
    let author = format!(
        "{} <{}>",
        phrase(&mail.author.name, "From: ".len()),
        mail.author.email
    );
    let prefix = match mail.part {
        Some(part) => {
            let width = part.total.to_string().len();
            format!("[PATCH {:0width$}/{}] ", part.number, part.total)
        }
        None => "[PATCH] ".to_owned(),
    };
    let subject = unstructured(&mail.subject, "Subject: ".len() + prefix.len());
    let mut text = format!(
        "From {} Mon Sep 17 00:00:00 2001\nFrom: {author}\nDate: {}\nSubject: {prefix}{subject}\n",
        "0".repeat(40),
        mail.date
    );
    let parts = [&mail.author.name, &mail.subject, &mail.body, &mail.notes];
    if parts.iter().any(|part| !part.is_ascii()) {
        text.push_str(
            "MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\n\
             Content-Transfer-Encoding: 8bit\n",
        );
    }
    text.push('\n');
    if with_author_in_body {
        text.push_str(&format!("From: {author}\n\n"));
    }
    if !mail.body.is_empty() {
        text.push_str(&mail.body);
        text.push('\n');
    }
    text.push_str("---\n");
    text.push_str(&mail.notes);
    text.push('\n');
    let mut bytes = text.into_bytes();
    bytes.extend_from_slice(&mail.diff);
    bytes
}

/// A name in front of an address.
fn phrase(name: &str, used: usize) -> String {
    if needs_encoding(name) {
        return encoded(name, used, |byte| {
            byte.is_ascii_alphanumeric() || b"!*+-/".contains(&byte)
        });
    }
    if name.bytes().any(|byte| b"()<>@,;:\\\".[]".contains(&byte)) {
        let escaped = name.replace('\\', "\\\\").replace('"', "\\\"");
        return format!("\"{escaped}\"");
    }
    name.to_owned()
}

/// A subject, folded where it is long.
fn unstructured(text: &str, used: usize) -> String {
    let plain = text
        .split(' ')
        .all(|word| !word.is_empty() && word.len() < PLAIN_LINE - 2);
    if needs_encoding(text) || (!plain && !text.is_empty()) {
        return encoded(text, used, |byte| {
            byte.is_ascii_graphic() && !b"=?_".contains(&byte)
        });
    }
    let mut line = used;
    let mut out = String::new();
    for (at, word) in text.split(' ').enumerate() {
        if at > 0 {
            let fits = line + 1 + word.len() <= PLAIN_LINE;
            out.push_str(if fits { " " } else { "\n " });
            line = if fits { line + 1 } else { 1 };
        }
        out.push_str(word);
        line += word.len();
    }
    out
}

fn needs_encoding(text: &str) -> bool {
    text.contains("=?")
        || text
            .bytes()
            .any(|byte| !byte.is_ascii() || byte.is_ascii_control())
}

/// Encoded words, none of which cuts a character. `used` is the length of the line so far.
fn encoded(text: &str, used: usize, is_plain: impl Fn(u8) -> bool) -> String {
    const START: &str = "=?UTF-8?q?";
    let mut out = START.to_owned();
    let mut line = used + START.len();
    for c in text.chars() {
        let mut buffer = [0; 4];
        let bytes = c.encode_utf8(&mut buffer).bytes();
        let mut piece = String::new();
        for byte in bytes {
            match byte {
                byte if is_plain(byte) => piece.push(char::from(byte)),
                // Writing to a string cannot fail.
                byte => drop(write!(piece, "={byte:02X}")),
            }
        }
        if line + piece.len() + 2 > ENCODED_LINE {
            out.push_str("?=\n ");
            out.push_str(START);
            line = START.len() + 1;
        }
        line += piece.len();
        out.push_str(&piece);
    }
    out.push_str("?=");
    out
}
