//! What GPUs a file holds code for, read from the file.
//!
//! nvcc puts the code for GPUs into the section `.nv_fatbin` (`__nv_relfatbin` where it is to be
//! linked once more): one container after the other, each with any number of images. The head of an
//! image says what it is and for which architecture, also where the image itself is compressed. So
//! this needs no program of NVIDIA's, and no flag is believed.

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _};
use serde::Serialize;

/// Sections that hold containers.
const SECTIONS: [&str; 2] = [".nv_fatbin", "__nv_relfatbin"];
/// Begins a container.
const MAGIC: u32 = 0xba55_ed50;
/// Bytes of a container's head, and the fewest of an image's.
const CONTAINER_HEAD: usize = 16;
const IMAGE_HEAD: usize = 64;
/// Kinds of images.
const PTX: u16 = 1;
const CUBIN: u16 = 2;
/// Flags of images: code that one architecture alone runs, or its family; compressed by one of two
/// methods.
const ALONE: u64 = 0x10_0000;
const FAMILY: u64 = 0x20_0000;
const COMPRESSED: u64 = 0x2000 | 0x8000;
/// Machine number of GPUs of NVIDIA's in ELF.
const MACHINE: u16 = 190;

/// What a file holds for GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Images {
    /// Number of images of machine code by architecture: `90`, `120a`.
    pub cubins: BTreeMap<String, usize>,
    /// Number of texts that the driver compiles, by architecture.
    pub ptx: BTreeMap<String, usize>,
    /// How many of all are compressed.
    pub compressed: usize,
    /// Bytes of all of them, as they lie in the file.
    pub bytes: u64,
}

/// Reads the images of an ELF file; `None` where it has no section for them, or is no ELF file.
/// The error says what is not as it must be.
pub fn read(bytes: &[u8]) -> Result<Option<Images>, String> {
    if !bytes.starts_with(b"\x7fELF") {
        return Ok(None);
    }
    let file = object::File::parse(bytes).map_err(|error| error.to_string())?;
    let mut images: Option<Images> = None;
    for section in file.sections() {
        let name = section.name().map_err(|error| error.to_string())?;
        if !SECTIONS.contains(&name) {
            continue;
        }
        let data = section.data().map_err(|error| error.to_string())?;
        parse(data, images.get_or_insert_default()).map_err(|what| format!("{name}: {what}"))?;
    }
    Ok(images)
}

/// Adds what is in a section's bytes.
pub fn parse(data: &[u8], images: &mut Images) -> Result<(), String> {
    let mut at = 0;
    while at < data.len() {
        // Containers begin at multiples of eight.
        if data[at] == 0 && !at.is_multiple_of(8) {
            at += 1;
            continue;
        }
        let rest = &data[at..];
        if rest.len() >= 8 && rest[..8] == [0; 8] {
            at += 8;
            continue;
        }
        let wrong = |what: &str| format!("at byte {at}: {what}");
        if u32_at(rest, 0) != Some(MAGIC) {
            return Err(wrong("no container begins there"));
        }
        let head = u16_at(rest, 6).map_or(0, usize::from);
        let size = u64_at(rest, 8).and_then(|size| usize::try_from(size).ok());
        let end = size.and_then(|size| head.checked_add(size));
        let (Some(end), true) = (end, head >= CONTAINER_HEAD) else {
            return Err(wrong("the container's head makes no sense"));
        };
        let content = rest
            .get(head..end)
            .ok_or_else(|| wrong("the container is cut off"))?;
        container(content, images).map_err(|what| wrong(&what))?;
        at += end;
    }
    Ok(())
}

/// Adds the images of one container.
fn container(mut rest: &[u8], images: &mut Images) -> Result<(), String> {
    while !rest.is_empty() {
        if rest.len() < IMAGE_HEAD {
            return Err("the head of an image is cut off".to_owned());
        }
        let number = |at| u32_at(rest, at).unwrap_or(0);
        let kind = u16_at(rest, 0).unwrap_or(0);
        let head = number(4) as usize;
        let size = u64_at(rest, 8).and_then(|size| usize::try_from(size).ok());
        let end = size.and_then(|size| head.checked_add(size));
        let (Some(end), true) = (end, head >= IMAGE_HEAD) else {
            return Err("the head of an image makes no sense".to_owned());
        };
        let image = rest.get(head..end).ok_or("an image is cut off")?;
        let arch = number(28);
        let flags = u64_at(rest, 40).unwrap_or(0);
        let suffix = match (flags & ALONE != 0, flags & FAMILY != 0) {
            (true, _) => "a",
            (_, true) => "f",
            _ => "",
        };
        let count = match kind {
            PTX => &mut images.ptx,
            CUBIN => &mut images.cubins,
            // Not code.
            _ => {
                rest = &rest[end..];
                continue;
            }
        };
        if !(20..1000).contains(&arch) {
            return Err(format!("an image is of sm_{arch}, which there is none of"));
        }
        let name = format!("{arch}{suffix}");
        let is_compressed = flags & COMPRESSED != 0;
        if kind == CUBIN && !is_compressed {
            cubin(image, arch)?;
        }
        *count.entry(name).or_default() += 1;
        images.compressed += usize::from(is_compressed);
        images.bytes += image.len() as u64;
        rest = &rest[end..];
    }
    Ok(())
}

/// Checks machine code that can be looked at: it must be what its head says.
fn cubin(image: &[u8], arch: u32) -> Result<(), String> {
    if !image.starts_with(b"\x7fELF\x02\x01") || u16_at(image, 18) != Some(MACHINE) {
        return Err(format!("the image of sm_{arch} is no code for a GPU"));
    }
    let flags = u32_at(image, 48).unwrap_or(0);
    // Where the number lies changed with the eighth version of the format; others are not known.
    let own = match image.get(8) {
        Some(7) => flags & 0xff,
        Some(8) => flags >> 8 & 0xff,
        _ => return Ok(()),
    };
    if own != arch {
        return Err(format!(
            "an image says sm_{arch} and holds code of sm_{own}"
        ));
    }
    Ok(())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..at + 2)?;
    Some(u16::from_le_bytes(bytes.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let bytes = bytes.get(at..at + 4)?;
    Some(u32::from_le_bytes(bytes.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let bytes = bytes.get(at..at + 8)?;
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests;
