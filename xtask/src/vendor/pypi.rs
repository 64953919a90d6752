//! The source distribution of a package, fetched with the user's own `pip`, so that mirrors,
//! proxies and certificates are as the user configured them.
//!
//! pip is given the pinned digest and checks it before it looks into the archive. It then asks
//! the package's build backend for the metadata, in an environment of its own; there is no switch
//! that leaves this out. Nothing is compiled.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::PypiSource;
use crate::process::{self, End};
use crate::vendor::Programs;
use crate::vendor::cache::Cache;
use crate::vendor::download;

/// The command that a person would type for the same.
pub(super) fn by_hand(source: &PypiSource) -> String {
    format!(
        "python3 -m pip download --no-deps --no-binary {0} {0}=={1}",
        source.package, source.version
    )
}

/// The archive, from the cache or else from the package index. The caller holds the lock.
pub(super) fn archive(
    ctx: &Ctx,
    programs: &Programs,
    cache: &Cache,
    source: &PypiSource,
) -> Result<PathBuf> {
    download::archive(ctx, cache, &source.sha256, &by_hand(source), |temp| {
        download(ctx, programs, source, temp)
    })
}

fn download(ctx: &Ctx, programs: &Programs, source: &PypiSource, temp: &Path) -> Result<PathBuf> {
    let task = ctx
        .sink
        .task(&format!("pip: {} {}", source.package, source.version), None);
    let out = temp.join("out");
    let mut command = command(programs, source, temp, &out)?;
    let mut lines: u64 = 1;
    let told = std::cell::Cell::new(lines);
    let mut sign = || told.get() + process::bytes_below(temp);
    let end = process::watch(
        &mut command,
        &ctx.cancel,
        programs.patience_pip,
        &mut sign,
        &mut |line| {
            lines += 1;
            told.set(lines);
            task.message(line.trim());
        },
    )
    .map_err(|error| {
        if error.message().ends_with("is not installed") {
            error.hint(
                "install Python with pip (Debian and Ubuntu: `sudo apt-get install python3-pip`)",
            )
        } else {
            error
        }
    })?;
    match end {
        End::Exited { status, output } => {
            if !status.success() {
                return Err(failed(&output, &status.to_string()));
            }
        }
        End::Silent { after, .. } => {
            return Err(Error::environment(format!(
                "pip gave no sign of life for {:.0} s",
                after.as_secs_f64()
            ))
            .hint("check the network, and `python3 -m pip config list` for the index it uses"));
        }
    }
    let file = fs_err::read_dir(&out)?
        .next()
        .ok_or_else(|| Error::environment("pip downloaded nothing"))?
        .context(|| format!("listing {}", out.display()))?
        .path();
    let size = fs_err::metadata(&file)?.len();
    task.finish(&format!("{} MiB", size >> 20));
    Ok(file)
}

/// The call of pip that leaves the archive in `out`; all it makes lies below `temp`.
fn command(programs: &Programs, source: &PypiSource, temp: &Path, out: &Path) -> Result<Command> {
    let (wanted, work) = (temp.join("wanted.txt"), temp.join("work"));
    fs_err::create_dir(out)?;
    fs_err::create_dir(&work)?;
    fs_err::write(
        &wanted,
        format!(
            "{}=={} --hash=sha256:{}\n",
            source.package, source.version, source.sha256
        ),
    )?;
    let mut command = Command::new(&programs.python);
    command
        .args(["-m", "pip", "download"])
        .args([
            "--no-deps",
            "--no-binary",
            &source.package,
            "--require-hashes",
        ])
        // We want the archive, whatever Python could run it.
        .arg("--ignore-requires-python")
        .args([
            "--no-input",
            "--disable-pip-version-check",
            "--progress-bar=off",
        ])
        .args(["--retries", "2"])
        .arg("--dest")
        .arg(out)
        .arg("--requirement")
        .arg(&wanted)
        .current_dir(temp)
        // What pip unpacks and builds goes with our temporary folder, also after a kill.
        .env("TMPDIR", &work)
        .env("LC_ALL", "C.UTF-8");
    Ok(command)
}

/// What pip's output says about why it failed.
fn failed(output: &[String], status: &str) -> Error {
    let has = |text: &str| output.iter().any(|line| line.contains(text));
    if has("No module named pip") {
        return Error::environment("Python has no pip").hint(
            "install it (Debian and Ubuntu: `sudo apt-get install python3-pip`; elsewhere \
             `python3 -m ensurepip --user`)",
        );
    }
    if has("DO NOT MATCH THE HASHES") || has("HASHES FROM THE REQUIREMENTS FILE") {
        let got = output
            .iter()
            .find_map(|line| line.trim().strip_prefix("Got"))
            .map_or_else(String::new, |got| format!(": it has sha256 {}", got.trim()));
        return Error::finding(format!(
            "the index delivers another archive than the pinned one{got}"
        ))
        .hint(
            "nothing of it was unpacked; see which index pip uses: `python3 -m pip config list`",
        );
    }
    // pip tells the cause of a failed connection only when it tries again.
    let cause = output.iter().rev().find_map(|line| {
        let (_, rest) = line.split_once("connection broken by '")?;
        let text = rest.split("': /").next().unwrap_or(rest);
        Some(
            text.rsplit(">: ")
                .next()
                .unwrap_or(text)
                .trim_end_matches(['\'', '"', ')']),
        )
    });
    let reason = output
        .iter()
        .rev()
        .find_map(|line| line.strip_prefix("ERROR: "))
        // A stack trace follows; what it ends with says more.
        .filter(|line| *line != "Exception:")
        .or(output.last().map(String::as_str))
        .unwrap_or(status);
    let reason = match cause {
        Some(cause) => format!("{reason} ({cause})"),
        None => reason.to_owned(),
    };
    if reason.contains("No space left on device") {
        return Error::environment(reason)
            .hint("free some space and run the same command again; nothing was half written");
    }
    Error::environment(reason)
        .hint("check the network, and `python3 -m pip config list` for the index that pip uses")
}

#[cfg(test)]
mod tests;
