//! Links a C and a C++ program with the static library and runs them.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

/// The static library that cargo made along with this test.
fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let deps = test.parent().unwrap();
    let newest = std::fs::read_dir(deps)
        .unwrap()
        .map(|entry| entry.unwrap())
        .filter(|entry| {
            let name = entry.file_name().into_string().unwrap();
            name.starts_with("libggml_ext") && name.ends_with(".a")
        })
        .max_by_key(|entry| entry.metadata().unwrap().modified().unwrap())
        .map(|entry| entry.path());
    newest.expect("cargo builds the static library with the tests")
}

fn compile_and_run(language: &str) {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-abi-{language}"));
    // Knows CC and CXX, cross compilers, and what else a compiler may be called.
    let host = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let compiler = cc::Build::new()
        .cpp(language == "c++")
        .target(&host)
        .host(&host)
        .opt_level(0)
        .cargo_metadata(false)
        .get_compiler();
    let compiled = compiler
        .to_command()
        .args(["-Wall", "-Wextra", "-Werror", "-I"])
        .arg(crate_dir.join("include"))
        .args(["-x", language])
        .arg(crate_dir.join("tests/c.c"))
        .args(["-x", "none"])
        .arg(library())
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let ran = Command::new(&program)
        .arg(env!("CARGO_PKG_VERSION"))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stdout)
    );
}

#[test]
fn a_c_program_links_and_gets_the_right_values() {
    compile_and_run("c");
}

#[test]
fn a_cpp_program_links_and_gets_the_right_values() {
    compile_and_run("c++");
}
