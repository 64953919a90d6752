//! What became of each file of a patch, and hooks of one patch that would replace the same lines.

use std::collections::BTreeMap;

use crate::sync::edit::Edit;
use crate::sync::place::Placed;
use crate::sync::verdict::{HookReport, HookVerdict};
use crate::tree::RelPath;

/// What became of one file of a patch.
#[derive(Default)]
pub struct FileDone {
    pub reports: Vec<HookReport>,
    pub placed: Vec<Placed>,
    pub unplaced: Vec<Edit>,
}

/// Takes the place away from a hook that would replace lines which another one replaces.
pub fn refuse_overlaps(files: &mut BTreeMap<RelPath, FileDone>) {
    let mut taken: BTreeMap<RelPath, Vec<(usize, usize)>> = BTreeMap::new();
    for done in files.values_mut() {
        let mut kept = Vec::new();
        for placed in std::mem::take(&mut done.placed) {
            let (from, to) = (placed.edit.from, placed.edit.to);
            let there = taken.entry(placed.file.clone()).or_default();
            let overlaps = |(a, b): &(usize, usize)| from < *b && *a < to;
            let inside = |(a, b): &(usize, usize)| from == to && *a < from && from < *b;
            if !there.iter().any(|one| overlaps(one) || inside(one)) {
                there.push((from, to));
                kept.push(placed);
                continue;
            }
            let place = |report: &&mut HookReport| {
                report
                    .after
                    .as_ref()
                    .is_some_and(|after| after.file == placed.file && after.line == from + 1)
            };
            if let Some(report) = done.reports.iter_mut().find(place) {
                report.verdict = HookVerdict::Conflict;
                report.after = None;
                report.note = "another hook of the patch replaces the same lines".to_owned();
                done.unplaced.push(Edit {
                    from: report.before.line - 1,
                    to: report.before.line - 1 + (to - from),
                    ..placed.edit
                });
            }
        }
        done.placed = kept;
    }
}
