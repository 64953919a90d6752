//! Upstream compiles `src/models/*.cpp` in batches, many files as one: a static name that two
//! files share is an error there, and only there. Names with internal linkage in overlay sources
//! of a folder are therefore unique among the overlay's and upstream's of that folder.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};
use crate::tree::RelPath;

pub(super) const RULE: Rule = Rule {
    name: "unity",
    about: "static names of overlay sources that could collide in a unity build",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    // (folder, name) to the place of the first definition in the overlay.
    let mut ours: BTreeMap<(String, String), String> = BTreeMap::new();
    for patch in &subject.series.patches {
        for file in patch.overlay.iter().filter(|file| is_source(&file.path)) {
            let place = format!("patches/{}/src/{}", patch.id(), file.path);
            let folder = folder(&file.path);
            let text = String::from_utf8_lossy(&file.content);
            for (name, line) in statics(&text) {
                let key = (folder.clone(), name.clone());
                if let Some(other) = ours.get(&key) {
                    findings.push(Finding::at(
                        &place,
                        line,
                        format!("the static name `{name}` is also in {other}"),
                        "give it a name that begins with the patch's own prefix",
                    ));
                } else {
                    ours.insert(key, place.clone());
                }
            }
        }
    }
    for (path, _) in subject.pristine.manifest.iter() {
        let folder = folder(path);
        if !is_source(path) || !ours.keys().any(|(ours, _)| *ours == folder) {
            continue;
        }
        let content = fs_err::read(path.below(&subject.pristine.root))?;
        for (name, _) in statics(&String::from_utf8_lossy(&content)) {
            if let Some(place) = ours.get(&(folder.clone(), name.clone())) {
                findings.push(Finding::at(
                    place,
                    1,
                    format!("the static name `{name}` is also in upstream's {path}"),
                    "give it a name that begins with the patch's own prefix",
                ));
            }
        }
    }
    Ok(findings)
}

fn is_source(path: &RelPath) -> bool {
    [".c", ".cc", ".cpp", ".cu"]
        .iter()
        .any(|ending| path.as_str().ends_with(ending))
}

fn folder(path: &RelPath) -> String {
    let text = path.as_str();
    text.rsplit_once('/')
        .map_or("", |(folder, _)| folder)
        .to_owned()
}

/// Names of functions and variables that are declared `static` at the beginning of a line, with
/// their lines: enough for this code's style, in which nothing at file scope is indented.
fn statics(text: &str) -> Vec<(String, usize)> {
    let mut names = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let Some(rest) = line.strip_prefix("static ") else {
            continue;
        };
        // The name is the last word before the parameters, the initializer or the bounds.
        let head = rest
            .split(['(', '=', ';', '[', '{'])
            .next()
            .unwrap_or_default();
        let name = head
            .trim_end()
            .rsplit(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
            .next()
            .unwrap_or_default();
        if !name.is_empty() && name != "struct" {
            names.push((name.to_owned(), at + 1));
        }
    }
    names
}

#[cfg(test)]
mod tests {
    #[test]
    fn static_names_are_found() {
        let text = "static int f(int x) {\n    static int local = 1;\n}\nstatic const char * const NAME[] = {\nstatic std::vector<int> v;\nint g();\n";
        let names: Vec<String> = super::statics(text)
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        assert_eq!(names, ["f", "NAME", "v"]);
    }
}
