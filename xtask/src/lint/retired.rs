//! A retired patch has left every series.

use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};
use crate::model::{Retired, read_toml};

pub(super) const RULE: Rule = Rule {
    name: "retired",
    about: "patches that registry/retired.toml retires and a series still has",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let path = subject.project.registry("retired.toml");
    if !path.exists() {
        return Ok(Vec::new());
    }
    let retired: Retired = read_toml(&path)?;
    let series = fs_err::read_to_string(subject.project.registry("series.toml"))?;
    let mut findings = Vec::new();
    for entry in &retired.patch {
        if entry
            .base
            .as_ref()
            .is_none_or(|base| *base == subject.series.base.id)
            && subject
                .series
                .patches
                .iter()
                .any(|patch| patch.id() == entry.id)
        {
            findings.push(Finding::at(
                "registry/series.toml",
                line_with(&series, &format!("\"{}\"", entry.id)),
                format!("`{}` is retired: {}", entry.id, entry.reason.trim()),
                "take it out of the series, or out of registry/retired.toml",
            ));
        }
    }
    Ok(findings)
}
