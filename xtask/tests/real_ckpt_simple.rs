//! Speculative checkpoints in llama-speculative-simple, which no build of ours makes: its one source is compiled against
//! the libraries of a build. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use real::root;

const DEVICE: (&str, &str) = ("OPENCOTI_SPEC_CKPT_DEVICE", "1");
const EXACT: (&str, &str) = ("OPENCOTI_SPEC_REPLAY_EXACT", "1");
const SWAP: [(&str, &str); 3] = [
    ("OPENCOTI_SPEC_CKPT_DEVICE", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP_MIN", "0"),
];

/// A text that the fixtures' vocabulary can take apart: it has no token for a single letter.
const PROMPT: &str = "<s><s></s><s></s></s><s><s></s><s>";

fn compiled(flavour: &str) -> PathBuf {
    let build = root().join("target/llama/llama-0.5.0").join(flavour);
    let dir = root().join("target/test-checkouts/probe-ckpt");
    std::fs::create_dir_all(&dir).unwrap();
    let program = dir.join(format!("simple-{flavour}"));
    let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or_else(|| "c++".into()));
    compiler.args(["-std=c++17", "-O1"]);
    for folder in ["include", "common", "ggml/include"] {
        compiler.arg("-I").arg(build.join("src").join(folder));
    }
    let source = "src/examples/speculative-simple/speculative-simple.cpp";
    let bin = build.join("out/bin");
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&bin);
    compiler.arg(build.join(source)).arg("-o").arg(&program);
    compiler.arg("-L").arg(&bin).arg(rpath);
    compiler.args(["-lllama-common", "-lllama", "-lggml", "-lggml-base"]);
    let done = compiler.output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success() && said.is_empty(), "{said}");
    program
}

/// The text that it writes, and how often it goes back to a checkpoint.
fn run(program: &Path, env: &[(&str, &str)], more: &[&str]) -> (String, usize) {
    let (text, restored, _) = run_and_count(program, env, more);
    (text, restored)
}

/// Also how often it took tokens as accepted that were so before.
fn run_and_count(program: &Path, env: &[(&str, &str)], more: &[&str]) -> (String, usize, usize) {
    let model = root().join("target/fixtures/qwen3next-nextn.gguf");
    let mut command = Command::new(program);
    command.arg("-m").arg(model).args(["-p", PROMPT]);
    let args =
        "-c 1024 -t 1 -tb 1 -n 300 -fit off -lv 5 --spec-type draft-mtp --spec-draft-n-max 3";
    command.args(args.split(' ')).args(more);
    command.envs(env.iter().copied());
    // Upstream's log is written by a thread that nobody waits for at the end, so that its last lines can be lost on
    // a busy machine, as its own comment says. The very last one is empty.
    let mut left = 5;
    let (text, said) = loop {
        let done = command.output().unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{env:?}: {said}");
        let text = String::from_utf8(done.stdout).unwrap();
        left -= 1;
        if text.ends_with("\n\n\n\n") || left == 0 {
            break (text, said);
        }
    };
    let restored = said.matches("restoring checkpoint").count();
    let taken = said.matches("accepted before the checkpoint").count();
    (text, restored, taken)
}

#[test]
fn speculative_simple_writes_what_vanilla_writes() {
    if !real::wanted("speculative_simple_writes_what_vanilla_writes") {
        return;
    }
    for args in [&["build"][..], &["fixture", "qwen3next-nextn"]] {
        real::ok(&root(), args);
    }
    let (vanilla, patched) = (compiled("vanilla-cpu"), compiled("patched-cpu"));
    let ways = [
        vec![],
        vec![DEVICE],
        [&[DEVICE][..], &SWAP].concat(),
        [&[DEVICE][..], &SWAP, &[EXACT]].concat(),
        vec![DEVICE, ("OPENCOTI_SPEC_CKPT_FAIL_ALLOC", "1")],
    ];
    let cold = ["--temp", "0"];
    let (text, restored) = run(&vanilla, &[], &cold);
    assert!(restored > 50, "{restored} restores");
    assert!(text.matches("tok_").count() >= 300, "{text}");
    for env in &ways {
        let (mine, restored) = run(&patched, env, &cold);
        assert_eq!(mine, text, "{env:?}");
        assert!(restored > 50, "{env:?}: {restored} restores");
    }
    // Where checkpoints are kept changes no random number.
    let warm = ["--temp", "1.5", "--seed", "7"];
    let (text, restored) = run(&vanilla, &[], &warm);
    for env in &ways[..3] {
        assert_eq!(
            run(&patched, env, &warm),
            (text.clone(), restored),
            "{env:?}"
        );
    }
    // Nor does a replay that is not judged again: each token has had its number.
    let (exact, restored, taken) = run_and_count(&patched, &[DEVICE, EXACT], &warm);
    assert!(restored > 50, "{restored} restores");
    assert_eq!((exact, taken), (text, restored));
    // Where a backend samples, the sampler is rewound, and still knows what was accepted.
    let drawn = ["-bs", "--temp", "1.0", "--seed", "7"];
    let (_, restored, taken) = run_and_count(&patched, &[DEVICE, EXACT], &drawn);
    assert!(restored > 50, "{restored} restores");
    assert_eq!(taken, restored);
}
