//! `cargo xtask gate --compare A B`.

use crate::cli::Outcome;
use crate::cli::outcome::Status;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::table::Signs;
use crate::model::Verdict;
use crate::report::compare::{compare, show};

/// Compares two records or runs. Exit code 0 where nothing became worse, 1 where something did.
pub fn run(ctx: &Ctx, a: &str, b: &str, signs: Signs) -> Result<Outcome> {
    let comparison = compare(ctx, a, b)?;
    Ok(Outcome {
        text: show::text(&comparison, signs),
        data: serde_json::to_value(&comparison)
            .map_err(|error| Error::internal(error.to_string()))?,
        status: match comparison.verdict {
            Verdict::Pass => Status::Good,
            Verdict::Fail => Status::Finding,
            Verdict::Inconclusive | Verdict::Skipped => Status::Inconclusive,
        },
    })
}
