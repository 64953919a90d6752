//! What CMake is asked for: the options of every build, those of a backend and those of a variant,
//! and their text.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::build::tools::CompilerCommand;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Libraries, Processors, Profile, Variant};

/// Options of every build.
///
/// `GGML_NATIVE` stays as upstream has it, on: gates compare builds on the machine that runs
/// them, and speed is judged on what that machine can do. A build folder or compiler cache that
/// reaches another kind of processor is not used there; see
/// [`Request::host`](super::configure::Request::host).
const FLAGS: [(&str, &str); 11] = [
    ("BUILD_SHARED_LIBS", "ON"),
    // Programs find their libraries beside them, wherever the folder is moved to, and the
    // folder's path is not in the files.
    ("CMAKE_BUILD_RPATH_USE_ORIGIN", "ON"),
    ("CMAKE_BUILD_TYPE", "Release"),
    ("CMAKE_EXPORT_COMPILE_COMMANDS", "ON"),
    // We choose the compiler cache.
    ("GGML_CCACHE", "OFF"),
    ("LLAMA_BUILD_EXAMPLES", "OFF"),
    ("LLAMA_BUILD_TESTS", "OFF"),
    // No web UI: building it needs npm, and the prebuilt one is downloaded.
    ("LLAMA_BUILD_UI", "OFF"),
    ("LLAMA_USE_PREBUILT_UI", "OFF"),
    // Nothing under test talks to the network; trees of before the option's retirement link
    // libcurl otherwise.
    ("LLAMA_CURL", "OFF"),
    ("LLAMA_OPENSSL", "OFF"),
];

/// Options that trees of some time do not have: they are asked for where a tree has them.
pub const WHERE_KNOWN: [&str; 11] = [
    "GGML_CCACHE",
    "GIT_EXE",
    "GIT_EXECUTABLE",
    "LLAMA_BUILD_COMMIT",
    "LLAMA_BUILD_EXAMPLES",
    "LLAMA_BUILD_NUMBER",
    "LLAMA_BUILD_TESTS",
    "LLAMA_BUILD_UI",
    "LLAMA_CURL",
    "LLAMA_OPENSSL",
    "LLAMA_USE_PREBUILT_UI",
];

/// Backends and the options that they add.
const BACKENDS: [(&str, &[(&str, &str)]); 3] = [
    ("cpu", &[]),
    (VULKAN, &[("GGML_VULKAN", "ON")]),
    (CUDA, &[("GGML_CUDA", "ON")]),
];

/// The backend that [`VulkanKit`](super::vulkan::VulkanKit) is for.
pub const VULKAN: &str = "vulkan";
/// The backend that [`CudaKit`](super::cuda::CudaKit) is for.
pub const CUDA: &str = "cuda";

/// The options of `backend`; an unknown one is a usage error.
pub fn backend(name: &str) -> Result<&'static [(&'static str, &'static str)]> {
    let known = BACKENDS.iter().find(|(known, _)| *known == name);
    known.map(|(_, flags)| *flags).ok_or_else(|| {
        let names = BACKENDS.iter().map(|(name, _)| *name);
        Error::usage(format!("unknown backend `{name}`"))
            .hint(crate::project::suggest(name, names, "backends"))
    })
}

/// All options that `backend` and `variant` ask for.
pub fn of(backend_name: &str, variant: Variant) -> Result<BTreeMap<String, String>> {
    let mut options: BTreeMap<String, String> = BTreeMap::new();
    let mut set = |name: &str, value: &str| {
        options.insert(name.to_owned(), value.to_owned());
    };
    for (name, value) in FLAGS.iter().chain(backend(backend_name)?) {
        set(name, value);
    }
    if backend_name == CUDA
        && let Some(name) = variant.profile.sanitizer()
    {
        return Err(Error::usage(format!(
            "the profile {} is not for CUDA: nvcc does not take -fsanitize={name}",
            variant.profile
        ))
        .hint("leave out --profile, or build for another backend: --backend cpu"));
    }
    match variant.profile {
        Profile::Release => {}
        Profile::Debug => set("CMAKE_BUILD_TYPE", "Debug"),
        Profile::Asan | Profile::Ubsan => {
            set("CMAKE_BUILD_TYPE", "RelWithDebInfo");
            // Without NDEBUG: an assertion that fails is worth as much as a report.
            for language in ["C", "CXX"] {
                set(&format!("CMAKE_{language}_FLAGS_RELWITHDEBINFO"), "-O1 -g1");
            }
        }
    }
    variant.check()?;
    if variant.libraries == Libraries::Static {
        set("BUILD_SHARED_LIBS", "OFF");
    }
    if variant.processors == Processors::All {
        set("GGML_NATIVE", "OFF");
        set("GGML_BACKEND_DL", "ON");
        set("GGML_CPU_ALL_VARIANTS", "ON");
    }
    Ok(options)
}

/// What compilers and linkers are given for a profile, after the path map, each after a blank.
///
/// Not by upstream's own options: they are two for each sanitizer, of which one does not reach
/// ggml, and leave out what lies in `vendor/`.
pub fn compile_flags(profile: Profile) -> String {
    match profile.sanitizer() {
        None => String::new(),
        // What is reported ends the program, whatever the environment says.
        Some(name) => {
            format!(" -fsanitize={name} -fno-sanitize-recover={name} -fno-omit-frame-pointer")
        }
    }
}

/// A compiler in the form that CMake takes: path and arguments as a list.
pub fn compiler_list(compiler: &CompilerCommand) -> String {
    let path = compiler.path.display().to_string();
    std::iter::once(path)
        .chain(compiler.args.iter().cloned())
        .collect::<Vec<_>>()
        .join(";")
}

/// A path as text for CMake, which cannot have quotes and separators of its own in it.
pub fn path_text(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) if !text.contains(['"', ';', '$', '\\', '\n']) => Ok(text.to_owned()),
        _ => Err(Error::usage(format!(
            "{} cannot be a build folder or a tool of one: CMake does not take such a path",
            path.display()
        ))
        .hint("move the checkout to a path without quotes, semicolons, dollars, backslashes")),
    }
}

/// Paths that stand in cached values and commands, with the names that replace them.
pub fn places(ctx: &Ctx, dir: &Path) -> Vec<(String, &'static str)> {
    let text = |path: PathBuf| path.display().to_string();
    vec![
        (text(dir.to_path_buf()), "<build>"),
        (text(ctx.project.root().to_path_buf()), "<checkout>"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_backends_are_usage_errors() {
        let error = backend("cpuu").unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
        assert_eq!(error.hints(), ["did you mean `cpu`?"]);
    }

    #[test]
    fn a_variant_changes_what_it_is_about_and_no_more() {
        let plain = of("cpu", Variant::default()).unwrap();
        assert_eq!(plain["CMAKE_BUILD_TYPE"], "Release");
        assert_eq!(compile_flags(Profile::Release), "");
        let differs = |variant| -> Vec<String> {
            let other = of("cpu", variant).unwrap();
            let new = other.into_iter().filter(|(k, v)| plain.get(k) != Some(v));
            new.map(|(name, value)| format!("{name}={value}")).collect()
        };
        assert_eq!(
            differs(Variant::of(Profile::Asan)),
            [
                "CMAKE_BUILD_TYPE=RelWithDebInfo",
                "CMAKE_CXX_FLAGS_RELWITHDEBINFO=-O1 -g1",
                "CMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g1"
            ]
        );
        let mut variant = Variant {
            processors: Processors::All,
            ..Variant::default()
        };
        assert_eq!(
            differs(variant),
            [
                "GGML_BACKEND_DL=ON",
                "GGML_CPU_ALL_VARIANTS=ON",
                "GGML_NATIVE=OFF"
            ]
        );
        variant.libraries = Libraries::Static;
        assert_eq!(of("cpu", variant).unwrap_err().kind(), crate::Kind::Usage);
        variant.processors = Processors::Native;
        assert_eq!(differs(variant), ["BUILD_SHARED_LIBS=OFF"]);
        // Its commands would lack the words, which is found at the end of an hour.
        for profile in Profile::ALL {
            let known = of(CUDA, Variant::of(profile)).map_err(|error| error.kind());
            let is_refused = profile.sanitizer().is_some();
            assert_eq!(known.is_err(), is_refused, "{profile}");
            assert!(!is_refused || known == Err(crate::Kind::Usage));
        }
    }

    #[test]
    fn odd_paths_are_refused() {
        assert!(path_text(Path::new("/a b/c")).is_ok());
        assert!(path_text(Path::new("/a;b")).is_err());
    }
}
