//! The only part that knows of clap and terminals. One command, one file; each is thin over an
//! engine module and returns an [`Outcome`], which this file prints.

mod apply;
mod args;
mod bench;
mod bench_kernels;
mod build;
mod build_cuda;
mod compare;
mod doctor;
mod edit;
mod export;
mod fixture;
mod fold;
mod gate;
mod goto;
mod hosts;
mod import;
mod inspect;
mod lint;
mod new;
mod outcome;
mod package;
mod problem;
mod rank;
mod refresh;
mod rename;
mod reorder;
mod report;
mod retire;
mod revert;
mod series;
mod snapshot;
mod split;
mod status;
mod sync;
mod terminal;
mod test;
mod vendor;
mod verify;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::Parser;

use crate::ctx::{Cancel, Ctx};
use crate::error::{Error, Result};
use crate::project::Project;
use args::{Cli, Command, Global};
pub use outcome::{Outcome, Status};
pub use test::{BASES_VAR, REAL_VAR, SERVER_VAR};

/// Parses the command line, runs the command, prints its outcome.
pub fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // Help and version are no errors: clap prints them to stdout with code 0.
            let _ = error.print();
            if !error.use_stderr() {
                return ExitCode::SUCCESS;
            }
            // Nothing is parsed, so the flag is looked for where it would stand.
            if std::env::args_os().skip(1).any(|word| word == "--json") {
                let _ = print(&outcome::error_json("", &usage(&error)));
            }
            return ExitCode::from(2);
        }
    };
    cli.global.color.write_global();
    let name = cli.command.name();
    let json = cli.global.json;
    let result = run(cli);
    let (text, code) = match &result {
        Ok(outcome) if json => (outcome.json(name), outcome.status.exit_code()),
        Ok(outcome) => (outcome.text.clone(), outcome.status.exit_code()),
        Err(error) => {
            terminal::print_error(error);
            let text = if json {
                outcome::error_json(name, error)
            } else {
                String::new()
            };
            (text, error.kind().exit_code())
        }
    };
    match print(&text) {
        Ok(()) => ExitCode::from(code),
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => ExitCode::from(code),
        Err(error) => {
            terminal::print_error(&Error::from(error).context("writing to stdout"));
            ExitCode::from(2)
        }
    }
}

/// What clap says, in one line.
fn usage(error: &clap::Error) -> Error {
    let text = error.render().to_string();
    let first = text.lines().find(|line| !line.trim().is_empty());
    let message = match error.kind() {
        clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => "no command was given",
        _ => first.unwrap_or_default().trim_start_matches("error: "),
    };
    Error::usage(message).hint("cargo xtask --help")
}

fn print(text: &str) -> std::io::Result<()> {
    if text.is_empty() {
        return Ok(());
    }
    let mut stdout = anstream::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    stdout.flush()
}

fn run(cli: Cli) -> Result<Outcome> {
    let mut ctx = context(&cli.global)?;
    // What a killed command had decided is finished before anything else is read.
    crate::journal::settle(&ctx)?;
    if let Command::Gate(args) = &cli.command {
        args.stand_aside(&mut ctx);
    }
    match cli.command {
        Command::Doctor(args) => doctor::run(&ctx, args),
        Command::Vendor(args) => vendor::run(&ctx, args),
        Command::Apply(args) => apply::run(&ctx, args),
        Command::Revert(args) => revert::run(&ctx, args),
        Command::Status(args) => status::run(&ctx, args),
        Command::New(args) => new::run(&ctx, args),
        Command::Edit(args) => edit::run(&ctx, args),
        Command::Push(args) => goto::push(&ctx, args),
        Command::Pop(args) => goto::pop(&ctx, args),
        Command::Goto(args) => goto::goto(&ctx, args),
        Command::Reorder(args) => reorder::run(&ctx, args),
        Command::Split(args) => split::run(&ctx, args),
        Command::Fold(args) => fold::run(&ctx, args),
        Command::Rename(args) => rename::run(&ctx, args),
        Command::Retire(args) => retire::run(&ctx, args),
        Command::Snapshot(args) => snapshot::snapshot(&ctx, args),
        Command::Restore(args) => snapshot::restore(&ctx, args),
        Command::Refresh(args) => refresh::run(&ctx, args),
        Command::Sync(args) => sync::run(&ctx, args),
        Command::Export(args) => export::run(&ctx, args, cli.global.json),
        Command::Import(args) => import::run(&ctx, args),
        Command::Verify(args) => verify::run(&ctx, args),
        Command::Build(args) => build::run(&ctx, args),
        Command::Inspect(args) => inspect::run(&ctx, args),
        Command::Package(args) => package::run(&ctx, args),
        Command::Bench(args) => bench::run(&ctx, args),
        Command::Fixture(args) => fixture::run(&ctx, args),
        Command::Lint(args) => lint::run(&ctx, args),
        Command::Gate(args) => gate::run(&ctx, args),
        Command::Hosts(args) => hosts::run(&ctx, args),
        Command::Rank(args) => rank::run(&ctx, args),
        Command::Report(args) => report::run(&ctx, args),
        Command::Test(args) => test::run(&ctx, args, cli.global.json),
    }
}

fn context(global: &Global) -> Result<Ctx> {
    let root = match &global.root {
        Some(root) => root.clone(),
        None => checkout()?,
    };
    let cancel = Cancel::default();
    terminal::cancel_on_signals(&cancel)?;
    Ok(Ctx {
        project: Project::new(&root, &Project::default_cache()?)?,
        sink: Box::new(terminal::Terminal::new(
            global.verbose,
            std::io::stderr().is_terminal(),
        )),
        offline: global.offline,
        no_provision: global.no_provision,
        jobs: global
            .jobs
            .or_else(|| std::thread::available_parallelism().ok().map(Into::into))
            .unwrap_or(1),
        cancel,
    })
}

/// The checkout that the current folder lies in, else the one whose xtask cargo was told to run.
/// Never the one that this program happens to be built from: a checkout that lost its registry
/// must not be answered for by another one.
fn checkout() -> Result<std::path::PathBuf> {
    let here = std::env::current_dir()?;
    let inside = here
        .ancestors()
        .find(|dir| dir.join("registry/upstreams.toml").is_file());
    Ok(match inside {
        Some(dir) => dir.to_path_buf(),
        None => std::env::var_os("CARGO_MANIFEST_DIR")
            .as_deref()
            .and_then(|package| std::path::Path::new(package).parent())
            .map_or(here.clone(), std::path::Path::to_path_buf),
    })
}
