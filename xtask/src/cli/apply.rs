//! `cargo xtask apply`.

use serde_json::json;

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset::{self, Moved, Series};

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Stop after this patch of the series
    #[arg(long, value_name = "PATCH")]
    until: Option<String>,
    /// Put edits in the working tree away, after a copy of them under vendor/.discarded
    #[arg(long)]
    discard_edits: bool,
}

/// Applies the series, all of it or up to one patch.
pub fn run(ctx: &Ctx, args: ApplyArgs) -> Result<Outcome> {
    let (pristine, series) = series::load_recorded(ctx, &args.base)?;
    let count = match &args.until {
        Some(id) => series.position(id)?,
        None => series.patches.len(),
    };
    let moved = patchset::apply(ctx, &pristine, &series, count, args.discard_edits)?;
    Ok(outcome(&series, &moved))
}

/// What `apply` and `revert` say.
pub fn outcome(series: &Series, moved: &Moved) -> Outcome {
    let mut text = String::new();
    if moved.created {
        text.push_str(&format!("{} made from {}\n", moved.tree, series.base.id));
    }
    for path in &moved.written {
        text.push_str(&format!("  wrote   {path}\n"));
    }
    for path in &moved.removed {
        text.push_str(&format!("  removed {path}\n"));
    }
    if let Some(dir) = &moved.saved_to {
        text.push_str(&format!("edits were put away under {dir}\n"));
    }
    let changed = moved.written.len() + moved.removed.len();
    let applied = match moved.applied.as_slice() {
        [] => "no patch applied".to_owned(),
        ids => format!("applied {}", ids.join(", ")),
    };
    text.push_str(&format!("{}: {applied}", moved.tree));
    if changed == 0 && !moved.created {
        text.push_str(" (nothing to change)");
    }
    let data = json!({
        "base": series.base.id,
        "patchset": series.id,
        "moved": moved,
    });
    Outcome::good(text, data)
}
