//! Stamps on a real ELF file: this test program.

use super::*;
use crate::model::{Flavour, PatchSetStamp};
use object::{Object, ObjectSection};

/// A small real ELF file, whose sections are not those of a toy: `true` of the system.
fn program() -> Vec<u8> {
    ["/bin/true", "/usr/bin/true"]
        .iter()
        .find_map(|path| fs_err::read(path).ok())
        .unwrap()
}

fn provenance(content: Digest) -> Provenance {
    Provenance {
        schema: 1,
        file: "true".to_owned(),
        content,
        base: "toy".to_owned(),
        tree: Digest::of(b"tree"),
        flavour: Flavour::Patched,
        backend: "cpu".to_owned(),
        variant: Default::default(),
        patchset: Some(PatchSetStamp {
            id: Digest::of(b"set"),
            patches: vec!["one".to_owned()],
        }),
        source: Digest::of(b"source"),
        flags: Default::default(),
        compilers: Default::default(),
        backend_tools: Default::default(),
        surroundings: Default::default(),
    }
}

fn stamp(plain: &[u8]) -> Vec<u8> {
    stamped(plain, provenance).unwrap()
}

fn broken(bytes: &[u8]) -> String {
    match examine(bytes) {
        Stamp::Broken(what) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_stamp_is_a_section_and_comes_off_again() {
    let linked = program();
    assert_eq!(examine(&linked), Stamp::None);
    let bytes = stamp(&linked);
    let Stamp::Sound(found) = examine(&bytes) else {
        panic!("not sound");
    };
    assert_eq!(*found, provenance(Digest::of(&linked)));
    assert_eq!(plain(&bytes), linked, "taken back to the last byte");
    assert_eq!(plain(&linked), linked);

    // What others read of it is what they read before, and one section.
    let (old, new) = (
        object::File::parse(&*linked).unwrap(),
        object::File::parse(&*bytes).unwrap(),
    );
    assert_eq!(new.sections().count(), old.sections().count() + 1);
    let kept = |section: &object::Section<'_, '_>| section.name() != Ok(".shstrtab");
    for section in old.sections().filter(kept) {
        let other = new.section_by_name(section.name().unwrap());
        assert_eq!(other.unwrap().data().unwrap(), section.data().unwrap());
    }
    assert_eq!(new.dynamic_symbols().count(), old.dynamic_symbols().count());
}

#[test]
fn a_stamped_program_runs() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("true");
    fs_err::write(&file, stamp(&program())).unwrap();
    fs_err::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(
        std::process::Command::new(&file)
            .status()
            .unwrap()
            .success()
    );
    assert!(require(&file).unwrap().is_some());
}

#[test]
fn stamping_twice_gives_one_stamp() {
    let linked = program();
    let once = stamp(&linked);
    assert_eq!(stamp(&plain(&once)), once);
}

/// Every part of the file: header, code, the stamp, both tables.
#[test]
fn one_other_byte_is_found_wherever_it_is() {
    let bytes = stamp(&program());
    let step = (bytes.len() / 997).max(1);
    for at in (0..bytes.len())
        .step_by(step)
        .chain(bytes.len() - 700..bytes.len())
    {
        let mut edited = bytes.clone();
        edited[at] ^= 0x20;
        assert!(
            !matches!(examine(&edited), Stamp::Sound(_)),
            "byte {at} of {}",
            bytes.len()
        );
    }
}

#[test]
fn what_was_edited_says_so() {
    let linked = program();
    let bytes = stamp(&linked);
    let mut edited = bytes.clone();
    edited[linked.len() / 2] ^= 1;
    let (found, said) = (Digest::of(&plain(&edited)), Digest::of(&linked));
    let what = broken(&edited);
    assert!(what.contains(&found.to_string()) && what.contains(&said.to_string()));

    let longer = [&*bytes, b"more"].concat();
    assert!(broken(&longer).contains("stamping its content again"));
    let at = bytes
        .windows(5)
        .position(|five| five == b"\"toy\"")
        .unwrap();
    let mut edited = bytes;
    edited[at + 1] = b' ';
    assert!(broken(&edited).contains("its stamp was edited"));
}

#[test]
fn what_is_no_elf_carries_none() {
    for bytes in [&b"#!/bin/sh\n"[..], b"\x7fELF", b"", &[0x7f; 100]] {
        assert_eq!(examine(bytes), Stamp::NotElf);
        assert!(stamped(bytes, provenance).is_none());
        assert_eq!(plain(bytes), bytes);
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("llama-server");
    fs_err::write(&script, "#!/bin/sh\n").unwrap();
    if cfg!(target_os = "linux") {
        let error = require(&script).unwrap_err();
        assert!(error.message().contains("no stamp"), "{error}");
    }
}

#[test]
fn no_bytes_make_it_panic() {
    let bytes = stamp(&program());
    for length in (0..bytes.len()).step_by(1009).chain(0..200) {
        assert!(!matches!(examine(&bytes[..length]), Stamp::Sound(_)));
    }
    for at in 0..64 {
        for value in [0, 0x7f, 0xff] {
            let mut odd = bytes.clone();
            odd[at] = value;
            let _ = (examine(&odd), plain(&odd));
        }
    }
}

#[test]
fn a_file_under_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let says = |name: &str, built: &str| {
        let of = |content| Provenance {
            file: built.to_owned(),
            ..provenance(content)
        };
        let file = dir.path().join(name);
        fs_err::write(&file, stamped(&program(), of).unwrap()).unwrap();
        require(&file).map(|found| found.is_some())
    };
    for (name, built) in [
        ("llama-server", "llama-server"),
        ("libggml-cpu-x64.so", "libggml-cpu-x64.so"),
        // Where links cannot be copied a library has the name of one.
        ("libllama.so.0", "libllama.so.0.5.0"),
        ("libllama.so", "libllama.so.0.5.0"),
    ] {
        assert!(says(name, built).unwrap(), "{name} of {built}");
    }
    for (name, built) in [
        ("libggml-cpu-x64.so", "libggml-cpu-haswell.so"),
        ("libggml-cpu.so.0", "libggml-cpu-x64.so"),
        ("libllama.so.bak", "libllama.so.0.5.0"),
        ("llama-server", "llama-bench"),
        ("llama-server", "llama-server.so"),
        ("libllama.source", "libllama.so"),
        ("libllama.so", ""),
    ] {
        let error = says(name, built).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        let words = format!("was built as {built}, and lies here");
        assert!(error.message().contains(&words), "{error}");
    }
    // What a link leads to has the name that counts.
    let link = dir.path().join("another");
    says("libllama.so.0.5.0", "libllama.so.0.5.0").unwrap();
    std::os::unix::fs::symlink("libllama.so.0.5.0", &link).unwrap();
    assert!(require(&link).unwrap().is_some());
}
