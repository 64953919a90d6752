//! Contents as values: a file with its kind, and where files are found.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::tree::{FileMode, RelPath};

/// One file: its bytes and its kind. The bytes of a symbolic link are its target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The bytes, or the target of a link.
    pub content: Vec<u8>,
    /// The kind.
    pub mode: FileMode,
}

impl Blob {
    /// A plain file.
    pub fn plain(content: impl Into<Vec<u8>>) -> Self {
        Blob {
            content: content.into(),
            mode: FileMode::Plain,
        }
    }

    /// A file of the kind `mode`.
    pub fn new(content: impl Into<Vec<u8>>, mode: FileMode) -> Self {
        Blob {
            content: content.into(),
            mode,
        }
    }
}

/// Something that holds files and can be asked for them, on disk or in memory.
pub trait Files {
    /// The file at `path`; absent where there is none, also where there is a folder.
    fn file(&self, path: &RelPath) -> Result<Option<Blob>>;

    /// All files below the folder `path`; none where there is no such folder.
    fn below(&self, path: &RelPath) -> Result<Vec<RelPath>>;
}

impl Files for BTreeMap<RelPath, Blob> {
    fn file(&self, path: &RelPath) -> Result<Option<Blob>> {
        Ok(self.get(path).cloned())
    }

    fn below(&self, path: &RelPath) -> Result<Vec<RelPath>> {
        let prefix = format!("{path}/");
        // `.`, `-` and others sort before `/`: between a folder's name and its files may stand
        // files beside it.
        Ok(self
            .range(path..)
            .map(|(at, _)| at)
            .take_while(|at| at.as_str().starts_with(path.as_str()))
            .filter(|at| at.as_str().starts_with(&prefix))
            .cloned()
            .collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_holds_what_is_below_it_only() {
        let path = |text: &str| RelPath::new(text).unwrap();
        let names = ["a", "a-b", "a.c", "a/x", "a/y/z", "ab/x", "b"];
        let files: BTreeMap<RelPath, Blob> = names
            .iter()
            .map(|name| (path(name), Blob::plain("")))
            .collect();
        assert_eq!(
            files.below(&path("a")).unwrap(),
            [path("a/x"), path("a/y/z")]
        );
        assert!(files.below(&path("b")).unwrap().is_empty());
    }
}
