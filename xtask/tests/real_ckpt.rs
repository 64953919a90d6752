//! Speculative checkpoints in the real library and the real server: what comes back is what was saved,
//! limits are met without an abort, a replay is not judged again. Runs under `cargo xtask test`, as
//! `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ckpt_server.rs"]
mod ckpt_server;
#[path = "support/real.rs"]
mod real;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use ckpt_server::{DEVICE, Running, SWAP, build};
use llama_patchset::fixture::{generate, gguf};
use real::root;

fn fixture() -> PathBuf {
    ckpt_server::fixture("qwen3next-nextn")
}

/// Whether real builds are wanted; then they are there.
fn wanted(test: &str) -> bool {
    static READY: OnceLock<()> = OnceLock::new();
    if !real::wanted(test) {
        return false;
    }
    READY.get_or_init(|| {
        for args in [&["build", "--patched"][..], &["fixture", "qwen3next-nextn"]] {
            real::ok(&root(), args);
        }
    });
    true
}

/// The program that tries the library, compiled against the build's own headers.
fn probe() -> &'static Path {
    static PROBE: OnceLock<PathBuf> = OnceLock::new();
    PROBE.get_or_init(|| compiled("ckpt", None))
}

/// The same, named `name`; with `source` in place of the library's file of that function.
fn compiled(name: &str, source: Option<&Path>) -> PathBuf {
    let build = build();
    let dir = root().join("target/test-checkouts/probe-ckpt");
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join(name);
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O1", "-Wall", "-Wextra"]);
    for folder in ["include", "src", "src/opencoti", "ggml/include"] {
        compiler.arg("-I").arg(build.join("src").join(folder));
    }
    let bin = build.join("out/bin");
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&bin);
    compiler.arg(root().join("xtask/tests/data/probe-ckpt/ckpt.cpp"));
    compiler.args(source).arg("-o").arg(&program);
    compiler.arg("-L").arg(&bin);
    compiler.args(["-lllama", "-lggml", "-lggml-base"]);
    let done = compiler.arg(rpath).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{said}");
    program
}

/// Faults that are planted into what saves and restores, what the probe is asked then, and what it says.
const PLANTED: [(&str, &str, &str, &str); 4] = [
    // A restore that does nothing.
    (
        "    if (meta.empty()) { return llama_ckpt_swap_load(ctx, seq_id); }",
        "    if (!meta.empty()) { return true; }",
        "equal",
        "what was restored is not what was saved",
    ),
    // A snapshot that is not taken anew.
    (
        "    if (llama_ckpt_swap_save(ctx, seq_id)) { meta.clear(); return true; }",
        "    if (!meta.empty()) { return true; }",
        "rounds",
        "what was restored is not what was saved",
    ),
    // Memory that is not given back.
    (
        "        llama_ckpt_device::storage(*ctx).erase(seq_id);",
        "",
        "memory",
        "not half was given back",
    ),
    // The assertion that one snapshot lives.
    (
        "    if (seq.live != 0 && seq.live != snap.id) {",
        "    if (false) {",
        "limits",
        "two snapshots of one sequence can live",
    ),
];

#[test]
fn faults_that_are_planted_are_found() {
    if !wanted("faults_that_are_planted_are_found") {
        return;
    }
    let source = build().join("src/src/opencoti/llama-ckpt-device.cpp");
    let source = std::fs::read_to_string(source).unwrap();
    let dir = root().join("target/test-checkouts/probe-ckpt");
    std::fs::create_dir_all(&dir).unwrap();
    for (at, (right, wrong, what, words)) in PLANTED.iter().enumerate() {
        assert_eq!(source.matches(right).count(), 1, "{right}");
        let file = dir.join(format!("planted-{at}.cpp"));
        std::fs::write(&file, source.replace(right, wrong)).unwrap();
        let program = compiled(&format!("planted-{at}"), Some(&file));
        let mut command = Command::new(program);
        command.arg(fixture()).args([*what, "100"]);
        let done = command.env("GGML_NO_BACKTRACE", "1").output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(
            !done.status.success() && said.contains(words),
            "{wrong}: {said}"
        );
    }
}

/// Runs it, and gives what it says on both outputs.
fn tried(what: &str, env: &[(&str, &str)]) -> String {
    let number = match what {
        "rounds" => "1000",
        _ => "3",
    };
    with(&fixture(), &[what, number], env)
}

fn with(model: &Path, what: &[&str], env: &[(&str, &str)]) -> String {
    let mut command = Command::new(probe());
    command.arg(model).args(what).envs(env.iter().copied());
    command.env("GGML_NO_BACKTRACE", "1");
    let done = command.output().unwrap();
    let said = [done.stdout, done.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(
        done.status.success() && said.contains("done\n"),
        "{what:?}, {env:?}: {said}"
    );
    said
}

#[test]
fn what_is_restored_is_what_was_saved() {
    if !wanted("what_is_restored_is_what_was_saved") {
        return;
    }
    for env in [&[][..], &SWAP] {
        for what in ["equal", "limits"] {
            tried(what, env);
        }
        let said = tried("rounds", env);
        assert_eq!(said.matches("rounds of").count(), 3, "{said}");
    }
    tried("memory", &[]);
    tried("memory-swap", &SWAP);
}

/// A state of 66 MiB, as real models have. 100 rounds take a minute of a processor: `CKPT_ROUNDS` is another number than 10.
#[test]
fn a_large_state_comes_back_too() {
    if !wanted("a_large_state_comes_back_too") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let model = dir.path().join("big-state.gguf");
    let file = std::fs::File::create(&model).unwrap();
    let made = generate("big-state", 7, &BTreeMap::new()).unwrap();
    gguf::write(&made, &mut std::io::BufWriter::new(file)).unwrap();
    let rounds = std::env::var("CKPT_ROUNDS").unwrap_or_else(|_| "10".to_owned());
    for env in [&[][..], &SWAP[..2]] {
        with(&model, &["equal"], env);
        let said = with(&model, &["rounds-1", &rounds], env);
        assert_eq!(said.matches("rounds of").count(), 1, "{said}");
        let _ = write!(std::io::stderr(), "{said}");
    }
}

/// No memory for a copy: the caller is told so every time, the log once.
#[test]
fn a_failed_allocation_is_said_once() {
    if !wanted("a_failed_allocation_is_said_once") {
        return;
    }
    let said = tried("no-memory", &[("OPENCOTI_SPEC_CKPT_FAIL_ALLOC", "1")]);
    let words = "goes through host memory: no memory for it on the device";
    assert_eq!(said.matches(words).count(), 1, "{said}");
    let said = tried("limits", &[]);
    let words = "goes through host memory: the cells of the sequence do not lie side by side";
    assert!(said.contains(words), "{said}");
}

/// A measurement of a way that a switch did not bring about would be one of another way. Without the switch that it needs,
/// cells that take turns are not there, and the server's log says so.
#[test]
fn what_is_measured_is_what_the_switches_say() {
    if !wanted("what_is_measured_is_what_the_switches_say") {
        return;
    }
    let alone = [SWAP[1], SWAP[2]];
    for (env, way) in [(&[][..], "copy"), (&alone, "copy"), (&SWAP, "swap")] {
        for what in ["times", "times-4"] {
            let said = tried(what, env);
            assert!(said.contains(&format!("\npath {way}\n")), "{env:?}: {said}");
        }
    }
    let words = "cells of recurrent state stay where they are";
    for (env, is_said) in [(&alone[..], true), (&SWAP, false), (&[], false)] {
        let log = Running::start(true, env).log();
        assert_eq!(log.contains(words), is_said, "{env:?}: {log}");
        let takes_turns = log.contains("cells of recurrent state take turns");
        assert_eq!(takes_turns, env.len() == SWAP.len(), "{env:?}: {log}");
    }
    // A state that is too small for it.
    let log = Running::start(true, &SWAP[..2]).log();
    assert!(log.contains(words), "{log}");
    assert!(
        log.contains("smaller than OPENCOTI_SPEC_CKPT_SWAP_MIN"),
        "{log}"
    );
}

/// With logits that come in turns, upstream judges a replay again and again; not judged, it goes on. The
/// fault is the same in both.
#[test]
fn logits_that_come_in_turns_hang_upstream_and_not_an_exact_replay() {
    if !wanted("logits_that_come_in_turns_hang_upstream_and_not_an_exact_replay") {
        return;
    }
    let turns = ("OPENCOTI_SPEC_REPLAY_FAULT", "turns");
    let exact = ("OPENCOTI_SPEC_REPLAY_EXACT", "1");
    let limit = Duration::from_secs(5);
    for device in [("OPENCOTI_SPEC_CKPT_DEVICE", "0"), DEVICE] {
        let upstream = Running::start(true, &[turns, device]);
        assert_eq!(
            upstream.complete(200, 0.0, 1, limit),
            None,
            "the fault shows nothing"
        );
        let exactly = Running::start(true, &[turns, exact, device]);
        let (tokens, counters) = exactly.complete(200, 0.0, 1, limit).expect("it hangs");
        assert_eq!(tokens.len(), 200);
        let _ = writeln!(
            std::io::stderr(),
            "{} rounds, {} restores",
            counters["cycles"],
            counters["ckpt_loads"]
        );
        assert!(counters["ckpt_loads"] > 10, "{counters:?}");
        // One verification and at most one replay for each round.
        let decodes = counters["launches_tgt"];
        assert!(decodes <= 2 * counters["cycles"] + 3, "{counters:?}");
    }
}

/// Several checkpoints of the prompt cache are kept of one sequence, so they must not go where one has
/// room: each prompt shares less of the one before it than the last checkpoint covers.
#[test]
fn checkpoints_of_the_prompt_cache_stay_on_the_host() {
    if !wanted("checkpoints_of_the_prompt_cache_stay_on_the_host") {
        return;
    }
    let ids: Vec<u32> = (0..900).map(|at| 4 + at * 37 % 500).collect();
    let answers = |env: &[(&str, &str)]| {
        let more = "-np 1 -b 128 -ub 128 --ctx-checkpoints 32 --checkpoint-min-step 0";
        let server = Running::with(more, true, env);
        let mut all = Vec::new();
        for length in [700, 600, 650, 300, 900, 100] {
            let mut prompt = ids[..length].to_vec();
            prompt.extend([5, 6, 7, 4 + u32::try_from(length).unwrap() % 400]);
            let body = serde_json::json!({
                "prompt": prompt, "n_predict": 60, "temperature": 0.0, "seed": 1, "cache_prompt": true,
                "return_tokens": true, "ignore_eos": true,
            });
            let limit = Duration::from_secs(30);
            all.push(server.completion(&body, limit).expect("no answer"));
        }
        all
    };
    let host = answers(&[]);
    for more in [&[][..], &SWAP] {
        let device = answers(&[&[DEVICE], more].concat());
        for ((tokens, counters), (wanted, before)) in device.iter().zip(&host) {
            assert_eq!(tokens, wanted, "{more:?}");
            assert_eq!(counters["ckpt_loads"], before["ckpt_loads"]);
            assert!(counters["ckpt_loads"] > 0 && counters["ckpt_bytes_save"] == 0);
            assert!(before["ckpt_bytes_save"] > 0);
        }
    }
}

/// How unlike two samples are: the statistic of the test of homogeneity, and the deviations of a normal
/// distribution that it is beyond what chance gives (Wilson and Hilferty).
fn deviations(a: &BTreeMap<Vec<u64>, u64>, b: &BTreeMap<Vec<u64>, u64>) -> (f64, usize, f64) {
    let mut pairs: Vec<(f64, f64)> = Vec::new();
    let mut rare = (0.0, 0.0);
    let mut keys: Vec<_> = a.keys().chain(b.keys()).collect();
    keys.sort();
    keys.dedup();
    for key in keys {
        let count = |of: &BTreeMap<Vec<u64>, u64>| of.get(key).copied().unwrap_or(0) as f64;
        let (x, y) = (count(a), count(b));
        if x + y >= 20.0 {
            pairs.push((x, y));
        } else {
            rare = (rare.0 + x, rare.1 + y);
        }
    }
    if rare.0 + rare.1 >= 20.0 {
        pairs.push(rare);
    }
    let (n, m) = pairs
        .iter()
        .fold((0.0, 0.0), |(n, m), (x, y)| (n + x, m + y));
    let chi: f64 = pairs
        .iter()
        .map(|(x, y)| (x * (m / n).sqrt() - y * (n / m).sqrt()).powi(2) / (x + y))
        .sum();
    let free = (pairs.len() - 1) as f64;
    let spread = 2.0 / (9.0 * free);
    let z = ((chi / free).powf(1.0 / 3.0) - (1.0 - spread)) / spread.sqrt();
    (chi, pairs.len() - 1, z)
}

/// At temperature 1 what is generated with drafts is distributed as without them; where random numbers are
/// drawn twice it is not. `CKPT_ANSWERS` is another number of answers than 2000.
#[test]
fn an_exact_replay_draws_each_token_once() {
    if !wanted("an_exact_replay_draws_each_token_once") {
        return;
    }
    let answers = std::env::var("CKPT_ANSWERS").map_or(2000, |text| text.parse::<u64>().unwrap());
    let sample = |drafts: bool, env: &[(&str, &str)], place: u64| {
        let first = 1 + place * answers.max(10_000);
        let server = Running::start(drafts, env);
        let mut counts = BTreeMap::<Vec<u64>, u64>::new();
        let mut restored = 0;
        for seed in first..first + answers {
            let limit = Duration::from_secs(10);
            let (tokens, counters) = server.complete(5, 1.0, seed, limit).unwrap();
            restored += counters["ckpt_loads"];
            *counts.entry(tokens).or_default() += 1;
        }
        (counts, restored)
    };
    let exact = ("OPENCOTI_SPEC_REPLAY_EXACT", "1");
    let (plain, none) = sample(false, &[], 0);
    assert_eq!(none, 0);
    let (control, _) = sample(false, &[], 1);
    let (drafted, restored) = sample(true, &[exact, DEVICE], 2);
    let _ = writeln!(std::io::stderr(), "{answers} answers, {restored} restores");
    assert!(restored > answers / 2, "{restored}");
    let twice = [exact, DEVICE, ("OPENCOTI_SPEC_REPLAY_FAULT", "draws")];
    let (twice, _) = sample(true, &twice, 2);
    let (chi, free, z) = deviations(&plain, &control);
    let _ = writeln!(
        std::io::stderr(),
        "control: chi {chi:.1}, {free} free, z {z:.2}"
    );
    assert!(
        z < 4.0,
        "without drafts, twice: chi {chi}, {free} free, z {z}"
    );
    let (chi, free, z) = deviations(&plain, &drafted);
    let _ = writeln!(
        std::io::stderr(),
        "drafted: chi {chi:.1}, {free} free, z {z:.2}"
    );
    assert!(z < 4.0, "with drafts: chi {chi}, {free} free, z {z}");
    let (chi, free, z) = deviations(&plain, &twice);
    let _ = writeln!(
        std::io::stderr(),
        "drawn twice: chi {chi:.1}, {free} free, z {z:.2}"
    );
    assert!(z > 6.0, "drawn twice: chi {chi}, {free} free, z {z}");
}
