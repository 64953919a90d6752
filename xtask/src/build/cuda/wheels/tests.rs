//! A Python that only passes for one, and toolkits of a few bytes.

use super::*;
use crate::Kind;
use crate::build::lookup::fake::Fake;
use crate::build::testing::{Toy, toy_ctx};
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Stands in for python3 with pip, and for cc. What it was asked for is in `calls`; `broken` names a package
/// that it does not bring, `other` one that it brings with another content.
const SCRIPT: &str = r#"#!/bin/sh
cd "${0%/*}"
echo "$*" >>calls
dest= ; list= ; target= ; out=
while [ $# -gt 0 ]; do
    case $1 in
        --dest) dest=$2 ;; -r) list=$2 ;; --target) target=$2 ;; -o) out=$2 ;;
    esac
    shift
done
if [ -n "$dest" ]; then
    name=$(sed 's/==.*//' "$list")
    [ "$name" != "$(cat broken 2>/dev/null)" ] || { echo "ERROR: connection lost" >&2; exit 1; }
    mkdir -p "$dest"
    printf %s "$name" >"$dest/$name.whl"
    [ "$name" != "$(cat other 2>/dev/null)" ] || printf x >>"$dest/$name.whl"
elif [ -n "$target" ]; then
    mkdir -p "$target/nvidia/cu13/bin" "$target/nvidia/cu13/lib" "$target/nvidia/cu13/include"
    cd "$target/nvidia/cu13"
    printf '#!/bin/sh\necho release 13.0, V13.0.88\n' >bin/nvcc
    chmod 755 bin/nvcc
    touch lib/libcudart.so.13 lib/libcublas.so.13 lib/libcublasLt.so.13
    echo 'CUresult CUDAAPI cuInit(unsigned int Flags);' >include/cuda.h
elif [ -n "$out" ]; then
    echo stub >"$out"
fi
"#;

/// A made-up machine with a Python that does something.
struct Machine {
    fake: Fake,
    python: PathBuf,
}

impl Lookup for Machine {
    fn find(&self, name: &str) -> Option<PathBuf> {
        match name {
            "python3" => Some(self.python.clone()),
            name => self.fake.find(name),
        }
    }

    fn output(&self, program: &Path, _: &[&str]) -> Option<String> {
        program.is_file().then(|| "release 13.0".to_owned())
    }

    fn var(&self, name: &str) -> Option<String> {
        self.fake.var(name)
    }

    fn free_space(&self, path: &Path) -> Option<u64> {
        self.fake.free_space(path)
    }

    fn writable(&self, _: &Path) -> bool {
        true
    }
}

struct Setup {
    toy: Toy,
    machine: Machine,
    wanted: CudaTools,
}

impl Setup {
    fn new() -> Self {
        let toy = toy_ctx();
        let python = toy.dir.path().join("python3");
        fs::write(&python, SCRIPT).unwrap();
        fs::set_permissions(&python, fs::Permissions::from_mode(0o755)).unwrap();
        let mut wanted = crate::build::tools::tests::committed().cuda;
        wanted.wheels.truncate(3);
        for wheel in &mut wanted.wheels {
            let digest = Digest::of(wheel.package.as_bytes());
            wheel.sha256 = vec![digest, digest];
        }
        let fake = Fake::complete();
        Setup {
            toy,
            machine: Machine { fake, python },
            wanted,
        }
    }

    fn ensure(&self) -> Result<PathBuf> {
        let cc = &self.machine.python;
        ensure(&self.toy.ctx, &self.machine, &self.wanted, cc)
    }

    fn set(&self, name: &str, text: &str) {
        fs::write(self.toy.dir.path().join(name), text).unwrap();
    }

    fn downloads(&self) -> usize {
        let calls = fs::read_to_string(self.toy.dir.path().join("calls")).unwrap_or_default();
        calls
            .lines()
            .filter(|line| line.contains("pip download"))
            .count()
    }

    /// The error, after which nothing but what was fetched is there.
    fn refused(&self, parts: &[&str]) -> Error {
        let error = self.ensure().unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        for part in parts {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        assert!(!error.hints().is_empty(), "{error}");
        let tools = self.toy.ctx.project.cache().join("tools");
        for entry in fs::read_dir(tools).into_iter().flatten().flatten() {
            assert_eq!(entry.file_name(), ".cuda-lock");
        }
        error
    }
}

#[test]
fn a_toolkit_is_whole_or_not_there() {
    let setup = Setup::new();
    let root = setup.ensure().unwrap();
    assert_eq!(
        root,
        folder(&setup.toy.ctx, &setup.wanted).join("nvidia/cu13")
    );
    for name in [
        "lib64/libcudart.so",
        "lib/libcublas.so",
        "lib/libcublasLt.so",
        STUB,
    ] {
        assert!(root.join(name).is_file(), "{name}");
    }
    let stamp = fs::metadata(root.join("bin/nvcc"))
        .unwrap()
        .modified()
        .unwrap();
    let age = stamp.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    assert_eq!(age.as_secs(), 1_000_000_000);
    assert_eq!(setup.downloads(), 3);
    // It is there now: nothing is asked of anybody.
    fs::remove_file(&setup.machine.python).unwrap();
    assert_eq!(setup.ensure().unwrap(), root);
}

#[test]
fn what_was_fetched_before_a_failure_is_kept() {
    let setup = Setup::new();
    setup.set("broken", "nvidia-nvvm");
    let error = setup.refused(&["fetching nvidia-nvvm 13.0.88", "connection lost"]);
    assert!(error.hints()[0].contains("what was fetched is kept"));
    assert_eq!(setup.downloads(), 2);
    setup.set("broken", "");
    setup.ensure().unwrap();
    assert_eq!(setup.downloads(), 4, "the first was fetched twice");
}

#[test]
fn a_killed_run_leaves_nothing_that_is_used() {
    let setup = Setup::new();
    let tools = setup.toy.ctx.project.cache().join("tools");
    fs::create_dir_all(tools.join(".toolkit-dead/tree/nvidia")).unwrap();
    setup.ensure().unwrap();
    assert!(!tools.join(".toolkit-dead").exists());
}

#[test]
fn another_content_than_the_pinned_one_is_not_used() {
    let setup = Setup::new();
    setup.set("other", "nvidia-nvvm");
    let found = Digest::of(b"nvidia-nvvmx").to_string();
    setup.refused(&["fetching nvidia-nvvm 13.0.88", "not pinned", &found]);
    setup.set("other", "");
    // Nor is what somebody put there: it is fetched.
    let place = place(&setup.toy.ctx, &setup.wanted.wheels[1]);
    fs::create_dir_all(&place).unwrap();
    fs::write(place.join("nvvm.whl"), "cut off").unwrap();
    let before = setup.downloads();
    setup.ensure().unwrap();
    assert_eq!(setup.downloads(), before + 2);
}

#[test]
fn pips_own_word_of_another_digest_is_understood() {
    let wheel = &Setup::new().wanted.wheels[0];
    let text = "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n\
        \x20   nvidia-nvvm==13.0.88 from https://index.example/x.whl:\n\
        \x20       Expected sha256 aaaa\n\x20            Got        bbbb\n";
    let error = refusal(wheel, text);
    assert!(
        error
            .message()
            .contains("has sha256 bbbb, which is not pinned"),
        "{error}"
    );
    assert_eq!(error.kind(), Kind::Environment);
}

#[test]
fn refusing_says_why_and_asks_nobody() {
    let mut setup = Setup::new();
    setup.toy.ctx.offline = true;
    let error = setup.refused(&["nvidia-cuda-nvcc 13.0.88 is not in the cache", "--offline"]);
    let hints = error.hints().join("\n");
    assert!(
        hints.contains("CUDA_PATH") && hints.contains("downloads/"),
        "{hints}"
    );
    setup.toy.ctx.no_provision = true;
    setup.refused(&["--no-provision"]);
    setup.toy.ctx.no_provision = false;
    setup.toy.ctx.offline = false;
    setup.machine.fake.free = 1 << 30;
    setup.refused(&["no 2 GB left"]);
    assert_eq!(setup.downloads(), 0);
}

#[test]
fn what_is_kept_is_enough_without_a_network() {
    let mut setup = Setup::new();
    for wheel in &setup.wanted.wheels {
        let place = place(&setup.toy.ctx, wheel);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("any.whl"), &wheel.package).unwrap();
    }
    setup.toy.ctx.offline = true;
    setup.ensure().unwrap();
    assert_eq!(setup.downloads(), 0);
}

#[test]
fn other_pins_are_another_folder() {
    let toy = toy_ctx();
    let mut wanted = crate::build::tools::tests::committed().cuda;
    let one = folder(&toy.ctx, &wanted);
    assert!(one.starts_with(toy.ctx.project.cache()));
    wanted.wheels[0].version = "13.1".to_owned();
    assert_ne!(one, folder(&toy.ctx, &wanted));
    assert!(wanted.wheels.iter().all(|wheel| wheel.sha256.len() == 2));
}

#[test]
fn the_stand_in_defines_what_the_header_names() {
    let header = "#define cuMemGetInfo __CUDA_API_PTDS(cuMemGetInfo_v2)\nCUresult CUDAAPI cuInit(int);\n\
        typedef CUresult (CUDAAPI *cuda_fn)(curl);\n";
    let names: Vec<String> = stub_source(header)
        .lines()
        .map(|line| {
            line.replace("(void) { return 34; }", "")
                .replace("int ", "")
        })
        .collect();
    assert_eq!(names, ["cuInit", "cuMemGetInfo", "cuMemGetInfo_v2"]);
}
