//! `cargo xtask doctor`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: DoctorArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
