//! The Rust static library that patched builds link.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::Digest;
use crate::process;

/// Options by which CMake learns of the library; read by the overlay of the patch `ext-core`.
pub const LIB_FLAG: &str = "OPENCOTI_EXT_LIB";
/// See [`LIB_FLAG`].
pub const INCLUDE_FLAG: &str = "OPENCOTI_EXT_INCLUDE";

const CRATE: &str = "ggml-ext";
const LIBRARY: &str = "libggml_ext.a";
const PROFILE: &str = "ext";

/// The library and its header as one build folder sees them.
#[derive(Clone, Debug)]
pub struct Ext {
    /// `<build>/ext/libggml_ext.a`.
    pub lib: PathBuf,
    /// `<build>/ext/include`.
    pub include: PathBuf,
}

/// Builds the crate and puts library and header into `<dir>/ext`, where every build folder has
/// them at the same relative place, which compiler caches need. A checkout without the crate
/// has none.
pub fn ensure(ctx: &Ctx, dir: &Path) -> Result<Option<Ext>> {
    let root = ctx.project.root();
    if !root.join(CRATE).join("Cargo.toml").is_file() {
        return Ok(None);
    }
    let built = build(ctx)?;
    let ext = Ext {
        lib: dir.join("ext").join(LIBRARY),
        include: dir.join("ext/include"),
    };
    fs_err::create_dir_all(dir.join("ext"))?;
    // An equal file keeps its time stamp, so that nothing is linked again.
    let same = ext.lib.is_file() && Digest::of_file(&ext.lib)? == Digest::of_file(&built)?;
    if !same {
        crate::model::write_atomic(&ext.lib, &fs_err::read(&built)?)?;
    }
    link(&root.join(CRATE).join("include"), &ext.include)?;
    Ok(Some(ext))
}

fn build(ctx: &Ctx) -> Result<PathBuf> {
    let target = ctx.project.target().join("ext");
    // Under cargo this is the very cargo that runs us.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command
        .args(["build", "--quiet", "--color", "never", "--package", CRATE])
        .args(["--profile", PROFILE, "--jobs", &ctx.jobs.to_string()])
        .arg("--target-dir")
        .arg(&target)
        .current_dir(ctx.project.root())
        // A target of the user's would move the library to another folder.
        .env_remove("CARGO_BUILD_TARGET")
        // What the stamp says must be what was built: this, though empty, also overrides the flags of cargo's
        // configuration files.
        .env("CARGO_ENCODED_RUSTFLAGS", "");
    for (name, _) in std::env::vars_os() {
        if is_of_profile(&name.to_string_lossy()) {
            command.env_remove(name);
        }
    }
    if ctx.offline {
        command.arg("--offline");
    }
    let lib = target.join(PROFILE).join(LIBRARY);
    // A target in a configuration of the user's moves it too: an older one must not be taken for it.
    match fs_err::remove_file(&lib) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let done =
        process::capture(ctx, &mut command).context(|| format!("building the crate {CRATE}"))?;
    if !done.status.success() {
        return Err(Error::finding(format!(
            "the crate {CRATE} does not build:\n{}",
            process::last_lines(&done.output, 30)
        ))
        .hint(format!("cargo build -p {CRATE} --profile {PROFILE}")));
    }
    if !lib.is_file() {
        return Err(Error::environment(format!(
            "cargo built {CRATE} and left no {}",
            ctx.project.show(&lib)
        ))
        .hint("take `target` out of [build] in cargo's configuration: it moves what is built"));
    }
    Ok(lib)
}

/// Whether a variable would change the profile of the workspace that the library is built with.
fn is_of_profile(name: &str) -> bool {
    ["EXT", "RELEASE"]
        .iter()
        .any(|profile| name.starts_with(&format!("CARGO_PROFILE_{profile}_")))
}

/// Makes `link` a symbolic link to `target`, replacing another one in one step.
pub fn link(target: &Path, link: &Path) -> Result<()> {
    if std::fs::read_link(link).is_ok_and(|old| old == target) {
        return Ok(());
    }
    let name = link.file_name().unwrap_or_default().to_string_lossy();
    let temp = link.with_file_name(format!(".{name}.new"));
    match std::fs::remove_file(&temp) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    fs_err::os::unix::fs::symlink(target, &temp)?;
    fs_err::rename(&temp, link)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_made_and_moved() {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().join("src");
        for target in ["/one", "/one", "/two"] {
            link(Path::new(target), &at).unwrap();
            assert_eq!(std::fs::read_link(&at).unwrap(), Path::new(target));
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
        std::fs::create_dir(dir.path().join("folder")).unwrap();
        assert!(link(Path::new("/x"), &dir.path().join("folder")).is_err());
    }
}
