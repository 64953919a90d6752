//! What a gate's definition can name, from the outside: servers by path, by variable and by URL,
//! text as prompts, settings, a time budget; and what is skipped since it is not there.

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

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use llama_patchset::model::{GateRecord, read_json};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

const HEAD: &str = "schema = 1\nid = \"g\"\nkind = \"chash\"\ntitle = \"Same\"\n\
                    model = { path = \"model.gguf\" }\nn-max = [2]\nslots = [1]\nn-predict = 8\n\
                    limits = { start = 30, request = 30, stop = 1 }\n";
const IDS: &str = "prompt = [{ name = \"a\", ids = [5, 6] }]\n";
const BOTH: &str = "baseline = { server = \"a/llama-server\" }\n\
                    candidate = { server = \"b/llama-server\" }\n";

/// A checkout with two programs, `a` and `b`, the latter with a fault.
struct Setup(tempfile::TempDir);

fn setup(candidate: &str) -> Setup {
    let setup = Setup(tempfile::tempdir().unwrap());
    for folder in ["registry", "gates/prompts"] {
        std::fs::create_dir_all(setup.path(folder)).unwrap();
    }
    let base = format!(
        "schema = 1\ndefault = \"toy\"\n[[base]]\nid = \"toy\"\ntree = \"{}\"\n",
        "0".repeat(64)
    );
    setup.write("registry/upstreams.toml", &base);
    setup.write("registry/series.toml", "schema = 1\n[series]\n");
    setup.write("model.gguf", "GGUF");
    for (side, fault) in [("a", "good"), ("b", candidate)] {
        fake_server::install(&setup.path(side), fault, &setup.path("pids"), "");
    }
    setup
}

impl Setup {
    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).unwrap();
    }

    fn gate(&self, parts: &[&str]) {
        self.write("gates/g.toml", &parts.concat());
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["gate", "--unstamped", "--root"]);
        command.arg(self.0.path()).args(args);
        command.env("LLAMA_PATCHSET_CACHE", self.path("cache"));
        command
    }

    #[track_caller]
    fn expect(&self, command: &mut Command, code: i32, words: &[&str]) {
        let output = command.output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        for word in words {
            assert!(text.contains(word), "no {word:?} in:\n{text}");
        }
    }

    fn record(&self) -> GateRecord {
        read_json(&self.path("target/gate/latest-g.json")).unwrap()
    }

    /// Starts a server as a user would, and gives its address.
    fn running(&self, side: &str, args: &[&str]) -> (Ended, String) {
        let mut child = Command::new(self.path(side).join("llama-server"))
            .args(["-np", "1", "--host", "127.0.0.1", "--port", "0"])
            .args(args)
            .env("LLAMA_API_KEY", "users-key")
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let url = lines.find_map(|line| {
            let line = line.unwrap();
            line.split_once("listening on ")
                .map(|(_, url)| url.to_owned())
        });
        // Nothing else is read; it may still write.
        std::thread::spawn(move || lines.count());
        (Ended(child), url.unwrap())
    }
}

struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

#[test]
fn servers_are_named_by_path_and_by_variable() {
    let setup = setup("good");
    setup.gate(&[HEAD, BOTH, IDS]);
    setup.expect(&mut setup.command(&[]), 0, &["ok gate g: pass"]);
    let by_env = "baseline = { server = \"a/llama-server\" }\n\
                  candidate = { server-env = \"NEW_SERVER\" }\n";
    setup.gate(&[HEAD, by_env, IDS]);
    let mut command = setup.command(&[]);
    command.env("NEW_SERVER", setup.path("b/llama-server"));
    setup.expect(&mut command, 0, &["ok gate g: pass"]);
    assert!(setup.record().candidate.server.ends_with("b/llama-server"));
    // The very same program twice is still no comparison.
    let mut command = setup.command(&[]);
    command.env("NEW_SERVER", setup.path("a/llama-server"));
    setup.expect(&mut command, 3, &["very same files"]);
}

#[test]
fn what_is_not_there_is_skipped_and_said_and_never_a_pass() {
    let setup = setup("good");
    let other = |side: &str| {
        format!("baseline = {{ server = \"a/llama-server\" }}\ncandidate = {{ {side} }}\n")
    };
    let cases = [
        (
            HEAD.replace("path = \"model.gguf\"", "env = \"NO_SUCH_MODEL\"") + BOTH,
            "NO_SUCH_MODEL, which is not set",
        ),
        (
            HEAD.replace("model.gguf", "gone.gguf") + BOTH,
            "there is no model",
        ),
        (
            format!("{HEAD}backend = \"vulkan\"\n{BOTH}"),
            "no GPU for vulkan",
        ),
        (
            format!("{HEAD}{}", other("server = \"c/llama-server\"")),
            "there is no server",
        ),
        (
            format!("{HEAD}{}", other("server-env = \"NO_SUCH\"")),
            "NO_SUCH is not set",
        ),
        (
            format!("{HEAD}{}", other("url-env = \"NO_SUCH\"")),
            "NO_SUCH is not set",
        ),
        (
            format!("{HEAD}{}", other("url = \"http://127.0.0.1:9\", n-max = 2")),
            "no server answers at http://127.0.0.1:9",
        ),
    ];
    for (text, words) in cases {
        if words.contains("vulkan") && Path::new("/dev/dri").exists() {
            continue;
        }
        setup.gate(&[&text, IDS]);
        // Named, or the only one: the command could not do its work.
        for args in [&["--gate", "g"][..], &[]] {
            let all = [words, "SKIPPED, which is no pass", "nothing was compared"];
            setup.expect(&mut setup.command(args), 2, &all);
        }
        assert!(!setup.path("target/gate/latest-g.json").exists());
    }
    // Beside another gate that runs by default it is said, and the other one decides.
    let same = HEAD.replace("\"g\"", "\"other\"") + BOTH + IDS;
    setup.write("gates/other.toml", &same);
    let all = [
        "ok gate other: pass",
        "gate g is SKIPPED",
        "1 of 2 gates skipped",
    ];
    setup.expect(&mut setup.command(&[]), 0, &all);
    let report = std::fs::read_to_string(setup.path("target/gate/report.md")).unwrap();
    assert!(
        report.starts_with("# Gates: PASS\n\n1 of 2 gates skipped")
            && report.contains("## Skipped")
            && report.contains("did not pass"),
        "{report}"
    );
    let page = std::fs::read_to_string(setup.path("target/gate/report.html")).unwrap();
    assert!(page.contains("1 of 2 gates was skipped"), "{page}");
    // Named beside it, its verdict was wanted.
    setup.expect(
        &mut setup.command(&["--gate", "g", "other"]),
        2,
        &["gate g is SKIPPED"],
    );
    let report = std::fs::read_to_string(setup.path("target/gate/report.md")).unwrap();
    assert!(report.starts_with("# Gates: INCONCLUSIVE\n"), "{report}");
    let output = setup.command(&["--json"]).output().unwrap();
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["data"]["skipped"][0]["gate"], "g");
    // A model that the user names must be there.
    setup.expect(
        &mut setup.command(&["--model", "x.gguf"]),
        2,
        &["there is no model"],
    );
}

#[test]
fn a_running_server_is_asked_as_it_is_and_never_ended() {
    let setup = setup("good");
    let (mut server, url) = setup.running("b", &["--spec-draft-n-max", "2"]);
    let side = |more: &str| {
        format!(
            "baseline = {{ server = \"a/llama-server\" }}\n\
             candidate = {{ url = \"{url}\", api-key-env = \"SERVER_KEY\"{more} }}\n"
        )
    };
    let mut expect = |head: &str, more: &str, code: i32, words: &[&str]| {
        setup.gate(&[head, &side(more), IDS]);
        let mut command = setup.command(&["--gate", "g"]);
        command.env("SERVER_KEY", "users-key");
        setup.expect(&mut command, code, words);
        assert!(server.0.try_wait().unwrap().is_none(), "it was ended");
    };
    let words = [
        "ok gate g: pass",
        "candidate, not verified: its longest draft",
    ];
    expect(HEAD, ", n-max = 2", 0, &words);
    let stamp = setup.record().candidate;
    assert_eq!(stamp.server, url);
    assert!(stamp.artifacts.is_empty());
    let all = stamp.unverified.join("\n");
    for words in [
        "longest draft: 2",
        "its files, its other flags",
        "build b1-fake",
    ] {
        assert!(all.contains(words), "{all}");
    }
    // What the gate would have set must be so, or be said.
    expect(
        HEAD,
        "",
        2,
        &["longest draft is unknown", "add `n-max = 2`"],
    );
    expect(HEAD, ", n-max = 3", 2, &["says `n-max = 3`"]);
    let two = HEAD.replace("slots = [1]", "slots = [2]");
    expect(
        &two,
        ", n-max = 2",
        2,
        &["it has 1 slots, and the gate needs 2"],
    );
    let plain = HEAD.replace("n-max = [2]", "n-max = [0]");
    expect(&plain, "", 2, &["it drafts"]);
    let long = format!("{HEAD}context = 2048\n");
    expect(&long, ", n-max = 2", 2, &["have 1024 cells"]);
    // A wrong key is an error, and no verdict.
    setup.gate(&[HEAD, &side(", n-max = 2"), IDS]);
    let mut command = setup.command(&["--gate", "g"]);
    command.env("SERVER_KEY", "guessed");
    setup.expect(&mut command, 2, &["HTTP status 401"]);
}

#[test]
fn a_fault_of_a_running_server_is_seen() {
    let setup = setup("flip");
    let (_server, url) = setup.running("b", &["--spec-draft-n-max", "2"]);
    let head = HEAD.replace("n-predict = 8", "n-predict = 20");
    let side = "baseline = { server = \"a/llama-server\" }\ncandidate = { url-env = \"URL\", \
                api-key-env = \"SERVER_KEY\", n-max = 2 }\n\
                prompt = [{ name = \"a\", ids = [5, 6, 7] }]\n";
    setup.gate(&[&head, side]);
    let mut command = setup.command(&[]);
    command.env("SERVER_KEY", "users-key").env("URL", &url);
    setup.expect(&mut command, 1, &["first at token 17"]);
}

const TEXTS: &str = "[[prompt]]\nname = \"plain\"\ntext = \"Hello.\"\n[[prompt]]\nname = \"file\"\n\
                     file = \"prompts/a.txt\"\n[[prompt]]\nname = \"chat\"\n\
                     messages = [{ role = \"user\", file = \"prompts/a.txt\" }]\n";

#[test]
fn texts_become_the_same_ids_on_both_sides() {
    let setup = setup("good");
    setup.write("gates/prompts/a.txt", "Say it.\n");
    setup.gate(&[HEAD, BOTH, TEXTS]);
    setup.expect(&mut setup.command(&[]), 0, &["ok gate g: pass"]);
    let prompts = setup.record().prompts;
    let found: Vec<(usize, bool)> = (prompts.iter())
        .map(|prompt| (prompt.length, prompt.text.is_some()))
        .collect();
    // The model's template adds `<user>`.
    assert_eq!(found, [(6, true), (7, true), (13, true)]);
    assert_ne!(prompts[1].sha256, prompts[2].sha256);
    for (fault, code, words) in [
        (
            "other-tokenizer",
            1,
            "prompt `chat`: baseline and candidate make other ids of the same text, first at place 2",
        ),
        ("no-tokenizer", 2, "unordered_map::at"),
    ] {
        fake_server::install(&setup.path("b"), fault, &setup.path("pids"), "");
        setup.expect(&mut setup.command(&[]), code, &[words]);
    }
}

#[test]
fn the_time_budget_ends_a_gate_and_not_the_run() {
    let setup = setup("hang-in-request");
    let head = format!("{HEAD}budget = 3\n");
    setup.gate(&[&head, BOTH, IDS]);
    let other = HEAD.replace("\"g\"", "\"other\"");
    let same =
        "baseline = { server = \"a/llama-server\" }\ncandidate = { server = \"c/llama-server\" }\n";
    fake_server::install(&setup.path("c"), "good", &setup.path("pids"), "");
    setup.write("gates/other.toml", &format!("{other}{same}{IDS}"));
    let words = [
        "gate g: inconclusive",
        "the time budget of 3 s is used up",
        "ok gate other: pass",
    ];
    setup.expect(&mut setup.command(&[]), 3, &words);
    assert_eq!(setup.record().cells.len(), 1);
    // A kind that needs all of its runs says how many there were.
    let head = head
        .replace("\"chash\"", "\"acceptance\"")
        .replace("slots = [1]\n", "drop = 0.01\n");
    setup.gate(&[&head, BOTH, IDS]);
    let words = [
        "after 1 of 2 runs: the time budget of 3 s is used up",
        "gate g: inconclusive",
    ];
    setup.expect(&mut setup.command(&["--gate", "g"]), 3, &words);
}

#[test]
fn settings_reach_both_servers() {
    let setup = setup("good");
    let settings = "[[setting]]\nname = \"fa\"\nflags = [\"-fa\", \"on\"]\n[[setting]]\n\
                    name = \"kv\"\nflags = [\"-ctk\", \"q8_0\"]\n";
    setup.gate(&[HEAD, BOTH, IDS, settings]);
    let words = ["setting  slots", "ok gate g: pass"];
    setup.expect(&mut setup.command(&["--keep-logs"]), 0, &words);
    let cells = setup.record().cells;
    let names: Vec<_> = cells
        .iter()
        .map(|cell| cell.setting.as_deref().unwrap())
        .collect();
    assert_eq!(names, ["fa", "kv"]);
    // Three runs in each setting, each with a log of its own.
    let logs = std::fs::read_dir(setup.path("target/gate/logs"))
        .unwrap()
        .next();
    let logs = std::fs::read_dir(logs.unwrap().unwrap().path()).unwrap();
    assert_eq!(logs.count(), 6);
}
