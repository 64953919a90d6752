//! `cargo xtask apply`.

use serde_json::json;

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::Digest;
use crate::patchset::{self, Moved, Series};

/// Flags of `apply`.
#[derive(Debug, clap::Args)]
pub struct ApplyArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Stop after this patch of the series
    #[arg(long, value_name = "PATCH")]
    until: Option<String>,
    /// Put edits in the working tree away, after a copy of them under vendor/.discarded
    #[arg(long)]
    discard_edits: bool,
}

/// Applies the series, all of it or up to one patch.
pub fn run(ctx: &Ctx, args: ApplyArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let load = || series::load_recorded(ctx, &args.base);
    let until = args.until.as_deref();
    let reached = patchset::reach(ctx, &base, until, args.discard_edits, load)?;
    Ok(told(&base.id, &reached.patchset, &reached.moved))
}

/// What `apply` and `revert` say.
pub fn outcome(series: &Series, moved: &Moved) -> Outcome {
    told(&series.base.id, &series.id, moved)
}

fn told(base: &str, patchset: &Digest, moved: &Moved) -> Outcome {
    let mut text = String::new();
    if moved.created {
        text.push_str(&format!("{} made from {}\n", moved.tree, base));
    }
    for path in &moved.written {
        text.push_str(&format!("  wrote   {path}\n"));
    }
    for path in &moved.removed {
        text.push_str(&format!("  removed {path}\n"));
    }
    if let Some(dir) = &moved.saved_to {
        text.push_str(&format!("edits were put away under {dir}\n"));
    }
    let changed = moved.written.len() + moved.removed.len();
    let applied = match moved.applied.as_slice() {
        [] => "no patch applied".to_owned(),
        ids => format!("applied {}", ids.join(", ")),
    };
    text.push_str(&format!("{}: {applied}", moved.tree));
    if changed == 0 && !moved.created {
        text.push_str(" (nothing to change)");
    }
    let data = json!({
        "base": base,
        "patchset": patchset,
        "moved": moved,
    });
    Outcome::good(text, data)
}
