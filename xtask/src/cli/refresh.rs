//! `cargo xtask refresh`.

use serde_json::json;

use crate::authoring;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset;

/// Flags of `refresh`.
#[derive(Debug, clap::Args)]
pub struct RefreshArgs {
    /// Take the edits of the working tree into this patch, the last one applied; without it,
    /// only the generated files are written anew
    id: Option<String>,
    #[command(flatten)]
    base: BaseArg,
}

/// Takes edits into a patch, or writes registry/hooks.toml and docs/UPSTREAM_SYNC.md anew.
pub fn run(ctx: &Ctx, args: RefreshArgs) -> Result<Outcome> {
    let (pristine, series) = series::load(ctx, &args.base)?;
    let Some(id) = &args.id else {
        let changed = patchset::refresh(ctx, &pristine, &series)?;
        let names: Vec<String> = changed.iter().map(ToString::to_string).collect();
        let text = if names.is_empty() {
            "registry and docs are up to date".to_owned()
        } else {
            format!(
                "{} written; look at the difference before you commit it",
                names.join(" and ")
            )
        };
        let data = json!({
            "base": series.base.id, "patchset": series.id, "changed": changed,
        });
        return Ok(Outcome::good(text, data));
    };
    let done = authoring::refresh(ctx, &pristine, &series, id)?;
    let mut text = String::new();
    for path in &done.took {
        text.push_str(&format!("  took    {path}\n"));
    }
    text.push_str(&series::changed(&done.files, &done.removed));
    if !done.moved.is_empty() {
        text.push_str(&format!("moved along: {}\n", done.moved.join(", ")));
    }
    text.push_str(&match done.took.as_slice() {
        [] => format!("{id}: the working tree holds no edits"),
        _ => format!("{id}: re-applying it gives the working tree, byte for byte"),
    });
    for hook in &done.unmarked {
        text.push_str(&format!(
            "\nno marker: {hook}; write `opencoti-hook: {id}` in a comment on its first line, \
             and refresh again"
        ));
    }
    Ok(Outcome::good(
        text,
        json!({ "base": series.base.id, "refreshed": done }),
    ))
}
