//! What others were bitten by, each as a small case of its kind: what git (and where it teaches
//! more, GNU patch) does with it, and what we do.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;

use llama_patchset::diff;
use llama_patchset::tree::Blob;

use super::git::{self, Applied};
use super::random::{Tree, path};
use super::{Case, ours};

fn tree(files: &[(&str, &str)]) -> Tree {
    let blob = |(name, content): &(&str, &str)| (path(name), Blob::plain(*content));
    files.iter().map(blob).collect()
}

fn case(tree: Tree, patch: &str) -> Case {
    let patch = patch.as_bytes().to_vec();
    Case {
        tree,
        patch,
        strip: 1,
    }
}

/// What we say when we refuse, on one file `f`.
fn refusal(content: &str, patch: &str) -> String {
    ours(&case(tree(&[("f", content)]), patch)).unwrap_err()
}

/// What we make of one file `f`.
fn result(content: &str, patch: &str) -> String {
    let tree = ours(&case(tree(&[("f", content)]), patch)).unwrap();
    String::from_utf8(tree[&path("f")].content.clone()).unwrap()
}

fn git_says(content: &str, patch: &str) -> Applied {
    git::apply(&tree(&[("f", content)]), patch.as_bytes(), 1)
}

/// A diff of `f` with these hunks.
fn headed(hunks: &str) -> String {
    format!("diff --git a/f b/f\n--- a/f\n+++ b/f\n{hunks}")
}

/// GNU patch, where it is installed: its exit status and the file `f` after it.
fn gnu_patch(content: &str, patch: &str) -> Option<(bool, String)> {
    let dir = git::folder();
    fs::write(dir.path().join("f"), content).unwrap();
    let mut command = Command::new("patch");
    command.args(["-p1", "--batch"]).current_dir(dir.path());
    if Command::new("patch").arg("--version").output().is_err() {
        return None;
    }
    let output = git::feed(&mut command, patch.as_bytes());
    let after = fs::read_to_string(dir.path().join("f")).unwrap();
    Some((output.status.success(), after))
}

#[test]
fn a_hook_is_not_put_into_the_other_of_two_functions_with_the_same_body() {
    let body = "{\n  a;\n  b;\n  c;\n}\n";
    let patch = headed("@@ -2,5 +2,6 @@ first()\n {\n   a;\n+  hook();\n   b;\n   c;\n }\n");
    // The function has moved, and another one with the same body is as near.
    let twice = format!("//\n//\n//\n{body}{body}");
    assert!(matches!(git_says(&twice, &patch), Applied::Offset(..)));
    let said = refusal(&twice, &patch);
    assert!(
        said.contains("line 4, 2 lines below") && said.contains("line 9, 7 lines below"),
        "{said}"
    );
}

#[test]
fn context_is_compared_and_not_approximated() {
    let patch = headed("@@ -1,5 +1,6 @@\n {\n if (x)\n   one;\n+  hook();\n   two;\n }\n");
    let other = "{\nif (y)\n  one;\n  two;\n}\n";
    if let Some((done, after)) = gnu_patch(other, &patch) {
        assert!(done && after.contains("hook"), "no longer a trap: {after}");
    }
    assert!(matches!(git_says(other, &patch), Applied::Refused(_)));
    let said = refusal(other, &patch);
    assert!(
        said.contains("2 !  if (x)") && said.contains("| if (y)"),
        "{said}"
    );
}

#[test]
fn a_patch_that_lost_its_final_line_end_is_refused_at_once() {
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n");
    let cut = &patch[..patch.len() - 1];
    assert!(matches!(git_says("a\nb\n", cut), Applied::Refused(_)));
    assert!(refusal("a\nb\n", cut).contains("does not end with a line end"));
}

#[test]
fn a_truncated_patch_does_not_apply_in_part() {
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n@@ -7,3 +8,4 @@\n g\n h\n+y\n i\n");
    let content = "a\nb\nc\nd\ne\nf\ng\nh\ni\n";
    assert!(result(content, &patch).contains('y'));
    for cut in patch.find("@@ -7").unwrap() + 1..patch.len() {
        assert!(
            ours(&case(tree(&[("f", content)]), &patch[..cut])).is_err(),
            "cut at {cut}"
        );
    }
}

#[test]
fn line_ends_of_the_patch_and_of_the_file_must_agree() {
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n");
    assert!(matches!(
        git_says("a\r\nb\r\n", &patch),
        Applied::Refused(_)
    ));
    let said = refusal("a\r\nb\r\n", &patch);
    assert!(said.contains("1 !  a        | a\\r"), "{said}");
    // The bodies alone, as a transport that converts lines leaves them.
    let body = headed("@@ -1,2 +1,3 @@\n a\r\n+x\r\n b\r\n");
    assert!(matches!(git_says("a\nb\n", &body), Applied::Refused(_)));
    refusal("a\nb\n", &body);
    assert_eq!(result("a\r\nb\r\n", &body), "a\r\nx\r\nb\r\n");
}

#[test]
fn a_patch_that_was_converted_on_checkout_says_what_to_do() {
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n").replace('\n', "\r\n");
    let fault = diff::parse_files(patch.as_bytes()).unwrap_err();
    assert!(
        fault.hints().iter().any(|hint| hint.contains("-text")),
        "{fault}"
    );
}

#[test]
fn swapped_blocks_are_no_place_for_a_patch() {
    let patch = headed("@@ -2,3 +2,4 @@\n a\n+x\n b\n c\n@@ -5,3 +6,4 @@\n d\n+y\n e\n f\n");
    let swapped = "0\nd\ne\nf\na\nb\nc\n";
    assert!(matches!(git_says(swapped, &patch), Applied::Offset(..)));
    let said = refusal(swapped, &patch);
    assert!(
        said.contains("the whole context occurs at line 5"),
        "{said}"
    );
}

#[test]
fn whether_a_patch_is_there_already_does_not_depend_on_its_neighbours() {
    let patch = headed("@@ -2,3 +2,4 @@\n b\n c\n+hook\n d\n");
    let files = diff::parse(patch.as_bytes()).unwrap();
    assert!(diff::is_applied(&files[0], b"a\nb\nc\nhook\nd\ne\n"));
    // Somebody edits the line before the hook: neither there nor applicable, and we say which line.
    let edited = "a\nb\nC\nhook\nd\ne\n";
    assert!(!diff::is_applied(&files[0], edited.as_bytes()));
    assert!(refusal(edited, &patch).contains("line 3"));
}

#[test]
fn a_refusal_is_never_taken_for_already_applied() {
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n");
    let files = diff::parse(patch.as_bytes()).unwrap();
    for content in ["", "a\n", "b\na\n", "\0", "a\nb\n"] {
        assert!(!diff::is_applied(&files[0], content.as_bytes()));
    }
}

#[test]
fn a_repository_around_the_tree_changes_nothing() {
    let dir = git::folder();
    let outer = dir.path().join("outer");
    let inner = outer.join("vendor/tree");
    fs::create_dir_all(&inner).unwrap();
    git::ok(git::git(&outer).args(["init", "-q"]), b"");
    fs::write(inner.join("f"), "a\nb\n").unwrap();
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+x\n b\n");
    // Git looks for the file at the root of the repository above, finds none below, and is content.
    let mut command = git::git(&inner);
    command
        .args(["apply", "-"])
        .env_remove("GIT_CEILING_DIRECTORIES");
    let output = git::feed(&mut command, patch.as_bytes());
    let after = fs::read_to_string(inner.join("f")).unwrap();
    assert!(
        output.status.success() && after == "a\nb\n",
        "no longer a trap"
    );
    assert_eq!(result("a\nb\n", &patch), "a\nx\nb\n");
    // Outside of the ceiling, which all other tests set, the same git does it.
    assert!(matches!(git_says("a\nb\n", &patch), Applied::Exact(_)));
}

#[test]
fn no_path_leaves_the_tree_or_goes_through_a_link() {
    let through = "diff --git a/out/f b/out/f\nnew file mode 100644\n--- /dev/null\n+++ b/out/f\n@@ -0,0 +1 @@\n+x\n";
    let mut linked = tree(&[("d/f", "a\n")]);
    linked.insert(
        path("out"),
        Blob::new("..", llama_patchset::tree::FileMode::Link),
    );
    assert!(matches!(
        git::apply(&linked, through.as_bytes(), 1),
        Applied::Refused(_)
    ));
    assert!(
        ours(&case(linked, through))
            .unwrap_err()
            .contains("in its way")
    );
    for name in ["../f", "d/../../f", "/f", ".git/hooks/post-checkout"] {
        let patch = through.replace("out/f", name);
        assert!(matches!(
            git::apply(&tree(&[("f", "a\n")]), patch.as_bytes(), 1),
            Applied::Refused(_)
        ));
        assert!(refusal("a\n", &patch).contains("unsafe path"), "{name}");
    }
    // First a link to the outside, then a file through it: refused before the file is looked at.
    let link = "diff --git a/l b/l\nnew file mode 120000\n--- /dev/null\n+++ b/l\n@@ -0,0 +1 @@\n+..\n\\ No newline at end of file\n";
    let both = format!("{link}{}", through.replace("out/", "l/"));
    assert!(matches!(
        git::apply(&tree(&[]), both.as_bytes(), 1),
        Applied::Refused(_)
    ));
    assert!(ours(&case(tree(&[]), &both)).is_err());
    // The link alone, git makes.
    assert!(matches!(
        git::apply(&tree(&[]), link.as_bytes(), 1),
        Applied::Exact(_)
    ));
    assert!(
        ours(&case(tree(&[]), link))
            .unwrap_err()
            .contains("leaves the tree")
    );
    let dir = git::folder();
    symlink("..", dir.path().join("l")).unwrap();
    assert!(path("l/x").resolve(dir.path()).is_err());
}

#[test]
fn two_files_change_places_as_git_has_it() {
    let swap = "diff --git a/a b/b\nsimilarity index 100%\nrename from a\nrename to b\n\
                diff --git a/b b/a\nsimilarity index 50%\nrename from b\nrename to a\n\
                --- a/b\n+++ b/a\n@@ -1 +1,2 @@\n B\n+x\n";
    let before = tree(&[("a", "A\n"), ("b", "B\n")]);
    let after = tree(&[("a", "B\nx\n"), ("b", "A\n")]);
    match git::apply(&before, swap.as_bytes(), 1) {
        Applied::Exact(theirs) => assert_eq!(theirs, after),
        other => panic!("{other:?}"),
    }
    assert_eq!(ours(&case(before, swap)).unwrap(), after);
}

#[test]
fn a_count_that_is_too_small_loses_no_line() {
    // Git and GNU patch take the rest of the hunk for prose.
    let patch = headed("@@ -1,2 +1,3 @@\n a\n+one\n b\n+two\n");
    assert!(matches!(git_says("a\nb\nc\n", &patch), Applied::Exact(_)));
    assert!(refusal("a\nb\nc\n", &patch).contains("stands after the end of its hunk"));
}

#[test]
fn names_outside_ascii_and_with_blanks_survive() {
    let before = tree(&[("ü ä/ñ \"q\".c", "a\n")]);
    let after = tree(&[("ü ä/ñ \"q\".c", "a\nb\n"), ("ß c", "x\n")]);
    let text = super::written(&before, &after);
    match git::apply(&before, &text, 1) {
        Applied::Exact(theirs) => assert_eq!(theirs, after),
        other => panic!("{other:?}: {}", String::from_utf8_lossy(&text)),
    }
    let theirs = git::diffs(&[(before.clone(), after.clone())], &["--full-index"]);
    assert_eq!(
        String::from_utf8_lossy(&theirs[0]),
        String::from_utf8_lossy(&text)
    );
    let files = diff::parse_files(&text).unwrap();
    let changes = diff::apply_files(&files, &before).unwrap();
    assert_eq!(changes.len(), 2);
}

#[test]
fn what_gnu_diff_writes_is_read() {
    for seed in 0..80 {
        let mut rng = super::random::Rng::new(0x9d + seed);
        let plain = |mut tree: Tree| {
            // GNU diff knows neither links nor modes, and says nothing of empty files.
            tree.retain(|_, blob| {
                blob.mode != llama_patchset::tree::FileMode::Link && !blob.content.is_empty()
            });
            for blob in tree.values_mut() {
                blob.mode = llama_patchset::tree::FileMode::Plain;
            }
            tree
        };
        let before = plain(super::random::tree(&mut rng));
        let after = plain(super::random::changed(&mut rng, &before));
        let dir = git::folder();
        for (name, tree) in [("a", &before), ("b", &after)] {
            fs::create_dir(dir.path().join(name)).unwrap();
            git::write(&dir.path().join(name), tree);
        }
        let mut command = Command::new("diff");
        command
            .args(["-ruN", "a", "b"])
            .current_dir(dir.path())
            .env("LC_ALL", "C");
        let Ok(output) = command.output() else {
            return;
        };
        if before == after {
            continue;
        }
        let text = String::from_utf8(output.stdout).unwrap();
        match ours(&case(before.clone(), &text)) {
            Ok(result) => assert_eq!(result, after, "{text}"),
            // A file in the place of a folder is left out by GNU diff, with a line that says so.
            Err(reason) if text.contains(" while file ") => assert!(reason.contains("left out")),
            Err(reason) => panic!("{reason}: {text}"),
        }
    }
}
