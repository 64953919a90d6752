//! `cargo xtask package`.

use std::path::PathBuf;

use serde_json::json;

use crate::build;
use crate::cli::Outcome;
use crate::cli::args::{BaseArg, VariantArgs};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::{Flavour, Variant};
use crate::package::{Order, package};

/// Flags of `package`.
#[derive(Debug, clap::Args)]
pub struct PackageArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Pack the vanilla build [default: the patched one]
    #[arg(long)]
    vanilla: bool,
    /// Where the models are to run
    #[arg(long, value_name = "NAME", default_value = "cpu")]
    backend: String,
    #[command(flatten)]
    variant: VariantArgs,
    /// Replace an archive of that name that holds something else
    #[arg(long)]
    force: bool,
    /// The folder to write into [default: target/package]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
}

impl PackageArgs {
    /// How the build was made.
    pub fn variant(&self) -> Variant {
        self.variant.variant()
    }
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: PackageArgs) -> Result<Outcome> {
    build::backend(&args.backend)?;
    let base = ctx.project.base(args.base.base.as_deref())?;
    let flavour = match args.vanilla {
        true => Flavour::Vanilla,
        false => Flavour::Patched,
    };
    let variant = args.variant();
    variant.check()?;
    let dir = args
        .output
        .unwrap_or_else(|| ctx.project.target().join("package"));
    let order = Order {
        flavour,
        backend: &args.backend,
        variant,
        dir: &dir,
        force: args.force,
    };
    let made = package(ctx, &base, &order)?;
    let text = format!(
        "{}: {} files, {}.{} MB, sha256 {}\n",
        ctx.project.show(&made.path),
        made.files.len(),
        made.size / 1_000_000,
        made.size % 1_000_000 / 100_000,
        made.sha256
    );
    Ok(Outcome::good(text, json!({ "package": made })))
}
