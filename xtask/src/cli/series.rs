//! What the authoring commands share: the base with its series, and how they answer.

use serde_json::json;

use crate::authoring::Saved;
use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::Base;
use crate::patchset::Series;
use crate::tree::RelPath;
use crate::vendor::{self, Cached, Pristine};

/// The base that a command works on, unpacked, with its series.
pub fn load(ctx: &Ctx, base: &BaseArg) -> Result<(Pristine, Series)> {
    both(ctx, base, |base| match vendor::look(ctx, base) {
        Ok(Cached::Present(pristine, _)) => Some(*pristine),
        _ => None,
    })
}

/// As [`load`], without a look at the files of the base: for commands that read only some, and
/// check those.
pub fn load_recorded(ctx: &Ctx, base: &BaseArg) -> Result<(Pristine, Series)> {
    both(ctx, base, |base| vendor::recorded(ctx, base).ok().flatten())
}

fn both(
    ctx: &Ctx,
    base: &BaseArg,
    find: impl FnOnce(&Base) -> Option<Pristine> + Send,
) -> Result<(Pristine, Series)> {
    let base = ctx.project.base(base.base.as_deref())?;
    // Side by side: every command waits for both. Nothing is fetched for a broken series.
    let (series, found) = rayon::join(|| Series::load(&ctx.project, &base), || find(&base));
    let series = series?;
    let pristine = match found {
        Some(pristine) => pristine,
        None => vendor::ensure(ctx, &base)?,
    };
    Ok((pristine, series))
}

/// One line for each file that changed.
pub fn changed(files: &[RelPath], removed: &[RelPath]) -> String {
    let line = |file| match removed.contains(file) {
        true => format!("  removed {file}\n"),
        false => format!("  wrote   {file}\n"),
    };
    files.iter().map(line).collect()
}

/// What was written, and what to do next.
pub fn outcome(saved: &Saved, next: &str) -> Outcome {
    let mut text = String::new();
    text.push_str(&changed(&saved.files, &saved.removed));
    text.push_str(&format!("series: {}\n{next}", saved.patches.join(", ")));
    Outcome::good(
        text,
        json!({ "files": saved.files, "removed": saved.removed, "patches": saved.patches }),
    )
}
