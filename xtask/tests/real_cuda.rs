//! What `cargo xtask build --backend cuda --arch 90 --probe` left, and what a build for CUDA refuses on a real tree.
//! Runs under `cargo xtask test`, where that was run before; where CI is set, it must have been. No GPU is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::build::cuda::fatbin;
use llama_patchset::gate::artifacts::elf::Elf;
use real::root;

fn library() -> PathBuf {
    root().join("target/llama/llama-0.5.0/patched-cuda-probe/out/probe/libggml-cuda.so")
}

fn wanted(test: &str) -> bool {
    if !real::wanted(test) {
        return false;
    }
    let is_there = library().is_file();
    if !is_there {
        let on_ci = std::env::var_os("CI").is_some_and(|value| !value.is_empty());
        assert!(!on_ci, "{test}: no probe for CUDA, and CI is set");
        let _ = writeln!(
            std::io::stderr(),
            "{test} is left out, since `cargo xtask build --backend cuda --arch 90 --probe` was not run"
        );
    }
    is_there
}

#[test]
fn the_probe_holds_code_for_its_gpu_alone() {
    if !wanted("the_probe_holds_code_for_its_gpu_alone") {
        return;
    }
    let bytes = std::fs::read(library()).unwrap();
    let images = fatbin::read(&bytes).unwrap().unwrap();
    let of = |map: &std::collections::BTreeMap<String, usize>| {
        map.iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&images.cubins), [("90".to_owned(), 2)]);
    assert_eq!(of(&images.ptx), [("90".to_owned(), 2)]);
    assert!(images.bytes > 10_000);
    let elf = Elf::read(&library()).unwrap().unwrap();
    for name in ["libcuda.so.1", "libcudart.so.", "libcublas.so."] {
        assert!(
            elf.needed.iter().any(|needed| needed.starts_with(name)),
            "{name}: {:?}",
            elf.needed
        );
    }
    // Kernels' entry points by the names that the backend calls them by.
    assert!(
        elf.exports
            .iter()
            .any(|name| name.contains("ggml_cuda_argmax")),
        "{:?}",
        elf.exports
    );
    // A driver's library that is only a stand-in must not be found when a program runs.
    for folder in &elf.search {
        assert!(!Path::new(folder).join("libcuda.so.1").exists(), "{folder}");
    }
}

/// A folder with `nvcc` and `nvidia-smi` that say this.
fn tools(dir: &Path, release: &str, gpu: &str) {
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    let nvcc = format!("release {release}, V{release}.1\ncompute_80 compute_90\n");
    for (name, text) in [("nvcc", &*nvcc), ("nvidia-smi", gpu)] {
        let file = dir.join("bin").join(name);
        std::fs::write(&file, format!("#!/bin/sh\ncat <<'E'\n{text}E\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_compiled() {
    if !wanted("what_cannot_be_is_said_before_anything_is_compiled") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (release, gpu, arch, says) in [
        ("13.0", "", "native", "this machine has no GPU of NVIDIA's"),
        ("13.0", "", "sm_90", "`sm_90` is no architecture"),
        ("13.0", "", "70", "CUDA 13.0.1 does not compile for sm_70"),
        ("11.5", "", "90", "toolkit 11.5.1 at"),
        (
            "13.0",
            "9.0, 535.104.05\n",
            "native",
            "too new for the driver 535.104.5",
        ),
    ] {
        tools(dir.path(), release, gpu);
        let path = format!(
            "{}:{}",
            dir.path().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args([
                "build",
                "--backend",
                "cuda",
                "--probe",
                "--arch",
                arch,
                "--root",
            ])
            .arg(root())
            .env("CUDA_PATH", dir.path())
            .env("PATH", path)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says), "{says}: {text}");
        assert!(!text.contains("configuring"), "{text}");
    }
}
