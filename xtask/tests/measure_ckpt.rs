//! The measurements of `docs/evaluations/checkpoints.md`. No tests: nothing is asserted but that the runs were what they
//! say. They take minutes, make models of up to 120 MB under `target/`, and are left out unless asked for:
//!
//! ```sh
//! cargo xtask build --patched
//! cargo test -p xtask --test measure_ckpt -- --ignored --nocapture --test-threads 1 checkpoints rollback
//! ```
//!
//! `LLAMA_PATCHSET_MEASURE_BUILD` names another build below `target/llama/llama-0.5.0` than `patched-cpu`,
//! `LLAMA_PATCHSET_MEASURE_MODEL` a GGUF file that is measured alone, with one slot, `LLAMA_PATCHSET_MEASURE_TURNS` another number of
//! turns in each process.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::fixture::{generate, gguf};

/// Size of a head and heads in each of three layers, and about how much state that is for a sequence.
const SMALL: [(&str, f64, f64); 5] = [
    ("0.3 MiB", 64.0, 6.0),
    ("0.6 MiB", 64.0, 12.0),
    ("1 MiB", 128.0, 6.0),
    ("2 MiB", 128.0, 10.0),
    ("4 MiB", 128.0, 22.0),
];
const LARGE: [(&str, f64, f64); 2] = [("16 MiB", 128.0, 86.0), ("66 MiB", 512.0, 22.0)];

const SWAP: [(&str, &str); 3] = [
    ("OPENCOTI_SPEC_CKPT_DEVICE", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP_MIN", "0"),
];

/// Processes for each row.
const PROCESSES: usize = 3;

/// Turns in each process: a larger state takes longer, and its times are less of a noise.
fn enough(name: &str) -> String {
    let default = match name {
        "66 MiB" => "8",
        "16 MiB" => "15",
        _ => "40",
    };
    std::env::var("LLAMA_PATCHSET_MEASURE_TURNS").unwrap_or_else(|_| default.to_owned())
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().into()
}

/// Where models and programs lie.
fn dir() -> PathBuf {
    let dir = root().join("target/measure-ckpt");
    fs_err::create_dir_all(&dir).unwrap();
    dir
}

fn probe(name: &str) -> PathBuf {
    let build = std::env::var("LLAMA_PATCHSET_MEASURE_BUILD");
    let build = build.unwrap_or_else(|_| "patched-cpu".to_owned());
    let build = root().join("target/llama/llama-0.5.0").join(build);
    let program = dir().join(name);
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O1"]);
    for folder in ["include", "src", "ggml/include"] {
        compiler.arg("-I").arg(build.join("src").join(folder));
    }
    let bin = build.join("out/bin");
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&bin);
    compiler.arg(root().join(format!("xtask/tests/data/probe-ckpt/{name}.cpp")));
    compiler.arg("-o").arg(&program).arg("-L").arg(&bin);
    compiler
        .args(["-lllama", "-lggml", "-lggml-base"])
        .arg(rpath);
    assert!(compiler.status().unwrap().success());
    program
}

fn model((name, state, heads): (&str, f64, f64)) -> PathBuf {
    made(name, [("state", state), ("heads", heads)])
}

fn made<const N: usize>(name: &str, dials: [(&str, f64); N]) -> PathBuf {
    let model = dir().join(format!("{}.gguf", name.replace(' ', "-")));
    if !model.exists() {
        let dials = dials.map(|(dial, value)| (dial.to_owned(), value));
        let dials = dials.into_iter().collect::<BTreeMap<_, _>>();
        let made = generate("big-state", 7, &dials).unwrap();
        let file = fs_err::File::create(&model).unwrap();
        gguf::write(&made, &mut std::io::BufWriter::new(file)).unwrap();
    }
    model
}

/// Name and file of a model, and with how many slots it is measured: as the program calls it, and the number.
type Measured = (String, PathBuf, &'static [(&'static str, u32)]);

/// Each model.
fn models() -> Vec<Measured> {
    if let Ok(file) = std::env::var("LLAMA_PATCHSET_MEASURE_MODEL") {
        return vec![(file.clone(), file.into(), &[("times", 1)])];
    }
    let slots = &[("times", 1), ("times-4", 4)][..];
    let all = SMALL.iter().chain(&LARGE);
    all.map(|size| (size.0.to_owned(), model(*size), slots))
        .collect()
}

/// What `gates/device/checkpoints.sh` takes along: the programs, linked with the libraries of the build that
/// `LLAMA_PATCHSET_MEASURE_BUILD` names, and a model of 36 layers.
#[test]
#[ignore = "makes files"]
fn device() {
    for name in ["ckpt", "tokens"] {
        let _ = writeln!(std::io::stderr(), "{}", probe(name).display());
    }
    let model = made(
        "big-state",
        [("state", 128.0), ("heads", 32.0), ("layers", 36.0)],
    );
    let _ = writeln!(std::io::stderr(), "{}", model.display());
}

/// The numbers of each turn of some processes.
fn turns(
    program: &Path,
    model: &Path,
    args: &[&str],
    env: &[(&str, &str)],
    processes: usize,
) -> Vec<Vec<f64>> {
    let path = if env.is_empty() { "copy" } else { "swap" };
    let mut all = Vec::new();
    for _ in 0..processes {
        let mut command = Command::new(program);
        command.arg(model).args(args).envs(env.iter().copied());
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stdout).into_owned();
        let errors = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{said}{errors}");
        let way = format!("path {path}");
        assert!(said.lines().any(|line| line == way), "not {way}: {said}");
        let lines = said.lines().filter_map(|line| line.strip_prefix("turn "));
        all.extend(lines.map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect()));
    }
    assert!(all.len() >= 8 * processes);
    all
}

/// Quartiles of what `value` gives for each turn.
fn quartiles(turns: &[Vec<f64>], value: impl Fn(&[f64]) -> f64) -> [f64; 3] {
    let mut values: Vec<f64> = turns.iter().map(|turn| value(turn)).collect();
    values.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| values[values.len() * quarter / 4])
}

fn shown([low, middle, high]: [f64; 3]) -> String {
    format!("{middle:.3} ({low:.3} to {high:.3})")
}

/// Save and restore, and a whole round that goes back, beside those through the host.
#[test]
#[ignore = "a measurement"]
fn checkpoints() {
    let program = probe("ckpt");
    let mut out = std::io::stderr();
    let _ = writeln!(
        out,
        "| state | slots | path | save, us | restore, us | decodes, us | save + restore, times host | round, times host |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (name, model, slots) in models() {
        for (what, slots) in slots {
            for (path, env) in [("device", &[][..]), ("swap", &SWAP[..])] {
                let enough = enough(&name);
                let turns = turns(&program, &model, &[what, &enough], env, PROCESSES);
                let times = [0, 1, 2, 3, 4, 5].map(|at| quartiles(&turns, |turn| turn[at])[1]);
                let cost = quartiles(&turns, |t| (t[3] + t[4]) / (t[0] + t[1]));
                let round = |t: &[f64]| (t[3] + t[4] + t[5]) / (t[0] + t[1] + t[2]);
                let round = quartiles(&turns, round);
                if path == "device" {
                    let _ = writeln!(
                        out,
                        "| {name} | {slots} | host | {:.0} | {:.0} | {:.0} | 1 | 1 |",
                        times[0], times[1], times[2]
                    );
                }
                let _ = writeln!(
                    out,
                    "| {name} | {slots} | {path} | {:.0} | {:.0} | {:.0} | {} | {} |",
                    times[3],
                    times[4],
                    times[5],
                    shown(cost),
                    shown(round)
                );
            }
        }
    }
}

/// What a token costs with cells that take turns and with bounded rollback, which upstream has not for this architecture,
/// beside what it costs through the host; all three in one process.
#[test]
#[ignore = "a measurement"]
fn rollback() {
    let program = probe("tokens");
    let mut out = std::io::stderr();
    let _ = writeln!(
        out,
        "| state | slots | accepted | host, us for a token | swap, times host | rollback, times host | rollback, times swap |\n\
         | --- | --- | --- | --- | --- | --- | --- |"
    );
    for size in [SMALL[0], SMALL[2], SMALL[3], SMALL[4], LARGE[0], LARGE[1]] {
        let (name, model) = (size.0, model(size));
        let large = LARGE.iter().any(|other| other.0 == name);
        let (slots, processes) = if large {
            (&["1"][..], 1)
        } else {
            (&["1", "4"][..], PROCESSES)
        };
        for slots in slots {
            for percent in ["50", "80", "100"] {
                let turns = turns(
                    &program,
                    &model,
                    &[slots, &enough(name), percent],
                    &SWAP,
                    processes,
                );
                let host = quartiles(&turns, |t| t[0])[1];
                let _ = writeln!(
                    out,
                    "| {name} | {slots} | {percent}% | {host:.0} | {} | {} | {} |",
                    shown(quartiles(&turns, |t| t[1] / t[0])),
                    shown(quartiles(&turns, |t| t[2] / t[0])),
                    shown(quartiles(&turns, |t| t[2] / t[1]))
                );
            }
        }
    }
}
