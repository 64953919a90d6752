//! A patch that nothing judges is a claim.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};
use crate::project::suggest;

pub(super) const RULE: Rule = Rule {
    name: "gates",
    about: "patches without a gate, or with one that does not exist",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let known = known(subject)?;
    let mut findings = Vec::new();
    for patch in &subject.series.patches {
        let file = subject.manifest(patch);
        let text = fs_err::read_to_string(subject.project.root().join(&file))?;
        let line = line_with(&text, "gates");
        // Where nothing can be built, nothing can be judged.
        if patch.manifest.gates.is_empty() && subject.pristine.is_buildable() {
            findings.push(Finding::at(
                &file,
                line,
                format!("`{}` names no gate", patch.id()),
                match known.is_empty() {
                    true => "there is none yet: add a definition to gates/ and name it here",
                    false => "name the gates that judge it: gates = [\"chash\"]",
                },
            ));
        }
        for gate in patch
            .manifest
            .gates
            .iter()
            .filter(|gate| !known.contains(*gate))
        {
            findings.push(Finding::at(
                &file,
                line,
                format!("there is no gate `{gate}`"),
                suggest(gate, known.iter().map(String::as_str), "gates"),
            ));
        }
    }
    Ok(findings)
}

/// The ids of all gate definitions. Only the id is read: a broken definition is `gate`'s error.
fn known(subject: &Subject<'_>) -> Result<BTreeSet<String>> {
    let mut ids = BTreeSet::new();
    let dir = subject.project.root().join("gates");
    if !dir.is_dir() {
        return Ok(ids);
    }
    for entry in fs_err::read_dir(dir)? {
        let path = entry?.path();
        if path
            .extension()
            .is_some_and(|extension| extension == "toml")
            && let Ok(table) = fs_err::read_to_string(&path)?.parse::<toml::Table>()
            && let Some(id) = table.get("id").and_then(toml::Value::as_str)
        {
            ids.insert(id.to_owned());
        }
    }
    Ok(ids)
}
