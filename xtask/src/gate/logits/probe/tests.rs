//! Scripts that pass for a probe: what it says is not believed, and how it ends is seen.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::Kind;
use crate::ctx::Cancel;
use crate::model::{BuildManifest, Flavour};

/// A build folder with a server and two libraries that hold nothing.
fn build(dir: &Path) -> Build {
    let bin = dir.join("out/bin");
    fs_err::create_dir_all(&bin).unwrap();
    let artifact = |name: &str| {
        let path = bin.join(name);
        fs_err::write(&path, name).unwrap();
        Artifact {
            path: format!("out/bin/{name}"),
            size: name.len() as u64,
            sha256: Digest::of(name.as_bytes()),
            content: None,
        }
    };
    let names = [
        "llama-server",
        "libllama.so.0.5.0",
        "libggml-base.so.0.25.3",
    ];
    Build {
        dir: dir.to_path_buf(),
        manifest: BuildManifest {
            schema: 1,
            base: "toy".to_owned(),
            tree: Digest::of(b""),
            flavour: Flavour::Vanilla,
            backend: "cpu".to_owned(),
            variant: Default::default(),
            patchset: None,
            source: Digest::of(b""),
            flags: BTreeMap::new(),
            compilers: BTreeMap::new(),
            cmake: String::new(),
            ninja: String::new(),
            launcher: None,
            backend_tools: BTreeMap::new(),
            surroundings: Default::default(),
            artifacts: names.map(artifact).to_vec(),
        },
    }
}

/// Runs `script` as the probe; `@` in it stands for the folder of the libraries.
fn run(script: &str, limit: Duration) -> Result<ProbeStamp> {
    let dir = tempfile::tempdir()?;
    let build = build(&dir.path().join("build"));
    let bin = build.dir.join("out/bin");
    // As libraries lie there: what is loaded is a link to the file.
    std::os::unix::fs::symlink("libllama.so.0.5.0", bin.join("libllama.so.0"))?;
    let side = Side::of_build(
        &build,
        Flavour::Vanilla,
        [("SEEN".to_owned(), "1".to_owned())].into(),
    )?;
    let program = dir.path().join("logits");
    let text = script.replace('@', &bin.display().to_string());
    fs_err::write(&program, format!("#!/bin/sh\n{text}\n"))?;
    fs_err::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
    let one = One {
        side: &side,
        build,
        program,
        compiler: "GNU 1 /usr/bin/cc".to_owned(),
        loaded: Mutex::default(),
    };
    let file = |name: &str| dir.path().join(name);
    let halt = Halt::new(&Cancel::default());
    one.run([&file("plan"), &file("out"), &file("log")], limit, &halt)?;
    one.stamp("baseline")
}

const LONG: Duration = Duration::from_secs(60);

const GOOD: &str = "echo library @/libllama.so.0\necho library @/libggml-base.so.0.25.3";

#[test]
fn a_probe_that_reads_the_build_is_stamped_with_what_it_loaded() {
    let stamp = run(
        &format!("test $SEEN = 1 || exit 1\n{GOOD}\necho done"),
        LONG,
    )
    .unwrap();
    let paths: Vec<&str> = stamp
        .libraries
        .iter()
        .map(|library| library.path.as_str())
        .collect();
    assert_eq!(
        paths,
        [
            "out/bin/libggml-base.so.0.25.3",
            "out/bin/libllama.so.0.5.0"
        ]
    );
    assert_eq!(stamp.libraries[1].sha256, Digest::of(b"libllama.so.0.5.0"));
    assert_eq!(stamp.source, Digest::of(SOURCE.as_bytes()));
}

#[test]
fn a_probe_that_may_have_read_something_else_is_a_finding() {
    let elsewhere = tempfile::tempdir().unwrap();
    let foreign = elsewhere.path().join("libggml-cpu.so.0");
    fs_err::write(&foreign, "").unwrap();
    let foreign = format!("{GOOD}\necho library {}\necho done", foreign.display());
    for (script, word) in [
        (foreign.as_str(), "which is no recorded file"),
        ("echo done", "does not say that it has loaded libllama"),
        (
            "echo library @/libllama.so.0\necho done",
            "loaded libggml-base",
        ),
    ] {
        let error = run(script, LONG).unwrap_err();
        assert_eq!(error.kind(), Kind::Finding, "{script}: {error}");
        assert!(error.to_string().contains(word), "{script}: {error}");
    }
}

#[test]
fn a_probe_that_dies_stops_early_or_hangs_is_an_error() {
    for (script, limit, word) in [
        (
            format!("{GOOD}\necho done\necho trouble >&2\nexit 3"),
            LONG,
            "trouble",
        ),
        (GOOD.to_owned(), LONG, "the probe ended"),
        (format!("{GOOD}\nkill -9 $$"), LONG, "the probe ended"),
        (
            "sleep 600".to_owned(),
            Duration::from_millis(200),
            "was not done within",
        ),
    ] {
        let error = run(&script, limit).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment, "{script}: {error}");
        assert!(error.to_string().contains(word), "{script}: {error}");
    }
}

#[test]
fn a_build_with_static_libraries_has_no_probe() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, libraries| {
        let mut build = build(&dir.path().join(name));
        build.manifest.variant.libraries = libraries;
        crate::model::write_json(&build.dir.join("build.json"), &build.manifest).unwrap();
        build.program("llama-server")
    };
    let (shared, inside) = (
        put("shared", Libraries::Shared),
        put("static", Libraries::Static),
    );
    assert!(!is_static([&shared, &shared]).unwrap());
    assert!(is_static([&shared, &inside]).unwrap());
    assert!(is_static([&inside, &shared]).unwrap());
    // Of a program by path nothing is known.
    assert!(!is_static([Path::new("/x/llama-server"), &shared]).unwrap());
}
