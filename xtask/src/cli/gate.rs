//! `cargo xtask gate`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `gate`.
#[derive(Debug, clap::Args)]
pub struct GateArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: GateArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
