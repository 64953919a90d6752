//! Build options of patches: one that nothing reads does nothing, and one that a patch sets by force
//! makes void what the build asks for.

use std::collections::BTreeMap;

use crate::build::drift::is_build_file;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};
use crate::model::SWITCH_PREFIX;
use crate::patchset::Patch;

pub(super) const RULE: Rule = Rule {
    name: "options",
    about: "build options of patches that nothing reads; options of the build that patches set",
    check,
};

/// Beginnings of the names of what the build decides.
const DECIDED: [&str; 4] = ["CMAKE_", "GGML_", "LLAMA_", "BUILD_"];
/// What a folder of CMake's is told for itself alone, and no option.
const OWN: [&str; 2] = ["CMAKE_MODULE_PATH", "CMAKE_PREFIX_PATH"];

/// One line that a patch adds to a build file.
struct Line {
    file: String,
    number: usize,
    text: String,
}

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    let mut lines = Vec::new();
    for patch in &subject.series.patches {
        lines.extend(added(subject, patch));
    }
    let mut mentions: BTreeMap<&str, usize> = BTreeMap::new();
    for line in &lines {
        for word in words(&line.text) {
            *mentions.entry(word).or_default() += 1;
        }
    }
    for line in &lines {
        let Some(name) = declared(&line.text) else {
            continue;
        };
        if name.starts_with(SWITCH_PREFIX) && mentions.get(name) == Some(&1) {
            findings.push(Finding::at(
                &line.file,
                line.number,
                format!("nothing reads the build option {name}: it does nothing"),
                "read it, or take it out",
            ));
        }
        let decided = DECIDED.iter().any(|start| name.starts_with(start));
        if decided && !OWN.contains(&name) {
            findings.push(Finding::at(
                &line.file,
                line.number,
                format!("it sets {name}, which the build decides"),
                "ask for what is needed of single files or targets; cargo xtask build refuses \
                 options that do not hold",
            ));
        }
    }
    Ok(findings)
}

/// Lines that a patch adds to build files, without comments.
fn added(subject: &Subject<'_>, patch: &Patch) -> Vec<Line> {
    let mut lines = Vec::new();
    let mut add = |file: &str, number: usize, text: &str| {
        let text = text.split('#').next().unwrap_or_default().trim();
        lines.push(Line {
            file: file.to_owned(),
            number,
            text: text.to_owned(),
        });
    };
    for overlay in &patch.overlay {
        if is_build_file(overlay.path.as_str()) {
            let file = format!("patches/{}/src/{}", patch.id(), overlay.path);
            let text = String::from_utf8_lossy(&overlay.content);
            for (at, line) in text.lines().enumerate() {
                add(&file, at + 1, line);
            }
        }
    }
    let file = match &patch.hooks_file {
        Some(file) => file.clone(),
        None => subject.manifest(patch),
    };
    let mut inside = false;
    for (at, line) in String::from_utf8_lossy(&patch.hooks_text)
        .lines()
        .enumerate()
    {
        match (line.strip_prefix("+++ "), line.strip_prefix('+')) {
            (Some(path), _) => inside = is_build_file(path.trim_end()),
            (None, Some(text)) if inside => add(&file, at + 1, text),
            _ => {}
        }
    }
    lines
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// The variable that a line declares or sets for all to see; what a function sets for its caller
/// and a list of its own is none.
fn declared(line: &str) -> Option<&str> {
    let lower = line.to_ascii_lowercase();
    let rest = [
        "option(",
        "option (",
        "set(",
        "set (",
        "cmake_dependent_option(",
    ]
    .iter()
    .find(|start| lower.starts_with(*start))
    .map(|start| &line[start.len()..])?;
    let name = words(rest.trim_start()).next()?;
    let is_cached = lower.starts_with("option") || lower.starts_with("cmake_") || {
        words(rest).any(|word| word == "CACHE")
    };
    let decided = DECIDED.iter().any(|start| name.starts_with(start));
    (is_cached || decided).then_some(name)
}

#[cfg(test)]
mod tests {
    use crate::toy::Toy;

    fn found(cmake: &str) -> Vec<String> {
        let toy = Toy::new();
        toy.patch("one", "", &[("cmake/one.cmake", cmake)]);
        toy.series(&["one"]);
        let rule = ["options".to_owned()];
        crate::lint::run(&toy.ctx, &toy.pristine, &toy.load(), &rule)
            .unwrap()
            .into_iter()
            .map(|finding| format!("{}:{}: {}", finding.file, finding.line, finding.message))
            .collect()
    }

    #[test]
    fn an_option_that_is_read_is_fine() {
        let text = "option(OPENCOTI_A \"x\" ON)\nset(OPENCOTI_B \"\" CACHE PATH \"y\")\n\
                    if (OPENCOTI_A AND EXISTS \"${OPENCOTI_B}\")\n  set(sources a.c)\nendif()\n\
                    list(APPEND CMAKE_MODULE_PATH x)\n# set(GGML_NATIVE OFF)\n";
        assert_eq!(found(text), [""; 0]);
    }

    #[test]
    fn options_that_do_nothing_or_too_much_are_told() {
        let text = "option(OPENCOTI_A \"x\" ON)\n# OPENCOTI_A\nset(GGML_NATIVE OFF CACHE BOOL \"\" FORCE)\n\
                    set(CMAKE_CXX_FLAGS \"${CMAKE_CXX_FLAGS} -O0\")\n";
        let file = "patches/one/src/cmake/one.cmake";
        assert_eq!(
            found(text),
            [
                format!("{file}:1: nothing reads the build option OPENCOTI_A: it does nothing"),
                format!("{file}:3: it sets GGML_NATIVE, which the build decides"),
                format!("{file}:4: it sets CMAKE_CXX_FLAGS, which the build decides"),
            ]
        );
    }
}
