//! Made-up containers, whole and broken.

use super::*;
use proptest::prelude::*;

/// One image: kind, architecture, flags, content.
pub struct Image(pub u16, pub u32, pub u64, pub Vec<u8>);

/// A GPU's ELF file as far as it is looked at.
pub fn code(version: u8, arch: u32) -> Vec<u8> {
    let mut image = vec![0; 64];
    image[..8].copy_from_slice(b"\x7fELF\x02\x01\x01\x33");
    image[8] = version;
    image[18..20].copy_from_slice(&MACHINE.to_le_bytes());
    let flags = if version == 8 { arch << 8 | 2 } else { arch };
    image[48..52].copy_from_slice(&flags.to_le_bytes());
    image
}

/// A container of these images.
pub fn bin(images: &[Image]) -> Vec<u8> {
    let mut content = Vec::new();
    for (at, Image(kind, arch, flags, image)) in images.iter().enumerate() {
        // Names and options of real ones make some heads longer.
        let head = IMAGE_HEAD + at % 2 * 16;
        let mut entry = vec![0; head];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[2..4].copy_from_slice(&0x101u16.to_le_bytes());
        entry[4..8].copy_from_slice(&(head as u32).to_le_bytes());
        entry[8..16].copy_from_slice(&(image.len() as u64).to_le_bytes());
        entry[28..32].copy_from_slice(&arch.to_le_bytes());
        entry[40..48].copy_from_slice(&flags.to_le_bytes());
        content.extend(entry);
        content.extend(image);
    }
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend(1u16.to_le_bytes());
    bytes.extend((CONTAINER_HEAD as u16).to_le_bytes());
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend(content);
    bytes
}

/// The bytes of a program of the system with these images in it; `dir` is for what is made on the way.
pub fn program(dir: &std::path::Path, images: &[Image]) -> Vec<u8> {
    let (plain, section) = (dir.join("plain"), dir.join("section"));
    std::fs::copy("/bin/true", &plain).unwrap();
    if !images.is_empty() {
        std::fs::write(&section, bin(images)).unwrap();
        let added = format!(".nv_fatbin={}", section.display());
        let mut objcopy = std::process::Command::new("objcopy");
        let done = objcopy.args(["--add-section", &added]).arg(&plain).status();
        assert!(done.unwrap().success());
    }
    std::fs::read(plain).unwrap()
}

fn whole(data: &[u8]) -> Result<Images, String> {
    let mut images = Images::default();
    parse(data, &mut images).map(|()| images)
}

/// As real ones are: PTX, code as it is, compressed code, and a second container.
fn sample() -> Vec<u8> {
    let mut data = bin(&[
        Image(PTX, 90, 0x8011, vec![1; 24]),
        Image(CUBIN, 90, 0x11, code(8, 90)),
        Image(CUBIN, 120, 0x10_8011, vec![2; 40]),
    ]);
    data.resize(data.len().next_multiple_of(8) + 16, 0);
    data.extend(bin(&[
        Image(CUBIN, 90, 0x2011, vec![3; 8]),
        Image(CUBIN, 80, 0x11, code(7, 80)),
        Image(CUBIN, 100, 0x20_8011, vec![4; 8]),
        Image(64, 0x7fff, 0, vec![5; 8]),
    ]));
    data
}

#[test]
fn images_are_counted_by_architecture() {
    let images = whole(&sample()).unwrap();
    let list = |map: &BTreeMap<String, usize>| {
        let list = map.iter().map(|(name, count)| format!("{name}:{count}"));
        list.collect::<Vec<_>>().join(" ")
    };
    assert_eq!(list(&images.cubins), "100f:1 120a:1 80:1 90:2");
    assert_eq!(list(&images.ptx), "90:1");
    assert_eq!(images.compressed, 4);
    assert_eq!(images.bytes, 24 + 64 + 40 + 8 + 64 + 8);
}

#[test]
fn what_is_no_container_is_said() {
    for (data, part) in [
        (vec![1, 2, 3, 4, 5, 6, 7, 8, 9], "no container begins there"),
        (sample()[..20].to_vec(), "the container is cut off"),
        (
            bin(&[Image(CUBIN, 90, 0x11, code(8, 80))]),
            "says sm_90 and holds code of sm_80",
        ),
        (
            bin(&[Image(CUBIN, 90, 0x11, vec![0; 64])]),
            "no code for a GPU",
        ),
        (
            bin(&[Image(CUBIN, 7, 0x8011, vec![0; 8])]),
            "sm_7, which there is none of",
        ),
    ] {
        let error = whole(&data).unwrap_err();
        assert!(error.contains(part), "{part}: {error}");
    }
    assert_eq!(whole(&[]).unwrap(), Images::default());
    assert_eq!(whole(&[0; 64]).unwrap(), Images::default());
}

#[test]
fn heads_that_lie_of_their_length_are_refused() {
    let good = bin(&[Image(CUBIN, 90, 0x8011, vec![0; 8])]);
    for (at, value) in [
        (6, 0u64),
        (8, u64::MAX),
        (8, 1 << 40),
        (8, 63),
        (CONTAINER_HEAD + 4, 0),
        (CONTAINER_HEAD + 4, 0xffff_ffff),
        (CONTAINER_HEAD + 8, u64::MAX - 3),
        (CONTAINER_HEAD + 8, 9),
    ] {
        let mut bad = good.clone();
        let length = if at == 6 {
            2
        } else if at == CONTAINER_HEAD + 4 {
            4
        } else {
            8
        };
        bad[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        assert!(whole(&bad).is_err(), "{at} {value:#x}");
    }
}

#[test]
fn every_cut_of_a_section_is_refused_or_shorter() {
    let all = sample();
    let full = whole(&all).unwrap();
    for end in 0..all.len() {
        if let Ok(found) = whole(&all[..end]) {
            assert_ne!(found, full, "{end}");
        }
    }
}

#[test]
fn other_files_have_none() {
    assert_eq!(read(b"no ELF").unwrap(), None);
    assert!(read(b"\x7fELF\x02\x01 cut off").is_err());
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(read(&own).unwrap(), None);
}

proptest! {
    #[test]
    fn no_bytes_make_it_panic(data in proptest::collection::vec(any::<u8>(), 0..300)) {
        let _ = whole(&data);
        let _ = read(&data);
    }

    #[test]
    fn no_edit_makes_it_panic(at in 0usize..600, value in any::<u64>(), length in 1usize..9) {
        let mut data = sample();
        let at = at.min(data.len() - length);
        data[at..at + length].copy_from_slice(&value.to_le_bytes()[..length]);
        if let Ok(images) = whole(&data) {
            prop_assert!(images.bytes <= data.len() as u64);
        }
    }
}
