//! `cargo xtask apply`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: ApplyArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
