//! A checkout on a file system that folds case, or letters with accents, has one file where the
//! series has two.

use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};
use crate::patchset::collisions;

pub(super) const RULE: Rule = Rule {
    name: "names",
    about: "new files whose names differ from another's only in case or in the form of accents",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let found = collisions(subject.pristine, subject.series);
    Ok(found
        .iter()
        .map(|collision| {
            let patch = subject.series.patches[collision.patch].id();
            Finding::at(
                format!("patches/{patch}/src/{}", collision.path),
                1,
                collision.to_string(),
                "give the file another name",
            )
        })
        .collect())
}
