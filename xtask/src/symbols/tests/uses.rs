use super::*;

/// `how of.name @within`, as far as there is any.
fn shown(uses: &std::collections::BTreeSet<Use>) -> Vec<String> {
    let mut list: Vec<String> = uses
        .iter()
        .map(|used| {
            let how = serde_json::to_value(used.how).unwrap();
            let of = used
                .of
                .as_ref()
                .map(|of| format!("{of}."))
                .unwrap_or_default();
            let within = used.within.as_ref().map(|w| format!(" @{w}"));
            format!(
                "{} {of}{}{}",
                how.as_str().unwrap(),
                used.name,
                within.unwrap_or_default()
            )
        })
        .collect();
    list.sort();
    list
}

fn used(text: &str) -> Vec<String> {
    shown(&uses(&path("a.cpp"), text.as_bytes()))
}

#[test]
fn each_way_of_use_is_told_apart() {
    let text = "\
#include \"up.h\"
static void own(up_batch & batch, int n) {
    up_call(batch.tokens, n);
    batch.reset(UP_LIMIT);
    auto x = other::make<up_item>(up_flag);
    x->field = 1;
    for (int i = 0; i < n; ++i) { x->rows[i].cell = i; }
    std::vector<up_type> list;
    list.push_back(n);
    own(batch, n);
}
";
    assert_eq!(
        used(text),
        [
            "call other.make",
            "call up_call",
            "member cell",
            "member field",
            "member rows",
            "member up_batch.tokens",
            "member-call up_batch.reset",
            "other UP_LIMIT",
            "other up_flag",
            "type other",
            "type up_batch",
            "type up_item",
            "type up_type",
        ]
    );
}

#[test]
fn what_the_text_declares_is_no_use() {
    let text = "\
#define MINE(x) (x + up_macro)
enum mine { MINE_A };
struct state { int count; void tick() { count += MINE_A; } };
using alias = state;
template <typename T> T twice(T value) { return value + value; }
static state global;
int run(const state & s, alias & a) {
    auto [first, second] = up_pair();
    const auto f = [y = first](int z) { return y + z + second; };
    try { f(s.count); } catch (const up_error & e) { e.what(); }
    if (int k = MINE(1)) { global.tick(); a.count = k; }
    return twice(f(2));
}
";
    assert_eq!(
        used(text),
        [
            "call up_pair",
            "member-call up_error.what",
            "other up_macro",
            "type up_error",
        ]
    );
}

#[test]
fn comments_strings_and_keywords_are_no_uses_but_all_branches_are() {
    let text = "\
// up_comment()
void f() {
    const char * s = \"up_string\"; /* up_block */
#if defined(UP_ON) && !UP_OFF
    up_one(s, nullptr, true, sizeof(int32_t));
#else
    up_two(s);
#endif
}
";
    assert_eq!(
        used(text),
        ["call up_one", "call up_two", "other UP_OFF", "other UP_ON"]
    );
}

#[test]
fn pointers_of_all_sorts_lead_to_the_type() {
    let text = "\
void f(const struct up_a * a, std::unique_ptr<up_b> b, up::c & c, std::string d, auto & e) {
    a->x = b->x + c.x + e.x;
    d.size();
}
";
    assert_eq!(
        used(text),
        [
            "member up::c.x",
            "member up_a.x",
            "member up_b.x",
            "member x",
            "type up",
            "type up.c",
            "type up_a",
            "type up_b",
        ]
    );
}

#[test]
fn hook_lines_see_the_function_around_them() {
    let text = "\
#include \"a.h\"
int untouched(int a) { return not_ours(a); }
bool up_ctx::decode(const up_batch & batch, int n) {
    up_slot * slot = find(n);
    mine_begin(slot->id, batch, n_outputs);
    auto also = slot;
    int k = 0; also->run(k);
    this->field = helper();
    return true;
}
";
    let lines = [5..6, 7..9];
    let found = uses_of_lines(&path("a.cpp"), text.as_bytes(), &lines);
    assert_eq!(
        shown(&found),
        [
            "call helper @up_ctx::decode",
            "call mine_begin @up_ctx::decode",
            "local also @up_ctx::decode",
            "local batch @up_ctx::decode",
            "local slot @up_ctx::decode",
            "member up_ctx.field @up_ctx::decode",
            "member up_slot.id @up_ctx::decode",
            "member-call run @up_ctx::decode",
            "other n_outputs @up_ctx::decode",
        ]
    );
}

#[test]
fn hook_lines_outside_of_functions_have_no_function() {
    let text = "struct up {\n    mine_counters counters;\n    int b;\n};\n";
    let lines = std::slice::from_ref(&(2..3));
    let found = uses_of_lines(&path("a.h"), text.as_bytes(), lines);
    assert_eq!(shown(&found), ["type mine_counters"]);
}

#[test]
fn of_cmake_all_words_count() {
    let found = uses(
        &path("CMakeLists.txt"),
        b"target_link_libraries(my-lib PRIVATE ${UP}) # not me\n",
    );
    assert_eq!(
        shown(&found),
        [
            "other PRIVATE",
            "other UP",
            "other my-lib",
            "other target_link_libraries"
        ]
    );
    assert!(uses(&path("a.py"), b"x()").is_empty());
}

#[test]
fn includes_of_both_kinds_are_listed() {
    let text =
        b"#include \"a.h\"\n  #  include <b/c.hpp> // why\n#include MACRO\n#include \"open\n\
                 int x; // #include \"no.h\"\n#include <>\n#include";
    assert_eq!(includes(text), ["a.h", "b/c.hpp", ""]);
}

#[test]
fn nothing_breaks_on_nonsense() {
    let texts = [
        "",
        "(((",
        "x.",
        "a->",
        "::",
        "a::",
        "#define",
        "#define A(",
        "\"",
        "}}}{{{",
    ];
    for text in texts {
        let _ = used(text);
        let _ = uses_of_lines(&path("a.cpp"), text.as_bytes(), &[0..0, 1..2, 5..99]);
    }
    let _ = used(&"f(".repeat(3000));
}
