//! `cargo xtask rename`.

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `rename`.
#[derive(Debug, clap::Args)]
pub struct RenameArgs {
    /// The patch
    id: String,
    /// Its new id
    new_id: String,
    #[command(flatten)]
    base: BaseArg,
}

/// Gives a patch another id.
pub fn run(ctx: &Ctx, args: RenameArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let saved = authoring::rename(ctx, &pristine, &series, &args.id, &args.new_id)?;
    Ok(series::outcome(
        &saved,
        &format!(
            "cargo xtask apply{} brings the working tree along",
            args.base.flag()
        ),
    ))
}
