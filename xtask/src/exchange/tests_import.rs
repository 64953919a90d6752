//! Imports on a toy base: what is taken and moved, and what a kill leaves.

use std::path::PathBuf;

use super::tests::{files, import_all, result};
use super::*;
use crate::diff;
use crate::patchset::{Images, Series, registry_drift};
use crate::toy::{MAIN, Toy, put};
use crate::tree::{RelPath, fault};

fn rel(path: &str) -> RelPath {
    RelPath::new(path).unwrap()
}

/// A patch mail of somebody else.
pub(super) fn mail(subject: &str, body: &str, diff: &str) -> String {
    format!(
        "From {} Mon Sep 17 00:00:00 2001\nFrom: A. Author <a@example.org>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\n\
         Subject: [PATCH] {subject}\n\n{body}\n---\n f | 1 +\n\n{diff}-- \n2.47.3\n\n",
        "1".repeat(40)
    )
}

/// A diff that makes `new` of `old` at `path`.
fn between(path: &str, old: &str, new: &str) -> String {
    let diff = diff::between(&rel(path), old.as_bytes(), new.as_bytes()).unwrap();
    String::from_utf8(diff::to_text(&diff)).unwrap()
}

pub(super) fn file(toy: &Toy, name: &str, text: &str) -> PathBuf {
    let path = toy.root().join("in").join(name);
    put(&path, text);
    path
}

pub(super) fn content(toy: &Toy, path: &str) -> String {
    String::from_utf8(result(toy)[&rel(path)].0.clone()).unwrap()
}

/// The registry says what the series does.
fn in_order(toy: &Toy) {
    let series = toy.load();
    let images = Images::compute(&toy.pristine, &series).unwrap();
    let drift = registry_drift(&toy.ctx.project, &series, &images).unwrap();
    assert!(drift.is_empty(), "{drift:#?}");
}

/// What may not change when an import is refused.
pub(super) fn committed(toy: &Toy) -> impl PartialEq + std::fmt::Debug + use<> {
    ["patches", "registry", "docs"].map(|dir| match toy.root().join(dir) {
        dir if dir.exists() => Some(files(&dir)),
        _ => None,
    })
}

#[test]
fn a_mail_becomes_hooks_overlay_and_manifest() {
    let toy = Toy::with_two_patches();
    let old = content(&toy, "src/main.c");
    let new = old.replace(
        "    return",
        "    mine(); // opencoti-hook: server-count-it\n    return",
    );
    let new = new.replace("    two();\n", "    two(2);\n");
    let diff = format!(
        "{}diff --git a/run.sh b/run.sh\nnew file mode 100755\nindex 0000000..1111111\n--- /dev/null\n+++ b/run.sh\n@@ -0,0 +1 @@\n+#!/bin/sh\n",
        between("src/main.c", &old, &new)
    );
    let path = file(
        &toy,
        "x.patch",
        &mail(
            "[server] Count it",
            "Why, and\nwhat.\n\nSigned-off-by: x",
            &diff,
        ),
    );
    let done = import_all(&toy, vec![path]).unwrap();
    let series = toy.load();
    assert_eq!(series.ids(), ["first", "second", "server-count-it"]);
    let patch = &series.patches[2];
    assert_eq!(patch.manifest.title, "[server] Count it");
    assert_eq!(
        patch.manifest.purpose,
        "Why, and\nwhat.\n\nSigned-off-by: x\n"
    );
    assert_eq!(patch.manifest.author, "A. Author <a@example.org>");
    assert_eq!(patch.manifest.date, "Sun, 29 Nov 2026 13:16:57 +0000");
    assert_eq!(patch.manifest.requires, ["first"]);
    assert_eq!(
        (
            patch.manifest.allow.deletions,
            patch.manifest.allow.reason.as_str()
        ),
        (1, "")
    );
    assert!(patch.overlay[0].executable);
    assert_eq!(content(&toy, "src/main.c"), new);
    let summary = &done.imported[0];
    assert!(summary.wants_reason && summary.deletions == 1);
    assert_eq!(summary.unmarked, ["src/main.c:5"], "the rewritten line");
    assert!(summary.offsets.is_empty());
    assert!(!toy.tree().exists(), "the working tree is not touched");
    in_order(&toy);
    // Out and in again: nothing is lost.
    let all = export(
        &toy.ctx,
        &toy.pristine,
        &series,
        &["server-count-it".into()],
        Format::Mail,
    )
    .unwrap();
    let text = String::from_utf8(all[0].content.clone()).unwrap();
    assert!(
        text.contains("From: \"A. Author\" <a@example.org>\n"),
        "{text}"
    );
    assert!(
        text.contains("Why, and\nwhat.\n\nSigned-off-by: x\nPatchset-Id: server-count-it\n---\n"),
        "{text}"
    );
}

#[test]
fn a_plain_diff_and_quilts_folders_come_in() {
    let toy = Toy::new();
    let one = MAIN.replace("    two", "    hook();\n    two");
    let two = one.replace("    two", "    more();\n    two");
    let plain =
        between("src/main.c", MAIN, &one).replace("diff --git a/src/main.c b/src/main.c\n", "");
    let p0 = between("src/main.c", &one, &two)
        .replace(
            "diff --git a/src/main.c b/src/main.c\n",
            "Index: src/main.c\n===\n",
        )
        .replace("--- a/", "--- ")
        .replace("+++ b/", "+++ ");
    file(
        &toy,
        "quilt/patches/series",
        "# mine\none.diff -p1\ntwo.patch -p0 # why\n",
    );
    file(
        &toy,
        "quilt/patches/one.diff",
        &format!("Count one.\n\nWhy.\n{plain}"),
    );
    file(&toy, "quilt/patches/two.patch", &p0);
    file(&toy, "quilt/.pc/applied-patches", "one.diff\n");
    import_all(&toy, vec![toy.root().join("in/quilt")]).unwrap();
    let series = toy.load();
    assert_eq!(series.ids(), ["count-one", "two"]);
    assert_eq!(series.patches[0].manifest.purpose, "Why.\n");
    assert_eq!(content(&toy, "src/main.c"), two);
    // The same as one diff, under a name that is given.
    let squashed = export(&toy.ctx, &toy.pristine, &series, &[], Format::Diff).unwrap();
    let toy = Toy::new();
    let path = file(
        &toy,
        "x.diff",
        &String::from_utf8(squashed[0].content.clone()).unwrap(),
    );
    let request = Request {
        paths: vec![path],
        id: Some("all".into()),
        ..Request::default()
    };
    import(&toy.ctx, &toy.pristine, &request).unwrap();
    assert_eq!(content(&toy, "src/main.c"), two);
    assert_eq!(toy.load().patches[0].manifest.title, "x");
}

const FUNCTION: &str = "void NAME() {\n    one();\n    two();\n    three();\n    four();\n    five();\n    six();\n}\n\n";

fn function(name: &str) -> String {
    FUNCTION.replace("NAME", name)
}

/// A toy whose base has another `src/other.c`.
fn toy_with(other: &str) -> Toy {
    let mut toy = Toy::new();
    put(&toy.pristine.root.join("src/other.c"), other);
    toy.pristine.manifest =
        crate::tree::TreeManifest::of_tree(&toy.pristine.root, |_| false).unwrap();
    toy
}

#[test]
fn an_offset_is_taken_reported_and_not_stored() {
    let old = format!("int x;\n{}", function("a"));
    let new = old.replace("    four", "    hook();\n    four");
    let diff = between("src/other.c", &old, &new);
    let toy = toy_with(&format!("// new\n\n{old}"));
    let path = file(&toy, "x.patch", &mail("Hook it", "", &diff));
    let done = import_all(&toy, vec![path]).unwrap();
    let offset = &done.imported[0].offsets[0];
    assert_eq!(
        (offset.old_line, offset.new_line, offset.heading.as_str()),
        (3, 5, "void a() {")
    );
    assert_eq!(content(&toy, "src/other.c"), format!("// new\n\n{new}"));
    assert_eq!(
        toy.load().patches[0].hooks[0].hunks[0].old_start,
        5,
        "stored exact"
    );
}

#[test]
fn the_wrong_one_of_two_functions_with_one_body_is_never_taken() {
    let old = format!("int x;\n{}{}", function("a"), function("b"));
    let new = old.replacen("    four", "    hook();\n    four", 1);
    let diff = between("src/other.c", &old, &new);
    let swapped = format!("int x;\n{}{}", function("b"), function("a"));
    for base in [
        swapped.clone(),
        format!("// new\n{old}"),
        format!("// new\n{swapped}"),
        format!("// new\nint x;\n{}", function("b")),
        format!("int x;\n{}", function("b")),
    ] {
        let toy = toy_with(&base);
        let before = committed(&toy);
        let path = file(&toy, "x.patch", &mail("Hook it", "", &diff));
        let error = import_all(&toy, vec![path]).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        let text = error.to_string();
        assert!(
            text.contains("its lines do occur at line") && text.contains("void b() {"),
            "{text}"
        );
        assert_eq!(committed(&toy), before);
    }
    let toy = toy_with(&old);
    let path = file(&toy, "x.patch", &mail("Hook it", "", &diff));
    import_all(&toy, vec![path]).unwrap();
    assert_eq!(content(&toy, "src/other.c"), new);
}

#[test]
fn of_five_mails_with_a_bad_third_none_is_imported() {
    let toy = Toy::new();
    let mut now = MAIN.to_owned();
    let mut mbox = String::new();
    for name in ["one", "two", "three", "four"] {
        let next = now.replace("    return", &format!("    {name}(9);\n    return"));
        let diff = between("src/main.c", &now, &next);
        let diff = if name == "three" {
            diff.replace(" \x20   two(9);", " \x20   zwei(9);")
        } else {
            diff
        };
        mbox.push_str(&mail(&format!("Part {name}"), "", &diff));
        now = next;
    }
    mbox.push_str(&mail(
        "Part five",
        "",
        &between("src/other.c", "int other;\n", "int other;\nint five;\n"),
    ));
    let before = committed(&toy);
    let path = file(&toy, "all.mbox", &mbox);
    let error = import_all(&toy, vec![path]).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("2 of 5 patches cannot be taken"), "{text}");
    assert!(text.contains("- part-three: src/main.c: hunk 1"), "{text}");
    assert!(
        text.contains("expected at line") && text.contains("zwei(9)"),
        "{text}"
    );
    assert!(
        text.contains("- part-four: not tried, since `part-three` failed"),
        "{text}"
    );
    assert!(text.contains("all.mbox, mail 3"), "{text}");
    assert!(!text.contains("part-five"), "{text}");
    assert_eq!(committed(&toy), before);
    let good = mbox.replace("zwei(9)", "two(9)");
    let path = file(&toy, "good.mbox", &good);
    let dry = Request {
        paths: vec![path.clone()],
        dry_run: true,
        ..Request::default()
    };
    let done = import(&toy.ctx, &toy.pristine, &dry).unwrap();
    assert_eq!(
        (done.imported.len(), done.patches.len(), done.files.len()),
        (5, 5, 0)
    );
    assert_eq!(committed(&toy), before, "a dry run writes nothing");
    import_all(&toy, vec![path]).unwrap();
    assert_eq!(content(&toy, "src/main.c"), now);
}

#[test]
fn later_patches_are_moved_along() {
    let toy = Toy::with_two_patches();
    let old = MAIN.replace("    two", "    hook(); // opencoti-hook: first\n    two");
    let new = format!("// opencoti-hook: head\n{old}");
    let path = file(
        &toy,
        "x.patch",
        &mail("Head", "", &between("src/main.c", &old, &new)),
    );
    let request = |path: PathBuf| Request {
        paths: vec![path],
        after: Some("first".into()),
        ..Request::default()
    };
    let done = import(&toy.ctx, &toy.pristine, &request(path)).unwrap();
    assert_eq!(
        (done.moved, done.patches),
        (
            vec!["second".into()],
            vec!["first".into(), "head".into(), "second".into()]
        )
    );
    assert!(
        content(&toy, "src/main.c")
            .contains("first\n    more(); // opencoti-hook: second\n    two")
    );
    // One that cannot be moved along.
    let now = new.replace("    two();\n", "");
    let path = file(
        &toy,
        "y.patch",
        &mail(
            "Away",
            "",
            &between(
                "src/main.c",
                &new,
                &now.replace("    hook(); // opencoti-hook: first\n", ""),
            ),
        ),
    );
    let before = committed(&toy);
    let request = Request {
        after: Some("head".into()),
        ..request(path)
    };
    let error = import(&toy.ctx, &toy.pristine, &request).unwrap_err();
    assert!(
        error.to_string().contains("`second` does not follow"),
        "{error}"
    );
    assert_eq!(committed(&toy), before);
}

#[test]
fn ids_are_new_and_stated() {
    let toy = Toy::with_two_patches();
    let diff = between("src/other.c", "int other;\n", "int other;\nint x;\n");
    let one = file(&toy, "a.patch", &mail("日本語", "", &diff));
    let request = |paths: &[&PathBuf], id: Option<&str>| {
        let paths = paths.iter().map(|path| (*path).clone()).collect();
        import(
            &toy.ctx,
            &toy.pristine,
            &Request {
                paths,
                id: id.map(Into::into),
                dry_run: true,
                ..Request::default()
            },
        )
    };
    assert_eq!(request(&[&one], None).unwrap().imported[0].id, "patch-1");
    assert_eq!(
        request(&[&one], Some("mine")).unwrap().imported[0].id,
        "mine"
    );
    let fails = |paths: &[&PathBuf], id: Option<&str>, why: &str| {
        let error = request(paths, id).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    fails(&[&one], Some("first"), "there is a patch `first` already");
    fails(&[&one], Some("../x"), "`../x` is no patch id");
    fails(
        &[&one, &one],
        Some("x"),
        "--id names one patch, and there are 2",
    );
    let same = file(&toy, "b.patch", &mail("First!", "", &diff));
    fails(&[&same], None, "there is a patch `first` already");
    let named = file(
        &toy,
        "c.patch",
        &mail("First!", "Why.\n\nPatchset-Id: x\n", &diff),
    );
    assert_eq!(request(&[&named], None).unwrap().imported[0].id, "x");
    fails(&[&named, &named], None, "two of the patches would be `x`");
    let bad = file(&toy, "d.patch", &mail("x", "Patchset-Id: ../../etc", &diff));
    fails(&[&bad], None, "no patch id");
    // An export under another id: the markers are the other one's.
    let all = export(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        &["second".into()],
        Format::Mail,
    )
    .unwrap();
    let path = file(
        &toy,
        "e.patch",
        &String::from_utf8(all[0].content.clone()).unwrap(),
    );
    fails(&[&path], None, "there is a patch `second` already");
}

/// A kill before every single change of an import: afterwards the checkout is the old or the new
/// one as a whole, and the next import works.
#[test]
fn a_kill_at_any_step_of_an_import_leaves_before_or_after() {
    let diff = between("src/other.c", "int other;\n", "int other;\nint x;\n");
    let extra = "diff --git a/new.c b/new.c\nnew file mode 100644\n--- /dev/null\n+++ b/new.c\n@@ -0,0 +1 @@\n+x\n";
    let set_up = || {
        let toy = Toy::with_two_patches();
        crate::patchset::refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
        let path = file(
            &toy,
            "x.patch",
            &mail("Mine", "", &format!("{diff}{extra}")),
        );
        (toy, path)
    };
    let ids = |toy: &Toy| {
        let series = Series::load(&toy.ctx.project, &toy.pristine.base).unwrap();
        Images::compute(&toy.pristine, &series).unwrap();
        in_order(toy);
        (series.id, toy.root().join("patches/mine").exists())
    };
    let old = ids(&set_up().0);
    let new = {
        let (toy, path) = set_up();
        import_all(&toy, vec![path]).unwrap();
        ids(&toy)
    };
    assert_ne!(old, new);
    let (mut before, mut after) = (0, 0);
    for kills in 1.. {
        let (toy, path) = set_up();
        fault::kill_after(kills);
        let result = import_all(&toy, vec![path.clone()]);
        let killed = fault::disarm();
        assert_eq!(result.is_err(), killed);
        crate::journal::settle(&toy.ctx).unwrap();
        match ids(&toy) {
            id if id == old => {
                before += 1;
                import_all(&toy, vec![path]).unwrap();
            }
            id if id == new => after += 1,
            id => panic!("after a kill at step {kills}: {id:?}"),
        }
        assert_eq!(ids(&toy), new);
        if !killed {
            break;
        }
    }
    assert!(before > 5 && after > 5, "{before} {after}");
}

#[test]
fn two_imports_at_once_wait_for_each_other() {
    let toy = Toy::with_two_patches();
    let diff = |name: &str| {
        format!(
            "diff --git a/{name}.c b/{name}.c\nnew file mode 100644\n--- /dev/null\n+++ b/{name}.c\n@@ -0,0 +1 @@\n+x\n"
        )
    };
    std::thread::scope(|scope| {
        for name in ["a", "b", "c", "d"] {
            let path = file(&toy, &format!("{name}.patch"), &mail(name, "", &diff(name)));
            let toy = &toy;
            scope.spawn(move || import_all(toy, vec![path]).unwrap());
        }
    });
    let mut ids = toy.load().ids();
    ids.sort();
    assert_eq!(ids, ["a", "b", "c", "d", "first", "second"]);
}
