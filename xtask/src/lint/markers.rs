//! Whoever reads an upstream file sees at each hook which patch it belongs to.

use crate::diff;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    name: "markers",
    about: "hooks whose first line does not carry `opencoti-hook: <patch-id>`",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for patch in &subject.series.patches {
        for hook in patch.hooks.iter().flat_map(diff::hooks) {
            if hook.inserted > 0 && !hook.is_marked(patch.id()) {
                let (file, line) = subject.in_hooks(patch, &hook.text)?;
                findings.push(Finding::at(
                    file,
                    line,
                    format!("the hook at {}:{} has no marker", hook.path, hook.line),
                    format!(
                        "write `opencoti-hook: {}` in a comment on its first line",
                        patch.id()
                    ),
                ));
            }
        }
    }
    Ok(findings)
}
