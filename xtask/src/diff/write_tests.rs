use super::*;
use crate::diff::{apply, apply_files, between, between_files, parse, parse_files};
use crate::tree::{Blob, RelPath};
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

#[test]
fn looks_like_git() {
    let old = "int f() {\n    a;\n    b;\n    c;\n    d;\n    e;\n}\n";
    let new = old.replace("    d;\n", "    d;\n    x;\n");
    let diff = between(&path("src/f.c"), old.as_bytes(), new.as_bytes()).unwrap();
    insta::assert_snapshot!(String::from_utf8(to_text(&diff)).unwrap(), @r"
    diff --git a/src/f.c b/src/f.c
    --- a/src/f.c
    +++ b/src/f.c
    @@ -3,5 +3,6 @@ int f() {
         b;
         c;
         d;
    +    x;
         e;
     }
    ");
}

#[test]
fn every_kind_of_change_has_gits_header() {
    let plain = Blob::plain("x\n");
    let link = Blob::new("x", FileMode::Link);
    let tool = Blob::new("x\n", FileMode::Executable);
    let mut text = Vec::new();
    for (name, old, new) in [
        ("new name", None, Some(&tool)),
        ("gone", Some(&plain), None),
        ("mode", Some(&plain), Some(&tool)),
        ("turned", Some(&plain), Some(&link)),
        ("empty", None, Some(&Blob::plain(""))),
    ] {
        let files = between_files(&path(name), old, new).unwrap();
        text.extend(files_to_text(&files));
    }
    assert_eq!(files_to_text(&parse_files(&text).unwrap()), text);
    let text = String::from_utf8(text).unwrap().replace('\t', "<tab>");
    insta::assert_snapshot!(text, @r"
    diff --git a/new name b/new name
    new file mode 100755
    index 0000000000000000000000000000000000000000..587be6b4c3f93f93c489c0111bba5596147a26cb
    --- /dev/null
    +++ b/new name<tab>
    @@ -0,0 +1 @@
    +x
    diff --git a/gone b/gone
    deleted file mode 100644
    index 587be6b4c3f93f93c489c0111bba5596147a26cb..0000000000000000000000000000000000000000
    --- a/gone
    +++ /dev/null
    @@ -1 +0,0 @@
    -x
    diff --git a/mode b/mode
    old mode 100644
    new mode 100755
    diff --git a/turned b/turned
    deleted file mode 100644
    index 587be6b4c3f93f93c489c0111bba5596147a26cb..0000000000000000000000000000000000000000
    --- a/turned
    +++ /dev/null
    @@ -1 +0,0 @@
    -x
    diff --git a/turned b/turned
    new file mode 120000
    index 0000000000000000000000000000000000000000..c1b0730e0133447badcfd47fd144e254807b06e1
    --- /dev/null
    +++ b/turned
    @@ -0,0 +1 @@
    +x
    \ No newline at end of file
    diff --git a/empty b/empty
    new file mode 100644
    index 0000000000000000000000000000000000000000..e69de29bb2d1d6434b8b29ae775ad8c2e48c5391
    ");
}

/// Contents with few distinct lines, any line ends, and perhaps no last one.
const CONTENT: &str = "([abc]{0,2}(\n|\r\n)){0,30}[ab]?";

proptest! {
    /// Written, read and applied, a diff gives the second content again, whatever the line
    /// ends, and whether or not the last line has one.
    #[test]
    fn round_trip(old in CONTENT, new in CONTENT, name in "[a-zä\" ]{1,8}") {
        prop_assume!(old != new && RelPath::new(name.clone()).is_ok());
        let diff = between(&path(&name), old.as_bytes(), new.as_bytes()).unwrap();
        prop_assert_eq!(apply(&diff, old.as_bytes()).unwrap(), new.as_bytes());
        let text = to_text(&diff);
        let read = parse(&text).unwrap();
        prop_assert_eq!(&read, &vec![diff]);
    }

    /// The same for files that come, go, or change their kind.
    #[test]
    fn round_trip_of_files(old in proptest::option::of((CONTENT, 0..3usize)),
                           new in proptest::option::of((CONTENT, 0..3usize)),
                           name in "[a-zä\" ]{1,8}") {
        prop_assume!(RelPath::new(name.clone()).is_ok());
        let blob = |(content, mode): (String, usize)| match mode {
            0 => Blob::plain(content),
            1 => Blob::new(content, FileMode::Executable),
            _ => Blob::new("to/there", FileMode::Link),
        };
        let (old, new) = (old.map(blob), new.map(blob));
        prop_assume!(old != new);
        let files = between_files(&path(&name), old.as_ref(), new.as_ref()).unwrap();
        let text = files_to_text(&files);
        prop_assert_eq!(&parse_files(&text).unwrap(), &files);
        let tree: BTreeMap<RelPath, Blob> = old.map(|blob| (path(&name), blob)).into_iter().collect();
        let changes = apply_files(&files, &tree).unwrap();
        prop_assert_eq!(changes, vec![(path(&name), new)]);
    }
}

/// Time for reading, applying and writing a diff of `hunks` hunks on a file of 20 times as many
/// lines, and for making it.
fn time(hunks: usize) -> [Duration; 4] {
    // No line looks like a heading, so that looking for one is as dear as it can be.
    let old: String = (0..hunks * 20).map(|at| format!("  line {at}\n")).collect();
    let new: String = (0..hunks * 20)
        .map(|at| match at % 20 {
            9 => format!("  line {at}\n  new {at}\n"),
            _ => format!("  line {at}\n"),
        })
        .collect();
    let mut times = [Duration::MAX; 4];
    for _ in 0..3 {
        let start = Instant::now();
        let diff = between(&path("f"), old.as_bytes(), new.as_bytes()).unwrap();
        let made = start.elapsed();
        let text = to_text(&diff);
        let written = start.elapsed();
        let files = parse(&text).unwrap();
        let read = start.elapsed();
        let result = apply(&files[0], old.as_bytes()).unwrap();
        let applied = start.elapsed();
        assert_eq!(files[0].hunks.len(), hunks);
        assert!(result == new.as_bytes());
        let spans = [made, written - made, read - written, applied - read];
        for (best, span) in times.iter_mut().zip(spans) {
            *best = span.min(*best);
        }
    }
    times
}

#[test]
fn ten_times_the_hunks_cost_about_ten_times_the_time() {
    // Quadratic would be a hundred times. A busy machine can slow down any one round, not all.
    let round = || -> Vec<f64> {
        let (small, large) = (time(400), time(4000));
        let ratio = |(small, large): (&Duration, &Duration)| {
            large.as_secs_f64() / small.max(&Duration::from_micros(200)).as_secs_f64()
        };
        small.iter().zip(&large).map(ratio).collect()
    };
    let mut best = round();
    for _ in 0..8 {
        if best.iter().all(|ratio| *ratio < 30.0) {
            return;
        }
        let next = round();
        best = best.iter().zip(next).map(|(a, b)| a.min(b)).collect();
    }
    panic!("make, write, read, apply cost {best:?} times as much");
}

#[test]
fn a_deletion_that_says_nothing_of_modes_is_written_so() {
    let plain = "--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n";
    let files = parse_files(plain.as_bytes()).unwrap();
    assert_eq!(files[0].old_mode, None);
    assert_eq!(files_to_text(&files), plain.as_bytes());
}
