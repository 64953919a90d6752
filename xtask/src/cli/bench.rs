//! `cargo xtask bench`.

use comfy_table::{Table, presets};
use serde_json::json;

use crate::bench::{self, Long, Options, Peer, Report, Sized, Times};
use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::cli::bench_kernels::KernelArgs;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::project::suggest;
use crate::vendor;

/// Flags of `bench`.
#[derive(Debug, clap::Args)]
pub struct BenchArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Measure apply and status beside git, quilt and GNU patch
    Patch(PatchArgs),
    /// Measure the kernels of ggml-ext beside ggml's own ops, in the patched build
    Kernels(KernelArgs),
}

#[derive(Debug, clap::Args)]
struct PatchArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Numbers of patches in the generated series
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [10, 100, 1000])]
    series: Vec<usize>,
    /// How often each is measured [default: 5; quilt once where the series is long]
    #[arg(long, value_name = "N")]
    rounds: Option<usize>,
    /// Whom to measure beside us [default: all that are here; `none` for nobody]
    #[arg(long, value_name = "NAME,…", value_delimiter = ',')]
    peers: Option<Vec<String>>,
    /// Hunks of the long files, which have 20 lines for each
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_values_t = [1000, 4000])]
    hunks: Vec<usize>,
    /// Seconds without any work before each thing that is timed: 62 spare what is made the search
    /// for inodes that were not deleted within the last minute
    #[arg(long, value_name = "SECONDS", default_value_t = 0)]
    rest: u64,
}

/// Measures.
pub fn run(ctx: &Ctx, args: BenchArgs) -> Result<Outcome> {
    match args.what {
        What::Patch(args) => patch(ctx, args),
        What::Kernels(args) => super::bench_kernels::run(ctx, args),
    }
}

fn patch(ctx: &Ctx, args: PatchArgs) -> Result<Outcome> {
    if let Some(wrong) = args
        .series
        .iter()
        .find(|count| !(1..=9999).contains(*count))
    {
        return Err(Error::usage(format!(
            "a series of {wrong} patches: it must be 1 to 9999"
        )));
    }
    if args.rounds == Some(0) {
        return Err(Error::usage("at least one round is needed"));
    }
    let peers = match &args.peers {
        None => Peer::ALL
            .into_iter()
            .filter(|peer| peer.is_here())
            .collect(),
        Some(names) => named(names)?,
    };
    let base = ctx.project.base(args.base.base.as_deref())?;
    let pristine = vendor::ensure(ctx, &base)?;
    let options = Options {
        program: std::env::current_exe()?,
        series: args.series,
        rounds: args.rounds,
        peers,
        hunks: args.hunks,
        rest: std::time::Duration::from_secs(args.rest),
    };
    let report = bench::patch(ctx, &pristine, &options)?;
    Ok(Outcome::good(text(&report), json!(report)))
}

fn named(names: &[String]) -> Result<Vec<Peer>> {
    let names = names.iter().filter(|name| *name != "none");
    names
        .map(|name| {
            let Some(peer) = Peer::ALL.into_iter().find(|peer| peer.name() == name) else {
                return Err(Error::usage(format!("unknown peer `{name}`")).hint(suggest(
                    name,
                    Peer::ALL.iter().map(|peer| peer.name()),
                    "peers",
                )));
            };
            if !peer.is_here() {
                return Err(Error::environment(format!(
                    "{name} needs `{}`, which is not on this machine",
                    peer.program()
                ))
                .hint("install it, or leave that one out of --peers"));
            }
            Ok(peer)
        })
        .collect()
}

fn text(report: &Report) -> String {
    let load = |load: Option<f64>| load.map_or("?".to_owned(), |load| format!("{load:.1}"));
    let mut text = format!(
        "{}, {} processors, load {} before and {} after, {} build\n\
         medians; a ratio above 1 is how many times longer than our apply;\n\
         processor: time on all processors, which the load of the machine changes less\n\
         the disk rested for {} s before each\n",
        report.base,
        report.processors,
        load(report.load.0),
        load(report.load.1),
        report.profile,
        report.rest,
    );
    for sized in &report.series {
        text.push_str(&format!("\n{}", sized_text(sized)));
    }
    text.push_str(&format!("\n{}", long_text(&report.long)));
    text
}

fn milliseconds(times: &Times) -> String {
    format!("{:.1} ms", times.median() * 1e3)
}

fn table(head: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(head.iter().copied());
    table
}

fn sized_text(sized: &Sized) -> String {
    let ours = sized.rows.first().map_or(0.0, |row| row.times.median());
    let mut table = table(&[
        "what",
        "median",
        "shortest",
        "longest",
        "runs",
        "ratio",
        "processor",
    ]);
    for row in &sized.rows {
        let (shortest, longest) = row.times.range();
        table.add_row([
            row.what.to_owned(),
            milliseconds(&row.times),
            format!("{:.1}", shortest * 1e3),
            format!("{:.1}", longest * 1e3),
            row.times.len().to_string(),
            format!("{:.2}", row.times.median() / ours),
            milliseconds(&row.cpu),
        ]);
    }
    format!(
        "{} patches, {} upstream files hooked; {} files and {:.1} MiB written; peak memory {}\n{table}\n",
        sized.patches,
        sized.hooked,
        sized.files,
        sized.bytes as f64 / f64::from(1 << 20),
        sized.peak_kib.map_or("unknown".to_owned(), |kib| format!(
            "{} MiB",
            kib.div_ceil(1024)
        )),
    )
}

fn long_text(list: &[Long]) -> String {
    let mut table = table(&[
        "long file",
        "ours, in this process",
        "ours per hunk",
        "git apply",
    ]);
    for long in list {
        table.add_row([
            format!("{} lines, {} hunks", long.lines, long.hunks),
            milliseconds(&long.ours),
            format!("{:.2} µs", long.ours.median() * 1e6 / long.hunks as f64),
            if long.git.is_empty() {
                "-".to_owned()
            } else {
                milliseconds(&long.git)
            },
        ]);
    }
    format!("{table}\n")
}
