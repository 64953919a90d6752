//! The markers of a patch in hooks and overlays, where its id changes.

use crate::authoring::save::with_hooks;
use crate::ctx::Ctx;
use crate::diff::{self, FileDiff};
use crate::error::Result;
use crate::patchset::Series;
use crate::tree::RelPath;

const MARKER: &str = "opencoti-hook: ";

/// `line` with the marker of `old` made that of `new`.
pub(super) fn remarked(content: &[u8], old: &str, new: &str) -> Vec<u8> {
    let (from, to) = (format!("{MARKER}{old}"), format!("{MARKER}{new}"));
    let mut out = Vec::with_capacity(content.len());
    let mut rest = content;
    while let Some(at) = find(rest, from.as_bytes()) {
        let end = at + from.len();
        // Not the beginning of a longer id.
        let whole = !rest
            .get(end)
            .is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'-');
        out.extend_from_slice(&rest[..at]);
        out.extend_from_slice(if whole {
            to.as_bytes()
        } else {
            from.as_bytes()
        });
        rest = &rest[end..];
    }
    out.extend_from_slice(rest);
    out
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack
        .windows(needle.len())
        .position(|window| window == needle)
}

/// Inserted lines with other markers.
pub(super) fn remark(mut hooks: Vec<FileDiff>, old: &str, new: &str) -> Vec<FileDiff> {
    for line in hooks
        .iter_mut()
        .flat_map(|diff| &mut diff.hunks)
        .flat_map(|hunk| &mut hunk.lines)
    {
        if let diff::Line::Insert(bytes) = line {
            *bytes = remarked(bytes, old, new);
        }
    }
    hooks
}

/// Later patches quote lines of earlier ones as context: those whose marker changed are changed
/// there too. `only` limits it to these files, where it is not empty.
pub(super) fn follow_markers(
    ctx: &Ctx,
    series: Series,
    from: usize,
    old: &str,
    new: &str,
    only: &[RelPath],
) -> Result<Series> {
    let mut patches = series.patches;
    for patch in patches.iter_mut().skip(from) {
        let mut hooks = patch.hooks.clone();
        for diff in &mut hooks {
            if !only.is_empty() && !only.contains(&diff.path) {
                continue;
            }
            for line in diff.hunks.iter_mut().flat_map(|hunk| &mut hunk.lines) {
                if let diff::Line::Context(bytes) | diff::Line::Delete(bytes) = line {
                    *bytes = remarked(bytes, old, new);
                }
            }
        }
        *patch = with_hooks(ctx, patch, &series.base.id, hooks)?;
    }
    Series::of(&ctx.project, &series.base, patches)
}
