//! Links a C and a C++ program with the static library and runs them; what is linked in is looked
//! at.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;

use ggml_ext::abi::{ggml_ext_op, ggml_ext_task, ggml_ext_tensor};

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

fn compile(language: &str, library: &Path, program: &Path) {
    let crate_dir = Path::new(env!("CARGO_MANIFEST_DIR"));
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
        .arg(library)
        .args(["-Wl,--gc-sections", "-o"])
        .arg(program)
        .output()
        .unwrap();
    assert!(
        compiled.status.success(),
        "{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
}

/// How Rust lays the structures out, as the program says it.
fn layout() -> String {
    let mut text = String::new();
    macro_rules! of {
        ($name:ident: $($field:ident),*) => {
            text += &format!("{} {}\n", stringify!($name), size_of::<$name>());
            $(text += &format!(
                "{}.{} {}\n",
                stringify!($name),
                stringify!($field).trim_start_matches("r#"),
                offset_of!($name, $field)
            );)*
        };
    }
    of!(ggml_ext_tensor: data, ne, nb, r#type);
    of!(ggml_ext_op: dst, src, params, n_src);
    of!(ggml_ext_task: work, work_size, barrier, barrier_arg, ith, nth);
    text
}

fn compile_and_run(language: &str) {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("c-abi-{language}"));
    compile(language, &library(), &program);
    let ran = Command::new(&program)
        .arg(env!("CARGO_PKG_VERSION"))
        .output()
        .unwrap();
    assert!(
        ran.status.success(),
        "{}",
        String::from_utf8_lossy(&ran.stdout)
    );
    assert_eq!(String::from_utf8(ran.stdout).unwrap(), layout());
}

#[test]
fn a_c_program_links_and_gets_the_right_values() {
    compile_and_run("c");
}

#[test]
fn a_cpp_program_links_and_gets_the_right_values() {
    compile_and_run("c++");
}

/// The library as builds link it: what a program takes of it can neither panic nor allocate.
#[test]
fn closed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    // Where builds of llama.cpp make it, so that it is made once.
    let target = root.join("target/ext");
    let built = Command::new(env!("CARGO"))
        .args([
            "build",
            "--quiet",
            "--package",
            "ggml-ext",
            "--profile",
            "ext",
        ])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(root)
        .env_remove("CARGO_BUILD_TARGET")
        .output()
        .unwrap();
    assert!(
        built.status.success(),
        "{}",
        String::from_utf8_lossy(&built.stderr)
    );
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c-abi-closed");
    compile("c", &target.join("ext/libggml_ext.a"), &program);
    let named = Command::new("nm")
        .args(["--demangle"])
        .arg(&program)
        .output()
        .unwrap();
    let names = String::from_utf8_lossy(&named.stdout).into_owned();
    assert!(names.contains("ggml_ext_kernel_run"), "{names}");
    for word in ["panic", "__rust_alloc", "__rdl_alloc", "std::", "alloc::"] {
        let found: Vec<&str> = names.lines().filter(|name| name.contains(word)).collect();
        assert!(found.is_empty(), "{word}: {found:#?}");
    }
}
