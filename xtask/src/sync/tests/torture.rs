//! What upstreams do to the places of hooks, one kind each, and the verdict that it must get.

use super::Two;
use crate::sync::HookVerdict::{self, *};
use crate::sync::{PatchVerdict, Port};

const HOOK: &str = "    hook(); // opencoti-hook: one\n";

/// A function of `name` whose body is the same for every name.
fn function(name: &str) -> String {
    format!(
        "static int {name}(int x) {{\n    int sum = x;\n    prepare(sum);\n    sum += 1;\n    finish(sum);\n    return sum;\n}}\n\n"
    )
}

/// One patch with one hook behind `prepare(sum)` in `a.c`.
fn one(old: &str, new: &str) -> (Two, Port) {
    let two = Two::new(&[("a.c", old)], &[("a.c", new)]);
    two.patch("one", &[("a.c", "prepare(sum)", HOOK)]);
    let port = two.port();
    (two, port)
}

fn verdicts(port: &Port) -> Vec<HookVerdict> {
    port.reports
        .iter()
        .flat_map(|report| report.hooks.iter().map(|hook| hook.verdict))
        .collect()
}

fn line_of(text: &str, what: &str) -> usize {
    text.lines().position(|line| line.contains(what)).unwrap() + 1
}

#[test]
fn an_unchanged_file_is_clean_and_a_longer_one_shifts() {
    let old = function("alpha");
    let (_, port) = one(&old, &old);
    assert_eq!(verdicts(&port), [Clean]);
    let new = format!("int before;\n{old}");
    let (two, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Shifted]);
    assert_eq!(line_of(&two.file(&port, "a.c"), "hook()"), 5);
    let new = old.replace("finish(sum);", "finish(sum, 0);");
    let (two, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Merged]);
    assert_eq!(line_of(&two.file(&port, "a.c"), "hook()"), 4);
}

/// The nearest place with that context is in the wrong function: git and patch take it, exit 0.
#[test]
fn of_two_equal_bodies_the_hook_follows_its_own_function() {
    let (alpha, beta) = (function("alpha"), function("beta"));
    let old = format!("{alpha}{beta}");
    let new = format!("int more;\nint lines;\n\n{beta}{alpha}");
    let (two, port) = one(&old, &new);
    let hook = &port.reports[0].hooks[0];
    assert_eq!(hook.verdict, Moved, "{hook:?}");
    assert!(hook.note.contains("moved within the file"), "{}", hook.note);
    let text = two.file(&port, "a.c");
    assert!(line_of(&text, "hook()") > line_of(&text, "alpha("));
    assert!(text.contains("hook()") && line_of(&text, "alpha(") > line_of(&text, "beta("));
}

/// The function is gone and one with the same body is left: that is no place for its hook.
#[test]
fn a_hook_does_not_go_over_to_the_neighbour_of_a_removed_function() {
    let (alpha, beta) = (function("alpha"), function("beta"));
    for old in [format!("{alpha}{beta}"), format!("{beta}{alpha}")] {
        let two = Two::new(&[("a.c", &old)], &[("a.c", &beta)]);
        let at = old.find("alpha").unwrap();
        let anchor = &old[at..at + "alpha(int x) {\n    int sum = x;\n    prepare(sum);".len()];
        let now = old.replace(anchor, &format!("{anchor}\n{}", HOOK.trim_end()));
        let diff = crate::diff::between(
            &crate::tree::RelPath::new("a.c").unwrap(),
            old.as_bytes(),
            now.as_bytes(),
        )
        .unwrap();
        two.patch("one", &[]);
        super::put(
            &two.root().join("patches/one/hooks.patch"),
            &String::from_utf8(crate::diff::to_text(&diff)).unwrap(),
        );
        let port = two.port();
        assert_eq!(verdicts(&port), [Conflict], "{:?}", port.reports[0].hooks);
    }
}

#[test]
fn a_renamed_function_is_followed() {
    let old = function("alpha");
    let new = format!("int x;\n{}", function("alpha_of_many"));
    let (two, port) = one(&old, &new);
    let hook = &port.reports[0].hooks[0];
    assert_eq!(hook.verdict, Moved);
    assert!(
        hook.note.contains("`alpha` is `alpha_of_many` now"),
        "{}",
        hook.note
    );
    assert_eq!(line_of(&two.file(&port, "a.c"), "hook()"), 5);
}

/// Renamed, and elsewhere in the file, with its body changed a little.
#[test]
fn a_renamed_function_is_followed_by_its_body_where_that_is_unique() {
    let long = |name: &str| {
        function(name).replace(
            "finish(sum);",
            "finish(sum);\n    log(\"a\");\n    close(sum);\n    free(sum);",
        )
    };
    let other = "static void other(void) {\n    a();\n    b();\n    c();\n    d();\n}\n\n";
    let old = format!("{}{other}", long("alpha"));
    let new = format!(
        "{other}{}",
        long("renamed").replace("free(sum)", "release(sum)")
    );
    let (two, port) = one(&old, &new);
    let hook = &port.reports[0].hooks[0];
    assert_eq!(hook.verdict, Moved, "{hook:?}");
    assert!(
        two.file(&port, "a.c")
            .contains("prepare(sum);\n    hook();")
    );
    // Two of them: nobody can say which.
    let new = format!("{other}{}{}", long("renamed"), long("copied"));
    let (_, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Conflict]);
}

#[test]
fn a_function_is_followed_into_another_file() {
    let old = format!("int top;\n{}", function("alpha"));
    let two = Two::new(
        &[("a.c", &old), ("b.c", "int b;\n")],
        &[
            ("a.c", "int top;\n"),
            ("b.c", "int b;\n"),
            ("split.c", &function("alpha")),
        ],
    );
    two.patch("one", &[("a.c", "prepare(sum)", HOOK)]);
    let port = two.port();
    let hook = &port.reports[0].hooks[0];
    assert_eq!(hook.verdict, Moved, "{hook:?}");
    assert_eq!(hook.note, "`alpha` went from a.c to split.c");
    assert_eq!(hook.before.to_string(), "a.c:5 in alpha");
    assert_eq!(
        hook.after.as_ref().unwrap().to_string(),
        "split.c:4 in alpha"
    );
    assert!(
        two.file(&port, "split.c")
            .contains("prepare(sum);\n    hook();")
    );
}

#[test]
fn a_file_is_followed_under_another_name() {
    let old = "#include \"one.h\"\n#include \"two.h\"\n\nint a;\nint b;\nint c;\nint d;\n";
    let two = Two::new(&[("src/a.c", old)], &[("lib/a2.c", old)]);
    two.patch(
        "one",
        &[(
            "src/a.c",
            "two.h",
            "#include \"own.h\" // opencoti-hook: one\n",
        )],
    );
    let port = two.port();
    let hook = &port.reports[0].hooks[0];
    assert_eq!(hook.verdict, Moved, "{hook:?}");
    assert!(
        two.file(&port, "lib/a2.c")
            .contains("two.h\"\n#include \"own.h\"")
    );
}

#[test]
fn a_block_that_is_indented_otherwise_takes_its_hook_along() {
    let old = function("alpha");
    let new = old.replace(
        "    prepare(sum);\n    sum += 1;\n",
        "    if (x) {\n        prepare(sum);\n        sum += 1;\n    }\n",
    );
    let (two, port) = one(&old, &new);
    let hook = &port.reports[0].hooks[0];
    assert_eq!(hook.verdict, Merged, "{hook:?}");
    assert!(
        hook.note.contains("indented or end otherwise"),
        "{}",
        hook.note
    );
    assert!(
        two.file(&port, "a.c")
            .contains("        prepare(sum);\n        hook(); //")
    );
}

#[test]
fn a_deleted_anchor_is_a_conflict_with_all_three_sides() {
    let old = function("alpha");
    let new = old.replace(
        "    prepare(sum);\n    sum += 1;\n",
        "    sum = fold(sum);\n",
    );
    let (_, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Conflict]);
    assert!(!port.complete && port.patches.is_empty());
    let conflict = port.conflict.unwrap();
    let text = String::from_utf8(conflict.files.into_values().next().unwrap()).unwrap();
    insta::assert_snapshot!(text, @r"
    static int alpha(int x) {
        int sum = x;
    <<<<<<< new
        sum = fold(sum);
    ||||||| old
        prepare(sum);
        sum += 1;
    =======
        prepare(sum);
        hook(); // opencoti-hook: one
        sum += 1;
    >>>>>>> one
        finish(sum);
        return sum;
    }
    ");
}

/// The same block twice in one function, and one of them goes: the hook of the first must not
/// land in the second.
#[test]
fn of_two_equal_blocks_in_one_function_none_is_guessed() {
    let block = "    save(state);\n    count(state);\n    check(state);\n";
    let old =
        format!("int f(void) {{\n    first();\n{block}    middle();\n{block}    last();\n}}\n");
    let new = format!("int f(void) {{\n    first();\n{block}    last();\n}}\n");
    let two = Two::new(&[("a.c", &old)], &[("a.c", &new)]);
    two.patch("one", &[("a.c", "count(state)", HOOK)]);
    assert_eq!(verdicts(&two.port()), [Conflict]);
}

#[test]
fn what_is_upstream_with_other_white_space_is_not_inserted_again() {
    let old = function("alpha");
    let new = old.replace(
        "    prepare(sum);\n",
        "    prepare(sum);\n    hook( );   // done here\n",
    );
    let (_, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Upstreamed]);
    assert!(matches!(
        &port.reports[0].verdict,
        PatchVerdict::Upstreamed { wholly: true, .. }
    ));
    // In another function it is something else.
    let new = format!("{old}void other(void) {{\n    hook();\n}}\n");
    let (_, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Clean]);
}

/// No textual conflict: the call still stands there. That its meaning changed is for the
/// declarations to say.
#[test]
fn a_changed_signature_under_an_unchanged_call_merges() {
    let old = format!("void prepare(int);\n{}", function("alpha"));
    let new = old.replace("void prepare(int);", "void prepare(int, int how = 0);");
    let (_, port) = one(&old, &new);
    assert_eq!(verdicts(&port), [Clean]);
}

#[test]
fn hooks_of_two_patches_on_adjacent_lines_keep_their_order() {
    let old = function("alpha");
    let new = format!("int x;\n{}", old.replace("return sum;", "return sum + 1;"));
    let two = Two::new(&[("a.c", &old)], &[("a.c", &new)]);
    two.patch("one", &[("a.c", "prepare(sum)", HOOK)]);
    two.patch(
        "two",
        &[("a.c", "hook()", "    second(); // opencoti-hook: two\n")],
    );
    two.patch(
        "three",
        &[(
            "a.c",
            "prepare(sum)",
            "    third(); // opencoti-hook: three\n",
        )],
    );
    let port = two.port();
    assert_eq!(verdicts(&port), [Merged, Merged, Shifted]);
    let text = two.file(&port, "a.c");
    assert!(text.contains("prepare(sum);\n    third(); // opencoti-hook: three\n    hook(); // opencoti-hook: one\n    second();"));
}

#[test]
fn line_ends_of_the_base_are_those_of_its_hooks() {
    let dos = |text: &str| text.replace('\n', "\r\n");
    let old = dos(&function("alpha"));
    let new = format!("int x;\r\n{old}");
    let two = Two::new(&[("a.c", &old)], &[("a.c", &new)]);
    two.patch("one", &[("a.c", "prepare(sum)", &dos(HOOK))]);
    let port = two.port();
    assert_eq!(verdicts(&port), [Shifted]);
    assert!(
        two.file(&port, "a.c")
            .contains("prepare(sum);\r\n    hook(); // opencoti-hook: one\r\n")
    );
    // A base that went over to other line ends takes its hooks along.
    let (two, port) = one(&function("alpha"), &old);
    assert_eq!(verdicts(&port), [Merged]);
    assert!(
        two.file(&port, "a.c")
            .contains("prepare(sum);\r\n    hook(); // opencoti-hook: one\r\n")
    );
    let two = Two::new(&[("a.c", &old)], &[("a.c", &function("alpha"))]);
    two.patch("one", &[("a.c", "prepare(sum)", &dos(HOOK))]);
    let port = two.port();
    assert_eq!(verdicts(&port), [Merged]);
    assert!(!two.file(&port, "a.c").contains('\r'));
}

#[test]
fn a_part_that_a_base_leaves_out_is_absent_and_no_conflict() {
    let files = [
        ("src/a.c", function("alpha")),
        ("tools/s.c", function("beta")),
    ];
    let old: Vec<(&str, &str)> = files
        .iter()
        .map(|(path, text)| (*path, text.as_str()))
        .collect();
    let two = Two::with(&old, &old[..1], "partial = true");
    two.patch(
        "one",
        &[
            ("src/a.c", "prepare(sum)", HOOK),
            ("tools/s.c", "prepare(sum)", HOOK),
        ],
    );
    let port = two.port();
    assert_eq!(verdicts(&port), [Clean, Absent]);
    assert!(port.complete);
    // Of a whole base the same is a conflict.
    let two = Two::new(&old, &old[..1]);
    two.patch(
        "one",
        &[
            ("src/a.c", "prepare(sum)", HOOK),
            ("tools/s.c", "prepare(sum)", HOOK),
        ],
    );
    assert_eq!(verdicts(&two.port()), [Clean, Conflict]);
}

#[test]
fn a_conflict_blocks_what_stands_on_it_and_nothing_else() {
    let (alpha, beta) = (
        function("alpha"),
        "int beta(int y) {\n    start(y);\n    stop(y);\n}\n",
    );
    let old = format!("{alpha}{beta}");
    let new = old.replace("    prepare(sum);\n    sum += 1;\n", "");
    let two = Two::new(&[("a.c", &old)], &[("a.c", &new)]);
    two.patch("one", &[("a.c", "prepare(sum)", HOOK)]);
    two.patch(
        "two",
        &[("a.c", "hook()", "    second(); // opencoti-hook: two\n")],
    );
    two.patch(
        "three",
        &[("a.c", "start(y)", "    third(); // opencoti-hook: three\n")],
    );
    two.patch_with(
        "four",
        &[],
        &[("new.c", "int n;\n")],
        "requires = [\"one\"]\n",
    );
    let port = two.port();
    assert_eq!(verdicts(&port), [Conflict, Blocked, Shifted]);
    assert_eq!(port.reports[1].hooks[0].blocked_by.as_deref(), Some("one"));
    assert!(matches!(&port.reports[3].verdict, PatchVerdict::Blocked { by } if by == "one"));
    assert_eq!(port.conflict.unwrap().patch, "one");
}

#[test]
fn probes_say_that_a_feature_is_upstream() {
    let old = function("alpha");
    let new = format!("{old}int heads_offset(int k) {{\n    return k;\n}}\n");
    let two = Two::new(&[("a.c", &old)], &[("a.c", &new)]);
    let probes = "[upstreamed]\nsymbols = [\"heads_offset\"]\n";
    two.patch_with("one", &[("a.c", "prepare(sum)", HOOK)], &[], probes);
    let port = two.port();
    assert_eq!(port.reports[0].verdict.word(), "upstreamed");
    // Kept on request.
    let mut decisions = crate::sync::Decisions::default();
    decisions.keep.insert("one".to_owned());
    assert_eq!(port_words(&two.port_with(&decisions)), ["clean"]);
    // A name that the old base has as well says nothing.
    let two = Two::new(&[("a.c", &new)], &[("a.c", &format!("int x;\n{new}"))]);
    two.patch_with("one", &[("a.c", "prepare(sum)", HOOK)], &[], probes);
    assert_eq!(port_words(&two.port()), ["shifted"]);
}

fn port_words(port: &Port) -> Vec<&'static str> {
    port.reports
        .iter()
        .map(|report| report.verdict.word())
        .collect()
}

/// A part of a function becomes a function of its own, and the other way round.
#[test]
fn lines_that_go_into_another_function_take_their_hook_along() {
    let part = "    open(s);\n    prepare(sum);\n    check(s);\n    close(s);\n    tell(s);\n";
    let whole = format!("int f(int s) {{\n    first();\n{part}    last();\n}}\n");
    let split = format!(
        "static void part(int s) {{\n{part}}}\n\nint f(int s) {{\n    first();\n    part(s);\n    last();\n}}\n"
    );
    for (old, new, note) in [
        (&whole, &split, "from `f` into `part`"),
        (&split, &whole, "from `part` into `f`"),
    ] {
        let old = old.replace("open(s);\n", "open(s);\n    ready(s);\n");
        let new = new.replace("open(s);\n", "open(s);\n    ready(s);\n");
        let (two, port) = one(&old, &new);
        let hook = &port.reports[0].hooks[0];
        assert_eq!(hook.verdict, Moved, "{hook:?}");
        assert!(hook.note.contains(note), "{}", hook.note);
        assert!(
            two.file(&port, "a.c")
                .contains("prepare(sum);\n    hook();")
        );
        // Indented otherwise on the way.
        let deep = new.replace(
            "    prepare(sum);\n    check(s);\n",
            "        prepare(sum);\n        check(s);\n",
        );
        let (two, port) = one(&old, &deep);
        assert_eq!(verdicts(&port), [Moved]);
        assert!(
            two.file(&port, "a.c")
                .contains("        prepare(sum);\n        hook();")
        );
    }
    // Where such lines occur twice nobody can say which are meant.
    let twice = format!("{split}static void more(int s) {{\n{part}}}\n");
    let (_, port) = one(&whole, &twice);
    assert_eq!(verdicts(&port), [Conflict]);
}

#[test]
fn an_include_may_get_another_neighbour() {
    let own = "#include \"own.h\" // opencoti-hook: one\n";
    let old = "#include \"a.h\"\n#include \"b.h\"\n\nint x;\n";
    for (new, wanted) in [
        (
            "#include \"a.h\"\n#include \"aa.h\"\n#include \"b.h\"\n\nint x;\n",
            "a.h\"\n#include \"own.h\"",
        ),
        (
            "#include \"a.h\"\n#include <else/what.hpp>\n\nint x;\n",
            "a.h\"\n#include \"own.h\"",
        ),
        (
            "#include <else/what.hpp>\n#include \"b.h\"\n\nint x;\n",
            "what.hpp>\n#include \"own.h\"",
        ),
    ] {
        let two = Two::new(&[("a.c", old)], &[("a.c", new)]);
        two.patch("one", &[("a.c", "a.h", own)]);
        let port = two.port();
        assert_eq!(verdicts(&port), [Merged], "{new}");
        assert!(
            two.file(&port, "a.c").contains(wanted),
            "{}",
            two.file(&port, "a.c")
        );
    }
    // Another line between them is another matter, and so is a hook that does something.
    let new = "#include \"a.h\"\n#define A\n#include \"b.h\"\n\nint x;\n";
    let two = Two::new(&[("a.c", old)], &[("a.c", new)]);
    two.patch("one", &[("a.c", "a.h", own)]);
    assert_eq!(verdicts(&two.port()), [Conflict]);
    let new = "#include \"a.h\"\n#include \"aa.h\"\n#include \"b.h\"\n\nint x;\n";
    let two = Two::new(&[("a.c", old)], &[("a.c", new)]);
    two.patch("one", &[("a.c", "a.h", "int own; // opencoti-hook: one\n")]);
    assert_eq!(verdicts(&two.port()), [Conflict]);
}

/// Overloads are told apart by their signature, also where one of them is gone.
#[test]
fn a_hook_does_not_go_over_to_another_overload() {
    let overload = |kind: &str| function("f").replace("(int x)", &format!("({kind} x)"));
    let (ints, floats) = (overload("int"), overload("float"));
    let (two, port) = one(
        &format!("{ints}{floats}"),
        &format!("int x;\n{floats}{ints}"),
    );
    assert!(port.complete, "{:?}", port.reports[0].hooks);
    let text = two.file(&port, "a.c");
    assert!(line_of(&text, "hook()") > line_of(&text, "f(int"), "{text}");
    let (_, port) = one(&format!("{ints}{floats}"), &floats);
    assert_eq!(verdicts(&port), [Conflict]);
}

/// A name alone is no evidence: another function may have come in the place of the old one, or
/// under its name in another file.
#[test]
fn a_function_with_another_body_is_another_function() {
    let old = function("alpha").replace("prepare(sum);\n", "prepare(sum);\n    return true;\n");
    let new = "static int gamma(int y) {\n    a(y);\n    b(y);\n    c(y);\n    d(y);\n    e(y);\n    prepare(sum);\n    return true;\n}\n";
    let (_, port) = one(&old, new);
    assert_eq!(verdicts(&port), [Conflict]);
    let two = Two::new(
        &[("a.c", &old), ("z.c", "int z;\n")],
        &[("z.c", "int z;\n"), ("b.c", &new.replace("gamma", "alpha"))],
    );
    two.patch("one", &[("a.c", "prepare(sum)", HOOK)]);
    assert_eq!(verdicts(&two.port()), [Conflict]);
}

/// A patch may delete the end of a function: later patches then find what is there.
#[test]
fn deletions_do_not_confuse_the_functions_behind_them() {
    let old = format!("{}{}", function("alpha"), function("beta"));
    let two = Two::new(&[("a.c", &old)], &[("a.c", &format!("int x;\n{old}"))]);
    let after = old.replacen(
        "    return sum;\n}\n\nstatic int beta",
        "    return 0; }\nstatic int beta",
        1,
    );
    let diff = crate::diff::between(
        &crate::tree::RelPath::new("a.c").unwrap(),
        old.as_bytes(),
        after.as_bytes(),
    );
    two.patch_with("one", &[], &[], "[allow]\ndeletions = 3\nreason = \"r\"\n");
    super::put(
        &two.root().join("patches/one/hooks.patch"),
        &String::from_utf8(crate::diff::to_text(&diff.unwrap())).unwrap(),
    );
    two.patch("two", &[("a.c", "int beta(int x)", HOOK)]);
    let port = two.port();
    assert!(port.complete, "{:?}", port.reports);
    let text = two.file(&port, "a.c");
    assert!(text.contains("int beta(int x) {\n    hook();"), "{text}");
}
