//! `cargo xtask verify`.

use serde_json::json;

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, Status};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset::Series;
use crate::verify::verify;

/// Flags of `verify`.
#[derive(Debug, Default, clap::Args)]
pub struct VerifyArgs {
    #[command(flatten)]
    base: BaseArg,
}

/// Checks everything that was recorded, to the last byte.
pub fn run(ctx: &Ctx, args: VerifyArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let series = Series::load(&ctx.project, &base)?;
    let result = verify(ctx, &base, &series)?;
    let mut text = String::new();
    for line in &result.checked {
        text.push_str(&format!("checked {line}\n"));
    }
    for finding in &result.findings {
        text.push_str(&format!("{}: {}\n", finding.part, finding.what));
    }
    let mut hints: Vec<&str> = result.findings.iter().map(|f| f.hint.as_str()).collect();
    hints.sort_unstable();
    hints.dedup();
    for hint in hints {
        text.push_str(&format!("hint: {hint}\n"));
    }
    text.push_str(&match result.findings.len() {
        0 => "everything is as recorded\n".to_owned(),
        1 => "1 finding\n".to_owned(),
        n => format!("{n} findings\n"),
    });
    let status = if result.findings.is_empty() {
        Status::Good
    } else {
        Status::Finding
    };
    Ok(Outcome {
        text,
        data: json!({ "base": base.id, "patchset": series.id, "result": result }),
        status,
    })
}
