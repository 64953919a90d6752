//! `cargo xtask gate`.

use std::io::IsTerminal;
use std::path::PathBuf;

use serde_json::json;

use crate::cli::Outcome;
use crate::cli::args::{BaseArg, VariantArgs};
use crate::cli::outcome::Status;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::bisect::{self, Bisect, BisectOutcome, Bisected};
use crate::gate::table::{Signs, aligned, text};
use crate::gate::{Request, missing, run as run_gates};
use crate::model::{Metric, Variant, Verdict};

/// Flags of `gate`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 every gate passed · 1 a gate failed · 2 could not run · \
                        3 inconclusive: a control failed, which is never a pass"
)]
pub struct GateArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Run only these gates [default: those of gates/ that are a default and, unless servers are named, of the base]
    #[arg(long = "gate", value_name = "ID", num_args = 1..)]
    gates: Vec<String>,
    /// Run the quick subset of each definition
    #[arg(long)]
    quick: bool,
    /// Keep the servers' logs below target/gate/logs even if all is well
    #[arg(long)]
    keep_logs: bool,
    /// Record what the gates give in gates/goldens.toml, if all pass and nothing is uncommitted
    #[arg(long, conflicts_with_all = ["quick", "baseline", "VariantArgs"])]
    bless: bool,
    /// Run on this GGUF file instead of the definitions' models
    #[arg(long, value_name = "PATH")]
    model: Option<PathBuf>,
    /// Compare with this llama-server instead of building; needs --candidate
    #[arg(
        long,
        value_name = "SERVER",
        requires = "candidate",
        conflicts_with_all = ["base", "VariantArgs"]
    )]
    baseline: Option<PathBuf>,
    /// Judge this llama-server instead of building; needs --baseline
    #[arg(
        long,
        value_name = "SERVER",
        requires = "baseline",
        conflicts_with = "base"
    )]
    candidate: Option<PathBuf>,
    #[command(flatten)]
    variant: VariantArgs,
    /// Run servers that carry no stamp of where they come from
    #[arg(long)]
    unstamped: bool,
    /// Run nothing: say what changed from record or run A to B, and whether it became worse.
    /// Each is a path, a run of the store (its id, the beginning of it, `latest`), or RUN/GATE
    #[arg(
        long,
        num_args = 2,
        value_names = ["A", "B"],
        conflicts_with_all = ["base", "gates", "quick", "keep_logs", "model", "baseline", "candidate", "bless", "bisect", "upto", "VariantArgs"]
    )]
    compare: Option<Vec<String>>,
    /// Find the first patch of the series that breaks this gate
    #[arg(long, value_name = "ID", conflicts_with_all = ["gates", "candidate", "upto", "bless", "VariantArgs"])]
    bisect: Option<String>,
    /// With --bisect: judge by this metric alone, such as decode or rss
    #[arg(long, value_name = "NAME", requires = "bisect", value_parser = metric)]
    metric: Option<Metric>,
    /// With --bisect: find the file whose hooks break it, too
    #[arg(long, requires = "bisect")]
    hooks: bool,
    /// Only the patches of the series up to and with this one, or `base` for none
    #[arg(long, value_name = "PATCH", conflicts_with_all = ["candidate", "VariantArgs"])]
    upto: Option<String>,
    /// Run on these machines of registry/hosts.toml instead of here; `all` are all that ssh reaches
    #[arg(
        long = "host",
        value_name = "NAME",
        num_args = 1..,
        conflicts_with_all = ["model", "baseline", "candidate", "bless", "bisect", "upto", "compare", "VariantArgs"]
    )]
    host: Vec<String>,
    /// The file of hosts [default: registry/hosts.toml]
    #[arg(long, value_name = "FILE", requires = "host")]
    hosts: Option<PathBuf>,
    /// Run what another machine has brought here, and build nothing
    #[arg(long, hide = true, conflicts_with_all = ["host", "bless", "bisect", "upto", "compare", "VariantArgs"])]
    prebuilt: bool,
}

impl GateArgs {
    /// Parts of the series are applied and built where they do not touch the user's tree.
    pub fn stand_aside(&self, ctx: &mut Ctx) {
        if self.bisect.is_some() || self.upto.is_some() {
            let aside = ctx.project.target().join("bisect");
            ctx.project = ctx.project.aside(&aside);
        }
    }

    /// How the builds are made that it gates.
    pub fn variant(&self) -> Variant {
        self.variant.variant()
    }

    /// The command that does the same again.
    fn command(&self) -> String {
        let mut words = vec!["cargo xtask gate".to_owned()];
        let mut path = |flag: &str, path: &Option<PathBuf>| {
            if let Some(path) = path {
                words.push(format!("{flag} {}", quote(&path.to_string_lossy())));
            }
        };
        path("--baseline", &self.baseline);
        path("--candidate", &self.candidate);
        path("--model", &self.model);
        if let Some(base) = &self.base.base {
            words.push(format!("--base {}", quote(base)));
        }
        for gate in &self.gates {
            words.push(format!("--gate {}", quote(gate)));
        }
        if self.unstamped {
            words.push("--unstamped".to_owned());
        }
        let variant = self.variant().flags();
        if !variant.is_empty() {
            words.push(variant.trim_start().to_owned());
        }
        if self.bless {
            words.push("--bless".to_owned());
        }
        for host in &self.host {
            words.push(format!("--host {}", quote(host)));
        }
        if let Some(file) = &self.hosts {
            words.push(format!("--hosts {}", quote(&file.to_string_lossy())));
        }
        if let Some(upto) = &self.upto {
            words.push(format!("--upto {}", quote(upto)));
        }
        if self.quick {
            words.push("--quick".to_owned());
        }
        words.join(" ")
    }
}

/// A word for a POSIX shell.
fn quote(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=+:@%".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', "'\\''"))
    }
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: GateArgs) -> Result<Outcome> {
    if let Some([a, b]) = args.compare.as_deref() {
        return super::compare::run(ctx, a, b, signs());
    }
    let command = args.command();
    let variant = args.variant();
    variant.check()?;
    let patches = match &args.upto {
        Some(upto) => Some(bisect::upto(ctx, args.base.base.as_deref(), upto)?),
        None => None,
    };
    let request = Request {
        gates: args.bisect.iter().cloned().chain(args.gates).collect(),
        base: args.base.base,
        quick: args.quick,
        keep_logs: args.keep_logs,
        model: args.model,
        bless: args.bless,
        servers: args.baseline.zip(args.candidate),
        unstamped: args.unstamped,
        variant,
        patches,
        prebuilt: args.prebuilt,
    };
    if !args.host.is_empty() {
        return super::hosts::gate(ctx, &request, &args.host, args.hosts.as_deref(), &command);
    }
    if args.bisect.is_some() {
        let bisect = Bisect {
            request,
            metric: args.metric,
            hooks: args.hooks,
        };
        return found(&bisect::run(ctx, &bisect)?);
    }
    judge(ctx, &request, &command)
}

fn metric(text: &str) -> std::result::Result<Metric, String> {
    let name = serde_json::Value::String(text.to_owned());
    serde_json::from_value(name).map_err(|error| error.to_string())
}

fn found(bisected: &Bisected) -> Result<Outcome> {
    let mut text = format!(
        "bisecting gate {} over {} patches on {}\n\n",
        bisected.gate,
        bisected.patches.len(),
        bisected.base
    );
    let mut rows = vec![
        ["patches", "up to", "verdict", "seconds", ""]
            .map(str::to_owned)
            .to_vec(),
    ];
    for tested in &bisected.tested {
        let last = tested.patches.checked_sub(1);
        let last = last.and_then(|at| bisected.patches.get(at));
        rows.push(vec![
            match tested.files {
                None => tested.patches.to_string(),
                Some(files) => format!("{} + {files} hooked files", tested.patches),
            },
            last.map_or("base", String::as_str).to_owned(),
            tested.verdict.to_string(),
            format!("{:.0}", tested.seconds),
            short(tested.reason.as_deref().unwrap_or_default()),
        ]);
    }
    text.push_str(&aligned(&rows));
    text.push_str(&format!("\n{}\n", bisected.summary));
    if let Some(files) = &bisected.hooks {
        text.push_str(&format!("its hooks in: {}\n", files.join(", ")));
    }
    for command in &bisected.again {
        text.push_str(&format!("again: {command}\n"));
    }
    let data =
        serde_json::to_value(bisected).map_err(|error| Error::internal(error.to_string()))?;
    Ok(Outcome {
        text,
        data,
        status: match bisected.outcome {
            BisectOutcome::Found => Status::Finding,
            BisectOutcome::NothingWrong => Status::Good,
            BisectOutcome::Unclear => Status::Inconclusive,
        },
    })
}

/// What a column has room for; `--json` has the rest.
fn short(text: &str) -> String {
    const LENGTH: usize = 72;
    match text.chars().count() > LENGTH {
        true => text.chars().take(LENGTH).chain(['…']).collect(),
        false => text.to_owned(),
    }
}

/// Every gate on the series of `base`, as `cargo xtask gate --base` runs them.
pub fn of_base(ctx: &Ctx, base: &str) -> Result<Outcome> {
    let request = Request {
        base: Some(base.to_owned()),
        ..Request::default()
    };
    let command = format!("cargo xtask gate --base {}", quote(base));
    judge(ctx, &request, &command)
}

fn signs() -> Signs {
    if std::io::stdout().is_terminal() {
        Signs::Unicode
    } else {
        Signs::Ascii
    }
}

fn judge(ctx: &Ctx, request: &Request, command: &str) -> Result<Outcome> {
    let report = run_gates(ctx, request, command)?;
    let signs = signs();
    let show = |path: &std::path::Path| ctx.project.show(path);
    let mut lines: Vec<String> = (report.records.iter())
        .map(|record| text(record, signs))
        .collect();
    for alike in missing::alike(&report.skipped) {
        lines.push(format!("{} {alike}", signs.verdict(Verdict::Skipped)));
    }
    let asked = report.records.iter().map(|record| record.verdict);
    let asked = asked.filter(|verdict| *verdict == Verdict::Skipped).count();
    let skipped = report.skipped.len() + asked;
    if skipped > 0 {
        let all = report.skipped.len() + report.records.len();
        lines.push(format!(
            "{skipped} of {all} gates skipped{}",
            match all - skipped {
                0 => ": nothing was compared",
                _ => "",
            }
        ));
    }
    for error in &report.errors {
        // The record has the rest.
        let said = error.to_string();
        let first = said.lines().next().unwrap_or_default();
        lines.push(format!("could not run to its end: {first}"));
    }
    lines.push(format!("report: {}", show(&report.report)));
    let page = crate::report::write_page(ctx, &report.run).map(|page| show(&page));
    match &page {
        Ok(page) => lines.push(format!("page:   {page}")),
        // The verdict stays what it is.
        Err(error) => ctx.sink.warn(&format!("there is no page: {error}")),
    }
    let errors = report.errors.iter();
    let errors: Vec<_> = errors
        .map(|error| json!({ "kind": error.kind(), "message": error.to_string(), "hints": error.hints() }))
        .collect();
    let files: Vec<String> = report.files.iter().map(|file| show(file)).collect();
    let records = serde_json::to_value(&report.records)
        .map_err(|error| Error::internal(error.to_string()))?;
    Ok(Outcome {
        text: lines.join("\n"),
        data: json!({
            "verdict": report.verdict,
            "report": show(&report.report),
            "page": page.ok(),
            "run": report.run,
            "records": files,
            "gates": records,
            "blessed": report.blessed,
            "skipped": report.skipped,
            "left_out": report.left_out,
            "errors": errors,
        }),
        status: match report.verdict {
            Verdict::Fail => Status::Finding,
            _ if !report.errors.is_empty() || report.lacking => Status::Unable,
            Verdict::Pass => Status::Good,
            Verdict::Inconclusive | Verdict::Skipped => Status::Inconclusive,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::quote;

    #[test]
    fn words_survive_a_shell() {
        assert_eq!(quote("/a/b-c_1.gguf"), "/a/b-c_1.gguf");
        assert_eq!(quote("a b"), "'a b'");
        assert_eq!(quote("it's"), r"'it'\''s'");
        assert_eq!(quote(""), "''");
    }
}
