//! The gates tested: every fault that there is a gate for, and what each gate must say of it,
//! verdict and reason.
//!
//! Three tables: faults in what a model computes, behind runners that exist only here; faults of
//! servers, behind programs that pass for llama-server; and slow-downs in simulated sessions.

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
#[path = "support/model.rs"]
mod model;
#[path = "support/noise.rs"]
mod noise;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use llama_patchset::Result;
use llama_patchset::ctx::{Cancel, Quiet};
use llama_patchset::gate::perf::{self, Bench, PerfPlan, RoundPlan};
use llama_patchset::gate::session::Halt;
use llama_patchset::model::{Metric, PERF_BLOCKS, PERF_ROUNDS, RoundRecord, SideSamples, Verdict};
use model::{Fault, Gate, judge};
use noise::{Noise, Session};

use Verdict::{Fail, Inconclusive, Pass};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

/// What is planted in what a model computes, the gate that looks, its verdict, and words of its
/// reason.
const COMPUTED: [(Fault, Gate, Verdict, &str); 18] = [
    (Fault::None, Gate::Chash, Pass, ""),
    (Fault::None, Gate::Drafts, Pass, ""),
    (Fault::None, Gate::Acceptance, Pass, ""),
    // One draft token: what is generated stays, since the target model rejects what is wrong.
    (Fault::DraftToken, Gate::Drafts, Fail, "drafted step"),
    (Fault::DraftToken, Gate::Chash, Pass, ""),
    // One unit in the last place of one logit behind a draft: not an id changes.
    (Fault::DraftUlp, Gate::Drafts, Fail, "against 9:41000001"),
    (Fault::DraftUlp, Gate::Chash, Pass, ""),
    // A cell of the KV cache that is read one place off, from the 30th token on.
    (Fault::KvOffByOne, Gate::Chash, Fail, "first at token 30"),
    (
        Fault::KvOffByOne,
        Gate::Drafts,
        Fail,
        "differs from token 30",
    ),
    (Fault::LastToken, Gate::Chash, Fail, "first at token 47"),
    // A server that answers otherwise each time is nobody's fault.
    (
        Fault::Random,
        Gate::Chash,
        Inconclusive,
        "the baseline differs from itself (A/A)",
    ),
    (
        Fault::Random,
        Gate::Drafts,
        Inconclusive,
        "the baseline differs from itself (A/A)",
    ),
    // Equal, and yet nothing was compared.
    (
        Fault::NoDrafts,
        Gate::Chash,
        Inconclusive,
        "nothing was speculated",
    ),
    (
        Fault::NoDrafts,
        Gate::Drafts,
        Inconclusive,
        "nothing was drafted",
    ),
    (
        Fault::NoDrafts,
        Gate::Acceptance,
        Inconclusive,
        "nothing was speculated",
    ),
    (
        Fault::NoCounters,
        Gate::Drafts,
        Inconclusive,
        "a server does not count them",
    ),
    (
        Fault::SameLaunches,
        Gate::Drafts,
        Inconclusive,
        "drafted as the baseline does",
    ),
    // Half as many accepted.
    (
        Fault::FewerAccepted,
        Gate::Acceptance,
        Fail,
        "the accepted share changes",
    ),
];

#[test]
fn faults_in_what_is_computed() {
    for (fault, gate, verdict, words) in COMPUTED {
        let (found, reason) = judge(fault, gate);
        assert_eq!(found, verdict, "{fault:?}, {gate:?}: {reason}");
        assert!(reason.contains(words), "{fault:?}, {gate:?}: {reason}");
    }
}

/// Baseline, candidate, exit code, and words of what is said.
const SERVERS: [(&str, &str, i32, &[&str]); 19] = [
    ("good", "good", 0, &["ok gate same: pass"]),
    (
        "good",
        "flip",
        1,
        &[
            "FAIL prompt `three`, n_max 2, 1 slot: baseline ",
            "first at token 17: ",
        ],
    ),
    ("good", "random", 1, &["gate same: fail"]),
    (
        "random",
        "good",
        3,
        &["?? prompt", "differs from itself (A/A)"],
    ),
    (
        "good",
        "no-drafts",
        3,
        &["nothing was speculated: candidate"],
    ),
    (
        "idle-slots",
        "idle-slots",
        3,
        &["not busy at the same time"],
    ),
    (
        "good",
        "nearly-idle-slots",
        3,
        &["the slots of candidate were not busy at the same time (1.01 of 2"],
    ),
    (
        "good",
        "no-metrics",
        3,
        &["does not tell how many slots were busy"],
    ),
    // As it is where all logits are no numbers.
    ("one-id", "one-id", 3, &["gave the id 0 and no other"]),
    // At the 40th token.
    (
        "good",
        "die",
        1,
        &[
            "gate same: fail",
            "the server ended by signal 6 (SIGABRT)",
            "| GGML_ASSERT(false) failed",
        ],
    ),
    // Behind the last answer, which is a good one.
    (
        "good",
        "die-after",
        1,
        &[
            "gate same: fail",
            "by signal 6 (SIGABRT) before it was asked to",
            "| GGML_ASSERT(after) failed",
        ],
    ),
    (
        "die-after",
        "good",
        2,
        &["baseline with n_max", "before it was asked to"],
    ),
    (
        "good",
        "truncate",
        2,
        &["answered badly", "EOF while parsing", "prompt two"],
    ),
    (
        "good",
        "http-500",
        2,
        &[
            "answered badly: HTTP status 500",
            "out of luck",
            "candidate with n_max",
        ],
    ),
    ("good", "no-tokens", 2, &["no `tokens` for prompt `two`"]),
    (
        "good",
        "babble",
        2,
        &["written more than 256 MiB to its log"],
    ),
    (
        "good",
        "refuse-port",
        2,
        &["ended during its start with exit code 1", "couldn't bind"],
    ),
    (
        "good",
        "hang-at-start",
        2,
        &["not ready within 3 s", "on which port", "limits.start"],
    ),
    (
        "good",
        "hang-in-request",
        2,
        &["did not answer /completion within 3 s", "limits.request"],
    ),
];

const SAME: &str = r#"
schema = 1
id = "same"
kind = "chash"
title = "Same tokens"
model = { path = "model.gguf" }
n-max = [2]
slots = [1, 2]
n-predict = 48
limits = { start = 30, request = 30, stop = 1 }
[[prompt]]
name = "two"
ids = [5, 6]
[[prompt]]
name = "three"
ids = [7, 8, 9]
"#;

const QUICK: &str = r#"
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
prompt = [{ name = "three", ids = [7, 8, 9] }]
"#;

/// The same for a gate of kind `perf`, with noise and real processes.
const MEASURED: [(&str, &str, i32, &[&str]); 10] = [
    (
        "good",
        "good",
        0,
        &["ok gate quick: pass", "would have failed in 95 of 100 runs"],
    ),
    // As quick, and with as many launches; of something else.
    (
        "good",
        "other-tokens",
        3,
        &[
            "the candidate gave other tokens",
            "the work is not the same",
        ],
    ),
    ("good", "no-drafts", 3, &["the candidate drafted 0 tokens"]),
    // As large as the threshold: nobody can tell.
    (
        "good",
        "slow-1",
        3,
        &["straddles the threshold", "would decide"],
    ),
    (
        "good",
        "slow-3",
        1,
        &["FAIL n_max 2, decode t/s: worse by +", "allowed are 1.0 %"],
    ),
    (
        "good",
        "slow-10",
        1,
        &["FAIL n_max 2, decode t/s: worse by +", "allowed are 1.0 %"],
    ),
    (
        "good",
        "no-counters",
        3,
        &[
            "the candidate does not count it",
            "OPENCOTI_SPEC_COUNTERS=1",
        ],
    ),
    (
        "no-counters",
        "good",
        3,
        &["the baseline does not count it"],
    ),
    (
        "good",
        "more-launches",
        1,
        &["launches_dft: 41 against 40; it must be equal"],
    ),
    (
        "good",
        "die-late",
        1,
        &[
            "ended by signal 6 (SIGABRT)",
            "| GGML_ASSERT(late) failed",
            "candidate, prompt three",
        ],
    ),
];

#[test]
fn faults_of_servers() {
    for (baseline, candidate, code, words) in SERVERS {
        // Patience for a busy machine, but not where waiting is the point of the test.
        let definition = match candidate.starts_with("hang") {
            true => SAME.replace("30", "3"),
            false => SAME.to_owned(),
        };
        expect("same", &definition, baseline, candidate, code, words);
    }
}

#[test]
fn faults_that_only_measuring_shows() {
    for (baseline, candidate, code, words) in MEASURED {
        expect("quick", QUICK, baseline, candidate, code, words);
    }
}

fn expect(id: &str, definition: &str, baseline: &str, candidate: &str, code: i32, words: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in ["registry", "gates"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    std::fs::write(path("registry/upstreams.toml"), "schema = 1\n").unwrap();
    std::fs::write(path(&format!("gates/{id}.toml")), definition).unwrap();
    std::fs::write(path("model.gguf"), "GGUF").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["gate", "--unstamped", "--gate", id, "--root"])
        .arg(dir.path());
    for (side, flag, fault) in [
        ("a", "--baseline", baseline),
        ("b", "--candidate", candidate),
    ] {
        let program = fake_server::install(&path(side), fault, &path("pids"), "");
        command.arg(flag).arg(program);
    }
    let output = command
        .env("LLAMA_PATCHSET_CACHE", path("cache"))
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let what = format!("{id}: {baseline} against {candidate}");
    assert_eq!(output.status.code(), Some(code), "{what}:\n{text}");
    for word in words {
        assert!(text.contains(word), "{what}: no {word:?} in:\n{text}");
    }
    for pid in std::fs::read_dir(path("pids")).unwrap() {
        let pid = pid.unwrap().file_name().into_string().unwrap();
        let stat = std::fs::read_to_string(Path::new("/proc").join(&pid).join("stat"));
        let stat = stat.unwrap_or_default();
        assert!(
            stat.is_empty() || stat.contains(") Z"),
            "{what}: still there: {stat}"
        );
    }
    // What could not run leaves no verdict but that.
    let left: llama_patchset::model::GateRecord =
        llama_patchset::model::read_json(&path(&format!("target/gate/latest-{id}.json"))).unwrap();
    let verdict = match code {
        0 => Pass,
        1 => Fail,
        _ => Inconclusive,
    };
    assert_eq!(left.verdict, verdict, "{what}");
}

/// A session as a definition has it by default, control and all, without the waiting.
struct Simulated {
    control: Session,
    compared: Session,
}

impl Simulated {
    fn new(change: f64, seed: u64) -> Self {
        let noise = Noise::default();
        let session = |rounds, change, seed| noise.session(rounds, 2 * PERF_BLOCKS, change, seed);
        Simulated {
            control: session(PERF_ROUNDS / 2, 0.0, 2 * seed + 1),
            compared: session(PERF_ROUNDS, change, 2 * seed),
        }
    }
}

impl Bench for Simulated {
    fn round(&self, plan: RoundPlan, _: &Halt) -> Result<RoundRecord> {
        let session = match plan.control {
            true => &self.control,
            false => &self.compared,
        };
        let round = &session.rounds[plan.number];
        let side = |times: &[f64]| SideSamples {
            values: BTreeMap::from([(
                Metric::Decode,
                times.iter().map(|time| 1.0 / time).collect(),
            )]),
            ..SideSamples::default()
        };
        Ok(RoundRecord {
            control: plan.control,
            n_max: plan.n_max,
            baseline: side(&round.left),
            candidate: side(&round.right),
        })
    }
}

/// Of 100 sessions that are slower by `change`: pass, inconclusive, fail.
fn sessions(change: f64) -> [usize; 3] {
    let plan = PerfPlan {
        planned: [PERF_ROUNDS / 2, PERF_ROUNDS],
        pairs: 2 * PERF_BLOCKS,
        warm_up: 1,
        budget: Duration::from_secs(600),
        thresholds: BTreeMap::from([(Metric::Decode, 0.01)]),
        counters: BTreeMap::new(),
    };
    let mut counts = [0; 3];
    for seed in 0..100 {
        let bench = Simulated::new(change, seed);
        let halt = Halt::new(&Cancel::default());
        let record = perf::run(&plan, &[2], &bench, &halt, &Quiet).unwrap();
        assert_eq!(record.done, plan.planned);
        let verdict = perf::judge::verdict(&record.metrics, &record.counters);
        let reason = record.metrics[0].reason.as_deref().unwrap_or_default();
        match verdict {
            Pass => assert_eq!(reason, ""),
            Fail => assert!(reason.contains("worse by"), "{reason}"),
            _ => assert!(
                reason.contains("straddles") || reason.contains("control"),
                "{reason}"
            ),
        }
        counts[match verdict {
            Pass => 0,
            Fail => 2,
            _ => 1,
        }] += 1;
    }
    counts
}

#[test]
fn slow_downs_in_a_hundred_sessions_each() {
    let [passed, _, failed] = sessions(0.03);
    assert!(failed >= 95, "3 %: {failed} of 100 detected");
    assert_eq!(passed, 0, "3 % passed");
    let [passed, _, failed] = sessions(0.0);
    assert!(failed <= 5, "A/A: {failed} false alarms of 100");
    // No false alarm is worth little if nothing is ever said.
    assert!(passed >= 50, "A/A: {passed} of 100 passed");
    assert_eq!(sessions(0.10)[2], 100, "10 %");
    // At the threshold itself nobody can tell, and it is not said that it passes or fails.
    let [passed, unclear, failed] = sessions(0.01);
    assert!(
        unclear >= 80 && passed <= 10 && failed <= 10,
        "1 %: {passed} {unclear} {failed}"
    );
}
