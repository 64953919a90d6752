//! The same inputs give the same bytes: vanilla once more, in a folder of another name and depth. Most of it
//! comes out of the compiler cache, which is shared; some sources are compiled again without, or nothing
//! would be compared but copies. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::model::{BuildManifest, read_json};
use real::{put, root, wanted};

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
/// The one that the control is made with.
const CONTROL: &str = "llama.dir/llama-batch.cpp.o";

const PLACE: &str = "target/llama/llama-0.5.0/vanilla-cpu";

fn build(dir: &Path, cached: bool) -> BuildManifest {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["build", "--vanilla", "--root"]).arg(dir);
    if !cached {
        command.env("CCACHE_DISABLE", "1");
    }
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    read_json(&dir.join(PLACE).join("build.json")).unwrap()
}

fn objects(out: &Path) -> Vec<PathBuf> {
    let all = walkdir::WalkDir::new(out).into_iter();
    let all = all.map(|entry| entry.unwrap().into_path());
    let is_anew = |path: &PathBuf| ANEW.iter().any(|end| path.ends_with(end));
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

#[test]
fn another_folder_gives_the_same_bytes() {
    if !wanted("another_folder_gives_the_same_bytes") {
        return;
    }
    let first: BuildManifest = read_json(&root().join(PLACE).join("build.json")).unwrap();
    // Others cannot be told to compile again.
    if first.launcher.as_deref() != Some("ccache") {
        let _ = writeln!(
            std::io::stderr(),
            "another_folder_gives_the_same_bytes is left out: without ccache it is a whole build"
        );
        return;
    }
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
    build(&dir, true);
    let out = dir.join(PLACE).join("out");
    let anew = objects(&out);
    assert_eq!(anew.len(), ANEW.len(), "{anew:?}");
    for object in &anew {
        std::fs::remove_file(object).unwrap();
    }
    let second = build(&dir, false);
    assert_eq!(second.source, first.source, "another tree");
    // Each object alone, so that it is said which.
    for (one, other) in objects(&root().join(PLACE).join("out")).iter().zip(&anew) {
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
    let real = objects(&out)
        .into_iter()
        .find(|path| path.ends_with(CONTROL));
    let bytes = std::fs::read(&control).unwrap();
    assert_ne!(bytes, std::fs::read(real.unwrap()).unwrap());
    let shown = String::from_utf8_lossy(&bytes).contains("another depth");
    assert!(shown, "the control does not name its folder");
}
