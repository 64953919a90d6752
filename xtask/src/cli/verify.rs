//! `cargo xtask verify`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `verify`.
#[derive(Debug, clap::Args)]
pub struct VerifyArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: VerifyArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
