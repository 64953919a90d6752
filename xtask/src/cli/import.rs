//! `cargo xtask import`.

use std::fmt::Write as _;
use std::path::PathBuf;

use serde_json::json;

use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::exchange::{self, Imported, Request, Summary};
use crate::vendor;

/// Flags of `import`.
#[derive(Debug, clap::Args)]
pub struct ImportArgs {
    /// Mails, mailboxes, diffs, and folders of quilt, in order
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<PathBuf>,
    /// The id of the patch, where there is one [default: as it names itself, else from its title]
    #[arg(long, value_name = "ID")]
    id: Option<String>,
    /// Put them behind this patch [default: at the end]
    #[arg(long, value_name = "PATCH")]
    after: Option<String>,
    /// Compute and prove all, and write nothing
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    base: BaseArg,
}

/// Takes patches of others into the series.
pub fn run(ctx: &Ctx, args: ImportArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let pristine = vendor::ensure(ctx, &base)?;
    let request = Request {
        paths: args.paths,
        id: args.id,
        after: args.after,
        dry_run: args.dry_run,
    };
    let done = exchange::import(ctx, &pristine, &request)?;
    let mut text = String::new();
    for patch in &done.imported {
        describe(&mut text, patch);
    }
    for file in &done.files {
        // Writing to a string cannot fail, here and below.
        let _ = writeln!(text, "  wrote   {file}");
    }
    if !done.moved.is_empty() {
        let _ = writeln!(text, "moved along: {}", done.moved.join(", "));
    }
    let _ = write!(
        text,
        "series: {}\n{}",
        done.patches.join(", "),
        next(&done, &request, &args.base)
    );
    let data = json!({
        "base": base.id,
        "dry_run": request.dry_run,
        "imported": done.imported,
        "moved": done.moved,
        "files": done.files,
        "patches": done.patches,
    });
    Ok(Outcome::good(text, data))
}

fn describe(text: &mut String, patch: &Summary) {
    let _ = writeln!(text, "{}: {} ({})", patch.id, patch.title, patch.origin);
    for path in &patch.hooked {
        let _ = writeln!(text, "  hooks   {path}");
    }
    for path in &patch.new_files {
        let _ = writeln!(text, "  brings  {path}");
    }
    for offset in &patch.offsets {
        let _ = writeln!(
            text,
            "  offset  {}, hunk {}: line {} is now {}, below `{}`",
            offset.file, offset.hunk, offset.old_line, offset.new_line, offset.heading
        );
    }
    for place in &patch.unmarked {
        let _ = writeln!(
            text,
            "  no marker: {place}; write `opencoti-hook: {}` in a comment on its first line",
            patch.id
        );
    }
    if patch.wants_reason {
        let _ = writeln!(
            text,
            "  deletes or rewrites {} upstream lines: write the reason under [allow] in \
             patches/{}/patch.toml",
            patch.deletions, patch.id
        );
    }
    for remark in &patch.remarks {
        let _ = writeln!(text, "  look at: {remark}");
    }
}

fn next(done: &Imported, request: &Request, base: &BaseArg) -> String {
    if request.dry_run {
        let count = done.imported.len();
        return format!("dry run: nothing was written; {count} would be imported");
    }
    let flag = base.flag();
    format!("next: cargo xtask apply{flag}, cargo xtask lint{flag}, cargo xtask gate{flag}")
}
