//! Calling CMake: with which options, in which environment, and when again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};

use crate::build::Recipe;
use crate::build::cache::normalise;
use crate::build::cuda::CudaKit;
use crate::build::drift::Vocabulary;
use crate::build::ext::{self, Ext};
use crate::build::lookup::Lookup;
use crate::build::options::{self, compiler_list, path_text};
use crate::build::tools::Toolset;
use crate::build::vulkan::VulkanKit;
use crate::build::{processor, shaders};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Digest, Flavour};
use crate::process;

/// Variables by which a user steers compilers and CMake. They are left as they are, but another
/// value means another build.
const STEERING: [&str; 20] = [
    "CFLAGS",
    "CPPFLAGS",
    "CXXFLAGS",
    "LDFLAGS",
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "LIBRARY_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    "ASMFLAGS",
    "LD_RUN_PATH",
    "SDKROOT",
    "MACOSX_DEPLOYMENT_TARGET",
    "CMAKE_PREFIX_PATH",
    "CMAKE_INCLUDE_PATH",
    "CMAKE_LIBRARY_PATH",
    "CMAKE_TOOLCHAIN_FILE",
    "SOURCE_DATE_EPOCH",
];

/// Those of them that decide what an object is and that no command shows: not every compiler cache
/// knows of them.
const UNSEEN: [&str; 8] = [
    "CPATH",
    "C_INCLUDE_PATH",
    "CPLUS_INCLUDE_PATH",
    "COMPILER_PATH",
    "GCC_EXEC_PREFIX",
    "CCC_OVERRIDE_OPTIONS",
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
];

/// Everything that decides what CMake does; kept as `<build>/configure.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request {
    /// Version of this format; 1.
    pub schema: u32,
    /// Tools with their versions.
    pub tools: Toolset,
    /// What the compiler makes of `-march=native` here.
    pub host: Digest,
    /// Variables that steer compilers, where set.
    pub env: BTreeMap<String, String>,
    /// Options given with `-D`.
    pub flags: BTreeMap<String, String>,
    /// Digest over the paths of the source files.
    pub paths: Digest,
    /// What of Vulkan is used, in a build for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulkan: Option<VulkanKit>,
    /// What of CUDA is used, in a build for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cuda: Option<CudaKit>,
}

/// What has to be done before Ninja may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Need {
    /// Nothing.
    Nothing,
    /// Call CMake; what is built already stays.
    Configure,
    /// Remove all that was built, for this reason, and call CMake.
    Scratch(String),
}

impl Request {
    /// What is to be asked of CMake for `recipe`, of a tree with build files that use these names and
    /// with files at these paths.
    pub fn new(
        ctx: &Ctx,
        lookup: &dyn Lookup,
        recipe: &Recipe,
        tools: &Toolset,
        ext: Option<&Ext>,
        vulkan: Option<&VulkanKit>,
        (vocabulary, paths): (&Vocabulary, Digest),
    ) -> Result<Self> {
        let dir = recipe.dir(ctx);
        let mut flags: BTreeMap<String, String> = BTreeMap::new();
        let mut set = |name: &str, value: String| {
            flags.insert(name.to_owned(), value);
        };
        let own = options::of(&recipe.backend, recipe.variant)?;
        for (name, value) in own {
            set(&name, value);
        }
        set("CMAKE_C_COMPILER", compiler_list(&tools.cc));
        set("CMAKE_CXX_COMPILER", compiler_list(&tools.cxx));
        set("CMAKE_MAKE_PROGRAM", path_text(&tools.ninja.path)?);
        for language in ["C", "CXX"] {
            // What compilers embed of paths is then the same in every folder, and the same
            // with a compiler cache that works on relative paths.
            let mut text = format!("-ffile-prefix-map=\"{}\"=..", path_text(&dir)?);
            text.push_str(&options::compile_flags(recipe.variant.profile));
            for var in [format!("{language}FLAGS"), "CPPFLAGS".to_owned()] {
                if let Some(more) = lookup.var(&var) {
                    text.push(' ');
                    text.push_str(&more);
                }
            }
            set(&format!("CMAKE_{language}_FLAGS"), text);
            let launcher = match &tools.launcher {
                Some(launcher) => path_text(&launcher.path)?,
                None => String::new(),
            };
            set(&format!("CMAKE_{language}_COMPILER_LAUNCHER"), launcher);
        }
        // A tree without history cannot tell its version, and CMake would take that of an
        // enclosing repository: ours. Without a git program, upstream uses what is set here.
        let commit: String = recipe.commit.chars().take(9).collect();
        let commit = if commit.is_empty() {
            "unknown".to_owned()
        } else {
            commit
        };
        set("LLAMA_BUILD_COMMIT", commit);
        set("LLAMA_BUILD_NUMBER", recipe.build_number.to_string());
        set("GIT_EXE", "OFF".to_owned());
        set("GIT_EXECUTABLE", "OFF".to_owned());
        if let Some(ext) = ext {
            set(ext::LIB_FLAG, path_text(&ext.lib)?);
            set(ext::INCLUDE_FLAG, path_text(&ext.include)?);
        }
        if let Some(kit) = vulkan {
            for (name, path) in kit.flags(&shaders::script(&dir)) {
                set(name, path_text(&path)?);
            }
        }
        flags.retain(|name, _| vocabulary.wants(name));
        let env = STEERING
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), lookup.var(name)?)));
        Ok(Request {
            schema: 1,
            tools: tools.clone(),
            host: processor::here(lookup, &tools.cc.path),
            env: env.collect(),
            flags,
            paths,
            vulkan: vulkan.cloned(),
            cuda: None,
        })
    }

    /// What was asked for, without the compilers: CMake splits them into a path and its arguments.
    pub fn asked(&self) -> BTreeMap<String, String> {
        let mut asked = self.flags.clone();
        for language in ["C", "CXX"] {
            asked.remove(&format!("CMAKE_{language}_COMPILER"));
        }
        asked
    }

    /// The variables that steer compilers, free of paths of this checkout.
    pub fn variables(&self, places: &[(String, &str)]) -> BTreeMap<String, String> {
        let env = self.env.iter();
        env.map(|(name, value)| (name.clone(), normalise(value, places)))
            .collect()
    }

    /// What decides an object and is in no command: the processor, since `-march=native` stands
    /// for it, and variables. Compiler caches make it a part of their keys.
    fn unseen(&self) -> String {
        let mut text = format!("{}\n", self.host);
        let env = self.env.iter();
        for (name, value) in env.filter(|(name, _)| UNSEEN.contains(&name.as_str())) {
            text.push_str(&format!("{name}={value}\n"));
        }
        text
    }

    /// What has to be done in `dir`, given what was asked there before.
    pub fn need(&self, dir: &Path) -> Need {
        let out = dir.join("out");
        if !out.exists() {
            return Need::Configure;
        }
        let mut old: Request = match crate::model::read_json(&dir.join(FILE)) {
            Ok(old) => old,
            Err(_) => return Need::Scratch("its last configuration is not known".to_owned()),
        };
        // Ninja knows commands, not what stands behind the names in them.
        for (what, same) in [
            (
                "the C compiler",
                !self.tools.cc.is_another_than(&old.tools.cc),
            ),
            (
                "the C++ compiler",
                !self.tools.cxx.is_another_than(&old.tools.cxx),
            ),
            ("what Vulkan is built with", old.vulkan == self.vulkan),
            ("the CUDA toolkit", old.cuda == self.cuda),
            ("the processor", old.host == self.host),
            ("the environment of the compilers", old.env == self.env),
        ] {
            if !same {
                return Need::Scratch(format!("{what} is another than before"));
            }
        }
        // They are those that were used, and which files they are need not be known.
        old.tools.cc = self.tools.cc.clone();
        old.tools.cxx = self.tools.cxx.clone();
        let whole = ["build.ninja", "CMakeCache.txt"]
            .iter()
            .all(|name| out.join(name).is_file());
        if old == *self && whole {
            Need::Nothing
        } else {
            Need::Configure
        }
    }

    /// Writes down what nobody had looked at when CMake was called, and what makes no other build.
    pub fn note(&self, dir: &Path) -> Result<()> {
        let file = dir.join(FILE);
        let new = crate::model::json_bytes(self)?;
        match std::fs::read(&file) {
            Ok(old) if old == new => {}
            _ => crate::model::write_atomic(&file, &new)?,
        }
        self.write_unseen(dir)
    }

    /// Writes what is part of every compiler cache's keys.
    fn write_unseen(&self, dir: &Path) -> Result<()> {
        let (file, text) = (dir.join(HOST_FILE), self.unseen());
        match std::fs::read(&file) {
            Ok(old) if old == text.as_bytes() => Ok(()),
            _ => crate::model::write_atomic(&file, text.as_bytes()),
        }
    }

    /// Environment of CMake and Ninja: compiler caches work on paths relative to the build
    /// folder, which are the same for all of them, and do not share what `-march=native` gave
    /// on another processor. All else is the user's.
    pub fn apply_env(&self, dir: &Path, command: &mut Command) {
        let mut ceilings = vec![dir.to_path_buf()];
        if let Ok(source) = std::fs::canonicalize(dir.join("src")) {
            ceilings.extend(source.parent().map(Path::to_path_buf));
        }
        let mut extra = vec![dir.join(HOST_FILE)];
        if let Some(more) = std::env::var_os("CCACHE_EXTRAFILES") {
            extra.extend(std::env::split_paths(&more));
        }
        for (name, list) in [
            ("GIT_CEILING_DIRECTORIES", ceilings),
            ("CCACHE_EXTRAFILES", extra),
        ] {
            // It cannot be joined where a path holds the separator: then it is left out.
            if let Ok(list) = std::env::join_paths(list) {
                command.env(name, list);
            }
        }
        if self.vulkan.is_some() {
            // The backend builds a program of its own with a CMake of its own, which is told nothing.
            self.nested_env(command);
        }
        // sccache has words for keys of compilers for C, and takes `-march=native` for the same everywhere.
        let mut words = vec![Digest::of(self.unseen().as_bytes()).to_string()];
        words.extend(std::env::var(SCCACHE_WORDS).ok());
        command
            .env(SCCACHE_WORDS, words.join(" "))
            .env("CCACHE_BASEDIR", dir)
            .env("CCACHE_NOHASHDIR", "1")
            // Nothing that changes an object may be left out of its key, whatever the user's settings say.
            .env("CCACHE_COMPILERCHECK", "mtime")
            .env("CCACHE_IGNOREOPTIONS", "")
            .env("CCACHE_SLOPPINESS", "")
            .env("NINJA_STATUS", crate::build::ninja::STATUS)
            .env_remove("CCACHE_HASHDIR")
            .env_remove("MAKEFLAGS")
            .env_remove("VERBOSE")
            .env_remove("DESTDIR");
    }

    /// The tools of this build for a CMake that is called by it.
    fn nested_env(&self, command: &mut Command) {
        let mut folders: Vec<PathBuf> = Vec::new();
        folders.extend(self.tools.ninja.path.parent().map(Path::to_path_buf));
        if let Some(path) = std::env::var_os("PATH") {
            folders.extend(std::env::split_paths(&path));
        }
        if let Ok(path) = std::env::join_paths(folders) {
            command.env("PATH", path);
        }
        for (language, var, compiler) in
            [("C", "CC", &self.tools.cc), ("CXX", "CXX", &self.tools.cxx)]
        {
            let words = std::iter::once(compiler.path.display().to_string());
            let words: Vec<String> = words.chain(compiler.args.iter().cloned()).collect();
            command.env(var, words.join(" "));
            if let Some(launcher) = &self.tools.launcher {
                let name = format!("CMAKE_{language}_COMPILER_LAUNCHER");
                command.env(name, &launcher.path);
            }
        }
    }

    /// Calls CMake in `dir`. What an earlier call left in the cache is forgotten, objects stay.
    pub fn run(&self, ctx: &Ctx, dir: &Path, recipe: &Recipe) -> Result<()> {
        let out = dir.join("out");
        // CMake writes build.ninja last: without it, nothing counts as configured.
        remove(&out.join("build.ninja"))?;
        remove(&out.join("CMakeCache.txt"))?;
        if let Err(error) = std::fs::remove_dir_all(out.join("CMakeFiles"))
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).context(|| format!("clearing {}", out.display()));
        }
        crate::model::write_json(&dir.join(FILE), self)?;
        self.write_unseen(dir)?;
        let mut command = process::tied(&self.tools.cmake.path, process::Signal::Term);
        command.arg("-S").arg(dir.join("src")).arg("-B").arg(&out);
        command.args(["-G", "Ninja", "-Wno-dev"]);
        for (name, value) in &self.flags {
            command.arg(format!("-D{name}={value}"));
        }
        self.apply_env(dir, &mut command);
        let task = ctx
            .sink
            .task(&format!("configuring {}", recipe.name()), None);
        let done = process::capture(ctx, &mut command)?;
        fs_err::write(dir.join(LOG), &done.output)?;
        if !done.status.success() {
            return Err(failure(&done.output, recipe.flavour)
                .hint(format!(
                    "the whole output is in {}",
                    ctx.project.show(&dir.join(LOG))
                ))
                .context(format!("configuring {}", recipe.name())));
        }
        task.finish("done");
        Ok(())
    }
}

/// Name of the file that holds the [`Request`].
pub(super) const FILE: &str = "configure.json";
/// Name of the file whose content is part of every compiler cache key.
const HOST_FILE: &str = "host.txt";
/// The variable of sccache's that is part of its keys for C and C++.
const SCCACHE_WORDS: &str = "SCCACHE_C_CUSTOM_CACHE_BUSTER";
/// CMake's output.
const LOG: &str = "configure.log";

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}

/// The error of a CMake run that failed: from the first `CMake Error` on.
fn failure(output: &str, flavour: Flavour) -> Error {
    let lines: Vec<&str> = output.lines().collect();
    let first = lines
        .iter()
        .position(|line| line.starts_with("CMake Error"))
        .unwrap_or(lines.len().saturating_sub(30));
    let shown: Vec<&str> = lines[first..].iter().take(30).copied().collect();
    let message = format!("cmake failed:\n{}", shown.join("\n").trim_end());
    if output.contains("No space left on device") {
        return Error::environment(message)
            .hint("the disk is full: free some space and run the same command again");
    }
    if output.contains("is not able to compile a simple test program") {
        return Error::environment(message).hint(
            "the compiler is there and does not work: its headers, libraries or linker are \
             missing; on Debian and Ubuntu: sudo apt-get install build-essential",
        );
    }
    Error::new(
        match flavour {
            Flavour::Vanilla => crate::Kind::Environment,
            Flavour::Patched => crate::Kind::Finding,
        },
        message,
    )
}

/// Removes all that was built in `dir`.
pub fn scratch(dir: &Path) -> Result<()> {
    for path in [dir.join("out"), dir.join(FILE)] {
        let removed = if path.is_dir() {
            std::fs::remove_dir_all(&path)
        } else {
            std::fs::remove_file(&path)
        };
        match removed {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(error).context(|| format!("removing {}", path.display()));
            }
            _ => {}
        }
    }
    Ok(())
}

#[cfg(test)]
pub(super) mod tests;
