//! Upstream's commits between two bases, from a clone that the user has.

use std::path::PathBuf;
use std::process::Command;

use crate::ctx::Ctx;
use crate::diff::lines_of;
use crate::error::{Error, Result};
use crate::model::Base;
use crate::process;
use crate::sync::align::Alignment;
use crate::sync::edit::Edit;
use crate::sync::place::Pair;

/// Over more lines than this a history says nothing about one hook.
const FARTHEST: usize = 400;

/// Commits that are named.
const NAMED: usize = 5;

/// A clone of upstream that has the commits of both bases; or none, which knows nothing.
#[derive(Clone, Debug, Default)]
pub struct History {
    clone: Option<(PathBuf, String, String)>,
}

impl History {
    /// No history.
    pub fn none() -> Self {
        History::default()
    }

    /// The history in `dir` from `old` to `new`. An error where it lacks one of the two commits.
    pub fn of(ctx: &Ctx, dir: PathBuf, old: &Base, new: &Base) -> Result<Self> {
        for base in [old, new] {
            if base.commit.is_empty() {
                return Err(Error::usage(format!(
                    "base {} is no known commit of upstream, so a history does not help",
                    base.id
                ))
                .hint("leave --history out"));
            }
            let mut command = git(&dir);
            command.args(["cat-file", "-e", &format!("{}^{{commit}}", base.commit)]);
            if !process::capture(ctx, &mut command)?.status.success() {
                return Err(Error::environment(format!(
                    "{} is no clone that has commit {} of {}",
                    dir.display(),
                    base.commit,
                    base.id
                ))
                .hint(format!("git -C {} fetch origin", dir.display())));
            }
        }
        Ok(History {
            clone: Some((dir, old.commit.clone(), new.commit.clone())),
        })
    }

    /// Commits that touched what now stands where `edit` belongs, newest first: id and subject.
    /// `upstream` is the new file without any patch: the lines of patches are not upstream's.
    pub(super) fn touching(
        &self,
        ctx: &Ctx,
        pair: &Pair<'_>,
        upstream: Option<&[u8]>,
        edit: &Edit,
    ) -> Result<Vec<String>> {
        let (Some((dir, old, new)), Some(upstream)) = (&self.clone, upstream) else {
            return Ok(Vec::new());
        };
        let before = lines_of(&pair.old.content);
        let after = lines_of(upstream);
        let map = Alignment::of(&before, &after);
        let above = (0..edit.from).rev().find_map(|line| map.agreed(line));
        let below = (edit.to..before.len()).find_map(|line| map.agreed(line));
        let first = above.unwrap_or(0);
        let last = below.unwrap_or(after.len().saturating_sub(1)).max(first);
        if last - first > FARTHEST {
            return Ok(Vec::new());
        }
        let mut command = git(dir);
        command.args(["log", "--no-patch", "--format=%h %s"]);
        command.arg(format!("--max-count={NAMED}"));
        command.arg(format!("-L{},{}:{}", first + 1, last + 1, pair.path));
        command.arg(format!("{old}..{new}"));
        let done = process::capture(ctx, &mut command)?;
        // A clone without that file's blobs, or a range that git does not take: no evidence.
        if !done.status.success() {
            return Ok(Vec::new());
        }
        Ok(done.output.lines().map(str::to_owned).collect())
    }
}

fn git(dir: &std::path::Path) -> Command {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir);
    command
}
