//! Whether a build for CUDA would succeed, in minutes instead of an hour.
//!
//! The tree is configured as for a whole build, in a folder of its own. Compiled are the sources that the
//! series touches, and two kernels, for the GPUs that are asked for; the kernels are linked with all
//! libraries of the backend, and what came out is looked at. What is compiled stays in the compiler
//! cache, so that a whole build finds it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::build::cache::Cache;
use crate::build::configure::{self, Need, Request};
use crate::build::cuda::{ARCHS, CudaKit, GpuWish, Images, images};
use crate::build::drift::Vocabulary;
use crate::build::lookup::Lookup;
use crate::build::source::Sources;
use crate::build::{commands, engine, ext, launcher, tools};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Base, CudaArchs, Flavour, Version};
use crate::process;

/// Kernels that drafting on a GPU needs, which compile fast.
const KERNELS: [&str; 2] = ["ggml-cuda/argmax.cu", "ggml-cuda/getrows.cu"];
/// Libraries of the backend, as CMake caches where it found them.
const LIBRARIES: [&str; 3] = [
    "CUDA_CUDART",
    "CUDA_cublas_LIBRARY",
    "CUDA_cuda_driver_LIBRARY",
];

/// What was tried.
#[derive(Clone, Debug, Serialize)]
pub struct Probe {
    /// Base id.
    pub base: String,
    /// Which tree it was.
    pub flavour: Flavour,
    /// The toolkit's version.
    pub toolkit: Version,
    /// The GPUs.
    pub archs: CudaArchs,
    /// Sources that the series touches, and that were compiled.
    pub touched: Vec<String>,
    /// Kernels that were compiled and linked.
    pub kernels: Vec<String>,
    /// The library that was made of them.
    pub library: PathBuf,
    /// What it holds for GPUs.
    pub images: Images,
}

/// One entry of `compile_commands.json`.
#[derive(Deserialize)]
struct Entry {
    file: String,
    command: String,
}

/// Configures `flavour` of `base`, compiles and links a part, and looks at it. What does not compile is an
/// error as for a whole build; code for other GPUs is a finding.
pub fn run(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    base: &Base,
    flavour: Flavour,
    gpus: Option<GpuWish>,
) -> Result<Probe> {
    let mut recipe = crate::build::recipe(ctx, base, flavour, crate::build::options::CUDA)?;
    recipe.cuda.gpus = gpus;
    recipe.cuda.probe = true;
    let tools = tools::resolve(ctx, lookup)?;
    let (kit, archs) = CudaKit::resolve(ctx, lookup, &tools, &recipe)?;
    let dir = recipe.dir(ctx);
    fs_err::create_dir_all(&dir)?;
    let _lock = crate::lock::file(ctx, &dir.join(".lock"))?;
    ext::link(&recipe.source, &dir.join("src"))?;
    let ext = match flavour {
        Flavour::Vanilla => None,
        Flavour::Patched => ext::ensure(ctx, &dir)?,
    };
    let sources = Sources::read(&recipe.source)?;
    engine::held(ctx, &recipe, &sources)?;
    let paths = sources.paths_digest();
    let names = Vocabulary::read(&recipe.source, &sources)?;
    let known = (&names, paths);
    let mut request = Request::new(ctx, lookup, &recipe, &tools, ext.as_ref(), None, known)?;
    kit.ask(&mut request, lookup, &archs, &dir)?;
    match request.need(&dir) {
        Need::Nothing => {}
        Need::Configure => engine::configure(ctx, &recipe, &request, &dir)?,
        Need::Scratch(_) => {
            configure::scratch(&dir)?;
            engine::configure(ctx, &recipe, &request, &dir)?;
        }
    }

    let pristine = crate::vendor::ensure(ctx, base)?.manifest;
    let is_touched = |path: &str| {
        let Ok(path) = path.parse() else {
            return false;
        };
        sources.manifest.get(&path) != pristine.get(&path)
    };
    let entries: Vec<Entry> = crate::model::read_json(&dir.join("out/compile_commands.json"))?;
    let source = format!("{}/", dir.join("src").display());
    let (mut touched, mut kernels, mut objects) = (Vec::new(), Vec::new(), Vec::new());
    recipe.targets.clear();
    for Entry { file, command } in &entries {
        let Some(path) = file.strip_prefix(&source) else {
            continue;
        };
        let words = commands::split(command);
        let object = words.iter().position(|word| word == "-o");
        let Some(object) = object.and_then(|at| words.get(at + 1)) else {
            continue;
        };
        if KERNELS.iter().any(|name| path.ends_with(name)) {
            kernels.push(path.to_owned());
            objects.push(dir.join("out").join(object));
        } else if is_touched(path) {
            touched.push(path.to_owned());
        } else {
            continue;
        }
        recipe.targets.push(object.clone());
    }
    if kernels.len() != KERNELS.len() {
        return Err(Error::finding(format!(
            "of the kernels {}, {} compiles {}",
            KERNELS.join(" and "),
            recipe.name(),
            if kernels.is_empty() { "none".to_owned() } else { kernels.join(" alone") }
        ))
        .hint("the tree is of another time: name kernels that it has in xtask/src/build/cuda/probe.rs"));
    }
    let watch = launcher::begin(ctx, lookup, request.tools.launcher.as_ref(), &dir)?;
    engine::compile(ctx, &recipe, &request, &dir, None, &watch)?;
    watch.end(ctx)?;
    let library = link(ctx, &request, &dir, &objects)?;
    let flags = [(ARCHS.to_owned(), archs.to_string())].into();
    let images = images::require(&library, &fs_err::read(&library)?, &flags)?;
    Ok(Probe {
        base: base.id.clone(),
        flavour,
        toolkit: kit.nvcc.version,
        archs,
        touched,
        kernels,
        images: images.unwrap_or_default(),
        library,
    })
}

/// Links the objects with all that the backend is linked with.
fn link(ctx: &Ctx, request: &Request, dir: &Path, objects: &[PathBuf]) -> Result<PathBuf> {
    let cached = Cache::read(&dir.join("out"))?;
    let library = dir.join("out/probe/libggml-cuda.so");
    if let Some(folder) = library.parent() {
        fs_err::create_dir_all(folder)?;
    }
    let cxx = &request.tools.cxx;
    let mut command = process::tied(&cxx.path, process::Signal::Term);
    command
        .args(&cxx.args)
        .arg("-shared")
        .arg("-o")
        .arg(&library);
    // Each is to be found, whether two kernels need it or not.
    command.args(objects).arg("-Wl,--no-as-needed");
    for name in LIBRARIES {
        let Some(path) = cached.get(name).filter(|path| Path::new(path).is_file()) else {
            return Err(Error::environment(format!(
                "CMake found no library for {name} in {}",
                cached.get("CUDAToolkit_ROOT").unwrap_or("the toolkit")
            ))
            .hint("name a whole toolkit with CUDA_PATH: it needs cudart, cublas and a stub of the driver"));
        };
        command.arg(path);
    }
    let done = process::capture(ctx, &mut command).context(|| "linking two kernels".to_owned())?;
    if done.status.success() {
        return Ok(library);
    }
    Err(Error::environment(format!(
        "linking two kernels failed: {}",
        process::last_lines(&done.output, 5)
    )))
}
