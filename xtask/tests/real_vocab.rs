//! Drafts over a part of the vocabulary, on every architecture whose drafts are gated, in the loop and in one launch; and
//! the negative control of the gate that judges them: faults that are planted, each of which it must see. Runs under
//! `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::fs;
use std::io::Write as _;
use std::path::Path;

use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::Halt;
use real::{checkout, ok, patched_server, put, root, wanted, xtask};
use serde_json::{Value, json};

/// The patches up to the one that is tried, as they are in the series, and the fault.
fn series() -> Vec<String> {
    let project = llama_patchset::project::Project::new(&root(), &root().join("target")).unwrap();
    let mut series = project.series().unwrap().series["llama-0.5.0"].clone();
    let at = series.iter().position(|id| id == "nextn-draft-vocab");
    series.truncate(at.unwrap() + 1);
    series.push("planted-vocab".to_owned());
    series
}

/// The fixtures of architectures whose drafts are gated.
const FIXTURES: [&str; 12] = [
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
    "step35-nextn3",
    "mimo2-nextn3",
];

/// What is planted; `none` is the control.
const FAULTS: [&str; 5] = ["none", "map", "row", "stale", "id"];

/// The definition of a gate that plants `fault` into the candidate. Both ways of drafting have it.
fn definition(fixture: &str, fault: &str, fused: bool) -> String {
    let on = if fused { "always" } else { "0" };
    let id = name(fixture, fault, fused);
    // Its drafts depend on how many tokens were drafted before, since each rejection restores a state: with another longest
    // draft they are others at the same text, patch or not. What is generated is compared.
    if fixture == "qwen3next-nextn" {
        return format!(
            r#"schema = 1
id = "{id}"
kind = "chash"
title = "A part of the vocabulary"
model = {{ fixture = "{fixture}" }}
n-max = [3]
slots = [1, 2]
n-predict = 48
baseline = {{ build = "patched" }}
candidate = {{ build = "patched", env = {{ OPENCOTI_DRAFT_VOCAB = ":256", OPENCOTI_MTP_FUSED_NEXTN = "{on}" }} }}
[[prompt]]
name = "long"
generate = {{ seed = 2, length = 200, low = 4, high = 512 }}
"#
        );
    }
    format!(
        r#"schema = 1
id = "{id}"
kind = "drafts"
title = "A planted fault"
model = {{ fixture = "{fixture}" }}
n-predict = 48
baseline = {{ build = "patched" }}
[candidate]
build = "patched"
[candidate.env]
OPENCOTI_DRAFT_VOCAB = ":256"
OPENCOTI_MTP_FUSED_NEXTN = "{on}"
OPENCOTI_NEXTN_FUSED_HEADS = "{on}"
OPENCOTI_PLANTED_VOCAB = "{fault}"
[[setting]]
name = "plain"
n-max = [3]
slots = [1]
flags = ["-fa", "off"]
part = true
[[prompt]]
name = "long"
generate = {{ seed = 2, length = 200, low = 4, high = 512 }}
"#
    )
}

fn name(fixture: &str, fault: &str, fused: bool) -> String {
    let way = if fused { "launch" } else { "loop" };
    format!("planted-{fixture}-{fault}-{way}")
}

/// What is tried of a fixture: the faults are not of an architecture.
fn faults(fixture: &str) -> &'static [&'static str] {
    if fixture == FIXTURES[0] || fixture == "step35-nextn3" {
        &FAULTS
    } else {
        &FAULTS[..1]
    }
}

/// `none` is the control: the same build without a fault passes.
#[test]
fn every_planted_fault_of_a_part_fails_the_drafts_gate() {
    if !wanted("every_planted_fault_of_a_part_fails_the_drafts_gate") {
        return;
    }
    let dir = checkout("planted-vocab", &series());
    for fixture in FIXTURES {
        for fault in faults(fixture) {
            for fused in [false, true] {
                let path = dir.join(format!("gates/{}.toml", name(fixture, fault, fused)));
                put(&path, definition(fixture, fault, fused));
            }
        }
    }
    ok(&dir, &["apply", "--discard-edits"]);
    ok(&dir, &["build", "--patched"]);
    let server = patched_server(&dir);
    let server = server.to_str().unwrap();
    ok(&dir, &["fixture", FIXTURES[0]]);
    requests(&dir, Path::new(server));
    for fixture in FIXTURES {
        for fault in faults(fixture) {
            for fused in [false, true] {
                caught(&dir, server, &name(fixture, fault, fused), *fault == "none");
            }
        }
    }
}

/// Runs one gate, and asks that it found what was planted, and nothing without.
fn caught(dir: &Path, server: &str, gate: &str, sound: bool) {
    let output = xtask(
        dir,
        &[
            "gate",
            "--json",
            "--gate",
            gate,
            "--baseline",
            server,
            "--candidate",
            server,
        ],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| {
        panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
    });
    let cell = &json["data"]["gates"][0]["cells"][0];
    let note = &cell["notes"];
    let _ = writeln!(
        std::io::stderr(),
        "{gate}: {} {} {note}",
        cell["verdict"],
        cell["reason"]
    );
    if sound {
        assert_eq!(cell["verdict"], "pass", "{text}");
        return;
    }
    assert_eq!(output.status.code(), Some(1), "{gate}: {text}");
    assert_eq!(cell["verdict"], "fail", "{gate}");
    // The control was run, and agreed with the baseline.
    assert_eq!(cell["control"], cell["baseline"]);
}

/// What is generated does not depend on the part where requests are not those of the gates: at temperatures above 0, with a
/// grammar, with biases, several at once.
fn requests(dir: &Path, server: &Path) {
    let prompt = |n: u32| {
        (0..40)
            .map(|at| 4 + (at * 37 + n * 101) % 500)
            .collect::<Vec<u32>>()
    };
    let plain = |n: u32| {
        json!({
            "prompt": prompt(n), "n_predict": 64, "temperature": 0.0, "seed": 3, "cache_prompt": false,
            "return_tokens": true, "ignore_eos": true,
        })
    };
    let with = |n: u32, more: Value| {
        let mut body = plain(n);
        for (key, value) in more.as_object().unwrap() {
            body[key] = value.clone();
        }
        body
    };
    let bodies = [
        with(1, json!({ "temperature": 0.9 })),
        with(2, json!({ "temperature": 1.5, "top_k": 0, "seed": 9 })),
        with(
            3,
            json!({ "grammar": "root ::= (\"tok_1\" [0-9]+ | \"tok_4\" [0-9]+)+" }),
        ),
        with(
            4,
            json!({ "logit_bias": [[300, 4.0], [450, 4.0], [17, false]] }),
        ),
        with(
            5,
            json!({ "prompt": [prompt(5), prompt(6)], "temperature": 0.7 }),
        ),
    ];
    let answers = [None, Some(":256")].map(|part| {
        let log = dir.join("requests.log");
        let model = dir.join("target/fixtures/qwen35-nextn.gguf");
        let args = format!(
            "-c 2048 -np 2 -t 1 -tb 1 --no-cont-batching -fit off --no-warmup --ctx-checkpoints 0 --cache-ram 0 \
             --spec-type draft-mtp --spec-draft-n-max 3 -m {}",
            model.display()
        );
        let mut env = std::collections::BTreeMap::from([(
            // Wins over the key that the server would be given.
            "LLAMA_API_KEY".to_owned(),
            "requests".to_owned(),
        )]);
        env.extend(part.map(|part| ("OPENCOTI_DRAFT_VOCAB".to_owned(), part.to_owned())));
        let launch = Launch {
            program: server,
            args: args.split_whitespace().map(Into::into).collect(),
            env: &env,
            log: log.clone(),
        is_judged: false,
            start: std::time::Duration::from_secs(60),
            request: std::time::Duration::from_secs(60),
            stop: std::time::Duration::from_secs(5),
        };
        let running = Server::start(&launch, &Halt::default()).unwrap();
        let said = fs::read_to_string(&log).unwrap();
        let (_, behind) = said.split_once("http://127.0.0.1:").unwrap();
        let port: String = behind.chars().take_while(char::is_ascii_digit).collect();
        let url = format!("http://127.0.0.1:{port}/completion");
        let answers: Vec<Value> = (bodies.iter())
            .map(|body| {
                let request = ureq::post(&url).header("Authorization", "Bearer requests");
                let mut answer = request.send_json(body).unwrap();
                answer.body_mut().read_json().unwrap()
            })
            .collect();
        running.end().unwrap();
        assert_eq!(part.is_some(), said.contains("drafts are over 2"), "{said}");
        answers
    });
    let tokens = |answer: &Value| -> Vec<Value> {
        let each = answer
            .as_array()
            .cloned()
            .unwrap_or_else(|| vec![answer.clone()]);
        assert!(
            each.iter()
                .all(|one| one["timings"]["draft_n"].as_u64() > Some(0)),
            "{answer}"
        );
        each.iter().map(|one| one["tokens"].clone()).collect()
    };
    let [whole, part] = &answers;
    for (at, (whole, part)) in whole.iter().zip(part).enumerate() {
        assert_eq!(tokens(whole), tokens(part), "request {at}");
    }
    // The part did change drafts, or equal tokens would say nothing.
    let accepted = |answers: &[Value]| -> Vec<Value> {
        let each = answers.iter();
        each.map(|one| one["timings"]["draft_n_accepted"].clone())
            .collect()
    };
    assert_ne!(accepted(whole), accepted(part));
}
