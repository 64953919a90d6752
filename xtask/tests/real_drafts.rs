//! The negative control of the drafts gate: faults that are planted in the fused draft, each of
//! which the gate must see. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use llama_patchset::cli::REAL_VAR;

const SERIES: [&str; 7] = [
    "ext-core",
    "spec-counters",
    "spec-trace",
    "nextn-reuse",
    "nextn-kv-only",
    "nextn-fused",
    "planted-draft",
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

fn xtask(dir: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(args)
        .arg("--root")
        .arg(dir)
        .output()
        .unwrap()
}

fn ok(dir: &Path, args: &[&str]) {
    let output = xtask(dir, args);
    assert!(
        output.status.success(),
        "{args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Copies what differs, so that a second run builds nothing.
fn copy(from: &Path, to: &Path) {
    if from.is_dir() {
        fs::create_dir_all(to).unwrap();
        for entry in fs::read_dir(from).unwrap() {
            let entry = entry.unwrap();
            copy(&entry.path(), &to.join(entry.file_name()));
        }
    } else if fs::read(from).ok() != fs::read(to).ok() {
        fs::copy(from, to).unwrap();
    }
}

/// The definition of a gate that plants `fault` into the candidate.
fn definition(fault: &str) -> String {
    format!(
        r#"schema = 1
id = "planted-{fault}"
kind = "drafts"
title = "A planted fault"
model = {{ fixture = "qwen35-nextn" }}
n-predict = 64
baseline = {{ build = "patched", env = {{ OPENCOTI_SPEC_COUNTERS = "1" }} }}
candidate = {{ build = "patched", env = {{ OPENCOTI_SPEC_COUNTERS = "1", OPENCOTI_MTP_FUSED_NEXTN = "1", OPENCOTI_PLANTED_DRAFT = "{fault}" }} }}
[[setting]]
name = "plain"
n-max = [3]
slots = [1]
fewer-launches = true
[[prompt]]
name = "long"
generate = {{ seed = 2, length = 200, low = 4, high = 512 }}
"#
    )
}

/// `none` is the control: the same build without a fault passes.
#[test]
fn every_planted_fault_of_a_fused_draft_fails_the_drafts_gate() {
    if std::env::var_os(REAL_VAR).is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "left out, since {REAL_VAR} is not set; `cargo xtask test` sets it"
        );
        return;
    }
    let dir = root().join("target/test-checkouts/planted-draft");
    copy(&root().join("registry"), &dir.join("registry"));
    fs::create_dir_all(dir.join("gates")).unwrap();
    for part in ["fixtures.toml", "prompts"] {
        copy(
            &root().join("gates").join(part),
            &dir.join("gates").join(part),
        );
    }
    for patch in SERIES {
        let from = match patch {
            "planted-draft" => root().join("xtask/tests/data/planted-draft"),
            _ => root().join("patches").join(patch),
        };
        copy(&from, &dir.join("patches").join(patch));
    }
    fs::write(
        dir.join("registry/series.toml"),
        format!("schema = 1\n[series]\n\"llama-0.5.0\" = {SERIES:?}\n"),
    )
    .unwrap();
    // The checkout has no kernels: ext-core builds without them.
    let manifest = dir.join("patches/ext-core/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let without = text.lines().filter(|line| !line.starts_with("inputs"));
    fs::write(&manifest, without.collect::<Vec<_>>().join("\n")).unwrap();
    for fault in ["none", "h", "cell", "pos"] {
        let path = dir.join(format!("gates/planted-{fault}.toml"));
        fs::write(path, definition(fault)).unwrap();
    }
    ok(&dir, &["apply", "--discard-edits"]);
    ok(&dir, &["build", "--patched"]);
    let server = dir.join("target/llama/llama-0.5.0/patched-cpu/out/bin/llama-server");
    let server = server.to_str().unwrap();
    for fault in ["none", "h", "cell", "pos"] {
        let gate = format!("planted-{fault}");
        let output = xtask(
            &dir,
            &[
                "gate",
                "--json",
                "--gate",
                &gate,
                "--baseline",
                server,
                "--candidate",
                server,
            ],
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
        });
        let cell = &json["data"]["gates"][0]["cells"][0];
        if fault == "none" {
            assert_eq!(cell["verdict"], "pass", "{text}");
            continue;
        }
        assert_eq!(output.status.code(), Some(1), "{fault}: {text}");
        assert_eq!(cell["verdict"], "fail", "{fault}");
        let reason = cell["reason"].as_str().unwrap();
        assert!(reason.contains("candidates differ"), "{fault}: {reason}");
        // The control was run, and agreed with the baseline.
        assert_eq!(cell["control"], cell["baseline"]);
        // The first step does not depend on the chain; it does on its own cell.
        let in_first = reason.contains("step 0, position");
        assert_eq!(in_first, fault == "cell", "{fault}: {reason}");
        let _ = writeln!(std::io::stderr(), "{fault}: {reason}");
    }
}
