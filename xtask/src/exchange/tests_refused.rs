//! What an import refuses.

use std::fs;
use std::path::PathBuf;

use super::tests::import_all;
use super::tests_import::{committed, content, file, mail};
use super::*;
use crate::toy::{HOOK, Toy};

/// Where a diff would do what a patch may not, or lead out of the tree: through the whole import.
#[test]
fn what_may_not_come_in_is_refused_with_its_reason() {
    let create = |name: &str| {
        format!(
            "diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n"
        )
    };
    let plain = |name: &str| format!("--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+x\n");
    let cases: Vec<(String, &str)> = vec![
        (plain("../x"), "unsafe path"),
        (plain("a/../../x"), "unsafe path"),
        (plain("/etc/x"), "unsafe path"),
        (plain(".git/hooks/x"), "unsafe path"),
        (plain("sub/.GIT/x"), "unsafe path"),
        (plain(".g\u{200c}it/x"), "unsafe path"),
        (plain("git~1/x"), "unsafe path"),
        (plain("a\\b"), "unsafe path"),
        (plain("C:/x"), "unsafe path"),
        (create("\"a/x\\000y\"").replace("b/\"a/", "\"b/").replace("a/\"a/", "\"a/"), "unsafe path"),
        (create("SRC/new.c"), "SRC/new.c is src of the base where case and the form of accents do not count"),
        (create("src/MAIN.c"), "src/MAIN.c is src/main.c of the base where case"),
        (format!("{}{}", create("n.c"), create("N.c")), "differ only in case"),
        (create("src/ma\u{200b}in.c"), "U+200B"),
        (create("src/e\u{301}.c"), "U+0301"),
        (create("src/main.c"), "there already"),
        (create("src/main.c/x"), "src/main.c is a file, not a folder"),
        (create("src"), "src is a folder"),
        (create(".patchset/state.json"), "own folder"),
        (create("l").replace("100644", "120000"), "symbolic link"),
        (
            format!("diff --git a/src/main.c b/src/main.c\nindex 1111111..2222222 120000\n{}", HOOK.split_once('\n').unwrap().1),
            "symbolic link",
        ),
        (create("bin").replace("+x", "+x\0y"), "binary"),
        (HOOK.replace("hook();", "ho\0ok();"), "NUL"),
        ("diff --git a/b b/b\nnew file mode 100644\nindex 0000000..1111111\nBinary files /dev/null and b/b differ\n".into(), "binary"),
        (
            "diff --git a/src/other.c b/src/other.c\ndeleted file mode 100644\n--- a/src/other.c\n+++ /dev/null\n@@ -1 +0,0 @@\n-int other;\n".into(),
            "it deletes the file; hooks edit files in place",
        ),
        (
            "diff --git a/src/other.c b/src/o.c\nsimilarity index 100%\nrename from src/other.c\nrename to src/o.c\n".into(),
            "it renames src/other.c; hooks edit files in place",
        ),
        ("diff --git a/src/other.c b/src/other.c\nold mode 100644\nnew mode 100755\n".into(), "changes the file's mode"),
        (HOOK.replace("src/main.c", "lib/main.c"), "of that name are: src/main.c"),
        ("--- a/new.c\n+++ b/new.c\n@@ -0,0 +1 @@\n+x\n".into(), "does not say that it is new"),
        (HOOK.replace("-1,5 +1,6", "-1,4 +1,5"), "stands after the end of its hunk"),
        (HOOK[..HOOK.len() - 1].to_owned(), "does not end with a line end"),
    ];
    for (diff, why) in cases {
        for wrapped in [mail("Bad", "", &diff), diff.clone()] {
            let toy = Toy::new();
            let before = (committed(&toy), fs::read_dir(toy.root()).unwrap().count());
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("x.patch");
            // The signature of a mail would hide that the diff ends without a line end.
            let cut = !diff.ends_with('\n');
            fs::write(&path, if cut { &diff } else { &wrapped }).unwrap();
            let Err(error) = import_all(&toy, vec![path]) else {
                panic!("taken: {diff}");
            };
            assert!(error.to_string().contains(why), "{why}: {error}\n{diff}");
            assert!(error.kind().exit_code() > 0 && error.kind() != crate::Kind::Internal);
            fs::remove_dir_all(toy.root().join("vendor")).ok();
            assert_eq!(
                (committed(&toy), fs::read_dir(toy.root()).unwrap().count()),
                before,
                "{diff}"
            );
        }
    }
}

#[test]
fn a_new_file_that_is_anothers_in_another_form_of_accents_is_refused() {
    let toy = Toy::new();
    toy.patch("there", "", &[("cafe\u{301}", "")]);
    toy.series(&["there"]);
    let diff = "--- /dev/null\n+++ b/caf\u{e9}\n@@ -0,0 +1 @@\n+x\n";
    let error = import_all(&toy, vec![file(&toy, "x.patch", diff)]).unwrap_err();
    let wanted = "caf\\u{e9} is cafe\\u{301} of `there`";
    assert!(error.to_string().contains(wanted), "{error}");
}

#[test]
fn folders_and_files_that_are_no_patches_are_refused() {
    let toy = Toy::new();
    let fails = |path: PathBuf, why: &str| {
        let error = import_all(&toy, vec![path]).unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
    };
    fails(toy.root().join("nowhere"), "nowhere");
    fails(toy.root().join("registry"), "no `series` file");
    fails(file(&toy, "text", "just text\n"), "changes no file");
    fails(file(&toy, "empty", ""), "changes no file");
    fails(
        file(&toy, "cover.patch", &mail("x", "only a message", "")),
        "holds no diff",
    );
    file(&toy, "q/series", "out.patch\n");
    std::os::unix::fs::symlink(
        file(&toy, "real.patch", HOOK),
        toy.root().join("in/q/out.patch"),
    )
    .unwrap();
    fails(toy.root().join("in/q"), "symbolic link");
    file(&toy, "r/series", "gone.patch\n");
    fails(toy.root().join("in/r"), "gone.patch");
    let large = toy.root().join("in/large");
    fs::File::create(&large).unwrap().set_len(65 << 20).unwrap();
    fails(large, "at most");
    // A mail whose manifest is not one, or asks for what is not there.
    let toy2 = Toy::with_two_patches();
    let all = export(
        &toy2.ctx,
        &toy2.pristine,
        &toy2.load(),
        &["first".into()],
        Format::Mail,
    )
    .unwrap();
    let text = String::from_utf8(all[0].content.clone()).unwrap();
    fails(
        file(&toy, "m1", &text.replace("| title", "| titel")),
        "unknown field `titel`",
    );
    fails(
        file(&toy, "m2", &text.replace("| schema = 1", "| schema = 2")),
        "schema 2",
    );
    fails(
        file(
            &toy,
            "m3",
            &text.replace("| purpose", "| requires = [\"gone\"]\n| purpose"),
        ),
        "it requires `gone`",
    );
    fails(
        file(
            &toy,
            "m4",
            &text.replace("| purpose", "| inputs = [\"../..\"]\n| purpose"),
        ),
        "unsafe path",
    );
}

/// A mail that says one thing in its message and another in its manifest, or whose hooks are not
/// its diff: the diff and the manifest count, and it is said.
#[test]
fn a_mail_that_contradicts_itself_is_named() {
    let toy = Toy::with_two_patches();
    let all = export(&toy.ctx, &toy.pristine, &toy.load(), &[], Format::Mail).unwrap();
    let text = |at: usize| String::from_utf8(all[at].content.clone()).unwrap();
    assert!(
        text(1).contains("Patchset-File: hooks.patch"),
        "it is not in our form"
    );
    let first = text(0).replace("] The first", "] Another");
    let second = text(1).replace("\n+    more();", "\n+    evil();");
    let toy = Toy::new();
    let paths = vec![
        file(&toy, "1.patch", &first),
        file(&toy, "2.patch", &second),
    ];
    let done = import_all(&toy, paths).unwrap();
    let said = |at: usize| done.imported[at].remarks.join(" ");
    assert!(said(0).contains("the manifest counts"), "{done:?}");
    assert!(said(1).contains("the diff counts"), "{done:?}");
    assert!(content(&toy, "src/main.c").contains("evil();"));
    assert_eq!(toy.load().patches[0].manifest.title, "The first");
}
