//! `registry/hooks.toml` says what the patches do; it must not say what they did once.

use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};
use crate::patchset;

pub(super) const RULE: Rule = Rule {
    name: "registry",
    about: "registry/hooks.toml against patches and base; patches that do not apply",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for problem in subject.problems {
        let patch = subject
            .series
            .patches
            .iter()
            .find(|p| p.id() == problem.patch);
        let file = match patch.and_then(|patch| patch.hooks_file.clone()) {
            Some(file) => file,
            None => format!("patches/{}/patch.toml", problem.patch),
        };
        findings.push(Finding::at(
            file,
            1,
            problem.to_string(),
            "mend the hooks; those that failed on their own first",
        ));
    }
    for drift in patchset::registry_drift(subject.project, subject.series, subject.images)? {
        findings.push(Finding::at(
            "registry/hooks.toml",
            1,
            drift,
            "cargo xtask refresh, then look at the difference before you commit it",
        ));
    }
    Ok(findings)
}
