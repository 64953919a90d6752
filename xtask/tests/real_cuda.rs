//! What `cargo xtask build --backend cuda --arch 90 --probe` left, and what a build for CUDA refuses on a real tree.
//! Runs under `cargo xtask test`, where that was run before; where CI is set, it must have been. No GPU is needed.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ci.rs"]
mod ci;
#[path = "support/real.rs"]
mod real;
#[allow(dead_code)]
mod toy;

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::build::cuda::{self, fatbin};
use llama_patchset::build::{self, Build};
use llama_patchset::gate::artifacts::elf::Elf;
use llama_patchset::inspect::inspect;
use llama_patchset::model::Flavour;
use real::root;
use toy::Toy;

fn library() -> PathBuf {
    root().join("target/llama/llama-0.5.0/patched-cuda-probe/out/probe/libggml-cuda.so")
}

fn wanted(test: &str) -> bool {
    if !real::wanted(test) {
        return false;
    }
    let is_there = library().is_file();
    if !is_there {
        assert!(!ci::on_ci(), "{test}: no probe for CUDA, and CI is set");
        let _ = writeln!(
            std::io::stderr(),
            "{test} is left out, since `cargo xtask build --backend cuda --arch 90 --probe` was not run"
        );
    }
    is_there
}

#[test]
fn the_probe_holds_code_for_its_gpu_alone() {
    if !wanted("the_probe_holds_code_for_its_gpu_alone") {
        return;
    }
    let bytes = std::fs::read(library()).unwrap();
    let images = fatbin::read(&bytes).unwrap().unwrap();
    let of = |map: &std::collections::BTreeMap<String, usize>| {
        map.iter()
            .map(|(name, count)| (name.clone(), *count))
            .collect::<Vec<_>>()
    };
    assert_eq!(of(&images.cubins), [("90".to_owned(), 2)]);
    assert_eq!(of(&images.ptx), [("90".to_owned(), 2)]);
    assert!(images.bytes > 10_000);
    let elf = Elf::read(&library()).unwrap().unwrap();
    for name in ["libcuda.so.1", "libcudart.so.", "libcublas.so."] {
        assert!(
            elf.needed.iter().any(|needed| needed.starts_with(name)),
            "{name}: {:?}",
            elf.needed
        );
    }
    // Kernels' entry points by the names that the backend calls them by.
    assert!(
        elf.exports
            .iter()
            .any(|name| name.contains("ggml_cuda_argmax")),
        "{:?}",
        elf.exports
    );
    // A driver's library that is only a stand-in must not be found when a program runs.
    for folder in &elf.search {
        assert!(!Path::new(folder).join("libcuda.so.1").exists(), "{folder}");
    }
}

/// A folder with `nvcc` and `nvidia-smi` that say this.
fn tools(dir: &Path, release: &str, gpu: &str) {
    std::fs::create_dir_all(dir.join("bin")).unwrap();
    let nvcc = format!("release {release}, V{release}.1\ncompute_80 compute_90\n");
    for (name, text) in [("nvcc", &*nvcc), ("nvidia-smi", gpu)] {
        let file = dir.join("bin").join(name);
        std::fs::write(&file, format!("#!/bin/sh\ncat <<'E'\n{text}E\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

#[test]
fn what_cannot_be_is_said_before_anything_is_compiled() {
    if !wanted("what_cannot_be_is_said_before_anything_is_compiled") {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    for (release, gpu, arch, says) in [
        ("13.0", "", "native", "this machine has no GPU of NVIDIA's"),
        ("13.0", "", "sm_90", "`sm_90` is no architecture"),
        ("13.0", "", "70", "CUDA 13.0.1 does not compile for sm_70"),
        ("11.5", "", "90", "toolkit 11.5.1 at"),
        (
            "13.0",
            "9.0, 535.104.05\n",
            "native",
            "too new for the driver 535.104.5",
        ),
    ] {
        tools(dir.path(), release, gpu);
        let path = format!(
            "{}:{}",
            dir.path().join("bin").display(),
            std::env::var("PATH").unwrap()
        );
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args([
                "build",
                "--backend",
                "cuda",
                "--probe",
                "--vanilla",
                "--arch",
                arch,
                "--root",
            ])
            .arg(root())
            .env("CUDA_PATH", dir.path())
            .env("PATH", path)
            .output()
            .unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(says), "{says}: {text}");
        assert!(!text.contains("configuring"), "{text}");
    }
}

const LISTS: &str = r#"
cmake_minimum_required(VERSION 3.18)
project(toy C CXX CUDA)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
option(GGML_CUDA "the backend" OFF)
option(GGML_NATIVE "an option with a default" ON)
find_package(CUDAToolkit REQUIRED)
add_library(ggml-cuda SHARED kernel.cu)
set_target_properties(ggml-cuda PROPERTIES VERSION 0.1.2 SOVERSION 0)
target_link_libraries(ggml-cuda PRIVATE CUDA::cudart CUDA::cuda_driver)
include(extra.cmake OPTIONAL)
add_executable(demo main.cpp)
target_link_libraries(demo ggml-cuda)
"#;

const KERNEL: &str = r#"
#include <cuda.h>
static __global__ void twice(float * x) { x[threadIdx.x] *= 2; }
extern "C" const char * run(float * x) { twice<<<1, 32>>>(x); cuInit(0); return __FILE__; }
"#;

/// A small tree with the toolkit of the probe.
fn small() -> (Toy, PathBuf) {
    let toy = Toy::new();
    toy.write("CMakeLists.txt", LISTS);
    toy.write("kernel.cu", KERNEL);
    toy.write(
        "main.cpp",
        "extern \"C\" const char * run(float *);\nint main() { return run(nullptr) == nullptr; }\n",
    );
    let asked = root().join("target/llama/llama-0.5.0/patched-cuda-probe/configure.json");
    let asked: serde_json::Value = serde_json::from_slice(&std::fs::read(asked).unwrap()).unwrap();
    let toolkit = PathBuf::from(asked["cuda"]["root"].as_str().unwrap());
    // One of the cache is found in this checkout's cache, too; an installed one is found anyway.
    if let Some(tools) = toolkit.ancestors().find(|dir| dir.ends_with("tools")) {
        std::fs::create_dir_all(toy.ctx.project.cache()).unwrap();
        std::os::unix::fs::symlink(tools, toy.ctx.project.cache().join("tools")).unwrap();
    }
    (toy, toolkit)
}

fn built(toy: &Toy, arch: Option<&str>) -> llama_patchset::Result<Build> {
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.backend = "cuda".to_owned();
    recipe.cuda.gpus = arch.map(|arch| cuda::wish(arch).unwrap());
    build::build(&toy.ctx, &recipe, false)
}

/// All that a whole build does, but for the hour: a tree of one kernel.
#[test]
fn a_small_tree_is_built_for_the_gpus_that_are_asked_for() {
    if !wanted("a_small_tree_is_built_for_the_gpus_that_are_asked_for") {
        return;
    }
    let (toy, _) = small();
    let first = built(&toy, Some("90")).unwrap();
    let manifest = &first.manifest;
    assert_eq!(manifest.flags["CMAKE_CUDA_ARCHITECTURES"], "90");
    assert_eq!(manifest.compilers["CUDA"].id, "NVIDIA");
    assert_eq!(
        manifest.backend_tools["cuda"],
        manifest.compilers["CUDA"].version
    );
    let library = first.dir.join("out/bin/libggml-cuda.so.0.1.2");
    let found = inspect(&library).unwrap();
    assert!(found.manifest.is_some());
    assert_eq!(found.cuda.as_ref().unwrap().cubins["90"], 1);
    assert!(
        found.needed.iter().any(|name| name == "libcuda.so.1"),
        "{:?}",
        found.needed
    );
    // No path of this machine, but for where libraries are looked for.
    let bytes = std::fs::read(&library).unwrap();
    let own = toy.ctx.project.root().display().to_string();
    assert!(
        memchr::memmem::find(&bytes, own.as_bytes()).is_none(),
        "{own}"
    );

    // Without a wish it is as before; another one is another build.
    let again = built(&toy, None).unwrap();
    assert_eq!(again.manifest, first.manifest);
    let other = built(&toy, Some("80;90-virtual")).unwrap();
    let images = inspect(&library).unwrap().cuda.unwrap();
    assert_eq!((images.cubins.len(), images.cubins["80"]), (1, 1));
    assert_eq!(images.ptx.keys().collect::<Vec<_>>(), ["80", "90"]);
    assert_ne!(other.manifest.artifacts, first.manifest.artifacts);

    // A build file that knows better than its user.
    toy.write(
        "extra.cmake",
        "set_property(TARGET ggml-cuda PROPERTY CUDA_ARCHITECTURES 75)\n",
    );
    let error = built(&toy, Some("90")).unwrap_err();
    assert_eq!(error.kind(), llama_patchset::Kind::Finding);
    assert!(
        error
            .message()
            .contains("holds code for sm_75, where sm_90 is wanted"),
        "{error}"
    );
    assert!(!first.dir.join("build.json").exists(), "it is no build");
}

#[test]
fn without_a_compiler_cache_no_path_of_this_machine_is_in_it_either() {
    if !wanted("without_a_compiler_cache_no_path_of_this_machine_is_in_it_either") {
        return;
    }
    let (toy, _) = small();
    let registry = toy.ctx.project.registry("toolchains.toml");
    let text = std::fs::read_to_string(&registry).unwrap();
    std::fs::write(
        &registry,
        text.replace("[\"ccache\", \"sccache\"]", "[\"no-cache\"]"),
    )
    .unwrap();
    let build = built(&toy, Some("90-real")).unwrap();
    assert_eq!(build.manifest.launcher, None);
    let library = build.dir.join("out/bin/libggml-cuda.so.0.1.2");
    let images = inspect(&library).unwrap().cuda.unwrap();
    assert_eq!((images.cubins.len(), images.ptx.len()), (1, 0));
    let bytes = std::fs::read(&library).unwrap();
    let own = toy.ctx.project.root().display().to_string();
    assert!(
        memchr::memmem::find(&bytes, own.as_bytes()).is_none(),
        "{own}"
    );
}
