//! Relative paths that cannot leave a tree.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// A path inside a tree: UTF-8, `/` between components, and no component that could mean
/// something else to any file system this may be unpacked on.
///
/// Refused are absolute paths, empty and `.` and `..` components, NUL and other control
/// characters, backslashes, and every spelling of `.git` (whatever the case, with trailing dots
/// or blanks, with code points that HFS+ ignores, or as the short name `git~1`).
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct RelPath(String);

impl RelPath {
    /// Checks `text` and takes it.
    pub fn new(text: impl Into<String>) -> Result<Self> {
        let text = text.into();
        match Self::fault(&text) {
            Some(fault) => Err(Error::config(format!("unsafe path {text:?}: {fault}"))),
            None => Ok(RelPath(text)),
        }
    }

    /// A path as found on disk, relative to a tree.
    pub fn from_path(path: &Path) -> Result<Self> {
        match path.to_str() {
            Some(text) => Self::new(text),
            None => Err(Error::config(format!(
                "unsafe path {}: it is not UTF-8",
                path.display()
            ))),
        }
    }

    fn fault(text: &str) -> Option<&'static str> {
        if text.is_empty() {
            return Some("it is empty");
        }
        if text.starts_with('/') {
            return Some("it is absolute");
        }
        if is_plain(text) {
            return None;
        }
        if text.chars().any(char::is_control) {
            return Some("it holds a control character");
        }
        if text.contains('\\') {
            return Some("it holds a backslash");
        }
        let bytes = text.as_bytes();
        if bytes.len() > 1 && bytes[1] == b':' && bytes[0].is_ascii_alphabetic() {
            return Some("it begins with a drive letter");
        }
        text.split('/').find_map(|component| match component {
            "" => Some("it has an empty component"),
            "." | ".." => Some("it has a `.` or `..` component"),
            _ if is_dot_git(component) => Some("it goes into a .git folder"),
            _ => None,
        })
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The folders that it lies in, the outermost first.
    pub fn folders(&self) -> impl Iterator<Item = RelPath> {
        self.0
            .match_indices('/')
            .map(|(at, _)| RelPath(self.0[..at].to_owned()))
    }

    /// What `text`, a path or a part of one, is to a file system that folds case and the form of
    /// letters with accents (NFC, NFD): two names with the same result may be one file.
    pub fn folded(text: &str) -> String {
        if text.is_ascii() {
            return text.to_ascii_lowercase();
        }
        let form = icu_normalizer::DecomposingNormalizerBorrowed::new_nfd();
        // A letter that is made small may come apart anew.
        form.normalize(&form.normalize(text).to_lowercase())
            .into_owned()
    }

    /// The path below `root`. Only lexical: see [`RelPath::resolve`] before writing.
    pub fn below(&self, root: &Path) -> PathBuf {
        root.join(&self.0)
    }

    /// The path below `root`, refused where a component before the last is a symbolic link,
    /// or where the last one is: writing there could leave the tree.
    pub fn resolve(&self, root: &Path) -> Result<PathBuf> {
        Self::walk(root, &self.0)
    }

    /// The path below `root`, refused where a component before the last is a symbolic link. For
    /// removing or replacing what is there, which does not follow the last one.
    pub fn resolve_parent(&self, root: &Path) -> Result<PathBuf> {
        match self.0.rsplit_once('/') {
            Some((parent, name)) => Ok(Self::walk(root, parent)?.join(name)),
            None => Ok(self.below(root)),
        }
    }

    fn walk(root: &Path, below: &str) -> Result<PathBuf> {
        let mut path = root.to_path_buf();
        for component in below.split('/') {
            path.push(component);
            match std::fs::symlink_metadata(&path) {
                Ok(meta) if meta.file_type().is_symlink() => {
                    return Err(Error::finding(format!(
                        "{} is a symbolic link; refusing to write through it",
                        path.display()
                    ))
                    .hint("remove the link; the tree must hold plain files and folders"));
                }
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(path)
    }
}

/// Whether `text`, which does not begin with a slash, is nothing but letters, digits, `_`, and
/// single slashes, dots and hyphens between them: nearly all paths, and no fault is among them.
/// This runs for every file of a tree at every command, also in a build without optimisation.
fn is_plain(text: &str) -> bool {
    /// 0 for what is not plain, 1 for what may follow itself, 2 for what may not.
    static KINDS: [u8; 256] = {
        let mut kinds = [0; 256];
        let mut at = 0;
        while at < 256 {
            kinds[at] = match at as u8 {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' => 1,
                b'/' | b'.' | b'-' => 2,
                _ => 0,
            };
            at += 1;
        }
        kinds
    };
    let bytes = text.as_bytes();
    // As if a slash stood before and behind it.
    let (mut at, mut last) = (0, 2);
    while at < bytes.len() {
        let kind = KINDS[bytes[at] as usize];
        if kind == 0 || (kind == 2 && last == 2) {
            return false;
        }
        last = kind;
        at += 1;
    }
    last == 1
}

/// Whether a file system could take `component` for `.git`.
fn is_dot_git(component: &str) -> bool {
    // Nearly all components; this runs for every file of a tree at every command.
    if component.is_ascii() && !component.starts_with(['.', 'g', 'G']) {
        return false;
    }
    // Code points that HFS+ ignores when it compares names.
    let ignored = |c: char| matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}');
    let folded: String = component
        .chars()
        .filter(|c| !ignored(*c))
        .flat_map(char::to_lowercase)
        .collect();
    // NTFS: trailing dots and blanks vanish, `:` starts a stream name.
    let folded = folded.split(':').next().unwrap_or_default();
    matches!(folded.trim_end_matches(['.', ' ']), ".git" | "git~1")
}

impl fmt::Display for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for RelPath {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_paths_pass() {
        for path in [
            "a",
            "src/models/x.cpp",
            ".gitignore",
            "a/.github/b",
            "Ünï/ć",
            "a..b/c",
        ] {
            assert!(RelPath::new(path).is_ok(), "{path}");
        }
    }

    #[test]
    fn everything_that_could_leave_the_tree_is_refused() {
        for path in [
            "",
            "/",
            "/etc/passwd",
            "..",
            "a/../b",
            "a//b",
            "a/",
            "./a",
            "a/.",
            "a\0b",
            "a\nb",
            "a\\b",
            "C:/x",
            ".git",
            ".git/config",
            "sub/.git/hooks/x",
            ".GIT/x",
            ".Git",
            ".git./x",
            ".git /x",
            ".g\u{200c}it/config",
            "git~1/config",
            "GIT~1",
            ".git::$INDEX_ALLOCATION/x",
            "\u{feff}.git/x",
        ] {
            assert!(RelPath::new(path).is_err(), "{path:?}");
        }
    }

    #[test]
    fn what_is_plain_has_no_fault() {
        for plain in ["a", "src/models/x-1_y.cpp", "A/9/z.tar.gz"] {
            assert!(is_plain(plain), "{plain}");
        }
        for other in [
            "", "/a", "a/", "a//b", "./a", "a/.git", "a/..", "a..b", "a-", ".a", "a b", "git~1",
            "a\\b", "a\nb", "C:x", "ü",
        ] {
            assert!(!is_plain(other), "{other:?}");
        }
    }

    #[cfg(unix)]
    #[test]
    fn no_write_through_a_link_at_any_component() {
        let dir = tempfile::tempdir().unwrap();
        std::os::unix::fs::symlink("/tmp", dir.path().join("out")).unwrap();
        std::fs::create_dir(dir.path().join("in")).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", dir.path().join("in/file")).unwrap();
        let last = RelPath::new("in/file").unwrap();
        assert!(last.resolve_parent(dir.path()).is_ok());
        let through = RelPath::new("out/x").unwrap();
        assert!(through.resolve_parent(dir.path()).is_err());
        for path in ["out/x", "out", "in/file"] {
            let error = RelPath::new(path).unwrap().resolve(dir.path()).unwrap_err();
            assert!(error.to_string().contains("symbolic link"), "{error}");
        }
        assert!(
            RelPath::new("in/new/x")
                .unwrap()
                .resolve(dir.path())
                .is_ok()
        );
    }
}
