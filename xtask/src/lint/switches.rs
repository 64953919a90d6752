//! A switch that nobody reads switches nothing, and a gate that sets it compares off with off.

use crate::diff;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};
use crate::model::SWITCH_PREFIX;
use crate::patchset::Patch;

pub(super) const RULE: Rule = Rule {
    name: "switches",
    about: "switches that no code of their patch reads, or of another prefix than OPENCOTI_",
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
    }
    Ok(findings)
}

/// Whether the overlay or a hook of `patch` holds `switch` in double quotes.
fn spells(patch: &Patch, switch: &str) -> bool {
    let quoted = format!("\"{switch}\"");
    let holds = |text: &[u8]| String::from_utf8_lossy(text).contains(&quoted);
    let mut hooks = patch.hooks.iter().flat_map(diff::hooks);
    patch.overlay.iter().any(|file| holds(&file.content)) || hooks.any(|hook| holds(&hook.text))
}
