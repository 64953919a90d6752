//! `cargo xtask vendor`.

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `vendor`.
#[derive(Debug, clap::Args)]
pub struct VendorArgs {}

/// Runs the command.
pub fn run(_ctx: &Ctx, _args: VendorArgs) -> Result<Outcome> {
    Err(Error::internal("not written yet"))
}
