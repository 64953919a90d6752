//! `cargo xtask refresh`.

use serde_json::json;

use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset::{self, Series};
use crate::vendor;

/// Flags of `refresh`.
#[derive(Debug, clap::Args)]
pub struct RefreshArgs {
    #[command(flatten)]
    base: BaseArg,
}

/// Writes registry/hooks.toml and docs/UPSTREAM_SYNC.md anew, once the series is seen to apply.
pub fn run(ctx: &Ctx, args: RefreshArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let series = Series::load(&ctx.project, &base)?;
    let pristine = vendor::ensure(ctx, &base)?;
    let changed = patchset::refresh(ctx, &pristine, &series)?;
    let text = if changed.is_empty() {
        "registry and docs are up to date".to_owned()
    } else {
        format!(
            "{} written; look at the difference before you commit it",
            changed
                .iter()
                .map(ToString::to_string)
                .collect::<Vec<_>>()
                .join(" and ")
        )
    };
    Ok(Outcome::good(
        text,
        json!({ "base": base.id, "patchset": series.id, "changed": changed }),
    ))
}
