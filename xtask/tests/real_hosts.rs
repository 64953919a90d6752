//! Gates on other machines, with a real ssh, a real rsync and a real sshd on the loopback. Servers
//! under test are programs that pass for one, but for the last test, which has real builds.

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
#[path = "support/real.rs"]
mod real;
#[path = "support/sshd.rs"]
mod sshd;

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sshd::{Sshd, available};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

/// Longer than this no command of these tests takes, whatever else the machine does.
const LONG: Duration = Duration::from_secs(240);

/// A checkout with four gates whose servers each host names, and two hosts on one sshd.
struct Setup {
    dir: tempfile::TempDir,
    sshd: Sshd,
}

impl Setup {
    fn new() -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let sshd = Sshd::start(&dir.path().join("sshd"));
        let setup = Setup { dir, sshd };
        fs::create_dir_all(setup.path("check out/registry")).unwrap();
        fs::create_dir_all(setup.path("check out/gates/prompts")).unwrap();
        let base = format!(
            "schema = 1\ndefault = \"toy\"\n[[base]]\nid = \"toy\"\ntree = \"{}\"\n",
            "0".repeat(64)
        );
        setup.write("check out/registry/upstreams.toml", &base);
        setup.write("check out/registry/series.toml", "schema = 1\n[series]\n");
        setup.write("model.gguf", "GGUF");
        for fault in ["good", "flip", "hang-in-request", "die-late"] {
            fake_server::install(&setup.path(fault), fault, &setup.path("pids"), "");
        }
        // A program of its own, or both sides would be the very same.
        fake_server::install(&setup.path("same"), "good", &setup.path("pids"), "");
        for (gate, variable) in [
            ("a-good", "SAME"),
            ("b-flip", "FLIP"),
            ("c-hang", "HANG"),
            ("d-none", "NO_SUCH_SERVER"),
        ] {
            let text = format!(
                "schema = 1\nid = \"{gate}\"\nkind = \"chash\"\ntitle = \"Same\"\n\
                 model = {{ env = \"MODEL\" }}\nn-max = [2]\nslots = [1]\nn-predict = 24\n\
                 limits = {{ start = 60, request = 120, stop = 1 }}\n\
                 baseline = {{ server-env = \"GOOD\" }}\n\
                 candidate = {{ server-env = \"{variable}\" }}\n\
                 prompt = [{{ name = \"a\", ids = [5, 6, 7] }}]\n"
            );
            setup.write(&format!("check out/gates/{gate}.toml"), &text);
        }
        setup.hosts(&[setup.host("near", ""), setup.host("far", "")]);
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    fn hosts(&self, hosts: &[String]) {
        let text = format!("schema = 1\n{}", hosts.concat());
        self.write("check out/registry/hosts.toml", &text);
    }

    /// A host of this sshd, whose key is pinned; `more` are lines that come last.
    fn host(&self, name: &str, more: &str) -> String {
        format!(
            "[[host]]\nname = \"{name}\"\naddress = \"127.0.0.1\"\nport = {}\nidentity = \"{}\"\n\
             host-key = \"{}\"\ndir = \"{}\"\nlimit = 200\n{more}\n[host.env]\n{}",
            self.sshd.port,
            self.sshd.identity().display(),
            self.sshd.key,
            self.path(&format!("on-{name}")).display(),
            self.env(),
        )
    }

    fn env(&self) -> String {
        let server = |dir: &str| self.path(dir).join("llama-server").display().to_string();
        format!(
            "MODEL = \"{}\"\nGOOD = \"{}\"\nSAME = \"{}\"\nFLIP = \"{}\"\nHANG = \"{}\"\n\
             ODD = \"it's $HOME; touch x\"\n",
            self.path("model.gguf").display(),
            server("good"),
            server("same"),
            server("flip"),
            server("hang-in-request"),
        )
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(["gate", "--unstamped", "--json", "--root"])
            .arg(self.path("check out"))
            .args(args)
            .env("LLAMA_PATCHSET_CACHE", self.path("cache"))
            .env_remove("SSH_AUTH_SOCK")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    fn gate(&self, args: &[&str]) -> Ran {
        Ran::of(self.command(args).spawn().unwrap())
    }

    /// Folders of runs that are left on a host.
    fn left(&self, host: &str) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.path(&format!("on-{host}"))) else {
            return Vec::new();
        };
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name.starts_with("run-")).collect()
    }

    /// Servers that run right now.
    fn servers(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("pids")).unwrap();
        let ids = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        ids.filter(|id| {
            let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
            !stat.is_empty() && !stat.contains(") Z")
        })
        .collect()
    }

    /// Waits until a server hangs on the host.
    fn until_it_hangs(&self) {
        until("a server that hangs", || {
            let ids = self.servers();
            ids.iter().any(|id| {
                let env = fs::read(format!("/proc/{id}/environ")).unwrap_or_default();
                String::from_utf8_lossy(&env).contains("FAKE_SERVER_FAULT=hang-in-request")
            })
        });
    }
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < LONG, "waited for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A command that ended.
struct Ran {
    code: Option<i32>,
    json: Value,
    error: String,
}

impl Ran {
    fn of(mut child: Child) -> Ran {
        let begun = Instant::now();
        let id = child.id();
        // The pipes hold what these commands say.
        while child.try_wait().unwrap().is_none() {
            assert!(begun.elapsed() < LONG, "{id} does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
        let Output {
            status,
            stdout,
            stderr,
        } = child.wait_with_output().unwrap();
        Ran {
            code: status.code(),
            json: serde_json::from_slice(&stdout).unwrap_or_default(),
            error: String::from_utf8_lossy(&stderr).into_owned(),
        }
    }

    #[track_caller]
    fn ends(self, code: i32) -> Ran {
        assert_eq!(self.code, Some(code), "{:#}\n{}", self.json, self.error);
        self
    }

    fn host(&self, name: &str) -> &Value {
        let hosts = self.json["data"]["hosts"].as_array().unwrap();
        hosts.iter().find(|host| host["name"] == name).unwrap()
    }

    fn verdict(&self, host: &str, gate: &str) -> &Value {
        let gates = self.host(host)["gates"].as_array().unwrap();
        &gates.iter().find(|cell| cell["gate"] == gate).unwrap()["verdict"]
    }

    fn problem(&self, host: &str) -> String {
        format!(
            "{} {}",
            self.host(host)["error"]["message"],
            self.host(host)["error"]["hints"]
        )
    }
}

#[test]
fn records_of_all_hosts_come_back_and_nothing_stays_there() {
    if !available("records_of_all_hosts_come_back_and_nothing_stays_there") {
        return;
    }
    let setup = Setup::new();
    let ran = setup.gate(&["--host", "all", "--gate", "a-good"]).ends(0);
    for host in ["near", "far"] {
        assert_eq!(ran.verdict(host, "a-good"), "pass");
        assert_eq!(ran.host(host)["state"], "done");
        assert!(setup.left(host).is_empty(), "{:?}", setup.left(host));
    }
    // The store has them under the hosts' names, and so have reports and comparisons.
    let runs = ran.json["data"]["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2);
    for (run, host) in runs.iter().zip(["near", "far"]) {
        let dir = setup
            .path("check out/target/gate/records")
            .join(run.as_str().unwrap());
        let record = fs::read_to_string(dir.join("a-good.json")).unwrap();
        let record: Value = serde_json::from_str(&record).unwrap();
        assert_eq!(record["run"]["host"]["name"], host);
        assert_eq!(record["run"]["id"], *run);
    }
    let xtask = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(args)
            .arg("--root")
            .arg(setup.path("check out"));
        let output = command
            .env("LLAMA_PATCHSET_CACHE", setup.path("cache"))
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        (output.status.code(), text)
    };
    let (near, far) = (runs[0].as_str().unwrap(), runs[1].as_str().unwrap());
    let (code, text) = xtask(&[
        "report", "--format", "markdown", "--run", near, "--run", far,
    ]);
    assert_eq!(code, Some(0), "{text}");
    assert!(
        text.contains("near, linux") && text.contains("far, linux"),
        "{text}"
    );
    let (code, text) = xtask(&["gate", "--compare", near, far]);
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("different machines"), "{text}");
    // Not an address of a host, nor what came from it, stays in the folder that was brought.
    let left = fs::read_dir(setup.path("check out/target/hosts")).unwrap();
    assert_eq!(left.count(), 1, "only the lock");
    // Nothing of a host's variables was run by a shell.
    assert!(!setup.path("x").exists() && !Path::new("x").exists());

    // A finding on one host is one of the whole; a gate that cannot run is skipped, and never green.
    setup.hosts(&[
        setup.host("near", "gates = [\"a-good\"]"),
        setup.host("far", "gates = [\"a-good\", \"b-flip\"]"),
    ]);
    let ran = setup.gate(&["--host", "far", "near"]).ends(1);
    assert_eq!(ran.json["status"], "finding");
    assert_eq!(ran.verdict("far", "b-flip"), "fail");
    assert_eq!(ran.verdict("far", "a-good"), "pass");
    assert_eq!(ran.host("near")["gates"].as_array().unwrap().len(), 1);
    let ran = setup
        .gate(&["--host", "near", "--gate", "a-good", "d-none"])
        .ends(2);
    assert_eq!(ran.verdict("near", "d-none"), "skipped");
    // A page that cannot be written leaves the verdict: once the run has begun, a folder stands where it goes.
    let page = setup.path("check out/target/gate/report.html");
    let block = format!(
        "mkdir -p '{}/x'; exec /usr/bin/uname \"$@\"",
        page.display()
    );
    setup.sshd.shim("uname", &block);
    let ran = setup.gate(&["--host", "far", "--gate", "b-flip"]).ends(1);
    setup.sshd.unshim("uname");
    assert_eq!(ran.verdict("far", "b-flip"), "fail");
    assert!(ran.json["data"]["page"].is_null());
    assert!(ran.error.contains("there is no page"), "{}", ran.error);
    fs::remove_dir_all(&page).unwrap();
    assert!(setup.servers().is_empty());
}

#[test]
fn a_host_that_cannot_be_used_is_named_and_the_others_go_on() {
    if !available("a_host_that_cannot_be_used_is_named_and_the_others_go_on") {
        return;
    }
    let setup = Setup::new();
    let other = Sshd::start(&setup.path("other"));
    let port = format!("port = {}", setup.sshd.port);
    let with = |name: &str, from: &str, to: &str| setup.host(name, "").replace(from, to);
    let empty = setup.path("known");
    fs::write(&empty, "").unwrap();
    let known = format!(
        "host-key = \"known\"\nknown-hosts = \"{}\"",
        empty.display()
    );
    setup.hosts(&[
        setup.host("near", ""),
        // Nobody listens on that port.
        with("closed", &port, "port = 1"),
        with(
            "stranger",
            &format!("host-key = \"{}\"", setup.sshd.key),
            &known,
        ),
        with("imposter", &setup.sshd.key, &other.key),
        // A machine that knows other keys.
        with("locked", &port, &format!("port = {}", other.port))
            .replace(&setup.sshd.key, &other.key),
        with(
            "nowhere",
            &setup.path("on-nowhere").display().to_string(),
            "/proc/nowhere",
        ),
    ]);
    let ran = setup.gate(&["--host", "all", "--gate", "a-good"]).ends(2);
    assert_eq!(ran.json["status"], "unable");
    assert_eq!(ran.verdict("near", "a-good"), "pass");
    for (host, word) in [
        ("closed", "refused"),
        ("stranger", "ssh-keyscan"),
        ("imposter", "ssh-keyscan"),
        ("locked", "takes none of your keys"),
        ("nowhere", "cannot be made"),
    ] {
        assert_eq!(ran.host(host)["state"], "unable");
        assert!(ran.verdict(host, "a-good").is_null());
        let problem = ran.problem(host);
        assert!(problem.contains(word), "{host}: {problem}");
    }
    // Each of them stands in the report, and no page of an older run is left.
    assert_eq!(ran.json["data"]["runs"].as_array().unwrap().len(), 6);
    let page = setup.path("check out/target/gate/report.html");
    let says = |words: &str| {
        let text = fs::read_to_string(&page).unwrap_or_default();
        assert!(text.contains(words), "{words}: {text}");
    };
    says("<h1>inconclusive</h1>");
    fs::write(&page, "<h1>pass</h1>").unwrap();
    fs::write(page.with_extension("md"), "# Gates: PASS").unwrap();
    let ran = setup
        .gate(&["--host", "closed", "--gate", "a-good"])
        .ends(2);
    assert_eq!(ran.json["data"]["runs"].as_array().unwrap().len(), 1);
    says("<h1>inconclusive</h1>");
    says("closed");
    assert!(!page.with_extension("md").exists());

    // Machines that what was built here cannot run on: before anything is copied.
    setup.hosts(&[setup.host("near", "")]);
    for (program, script, words) in [
        (
            "uname",
            "case $1 in -m) echo riscv64;; *) echo Linux;; esac",
            "Linux riscv64",
        ),
        (
            "uname",
            "case $1 in -m) uname=x;; *) echo Darwin;; esac; echo x86_64",
            "another kind",
        ),
        ("getconf", "echo glibc 2.17", "too old: glibc 2.17"),
        ("getconf", "exit 1", "not glibc"),
        ("df", "echo head; echo none 1 1 7 1 /", "too full"),
    ] {
        setup.sshd.shim(program, script);
        let ran = setup.gate(&["--host", "near", "--gate", "a-good"]).ends(2);
        let problem = ran.problem("near");
        assert!(problem.contains(words), "{problem}");
        assert!(setup.left("near").is_empty());
        setup.sshd.unshim(program);
    }
    // A login that prints what it likes does no harm.
    let noise = "echo Welcome, says LLAMA-PATCHSET >&2; exec /usr/bin/uname \"$@\"";
    setup.sshd.shim("uname", noise);
    setup.gate(&["--host", "near", "--gate", "a-good"]).ends(0);
    setup.sshd.unshim("uname");
    disk_that_fills_up(&setup);
}

/// One that had room when it was asked, and has none when files come. Who may mount no file system leaves this out;
/// on CI root must be allowed to.
fn disk_that_fills_up(setup: &Setup) {
    let small = setup.path("on-near");
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1m", "none"])
        .arg(&small)
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        let is_root = rustix::process::geteuid().is_root();
        assert!(
            !(sshd::ci::on_ci() && is_root),
            "nothing can be mounted here, and CI is set"
        );
        // Not with `eprintln`: the harness swallows that where a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "a full disk: left out, since nothing can be mounted here"
        );
        return;
    }
    setup
        .sshd
        .shim("df", "echo head; echo none 1 1 99999999 1 /");
    let ran = setup.gate(&["--host", "near", "--gate", "a-good"]);
    let left = setup.left("near");
    let unmounted = Command::new("umount").arg(&small).status().unwrap();
    assert!(unmounted.success());
    setup.sshd.unshim("df");
    let ran = ran.ends(2);
    let problem = ran.problem("near");
    assert!(problem.contains("disk is full"), "{problem}");
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn a_host_that_drops_out_keeps_what_it_had_and_the_others_go_on() {
    if !available("a_host_that_drops_out_keeps_what_it_had_and_the_others_go_on") {
        return;
    }
    let setup = Setup::new();
    let second = Sshd::start(&setup.path("second"));
    let near = setup
        .host("near", "gates = [\"a-good\"]")
        .replace(
            &format!("port = {}", setup.sshd.port),
            &format!("port = {}", second.port),
        )
        .replace(&setup.sshd.key, &second.key)
        .replace(
            &setup.sshd.identity().display().to_string(),
            &second.identity().display().to_string(),
        );
    setup.hosts(&[near, setup.host("far", "gates = [\"a-good\", \"c-hang\"]")]);
    let running = setup.command(&["--host", "all"]).spawn().unwrap();
    setup.until_it_hangs();
    assert!(setup.sshd.kill_sessions() > 0);
    let ran = Ran::of(running).ends(2);
    assert_eq!(
        (&ran.host("near")["state"], ran.verdict("near", "a-good")),
        (&"done".into(), &"pass".into())
    );
    assert_eq!(ran.host("far")["state"], "broken");
    assert!(
        ran.problem("far").contains("dropped out"),
        "{}",
        ran.problem("far")
    );
    assert_eq!(ran.verdict("far", "a-good"), "pass", "it had a record");
    assert!(ran.verdict("far", "c-hang").is_null());
    until("the servers to end", || setup.servers().is_empty());
    assert!(setup.left("far").is_empty());
    // The store shows the gate that has no record.
    let run = ran.host("far")["run"].as_str().unwrap();
    let mut report = Command::new(env!("CARGO_BIN_EXE_xtask"));
    report.args(["report", "--format", "markdown", "--run", run, "--root"]);
    let output = report.arg(setup.path("check out")).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("Gates: inconclusive"), "{text}");
    assert!(text.contains("`c-hang` |  |  | it has no record"), "{text}");
}

#[test]
fn whoever_is_stopped_leaves_nothing_or_the_next_one_finds_it() {
    if !available("whoever_is_stopped_leaves_nothing_or_the_next_one_finds_it") {
        return;
    }
    let setup = Setup::new();
    // Ctrl-C: nothing stays.
    let running = setup
        .command(&["--host", "far", "--gate", "c-hang"])
        .spawn()
        .unwrap();
    setup.until_it_hangs();
    let interrupted = Command::new("kill")
        .args(["-INT", &running.id().to_string()])
        .status();
    assert!(interrupted.unwrap().success());
    let ran = Ran::of(running).ends(2);
    assert_eq!(ran.json["error"]["kind"], "interrupted");
    until("the servers to end", || setup.servers().is_empty());
    assert!(setup.left("far").is_empty(), "{:?}", setup.left("far"));

    // A kill: the servers end, and the folder stays until nobody can want it any more.
    let running = setup
        .command(&["--host", "far", "--gate", "c-hang"])
        .spawn()
        .unwrap();
    setup.until_it_hangs();
    let killed = Command::new("kill")
        .args(["-KILL", &running.id().to_string()])
        .status();
    assert!(killed.unwrap().success());
    Ran::of(running);
    until("the servers to end", || setup.servers().is_empty());
    let left = setup.left("far");
    assert_eq!(left.len(), 1);
    setup.gate(&["--host", "far", "--gate", "a-good"]).ends(0);
    assert_eq!(setup.left("far"), left, "it may be somebody's still");
    let aged = Command::new("find")
        .arg(setup.path("on-far").join(&left[0]))
        .args(["-exec", "touch", "-h", "-d", "20 minutes ago", "{}", "+"])
        .status();
    assert!(aged.unwrap().success());
    let ran = setup.gate(&["--host", "far", "--gate", "a-good"]).ends(0);
    assert_eq!(ran.host("far")["removed"].as_array().unwrap().len(), 1);
    assert!(setup.left("far").is_empty());
    // So did what the killed one had put together here.
    let here = fs::read_dir(setup.path("check out/target/hosts")).unwrap();
    assert_eq!(here.count(), 1, "only the lock");

    // Two at once: each has a folder, and they take turns with the machine.
    let both = [0, 1].map(|_| {
        setup
            .command(&["--host", "far", "--gate", "a-good"])
            .spawn()
            .unwrap()
    });
    for running in both {
        let ran = Ran::of(running).ends(0);
        assert_eq!(ran.verdict("far", "a-good"), "pass");
    }
    assert!(setup.left("far").is_empty());

    // One that takes too long is given up.
    setup.hosts(&[setup.host("far", "").replace("limit = 200", "limit = 20")]);
    let ran = setup.gate(&["--host", "far", "--gate", "c-hang"]).ends(2);
    assert!(
        ran.problem("far").contains("not done within"),
        "{}",
        ran.problem("far")
    );
    until("the servers to end", || setup.servers().is_empty());
    assert!(setup.left("far").is_empty());
}

/// Builds of the real tree, brought to a host: chash with the goldens, and logits with the probe that
/// was compiled here.
#[test]
fn real_builds_are_gated_on_a_host_without_a_compiler() {
    let test = "real_builds_are_gated_on_a_host_without_a_compiler";
    if !real::wanted(test) || !available(test) {
        return;
    }
    let setup = Setup::new();
    for program in ["cc", "c++", "gcc", "cmake", "ninja", "cargo"] {
        setup.sshd.shim(
            program,
            "echo 'no compiler is to be called here' >&2; exit 1",
        );
    }
    let file = setup.path("hosts.toml");
    fs::write(&file, format!("schema = 1\n{}", setup.host("loop", ""))).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args([
            "gate", "--json", "--quick", "--host", "loop", "--gate", "chash", "logits", "--hosts",
        ])
        .arg(&file)
        .arg("--root")
        .arg(real::root())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let ran = Ran::of(command.spawn().unwrap()).ends(0);
    assert_eq!(ran.verdict("loop", "chash"), "pass");
    assert_eq!(ran.verdict("loop", "logits"), "pass");
    let record = ran.host("loop")["gates"][0]["file"].as_str().unwrap();
    let record: Value = serde_json::from_str(&fs::read_to_string(record).unwrap()).unwrap();
    assert_eq!(record["run"]["host"]["name"], "loop");
    assert!(record["candidate"]["patchset"]["id"].is_string());
    assert!(setup.left("loop").is_empty());
}
