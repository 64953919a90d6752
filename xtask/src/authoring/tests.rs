//! The authoring loop on a toy base.

use std::fs;

use super::*;
use crate::Kind;
use crate::patchset::{Images, Series, applied, apply};
use crate::toy::{Toy, put};
use crate::tree::{RelPath, fault};

fn rel(path: &str) -> RelPath {
    RelPath::new(path).unwrap()
}

fn go(toy: &Toy, count: usize) {
    apply(&toy.ctx, &toy.pristine, &toy.load(), count, false).unwrap();
}

fn main_c(toy: &Toy) -> String {
    fs::read_to_string(toy.tree().join("src/main.c")).unwrap()
}

/// What the whole series makes, by file.
fn result(toy: &Toy) -> Vec<(RelPath, Vec<u8>)> {
    let series = toy.load();
    let images = Images::compute(&toy.pristine, &series).unwrap();
    let at_end = |path: &RelPath| images.at(path, images.patches()).unwrap().content.clone();
    images
        .paths()
        .map(|path| (path.clone(), at_end(path)))
        .collect()
}

fn in_order(toy: &Toy) {
    let found = crate::verify::series(&toy.ctx, &toy.pristine, &toy.load())
        .unwrap()
        .findings;
    assert!(found.is_empty(), "{found:#?}");
}

fn recorded() -> Toy {
    let toy = Toy::with_two_patches();
    put(
        &toy.root().join("gates/chash.toml"),
        "schema = 1\nid = \"chash\"\n",
    );
    crate::patchset::refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    toy
}

#[test]
fn a_patch_from_its_first_edit_to_its_last() {
    let toy = recorded();
    new(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        "mine",
        "My \"patch\"",
        None,
    )
    .unwrap();
    go(&toy, 3);
    let edited = main_c(&toy).replace(
        "    return",
        "    mine(); // opencoti-hook: mine\n    return",
    );
    put(&toy.tree().join("src/main.c"), &edited);
    put(&toy.tree().join("src/mine.c"), "void mine() {}\n");
    let done = refresh(&toy.ctx, &toy.pristine, &toy.load(), "mine").unwrap();
    assert_eq!(done.took, [rel("src/main.c"), rel("src/mine.c")]);
    let series = toy.load();
    assert_eq!(series.ids(), ["first", "second", "mine"]);
    assert_eq!(series.patches[2].manifest.title, "My \"patch\"");
    assert_eq!(series.patches[2].overlay.len(), 1);
    assert!(
        applied(&toy.ctx, &toy.pristine).is_ok(),
        "the tree is what the series makes"
    );
    in_order(&toy);

    // Taking all of it back again leaves an empty patch.
    put(
        &toy.tree().join("src/main.c"),
        &edited.replace("    mine(); // opencoti-hook: mine\n", ""),
    );
    fs::remove_file(toy.tree().join("src/mine.c")).unwrap();
    refresh(&toy.ctx, &toy.pristine, &toy.load(), "mine").unwrap();
    assert!(toy.load().patches[2].hooks.is_empty());
    assert!(!toy.root().join("patches/mine/hooks.patch").exists());
    assert!(!toy.root().join("patches/mine/src").exists());
    in_order(&toy);
}

#[test]
fn later_patches_follow_an_edit_of_an_earlier_one() {
    let toy = recorded();
    go(&toy, 1);
    let edited = main_c(&toy).replace("int main() {\n", "int main() {\n    // one\n    // two\n");
    put(&toy.tree().join("src/main.c"), &edited);
    let done = refresh(&toy.ctx, &toy.pristine, &toy.load(), "first").unwrap();
    assert_eq!(done.moved, ["second"]);
    go(&toy, 2);
    assert!(
        main_c(&toy)
            .contains("// two\n    one();\n    hook(); // opencoti-hook: first\n    more();")
    );
    assert_eq!(toy.load().patches[1].hooks[0].hunks[0].old_start, 3);
}

#[test]
fn a_later_patch_that_cannot_follow_stops_the_refresh() {
    let toy = recorded();
    go(&toy, 1);
    let edited = main_c(&toy)
        .replace("    hook(); //", "    hook(1);\n    other(); //")
        .replace("    two();\n", "    zwei();\n");
    put(&toy.tree().join("src/main.c"), &edited);
    let before = fs::read(toy.root().join("patches/first/hooks.patch")).unwrap();
    let error = refresh(&toy.ctx, &toy.pristine, &toy.load(), "first").unwrap_err();
    assert_eq!(error.kind(), Kind::Finding, "{error}");
    assert!(
        error.to_string().contains("`second` does not follow"),
        "{error}"
    );
    assert!(error.to_string().contains("<<<<<<< now"), "{error}");
    assert_eq!(
        fs::read(toy.root().join("patches/first/hooks.patch")).unwrap(),
        before
    );
    assert_eq!(main_c(&toy), edited, "the edit is still there");
}

#[test]
fn refresh_wants_the_tree_at_the_patch() {
    let toy = recorded();
    let attempt = |id: &str| refresh(&toy.ctx, &toy.pristine, &toy.load(), id);
    assert!(
        attempt("first")
            .unwrap_err()
            .to_string()
            .contains("no working tree")
    );
    go(&toy, 2);
    let error = attempt("first").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("stands at `second`, not at `first`"),
        "{error}"
    );
    assert!(attempt("frist").unwrap_err().hints()[0].contains("`first`"));
    fs::remove_file(toy.tree().join("src/other.c")).unwrap();
    let error = attempt("second").unwrap_err();
    assert!(
        error.to_string().contains("src/other.c was removed"),
        "{error}"
    );
}

#[test]
fn reorder_keeps_what_the_series_makes() {
    let toy = recorded();
    toy.patch("third", "", &[("free.txt", "free\n")]);
    toy.patch(
        "fourth",
        "--- a/src/main.c\n+++ b/src/main.c\n@@ -3,5 +3,6 @@\n     hook(); // opencoti-hook: first\n     more(); // opencoti-hook: second\n     two();\n+    four(); // opencoti-hook: fourth\n     return 0;\n }\n",
        &[],
    );
    toy.series(&["first", "second", "third", "fourth"]);
    let before = result(&toy);
    reorder(&toy.ctx, &toy.pristine, &toy.load(), "fourth", None).unwrap();
    assert_eq!(toy.load().ids(), ["fourth", "first", "second", "third"]);
    assert_eq!(result(&toy), before);
    in_order(&toy);
    reorder(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        "fourth",
        Some("third"),
    )
    .unwrap();
    assert_eq!(toy.load().ids(), ["first", "second", "third", "fourth"]);
    assert_eq!(result(&toy), before);

    // The second stands on the line that the first inserts.
    let error = reorder(&toy.ctx, &toy.pristine, &toy.load(), "second", None).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding, "{error}");
    assert_eq!(toy.load().ids(), ["first", "second", "third", "fourth"]);
    let manifest = toy.root().join("patches/second/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    put(&manifest, &format!("{text}requires = [\"first\"]\n"));
    let error = reorder(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        "first",
        Some("fourth"),
    )
    .unwrap_err();
    assert!(
        error.to_string().contains("`second` requires `first`"),
        "{error}"
    );
}

#[test]
fn split_and_fold_are_opposites() {
    let toy = recorded();
    let before = result(&toy);
    let path = [rel("src/hook.c")];
    split(&toy.ctx, &toy.pristine, &toy.load(), "first", "half", &path).unwrap();
    assert_eq!(toy.load().ids(), ["first", "half", "second"]);
    assert_eq!(result(&toy), before);
    in_order(&toy);
    let manifest = toy.root().join("patches/half/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    let more = "switches = [\"OPENCOTI_HALF\"]\n[notes]\n\"src/hook.c\" = \"Look here.\"\n";
    put(&manifest, &format!("{text}{more}"));
    fold(&toy.ctx, &toy.pristine, &toy.load(), "half").unwrap();
    let first = &toy.load().patches[0].manifest;
    assert!(first.switches.iter().any(|name| name == "OPENCOTI_HALF"));
    assert!(first.notes["src/hook.c"].contains("Look here."));
    assert_eq!(toy.load().ids(), ["first", "second"]);
    assert!(!toy.root().join("patches/half").exists());
    assert_eq!(result(&toy), before);
    in_order(&toy);

    // Folding hooks into the same place joins them, under the marker of the one that stays.
    let saved = fold(&toy.ctx, &toy.pristine, &toy.load(), "second").unwrap();
    let gone = |path: &&RelPath| !toy.root().join(path.as_str()).exists();
    let expected: Vec<RelPath> = saved.files.iter().filter(gone).cloned().collect();
    assert!(!expected.is_empty());
    assert_eq!(saved.removed, expected, "what is gone was not written");
    assert_eq!(toy.load().ids(), ["first"]);
    let files = result(&toy);
    let (_, main) = files
        .iter()
        .find(|(path, _)| *path == rel("src/main.c"))
        .unwrap();
    let text = String::from_utf8(main.clone()).unwrap();
    assert!(text.contains("more(); // opencoti-hook: first"), "{text}");
    in_order(&toy);
    let error = fold(&toy.ctx, &toy.pristine, &toy.load(), "first").unwrap_err();
    assert!(error.to_string().contains("is the first patch"), "{error}");
    let error = split(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        "first",
        "x",
        &[rel("nope")],
    )
    .unwrap_err();
    assert!(error.to_string().contains("does not touch nope"), "{error}");
}

#[test]
fn a_split_off_hook_takes_its_marker_along() {
    let toy = recorded();
    split(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        "first",
        "half",
        &[rel("src/main.c")],
    )
    .unwrap();
    let series = toy.load();
    assert!(series.patches[0].hooks.is_empty());
    let text = String::from_utf8(series.patches[1].hooks_text.clone()).unwrap();
    assert!(text.contains("hook(); // opencoti-hook: half"), "{text}");
    let text = String::from_utf8(series.patches[2].hooks_text.clone()).unwrap();
    assert!(
        text.contains(" hook(); // opencoti-hook: half"),
        "the context follows: {text}"
    );
    in_order(&toy);
}

#[test]
fn rename_changes_every_mention() {
    let toy = recorded();
    let manifest = toy.root().join("patches/second/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    put(
        &manifest,
        &format!("# A comment.\n{text}requires = [\"first\"]\n"),
    );
    rename(&toy.ctx, &toy.pristine, &toy.load(), "first", "erster").unwrap();
    let series = toy.load();
    assert_eq!(series.ids(), ["erster", "second"]);
    assert_eq!(series.patches[1].manifest.requires, ["erster"]);
    assert!(
        fs::read_to_string(&manifest)
            .unwrap()
            .starts_with("# A comment.\n")
    );
    assert!(!toy.root().join("patches/first").exists());
    in_order(&toy);
    let taken = rename(&toy.ctx, &toy.pristine, &toy.load(), "erster", "second").unwrap_err();
    assert!(taken.to_string().contains("already"));
}

#[test]
fn comments_in_the_series_survive() {
    let toy = recorded();
    put(
        &toy.root().join("registry/series.toml"),
        "# Keep me.\nschema = 1\n\n[series] # and me\ntoy = [\"first\", \"second\"]\n",
    );
    new(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        "mine",
        "Mine",
        Some("first"),
    )
    .unwrap();
    let text = fs::read_to_string(toy.root().join("registry/series.toml")).unwrap();
    assert_eq!(
        text,
        "# Keep me.\nschema = 1\n\n[series] # and me\ntoy = [\"first\", \"mine\", \"second\"]\n"
    );
    assert!(new(&toy.ctx, &toy.pristine, &toy.load(), "mine", "x", None).is_err());
    assert!(new(&toy.ctx, &toy.pristine, &toy.load(), "Mine", "x", None).is_err());
}

#[test]
fn snapshots_are_whole_and_checked() {
    let toy = recorded();
    go(&toy, 2);
    put(&toy.tree().join("notes.txt"), "mine\n");
    let taken = snapshot(&toy.ctx, "toy", "before").unwrap();
    assert!(snapshot(&toy.ctx, "toy", "before").is_err());
    let digest = toy.tree_digest();
    put(&toy.tree().join("src/main.c"), "ruined\n");
    fs::remove_file(toy.tree().join("notes.txt")).unwrap();
    let (restored, kept) = restore(&toy.ctx, "toy", "before").unwrap();
    assert_eq!(restored, taken);
    assert_eq!(toy.tree_digest(), digest);
    // What was there before the restore is kept too.
    let kept = kept.unwrap();
    restore(&toy.ctx, "toy", &kept.name).unwrap();
    assert_eq!(main_c(&toy), "ruined\n");
    assert_eq!(snapshots(&toy.ctx, "toy").unwrap().len(), 3);

    put(
        &toy.root()
            .join("vendor/.snapshots/toy/before/tree/src/other.c"),
        "x",
    );
    let error = restore(&toy.ctx, "toy", "before").unwrap_err();
    assert!(error.to_string().contains("was changed"), "{error}");
    assert_eq!(main_c(&toy), "ruined\n");
    assert!(restore(&toy.ctx, "toy", "befor").unwrap_err().hints()[0].contains("`before`"));
}

/// A kill before every single change of a refresh: afterwards the checkout is the old or the new
/// one as a whole, and the next refresh works.
#[test]
fn a_kill_at_any_step_of_a_refresh_leaves_before_or_after() {
    let set_up = || {
        let toy = recorded();
        go(&toy, 1);
        let edited = main_c(&toy).replace("int main() {\n", "int main() {\n    // new\n");
        put(&toy.tree().join("src/main.c"), &edited);
        toy
    };
    let ids = |toy: &Toy| {
        let series = Series::load(&toy.ctx.project, &toy.pristine.base).unwrap();
        Images::compute(&toy.pristine, &series).unwrap();
        series.id
    };
    let old = ids(&set_up());
    let new = {
        let toy = set_up();
        refresh(&toy.ctx, &toy.pristine, &toy.load(), "first").unwrap();
        ids(&toy)
    };
    let (mut before, mut after) = (0, 0);
    for kills in 1.. {
        let toy = set_up();
        fault::kill_after(kills);
        let result = refresh(&toy.ctx, &toy.pristine, &toy.load(), "first");
        let killed = fault::disarm();
        assert_eq!(result.is_err(), killed);
        crate::journal::settle(&toy.ctx).unwrap();
        match ids(&toy) {
            id if id == old => before += 1,
            id if id == new => after += 1,
            id => panic!("after a kill at step {kills}: {id}"),
        }
        assert!(main_c(&toy).contains("// new"), "the edit is never lost");
        refresh(&toy.ctx, &toy.pristine, &toy.load(), "first").unwrap();
        assert_eq!(ids(&toy), new);
        if !killed {
            break;
        }
    }
    assert!(before > 3 && after > 3, "{before} {after}");
}
