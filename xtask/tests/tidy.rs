//! What a strict reader would check by hand: licences, sizes, names, links, forbidden words.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};
use std::process::Command;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

/// All files that git tracks or would track.
fn files() -> Vec<PathBuf> {
    let output = Command::new("git")
        .args([
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
        ])
        .current_dir(root())
        .output()
        .expect("git is needed");
    assert!(output.status.success(), "not a git checkout");
    let list = String::from_utf8(output.stdout).unwrap();
    let files: Vec<PathBuf> = list
        .split('\0')
        .filter(|name| !name.is_empty())
        .map(PathBuf::from)
        .filter(|path| root().join(path).is_file())
        .collect();
    assert!(files.len() > 30, "the list is suspiciously short");
    files
}

fn text(path: &Path) -> Option<String> {
    std::fs::read_to_string(root().join(path)).ok()
}

fn has_extension(path: &Path, wanted: &[&str]) -> bool {
    path.extension()
        .and_then(|ext| ext.to_str())
        .is_some_and(|ext| wanted.contains(&ext))
}

#[test]
fn every_dependency_has_a_licence_that_mit_can_live_with() {
    const ALLOWED: &[&str] = &[
        "0BSD",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "BSL-1.0",
        "CC0-1.0",
        "ISC",
        "MIT",
        "MIT-0",
        "Unicode-3.0",
        "Unlicense",
        "Zlib",
    ];
    // Not offline: crates of other systems are read too, which no build has fetched on a new machine.
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version=1", "--locked"])
        .current_dir(root())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let packages = metadata["packages"].as_array().unwrap();
    assert!(packages.len() > 20);
    for package in packages {
        let licence = package["license"].as_str().unwrap_or_default();
        // An expression is fine when one side of some `OR` has only allowed parts. `LGPL` never
        // stands alone in ours, and libgit2's exception comes with git2's own MIT OR Apache-2.0.
        let fine = licence.replace('/', " OR ").split(" OR ").any(|side| {
            side.split(" AND ")
                .flat_map(|part| part.split(" WITH ").take(1))
                .map(|part| part.trim_matches(|c: char| c == '(' || c == ')' || c == ' '))
                .all(|part| ALLOWED.contains(&part))
        });
        assert!(fine, "{} has the licence {licence:?}", package["name"]);
    }
}

#[test]
fn no_source_file_grows_past_its_room() {
    for path in files().iter().filter(|path| has_extension(path, &["rs"])) {
        let lines = text(path).unwrap().lines().count();
        assert!(
            lines <= 800,
            "{} has {lines} lines: split it",
            path.display()
        );
        let stem = path.file_stem().unwrap().to_str().unwrap();
        assert!(
            !["utils", "util", "helpers", "misc", "common"].contains(&stem),
            "{}: a module is named after what it is about",
            path.display()
        );
    }
}

#[test]
fn nothing_large_or_binary_is_tracked() {
    for path in files() {
        let size = std::fs::metadata(root().join(&path)).unwrap().len();
        assert!(size < 1 << 20, "{} has {size} bytes", path.display());
    }
}

#[test]
fn no_file_speaks_of_one_machine() {
    // Put together at run time, so that this file does not find itself.
    let words = [
        ["/wo", "rk/"],
        ["/ro", "ot/"],
        ["../sha", "red"],
        ["/tm", "p/up"],
    ]
    .map(|w| w.concat());
    for path in files() {
        let Some(text) = text(&path) else { continue };
        for (at, line) in text.lines().enumerate() {
            for word in &words {
                assert!(
                    !line.contains(word.as_str()),
                    "{}:{}: {word}",
                    path.display(),
                    at + 1
                );
            }
        }
    }
}

#[test]
fn text_files_end_in_one_line_end_and_have_no_trailing_blanks() {
    let ours = ["rs", "md", "toml", "sh", "h", "cpp", "c", "cmake", "py"];
    for path in files().iter().filter(|path| has_extension(path, &ours)) {
        let text = text(path).unwrap();
        let name = path.display();
        assert!(
            text.ends_with('\n') && !text.ends_with("\n\n"),
            "{name}: end of file"
        );
        for (at, line) in text.lines().enumerate() {
            assert!(
                !line.ends_with([' ', '\t', '\r']),
                "{name}:{}: trailing blank",
                at + 1
            );
        }
    }
}

#[test]
fn links_in_the_docs_lead_somewhere() {
    let mut checked = 0;
    for path in files().iter().filter(|path| has_extension(path, &["md"])) {
        let text = text(path).unwrap();
        for target in text
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next())
        {
            let target = target.split('#').next().unwrap();
            if target.is_empty() || target.contains("://") || target.contains(' ') {
                continue;
            }
            let file = root().join(path.parent().unwrap()).join(target);
            assert!(file.exists(), "{}: broken link to {target}", path.display());
            checked += 1;
        }
    }
    assert!(checked > 0);
}

#[test]
fn every_command_is_in_the_reference() {
    let help = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .arg("--help")
        .output()
        .unwrap();
    let help = String::from_utf8(help.stdout).unwrap();
    let commands: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "))
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(commands.len() >= 10, "{commands:?}");
    let reference = text(Path::new("docs/reference/commands.md")).unwrap();
    for command in commands {
        let heading = format!("## `{command}");
        assert!(
            reference.contains(&heading),
            "docs/reference/commands.md has no {heading}`"
        );
    }
}

/// The modules that a piece of code names after `crate::`, also in braces.
fn used(text: &str) -> Vec<String> {
    let mut names = Vec::new();
    let code = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let code = code.collect::<Vec<_>>().join("\n");
    for rest in code.split("crate::").skip(1) {
        let list = match rest.strip_prefix('{') {
            Some(inner) => inner.split('}').next().unwrap_or_default(),
            None => rest,
        };
        for item in list.split(',') {
            let word = item.trim_start();
            let end = word.find(|c: char| c != '_' && !c.is_alphanumeric());
            names.push(word[..end.unwrap_or(word.len())].to_owned());
            if !rest.starts_with('{') {
                break;
            }
        }
    }
    names
}

#[test]
fn each_room_uses_those_above_it_and_none_below() {
    let map = text(Path::new("xtask/src/lib.rs")).unwrap();
    let rows = map.lines().filter_map(|line| line.strip_prefix("//! | [`"));
    let rooms = rows.map(|row| row.split('`').next().unwrap().trim_start_matches("mod@"));
    let rooms: Vec<&str> = rooms.collect();
    assert!(rooms.len() > 25 && rooms.last() == Some(&"cli"));
    let at = |name: &str| rooms.iter().position(|room| *room == name);
    let (mut uses, mut wrong) = (0, Vec::new());
    for path in files() {
        let Ok(inside) = path.strip_prefix("xtask/src") else {
            continue;
        };
        let name = inside.to_string_lossy().replace('\\', "/");
        let room = name.split(['/', '.']).next().unwrap();
        let Some(here) = at(room) else { continue };
        if name.contains("tests") || !has_extension(&path, &["rs"]) {
            continue;
        }
        // Tests may look around.
        let source = text(&path).unwrap();
        let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
        for other in used(source).iter().filter_map(|name| at(name)) {
            uses += 1;
            if other > here {
                wrong.push(format!("{name} uses {}", rooms[other]));
            }
        }
    }
    assert!(uses > 300, "only {uses} uses were seen");
    assert!(wrong.is_empty(), "the map says otherwise: {wrong:#?}");
}

#[test]
fn the_readme_counts_what_each_patch_inserts() {
    let hooks = text(Path::new("registry/hooks.toml")).unwrap();
    let hooks: toml::Table = hooks.parse().unwrap();
    let bases = text(Path::new("registry/upstreams.toml")).unwrap();
    let bases: toml::Table = bases.parse().unwrap();
    let mut counts = std::collections::BTreeMap::<&str, (i64, i64)>::new();
    for hook in hooks["hook"].as_array().unwrap() {
        // Lines in files that an earlier patch brought are no lines of upstream's.
        let file = hook["file"].as_str().unwrap();
        if hook["base"] == bases["default"] && !file.contains("/opencoti/") {
            let count = counts.entry(hook["patch"].as_str().unwrap()).or_default();
            count.0 += hook["inserted"].as_integer().unwrap();
            count.1 += hook["deleted"].as_integer().unwrap();
        }
    }
    assert!(counts.len() > 10);
    let readme = text(Path::new("README.md")).unwrap();
    for (patch, (inserted, deleted)) in counts {
        let begin = format!("| `{patch}` |");
        let rows = readme.lines().filter(|line| line.starts_with(&begin));
        let rows: Vec<&str> = rows.collect();
        assert_eq!(rows.len(), 1, "README.md: rows of {patch}: {rows:?}");
        let end = format!("| {inserted} | {deleted} |");
        assert!(rows[0].ends_with(&end), "{} should end with {end}", rows[0]);
    }
}

fn table(path: &Path) -> toml::Table {
    text(path).unwrap().parse().unwrap()
}

fn strings(table: &toml::Table, key: &str) -> Vec<String> {
    let list = table.get(key).and_then(toml::Value::as_array);
    let words = list.into_iter().flatten().filter_map(toml::Value::as_str);
    words.map(str::to_owned).collect()
}

/// A gate of no patch runs on every base, and one that a patch names on each base that has the patch: its switches must be of
/// patches that are there, or it compares off with off and can never be green.
#[test]
fn gates_that_run_on_a_base_set_switches_that_it_has() {
    let registry = table(Path::new("registry/series.toml"));
    let series = registry["series"].as_table().unwrap();
    let patch = |id: &str| table(&Path::new("patches").join(id).join("patch.toml"));
    let of = |base: &str, key: &str| -> Vec<String> {
        let ids = strings(series, base);
        ids.iter().flat_map(|id| strings(&patch(id), key)).collect()
    };
    let named: Vec<String> = series.keys().flat_map(|base| of(base, "gates")).collect();
    let mut looked_at = 0;
    for path in files() {
        let in_gates = path.parent() == Some(Path::new("gates"));
        if !in_gates || !has_extension(&path, &["toml"]) {
            continue;
        }
        let gate = table(&path);
        let Some(id) = gate.get("id").and_then(toml::Value::as_str) else {
            continue;
        };
        // Those of kind perf run only where they are named.
        let is_perf = gate["kind"].as_str() == Some("perf");
        if !gate
            .get("default")
            .map_or(!is_perf, |value| value.as_bool() == Some(true))
        {
            continue;
        }
        let sides = ["baseline", "candidate"]
            .into_iter()
            .filter_map(|side| gate.get(side));
        let env = sides.filter_map(|side| side.get("env")?.as_table());
        let set: Vec<&String> = env.flat_map(toml::Table::keys).collect();
        for base in series.keys() {
            let is_ours = |list: &[String]| list.iter().any(|name| name == id);
            if is_ours(&named) && !is_ours(&of(base, "gates")) {
                continue;
            }
            looked_at += 1;
            let switches = of(base, "switches");
            for name in set.iter().filter(|name| name.starts_with("OPENCOTI_")) {
                assert!(
                    switches.contains(name),
                    "{id} runs on {base}, where no patch has {name}"
                );
            }
        }
    }
    assert!(looked_at > 60, "{looked_at}");
}
