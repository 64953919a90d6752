//! `cargo xtask vendor` as a user runs it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::Write as _;
use std::path::Path;
use std::process::Output;

use serde_json::Value;

const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";
const UP: &str = "dir = { path = \"up\" }";

struct Checkout(tempfile::TempDir);

impl Checkout {
    fn new(source: &str) -> Self {
        let checkout = Checkout(tempfile::tempdir().unwrap());
        checkout.write("up/src/a.c", "int a;\n");
        checkout.write("up/b", "b");
        checkout.pin(ZEROS, source);
        checkout
    }

    fn write(&self, path: &str, content: &str) {
        let path = self.0.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn pin(&self, tree: &str, source: &str) {
        self.write(
            "registry/upstreams.toml",
            &format!(
                "schema = 1\ndefault = \"one\"\n[[base]]\nid = \"one\"\ntree = \"{tree}\"\n\
                 [[base.source]]\n{source}\n"
            ),
        );
    }

    fn vendor(&self, args: &[&str]) -> Output {
        let cache = self.0.path().join("cache");
        run(self.0.path(), Some(&cache), args)
    }

    fn json(&self, args: &[&str]) -> Value {
        let output = self.vendor(&[args, &["--json"]].concat());
        serde_json::from_slice(&output.stdout).unwrap()
    }

    fn state(&self) -> String {
        let list = self.json(&["--list"]);
        let state = &list["data"]["bases"][0]["state"];
        state.as_str().unwrap().to_owned()
    }
}

fn run(root: &Path, cache: Option<&Path>, args: &[&str]) -> Output {
    let mut command = assert_cmd::cargo::cargo_bin_cmd!("xtask");
    command.arg("--root").arg(root).arg("vendor").args(args);
    if let Some(cache) = cache {
        command.env("LLAMA_PATCHSET_CACHE", cache);
    }
    command.output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn a_new_base_is_pinned_fetched_and_listed() {
    let checkout = Checkout::new(UP);
    // Not pinned yet: a finding, and nothing is kept.
    let output = checkout.vendor(&[]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(error.contains("--print-digest"), "{error}");
    assert_eq!(checkout.state(), "absent");

    let survey = checkout.json(&["--print-digest"]);
    assert_eq!(survey["data"]["files"], 2);
    assert_eq!(survey["data"]["pinned"], false);
    let tree = survey["data"]["tree"].as_str().unwrap();
    checkout.pin(tree, UP);

    let output = checkout.vendor(&[]);
    assert_eq!(output.status.code(), Some(0));
    let shown = text(&output.stdout);
    assert!(
        shown.contains(tree) && shown.contains("files   2"),
        "{shown}"
    );
    let again = checkout.json(&["--offline"]);
    assert_eq!(again["data"]["fresh"], false);
    assert_eq!(again["data"]["source"], "dir up");
    let path = again["data"]["path"].as_str().unwrap();
    assert!(Path::new(path).join("src/a.c").is_file());

    // A change is found, named and undone only on request.
    std::fs::write(Path::new(path).join("b"), "B!").unwrap();
    let output = checkout.vendor(&[]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("b: expected sha256"));
    assert_eq!(checkout.state(), "changed");
    assert_eq!(checkout.vendor(&["--force"]).status.code(), Some(0));
    assert_eq!(checkout.state(), "present");
}

#[test]
fn offline_and_unknown_bases_cannot_run() {
    let checkout = Checkout::new(&format!(
        "pypi = {{ package = \"p\", version = \"1\", sha256 = \"{ZEROS}\" }}"
    ));
    let output = checkout.vendor(&["--offline"]);
    assert_eq!(output.status.code(), Some(2));
    let error = text(&output.stderr);
    assert!(error.contains("pypi p 1: not in the cache"), "{error}");
    assert!(error.contains("pip download"), "{error}");
    let output = checkout.vendor(&["--base", "onee"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("did you mean `one`?"));
}

/// No program outlives us, not even where nothing of ours is left that could end it.
#[cfg(target_os = "linux")]
#[test]
fn a_killed_command_takes_its_git_along() {
    use std::os::unix::fs::PermissionsExt as _;
    let mut setpriv = std::process::Command::new("setpriv");
    setpriv.args(["--pdeathsig", "KILL", "--", "true"]);
    if !setpriv.status().is_ok_and(|status| status.success()) {
        let _ = writeln!(std::io::stderr(), "skipped: no setpriv");
        return;
    }
    let checkout = Checkout::new(&format!(
        "git = {{ url = \"https://host.invalid/x\", commit = \"{}\" }}",
        &ZEROS[..40]
    ));
    let pid = checkout.0.path().join("pid");
    checkout.write(
        "bin/git",
        &format!("#!/bin/sh\necho $$ > '{}'\nexec sleep 60\n", pid.display()),
    );
    let bin = checkout.0.path().join("bin");
    std::fs::set_permissions(bin.join("git"), std::fs::Permissions::from_mode(0o755)).unwrap();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths([bin].into_iter().chain(std::env::split_paths(&path)));
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("--root")
        .arg(checkout.0.path())
        .arg("vendor")
        .env("LLAMA_PATCHSET_CACHE", checkout.0.path().join("cache"))
        .env("PATH", path.unwrap())
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let wait = |done: &dyn Fn() -> bool| {
        let begun = std::time::Instant::now();
        while !done() && begun.elapsed() < std::time::Duration::from_secs(20) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        done()
    };
    let written = || std::fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'));
    let begun = wait(&written);
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(begun, "git was not started");
    let pid = std::fs::read_to_string(&pid).unwrap();
    let gone = || {
        std::fs::read_to_string(format!("/proc/{}/stat", pid.trim()))
            .map_or(true, |stat| stat.contains(") Z"))
    };
    assert!(wait(&gone), "git lives on");
}

/// The real thing, with the user's own cache: only where the base's archive is already there,
/// or where the network may be used.
#[test]
fn the_default_base_is_what_the_registry_pins() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let network = std::env::var_os("LLAMA_PATCHSET_TEST_NETWORK").is_some_and(|v| v == "1");
    let args: &[&str] = if network {
        &["--print-digest", "--json"]
    } else {
        &["--print-digest", "--json", "--offline"]
    };
    let output = run(root, None, args);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    if !network && document["status"] == "error" && document["error"]["kind"] == "environment" {
        // Not with `eprintln`: the harness swallows that where a test passes.
        let _ = writeln!(
            std::io::stderr(),
            "skipped: the base's archive is not in the cache"
        );
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(document["data"]["pinned"], true, "{document:#}");
}
