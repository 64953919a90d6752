//! A switch that nobody reads switches nothing, and a gate that sets it compares off with off.

use crate::diff;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};
use crate::model::SWITCH_PREFIX;
use crate::patchset::Patch;

pub(super) const RULE: Rule = Rule {
    name: "switches",
    about: "switches that no code reads, or of another prefix than OPENCOTI_, or read and not declared",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for patch in &subject.series.patches {
        let file = subject.manifest(patch);
        let text = fs_err::read_to_string(subject.project.root().join(&file))?;
        let line = line_with(&text, "switches");
        for switch in &patch.manifest.switches {
            if !switch.starts_with(SWITCH_PREFIX) {
                findings.push(Finding::at(
                    &file,
                    line,
                    format!("the switch `{switch}` does not begin with {SWITCH_PREFIX}"),
                    "rename it: gates keep only variables of that prefix from the servers",
                ));
            }
            if !spells(patch, switch) {
                findings.push(Finding::at(
                    &file,
                    line,
                    format!("no code of `{}` reads the switch `{switch}`", patch.id()),
                    "mend `switches`, or take it out",
                ));
            }
        }
        undeclared(subject, patch, &mut findings)?;
    }
    Ok(findings)
}

/// Variables that code of `patch` reads as switches, and that neither it nor a patch that it
/// requires declares: a gate would not keep them from the servers that it compares.
fn undeclared(subject: &Subject<'_>, patch: &Patch, findings: &mut Vec<Finding>) -> Result<()> {
    let all = &subject.series.patches;
    let required = |id: &str| patch.manifest.requires.iter().any(|needed| needed == id);
    let declared = |name: &String| {
        let may = all
            .iter()
            .filter(|other| other.id() == patch.id() || required(other.id()));
        may.flat_map(|other| &other.manifest.switches)
            .any(|switch| switch == name)
    };
    let mut add = |file: String, line: usize, name: String| {
        findings.push(Finding::at(
            file,
            line,
            format!("it reads `{name}`, which `{}` does not declare", patch.id()),
            format!("add \"{name}\" to `switches` in patch.toml"),
        ));
    };
    for file in &patch.overlay {
        for (line, name) in read_by(&file.content) {
            if !declared(&name) {
                add(
                    format!("patches/{}/src/{}", patch.id(), file.path),
                    line,
                    name,
                );
            }
        }
    }
    for hook in patch.hooks.iter().flat_map(diff::hooks) {
        for (_, name) in read_by(&hook.text) {
            if !declared(&name) {
                let (file, line) = subject.in_hooks(patch, &hook.text)?;
                add(file, line, name);
            }
        }
    }
    Ok(())
}

/// The variables of our prefix that `getenv("…")` names in `code`, each with its line, from 1.
fn read_by(code: &[u8]) -> Vec<(usize, String)> {
    let text = String::from_utf8_lossy(code);
    let mut found = Vec::new();
    for (at, _) in text.match_indices("getenv") {
        let mut rest = text[at + "getenv".len()..].trim_start();
        for needed in ["(", "\""] {
            rest = rest.strip_prefix(needed).unwrap_or_default().trim_start();
        }
        let name = rest.split('"').next().unwrap_or_default();
        if name.starts_with(SWITCH_PREFIX) {
            let line = text[..at].matches('\n').count() + 1;
            found.push((line, name.to_owned()));
        }
    }
    found
}

/// Whether the overlay or a hook of `patch` holds `switch` in double quotes.
fn spells(patch: &Patch, switch: &str) -> bool {
    let quoted = format!("\"{switch}\"");
    let holds = |text: &[u8]| String::from_utf8_lossy(text).contains(&quoted);
    let mut hooks = patch.hooks.iter().flat_map(diff::hooks);
    patch.overlay.iter().any(|file| holds(&file.content)) || hooks.any(|hook| holds(&hook.text))
}
