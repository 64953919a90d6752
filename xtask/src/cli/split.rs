//! `cargo xtask split`.

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `split`.
#[derive(Debug, clap::Args)]
pub struct SplitArgs {
    /// The patch to split
    id: String,
    /// The id of the new patch
    new_id: String,
    /// Files whose hooks, or which as overlay, go into the new patch
    #[arg(required = true)]
    files: Vec<crate::tree::RelPath>,
    #[command(flatten)]
    base: BaseArg,
}

/// Moves some files of a patch into a new patch behind it.
pub fn run(ctx: &Ctx, args: SplitArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let saved = authoring::split(ctx, &pristine, &series, &args.id, &args.new_id, &args.files)?;
    Ok(series::outcome(
        &saved,
        &format!(
            "next: write title and purpose of the new patch; cargo xtask apply{}",
            args.base.flag()
        ),
    ))
}
