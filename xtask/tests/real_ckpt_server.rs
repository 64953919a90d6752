//! Speculative checkpoints in the real server, where more happens than rounds: the context is shifted, drafts come
//! from another model or from two sources, clients hang up, slots are saved and loaded. What is generated is what
//! is generated without drafts, and a fault in what saves, restores or gives back is seen. Runs under `cargo xtask test`,
//! as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ckpt_server.rs"]
mod ckpt_server;
#[path = "support/real.rs"]
mod real;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use ckpt_server::{Counters, DEVICE, EXACT, MTP, Running, SWAP, build, fixture};
use real::root;
use serde_json::{Value, json};

type Env = Vec<(&'static str, &'static str)>;

/// Whether real builds are wanted; then they are there.
fn wanted(test: &str) -> bool {
    static READY: OnceLock<()> = OnceLock::new();
    if !real::wanted(test) {
        return false;
    }
    READY.get_or_init(|| {
        let fixtures = ["fixture", "qwen3next-nextn", "qwen35-nextn"];
        for args in [&["build", "--patched"][..], &fixtures] {
            real::ok(&root(), args);
        }
    });
    true
}

/// The ways that a checkpoint can be kept, and a replay judged.
fn ways() -> Vec<(&'static str, Env)> {
    let swap = [&[DEVICE][..], &SWAP].concat();
    vec![
        ("host", vec![]),
        ("device", vec![DEVICE]),
        ("swap", swap.clone()),
        ("swap, exact replay", [&swap[..], &[EXACT]].concat()),
    ]
}

fn prompt(length: u64, seed: u64) -> Vec<u64> {
    (0..length)
        .map(|at| 4 + (at * 37 + seed * 101 + at * at % 13) % 500)
        .collect()
}

fn body(prompt: &[u64], n_predict: u64, slot: u64, cached: bool) -> Value {
    json!({
        "prompt": prompt, "n_predict": n_predict, "temperature": 0.0, "seed": 1, "id_slot": slot, "cache_prompt": cached,
        "return_tokens": true, "ignore_eos": true,
    })
}

const LIMIT: Duration = Duration::from_secs(60);

/// What a completion gives with drafts, for each way to keep checkpoints, is what it gives without; what was counted.
fn same(model: &str, args: &str, drafts: &str, n_predict: u64) -> Vec<(Value, Counters)> {
    let body = body(&prompt(28, 3), n_predict, 0, false);
    let base = format!("-np 1 --ctx-checkpoints 0 --cache-ram 0 {args}");
    let plain = Running::of(&fixture(model), &base, &[]);
    let plain = plain.answer(&body, LIMIT).unwrap();
    assert_eq!(plain["tokens"].as_array().unwrap().len() as u64, n_predict);
    let mut all = Vec::new();
    for (way, env) in ways() {
        let server = Running::of(&fixture(model), &format!("{base} {drafts}"), &env);
        let answer = server.answer(&body, LIMIT).expect("no answer");
        assert_eq!(answer["tokens"], plain["tokens"], "{drafts}, {way}");
        let counters: Counters =
            serde_json::from_value(answer["timings"]["opencoti"].clone()).unwrap();
        let host = counters["ckpt_bytes_save"] + counters["ckpt_bytes_load"];
        assert_eq!(host > 0, way == "host", "{drafts}, {way}: {counters:?}");
        all.push((answer, counters));
    }
    all
}

/// A recurrent memory is shifted as any other, by upstream too: positions move, states stay.
#[test]
fn a_shifted_context_goes_on() {
    if !wanted("a_shifted_context_goes_on") {
        return;
    }
    for (answer, counters) in same("qwen3next-nextn", "-c 256 --context-shift", MTP, 700) {
        assert_eq!(answer["truncated"], true, "nothing was shifted");
        assert!(counters["ckpt_loads"] > 100, "{counters:?}");
    }
}

/// Here the drafter has states of its own, which go back after every draft.
#[test]
fn another_model_drafts() {
    if !wanted("another_model_drafts") {
        return;
    }
    let other = fixture("qwen3next-nextn");
    let drafts = "--spec-type draft-simple --spec-draft-n-max 4 -md";
    let drafts = format!("{drafts} {}", other.display());
    for (_, counters) in same("qwen35-nextn", "-c 1024", &drafts, 200) {
        assert!(counters["ckpt_loads"] > 60, "{counters:?}");
        assert_eq!(counters["ckpt_saves"], 2 * counters["cycles"]);
    }
}

/// With bounded rollback only drafts that are longer than it are saved for, by a copy of all its states.
#[test]
fn drafts_come_from_two_sources() {
    if !wanted("drafts_come_from_two_sources") {
        return;
    }
    let drafts = "--spec-type draft-mtp,ngram-simple --spec-draft-n-max 3 \
        --spec-ngram-simple-size-n 2 --spec-ngram-simple-size-m 4";
    for (model, some) in [("qwen35-nextn", true), ("qwen3next-nextn", false)] {
        for (_, counters) in same(model, "-c 1024", drafts, 300) {
            assert!(counters["ckpt_loads"] > 5, "{counters:?}");
            assert_eq!(
                counters["ckpt_saves"] < counters["cycles"],
                some,
                "{counters:?}"
            );
        }
    }
}

/// Whether the slot is at rest, in time.
fn rests(server: &Running, slot: usize) -> bool {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(5) {
        let slots = server.ask("GET", "/slots", "", Duration::from_secs(5));
        let slots = slots.and_then(|text| serde_json::from_str::<Value>(&text).ok());
        if slots.is_some_and(|slots| slots[slot]["is_processing"] == false) {
            return true;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    false
}

/// Clients that hang up after some pieces of an endless answer, in two slots, beside one that goes on; then the slot is used
/// again. Nothing: the server is gone, or does not stop.
fn hung_up(drafts: &str, env: &[(&str, &str)]) -> Option<Vec<Vec<u64>>> {
    let args = format!("-c 512 -np 2 --context-shift --ctx-checkpoints 0 --cache-ram 0 {drafts}");
    let server = Running::of(&fixture("qwen3next-nextn"), &args, env);
    let mut all = Vec::new();
    for turn in 0..8 {
        let (slot, other) = (turn % 2, (turn + 1) % 2);
        let endless = body(&prompt(20 + turn, turn), 1_000_000, slot, false);
        let stays = server.stream(&body(&prompt(30, turn), 1_000_000, other, false), 3)?;
        drop(server.stream(&endless, 1 + 3 * usize::try_from(turn).ok()?)?);
        if !rests(&server, usize::try_from(slot).ok()?) {
            return None;
        }
        let next = body(&prompt(25, 50 + turn), 40, slot, false);
        all.push(server.completion(&next, LIMIT)?.0);
        drop(stays);
        if !rests(&server, usize::try_from(other).ok()?) {
            return None;
        }
    }
    Some(all)
}

#[test]
fn a_client_that_hangs_up_leaves_a_slot_that_works() {
    if !wanted("a_client_that_hangs_up_leaves_a_slot_that_works") {
        return;
    }
    let plain = hung_up("", &[]).expect("without drafts");
    assert_eq!(plain.len(), 8);
    for (way, env) in ways() {
        assert_eq!(hung_up(MTP, &env).as_ref(), Some(&plain), "{way}");
    }
}

/// Of itself, so that a slot can be loaded: upstream saves none of what a drafter has, and a context that drafts is left with
/// positions of something else, on which the next batch fails.
const NGRAM: &str =
    "--spec-type ngram-simple --spec-ngram-simple-size-n 2 --spec-ngram-simple-size-m 4";

/// A slot is saved and cleared between rounds of another one, which goes on; both load it later, the other one after it was
/// left in the middle of a round. The continuations.
fn moved(drafts: &str, env: &[(&str, &str)]) -> Option<Vec<Vec<u64>>> {
    let dir = tempfile::tempdir().ok()?;
    let args = format!(
        "-c 1024 -np 2 --context-shift --ctx-checkpoints 0 --cache-ram 0 --slot-save-path {} {drafts}",
        dir.path().display()
    );
    let server = Running::of(&fixture("qwen3next-nextn"), &args, env);
    let slot = |slot: usize, action: &str| {
        let path = format!("/slots/{slot}?action={action}");
        let answer = server.ask("POST", &path, r#"{"filename": "some"}"#, LIMIT)?;
        answer.contains("id_slot").then_some(())
    };
    let first = prompt(40, 9);
    let (tokens, _) = server.completion(&body(&first, 150, 0, true), LIMIT)?;
    let goes_on = server.stream(&body(&prompt(30, 4), 1_000_000, 1, false), 9)?;
    slot(0, "save")?;
    slot(0, "erase")?;
    let mut all = vec![tokens.clone()];
    all.push(
        server
            .completion(&body(&prompt(35, 7), 100, 0, false), LIMIT)?
            .0,
    );
    let more = [&first[..], &tokens, &[77, 11]].concat();
    for at in [0, 1] {
        if at == 1 {
            goes_on.shutdown(std::net::Shutdown::Both).ok()?;
            if !rests(&server, 1) {
                return None;
            }
        }
        slot(at, "restore")?;
        let answer = server.answer(&body(&more, 200, at as u64, true), LIMIT)?;
        // What was loaded was used: but for the last token of the answer and the two new ones.
        let cached = answer["timings"]["cache_n"].as_u64()?;
        assert!(
            cached + 4 >= more.len() as u64,
            "{cached} of {}",
            more.len()
        );
        let loads = answer["timings"]["opencoti"]["ckpt_loads"].as_u64()?;
        assert!(drafts.is_empty() || loads > 2, "{loads} restores");
        all.push(serde_json::from_value(answer["tokens"].clone()).ok()?);
    }
    Some(all)
}

#[test]
fn a_slot_is_saved_and_loaded_between_rounds() {
    if !wanted("a_slot_is_saved_and_loaded_between_rounds") {
        return;
    }
    let plain = moved("", &[]).expect("without drafts");
    assert_eq!(plain.len(), 4);
    assert_eq!(plain[2], plain[3]);
    for (way, env) in ways() {
        assert_eq!(moved(NGRAM, &env).as_ref(), Some(&plain), "{way}");
    }
}

/// What is planted in place of a function of the library, and which of the tests above sees it.
const PLANTED: [(&str, &str, bool); 3] = [
    // A restore that does nothing.
    (
        "load",
        "bool llama_ckpt_device_load(llama_context *, llama_seq_id, llama_state_seq_flags, \
         const llama_ckpt_snapshot & snap) { return snap.id != 0; }",
        true,
    ),
    // A released slot that keeps its snapshot.
    (
        "free",
        "void llama_ckpt_device_free(llama_context *, llama_seq_id, llama_ckpt_snapshot & snap) { snap = {}; }",
        true,
    ),
    // None.
    (
        "none",
        "extern int llama_ckpt_nothing; int llama_ckpt_nothing;",
        false,
    ),
];

fn planted(name: &str, source: &str) -> PathBuf {
    let dir = root().join("target/test-checkouts/probe-ckpt");
    std::fs::create_dir_all(&dir).unwrap();
    let (file, library) = (
        dir.join(format!("{name}.cpp")),
        dir.join(format!("lib{name}.so")),
    );
    let text = format!("#include \"opencoti/llama-ckpt-device.h\"\n{source}\n");
    std::fs::write(&file, text).unwrap();
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-shared", "-fPIC"]);
    for folder in ["include", "src", "ggml/include"] {
        compiler.arg("-I").arg(build().join("src").join(folder));
    }
    let done = compiler
        .arg(&file)
        .arg("-o")
        .arg(&library)
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{said}");
    library
}

/// Both tests above see a restore that does nothing, and one that is not given back.
#[test]
#[cfg(target_os = "linux")]
fn faults_that_are_planted_in_the_server_are_found() {
    if !wanted("faults_that_are_planted_in_the_server_are_found") {
        return;
    }
    type Scenario = fn(&str, &[(&str, &str)]) -> Option<Vec<Vec<u64>>>;
    for (scenario, drafts) in [(hung_up as Scenario, MTP), (moved, NGRAM)] {
        let plain = scenario("", &[]).expect("without drafts");
        for (name, source, seen) in PLANTED {
            let library = planted(name, source);
            let env = [DEVICE, ("LD_PRELOAD", library.to_str().unwrap())];
            let found = scenario(drafts, &env).is_none_or(|tokens| tokens != plain);
            assert_eq!(found, seen, "{name}");
        }
    }
}

/// At a temperature a seed gives the same text with drafts as without, and an exact replay changes nothing in that:
/// whether the sampler draws its random numbers itself or a backend draws them for the rows of a batch.
#[test]
fn a_seed_gives_the_same_text_with_an_exact_replay() {
    if !wanted("a_seed_gives_the_same_text_with_an_exact_replay") {
        return;
    }
    let texts = |backend: bool, drafts: &str, env: &[(&str, &str)]| {
        let sampling = if backend { "--backend-sampling" } else { "" };
        let args = format!(
            "-np 1 -c 2048 --ctx-checkpoints 0 --cache-ram 0 --samplers top_k;temperature {sampling} {drafts}"
        );
        let server = Running::of(&fixture("qwen3next-nextn"), &args, env);
        let mut restored = 0;
        let all: Vec<Vec<u64>> = (1..=8)
            .map(|seed| {
                let body = json!({
                    "prompt": [17, 300, 42, 300, 42, 199, 7], "n_predict": 40, "temperature": 0.7, "seed": seed,
                    "top_k": 40, "cache_prompt": false, "return_tokens": true, "backend_sampling": backend,
                });
                let (tokens, counters) = server.completion(&body, LIMIT).expect("no answer");
                restored += counters["ckpt_loads"];
                tokens
            })
            .collect();
        (all, restored)
    };
    for backend in [true, false] {
        let (plain, _) = texts(backend, "", &[]);
        assert!(plain.iter().any(|text| text != &plain[0]), "no seed counts");
        let (exact, restored) = texts(backend, MTP, &[DEVICE, EXACT]);
        assert!(restored > 40, "{restored}");
        assert_eq!(exact, plain, "on a backend: {backend}");
        // What would be wrong for each of them is seen.
        let fault = if backend { "stays" } else { "draws" };
        let faulty = ("OPENCOTI_SPEC_REPLAY_FAULT", fault);
        let (wrong, _) = texts(backend, MTP, &[DEVICE, EXACT, faulty]);
        assert_ne!(wrong, plain, "on a backend: {backend}");
    }
}

/// One line of `OPENCOTI_SPEC_TRACE`: a drafted step.
#[derive(Clone, Debug, PartialEq)]
struct Step {
    cycle: usize,
    step: usize,
    /// Of the token that the step was given.
    pos: usize,
    /// Ids and logits.
    candidates: Vec<(u64, f32)>,
}

fn steps(text: &str) -> Vec<Step> {
    let lines = text.lines().map(|line| {
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<usize>().unwrap();
        let candidates = words[6..].iter().map(|word| {
            let (id, bits) = word.split_once(':').unwrap();
            let bits = u32::from_str_radix(bits, 16).unwrap();
            (id.parse().unwrap(), f32::from_bits(bits))
        });
        let candidates: Vec<_> = candidates.collect();
        assert_eq!(candidates.len(), number(5), "{line}");
        Step {
            cycle: number(1),
            step: number(2),
            pos: number(3),
            candidates,
        }
    });
    lines.collect()
}

/// Tokens after `prompt`, and what was drafted for them.
fn traced(prompt: &[u64], n_predict: u64, env: &[(&str, &str)]) -> (Vec<u64>, Vec<Step>) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("trace");
    let trace = [("OPENCOTI_SPEC_TRACE", file.to_str().unwrap())];
    let args = format!("-c 1024 -np 1 --ctx-checkpoints 0 --cache-ram 0 {MTP}");
    let env = [env, &trace].concat();
    let server = Running::of(&fixture("qwen3next-nextn"), &args, &env);
    let body = body(prompt, n_predict, 0, false);
    let (tokens, _) = server.completion(&body, LIMIT).expect("no answer");
    (tokens, steps(&std::fs::read_to_string(&file).unwrap()))
}

/// Where the first steps of those drafts stand that come after a restore: the draft before was not accepted whole.
fn after_restores(steps: &[Step]) -> Vec<usize> {
    let first = |at: &usize| steps[*at].step == 0;
    let starts: Vec<usize> = (0..steps.len()).filter(first).collect();
    let pairs = starts.windows(2).filter(|pair| {
        let drafted = pair[1] - pair[0];
        steps[pair[1]].pos - steps[pair[0]].pos < drafted + 1
    });
    pairs.map(|pair| pair[1]).collect()
}

/// How far apart the logits of two steps are, at most, of the candidates that both have.
fn distance(left: &Step, right: &Step) -> f32 {
    assert_eq!(left.pos, right.pos);
    let logit = |step: &Step, id: u64| {
        let found = step.candidates.iter().find(|candidate| candidate.0 == id);
        found.map(|candidate| candidate.1)
    };
    let shared: Vec<f32> = (left.candidates.iter())
        .filter_map(|(id, of_left)| Some((of_left - logit(right, *id)?).abs()))
        .collect();
    assert!(shared.len() > 4, "{left:?} and {right:?} share few");
    shared.into_iter().fold(0.0, f32::max)
}

/// An exact replay also gives the drafter the hidden row back that it had before the round. Tokens do not tell, so it is held
/// against a server that has never drafted: it is given the prompt and the text so far.
#[test]
#[cfg(target_os = "linux")]
fn an_exact_replay_rewinds_the_drafter() {
    if !wanted("an_exact_replay_rewinds_the_drafter") {
        return;
    }
    let prompt = prompt(28, 3);
    let library = planted(
        "rewind",
        "void common_spec_replay_set(std::vector<std::vector<float>> &, llama_seq_id, const std::vector<uint8_t> &) {}",
    );
    let (tokens, upstream) = traced(&prompt, 200, &[DEVICE]);
    let found = after_restores(&upstream);
    assert!(found.len() > 20, "{} restores", found.len());
    let first = found[0];
    let fresh = |pos: usize| {
        let text = [&prompt[..], &tokens[..pos - prompt.len()]].concat();
        let (_, steps) = traced(&text, 8, &[]);
        steps[0].clone()
    };
    let wanted = fresh(upstream[first].pos);
    let far = distance(&upstream[first], &wanted);
    for env in [vec![EXACT], vec![DEVICE, EXACT]] {
        let (same, exact) = traced(&prompt, 200, &env);
        assert_eq!(same, tokens, "{env:?}");
        // The same up to the first restore, and not behind it.
        assert_eq!(exact[..first], upstream[..first], "{env:?}");
        assert_ne!(exact[first], upstream[first], "{env:?}");
        for at in after_restores(&exact).into_iter().take(3) {
            let near = distance(&exact[at], &fresh(exact[at].pos));
            let _ = writeln!(
                std::io::stderr(),
                "position {}: {near}, and upstream's first {far}",
                exact[at].pos
            );
            assert!(near < 0.05 * far, "{near} against {far}, {env:?}");
        }
        // One that does nothing is upstream's.
        let preload = ("LD_PRELOAD", library.to_str().unwrap());
        let (same, planted) = traced(&prompt, 200, &[&env[..], &[preload]].concat());
        assert_eq!(same, tokens, "{env:?}");
        assert_eq!(distance(&planted[first], &wanted), far, "{env:?}");
    }
}
