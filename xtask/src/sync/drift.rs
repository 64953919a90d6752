//! Declarations that the series uses and that are not what they were: a merge without conflict
//! does not mean that it still compiles, or means the same.

use std::ops::Range;

use serde::Serialize;

use crate::diff::lines_of;
use crate::error::Result;
use crate::patchset::{Images, Patch, Series};
use crate::symbols::{self, Change, Folder, User};
use crate::sync::edit::edits_of;
use crate::sync::session::Step;
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// One declaration that differs, and who uses it.
#[derive(Clone, Debug, Serialize)]
pub struct Drift {
    /// The declaration on both sides.
    #[serde(flatten)]
    pub declaration: symbols::Drift,
    /// Patch and file of each use.
    pub used_by: Vec<(String, RelPath)>,
}

impl Drift {
    /// Whether somebody has to look: all but what only went to another file.
    pub fn matters(&self) -> bool {
        self.declaration.change != Change::Moved
    }
}

/// Every upstream declaration that hooks or overlay of the carried patches use and that differs
/// between the two bases.
pub fn drift(step: &Step) -> Result<Vec<Drift>> {
    let (old, new) = &step.pristine;
    let carried: Vec<&str> = step
        .port
        .reports
        .iter()
        .filter(|report| report.verdict.is_carried())
        .map(|report| report.patch.as_str())
        .collect();
    let moved = |patch: &str, file: &RelPath| {
        let report = step
            .port
            .reports
            .iter()
            .find(|report| report.patch == patch)?;
        let hook = report.hooks.iter().find(|hook| hook.before.file == *file)?;
        let after = hook.after.as_ref()?;
        (after.file != *file).then(|| after.file.clone())
    };
    of(old, &step.old, new, &carried, &moved)
}

/// The same for some patches of a series.
fn of(
    old: &Pristine,
    series: &Series,
    new: &Pristine,
    carried: &[&str],
    moved: &dyn Fn(&str, &RelPath) -> Option<RelPath>,
) -> Result<Vec<Drift>> {
    let images = Images::compute(old, series)?;
    let mut users = Vec::new();
    let mut owners = Vec::new();
    for (at, patch) in series.patches.iter().enumerate() {
        if !carried.contains(&patch.id()) {
            continue;
        }
        for user in users_of(&images, at, patch) {
            owners.push((patch.id().to_owned(), user.file.clone()));
            users.push(User {
                moved_to: moved(patch.id(), &user.file),
                ..user
            });
        }
    }
    let found = symbols::drift(&folder(old), &folder(new), &users)?;
    Ok(found
        .into_iter()
        .map(|declaration| Drift {
            used_by: declaration
                .users
                .iter()
                .filter_map(|user| owners.get(*user).cloned())
                .collect(),
            declaration,
        })
        .collect())
}

fn folder(pristine: &Pristine) -> Folder<'_> {
    Folder {
        root: &pristine.root,
        manifest: &pristine.manifest,
    }
}

/// The hooked files and the overlay of one patch, with what they use.
fn users_of(images: &Images, at: usize, patch: &Patch) -> Vec<User> {
    let mut users = Vec::new();
    for file in &patch.overlay {
        users.push(User {
            file: file.path.clone(),
            moved_to: None,
            own: Some(file.content.clone()),
            uses: symbols::uses(&file.path, &file.content),
        });
    }
    for diff in &patch.hooks {
        let Some(image) = images.at(&diff.path, at + 1) else {
            continue;
        };
        // The lines as the patched file has them, from 1.
        let mut lines: Vec<Range<usize>> = Vec::new();
        let (mut inserted, mut deleted) = (0, 0);
        for edit in edits_of(diff) {
            let count = lines_of(&edit.text).len();
            let first = edit.from + inserted - deleted + 1;
            lines.push(first..first + count);
            inserted += count;
            deleted += edit.to - edit.from;
        }
        users.push(User {
            file: diff.path.clone(),
            moved_to: None,
            own: None,
            uses: symbols::uses_of_lines(&diff.path, &image.content, &lines),
        });
    }
    users
}
