use super::*;
use crate::diff::{between, parse};

fn path() -> RelPath {
    RelPath::new("f.c").unwrap()
}

fn function(name: &str) -> String {
    format!(
        "void {name}() {{\n    one();\n    two();\n    three();\n    four();\n    five();\n    six();\n}}\n\n"
    )
}

/// The hunks that put a call behind `three` of the function that `before` ends with.
fn hunks(before: &str, name: &str, after: &str) -> Vec<Hunk> {
    let body = function(name);
    let old = format!("{before}{body}{after}");
    let body = body.replace("    four();", "    hook();\n    four();");
    let new = format!("{before}{body}{after}");
    between(&path(), old.as_bytes(), new.as_bytes())
        .unwrap()
        .hunks
}

fn try_on(hunks: &[Hunk], content: &str) -> Result<Placed, String> {
    place(&path(), hunks, content.as_bytes(), false).map_err(|unplaced| unplaced.to_string())
}

#[test]
fn an_offset_is_taken_where_nothing_else_can_be_meant() {
    let hunks = hunks("int x;\n", "a", "int y;\n");
    let moved = format!("int x;\nint new;\nint z;\n{}int y;\n", function("a"));
    let placed = try_on(&hunks, &moved).unwrap();
    assert_eq!(
        String::from_utf8(placed.content).unwrap(),
        moved.replace("    four();", "    hook();\n    four();")
    );
    let offset = &placed.offsets[0];
    assert_eq!((offset.old_line, offset.new_line), (3, 5));
    assert_eq!(offset.heading, "void a() {");
}

#[test]
fn of_two_functions_with_one_body_the_wrong_one_is_never_taken() {
    let hunks = hunks("int x;\n", "a", &function("b"));
    assert!(
        try_on(
            &hunks,
            &format!("int x;\n{}{}", function("a"), function("b"))
        )
        .is_ok()
    );
    // The original has moved behind its twin, which now stands at the stated line.
    let swapped = format!("int x;\n{}{}", function("b"), function("a"));
    let error = try_on(&hunks, &swapped).unwrap_err();
    assert!(
        error.contains("stand there, but below another heading"),
        "{error}"
    );
    assert!(error.contains("line 3, below `void b() {`"), "{error}");
    assert!(error.contains("line 12, below `void a() {`"), "{error}");
    // Both have moved.
    let both = format!("int new;\nint x;\n{}{}", function("b"), function("a"));
    let error = try_on(&hunks, &both).unwrap_err();
    assert!(error.contains("other places are alike"), "{error}");
    // The original is gone: the twin is the only place, below the wrong head.
    let gone = format!("int new;\nint x;\n{}", function("b"));
    let error = try_on(&hunks, &gone).unwrap_err();
    assert!(
        error.contains("only other place is below another heading"),
        "{error}"
    );
}

#[test]
fn a_line_that_is_right_by_accident_is_refused_unless_the_base_is_the_same() {
    let hunks = hunks("int x;\n", "a", &function("b"));
    // The original is gone, and its twin has taken its very line.
    let gone = format!("int x;\n{}", function("b"));
    let error = try_on(&hunks, &gone).unwrap_err();
    assert!(
        error.contains("stand there, but below another heading"),
        "{error}"
    );
    let placed = place(&path(), &hunks, gone.as_bytes(), true).unwrap();
    assert!(
        placed.remarks[0].contains("below `void b() {`"),
        "{placed:?}"
    );
    // Without a heading there is nothing that would contradict the line.
    let mut bare = hunks.clone();
    bare[0].heading.clear();
    let two = format!("int x;\n{}{}", function("a"), function("b"));
    let placed = try_on(&bare, &two).unwrap();
    assert!(
        placed.remarks[0].contains("occur at 2 places"),
        "{placed:?}"
    );
}

#[test]
fn a_method_is_a_heading_inside_its_class() {
    let class = "class A {\n    void m() {\n        0;\n        a();\n        b();\n        c();\n        d();\n        e();\n        f();\n    }\n};\n";
    let new = class.replace("        d();", "        new();\n        d();");
    let mut hunks = between(&path(), class.as_bytes(), new.as_bytes())
        .unwrap()
        .hunks;
    for (heading, fits) in [
        ("class A {", true),
        ("void m() {", true),
        ("void n() {", false),
    ] {
        hunks[0].heading = heading.into();
        assert_eq!(try_on(&hunks, class).is_ok(), fits, "{heading}");
        let moved = try_on(&hunks, &format!("int y;\n{class}"));
        assert_eq!(
            moved.is_ok_and(|placed| placed.offsets.len() == 1),
            fits,
            "{heading}"
        );
    }
}

#[test]
fn no_heading_no_offset() {
    let mut hunks = hunks("int x;\n", "a", "int y;\n");
    hunks[0].heading.clear();
    let moved = format!("int new;\nint x;\n{}int y;\n", function("a"));
    let error = try_on(&hunks, &moved).unwrap_err();
    assert!(error.contains("names no heading"), "{error}");
    assert!(error.contains("at line 4, below `void a() {`"), "{error}");
}

#[test]
fn a_heading_that_is_gone_confirms_nothing() {
    let hunks = hunks("int x;\n", "a", "int y;\n");
    // Neither the heading nor any other stands above the only place.
    let body = function("a").replace("void a() {\n", "");
    let bare = shifted(&hunks);
    let error = try_on(&bare, &body).unwrap_err();
    assert!(
        error.contains("only other place is below another heading"),
        "{error}"
    );
    assert!(
        error.contains("at line 1, with no heading above"),
        "{error}"
    );
}

/// The hunk, one line further down.
fn shifted(hunks: &[Hunk]) -> Vec<Hunk> {
    let mut hunk = hunks[0].clone();
    assert!(matches!(&hunk.lines[0], Line::Context(line) if !line.starts_with(b"void")));
    hunk.old_start += 1;
    hunk.new_start += 1;
    vec![hunk]
}

#[test]
fn no_fuzz_and_no_blank_is_passed_over() {
    let hunks = hunks("int x;\n", "a", "int y;\n");
    for damaged in [
        function("a").replace("    one();", "    One();"),
        function("a").replace("    one();", "\tone();"),
        function("a").replace("    one();\n", "    one();\r\n"),
        function("a").replace("    one();\n", "    one(); \n"),
    ] {
        let error = try_on(&hunks, &format!("int n;\nint x;\n{damaged}int y;\n")).unwrap_err();
        assert!(error.contains("its lines are not in the file"), "{error}");
        assert!(error.contains("expected at line"), "{error}");
    }
}

#[test]
fn hunks_keep_their_order_and_their_ends() {
    let text = "--- a/f.c\n+++ b/f.c\n@@ -3,2 +3,3 @@ int x;\n 1y\n+new\n 2y\n@@ -9,2 +10,3 @@ int x;\n 1z\n+new\n 2z\n";
    let two = parse(text.as_bytes()).unwrap().remove(0).hunks;
    let error = try_on(&two, "int x;\n1z\n2z\n1y\n2y\n").unwrap_err();
    assert!(
        error.contains("before the end of the hunk before it"),
        "{error}"
    );
    assert!(error.contains("line 2, below `int x;`"), "{error}");
    // Inserted at the file's beginning or end: no context on one side.
    let text = "--- a/f.c\n+++ b/f.c\n@@ -1,2 +1,3 @@\n+new\n y1\n y2\n";
    let head = parse(text.as_bytes()).unwrap().remove(0).hunks;
    assert!(try_on(&head, "y1\ny2\n").is_ok());
    let error = try_on(&head, "\ny1\ny2\n").unwrap_err();
    assert!(error.contains("no context before"), "{error}");
    let text = "--- a/f.c\n+++ b/f.c\n@@ -3,2 +3,3 @@ int x;\n y1\n y2\n+new\n";
    let tail = parse(text.as_bytes()).unwrap().remove(0).hunks;
    assert_eq!(
        try_on(&tail, "int x;\ny1\ny2\n").unwrap().offsets[0].new_line,
        2
    );
    let error = try_on(&tail, "int x;\ny1\ny2\nz\n").unwrap_err();
    assert!(error.contains("no context behind"), "{error}");
}

#[test]
fn headings_agree_whole_or_cut_as_tools_cut_them() {
    let line = "static int a_function_with_a_rather_long_name(struct context * ctx, int number_of_things, int x) {\n";
    let cut = |at: usize| &line.as_bytes()[..at];
    assert!(agrees(cut(80), line.as_bytes()) && agrees(cut(40), line.as_bytes()));
    assert!(agrees(line.as_bytes(), line.as_bytes()) && agrees(b"", b""));
    assert!(!agrees(cut(39), line.as_bytes()) && !agrees(b"", b"int x;\n"));
    assert!(!agrees(b"int x;", b""));
}

#[test]
fn a_file_made_to_be_searched_for_ever_is_given_up() {
    let text = format!(
        "--- a/f.c\n+++ b/f.c\n@@ -2,2000 +2,2001 @@ int y;\n{}+new\n{}",
        " \n".repeat(1000),
        " \n".repeat(1000)
    );
    let hunks = parse(text.as_bytes()).unwrap().remove(0).hunks;
    let error = try_on(&hunks, &format!("int x;\n{}", "\n".repeat(40_000))).unwrap_err();
    assert!(error.contains("too repetitive"), "{error}");
}

/// Overloads with their parameters on the next line have one heading, and so has all that stands
/// behind an access label: neither tells which is meant.
#[test]
fn a_heading_that_stands_twice_confirms_nothing() {
    let overload = |parameter: &str, call: &str| {
        format!(
            "int f(\n    {parameter}) {{\n    one();\n    {call}\n    three();\n    four();\n    five();\n    six();\n}}\n\n"
        )
    };
    let old = format!("int x;\n{}", overload("int a", "two();"));
    let new = old.replace("    four();", "    hook();\n    four();");
    let hunks = between(&path(), old.as_bytes(), new.as_bytes())
        .unwrap()
        .hunks;
    assert_eq!(hunks[0].heading, b"int f(");
    // The overload that is meant has changed; another one has the lines.
    let changed = format!(
        "int x;\nint y;\n{}{}",
        overload("int a", "zwei();"),
        overload("float a", "two();")
    );
    let error = try_on(&hunks, &changed).unwrap_err();
    assert!(error.contains("stands more than once"), "{error}");
    let labelled = |text: &str| text.replace("int f(\n    int a) {", "public:\n    int a;");
    let (old, new) = (labelled(&old), labelled(&new));
    let hunks = between(&path(), old.as_bytes(), new.as_bytes())
        .unwrap()
        .hunks;
    assert_eq!(hunks[0].heading, b"public:");
    let error = try_on(&hunks, &format!("int z;\n{old}")).unwrap_err();
    assert!(error.contains("is a label"), "{error}");
}
