//! Each rule on a toy series: silent where all is well, and finding the fault that it is for.

use super::*;
use crate::patchset::refresh;
use crate::toy::{HOOK, Toy, put};

const GATED: &str = "schema = 1\nid = \"first\"\ntitle = \"T\"\npurpose = \"P\"\ngates = [\"chash\"]\n[notes]\n\"src/main.c\" = \"After one().\"\n";

/// A toy in order: one patch, one gate, a fresh registry.
fn clean() -> Toy {
    let toy = Toy::new();
    toy.patch("first", HOOK, &[("src/hook.c", "static int first_x;\n")]);
    put(&toy.root().join("patches/first/patch.toml"), GATED);
    put(&toy.root().join("gates/chash.toml"), "id = \"chash\"\n");
    toy.series(&["first"]);
    refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    toy
}

fn findings(toy: &Toy) -> Vec<String> {
    run(&toy.ctx, &toy.pristine, &toy.load(), &[])
        .unwrap()
        .into_iter()
        .map(|f| format!("{}:{}: {}: {}", f.file, f.line, f.rule, f.message))
        .collect()
}

#[test]
fn a_series_in_order_is_silent() {
    assert_eq!(findings(&clean()), [""; 0]);
}

#[test]
fn every_rule_finds_its_fault() {
    let check = |fault: &dyn Fn(&Toy), expected: &str| {
        let toy = clean();
        fault(&toy);
        let found = findings(&toy);
        assert!(
            found.iter().any(|line| line == expected),
            "{expected}\n{found:#?}"
        );
    };
    check(
        &|toy| {
            let text = HOOK
                .replace("     one();", "-    one();")
                .replace("+1,6", "+1,5");
            put(&toy.root().join("patches/first/hooks.patch"), &text);
        },
        "patches/first/patch.toml:1: additivity: the hooks of `first` delete 1 upstream lines, 0 are allowed",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/patch.toml"),
                &format!("{GATED}[allow]\ndeletions = 2\nreason = \"r\"\n"),
            )
        },
        "patches/first/patch.toml:8: additivity: 2 deletions are allowed, the hooks of `first` need 0",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/patch.toml"),
                &GATED.replace("chash", "chahs"),
            )
        },
        "patches/first/patch.toml:5: gates: there is no gate `chahs`",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/patch.toml"),
                &GATED.replace("gates = [\"chash\"]", ""),
            )
        },
        "patches/first/patch.toml:1: gates: `first` names no gate",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/hooks.patch"),
                &HOOK.replace("opencoti-hook: first", "hook"),
            )
        },
        "patches/first/hooks.patch:7: markers: the hook at src/main.c:3 has no marker",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/hooks.patch"),
                &HOOK.replace("hook();", "other();"),
            )
        },
        "registry/hooks.toml:1: registry: hook of first at src/main.c:3 is not recorded so",
    );
    check(
        &|toy| {
            let text = "schema = 1\n[[patch]]\nid = \"first\"\nsince = \"b\"\nreason = \"upstream has it\"\n";
            put(&toy.root().join("registry/retired.toml"), text);
        },
        "registry/series.toml:3: retired: `first` is retired: upstream has it",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/src/src/hook.c"),
                "int x; \nint y;\r\nint z;",
            )
        },
        "patches/first/src/src/hook.c:1: whitespace: trailing blanks",
    );
    check(
        &|toy| {
            put(
                &toy.root().join("patches/first/src/src/hook.c"),
                "int x;\nint y;\r\nint z;",
            )
        },
        "patches/first/src/src/hook.c:2: whitespace: a carriage return at the end of the line",
    );
    check(
        &|toy| put(&toy.root().join("patches/first/src/src/hook.c"), "int z;"),
        "patches/first/src/src/hook.c:1: whitespace: the last line has no line end",
    );
    check(
        &|toy| {
            toy.patch(
                "second",
                "",
                &[("src/two.c", "\nstatic void first_x(void) {\n}\n")],
            );
            toy.series(&["first", "second"]);
        },
        "patches/second/src/src/two.c:2: unity: the static name `first_x` is also in patches/first/src/src/hook.c",
    );
}

#[test]
fn switches_must_be_read_and_have_the_prefix() {
    let toy = clean();
    let switched = |names: &str| {
        let text = GATED.replace("[notes]", &format!("switches = [{names}]\n[notes]"));
        put(&toy.root().join("patches/first/patch.toml"), &text);
        findings(&toy)
    };
    let code = "const char * first_x() { return getenv(\"OPENCOTI_X\"); }\n";
    put(&toy.root().join("patches/first/src/src/hook.c"), code);
    refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    assert_eq!(switched("\"OPENCOTI_X\""), [""; 0]);
    let place = "patches/first/patch.toml:6: switches:";
    assert_eq!(
        switched("\"X\", \"OPENCOTI_\""),
        [
            format!("{place} no code of `first` reads the switch `OPENCOTI_`"),
            format!("{place} no code of `first` reads the switch `X`"),
            format!("{place} the switch `X` does not begin with OPENCOTI_"),
        ]
    );
}

#[test]
fn one_rule_alone_and_an_unknown_one() {
    let toy = clean();
    put(&toy.root().join("patches/first/src/src/hook.c"), "int z;");
    let only = |name: &str| run(&toy.ctx, &toy.pristine, &toy.load(), &[name.to_owned()]);
    assert_eq!(only("markers").unwrap().len(), 0);
    assert_eq!(only("whitespace").unwrap().len(), 1);
    assert!(only("marker").unwrap_err().hints()[0].contains("`markers`"));
}
