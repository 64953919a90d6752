//! What a series makes of each file, by its digests, remembered beside the working tree.
//!
//! Reading a thousand patch folders and applying all of it in memory takes longer than looking
//! whether anything of it changed. So `<tree>/.patchset/series` keeps what came of it, together
//! with the stamps of all that was read: patches and their folders, declared inputs, the hooked
//! files of the base, this program itself; and a digest of the registry. Where one of them is
//! another, or the file is damaged, nothing is remembered and all is read.
//!
//! Only for telling what is there, and that there is nothing to do. It holds digests and no
//! contents: nothing is ever written from it. `verify`, `build` and the gates do not read it.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use crate::ctx::Ctx;
use crate::model::{Base, Digest};
use crate::patchset::status::{PatchState, STATE_DIR, Traces};
use crate::patchset::{Image, Images, Series};
use crate::tree::{Entry, FileMode, Footprint, Moment, RelPath, own_stamp};
use crate::vendor::{self, Pristine};

/// First bytes of the file; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"lpseries";
const VERSION: u32 = 1;

/// What came of a series that applies without a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Memory {
    /// The patch-set id.
    pub id: Digest,
    /// Of each patch its id and title, in order.
    pub patches: Vec<(String, String)>,
    files: BTreeMap<RelPath, Trace>,
    /// What was read of the checkout.
    checkout: Footprint,
    /// What was read of the base.
    base: Footprint,
}

/// One file through the series.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Trace {
    pristine: Option<Entry>,
    /// Index of the patch, and the file after it.
    steps: Vec<(usize, Entry)>,
}

/// `<tree>/.patchset/series`.
fn place(root: &Path) -> PathBuf {
    root.join(STATE_DIR).join("series")
}

/// A moment before the series was read, and what it was read for.
pub(super) struct Begun {
    moment: Moment,
    key: Digest,
}

/// Before the series is read. None where there is no tree to remember anything in. The caller
/// holds a lock of the checkout.
pub(super) fn begin(ctx: &Ctx, base: &Base) -> Option<Begun> {
    let root = ctx.project.working_tree(&base.id);
    Some(Begun {
        moment: Moment::take(&root.join(STATE_DIR))?,
        key: key(ctx, base)?,
    })
}

/// What the memory is good for: this program, base and registry. None where one cannot be read.
fn key(ctx: &Ctx, base: &Base) -> Option<Digest> {
    let registry = |name: &str| std::fs::read(ctx.project.registry(name)).ok();
    Some(Digest::of_parts([
        own_stamp()?.bytes().as_slice(),
        base.id.as_bytes(),
        base.tree.bytes(),
        &registry("upstreams.toml")?,
        &registry("series.toml")?,
    ]))
}

/// The base, and what is remembered for the tree at `root`. None where any of what it came from
/// has changed, or where the base is not here.
pub(super) fn recall(ctx: &Ctx, base: &Base, root: &Path) -> Option<(Pristine, Memory)> {
    let remembered = || {
        let bytes = std::fs::read(place(root)).ok()?;
        let memory = Memory::parse(&bytes, &key(ctx, base)?)?;
        let is_unchanged = memory.checkout.is_unchanged(ctx.project.root());
        is_unchanged.then_some(memory)
    };
    let recorded = || vendor::recorded(ctx, base).ok().flatten();
    let (memory, pristine) = rayon::join(remembered, recorded);
    let (memory, pristine) = (memory?, pristine?);
    let is_unchanged = memory.base.is_unchanged(&pristine.root);
    is_unchanged.then_some((pristine, memory))
}

impl Memory {
    /// What came of a series that was read after `moment`. None where some of it was changed so
    /// shortly before, or after, that it may be something else than what was read.
    fn of(
        ctx: &Ctx,
        moment: &Moment,
        pristine: &Pristine,
        series: &Series,
        images: &Images,
    ) -> Option<Memory> {
        let folder = |patch: &str| format!("patches/{patch}");
        let mut tops: Vec<String> = series.ids().iter().map(|id| folder(id)).collect();
        let inputs = series
            .patches
            .iter()
            .flat_map(|patch| &patch.manifest.inputs);
        tops.extend(inputs.map(|input| input.trim_end_matches('/').to_owned()));
        let checkout = Footprint::take(ctx.project.root(), &tops, moment)?;
        let hooked = images
            .paths()
            .filter(|path| images.pristine(path).is_some());
        let hooked = hooked.map(ToString::to_string).collect();
        let base = Footprint::of_files(&pristine.root, hooked, moment)?;
        let paths: Vec<&RelPath> = images.paths().collect();
        let files = paths.into_par_iter().map(|path| {
            let steps = images.steps(path).iter();
            let trace = Trace {
                pristine: images.pristine(path).map(Image::entry),
                steps: steps.map(|step| (step.patch, step.image.entry())).collect(),
            };
            (path.clone(), trace)
        });
        let files: Vec<_> = files.collect();
        let named = |patch: &super::Patch| (patch.id().to_owned(), patch.manifest.title.clone());
        Some(Memory {
            id: series.id,
            patches: series.patches.iter().map(named).collect(),
            files: files.into_iter().collect(),
            checkout,
            base,
        })
    }

    /// Remembers what came of a series without a fault. A failure costs time only, and is none.
    /// The caller holds a lock of the checkout.
    pub fn keep(ctx: &Ctx, begun: &Begun, pristine: &Pristine, series: &Series, images: &Images) {
        let file = place(&ctx.project.working_tree(&pristine.base.id));
        if let Some(memory) = Memory::of(ctx, &begun.moment, pristine, series, images)
            && let Some(dir) = file.parent()
            && let Ok(mut temp) = tempfile::Builder::new().prefix(".tmp-").tempfile_in(dir)
            && temp.write_all(&memory.bytes(&begun.key)).is_ok()
        {
            // Not flushed: a file that a crash left half written is told by its digest.
            let _ = temp.persist(file);
        }
    }

    fn bytes(&self, key: &Digest) -> Vec<u8> {
        let mut out = Writer(MAGIC.to_vec());
        out.number(VERSION as usize);
        out.digest(key);
        out.digest(&self.id);
        out.number(self.patches.len());
        for (id, title) in &self.patches {
            out.text(id);
            out.text(title);
        }
        for footprint in [&self.checkout, &self.base] {
            out.digest(&footprint.stamps);
            out.number(footprint.paths.len());
            footprint.paths.iter().for_each(|path| out.text(path));
        }
        out.number(self.files.len());
        for (path, trace) in &self.files {
            out.text(path.as_str());
            out.number(trace.steps.len());
            out.entry(trace.pristine);
            for (patch, entry) in &trace.steps {
                out.number(*patch);
                out.entry(Some(*entry));
            }
        }
        let sum = Digest::of(&out.0);
        out.digest(&sum);
        out.0
    }

    fn parse(bytes: &[u8], key: &Digest) -> Option<Memory> {
        let (body, sum) = bytes.split_last_chunk::<32>()?;
        let mut from = Reader(body.strip_prefix(MAGIC)?);
        if from.number()? != VERSION as usize || from.digest()? != *key {
            return None;
        }
        if Digest::of(body).bytes() != sum {
            return None;
        }
        let id = from.digest()?;
        let patches = from.list(|from| Some((from.text()?, from.text()?)))?;
        let mut footprint = || {
            let stamps = from.digest()?;
            let paths = from.list(Reader::text)?;
            Some(Footprint { paths, stamps })
        };
        let (checkout, base) = (footprint()?, footprint()?);
        let files = from.list(|from| {
            let path = RelPath::new(from.text()?).ok()?;
            let steps = from.number()?;
            let pristine = from.entry()?;
            let step = |from: &mut Reader<'_>| {
                let patch = from.number().filter(|patch| *patch < patches.len())?;
                Some((patch, from.entry()??))
            };
            let steps = (0..steps).map(|_| step(from)).collect::<Option<_>>()?;
            Some((path, Trace { pristine, steps }))
        })?;
        from.0.is_empty().then_some(Memory {
            id,
            patches,
            files: files.into_iter().collect(),
            checkout,
            base,
        })
    }
}

impl Traces for Memory {
    fn ids(&self) -> Vec<String> {
        self.patches.iter().map(|(id, _)| id.clone()).collect()
    }

    fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.files.keys()
    }

    fn patches_of(&self, path: &RelPath) -> impl Iterator<Item = usize> {
        let steps = self.files.get(path).map_or(&[][..], |trace| &trace.steps);
        steps.iter().map(|(patch, _)| *patch)
    }

    fn pristine(&self, path: &RelPath) -> Option<Entry> {
        self.files.get(path)?.pristine
    }

    fn at(&self, path: &RelPath, count: usize) -> Option<Entry> {
        let trace = self.files.get(path)?;
        let last = trace.steps.iter().rev().find(|(patch, _)| *patch < count);
        last.map(|(_, entry)| *entry).or(trace.pristine)
    }

    fn place(&self, path: &RelPath, entry: Option<Entry>) -> Option<usize> {
        let trace = self.files.get(path)?;
        let steps = trace.steps.iter();
        let last = steps.rev().position(|(_, step)| Some(*step) == entry);
        let last = last.map(|from_end| trace.steps.len() - from_end);
        last.or((entry == trace.pristine).then_some(0))
    }

    fn upstreamed(&self, _: usize) -> Option<PatchState> {
        // Only a series without a fault is remembered.
        None
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: usize) {
        self.0.extend((number as u64).to_le_bytes());
    }

    fn text(&mut self, text: &str) {
        self.number(text.len());
        self.0.extend(text.as_bytes());
    }

    fn digest(&mut self, digest: &Digest) {
        self.0.extend(digest.bytes());
    }

    fn entry(&mut self, entry: Option<Entry>) {
        self.0.push(match entry.map(|entry| entry.mode) {
            None => 0,
            Some(FileMode::Plain) => 1,
            Some(FileMode::Executable) => 2,
            Some(FileMode::Link) => 3,
        });
        if let Some(entry) = entry {
            self.digest(&entry.sha256);
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    fn number(&mut self) -> Option<usize> {
        usize::try_from(u64::from_le_bytes(self.bytes()?)).ok()
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()?;
        let (text, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(std::str::from_utf8(text).ok()?.to_owned())
    }

    fn digest(&mut self) -> Option<Digest> {
        Some(Digest::from_bytes(self.bytes()?))
    }

    fn entry(&mut self) -> Option<Option<Entry>> {
        let mode = match self.bytes::<1>()? {
            [0] => return Some(None),
            [1] => FileMode::Plain,
            [2] => FileMode::Executable,
            [3] => FileMode::Link,
            _ => return None,
        };
        let sha256 = self.digest()?;
        Some(Some(Entry { mode, sha256 }))
    }

    /// Items behind their number. Each has at least one byte, so that a wrong number ends soon.
    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| item(self)).collect()
    }
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
