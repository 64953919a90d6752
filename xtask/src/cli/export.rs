//! `cargo xtask export`.

use std::io::Write as _;
use std::path::PathBuf;

use serde_json::json;

use crate::cli::args::BaseArg;
use crate::cli::{Outcome, series};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::exchange::{self, Named};

/// Flags of `export`.
#[derive(Debug, clap::Args)]
pub struct ExportArgs {
    /// The patches to export [default: all of the series]
    #[arg(value_name = "ID")]
    ids: Vec<String>,
    /// What to write
    #[arg(long, value_name = "FORMAT", default_value = "mail")]
    format: Format,
    /// The folder to write into; for a diff, the file
    #[arg(long, value_name = "PATH", required_unless_present = "stdout")]
    output: Option<PathBuf>,
    /// Print the one mail or the diff instead
    #[arg(long, conflicts_with = "output")]
    stdout: bool,
    #[command(flatten)]
    base: BaseArg,
}

/// See [`exchange::Format`].
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Format {
    /// One mail for each patch, for `git am`
    Mail,
    /// A folder for quilt: `series` and its patches
    Quilt,
    /// One diff of all that the patches do together
    Diff,
}

impl From<Format> for exchange::Format {
    fn from(format: Format) -> Self {
        match format {
            Format::Mail => exchange::Format::Mail,
            Format::Quilt => exchange::Format::Quilt,
            Format::Diff => exchange::Format::Diff,
        }
    }
}

/// Writes patches as others take them.
pub fn run(ctx: &Ctx, args: ExportArgs, json: bool) -> Result<Outcome> {
    if args.stdout && json {
        return Err(Error::usage("--stdout and --json both want stdout")
            .hint("write to a file or folder with --output"));
    }
    let (pristine, series) = series::load(ctx, &args.base)?;
    let files = exchange::export(ctx, &pristine, &series, &args.ids, args.format.into())?;
    let Some(output) = &args.output else {
        return to_stdout(&files);
    };
    let changed = match (args.format, files.as_slice()) {
        (Format::Diff, [file]) => exchange::write_file(ctx, output, file)?,
        _ => exchange::write_dir(ctx, output, &files)?,
    };
    let shown = ctx.project.show(&std::path::absolute(output)?);
    let mut text = String::new();
    let names: Vec<&str> = files.iter().map(|file| file.name.as_str()).collect();
    if !matches!(args.format, Format::Diff) {
        for name in &names {
            text.push_str(&format!("  {name}\n"));
        }
    }
    text.push_str(&match changed {
        true => format!("written to {shown}"),
        false => format!("{shown} is up to date"),
    });
    text.push_str(match args.format {
        Format::Mail => {
            "\nto apply: git am --keep-non-patch --keep-cr <folder>/*.patch, on the base with the patches before them"
        }
        Format::Quilt => "\nto apply: quilt push -a, with QUILT_PATCHES set to the folder",
        Format::Diff => "\nto apply: git apply <file>, on the base with the patches before them",
    });
    let data = json!({
        "base": series.base.id,
        "patchset": series.id,
        "output": shown,
        "files": names,
        "changed": changed,
    });
    Ok(Outcome::good(text, data))
}

/// Prints the bytes as they are: they may be in any encoding.
fn to_stdout(files: &[Named]) -> Result<Outcome> {
    let [file] = files else {
        return Err(Error::usage(format!(
            "stdout takes one file, and there are {}",
            files.len()
        ))
        .hint("name one patch, choose --format diff, or write to a folder with --output"));
    };
    let mut stdout = std::io::stdout().lock();
    match stdout
        .write_all(&file.content)
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::from(error).context("writing to stdout"))
        }
        _ => Ok(Outcome::good("", json!(null))),
    }
}
