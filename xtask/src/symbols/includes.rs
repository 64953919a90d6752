//! Which headers of a tree a file reaches.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;
use std::sync::Mutex;

use crate::error::Result;
use crate::model::Digest;
use crate::tree::{Blob, RelPath, TreeManifest};

/// A tree whose files can be listed, told apart and read.
pub trait Sources: Sync {
    /// All paths.
    fn paths(&self) -> Vec<RelPath>;
    /// The digest of a file; nothing where it is not there.
    fn digest(&self, path: &RelPath) -> Option<Digest>;
    /// The content of a file; nothing where it is not there.
    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>>;
}

/// A tree on disk with its manifest.
#[derive(Clone, Copy, Debug)]
pub struct Folder<'a> {
    /// Where it lies.
    pub root: &'a Path,
    /// What is in it. Nothing else is read.
    pub manifest: &'a TreeManifest,
}

impl Sources for Folder<'_> {
    fn paths(&self) -> Vec<RelPath> {
        self.manifest.iter().map(|(path, _)| path.clone()).collect()
    }

    fn digest(&self, path: &RelPath) -> Option<Digest> {
        self.manifest.get(path).map(|entry| entry.sha256)
    }

    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        if self.manifest.get(path).is_none() {
            return Ok(None);
        }
        Ok(Some(fs_err::read(path.below(self.root))?))
    }
}

impl Sources for BTreeMap<RelPath, Blob> {
    fn paths(&self) -> Vec<RelPath> {
        self.keys().cloned().collect()
    }

    fn digest(&self, path: &RelPath) -> Option<Digest> {
        self.get(path).map(|blob| Digest::of(&blob.content))
    }

    fn read(&self, path: &RelPath) -> Result<Option<Vec<u8>>> {
        Ok(self.get(path).map(|blob| blob.content.clone()))
    }
}

/// The paths that `text` includes, with `"` or `<` alike, in its order. All branches count.
pub fn includes(text: &[u8]) -> Vec<String> {
    let mut found = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let Some(rest) = line.trim_ascii_start().strip_prefix(b"#") else {
            continue;
        };
        let Some(rest) = rest.trim_ascii_start().strip_prefix(b"include") else {
            continue;
        };
        let rest = rest.trim_ascii_start();
        let close = match rest.first() {
            Some(b'"') => b'"',
            Some(b'<') => b'>',
            _ => continue,
        };
        let Some(end) = rest[1..].iter().position(|byte| *byte == close) else {
            continue;
        };
        if let Ok(path) = std::str::from_utf8(&rest[1..=end]) {
            found.push(path.to_owned());
        }
    }
    found
}

/// Where headers lie that are included by their name alone, the likeliest first.
const FOLDERS: [&str; 9] = [
    "include/",
    "ggml/include/",
    "src/",
    "common/",
    "ggml/src/",
    "tools/mtmd/",
    "tools/server/",
    "vendor/",
    "",
];

/// The headers of one tree, looked up by the text of an include.
pub struct Headers<'s> {
    sources: &'s dyn Sources,
    /// By the last component, so that a suffix is found without a look at all paths.
    by_name: HashMap<String, Vec<RelPath>>,
    /// Files that are not in the tree, but would be with the patches.
    extra: BTreeMap<RelPath, Vec<u8>>,
    read: Mutex<HashMap<RelPath, Vec<String>>>,
}

impl<'s> Headers<'s> {
    /// The headers of `sources`, and of `extra` files that do not lie in it.
    pub fn new(sources: &'s dyn Sources, extra: BTreeMap<RelPath, Vec<u8>>) -> Self {
        let mut by_name: HashMap<String, Vec<RelPath>> = HashMap::new();
        for path in sources.paths().into_iter().chain(extra.keys().cloned()) {
            let name = path.as_str().rsplit('/').next().unwrap_or_default();
            by_name.entry(name.to_owned()).or_default().push(path);
        }
        Headers {
            sources,
            by_name,
            extra,
            read: Mutex::default(),
        }
    }

    /// The file that `include` means in `from`: beside it, else in one of the usual folders, else
    /// the only one whose path ends so. Nothing for headers of the system, and where several fit.
    pub fn resolve(&self, from: &RelPath, include: &str) -> Option<RelPath> {
        let name = include.rsplit('/').next().unwrap_or(include);
        let candidates = self.by_name.get(name)?;
        let has = |path: &str| candidates.iter().find(|c| c.as_str() == path).cloned();
        let folder = from.as_str().rsplit_once('/').map_or("", |(dir, _)| dir);
        if let Some(path) = lexical(folder, include).and_then(|path| has(&path)) {
            return Some(path);
        }
        let plain = include.trim_start_matches("./").trim_start_matches("../");
        if let Some(path) = FOLDERS
            .iter()
            .find_map(|folder| has(&format!("{folder}{plain}")))
        {
            return Some(path);
        }
        let suffix = format!("/{plain}");
        let mut fitting = candidates.iter().filter(|c| c.as_str().ends_with(&suffix));
        let only = fitting.next()?;
        fitting.next().is_none().then(|| only.clone())
    }

    /// The file and every header of the tree that it includes, directly or not. The file itself
    /// is part of it where it is there.
    pub fn closure(&self, file: &RelPath) -> Result<BTreeSet<RelPath>> {
        let mut seen = BTreeSet::new();
        let mut todo = vec![file.clone()];
        while let Some(path) = todo.pop() {
            if seen.contains(&path) {
                continue;
            }
            let Some(list) = self.includes_of(&path)? else {
                continue;
            };
            todo.extend(list.iter().filter_map(|to| self.resolve(&path, to)));
            seen.insert(path);
        }
        Ok(seen)
    }

    fn includes_of(&self, path: &RelPath) -> Result<Option<Vec<String>>> {
        let known = |read: &HashMap<RelPath, Vec<String>>| read.get(path).cloned();
        if let Ok(read) = self.read.lock()
            && let Some(list) = known(&read)
        {
            return Ok(Some(list));
        }
        let text = match self.extra.get(path) {
            Some(text) => Some(text.clone()),
            None => self.sources.read(path)?,
        };
        let Some(text) = text else { return Ok(None) };
        let list = includes(&text);
        if let Ok(mut read) = self.read.lock() {
            read.insert(path.clone(), list.clone());
        }
        Ok(Some(list))
    }
}

/// `include` seen from the folder `from`; nothing where it leads out of the tree.
fn lexical(from: &str, include: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').filter(|part| !part.is_empty()).collect();
    for part in include.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}
