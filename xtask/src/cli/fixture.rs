//! `cargo xtask fixture`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `fixture`.
#[derive(Debug, clap::Args)]
pub struct FixtureArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: FixtureArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
