//! What `verify` finds on a toy base.

use std::fs;

use super::*;
use crate::model::{Artifact, BuildManifest, Digest, Flavour};
use crate::patchset::{apply, refresh};
use crate::toy::{HOOK, Toy, put};

fn apply_all(toy: &Toy) {
    apply(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        toy.load().patches.len(),
        false,
    )
    .unwrap();
}

#[test]
fn verify_finds_drift_in_registry_and_tree() {
    let toy = Toy::with_two_patches();
    let loaded = toy.load();
    let findings = |toy: &Toy| {
        let result = series(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
        result
            .findings
            .into_iter()
            .map(|f| format!("{}: {}", f.part, f.what))
            .collect::<Vec<_>>()
    };
    assert_eq!(findings(&toy), ["registry: registry/hooks.toml is missing"]);
    assert_eq!(refresh(&toy.ctx, &toy.pristine, &loaded).unwrap().len(), 2);
    assert!(
        refresh(&toy.ctx, &toy.pristine, &loaded)
            .unwrap()
            .is_empty(),
        "stable"
    );
    apply_all(&toy);
    assert_eq!(findings(&toy), [""; 0]);

    // What is recorded of a base that is gone.
    let registry = toy.root().join("registry/hooks.toml");
    let text = fs::read_to_string(&registry).unwrap();
    put(
        &registry,
        &text.replacen("base = \"toy\"", "base = \"old\"", 1),
    );
    assert_eq!(
        findings(&toy),
        ["registry: it records the base old, which is gone"]
    );
    refresh(&toy.ctx, &toy.pristine, &loaded).unwrap();
    assert_eq!(fs::read_to_string(&registry).unwrap(), text);

    // One flipped byte in a patched file, and one in a file that no patch touches.
    put(&toy.tree().join("src/hook.c"), "void hook() {;\n");
    put(&toy.tree().join("src/other.c"), "int Other;\n");
    let found = findings(&toy);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("tree: vendor/toy/src/hook.c: expected sha256 "));
    assert!(found[1].starts_with("tree: vendor/toy/src/other.c: expected sha256 "));
    let loaded = toy.load();
    apply(&toy.ctx, &toy.pristine, &loaded, 2, true).unwrap();
    assert_eq!(findings(&toy), [""; 0]);

    // A hook without marker, and a deleted line that nobody allowed.
    toy.patch("first", &HOOK.replace("// opencoti-hook: first", ""), &[]);
    let found = findings(&toy).join("\n");
    assert!(
        found.contains("the hook at src/main.c:3 has no marker"),
        "{found}"
    );
    assert!(found.contains("registry: hook of first"), "{found}");
    toy.series(&["first"]);
    let deleting = HOOK
        .replace("     one();", "-    one();")
        .replace("+1,6", "+1,5");
    toy.patch("first", &deleting, &[]);
    let found = findings(&toy).join("\n");
    assert!(
        found.contains("delete 1 upstream line, 0 are allowed"),
        "{found}"
    );
}

#[test]
fn a_gate_that_is_not_there_is_a_finding() {
    let toy = Toy::with_two_patches();
    let file = toy.root().join("patches/first/patch.toml");
    let text = fs::read_to_string(&file).unwrap();
    put(&file, &text.replace("chash", "chahs"));
    let missing = |toy: &Toy| {
        let result = series(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
        let gate = |finding: &&Finding| finding.what.contains("no gate `chahs`");
        result.findings.iter().filter(gate).count()
    };
    assert_eq!(missing(&toy), 1);
    put(&toy.root().join("gates/chahs.toml"), "id = \"chahs\"\n");
    assert_eq!(missing(&toy), 0);
}

#[test]
fn every_finished_build_of_the_base_is_hashed_whatever_its_backend() {
    let toy = Toy::with_two_patches();
    let build = |flavour, backend: &str| {
        let dir = toy.ctx.project.build_dir("toy", flavour, backend);
        put(&dir.join("out/bin/server"), "\u{7f}ELF");
        let manifest = BuildManifest {
            schema: 1,
            base: "toy".to_owned(),
            tree: Digest::of(b""),
            flavour,
            backend: backend.to_owned(),
            variant: Default::default(),
            patchset: None,
            source: Digest::of(b""),
            flags: Default::default(),
            compilers: Default::default(),
            cmake: String::new(),
            ninja: String::new(),
            launcher: None,
            backend_tools: Default::default(),
            surroundings: Default::default(),
            artifacts: vec![Artifact {
                path: "out/bin/server".to_owned(),
                size: 4,
                sha256: Digest::of(b"\x7fELF"),
                content: None,
            }],
        };
        crate::model::write_json(&dir.join("build.json"), &manifest).unwrap();
        let mut beside = manifest;
        beside.artifacts[0].path = "server".to_owned();
        let file = dir.join("out/bin").join(crate::build::BESIDE);
        crate::model::write_json(&file, &beside).unwrap();
        dir
    };
    let checked = || {
        let mut out = Verification::default();
        check_builds(&toy.ctx, &toy.pristine.base, &mut out).unwrap();
        out
    };
    assert!(checked().checked.is_empty());
    build(Flavour::Vanilla, "cpu");
    let other = build(Flavour::Patched, "cuda");
    // One that was never finished has no manifest.
    let builds = toy.ctx.project.builds("toy");
    put(&builds.join("vanilla-cuda/out/bin/server"), "half");
    let good = checked();
    assert_eq!(good.findings, []);
    assert_eq!(
        good.checked,
        [
            "build: 1 artifact of target/llama/toy/patched-cuda",
            "build: 1 artifact of target/llama/toy/vanilla-cpu",
        ]
    );
    put(&other.join("out/bin/server"), "\u{7f}ELf");
    let found = checked().findings;
    assert_eq!(found.len(), 1);
    let start = "target/llama/toy/patched-cuda/out/bin/server: expected sha256 ";
    assert!(found[0].what.starts_with(start), "{found:?}");
    let again = "cargo xtask build --patched --backend cuda makes it again";
    assert_eq!(found[0].hint, again);
}
