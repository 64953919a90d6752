//! The measurement of `docs/evaluations/checkpoints.md`. No test: nothing is asserted but that the runs were what they
//! say. It takes minutes, makes models of up to 120 MB under `target/`, and is left out unless asked for:
//!
//! ```sh
//! cargo xtask build --patched
//! cargo test -p xtask --test measure_ckpt -- --ignored --nocapture
//! ```

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::fixture::{generate, gguf};

/// Size of a head and heads in each of three layers: about 1, 16 and 66 MiB of state for a sequence.
const MODELS: [(&str, f64, f64); 3] = [
    ("1 MiB", 128.0, 6.0),
    ("16 MiB", 128.0, 86.0),
    ("66 MiB", 512.0, 22.0),
];

const SWAP: [(&str, &str); 2] = [
    ("OPENCOTI_SPEC_CKPT_SWAP", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP_MIN", "0"),
];

const TURNS: &str = "40";

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().into()
}

fn probe(dir: &Path) -> PathBuf {
    let build = root().join("target/llama/llama-0.5.0/patched-cpu");
    let program = dir.join("ckpt");
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O1"]);
    for folder in ["include", "src", "ggml/include"] {
        compiler.arg("-I").arg(build.join("src").join(folder));
    }
    let bin = build.join("out/bin");
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&bin);
    compiler.arg(root().join("xtask/tests/data/probe-ckpt/ckpt.cpp"));
    compiler.arg("-o").arg(&program).arg("-L").arg(&bin);
    compiler
        .args(["-lllama", "-lggml", "-lggml-base"])
        .arg(rpath);
    assert!(compiler.status().unwrap().success());
    program
}

/// Medians over the turns of a run: through the host save, restore, decodes, then on the device, in microseconds; and of
/// the ratios, device to host, of save and restore, and of the whole round.
fn run(program: &Path, model: &Path, what: &str, env: &[(&str, &str)]) -> ([f64; 6], [f64; 2]) {
    let mut command = Command::new(program);
    command
        .arg(model)
        .args([what, TURNS])
        .envs(env.iter().copied());
    let done = command.output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout).into_owned();
    let errors = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{said}{errors}");
    let turns: Vec<Vec<f64>> = said
        .lines()
        .filter_map(|line| line.strip_prefix("turn "))
        .map(|line| line.split(' ').map(|word| word.parse().unwrap()).collect())
        .collect();
    assert!(turns.len() >= 40, "{said}");
    let of = |value: &dyn Fn(&[f64]) -> f64| {
        let mut values: Vec<f64> = turns.iter().map(|turn| value(turn)).collect();
        values.sort_by(f64::total_cmp);
        values[values.len() / 2]
    };
    let times = [0, 1, 2, 3, 4, 5].map(|at| of(&|turn| turn[at]));
    let cost = of(&|t| (t[3] + t[4]) / (t[0] + t[1]));
    let round = of(&|t| (t[3] + t[4] + t[5]) / (t[0] + t[1] + t[2]));
    (times, [cost, round])
}

#[test]
#[ignore = "a measurement"]
fn checkpoints() {
    let dir = root().join("target/measure-ckpt");
    fs_err::create_dir_all(&dir).unwrap();
    let program = probe(&dir);
    let mut out = std::io::stderr();
    let _ = writeln!(
        out,
        "| state | slots | path | save, us | restore, us | decodes, us | save + restore, times host | round, times host |\n\
         | --- | --- | --- | --- | --- | --- | --- | --- |"
    );
    for (name, state, heads) in MODELS {
        let model = dir.join(format!("{}.gguf", name.replace(' ', "-")));
        if !model.exists() {
            let dials = [("state", state), ("heads", heads)];
            let dials = dials.map(|(dial, value)| (dial.to_owned(), value));
            let made = generate(
                "big-state",
                7,
                &dials.into_iter().collect::<BTreeMap<_, _>>(),
            )
            .unwrap();
            let file = fs_err::File::create(&model).unwrap();
            gguf::write(&made, &mut std::io::BufWriter::new(file)).unwrap();
        }
        for (what, slots) in [("times", 1), ("times-4", 4)] {
            let runs = [("device", &[][..]), ("swap", &SWAP[..])];
            let runs = runs.map(|(path, env)| (path, run(&program, &model, what, env)));
            let host = runs[0].1.0;
            let _ = writeln!(
                out,
                "| {name} | {slots} | host | {:.0} | {:.0} | {:.0} | 1 | 1 |",
                host[0], host[1], host[2]
            );
            for (path, (times, [cost, round])) in runs {
                let _ = writeln!(
                    out,
                    "| {name} | {slots} | {path} | {:.0} | {:.0} | {:.0} | {cost:.3} | {round:.3} |",
                    times[3], times[4], times[5]
                );
            }
        }
    }
}
