//! Pinned packages of Debian's archive, unpacked into the cache.
//!
//! For files that do not depend on the machine's libraries, such as headers: they are fetched with
//! apt's own download helper from the mirrors that the machine is set up for, checked by digest,
//! and unpacked into a folder of their own. Nothing is installed, and no index is read.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::lookup::Lookup;
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{DebianPackage, Digest};
use crate::process;

/// apt's download helper, which knows of proxies and mirrors.
const HELPER: &str = "/usr/lib/apt/apt-helper";
/// Prefix of folders in which packages are unpacked.
const STAGING: &str = ".unpacking-";

/// Where `packages` are unpacked: named by the pins, so that other pins never find it.
pub fn folder(ctx: &Ctx, packages: &[DebianPackage]) -> PathBuf {
    let pins = packages.iter().map(|package| package.sha256.bytes());
    let digest = Digest::of_parts(pins.map(|digest| digest.as_slice()));
    let name = format!("debian-{}", digest.short());
    ctx.project.cache().join("tools").join(name)
}

/// Brings `packages` where they are not there yet, and returns the folder that they are unpacked
/// in. `why` says what they are needed for.
pub fn ensure(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    packages: &[DebianPackage],
    why: &str,
) -> Result<PathBuf> {
    let dir = folder(ctx, packages);
    if dir.is_dir() {
        return Ok(dir);
    }
    let names: Vec<String> = packages
        .iter()
        .map(|package| format!("{} {}", package.package, package.version))
        .collect();
    let names = names.join(" and ");
    let refuse = |reason: &str| Err(Error::environment(format!("{why}, and {reason}")));
    if ctx.no_provision {
        return refuse("--no-provision was given");
    }
    let (Some(helper), Some(unpack)) = (lookup.find(HELPER), lookup.find("dpkg-deb")) else {
        return refuse("only a machine with apt can bring newer ones by itself");
    };
    let parent = dir.parent().unwrap_or(&dir);
    fs_err::create_dir_all(parent)?;
    let _lock = crate::lock::file(ctx, &parent.join(".lock"))?;
    if dir.is_dir() {
        return Ok(dir); // Another run was at it while we waited.
    }
    crate::build::provision::clear_leftovers(parent, STAGING)?;
    ctx.sink
        .note(&format!("{why}: unpacking {names} into {}", dir.display()));
    let staging = tempfile::Builder::new()
        .prefix(STAGING)
        .tempdir_in(parent)?;
    let tree = staging.path().join("tree");
    fs_err::create_dir(&tree)?;
    for package in packages {
        let file = fetch(ctx, lookup, &helper, package, staging.path())
            .context(|| format!("fetching {} {}", package.package, package.version))?;
        let mut command = Command::new(&unpack);
        command.arg("--extract").arg(&file).arg(&tree);
        let done = process::capture(ctx, &mut command)?;
        if !done.status.success() {
            return Err(Error::environment(format!(
                "dpkg-deb could not unpack {}: {}",
                package.package,
                process::last_lines(&done.output, 3)
            )));
        }
    }
    fs_err::rename(&tree, &dir).context(|| format!("putting {} in place", dir.display()))?;
    Ok(dir)
}

/// The package file: from the cache, else from a mirror.
fn fetch(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    helper: &Path,
    package: &DebianPackage,
    staging: &Path,
) -> Result<PathBuf> {
    let kept = ctx.project.cache().join("downloads");
    let kept = kept.join(package.sha256.to_string());
    let name = package.path.rsplit('/').next().unwrap_or_default();
    for entry in std::fs::read_dir(&kept).into_iter().flatten().flatten() {
        if entry.path().is_file() && Digest::of_file(&entry.path())? == package.sha256 {
            return Ok(entry.path());
        }
    }
    let by_hand = format!("put the file {name} into {}", kept.display());
    if ctx.offline {
        return Err(Error::environment("not in the cache, and --offline was given").hint(by_hand));
    }
    let mirrors = mirrors(lookup);
    let file = staging.join(name);
    let mut last = "apt has no mirrors set up".to_owned();
    for mirror in &mirrors {
        let mut command = process::tied(helper, process::Signal::Term);
        command.arg("download-file");
        command.arg(format!("{}/{}", mirror.trim_end_matches('/'), package.path));
        command.arg(&file).arg(format!("SHA256:{}", package.sha256));
        let done = process::capture(ctx, &mut command)?;
        if done.status.success() && file.is_file() {
            let found = Digest::of_file(&file)?;
            if found != package.sha256 {
                return Err(Error::finding(format!(
                    "{name} has sha256 {found}, pinned is {}",
                    package.sha256
                )));
            }
            fs_err::create_dir_all(&kept)?;
            let target = kept.join(name);
            fs_err::rename(&file, &target)?;
            return Ok(target);
        }
        last = process::last_lines(&done.output, 3);
    }
    Err(Error::environment(format!("apt could not fetch it: {last}")).hint(by_hand))
}

/// The roots of the archives that apt is set up for, each once.
fn mirrors(lookup: &dyn Lookup) -> Vec<String> {
    let Some(apt) = lookup.find("apt-get") else {
        return Vec::new();
    };
    let args = ["indextargets", "--format", "$(SITE) $(REPO_URI)"];
    let text = lookup.output(&apt, &args).unwrap_or_default();
    let mut list: Vec<String> = Vec::new();
    for uri in text.lines().filter_map(|line| line.split(' ').nth(1)) {
        if uri.contains("://") && !list.iter().any(|known| known == uri) {
            list.push(uri.to_owned());
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::toy_ctx;

    fn package(name: &str) -> DebianPackage {
        DebianPackage {
            package: name.to_owned(),
            version: "1".to_owned(),
            path: format!("pool/main/{name}_1_all.deb"),
            sha256: Digest::of(name.as_bytes()),
        }
    }

    #[test]
    fn other_pins_are_another_folder() {
        let toy = toy_ctx();
        let one = folder(&toy.ctx, &[package("a")]);
        assert!(one.starts_with(toy.ctx.project.cache()));
        assert_ne!(one, folder(&toy.ctx, &[package("a"), package("b")]));
    }

    #[test]
    fn refusing_says_why_and_leaves_nothing() {
        let mut toy = toy_ctx();
        let all = [package("a")];
        let fails = |toy: &crate::build::testing::Toy, machine: &Fake| {
            let error = ensure(&toy.ctx, machine, &all, "headers are old").unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Environment);
            assert!(!folder(&toy.ctx, &all).exists());
            error
        };
        let error = fails(&toy, &Fake::complete());
        assert!(error.message().contains("a machine with apt"), "{error}");
        let machine = Fake::complete().with(HELPER, "").with("dpkg-deb", "");
        toy.ctx.offline = true;
        let error = fails(&toy, &machine);
        assert!(error.to_string().contains("fetching a 1"), "{error}");
        assert!(error.hints()[0].contains("a_1_all.deb"));
        toy.ctx.no_provision = true;
        assert!(fails(&toy, &machine).message().contains("--no-provision"));
    }

    #[test]
    fn mirrors_are_named_once() {
        let machine = Fake::complete().with(
            "apt-get",
            "s https://one.example/debian/\ns https://one.example/debian/\n\
             s https://two.example/x\nnonsense\n",
        );
        let wanted = ["https://one.example/debian/", "https://two.example/x"];
        assert_eq!(mirrors(&machine), wanted);
        assert!(mirrors(&Fake::default()).is_empty());
    }
}
