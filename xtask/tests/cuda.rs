//! Files with code for GPUs, from the outside: made of a program of the system and a section that nvcc would have
//! made, stamped as being for this GPU or that.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use llama_patchset::build::provenance;
use llama_patchset::model::{Digest, Flavour, Provenance};

/// A container with one compressed image of each kind for `arch`.
fn fatbin(arch: u32) -> Vec<u8> {
    let mut content = Vec::new();
    for kind in [1u16, 2] {
        let mut entry = vec![0u8; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[4] = 64;
        entry[8] = 16;
        entry[28..32].copy_from_slice(&arch.to_le_bytes());
        entry[40..48].copy_from_slice(&0x8011u64.to_le_bytes());
        content.extend(entry);
        content.extend([7u8; 16]);
    }
    let mut bytes = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend(content);
    bytes
}

/// `libggml-cuda.so` in `dir` with this section, stamped as being for `stamp`.
fn library(dir: &Path, section: Option<&[u8]>, stamp: &str) -> PathBuf {
    let (plain, with) = (dir.join("plain"), dir.join("with"));
    std::fs::copy("/bin/true", &plain).unwrap();
    let mut command = Command::new("objcopy");
    if let Some(section) = section {
        std::fs::write(dir.join("section"), section).unwrap();
        let added = format!(".nv_fatbin={}", dir.join("section").display());
        command.args(["--add-section", &added]);
    }
    let done = command.arg(&plain).arg(&with).status().unwrap();
    assert!(done.success());
    let stamp = |content| Provenance {
        schema: 1,
        file: "libggml-cuda.so".to_owned(),
        content,
        base: "toy".to_owned(),
        tree: Digest::of(b""),
        flavour: Flavour::Vanilla,
        backend: "cuda".to_owned(),
        variant: Default::default(),
        patchset: None,
        source: Digest::of(b""),
        flags: [("CMAKE_CUDA_ARCHITECTURES".to_owned(), stamp.to_owned())].into(),
        compilers: Default::default(),
        backend_tools: Default::default(),
        surroundings: Default::default(),
    };
    let bytes = provenance::stamped(&std::fs::read(with).unwrap(), stamp).unwrap();
    let file = dir.join("libggml-cuda.so");
    std::fs::write(&file, bytes).unwrap();
    file
}

fn inspect(file: &Path, more: &[&str]) -> (i32, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["inspect", "--root"]).arg(root).arg(file);
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(more).output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code().unwrap(), text)
}

#[test]
fn inspect_says_which_gpus_a_file_holds_code_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut two = fatbin(90);
    two.extend(fatbin(80));
    let file = library(dir.path(), Some(&two), "80;90");
    let (code, text) = inspect(&file, &[]);
    assert_eq!(code, 0, "{text}");
    let wanted = "code for sm_80 (1), sm_90 (1), PTX for compute_80 (1), compute_90 (1)";
    assert!(text.contains(wanted), "{text}");
    let (code, text) = inspect(&file, &["--json"]);
    assert_eq!(code, 0, "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = &json["data"]["files"][0]["file"]["cuda"];
    assert_eq!(found["cubins"]["90"], 1, "{text}");
    assert_eq!(found["compressed"], 4);
}

#[test]
fn code_for_other_gpus_than_the_stamps_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fatbin(90);
    for (section, stamp, says) in [
        (
            Some(&whole[..]),
            "80",
            "holds code for sm_90, where sm_80 is wanted",
        ),
        (
            Some(&whole[..]),
            "90-real",
            "holds PTX for sm_90, where none is wanted",
        ),
        (Some(&whole[..]), "80;90", "where sm_80, sm_90 is wanted"),
        (Some(&whole[..50]), "90", "the container is cut off"),
        (Some(&b"garbage!"[..]), "90", "no container begins there"),
        (
            Some(&whole[..]),
            "something",
            "its stamp says CMAKE_CUDA_ARCHITECTURES=something",
        ),
        (None, "90", "holds no code for GPUs"),
    ] {
        let file = library(dir.path(), section, stamp);
        let (code, text) = inspect(&file, &[]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(says), "{says}: {text}");
    }
}
