//! `cargo xtask retire`.

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `retire`.
#[derive(Debug, clap::Args)]
pub struct RetireArgs {
    /// The patch
    id: String,
    /// Why it is no longer needed; written to registry/retired.toml
    #[arg(long, value_name = "TEXT")]
    reason: String,
    #[command(flatten)]
    base: BaseArg,
}

/// Takes a patch out of the series of a base.
pub fn run(ctx: &Ctx, args: RetireArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let saved = authoring::retire(ctx, &pristine, &series, &args.id, &args.reason)?;
    let next = format!(
        "{} is retired; its folder stays. cargo xtask apply{} takes it off the working tree",
        args.id,
        args.base.flag()
    );
    Ok(series::outcome(&saved, &next))
}
