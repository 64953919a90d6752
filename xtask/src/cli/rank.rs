//! `cargo xtask rank`.

use std::path::PathBuf;

use serde_json::json;

use crate::build::Build;
use crate::cli::Outcome;
use crate::cli::args::BaseArg;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Flavour, write_atomic};
use crate::rank;

/// Flags of `rank`.
#[derive(Debug, clap::Args)]
pub struct RankArgs {
    /// The model whose tokens are counted
    #[arg(long, value_name = "FILE")]
    model: PathBuf,
    /// Where the ids go, one a line, the most frequent first
    #[arg(long, value_name = "FILE")]
    out: PathBuf,
    /// The llama-server that makes tokens of text [default: the one that was built]
    #[arg(long, value_name = "PROGRAM")]
    server: Option<PathBuf>,
    #[command(flatten)]
    base: BaseArg,
    /// Texts in UTF-8, and files of token ids that end in `.ids`
    #[arg(value_name = "TEXT", required = true)]
    texts: Vec<PathBuf>,
}

/// Parts of a vocabulary that are worth a line.
const FIRST: [usize; 6] = [1024, 4096, 8192, 16_384, 32_768, 65_536];

/// Runs the command.
pub fn run(ctx: &Ctx, args: RankArgs) -> Result<Outcome> {
    let server = match args.server {
        Some(server) => server,
        None => built(ctx, &args.base)?,
    };
    let request = rank::Request {
        model: &args.model,
        server: &server,
        texts: &args.texts,
    };
    let ranking = rank::rank(ctx, &request)?;
    // A bare name has no folder to put a temporary file into.
    write_atomic(&std::path::absolute(&args.out)?, ranking.file().as_bytes())?;
    let (total, kinds) = (ranking.total(), ranking.tokens.len());
    let mut text = format!(
        "{}: {kinds} tokens that came {total} times\n",
        args.out.display()
    );
    let mut shares = Vec::new();
    for first in FIRST.into_iter().filter(|first| *first < kinds) {
        let share = ranking.share(first);
        text.push_str(&format!(
            "the first {first:>5} are {:.1} % of the text\n",
            100.0 * share
        ));
        shares.push(json!({ "first": first, "share": share }));
    }
    text.push_str(&format!(
        "use it: OPENCOTI_DRAFT_VOCAB={}:{}\n",
        args.out.display(),
        kinds.min(32_768)
    ));
    let data = json!({
        "out": args.out,
        "model": ranking.model.to_string(),
        "tokens": kinds,
        "counted": total,
        "shares": shares,
    });
    Ok(Outcome::good(text, data))
}

/// A server of the base: the patched one, else vanilla's; both make the same tokens.
fn built(ctx: &Ctx, base: &BaseArg) -> Result<PathBuf> {
    let id = ctx.project.base(base.base.as_deref())?.id;
    for flavour in [Flavour::Patched, Flavour::Vanilla] {
        if let Some(build) = Build::find(ctx, &id, flavour, "cpu")? {
            return Ok(build.program("llama-server"));
        }
    }
    Err(
        Error::environment("there is no llama-server that was built")
            .hint(format!("cargo xtask build{}", base.flag()))
            .hint("or name one with --server"),
    )
}
