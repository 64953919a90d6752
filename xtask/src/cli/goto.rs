//! `cargo xtask push`, `pop` and `goto`: the working tree along its series.

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, apply, series};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset;

/// Flags of `push` and `pop`.
#[derive(Debug, clap::Args)]
pub struct StepArgs {
    /// How many patches
    #[arg(default_value_t = 1)]
    count: usize,
    #[command(flatten)]
    base: BaseArg,
}

/// Flags of `goto`.
#[derive(Debug, clap::Args)]
pub struct GotoArgs {
    /// A patch, which is then the last one applied; `base` for none, `top` for all
    place: String,
    #[command(flatten)]
    base: BaseArg,
}

/// Applies the next patches.
pub fn push(ctx: &Ctx, args: StepArgs) -> Result<Outcome> {
    step(ctx, &args, |here, last| {
        if here == last {
            return Err(Error::usage("the whole series is applied"));
        }
        Ok(here.saturating_add(args.count).min(last))
    })
}

/// Takes the last applied patches off.
pub fn pop(ctx: &Ctx, args: StepArgs) -> Result<Outcome> {
    step(ctx, &args, |here, _| {
        if here == 0 {
            return Err(Error::usage("no patch is applied"));
        }
        Ok(here.saturating_sub(args.count))
    })
}

fn step(
    ctx: &Ctx,
    args: &StepArgs,
    to: impl FnOnce(usize, usize) -> Result<usize>,
) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let here = patchset::position(ctx, &pristine, &series)?;
    let count = to(here, series.patches.len())?;
    let moved = patchset::apply(ctx, &pristine, &series, count, false)?;
    Ok(apply::outcome(&series, &moved))
}

/// Moves to a named place.
pub fn goto(ctx: &Ctx, args: GotoArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let count = match args.place.as_str() {
        "base" => 0,
        "top" => series.patches.len(),
        id => series.position(id)?,
    };
    let moved = patchset::apply(ctx, &pristine, &series, count, false)?;
    Ok(apply::outcome(&series, &moved))
}
