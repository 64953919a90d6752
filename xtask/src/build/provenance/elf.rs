//! As much of ELF as a stamp needs: 64 bits, low byte first.

/// How such a file begins: the magic, 64 bits, low byte first.
const START: &[u8] = b"\x7fELF\x02\x01";
/// The type of a section whose content is its owner's business.
const PROGBITS: u32 = 1;
/// Bytes of a file header, and of a section header.
const FILE_HEADER: usize = 64;
const SECTION_HEADER: usize = 64;
/// Places in a file header: section table, size of its entries, their number, that of the names.
const TABLE: usize = 0x28;
const ENTRY: usize = 0x3a;
const SECTIONS: usize = 0x3c;
const NAMES: usize = 0x3e;

/// What a file header says of the section table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Where the table begins.
    pub table: u64,
    /// Number of sections.
    pub sections: u16,
    /// Which of them holds the names.
    pub names: u16,
}

/// Part of a section header.
struct Section {
    name: u32,
    offset: u64,
    size: u64,
}

impl Header {
    /// `None` where it is no such file, or one without an ordinary section table.
    pub fn read(bytes: &[u8]) -> Option<Self> {
        let is_elf = bytes.len() >= FILE_HEADER && bytes.starts_with(START);
        if !is_elf || usize::from(short(bytes, ENTRY)?) != SECTION_HEADER {
            return None;
        }
        let header = Header {
            table: long(bytes, TABLE)?,
            sections: short(bytes, SECTIONS)?,
            names: short(bytes, NAMES)?,
        };
        (header.table != 0 && header.sections != 0).then_some(header)
    }

    /// Writes it into the file header of `bytes`.
    pub fn write(&self, bytes: &mut [u8]) -> Option<()> {
        put(bytes, TABLE, &self.table.to_le_bytes())?;
        put(bytes, SECTIONS, &self.sections.to_le_bytes())?;
        put(bytes, NAMES, &self.names.to_le_bytes())
    }

    /// The content of the section called `name`; an error where the table is not whole.
    pub fn section<'a>(&self, bytes: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, String> {
        let broken = || "its table of sections is not whole".to_owned();
        let names = self.entry(bytes, self.names).ok_or_else(broken)?;
        let names = slice(bytes, names.offset, names.size).ok_or_else(broken)?;
        for at in 0..self.sections {
            let section = self.entry(bytes, at).ok_or_else(broken)?;
            let found = names.get(section.name as usize..).unwrap_or_default();
            let end = found.iter().position(|byte| *byte == 0).unwrap_or(0);
            if &found[..end] == name.as_bytes() {
                let content = slice(bytes, section.offset, section.size);
                return content.map(Some).ok_or_else(broken);
            }
        }
        Ok(None)
    }

    /// `plain` with a section added that is not loaded: its content, a longer table of names, and
    /// a longer table of sections, in this order, behind all that is there.
    pub fn append(&self, plain: &[u8], name: &str, content: &[u8]) -> Option<Vec<u8>> {
        let mut bytes = plain.to_vec();
        align(&mut bytes);
        let at = bytes.len() as u64;
        bytes.extend_from_slice(content);
        align(&mut bytes);

        let old = self.entry(plain, self.names)?;
        let names_at = bytes.len() as u64;
        bytes.extend_from_slice(slice(plain, old.offset, old.size)?);
        bytes.extend_from_slice(name.as_bytes());
        bytes.push(0);
        let names_size = bytes.len() as u64 - names_at;
        align(&mut bytes);

        let table = bytes.len();
        let length = u64::from(self.sections) * SECTION_HEADER as u64;
        bytes.extend_from_slice(slice(plain, self.table, length)?);
        let entry = table + usize::from(self.names) * SECTION_HEADER;
        put(&mut bytes, entry + 0x18, &names_at.to_le_bytes())?;
        put(&mut bytes, entry + 0x20, &names_size.to_le_bytes())?;

        let mut own = [0; SECTION_HEADER];
        put(&mut own, 0x00, &u32::try_from(old.size).ok()?.to_le_bytes())?;
        put(&mut own, 0x04, &PROGBITS.to_le_bytes())?;
        put(&mut own, 0x18, &at.to_le_bytes())?;
        put(&mut own, 0x20, &(content.len() as u64).to_le_bytes())?;
        put(&mut own, 0x30, &1u64.to_le_bytes())?;
        bytes.extend_from_slice(&own);

        let new = Header {
            table: table as u64,
            sections: self.sections.checked_add(1)?,
            names: self.names,
        };
        new.write(&mut bytes)?;
        Some(bytes)
    }

    fn entry(&self, bytes: &[u8], number: u16) -> Option<Section> {
        let start = self
            .table
            .checked_add(u64::from(number) * SECTION_HEADER as u64)?;
        let entry = slice(bytes, start, SECTION_HEADER as u64)?;
        Some(Section {
            name: u32::from_le_bytes(entry.get(..4)?.try_into().ok()?),
            offset: long(entry, 0x18)?,
            size: long(entry, 0x20)?,
        })
    }
}

fn align(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
}

fn slice(bytes: &[u8], start: u64, length: u64) -> Option<&[u8]> {
    let start = usize::try_from(start).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(length).ok()?)?)
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) -> Option<()> {
    bytes.get_mut(at..at + value.len())?.copy_from_slice(value);
    Some(())
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
