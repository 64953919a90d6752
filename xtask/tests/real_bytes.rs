//! The same inputs give the same bytes: vanilla built once more in a folder of another name and depth. By hand,
//! after `cargo xtask build`:
//!
//! ```sh
//! LLAMA_PATCHSET_TEST_REAL=1 cargo test -p xtask --test real_bytes -- --ignored
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::cli::REAL_VAR;
use llama_patchset::model::{BuildManifest, read_json};

/// What is compiled anew without a compiler cache, so that the second folder is not only a copy of what the
/// first one compiled: all kernels for processors, and of libllama what names files in messages.
const ANEW: [&str; 2] = [
    "ggml/src/CMakeFiles/ggml-cpu.dir",
    "src/CMakeFiles/llama.dir",
];
/// Of the second, this many objects: it has some two hundred.
const SOME: usize = 6;

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().into()
}

fn build(dir: &Path, cached: bool) -> BuildManifest {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["build", "--vanilla", "--root"]).arg(dir);
    if !cached {
        command.env("CCACHE_DISABLE", "1");
    }
    let output = command.output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}");
    read_json(&dir.join("target/llama/llama-0.5.0/vanilla-cpu/build.json")).unwrap()
}

fn objects(dir: &Path) -> Vec<PathBuf> {
    let mut list: Vec<PathBuf> = walkdir::WalkDir::new(dir)
        .into_iter()
        .map(|entry| entry.unwrap().into_path())
        .filter(|path| path.extension().is_some_and(|end| end == "o"))
        .collect();
    list.sort();
    list
}

#[test]
#[ignore = "compiles all kernels without a cache, which takes minutes"]
fn another_folder_gives_the_same_bytes() {
    if std::env::var_os(REAL_VAR).is_none() {
        let mut out = std::io::stderr();
        let _ = writeln!(out, "left out, since {REAL_VAR} is not set");
        return;
    }
    let first = root().join("target/llama/llama-0.5.0/vanilla-cpu/build.json");
    let first: BuildManifest = read_json(&first).unwrap();
    let dir = root().join("target/test-checkouts/a folder/of another depth/and name");
    std::fs::create_dir_all(dir.join("registry")).unwrap();
    for file in ["upstreams.toml", "toolchains.toml"] {
        let from = root().join("registry").join(file);
        std::fs::copy(from, dir.join("registry").join(file)).unwrap();
    }
    let series = "schema = 1\n[series]\n\"llama-0.5.0\" = []\n";
    std::fs::write(dir.join("registry/series.toml"), series).unwrap();
    build(&dir, true);
    let out = dir.join("target/llama/llama-0.5.0/vanilla-cpu/out");
    let [kernels, library] = ANEW.map(|folder| objects(&out.join(folder)));
    assert!(kernels.len() > 8 && library.len() > SOME, "{kernels:?}");
    for object in kernels.iter().chain(library.iter().take(SOME)) {
        std::fs::remove_file(object).unwrap();
    }
    let second = build(&dir, false);
    assert_eq!(second.source, first.source, "another tree");
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
}
