//! `cargo xtask gate` with a gate of kind `perf` from the outside, against servers that say how
//! quick they are, with noise. What it says of slower ones is in `planted.rs`.

#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr
)]

#[path = "support/fake_server.rs"]
mod fake_server;

use std::path::Path;
use std::process::Command;

use llama_patchset::model::{GateRecord, Metric, read_json};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

const DEFINITION: &str = r#"
schema = 1
id = "quick"
kind = "perf"
title = "Not slower"
model = { path = "model.gguf" }
n-max = [2]
n-predict = 8
rounds = 10
control-rounds = 6
limits = { start = 30, request = 30, stop = 1 }
threshold = { decode = 0.01 }
counters = { launches_dft = "equal" }
[[prompt]]
name = "three"
ids = [7, 8, 9]
"#;

struct Found {
    code: i32,
    text: String,
    record: Option<GateRecord>,
}

fn command(dir: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["gate", "--unstamped", "--root"]).arg(dir);
    command.args(args);
    for (side, flag) in [("a", "--baseline"), ("b", "--candidate")] {
        command.arg(flag).arg(dir.join(side).join("llama-server"));
    }
    command.env("LLAMA_PATCHSET_CACHE", dir.join("cache"));
    command
}

fn setup(definition: &str, baseline: &str, candidate: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["registry", "gates"] {
        std::fs::create_dir(dir.path().join(folder)).unwrap();
    }
    std::fs::write(dir.path().join("registry/upstreams.toml"), "schema = 1\n").unwrap();
    std::fs::write(dir.path().join("gates/quick.toml"), definition).unwrap();
    std::fs::write(dir.path().join("model.gguf"), "GGUF").unwrap();
    for (side, fault) in [("a", baseline), ("b", candidate)] {
        let pids = dir.path().join("pids");
        fake_server::install(&dir.path().join(side), fault, &pids, "");
    }
    dir
}

fn gate(baseline: &str, candidate: &str) -> Found {
    let dir = setup(DEFINITION, baseline, candidate);
    let output = command(dir.path(), &["--gate", "quick"]).output().unwrap();
    for pid in std::fs::read_dir(dir.path().join("pids")).unwrap() {
        let pid = pid.unwrap().file_name().into_string().unwrap();
        let left = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        assert!(
            left.is_empty() || left.contains(") Z"),
            "still there: {left}"
        );
    }
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    Found {
        code: output.status.code().unwrap(),
        text,
        record: read_json(&dir.path().join("target/gate/latest-quick.json")).ok(),
    }
}

#[track_caller]
fn expect(found: &Found, code: i32, words: &[&str]) {
    assert_eq!(found.code, code, "{}", found.text);
    for word in words {
        assert!(found.text.contains(word), "no {word:?} in:\n{}", found.text);
    }
}

#[test]
fn equally_quick_servers_pass() {
    let found = gate("good", "good");
    expect(
        &found,
        0,
        &["ok gate quick: pass", "would have failed in 95 of 100 runs"],
    );
    let record = found.record.unwrap();
    let perf = record.perf.unwrap();
    assert_eq!((perf.done, perf.pairs_per_round), ([6, 10], 4));
    assert_eq!(perf.rounds.len(), 16);
    let metrics: Vec<Metric> = perf.metrics.iter().map(|metric| metric.metric).collect();
    assert_eq!(metrics, Metric::ALL);
    assert!(perf.metrics[0].control.unwrap().pairs == 24);
    assert!(perf.machine.load[1].is_some());
}

#[test]
fn acceptance_is_judged_on_the_same_prompts() {
    let definition = "schema = 1\nid = \"quick\"\nkind = \"acceptance\"\ntitle = \"Accepted\"\n\
                      model = { path = \"model.gguf\" }\nn-max = [2]\nn-predict = 8\n\
                      drop = 0.01\nprompt = [{ name = \"a\", ids = [1] }]\n";
    for (candidate, code, words) in [
        ("good", 0, "equal for every prompt"),
        ("no-drafts", 3, "nothing was speculated"),
    ] {
        let dir = setup(definition, "good", candidate);
        let output = command(dir.path(), &[]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn a_perf_gate_runs_only_where_it_is_named() {
    let dir = setup(DEFINITION, "good", "good");
    let output = command(dir.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("no gate runs without being named"), "{text}");
    let same = "schema = 1\nid = \"same\"\nkind = \"chash\"\ntitle = \"Same\"\n\
                model = { path = \"model.gguf\" }\nn-max = [0]\nslots = [1]\nn-predict = 4\n\
                prompt = [{ name = \"a\", ids = [1] }]\n";
    std::fs::write(dir.path().join("gates/same.toml"), same).unwrap();
    let output = command(dir.path(), &[]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("not run, since"), "{text}");
    assert!(text.contains("--gate quick"), "{text}");
    assert!(!dir.path().join("target/gate/latest-quick.json").exists());
}
