//! `cargo xtask report`.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::write_atomic;
use crate::report::{self, Gate, Report, State, cases, speeds};

/// Flags of `report`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code says whether the report was made, not what it says: \
                        `gate` judges"
)]
pub struct ReportArgs {
    /// The run to show: its id, the beginning of it, or `latest`; may be repeated [default: latest]
    #[arg(long = "run", value_name = "RUN")]
    runs: Vec<String>,
    /// What to make
    #[arg(long, value_name = "FORMAT", default_value = "html")]
    format: Format,
    /// Where to write it [default: target/gate/report.html for html, stdout for the others]
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Newest runs to look back on
    #[arg(long, value_name = "N", default_value_t = report::LAST)]
    last: usize,
}

/// Forms of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// One page, without any other file
    Html,
    /// For a comment on a pull request
    Markdown,
    /// JUnit XML, for CI systems
    Junit,
}

/// Makes a report of what is in the store.
pub fn run(ctx: &Ctx, args: ReportArgs) -> Result<Outcome> {
    let report = report::report(ctx, &args.runs, args.last)?;
    for (file, reason) in &report.skipped {
        ctx.sink.warn(&format!("not read: {file}: {reason}"));
    }
    let text = match args.format {
        Format::Html => report::html(&report),
        Format::Markdown => report::markdown(&report),
        Format::Junit => report::junit(&report)?,
    };
    let output = match (args.output, args.format) {
        (Some(path), _) => Some(std::path::absolute(path)?),
        (None, Format::Html) => Some(report::folder(ctx).join("report.html")),
        (None, _) => None,
    };
    let mut data = summary(ctx, &report);
    let Some(path) = output else {
        data["text"] = Value::String(text.clone());
        return Ok(Outcome::good(text, data));
    };
    write_atomic(&path, text.as_bytes())?;
    let shown = ctx.project.show(&path);
    data["file"] = Value::String(shown.clone());
    let lines = [
        format!("gates: {}", report.verdict),
        format!("report: {shown}"),
    ];
    Ok(Outcome::good(lines.join("\n"), data))
}

/// What a program reads: verdicts and figures, and where the records lie that hold all else.
fn summary(ctx: &Ctx, report: &Report) -> Value {
    let gate = |gate: &Gate| {
        let mut value = json!({
            "gate": gate.id,
            "run": gate.run,
            "verdict": gate.verdict(),
            "cases": gate.cases(),
        });
        for (verdict, count) in cases::counts(gate.cases()) {
            value["counts"][verdict.to_string()] = json!(count);
        }
        match &gate.state {
            State::Recorded { file, .. } => value["file"] = json!(ctx.project.show(file)),
            State::Missing { why } => value["missing"] = json!(why),
        }
        value
    };
    let skipped = report.skipped.iter();
    json!({
        "verdict": report.verdict,
        "runs": report.runs.iter().map(|run| &run.id).collect::<Vec<_>>(),
        "judged": report.subjects(),
        "gates": report.gates.iter().map(gate).collect::<Vec<_>>(),
        "speeds": report.records().filter_map(speeds::table).collect::<Vec<_>>(),
        "history": report.history,
        "skipped": skipped.map(|(file, reason)| json!({"file": file, "reason": reason})).collect::<Vec<_>>(),
    })
}
