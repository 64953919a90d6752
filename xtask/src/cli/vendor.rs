//! `cargo xtask vendor`.

use std::time::Instant;

use serde_json::json;

use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::vendor::{self, Cached};

/// Flags of `vendor`.
#[derive(Debug, clap::Args)]
pub struct VendorArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Unpack it anew, even if it is in the cache
    #[arg(long)]
    force: bool,
    /// List all bases and what the cache holds of them
    #[arg(long, conflicts_with_all = ["base", "force", "print_digest"])]
    list: bool,
    /// Print what the first source that answers holds, pinned or not, and keep nothing of it
    /// but its archive
    #[arg(long, conflicts_with = "force")]
    print_digest: bool,
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: VendorArgs) -> Result<Outcome> {
    if args.list {
        return list(ctx);
    }
    let base = ctx.project.base(args.base.base.as_deref())?;
    let begun = Instant::now();
    if args.print_digest {
        let survey = vendor::survey(ctx, &base)?;
        let pinned = if survey.pinned {
            "as pinned in registry/upstreams.toml"
        } else {
            "not what registry/upstreams.toml pins"
        };
        return Ok(Outcome::good(
            format!(
                "base    {}\nsource  {}\nfiles   {}\ntree    {} ({pinned})",
                base.id, survey.source, survey.files, survey.tree
            ),
            json!({
                "base": base.id,
                "source": survey.source,
                "files": survey.files,
                "tree": survey.tree,
                "pinned": survey.pinned,
                "failed": survey.failed,
            }),
        ));
    }
    let done = vendor::obtain(ctx, &base, args.force)?;
    let seconds = begun.elapsed().as_secs_f64();
    let how = if done.fresh {
        format!("unpacked in {seconds:.1} s")
    } else {
        "in the cache".to_owned()
    };
    Ok(Outcome::good(
        format!(
            "base    {}\nsource  {} ({how})\nfiles   {}\ntree    {}\npath    {}",
            base.id,
            done.origin,
            done.pristine.manifest.len(),
            base.tree,
            done.pristine.root.display()
        ),
        json!({
            "base": base.id,
            "commit": base.commit,
            "build_number": base.build_number,
            "source": done.origin,
            "fresh": done.fresh,
            "failed": done.failed,
            "files": done.pristine.manifest.len(),
            "tree": base.tree,
            "path": done.pristine.root,
            "seconds": seconds,
        }),
    ))
}

fn list(ctx: &Ctx) -> Result<Outcome> {
    let upstreams = ctx.project.upstreams()?;
    let mut table = comfy_table::Table::new();
    table.load_style(comfy_table::presets::NOTHING);
    table.set_header(["base", "state", "files", "tree", "path"]);
    let mut data = Vec::new();
    for base in &upstreams.base {
        let path = vendor::place(ctx, base).join("tree");
        let (state, files, why) = match vendor::look(ctx, base)? {
            Cached::Absent => ("absent", None, Vec::new()),
            Cached::Incomplete(why) => ("incomplete", None, vec![why]),
            Cached::Changed(faults) => ("changed", None, faults),
            Cached::Present(pristine, _) => ("present", Some(pristine.manifest.len()), Vec::new()),
        };
        let is_default = base.id == upstreams.default;
        table.add_row([
            match (is_default, base.partial) {
                (true, _) => format!("{} (default)", base.id),
                (_, true) => format!("{} (partial)", base.id),
                _ => base.id.clone(),
            },
            state.to_owned(),
            files.map_or_else(|| "-".to_owned(), |files| files.to_string()),
            base.tree.short(),
            path.display().to_string(),
        ]);
        data.push(json!({
            "base": base.id,
            "default": is_default,
            "partial": base.partial,
            "commit": base.commit,
            "state": state,
            "why": why,
            "files": files,
            "tree": base.tree,
            "path": path,
        }));
    }
    let text = table
        .lines()
        .map(|line| line.trim_end().to_owned())
        .collect::<Vec<_>>()
        .join("\n");
    Ok(Outcome::good(text, json!({ "bases": data })))
}
