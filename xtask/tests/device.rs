//! A gate for a device, from the outside: what ran somewhere else is no pass, and what is not there is
//! said. The servers pass for llama-server; what they say of devices is planted.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

#[path = "support/fake_server.rs"]
mod fake_server;

use std::path::PathBuf;
use std::process::Command;

use llama_patchset::build::provenance;
use llama_patchset::model::{Digest, Flavour, GateRecord, Provenance, Verdict, read_json};

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
backend = "vulkan"
device = { driver = "fake", name = "fakepipe" }
n-max = [2]
slots = [1]
n-predict = 8
limits = { start = 30, request = 30, stop = 1 }
[[prompt]]
name = "two"
ids = [5, 6]
"#;

/// What a server says that computes on the device, if it was told to.
const PROOF: &str = "\
[ \"$GGML_VK_VISIBLE_DEVICES\" = 0 ] && [ -f \"$VK_DRIVER_FILES\" ] || exit 9\n\
case \"$*\" in *'--device Vulkan0 -lv 4'*) ;; *) exit 8;; esac\n\
echo 'I x: using device Vulkan0 (fakepipe (LLVM 15, 256 bits)) (unknown id) - 9 MiB free'\n\
echo 'I load_tensors: offloaded 5/5 layers to GPU'\n\
echo 'I load_tensors:      Vulkan0 model buffer size =    13.00 MiB'\n\
echo 'I sched_reserve:     Vulkan0 compute buffer size =   1.00 MiB'\n";

struct Setup(tempfile::TempDir);

impl Setup {
    fn new(baseline: &str, candidate: &str) -> Self {
        let setup = Setup(tempfile::tempdir().unwrap());
        for folder in ["registry", "gates", "share/vulkan/icd.d"] {
            std::fs::create_dir_all(setup.path(folder)).unwrap();
        }
        std::fs::write(setup.path("registry/upstreams.toml"), "schema = 1\n").unwrap();
        std::fs::write(setup.path("gates/same.toml"), DEFINITION).unwrap();
        std::fs::write(setup.path("model.gguf"), "GGUF").unwrap();
        std::fs::write(setup.path("share/vulkan/icd.d/fake_icd.json"), "{}").unwrap();
        for (side, before) in [("a", baseline), ("b", candidate)] {
            fake_server::install(&setup.path(side), "good", &setup.path("pids"), before);
        }
        setup
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn run(&self, more: &[&str]) -> (i32, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["gate", "--root"]).arg(self.0.path());
        for (side, flag) in [("a", "--baseline"), ("b", "--candidate")] {
            command.arg(flag).arg(self.path(side).join("llama-server"));
        }
        let output = command
            .args(more)
            .env("XDG_DATA_DIRS", self.path("share"))
            .env("LLAMA_PATCHSET_CACHE", self.path("cache"))
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        (
            output.status.code().unwrap(),
            String::from_utf8(text).unwrap(),
        )
    }

    fn record(&self) -> Option<GateRecord> {
        read_json(&self.path("target/gate/latest-same.json")).ok()
    }
}

#[test]
fn the_device_that_ran_is_in_the_record() {
    let setup = Setup::new(PROOF, PROOF);
    let (code, text) = setup.run(&["--unstamped"]);
    assert_eq!(code, 0, "{text}");
    let record = setup.record().unwrap();
    assert_eq!(record.verdict, Verdict::Pass);
    let device = Some("Vulkan0: fakepipe (LLVM 15, 256 bits)".to_owned());
    assert_eq!(record.baseline.device, device);
    assert_eq!(record.candidate.device, device);
}

#[test]
fn what_ran_elsewhere_is_a_finding_though_its_tokens_are_right() {
    let silent = "";
    let other = PROOF.replace("fakepipe", "another");
    let partly = PROOF.replace("5/5", "4/5");
    for (candidate, says) in [
        (silent, "its log does not say that it did"),
        (&other, "the definition wants `fakepipe`"),
        (&partly, "only 4 of 5 layers"),
    ] {
        let setup = Setup::new(PROOF, candidate);
        let (code, text) = setup.run(&["--unstamped"]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(says), "{says}: {text}");
        assert_eq!(setup.record().unwrap().verdict, Verdict::Fail, "{text}");
    }
}

#[test]
fn without_the_driver_nothing_is_judged() {
    let setup = Setup::new(PROOF, PROOF);
    std::fs::remove_dir_all(setup.path("share")).unwrap();
    // Named, or the only one: the command could not do its work.
    for more in [&["--unstamped", "--gate", "same"][..], &["--unstamped"]] {
        let (code, text) = setup.run(more);
        assert_eq!(code, 2, "{text}");
        let said =
            "gate same is SKIPPED, which is no pass: this machine has no Vulkan driver `fake`";
        assert!(text.contains(said), "{text}");
    }
    let pids = std::fs::read_dir(setup.path("pids")).unwrap();
    assert_eq!(pids.count(), 0, "a server was started");
}

#[test]
fn what_says_nothing_of_its_origin_is_not_gated() {
    let setup = Setup::new(PROOF, PROOF);
    let (code, text) = setup.run(&[]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("carries no stamp of where it comes from"),
        "{text}"
    );
    assert!(text.contains("--unstamped"), "{text}");
    assert_eq!(setup.record().unwrap().verdict, Verdict::Fail);
}

/// A program of the system, stamped as a server of a build.
fn stamped() -> Vec<u8> {
    let stamp = |content| Provenance {
        schema: 1,
        file: "llama-server".to_owned(),
        content,
        base: "toy".to_owned(),
        tree: Digest::of(b""),
        flavour: Flavour::Vanilla,
        backend: "cpu".to_owned(),
        variant: Default::default(),
        patchset: None,
        source: Digest::of(b""),
        flags: Default::default(),
        compilers: Default::default(),
        backend_tools: Default::default(),
        surroundings: Default::default(),
    };
    provenance::stamped(&std::fs::read("/bin/true").unwrap(), stamp).unwrap()
}

#[test]
fn a_stamped_server_that_was_edited_is_not_gated() {
    let setup = Setup::new("", "");
    let on_processors = DEFINITION
        .lines()
        .filter(|line| !line.starts_with("backend") && !line.starts_with("device"));
    let on_processors: Vec<&str> = on_processors.collect();
    std::fs::write(setup.path("gates/same.toml"), on_processors.join("\n")).unwrap();
    let sound = stamped();
    let put = |side: &str, bytes: &[u8]| {
        std::fs::write(setup.path(side).join("llama-server"), bytes).unwrap()
    };
    put("a", &sound);
    put("b", &sound);
    // The control is taken for what it is stamped as, and started: it ends at once.
    let (code, text) = setup.run(&[]);
    assert_eq!(code, 2, "{text}");
    assert!(!text.contains("stamped"), "{text}");
    for at in [0x200, sound.len() / 2, sound.len() - 1] {
        let mut edited = sound.clone();
        edited[at] ^= 1;
        put("b", &edited);
        let (code, text) = setup.run(&[]);
        assert_eq!(code, 1, "{at}: {text}");
        assert!(
            text.contains("llama-server is not what was stamped"),
            "{at}: {text}"
        );
        assert_eq!(setup.record().unwrap().verdict, Verdict::Fail);
    }
}
