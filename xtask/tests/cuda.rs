//! Files with code for GPUs, from the outside: made of a program of the system and a section that nvcc would have
//! made, stamped as being for this GPU or that.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/fake_server.rs"]
#[allow(dead_code, clippy::print_stdout, clippy::print_stderr)]
mod fake_server;

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use llama_patchset::build::provenance;
use llama_patchset::model::{Digest, Flavour, Provenance};

#[test]
#[ignore = "no test: the fake server starts here"]
fn fake_server_entry() {
    fake_server::serve();
}

/// A container with one compressed image of each kind for `arch`.
fn fatbin(arch: u32) -> Vec<u8> {
    let mut content = Vec::new();
    for kind in [1u16, 2] {
        let mut entry = vec![0u8; 64];
        entry[..2].copy_from_slice(&kind.to_le_bytes());
        entry[4] = 64;
        entry[8] = 16;
        entry[28..32].copy_from_slice(&arch.to_le_bytes());
        entry[40..48].copy_from_slice(&0x8011u64.to_le_bytes());
        content.extend(entry);
        content.extend([7u8; 16]);
    }
    let mut bytes = vec![0x50, 0xed, 0x55, 0xba, 1, 0, 16, 0];
    bytes.extend((content.len() as u64).to_le_bytes());
    bytes.extend(content);
    bytes
}

/// `libggml-cuda.so` in `dir` with this section, stamped as being for `stamp`.
fn library(dir: &Path, section: Option<&[u8]>, stamp: &str) -> PathBuf {
    file(dir, "libggml-cuda.so", section, stamp, "13.0.88")
}

/// The file `name` in `dir` with this section, stamped as being for `stamp` and of this toolkit; a program has its
/// libraries inside.
fn file(dir: &Path, name: &str, section: Option<&[u8]>, stamp: &str, toolkit: &str) -> PathBuf {
    let (plain, with) = (dir.join("plain"), dir.join("with"));
    std::fs::copy("/bin/true", &plain).unwrap();
    let mut command = Command::new("objcopy");
    if let Some(section) = section {
        std::fs::write(dir.join("section"), section).unwrap();
        let added = format!(".nv_fatbin={}", dir.join("section").display());
        command.args(["--add-section", &added]);
    }
    let done = command.arg(&plain).arg(&with).status().unwrap();
    assert!(done.success());
    let shared = if name.starts_with("lib") { "ON" } else { "OFF" };
    let flags = [
        ("BUILD_SHARED_LIBS".to_owned(), shared.to_owned()),
        ("CMAKE_CUDA_ARCHITECTURES".to_owned(), stamp.to_owned()),
    ];
    let stamp = |content| Provenance {
        schema: 1,
        file: name.to_owned(),
        content,
        base: "toy".to_owned(),
        tree: Digest::of(b""),
        flavour: Flavour::Vanilla,
        backend: "cuda".to_owned(),
        variant: Default::default(),
        patchset: None,
        source: Digest::of(b""),
        flags: flags.into(),
        compilers: Default::default(),
        backend_tools: [("cuda".to_owned(), toolkit.to_owned())].into(),
        surroundings: Default::default(),
    };
    let bytes = provenance::stamped(&std::fs::read(with).unwrap(), stamp).unwrap();
    let file = dir.join(name);
    std::fs::write(&file, bytes).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    file
}

fn inspect(file: &Path, more: &[&str]) -> (i32, String) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command.args(["inspect", "--root"]).arg(root).arg(file);
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(more).output().unwrap();
    let text = String::from_utf8([stdout, stderr].concat()).unwrap();
    (status.code().unwrap(), text)
}

#[test]
fn inspect_says_which_gpus_a_file_holds_code_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut two = fatbin(90);
    two.extend(fatbin(80));
    let file = library(dir.path(), Some(&two), "80;90");
    let (code, text) = inspect(&file, &[]);
    assert_eq!(code, 0, "{text}");
    let wanted = "code for sm_80 (1), sm_90 (1), PTX for compute_80 (1), compute_90 (1)";
    assert!(text.contains(wanted), "{text}");
    let (code, text) = inspect(&file, &["--json"]);
    assert_eq!(code, 0, "{text}");
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    let found = &json["data"]["files"][0]["file"]["cuda"];
    assert_eq!(found["cubins"]["90"], 1, "{text}");
    assert_eq!(found["compressed"], 4);
}

#[test]
fn code_for_other_gpus_than_the_stamps_is_a_finding() {
    let dir = tempfile::tempdir().unwrap();
    let whole = fatbin(90);
    for (section, stamp, says) in [
        (
            Some(&whole[..]),
            "80",
            "holds code for sm_90, where sm_80 is wanted",
        ),
        (
            Some(&whole[..]),
            "90-real",
            "holds PTX for sm_90, where none is wanted",
        ),
        (Some(&whole[..]), "80;90", "where sm_80, sm_90 is wanted"),
        (Some(&whole[..50]), "90", "the container is cut off"),
        (Some(&b"garbage!"[..]), "90", "no container begins there"),
        (
            Some(&whole[..]),
            "something",
            "its stamp says CMAKE_CUDA_ARCHITECTURES=something",
        ),
        (None, "90", "holds no code for GPUs"),
    ] {
        let file = library(dir.path(), section, stamp);
        let (code, text) = inspect(&file, &[]);
        assert_eq!(code, 1, "{text}");
        assert!(text.contains(says), "{says}: {text}");
    }
}

/// A checkout with a gate on CUDA and two fake servers, on a machine whose driver is a script.
struct Gate(tempfile::TempDir);

impl Gate {
    fn new() -> Self {
        let gate = Gate(tempfile::tempdir().unwrap());
        for folder in ["registry", "gates", "tools"] {
            std::fs::create_dir_all(gate.path(folder)).unwrap();
        }
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let tools = "registry/toolchains.toml";
        std::fs::copy(root.join(tools), gate.path(tools)).unwrap();
        let base = format!(
            "schema = 1\ndefault = \"toy\"\n[[base]]\nid = \"toy\"\ntree = \"{}\"\n",
            "0".repeat(64)
        );
        for (name, text) in [
            ("registry/upstreams.toml", &*base),
            ("registry/series.toml", "schema = 1\n[series]\n"),
            ("model.gguf", "GGUF"),
            (
                "gates/g.toml",
                "schema = 1\nid = \"g\"\nkind = \"chash\"\ntitle = \"Same\"\nbackend = \"cuda\"\n\
                 model = { path = \"model.gguf\" }\nn-max = [2]\nslots = [1]\nn-predict = 8\n\
                 limits = { start = 30, request = 30, stop = 1 }\n\
                 baseline = { server = \"a/llama-server\" }\ncandidate = { server = \"b/llama-server\" }\n\
                 prompt = [{ name = \"a\", ids = [5, 6] }]\n",
            ),
        ] {
            std::fs::write(gate.path(name), text).unwrap();
        }
        for side in ["a", "b"] {
            fake_server::install(&gate.path(side), "good", &gate.path("pids"), "");
        }
        gate
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Runs it where `nvidia-smi` prints `gpus`, or is not there.
    fn run(&self, gpus: Option<&str>) -> (i32, String) {
        let tool = self.path("tools/nvidia-smi");
        if let Some(gpus) = gpus {
            std::fs::write(&tool, format!("#!/bin/sh\nprintf '{gpus}'\n")).unwrap();
            std::fs::set_permissions(&tool, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.args(["gate", "--unstamped", "--gate", "g", "--root"]);
        command.arg(self.0.path());
        command.env("LLAMA_PATCHSET_CACHE", self.path("cache"));
        command.env(
            "PATH",
            format!("{}:/usr/bin:/bin", self.path("tools").display()),
        );
        command.env_remove("CUDA_VISIBLE_DEVICES");
        command.env_remove("CUDA_DEVICE_ORDER");
        let output = command.output().unwrap();
        let text = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        (output.status.code().unwrap(), text)
    }

    #[track_caller]
    fn says(&self, gpus: &str, code: i32, part: &str) {
        let (found, text) = self.run(Some(gpus));
        assert_eq!(found, code, "{text}");
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}

/// What is past these checks: the fake servers know nothing of devices.
const STARTED: &str = "the server was to compute on CUDA0";

#[test]
fn a_gate_starts_no_server_that_this_machine_cannot_run() {
    let gate = Gate::new();
    if !Path::new("/dev/nvidia0").exists() && !Path::new("/dev/dxg").exists() {
        let (code, text) = gate.run(None);
        assert_eq!(code, 2, "{text}");
        assert!(text.contains("no GPU for cuda"), "{text}");
    }
    for side in ["a", "b"] {
        library(&gate.path(side), Some(&fatbin(90)), "90");
    }
    gate.says("9.0, 580.95.05\\n", 1, STARTED);
    gate.says(
        "8.0, 580.95.05\\n",
        2,
        "libggml-cuda.so holds code for sm_90",
    );
    gate.says(
        "9.0, 535.104.05\\n",
        2,
        "CUDA 13.0.88 is too new for the driver 535.104.5",
    );
    // Of the candidate alone.
    library(&gate.path("b"), Some(&fatbin(80)), "80");
    gate.says("9.0, 580.95.05\\n", 1, STARTED);
    let b = gate.path("b");
    file(&b, "libggml-cuda.so", Some(&fatbin(120)), "120", "13.0.88");
    gate.says("9.0, 580.95.05\\n", 2, "holds code for sm_120");
    file(&b, "libggml-cuda.so", Some(&fatbin(90)), "90", "14.0.1");
    gate.says("9.0, 535.104.05\\n", 2, "CUDA 13.0.88 is too new");
    std::fs::remove_file(gate.path("a/libggml-cuda.so")).unwrap();
    gate.says("9.0, 535.104.05\\n", 2, "CUDA 14.0.1 is too new");
    // The code of a static server is inside it.
    std::fs::remove_file(b.join("libggml-cuda.so")).unwrap();
    gate.says("8.0, 580.95.05\\n", 1, STARTED);
    file(&b, "llama-server", Some(&fatbin(90)), "90", "13.0.88");
    gate.says("8.0, 580.95.05\\n", 2, "llama-server holds code for sm_90");
    gate.says("9.0, 535.104.05\\n", 2, "CUDA 13.0.88 is too new");
    // Of several GPUs the gate's own counts.
    file(&b, "llama-server", Some(&fatbin(80)), "80", "13.0.88");
    let text = std::fs::read_to_string(gate.path("gates/g.toml")).unwrap();
    gate.says("8.0, 580.95.05\\n7.5, 580.95.05\\n", 1, STARTED);
    let second = text.replace("n-max", "device = { index = 1 }\nn-max");
    std::fs::write(gate.path("gates/g.toml"), second).unwrap();
    gate.says(
        "8.0, 580.95.05\\n7.5, 580.95.05\\n",
        2,
        "GPU 1 of this machine does not run, sm_75",
    );
    gate.says("7.5, 580.95.05\\n8.0, 580.95.05\\n", 1, STARTED);
}
