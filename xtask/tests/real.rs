//! Tests that build the real llama.cpp. They run under `cargo xtask test`, which builds vanilla
//! first and sets the variables below; a plain `cargo test` says that it left them out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use llama_patchset::cli::SERVER_VAR;
use llama_patchset::gate::client::Sampling;
use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::{Halt, Prompt};
use llama_patchset::symbols::{Outline, Symbol, SymbolKind};
use llama_patchset::tree::RelPath;
use real::{checkout, copy, ok, patched_server, root, wanted, xtask};

/// The negative control of the whole chain: an overlay that changes one logit is built like any
/// patch, and the chash gate must fail, naming prompt, setting and the first differing token.
#[test]
fn one_wrong_logit_fails_the_chash_gate() {
    if !wanted("one_wrong_logit_fails_the_chash_gate") {
        return;
    }
    let vanilla = std::env::var(SERVER_VAR).unwrap();
    let dir = checkout("planted-logit", &["ext-core", "planted-logit"]);
    copy(&root().join("gates"), &dir.join("gates"));
    ok(&dir, &["apply", "--discard-edits"]);
    ok(&dir, &["build", "--patched"]);
    a_changed_overlay_file_recompiles_itself_alone(&dir);
    let planted = patched_server(&dir);

    let output = xtask(
        &dir,
        &[
            "gate",
            "--gate",
            "chash",
            "--quick",
            "--json",
            "--baseline",
            &vanilla,
            "--candidate",
            planted.to_str().unwrap(),
        ],
    );
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        output.status.code(),
        Some(1),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["status"], "finding");
    // Without drafting, the 20th row of logits is the 20th token of the first prompt: index 19.
    let gate = &json["data"]["gates"][0];
    assert_eq!(gate["verdict"], "fail");
    let cells = gate["cells"].as_array().unwrap();
    let cell = |prompt: &str, n_max: u64, slots: u64| {
        cells
            .iter()
            .find(|c| c["prompt"] == prompt && c["n_max"] == n_max && c["slots"] == slots)
            .unwrap()
    };
    let wrong = cell("short", 0, 1);
    assert_eq!(wrong["verdict"], "fail");
    assert_eq!(wrong["difference"]["index"], 19);
    let first = wrong["difference"]["from"].as_u64().unwrap();
    let at = usize::try_from(19 - first).unwrap();
    assert_eq!(wrong["difference"]["right"][at], 7);
    assert_ne!(wrong["difference"]["left"][at], 7);
    assert_eq!(
        cell("crossing", 0, 1)["verdict"],
        "pass",
        "the fault struck only once"
    );
    one_last_bit_fails_the_logits_gate_alone(&dir, &vanilla, &planted);
}

/// The same build, with a fault of one last bit of one logit: the logits gate must fail and name it,
/// and chash cannot see it.
fn one_last_bit_fails_the_logits_gate_alone(dir: &Path, vanilla: &str, planted: &Path) {
    let env = "candidate = { build = \"patched\", env = { OPENCOTI_PLANTED_LOGIT = \"ulp\" } }";
    let gate = |kind: &str| {
        let id = format!("planted-{kind}");
        let text = fs::read_to_string(root().join(format!("gates/{kind}.toml"))).unwrap();
        let text = text
            .replace(&format!("id = \"{kind}\""), &format!("id = \"{id}\""))
            .replace("candidate = { build = \"patched\" }", env);
        assert!(text.contains(&id) && text.contains(env));
        fs::write(dir.join(format!("gates/{id}.toml")), text).unwrap();
        let output = xtask(
            dir,
            &[
                "gate",
                "--gate",
                &id,
                "--quick",
                "--json",
                "--baseline",
                vanilla,
                "--candidate",
                planted.to_str().unwrap(),
            ],
        );
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        (
            output.status.code(),
            json["data"]["gates"][0].clone(),
            error,
        )
    };
    let (code, record, error) = gate("chash");
    assert_eq!(code, Some(0), "{record} {error}");
    let (code, record, error) = gate("logits");
    assert_eq!(code, Some(1), "{record} {error}");
    let logits = record["logits"].as_array().unwrap();
    assert!(logits.len() >= 2, "{record}");
    for logits in logits {
        // Each setting is a process of its own, and strikes once, at its 20th row.
        assert_eq!(logits["verdict"], "fail", "{logits}");
        let found = &logits["difference"];
        assert_eq!((&found["rows"], &found["values"]), (&1.into(), &1.into()));
        assert_eq!(
            (&found["first"]["row"], &found["first"]["token"]),
            (&19.into(), &7.into())
        );
        let bits =
            |side: &str| i64::from_str_radix(found["first"][side].as_str().unwrap(), 16).unwrap();
        assert_eq!((bits("left") - bits("right")).abs(), 1, "{logits}");
        assert_eq!(found["tokens"], 0);
        assert_eq!(logits["control"], logits["baseline"]);
    }
    // What was read is what is said to have been read.
    for (at, side) in ["baseline", "candidate"].iter().enumerate() {
        let probe = &record["probes"][at];
        assert_eq!(probe["side"], *side);
        let libraries = probe["libraries"].as_array().unwrap();
        let artifacts = record[*side]["artifacts"].as_array().unwrap();
        assert!(libraries.len() >= 3, "{probe}");
        for library in libraries {
            let known = |artifact: &&serde_json::Value| artifact["sha256"] == library["sha256"];
            assert!(
                artifacts.iter().any(|artifact| known(&artifact)),
                "{library}"
            );
        }
    }
}

/// Ninja's own log of the build after one overlay file changed: that file is compiled, the rest
/// is linking.
fn a_changed_overlay_file_recompiles_itself_alone(dir: &Path) {
    let file = dir.join("patches/planted-logit/src/src/opencoti/planted-logit.cpp");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, format!("{text}// a change\n")).unwrap();
    ok(dir, &["apply"]);
    ok(dir, &["build", "--patched"]);
    let log = dir.join("target/llama/llama-0.5.0/patched-cpu/build.log");
    let log = fs::read_to_string(log).unwrap();
    let compiled: Vec<&str> = log
        .lines()
        .filter(|line| line.contains("Building"))
        .collect();
    assert_eq!(compiled.len(), 1, "{log}");
    assert!(compiled[0].contains("planted-logit.cpp"), "{log}");
    assert!(
        log.contains("Linking CXX executable bin/llama-server"),
        "{log}"
    );
}

/// What the series does to upstream's tree, asked of git: files that are new, lines that are
/// inserted, and not one that is deleted or rewritten.
#[test]
fn the_series_only_adds() {
    if !wanted("the_series_only_adds") {
        return;
    }
    let dir = root();
    ok(&dir, &["apply"]);
    let status: serde_json::Value = serde_json::from_str(&ok(&dir, &["vendor", "--json"])).unwrap();
    let pristine = status["data"]["path"].as_str().unwrap();
    let output = Command::new("git")
        .args([
            "diff",
            "--no-index",
            "--no-renames",
            "--numstat",
            "-z",
            pristine,
        ])
        .arg("vendor/llama-0.5.0")
        .current_dir(&dir)
        .output()
        .unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    // Of `-z --numstat` without renames: `inserted TAB deleted TAB NUL old NUL new NUL`.
    let mut parts = text.split('\0');
    let mut rows = Vec::new();
    while let Some(counts) = parts.next().filter(|counts| !counts.is_empty()) {
        let mut counts = counts.split('\t');
        let (inserted, deleted) = (counts.next().unwrap(), counts.next().unwrap());
        let (old, new) = (parts.next().unwrap(), parts.next().unwrap());
        let path = new.strip_prefix("vendor/llama-0.5.0/").unwrap();
        if path.starts_with(".patchset/") {
            continue;
        }
        assert_eq!(deleted, "0", "{old} {new}");
        let kind = if old == "/dev/null" {
            "new file"
        } else {
            "hooks"
        };
        rows.push(format!("| `{path}` | {kind} | {inserted} | 0 |"));
    }
    assert!(rows.len() > 10, "{text}");
    let page = fs::read_to_string(dir.join("docs/evaluations/additivity.md")).unwrap();
    let documented = page.lines().filter(|line| line.starts_with("| `")).count();
    assert_eq!(
        documented,
        rows.len(),
        "docs/evaluations/additivity.md is out of date"
    );
    for row in rows {
        assert!(
            page.contains(&row),
            "docs/evaluations/additivity.md lacks {row}"
        );
    }
}

/// The id that the server says at its start is that of the patch set, and is read from the
/// library, not compiled in.
#[test]
fn the_server_says_which_patch_set_it_is() {
    if !wanted("the_server_says_which_patch_set_it_is") {
        return;
    }
    ok(&root(), &["build", "--patched"]);
    let status: serde_json::Value =
        serde_json::from_str(&ok(&root(), &["status", "--json"])).unwrap();
    let id = status["data"]["patchset"].as_str().unwrap();
    assert_eq!(id.len(), 64);
    let output = Command::new(patched_server(&root()))
        .args(["-m", "/nonexistent.gguf", "--port", "0"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr) + String::from_utf8_lossy(&output.stdout);
    assert!(
        said.contains(&format!("opencoti: patch set {id}")),
        "{said}"
    );
    assert!(
        said.contains("ggml-ext 0."),
        "the Rust library is linked: {said}"
    );
}

/// What `spec-counters` counts in a real decode, held against the formulas of its page; and that
/// nothing is said while it is off.
#[test]
fn the_counters_count_what_their_page_says() {
    if !wanted("the_counters_count_what_their_page_says") {
        return;
    }
    ok(&root(), &["build", "--patched"]);
    ok(&root(), &["fixture", "qwen35-nextn"]);
    let (n_max, prompt) = (3, (10..40).collect::<Vec<u32>>());
    let answer = |switch: &str| {
        let dir = tempfile::tempdir().unwrap();
        let model = root().join("target/fixtures/qwen35-nextn.gguf");
        let args = format!(
            "-c 1024 -np 1 -t 1 -tb 1 --no-cont-batching -fit off --no-warmup --ctx-checkpoints 0 \
             --cache-ram 0 --spec-type draft-mtp --spec-draft-n-max {n_max}"
        );
        let mut all: Vec<std::ffi::OsString> = vec!["-m".into(), model.into()];
        all.extend(args.split_whitespace().map(Into::into));
        let env = [("OPENCOTI_SPEC_COUNTERS".to_owned(), switch.to_owned())].into();
        let launch = Launch {
            program: &patched_server(&root()),
            args: all,
            env: &env,
            log: dir.path().join("log"),
            is_judged: false,
            start: Duration::from_secs(60),
            request: Duration::from_secs(60),
            stop: Duration::from_secs(2),
        };
        let mut server = Server::start(&launch, &Halt::default()).unwrap();
        let prompt = Prompt {
            name: "test".to_owned(),
            ids: prompt.clone(),
        };
        let sampling = Sampling {
            n_predict: 64,
            seed: 1,
        };
        let answers = server
            .ask(&Halt::default(), |client| {
                client.complete(&[&prompt], sampling)
            })
            .unwrap();
        answers.into_iter().next().unwrap()
    };
    let off = answer("0");
    assert_eq!(off.counters, None);
    let on = answer("1");
    assert_eq!(on.tokens, off.tokens);
    let counters = on.counters.unwrap();
    let count = |name: &str| counters[name];
    let cycles = count("cycles");
    // Each cycle gives the accepted drafts and one token of the target's own; the first token
    // comes from the prompt, and what is left at the end may be decoded without a draft.
    let alone = 64 - 1 - cycles - on.accepted;
    assert!(cycles > 10 && alone <= 1, "{counters:?} {}", on.accepted);
    assert_eq!(count("launches_tgt"), 1 + cycles + alone, "{counters:?}");
    // One launch for the prompt, and for each cycle one catch-up and one for each drafted token,
    // also for those that are beyond the end of the request; all but the first of them reused.
    let launches = 1 + cycles * (n_max + 1) + alone;
    assert_eq!(count("launches_dft"), launches, "{counters:?}");
    assert_eq!(count("reused_dft"), cycles * (n_max - 1), "{counters:?}");
    assert_eq!((count("ckpt_bytes_save"), count("ckpt_bytes_load")), (0, 0));
}

/// What the outline says of real files, against lines that are found by their text: whatever the
/// macros and conditionals around it, a line is in the function in which a reader finds it.
#[test]
fn lines_of_the_real_base_are_in_their_functions() {
    if !wanted("lines_of_the_real_base_are_in_their_functions") {
        return;
    }
    let shown: serde_json::Value =
        serde_json::from_str(&ok(&root(), &["vendor", "--json"])).unwrap();
    let tree = Path::new(shown["data"]["path"].as_str().unwrap());
    for (file, text, wanted) in [
        (
            "src/llama-context.cpp",
            "ggml_backend_sched_graph_compute_async(",
            "llama_context::graph_compute",
        ),
        (
            "src/llama-context.cpp",
            "res->can_reuse(gparams)",
            "llama_context::process_ubatch",
        ),
        (
            "tools/server/server-context.cpp",
            "common_speculative_accept(",
            "server_context_impl::post_decode",
        ),
        (
            "common/speculative.cpp",
            "new common_speculative",
            "common_speculative_init",
        ),
        (
            "ggml/src/ggml.c",
            "ggml_hash_set_reset(&cgraph->visited_hash_set)",
            "ggml_graph_clear",
        ),
    ] {
        let path = RelPath::new(file).unwrap();
        let content = fs::read(path.below(tree)).unwrap();
        let outline = Outline::of(&path, &content);
        let lines = String::from_utf8_lossy(&content);
        let found: Vec<String> = lines
            .lines()
            .enumerate()
            .filter(|(_, line)| line.contains(text))
            .filter_map(|(at, _)| outline.enclosing(at + 1))
            .map(Symbol::qualified)
            .collect();
        assert!(
            found.iter().any(|name| name == wanted),
            "{file}: {text}: {found:?}"
        );
    }
    // Nearly all is understood where patches hook in, and most of what is written for one device.
    for (folders, at_least, percent) in [
        (
            &["src", "common", "include", "ggml/include", "tools"][..],
            5000,
            1,
        ),
        (&["ggml/src"][..], 7000, 10),
    ] {
        let (mut functions, mut troubled) = (0, 0);
        for folder in folders {
            let (some, bad) = understood(tree, folder);
            functions += some;
            troubled += bad;
        }
        assert!(functions > at_least, "{folders:?}: {functions}");
        assert!(
            troubled * 100 < functions * percent,
            "{folders:?}: {troubled} of {functions}"
        );
    }
}

/// How many functions the outlines of a folder list, and how many of them hold something that
/// the parser did not understand.
fn understood(tree: &Path, folder: &str) -> (usize, usize) {
    let (mut functions, mut troubled) = (0, 0);
    for entry in walkdir::WalkDir::new(tree.join(folder)) {
        let entry = entry.unwrap();
        if !entry.file_type().is_file() {
            continue;
        }
        let path = RelPath::from_path(entry.path().strip_prefix(tree).unwrap()).unwrap();
        let outline = Outline::of(&path, &fs::read(entry.path()).unwrap());
        for symbol in &outline.symbols {
            if matches!(symbol.kind, SymbolKind::Function | SymbolKind::Method) && symbol.defined {
                let inside = |t: &std::ops::Range<usize>| {
                    t.start < symbol.lines.end && symbol.lines.start < t.end
                };
                functions += 1;
                troubled += usize::from(outline.trouble.iter().any(inside));
            }
        }
    }
    (functions, troubled)
}
