//! The parts of a mail's text: headers in the body, message, notes, diff.

use crate::diff::{Strip, parse_with_end};
use crate::error::{Error, Result, ResultExt as _};

/// The text of a mail, taken apart.
#[derive(Debug, Default)]
pub(super) struct Message {
    /// Headers that the body begins with, which count more than the mail's own; whole, by key.
    pub(super) headers: Vec<(&'static str, Vec<u8>)>,
    pub(super) body: Vec<u8>,
    pub(super) notes: Vec<u8>,
    pub(super) diff: Vec<u8>,
}

/// Lines that may stand at the beginning of a body and are headers there.
const IN_BODY: [&str; 3] = ["from", "subject", "date"];

/// Takes the text of a mail apart where git does.
pub(super) fn split(text: &[u8]) -> Result<Message> {
    let mut message = Message::default();
    let mut rest = skip_blank(text);
    while let Some((key, raw, after)) = in_body_header(rest) {
        message.headers.push((key, raw));
        rest = after;
    }
    let (body, separated, after) = until(rest, |line| starts_diff(line) || is_separator(line));
    let (notes, diff) = match separated {
        true if is_separator(first_line(after)) => {
            let after = &after[first_line(after).len()..];
            let (notes, _, diff) = until(after, starts_diff);
            (notes, diff)
        }
        _ => (&b""[..], after),
    };
    message.body = without_blank_ends(body);
    message.notes = without_blank_ends(notes);
    if !message.notes.is_empty() {
        message.notes.push(b'\n');
    }
    if diff.is_empty() {
        // In a cover letter the signature follows the message.
        let part = if message.notes.is_empty() {
            &mut message.body
        } else {
            &mut message.notes
        };
        let (kept, ..) = until(part, |line| line == b"-- \n");
        *part = without_blank_ends(kept);
        if !message.notes.is_empty() {
            message.notes = [&without_blank_ends(&message.notes)[..], b"\n"].concat();
        }
        return Ok(message);
    }
    let (_, end) = parse_with_end(diff, Strip::One).context(|| "its diff".to_owned())?;
    let (diff, tail) = diff.split_at(end);
    let tail = without_blank_ends(tail);
    if !(tail.is_empty() || tail.starts_with(b"-- \n") || tail == b"-- ") {
        return Err(Error::config(format!(
            "there is text behind its diff: {:?}",
            String::from_utf8_lossy(first_line(&tail))
        ))
        .hint("take it away, or let a signature begin with a line `-- `"));
    }
    message.diff = diff.to_vec();
    Ok(message)
}

/// `From: …`, `Subject: …` or `Date: …` at the beginning of `text`: its key, the whole of it, and
/// what follows.
fn in_body_header(text: &[u8]) -> Option<(&'static str, Vec<u8>, &[u8])> {
    let colon = first_line(text).iter().position(|byte| *byte == b':')?;
    let key = IN_BODY
        .into_iter()
        .find(|key| text[..colon].eq_ignore_ascii_case(key.as_bytes()))?;
    if !matches!(text.get(colon + 1), Some(b' ' | b'\t')) {
        return None;
    }
    let mut end = first_line(text).len();
    while matches!(text.get(end), Some(b' ' | b'\t')) {
        end += first_line(&text[end..]).len();
    }
    Some((key, text[..end].to_vec(), &text[end..]))
}

fn first_line(text: &[u8]) -> &[u8] {
    let end = text.iter().position(|byte| *byte == b'\n');
    &text[..end.map_or(text.len(), |end| end + 1)]
}

/// Splits before the first line that `is_end` takes; says whether there is one.
fn until(text: &[u8], is_end: impl Fn(&[u8]) -> bool) -> (&[u8], bool, &[u8]) {
    let mut at = 0;
    while at < text.len() {
        let line = first_line(&text[at..]);
        if is_end(line) {
            return (&text[..at], true, &text[at..]);
        }
        at += line.len();
    }
    (text, false, b"")
}

fn skip_blank(mut text: &[u8]) -> &[u8] {
    while !text.is_empty() && first_line(text).trim_ascii().is_empty() {
        text = &text[first_line(text).len()..];
    }
    text
}

fn without_blank_ends(text: &[u8]) -> Vec<u8> {
    let text = skip_blank(text);
    let end = text.len()
        - text
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_whitespace())
            .count();
    // Blanks behind the last text are its own, up to its line end.
    let rest = &text[end..];
    let kept = rest
        .iter()
        .position(|byte| *byte == b'\n')
        .unwrap_or(rest.len());
    text[..end + kept].to_vec()
}

/// Whether a line begins the diff, and so ends the message.
pub(super) fn starts_diff(line: &[u8]) -> bool {
    line.starts_with(b"diff -")
        || line.starts_with(b"Index: ")
        || (line.starts_with(b"--- ")
            && line.get(4).is_some_and(|byte| !byte.is_ascii_whitespace()))
}

/// `---`, which ends the message before the notes.
pub(super) fn is_separator(line: &[u8]) -> bool {
    line.strip_prefix(b"---")
        .is_some_and(|rest| rest.trim_ascii().is_empty())
}
