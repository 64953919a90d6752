//! The negative control of the drafts gate: faults that are planted in the fused draft, each of
//! which the gate must see. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use llama_patchset::ctx::Cancel;
use llama_patchset::fixture::{generate, gguf};
use llama_patchset::gate::client::{Client, Sampling};
use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::{Halt, Prompt};
use real::{checkout, ok, patched_server, put, root, wanted, xtask};

const SERIES: [&str; 14] = [
    "ext-core",
    "spec-counters",
    "spec-trace",
    "nextn-reuse",
    "nextn-kv-only",
    "nextn-fused",
    "nextn-one-launch",
    "hy-v3-chain-row",
    "nextn-fused-heads",
    "qwen4exp-nextn",
    "nextn-heads-reuse",
    "planted-draft",
    "planted-heads",
    "planted-qwen4exp",
];

/// The fixtures of architectures whose drafts are done in one launch.
const FIXTURES: [&str; 11] = [
    "qwen35-nextn",
    "qwen35moe-nextn",
    "qwen3next-nextn",
    "glm4moe-nextn",
    "cohere2moe-nextn",
    "deepseek2-nextn",
    "deepseek32-nextn",
    "glmdsa-nextn",
    "bailingmoe3-nextn",
    "nemotronhmoe-nextn",
    QWEN4EXP,
];

/// The one whose block a patch of ours draws: faults are planted in that as well.
const QWEN4EXP: &str = "qwen4exp-nextn";

/// The faults of its block that change what is drafted.
const QWEN4EXP_FAULTS: [&str; 5] = ["none", "row", "streams", "cells", "norm"];

/// The faults of every fixture, then those of a catch-up in the launch of a draft.
const FAULTS: [&str; 6] = ["none", "h", "cell", "pos", "row", "lost"];

/// The fixtures of architectures with several NextN heads.
const HEADS: [&str; 3] = ["step35-nextn3", "mimo2-nextn3", "hy-v3-nextn3"];

/// The faults of drafts of several heads; of `hy_v3` also that the hidden row is upstream's.
const HEADS_FAULTS: [&str; 5] = ["none", "h", "head", "lost", "unmended"];

/// The definition of a gate that plants `fault` into the candidate.
fn definition(fixture: &str, fault: &str) -> String {
    let mended = |on: bool| format!("OPENCOTI_HY_V3_CHAIN_ROW = \"{}\"", u8::from(on));
    let (baseline, candidate) = match HEADS.contains(&fixture) {
        true => (
            mended(true),
            format!(
                "OPENCOTI_NEXTN_FUSED_HEADS = \"1\"\nOPENCOTI_PLANTED_HEADS = \"{fault}\"\n{}",
                mended(fault != "unmended")
            ),
        ),
        false => (
            mended(false),
            format!(
                "OPENCOTI_MTP_FUSED_NEXTN = \"1\"\nOPENCOTI_NEXTN_ONE_LAUNCH = \"{}\"\n\
                 OPENCOTI_PLANTED_DRAFT = \"{fault}\"",
                u8::from(fixture == FIXTURES[0])
            ),
        ),
    };
    let fewer = fault != "unmended";
    let block = u8::from(fixture == QWEN4EXP);
    format!(
        r#"schema = 1
id = "planted-{fixture}-{fault}"
kind = "drafts"
title = "A planted fault"
model = {{ fixture = "{fixture}" }}
n-predict = 48
baseline = {{ build = "patched", env = {{ OPENCOTI_SPEC_COUNTERS = "1", OPENCOTI_QWEN4EXP_NEXTN = "{block}", {baseline} }} }}
[candidate]
build = "patched"
[candidate.env]
OPENCOTI_SPEC_COUNTERS = "1"
OPENCOTI_QWEN4EXP_NEXTN = "{block}"
{candidate}
[[setting]]
name = "plain"
n-max = [3]
slots = [1]
fewer-launches = {fewer}
[[prompt]]
name = "long"
generate = {{ seed = 2, length = 200, low = 4, high = 512 }}
"#
    )
}

/// What is tried of a fixture.
fn faults(fixture: &str) -> &'static [&'static str] {
    match fixture {
        "qwen35-nextn" => &FAULTS,
        "hy-v3-nextn3" => &HEADS_FAULTS,
        _ if HEADS.contains(&fixture) => &HEADS_FAULTS[..4],
        _ => &FAULTS[..4],
    }
}

/// The checkout with all that is planted, and its server.
fn planted() -> &'static (PathBuf, String) {
    static PLANTED: OnceLock<(PathBuf, String)> = OnceLock::new();
    PLANTED.get_or_init(|| {
        let dir = checkout("planted-draft", &SERIES);
        ok(&dir, &["apply", "--discard-edits"]);
        ok(&dir, &["build", "--patched"]);
        let server = patched_server(&dir).to_str().unwrap().to_owned();
        (dir, server)
    })
}

/// What a gate of two servers says, and its exit code.
fn gate(dir: &Path, server: &str, gate: &str) -> (Option<i32>, serde_json::Value) {
    let servers = ["--baseline", server, "--candidate", server];
    let args = [&["gate", "--json", "--gate", gate][..], &servers].concat();
    let output = xtask(dir, &args);
    let text = String::from_utf8(output.stdout).unwrap();
    let json = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    (output.status.code(), json)
}

/// The negative control of the gate of acceptance, without which nothing would say that a block is drawn
/// wrongly: tokens stay what they are. It fails against a sound block, and against one with the same fault.
#[test]
fn every_planted_fault_of_the_block_of_qwen4exp_fails_the_acceptance_gate() {
    if !wanted("every_planted_fault_of_the_block_of_qwen4exp_fails_the_acceptance_gate") {
        return;
    }
    let (dir, server) = planted();
    for fault in QWEN4EXP_FAULTS {
        for both in [false, true] {
            let id = format!("planted-block-{fault}-{both}");
            let of_baseline = if both { fault } else { "none" };
            // The counters differ, or the sides would be the same.
            let text = format!(
                r#"schema = 1
id = "{id}"
kind = "acceptance"
title = "A planted fault"
model = {{ fixture = "{QWEN4EXP}" }}
n-max = [2]
n-predict = 192
drop = 0.01
least = 0.76
baseline = {{ build = "patched", env = {{ OPENCOTI_QWEN4EXP_NEXTN = "1", OPENCOTI_PLANTED_QWEN4EXP = "{of_baseline}" }} }}
[candidate]
build = "patched"
[candidate.env]
OPENCOTI_QWEN4EXP_NEXTN = "1"
OPENCOTI_PLANTED_QWEN4EXP = "{fault}"
OPENCOTI_SPEC_COUNTERS = "1"
[[prompt]]
name = "short"
file = "prompts/short.ids"
[[prompt]]
name = "crossing"
generate = {{ seed = 2, length = 200, low = 4, high = 512 }}
"#
            );
            put(&dir.join(format!("gates/{id}.toml")), text);
            let (code, json) = gate(dir, server, &id);
            let found = &json["data"]["gates"][0]["acceptance"][0];
            let _ = writeln!(
                std::io::stderr(),
                "{id}: {} of {}, against {} of {}",
                found["candidate"]["accepted"],
                found["candidate"]["drafted"],
                found["baseline"]["accepted"],
                found["baseline"]["drafted"],
            );
            let wanted = if fault == "none" { "pass" } else { "fail" };
            assert_eq!(found["verdict"], wanted, "{json:#}");
            assert_eq!(code, Some(i32::from(fault != "none")));
            if fault != "none" {
                let reason = found["reason"].as_str().unwrap();
                assert!(reason.contains("at least 76.00 %"), "{reason}");
            }
        }
    }
}

/// Where the outputs are picked too early, the reader walks off the end of the rows: the server does not live.
#[test]
fn rows_that_are_handed_on_too_late_are_no_pass() {
    if !wanted("rows_that_are_handed_on_too_late_are_no_pass") {
        return;
    }
    let (dir, server) = planted();
    let text = definition(QWEN4EXP, "early")
        .replace("OPENCOTI_PLANTED_DRAFT", "OPENCOTI_PLANTED_QWEN4EXP");
    let text = text.replace("planted-qwen4exp-nextn-early", "planted-block-early");
    put(&dir.join("gates/planted-block-early.toml"), text);
    let servers = ["--baseline", server, "--candidate", server];
    let args = [&["gate", "--gate", "planted-block-early"][..], &servers].concat();
    let output = xtask(dir, &args);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("the server ended"), "{said}");
}

/// `none` is the control: the same build without a fault passes.
#[test]
fn every_planted_fault_of_a_fused_draft_fails_the_drafts_gate() {
    if !wanted("every_planted_fault_of_a_fused_draft_fails_the_drafts_gate") {
        return;
    }
    let (dir, server) = planted();
    for fixture in FIXTURES.into_iter().chain(HEADS) {
        for fault in faults(fixture) {
            let path = dir.join(format!("gates/planted-{fixture}-{fault}.toml"));
            put(&path, definition(fixture, fault));
        }
    }
    for fixture in FIXTURES.into_iter().chain(HEADS) {
        for fault in faults(fixture) {
            caught(dir, server, fixture, fault);
        }
    }
}

/// Heads that have graphs of their own: one that takes the graph of another is no other draft, since the context looks before it
/// uses one again, and only the gate of counters sees that nothing is used again. A sampler that was applied where buffers are
/// reserved is another draft where several sequences are.
#[test]
fn planted_faults_of_heads_with_graphs_of_their_own_are_found() {
    if !wanted("planted_faults_of_heads_with_graphs_of_their_own_are_found") {
        return;
    }
    let (dir, server) = planted();
    for (of, fault, verdict, words) in [
        ("counters-heads-reuse", "none", "pass", ""),
        (
            "counters-heads-reuse",
            "lane",
            "fail",
            "reused_dft/launches_dft",
        ),
        ("drafts-heads-reuse", "none", "pass", ""),
        (
            "drafts-heads-reuse",
            "samplers",
            "fail",
            "candidates differ",
        ),
    ] {
        // The gate that is to find it, as it is, but for the fault.
        let text = std::fs::read_to_string(real::root().join(format!("gates/{of}.toml"))).unwrap();
        let id = format!("planted-{of}-{fault}");
        let switch = "OPENCOTI_NEXTN_HEADS_REUSE = \"1\"";
        assert_eq!(text.matches(switch).count(), 1);
        let set = if text.contains(&format!("{switch} }}")) {
            ", "
        } else {
            "\n"
        };
        let text = text
            .replace(&format!("id = \"{of}\""), &format!("id = \"{id}\""))
            .replace(
                switch,
                &format!("{switch}{set}OPENCOTI_PLANTED_HEADS = \"{fault}\""),
            );
        put(&dir.join(format!("gates/{id}.toml")), text);
        let (code, json) = gate(dir, server, &id);
        let found = &json["data"]["gates"][0];
        let _ = writeln!(std::io::stderr(), "{id}: {}", found["verdict"]);
        assert_eq!(found["verdict"], verdict, "{id}: {json:#}");
        assert_eq!(code, Some(i32::from(verdict == "fail")), "{id}");
        assert!(json.to_string().contains(words), "{id}: {json:#}");
    }
}

/// The server of `llama-2026-06`, where it is built; says so where it is not.
fn server_of_2026_06(test: &str) -> Option<PathBuf> {
    let server = "target/llama/llama-2026-06/patched-cpu/out/bin/llama-server";
    let server = real::root().join(server);
    let is_there = wanted(test) && server.is_file();
    if wanted(test) && !is_there {
        let _ = writeln!(
            std::io::stderr(),
            "{test}: left out, since llama-2026-06 is not built here: cargo xtask build --patched --base llama-2026-06"
        );
    }
    is_there.then_some(server)
}

/// Starts it with a model of three blocks, of which it lacks what `drop` names; the log, and whether it was ready.
fn chained(server: &Path, name: &str, n_max: u32, drop: fn(&str) -> bool) -> (String, bool) {
    let dir = real::root().join("target/test-checkouts/chain-heads");
    std::fs::create_dir_all(&dir).unwrap();
    let mut model = generate("step35", 7, &BTreeMap::new()).unwrap();
    model.tensors.retain(|tensor| !drop(&tensor.name));
    let file = dir.join(format!("{name}.gguf"));
    let mut bytes = Vec::new();
    gguf::write(&model, &mut bytes).unwrap();
    std::fs::write(&file, bytes).unwrap();
    let args = format!(
        "-c 512 -np 1 -t 1 -tb 1 -fit off --no-warmup --spec-type draft-mtp --spec-draft-n-max {n_max}"
    );
    let args = args.split(' ').map(OsString::from);
    let env = BTreeMap::from([
        ("OPENCOTI_NEXTN_CHAIN_HEADS".to_owned(), "1".to_owned()),
        ("GGML_NO_BACKTRACE".to_owned(), "1".to_owned()),
    ]);
    let log = dir.join(format!("{name}.log"));
    let launch = Launch {
        program: server,
        args: [OsString::from("-m"), file.into()]
            .into_iter()
            .chain(args)
            .collect(),
        env: &env,
        log: log.clone(),
        is_judged: false,
        start: Duration::from_secs(60),
        request: Duration::from_secs(60),
        stop: Duration::from_secs(5),
    };
    // Of a server of that base which ends at once, one log in sixty is empty: its writer has a thread of its own.
    for _ in 0..5 {
        let is_ready = Server::start(&launch, &Halt::new(&Cancel::default())).is_ok();
        let text = std::fs::read_to_string(&log).unwrap();
        if !text.is_empty() {
            return (text, is_ready);
        }
    }
    panic!("{name}: the server says nothing");
}

/// A block that is not in the file is named when the model is loaded; more tokens than blocks are not drafted.
#[test]
fn chained_heads_say_what_they_lack_and_what_they_limit() {
    let Some(server) = server_of_2026_06("chained_heads_say_what_they_lack_and_what_they_limit")
    else {
        return;
    };
    let (log, is_ready) = chained(&server, "whole", 5, |_| false);
    assert!(is_ready, "{log}");
    for words in [
        "n_max=5, but the model has 3 NextN blocks, and each drafts one token: n_max=3",
        "3 of 3 NextN blocks draft one token each",
    ] {
        assert!(log.contains(words), "{words}: {log}");
    }
    // Layers 0 to 3 are the trunk.
    type Drop = fn(&str) -> bool;
    for (name, drop, says) in [
        (
            "no-second-block",
            (|name| name.starts_with("blk.5.")) as Drop,
            "NextN block 2 of 3 has no blk.5.",
        ),
        (
            "no-norm-in-the-third",
            |name| name == "blk.6.nextn.hnorm.weight",
            "NextN block 3 of 3 has no blk.6.nextn.hnorm.weight",
        ),
    ] {
        let (log, is_ready) = chained(&server, name, 3, drop);
        assert!(!is_ready && log.contains(says), "{says}: {log}");
    }
}

/// Runs one gate, and asks that it found what was planted, and nothing without.
fn caught(dir: &Path, server: &str, fixture: &str, fault: &str) {
    let gate = format!("planted-{fixture}-{fault}");
    let (code, json) = self::gate(dir, server, &gate);
    let cell = &json["data"]["gates"][0]["cells"][0];
    // Attention of this one knows no positions: the last step cannot tell.
    let unseen = fixture == "nemotronhmoe-nextn" && fault == "pos";
    if fault == "none" || unseen {
        assert_eq!(cell["verdict"], "pass", "{json:#}");
        return;
    }
    assert_eq!(code, Some(1), "{gate}: {json:#}");
    assert_eq!(cell["verdict"], "fail", "{gate}");
    let reason = cell["reason"].as_str().unwrap();
    assert!(reason.contains("candidates differ"), "{gate}: {reason}");
    // The control was run, and agreed with the baseline.
    assert_eq!(cell["control"], cell["baseline"]);
    if HEADS.contains(&fixture) {
        // A head that is not the first: the first step does not see it.
        assert!(!reason.contains("step 0, position"), "{gate}: {reason}");
        let _ = writeln!(std::io::stderr(), "{gate}: {reason}");
        return;
    }
    // Only the first step's own cell, and the cells of tokens before it, are seen by the first step.
    let in_first = reason.contains("step 0, position");
    let of_cells = ["cell", "row", "lost"].contains(&fault);
    assert_eq!(in_first, of_cells, "{gate}: {reason}");
    let _ = writeln!(std::io::stderr(), "{gate}: {reason}");
}

/// A graph that finds no memory leaves the draft to the loop, and is not built again in every cycle.
#[test]
fn a_graph_without_memory_is_given_up_once() {
    if !wanted("a_graph_without_memory_is_given_up_once") {
        return;
    }
    let (_, server) = planted();
    ok(&root(), &["fixture", FIXTURES[0]]);
    let model = root().join(format!("target/fixtures/{}.gguf", FIXTURES[0]));
    let run = |fault: &str| {
        let dir = tempfile::tempdir().unwrap();
        let args = "-c 1024 -np 1 -t 1 -tb 1 -fit off --no-warmup --ctx-checkpoints 0 --cache-ram 0 \
             --spec-type draft-mtp --spec-draft-n-max 3";
        let mut all: Vec<std::ffi::OsString> = vec!["-m".into(), model.clone().into()];
        all.extend(args.split_whitespace().map(Into::into));
        let env = [
            ("OPENCOTI_MTP_FUSED_NEXTN", "1"),
            ("OPENCOTI_PLANTED_DRAFT", fault),
        ];
        let launch = Launch {
            program: Path::new(server),
            args: all,
            env: &env
                .map(|(name, value)| (name.to_owned(), value.to_owned()))
                .into(),
            log: dir.path().join("log"),
            is_judged: false,
            start: Duration::from_secs(60),
            request: Duration::from_secs(60),
            stop: Duration::from_secs(2),
        };
        let mut server = Server::start(&launch, &Halt::default()).unwrap();
        let prompt = Prompt {
            name: "test".to_owned(),
            ids: (10..40).collect(),
        };
        let sampling = Sampling {
            n_predict: 64,
            seed: 1,
        };
        let ask = |client: &_| Client::complete(client, &[&prompt], sampling);
        let answers = server.ask(&Halt::default(), ask).unwrap();
        drop(server);
        let log = std::fs::read_to_string(dir.path().join("log")).unwrap();
        let said = log
            .matches("drafts in one graph are off: no memory")
            .count();
        (answers[0].tokens.clone(), answers[0].drafted, said)
    };
    let (tokens, drafted, said) = run("none");
    assert!(drafted > 30 && said == 0, "{drafted} {said}");
    assert_eq!(run("alloc"), (tokens, drafted, 1));
}
