//! The same inputs give the same bytes: both builds once more, in folders of other names and depths. Most of it
//! comes out of the compiler cache, which is shared; some sources are compiled again without, or nothing
//! would be compared but copies. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ci.rs"]
mod ci;
#[path = "support/real.rs"]
mod real;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::model::{BuildManifest, read_json};
use real::{copy, manifest_of_the_crate, ok, put, root, wanted};

/// What is compiled again: each names its own path in messages, or is generated into.
const ANEW: [&str; 8] = [
    "ggml-cpu.dir/ggml-cpu/ggml-cpu.c.o",
    "ggml-cpu.dir/ggml-cpu/traits.cpp.o",
    "ggml-cpu.dir/ggml-cpu/hbm.cpp.o",
    "ggml-base.dir/ggml-alloc.c.o",
    "llama.dir/llama-impl.cpp.o",
    "llama.dir/llama-batch.cpp.o",
    "llama.dir/llama-io.cpp.o",
    "llama.dir/llama-mmap.cpp.o",
];
/// What of the patched build is compiled again: overlay sources of three libraries. The Rust library always is.
const ANEW_PATCHED: [&str; 4] = [
    "ggml-cpu.dir/ggml-cpu/opencoti/ggml-cpu-ext.cpp.o",
    "ggml-cpu.dir/ggml-cpu/opencoti/ggml-cpu-ext-kernels.cpp.o",
    "llama.dir/opencoti/llama-patchset.cpp.o",
    "llama-common.dir/opencoti/spec-trace.cpp.o",
];
/// The one that the control is made with.
const CONTROL: &str = "llama.dir/llama-batch.cpp.o";

const PLACE: &str = "target/llama/llama-0.5.0/vanilla-cpu";
const PATCHED: &str = "target/llama/llama-0.5.0/patched-cpu";

fn build(dir: &Path, flavour: &str, cached: bool) -> BuildManifest {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["build", &format!("--{flavour}"), "--root"])
        .arg(dir);
    if !cached {
        command.env("CCACHE_DISABLE", "1");
    }
    // None of them may reach the Rust library.
    command
        .env("RUSTFLAGS", "-Copt-level=1 -Cdebuginfo=2")
        .env("CARGO_PROFILE_EXT_OPT_LEVEL", "1")
        .env("CARGO_PROFILE_RELEASE_DEBUG", "2");
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    let place = format!("target/llama/llama-0.5.0/{flavour}-cpu");
    read_json(&dir.join(place).join("build.json")).unwrap()
}

fn objects(out: &Path, anew: &[&str]) -> Vec<PathBuf> {
    let all = walkdir::WalkDir::new(out).into_iter();
    let all = all.map(|entry| entry.unwrap().into_path());
    let is_anew = |path: &PathBuf| anew.iter().any(|end| path.ends_with(end));
    let mut found: Vec<PathBuf> = all.filter(is_anew).collect();
    found.sort();
    found
}

/// Compiles one source as in the build, but for the words that hide where the folder is.
fn without_the_map(dir: &Path, to: &Path) {
    #[derive(serde::Deserialize)]
    struct Entry {
        directory: PathBuf,
        command: String,
    }
    let commands: Vec<Entry> =
        read_json(&dir.join(PLACE).join("out/compile_commands.json")).unwrap();
    let entry = (commands.iter())
        .find(|entry| entry.command.contains(CONTROL))
        .unwrap();
    let map = format!("-ffile-prefix-map=\"{}\"=..", dir.join(PLACE).display());
    assert!(entry.command.contains(&map), "{}", entry.command);
    let (start, rest) = entry.command.split_once(" -o ").unwrap();
    let (_, end) = rest.split_once(" -c ").unwrap();
    let start = start.replace(&map, "");
    let command = format!("{start} -o '{}' -c {end}", to.display());
    let done = Command::new("sh")
        .args(["-c", &command])
        .current_dir(&entry.directory)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
}

/// The build of this checkout below `place`, where another one can be told to compile again; says so where it cannot.
fn first(test: &str, place: &str) -> Option<BuildManifest> {
    let first: BuildManifest = read_json(&root().join(place).join("build.json")).unwrap();
    if first.launcher.as_deref() == Some("ccache") {
        return Some(first);
    }
    assert!(!ci::on_ci(), "built without ccache, and CI is set");
    let _ = writeln!(
        std::io::stderr(),
        "{test} is left out: without ccache it is a whole build"
    );
    None
}

/// A second folder with a warm cache is to cost a quarter of a cold build at most. Objects are what costs: nine of ten
/// must come out of the cache.
fn nearly_all_was_there(build: &Path) {
    let text = std::fs::read(build.join("launcher.json")).unwrap();
    let told: serde_json::Value = serde_json::from_slice(&text).unwrap();
    let [hits, misses] = ["hits", "misses"].map(|key| told[key].as_u64().unwrap());
    assert!(
        hits + misses > 100 && misses * 10 <= hits + misses,
        "{told}"
    );
}

#[test]
fn another_folder_gives_the_same_bytes() {
    if !wanted("another_folder_gives_the_same_bytes") {
        return;
    }
    let Some(first) = first("another_folder_gives_the_same_bytes", PLACE) else {
        return;
    };
    let dir = root().join("target/test-checkouts/a folder/of another depth/and name");
    for file in ["upstreams.toml", "toolchains.toml"] {
        let from = root().join("registry").join(file);
        put(
            &dir.join("registry").join(file),
            std::fs::read(from).unwrap(),
        );
    }
    put(
        &dir.join("registry/series.toml"),
        "schema = 1\n[series]\n\"llama-0.5.0\" = []\n",
    );
    // A folder that an earlier run left compiles nothing, and tells nothing.
    let is_new = !dir.join(PLACE).exists();
    build(&dir, "vanilla", true);
    if is_new {
        nearly_all_was_there(&dir.join(PLACE));
    }
    let out = dir.join(PLACE).join("out");
    let anew = objects(&out, &ANEW);
    assert_eq!(anew.len(), ANEW.len(), "{anew:?}");
    for object in &anew {
        std::fs::remove_file(object).unwrap();
    }
    let second = build(&dir, "vanilla", false);
    assert_eq!(second.source, first.source, "another tree");
    // Each object alone, so that it is said which.
    for (one, other) in objects(&root().join(PLACE).join("out"), &ANEW)
        .iter()
        .zip(&anew)
    {
        let same = std::fs::read(one).unwrap() == std::fs::read(other).unwrap();
        assert!(same, "{} and {}", one.display(), other.display());
    }
    for name in ["libllama", "libggml-cpu", "libggml-base", "llama-server"] {
        let find = |build: &BuildManifest| {
            let start = format!("out/bin/{name}");
            let mut all = build.artifacts.iter();
            all.find(|one| one.path.starts_with(&start))
                .unwrap()
                .clone()
        };
        assert_eq!(find(&first), find(&second), "stamp and all");
    }
    assert_eq!(first.artifacts, second.artifacts);
    // The control: the folder would show, were it not taken out.
    let temp = tempfile::tempdir().unwrap();
    let control = temp.path().join("control.o");
    without_the_map(&dir, &control);
    let real = anew.into_iter().find(|path| path.ends_with(CONTROL));
    let bytes = std::fs::read(&control).unwrap();
    assert_ne!(bytes, std::fs::read(real.unwrap()).unwrap());
    let shown = String::from_utf8_lossy(&bytes).contains("another depth");
    assert!(shown, "the control does not name its folder");
}

/// The patched build, with its overlay and the Rust library, which no compiler cache keeps.
#[test]
fn another_folder_gives_the_same_bytes_with_the_patches() {
    if !wanted("another_folder_gives_the_same_bytes_with_the_patches") {
        return;
    }
    let Some(first) = first(
        "another_folder_gives_the_same_bytes_with_the_patches",
        PATCHED,
    ) else {
        return;
    };
    let dir = root().join("target/test-checkouts/patched folder/deeper/than the other");
    for part in ["registry", "patches", "Cargo.lock"] {
        copy(&root().join(part), &dir.join(part));
    }
    for part in ["Cargo.toml", "include", "src"] {
        let part = Path::new("ggml-ext").join(part);
        copy(&root().join(&part), &dir.join(&part));
    }
    put(&dir.join("Cargo.toml"), manifest_of_the_crate());
    ok(&dir, &["apply", "--discard-edits"]);
    build(&dir, "patched", true);
    let anew = objects(&dir.join(PATCHED).join("out"), &ANEW_PATCHED);
    assert_eq!(anew.len(), ANEW_PATCHED.len(), "{anew:?}");
    for object in &anew {
        std::fs::remove_file(object).unwrap();
    }
    let second = build(&dir, "patched", false);
    assert_eq!(second.source, first.source, "another tree");
    assert_eq!(second.patchset, first.patchset, "another series");
    let library =
        |root: &Path| std::fs::read(root.join(PATCHED).join("ext/libggml_ext.a")).unwrap();
    assert!(library(&root()) == library(&dir), "the Rust library");
    let own = objects(&root().join(PATCHED).join("out"), &ANEW_PATCHED);
    for (one, other) in own.iter().zip(&anew) {
        let same = std::fs::read(one).unwrap() == std::fs::read(other).unwrap();
        assert!(same, "{} and {}", one.display(), other.display());
    }
    assert_eq!(first.artifacts, second.artifacts, "stamp and all");
}
