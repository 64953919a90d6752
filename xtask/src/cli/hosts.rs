//! `cargo xtask hosts`, and `gate --host`.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::Kind;
use crate::cli::Outcome;
use crate::cli::outcome::Status;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::Request;
use crate::gate::table::aligned;
use crate::hosts;
use crate::hosts::probe::Facts;
use crate::model::{Host, HostKey};

/// Flags of `hosts`.
#[derive(Debug, clap::Args)]
pub struct HostsArgs {
    /// Ask these hosts what they are (`all`: every one that ssh reaches)
    #[arg(long, value_name = "NAME", num_args = 1..)]
    probe: Vec<String>,
    /// Print the machines of GitHub Actions as its workflow takes them
    #[arg(long, conflicts_with = "probe")]
    matrix: bool,
    /// The file of hosts [default: registry/hosts.toml]
    #[arg(long, value_name = "FILE")]
    hosts: Option<PathBuf>,
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: HostsArgs) -> Result<Outcome> {
    let file = hosts::load(ctx, args.hosts.as_deref())?;
    if args.matrix {
        let matrix = matrix(&file.host);
        return Ok(Outcome::good(
            matrix.to_string(),
            json!({ "matrix": matrix }),
        ));
    }
    if !args.probe.is_empty() {
        return probe(ctx, &hosts::select(&file, &args.probe)?);
    }
    let mut rows = vec![row([
        "host", "address", "runner", "key", "backends", "gates",
    ])];
    for host in &file.host {
        let or_none = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".to_owned());
        let key = match (&host.address, &host.host_key) {
            (None, _) => "-",
            (_, HostKey::Known) => "known",
            (_, HostKey::AcceptNew) => "accept-new",
            (_, HostKey::Pinned(_)) => "pinned",
        };
        let gates = match host.gates.as_slice() {
            [] => "those of its backends".to_owned(),
            gates => gates.join(" "),
        };
        rows.push(vec![
            host.name.clone(),
            or_none(&host.address),
            or_none(&host.runner),
            key.to_owned(),
            host.backends.join(","),
            gates,
        ]);
    }
    let names: Vec<&str> = file.host.iter().map(|host| host.name.as_str()).collect();
    Ok(Outcome::good(aligned(&rows), json!({ "hosts": names })))
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}

/// What a workflow reads with `fromJSON`: one job for each runner and backend.
fn matrix(hosts: &[Host]) -> Value {
    let mut jobs = Vec::new();
    for host in hosts {
        for backend in host.runner.iter().flat_map(|_| &host.backends) {
            jobs.push(json!({
                "name": host.name,
                "runs_on": host.runner,
                "backend": backend,
                "gates": host.gates.join(" "),
                "quick": host.quick,
            }));
        }
    }
    json!({ "include": jobs })
}

fn probe(ctx: &Ctx, chosen: &[Host]) -> Result<Outcome> {
    let answers: Vec<Result<Facts>> = std::thread::scope(|scope| {
        let asked: Vec<_> = (chosen.iter())
            .map(|host| scope.spawn(|| hosts::ask(ctx, host)))
            .collect();
        let panicked = |_| Err(Error::internal("its thread has panicked"));
        let joined = asked.into_iter().map(|thread| thread.join());
        joined
            .map(|answer| answer.unwrap_or_else(panicked))
            .collect()
    });
    ctx.cancel.check()?;
    let mut status = Status::Good;
    let mut rows = vec![row([
        "host",
        "system",
        "C library",
        "processors",
        "free",
        "rsync",
    ])];
    let (mut said, mut data) = (String::new(), Vec::new());
    for (host, answer) in chosen.iter().zip(answers) {
        match answer {
            Ok(facts) => {
                rows.push(vec![
                    host.name.clone(),
                    format!("{} {}", facts.os, facts.arch),
                    facts.libc.clone(),
                    format!(
                        "{} × {}",
                        facts.processors,
                        facts.model.as_deref().unwrap_or("unknown")
                    ),
                    format!("{} MB", facts.free >> 20),
                    facts.rsync.clone().unwrap_or_else(|| "missing".to_owned()),
                ]);
                data.push(json!({ "name": host.name, "facts": facts }));
            }
            Err(error) => {
                status = Status::Unable;
                said.push_str(&format!("{}: {error}\n", host.name));
                for hint in error.hints() {
                    said.push_str(&format!("{}:   hint: {hint}\n", host.name));
                }
                data.push(json!({
                    "name": host.name,
                    "error": { "message": error.to_string(), "hints": error.hints() },
                }));
            }
        }
    }
    Ok(Outcome {
        text: format!("{}{said}", aligned(&rows)),
        data: json!({ "hosts": data }),
        status,
    })
}

/// `gate --host`.
pub fn gate(
    ctx: &Ctx,
    request: &Request,
    names: &[String],
    file: Option<&Path>,
    command: &str,
) -> Result<Outcome> {
    let chosen = hosts::select(&hosts::load(ctx, file)?, names)?;
    let matrix = hosts::run(ctx, request, &chosen, command)?;
    let mut text = matrix.text();
    let runs = matrix.runs();
    let mut page = None;
    if !runs.is_empty() {
        match write_page(ctx, &runs) {
            Ok(path) => {
                text.push_str(&format!("page:   {path}\n"));
                page = Some(path);
            }
            // The verdict stays what it is.
            Err(error) => ctx.sink.warn(&format!("there is no page: {error}")),
        }
        let words = runs.iter().map(|run| format!(" --run {run}"));
        let words: String = words.collect();
        text.push_str(&format!("report: cargo xtask report{words}\n"));
    }
    let kind = matrix.kind();
    Ok(Outcome {
        text,
        data: json!({ "hosts": matrix.hosts, "runs": runs, "page": page }),
        status: match kind {
            None => Status::Good,
            Some(Kind::Finding) => Status::Finding,
            Some(Kind::Inconclusive) => Status::Inconclusive,
            Some(_) => Status::Unable,
        },
    })
}

/// Writes the page of all runs, and says where.
fn write_page(ctx: &Ctx, runs: &[String]) -> Result<String> {
    let report = crate::report::report(ctx, runs, crate::report::LAST)?;
    let path = crate::report::folder(ctx).join("report.html");
    crate::model::write_atomic(&path, crate::report::html(&report).as_bytes())?;
    Ok(ctx.project.show(&path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_matrix_has_a_job_for_each_backend_of_a_runner() {
        let file: crate::model::HostsFile = toml::from_str(
            "schema = 1\n[[host]]\nname = \"a\"\nrunner = \"r\"\nbackends = [\"cpu\", \"vulkan\"]\n\
             gates = [\"chash\", \"logits\"]\n[[host]]\nname = \"b\"\naddress = \"b\"\n",
        )
        .unwrap();
        let matrix = matrix(&file.host);
        let jobs = matrix["include"].as_array().unwrap();
        assert_eq!(jobs.len(), 2, "{matrix}");
        assert_eq!(jobs[1]["backend"], "vulkan");
        assert_eq!(
            (&jobs[0]["runs_on"], &jobs[0]["gates"]),
            (&"r".into(), &"chash logits".into())
        );
    }
}
