//! `cargo xtask gate` from the outside, against servers that pass for llama-server; and after each
//! run none of them may be left. What gates say of faults is in `planted.rs`.

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

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

const DEFINITION: &str = r#"
schema = 1
id = "same"
kind = "chash"
title = "Same tokens"
model = { path = "model.gguf" }
n-max = [0, 2]
slots = [1, 2]
n-predict = 48
parallel = 2
limits = { start = 30, request = 30, stop = 1 }
[quick]
n-max = [2]
slots = [1]
prompts = ["three"]
[[prompt]]
name = "two"
ids = [5, 6]
[[prompt]]
name = "three"
ids = [7, 8, 9]
"#;

/// A checkout with one gate and two fake servers.
struct Setup {
    dir: tempfile::TempDir,
    baseline: PathBuf,
    candidate: PathBuf,
}

fn setup(baseline: &str, candidate: &str) -> Setup {
    setup_with(baseline, candidate, "")
}

fn setup_with(baseline: &str, candidate: &str, before: &str) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in ["registry", "gates"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    std::fs::write(path("registry/upstreams.toml"), "schema = 1\n").unwrap();
    std::fs::write(path("gates/same.toml"), DEFINITION).unwrap();
    std::fs::write(path("model.gguf"), "GGUF").unwrap();
    let install = |name, fault| fake_server::install(&path(name), fault, &path("pids"), before);
    Setup {
        baseline: install("a", baseline),
        candidate: install("b", candidate),
        dir,
    }
}

impl Setup {
    fn command(&self, more: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(["gate", "--unstamped", "--root"])
            .arg(self.dir.path())
            .arg("--baseline")
            .arg(&self.baseline)
            .arg("--candidate")
            .arg(&self.candidate)
            .args(more)
            .env("OPENCOTI_TEST", "1")
            .env("LLAMA_ARG_TEST", "1")
            .env("GGML_TEST", "1")
            .env("http_proxy", "http://127.0.0.1:9")
            .env("LLAMA_PATCHSET_CACHE", self.dir.path().join("cache"));
        command
    }

    /// Runs the gate to its end; afterwards no server may be left.
    fn run(&self, more: &[&str]) -> (i32, String) {
        let output = self.command(more).output().unwrap();
        let left = self.servers(Duration::ZERO);
        assert!(left.is_empty(), "still there: {left:?}");
        (output.status.code().unwrap(), both(&output))
    }

    fn spawn(&self) -> Child {
        let mut command = self.command(&[]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    fn pids(&self) -> Vec<i32> {
        let entries = std::fs::read_dir(self.dir.path().join("pids")).unwrap();
        entries
            .map(|entry| {
                entry
                    .unwrap()
                    .file_name()
                    .to_str()
                    .unwrap()
                    .parse()
                    .unwrap()
            })
            .collect()
    }

    /// Servers that are still alive after `patience`.
    fn servers(&self, patience: Duration) -> Vec<i32> {
        let begun = Instant::now();
        assert!(!self.pids().is_empty(), "no server was ever started");
        loop {
            let mut left = self.pids();
            left.retain(|pid| alive(*pid));
            if left.is_empty() || begun.elapsed() >= patience {
                return left;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn wait_for_a_server(&self) {
        let begun = Instant::now();
        while self.pids().is_empty() {
            assert!(begun.elapsed() < Duration::from_secs(20), "no server");
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn both(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z")
}

#[test]
fn equal_servers_pass_and_leave_a_report() {
    let setup = setup("good", "good");
    let (code, text) = setup.run(&[]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("ok gate same: pass"), "{text}");
    let dir = setup.dir.path().join("target/gate");
    let report = std::fs::read_to_string(dir.join("report.md")).unwrap();
    assert!(report.starts_with("# Gates: PASS"));
    let record: llama_patchset::model::GateRecord =
        llama_patchset::model::read_json(&dir.join("latest-same.json")).unwrap();
    assert_eq!(record.cells.len(), 8);
    assert_eq!(record.verdict, llama_patchset::model::Verdict::Pass);
    // 2 numbers of slots x 2 longest drafts x 3 runs.
    assert_eq!(setup.pids().len(), 12);
    assert_eq!(std::fs::read_dir(dir.join("logs")).unwrap().count(), 0);
}

#[test]
fn a_run_leaves_a_page_and_can_be_reported_and_compared() {
    let setup = setup("good", "good");
    let xtask = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        let root = setup.dir.path();
        let command = command.args(args).arg("--root").arg(root);
        let output = command.env("LLAMA_PATCHSET_CACHE", root).output().unwrap();
        (output.status.code().unwrap(), both(&output))
    };
    let (code, text) = xtask(&["report"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("no record of a gate yet"), "{text}");
    assert_eq!(setup.run(&["--quick"]).0, 0);
    let page = setup.dir.path().join("target/gate/report.html");
    assert!(
        std::fs::read_to_string(&page)
            .unwrap()
            .contains("<h1>pass</h1>")
    );
    let (_, first) = xtask(&["report", "--json"]);
    let first: serde_json::Value = serde_json::from_str(&first).unwrap();
    let first = first["data"]["runs"][0].as_str().unwrap().to_owned();
    fake_server::install(
        &setup.dir.path().join("b"),
        "flip",
        &setup.dir.path().join("pids"),
        "",
    );
    assert_eq!(setup.run(&["--quick"]).0, 1);
    assert!(
        std::fs::read_to_string(&page)
            .unwrap()
            .contains("<h1>fail</h1>")
    );
    let (code, text) = xtask(&["report", "--format", "junit"]);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains(r#"failures="1""#), "{text}");
    let (code, text) = xtask(&["report", "--format", "markdown", "--run", &first]);
    assert!(code == 0 && text.starts_with("### ✔ Gates: pass"), "{text}");
    let (code, text) = xtask(&["gate", "--compare", &first, "latest"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("pass -> fail"), "{text}");
    assert_eq!(xtask(&["gate", "--compare", "latest", &first]).0, 0);
    let (code, text) = xtask(&["gate", "--compare", "latest", "nowhere"]);
    assert_eq!(code, 2, "{text}");
}

#[test]
fn quick_says_that_it_is_quick_and_json_is_one_document() {
    let setup = setup("good", "good");
    let other = DEFINITION.replace("id = \"same\"", "id = \"seldom\"\ndefault = false");
    std::fs::write(setup.dir.path().join("gates/seldom.toml"), other).unwrap();
    let output = setup.command(&["--quick", "--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["status"], "good");
    let left_out =
        serde_json::json!([{ "gate": "seldom", "reason": "its definition is no default" }]);
    assert_eq!(json["data"]["left_out"], left_out);
    assert_eq!(json["data"]["verdict"], "pass");
    assert_eq!(json["data"]["gates"][0]["quick"], true);
    assert_eq!(
        json["data"]["gates"][0]["cells"].as_array().unwrap().len(),
        1
    );
    let report = setup.dir.path().join("target/gate/report.md");
    let report = std::fs::read_to_string(report).unwrap();
    assert!(report.contains("Only the quick subset"));
    assert!(report.contains("--quick"));
}

#[test]
fn the_same_file_twice_is_inconclusive() {
    let mut setup = setup("good", "good");
    setup.candidate = setup.baseline.clone();
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("very same files"), "{text}");
}

/// Scripts differ, and what they start does not.
#[test]
#[cfg(target_os = "linux")]
fn two_scripts_that_start_one_program_are_inconclusive() {
    let tools = tempfile::tempdir().unwrap();
    let program = tools.path().join("llama-server-real");
    std::fs::copy("/bin/sleep", &program).unwrap();
    let setup = setup_with("good", "good", &format!("'{}' 1000 &", program.display()));
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("both servers have loaded"), "{text}");
    assert!(text.contains("llama-server-real"), "{text}");
}

/// As wrappers that start one container: other texts, and nobody knows what computes.
#[test]
fn two_scripts_of_which_nothing_is_seen_are_inconclusive() {
    let setup = setup("good", "good");
    for program in [&setup.baseline, &setup.candidate] {
        let text = std::fs::read_to_string(program).unwrap();
        let lines = text.lines().filter(|line| !line.contains("llama-beside"));
        let text: String = lines.map(|line| format!("{line}\n")).collect();
        std::fs::write(program, text).unwrap();
    }
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("of neither side was seen what computes"),
        "{text}"
    );
    assert!(
        text.contains("candidate, not verified: what computes"),
        "{text}"
    );
}

#[test]
fn an_error_leaves_no_older_verdict() {
    let setup = setup("good", "good");
    assert_eq!(setup.run(&["--quick"]).0, 0);
    fake_server::install(
        &setup.dir.path().join("b"),
        "http-500",
        &setup.dir.path().join("pids"),
        "",
    );
    assert_eq!(setup.run(&["--quick"]).0, 2);
    let dir = setup.dir.path().join("target/gate");
    let report = std::fs::read_to_string(dir.join("report.md")).unwrap();
    assert!(report.starts_with("# Gates: INCONCLUSIVE"), "{report}");
    let record: llama_patchset::model::GateRecord =
        llama_patchset::model::read_json(&dir.join("latest-same.json")).unwrap();
    assert_eq!(record.verdict, llama_patchset::model::Verdict::Inconclusive);
    assert!(record.reason.unwrap().contains("HTTP status 500"));
}

/// The gate that breaks comes first by its name; the other one's failure must be said all the same.
#[test]
fn one_gates_error_does_not_hide_what_another_finds() {
    let setup = setup("good", "flip");
    let dir = setup.dir.path();
    let broken = DEFINITION
        .replace("id = \"same\"", "id = \"broken\"")
        .replace("n-predict = 48", "n-predict = 8\nflags = [\"--die\"]");
    std::fs::write(dir.join("gates/broken.toml"), broken).unwrap();
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("gate same: fail"), "{text}");
    assert!(
        text.contains("could not run to its end: gate broken: "),
        "{text}"
    );
    let mut command = setup.command(&["--quick", "--gate", "broken", "--json"]);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", both(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["status"], "unable");
    assert_eq!(json["data"]["errors"][0]["kind"], "environment");
    assert_eq!(json["data"]["gates"][0]["verdict"], "inconclusive");
}

/// Baseline and candidate would have read different ones.
#[test]
fn a_model_that_is_replaced_on_the_way_is_no_pass() {
    let setup = setup("good", "good");
    let path = |name: &str| setup.dir.path().join(name);
    let other = "printf GGUX >\"$(dirname \"$0\")/../model.gguf\"";
    fake_server::install(&path("b"), "good", &path("pids"), other);
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 2, "{text}");
    assert!(
        text.contains("model.gguf was replaced while it was compared"),
        "{text}"
    );
    // The same bytes anew are the same model.
    let same = "printf GGUX >\"$(dirname \"$0\")/../other\"; mv \"$(dirname \"$0\")/../other\" \"$(dirname \"$0\")/../model.gguf\"";
    fake_server::install(&path("b"), "good", &path("pids"), same);
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 0, "{text}");
}

/// What a page cannot be written into does not change what was found.
#[test]
fn a_page_that_cannot_be_written_leaves_the_verdict() {
    // Once the run has begun, a folder stands where the page goes.
    let block = "mkdir -p \"$(dirname \"$0\")/../target/gate/report.html/x\"";
    let setup = setup_with("good", "flip", block);
    let output = setup.command(&["--quick", "--json"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", both(&output));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["data"]["page"], serde_json::Value::Null);
    let text = both(&output);
    assert!(text.contains("there is no page"), "{text}");
}

#[test]
fn wrong_requests_are_refused() {
    let setup = setup("good", "good");
    let run = |args: &[&str]| {
        let output = setup.command(args).output().unwrap();
        (output.status.code().unwrap(), both(&output))
    };
    let (code, text) = run(&["--gate", "sane"]);
    assert_eq!(code, 2);
    assert!(text.contains("did you mean `same`?"), "{text}");
    let (code, text) = run(&["--model", "missing.gguf"]);
    assert_eq!(code, 2);
    assert!(text.contains("there is no model"), "{text}");
    assert!(setup.pids().is_empty());
}

#[test]
fn an_interrupt_ends_everything_soon() {
    let setup = setup("hang-in-request", "good");
    let mut child = setup.spawn();
    setup.wait_for_a_server();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let status = child.wait().unwrap();
    assert!(
        begun.elapsed() < Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    assert_eq!(status.code(), Some(2));
    assert!(setup.servers(Duration::ZERO).is_empty());
}

#[test]
fn a_server_that_ignores_the_request_to_end_is_killed() {
    let setup = setup_with("good", "good", "trap '' TERM");
    let (code, text) = setup.run(&["--quick"]);
    assert_eq!(code, 0, "{text}");
    let note = "servers of both sides had to be killed when they were asked to end: 2 of 2 servers of the baseline";
    assert!(text.contains(note), "{text}");
}

#[test]
fn a_candidate_that_alone_hangs_when_it_is_asked_to_end_fails() {
    let hangs = |side: &str| {
        let setup = setup("good", "good");
        let path = |name: &str| setup.dir.path().join(name);
        fake_server::install(&path(side), "good", &path("pids"), "trap '' TERM");
        setup.run(&["--quick"])
    };
    let (code, text) = hangs("b");
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("gate same: fail"), "{text}");
    assert!(
        text.contains("1 of 1 servers of the candidate had to be killed"),
        "{text}"
    );
    let (code, text) = hangs("a");
    assert_eq!(code, 0, "{text}");
}

#[test]
fn servers_die_when_the_tool_is_killed() {
    let setup = setup_with("hang-in-request", "good", "trap '' TERM");
    let mut child = setup.spawn();
    setup.wait_for_a_server();
    std::thread::sleep(Duration::from_millis(300));
    let running = setup.pids();
    assert!(running.iter().any(|pid| alive(*pid)));
    child.kill().unwrap();
    child.wait().unwrap();
    if Path::new("/usr/bin/setpriv").exists() {
        let left = setup.servers(Duration::from_secs(5));
        assert!(left.is_empty(), "still there: {left:?}");
    }
}

const SAY: &str = r#"
schema = 1
id = "say"
title = "Says what it is told"
purpose = "Test."
switches = ["OPENCOTI_SAY"]
[log.OPENCOTI_SAY]
says = "it works"
refuses = ["has no * effect"]
aside = ["several slots"]
"#;

/// Off equals off: nothing of a server that carries no stamp tells, but that it does not hold the name.
#[test]
fn a_switch_that_the_server_does_not_know_is_no_pass() {
    let gate = |before: &str| {
        let mut setup = setup_with("good", "good", before);
        setup.candidate = setup.baseline.clone();
        let side = "candidate = { build = \"patched\", env = { OPENCOTI_NOBODYS = \"1\" } }";
        let text = DEFINITION.replace("title =", &format!("{side}\ntitle ="));
        std::fs::write(setup.dir.path().join("gates/same.toml"), text).unwrap();
        setup.run(&["--quick", "--gate", "same"])
    };
    let (code, text) = gate("");
    assert_eq!(code, 3, "{text}");
    let words = "the candidate sets OPENCOTI_NOBODYS, and neither its program nor a library";
    assert!(
        text.contains(words) && text.contains("nothing was switched"),
        "{text}"
    );
    let (code, text) = gate("# OPENCOTI_NOBODYS");
    assert_eq!(code, 0, "{text}");
}

/// Off equals off: only the log tells that a switch was refused.
#[test]
fn a_switch_that_is_refused_is_no_pass() {
    let setup = setup_with("good", "good", "# OPENCOTI_SAY");
    let path = |name: &str| setup.dir.path().join(name);
    std::fs::create_dir_all(path("patches/say")).unwrap();
    std::fs::write(path("patches/say/patch.toml"), SAY).unwrap();
    let gate = |said: &str| {
        let side = format!("{{ build = \"patched\", env = {{ OPENCOTI_SAY = \"{said}\" }} }}");
        let text = DEFINITION.replace("title =", &format!("candidate = {side}\ntitle ="));
        std::fs::write(path("gates/same.toml"), text).unwrap();
        setup.run(&["--quick"])
    };
    let (code, text) = gate("it has no such effect");
    assert_eq!(code, 3, "{text}");
    let words =
        "candidate-n2-s1: OPENCOTI_SAY is set, and had no effect: \"W say: it has no such effect\"";
    assert!(text.contains(words), "{text}");
    // What stands aside everywhere did nothing; where a server also says that it works, it did something.
    let aside = "it has no such effect, there are several slots";
    let (code, text) = gate(aside);
    assert_eq!(code, 3, "{text}");
    let words = "candidate: OPENCOTI_SAY is set, and stood aside on each of 1 servers: \"W say: it has no such";
    assert!(text.contains(words), "{text}");
    let (code, text) = gate(&format!("{aside}\\nit works"));
    assert_eq!(code, 0, "{text}");
    // A server by path that says where it comes from nowhere may say that it works in other words.
    let (code, text) = gate("well");
    assert_eq!(code, 0, "{text}");
    // And so it is where time is measured.
    let text = r#"
schema = 1
id = "quick"
kind = "perf"
title = "Not slower"
model = { path = "model.gguf" }
n-max = [2]
n-predict = 8
rounds = 5
control-rounds = 5
limits = { start = 30, request = 30, stop = 1 }
candidate = { build = "patched", env = { OPENCOTI_SAY = "it has no such effect" } }
counters = { launches_dft = "equal" }
prompt = [{ name = "three", ids = [7, 8, 9] }]
"#;
    std::fs::write(path("gates/quick.toml"), text).unwrap();
    let (code, text) = setup.run(&["--gate", "quick"]);
    assert_eq!(code, 3, "{text}");
    assert!(
        text.contains("OPENCOTI_SAY is set, and had no effect"),
        "{text}"
    );
}

const NEEDLE: &str = r#"
schema = 1
id = "needle"
kind = "retrieval"
title = "Needles are found"
model = { path = "model.gguf" }
words = [30, 60]
depths = [0.0, 1.0]
recall = 1.0
n-predict = 20
"#;

/// Haystacks as text, through the servers' own vocabulary.
#[test]
fn needles_are_found_or_missed() {
    for (baseline, candidate, code, word) in [
        ("good", "good", 0, "gate needle: pass"),
        ("good", "forget", 1, "is no longer found: \"I do not know"),
        ("forget", "forget", 3, "the baseline itself finds too few"),
    ] {
        let setup = setup(baseline, candidate);
        std::fs::write(setup.dir.path().join("gates/needle.toml"), NEEDLE).unwrap();
        let (found, text) = setup.run(&["--gate", "needle"]);
        assert_eq!(found, code, "{baseline} {candidate}: {text}");
        assert!(text.contains(word), "{text}");
    }
}

/// What needs a build of this project is left out, said, and never a pass.
#[test]
fn what_cannot_be_asked_of_a_named_server_is_skipped() {
    let setup = setup("good", "good");
    let logits = "single = 1\nmodel = { path = \"model.gguf\" }\n\
         [[setting]]\nname = \"a\"\n[[prompt]]\nname = \"p\"\nids = [1, 2]\n";
    for (kind, more) in [("integrity", ""), ("artifacts", ""), ("logits", logits)] {
        let text = format!("schema = 1\nid = \"{kind}\"\nkind = \"{kind}\"\ntitle = \"T\"\n{more}");
        std::fs::write(setup.dir.path().join(format!("gates/{kind}.toml")), text).unwrap();
        let output = setup.command(&["--gate", kind]).output().unwrap();
        let text = both(&output);
        assert_eq!(output.status.code(), Some(3), "{kind}: {text}");
        assert!(text.contains(&format!("gate {kind}: skipped")), "{text}");
    }
    // Beside a gate that says something they do not count.
    let (code, text) = setup.run(&[]);
    assert_eq!(code, 0, "{text}");
    assert_eq!(text.matches(": skipped - ").count(), 3, "{text}");
}
