//! Names in diffs: quoting, prefixes, and what stands behind them.

use std::borrow::Cow;
use std::fmt::Write as _;

use crate::error::{Error, Result, ResultExt as _};
use crate::tree::RelPath;

/// How many leading components of a name are not part of the path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strip {
    /// None: `--- src/f`, as `git diff --no-prefix` and `quilt -p0` write it.
    Zero,
    /// One: `--- a/src/f`.
    #[default]
    One,
}

impl Strip {
    /// The rest of `name`; none where there is nothing to take away.
    pub(super) fn off(self, name: &[u8]) -> Option<&[u8]> {
        match self {
            Strip::Zero => Some(name),
            Strip::One => {
                let at = name.iter().position(|byte| *byte == b'/')?;
                (at > 0).then(|| &name[at + 1..])
            }
        }
    }

    /// The path that `name` stands for.
    pub(super) fn path(self, name: &[u8]) -> Result<RelPath> {
        let rest = self.off(name).ok_or_else(|| {
            Error::config(format!(
                "the name {:?} has no leading folder to strip",
                String::from_utf8_lossy(name)
            ))
            .hint("write the diff with the prefixes a/ and b/, or read it without stripping")
        })?;
        path(rest)
    }
}

/// Bytes of a diff as a safe path.
pub(super) fn path(bytes: &[u8]) -> Result<RelPath> {
    match std::str::from_utf8(bytes) {
        Ok(text) => RelPath::new(text),
        Err(_) => Err(Error::config(format!(
            "the diff names a path that is not UTF-8: {}",
            String::from_utf8_lossy(bytes)
        ))),
    }
    .hint(|| "give the file a name that is safe on every file system, inside the tree".into())
}

/// A name from the front of `text`, in quotes or not, and what follows. Without quotes, it ends
/// at the first tab: git writes one behind names with blanks, GNU diff before a time stamp.
pub(super) fn take_name(text: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    if text.first() == Some(&b'"') {
        return unquote(text);
    }
    let end = text.iter().position(|byte| *byte == b'\t');
    let (name, rest) = text.split_at(end.unwrap_or(text.len()));
    Ok((name.to_vec(), rest))
}

/// A name that takes up all of `text`.
pub(super) fn whole_name(text: &[u8]) -> Result<Vec<u8>> {
    if text.first() != Some(&b'"') {
        return Ok(text.to_vec());
    }
    match unquote(text)? {
        (name, []) => Ok(name),
        _ => Err(Error::config("something follows a name in quotes").hint("write the diff anew")),
    }
}

/// Undoes C quoting; `text` begins with the opening quote.
fn unquote(text: &[u8]) -> Result<(Vec<u8>, &[u8])> {
    let broken = || Error::config("a name in quotes is broken").hint("write the diff anew");
    let mut name = Vec::new();
    let mut at = 1;
    loop {
        let byte = *text.get(at).ok_or_else(broken)?;
        at += 1;
        match byte {
            b'"' => return Ok((name, &text[at..])),
            b'\\' => {
                let escape = *text.get(at).ok_or_else(broken)?;
                at += 1;
                name.push(match escape {
                    b'a' => 0x07,
                    b'b' => 0x08,
                    b't' => b'\t',
                    b'n' => b'\n',
                    b'v' => 0x0b,
                    b'f' => 0x0c,
                    b'r' => b'\r',
                    b'"' | b'\\' => escape,
                    b'0'..=b'3' => {
                        let digits = text.get(at..at + 2).ok_or_else(broken)?;
                        at += 2;
                        let mut value = escape - b'0';
                        for digit in digits {
                            if !(b'0'..=b'7').contains(digit) {
                                return Err(broken());
                            }
                            value = value * 8 + (digit - b'0');
                        }
                        value
                    }
                    _ => return Err(broken()),
                });
            }
            byte => name.push(byte),
        }
    }
}

/// Two names, as they stand in a `diff --git` line.
type Pair<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// All ways to read `text` as two names with a blank between them. Only names with blanks leave
/// a choice; with more than a hundred blanks in the line nothing is tried beyond them, but for the
/// middle, where the two names of one file meet.
pub(super) fn two_names(text: &[u8]) -> Vec<Pair<'_>> {
    let quote = text.iter().position(|byte| *byte == b'"');
    let second = |rest: &[u8]| whole_name(rest).ok().map(Cow::Owned);
    match quote {
        Some(0) => unquote(text)
            .ok()
            .and_then(|(first, rest)| Some((Cow::Owned(first), second(rest.strip_prefix(b" ")?)?)))
            .into_iter()
            .collect(),
        // A name that holds a quote is itself quoted.
        Some(at) => text[..at]
            .strip_suffix(b" ")
            .and_then(|first| Some((Cow::Borrowed(first), second(&text[at..])?)))
            .into_iter()
            .collect(),
        None => {
            let blanks = (0..text.len()).filter(|at| text[*at] == b' ');
            let mut places: Vec<usize> = blanks.take(100).collect();
            // With prefixes of one length, one file's two names meet in the middle.
            let middle = text.len() / 2;
            if text.get(middle) == Some(&b' ') && !places.contains(&middle) {
                places.push(middle);
            }
            let pair = |at| (Cow::Borrowed(&text[..at]), Cow::Borrowed(&text[at + 1..]));
            places.into_iter().map(pair).collect()
        }
    }
}

/// Whether what follows a name is the time stamp of a file that does not exist: GNU diff then
/// writes the beginning of 1970, in whatever time zone.
pub(super) fn is_epoch(rest: &[u8]) -> bool {
    let Some(text) = rest
        .strip_prefix(b"\t")
        .and_then(|text| std::str::from_utf8(text).ok())
    else {
        return false;
    };
    let mut parts = text.split(' ');
    let (Some(date), Some(time), Some(zone)) = (parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let minutes = |text: &str| -> Option<i32> {
        let (hours, rest) = text.split_at_checked(2)?;
        let rest = rest.strip_prefix(':').unwrap_or(rest);
        let valid = rest.len() == 2
            && hours
                .bytes()
                .chain(rest.bytes())
                .all(|b| b.is_ascii_digit());
        valid.then_some(())?;
        Some(hours.parse::<i32>().ok()? * 60 + rest.parse::<i32>().ok()?)
    };
    let day = match date {
        "1970-01-01" => 0,
        "1969-12-31" => -24 * 60,
        _ => return false,
    };
    let (clock, fraction) = time.split_once('.').unwrap_or((time, "0"));
    let offset = match zone.split_at_checked(1) {
        Some(("+", rest)) => minutes(rest),
        Some(("-", rest)) => minutes(rest).map(|value| -value),
        _ => None,
    };
    let clock = clock.strip_suffix(":00").and_then(minutes);
    parts.next().is_none()
        && !fraction.is_empty()
        && fraction.bytes().all(|byte| byte == b'0')
        && matches!((clock, offset), (Some(clock), Some(offset)) if day + clock == offset)
}

/// A name as git writes it: in double quotes with C escapes where it holds a quote, a backslash,
/// a control character or anything outside ASCII.
pub(super) fn quoted(prefix: &str, path: &RelPath) -> String {
    let name = format!("{prefix}{path}");
    let plain = |byte: u8| (0x20..0x7f).contains(&byte) && byte != b'"' && byte != b'\\';
    if name.bytes().all(plain) {
        return name;
    }
    let mut out = String::from("\"");
    for byte in name.bytes() {
        match byte {
            b'"' => out.push_str("\\\""),
            byte if plain(byte) => out.push(char::from(byte)),
            // Writing to a string cannot fail.
            byte => {
                let _ = write!(out, "\\{byte:03o}");
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rel(text: &str) -> RelPath {
        RelPath::new(text).unwrap()
    }

    #[test]
    fn any_number_of_blanks_is_read_back() {
        for count in [1, 49, 50, 51, 500] {
            let path = rel(&format!("x{} y", " z".repeat(count)));
            let line = format!("{} {}", quoted("a/", &path), quoted("b/", &path));
            let same = two_names(line.as_bytes()).into_iter().filter(|(old, new)| {
                old.strip_prefix(b"a/") == new.strip_prefix(b"b/") && old.starts_with(b"a/")
            });
            assert_eq!(same.count(), 1, "{count} blanks");
        }
    }

    #[test]
    fn names_that_need_it_are_quoted() {
        assert_eq!(quoted("a/", &rel("b c")), "a/b c");
        assert_eq!(quoted("a/", &rel("ä\"")), "\"a/\\303\\244\\\"\"");
        for name in ["b c", "ä\"", "x", "a'b$"] {
            let text = quoted("a/", &rel(name));
            let read = whole_name(text.as_bytes()).unwrap();
            assert_eq!(Strip::One.path(&read).unwrap(), rel(name));
        }
    }

    #[test]
    fn broken_quotes_are_errors() {
        for text in [
            "\"a",
            "\"a\\",
            "\"a\\9\"",
            "\"\\30\"",
            "\"\\777\"",
            "\"a\"b",
        ] {
            assert!(whole_name(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn a_file_that_does_not_exist_is_known_by_its_time_stamp() {
        for stamp in [
            "\t1970-01-01 00:00:00.000000000 +0000",
            "\t1970-01-01 01:00:00.000000000 +0100",
            "\t1969-12-31 19:00:00 -0500",
            "\t1970-01-01 05:30:00.0 +05:30",
        ] {
            assert!(is_epoch(stamp.as_bytes()), "{stamp}");
        }
        for stamp in [
            "",
            "\t",
            "\t1970-01-01 00:00:01.000000000 +0000",
            "\t1970-01-01 00:00:00.000000000 +0100",
            "\t2020-01-01 00:00:00.000000000 +0000",
            "\t1970-01-01 00:00:00.000000000",
            "\t1970-01-01 00:00:00.000000001 +0000",
            "\t1970-01-01 é0:00:00 +0000",
        ] {
            assert!(!is_epoch(stamp.as_bytes()), "{stamp}");
        }
    }

    #[test]
    fn one_folder_is_stripped_and_no_absolute_name_becomes_a_relative_one() {
        assert_eq!(Strip::One.off(b"a/b/c"), Some(&b"b/c"[..]));
        assert_eq!(Strip::One.off(b"a"), None);
        assert_eq!(Strip::One.off(b"/etc/x"), None);
        assert!(Strip::Zero.path(b"/etc/x").is_err());
    }
}
