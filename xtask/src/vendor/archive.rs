//! Reading `.tar` and `.tar.gz` into an [`Unpacker`]; streamed, never held in memory.

use std::cell::Cell;
use std::io::Read;
use std::path::Path;
use std::rc::Rc;

use tar::EntryType;

use crate::ctx::{Cancel, Task};
use crate::error::{Error, Result, ResultExt};
use crate::vendor::unpack::{Exclude, Limits, Unpacker, refuse};

/// What one header with its extensions (long names, pax records) may take. They are read into
/// memory before we see the entry.
const HEADER_BYTES: u64 = 1 << 20;

/// What to take out of an archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct Selection<'a> {
    /// The folder inside the archive, without its top-level folder; empty for all.
    pub subdir: &'a str,
    /// What to leave out, relative to that folder.
    pub exclude: Exclude<'a>,
}

/// Unpacks the archive at `path` into the folder `root`, which must not exist.
pub(super) fn unpack(
    path: &Path,
    selection: Selection<'_>,
    root: &Path,
    limits: Limits,
    cancel: &Cancel,
    task: &dyn Task,
) -> Result<u64> {
    let mut file = fs_err::File::open(path)?;
    let packed = file.metadata()?.len();
    let mut magic = [0; 6];
    let got = read_up_to(&mut file, &mut magic)?;
    std::io::Seek::rewind(&mut file)?;
    let consumed = Rc::new(Cell::new(0));
    let counted = Counted {
        inner: std::io::BufReader::with_capacity(1 << 17, file),
        count: Rc::clone(&consumed),
    };
    let reader: Box<dyn Read> = match &magic[..got] {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(counted)),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => return Err(not_tar(path, "zstd")),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(not_tar(path, "xz")),
        [b'B', b'Z', b'h', ..] => return Err(not_tar(path, "bzip2")),
        [b'P', b'K', ..] => return Err(not_tar(path, "zip")),
        _ => Box::new(counted),
    };
    let progress = |files: u64| {
        task.progress(consumed.get() >> 20, packed >> 20);
        task.message(&format!("MiB, {files} files"));
    };
    let unpacker = Unpacker::new(root, cancel, limits)?;
    let files = entries(reader, selection, unpacker, limits, cancel, &progress)
        .context(|| format!("unpacking {}", path.display()))?;
    if files == 0 {
        return Err(Error::finding(format!(
            "{} holds nothing below {:?}",
            path.display(),
            selection.subdir
        )));
    }
    Ok(files)
}

fn not_tar(path: &Path, what: &str) -> Error {
    Error::environment(format!(
        "{} is a {what} file; only .tar and .tar.gz can be read",
        path.display()
    ))
    .hint("unpack it and name the folder as a `dir` source")
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> Result<usize> {
    let mut got = 0;
    while got < buffer.len() {
        match reader.read(&mut buffer[got..])? {
            0 => break,
            n => got += n,
        }
    }
    Ok(got)
}

fn entries(
    reader: Box<dyn Read>,
    selection: Selection<'_>,
    mut unpacker: Unpacker<'_>,
    limits: Limits,
    cancel: &Cancel,
    progress: &dyn Fn(u64),
) -> Result<u64> {
    let allowance = Rc::new(Cell::new(HEADER_BYTES));
    let metered = Metered {
        inner: reader,
        allowance: Rc::clone(&allowance),
    };
    let mut archive = tar::Archive::new(metered);
    let mut total: u64 = 0;
    let mut top: Option<String> = None;
    for (at, entry) in (0..).zip(archive.entries()?) {
        let mut entry = entry.map_err(broken)?;
        if at >= limits.entries {
            return Err(Error::finding(format!(
                "the archive has more than {} entries",
                limits.entries
            )));
        }
        if at % 64 == 0 {
            progress(unpacker.files());
        }
        let size = entry.size();
        total = total.saturating_add(size);
        if total > limits.total {
            return Err(Error::finding(format!(
                "the archive has more than {} bytes unpacked",
                limits.total
            )));
        }
        // Content and its padding may be read now, then one more header.
        allowance.set(size.saturating_add(HEADER_BYTES));
        one(&mut entry, selection, &mut unpacker, &mut top)?;
        // Read to its end here, so that finding the next header reads little.
        drain(&mut entry, cancel)?;
        allowance.set(HEADER_BYTES);
    }
    progress(unpacker.files());
    Ok(unpacker.files())
}

fn broken(error: std::io::Error) -> Error {
    Error::finding(format!("the archive is broken: {error}"))
}

fn drain(entry: &mut impl Read, cancel: &Cancel) -> Result<()> {
    loop {
        cancel.check()?;
        let mut piece = entry.by_ref().take(1 << 20);
        if std::io::copy(&mut piece, &mut std::io::sink()).map_err(broken)? == 0 {
            return Ok(());
        }
    }
}

fn one<R: Read>(
    entry: &mut tar::Entry<'_, R>,
    selection: Selection<'_>,
    unpacker: &mut Unpacker<'_>,
    top: &mut Option<String>,
) -> Result<()> {
    let kind = entry.header().entry_type();
    if kind == EntryType::XGlobalHeader {
        return Ok(());
    }
    let raw = entry.path_bytes().into_owned();
    let Ok(raw) = String::from_utf8(raw) else {
        let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
        return Err(refuse(&shown, "its name is not UTF-8"));
    };
    let Some(path) = inside(&raw, selection.subdir, top)? else {
        return Ok(());
    };
    match kind {
        EntryType::Directory => {
            if path.is_empty() || selection.exclude.folder(path) {
                return Ok(());
            }
            unpacker.folder(path)
        }
        _ if path.is_empty() => Err(refuse(
            &raw,
            "it lies outside of the archive's top-level folder, or where that folder should be",
        )),
        _ if selection.exclude.file(path) => Ok(()),
        EntryType::Regular | EntryType::Continuous => {
            let mode = entry.header().mode().map_err(broken)?;
            let size = entry.size();
            unpacker.file(path, mode & 0o100 != 0, size, entry)
        }
        EntryType::Symlink => {
            let target = entry.link_name_bytes().unwrap_or_default().into_owned();
            let Ok(target) = String::from_utf8(target) else {
                return Err(refuse(path, "it is a link whose target is not UTF-8"));
            };
            unpacker.link(path, &target)
        }
        EntryType::Link => Err(refuse(path, "it is a hard link")),
        EntryType::Block | EntryType::Char => Err(refuse(path, "it is a device")),
        EntryType::Fifo => Err(refuse(path, "it is a named pipe")),
        other => Err(refuse(
            path,
            &format!(
                "it is of kind {:?}, not a file",
                char::from(other.as_byte())
            ),
        )),
    }
}

/// The path below the top-level folder and `subdir`; nothing for what lies elsewhere. A path
/// that could point out of the archive is refused wherever it seems to lie, so that none is
/// skipped for its spelling.
fn inside<'p>(raw: &'p str, subdir: &str, top: &mut Option<String>) -> Result<Option<&'p str>> {
    if raw.starts_with('/') {
        return Err(refuse(raw, "it is absolute"));
    }
    let path = raw.strip_prefix("./").unwrap_or(raw);
    let path = path.strip_suffix('/').unwrap_or(path);
    if path.split('/').any(|component| component == "..") {
        return Err(refuse(raw, "it has a `..` component"));
    }
    if path.is_empty() || path == "." {
        return Ok(None);
    }
    let (first, rest) = path.split_once('/').unwrap_or((path, ""));
    if top.get_or_insert_with(|| first.to_owned()) != first {
        return Err(refuse(
            raw,
            "the archive has more than one top-level folder",
        ));
    }
    if subdir.is_empty() {
        return Ok(Some(rest));
    }
    match rest.strip_prefix(subdir) {
        Some("") => Ok(Some("")),
        Some(below) => Ok(below.strip_prefix('/')),
        None => Ok(None),
    }
}

/// Counts what was read.
struct Counted<R> {
    inner: R,
    count: Rc<Cell<u64>>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let got = self.inner.read(buffer)?;
        self.count.set(self.count.get() + got as u64);
        Ok(got)
    }
}

/// Fails once more is read than allowed, so that an archive cannot fill the memory with one
/// endless name.
struct Metered<R> {
    inner: R,
    allowance: Rc<Cell<u64>>,
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let allowed = self.allowance.get();
        if allowed == 0 && !buffer.is_empty() {
            return Err(std::io::Error::other("a header without end"));
        }
        let want = usize::try_from(allowed)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        let got = self.inner.read(&mut buffer[..want])?;
        self.allowance.set(allowed - got as u64);
        Ok(got)
    }
}

#[cfg(test)]
mod tests;
