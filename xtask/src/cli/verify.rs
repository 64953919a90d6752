//! `cargo xtask verify`.

use serde_json::json;

use crate::build::{self, Build};
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, Status};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::{Base, Flavour};
use crate::patchset::{self, Series, Verification};
use crate::vendor::{self, Cached};

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
    let mut result = check_base(ctx, &base)?;
    if result.findings.is_empty() {
        // Only a base that is right can be measured against.
        let pristine = vendor::ensure(ctx, &base)?;
        result.merge(patchset::verify(ctx, &pristine, &series)?);
    }

    check_builds(ctx, &base, &mut result)?;

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

/// Hashes every file of the cached base; brings the base there where it is not.
fn check_base(ctx: &Ctx, base: &Base) -> Result<Verification> {
    let mut result = Verification::default();
    if matches!(vendor::look(ctx, base)?, Cached::Absent) {
        vendor::ensure(ctx, base)?;
    }
    for difference in vendor::check(ctx, base)? {
        result.add(
            "base",
            format!("{} in the cache: {difference}", base.id),
            format!("cargo xtask vendor --base {} --force", base.id),
        );
    }
    result.checked.push(format!(
        "base: every file of {} against tree {}",
        base.id,
        base.tree.short()
    ));
    Ok(result)
}

/// Hashes the artifacts of the finished builds.
fn check_builds(ctx: &Ctx, base: &Base, result: &mut Verification) -> Result<()> {
    for flavour in [Flavour::Vanilla, Flavour::Patched] {
        let Some(found) = Build::find(ctx, &base.id, flavour, "cpu")? else {
            continue;
        };
        let name = ctx.project.show(&found.dir);
        for difference in build::check(&found)? {
            result.add(
                "build",
                format!("{name}/{difference}"),
                "cargo xtask build makes it again",
            );
        }
        result.checked.push(format!(
            "build: {} artifacts of {name}",
            found.manifest.artifacts.len()
        ));
    }
    Ok(())
}
