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

/// Guards of tests ask for `CI`: what is not set there would be left out in silence.
#[test]
fn ci_sets_what_its_guards_ask_for_and_can_be_told_not_to() {
    let script = std::fs::read_to_string(root().join(".ci/run")).unwrap();
    let (head, _) = script.split_once("\nstep ").unwrap();
    let exports: Vec<&str> = head
        .lines()
        .filter(|line| line.starts_with("export "))
        .collect();
    let told = |value: Option<&str>| {
        let mut command = Command::new("bash");
        command.arg("-c");
        command.arg(exports.join("\n") + "\nprintf %s \"$CI\"");
        command.env_remove("CI");
        let output = command.envs(value.map(|value| ("CI", value))).output();
        String::from_utf8(output.unwrap().stdout).unwrap()
    };
    assert_eq!(told(None), "1", "{exports:?}");
    assert_eq!(told(Some("true")), "true");
    assert_eq!(told(Some("")), "");
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
    // Vulkan is rented with what its build and its driver need.
    let is_vulkan = |job: &&serde_json::Value| job["backend"] == "vulkan";
    assert!(jobs.iter().any(|job| is_vulkan(&job)), "{text}");
    let (_, tools) = yml
        .split_once("if [ \"$BACKEND\" = vulkan ]; then packages+=(")
        .unwrap();
    let tools = &tools[..tools.find(')').unwrap()];
    for package in [
        "glslc",
        "libvulkan-dev",
        "spirv-headers",
        "mesa-vulkan-drivers",
    ] {
        assert!(
            tools.split(' ').any(|name| name == package),
            "{package}: {tools}"
        );
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

/// Runs the scripts of a step with programs that only say what they were called with.
fn step(name: &str, start: &str, env: &[(&str, &str)]) -> (String, String) {
    use std::os::unix::fs::PermissionsExt as _;
    let yml = workflow(name);
    let (_, step) = yml.split_once(start).unwrap();
    let (_, script) = step.split_once("run: |\n").unwrap();
    let indent = script.find(|c| c != ' ').unwrap();
    let lines = script
        .lines()
        .take_while(|line| line.is_empty() || line[..indent.min(line.len())].trim().is_empty());
    let script: Vec<&str> = lines.collect();
    let dir = tempfile::tempdir().unwrap();
    for program in ["cargo", "gh", "sudo"] {
        let file = dir.path().join(program);
        std::fs::write(
            &file,
            format!("#!/bin/sh\necho {program} \"$@\" >&2\nprintf '%s' \"$SAID\"\n"),
        )
        .unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    // What it writes must not lie in this checkout.
    std::os::unix::fs::symlink(root().join("gates"), dir.path().join("gates")).unwrap();
    let summary = dir.path().join("summary");
    let path = format!(
        "{}:{}",
        dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    // As the runner calls it.
    let output = Command::new("bash")
        .args(["-e", "-o", "pipefail", "-c", &script.join("\n")])
        .current_dir(dir.path())
        .env("PATH", path)
        .env("GITHUB_STEP_SUMMARY", &summary)
        .envs(env.iter().copied())
        .output()
        .unwrap();
    let said = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
    assert!(output.status.success(), "{said}");
    (said, std::fs::read_to_string(summary).unwrap_or_default())
}

#[test]
fn a_job_for_vulkan_brings_its_driver_and_runs_what_lavapipe_can() {
    let tools = |backend| step("gates.yml", "- name: tools", &[("BACKEND", backend)]).0;
    assert!(tools("vulkan").contains("ninja-build glslc") && !tools("cpu").contains("glslc"));
    let gate = |backend, gates| {
        let env = [("BACKEND", backend), ("GATES", gates), ("QUICK", "true")];
        step("gates.yml", "- name: gate\n", &env).0
    };
    assert_eq!(gate("cpu", "").trim(), "cargo xtask gate --quick");
    assert_eq!(
        gate("vulkan", "a b").trim(),
        "cargo xtask gate --quick --gate a b"
    );
    let said = gate("vulkan", "");
    let (_, names) = said.trim().split_once("--quick --gate ").unwrap();
    let mut found: Vec<String> = Vec::new();
    for entry in std::fs::read_dir(root().join("gates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        if let Some(name) = name.strip_suffix(".toml")
            && name.contains("lavapipe")
        {
            found.push(name.to_owned());
        }
    }
    found.sort();
    let mut names: Vec<&str> = names.split(' ').collect();
    names.sort_unstable();
    assert_eq!(names, found);
}

#[test]
fn a_night_in_which_nothing_was_checked_says_so() {
    let all = r#"{"data":{"bases":[{"base":"a","default":true},{"base":"b","default":false,"partial":true}]}}"#;
    let run = |list: &str| {
        step(
            "sync.yml",
            "- name: sync --check",
            &[("BASE", ""), ("SAID", list)],
        )
    };
    if Command::new("jq").arg("--version").output().is_err() {
        let said = workflow("sync.yml");
        assert!(said.contains("Nothing was checked"));
        return;
    }
    let (said, summary) = run(all);
    assert!(said.contains("::warning::Nothing was checked"), "{said}");
    assert!(summary.contains("Nothing was checked"));
    let (said, summary) = run(&all.replace(r#","partial":true"#, r#","partial":false"#));
    assert!(
        said.contains("sync b --check") && !summary.contains("Nothing"),
        "{said}"
    );
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
