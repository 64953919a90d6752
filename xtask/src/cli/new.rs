//! `cargo xtask new`.

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `new`.
#[derive(Debug, clap::Args)]
pub struct NewArgs {
    /// The new patch's id
    id: String,
    /// One line that says what it is
    #[arg(long, default_value = authoring::TITLE)]
    title: String,
    /// Put it behind this patch [default: at the end]
    #[arg(long, value_name = "PATCH")]
    after: Option<String>,
    #[command(flatten)]
    base: BaseArg,
}

/// Begins a patch.
pub fn run(ctx: &Ctx, args: NewArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let after = args.after.as_deref();
    let saved = authoring::new(ctx, &pristine, &series, &args.id, &args.title, after)?;
    let next = format!(
        "next: cargo xtask edit {id}{flag}, edit vendor/{base}, cargo xtask refresh {id}{flag}",
        id = args.id,
        base = series.base.id,
        flag = args.base.flag(),
    );
    Ok(series::outcome(&saved, &next))
}
