//! The workflows of GitHub Actions against what they are made from: the hosts of the registry, and
//! what `cargo xtask hosts --matrix` prints of them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

fn workflow(name: &str) -> String {
    std::fs::read_to_string(root().join(".github/workflows").join(name)).unwrap()
}

/// What stands behind `start` in `text`, up to the end of the word, each time.
fn words_behind<'a>(text: &'a str, start: &str) -> Vec<&'a str> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(start)
        .skip(1)
        .map(|rest| &rest[..rest.find(|c| !is_word(c)).unwrap_or(rest.len())])
        .collect()
}

#[test]
fn the_workflow_takes_what_the_matrix_has() {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["hosts", "--matrix", "--root"])
        .arg(root())
        .output()
        .unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    // One line, as an output of a step must be.
    assert_eq!(text.lines().count(), 1, "{text}");
    let matrix: serde_json::Value = serde_json::from_str(&text).unwrap();
    let jobs = matrix["include"].as_array().unwrap();
    assert!(!jobs.is_empty(), "no host of the registry is rented");
    let yml = workflow("gates.yml");
    let used: BTreeSet<&str> = words_behind(&yml, "${{ matrix.").into_iter().collect();
    for job in jobs {
        let fields: BTreeSet<&str> = job
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(used, fields, "what the workflow reads, and what a job has");
    }
    assert!(yml.contains("matrix=$(cargo xtask hosts --matrix)"));
    assert!(yml.contains("matrix: ${{ fromJSON(needs.matrix.outputs.matrix) }}"));
    // What the commands of the workflow take.
    for (command, flags) in [
        ("build", &["--backend", "--launcher"][..]),
        ("gate", &["--quick", "--gate"]),
        ("report", &["--format"]),
    ] {
        assert!(yml.contains(&format!("cargo xtask {command} ")));
        let help = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args([command, "--help"])
            .output()
            .unwrap();
        let help = String::from_utf8(help.stdout).unwrap();
        for flag in flags {
            assert!(
                yml.contains(flag) && help.contains(flag),
                "{command} {flag}"
            );
        }
    }
}

#[test]
fn nothing_of_an_expression_is_run_by_a_shell_and_actions_are_pinned() {
    let mut pinned = 0;
    for entry in std::fs::read_dir(root().join(".github/workflows")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let yml = workflow(&name);
        assert!(yml.contains("permissions:"), "{name}");
        for line in yml.lines() {
            let line = line.trim().trim_start_matches("- ");
            if let Some(action) = line.strip_prefix("uses: ") {
                let (_, version) = action.split_once('@').unwrap();
                let commit = version.split(' ').next().unwrap();
                let digits = commit.bytes().all(|byte| byte.is_ascii_hexdigit());
                assert!(digits && commit.len() == 40, "{name}: {line}");
                assert!(version.contains(" # v"), "{name}: {line}");
                pinned += 1;
            }
            // An expression is pasted into a script before a shell reads it.
            let is_script = line.starts_with("run:") || line.starts_with("cargo ");
            assert!(!is_script || !line.contains("${{"), "{name}: {line}");
        }
    }
    assert!(pinned >= 5, "{pinned}");
}
