//! Measurements for `docs/evaluations/`. No test: nothing is asserted but that the runs were what
//! they say. They take minutes and are left out unless asked for:
//!
//! ```sh
//! cargo test -p xtask --test measure -- --ignored --nocapture
//! ```
//!
//! `MEASURE_MODEL` names a GGUF file in place of the fixture, `MEASURE_FLAGS` more server flags,
//! `MEASURE_ROUNDS` another number of rounds than 7, `MEASURE_TOKENS` another length of the answers than
//! 240, `MEASURE_LONG` another length of the long prompt than 1024, `MEASURE_N_MAX` other longest drafts than `1,2,3`; `MEASURE_LAVAPIPE=1` measures the build for Vulkan
//! on lavapipe, and `MEASURE_ROWS=off;all` only these rows. The patched build and the fixture must be there;
//! `compute_bound` and `heads_compute_bound` make their own models, of about 1 GB, under `target/`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use llama_patchset::gate::client::Sampling;
use llama_patchset::gate::device::Device;
use llama_patchset::gate::server::{Launch, Server, log_text};
use llama_patchset::gate::session::{Answer, Halt, Prompt};
use llama_patchset::model::{GateBackend, GateDevice};

type Row = (&'static str, &'static [&'static str]);

const ROWS: [Row; 7] = [
    ("off", &[]),
    ("reuse", &["OPENCOTI_NEXTN_REUSE"]),
    ("kv-only", &["OPENCOTI_NEXTN_KV_ONLY"]),
    ("fused", &["OPENCOTI_MTP_FUSED_NEXTN"]),
    (
        "reuse, kv-only",
        &["OPENCOTI_NEXTN_REUSE", "OPENCOTI_NEXTN_KV_ONLY"],
    ),
    (
        "all",
        &[
            "OPENCOTI_NEXTN_REUSE",
            "OPENCOTI_NEXTN_KV_ONLY",
            "OPENCOTI_MTP_FUSED_NEXTN",
        ],
    ),
    ("all, one launch", ONE_LAUNCH),
];

const ONE_LAUNCH: &[&str] = &[
    "OPENCOTI_NEXTN_REUSE",
    "OPENCOTI_NEXTN_KV_ONLY",
    "OPENCOTI_MTP_FUSED_NEXTN",
    "OPENCOTI_NEXTN_ONE_LAUNCH",
];

/// For models with several NextN blocks.
const HEADS: [Row; 5] = [
    ("off", &[]),
    ("heads reuse", &["OPENCOTI_NEXTN_HEADS_REUSE"]),
    (
        "heads reuse, kv-only",
        &["OPENCOTI_NEXTN_HEADS_REUSE", "OPENCOTI_NEXTN_KV_ONLY"],
    ),
    (
        "fused heads",
        &[
            "OPENCOTI_NEXTN_REUSE",
            "OPENCOTI_NEXTN_KV_ONLY",
            "OPENCOTI_NEXTN_FUSED_HEADS",
        ],
    ),
    (
        "fused heads, one launch",
        &[
            "OPENCOTI_NEXTN_REUSE",
            "OPENCOTI_NEXTN_KV_ONLY",
            "OPENCOTI_NEXTN_FUSED_HEADS",
            "OPENCOTI_NEXTN_ONE_LAUNCH",
        ],
    ),
];

/// Prompt for what a cycle costs: with the answer it stays below the first boundary of 256 cells.
const PROMPT: u32 = 10;

/// What is asked of which model.
struct Work {
    model: PathBuf,
    flags: String,
    /// Length of the answer.
    tokens: usize,
    /// The prompt for the NextN context's share of prompts.
    long: u32,
}

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().into()
}

/// What is measured on, where that is no processor.
fn device() -> Option<Device> {
    std::env::var_os("MEASURE_LAVAPIPE")?;
    let lavapipe = GateDevice {
        driver: Some("lvp".to_owned()),
        index: None,
        name: Some("llvmpipe".to_owned()),
    };
    Device::find(GateBackend::Vulkan, &lavapipe).unwrap()
}

fn server(work: &Work, n_max: u32, switches: &[&str], log: &Path) -> Server {
    let flags = &work.flags;
    let args = format!(
        "-c 2048 -np 1 -t 1 -tb 1 --no-cont-batching -fit off --no-warmup --ctx-checkpoints 0 \
         --cache-ram 0 --spec-type draft-mtp --spec-draft-n-max {n_max} {flags}"
    );
    let mut all: Vec<std::ffi::OsString> = vec!["-m".into(), work.model.clone().into()];
    all.extend(args.split_whitespace().map(Into::into));
    let on = |name: &str| (name.to_owned(), "1".to_owned());
    let mut env: BTreeMap<String, String> = (switches.iter().map(|name| on(name)))
        .chain([on("OPENCOTI_SPEC_COUNTERS")])
        .collect();
    let device = device();
    let backend = device.as_ref().map_or("cpu", |_| "vulkan");
    if let Some(device) = &device {
        all.extend(device.flags().map(Into::into));
        env.extend(device.env.clone());
    }
    let build = root().join(format!("target/llama/llama-0.5.0/patched-{backend}"));
    let launch = Launch {
        program: &build.join("out/bin/llama-server"),
        args: all,
        env: &env,
        log: log.into(),
        is_judged: false,
        start: Duration::from_secs(300),
        request: Duration::from_secs(600),
        stop: Duration::from_secs(5),
    };
    let server = Server::start(&launch, &Halt::default()).unwrap();
    if let Some(device) = device {
        device.proof(&log_text(log)).unwrap();
    }
    server
}

fn number(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

fn ask(server: &mut Server, length: u32, n_predict: usize) -> Answer {
    let mut state = 12345u32;
    let ids = (0..length).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        4 + (state >> 8) % 500
    });
    let prompt = Prompt {
        name: "measure".to_owned(),
        ids: ids.collect(),
    };
    let sampling = Sampling { n_predict, seed: 1 };
    let answers = server.ask(&Halt::default(), |client| {
        client.complete(&[&prompt], sampling)
    });
    answers.unwrap().remove(0)
}

/// Of one request, without its prompt's share.
struct Sample {
    prompt: f64,
    process: f64,
    draft: f64,
    launches: f64,
    reused: f64,
    accepted: f64,
    whole: f64,
    /// As `whole`, but the time that the server's threads were running.
    running: f64,
}

/// Microseconds that the threads of a process have been running.
fn running(id: u32) -> f64 {
    let tasks = fs_err::read_dir(format!("/proc/{id}/task")).unwrap();
    let times = tasks.filter_map(|task| {
        let text = fs_err::read_to_string(task.ok()?.path().join("schedstat")).ok()?;
        text.split_whitespace().next()?.parse::<f64>().ok()
    });
    times.sum::<f64>() / 1e3
}

fn sample(server: &mut Server, work: &Work) -> Sample {
    let prompt = ask(server, work.long, 1);
    let short = ask(server, PROMPT, 1);
    let (begun, before) = (std::time::Instant::now(), running(server.id().unwrap()));
    let long = ask(server, PROMPT, work.tokens);
    let whole = begun.elapsed().as_secs_f64() * 1e6;
    let running = running(server.id().unwrap()) - before;
    let count = |answer: &Answer, name: &str| answer.counters.as_ref().unwrap()[name] as f64;
    let cycles = count(&long, "cycles");
    let of_cycles = |name: &str| count(&long, name) - count(&short, name);
    Sample {
        prompt: count(&prompt, "us_process"),
        process: of_cycles("us_process") / cycles,
        draft: count(&long, "us_draft") / cycles,
        launches: of_cycles("launches_dft") / cycles,
        reused: of_cycles("reused_dft") / of_cycles("launches_dft"),
        accepted: long.accepted as f64 / long.drafted as f64,
        whole: whole / cycles,
        running: running / cycles,
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn least(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(f64::INFINITY, f64::min)
}

/// Measures `rows` against the first of them, and prints a table.
fn measure(work: &Work, rows: &[Row], n_maxes: &[u32], rounds: usize) {
    let rounds = number("MEASURE_ROUNDS", rounds);
    let dir = tempfile::tempdir().unwrap();
    let mut out = std::io::stderr();
    let _ = writeln!(
        out,
        "\n{} {}\n\n| n_max | switches | accepted | launches per cycle | reused | catch-up | draft | both: least us, ratio of least, \
         median of ratios | whole cycle | the same, time running | prompt |\n| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        work.model.display(),
        work.flags
    );
    for &n_max in n_maxes {
        let mut servers: Vec<Server> = (rows.iter().enumerate())
            .map(|(at, (_, switches))| {
                let log = dir.path().join(format!("{n_max}-{at}"));
                server(work, n_max, switches, &log)
            })
            .collect();
        let mut samples: Vec<Vec<Sample>> = rows.iter().map(|_| Vec::new()).collect();
        for round in 0..=rounds {
            // The order turns, so that none is always the first; the first round only warms up.
            for at in 0..rows.len() {
                let at = (at + round) % rows.len();
                let sample = sample(&mut servers[at], work);
                if round > 0 {
                    samples[at].push(sample);
                }
            }
        }
        for server in servers {
            server.end().unwrap();
        }
        for (at, (name, _)) in rows.iter().enumerate() {
            let (mine, off) = (&samples[at], &samples[0]);
            let ratio = |of: &dyn Fn(&Sample) -> f64| {
                let best = least(mine.iter().map(of)) / least(off.iter().map(of));
                let pairs = mine.iter().zip(off).map(|(a, b)| of(a) / of(b));
                format!("{best:.3}, {:.3}", median(pairs.collect()))
            };
            let first = &mine[0];
            let _ = writeln!(
                out,
                "| {n_max} | {name} | {:.3} | {:.2} | {:.1} % | {:.0} us | {:.0} us | {:.0} us, {} | {} | {} | {:.0} us, {} |",
                first.accepted,
                first.launches,
                100.0 * first.reused,
                least(mine.iter().map(|s| s.process)),
                least(mine.iter().map(|s| s.draft)),
                least(mine.iter().map(|s| s.process + s.draft)),
                ratio(&|s| s.process + s.draft),
                ratio(&|s| s.whole),
                ratio(&|s| s.running),
                least(mine.iter().map(|s| s.prompt)),
                ratio(&|s| s.prompt),
            );
        }
    }
}

fn flags() -> String {
    std::env::var("MEASURE_FLAGS").unwrap_or_default()
}

fn n_maxes() -> Vec<u32> {
    let text = std::env::var("MEASURE_N_MAX").unwrap_or_else(|_| "1,2,3".to_owned());
    text.split(',').map(|n| n.parse().unwrap()).collect()
}

#[test]
#[ignore = "a measurement"]
fn nextn_switches() {
    let fixture = || root().join("target/fixtures/qwen35-nextn.gguf");
    let work = Work {
        model: std::env::var("MEASURE_MODEL").map_or_else(|_| fixture(), PathBuf::from),
        flags: flags(),
        tokens: number("MEASURE_TOKENS", 240),
        // Two micro-batches.
        long: number("MEASURE_LONG", 1024) as u32,
    };
    measure(&work, &rows_of(&ROWS), &n_maxes(), 7);
}

/// The rows that `MEASURE_ROWS` names; all without it.
fn rows_of(all: &[Row]) -> Vec<Row> {
    let names = std::env::var("MEASURE_ROWS").unwrap_or_default();
    let is_named = |row: &&Row| names.is_empty() || names.split(';').any(|name| name == row.0);
    all.iter().filter(is_named).copied().collect()
}

/// A model of `architecture` that is too large for the list of fixtures.
fn made(architecture: &str) -> PathBuf {
    let model = root().join(format!("target/measure/{architecture}.gguf"));
    if !model.is_file() {
        fs_err::create_dir_all(model.parent().unwrap()).unwrap();
        // So that some drafts are refused, and some are cut short.
        let dials = BTreeMap::from([("disturb".to_owned(), 3.0)]);
        let made = llama_patchset::fixture::generate(architecture, 7, &dials).unwrap();
        let new = model.with_extension("new");
        let file = std::io::BufWriter::new(fs_err::File::create(&new).unwrap());
        llama_patchset::fixture::gguf::write(&made, file).unwrap();
        fs_err::rename(new, &model).unwrap();
    }
    model
}

/// Where a launch costs nothing beside what it computes, nothing may be lost: 223 million weights.
#[test]
#[ignore = "a measurement"]
fn compute_bound() {
    let model = made("compute");
    let rows = [ROWS[0], ROWS[5], ROWS[6]];
    for p_min in ["0", "0.6", "0.9"] {
        let work = Work {
            model: model.clone(),
            flags: format!("--spec-draft-p-min {p_min} {}", flags()),
            tokens: 40,
            long: 32,
        };
        measure(&work, &rows, &[3], 5);
    }
}

#[test]
#[ignore = "a measurement"]
fn heads() {
    let fixture = || root().join("target/fixtures/launch-nextn3.gguf");
    let work = Work {
        model: std::env::var("MEASURE_MODEL").map_or_else(|_| fixture(), PathBuf::from),
        flags: flags(),
        tokens: number("MEASURE_TOKENS", 240),
        long: number("MEASURE_LONG", 1024) as u32,
    };
    measure(&work, &rows_of(&HEADS), &n_maxes(), 7);
}

/// As `compute_bound`: 280 million weights, three NextN blocks.
#[test]
#[ignore = "a measurement"]
fn heads_compute_bound() {
    let rows = [HEADS[0], HEADS[1], HEADS[3], HEADS[4]];
    for p_min in ["0", "0.6"] {
        let work = Work {
            model: made("compute-heads"),
            flags: format!("--spec-draft-p-min {p_min} {}", flags()),
            tokens: 40,
            long: 32,
        };
        measure(&work, &rows, &[3], 5);
    }
}

/// What the kernels of ggml-ext bring where the vocabulary is large.
#[test]
#[ignore = "a measurement"]
fn ext_kernels() {
    const ROWS: [Row; 4] = [
        ("off", &[]),
        ("kernels", &["OPENCOTI_EXT_KERNELS"]),
        ("fused", &["OPENCOTI_MTP_FUSED_NEXTN"]),
        (
            "fused, kernels",
            &["OPENCOTI_MTP_FUSED_NEXTN", "OPENCOTI_EXT_KERNELS"],
        ),
    ];
    let work = Work {
        model: std::env::var("MEASURE_MODEL").map_or_else(
            |_| root().join("target/fixtures/wide-nextn.gguf"),
            PathBuf::from,
        ),
        flags: flags(),
        tokens: 60,
        long: 32,
    };
    measure(&work, &ROWS, &[1, 3], 7);
}
