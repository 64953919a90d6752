//! `docs/UPSTREAM_SYNC.md` is what somebody reads on the day when a hook breaks.

use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};
use crate::patchset::book;

pub(super) const RULE: Rule = Rule {
    name: "book",
    about: "docs/UPSTREAM_SYNC.md against patches and series; hooked files without a note",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    if !book::is_current(
        subject.project,
        &book::page(subject.project, Some(subject.series))?,
    )? {
        findings.push(Finding::at(
            book::PAGE,
            1,
            "it is not what the patches give",
            "cargo xtask refresh",
        ));
    }
    for patch in &subject.series.patches {
        let file = subject.manifest(patch);
        for diff in &patch.hooks {
            if !patch.manifest.notes.contains_key(diff.path.as_str()) {
                findings.push(Finding::at(
                    &file,
                    1,
                    format!(
                        "no note says what to do when the hook in {} has moved",
                        diff.path
                    ),
                    format!(
                        "add under [notes]: \"{}\" = \"what to look for\"",
                        diff.path
                    ),
                ));
            }
        }
        for path in patch.manifest.notes.keys() {
            // On a partial base a hook may have no file to be in.
            let absent = subject.series.base.partial;
            if !absent && !patch.hooks.iter().any(|diff| diff.path.as_str() == path) {
                findings.push(Finding::at(
                    &file,
                    1,
                    format!("there is a note for {path}, and no hook in it"),
                    "take it out",
                ));
            }
        }
    }
    Ok(findings)
}
