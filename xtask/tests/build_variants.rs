//! Variants of a build, and flags that do not hold, on a toy project with real CMake, Ninja and compilers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[allow(dead_code)]
mod toy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use llama_patchset::build::lookup::{Lookup, Machine};
use llama_patchset::build::{self, Build, drift, provenance, stamp};
use llama_patchset::inspect::inspect;
use llama_patchset::model::{Flavour, Libraries, Profile, Variant};
use llama_patchset::{Error, Kind, Result};
use toy::Toy;

/// This machine with a variable of the user's.
struct With(&'static str, &'static str);

impl Lookup for With {
    fn find(&self, name: &str) -> Option<PathBuf> {
        Machine.find(name)
    }
    fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
        Machine.output(program, args)
    }
    fn var(&self, name: &str) -> Option<String> {
        match name == self.0 {
            true => Some(self.1.to_owned()),
            false => Machine.var(name),
        }
    }
    fn free_space(&self, path: &Path) -> Option<u64> {
        Machine.free_space(path)
    }
    fn writable(&self, path: &Path) -> bool {
        Machine.writable(path)
    }
}

fn built(toy: &Toy, variant: Variant) -> Result<Build> {
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.variant = variant;
    build::build(&toy.ctx, &recipe, false)
}

#[test]
fn a_variant_has_a_folder_options_and_a_stamp_of_its_own() {
    let toy = Toy::new();
    let plain = built(&toy, Variant::default()).unwrap();
    let stamp = |build: &Build| {
        provenance::require(&build.program("demo"))
            .unwrap()
            .unwrap()
    };
    assert!(stamp(&plain).variant.is_plain());
    for (variant, suffix, has, lacks) in [
        (Variant::of(Profile::Debug), "-debug", " -g ", " -O3 "),
        (
            Variant::of(Profile::Asan),
            "-asan",
            " -fsanitize=address ",
            " -DNDEBUG ",
        ),
        (
            Variant::of(Profile::Ubsan),
            "-ubsan",
            " -fno-sanitize-recover=undefined ",
            " -O3 ",
        ),
    ] {
        let other = built(&toy, variant).unwrap();
        let name = other.dir.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("vanilla-cpu{suffix}"));
        assert_eq!(other.manifest.variant, variant);
        assert_eq!(stamp(&other).variant, variant);
        assert!(stamp(&other).summary().contains(suffix));
        let commands = fs::read_to_string(other.dir.join("out/compile_commands.json")).unwrap();
        assert!(
            commands.contains(has) && !commands.contains(lacks),
            "{commands}"
        );
        if variant.profile.sanitizer().is_some() {
            assert!(commands.contains(" -O1 -g1 "), "{commands}");
        }
        assert_eq!(drift::check(&other).unwrap(), []);
        let ran = Command::new(other.program("demo")).output().unwrap();
        assert!(ran.status.success());
        let found = Build::find_variant(&toy.ctx, "toy", Flavour::Vanilla, "cpu", variant);
        assert_eq!(found.unwrap().unwrap().manifest, other.manifest);
        // Two that were made differently are no comparison.
        assert!(!build::compare_flags(&plain.manifest, &other.manifest).is_empty());
    }
    assert_eq!(build::check(&plain).unwrap(), []);
    let names: Vec<String> = Build::all(&toy.ctx, "toy")
        .unwrap()
        .iter()
        .map(|build| build.manifest.name())
        .collect();
    assert_eq!(names.len(), 4, "{names:?}");
}

#[test]
fn static_libraries_are_inside_the_programs() {
    let toy = Toy::new();
    let lists = fs::read_to_string(toy.source.join("CMakeLists.txt")).unwrap();
    toy.write("CMakeLists.txt", &lists.replace("part SHARED", "part"));
    for flavour in [Flavour::Vanilla, Flavour::Patched] {
        let mut recipe = toy.recipe(flavour);
        recipe.variant.libraries = Libraries::Static;
        let build = build::build(&toy.ctx, &recipe, false).unwrap();
        let name = build.dir.file_name().unwrap().to_str().unwrap();
        assert_eq!(name, format!("{}-cpu-static", flavour));
        assert_eq!(build.manifest.flags["BUILD_SHARED_LIBS"], "OFF");
        let artifacts = build.manifest.artifacts.iter();
        let names: Vec<&str> = artifacts.map(|artifact| &*artifact.path).collect();
        assert_eq!(names, ["out/bin/demo"]);
        let found = inspect(&build.program("demo")).unwrap();
        assert_eq!(found.provenance.variant, recipe.variant);
        let own = found.needed.iter().find(|name| name.contains("part"));
        assert_eq!(own, None, "{:?}", found.needed);
        // It runs alone, and says of which patch set it is.
        let elsewhere = tempfile::tempdir().unwrap();
        let program = elsewhere.path().join("demo");
        fs::copy(build.program("demo"), &program).unwrap();
        let said = Command::new(&program).output().unwrap().stdout;
        let id = recipe.patchset.as_ref().map(|set| set.id.to_string());
        let id = id.unwrap_or_else(|| "unstamped".to_owned());
        let wanted = format!("../src/part.c {} ../src/main.cpp", &id[..1]);
        assert_eq!(String::from_utf8(said).unwrap(), wanted);
        assert_eq!(stamp::read(&build.program("demo")).unwrap(), Some(id));
        assert_eq!(drift::check(&build).unwrap(), []);
    }
}

fn refused(result: Result<Build>, parts: &[&str]) -> Error {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), Kind::Finding, "{error}");
    for part in parts {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert!(!error.hints().is_empty(), "{error}");
    error
}

/// The toy's build file with lines behind the one that names the project.
fn with_lines(toy: &Toy, lines: &str) {
    let path = toy.source.join("CMakeLists.txt");
    let text = fs::read_to_string(&path).unwrap();
    let project = "project(toy C CXX)\n";
    toy.write(
        "CMakeLists.txt",
        &text.replace(project, &format!("{project}{lines}\n")),
    );
}

#[test]
fn flags_that_do_not_hold_are_refused_and_leave_no_manifest() {
    for (lines, variant, parts) in [
        (
            "set(CMAKE_BUILD_TYPE Debug CACHE STRING \"\" FORCE)",
            Variant::default(),
            &["CMAKE_BUILD_TYPE: asked for Release, cached as Debug"][..],
        ),
        (
            "unset(CMAKE_EXPORT_COMPILE_COMMANDS CACHE)\nset(CMAKE_EXPORT_COMPILE_COMMANDS ON)",
            Variant::default(),
            &["CMAKE_EXPORT_COMPILE_COMMANDS: asked for ON, not in the cache"],
        ),
        (
            "set(CMAKE_C_FLAGS \"\")",
            Variant::of(Profile::Asan),
            &["profile asan: asked for -fsanitize=address, 1 of 2 commands lack it"],
        ),
        (
            "add_compile_options(-fsanitize=undefined)",
            Variant::default(),
            &["asked for no sanitizer, 2 commands have -fsanitize=undefined"],
        ),
    ] {
        let toy = Toy::new();
        let sound = fs::read_to_string(toy.source.join("CMakeLists.txt")).unwrap();
        with_lines(&toy, lines);
        let kind = format!("cpu{}", variant.suffix());
        let dir = toy.ctx.project.build_dir("toy", Flavour::Vanilla, &kind);
        // Again: what was refused is not taken for configured.
        for _ in 0..2 {
            refused(built(&toy, variant), parts);
            assert!(!dir.join("build.log").exists(), "{lines}: it compiled");
        }
        let found = Build::find_variant(&toy.ctx, "toy", Flavour::Vanilla, "cpu", variant);
        assert!(found.unwrap().is_none(), "{lines}");
        // Nor is what is mended refused for what it was.
        toy.write("CMakeLists.txt", &sound);
        built(&toy, variant).unwrap();
    }
}

#[test]
fn an_option_that_no_build_file_reads_is_refused() {
    let toy = Toy::new();
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.variant.processors = llama_patchset::model::Processors::All;
    let error = build::build(&toy.ctx, &recipe, false);
    refused(
        error,
        &["GGML_CPU_ALL_VARIANTS: asked for ON, no build file of the tree reads it"],
    );
    recipe.variant.libraries = Libraries::Static;
    let error = build::build(&toy.ctx, &recipe, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "{error}");
}

#[test]
fn what_is_for_all_processors_is_not_narrowed_by_the_users_flags() {
    let toy = Toy::new();
    with_lines(
        &toy,
        "option(GGML_CPU_ALL_VARIANTS \"\" OFF)\noption(GGML_BACKEND_DL \"\" OFF)",
    );
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.variant.processors = llama_patchset::model::Processors::All;
    let build = |with: With| build::build_with(&toy.ctx, &with, &recipe, false);
    if cfg!(target_arch = "x86_64") {
        refused(
            build(With("CXXFLAGS", "-march=x86-64-v3")),
            &[
                "GGML_CPU_ALL_VARIANTS: asked for ON, 1 commands",
                "have -march=x86-64-v3",
            ],
        );
    }
    let built = build(With("CXXFLAGS", "-DX")).unwrap();
    assert!(!toy.record.take().iter().any(|said| said.contains("judged")));
    // One of which nobody here knows what it promises is said.
    let lists = fs::read_to_string(toy.source.join("CMakeLists.txt")).unwrap();
    let other = "add_library(ggml-cpu-power9 OBJECT part.c)\n";
    toy.write("CMakeLists.txt", &format!("{lists}{other}"));
    toy.write("new.c", "");
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.variant = built.manifest.variant;
    build::build(&toy.ctx, &recipe, false).unwrap();
    let said = toy.record.take();
    let judged = said.iter().filter(|said| said.contains("judged"));
    assert_eq!(judged.count(), 1, "{said:?}");
    // It is for no processor of its own.
    assert_eq!(built.manifest.surroundings.processor, None);
}

#[test]
fn variables_that_steer_compilers_are_part_of_a_build() {
    let toy = Toy::new();
    let patched = toy.build(Flavour::Patched).unwrap().manifest;
    let recipe = toy.recipe(Flavour::Vanilla);
    for name in ["CPATH", "GCC_EXEC_PREFIX"] {
        let with = With(name, "/nonexistent");
        let vanilla = build::build_with(&toy.ctx, &with, &recipe, false).unwrap();
        let told: Vec<String> = build::compare_flags(&vanilla.manifest, &patched)
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(told, [format!("variable {name}: /nonexistent and not set")]);
        let found = inspect(&vanilla.program("demo")).unwrap().provenance;
        // The file goes where others read it.
        let value = &found.surroundings.variables[name];
        assert!(value.starts_with("sha256 "), "{value}");
    }
}

#[test]
fn words_of_the_users_that_another_one_makes_void_are_refused() {
    let toy = Toy::new();
    let recipe = toy.recipe(Flavour::Vanilla);
    let build = |with: With| build::build_with(&toy.ctx, &with, &recipe, false);
    refused(
        build(With("CFLAGS", "-O0 -DX")),
        &["CFLAGS: asked for -O0, -O3 follows"],
    );
    if cfg!(target_arch = "x86_64") {
        refused(
            build(With("CXXFLAGS", "-mavx2")),
            &["CXXFLAGS: asked for -mavx2, GGML_NATIVE=ON"],
        );
    }
    refused(
        build(With("CXXFLAGS", "-fsanitize=undefined")),
        &["profile release: asked for no sanitizer, 1 commands have"],
    );
    build(With("CFLAGS", "-O3 -DX")).unwrap();
}
