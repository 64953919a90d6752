//! The archive of a crate, fetched with the user's own `cargo`, so that mirrors, proxies and
//! credentials are as the user configured them.
//!
//! cargo has no command that downloads one crate. It is asked for the dependencies of a package
//! that depends on exactly that one; what the crate itself depends on comes along, and stays in
//! cargo's own cache. Nothing is compiled, and no lock file of ours is touched: the package has
//! a folder of its own in our cache, and is gone afterwards.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::CratesSource;
use crate::process::{self, End};
use crate::vendor::Programs;
use crate::vendor::cache::Cache;
use crate::vendor::download;

/// The command that a person would type for the same.
pub(super) fn by_hand(source: &CratesSource) -> String {
    format!(
        "cargo init --lib fetch && cd fetch && cargo add {}@={} && cargo fetch",
        source.package, source.version
    )
}

/// The archive, from our cache or else from the registry. The caller holds the lock.
pub(super) fn archive(
    ctx: &Ctx,
    programs: &Programs,
    cache: &Cache,
    source: &CratesSource,
) -> Result<PathBuf> {
    download::archive(ctx, cache, &source.sha256, &by_hand(source), |temp| {
        fetch(ctx, programs, source, temp)
    })
}

fn fetch(ctx: &Ctx, programs: &Programs, source: &CratesSource, temp: &Path) -> Result<PathBuf> {
    let task = ctx.sink.task(
        &format!("cargo: {} {}", source.package, source.version),
        None,
    );
    let dir = temp.join("package");
    fs_err::create_dir(&dir)?;
    fs_err::write(dir.join("lib.rs"), "")?;
    // The empty workspace: ours may lie in the folder of another one.
    fs_err::write(
        dir.join("Cargo.toml"),
        format!(
            "[workspace]\n[package]\nname = \"fetch\"\nversion = \"0.0.0\"\nedition = \"2021\"\n\
             [lib]\npath = \"lib.rs\"\n[dependencies]\n{} = \"={}\"\n",
            source.package, source.version
        ),
    )?;
    let mut lines: u64 = 1;
    let told = std::cell::Cell::new(lines);
    let end = process::watch(
        cargo(programs, &dir).arg("fetch"),
        &ctx.cancel,
        programs.patience_cargo,
        &mut || told.get(),
        &mut |line| {
            lines += 1;
            told.set(lines);
            task.message(line.trim());
        },
    )
    .map_err(|error| {
        if error.message().ends_with("is not installed") {
            error.hint("install Rust with cargo: https://rustup.rs")
        } else {
            error
        }
    })?;
    match end {
        End::Exited { status, .. } if status.success() => {}
        End::Exited { status, output } => return Err(failed(&output, &status.to_string())),
        End::Silent { after, .. } => {
            return Err(Error::environment(format!(
                "cargo gave no sign of life for {:.0} s",
                after.as_secs_f64()
            ))
            .hint("check the network, and `[source]`, `[registries]` and `[http]` of cargo's config.toml"));
        }
    }
    let mut metadata = cargo(programs, &dir);
    metadata.args(["metadata", "--format-version=1", "--offline"]);
    let done = process::capture(ctx, &mut metadata)?;
    let file = done
        .output
        .lines()
        .filter(|line| line.starts_with('{'))
        .find_map(|line| manifest_of(line, source))
        .and_then(|manifest| packed(&manifest, source))
        .ok_or_else(|| {
            Error::environment("cargo keeps no archive of it").hint(format!(
                "where cargo replaces the registry by a folder of unpacked crates, put the archive \
                 {}-{}.crate by hand into the cache: see `docs/reference/registry.md`",
                source.package, source.version
            ))
        })?;
    let size = fs_err::metadata(&file)?.len();
    task.finish(&format!("{} MiB", size >> 20));
    Ok(file)
}

fn cargo(programs: &Programs, dir: &Path) -> Command {
    let mut command = Command::new(&programs.cargo);
    // What the cargo that runs us, or a build script around it, wants to tell its own children.
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command.current_dir(dir).env("CARGO_TERM_COLOR", "never");
    command
}

/// The manifest of the unpacked crate, as `cargo metadata` names it.
fn manifest_of(metadata: &str, source: &CratesSource) -> Option<PathBuf> {
    let metadata: serde_json::Value = serde_json::from_str(metadata).ok()?;
    let packages = metadata["packages"].as_array()?;
    let package = packages
        .iter()
        .find(|p| p["name"] == source.package && p["version"] == source.version)?;
    package["manifest_path"].as_str().map(PathBuf::from)
}

/// The archive of `<registry>/src/<index>/<crate>/Cargo.toml`:
/// `<registry>/cache/<index>/<crate>.crate`.
fn packed(manifest: &Path, source: &CratesSource) -> Option<PathBuf> {
    let index = manifest.parent()?.parent()?;
    let registry = index.parent()?.parent()?;
    let name = format!("{}-{}.crate", source.package, source.version);
    let path = registry.join("cache").join(index.file_name()?).join(name);
    path.is_file().then_some(path)
}

/// What cargo's output says about why it failed.
fn failed(output: &[String], status: &str) -> Error {
    let first = output.iter().find_map(|line| line.strip_prefix("error: "));
    // The innermost cause comes last.
    let cause = output
        .iter()
        .rposition(|line| line.trim() == "Caused by:")
        .and_then(|at| output.get(at + 1))
        .map(|line| line.trim());
    let reason = match (first, cause) {
        (Some(first), Some(cause)) => format!("{first} ({cause})"),
        (Some(first), None) => first.to_owned(),
        _ => output.last().map_or(status, String::as_str).to_owned(),
    };
    if reason.contains("No space left on device") {
        return Error::environment(reason)
            .hint("free some space and run the same command again; nothing was half written");
    }
    if reason.contains("checksum") {
        return Error::finding(reason)
            .hint("cargo has refused the archive: see which registry it uses");
    }
    Error::environment(reason).hint(
        "check the network, and `[source]`, `[registries]` and `[http]` of cargo's config.toml",
    )
}

#[cfg(test)]
mod tests;
