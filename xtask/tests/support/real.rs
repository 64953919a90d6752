//! What the tests have in common that build the real llama.cpp: whether they are wanted, and
//! checkouts of their own, which are kept so that a second run builds nothing.

#![allow(dead_code)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use llama_patchset::cli::REAL_VAR;

/// This checkout.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

/// Whether real builds are wanted; says so where they are not.
pub fn wanted(test: &str) -> bool {
    let wanted = std::env::var_os(REAL_VAR).is_some();
    if !wanted {
        // Not with `eprintln`: the harness swallows that where a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "{test}: left out, since {REAL_VAR} is not set; `cargo xtask test` sets it"
        );
    }
    wanted
}

/// Runs the tool in the checkout at `dir`.
pub fn xtask(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(args)
        .arg("--root")
        .arg(dir)
        .output()
        .unwrap()
}

/// The same, where nothing may fail: what it printed.
pub fn ok(dir: &Path, args: &[&str]) -> String {
    let output = xtask(dir, args);
    assert!(
        output.status.success(),
        "{args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// Writes what differs: an unchanged file keeps its time stamp.
pub fn put(path: &Path, bytes: impl AsRef<[u8]>) {
    if fs::read(path).is_ok_and(|old| old == bytes.as_ref()) {
        return;
    }
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

/// Copies a file or a folder; see [`put`].
pub fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else {
        put(to, fs::read(from).unwrap());
    }
}

/// A checkout of its own, with the fixtures and with `series` on `llama-0.5.0`; patches called
/// `planted-…` come from the tests' data. It has no kernels: patches that link them build without.
pub fn checkout<S: AsRef<str>>(name: &str, series: &[S]) -> PathBuf {
    let dir = root().join("target/test-checkouts").join(name);
    for part in [
        "registry/upstreams.toml",
        "registry/toolchains.toml",
        "registry/hooks.toml",
        "gates/fixtures.toml",
        "gates/prompts",
    ] {
        copy(&root().join(part), &dir.join(part));
    }
    for patch in series.iter().map(AsRef::as_ref) {
        let from = match patch.starts_with("planted-") {
            true => root().join("xtask/tests/data").join(patch),
            false => root().join("patches").join(patch),
        };
        let to = dir.join("patches").join(patch);
        for entry in fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            if entry.file_name() != "patch.toml" {
                copy(&entry.path(), &to.join(entry.file_name()));
            }
        }
        let text = fs::read_to_string(from.join("patch.toml")).unwrap();
        let without = text.lines().filter(|line| !line.starts_with("inputs"));
        put(
            &to.join("patch.toml"),
            without.collect::<Vec<_>>().join("\n"),
        );
    }
    let series: Vec<&str> = series.iter().map(AsRef::as_ref).collect();
    put(
        &dir.join("registry/series.toml"),
        format!("schema = 1\n[series]\n\"llama-0.5.0\" = {series:?}\n"),
    );
    dir
}

/// The manifest of a workspace for the crate `ggml-ext` alone, with this checkout's profiles.
pub fn manifest_of_the_crate() -> String {
    let text = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let alone = text
        .replace(
            "members = [\"xtask\", \"ggml-ext\"]",
            "members = [\"ggml-ext\"]",
        )
        .replace("default-members = [\"xtask\"]\n", "")
        .replace("exclude = [\"fuzz\"]\n", "");
    assert!(!alone.contains("\"xtask\"]"), "{alone}");
    alone
}

/// The server that [`checkout`]'s `build --patched` makes.
pub fn patched_server(dir: &Path) -> PathBuf {
    dir.join("target/llama/llama-0.5.0/patched-cpu/out/bin/llama-server")
}
