//! `cargo xtask fold`.

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `fold`.
#[derive(Debug, clap::Args)]
pub struct FoldArgs {
    /// The patch that goes into the one before it
    id: String,
    #[command(flatten)]
    base: BaseArg,
}

/// Takes a patch into the one directly before it.
pub fn run(ctx: &Ctx, args: FoldArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let saved = authoring::fold(ctx, &pristine, &series, &args.id)?;
    Ok(series::outcome(
        &saved,
        &format!(
            "cargo xtask apply{} brings the working tree along",
            args.base.flag()
        ),
    ))
}
