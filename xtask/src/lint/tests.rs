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
        "patches/first/patch.toml:1: additivity: the hooks of `first` delete 1 upstream line, 0 are allowed",
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
                &toy.root().join("registry/toolchains.toml"),
                "schema = 1\n[cmake]\nx = 1\n",
            )
        },
        "registry/toolchains.toml:3: machines: registry/toolchains.toml:3:1: unknown field `x`, expected one of `minimum`, `names`, `wheel`",
    );
    check(
        &|toy| fs_err::create_dir_all(toy.root().join("registry/toolchains.toml")).unwrap(),
        "registry/toolchains.toml:1: machines: registry/toolchains.toml is no file",
    );
    check(
        &|toy| fs_err::write(toy.root().join("registry/hosts.toml"), b"\xff").unwrap(),
        "registry/hosts.toml:1: machines: registry/hosts.toml cannot be read: stream did not contain valid UTF-8",
    );
    check(
        &|toy| {
            let text =
                "schema = 1\n[[host]]\nname = \"a\"\naddress = \"a\"\nbackends = [\"cdua\"]\n";
            put(&toy.root().join("registry/hosts.toml"), text);
        },
        "registry/hosts.toml:1: machines: registry/hosts.toml: host `a`: backend `cdua`: it is none of cpu, vulkan and cuda",
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
        switched("\"X\", \"OPENCOTI_\", \"OPENCOTI_X\""),
        [
            format!("{place} no code of `first` reads the switch `OPENCOTI_`"),
            format!("{place} no code of `first` reads the switch `X`"),
            format!("{place} the switch `X` does not begin with OPENCOTI_"),
        ]
    );
}

#[test]
fn what_a_switch_says_must_be_said_by_code() {
    let toy = clean();
    let code =
        "int first_x(void) { return getenv(\"OPENCOTI_X\") ? 1 : say(\"%s has %d off\"); }\n";
    put(&toy.root().join("patches/first/src/src/hook.c"), code);
    refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    let said = |log: &str| {
        let text = GATED.replace("[notes]", "switches = [\"OPENCOTI_X\"]\n[notes]");
        let text = format!("{text}\n[log.{log}\n");
        put(&toy.root().join("patches/first/patch.toml"), &text);
        findings(&toy)
            .into_iter()
            .map(|found| found.split(": ").skip(2).collect::<Vec<_>>().join(": "))
            .collect::<Vec<_>>()
    };
    assert_eq!(said("OPENCOTI_X]\nrefuses = [\" has * off\"]"), [""; 0]);
    assert_eq!(
        said("OPENCOTI_X]\nsays = \"has it on\"\naside = [\"*\"]"),
        [
            "no code of `first` says \"*\"",
            "no code of `first` says \"has it on\""
        ]
    );
    assert_eq!(
        said("OPENCOTI_Y]\nfault = true"),
        ["`log.OPENCOTI_Y` is of no switch of `first`"]
    );
}

#[test]
fn a_switch_that_is_read_must_be_declared() {
    let toy = clean();
    let code = "\nint first_x(void) { return std::getenv( \"OPENCOTI_X\") && getenv(\"HOME\"); }\n";
    put(&toy.root().join("patches/first/src/src/hook.c"), code);
    let hook = HOOK.replace("hook();", "getenv(\"OPENCOTI_Y\");");
    put(&toy.root().join("patches/first/hooks.patch"), &hook);
    refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    assert_eq!(
        findings(&toy),
        [
            "patches/first/hooks.patch:7: switches: it reads `OPENCOTI_Y`, which `first` does not declare",
            "patches/first/src/src/hook.c:2: switches: it reads `OPENCOTI_X`, which `first` does not declare",
        ]
    );
    let text = GATED.replace(
        "[notes]",
        "switches = [\"OPENCOTI_X\", \"OPENCOTI_Y\"]\n[notes]",
    );
    put(&toy.root().join("patches/first/patch.toml"), &text);
    assert_eq!(findings(&toy), [""; 0]);
}

#[test]
fn what_new_wrote_is_to_be_replaced() {
    let toy = clean();
    let args = (&toy.ctx, &toy.pristine);
    crate::authoring::new(
        args.0,
        args.1,
        &toy.load(),
        "mine",
        crate::authoring::TITLE,
        None,
    )
    .unwrap();
    let file = "patches/mine/patch.toml";
    let found = findings(&toy);
    assert_eq!(
        found,
        [
            format!("{file}:3: manifest: the title is still what `new` wrote"),
            format!("{file}:4: manifest: the purpose is still what `new` wrote"),
        ],
        "and nothing else is wrong with it"
    );
}

#[test]
fn where_nothing_can_be_built_no_gate_is_asked_for() {
    let toy = clean();
    let mut bare = toy.pristine.clone();
    std::fs::remove_file(bare.root.join("CMakeLists.txt")).unwrap();
    bare.manifest = crate::tree::TreeManifest::of_tree(&bare.root, |_| false).unwrap();
    crate::authoring::new(&toy.ctx, &bare, &toy.load(), "mine", "T", None).unwrap();
    let series = toy.load();
    assert_eq!(series.patches[1].manifest.gates, [""; 0]);
    let found = run(&toy.ctx, &bare, &series, &["gates".to_owned()]).unwrap();
    assert_eq!(found, []);
    let found = run(&toy.ctx, &toy.pristine, &series, &["gates".to_owned()]).unwrap();
    assert_eq!(found.len(), 1, "a base that can be built wants one");
}

#[test]
fn the_broken_series_of_another_base_is_no_obstacle() {
    let toy = clean();
    let registry = toy.root().join("registry");
    let upstreams = std::fs::read_to_string(registry.join("upstreams.toml")).unwrap();
    let other = format!(
        "{upstreams}[[base]]\nid = \"other\"\ntree = \"{}\"\n",
        "0".repeat(64)
    );
    put(&registry.join("upstreams.toml"), &other);
    let both = |patch: &str| {
        let text = format!("schema = 1\n[series]\ntoy = [\"first\"]\nother = [\"{patch}\"]\n");
        put(&registry.join("series.toml"), &text);
    };
    both("first");
    refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    let page = || std::fs::read_to_string(toy.root().join("docs/UPSTREAM_SYNC.md")).unwrap();
    let before = page();
    assert!(before.contains("\n## other\n"), "{before}");
    both("gone");
    assert_eq!(findings(&toy), [""; 0]);
    let changed = refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
    assert_eq!(changed, []);
    assert_eq!(page(), before, "what it said of the other base stays");
    let broken = crate::patchset::book::broken(&toy.ctx.project, "toy").unwrap();
    assert_eq!(broken[0].0, "other");
    assert!(broken[0].1.to_string().contains("gone"));
}

#[test]
fn colliding_names_are_found() {
    let toy = clean();
    put(
        &toy.root().join("patches/first/src/SRC/new.c"),
        "int first_new;\n",
    );
    let found = run(&toy.ctx, &toy.pristine, &toy.load(), &["names".to_owned()]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].file, "patches/first/src/SRC/new.c");
    assert!(found[0].message.starts_with("SRC/new.c is src of the base"));
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
