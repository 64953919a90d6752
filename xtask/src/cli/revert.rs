//! `cargo xtask revert`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `revert`.
#[derive(Debug, clap::Args)]
pub struct RevertArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: RevertArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
