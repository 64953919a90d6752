//! Declarations that the series uses and that are not what they were: a merge without conflict
//! does not mean that it still compiles, or means the same.

use std::ops::Range;

use serde::Serialize;

use crate::diff::lines_of;
use crate::error::Result;
use crate::patchset::{Images, Patch, Series};
use crate::symbols::{self, Change, Folder, User};
use crate::sync::edit::edits_of;
use crate::sync::port::Port;
use crate::sync::verdict::{HookReport, PatchReport};
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
pub fn drift(old: &Pristine, series: &Series, new: &Pristine, port: &Port) -> Result<Vec<Drift>> {
    let images = Images::compute(old, series)?;
    let mut users = Vec::new();
    let mut owners = Vec::new();
    for (at, (patch, report)) in series.patches.iter().zip(&port.reports).enumerate() {
        if !report.verdict.is_carried() {
            continue;
        }
        for user in users_of(&images, at, patch, report, old, new) {
            owners.push((patch.id().to_owned(), user.file.clone()));
            users.push(user);
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

/// A base as the symbols room reads it.
fn folder(pristine: &Pristine) -> Folder<'_> {
    Folder {
        root: &pristine.root,
        manifest: &pristine.manifest,
    }
}

/// The hooked files and the overlay of one patch, with what they use. What has no place in the
/// new base uses nothing there.
fn users_of(
    images: &Images,
    at: usize,
    patch: &Patch,
    report: &PatchReport,
    old: &Pristine,
    new: &Pristine,
) -> Vec<User> {
    let mut users = Vec::new();
    for file in &patch.overlay {
        if new.base.partial && !has_folder_of(&file.path, old, new) {
            continue;
        }
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
        let hooks: Vec<&HookReport> = report
            .hooks
            .iter()
            .filter(|hook| hook.before.file == diff.path)
            .collect();
        // The lines as the patched file has them, from 1.
        let mut lines: Vec<Range<usize>> = Vec::new();
        let (mut inserted, mut deleted) = (0, 0);
        for (edit, hook) in edits_of(diff).iter().zip(&hooks) {
            let count = lines_of(&edit.text).len();
            let first = edit.from + inserted - deleted + 1;
            if hook.after.is_some() {
                lines.push(first..first + count);
            }
            inserted += count;
            deleted += edit.to - edit.from;
        }
        if lines.is_empty() {
            continue;
        }
        let moved_to = hooks
            .iter()
            .filter_map(|hook| Some(hook.after.as_ref()?.file.clone()))
            .find(|file| *file != diff.path);
        users.push(User {
            file: diff.path.clone(),
            moved_to,
            own: None,
            uses: symbols::uses_of_lines(&diff.path, &image.content, &lines),
        });
    }
    users
}

/// Whether the new base has the folder of upstream's that an overlay file goes into.
fn has_folder_of(path: &RelPath, old: &Pristine, new: &Pristine) -> bool {
    let has = |base: &Pristine, folder: &str| {
        base.manifest.iter().any(|(path, _)| {
            path.as_str()
                .strip_prefix(folder)
                .is_some_and(|rest| rest.starts_with('/'))
        })
    };
    let mut folder = path.as_str();
    while let Some((outer, _)) = folder.rsplit_once('/') {
        if has(old, outer) {
            return has(new, outer);
        }
        folder = outer;
    }
    true
}
