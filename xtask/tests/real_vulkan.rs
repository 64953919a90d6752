//! The builds for Vulkan on Mesa's lavapipe, which runs on processors. Runs under `cargo xtask test`, where
//! `cargo xtask build --backend vulkan` was run before; where CI is set, it must have been.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ci.rs"]
mod ci;
#[path = "support/real.rs"]
mod real;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

use llama_patchset::gate::device::Device;
use llama_patchset::model::{GateBackend, GateDevice, GateRecord, Verdict, read_json};
use real::root;

fn server(flavour: &str) -> PathBuf {
    let dir = root().join(format!("target/llama/llama-0.5.0/{flavour}-vulkan"));
    dir.join("out/bin/llama-server")
}

fn wanted(test: &str) -> bool {
    if !real::wanted(test) {
        return false;
    }
    let is_built = ["vanilla", "patched"]
        .iter()
        .all(|one| server(one).is_file());
    if !is_built {
        left_out(test, "no build for Vulkan");
        return false;
    }
    let wanted = GateDevice {
        driver: Some("lvp".to_owned()),
        ..GateDevice::default()
    };
    let has_driver = Device::find(GateBackend::Vulkan, &wanted).is_ok();
    if !has_driver {
        left_out(test, "no lavapipe (mesa-vulkan-drivers)");
    }
    has_driver
}

fn left_out(test: &str, missing: &str) {
    assert!(!ci::on_ci(), "{test}: {missing}, and CI is set");
    let _ = writeln!(
        std::io::stderr(),
        "{test} is left out, since there is {missing}"
    );
}

/// The definitions of gates on lavapipe: name, and whether baseline and candidate compute there.
fn definitions() -> Vec<(String, [bool; 2])> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join("gates")).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if !name.contains("lavapipe") || path.extension().is_none_or(|ext| ext != "toml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let gate: toml::Table = text.parse().unwrap();
        let backend = |side: &str| {
            let own = gate.get(side).and_then(|side| side.get("backend"));
            own.or(gate.get("backend")).unwrap().as_str().unwrap() == "vulkan"
        };
        found.push((name, [backend("baseline"), backend("candidate")]));
    }
    found.sort();
    found
}

/// What the gates of the run before these tests say: they passed, and on lavapipe.
#[test]
fn the_quick_gate_ran_on_lavapipe() {
    if !wanted("the_quick_gate_ran_on_lavapipe") {
        return;
    }
    let definitions = definitions();
    assert!(definitions.len() >= 11, "{definitions:?}");
    for (gate, are_there) in definitions {
        let file = root().join(format!("target/gate/latest-{gate}.json"));
        let record: GateRecord = read_json(&file).unwrap();
        assert_eq!(record.verdict, Verdict::Pass, "{gate}");
        // Some of the gates compare with processors.
        assert!(are_there[1], "{gate}");
        for (side, is_there) in [&record.baseline, &record.candidate]
            .into_iter()
            .zip(are_there)
        {
            let device = side.device.as_deref();
            let is_lavapipe = device.is_some_and(|device| device.contains("llvmpipe"));
            assert_eq!(
                (is_lavapipe, device.is_some()),
                (is_there, is_there),
                "{gate}: {device:?}"
            );
        }
    }
}

/// The same server with the same tokens, and not on the device: each must be a finding.
#[test]
fn a_server_that_left_the_device_is_a_finding() {
    if !wanted("a_server_that_left_the_device_is_a_finding") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for folder in ["registry", "gates"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    std::fs::write(dir.path().join("registry/upstreams.toml"), "schema = 1\n").unwrap();
    let model = root().join("target/fixtures/qwen35-nextn.gguf");
    for (flags, driver, code, says) in [
        ("", "lvp", 0, "ok gate left: pass"),
        ("\"-ngl\", \"0\"", "lvp", 1, "of 6 layers lie on it"),
        ("", "no-such-driver", 2, "no Vulkan driver `no-such-driver`"),
    ] {
        let definition = format!(
            "schema = 1\nid = \"left\"\nkind = \"chash\"\ntitle = \"T\"\n\
             model = {{ path = \"{}\" }}\nbackend = \"vulkan\"\n\
             device = {{ driver = \"{driver}\", name = \"llvmpipe\" }}\nflags = [{flags}]\n\
             n-max = [0]\nslots = [1]\nn-predict = 4\n[[prompt]]\nname = \"a\"\nids = [5, 6]\n",
            model.display()
        );
        std::fs::write(dir.path().join("gates/left.toml"), definition).unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["gate", "--gate", "left", "--root"])
            .arg(dir.path())
            .arg("--baseline")
            .arg(server("vanilla"))
            .arg("--candidate")
            .arg(server("patched"))
            .output()
            .unwrap();
        let told = [output.stdout, output.stderr].concat();
        let told = String::from_utf8(told).unwrap();
        assert_eq!(output.status.code(), Some(code), "{told}");
        assert!(told.contains(says), "{says}: {told}");
    }
}

/// A state of which some layers lie in the processors' memory and the others in lavapipe's: a checkpoint is a copy in each.
#[test]
fn a_state_on_two_devices_comes_back() {
    if !wanted("a_state_on_two_devices_comes_back") {
        return;
    }
    real::ok(&root(), &["fixture", "qwen35-nextn"]);
    let build = root().join("target/llama/llama-0.5.0/patched-vulkan");
    let dir = root().join("target/test-checkouts/probe-ckpt");
    fs_err::create_dir_all(&dir).unwrap();
    let (bin, program) = (build.join("out/bin"), dir.join("ckpt-vulkan"));
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O1"]);
    for folder in ["include", "src", "ggml/include"] {
        compiler.arg("-I").arg(build.join("src").join(folder));
    }
    compiler.arg(root().join("xtask/tests/data/probe-ckpt/ckpt.cpp"));
    compiler.arg("-o").arg(&program).arg("-L").arg(&bin);
    compiler.arg(format!("-Wl,-rpath,{}", bin.display()));
    compiler.args(["-lllama", "-lggml", "-lggml-base"]);
    assert!(compiler.status().unwrap().success());
    let mut command = Command::new(&program);
    command.arg(root().join("target/fixtures/qwen35-nextn.gguf"));
    command.arg("equal").env("PROBE_LAYERS", "5");
    // A device that is a processor is used where it is asked for.
    let done = command
        .env("GGML_VK_VISIBLE_DEVICES", "0")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    for line in ["memory CPU\n", "memory Vulkan0\n", "done\n"] {
        assert!(said.contains(line), "{line}: {said}{errors}");
    }
}
