//! `cargo xtask revert`.

use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset::{self, Series};
use crate::vendor;

/// Flags of `revert`.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Put edits in the working tree away, after a copy of them under vendor/.discarded
    #[arg(long)]
    discard_edits: bool,
}

/// Makes the working tree the base again.
pub fn run(ctx: &Ctx, args: RevertArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let series = Series::load(&ctx.project, &base)?;
    let tree = ctx.project.working_tree(&base.id);
    if !tree.exists() {
        return Err(Error::usage(format!(
            "there is no working tree {}",
            ctx.project.show(&tree)
        ))
        .hint("cargo xtask apply makes one"));
    }
    let pristine = vendor::ensure(ctx, &base)?;
    let moved = patchset::revert(ctx, &pristine, &series, args.discard_edits)?;
    Ok(super::apply::outcome(&series, &moved))
}
