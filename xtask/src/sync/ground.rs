//! What hooks stand on: a base with the patches so far, its files, and what they define.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

use crate::error::Result;
use crate::model::Digest;
use crate::patchset::pristine_image;
use crate::symbols::{Outline, Symbol, SymbolKind};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// A function or type, as far as placing hooks needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// Qualified name: `llama_context::process_ubatch`.
    pub name: String,
    /// Its declaration, in one line.
    pub signature: String,
    /// Its lines, from 0, body and all.
    pub lines: Range<usize>,
}

/// A file with what it defines.
#[derive(Clone, Debug)]
pub struct Source {
    /// Its bytes.
    pub content: Vec<u8>,
    /// Its functions and types, in file order.
    pub anchors: Vec<Anchor>,
    outline: Outline,
}

impl Source {
    fn read(path: &RelPath, content: Vec<u8>) -> Source {
        let outline = Outline::of(path, &content);
        let stands_around = |symbol: &&Symbol| {
            symbol.body.is_some()
                || matches!(
                    symbol.kind,
                    SymbolKind::CmakeFunction | SymbolKind::CmakeMacro
                )
        };
        let anchors = outline
            .symbols
            .iter()
            .filter(stands_around)
            .filter(|symbol| symbol.kind != SymbolKind::Namespace)
            .map(|symbol| Anchor {
                name: symbol.qualified(),
                signature: symbol.tight(),
                lines: symbol.lines.start - 1..symbol.lines.end - 1,
            })
            .collect();
        Source {
            content,
            anchors,
            outline,
        }
    }

    /// The innermost anchor around the gap before line `at` (from 0).
    pub fn around(&self, at: usize) -> Option<&Anchor> {
        self.anchors
            .iter()
            .filter(|anchor| anchor.lines.start < at && at < anchor.lines.end)
            .min_by_key(|anchor| anchor.lines.len())
    }

    /// Whether it declares `name`, qualified or not.
    pub fn defines(&self, name: &str) -> bool {
        self.outline
            .symbols
            .iter()
            .any(|symbol| symbol.name == name || symbol.qualified() == name)
    }

    /// All anchors with this qualified name.
    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Anchor> {
        self.anchors
            .iter()
            .filter(move |anchor| anchor.name == name)
    }
}

/// A base with some patches on it.
pub struct Ground<'a> {
    /// The base.
    pub pristine: &'a Pristine,
    changed: BTreeMap<RelPath, Rc<Source>>,
    read: RefCell<HashMap<Digest, Rc<Source>>>,
}

impl<'a> Ground<'a> {
    /// The base alone.
    pub fn new(pristine: &'a Pristine) -> Self {
        Ground {
            pristine,
            changed: BTreeMap::new(),
            read: RefCell::new(HashMap::new()),
        }
    }

    /// A file as it is now.
    pub fn source(&self, path: &RelPath) -> Result<Option<Rc<Source>>> {
        if let Some(source) = self.changed.get(path) {
            return Ok(Some(source.clone()));
        }
        match self.pristine.manifest.get(path) {
            Some(entry) => {
                if let Some(source) = self.read.borrow().get(&entry.sha256) {
                    return Ok(Some(source.clone()));
                }
            }
            None => return Ok(None),
        }
        let Some(image) = pristine_image(self.pristine, path)? else {
            return Ok(None);
        };
        let source = Rc::new(Source::read(path, image.content));
        self.read.borrow_mut().insert(image.sha256, source.clone());
        Ok(Some(source))
    }

    /// A content that is not this base's own, with what it defines.
    pub fn outside(&self, path: &RelPath, content: &[u8]) -> Rc<Source> {
        let digest = Digest::of(content);
        if let Some(source) = self.read.borrow().get(&digest) {
            return source.clone();
        }
        let source = Rc::new(Source::read(path, content.to_vec()));
        self.read.borrow_mut().insert(digest, source.clone());
        source
    }

    /// Makes `content` what the file is from now on.
    pub fn put(&mut self, path: &RelPath, content: Vec<u8>) {
        let source = self.outside(path, &content);
        self.changed.insert(path.clone(), source);
    }

    /// Whether there is such a file.
    pub fn has(&self, path: &RelPath) -> bool {
        self.changed.contains_key(path) || self.pristine.manifest.get(path).is_some()
    }
}
