//! `cargo xtask reorder`.

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `reorder`.
#[derive(Debug, clap::Args)]
pub struct ReorderArgs {
    /// The patch to move
    id: String,
    /// Put it directly behind this patch
    #[arg(long, value_name = "PATCH", required_unless_present = "first")]
    after: Option<String>,
    /// Put it first
    #[arg(long, conflicts_with = "after")]
    first: bool,
    #[command(flatten)]
    base: BaseArg,
}

/// Moves a patch to another place in the series.
pub fn run(ctx: &Ctx, args: ReorderArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let saved = authoring::reorder(ctx, &pristine, &series, &args.id, args.after.as_deref())?;
    Ok(series::outcome(
        &saved,
        &format!(
            "cargo xtask apply{} brings the working tree along",
            args.base.flag()
        ),
    ))
}
