//! What an ELF file exports and needs.

use std::collections::BTreeSet;
use std::path::Path;

use object::elf::{DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME};
use object::read::elf::{Dyn as _, ElfFile64, FileHeader as _};
use object::{Endianness, Object as _, ObjectSymbol as _};

use crate::error::{Error, Result};

/// One program or library.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Elf {
    /// Its soname, else its file name.
    pub name: String,
    /// Those of `exports` that are weak: inline functions and instances of templates. Whoever uses
    /// one has it too, so it comes and goes with what is inlined where.
    pub weak: BTreeSet<String>,
    /// Defined dynamic symbols that are global or weak.
    pub exports: BTreeSet<String>,
    /// Libraries that it needs.
    pub needed: BTreeSet<String>,
    /// Where they are looked for first.
    pub search: Vec<String>,
    /// Whether it has a soname, or is called like a library.
    library: bool,
}

impl Elf {
    /// Reads `path`; `None` where it is no ELF file of 64 bits.
    pub fn read(path: &Path) -> Result<Option<Self>> {
        let bytes = fs_err::read(path)?;
        if !bytes.starts_with(b"\x7fELF\x02") {
            return Ok(None);
        }
        let broken = |error: object::Error| {
            Error::finding(format!("{}: no whole ELF file: {error}", path.display()))
        };
        let file = ElfFile64::<Endianness>::parse(&*bytes).map_err(broken)?;
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let mut elf = Elf {
            library: name.contains(".so"),
            name: name.into_owned(),
            ..Elf::default()
        };
        let (endian, data) = (file.endian(), &*bytes);
        let sections = file.elf_header().sections(endian, data).map_err(broken)?;
        if let Some((entries, strings)) = sections.dynamic(endian, data).map_err(broken)? {
            let strings = sections.strings(endian, data, strings).map_err(broken)?;
            for entry in entries {
                let tag = entry.tag(endian);
                if ![DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_SONAME].contains(&tag) {
                    continue;
                }
                let text = entry.string(endian, strings).map_err(broken)?;
                let text = String::from_utf8_lossy(text).into_owned();
                match tag {
                    DT_NEEDED => {
                        elf.needed.insert(text);
                    }
                    DT_SONAME => {
                        elf.library = true;
                        elf.name = text;
                    }
                    _ => elf.search.push(text),
                }
            }
        }
        for symbol in file.dynamic_symbols() {
            let exported = symbol.is_definition() || symbol.is_weak() && !symbol.is_undefined();
            if exported && !symbol.is_local() {
                let name = symbol.name().map_err(broken)?.to_owned();
                if symbol.is_weak() {
                    elf.weak.insert(name.clone());
                }
                elf.exports.insert(name);
            }
        }
        Ok(Some(elf))
    }

    /// Whether others link to it.
    pub fn is_library(&self) -> bool {
        self.library
    }
}

#[cfg(test)]
impl Elf {
    /// One that exists only in a test.
    pub fn new(name: &str, exports: &[&str], needed: &[&str]) -> Self {
        let set = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Elf {
            name: name.to_owned(),
            exports: set(exports),
            weak: BTreeSet::new(),
            needed: set(needed),
            search: Vec::new(),
            library: name.contains(".so"),
        }
    }
}
