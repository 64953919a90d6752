use super::*;
use crate::diff::parse_files;

type Tree = BTreeMap<RelPath, Blob>;

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn tree(files: &[(&str, &str)]) -> Tree {
    files
        .iter()
        .map(|(name, content)| match content.strip_prefix("-> ") {
            Some(target) => (path(name), Blob::new(target, FileMode::Link)),
            None => (path(name), Blob::plain(*content)),
        })
        .collect()
}

fn attempt(text: &str, tree: &Tree) -> Result<Changes, Box<Refusal>> {
    apply_files(&parse_files(text.as_bytes()).unwrap(), tree)
}

/// The tree after `text`, as `name=content` pairs.
fn after(text: &str, before: &Tree) -> Vec<String> {
    let mut tree = before.clone();
    for (path, blob) in attempt(text, before).unwrap() {
        match blob {
            Some(blob) => tree.insert(path, blob),
            None => tree.remove(&path),
        };
    }
    tree.iter()
        .map(|(path, blob)| format!("{path}={}", String::from_utf8_lossy(&blob.content)))
        .collect()
}

fn fault(text: &str, tree: &Tree) -> String {
    format!("{:?}", attempt(text, tree).unwrap_err().fault)
}

fn edit(name: &str, old: &str, new: &str) -> String {
    format!(
        "diff --git a/{name} b/{name}\n--- a/{name}\n+++ b/{name}\n@@ -1 +1 @@\n-{old}\n+{new}\n"
    )
}

fn create(name: &str, line: &str) -> String {
    format!(
        "diff --git a/{name} b/{name}\nnew file mode 100644\n--- /dev/null\n+++ b/{name}\n@@ -0,0 +1 @@\n+{line}\n"
    )
}

fn link(name: &str, target: &str) -> String {
    create(name, target).replace("100644", "120000") + "\\ No newline at end of file\n"
}

fn delete(name: &str, line: &str) -> String {
    format!(
        "diff --git a/{name} b/{name}\ndeleted file mode 100644\n--- a/{name}\n+++ /dev/null\n@@ -1 +0,0 @@\n-{line}\n"
    )
}

fn moved(verb: &str, from: &str, to: &str) -> String {
    format!(
        "diff --git a/{from} b/{to}\nsimilarity index 100%\n{verb} from {from}\n{verb} to {to}\n"
    )
}

#[test]
fn two_files_change_places() {
    let before = tree(&[("a", "A\n"), ("b", "B\n")]);
    let swap = moved("rename", "a", "b") + &moved("rename", "b", "a");
    assert_eq!(after(&swap, &before), ["a=B\n", "b=A\n"]);
    let around = moved("rename", "a", "b") + &moved("rename", "b", "c");
    assert_eq!(after(&around, &before), ["b=A\n", "c=B\n"]);
    assert_eq!(fault(&moved("rename", "a", "b"), &before), "Exists");
}

#[test]
fn a_copy_takes_the_file_as_it_was_and_an_edit_as_it_is() {
    let before = tree(&[("a", "1\n")]);
    let text = edit("a", "1", "2") + &moved("copy", "a", "b") + &edit("a", "2", "3");
    assert_eq!(after(&text, &before), ["a=3\n", "b=1\n"]);
    let text = moved("rename", "a", "b") + &edit("b", "1", "2");
    assert_eq!(after(&text, &before), ["b=2\n"]);
    let text = create("n", "1") + &edit("n", "1", "2");
    assert_eq!(after(&text, &before), ["a=1\n", "n=2\n"]);
}

#[test]
fn a_rename_brings_its_edits_and_its_mode() {
    let text = "diff --git a/a b/d/b\nold mode 100644\nnew mode 100755\nsimilarity index 50%\nrename from a\nrename to d/b\n--- a/a\n+++ b/d/b\n@@ -1 +1,2 @@\n 1\n+2\n";
    let changes = attempt(text, &tree(&[("a", "1\n")])).unwrap();
    let executable = Blob::new("1\n2\n", FileMode::Executable);
    assert_eq!(
        changes,
        [(path("a"), None), (path("d/b"), Some(executable))]
    );
}

#[test]
fn what_is_gone_cannot_be_touched() {
    let before = tree(&[("a", "1\n")]);
    assert_eq!(
        fault(&(delete("a", "1") + &edit("a", "1", "2")), &before),
        "Gone"
    );
    assert_eq!(
        fault(&(delete("a", "1") + &delete("a", "1")), &before),
        "Gone"
    );
    assert_eq!(
        fault(&(moved("rename", "a", "b") + &edit("a", "1", "2")), &before),
        "Gone"
    );
    assert_eq!(
        fault(
            &(moved("rename", "a", "b") + &moved("rename", "a", "c")),
            &before
        ),
        "Gone"
    );
    assert_eq!(fault(&edit("b", "1", "2"), &before), "Missing");
    let anew = delete("a", "1") + &create("a", "2");
    assert_eq!(after(&anew, &before), ["a=2\n"]);
}

#[test]
fn nothing_is_lost_or_made_twice() {
    let before = tree(&[("a", "1\n")]);
    assert_eq!(fault(&create("a", "2"), &before), "Exists");
    assert_eq!(
        fault(&(create("b", "1") + &create("b", "2")), &before),
        "MadeTwice"
    );
    assert_eq!(
        fault(&(edit("a", "1", "2") + &delete("a", "2")), &before),
        "ChangedBefore"
    );
    assert_eq!(
        fault(&(edit("a", "1", "2") + &moved("rename", "a", "b")), &before),
        "ChangedBefore"
    );
    let more = tree(&[("a", "1\n2\n")]);
    let part = "diff --git a/a b/a\ndeleted file mode 100644\n--- a/a\n+++ /dev/null\n@@ -1,2 +1 @@\n-1\n 2\n";
    assert_eq!(fault(part, &more), "Leftover");
    let headless = "diff --git a/a b/a\ndeleted file mode 100644\nindex 1..0\n";
    assert_eq!(fault(headless, &more), "Leftover");
}

#[test]
fn modes_must_be_what_the_diff_says() {
    let before = tree(&[("a", "1\n"), ("l", "-> a")]);
    let to_plain = "diff --git a/a b/a\nold mode 100755\nnew mode 100644\n";
    assert!(fault(to_plain, &before).starts_with("Mode"));
    let to_link = "diff --git a/a b/a\nold mode 100644\nnew mode 120000\n";
    assert_eq!(fault(to_link, &before), "Kind");
    assert!(fault(&delete("l", "a"), &before).starts_with("Mode"));
    let turn = delete("a", "1") + &link("a", "l");
    let changes = attempt(&turn, &before).unwrap();
    assert_eq!(changes, [(path("a"), Some(Blob::new("l", FileMode::Link)))]);
}

#[test]
fn no_link_leaves_the_tree_and_nothing_is_written_through_one() {
    let before = tree(&[("d/f", "1\n"), ("out", "-> d")]);
    for target in [
        "..",
        "/etc/passwd",
        "../x",
        "d/../../x",
        ".git/config",
        "d/..",
    ] {
        let fault = fault(&link("l", target), &before);
        assert!(fault.starts_with("Escapes"), "{target}: {fault}");
    }
    for target in ["d", "d/f", ".", "d/"] {
        assert!(attempt(&link("l", target), &before).is_ok(), "{target}");
    }
    assert!(attempt(&link("d/l", ".."), &before).is_ok());
    assert!(attempt(&link("d/l", "../out"), &before).is_ok());
    assert!(attempt(&link("d/l", "../../out"), &before).is_err());
    assert!(fault(&create("out/x", "1"), &before).starts_with("InTheWay"));
    let through = link("l", "d") + &create("l/x", "1");
    assert!(fault(&through, &before).starts_with("InTheWay"));
    // A link that is edited is a link all the same.
    let turned = edit("out", "d", "..").replace("\n+..", "\n\\ No newline at end of file\n+..")
        + "\\ No newline at end of file\n";
    assert!(fault(&turned, &before).starts_with("Escapes"));
}

#[test]
fn files_and_folders_do_not_share_a_place() {
    let before = tree(&[("a", "1\n"), ("d/x", "1\n"), ("d/y", "1\n")]);
    assert!(fault(&create("a/b", "1"), &before).starts_with("InTheWay"));
    assert_eq!(fault(&create("d", "1"), &before), "Folder");
    assert_eq!(
        fault(&(delete("d/x", "1") + &create("d", "1")), &before),
        "Folder"
    );
    let emptied = delete("d/x", "1") + &delete("d/y", "1") + &create("d", "2");
    assert_eq!(after(&emptied, &before), ["a=1\n", "d=2\n"]);
    let turned = delete("a", "1") + &create("a/b", "2");
    assert_eq!(after(&turned, &before), ["a/b=2\n", "d/x=1\n", "d/y=1\n"]);
}

#[test]
fn a_refusal_names_the_file_and_says_that_nothing_changed() {
    let before = tree(&[("a", "1\n"), ("b", "1\n")]);
    let refusal = attempt(&(edit("a", "1", "2") + &edit("b", "0", "2")), &before).unwrap_err();
    assert_eq!((refusal.number, refusal.path.as_str()), (2, "b"));
    let error = Error::from(*refusal);
    insta::assert_snapshot!(error.to_string(), @r"
    b: hunk 1, line 1: the file is not what the hunk expects
      line    expected | found
         1 !  0        | 1
    ");
    assert!(error.hints()[0].contains("nothing was changed"));
}
