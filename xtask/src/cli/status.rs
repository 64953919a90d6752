//! `cargo xtask status`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: StatusArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
