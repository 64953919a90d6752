//! `cargo xtask build`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `build`.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: BuildArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
