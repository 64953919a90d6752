//! `cargo xtask lint`.

use serde_json::json;

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, Status};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::lint::{self, Finding, RULES};
use crate::patchset::Series;
use crate::vendor;

/// Flags of `lint`.
#[derive(Debug, Default, clap::Args)]
pub struct LintArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Run only this rule; may be repeated
    #[arg(long, value_name = "NAME")]
    rule: Vec<String>,
    /// Say what each rule asks, and check nothing
    #[arg(long, conflicts_with = "rule")]
    list: bool,
}

/// Runs the rules. Any finding is exit code 1.
pub fn run(ctx: &Ctx, args: LintArgs) -> Result<Outcome> {
    if args.list {
        let rules: Vec<_> = RULES
            .iter()
            .map(|rule| json!({ "name": rule.name, "about": rule.about }))
            .collect();
        let lines: Vec<String> = RULES
            .iter()
            .map(|rule| format!("{:12}  {}", rule.name, rule.about))
            .collect();
        return Ok(Outcome::good(lines.join("\n"), json!({ "rules": rules })));
    }
    let base = ctx.project.base(args.base.base.as_deref())?;
    let series = Series::load(&ctx.project, &base)?;
    let pristine = vendor::ensure(ctx, &base)?;
    let findings = lint::run(ctx, &pristine, &series, &args.rule)?;
    if std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true") {
        for finding in &findings {
            ctx.sink.note(&annotation(finding));
        }
    }
    let mut text = String::new();
    for Finding {
        file,
        line,
        rule,
        message,
        hint,
    } in &findings
    {
        text.push_str(&format!(
            "{file}:{line}: {rule}: {message}\n  hint: {hint}\n"
        ));
    }
    text.push_str(&match findings.len() {
        0 if series.patches.is_empty() => format!("{} has no series: nothing to lint\n", base.id),
        0 => format!("{} of {}: in order\n", series.ids().join(", "), base.id),
        1 => "1 finding\n".to_owned(),
        n => format!("{n} findings\n"),
    });
    Ok(Outcome {
        text,
        status: if findings.is_empty() {
            Status::Good
        } else {
            Status::Finding
        },
        data: json!({ "base": base.id, "findings": findings }),
    })
}

/// The line that GitHub's runner turns into an annotation; `%` and line ends are escaped as its
/// toolkit does.
fn annotation(finding: &Finding) -> String {
    let escape = |text: &str| {
        text.replace('%', "%25")
            .replace('\r', "%0D")
            .replace('\n', "%0A")
    };
    let property = |text: &str| escape(text).replace(':', "%3A").replace(',', "%2C");
    format!(
        "::error file={},line={},title={}::{}",
        property(&finding.file),
        finding.line,
        property(finding.rule),
        escape(&finding.message)
    )
}
