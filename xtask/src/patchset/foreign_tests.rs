//! Trees, inputs and state files that are not as this program leaves them.

use std::fs;

use super::tests::apply_all;
use super::*;
use crate::Kind;
use crate::toy::{Toy, put};

#[test]
fn edits_of_every_kind_are_named_saved_and_taken_back() {
    use std::os::unix::fs::symlink;
    type Edit = fn(&std::path::Path);
    let edits: [(&str, Edit); 9] = [
        ("link for a hooked file", |tree| {
            fs::remove_file(tree.join("src/main.c")).unwrap();
            symlink("/etc/passwd", tree.join("src/main.c")).unwrap();
        }),
        ("link for another file", |tree| {
            fs::remove_file(tree.join("src/other.c")).unwrap();
            symlink("other", tree.join("src/other.c")).unwrap();
        }),
        ("new link", |tree| {
            symlink("/", tree.join("out")).unwrap();
        }),
        ("link for a folder", |tree| {
            fs::remove_dir_all(tree.join("src")).unwrap();
            symlink("/tmp", tree.join("src")).unwrap();
        }),
        ("folder for a file", |tree| {
            fs::remove_file(tree.join("src/other.c")).unwrap();
            put(&tree.join("src/other.c/deep/file"), "mine");
        }),
        ("empty folders for a file", |tree| {
            fs::remove_file(tree.join("src/other.c")).unwrap();
            fs::create_dir_all(tree.join("src/other.c/a/b")).unwrap();
        }),
        ("file for a folder", |tree| {
            fs::remove_dir_all(tree.join("src")).unwrap();
            put(&tree.join("src"), "mine");
        }),
        ("link for the state", |tree| {
            fs::remove_dir_all(tree.join(".patchset")).unwrap();
            symlink("/tmp", tree.join(".patchset")).unwrap();
        }),
        ("folder for an overlay file", |tree| {
            fs::remove_file(tree.join("deep/er/new.txt")).unwrap();
            put(&tree.join("deep/er/new.txt/x"), "mine");
        }),
    ];
    for (name, edit) in edits {
        for count in [0, 2] {
            let toy = Toy::with_two_patches();
            apply_all(&toy);
            let series = toy.load();
            let goal = apply(&toy.ctx, &toy.pristine, &series, count, false)
                .map(|_| toy.tree_digest())
                .unwrap();
            apply_all(&toy);
            edit(&toy.tree());
            let edited = toy.tree_digest();
            let to = |discard| apply(&toy.ctx, &toy.pristine, &series, count, discard);
            assert_eq!(to(false).unwrap_err().kind(), Kind::Finding, "{name}");
            assert_eq!(toy.tree_digest(), edited, "{name}: refused");
            let moved = to(true).unwrap_or_else(|error| panic!("{name}: {error}"));
            assert_eq!(toy.tree_digest(), goal, "{name}");
            let saved = toy.root().join(moved.saved_to.unwrap());
            let kept = crate::tree::TreeManifest::of_tree(&saved, |_| false).unwrap();
            assert_eq!(kept.is_empty(), name.starts_with("empty"), "{name}");
        }
    }
}

#[test]
fn a_repository_in_the_working_tree_is_none_of_our_business() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    put(&toy.tree().join(".git/config"), "mine");
    let series = toy.load();
    revert(&toy.ctx, &toy.pristine, &series, false).unwrap();
    assert_eq!(
        fs::read_to_string(toy.tree().join(".git/config")).unwrap(),
        "mine"
    );
    put(&toy.tree().join("sub/.git/config"), "not at the top");
    let error = revert(&toy.ctx, &toy.pristine, &series, false).unwrap_err();
    assert!(error.to_string().contains("sub/.git/config"), "{error}");
    assert!(!error.hints().is_empty());
}

#[test]
fn an_overlay_cannot_stand_on_a_folder_or_below_a_file() {
    for (first, second, words) in [
        ("x", "src/main.c/below", "src/main.c is a file"),
        ("x", "src", "src is a folder"),
        ("new", "new/below", "new is a file"),
        ("new/below", "new", "new is a folder"),
        ("x", ".patchset/state.json", "this program's own folder"),
    ] {
        let toy = Toy::new();
        toy.patch("first", "", &[(first, "1")]);
        toy.patch("second", "", &[(second, "2")]);
        toy.series(&["first", "second"]);
        let series = toy.load();
        let error = apply(&toy.ctx, &toy.pristine, &series, 2, false).unwrap_err();
        assert_eq!(error.kind(), Kind::Finding, "{second}: {error}");
        assert!(error.to_string().contains(words), "{second}: {error}");
        let result = crate::verify::series(&toy.ctx, &toy.pristine, &series).unwrap();
        let found = |finding: &crate::verify::Finding| {
            finding.part == "patch" && finding.what.contains(words)
        };
        assert!(result.findings.iter().any(found), "{second}");
    }
    let toy = Toy::new();
    toy.patch("first", "", &[("src/main.c.txt", "1"), ("sr", "2")]);
    toy.series(&["first"]);
    apply_all(&toy);
}

#[test]
fn an_input_that_is_a_link_is_refused() {
    let toy = Toy::with_two_patches();
    let file = toy.root().join("patches/first/patch.toml");
    let text = fs::read_to_string(&file).unwrap();
    put(&file, &format!("{text}inputs = [\"lib\"]\n"));
    put(&toy.root().join("lib/a.rs"), "");
    let before = toy.load().id;
    put(&toy.root().join("lib/a.rs"), "x");
    assert_ne!(toy.load().id, before);
    std::os::unix::fs::symlink("/etc/passwd", toy.root().join("lib/b.rs")).unwrap();
    let error = Series::load(&toy.ctx.project, &toy.pristine.base).unwrap_err();
    assert!(error.to_string().contains("symbolic link"), "{error}");
}

#[test]
fn a_registry_of_another_schema_is_not_read() {
    let toy = Toy::with_two_patches();
    let series = toy.load();
    refresh(&toy.ctx, &toy.pristine, &series).unwrap();
    let path = toy.root().join("registry/hooks.toml");
    let text = fs::read_to_string(&path).unwrap();
    put(&path, &text.replace("schema = 1", "schema = 2"));
    assert!(crate::verify::series(&toy.ctx, &toy.pristine, &series).is_err());
    assert!(refresh(&toy.ctx, &toy.pristine, &series).is_err());
    let path = toy.root().join("registry/upstreams.toml");
    let text = fs::read_to_string(&path).unwrap();
    for (from, to) in [
        ("schema = 1", "schema = 2"),
        (
            "[[base]]",
            "[[base]]\nid = \"toy\"\ntree = \"0000000000000000000000000000000000000000000000000000000000000000\"\n[[base]]",
        ),
    ] {
        put(&path, &text.replacen(from, to, 1));
        assert_eq!(toy.ctx.project.base(None).unwrap_err().kind(), Kind::Config);
    }
}

#[test]
fn a_state_that_tells_another_story_is_not_believed() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let path = toy.tree().join(".patchset/state.json");
    let good = fs::read_to_string(&path).unwrap();
    for (from, to) in [("\"second\"", "\"third\""), ("\"toy\"", "\"other\"")] {
        assert!(good.contains(from));
        put(&path, &good.replacen(from, to, 1));
        let working = applied(&toy.ctx, &toy.pristine).unwrap();
        assert_eq!(working.series.ids(), ["first", "second"]);
        apply_all(&toy);
        assert_eq!(fs::read_to_string(&path).unwrap(), good);
    }
    put(&path, "garbage");
    let error = applied(&toy.ctx, &toy.pristine).unwrap_err();
    let heals = |hint: &String| hint.contains("cargo xtask apply");
    assert!(error.hints().iter().any(heals), "{error:?}");
    apply_all(&toy);
    assert_eq!(fs::read_to_string(&path).unwrap(), good);
}

#[test]
fn a_working_tree_that_is_a_link_is_left_alone() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let elsewhere = toy.root().join("elsewhere");
    fs::rename(toy.tree(), &elsewhere).unwrap();
    let series = toy.load();
    for target in ["elsewhere", "nowhere"] {
        std::os::unix::fs::symlink(toy.root().join(target), toy.tree()).unwrap();
        let error = revert(&toy.ctx, &toy.pristine, &series, true).unwrap_err();
        assert!(error.to_string().contains("is no folder"), "{error}");
        assert!(elsewhere.join(".patchset/state.json").exists());
        fs::remove_file(toy.tree()).unwrap();
    }
}
