//! The NextN block of qwen4exp in the real server: from the file of the model and from one beside it, and files
//! that are not what they say. Runs under `cargo xtask test`, as `real.rs` does.

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
use llama_patchset::gate::client::Sampling;
use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::{Answer, Halt, Prompt};

use real::root;

const ON: &str = "OPENCOTI_QWEN4EXP_NEXTN";
const DRAFTS: &str = "--spec-type draft-mtp --spec-draft-n-max 3";
/// What the server says of a NextN block that is to be a model by itself.
const ALONE: &str = "the file holds a NextN block without the trunk";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Vanilla,
    Off,
    On,
}

/// Whether real builds are wanted; then they are there.
fn wanted(test: &str) -> bool {
    static READY: OnceLock<()> = OnceLock::new();
    if !real::wanted(test) {
        return false;
    }
    READY.get_or_init(|| {
        real::ok(&root(), &["build"]);
    });
    true
}

fn dir() -> PathBuf {
    let dir = root().join("target/test-checkouts/qwen4exp");
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The model with trunk and block (0), with the trunk (1), or with the block (2).
fn model(part: f64) -> gguf::Model {
    let dials = BTreeMap::from([("part".to_owned(), part)]);
    generate("qwen4exp", 7, &dials).unwrap()
}

/// Writes a file of `model`.
fn file(name: &str, model: &gguf::Model) -> PathBuf {
    let path = dir().join(format!("{name}.gguf"));
    let mut bytes = Vec::new();
    gguf::write(model, &mut bytes).unwrap();
    std::fs::write(&path, bytes).unwrap();
    path
}

/// Puts another number in the place of one of the architecture's.
fn set(model: &mut gguf::Model, key: &str, value: u32) {
    let key = format!("qwen4exp.{key}");
    let entry = model.metadata.iter_mut().find(|(name, _)| *name == key);
    entry.unwrap().1 = value.into();
}

fn without(mut model: gguf::Model, drop: impl Fn(&str) -> bool) -> gguf::Model {
    let before = model.tensors.len();
    model.tensors.retain(|tensor| !drop(&tensor.name));
    assert!(model.tensors.len() < before);
    model
}

/// What a server answers to a short prompt and to one that is longer than a micro-batch; or what it says as it ends.
/// A server that a signal ended is a failure.
fn asked(name: &str, side: Side, file: &Path, more: &str) -> Result<Vec<Answer>, String> {
    let flavour = match side {
        Side::Vanilla => "vanilla-cpu",
        _ => "patched-cpu",
    };
    let program = root()
        .join("target/llama/llama-0.5.0")
        .join(flavour)
        .join("out/bin/llama-server");
    let mut args: Vec<OsString> = vec!["-m".into(), file.into()];
    let rest = "-c 1024 -np 1 -t 1 -tb 1 --no-cont-batching -fit off --no-warmup --ctx-checkpoints 0 --cache-ram 0";
    args.extend(
        rest.split(' ')
            .chain(more.split_whitespace())
            .map(OsString::from),
    );
    let on = u8::from(side == Side::On).to_string();
    let env = BTreeMap::from([
        (ON.to_owned(), on),
        ("GGML_NO_BACKTRACE".to_owned(), "1".to_owned()),
    ]);
    let log = dir().join(format!("{name}-{}.log", side as u8));
    let launch = Launch {
        program: &program,
        args,
        env: &env,
        log: log.clone(),
        is_judged: false,
        start: Duration::from_secs(60),
        request: Duration::from_secs(120),
        stop: Duration::from_secs(5),
    };
    let halt = Halt::new(&Cancel::default());
    let mut server = match Server::start(&launch, &halt) {
        Ok(server) => server,
        Err(error) => {
            let said = std::fs::read_to_string(&log).unwrap();
            let crashed = error.to_string().contains("signal") || said.contains("GGML_ASSERT");
            assert!(!crashed, "{name}: {error}: {said}");
            return Err(said);
        }
    };
    let prompt = |name: &str, length: u32| Prompt {
        name: name.to_owned(),
        ids: (0..length).map(|at| 4 + at * at % 499).collect(),
    };
    let sampling = Sampling {
        n_predict: 64,
        seed: 1,
    };
    let answers = [prompt("short", 16), prompt("long", 700)].map(|prompt| {
        let ask =
            |client: &llama_patchset::gate::client::Client| client.complete(&[&prompt], sampling);
        server.ask(&halt, ask).unwrap().remove(0)
    });
    server.end().unwrap();
    Ok(answers.to_vec())
}

fn tokens(answers: &[Answer]) -> Vec<&[u32]> {
    answers.iter().map(|answer| &answer.tokens[..]).collect()
}

/// From the file of the model, from one beside it and from another whole model: the same drafts, of which most are
/// accepted, and the tokens of vanilla.
#[test]
fn drafts_are_the_same_from_every_file() {
    if !wanted("drafts_are_the_same_from_every_file") {
        return;
    }
    let both = file("both", &model(0.0));
    let trunk = file("trunk", &model(1.0));
    let block = file("block", &model(2.0));
    let plain = asked("plain", Side::Vanilla, &trunk, "").unwrap();
    for side in [Side::Off, Side::On] {
        let same = asked("plain", side, &trunk, "").unwrap();
        assert_eq!(tokens(&same), tokens(&plain));
    }
    let same = asked("plain-both", Side::On, &both, "").unwrap();
    assert_eq!(tokens(&same), tokens(&plain));

    let beside = |file: &Path| format!("{DRAFTS} --spec-draft-model {}", file.display());
    let own = asked("own", Side::On, &both, DRAFTS).unwrap();
    assert_eq!(tokens(&own), tokens(&plain));
    for answer in &own {
        let accepted = answer.accepted as f64 / answer.drafted as f64;
        assert!(answer.drafted > 50 && accepted > 0.4 && accepted < 1.0);
    }
    for (name, file, drafter) in [
        ("beside", &trunk, &block),
        ("whole-beside", &trunk, &both),
        ("both-and-beside", &both, &block),
    ] {
        let answers = asked(name, Side::On, file, &beside(drafter)).unwrap();
        assert_eq!(answers, own, "{name}");
    }
    // The type of drafts is found in the draft model's file.
    let found = format!(
        "--spec-draft-n-max 3 --spec-draft-model {}",
        block.display()
    );
    assert_eq!(asked("found", Side::On, &trunk, &found).unwrap(), own);
    // Micro-batches that are small change no draft.
    let small = format!("{DRAFTS} -b 128 -ub 32");
    let answers = asked("small", Side::On, &both, &small).unwrap();
    assert_eq!(tokens(&answers), tokens(&plain));
    let count = |answers: &[Answer]| -> u64 { answers.iter().map(|a| a.accepted).sum() };
    assert!(count(&answers) * 10 > count(&own) * 9);
}

#[test]
fn a_block_alone_is_no_model_and_says_so() {
    if !wanted("a_block_alone_is_no_model_and_says_so") {
        return;
    }
    let block = file("alone", &model(2.0));
    for (name, more) in [
        ("alone", ""),
        ("alone-drafting", DRAFTS),
        ("alone-fitted", "-fit on"),
    ] {
        let said = asked(name, Side::On, &block, more).unwrap_err();
        assert!(said.contains(ALONE), "{name}: {said}");
    }
}

/// A file whose metadata promise a block that is not there is the trunk; nothing drafts with it.
#[test]
fn a_promise_of_a_block_is_not_a_block() {
    if !wanted("a_promise_of_a_block_is_not_a_block") {
        return;
    }
    let plain = asked("p", Side::Vanilla, &file("p-trunk", &model(1.0)), "").unwrap();
    let stripped = without(model(0.0), |name| name.starts_with("blk.4."));
    // As if there were a block in the count of them, and as if not.
    let mut counted = model(1.0);
    let at = counted.metadata.len();
    counted.metadata.insert(
        at,
        ("qwen4exp.nextn_predict_layers".to_owned(), 1u32.into()),
    );
    for (name, model) in [("stripped", &stripped), ("counted", &counted)] {
        let path = file(name, model);
        let answers = asked(name, Side::On, &path, "").unwrap();
        assert_eq!(tokens(&answers), tokens(&plain), "{name}");
        let said = asked(&format!("{name}-drafting"), Side::On, &path, DRAFTS).unwrap_err();
        assert!(said.contains("there is no NextN block"), "{name}: {said}");
        assert!(
            said.contains("doesn't contain MTP layers"),
            "{name}: {said}"
        );
    }
}

/// What is missing or has another shape is named.
#[test]
fn a_damaged_block_is_named_tensor_by_tensor() {
    if !wanted("a_damaged_block_is_named_tensor_by_tensor") {
        return;
    }
    for part in [
        "nextn.eh_proj",
        "nextn.hnorm",
        "hc_attn_inject",
        "hc_ffn_up",
        "attn_q_norm",
        "indexer.k_proj",
        "ffn_gate_inp_shexp",
    ] {
        let name = format!("blk.4.{part}.weight");
        for whole in [0.0, 2.0] {
            let path = file("lacking", &without(model(whole), |tensor| tensor == name));
            let (file, more) = match whole {
                0.0 => (path, DRAFTS.to_owned()),
                _ => {
                    let more = format!("{DRAFTS} --spec-draft-model {}", path.display());
                    (file("lacking-trunk", &model(1.0)), more)
                }
            };
            let said = asked("lacking", Side::On, &file, &more).unwrap_err();
            assert!(
                said.contains(&format!("tensor '{name}' not found")),
                "{said}"
            );
        }
    }
    // A weight for each channel, and none for each stream.
    let mut narrow = model(0.0);
    let hnorm = narrow.tensors.iter_mut();
    let hnorm = { hnorm }.find(|tensor| tensor.name == "blk.4.nextn.hnorm.weight");
    let hnorm = hnorm.unwrap();
    hnorm.values.truncate(256);
    hnorm.dims = vec![256];
    let said = asked("narrow", Side::On, &file("narrow", &narrow), DRAFTS).unwrap_err();
    assert!(said.contains("blk.4.nextn.hnorm.weight"), "{said}");
    // Two blocks, of which there is one.
    let mut two = model(0.0);
    set(&mut two, "nextn_predict_layers", 2);
    let said = asked("two", Side::On, &file("two", &two), DRAFTS).unwrap_err();
    assert!(said.contains("only one NextN block is supported"), "{said}");
    // A trunk that lost a block is no NextN block.
    let gone = without(model(0.0), |name| name.starts_with("blk.0."));
    let said = asked("gone", Side::On, &file("gone", &gone), DRAFTS).unwrap_err();
    assert!(
        said.contains("tensor 'blk.0.") && !said.contains(ALONE),
        "{said}"
    );
}

#[test]
fn a_file_that_was_cut_off_is_refused() {
    if !wanted("a_file_that_was_cut_off_is_refused") {
        return;
    }
    let trunk = file("cut-trunk", &model(1.0));
    let mut bytes = Vec::new();
    gguf::write(&model(2.0), &mut bytes).unwrap();
    let path = dir().join("cut.gguf");
    let more = format!("{DRAFTS} --spec-draft-model {}", path.display());
    for length in [bytes.len() - 1, bytes.len() / 2, 40_000, 2000, 3, 0] {
        std::fs::write(&path, &bytes[..length]).unwrap();
        let said = asked("cut", Side::On, &trunk, &more).unwrap_err();
        assert!(said.contains("failed to load"), "{length}: {said}");
    }
}

/// The lines in which a server says why it ends, without times and paths.
fn reasons(said: &str) -> Vec<String> {
    let lines = said.lines().filter(|line| line.contains(" E "));
    let words = lines.map(|line| line.split_once(" E ").unwrap().1.to_owned());
    words.collect()
}

#[test]
fn with_the_switch_off_files_with_a_block_are_what_they_are_to_vanilla() {
    if !wanted("with_the_switch_off_files_with_a_block_are_what_they_are_to_vanilla") {
        return;
    }
    let trunk = file("off-trunk", &model(1.0));
    let block = file("off-block", &model(2.0));
    let both = file("off-both", &model(0.0));
    let beside = format!("{DRAFTS} --spec-draft-model {}", block.display());
    for (name, file, more) in [
        ("off-both", &both, ""),
        ("off-both-drafting", &both, DRAFTS),
        ("off-block", &block, ""),
        ("off-beside", &trunk, beside.as_str()),
        ("off-trunk-drafting", &trunk, DRAFTS),
    ] {
        let vanilla = asked(name, Side::Vanilla, file, more).unwrap_err();
        let off = asked(name, Side::Off, file, more).unwrap_err();
        let (vanilla, off) = (reasons(&vanilla), reasons(&off));
        assert_eq!(off, vanilla, "{name}");
        assert!(!off.is_empty(), "{name}");
        let _ = writeln!(std::io::stderr(), "{name}: {off:?}");
    }
}
