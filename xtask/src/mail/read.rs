//! From mails to [`Mail`]s.

use mailparse::{MailAddr, MailHeader, MailHeaderMap as _};

use crate::error::{Error, Result, ResultExt as _};
use crate::mail::message::split;
use crate::mail::{Author, Mail, Part};

/// Mails have short headers; longer ones are no mails of ours.
const MAX_HEADERS: usize = 64 * 1024;
const MAX_BYTES: usize = 64 << 20;

/// Reads a file that holds one mail.
pub fn read(text: &[u8]) -> Result<Mail> {
    let mut mails = read_mbox(text)?;
    match (mails.pop(), mails.is_empty()) {
        (Some(mail), true) => Ok(mail),
        _ => Err(Error::config("there is more than one mail in it")
            .hint("split it with `git mailsplit`, or read it as a series")),
    }
}

/// Reads a file that holds one or more mails, in the order in which they stand there.
pub fn read_mbox(text: &[u8]) -> Result<Vec<Mail>> {
    if text.len() > MAX_BYTES {
        return Err(Error::config(format!(
            "the file has {} bytes; at most {MAX_BYTES} are read",
            text.len()
        ))
        .hint("split it with `git mailsplit`"));
    }
    let text = without_transport_ends(text);
    let mut starts: Vec<usize> = Vec::new();
    let mut at = 0;
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        if is_from_line(line) {
            starts.push(at);
        }
        at += line.len();
    }
    if starts.first() != Some(&0) {
        starts.insert(0, 0);
    }
    starts.push(text.len());
    starts
        .windows(2)
        .enumerate()
        .map(|(at, pair)| one(&text[pair[0]..pair[1]]).context(|| format!("mail {}", at + 1)))
        .collect()
}

/// A mail whose every line ends in CR LF went through a mail server: one CR is not its own.
fn without_transport_ends(text: &[u8]) -> Vec<u8> {
    let mut lines = text.split_inclusive(|byte| *byte == b'\n').peekable();
    let is_transported = lines.peek().is_some()
        && lines.all(|line| line.ends_with(b"\r\n") || !line.ends_with(b"\n"));
    if !is_transported || !text.contains(&b'\n') {
        return text.to_vec();
    }
    let mut out = Vec::with_capacity(text.len());
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        match line.strip_suffix(b"\r\n") {
            Some(line) => {
                out.extend_from_slice(line);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// The line before a mail in a mailbox: `From somebody Sat Jan  3 01:05:34 1996`.
pub(super) fn is_from_line(line: &[u8]) -> bool {
    let Some(rest) = line.strip_prefix(b"From ") else {
        return false;
    };
    let words: Vec<&[u8]> = rest
        .trim_ascii()
        .split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
        .collect();
    let is_year = |word: &[u8]| word.len() == 4 && word.iter().all(u8::is_ascii_digit);
    let is_time = |word: &[u8]| word.len() >= 7 && word.get(word.len() - 3) == Some(&b':');
    words.len() >= 5
        && words.iter().rev().take(2).any(|word| is_year(word))
        && words.iter().rev().take(3).any(|word| is_time(word))
}

fn broken(what: &str) -> Error {
    Error::config(what.to_owned()).hint("write the mail anew with `git format-patch`")
}

fn one(text: &[u8]) -> Result<Mail> {
    let text = match is_from_line(first_line(text)) {
        true => &text[first_line(text).len()..],
        false => text,
    };
    let blank = text.windows(2).position(|pair| pair == b"\n\n");
    let head = blank.map_or(text.len(), |at| at + 2);
    if head > MAX_HEADERS {
        return Err(broken("its headers are longer than those of any mail"));
    }
    let (headers, _) = mailparse::parse_headers(&text[..head])
        .map_err(|error| broken(&format!("its headers cannot be read: {error}")))?;
    let kind = headers.get_first_value("Content-Type");
    let kind = mailparse::parse_content_type(kind.as_deref().unwrap_or("text/plain"));
    if kind.mimetype != "text/plain" {
        return Err(
            Error::config(format!("it is of type {}, not text/plain", kind.mimetype))
                .hint("save the patch itself as a file, without the mail around it"),
        );
    }
    let message = split(&decoded(&headers, &text[head..])?)?;
    // Headers in the body count more than the mail's own.
    let inner: Vec<MailHeader<'_>> = message
        .headers
        .iter()
        .filter_map(|(_, whole)| Some(mailparse::parse_header(whole).ok()?.0))
        .collect();
    let header = |name: &str| {
        let mail = || headers.get_first_header(name);
        let found = inner.get_first_header(name).or_else(mail);
        found.ok_or_else(|| broken(&format!("it has no {name} header")))
    };
    let author = author(mailparse::addrparse_header(header("From")?))?;
    let date = header("Date")?.get_value();
    let dates = jiff::fmt::rfc2822::DateTimeParser::new().relaxed_weekday(true);
    if dates.parse_timestamp(&date).is_err() {
        return Err(broken(&format!("its date {date:?} cannot be read")));
    }
    let subject = header("Subject")?.get_value();
    let (part, subject) = without_patch(&subject);
    // A subject in the body has no place in the series; the mail's own has.
    let own = headers.get_first_value("Subject").unwrap_or_default();
    let part = part.or_else(|| without_patch(&own).0);
    Ok(Mail {
        author,
        date,
        part,
        subject: subject.to_owned(),
        body: in_unicode(&message.body, &kind.charset)?,
        notes: in_unicode(&message.notes, &kind.charset)?,
        diff: message.diff,
    })
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split_inclusive(|byte| *byte == b'\n')
        .next()
        .unwrap_or_default()
}

/// Undoes the transfer encoding of a body.
fn decoded(headers: &[MailHeader<'_>], body: &[u8]) -> Result<Vec<u8>> {
    let encoding = headers
        .get_first_value("Content-Transfer-Encoding")
        .unwrap_or_default();
    let encoding = encoding.trim().to_ascii_lowercase();
    match encoding.as_str() {
        "" | "7bit" | "8bit" | "binary" => Ok(body.to_vec()),
        "base64" | "quoted-printable" => {
            let head = format!("Content-Transfer-Encoding: {encoding}\n\n");
            let whole = [head.as_bytes(), body].concat();
            let decoded = mailparse::parse_mail(&whole).and_then(|mail| mail.get_body_raw());
            let decoded = decoded
                .map_err(|error| broken(&format!("its {encoding} cannot be read: {error}")))?;
            Ok(without_transport_ends(&decoded))
        }
        other => Err(broken(&format!(
            "its transfer encoding {other:?} is not known"
        ))),
    }
}

/// The message as text. Git writes UTF-8 also where it does not say so.
fn in_unicode(bytes: &[u8], charset: &str) -> Result<String> {
    match charset.to_ascii_lowercase().as_str() {
        "iso-8859-1" | "latin1" => Ok(bytes.iter().map(|byte| char::from(*byte)).collect()),
        "utf-8" | "us-ascii" => String::from_utf8(bytes.to_vec())
            .map_err(|_| broken(&format!("its message is not {charset}"))),
        other => Err(broken(&format!(
            "its character set {other:?} is not read here"
        ))),
    }
}

fn author(list: Result<mailparse::MailAddrList, mailparse::MailParseError>) -> Result<Author> {
    let list = list.map_err(|error| broken(&format!("its author cannot be read: {error}")))?;
    match list.as_slice() {
        [MailAddr::Single(info)] => {
            let email = info.addr.trim().to_owned();
            let name = info.display_name.clone().unwrap_or_default();
            let name = if name.trim().is_empty() {
                email.clone()
            } else {
                name.trim().to_owned()
            };
            Ok(Author { name, email })
        }
        _ => Err(broken("it is not from exactly one author")),
    }
}

/// Takes `Re:` and the bracket that says PATCH off a subject, and no other bracket.
fn without_patch(subject: &str) -> (Option<Part>, &str) {
    let mut rest = subject.trim();
    while let Some(after) = rest
        .get(..3)
        .filter(|word| word.eq_ignore_ascii_case("re:"))
        .map(|_| &rest[3..])
    {
        rest = after.trim_start();
    }
    let bracket = rest.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let Some((inside, after)) = bracket else {
        return (None, rest);
    };
    let mut words = inside.split_whitespace();
    if !words.clone().any(|word| word == "PATCH") {
        return (None, rest);
    }
    let part = words.find_map(|word| {
        let (number, total) = word.split_once('/')?;
        Some(Part {
            number: number.parse().ok()?,
            total: total.parse().ok()?,
        })
    });
    (part, after.trim_start())
}
