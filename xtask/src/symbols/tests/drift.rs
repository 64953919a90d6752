use std::collections::BTreeMap;

use super::*;
use crate::tree::Blob;

type Tree = BTreeMap<RelPath, Blob>;

fn tree(files: &[(&str, &str)]) -> Tree {
    files
        .iter()
        .map(|(name, text)| (path(name), Blob::plain(*text)))
        .collect()
}

/// A file of a patch.
fn overlay(name: &str, text: &str) -> User {
    User {
        file: path(name),
        moved_to: None,
        uses: uses(&path(name), text.as_bytes()),
        own: Some(text.as_bytes().to_vec()),
    }
}

/// Hook lines in an upstream file that with them reads `text`.
fn hook(name: &str, text: &str, lines: std::ops::Range<usize>) -> User {
    User {
        file: path(name),
        moved_to: None,
        uses: uses_of_lines(&path(name), text.as_bytes(), std::slice::from_ref(&lines)),
        own: None,
    }
}

fn shown(old: &Tree, new: &Tree, users: &[User]) -> Vec<String> {
    let place = |place: &Option<Place>| match place {
        Some(p) => format!("{}:{} {}", p.file, p.line, p.signature),
        None => "nothing".to_owned(),
    };
    drift(old, new, users)
        .unwrap()
        .iter()
        .map(|d| {
            let change = serde_json::to_value(d.change).unwrap();
            let change = change.as_str().unwrap().to_owned();
            format!(
                "{change} {}: {} -> {}",
                d.name,
                place(&d.before),
                place(&d.after)
            )
        })
        .collect()
}

const USER: &str = "\
#include \"up.h\"
void own(up_batch & b) {
    up_call(b.n, UP_LIMIT);
    b.size = UP_MODE;
}
";

const UP: &str = "\
#define UP_LIMIT 4
enum up_mode { UP_MODE, UP_LAST };
struct up_batch { int n; int size; };
int up_call(int a, int b);
";

fn drifts(now: &str) -> Vec<String> {
    let old = tree(&[("src/up.h", UP)]);
    let new = tree(&[("src/up.h", now)]);
    shown(&old, &new, &[overlay("src/own/own.cpp", USER)])
}

#[test]
fn the_same_tree_has_no_drift_and_neither_has_what_is_not_used() {
    assert!(drifts(UP).is_empty());
    let now = format!(
        "// new\n{}\nint unused(long);\n",
        UP.replace("UP_LAST", "UP_OTHER")
    );
    assert!(drifts(&now).is_empty(), "{:?}", drifts(&now));
}

#[test]
fn each_kind_of_declaration_that_changes_is_told() {
    for (from, to, told) in [
        (
            "LIMIT 4",
            "LIMIT 8",
            "changed UP_LIMIT: src/up.h:1 UP_LIMIT 4 -> src/up.h:1 UP_LIMIT 8",
        ),
        (
            "UP_MODE,",
            "UP_MODE = 2,",
            "changed UP_MODE: src/up.h:2 UP_MODE -> src/up.h:2 UP_MODE = 2",
        ),
        (
            "int n;",
            "long n;",
            "changed up_batch::n: src/up.h:3 int n -> src/up.h:3 long n",
        ),
        (
            "int a, int b",
            "int a, int b, int c = 0",
            "changed up_call: src/up.h:4 int up_call(int a, int b) -> \
             src/up.h:4 int up_call(int a, int b, int c = 0)",
        ),
        (
            "int size;",
            "",
            "removed up_batch::size: src/up.h:3 int size -> nothing",
        ),
        (
            "int up_call",
            "int up_renamed",
            "removed up_call: src/up.h:4 int up_call(int a, int b) -> nothing",
        ),
        (
            "struct up_batch {",
            "struct up_batch : up_base {",
            "changed up_batch: src/up.h:3 struct up_batch -> src/up.h:3 struct up_batch : up_base",
        ),
    ] {
        assert_eq!(drifts(&UP.replace(from, to)), [told]);
    }
    let more = format!("{UP}int up_call(int a);\n");
    assert_eq!(
        drifts(&more),
        ["added-overload up_call: nothing -> src/up.h:5 int up_call(int a)"]
    );
}

#[test]
fn what_moves_is_moved_while_the_includes_reach_it() {
    let old = tree(&[("src/up.h", UP)]);
    let rest = UP.replace("int up_call(int a, int b);\n", "");
    let with = format!("#include \"calls.h\"\n{rest}");
    let calls = "int up_call(int a, int b);\n";
    let users = [overlay("src/own/own.cpp", USER)];
    let new = tree(&[("src/up.h", &with), ("src/calls.h", calls)]);
    assert_eq!(
        shown(&old, &new, &users),
        ["moved up_call: src/up.h:4 int up_call(int a, int b) -> \
          src/calls.h:1 int up_call(int a, int b)"]
    );
    let new = tree(&[("src/up.h", &rest), ("src/calls.h", calls)]);
    assert_eq!(
        shown(&old, &new, &users),
        ["removed up_call: src/up.h:4 int up_call(int a, int b) -> nothing"]
    );
}

#[test]
fn a_field_of_another_struct_is_another_field() {
    let far = "struct unrelated { int n; int size; };\n";
    let old = tree(&[("src/up.h", UP), ("src/far.h", far)]);
    let new = tree(&[
        ("src/up.h", UP),
        ("src/far.h", "struct unrelated { long n; long size; };\n"),
    ]);
    let users = [overlay("src/own/own.cpp", USER)];
    assert!(shown(&old, &new, &users).is_empty());
    // Within reach, but of another type than the object has.
    let with = format!("#include \"far.h\"\n{UP}");
    let (mut old, mut new) = (old, new);
    old.insert(path("src/up.h"), Blob::plain(with.clone()));
    new.insert(path("src/up.h"), Blob::plain(with));
    assert!(shown(&old, &new, &users).is_empty());
    // Where the type is not known, it may be meant; not so `size`, which every container has.
    let unknown = "#include \"up.h\"\nvoid own() { auto * b = up_get(); b->n = 1; b->size = 2; }\n";
    assert_eq!(
        shown(&old, &new, &[overlay("src/own/own.cpp", unknown)]),
        ["changed unrelated::n: src/far.h:1 int n -> src/far.h:1 long n"]
    );
}

#[test]
fn declaration_and_definition_are_one_change() {
    let header = "struct up { int run(int a = 1); };\n";
    let source = "#include \"up.h\"\nint up::run(int a) {\n    return 1;\n}\n";
    let text = "#include \"up.h\"\nint up::run(int a) {\n    run(2);\n    return 1;\n}\n";
    let users = [hook("src/up.cpp", text, 3..4)];
    let old = tree(&[("src/up.h", header), ("src/up.cpp", source)]);
    let new = tree(&[
        ("src/up.h", "struct up { int run(long a = 1); };\n"),
        ("src/up.cpp", &source.replace("int a", "long a")),
    ]);
    assert_eq!(
        shown(&old, &new, &users),
        ["changed up::run: src/up.h:1 int run(int a = 1) -> src/up.h:1 int run(long a = 1)"]
    );
    // The definition goes away from the hooked file; the declaration stays.
    let new = tree(&[("src/up.h", header), ("src/up.cpp", "#include \"up.h\"\n")]);
    assert!(shown(&old, &new, &users).is_empty());
}

#[test]
fn variables_of_the_function_around_a_hook_count() {
    let source = "\
int decode(const batch & in, int n) {
    auto * res = process(in);
    return n;
}
";
    let hooked = source.replace("    return", "    mine(res, in, n);\n    return");
    let users = [hook("src/a.cpp", &hooked, 3..4)];
    let old = tree(&[("src/a.cpp", source)]);
    let new = source
        .replace("auto * res", "const auto & result")
        .replace("int n", "long n");
    let new = tree(&[("src/a.cpp", &new)]);
    assert_eq!(
        shown(&old, &new, &users),
        [
            "removed decode()::res: src/a.cpp:2 auto * res -> nothing",
            "changed decode()::n: src/a.cpp:1 int n -> src/a.cpp:1 long n",
        ]
    );
    let moved = tree(&[("lib/b.cpp", &source.replace("int n", "long n"))]);
    let users = [User {
        moved_to: Some(path("lib/b.cpp")),
        ..users[0].clone()
    }];
    assert_eq!(
        shown(&old, &moved, &users),
        ["changed decode()::n: src/a.cpp:1 int n -> lib/b.cpp:1 long n"]
    );
}

#[test]
fn users_of_one_declaration_are_named_together() {
    let old = tree(&[("src/up.h", UP)]);
    let new = tree(&[("src/up.h", &UP.replace("LIMIT 4", "LIMIT 5"))]);
    let users = [
        overlay("src/own/one.cpp", USER),
        overlay("src/own/none.cpp", "int x;\n"),
        overlay("src/own/two.cpp", USER),
    ];
    let found = drift(&old, &new, &users).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].users, [0, 2]);
    assert_eq!(found[0].kind, Some(SymbolKind::Macro));
}

#[test]
fn cmake_targets_are_known_everywhere() {
    let old = tree(&[("tools/CMakeLists.txt", "add_library(core a.cpp)\n")]);
    let new = tree(&[("tools/CMakeLists.txt", "add_library(core-impl a.cpp)\n")]);
    let users = [overlay(
        "cmake/own.cmake",
        "target_link_libraries(core PRIVATE x)\n",
    )];
    assert_eq!(
        shown(&old, &new, &users),
        ["removed core: tools/CMakeLists.txt:1 add_library(core) -> nothing"]
    );
}

#[test]
fn headers_are_found_beside_in_the_usual_folders_and_by_their_only_suffix() {
    let files = tree(&[
        (
            "src/a.cpp",
            "#include \"a.h\"\n#include <up.h>\n#include <vector>\n",
        ),
        (
            "src/a.h",
            "#include \"../include/up.h\"\n#include \"deep/only.h\"\n",
        ),
        ("include/up.h", "#include \"up.h\"\n#include \"a.h\"\n"),
        ("tools/x/deep/only.h", "#include \"twice.h\"\n"),
        ("tools/x/twice.h", ""),
        ("tools/y/twice.h", ""),
        ("tools/y/vector/not.h", ""),
    ]);
    let headers = Headers::new(&files, BTreeMap::new());
    let from = path("src/a.cpp");
    let find = |name: &str| headers.resolve(&from, name).map(|p| p.to_string());
    assert_eq!(find("a.h").unwrap(), "src/a.h");
    assert_eq!(find("up.h").unwrap(), "include/up.h");
    assert_eq!(find("deep/only.h").unwrap(), "tools/x/deep/only.h");
    for none in ["twice.h", "vector", "../../../up", "", "/", "nly.h"] {
        assert_eq!(find(none), None, "{none}");
    }
    let reached: Vec<String> = headers
        .closure(&from)
        .unwrap()
        .iter()
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        reached,
        [
            "include/up.h",
            "src/a.cpp",
            "src/a.h",
            "tools/x/deep/only.h"
        ]
    );
    assert!(headers.closure(&path("no.cpp")).unwrap().is_empty());
}

#[test]
fn a_patchs_own_header_leads_on_into_the_tree() {
    let old = tree(&[("src/up.h", UP)]);
    let new = tree(&[("src/up.h", &UP.replace("LIMIT 4", "LIMIT 5"))]);
    let users = [
        overlay("src/own/own.h", "#include \"../up.h\"\n"),
        overlay("src/own/own.cpp", "#include \"own.h\"\nint a = UP_LIMIT;\n"),
    ];
    assert_eq!(shown(&old, &new, &users).len(), 1);
}
