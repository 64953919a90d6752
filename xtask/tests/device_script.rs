//! `gates/device/cuda.sh` and `checkpoints.sh` without a GPU: what they would run, what they refuse, and, where real builds
//! are wanted, a run on processors.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use llama_patchset::gate::definition;
use llama_patchset::model::{GateBackend, GateRecord, Verdict, read_json};
use llama_patchset::project::Project;
use real::root;

fn script(args: &[&str], dir: &Path, vars: &[(&str, &str)]) -> (i32, String) {
    of("cuda.sh", args, dir, vars)
}

fn of(name: &str, args: &[&str], dir: &Path, vars: &[(&str, &str)]) -> (i32, String) {
    let output = Command::new("bash")
        .arg(root().join("gates/device").join(name))
        .args(args)
        .envs(vars.iter().copied())
        .current_dir(dir)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (
        output.status.code().unwrap(),
        String::from_utf8(text).unwrap(),
    )
}

#[test]
fn the_plan_is_said_without_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let (code, text) = script(&["--dry-run", "BIN", "OUT"], dir.path(), &[]);
    assert_eq!(code, 0, "{text}");
    for kind in ["chash:", "drafts-", "perf-", "ckpt-"] {
        assert!(text.contains(kind), "{kind}: {text}");
    }
    assert_eq!(
        std::fs::read_dir(dir.path()).unwrap().count(),
        0,
        "it wrote"
    );
    let one = [("DEVICE_GATES", "perf-nextn")];
    let (code, text) = script(&["--dry-run", "BIN", "OUT"], dir.path(), &one);
    assert_eq!((code, text.lines().count()), (0, 1), "{text}");
}

/// Each definition of the plans is one on a GPU, too.
#[test]
fn the_definitions_hold_on_cuda() {
    let dir = tempfile::tempdir().unwrap();
    let mut ids: Vec<String> = Vec::new();
    for name in ["cuda.sh", "checkpoints.sh"] {
        let (_, text) = of(name, &["--dry-run", "BIN", "OUT"], dir.path(), &[]);
        let lines = text
            .lines()
            .filter_map(|line| line.strip_prefix("would run "));
        ids.extend(lines.map(|line| line.split([' ', ':']).next().unwrap().to_owned()));
    }
    ids.sort();
    ids.dedup();
    for id in ["chash", "chash-replay-exact", "counters-ckpt-swap"] {
        assert!(ids.iter().any(|found| found == id), "{id}: {ids:?}");
    }
    let gates = dir.path().join("gates");
    std::fs::create_dir(&gates).unwrap();
    std::fs::create_dir(dir.path().join("registry")).unwrap();
    std::fs::write(dir.path().join("registry/upstreams.toml"), "schema = 1\n").unwrap();
    symlink(root().join("gates/prompts"), gates.join("prompts")).unwrap();
    std::fs::copy(
        root().join("gates/fixtures.toml"),
        gates.join("fixtures.toml"),
    )
    .unwrap();
    for id in &ids {
        let name = format!("{id}.toml");
        let text = std::fs::read_to_string(root().join("gates").join(&name)).unwrap();
        // As the script does it.
        let text = text.replacen("\nmodel = ", "\nbackend = \"cuda\"\nmodel = ", 1);
        std::fs::write(gates.join(name), text).unwrap();
    }
    let project = Project::new(dir.path(), &dir.path().join("cache")).unwrap();
    for plan in definition::load(&project, &ids, false).unwrap() {
        assert_eq!(plan.common().definition.backend, GateBackend::Cuda);
    }
}

#[test]
fn what_cannot_be_run_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for (args, vars, says) in [
        (&["BIN"][..], &[][..], "usage:"),
        (&["--fast", "BIN", "OUT"], &[], "usage:"),
        (
            &["--dry-run", "B", "O"],
            &[("DEVICE_GATES", "none")],
            "no gate none in the plan",
        ),
        (&["--cpu", ".", "out"], &[], "missing: "),
    ] {
        let (code, text) = script(args, dir.path(), vars);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains(says), "{says}: {text}");
    }
}

#[test]
fn it_runs_on_processors_and_not_on_a_gpu_that_is_not_there() {
    if !real::wanted("it_runs_on_processors_and_not_on_a_gpu_that_is_not_there") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    symlink(env!("CARGO_BIN_EXE_xtask"), bin.join("xtask")).unwrap();
    for side in ["vanilla", "patched"] {
        let built = root().join(format!("target/llama/llama-0.5.0/{side}-cpu/out/bin"));
        symlink(built, bin.join(side)).unwrap();
    }
    let one = [("DEVICE_GATES", "chash-nextn-kv-only")];
    let (code, text) = script(&["--cpu", "bin", "out"], dir.path(), &one);
    assert_eq!(code, 0, "{text}");
    let file = dir
        .path()
        .join("out/records/latest-chash-nextn-kv-only.json");
    let record: GateRecord = read_json(&file).unwrap();
    assert_eq!(record.verdict, Verdict::Pass);
    assert!(dir.path().join("out/logs.tar.gz").is_file());
    // Without time, nothing is a pass.
    let none = [one[0], ("DEVICE_SECONDS", "5")];
    let (code, text) = script(&["--cpu", "bin", "late"], dir.path(), &none);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("left out: chash-nextn-kv-only"), "{text}");
    // A machine that says it has a GPU, and servers that see none.
    let smi = dir.path().join("nvidia-smi");
    std::fs::write(
        &smi,
        "#!/bin/sh\necho 'NVIDIA H100, 9.0, 580.95.05, 81559 MiB'\n",
    )
    .unwrap();
    std::fs::set_permissions(&smi, std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!(
        "{}:{}",
        dir.path().display(),
        std::env::var("PATH").unwrap()
    );
    let (code, text) = script(&["bin", "gpu"], dir.path(), &[one[0], ("PATH", &path)]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("no CUDA device"), "{text}");
}

/// Makes a program of `text` in `dir`.
fn program(dir: &Path, name: &str, text: &str) {
    let file = dir.join(name);
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
}

/// What stands in for the probes: cells take turns where both switches are set, as in the patch.
const PROBE: &str = r#"#!/bin/sh
echo "memory $FAKE_MEMORY"
if [ "${OPENCOTI_SPEC_CKPT_DEVICE-0}${OPENCOTI_SPEC_CKPT_SWAP-0}$FAKE_COPIES" = 11 ]; then
    echo path swap
else
    echo path copy
fi
for turn in 1 2 3; do echo "turn $turn 20 30"; done
echo done
"#;

#[test]
fn checkpoints_are_measured_in_the_way_that_the_row_says() {
    let dir = tempfile::tempdir().unwrap();
    let bin = dir.path().join("bin");
    program(&bin, "xtask", "#!/bin/sh\nexit ${FAKE_GATE-0}\n");
    for name in ["vanilla/llama-server", "patched/llama-server"] {
        program(&bin, name, "#!/bin/sh\n");
    }
    for name in ["ckpt", "tokens"] {
        program(&bin, name, PROBE);
    }
    std::fs::write(bin.join("big-state.gguf"), "GGUF").unwrap();
    let run = |vars: &[(&str, &str)]| {
        let vars = [&[("FAKE_MEMORY", "CPU"), ("FAKE_COPIES", "")][..], vars].concat();
        of(
            "checkpoints.sh",
            &["--cpu", "bin", "out"],
            dir.path(),
            &vars,
        )
    };
    let (code, text) = run(&[]);
    assert_eq!(code, 0, "{text}");
    for line in [
        "chash-ckpt-swap: exit code 0",
        "device-times: exit code 0",
        "device-times, column 1, median 2",
        "swap-times-4, column 2, median 20",
        "tokens-100, column 3, median 30",
    ] {
        assert!(text.contains(line), "{line}: {text}");
    }
    // A copy where cells are to take turns: every such row, and none of the others.
    let (code, text) = run(&[("FAKE_COPIES", "1")]);
    assert_eq!(code, 1, "{text}");
    for row in ["swap-times", "swap-times-4", "tokens-50"] {
        let line = format!("{row}: snapshots are to be kept by swap, and it says: path copy");
        assert!(text.contains(&line), "{line}: {text}");
        assert!(!text.contains(&format!("{row}, column")), "{text}");
    }
    assert!(text.contains("device-times, column 1"), "{text}");
    // Another memory, a gate that fails, no time.
    for (vars, says) in [
        (("FAKE_MEMORY", "Vulkan0"), "the state does not lie on CPU"),
        (("FAKE_GATE", "1"), "chash-ckpt-device: exit code 1"),
        (("DEVICE_SECONDS", "5"), "left out: tokens-100, no time"),
    ] {
        let (code, text) = run(&[vars]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(says), "{says}: {text}");
    }
    std::fs::remove_file(bin.join("tokens")).unwrap();
    let (code, text) = run(&[]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("missing: "), "{text}");
}

#[test]
fn the_plan_of_checkpoints_is_said_without_a_gpu() {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--dry-run", "BIN", "OUT"];
    let (code, text) = of("checkpoints.sh", &args, dir.path(), &[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(text.matches("would run").count(), 5, "{text}");
    let swap = "OPENCOTI_SPEC_CKPT_DEVICE=1 OPENCOTI_SPEC_CKPT_SWAP=1";
    for line in text.lines().filter(|line| line.contains("would measure")) {
        let is_swap = line.contains("path swap");
        assert_eq!(line.contains(swap), is_swap, "{line}");
        assert_ne!(line.contains("path copy"), is_swap, "{line}");
    }
    assert_eq!(text.matches("path swap").count(), 5, "{text}");
    for args in [&["BIN"][..], &["--fast", "BIN", "OUT"]] {
        let (code, text) = of("checkpoints.sh", args, dir.path(), &[]);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("usage:"), "{text}");
    }
}
