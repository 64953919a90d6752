//! The files of a patch folder, quoted in the part of a mail that `git am` drops.
//!
//! ```text
//! Patchset-Folder: 1
//! Patchset-Base: 6b1f…
//! Patchset-File: patch.toml
//! | schema = 1
//! |
//! ! 6cff0a
//! Patchset-File: README.md; no line end
//! | Text
//! ```
//!
//! `|` and a blank stand before a line of text, `|` alone for an empty one; `!` before the bytes
//! of a line that is no plain text, in hexadecimal.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::error::{Error, Result};

const BEGIN: &str = "Patchset-Folder: ";
const BASE: &str = "Patchset-Base: ";
const HOOKS: &str = "Patchset-Hooks: ";
const FILE: &str = "Patchset-File: ";
const OPEN_END: &str = "; no line end";
const VERSION: &str = "1";

/// What a mail says of the folder that it was made from.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Folder {
    /// Digest of the base that the hooks are written for; empty where it is not said.
    pub(super) base: String,
    /// Name of the file that the diff's edits stood in.
    pub(super) hooks: String,
    /// Files by name: `patch.toml`, and those that the diff does not give back to the byte.
    pub(super) files: BTreeMap<String, Vec<u8>>,
}

/// The block.
pub(super) fn quote(folder: &Folder) -> String {
    let mut out = format!("{BEGIN}{VERSION}\n");
    if !folder.base.is_empty() {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(out, "{BASE}{}", folder.base);
    }
    if folder.hooks != "hooks.patch" {
        let _ = writeln!(out, "{HOOKS}{}", folder.hooks);
    }
    for (name, content) in &folder.files {
        let open = !content.ends_with(b"\n");
        let _ = writeln!(out, "{FILE}{name}{}", if open { OPEN_END } else { "" });
        for line in content.split_inclusive(|byte| *byte == b'\n') {
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            out.push_str(&quoted(line));
            out.push('\n');
        }
    }
    out
}

fn quoted(line: &[u8]) -> String {
    match std::str::from_utf8(line) {
        Ok("") => "|".to_owned(),
        Ok(text) if !text.chars().any(|c| c.is_control() && c != '\t') => format!("| {text}"),
        _ => line.iter().fold("! ".to_owned(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        }),
    }
}

/// The block in the notes of a mail, where there is one.
pub(super) fn unquote(notes: &str) -> Result<Option<Folder>> {
    let mut lines = notes
        .split('\n')
        .skip_while(|line| !line.starts_with(BEGIN));
    let Some(version) = lines.next().and_then(|line| line.strip_prefix(BEGIN)) else {
        return Ok(None);
    };
    let broken = |what: String| {
        Error::config(what).hint("export the patch anew, or take the block out of the mail")
    };
    if version != VERSION {
        return Err(broken(format!(
            "its Patchset-Folder block is of version {version:?}; this program reads {VERSION}"
        )));
    }
    let mut folder = Folder {
        base: String::new(),
        hooks: "hooks.patch".to_owned(),
        files: BTreeMap::new(),
    };
    // The name of the file being read, its content, and whether it ends without a line end.
    let mut open: Option<(String, Vec<u8>, bool)> = None;
    for line in lines {
        if let Some(base) = line.strip_prefix(BASE) {
            folder.base = base.to_owned();
        } else if let Some(name) = line.strip_prefix(HOOKS) {
            folder.hooks = name.to_owned();
        } else if let Some(name) = line.strip_prefix(FILE) {
            close(&mut folder, open.take()).map_err(broken)?;
            let (name, ends) = match name.strip_suffix(OPEN_END) {
                Some(name) => (name, true),
                None => (name, false),
            };
            open = Some((name.to_owned(), Vec::new(), ends));
        } else if let Some(line) = unquoted(line) {
            let line = line.map_err(broken)?;
            let Some((_, content, _)) = &mut open else {
                return Err(broken("a line of its block belongs to no file".to_owned()));
            };
            content.extend_from_slice(&line);
            content.push(b'\n');
        } else {
            break;
        }
    }
    close(&mut folder, open).map_err(broken)?;
    if !folder.files.contains_key("patch.toml") {
        return Err(broken(
            "its Patchset-Folder block has no patch.toml".to_owned(),
        ));
    }
    match std::iter::once(&folder.hooks)
        .chain(folder.files.keys())
        .find(|name| !is_known(name))
    {
        None => Ok(Some(folder)),
        Some(name) => Err(broken(format!(
            "its block names the file {name:?}, which no patch folder has"
        ))),
    }
}

/// Whether a file of this name may lie in a patch folder, beside `src/`.
fn is_known(name: &str) -> bool {
    let of_base = || {
        let middle = name.strip_prefix("hooks.")?.strip_suffix(".patch")?;
        let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
        (!middle.is_empty() && middle.bytes().all(plain)).then_some(())
    };
    matches!(name, "patch.toml" | "README.md" | "hooks.patch") || of_base().is_some()
}

fn close(folder: &mut Folder, open: Option<(String, Vec<u8>, bool)>) -> Result<(), String> {
    let Some((name, mut content, ends)) = open else {
        return Ok(());
    };
    if ends {
        content.pop();
    }
    match folder.files.insert(name.clone(), content) {
        None => Ok(()),
        Some(_) => Err(format!("its block has the file {name:?} twice")),
    }
}

/// A quoted line, where it is one.
fn unquoted(line: &str) -> Option<Result<Vec<u8>, String>> {
    if line == "|" {
        return Some(Ok(Vec::new()));
    }
    if let Some(text) = line.strip_prefix("| ") {
        return Some(Ok(text.as_bytes().to_vec()));
    }
    let digits = line.strip_prefix("! ")?.as_bytes();
    let value = |digit: u8| char::from(digit).to_digit(16);
    let bytes: Option<Vec<u8>> = digits
        .chunks(2)
        .map(|pair| match pair {
            [high, low] => u8::try_from(value(*high)? * 16 + value(*low)?).ok(),
            _ => None,
        })
        .collect();
    Some(bytes.ok_or_else(|| format!("a line of its block is no hexadecimal: {line:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn any_content_survives(a in proptest::collection::vec(any::<u8>(), 0..80), b in "[a|! \n\t\r]{0,20}") {
            let folder = Folder {
                base: "00ff".into(),
                hooks: "hooks.toy.patch".into(),
                files: [("patch.toml".to_owned(), a), ("README.md".to_owned(), b.into_bytes())].into(),
            };
            let text = quote(&folder);
            prop_assert_eq!(unquote(&text).unwrap().unwrap(), folder.clone());
            let notes = format!(" f | 2 +-\n\n{text} remark\n| of somebody else\n");
            prop_assert_eq!(unquote(&notes).unwrap().unwrap(), folder);
        }
    }

    #[test]
    fn a_block_that_is_not_ours_is_refused() {
        assert_eq!(unquote(" f | 2 +-\n").unwrap(), None);
        for (text, why) in [
            ("Patchset-Folder: 2\n", "version"),
            ("Patchset-Folder: 1\n", "no patch.toml"),
            ("Patchset-Folder: 1\n| x\n", "no file"),
            (
                "Patchset-Folder: 1\nPatchset-File: patch.toml\n! 6\n",
                "hexadecimal",
            ),
            (
                "Patchset-Folder: 1\nPatchset-File: patch.toml\n! é\n",
                "hexadecimal",
            ),
            (
                "Patchset-Folder: 1\nPatchset-File: patch.toml\nPatchset-File: patch.toml\n",
                "twice",
            ),
            (
                "Patchset-Folder: 1\nPatchset-File: patch.toml\nPatchset-File: ../x\n",
                "../x",
            ),
            (
                "Patchset-Folder: 1\nPatchset-Hooks: src/../x\nPatchset-File: patch.toml\n",
                "src/../x",
            ),
            (
                "Patchset-Folder: 1\nPatchset-File: patch.toml\nPatchset-File: hooks.a/b.patch\n",
                "a/b",
            ),
        ] {
            let error = unquote(text).unwrap_err().to_string();
            assert!(error.contains(why), "{text}: {error}");
        }
    }
}
