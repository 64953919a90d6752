//! Patches insert lines; what else they do to upstream files needs a number and a reason.

use crate::diff;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};
use crate::patchset::count;

pub(super) const RULE: Rule = Rule {
    name: "additivity",
    about: "upstream lines that hooks delete or rewrite, against the manifest's allowance",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for patch in &subject.series.patches {
        let hooks = patch.hooks.iter().flat_map(diff::hooks);
        let deleted: usize = hooks.map(|hook| hook.deleted).sum();
        let allow = &patch.manifest.allow;
        let file = subject.manifest(patch);
        let text = fs_err::read_to_string(subject.project.root().join(&file))?;
        let line = line_with(&text, "[allow]");
        if deleted > allow.deletions {
            findings.push(Finding::at(
                &file,
                line,
                format!(
                    "the hooks of `{}` delete {}, {} are allowed",
                    patch.id(),
                    count(deleted, "upstream line"),
                    allow.deletions
                ),
                "make them insert-only, or state deletions and reason under [allow]",
            ));
        } else if deleted < allow.deletions {
            findings.push(Finding::at(
                &file,
                line,
                format!(
                    "{} deletions are allowed, the hooks of `{}` need {deleted}",
                    allow.deletions,
                    patch.id()
                ),
                "lower the number: an allowance that is too large hides the next deletion",
            ));
        }
        if allow.deletions > 0 && allow.reason.trim().is_empty() {
            findings.push(Finding::at(
                &file,
                line,
                "deletions are allowed without a reason",
                "write the reason under [allow]",
            ));
        }
    }
    Ok(findings)
}
