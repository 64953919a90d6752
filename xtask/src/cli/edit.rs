//! `cargo xtask edit`.

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, apply, series};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset;

/// Flags of `edit`.
#[derive(Debug, clap::Args)]
pub struct EditArgs {
    /// The patch to edit
    id: String,
    #[command(flatten)]
    base: BaseArg,
}

/// Puts the working tree at a patch: edits to it then are edits to that patch.
pub fn run(ctx: &Ctx, args: EditArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let count = series.position(&args.id)?;
    let moved = patchset::apply(ctx, &pristine, &series, count, false)?;
    let mut outcome = apply::outcome(&series, &moved);
    outcome.text.push_str(&format!(
        "\nnext: edit {}, then cargo xtask refresh {}{}",
        moved.tree,
        args.id,
        args.base.flag()
    ));
    Ok(outcome)
}
