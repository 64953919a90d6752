//! `cargo xtask inspect`.

use std::path::PathBuf;

use serde_json::json;

use crate::cli::{Outcome, Status, build_cuda};
use crate::ctx::Ctx;
use crate::error::{Kind, Result};
use crate::inspect::{Inspection, inspect};

/// Flags of `inspect`.
#[derive(Debug, clap::Args)]
pub struct InspectArgs {
    /// Programs and libraries that were built
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Runs the command. Each file is looked at, whatever is found in another one.
pub fn run(_: &Ctx, args: InspectArgs) -> Result<Outcome> {
    let mut status = Status::Good;
    let mut text = String::new();
    let mut files = Vec::new();
    for file in &args.files {
        match inspect(file) {
            Ok(found) => {
                text.push_str(&show(&found));
                files.push(json!({ "sound": true, "file": found }));
            }
            // One alone is told as any other error is.
            Err(error) if args.files.len() > 1 && error.kind() == Kind::Finding => {
                status = Status::Finding;
                text.push_str(&format!("REFUSED: {error}\n"));
                files.push(json!({
                    "sound": false,
                    "path": file,
                    "reason": error.to_string(),
                }));
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Outcome {
        text,
        data: json!({ "files": files }),
        status,
    })
}

fn show(found: &Inspection) -> String {
    let Inspection {
        path, provenance, ..
    } = found;
    let mut rows: Vec<(&str, String)> = vec![
        ("is of", provenance.summary()),
        ("tree", provenance.tree.to_string()),
        ("sha256", found.sha256.to_string()),
        ("as linked", provenance.content.to_string()),
    ];
    if let Some(patchset) = &provenance.patchset {
        rows.push(("patches", patchset.patches.join(" ")));
    }
    let pairs = |map: &std::collections::BTreeMap<String, String>| {
        let pairs = map.iter().map(|(name, value)| format!("{name} {value}"));
        pairs.collect::<Vec<_>>().join(", ")
    };
    rows.push(("compilers", pairs(&provenance.compilers)));
    if !provenance.backend_tools.is_empty() {
        rows.push(("besides", pairs(&provenance.backend_tools)));
    }
    let facts = provenance.surroundings.facts();
    if !facts.is_empty() {
        rows.push(("made on", pairs(&facts)));
    }
    rows.push(("needs", found.needed.join(" ")));
    rows.push(("exports", format!("{} symbols", found.exports)));
    if let Some(images) = &found.cuda {
        rows.push(("for GPUs", build_cuda::images(images)));
    }
    rows.push((
        "manifest",
        match &found.manifest {
            Some(path) => format!("{}, which says the same", path.display()),
            None => "none beside it".to_owned(),
        },
    ));
    let flags = provenance.flags.iter();
    let flags: String = flags
        .map(|(name, value)| format!("    {name}={value}\n"))
        .collect();
    let rows: String = rows
        .iter()
        .map(|(name, value)| format!("  {name:<10} {value}\n"))
        .collect();
    format!(
        "{}: its stamp holds\n{rows}  options\n{flags}",
        path.display()
    )
}
