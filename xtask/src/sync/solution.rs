//! What a person's solution of a conflict must not lose or bring in by accident.

use std::collections::BTreeMap;

use crate::diff::{self, lines_of};
use crate::error::{Error, Result};
use crate::patchset::{self, Patch};
use crate::tree::RelPath;

/// Contents by file.
pub type Files = BTreeMap<RelPath, Vec<u8>>;

/// A line of a hook that a solution has fewer times than the patch inserts it.
pub struct Lost {
    line: String,
    file: RelPath,
    at: usize,
}

impl Lost {
    /// The same in words, with what to do.
    pub fn error(&self) -> Error {
        Error::finding(format!(
            "the line `{}`, hooked into {}:{} on the old base, is missing",
            self.line, self.file, self.at
        ))
        .hint(
            "put it where it belongs; if it is meant to be another one or none, add \
             --accept-changes",
        )
    }
}

/// Refuses a solution that takes away more of upstream's lines than the patch did, or inserts
/// lines without its marker where it had none such: most likely that was not meant.
pub fn refuse_surprises(patch: &Patch, before: &Files, solved: &Files) -> Result<()> {
    let old: Vec<diff::Hook> = patch.hooks.iter().flat_map(diff::hooks).collect();
    let mut new = Vec::new();
    for (path, text) in solved {
        let before = before.get(path).map_or(&[][..], Vec::as_slice);
        new.extend(
            diff::between(path, before, text)
                .iter()
                .flat_map(diff::hooks),
        );
    }
    let deleted = |hooks: &[diff::Hook]| hooks.iter().map(|hook| hook.deleted).sum::<usize>();
    let bare = |hook: &&diff::Hook| hook.inserted > 0 && !hook.is_marked(patch.id());
    let hint = "mend it in the working tree; if it is meant, add --accept-changes";
    if deleted(&new) > deleted(&old) {
        let first = new.iter().find(|hook| hook.deleted > 0);
        let place = first.map_or_else(String::new, |hook| {
            format!(" at {}:{}", hook.path, hook.line)
        });
        return Err(Error::finding(format!(
            "the solution deletes {}{place}, and the patch deleted {}",
            patchset::count(deleted(&new), "upstream line"),
            deleted(&old)
        ))
        .hint(hint));
    }
    if new.iter().filter(bare).count() > old.iter().filter(bare).count()
        && let Some(hook) = new.iter().find(bare)
    {
        return Err(Error::finding(format!(
            "the lines inserted at {}:{} do not carry the marker of `{}`",
            hook.path,
            hook.line,
            patch.id()
        ))
        .hint(hint));
    }
    Ok(())
}

/// The first line of the patch's hooks that `solved` does not add to `before` as often as they do.
pub fn lost_line(patch: &Patch, before: &Files, solved: &Files) -> Option<Lost> {
    let count = |files: &Files| {
        let mut counts: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
        for line in files.values().flat_map(|text| lines_of(text)) {
            *counts.entry(line.trim_ascii().to_vec()).or_default() += 1;
        }
        counts
    };
    let (before, mut there) = (count(before), count(solved));
    for (line, count) in before {
        if let Some(now) = there.get_mut(&line) {
            *now = now.saturating_sub(count);
        }
    }
    for hook in patch.hooks.iter().flat_map(diff::hooks) {
        for line in lines_of(&hook.text) {
            let line = line.trim_ascii();
            if line.is_empty() {
                continue;
            }
            match there.get_mut(line) {
                Some(left @ 1..) => *left -= 1,
                _ => {
                    return Some(Lost {
                        line: String::from_utf8_lossy(line).into_owned(),
                        file: hook.path,
                        at: hook.line,
                    });
                }
            }
        }
    }
    None
}
