//! What gates found, for people and for other programs: one page of HTML, Markdown for a
//! comment, JUnit XML, and what differs between two records.
//!
//! | file | what it does |
//! | --- | --- |
//! | `gather` | runs of the store as one [`Report`] |
//! | `visible` | text of records as it may be shown |
//! | `speeds` | speed and acceptance by configuration, as one table |
//! | `history` | what earlier runs said |
//! | `chart`, `plots` | SVG: how a chart is drawn, and which there are |
//! | `html`, `markdown`, `junit` | the three forms |
//! | `compare` | what differs between two records |
//!
//! A new kind of gate needs nothing here: its table is that of [`crate::gate::table::rows`], and
//! objects with a verdict in its record are found. A plot of its own goes into `plots`.

mod chart;
pub mod compare;
pub mod gather;
pub mod history;
mod html;
mod junit;
mod markdown;
mod plots;
pub mod speeds;
#[cfg(test)]
mod tests;
mod visible;

use std::path::{Path, PathBuf};

use crate::ctx::Ctx;
use crate::error::Result;
pub use crate::gate::cases;
use crate::gate::store::Store;
pub use gather::{Gate, Report, State};
pub use html::html;
pub use junit::junit;
pub use markdown::markdown;

/// Earlier runs that a report looks back on, unless another number is asked for.
pub const LAST: usize = 20;

/// The folder of all that gates leave: `target/gate`.
pub fn folder(ctx: &Ctx) -> PathBuf {
    ctx.project.target().join("gate")
}

/// The report over `runs` (ids as in [`Store::find`]; the newest run where empty), looking back
/// on the `last` newest runs of the store.
pub fn report(ctx: &Ctx, runs: &[String], last: usize) -> Result<Report> {
    gather::gather(&Store::below(&folder(ctx)), runs, last)
}

/// Writes the page of one run beside the gates' other files, and says where.
pub fn write_page(ctx: &Ctx, run: &str) -> Result<PathBuf> {
    let path = folder(ctx).join("report.html");
    let report = report(ctx, &[run.to_owned()], LAST)?;
    crate::model::write_atomic(&path, html(&report).as_bytes())?;
    Ok(path)
}

/// The name of a file without the folders before it, for a page that others read.
fn file_name(path: &Path) -> String {
    visible::visible(&path.file_name().unwrap_or_default().to_string_lossy())
}
