//! A switch that nobody reads switches nothing, and a gate that sets it compares off with off.

use crate::diff;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};
use crate::model::SWITCH_PREFIX;
use crate::patchset::Patch;

pub(super) const RULE: Rule = Rule {
    name: "switches",
    about: "switches that no code reads, or of another prefix than OPENCOTI_, or read and not declared, or that say what no code says",
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
        logged(patch, &file, &text, &mut findings);
        undeclared(subject, patch, &mut findings)?;
    }
    Ok(findings)
}

/// What `log` declares must be of a switch of the patch, and be what its code says: a text that nobody
/// says is never found, and a gate would take that for well or for ill.
fn logged(patch: &Patch, file: &str, manifest: &str, findings: &mut Vec<Finding>) {
    for (switch, log) in &patch.manifest.log {
        let line = line_with(manifest, &format!("log.{switch}"));
        let mut add = |message: String, hint: &str| {
            findings.push(Finding::at(file, line, message, hint));
        };
        if !patch.manifest.switches.contains(switch) {
            add(
                format!("`log.{switch}` is of no switch of `{}`", patch.id()),
                "name one of `switches`, or take it out",
            );
        }
        let texts = log.says.iter().chain(&log.refuses).chain(&log.aside);
        for text in texts {
            let is_said = |part: &str| part.is_empty() || contains(patch, part);
            if text.trim_matches('*').is_empty() || !text.split('*').all(is_said) {
                add(
                    format!("no code of `{}` says \"{text}\"", patch.id()),
                    "write it as the code has it, with `*` for what is filled in",
                );
            }
        }
    }
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
    contains(patch, &format!("\"{switch}\""))
}

/// Whether the overlay or a hook of `patch` holds `wanted`.
fn contains(patch: &Patch, wanted: &str) -> bool {
    let holds = |text: &[u8]| String::from_utf8_lossy(text).contains(wanted);
    let mut hooks = patch.hooks.iter().flat_map(diff::hooks);
    patch.overlay.iter().any(|file| holds(&file.content)) || hooks.any(|hook| holds(&hook.text))
}
