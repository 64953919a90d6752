//! CMake and Ninja from pinned Python wheels, where the machine has none that will do.
//!
//! Both wheels carry plain programs, so that they are installed into a folder of their own and
//! called directly: no script, no interpreter, nothing outside `target/`. The folder is named
//! by what is pinned and put in place with one rename, so that it is complete or not there.

use std::path::{Path, PathBuf};

use crate::build::lookup::Lookup;
use crate::build::packages::{Package, install_command};
use crate::build::tools::{Found, Program};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Digest, Tool, Toolchains, Wheel};
use crate::process;

/// Keeps what is good and installs what is not.
pub fn fill(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    wanted: &Toolchains,
    cmake: Found,
    ninja: Found,
) -> Result<(Program, Program)> {
    let dir = folder(ctx, wanted);
    let mut lacking: Vec<(&Tool, String, Package)> = Vec::new();
    for (found, tool, package) in [
        (&cmake, &wanted.cmake, Package::Cmake),
        (&ninja, &wanted.ninja, Package::Ninja),
    ] {
        if let Some(fault) = fault(found, tool) {
            lacking.push((tool, fault, package));
        }
    }
    let there = lacking
        .iter()
        .all(|(tool, ..)| provisioned(lookup, &dir, &tool.wheel).is_some());
    if !there {
        install(ctx, lookup, wanted, &dir, &lacking)?;
    }
    let take = |found: Found, tool: &Tool| match found {
        Found::Good(program) => Ok(program),
        _ => provisioned(lookup, &dir, &tool.wheel).ok_or_else(|| {
            let path = dir.join(&tool.wheel.program);
            Error::environment(format!(
                "{} was installed and does not run",
                ctx.project.show(&path)
            ))
            .hint(format!(
                "remove the folder {} and install {} yourself",
                ctx.project.show(&dir),
                tool.wheel.package
            ))
        }),
    };
    Ok((take(cmake, &wanted.cmake)?, take(ninja, &wanted.ninja)?))
}

/// The provisioned program, where it is there and runs.
pub fn provisioned(lookup: &dyn Lookup, dir: &Path, wheel: &Wheel) -> Option<Program> {
    let path = dir.join(&wheel.program);
    let path = lookup.find(path.to_str()?)?;
    let version = lookup.version(&path)?;
    Some(Program { path, version })
}

/// Where the pinned wheels are installed: named by the pins, so that other pins never find it.
pub fn folder(ctx: &Ctx, wanted: &Toolchains) -> PathBuf {
    let pins = requirements(wanted);
    let digest = Digest::of(pins.as_bytes());
    ctx.project
        .target()
        .join("tools")
        .join(format!("wheels-{}", digest.short()))
}

/// Why `found` will not do.
fn fault(found: &Found, tool: &Tool) -> Option<String> {
    let name = &tool.wheel.package;
    match found {
        Found::Good(_) => None,
        Found::Missing => Some(format!("{name} is missing")),
        Found::TooOld(program) => Some(format!(
            "{name} {} at {} is too old (at least {} is needed)",
            program.version,
            program.path.display(),
            tool.minimum
        )),
        Found::Broken(path) => Some(format!("{} does not run", path.display())),
    }
}

/// The pins in the form that `pip install --require-hashes` reads.
fn requirements(wanted: &Toolchains) -> String {
    let mut text = String::new();
    for wheel in [&wanted.cmake.wheel, &wanted.ninja.wheel] {
        text.push_str(&format!("{}=={}", wheel.package, wheel.version));
        for digest in &wheel.sha256 {
            text.push_str(&format!(" --hash=sha256:{digest}"));
        }
        text.push('\n');
    }
    text
}

fn install(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    wanted: &Toolchains,
    dir: &Path,
    lacking: &[(&Tool, String, Package)],
) -> Result<()> {
    let faults: Vec<&str> = lacking.iter().map(|(_, fault, _)| &**fault).collect();
    let faults = faults.join(", and ");
    let packages: Vec<Package> = lacking.iter().map(|(.., package)| *package).collect();
    let by_hand = install_command(lookup, &packages);
    if ctx.no_provision || ctx.offline {
        let flag = if ctx.offline {
            "--offline"
        } else {
            "--no-provision"
        };
        return Err(Error::environment(faults).hint(by_hand).hint(format!(
            "or run again without {flag}: pinned versions are then installed into {}",
            ctx.project.show(dir)
        )));
    }
    let Some(python) = lookup.find("python3") else {
        return Err(Error::environment(format!(
            "{faults}, and there is no python3 to install it with"
        ))
        .hint(by_hand));
    };
    let parent = dir.parent().unwrap_or(dir);
    fs_err::create_dir_all(parent)?;
    let _lock = crate::lock::file(ctx, &parent.join(".lock"))?;
    let all = [&wanted.cmake, &wanted.ninja];
    if all
        .iter()
        .all(|tool| provisioned(lookup, dir, &tool.wheel).is_some())
    {
        return Ok(()); // Another run was at it while we waited.
    }
    ctx.sink.note(&format!(
        "{faults}: installing {} into {}",
        all.map(|tool| format!("{} {}", tool.wheel.package, tool.wheel.version))
            .join(" and "),
        ctx.project.show(dir)
    ));
    clear_leftovers(parent, STAGING)?;
    let staging = tempfile::Builder::new()
        .prefix(STAGING)
        .tempdir_in(parent)?;
    let pip = pip(ctx, lookup, &python, staging.path(), &by_hand)?;
    let task = ctx.sink.task("installing build tools", None);
    let tree = wheels(ctx, &pip, &requirements(wanted), staging.path(), &by_hand)?;
    for tool in all {
        if provisioned(lookup, &tree, &tool.wheel).is_none() {
            return Err(Error::environment(format!(
                "the installed {} {} does not run on this machine",
                tool.wheel.package, tool.wheel.version
            ))
            .hint(by_hand));
        }
    }
    if dir.exists() {
        fs_err::remove_dir_all(dir)?; // It was there and did not run.
    }
    fs_err::rename(&tree, dir).context(|| "putting the build tools in place".to_owned())?;
    task.finish(&ctx.project.show(dir));
    Ok(())
}

/// Lets pip unpack what `pins` names into a folder below `staging`, and returns that.
fn wheels(ctx: &Ctx, pip: &Path, pins: &str, staging: &Path, by_hand: &str) -> Result<PathBuf> {
    let list = staging.join("pins.txt");
    fs_err::write(&list, pins)?;
    let tree = staging.join("tree");
    let mut command = process::tied(pip, process::Signal::Term);
    command
        .args(["-m", "pip", "install", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--no-deps", "--no-compile"])
        .args(["--only-binary", ":all:", "--require-hashes"])
        .arg("--target")
        .arg(&tree)
        .arg("-r")
        .arg(&list);
    let done = process::capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(Error::environment(format!(
            "pip could not install the build tools: {}",
            process::last_lines(&done.output, 8)
        ))
        .hint(by_hand));
    }
    Ok(tree)
}

/// Prefix of folders in which an installation is prepared.
const STAGING: &str = ".installing-";

/// Removes what killed runs left in folders of that prefix. The caller holds the lock.
pub(super) fn clear_leftovers(parent: &Path, staging: &str) -> Result<()> {
    for entry in fs_err::read_dir(parent)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(staging) {
            fs_err::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

/// A Python that has pip: the machine's own, else one in a temporary virtual environment.
pub(super) fn pip(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    python: &Path,
    staging: &Path,
    by_hand: &str,
) -> Result<PathBuf> {
    if lookup.output(python, &["-m", "pip", "--version"]).is_some() {
        return Ok(python.to_owned());
    }
    let venv = staging.join("venv");
    let mut command = process::tied(python, process::Signal::Term);
    command.args(["-m", "venv"]).arg(&venv);
    let done = process::capture(ctx, &mut command)?;
    if done.status.success() {
        return Ok(venv.join("bin/python"));
    }
    Err(Error::environment(format!(
        "{} has neither pip nor what a virtual environment needs (ensurepip)",
        python.display()
    ))
    .hint(format!(
        "{} (or python3-venv)",
        install_command(lookup, &[Package::Pip])
    ))
    .hint(format!("or install the build tools yourself: {by_hand}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::toy_ctx;
    use crate::build::tools;

    #[test]
    fn refusing_to_install_says_what_to_run() {
        let toy = toy_ctx();
        let machine = Fake::complete().without("ninja");
        for (offline, no_provision, flag) in
            [(true, false, "--offline"), (false, true, "--no-provision")]
        {
            let mut ctx = toy_ctx();
            ctx.ctx.offline = offline;
            ctx.ctx.no_provision = no_provision;
            let ctx = &ctx.ctx;
            let error = tools::resolve(ctx, &machine).unwrap_err();
            assert_eq!(error.message(), "ninja is missing");
            assert_eq!(error.hints()[0], "sudo apt-get install ninja-build");
            assert!(error.hints()[1].contains(flag));
            assert_eq!(error.kind(), crate::Kind::Environment);
        }
        let machine = machine.without("python3");
        let error = tools::resolve(&toy.ctx, &machine).unwrap_err();
        assert!(error.message().contains("no python3"), "{error}");
        assert!(!toy.ctx.project.target().join("tools").exists());
    }

    #[test]
    fn other_pins_are_another_folder() {
        let toy = toy_ctx();
        let mut wanted = tools::tests::committed();
        let one = folder(&toy.ctx, &wanted);
        wanted.ninja.wheel.version = "9.9.9".to_owned();
        assert_ne!(one, folder(&toy.ctx, &wanted));
    }

    #[test]
    fn pins_name_every_digest() {
        let wanted = tools::tests::committed();
        let text = requirements(&wanted);
        assert_eq!(text.lines().count(), 2);
        let digests = wanted.cmake.wheel.sha256.len() + wanted.ninja.wheel.sha256.len();
        assert_eq!(text.matches(" --hash=sha256:").count(), digests);
    }
}
