//! What a build for CUDA needs besides: a toolkit, a host compiler that it takes, and the GPUs that it
//! is for.
//!
//! A toolkit that is installed is taken; where there is none, a pinned one is unpacked into the cache. All that
//! is too old or too new is said before anything is compiled. No GPU and no driver are needed, unless the
//! build is for the GPUs of this machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::build::configure::{self, Request};
use crate::build::lookup::Lookup;
use crate::build::tools::{self, CompilerCommand, Program, Toolset};
use crate::build::{Build, Recipe, options};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Base, CudaArchs, CudaTools, Flavour, Variant, Version};

pub use images::Images;

pub mod driver;
pub mod fatbin;
pub mod images;
pub mod probe;
mod wheels;

/// Variables that name a toolkit.
const NAMED: [&str; 2] = ["CUDA_PATH", "CUDA_HOME"];
/// Variables that add to what nvcc is told; another value means another build.
const STEERING: [&str; 3] = ["CUDAFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS"];
/// Where a toolkit says which host compilers it takes.
const HOST_CONFIG: [&str; 3] = [
    "include/crt/host_config.h",
    "targets/x86_64-linux/include/crt/host_config.h",
    "targets/sbsa-linux/include/crt/host_config.h",
];
/// The option that names the GPUs.
pub const ARCHS: &str = "CMAKE_CUDA_ARCHITECTURES";

/// What is asked of a build for CUDA.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wish {
    /// The GPUs. Without any, those that its folder was last built for, else those of this machine.
    pub gpus: Option<GpuWish>,
    /// Whether only a part is to be compiled, to see whether all would be; see [`probe`].
    pub probe: bool,
}

/// The GPUs that a build is to be for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GpuWish {
    /// Those of this machine.
    Native,
    /// These.
    Of(CudaArchs),
}

impl std::str::FromStr for GpuWish {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.trim() {
            "native" => Ok(GpuWish::Native),
            text => text.parse().map(GpuWish::Of),
        }
    }
}

/// Reads what the user asks for: `native`, or architectures such as `90` or `80;90;120`.
pub fn wish(text: &str) -> Result<GpuWish> {
    text.parse().map_err(|what: String| {
        Error::usage(what).hint(
            "name some as CMake does: `90`, `80;90;120` (or with commas), `90-real`; or `native`",
        )
    })
}

/// Builds `flavour` of `base` for the GPUs that are wished for; see [`crate::build::ensure`].
pub fn ensure(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    base: &Base,
    flavour: Flavour,
    gpus: Option<GpuWish>,
    variant: Variant,
    force: bool,
) -> Result<Build> {
    let mut recipe = crate::build::recipe(ctx, base, flavour, options::CUDA)?;
    recipe.cuda.gpus = gpus;
    recipe.variant = variant;
    crate::build::build_with(ctx, lookup, &recipe, force)
}

/// The toolkit that a build uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CudaKit {
    /// The folder that has `bin/nvcc`.
    pub root: PathBuf,
    /// The compiler.
    pub nvcc: Program,
    /// All of `nvcc --version`: a toolkit that was replaced in place is another one.
    pub nvcc_text: String,
}

impl CudaKit {
    /// Finds or brings a toolkit, and says which GPUs `recipe` is then for. An error says what is
    /// missing, too old or too new, and what is needed.
    pub fn resolve(
        ctx: &Ctx,
        lookup: &dyn Lookup,
        tools: &Toolset,
        recipe: &Recipe,
    ) -> Result<(Self, CudaArchs)> {
        let wanted = tools::registry(ctx)?.cuda;
        if tools.cmake.version < wanted.cmake {
            return Err(Error::environment(format!(
                "CMake {} at {} is too old for a CUDA build: at least {} is needed",
                tools.cmake.version,
                tools.cmake.path.display(),
                wanted.cmake
            ))
            .hint("name a newer one with CMAKE"));
        }
        // What needs no toolkit comes first: it is no reason to fetch one.
        let (archs, driver) = match gpus(ctx, recipe) {
            GpuWish::Of(archs) => (archs, None),
            GpuWish::Native => {
                let found = driver::gpus(lookup).ok_or_else(no_gpu)?;
                (found.archs, Some(found.driver))
            }
        };
        let kit = match installed(lookup, &wanted)? {
            Some(kit) => kit,
            None => Self::at(
                lookup,
                &wheels::ensure(ctx, lookup, &wanted, &tools.cc.path)?,
            )?,
        };
        let version = &kit.nvcc.version;
        if *version < wanted.toolkit {
            return Err(Error::environment(format!(
                "the CUDA toolkit {version} at {} is too old: at least {} is needed",
                kit.root.display(),
                wanted.toolkit
            ))
            .hint("name a newer one with CUDA_PATH")
            .hint("where none is found (no CUDA_PATH, no nvcc on PATH), a pinned one is unpacked into the cache"));
        }
        if let Some(driver) = driver {
            driver::fits(&wanted, version, &driver)?;
        }
        kit.takes(lookup, &tools.cxx)?;
        kit.compiles_for(lookup, &archs)?;
        Ok((kit, archs))
    }

    /// The toolkit in `root`.
    fn at(lookup: &dyn Lookup, root: &Path) -> Result<Self> {
        let nvcc = root.join("bin/nvcc");
        let told = nvcc.to_str().and_then(|name| lookup.find(name));
        let text = told.and_then(|path| lookup.output(&path, &["--version"]));
        let version = text.as_deref().and_then(release);
        let (Some(text), Some(version)) = (text, version) else {
            return Err(Error::environment(format!(
                "{} is no CUDA compiler that tells its version",
                nvcc.display()
            ))
            .hint("name a whole toolkit with CUDA_PATH: the folder that has bin/nvcc"));
        };
        Ok(CudaKit {
            root: root.to_path_buf(),
            nvcc: Program {
                path: nvcc,
                version,
            },
            nvcc_text: text.trim().to_owned(),
        })
    }

    /// Fails where the host compiler is newer than what the toolkit takes, as its own header says it.
    fn takes(&self, lookup: &dyn Lookup, cxx: &CompilerCommand) -> Result<()> {
        let headers = HOST_CONFIG.iter().map(|name| self.root.join(name));
        let Some(text) = headers.filter_map(|file| lookup.text(&file)).next() else {
            return Ok(());
        };
        let (name, newest) = match tools::family(&cxx.version_text) {
            Some("GNU") => ("gcc", limit(&text, "gcc versions later than ", 0)),
            Some("Clang") => ("clang", limit(&text, "clang version must be less than ", 1)),
            _ => return Ok(()),
        };
        let found = Version::find(&cxx.version_text);
        let (Some(newest), Some(found)) = (newest, found) else {
            return Ok(());
        };
        // gcc 15.2 is no later than 15.
        let major = found.to_string();
        let major: u32 = major.split('.').next().unwrap_or("0").parse().unwrap_or(0);
        if major <= newest {
            return Ok(());
        }
        Err(Error::environment(format!(
            "the C++ compiler {} is too new for CUDA {}: version {found}, at most {name} {newest} \
             is taken",
            cxx.path.display(),
            self.nvcc.version
        ))
        .hint(match name {
            "gcc" => format!("name an older one: CC=gcc-{newest} CXX=g++-{newest}"),
            _ => format!("name an older one: CC=clang-{newest} CXX=clang++-{newest}"),
        })
        .hint("or a newer toolkit with CUDA_PATH"))
    }

    /// Fails where nvcc knows nothing of one of `archs`.
    fn compiles_for(&self, lookup: &dyn Lookup, archs: &CudaArchs) -> Result<()> {
        let text = lookup.output(&self.nvcc.path, &["--list-gpu-arch"]);
        let text = text.unwrap_or_default();
        let mut known: Vec<u32> = text
            .split_whitespace()
            .filter_map(|word| word.strip_prefix("compute_")?.parse().ok())
            .collect();
        known.sort_unstable();
        let unknown = archs.iter().find(|arch| !known.contains(&arch.number));
        match unknown {
            Some(arch) if !known.is_empty() => {
                let names: Vec<String> = known.iter().map(ToString::to_string).collect();
                Err(Error::usage(format!(
                    "CUDA {} does not compile for sm_{}",
                    self.nvcc.version,
                    arch.name()
                ))
                .hint(format!("it compiles for {}", names.join(", ")))
                .hint("name another toolkit with CUDA_PATH"))
            }
            _ => Ok(()),
        }
    }

    /// Adds to what CMake is asked for.
    pub fn ask(
        &self,
        request: &mut Request,
        lookup: &dyn Lookup,
        archs: &CudaArchs,
        dir: &Path,
    ) -> Result<()> {
        for name in STEERING {
            if let Some(value) = lookup.var(name) {
                request.env.insert(name.to_owned(), value);
            }
        }
        let cxx = &request.tools.cxx;
        let mut words: Vec<String> = Vec::new();
        // icecc sends sources to machines that have no toolkit.
        let launcher = request.tools.launcher.as_ref();
        let launcher = launcher.filter(|launcher| launcher.name() != "icecc");
        // nvcc hands all to the host compiler. ccache has files at relative paths by itself, and would
        // take this for a word that differs from folder to folder.
        if launcher.is_none_or(|launcher| launcher.name() != "ccache") {
            let dir = options::path_text(dir)?;
            // Two shells read it: that of Ninja, and that of nvcc.
            words.push(format!("\"-Xcompiler=-ffile-prefix-map=\\\"{dir}\\\"=..\""));
        }
        words.extend(cxx.args.iter().map(|word| format!("-Xcompiler={word}")));
        words.extend(lookup.var("CUDAFLAGS"));
        // Programs are linked where there may be no driver, so that nobody can say whether its library has
        // what the backend wants of it. Upstream's own images are linked so.
        let mut linking = vec!["-Wl,--allow-shlib-undefined".to_owned()];
        linking.extend(lookup.var("LDFLAGS"));
        for (name, value) in [
            ("CMAKE_CUDA_COMPILER", options::path_text(&self.nvcc.path)?),
            ("CMAKE_CUDA_HOST_COMPILER", options::path_text(&cxx.path)?),
            ("CMAKE_CUDA_FLAGS", words.join(" ")),
            (
                "CMAKE_CUDA_COMPILER_LAUNCHER",
                match launcher {
                    Some(launcher) => options::path_text(&launcher.path)?,
                    None => String::new(),
                },
            ),
            ("CMAKE_EXE_LINKER_FLAGS", linking.join(" ")),
            ("CUDAToolkit_ROOT", options::path_text(&self.root)?),
            (ARCHS, archs.to_string()),
        ] {
            request.flags.insert(name.to_owned(), value);
        }
        request.cuda = Some(self.clone());
        Ok(())
    }

    /// What the build manifest says of it.
    pub fn versions(&self) -> BTreeMap<String, String> {
        [(TOOLKIT.to_owned(), self.nvcc.version.to_string())].into()
    }
}

/// Name of the toolkit's version among those of a backend.
pub const TOOLKIT: &str = "cuda";

fn no_gpu() -> Error {
    Error::environment(
        "this machine has no GPU of NVIDIA's with a driver, so that `native` names no architecture",
    )
    .hint("name what the build is for: --arch 90 (H100), 80 (A100), 89 (L4, RTX 40), 120 (RTX 50)")
}

/// The GPUs that `recipe` is for: those that are asked for, else those that its folder was built for,
/// or that of the other flavour, else those of this machine.
fn gpus(ctx: &Ctx, recipe: &Recipe) -> GpuWish {
    if let Some(wish) = &recipe.cuda.gpus {
        return wish.clone();
    }
    let before = |flavour: Flavour| -> Option<CudaArchs> {
        let mut recipe = recipe.clone();
        recipe.flavour = flavour;
        let file = recipe.dir(ctx).join(configure::FILE);
        let old: Request = crate::model::read_json(&file).ok()?;
        old.flags.get(ARCHS)?.parse().ok()
    };
    let other = match recipe.flavour {
        Flavour::Vanilla => Flavour::Patched,
        Flavour::Patched => Flavour::Vanilla,
    };
    match before(recipe.flavour).or_else(|| before(other)) {
        Some(archs) => GpuWish::Of(archs),
        None => GpuWish::Native,
    }
}

/// The installed toolkit: that of the environment, else that of `nvcc` on `PATH`, else that of a usual
/// folder.
fn installed(lookup: &dyn Lookup, wanted: &CudaTools) -> Result<Option<CudaKit>> {
    for name in NAMED {
        if let Some(root) = lookup.var(name) {
            let kit = CudaKit::at(lookup, Path::new(&root));
            return kit
                .map(Some)
                .map_err(|error| error.context(format!("{name} is {root}")));
        }
    }
    let of_path = lookup.find("nvcc").map(|path| real(&path));
    let root = of_path.as_deref().and_then(|path| path.parent()?.parent());
    let folders = wanted.folders.iter().map(Path::new).filter(|folder| {
        let nvcc = folder.join("bin/nvcc");
        nvcc.to_str().and_then(|name| lookup.find(name)).is_some()
    });
    match root.into_iter().chain(folders).next() {
        Some(root) => CudaKit::at(lookup, root).map(Some),
        None => Ok(None),
    }
}

/// What a link to nvcc leads to; not what a compiler cache that passes for it leads to.
fn real(path: &Path) -> PathBuf {
    match path.canonicalize() {
        Ok(real) if real.file_name() == path.file_name() => real,
        _ => path.to_path_buf(),
    }
}

/// The version in `nvcc --version`: `release 13.0, V13.0.88`.
fn release(text: &str) -> Option<Version> {
    let (_, rest) = text.split_once("release ")?;
    let exact = rest.split_once(", V").and_then(|(_, rest)| {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.');
        rest[..end.unwrap_or(rest.len())].parse().ok()
    });
    exact.or_else(|| Version::find(rest))
}

/// The newest first number of a host compiler's version, from the words of the toolkit's header; `below` is
/// 1 where they name the first that is too new.
fn limit(text: &str, words: &str, below: u32) -> Option<u32> {
    let (_, rest) = text.split_once(words)?;
    let end = rest.find(|c: char| !c.is_ascii_digit())?;
    rest[..end].parse::<u32>().ok()?.checked_sub(below)
}

/// What of CUDA is there, in a few words; an error where a build for it could not be. Nothing is
/// brought.
pub fn survey(ctx: &Ctx, lookup: &dyn Lookup, wanted: &CudaTools) -> Result<String> {
    let kit = installed(lookup, wanted)?;
    let gpus = match driver::gpus(lookup) {
        Some(gpus) => format!("sm_{} with driver {}", gpus.archs, gpus.driver),
        None => "no GPU".to_owned(),
    };
    let kit = match kit {
        Some(kit) if kit.nvcc.version < wanted.toolkit => {
            return Err(Error::environment(format!(
                "toolkit {} is too old: at least {} is needed",
                kit.nvcc.version, wanted.toolkit
            ))
            .hint("name a newer one with CUDA_PATH"));
        }
        Some(kit) => format!("toolkit {}", kit.nvcc.version),
        None if wheels::folder(ctx, wanted).is_dir() => "a toolkit in the cache".to_owned(),
        None => "the next build unpacks a toolkit into the cache".to_owned(),
    };
    Ok(format!("{kit}, {gpus}"))
}

#[cfg(test)]
mod tests;
