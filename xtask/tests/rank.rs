//! `cargo xtask rank` from texts to the file, with a server that makes an id of each byte.

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
use std::process::{Command, Output};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

fn rank(dir: &Path, fault: &str, texts: &[&str]) -> Output {
    let server = fake_server::install(&dir.join(fault), fault, &dir.join("pids"), "");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .current_dir(dir)
        .arg("rank")
        .args(["--model", "m.gguf", "--out", "out.ids"]);
    command
        .arg("--root")
        .arg(dir)
        .arg("--server")
        .arg(server)
        .args(texts);
    command.output().unwrap()
}

#[test]
fn texts_and_ids_become_one_ranking() {
    let dir = tempfile::tempdir().unwrap();
    let put = |name: &str, content: &str| std::fs::write(dir.path().join(name), content).unwrap();
    std::fs::create_dir(dir.path().join("registry")).unwrap();
    put("registry/upstreams.toml", "schema = 1\n");
    put("m.gguf", "a model");
    put("a.txt", "bbbaac");
    put("b.ids", "97 97 7 # and no more\n");
    let output = rank(dir.path(), "good", &["a.txt", "b.ids"]);
    assert!(output.status.success(), "{output:?}");
    let made = std::fs::read_to_string(dir.path().join("out.ids")).unwrap();
    let ids: Vec<&str> = made.lines().filter(|line| !line.starts_with('#')).collect();
    assert_eq!(ids, ["97", "98", "7", "99"]);
    assert!(made.contains("4 of 9 tokens"), "{made}");
    // Again, the other way round: only the list of texts differs.
    assert!(
        rank(dir.path(), "good", &["b.ids", "a.txt"])
            .status
            .success()
    );
    let other = std::fs::read_to_string(dir.path().join("out.ids")).unwrap();
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&made), sorted(&other));
}

#[test]
fn a_model_without_a_vocabulary_is_said_and_nothing_is_written() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("registry")).unwrap();
    std::fs::write(dir.path().join("registry/upstreams.toml"), "schema = 1\n").unwrap();
    std::fs::write(dir.path().join("m.gguf"), "a model").unwrap();
    std::fs::write(dir.path().join("a.txt"), "text").unwrap();
    let output = rank(dir.path(), "no-tokenizer", &["a.txt"]);
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        said.contains("a.txt") && said.contains("needs a vocabulary"),
        "{said}"
    );
    assert!(!dir.path().join("out.ids").exists());
}
