//! `cargo xtask bench kernels`.

use comfy_table::{Table, presets};
use serde_json::json;

use crate::bench::{KernelOptions, KernelReport, kernels};
use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// Flags of `bench kernels`.
#[derive(Debug, clap::Args)]
pub struct KernelArgs {
    #[command(flatten)]
    base: BaseArg,
    /// How often each is measured
    #[arg(long, value_name = "N", default_value_t = 40)]
    rounds: usize,
    /// How many of a row top_k is to find
    #[arg(short, value_name = "N", default_value_t = 10)]
    k: usize,
    /// Lengths of a row
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [32_000, 151_936, 248_320])]
    vocabulary: Vec<usize>,
    /// Numbers of threads
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1, 2])]
    threads: Vec<usize>,
}

/// Measures.
pub fn run(ctx: &Ctx, args: KernelArgs) -> Result<Outcome> {
    let fits = |list: &[usize], least: usize, most: usize| {
        !list.is_empty() && list.iter().all(|number| (least..=most).contains(number))
    };
    if !(1..=10_000).contains(&args.rounds) {
        return Err(Error::usage("--rounds must be 1 to 10000"));
    }
    if !(1..=64).contains(&args.k) {
        return Err(Error::usage("-k must be 1 to 64: more is left to ggml"));
    }
    if !fits(&args.vocabulary, args.k, 1 << 24) {
        return Err(Error::usage("--vocabulary must be k to 16777216"));
    }
    if !fits(&args.threads, 1, 64) {
        return Err(Error::usage("--threads must be 1 to 64"));
    }
    let base = ctx.project.base(args.base.base.as_deref())?;
    let options = KernelOptions {
        rounds: args.rounds,
        k: args.k,
        vocabularies: args.vocabulary,
        threads: args.threads,
    };
    let report = kernels(ctx, &base.id, &options)?;
    Ok(Outcome::good(text(&report), json!(report)))
}

fn text(report: &KernelReport) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "op",
        "vocabulary",
        "threads",
        "values",
        "row in",
        "ggml",
        "kernel",
        "times as fast",
        "kernel reads",
        "of plain reading",
    ]);
    for row in &report.rows {
        let (speed, most) = row.speeds();
        let (faster, low, high) = row.faster;
        table.add_row([
            row.op.clone(),
            row.vocabulary.to_string(),
            row.threads.to_string(),
            row.order.clone(),
            row.place.clone(),
            format!("{:.1} µs", row.ggml / 1e3),
            format!("{:.1} µs", row.kernel / 1e3),
            format!("{faster:.1} ({low:.1} to {high:.1})"),
            format!("{speed:.1} GB/s"),
            format!("{:.0} % of {most:.1} GB/s", 100.0 * speed / most),
        ]);
    }
    format!(
        "{}, {}, {} processors\nmedians of one graph with one op; times as fast: of the rounds, 95 % interval\n{table}\n",
        report.base, report.active, report.processors
    )
}
