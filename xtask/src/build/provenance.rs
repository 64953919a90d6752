//! The stamp in built files: where they come from, in a section of their own.
//!
//! The section is appended to what the linker made: the stamp's bytes, a new table of section names,
//! a new table of sections. But for where that table is, nothing of the file changes, so nothing that
//! is loaded does, and the file can be taken back to the linker's bytes exactly. That is what makes
//! the stamp a proof: it names the digest of those bytes, and the whole file must be what stamping
//! them gives. A byte more, less or other, wherever it is, is found.
//!
//! It is no signature. Who can build can stamp.

use std::path::Path;

use crate::error::{Error, Result, ResultExt};
use crate::model::{Digest, Provenance};
use elf::Header;

mod elf;

/// Name of the section.
pub const SECTION: &str = ".llama-patchset";
/// Begins the section's content.
const MAGIC: &[u8; 16] = b"LLAMA-PATCHSET-1";
/// Magic, then of the linker's file: length, place of the section table, number of sections, which of
/// them holds the names; then the digest of the text that follows.
const HEAD: usize = 16 + 8 + 8 + 2 + 2 + 32;

/// What can be said of a file's stamp.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// It is no file that can carry one: no ELF of 64 bits, low byte first.
    NotElf,
    /// It carries none.
    None,
    /// It carries one that holds.
    Sound(Box<Provenance>),
    /// It carries one, and is not what was stamped; or the stamp cannot be read.
    Broken(String),
}

/// Reads and checks the stamp of `path`.
pub fn read(path: &Path) -> Result<Stamp> {
    let bytes = fs_err::read(path)?;
    Ok(examine(&bytes))
}

/// Reads and checks the stamp of a file's bytes.
pub fn examine(bytes: &[u8]) -> Stamp {
    let Some(header) = Header::read(bytes) else {
        return Stamp::NotElf;
    };
    let found = match header.section(bytes, SECTION) {
        Ok(Some(found)) => found,
        Ok(None) => return Stamp::None,
        Err(what) => return Stamp::Broken(what),
    };
    match sound(bytes, found) {
        Ok(stamp) => Stamp::Sound(Box::new(stamp)),
        Err(what) => Stamp::Broken(what),
    }
}

/// The stamp in the section's content `found`, if stamping the linker's bytes gives `bytes`.
fn sound(bytes: &[u8], found: &[u8]) -> std::result::Result<Provenance, String> {
    let text = found
        .get(HEAD..)
        .filter(|_| found.starts_with(MAGIC))
        .ok_or("its stamp is cut off, or of another form")?;
    if found[HEAD - 32..HEAD] != *Digest::of(text).bytes() {
        return Err("its stamp was edited".to_owned());
    }
    let stamp: Provenance = serde_json::from_slice(text)
        .map_err(|error| format!("its stamp cannot be read: {error}"))?;
    let plain = strip(bytes).ok_or("its stamp does not say where the linker's bytes end")?;
    let content = Digest::of(&plain);
    if content != stamp.content {
        return Err(format!(
            "its content has sha256 {content}, and its stamp says {}",
            stamp.content
        ));
    }
    match append(&plain, &stamp) {
        Some(again) if again == bytes => Ok(stamp),
        _ => Err(
            "it was changed after it was stamped: stamping its content again gives another file"
                .to_owned(),
        ),
    }
}

/// The linker's bytes of a file: as they are where it carries no stamp.
pub fn plain(bytes: &[u8]) -> Vec<u8> {
    strip(bytes).unwrap_or_else(|| bytes.to_vec())
}

/// The linker's bytes of a stamped file.
fn strip(bytes: &[u8]) -> Option<Vec<u8>> {
    let header = Header::read(bytes)?;
    let found = header.section(bytes, SECTION).ok()??;
    let rest = found.strip_prefix(MAGIC)?.get(..HEAD - MAGIC.len())?;
    let long = |at: usize| Some(u64::from_le_bytes(rest.get(at..at + 8)?.try_into().ok()?));
    let short = |at: usize| Some(u16::from_le_bytes(rest.get(at..at + 2)?.try_into().ok()?));
    let length = usize::try_from(long(0)?).ok()?;
    let old = Header {
        table: long(8)?,
        sections: short(16)?,
        names: short(18)?,
    };
    let mut plain = bytes.get(..length)?.to_vec();
    old.write(&mut plain)?;
    Some(plain)
}

/// The linker's bytes with the stamp appended; `None` where they are no ELF file that can take it.
fn append(plain: &[u8], stamp: &Provenance) -> Option<Vec<u8>> {
    let header = Header::read(plain)?;
    let mut content = MAGIC.to_vec();
    content.extend_from_slice(&(plain.len() as u64).to_le_bytes());
    content.extend_from_slice(&header.table.to_le_bytes());
    content.extend_from_slice(&header.sections.to_le_bytes());
    content.extend_from_slice(&header.names.to_le_bytes());
    let text = serde_json::to_vec(stamp).ok()?;
    content.extend_from_slice(Digest::of(&text).bytes());
    content.extend_from_slice(&text);
    header.append(plain, SECTION, &content)
}

/// The file `plain` with a stamp that `of` makes of the digest of its content; `None` where it can
/// carry none.
pub fn stamped(plain: &[u8], of: impl FnOnce(Digest) -> Provenance) -> Option<Vec<u8>> {
    Header::read(plain)?;
    append(plain, &of(Digest::of(plain)))
}

/// Whether a file called `name` may be the one that was built as `built`. A library has several names: `libllama.so.0.5.0`
/// is `libllama.so.0` where links cannot be copied.
fn is_called(name: &str, built: &str) -> bool {
    let stem = |name: &str| {
        let (stem, version) = name.split_once(".so")?;
        let numbers = |version: &str| version.bytes().all(|b| b.is_ascii_digit() || b == b'.');
        let is_version = version.strip_prefix('.').is_some_and(numbers);
        (version.is_empty() || is_version).then(|| stem.to_owned())
    };
    name == built || stem(name).is_some_and(|found| stem(built) == Some(found))
}

/// Fails unless `path` carries a stamp that holds, and is called as the stamp says; gives it. What cannot carry one has none.
///
/// The name decides what a file is taken for: one variant of the CPU backend that lies in the place of another is loaded as
/// that, and both are of one build.
pub fn require(path: &Path) -> Result<Option<Provenance>> {
    let show = path.display();
    let stamp = read(path).context(|| format!("reading {show}"))?;
    let real = path.canonicalize()?;
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    match stamp {
        Stamp::Sound(stamp) if !is_called(&name, &stamp.file) => Err(Error::finding(format!(
            "{show} was built as {}, and lies here under another name",
            stamp.file
        ))
        .hint(format!(
            "give it the name that it was built with: {}",
            stamp.file
        ))),
        Stamp::Sound(stamp) => Ok(Some(*stamp)),
        Stamp::NotElf if cfg!(not(target_os = "linux")) => Ok(None),
        Stamp::NotElf => Err(Error::finding(format!(
            "{show} is no ELF file of 64 bits, and carries no stamp of where it comes from"
        ))),
        Stamp::None => Err(Error::finding(format!(
            "{show} carries no stamp of where it comes from"
        ))),
        Stamp::Broken(what) => Err(Error::finding(format!(
            "{show} is not what was stamped: {what}"
        ))),
    }
}

#[cfg(test)]
mod tests;
