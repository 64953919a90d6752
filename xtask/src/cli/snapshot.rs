//! `cargo xtask snapshot` and `restore`: whole-tree backups of the working tree.

use serde_json::json;

use crate::authoring::{self, Snapshot};
use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::Result;

/// Flags of `snapshot`.
#[derive(Debug, clap::Args)]
pub struct SnapshotArgs {
    /// Name of the new snapshot; without it, all are listed
    name: Option<String>,
    #[command(flatten)]
    base: BaseArg,
}

/// Flags of `restore`.
#[derive(Debug, clap::Args)]
pub struct RestoreArgs {
    /// The snapshot
    name: String,
    #[command(flatten)]
    base: BaseArg,
}

fn line(snapshot: &Snapshot) -> String {
    format!(
        "{:24}  {}  {} files  {}\n",
        snapshot.name,
        snapshot.time,
        snapshot.files,
        snapshot.tree.short()
    )
}

/// Copies the working tree, edits and all.
pub fn snapshot(ctx: &Ctx, args: SnapshotArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    match &args.name {
        Some(name) => {
            let made = authoring::snapshot(ctx, &base.id, name)?;
            Ok(Outcome::good(line(&made), json!({ "snapshot": made })))
        }
        None => {
            let list = authoring::snapshots(ctx, &base.id)?;
            let text = match list.as_slice() {
                [] => "no snapshots".to_owned(),
                list => list.iter().map(line).collect(),
            };
            Ok(Outcome::good(text, json!({ "snapshots": list })))
        }
    }
}

/// Makes the working tree what a snapshot is; what it was is kept as another snapshot.
pub fn restore(ctx: &Ctx, args: RestoreArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let (restored, kept) = authoring::restore(ctx, &base.id, &args.name)?;
    let mut text = format!("restored {}", line(&restored));
    if let Some(kept) = &kept {
        text.push_str(&format!("the tree as it was: {}", line(kept)));
    }
    Ok(Outcome::good(
        text,
        json!({ "restored": restored, "kept": kept }),
    ))
}
