//! `new` writes what is to be replaced; a page of hooks that quotes it says nothing.

use crate::authoring::{PURPOSE, TITLE};
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject, line_with};

pub(super) const RULE: Rule = Rule {
    name: "manifest",
    about: "titles and purposes that are empty or still what `new` wrote",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for patch in &subject.series.patches {
        let file = subject.manifest(patch);
        let text = fs_err::read_to_string(subject.project.root().join(&file))?;
        let parts = [
            ("title", &patch.manifest.title, TITLE),
            ("purpose", &patch.manifest.purpose, PURPOSE),
        ];
        for (key, value, placeholder) in parts {
            let value = value.trim();
            let what = match value {
                "" => "is empty",
                _ if value == placeholder => "is still what `new` wrote",
                _ => continue,
            };
            findings.push(Finding::at(
                &file,
                line_with(&text, key),
                format!("the {key} {what}"),
                "say what the patch is for; UPSTREAM_SYNC.md quotes it",
            ));
        }
    }
    Ok(findings)
}
