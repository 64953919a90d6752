//! What must hold of every server under test: only this machine, a key of its own each time, its
//! log where something went wrong, and an end on every way out.

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

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use llama_patchset::ctx::Cancel;
use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::Halt;
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
n-max = [0]
slots = [1]
n-predict = 8
limits = { start = 30, request = 30, stop = 1 }
prompt = [{ name = "a", ids = [5, 6] }]
"#;

/// Shell code that leaves a child behind which has left the group, and waits until it has.
const ESCAPE: &str = "setsid sh -c 'trap \"\" TERM HUP; touch PIDS/$$ PIDS-of-$0; \
                      while :; do sleep 1; done' $$ &\n\
                      while [ ! -e PIDS-of-$$ ]; do sleep 0.02; done";

struct Setup {
    dir: tempfile::TempDir,
}

fn setup(candidate: &str, before: &str) -> Setup {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    for folder in ["registry", "gates"] {
        std::fs::create_dir(path(folder)).unwrap();
    }
    std::fs::write(path("registry/upstreams.toml"), "schema = 1\n").unwrap();
    std::fs::write(path("gates/same.toml"), DEFINITION).unwrap();
    std::fs::write(path("model.gguf"), "GGUF").unwrap();
    let pids = path("pids");
    let before = before.replace("PIDS", pids.to_str().unwrap());
    fake_server::install(&path("a"), "good", &pids, &before);
    fake_server::install(&path("b"), candidate, &pids, &before);
    Setup { dir }
}

impl Setup {
    fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["gate", "--unstamped", "--root"]);
        command.arg(self.dir.path());
        for (side, flag) in [("a", "--baseline"), ("b", "--candidate")] {
            command.arg(flag).arg(self.path(side).join("llama-server"));
        }
        command.env("LLAMA_PATCHSET_CACHE", self.path("cache"));
        command
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self) -> (i32, String) {
        let output = self.command().output().unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8_lossy(&text).into_owned();
        (output.status.code().unwrap(), text)
    }

    fn spawn(&self) -> Child {
        let mut command = self.command();
        let command = command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().unwrap()
    }

    /// Processes that are known of, with what they wrote.
    fn pids(&self) -> BTreeMap<i32, String> {
        let entries = std::fs::read_dir(self.path("pids")).unwrap();
        entries
            .map(|entry| {
                let entry = entry.unwrap();
                let pid = entry.file_name().to_str().unwrap().parse().unwrap();
                (pid, std::fs::read_to_string(entry.path()).unwrap())
            })
            .collect()
    }

    fn alive(&self) -> Vec<i32> {
        let pids = self.pids().into_keys();
        pids.filter(|pid| alive(*pid)).collect()
    }

    /// Waits until so many are alive at the same time.
    fn wait_for(&self, count: usize) {
        let begun = Instant::now();
        while self.alive().len() < count {
            assert!(
                begun.elapsed() < Duration::from_secs(30),
                "{:?}",
                self.pids()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    #[track_caller]
    fn nothing_is_left(&self) {
        let begun = Instant::now();
        while !self.alive().is_empty() {
            let late = begun.elapsed() > Duration::from_secs(5);
            assert!(!late, "still there: {:?}", self.alive());
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

fn alive(pid: i32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z")
}

/// The fake server itself asserts that it is told this machine and port 0, and that its key is no
/// argument: with another command line nothing would pass here.
#[test]
fn each_start_is_for_this_machine_alone_with_a_key_of_its_own() {
    let setup = setup("good", "");
    let (code, text) = setup.run();
    assert_eq!(code, 0, "{text}");
    let pids = setup.pids();
    let keys: BTreeSet<&String> = pids.values().collect();
    assert_eq!((pids.len(), keys.len()), (3, 3), "{pids:?}");
    assert!(keys.iter().all(|key| key.len() == 32));
}

#[test]
fn the_log_is_kept_where_something_went_wrong_and_only_there() {
    let setup = setup("die", "");
    // `die` dies at the 40th token.
    let longer = DEFINITION.replace("n-predict = 8", "n-predict = 48");
    std::fs::write(setup.path("gates/same.toml"), longer).unwrap();
    let (code, text) = setup.run();
    assert_eq!(code, 1, "{text}");
    let logs = setup.path("target/gate/logs");
    let run = std::fs::read_dir(&logs).unwrap().next().unwrap().unwrap();
    let log = std::fs::read_to_string(run.path().join("candidate-n0-s1.log")).unwrap();
    assert!(log.contains("GGML_ASSERT(false) failed"), "{log}");
    assert!(text.contains("candidate-n0-s1.log"), "{text}");
}

#[test]
fn a_child_that_left_the_group_is_ended_with_its_server() {
    let setup = setup("good", ESCAPE);
    let (code, text) = setup.run();
    assert_eq!(code, 0, "{text}");
    // Three servers, and a child of each.
    assert_eq!(setup.pids().len(), 6);
    setup.nothing_is_left();
}

#[test]
fn signals_end_servers_and_what_left_them() {
    for signal in [Signal::INT, Signal::TERM] {
        let setup = setup("hang-in-request", &format!("trap '' TERM\n{ESCAPE}"));
        let mut child = setup.spawn();
        // The candidate hangs: it and its child stay.
        setup.wait_for(2);
        kill_process(Pid::from_child(&child), signal).unwrap();
        let status = child.wait().unwrap();
        assert_eq!(status.code(), Some(2), "{signal:?}");
        setup.nothing_is_left();
    }
}

/// The kernel kills the server with the tool. What had left the server's group is found by the
/// next run.
#[test]
fn what_a_killed_tool_leaves_is_swept_by_the_next_run() {
    if !Path::new("/usr/bin/setpriv").exists() {
        return;
    }
    let setup = setup("hang-in-request", ESCAPE);
    let mut child = setup.spawn();
    setup.wait_for(2);
    std::thread::sleep(Duration::from_millis(200));
    child.kill().unwrap();
    child.wait().unwrap();
    let begun = Instant::now();
    while setup.alive().len() > 1 {
        assert!(
            begun.elapsed() < Duration::from_secs(5),
            "the server stayed"
        );
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = setup.alive();
    let other = self::setup("good", "");
    let (code, text) = other.run();
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("a killed run had left behind"), "{text}");
    assert!(left.iter().all(|pid| !alive(*pid)) || setup.alive().is_empty());
    setup.nothing_is_left();
}

#[test]
fn a_panic_ends_the_server() {
    let setup = setup("good", &format!("trap '' TERM\n{ESCAPE}"));
    let env = BTreeMap::new();
    let result = std::panic::catch_unwind(|| {
        let launch = Launch {
            program: &setup.path("a/llama-server"),
            args: vec!["-np".into(), "1".into()],
            env: &env,
            log: setup.path("log"),
            is_judged: false,
            start: Duration::from_secs(30),
            request: Duration::from_secs(30),
            stop: Duration::from_millis(200),
        };
        let server = Server::start(&launch, &Halt::new(&Cancel::default())).unwrap();
        assert!(server.id().is_some());
        setup.wait_for(2);
        panic!("on purpose");
    });
    assert!(result.is_err());
    setup.nothing_is_left();
}
