use super::*;
use crate::diff::{Operation, files_to_text};
use crate::tree::FileMode;
use proptest::prelude::*;

fn one(text: &str) -> FilePatch {
    let mut files = parse_files(text.as_bytes()).unwrap();
    assert_eq!(files.len(), 1);
    files.remove(0)
}

fn error(text: &str) -> String {
    let error = parse_files(text.as_bytes()).unwrap_err();
    assert!(!error.hints().is_empty(), "no hint: {error}");
    error.to_string()
}

const BODY: &str = "@@ -1 +1,2 @@\n x\n+y\n";

#[test]
fn every_header_that_git_writes() {
    let text = "\
diff --git a/new b/new
new file mode 100755
index 0000000..1234567
--- /dev/null
+++ b/new
@@ -0,0 +1 @@
+x
diff --git a/gone b/gone
deleted file mode 100644
index 1234567..0000000
--- a/gone
+++ /dev/null
@@ -1 +0,0 @@
-x
diff --git a/old name b/new name
similarity index 90%
rename from old name
rename to new name
index 1234567..abcdef0 100644
--- a/old name\t
+++ b/new name\t
@@ -1 +1,2 @@
 x
+y
diff --git a/from b/to
old mode 100644
new mode 100755
similarity index 100%
copy from from
copy to to
diff --git a/link b/link
new file mode 120000
index 0000000..1234567
--- /dev/null
+++ b/link
@@ -0,0 +1 @@
+target
\\ No newline at end of file
diff --git a/empty b/empty
new file mode 100644
index 0000000..e69de29
diff --git a/full rewrite b/full rewrite
dissimilarity index 93%
index 1234567..abcdef0 100755
--- a/full rewrite\t
+++ b/full rewrite\t
@@ -1,2 +1 @@ fn ä
-x
-y
+z
diff --git \"a/\\303\\244\\\"\" \"b/\\303\\244\\\"\"
old mode 100755
new mode 100644
";
    let files = parse_files(text.as_bytes()).unwrap();
    let kinds: Vec<String> = files
        .iter()
        .map(|file| match &file.operation {
            Operation::Edit(path) => format!("edit {path}"),
            Operation::Create(path) => format!("create {path}"),
            Operation::Delete(path) => format!("delete {path}"),
            Operation::Rename { from, to } => format!("rename {from} -> {to}"),
            Operation::Copy { from, to } => format!("copy {from} -> {to}"),
        })
        .collect();
    assert_eq!(
        kinds,
        [
            "create new",
            "delete gone",
            "rename old name -> new name",
            "copy from -> to",
            "create link",
            "create empty",
            "edit full rewrite",
            "edit ä\"",
        ]
    );
    assert_eq!(files[4].new_mode, Some(FileMode::Link));
    assert_eq!(String::from_utf8(files_to_text(&files)).unwrap(), text);
}

#[test]
fn quilt_and_gnu_diff_are_read() {
    let quilt = format!(
        "What it is for.\n\n Indented prose - and @@ signs.\n---\n src/f | 1 +\n\n\
         Index: base/src/f\n{}\n--- base.orig/src/f\t2020-01-01 10:00:00.000000000 +0100\n\
         +++ base/src/f\t2020-01-02 10:00:00.000000000 +0100\n{BODY}",
        "=".repeat(67)
    );
    assert_eq!(one(&quilt).path().as_str(), "src/f");
    let gnu = "diff -ruN a/f b/f\n--- a/f\t1970-01-01 01:00:00.000000000 +0100\n\
        +++ b/f\t2020-01-02 10:00:00.000000000 +0100\n@@ -0,0 +1 @@\n+x\n";
    assert!(matches!(one(gnu).operation, Operation::Create(_)));
    let unstripped = format!("--- src/f.orig\n+++ src/f\n{BODY}");
    let files = parse_files_stripped(unstripped.as_bytes(), Strip::Zero).unwrap();
    assert_eq!(files[0].path().as_str(), "src/f");
    let blank = format!("--- a/f 2020-01-01 10:00\n+++ b/f 2020-01-01 10:00\n{BODY}");
    assert!(error(&blank).contains("behind a blank"));
    assert!(error(&format!("--- f\n+++ f\n{BODY}")).contains("no leading folder"));
    assert!(error(&format!("--- a/f\n+++ b/g\n{BODY}")).contains("another file"));
}

#[test]
fn a_mail_signature_and_the_next_mail_are_no_strays() {
    let mail = format!(
        "From {} Mon Sep 17 00:00:00 2001\nSubject: x\n\n+ prose\n---\n f | 1 +\n\n\
         diff --git a/f b/f\n--- a/f\n+++ b/f\n{BODY}-- \n2.47.3\n\n",
        "0".repeat(40)
    );
    one(&mail);
    let both = mail.clone() + &mail.replace("/f", "/g");
    assert_eq!(parse_files(both.as_bytes()).unwrap().len(), 2);
    // A deleted line `- ` looks like the start of a signature.
    let lost = mail.replace("2.47.3\n\n", "-lost\n");
    assert!(error(&lost).contains("stands after the end"));
}

#[test]
fn binary_changes_are_refused_by_name() {
    for text in [
        "diff --git a/x.bin b/x.bin\nindex 1..2 100644\nBinary files a/x.bin and b/x.bin differ\n",
        "diff --git a/x.bin b/x.bin\nindex 1..2 100644\nGIT binary patch\nliteral 0\nHcmV?d00001\n\n",
        "diff -r a/x.bin b/x.bin\nBinary files a/x.bin and b/x.bin differ\n",
    ] {
        let error = error(text);
        assert!(
            error.contains("x.bin") && error.contains("binary"),
            "{error}"
        );
    }
}

#[test]
fn submodules_and_odd_modes_are_refused() {
    let sub = "diff --git a/s b/s\nnew file mode 160000\nindex 0000000..1234567\n--- /dev/null\n+++ b/s\n@@ -0,0 +1 @@\n+Subproject commit 1234567\n";
    assert!(error(sub).contains("submodule"));
    assert!(error(&sub.replace("160000", "100600")).contains("100600"));
}

#[test]
fn unsafe_names_are_refused_wherever_they_stand() {
    for name in [
        "../f",
        "x/../f",
        ".git/config",
        "x/.GIT/f",
        "/etc/f",
        "x\\f",
        "x//f",
        "./f",
        "C:f",
    ] {
        let edit = format!("--- a/{name}\n+++ b/{name}\n{BODY}");
        error(&edit);
        error(&format!("diff --git a/{name} b/{name}\n{edit}"));
        error(&format!(
            "diff --git a/{name} b/{name}\nold mode 100644\nnew mode 100755\n"
        ));
        error(&format!(
            "diff --git a/ok b/{name}\nsimilarity index 100%\nrename from ok\nrename to {name}\n"
        ));
    }
    error(&format!("--- \"a/x\\ny\"\n+++ \"b/x\\ny\"\n{BODY}"));
    error(&format!("--- \"a/\\377\"\n+++ \"b/\\377\"\n{BODY}"));
}

#[test]
fn names_that_differ_only_in_case_are_refused() {
    let two =
        |a: &str, b: &str| format!("--- a/{a}\n+++ b/{a}\n{BODY}--- a/{b}\n+++ b/{b}\n{BODY}");
    assert!(error(&two("x/File", "x/file")).contains("only in case"));
    assert!(error(&two("Dir/a", "dir/b")).contains("only in case"));
    assert!(error(&two("É", "é")).contains("only in case"));
    let forms = error(&two("caf\u{e9}", "cafe\u{301}"));
    assert!(forms.contains("\"café\" and \"cafe\\u{301}\""), "{forms}");
    assert!(error(&two("\u{c9}/a", "e\u{301}/b")).contains("form of accents"));
    assert!(parse_files(two("caf\u{e9}", "cafe").as_bytes()).is_ok());
    assert!(parse_files(two("x", "y").as_bytes()).is_ok());
    let renamed =
        "diff --git a/File b/file\nsimilarity index 100%\nrename from File\nrename to file\n";
    one(renamed);
}

#[test]
fn headers_that_contradict_themselves_are_refused() {
    let edit = format!("--- a/f\n+++ b/f\n{BODY}");
    for head in [
        "diff --git a/f b/g\n",
        "diff --git a/g b/g\n",
        "diff --git a/f b/f\nold mode 100644\n",
        "diff --git a/f b/f\nindex 1..2\nindex 1..2\n",
        "diff --git a/f b/f\nindex 1-2\n",
        "diff --git a/f b/f\nnew file mode 100644\n",
        "diff --git a/f b/f\nnew file mode 100644\ndeleted file mode 100644\n",
        "diff --git a/f b/f\nrename from f\n",
        "diff --git a/f b/f\nrename from f\nrename to f\n",
        "diff --git a/e b/f\nsimilarity index 101%\nrename from e\nrename to f\n",
        "diff --git a/f b/f\nunknown line\n",
    ] {
        error(&format!("{head}{edit}"));
    }
    assert!(error("diff --git a/f b/f\nindex 1..2 100644\n").contains("changes nothing"));
    assert!(error(&format!("diff --git a/f b/f\n{BODY}")).contains("without `---`"));
    assert!(error("diff --git a/f b/f\n--- a/f\n+++ b/f\n").contains("hunk"));
    assert!(error("--- a/f\n+++ b/f\n").contains("no hunk"));
}

#[test]
fn what_was_left_out_of_a_diff_is_not_passed_over() {
    let edit = format!("--- a/f\n+++ b/f\n{BODY}");
    assert!(error(&format!("{edit}Only in b: new.c\n")).contains("left out"));
    assert!(error(&format!("Only in b/x: new.c\n{edit}")).contains("left out"));
    assert!(error(&format!("diff --cc f\nindex 1,2..3\n{edit}")).contains("merge"));
    assert!(error(BODY).contains("no file"));
    assert!(error("Only prose.\n").contains("no file"));
    assert!(error("").contains("no file"));
    for stray in ["+lost\n", " lost\n", "-lost\n", "--- lost\n"] {
        error(&format!("{edit}{stray}"));
    }
}

#[test]
fn a_diff_that_was_converted_to_crlf_says_so() {
    let text = format!("diff --git a/f b/f\n--- a/f\n+++ b/f\n{BODY}").replace('\n', "\r\n");
    let fault = parse_files(text.as_bytes()).unwrap_err();
    assert!(fault.hints()[0].contains(".gitattributes"), "{fault}");
    let plain = format!("--- a/f\t2020-01-01\n+++ b/f\t2020-01-01\n{BODY}").replace('\n', "\r\n");
    let fault = parse_files(plain.as_bytes()).unwrap_err();
    assert!(fault.hints()[0].contains(".gitattributes"), "{fault}");
}

#[test]
fn a_truncated_diff_is_refused_wherever_it_is_cut() {
    let text = format!(
        "diff --git a/f b/f\nindex 1..2 100644\n--- a/f\n+++ b/f\n{BODY}@@ -9 +10 @@\n-p\n+q\n\\ No newline at end of file\n"
    );
    for cut in 1..text.len() {
        let Ok(files) = parse_files(&text.as_bytes()[..cut]) else {
            continue;
        };
        // Only whole hunks look whole; the marker makes a difference that applying sees.
        let at_hunk = text[..cut].ends_with(BODY) || text[..cut].ends_with("+q\n");
        assert!(at_hunk, "cut at {cut}: {files:?}");
    }
}

/// A diff out of plausible pieces, so that random text gets past the first line.
fn pieces() -> impl Strategy<Value = String> {
    let piece = prop::sample::select(vec![
        "diff --git a/f b/f\n",
        "diff --git a/f b/g\n",
        "--- a/f\n",
        "+++ b/f\n",
        "--- /dev/null\n",
        "+++ /dev/null\n",
        "new file mode 100644\n",
        "deleted file mode 100644\n",
        "rename from f\n",
        "rename to g\n",
        "copy from f\n",
        "copy to g\n",
        "similarity index 50%\n",
        "index 1..2\n",
        "old mode 100644\n",
        "new mode 100755\n",
        "@@ -1 +1 @@\n",
        "@@ -1,2 +1,3 @@ x\n",
        " a\n",
        "-a\n",
        "+b\n",
        "\n",
        "\\ No newline at end of file\n",
        "-- \n",
        "GIT binary patch\n",
        "diff --git \"a/\\303\\244\" \"b/\\303\\244\"\n",
        "Index: f\n",
        "\r\n",
        "\u{e4}\n",
        "--- \n",
    ]);
    prop::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn arbitrary_bytes_never_panic(text in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse_files(&text);
    }

    /// What is read at all is written and read back as the same, and no line of it was dropped
    /// that could have changed a file.
    #[test]
    fn what_is_read_survives_writing(text in pieces()) {
        // Behind this, nothing is prose.
        let text = format!("diff --git a/z b/z\nold mode 100644\nnew mode 100755\n{text}");
        if let Ok(files) = parse_files(text.as_bytes()) {
            let written = files_to_text(&files);
            prop_assert_eq!(&parse_files(&written).unwrap(), &files);
            let hunks = files.iter().flat_map(|file| &file.hunks);
            let kept = hunks.flat_map(|hunk| &hunk.lines).count();
            let lines = text.lines().filter(|line| matches!(*line, " a" | "-a" | "+b")).count();
            let blank = text.lines().filter(|line| line.is_empty()).count();
            prop_assert!(lines <= kept && kept <= lines + blank, "{}", text);
        }
    }
}
