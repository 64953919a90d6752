//! Compiled shaders, kept between builds.
//!
//! The Vulkan backend compiles some two thousand shaders, each in a call of glslc, which no compiler
//! cache knows. A small script is called in its place, and keeps what it gave by its words and by
//! the shader; the folder that it is kept in is named by what else decides: the compiler, and the
//! files that shaders include. So the patched build finds what vanilla compiled, and another
//! checkout what the first one did.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::build::lookup::Lookup;
use crate::build::vulkan::VulkanKit;
use crate::ctx::Ctx;
use crate::error::{Result, ResultExt};
use crate::model::Digest;
use crate::tree::TreeManifest;

/// Names the folder to the script.
pub const VAR: &str = "LLAMA_PATCHSET_SHADERS";
/// The script.
const SCRIPT: &str = include_str!("glslc.sh");
/// Where upstream has the shaders.
const SHADERS: &str = "ggml/src/ggml-vulkan/vulkan-shaders/";
/// Folders that are kept: other compilers and other bases come and go.
const KEPT: usize = 6;

/// Where a build folder has the script.
pub fn script(dir: &Path) -> PathBuf {
    dir.join("tools/glslc")
}

/// Puts the script into the build folder `dir`, and returns its path.
pub fn install(dir: &Path, kit: &VulkanKit) -> Result<PathBuf> {
    use std::os::unix::fs::PermissionsExt;
    let file = script(dir);
    let compiler = kit.glslc.path.to_string_lossy().replace('\'', "'\\''");
    let text = SCRIPT.replace("@GLSLC@", &format!("'{compiler}'"));
    if fs_err::read_to_string(&file).is_ok_and(|old| old == text) {
        return Ok(file);
    }
    fs_err::create_dir_all(dir.join("tools"))?;
    let mode = std::fs::Permissions::from_mode(0o755);
    let mut new = tempfile::NamedTempFile::new_in(dir.join("tools"))?;
    new.write_all(text.as_bytes())?;
    new.as_file().set_permissions(mode)?;
    new.persist(&file).map_err(|error| error.error)?;
    Ok(file)
}

/// The folder for what is compiled of `sources` by the compiler of `kit`; `None` where the script
/// could not use it.
pub fn folder(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    kit: &VulkanKit,
    sources: &TreeManifest,
) -> Result<Option<PathBuf>> {
    if lookup.find("sha256sum").is_none() {
        return Ok(None);
    }
    let all = ctx.project.cache().join("shaders");
    let dir = all.join(key(kit, sources)?.short());
    fs_err::create_dir_all(&dir)?;
    // When it was last used.
    fs_err::File::open(&dir)?
        .set_modified(SystemTime::now())
        .context(|| format!("marking {}", dir.display()))?;
    prune(&all)?;
    Ok(Some(dir))
}

/// What decides of every shader besides its own text and the words of the call.
fn key(kit: &VulkanKit, sources: &TreeManifest) -> Result<Digest> {
    let compiler = Digest::of_file(&kit.glslc.path)?;
    let mut parts: Vec<Vec<u8>> = vec![
        compiler.bytes().to_vec(),
        kit.glslc_text.as_bytes().to_vec(),
        SCRIPT.as_bytes().to_vec(),
    ];
    for (path, entry) in sources.iter() {
        let name = path.as_str();
        if name.starts_with(SHADERS) && !name.ends_with(".comp") && !name.ends_with(".cpp") {
            parts.push(format!("{name} {entry:?}").into_bytes());
        }
    }
    Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
}

/// Removes those that were not used for longest.
fn prune(all: &Path) -> Result<()> {
    let mut dirs: Vec<(SystemTime, PathBuf)> = Vec::new();
    for entry in fs_err::read_dir(all)? {
        let entry = entry?;
        dirs.push((entry.metadata()?.modified()?, entry.path()));
    }
    dirs.sort();
    let old = dirs.len().saturating_sub(KEPT);
    for (_, dir) in dirs.into_iter().take(old) {
        match std::fs::remove_dir_all(&dir) {
            // Another run was at it.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            removed => removed.context(|| format!("removing {}", dir.display()))?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::{Machine, fake::Fake};
    use crate::build::testing::toy_ctx;
    use crate::build::tools::Program;
    use std::fs;
    use std::process::Command;

    /// A compiler that says how often it was called, and writes what it was given.
    fn kit(dir: &Path) -> VulkanKit {
        let compiler = dir.join("it's glslc");
        fs::write(
            &compiler,
            format!(
                "#!/bin/sh\necho x >>'{0}/calls'\n\
                 for word do case $word in *.comp) input=$word;; esac; done\n\
                 out= ; dep= ; while [ $# -gt 0 ]; do case $1 in -o) out=$2;; -MF) dep=$2;; \
                 -Dwarn) echo warned >&2;; -Dfail) exit 3;; esac; shift; done\n\
                 cat \"$input\" >\"$out\"\n\
                 [ -z \"$dep\" ] || echo \"$out: $input ${{input%/*}}/types.glsl\" >\"$dep\"\n",
                dir.display()
            ),
        )
        .unwrap();
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(&compiler, fs::Permissions::from_mode(0o755)).unwrap();
        VulkanKit {
            include: PathBuf::new(),
            headers: "1.4.309".parse().unwrap(),
            spirv: None,
            library: PathBuf::new(),
            glslc: Program {
                path: compiler,
                version: "2023.2".parse().unwrap(),
            },
            glslc_text: String::new(),
        }
    }

    struct Bench {
        dir: tempfile::TempDir,
        script: PathBuf,
    }

    impl Bench {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            for folder in ["kept", "one/src", "two/src"] {
                fs::create_dir_all(dir.path().join(folder)).unwrap();
            }
            for checkout in ["one", "two"] {
                fs::write(dir.path().join(checkout).join("src/a.comp"), "shader").unwrap();
            }
            let script = install(dir.path(), &kit(dir.path())).unwrap();
            Bench { dir, script }
        }

        fn calls(&self) -> usize {
            let text = fs::read_to_string(self.dir.path().join("calls")).unwrap_or_default();
            text.lines().count()
        }

        /// Compiles in `checkout`; gives the exit code, what was said, the shader and its
        /// dependencies.
        fn run(&self, checkout: &str, words: &[&str], kept: bool) -> (i32, String, String, String) {
            let at = self.dir.path().join(checkout);
            let (out, dep) = (at.join("a.spv"), at.join("a.d"));
            let mut command = Command::new(&self.script);
            command
                .arg("-fshader-stage=compute")
                .arg(at.join("src/a.comp"));
            command.arg("-o").arg(&out).args(words);
            command.args(["-MD", "-MF"]).arg(&dep);
            command.env_remove(VAR);
            if kept {
                command.env(VAR, self.dir.path().join("kept"));
            }
            let done = command.output().unwrap();
            let read = |path: &Path| fs::read_to_string(path).unwrap_or_default();
            let said = String::from_utf8(done.stderr).unwrap();
            let found = (done.status.code().unwrap(), said, read(&out), read(&dep));
            let _ = (fs::remove_file(&out), fs::remove_file(&dep));
            found
        }
    }

    #[test]
    fn an_equal_call_is_answered_from_what_is_kept() {
        let bench = Bench::new();
        let first = bench.run("one", &["-DA=1"], true);
        assert_eq!((first.0, &*first.1, &*first.2), (0, "", "shader"));
        assert!(first.3.contains("one/src/types.glsl"), "{}", first.3);
        let second = bench.run("two", &["-DA=1"], true);
        assert_eq!(bench.calls(), 1, "compiled again");
        assert_eq!((second.0, &*second.2), (0, "shader"));
        assert_eq!(second.3, first.3.replace("/one/", "/two/"));
    }

    #[test]
    fn other_words_and_another_shader_are_other_calls() {
        let bench = Bench::new();
        bench.run("one", &["-DA=1"], true);
        bench.run("one", &["-DA=2"], true);
        assert_eq!(bench.calls(), 2);
        fs::write(bench.dir.path().join("one/src/a.comp"), "other").unwrap();
        assert_eq!(bench.run("one", &["-DA=1"], true).2, "other");
        assert_eq!(bench.calls(), 3);
        // Without a folder nothing is kept and nothing found.
        assert_eq!(bench.run("two", &["-DA=1"], false).2, "shader");
        assert_eq!(bench.calls(), 4);
    }

    #[test]
    fn failures_and_warnings_are_said_each_time() {
        let bench = Bench::new();
        for calls in [1, 2] {
            let found = bench.run("one", &["-Dfail"], true);
            assert_eq!((found.0, bench.calls()), (3, calls));
        }
        for calls in [3, 4] {
            let found = bench.run("one", &["-Dwarn"], true);
            assert_eq!((found.0, &*found.1), (0, "warned\n"));
            assert_eq!(bench.calls(), calls);
        }
    }

    #[test]
    fn what_cannot_be_kept_fails_no_build() {
        let bench = Bench::new();
        fs::remove_dir(bench.dir.path().join("kept")).unwrap();
        for calls in [1, 2] {
            let found = bench.run("one", &[], true);
            assert_eq!((found.0, &*found.1, &*found.2), (0, "", "shader"));
            assert_eq!(bench.calls(), calls);
        }
    }

    #[test]
    fn the_folder_is_of_compiler_and_included_files() {
        let dir = tempfile::tempdir().unwrap();
        let shaders = dir.path().join(SHADERS);
        fs::create_dir_all(&shaders).unwrap();
        let kit = kit(dir.path());
        let now = || {
            let tree = TreeManifest::of_tree(dir.path(), |path| !path.starts_with("ggml/"));
            key(&kit, &tree.unwrap()).unwrap()
        };
        fs::write(shaders.join("a.comp"), "1").unwrap();
        fs::write(shaders.join("types.glsl"), "1").unwrap();
        let first = now();
        fs::write(shaders.join("a.comp"), "2").unwrap();
        assert_eq!(first, now(), "a shader is part of its own call");
        fs::write(shaders.join("types.glsl"), "2").unwrap();
        let second = now();
        assert_ne!(first, second);
        fs::write(&kit.glslc.path, "another").unwrap();
        assert_ne!(second, now());
    }

    #[test]
    fn few_folders_are_kept() {
        let toy = toy_ctx();
        let (tree, kit) = (TreeManifest::default(), kit(toy.dir.path()));
        let all = toy.ctx.project.cache().join("shaders");
        for at in 0..KEPT + 3 {
            fs::create_dir_all(all.join(format!("old-{at}"))).unwrap();
            let long_ago = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(at as u64);
            let old = fs::File::open(all.join(format!("old-{at}"))).unwrap();
            old.set_modified(long_ago).unwrap();
        }
        let dir = folder(&toy.ctx, &Machine, &kit, &tree).unwrap().unwrap();
        assert!(dir.is_dir());
        assert_eq!(fs::read_dir(&all).unwrap().count(), KEPT);
        assert!(!all.join("old-0").exists());
        assert_eq!(
            folder(&toy.ctx, &Fake::default(), &kit, &tree).unwrap(),
            None
        );
    }
}
