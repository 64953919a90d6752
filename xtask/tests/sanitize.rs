//! What a sanitizer reports fails a gate, with its text, whatever the tokens are. The reports are
//! real: programs are compiled with sanitizers, and one is llama.cpp's CPU backend with a fault in it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// What the fake server prints is its log.
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "support/ci.rs"]
mod ci;
#[path = "support/fake_server.rs"]
mod fake_server;
#[path = "support/real.rs"]
mod real;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::build::{self, Recipe};
use llama_patchset::ctx::{Cancel, Ctx, Quiet};
use llama_patchset::model::{Digest, Flavour, PatchSetStamp, Profile, Variant};
use llama_patchset::project::Project;
use llama_patchset::tree::TreeManifest;

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

const OVERFLOW: &str = "#include <stdlib.h>\nint main(int n, char ** v) { (void) v; int * a = malloc(8 * sizeof(int)); a[0] = n; return a[7 + n] == 3; }\n";
const SIGNED: &str = "#include <limits.h>\nint main(int n, char ** v) { (void) v; int a = INT_MAX; a += n; return a == 3; }\n";

fn cc() -> String {
    std::env::var("CC").unwrap_or_else(|_| "cc".into())
}

/// A program; `None` where the compiler has no such sanitizer, which must not be on CI.
fn compiled(dir: &Path, source: &str, flags: &[&str]) -> Option<PathBuf> {
    let (file, program) = (dir.join("main.c"), dir.join("main"));
    std::fs::create_dir_all(dir).unwrap();
    std::fs::write(&file, source).unwrap();
    let output = Command::new(cc())
        .args(["-O0", "-g1"])
        .arg(&file)
        .args(flags)
        .arg("-o")
        .arg(&program)
        .output()
        .unwrap();
    if output.status.success() {
        return Some(program);
    }
    let told = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!ci::on_ci(), "{told}");
    let _ = writeln!(
        std::io::stderr(),
        "left out, since {flags:?} does not compile: {told}"
    );
    None
}

const GATE: &str = "schema = 1\nid = \"same\"\nkind = \"chash\"\ntitle = \"T\"\n\
    model = { path = \"model.gguf\" }\nn-max = [0]\nslots = [1]\nn-predict = 8\n\
    limits = { start = 60, request = 60, stop = 5 }\n\
    [[prompt]]\nname = \"a\"\nids = [5, 6]\n[[prompt]]\nname = \"b\"\nids = [7, 8]\n";

/// Gates a good server against one with `fault`, which runs `program`: exit code, and what is said.
fn gate(fault: &str, program: &Path) -> (Option<i32>, String) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in ["registry", "gates"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    std::fs::write(path("registry/upstreams.toml"), "schema = 1\n").unwrap();
    std::fs::write(path("gates/same.toml"), GATE).unwrap();
    std::fs::write(path("model.gguf"), "GGUF").unwrap();
    let run = format!("export {}='{}'", fake_server::RUN, program.display());
    let good = fake_server::install(&path("a"), "good", &path("pids"), "");
    let other = fake_server::install(&path("b"), fault, &path("pids"), &run);
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["gate", "--unstamped", "--gate", "same", "--root"])
        .arg(dir.path())
        .arg("--baseline")
        .arg(good)
        .arg("--candidate")
        .arg(other)
        .env("LLAMA_PATCHSET_CACHE", path("cache"))
        // A user's own settings must not hide anything.
        .env(
            "ASAN_OPTIONS",
            format!("log_path={}", path("asan").display()),
        )
        .env(
            "UBSAN_OPTIONS",
            format!("halt_on_error=0:log_path={}", path("ubsan").display()),
        )
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    (output.status.code(), text)
}

fn fails_with(fault: &str, program: &Path, words: &[&str]) {
    let (code, text) = gate(fault, program);
    assert_eq!(code, Some(1), "{fault}: {text}");
    for word in words.iter().chain(&["a sanitizer reported"]) {
        assert!(text.contains(word), "{fault}: no {word:?} in\n{text}");
    }
}

#[test]
fn reports_of_real_programs_fail_a_gate() {
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = gate("report", Path::new("/bin/true"));
    assert_eq!(code, Some(0), "the control: {text}");
    let Some(overflow) = compiled(&dir.path().join("a"), OVERFLOW, &["-fsanitize=address"]) else {
        return;
    };
    let words = ["AddressSanitizer: heap-buffer-overflow", "in main"];
    fails_with("report", &overflow, &words);
    fails_with("report-and-die", &overflow, &words);
    // It goes on after what it found, and ends well.
    let Some(signed) = compiled(&dir.path().join("u"), SIGNED, &["-fsanitize=undefined"]) else {
        return;
    };
    fails_with(
        "report",
        &signed,
        &["main.c:2:", "runtime error: signed integer overflow"],
    );
}

/// The CPU backend alone, with the options of the profile: a whole build takes many minutes.
fn backend(dir: &Path) -> build::Build {
    let cache = std::env::var_os("LLAMA_PATCHSET_CACHE")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache/llama-patchset")));
    let ctx = Ctx {
        project: Project::new(dir, &cache.unwrap()).unwrap(),
        sink: Box::new(Quiet),
        offline: false,
        no_provision: false,
        jobs: 2,
        cancel: Cancel::default(),
    };
    let source = ctx.project.working_tree("llama-0.5.0");
    let content = TreeManifest::of_tree(&source, |path| path == ".patchset/")
        .unwrap()
        .digest();
    let recipe = Recipe {
        base: "llama-0.5.0".to_owned(),
        commit: String::new(),
        build_number: 0,
        tree: content,
        flavour: Flavour::Patched,
        backend: "cpu".to_owned(),
        cuda: Default::default(),
        variant: Variant::of(Profile::Asan),
        source,
        content,
        patchset: Some(PatchSetStamp {
            id: Digest::of(b"planted-asan"),
            patches: vec!["ext-core".to_owned(), "planted-asan".to_owned()],
        }),
        targets: vec!["ggml-cpu".to_owned()],
    };
    build::build(&ctx, &recipe, false).unwrap()
}

const CALLER: &str = "int ggml_cpu_planted_asan(int at);\n\
    int main(int n, char ** v) { (void) v; return ggml_cpu_planted_asan(7 + n) == 3; }\n";

#[test]
fn a_fault_in_the_real_cpu_backend_is_reported_and_fails_a_gate() {
    if !real::wanted("a_fault_in_the_real_cpu_backend_is_reported_and_fails_a_gate") {
        return;
    }
    let dir = real::checkout("planted-asan", &["ext-core", "planted-asan"]);
    real::ok(&dir, &["apply", "--discard-edits"]);
    let built = backend(&dir);
    assert!(built.dir.ends_with("patched-cpu-asan"));
    assert_eq!(built.manifest.variant, Variant::of(Profile::Asan));
    assert_eq!(build::drift::check(&built).unwrap(), []);
    let library = built.dir.join("out/bin/libggml-cpu.so");
    let stamp = build::provenance::require(&library.canonicalize().unwrap())
        .unwrap()
        .unwrap();
    assert_eq!(stamp.variant.profile, Profile::Asan);
    let bin = built.dir.join("out/bin").canonicalize().unwrap();
    let (search, rpath) = (
        format!("-L{}", bin.display()),
        format!("-Wl,-rpath,{}", bin.display()),
    );
    let flags = [
        "-fsanitize=address",
        &search,
        "-lggml-cpu",
        "-lggml-base",
        &rpath,
    ];
    let temp = tempfile::tempdir().unwrap();
    let program = compiled(temp.path(), CALLER, &flags).unwrap();
    // Line and column of the planted read, relative to the tree and not to this machine.
    let words = [
        "heap-buffer-overflow",
        "ggml_cpu_planted_asan",
        "planted-asan.cpp:9",
    ];
    fails_with("report", &program, &words);
}
