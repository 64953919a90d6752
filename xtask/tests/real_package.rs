//! The package of a real build, and the flags of real builds. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use llama_patchset::build::{Build, drift};
use llama_patchset::ctx::Cancel;
use llama_patchset::gate::client::Sampling;
use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::{Halt, Prompt};
use llama_patchset::model::{BuildManifest, Digest, Flavour, read_json, write_json};
use llama_patchset::sbom;
use real::{copy, root, wanted, xtask};

const BASE: &str = "llama-0.5.0";

fn build_dir(kind: &str) -> PathBuf {
    root().join("target/llama").join(BASE).join(kind)
}

/// Builds that are there: those for processors always are.
fn kinds() -> Vec<(&'static str, Vec<&'static str>)> {
    let mut kinds = vec![
        ("vanilla-cpu", vec!["--vanilla"]),
        ("patched-cpu", Vec::new()),
    ];
    if build_dir("patched-vulkan").join("build.json").is_file() {
        kinds.push(("patched-vulkan", vec!["--backend", "vulkan"]));
    }
    kinds
}

fn package(root: &Path, flags: &[&str], to: &Path) -> Output {
    let mut args = vec!["package", "--output", to.to_str().unwrap()];
    args.extend(flags);
    xtask(root, &args)
}

fn told(output: &Output) -> String {
    let text = [output.stdout.clone(), output.stderr.clone()].concat();
    String::from_utf8_lossy(&text).into_owned()
}

fn ok(output: &Output) {
    assert!(output.status.success(), "{}", told(output));
}

/// The archive below `dir`, unpacked into `to`: its top folder.
fn unpacked(archive: &Path, to: &Path) -> PathBuf {
    let file = fs::File::open(archive).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    tar.unpack(to).unwrap();
    let mut entries = fs::read_dir(to).unwrap();
    let top = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "one folder at the top");
    top
}

fn archives(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name != ".lock").collect()
}

#[test]
fn a_package_is_the_same_each_time_and_runs_wherever_it_is_unpacked() {
    if !wanted("a_package_is_the_same_each_time_and_runs_wherever_it_is_unpacked") {
        return;
    }
    for (kind, flags) in kinds() {
        let temp = tempfile::tempdir().unwrap();
        let name = format!("{BASE}-{kind}.tar.gz");
        let mut digests = Vec::new();
        for dir in ["one", "two"] {
            ok(&package(&root(), &flags, &temp.path().join(dir)));
            digests.push(Digest::of_file(&temp.path().join(dir).join(&name)).unwrap());
        }
        assert_eq!(digests[0], digests[1], "{kind}");
        let elsewhere = temp.path().join("else where/deep");
        let top = unpacked(&temp.path().join("one").join(&name), &elsewhere);
        assert!(top.ends_with(format!("{BASE}-{kind}")));
        for file in fs::read_dir(top.join("bin")).unwrap() {
            let file = file.unwrap().path();
            if !file.ends_with("llama-patchset.json") {
                let output = xtask(&root(), &["inspect", file.to_str().unwrap()]);
                ok(&output);
                let said = told(&output);
                assert!(said.contains("llama-patchset.json"), "no manifest: {said}");
            }
        }
        licences(&top);
        contents(&top, kind);
        if !kind.ends_with("vulkan") {
            assert_eq!(
                tokens(&top.join("bin")),
                tokens(&build_dir(kind).join("out/bin"))
            );
        }
    }
}

fn licences(top: &Path) {
    for (name, word) in [
        ("llama.cpp-LICENSE", "The ggml authors"),
        ("cpp-httplib-LICENSE", "MIT"),
        ("nlohmann-json.hpp", "SPDX-License-Identifier: MIT"),
        ("hash-xxhash-LICENSE", "BSD 2-Clause"),
        ("llama-patchset-LICENSE", "MIT"),
    ] {
        let text = fs::read_to_string(top.join("licences").join(name));
        let text = text.unwrap_or_else(|error| panic!("{name}: {error}"));
        let (text, word) = (text.to_lowercase(), word.to_lowercase());
        assert!(text.contains(&word), "{name}");
    }
}

/// The list of what went into it: as the format wants it, and true.
fn contents(top: &Path, kind: &str) {
    let list: serde_json::Value = read_json(&top.join(sbom::FILE)).unwrap();
    assert_eq!(sbom::faults(&list), [""; 0], "{kind}");
    let mut checked = 0;
    let own = list["metadata"]["component"]["components"]
        .as_array()
        .unwrap();
    for one in list["components"].as_array().unwrap().iter().chain(own) {
        let place = one["bom-ref"].as_str().unwrap();
        if one["type"] == "file" {
            let file = Digest::of_file(&top.join(place)).unwrap();
            assert_eq!(one["hashes"][0]["content"], file.to_string(), "{place}");
            checked += 1;
        }
    }
    let patches = fs::read_dir(top.join("patches")).map_or(0, Iterator::count);
    let files = fs::read_dir(top.join("bin")).unwrap().filter(|entry| {
        let entry = entry.as_ref().unwrap();
        entry.file_type().unwrap().is_file() && entry.file_name() != "llama-patchset.json"
    });
    assert_eq!(checked, patches + files.count());
    assert_eq!(patches > 10, kind.starts_with("patched"));
    let text = list.to_string();
    for part in [
        "pkg:pypi/llama-cpp-python@",
        "vendor/nlohmann",
        "vendor/hash/xxhash",
        "flag:GGML_NATIVE",
    ] {
        assert!(text.contains(part), "{kind}: no {part}");
    }
    for part in ["crate:ggml-ext", "rust-std"] {
        assert_eq!(
            text.contains(part),
            kind.starts_with("patched"),
            "{kind}: {part}"
        );
    }
    assert!(
        !text.contains(root().to_str().unwrap()),
        "a path of this machine"
    );
}

/// What the server in `bin` generates, and that it loads nothing of ours from elsewhere.
fn tokens(bin: &Path) -> Vec<u32> {
    let temp = tempfile::tempdir().unwrap();
    let halt = Halt::new(&Cancel::default());
    let model = root().join("target/fixtures/qwen35-nextn.gguf");
    let args = [
        "-m",
        model.to_str().unwrap(),
        "-c",
        "512",
        "-t",
        "1",
        "-fit",
        "off",
    ];
    let env = BTreeMap::new();
    let launch = Launch {
        program: &bin.join("llama-server"),
        args: args.map(Into::into).to_vec(),
        env: &env,
        log: temp.path().join("log"),
        is_judged: false,
        start: Duration::from_secs(120),
        request: Duration::from_secs(120),
        stop: Duration::from_secs(10),
    };
    let mut server = Server::start(&launch, &halt).unwrap();
    let bin = fs::canonicalize(bin).unwrap();
    let loaded = server.loaded_files().unwrap();
    assert!(loaded.len() > 3, "{loaded:?}");
    for file in loaded {
        assert!(file.starts_with(&bin), "{}", file.display());
    }
    let prompt = Prompt {
        name: String::new(),
        ids: vec![5, 6, 7],
    };
    let sampling = Sampling {
        n_predict: 16,
        seed: 1,
    };
    let answers = server.ask(&halt, |client| client.complete(&[&prompt], sampling));
    let answers = answers.unwrap();
    server.end().unwrap();
    assert_eq!(answers[0].tokens.len(), 16);
    answers[0].tokens.clone()
}

/// The manifest that lies beside the files.
const BESIDE: &str = llama_patchset::build::BESIDE;

#[test]
fn what_may_not_be_packed_is_refused_and_leaves_nothing() {
    if !wanted("what_may_not_be_packed_is_refused_and_leaves_nothing") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let checkout = temp.path().join("checkout");
    for part in ["registry", "Cargo.lock", "LICENSE"] {
        copy(&root().join(part), &checkout.join(part));
    }
    let from = build_dir("vanilla-cpu");
    let to = checkout.join("target/llama").join(BASE).join("vanilla-cpu");
    let manifest: BuildManifest = read_json(&from.join("build.json")).unwrap();
    // The manifest of the build, and the one that goes with the files.
    let write = |manifest: &BuildManifest| {
        write_json(&to.join("build.json"), manifest).unwrap();
        let mut beside = manifest.clone();
        for artifact in &mut beside.artifacts {
            artifact.path = artifact.path.replace("out/bin/", "");
        }
        write_json(&to.join("out/bin").join(BESIDE), &beside).unwrap();
    };
    let fresh = || {
        fs::create_dir_all(to.join("out/bin")).unwrap();
        for artifact in &manifest.artifacts {
            fs::copy(from.join(&artifact.path), to.join(&artifact.path)).unwrap();
        }
        write(&manifest);
    };
    let server = to.join("out/bin/llama-server");
    let output = temp.path().join("packed");
    let refused = |code: i32, words: &str| {
        let done = package(&checkout, &["--vanilla"], &output);
        assert_eq!(done.status.code(), Some(code), "{words}: {}", told(&done));
        assert!(told(&done).contains(words), "{words}: {}", told(&done));
        assert_eq!(archives(&output), [""; 0], "{words}");
    };
    refused(2, "there is no vanilla build");
    fresh();
    let mut bytes = fs::read(&server).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&server, &bytes).unwrap();
    refused(1, "out/bin/llama-server: expected sha256");
    // As somebody would who knows of the manifest.
    let mut forged = manifest.clone();
    let server_of = |manifest: &mut BuildManifest, bytes: &[u8]| {
        let mut all = manifest.artifacts.iter_mut();
        let one = all.find(|one| one.path == "out/bin/llama-server").unwrap();
        one.sha256 = Digest::of(bytes);
    };
    server_of(&mut forged, &bytes);
    write(&forged);
    refused(1, "is not what was stamped");
    let plain = llama_patchset::build::provenance::plain(
        &fs::read(from.join("out/bin/llama-server")).unwrap(),
    );
    fs::write(&server, &plain).unwrap();
    server_of(&mut forged, &plain);
    write(&forged);
    refused(1, "carries no stamp");
    fresh();
    fs::remove_file(&server).unwrap();
    refused(1, "out/bin/llama-server: missing");
    fresh();
    fs::write(to.join("out/bin/libgomp.so.1"), b"\x7fELFplanted").unwrap();
    refused(1, "not a product of this build");
    fs::remove_file(to.join("out/bin/libgomp.so.1")).unwrap();
    fs::write(to.join("out/bin").join(BESIDE), "{").unwrap();
    refused(1, "llama-patchset.json: expected sha256");
    // The patched build in the place of vanilla.
    fresh();
    let mut other = manifest.clone();
    other.flavour = Flavour::Patched;
    write(&other);
    refused(1, "holds the patched build");
    // Of another tree, under the name of the base.
    let mut older = manifest.clone();
    older.tree = Digest::of(b"older");
    write(&older);
    refused(1, "it was built from the tree");
}

#[test]
fn what_cannot_be_written_leaves_nothing_and_what_is_there_stays() {
    if !wanted("what_cannot_be_written_leaves_nothing_and_what_is_there_stays") {
        return;
    }
    let temp = tempfile::tempdir().unwrap();
    let output = temp.path().join("packed");
    let name = format!("{BASE}-vanilla-cpu.tar.gz");
    let done = package(&root(), &["--vanilla"], Path::new("/dev/null/x"));
    assert_eq!(done.status.code(), Some(2), "{}", told(&done));
    let command = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["package", "--vanilla", "--root"]).arg(root());
        command.arg("--output").arg(&output);
        command
    };
    // As on a full disk: no file may grow beyond a megabyte.
    let full = Command::new("bash")
        .args(["-c", "trap '' XFSZ; ulimit -f 1024; exec \"$@\"", "-"])
        .arg(env!("CARGO_BIN_EXE_xtask"))
        .args(["package", "--vanilla", "--root"])
        .arg(root())
        .arg("--output")
        .arg(&output)
        .output()
        .unwrap();
    assert_eq!(full.status.code(), Some(2), "{}", told(&full));
    assert_eq!(archives(&output), [""; 0]);
    for wait in [50, 400, 1500] {
        let mut child = command()
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_millis(wait));
        child.kill().unwrap();
        let ended = child.wait().unwrap().success();
        let whole = archives(&output).contains(&name);
        assert!(!whole || ended || Digest::of_file(&output.join(&name)).is_ok());
        assert!(!whole || unpacks(&output.join(&name)), "half an archive");
    }
    fs::write(output.join(".tmp-killed"), "half").unwrap();
    let _ = fs::remove_file(output.join(&name));
    ok(&command().output().unwrap());
    assert_eq!(
        archives(&output),
        std::slice::from_ref(&name),
        "what was left is gone"
    );
    let archive = output.join(&name);
    let good = fs::read(&archive).unwrap();
    ok(&command().output().unwrap());
    fs::write(&archive, b"somebody's").unwrap();
    let done = command().output().unwrap();
    assert_eq!(done.status.code(), Some(2), "{}", told(&done));
    assert!(told(&done).contains("--force"), "{}", told(&done));
    assert_eq!(fs::read(&archive).unwrap(), b"somebody's");
    ok(&command().arg("--force").output().unwrap());
    assert_eq!(fs::read(&archive).unwrap(), good);
}

fn unpacks(archive: &Path) -> bool {
    let file = fs::File::open(archive).unwrap();
    let mut tar = tar::Archive::new(flate2::read::GzDecoder::new(file));
    tar.entries().unwrap().all(|entry| entry.is_ok())
}

/// A copy of what the flags of a build are read from.
fn copied(kind: &str, to: &Path, edit: &dyn Fn(&str, String) -> String) -> Build {
    let from = build_dir(kind);
    for name in [
        "configure.json",
        "configure.log",
        "out/CMakeCache.txt",
        "out/compile_commands.json",
    ] {
        let text = fs::read_to_string(from.join(name)).unwrap();
        fs::create_dir_all(to.join("out")).unwrap();
        fs::write(to.join(name), edit(name, text)).unwrap();
    }
    Build {
        dir: to.to_path_buf(),
        manifest: read_json(&from.join("build.json")).unwrap(),
    }
}

#[test]
fn the_flags_of_real_builds_hold_and_planted_drift_is_found() {
    if !wanted("the_flags_of_real_builds_hold_and_planted_drift_is_found") {
        return;
    }
    for (kind, _) in kinds() {
        let temp = tempfile::tempdir().unwrap();
        let check = |edit: &dyn Fn(&str, String) -> String| -> Vec<String> {
            let build = copied(kind, temp.path(), edit);
            let found = drift::check(&build).unwrap();
            found.iter().map(ToString::to_string).collect()
        };
        assert_eq!(check(&|_, text| text), [""; 0], "{kind}");
        // File, what stands there, what is planted, and what must be said.
        for (file, from, planted, part) in [
            (
                "out/CMakeCache.txt",
                "LLAMA_OPENSSL:BOOL=OFF",
                "LLAMA_OPENSSL:BOOL=ON",
                "LLAMA_OPENSSL: asked for OFF, cached as ON",
            ),
            (
                "out/CMakeCache.txt",
                "LLAMA_BUILD_UI:BOOL=OFF\n",
                "",
                "LLAMA_BUILD_UI: asked for OFF, not in the cache",
            ),
            (
                "out/CMakeCache.txt",
                "GGML_AVX512:BOOL=OFF",
                "GGML_AVX512:BOOL=ON",
                "GGML_AVX512: asked for ON, GGML_NATIVE=ON",
            ),
            (
                "out/CMakeCache.txt",
                "GGML_NATIVE:BOOL=ON",
                "GGML_NATIVE:BOOL=OFF",
                "commands have -march=native",
            ),
            (
                "out/compile_commands.json",
                "-march=native",
                "",
                "GGML_NATIVE: asked for ON, none of",
            ),
            (
                "out/compile_commands.json",
                "-march=native",
                "-march=native -fsanitize=address",
                "profile release: asked for no sanitizer",
            ),
            (
                "out/compile_commands.json",
                "/ggml-cpu.dir/",
                "/ggml-cpu-x64-feats.dir/",
                "",
            ),
            (
                "out/compile_commands.json",
                "-o ggml/src/CMakeFiles/ggml-cpu.dir/",
                "-mavx512f -o ggml/src/CMakeFiles/ggml-cpu-x64.dir/",
                "ggml-cpu-x64: asked for no instruction set beyond the first",
            ),
            (
                "configure.log",
                "-- Configuring done",
                "  Manually-specified variables were not used by the project:\n\n    GGML_CCACHE\n\n",
                "GGML_CCACHE: asked for OFF, no build file",
            ),
            (
                "configure.json",
                "\"env\": {",
                "\"env\": {\n    \"CXXFLAGS\": \"-O2\",",
                "CXXFLAGS: asked for -O2, -O3 follows",
            ),
        ] {
            let found = check(&|name, text| match name == file {
                true => {
                    assert!(text.contains(from), "{kind} {file}: no {from}");
                    // An object is no trailing comma.
                    text.replace(from, planted).replace("\"-O2\",}", "\"-O2\"}")
                }
                false => text,
            });
            match part {
                "" => assert_eq!(found, [""; 0], "{kind}: {planted}"),
                part => assert!(
                    found.iter().any(|told| told.contains(part)),
                    "{kind}: no {part:?} in {found:#?}"
                ),
            }
        }
    }
}
