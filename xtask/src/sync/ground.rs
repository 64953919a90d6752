//! What hooks stand on: a base with the patches so far, its files, and what they define.

use std::cell::{OnceCell, RefCell};
use std::collections::{BTreeMap, HashMap};
use std::ops::Range;
use std::rc::Rc;

use crate::diff::lines_of;
use crate::error::Result;
use crate::patchset::pristine_image;
use crate::symbols::{Outline, Symbol, SymbolKind};
use crate::sync::edit::{Edit, with_edits};
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
    outline: Rc<Outline>,
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
            outline: Rc::new(outline),
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
    pub fn named<'s>(&'s self, name: &str) -> impl Iterator<Item = &'s Anchor> {
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
    read: RefCell<HashMap<RelPath, Rc<Source>>>,
    /// The sources that the other base has otherwise or not at all; read when first searched.
    texts: OnceCell<Vec<(RelPath, Vec<u8>)>>,
}

impl<'a> Ground<'a> {
    /// The base alone.
    pub fn new(pristine: &'a Pristine) -> Self {
        Ground {
            pristine,
            changed: BTreeMap::new(),
            read: RefCell::new(HashMap::new()),
            texts: OnceCell::new(),
        }
    }

    /// A file as it is now.
    pub fn source(&self, path: &RelPath) -> Result<Option<Rc<Source>>> {
        if let Some(source) = self.changed.get(path) {
            return Ok(Some(source.clone()));
        }
        if let Some(source) = self.read.borrow().get(path) {
            return Ok(Some(source.clone()));
        }
        let Some(image) = pristine_image(self.pristine, path)? else {
            return Ok(None);
        };
        let source = Rc::new(Source::read(path, image.content));
        self.read.borrow_mut().insert(path.clone(), source.clone());
        Ok(Some(source))
    }

    /// Changes a file. Its functions stay what they are, at other lines: a hook adds none that
    /// another one could mean.
    pub fn edit(&mut self, path: &RelPath, edits: &[Edit]) -> Result<()> {
        let Some(before) = self.source(path)? else {
            return Ok(());
        };
        let content = with_edits(&before.content, edits)?;
        // What an edit before `line` makes of it; `also` counts one that begins right there.
        let shift = |line: usize, also: bool| {
            let before = |edit: &&Edit| edit.from < line || (also && edit.from == line);
            edits.iter().filter(before).fold(line, |moved, edit| {
                let gone = edit.to.min(line) - edit.from.min(line);
                moved + lines_of(&edit.text).len() - gone
            })
        };
        let anchors = before
            .anchors
            .iter()
            .map(|anchor| Anchor {
                lines: shift(anchor.lines.start, true)..shift(anchor.lines.end, false),
                ..anchor.clone()
            })
            // What was deleted with its first and its last line is no place any more.
            .filter(|anchor| anchor.lines.start < anchor.lines.end)
            .collect();
        let source = Source {
            content,
            anchors,
            outline: before.outline.clone(),
        };
        self.changed.insert(path.clone(), Rc::new(source));
        Ok(())
    }

    /// Changed source files, other than `path`, that hold `needle`; `other` is the base that they
    /// are compared with.
    pub fn changed_with(
        &self,
        other: &Ground<'_>,
        path: &RelPath,
        needle: &[u8],
    ) -> Result<Vec<(RelPath, Rc<Source>)>> {
        if needle.is_empty() {
            return Ok(Vec::new());
        }
        let texts = match self.texts.get() {
            Some(texts) => texts,
            None => {
                let texts = self.read_changed(other)?;
                self.texts.get_or_init(|| texts)
            }
        };
        let finder = memchr::memmem::Finder::new(needle);
        let mut found = Vec::new();
        for (there, text) in texts {
            if there != path
                && finder.find(text).is_some()
                && let Some(source) = self.source(there)?
            {
                found.push((there.clone(), source));
            }
        }
        Ok(found)
    }

    fn read_changed(&self, other: &Ground<'_>) -> Result<Vec<(RelPath, Vec<u8>)>> {
        let mut texts = Vec::new();
        for (path, entry) in self.pristine.manifest.iter() {
            let there = other.pristine.manifest.get(path);
            if is_source(path) && there.is_none_or(|other| other.sha256 != entry.sha256) {
                texts.push((path.clone(), fs_err::read(path.below(&self.pristine.root))?));
            }
        }
        Ok(texts)
    }

    /// Makes `content` what the file is from now on.
    pub fn put(&mut self, path: &RelPath, content: Vec<u8>) {
        let source = Source::read(path, content);
        self.changed.insert(path.clone(), Rc::new(source));
    }

    /// Whether there is such a file.
    pub fn has(&self, path: &RelPath) -> bool {
        self.changed.contains_key(path) || self.pristine.manifest.get(path).is_some()
    }
}

/// Whether it is C or C++, or one of its kin: what functions can go to.
fn is_source(path: &RelPath) -> bool {
    Outline::reads_c(path)
}

/// What stands behind the last dot of the file's name.
pub(super) fn extension(path: &RelPath) -> &str {
    let name = path.as_str().rsplit('/').next().unwrap_or_default();
    name.rsplit_once('.').map_or("", |(_, extension)| extension)
}
