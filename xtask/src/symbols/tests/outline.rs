use super::*;

fn outline(text: &str) -> Outline {
    Outline::of(&path("a.cpp"), text.as_bytes())
}

/// `kind qualified-name first-last`, with `?` behind what is only declared.
fn listed(outline: &Outline) -> Vec<String> {
    let line = |s: &Symbol| {
        let declared = if s.defined { "" } else { "?" };
        let (from, to) = (s.lines.start, s.lines.end - 1);
        format!("{} {}{declared} {from}-{to}", s.kind, s.qualified())
    };
    outline.symbols.iter().map(line).collect()
}

fn around(text: &str, line: usize) -> String {
    outline(text)
        .enclosing(line)
        .map_or_else(|| "-".to_owned(), Symbol::qualified)
}

/// The signature of the one symbol with that name.
fn signature(text: &str, name: &str) -> String {
    let outline = outline(text);
    let found: Vec<&Symbol> = outline.symbols.iter().filter(|s| s.name == name).collect();
    assert_eq!(found.len(), 1, "{name}: {:?}", listed(&outline));
    found[0].signature.clone()
}

#[test]
fn the_grammar_fits_the_parser() {
    assert!(parse::tree(b"int a;").is_some());
}

#[test]
fn each_kind_is_listed_with_its_scope_and_lines() {
    let text = "\
#define LIMIT 4
#define TWICE(x) \\
    ((x) * 2)
namespace outer {
struct batch;
struct batch {
    int   n_tokens = 0; // how many
    void (*callback)(void * data);
    float rows[4], * more;
    batch(int n);
    ~batch();
    bool operator==(const batch & other) const;
    explicit operator bool() const { return true; }
    static int count();
    union { int a; float b; };
};
enum class mode : int { fast = 1, slow };
enum kind { KIND_A, KIND_B = 7 };
class walker : public batch { int at; };
using row = std::vector<float>;
typedef int (*fn)(int);
extern int shared;
static int own = 3;
int free_one(int a, int b);
}
batch::batch(int n) : n_tokens(n) {
}
template <typename T>
T largest(const T & a, const T & b) { return a < b ? b : a; }
";
    assert_eq!(
        listed(&outline(text)),
        [
            "macro LIMIT 1-1",
            "macro TWICE 2-3",
            "namespace outer 4-25",
            "struct outer::batch? 5-5",
            "struct outer::batch 6-16",
            "field outer::batch::n_tokens 7-7",
            "field outer::batch::callback 8-8",
            "field outer::batch::rows 9-9",
            "field outer::batch::more 9-9",
            "method outer::batch::batch? 10-10",
            "method outer::batch::~batch? 11-11",
            "method outer::batch::operator==? 12-12",
            "method outer::batch::operator bool 13-13",
            "method outer::batch::count? 14-14",
            "field outer::batch::a 15-15",
            "field outer::batch::b 15-15",
            "enum outer::mode 17-17",
            "enum value outer::mode::fast 17-17",
            "enum value outer::mode::slow 17-17",
            "enum outer::kind 18-18",
            "enum value outer::KIND_A 18-18",
            "enum value outer::KIND_B 18-18",
            "class outer::walker 19-19",
            "field outer::walker::at 19-19",
            "typedef outer::row 20-20",
            "typedef outer::fn 21-21",
            "variable outer::shared? 22-22",
            "variable outer::own 23-23",
            "function outer::free_one? 24-24",
            "method batch::batch 26-27",
            "function largest 28-29",
        ]
    );
    assert_eq!(signature(text, "TWICE"), "TWICE(x) ((x) * 2)");
    assert_eq!(signature(text, "n_tokens"), "int n_tokens = 0");
    assert_eq!(signature(text, "KIND_B"), "KIND_B = 7");
    assert_eq!(signature(text, "more"), "float * more");
    assert_eq!(signature(text, "walker"), "class walker : public batch");
    assert_eq!(
        signature(text, "largest"),
        "template <typename T> T largest(const T & a, const T & b)"
    );
    assert_eq!(signature(text, "row"), "using row = std::vector<float>");
    assert_eq!(signature(text, "own"), "static int own");
}

#[test]
fn a_typedef_names_an_anonymous_struct() {
    let text = "typedef struct {\n    int x;\n} point;\ntypedef struct node { int y; } node;\n\
                typedef enum { ONE } number;\ntypedef struct tag { int z; } * handle;\n";
    assert_eq!(
        listed(&outline(text)),
        [
            "struct point 1-3",
            "field point::x 2-2",
            "struct node 4-4",
            "field node::y 4-4",
            "enum number 5-5",
            "enum value ONE 5-5",
            "struct tag 6-6",
            "typedef handle 6-6",
            "field tag::z 6-6",
        ]
    );
}

#[test]
fn decorating_macros_do_not_hide_what_they_decorate() {
    let text = "\
X_API int first(int a);
X_DEPRECATED(X_API int second(int a, int b),
    \"use first, not this\");
static __global__ void __launch_bounds__(128, 1)
kernel(const float * __restrict__ x) { }
struct X_API thing { int a; };
int third(const char * format, ...) __attribute__((format(printf, 1, 2)));
extern \"C\" {
X_API void fourth(void);
}
";
    assert_eq!(
        listed(&outline(text)),
        [
            "function first? 1-1",
            "function second? 2-3",
            "function kernel 4-5",
            "struct thing 6-6",
            "field thing::a 6-6",
            "function third? 7-7",
            "function fourth? 9-9",
        ]
    );
    assert!(outline(text).trouble.is_empty());
    // Part of the declaration all the same: a function that gets deprecated has changed.
    assert!(signature(text, "second").starts_with("X_DEPRECATED(X_API int second("));
    assert_eq!(signature(text, "first"), "X_API int first(int a)");
}

#[test]
fn comments_and_blanks_do_not_change_a_signature() {
    let one = outline("int f(int a, // one\n      const int *b = nullptr) { return 0; }\n");
    let two = outline("int\nf( int a, /* } */ const int * b = nullptr )\n{\n    return 1;\n}\n");
    assert_eq!(one.symbols[0].tight(), two.symbols[0].tight());
    assert_eq!(
        one.symbols[0].signature,
        "int f(int a, const int *b = nullptr)"
    );
    let three = outline("int f(int a, const long * b = nullptr) { return 1; }\n");
    assert_ne!(one.symbols[0].tight(), three.symbols[0].tight());
}

#[test]
fn all_branches_of_a_conditional_count() {
    let text = "\
struct s {
#ifdef A
    int a;
#elif B
    int b;
#else
    int c;
#endif
};
#if 0
int never(void);
#else
int always(void);
#endif
#if X
#  if Y
int xy(void);
#  else
int x_(void);
#  endif
#else
#  if Z
int z(void);
#  else
int nothing(void) {
    return 0;
}
#  endif
#endif
enum e {
    E_1,
#ifdef A
    E_2,
#else
    E_3,
#endif
};
";
    let names: Vec<String> = listed(&outline(text));
    for wanted in [
        "field s::a 3-3",
        "field s::b 5-5",
        "field s::c 7-7",
        "function never? 11-11",
        "function always? 13-13",
        "function xy? 17-17",
        "function x_? 19-19",
        "function z? 23-23",
        "function nothing 25-27",
        "enum value E_2 33-33",
        "enum value E_3 35-35",
    ] {
        assert!(names.contains(&wanted.to_owned()), "{wanted} in {names:?}");
    }
    assert_eq!(around(text, 26), "nothing");
    assert_eq!(around(text, 7), "s");
}

#[test]
fn branches_that_open_one_brace_twice_break_nothing() {
    let text = "\
int first(int a) {
#if FAST
    if (a > 1) {
#else
    if (a > 2) {
#endif
        return 1;
    }
    return 2;
}
#ifdef WIDE
void second(long a) {
#else
void second(int a) {
#endif
    (void) a;
}
int third() { return 3; }
";
    let outline = outline(text);
    assert_eq!(outline.enclosing(5).unwrap().name, "first");
    assert_eq!(outline.enclosing(9).unwrap().lines, 1..11);
    assert_eq!(outline.enclosing(16).unwrap().name, "second");
    assert_eq!(outline.enclosing(18).unwrap().lines, 18..19);
}

#[test]
fn the_enclosing_function_is_the_one_with_a_name() {
    let text = "\
struct server {
    int n;
    void loop() {
        run([this](int a) {
            return a + n;
        });
        if (n) {
            n = 1;
        }
    }
    struct inner { int x;
        int y; };
};
static int helper(
        int a,
        int b)
{
    struct local { int q; };
    return a + b;
}
int global = 1;
bool server_is(const server & s) { return s.n; }
";
    for (line, name) in [
        (2, "server"),
        (5, "server::loop"),
        (8, "server::loop"),
        (12, "server::inner"),
        (13, "server"),
        (15, "helper"),
        (18, "helper"),
        (19, "helper"),
        (21, "-"),
        (22, "server_is"),
        (99, "-"),
    ] {
        assert_eq!(around(text, line), name, "line {line}");
    }
}

#[test]
fn a_broken_function_does_not_hide_the_others() {
    let text = "\
int before() { return 1; }
int broken(int a) {
    MACRO_WITHOUT_END(a)
    if (a)) { }
    int = ;
    return 1;
}
int after(int b) {
    return b;
}
static void * last(void) { return 0; }
";
    let outline = outline(text);
    assert!(!outline.trouble.is_empty());
    for (line, name) in [(1, "before"), (5, "broken"), (9, "after"), (11, "last")] {
        assert_eq!(outline.enclosing(line).unwrap().name, name, "line {line}");
    }
}

#[test]
fn a_brace_too_many_or_too_few_is_survived() {
    let many = "int a() {\n    }\n}\nint b() {\n    return 1;\n}\n";
    assert_eq!(around(many, 5), "b");
    let few = "int a() {\n    if (1) {\n}\nint b() {\n    return 1;\n}\n";
    assert_eq!(around(few, 5), "b");
}

#[test]
fn a_function_without_its_end_does_not_swallow_the_next_ones() {
    for broken in [
        "    if (1) {\n    for (;;) {\n",
        "    M(a,,b\n",
        "    M(a, {1}, , [](int x) { return x;\n",
        "    x = { { 1, 2\n",
        "    switch (a) { case 1: {\n",
        "    do { if (\n",
        "    [&](auto x) {\n      ((\n",
    ] {
        let text = format!(
            "struct q {{ int z; }};\nstatic void first(int n) {{\n{broken}}}\n\n\
             int second(const q & x) {{\n    return x.z;\n}}\nint third() {{\n}}\n"
        );
        let outline = outline(&text);
        let line = |what: &str| text.lines().position(|l| l.starts_with(what)).unwrap() + 1;
        let at = line("int second");
        for (line, name) in [
            (2, "first"),
            (3, "first"),
            (at, "second"),
            (at + 2, "second"),
            (at + 3, "third"),
        ] {
            let found = outline.enclosing(line).map(|s| s.name.as_str());
            assert_eq!(
                found,
                Some(name),
                "line {line} of\n{text}{:?}",
                listed(&outline)
            );
        }
        let second = outline.named("second").next().unwrap();
        assert_eq!(second.signature, "int second(const q & x)");
        let first = outline.named("first").next().unwrap();
        assert!(first.lines.end < at, "{text}{:?}", listed(&outline));
    }
}

#[test]
fn strings_and_comments_hold_no_code() {
    let text = "\
int a() { return f(\"} int x() {\", '}', R\"(})\" R\"q(\")\" int y() {)q\"); } // int z() {
/* int w() { */ int b() { return 1'000'000; }
#error it's a trap
int c() { return 'x'; }
";
    assert_eq!(
        listed(&outline(text)),
        ["function a 1-1", "function b 2-2", "function c 4-4"]
    );
}

#[test]
fn line_ends_of_windows_change_nothing() {
    let text = "struct s {\n    int a;\n};\n#define M(x) \\\n    x\nint f() {\n#if A\n    1;\n#else\n    2;\n#endif\n}\n";
    let other = text.replace('\n', "\r\n");
    assert_eq!(outline(text), outline(&other));
}

#[test]
fn cmake_functions_and_targets_are_listed() {
    let text = "\
# function(not_this)
add_library(core a.cpp)
function(add_one NAME FILE)
    if(NAME)
        message(${FILE})
    endif()
endfunction()
macro(two)
endmacro()
";
    let outline = Outline::of(&path("x/CMakeLists.txt"), text.as_bytes());
    assert_eq!(
        listed(&outline),
        [
            "CMake target core 2-2",
            "CMake function add_one 3-7",
            "CMake macro two 8-9",
        ]
    );
    assert_eq!(outline.symbols[1].signature, "function(add_one NAME FILE)");
    assert_eq!(outline.enclosing(5).unwrap().name, "add_one");
    assert!(outline.enclosing(2).is_none());
}

#[test]
fn other_files_have_no_outline() {
    for name in ["a.py", "shader.comp", "README.md", "noextension"] {
        let found = Outline::of(&path(name), b"int f() { }");
        assert_eq!(found, Outline::default(), "{name}");
    }
}

#[test]
fn nothing_breaks_on_nonsense() {
    let deep = "{".repeat(20_000);
    let cases: [&[u8]; 12] = [
        b"",
        b"\n",
        b"\xff\xfe\x00",
        b"/*",
        b"//\\",
        b"\"",
        b"'",
        b"R\"(",
        b"#if",
        b"#else\n#endif\n#endif",
        b"X_DEPRECATED(",
        b"<<< >>> <<<",
    ];
    for case in cases {
        let _ = Outline::of(&path("a.cpp"), case).enclosing(1);
        let _ = Outline::of(&path("CMakeLists.txt"), case);
    }
    let _ = outline(&deep);
    let _ = outline(&format!("int f() {deep}"));
    let _ = outline(&"#if A\n".repeat(2000));
    let _ = outline(&"#if A\n#else\n".repeat(2000));
    let _ = outline(&"namespace a { ".repeat(3000));
}
