//! Comparing the compile commands of two builds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::build::Build;
use crate::build::cache::normalise;
use crate::error::Result;

/// One entry of `compile_commands.json`.
#[derive(Debug, Deserialize)]
struct Raw {
    file: String,
    command: String,
}

/// Compile commands by source file and object file, as words, free of paths of this machine.
pub type Commands = BTreeMap<(String, String), Vec<String>>;

/// How the compile commands of two builds differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CommandDifferences {
    /// Number of commands that both builds have, equal or not.
    pub common: usize,
    /// Those that differ.
    pub changed: Vec<ChangedCommand>,
    /// Objects that only the first build makes.
    pub only_first: Vec<String>,
    /// Objects that only the second build makes.
    pub only_second: Vec<String>,
}

/// One command that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ChangedCommand {
    /// Source file, relative to its build folder.
    pub file: String,
    /// Words that only the first build has.
    pub only_first: Vec<String>,
    /// Words that only the second build has; both are empty where only the order differs.
    pub only_second: Vec<String>,
}

impl std::fmt::Display for ChangedCommand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:", self.file)?;
        if self.only_first.is_empty() && self.only_second.is_empty() {
            return write!(f, " the same words in another order");
        }
        for word in &self.only_first {
            write!(f, " -[{word}]")?;
        }
        for word in &self.only_second {
            write!(f, " +[{word}]")?;
        }
        Ok(())
    }
}

/// Compares how `first` and `second` compile each source file.
pub fn compare_commands(first: &Build, second: &Build) -> Result<CommandDifferences> {
    Ok(compare(&read(&first.dir)?, &read(&second.dir)?))
}

/// The commands of the build in `dir`.
pub fn read(dir: &Path) -> Result<Commands> {
    let raw: Vec<Raw> = crate::model::read_json(&dir.join("out/compile_commands.json"))?;
    let places = [(dir.display().to_string(), "<build>")];
    Ok(raw
        .into_iter()
        .map(|entry| {
            let words = split(&normalise(&entry.command, &places));
            let object = words
                .iter()
                .position(|word| word == "-o")
                .and_then(|at| words.get(at + 1))
                .cloned()
                .unwrap_or_default();
            ((normalise(&entry.file, &places), object), words)
        })
        .collect())
}

fn compare(first: &Commands, second: &Commands) -> CommandDifferences {
    let mut result = CommandDifferences::default();
    for (key, words) in first {
        let Some(other) = second.get(key) else {
            result.only_first.push(key.1.clone());
            continue;
        };
        result.common += 1;
        if words != other {
            let (a, b): (BTreeSet<_>, BTreeSet<_>) =
                (words.iter().collect(), other.iter().collect());
            let only = |a: &BTreeSet<&String>, b: &BTreeSet<&String>| {
                a.difference(b).map(|word| (*word).clone()).collect()
            };
            result.changed.push(ChangedCommand {
                file: key.0.clone(),
                only_first: only(&a, &b),
                only_second: only(&b, &a),
            });
        }
    }
    let fresh = second.keys().filter(|key| !first.contains_key(*key));
    result.only_second = fresh.map(|key| key.1.clone()).collect();
    result
}

/// Splits a command as a POSIX shell would, without expanding anything.
pub fn split(command: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = command.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, c) if c.is_ascii_whitespace() => words.extend(word.take()),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (Some(open), c) if c == open => quote = None,
            (Some('"') | None, '\\') => word.get_or_insert_default().extend(chars.next()),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_split_like_a_shell_does() {
        assert_eq!(
            split(r#"cc  -DA=\"x\" -ffile-prefix-map="/a b"=.. 'q r' "" -c a.c"#),
            [
                "cc",
                "-DA=\"x\"",
                "-ffile-prefix-map=/a b=..",
                "q r",
                "",
                "-c",
                "a.c"
            ]
        );
    }

    fn build(dir: &Path, extra: &str, more: &str) -> Commands {
        let out = dir.join("out");
        std::fs::create_dir_all(&out).unwrap();
        let d = dir.display();
        let one = |name: &str, extra: &str| {
            format!(
                r#"{{"directory": "{d}/out", "file": "{d}/src/{name}.c",
                    "command": "cc -I{d}/src/. {extra} -O3 -o {name}.o -c {d}/src/{name}.c"}}"#
            )
        };
        let list = [one("a", ""), one("b", extra), one(more, "")].join(",");
        std::fs::write(out.join("compile_commands.json"), format!("[{list}]")).unwrap();
        read(dir).unwrap()
    }

    #[test]
    fn only_real_differences_are_told() {
        let dir = tempfile::tempdir().unwrap();
        let one = build(&dir.path().join("one"), "-DX", "gone");
        let two = build(&dir.path().join("t w o"), "-DY -Iinc", "new");
        let found = compare(&one, &two);
        assert_eq!(found.common, 2);
        assert_eq!(found.only_first, ["gone.o"]);
        assert_eq!(found.only_second, ["new.o"]);
        let told: Vec<String> = found.changed.iter().map(ToString::to_string).collect();
        assert_eq!(told, ["<build>/src/b.c: -[-DX] +[-DY] +[-Iinc]"]);
        assert_eq!(
            compare(&one, &one),
            CommandDifferences {
                common: 3,
                ..Default::default()
            }
        );
    }
}
