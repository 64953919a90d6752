//! The Rust static library that patched builds link.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::build::stamp;
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

/// The profile as `Cargo.toml` has it, and release's for what it does not say. It is given once more, so
/// that configuration files of cargo's cannot change it.
const SETTINGS: [(&str, &str); 10] = [
    ("opt-level", "3"),
    ("codegen-units", "1"),
    ("debug", "false"),
    ("debug-assertions", "false"),
    ("overflow-checks", "false"),
    ("strip", "\"none\""),
    ("incremental", "false"),
    ("lto", "true"),
    ("panic", "\"abort\""),
    ("rpath", "false"),
];
/// Those at the beginning of them that can be set for one crate as well.
const OF_A_CRATE: usize = 6;

/// What a program calls before rustc, which may add what it likes; set to nothing, none is called.
const WRAPPERS: [&str; 2] = ["RUSTC_WRAPPER", "RUSTC_WORKSPACE_WRAPPER"];

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
        .env("CARGO_ENCODED_RUSTFLAGS", "")
        .env("CARGO_INCREMENTAL", "0");
    for name in WRAPPERS {
        command.env(name, "");
    }
    for (at, (name, value)) in SETTINGS.iter().enumerate() {
        let profile = format!("profile.{PROFILE}");
        command
            .arg("--config")
            .arg(format!("{profile}.{name}={value}"));
        if at < OF_A_CRATE {
            let of_crate = format!("{profile}.package.{CRATE}.{name}={value}");
            command.arg("--config").arg(of_crate);
        }
    }
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

/// The compiler that made the library of the build in `dir`, as the library says; nothing where it has none.
pub fn rustc_of(dir: &Path) -> Result<Option<String>> {
    match fs_err::read(dir.join("ext").join(LIBRARY)) {
        Ok(library) => Ok(rustc(&library)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The version of the compiler that made a library: `1.90.0 (1159e78c4 2025-09-14)`.
pub fn rustc(library: &[u8]) -> Option<String> {
    const MARK: &[u8] = b"rustc version ";
    let start = stamp::find(library, MARK, 0)? + MARK.len();
    let rest = library.get(start..)?;
    let end = rest
        .iter()
        .position(|byte| !matches!(byte, b' '..=b'~'))
        .unwrap_or(rest.len());
    let text = String::from_utf8_lossy(&rest[..end]);
    // What stands behind it is somebody else's.
    let end = text.find(')').map_or(text.len(), |at| at + 1);
    Some(text[..end].trim().to_owned()).filter(|text| !text.is_empty())
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
    use crate::build::testing::toy_ctx;

    /// A checkout with a crate of that name, which takes no second to compile.
    fn crate_in(root: &Path) {
        let put = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(
            "Cargo.toml",
            "[workspace]\nresolver = \"2\"\nmembers = [\"ggml-ext\"]\n\
             [profile.ext]\ninherits = \"release\"\npanic = \"abort\"\nlto = true\ncodegen-units = 1\n",
        );
        put(
            "ggml-ext/Cargo.toml",
            "[package]\nname = \"ggml-ext\"\nversion = \"0.1.0\"\nedition = \"2021\"\n\
             [lib]\ncrate-type = [\"staticlib\"]\n",
        );
        put(
            "ggml-ext/src/lib.rs",
            "#![no_std]\n#[panic_handler]\nfn end(_: &core::panic::PanicInfo) -> ! { loop {} }\n\
             #[no_mangle]\npub extern \"C\" fn triple(x: u32) -> u32 { x * 3 }\n",
        );
    }

    #[test]
    fn configuration_files_of_cargos_do_not_reach_the_library() {
        let toy = toy_ctx();
        crate_in(toy.root());
        let dir = toy.dir.path().join("built");
        std::fs::create_dir(&dir).unwrap();
        let library = || std::fs::read(ensure(&toy.ctx, &dir).unwrap().unwrap().lib).unwrap();
        let plain = library();
        let version = rustc_of(&dir).unwrap().unwrap();
        assert!(
            version.contains(" (") && version.ends_with(')'),
            "{version}"
        );
        let config = toy.root().join(".cargo/config.toml");
        std::fs::create_dir(config.parent().unwrap()).unwrap();
        for text in [
            "[build]\nrustc-wrapper = \"/nonexistent/wrapper\"\n",
            "[build]\nrustc-workspace-wrapper = \"/nonexistent/wrapper\"\n",
            "[build]\nrustflags = [\"-Cdebuginfo=2\"]\n",
            "[profile.ext]\nopt-level = 0\n",
            "[profile.ext]\noverflow-checks = true\n",
            "[profile.release]\ndebug = 2\n",
            "[profile.ext.package.ggml-ext]\nopt-level = 0\n",
            "[profile.ext]\nlto = false\n",
        ] {
            std::fs::write(&config, text).unwrap();
            assert!(library() == plain, "{text}");
        }
    }

    #[test]
    fn the_settings_are_those_of_the_profile() {
        let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml");
        let text = std::fs::read_to_string(file).unwrap();
        let table: toml::Table = toml::from_str(&text).unwrap();
        let profile = table["profile"][PROFILE].as_table().unwrap();
        assert_eq!(profile["inherits"].as_str(), Some("release"));
        for (name, value) in profile.iter().filter(|(name, _)| *name != "inherits") {
            let own = SETTINGS.iter().find(|(own, _)| own == name);
            assert_eq!(
                own.map(|(_, own)| *own),
                Some(&*value.to_string()),
                "{name}"
            );
        }
    }

    #[test]
    fn a_library_names_its_compiler() {
        let library = b"!<arch>\n\0.comment\0rustc version 1.90.0 (1159e78c4 2026)x\0";
        assert_eq!(rustc(library).as_deref(), Some("1.90.0 (1159e78c4 2026)"));
        assert_eq!(rustc(b"rustc version 1.90.0").as_deref(), Some("1.90.0"));
        assert_eq!(rustc(b"gcc 12"), None);
    }

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
