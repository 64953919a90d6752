//! What a build for Vulkan needs besides: headers, the loader, and a shader compiler.
//!
//! The system's are taken where they are new enough. Headers, which are text, are unpacked into the
//! cache where they are not. What is missing or too old is said before anything is compiled.

use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::build::debian;
use crate::build::lookup::Lookup;
use crate::build::packages::{Package, install_command};
use crate::build::tools::{self, Program, Toolset};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Toolchains, Version};

/// Folders that are searched for headers, besides those of the Vulkan SDK.
const INCLUDES: [&str; 2] = ["/usr/local/include", "/usr/include"];
/// The header that tells the version.
const CORE: &str = "vulkan/vulkan_core.h";
/// The C++ header that the backend includes.
const HPP: &str = "vulkan/vulkan.hpp";
/// What the backend reads shaders with.
const SPIRV: &str = "spirv/unified1/spirv.hpp";
/// Where the packages of the registry have CMake's file for the SPIR-V headers.
const SPIRV_CMAKE: &str = "usr/share/cmake/SPIRV-Headers";

/// Everything of Vulkan that a build uses.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VulkanKit {
    /// Folder with `vulkan/vulkan.hpp`.
    pub include: PathBuf,
    /// Version of the headers.
    pub headers: Version,
    /// Folder with CMake's file for the SPIR-V headers, where CMake would not find it.
    pub spirv: Option<PathBuf>,
    /// The loader.
    pub library: PathBuf,
    /// The shader compiler.
    pub glslc: Program,
    /// All of `glslc --version`: it names the libraries that compile.
    pub glslc_text: String,
}

impl VulkanKit {
    /// Finds all of it. An error says what is missing or too old, and what is needed.
    pub fn resolve(ctx: &Ctx, lookup: &dyn Lookup, tools: &Toolset) -> Result<Self> {
        let wanted = tools::registry(ctx)?;
        if tools.cmake.version < wanted.vulkan.cmake {
            return Err(too_old(
                "CMake",
                &tools.cmake.path,
                &tools.cmake.version,
                &wanted.vulkan.cmake,
            )
            .hint("name a newer one with CMAKE"));
        }
        let (glslc, glslc_text) = glslc(lookup, &wanted)?;
        let library = library(lookup, &tools.cc.path)?;
        let (include, headers, spirv) = headers(ctx, lookup, &wanted)?;
        Ok(VulkanKit {
            include,
            headers,
            spirv,
            library,
            glslc,
            glslc_text,
        })
    }

    /// What CMake is told of it; `glslc` is called in the shader compiler's place.
    pub fn flags(&self, glslc: &Path) -> Vec<(&'static str, PathBuf)> {
        let mut flags = vec![
            ("Vulkan_INCLUDE_DIR", self.include.clone()),
            ("Vulkan_LIBRARY", self.library.clone()),
            ("Vulkan_GLSLC_EXECUTABLE", glslc.to_path_buf()),
        ];
        if let Some(dir) = &self.spirv {
            flags.push(("SPIRV-Headers_DIR", dir.clone()));
        }
        flags
    }

    /// What the build manifest says of it.
    pub fn versions(&self) -> BTreeMap<String, String> {
        [
            ("glslc", self.glslc.version.to_string()),
            ("vulkan-headers", self.headers.to_string()),
        ]
        .map(|(name, version)| (name.to_owned(), version))
        .into()
    }
}

fn too_old(what: &str, path: &Path, found: &Version, needed: &Version) -> Error {
    Error::environment(format!(
        "{what} {found} at {} is too old for a Vulkan build: at least {needed} is needed",
        path.display()
    ))
}

/// The folder of a Vulkan SDK, where the user names one.
fn sdk(lookup: &dyn Lookup) -> Option<PathBuf> {
    lookup.var("VULKAN_SDK").map(PathBuf::from)
}

/// `GLSLC`, else that of the SDK, else that on `PATH`.
fn glslc(lookup: &dyn Lookup, wanted: &Toolchains) -> Result<(Program, String)> {
    let hint = || install_command(lookup, &[Package::Glslc]);
    let of_sdk = || lookup.find(sdk(lookup)?.join("bin/glslc").to_str()?);
    let path = match lookup.var("GLSLC") {
        Some(name) => lookup.find(&name),
        None => of_sdk().or_else(|| lookup.find("glslc")),
    };
    let Some(path) = path else {
        return Err(
            Error::environment("a Vulkan build needs glslc, which is not on PATH").hint(hint()),
        );
    };
    let text = lookup.output(&path, &["--version"]).unwrap_or_default();
    let Some(version) = Version::find(&text) else {
        return Err(
            Error::environment(format!("{} does not tell its version", path.display()))
                .hint(hint()),
        );
    };
    if version < wanted.vulkan.glslc {
        return Err(too_old("glslc", &path, &version, &wanted.vulkan.glslc)
            .hint("name a newer one with GLSLC, or a Vulkan SDK with VULKAN_SDK"));
    }
    Ok((Program { path, version }, text.trim().to_owned()))
}

/// The loader: that of the SDK, else the one that the compiler would link, else the one that is
/// there to be run, which links just as well.
fn library(lookup: &dyn Lookup, cc: &Path) -> Result<PathBuf> {
    let names = ["libvulkan.so", "libvulkan.so.1"];
    if let Some(sdk) = sdk(lookup) {
        let of_sdk = names.iter().map(|name| sdk.join("lib").join(name));
        if let Some(path) = of_sdk.into_iter().find(|path| lookup.is_file(path)) {
            return Ok(path);
        }
    }
    for name in names {
        let told = lookup.output(cc, &[&format!("-print-file-name={name}")]);
        let path = lexical(told.unwrap_or_default().trim());
        if path.is_absolute() && lookup.is_file(&path) {
            return Ok(path);
        }
    }
    Err(
        Error::environment("a Vulkan build needs the Vulkan loader, and there is no libvulkan.so")
            .hint(install_command(lookup, &[Package::VulkanLoader])),
    )
}

/// A path as CMake keeps it: without `..`.
fn lexical(path: &str) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in Path::new(path).components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            part => clean.push(part),
        }
    }
    clean
}

/// The system's headers where they will do: folder and version; else why not.
fn installed(
    lookup: &dyn Lookup,
    wanted: &Toolchains,
) -> std::result::Result<(PathBuf, Version), String> {
    let minimum = &wanted.vulkan.headers;
    let mut folders: Vec<PathBuf> = sdk(lookup)
        .map(|sdk| sdk.join("include"))
        .into_iter()
        .collect();
    folders.extend(INCLUDES.map(PathBuf::from));
    let found = folders
        .iter()
        .find_map(|dir| Some((dir.clone(), version(lookup, dir)?)));
    let has_spirv = folders.iter().any(|dir| lookup.is_file(&dir.join(SPIRV)));
    match found {
        Some((dir, version)) if version >= *minimum && has_spirv => Ok((dir, version)),
        Some((_, version)) if version >= *minimum => {
            Err("a Vulkan build needs SPIR-V headers, which are missing".to_owned())
        }
        Some((dir, version)) => Err(format!(
            "the Vulkan headers {version} in {} are too old: at least {minimum} is needed",
            dir.display()
        )),
        None => Err(format!(
            "a Vulkan build needs Vulkan headers, at least {minimum}, and none are installed"
        )),
    }
}

/// Headers: folder, version, and CMake's folder for the SPIR-V headers where it is not found by
/// itself.
fn headers(
    ctx: &Ctx,
    lookup: &dyn Lookup,
    wanted: &Toolchains,
) -> Result<(PathBuf, Version, Option<PathBuf>)> {
    let why = match installed(lookup, wanted) {
        Ok((dir, version)) => return Ok((dir, version, None)),
        Err(why) => why,
    };
    let minimum = &wanted.vulkan.headers;
    let bring = || -> Result<_> {
        let dir = debian::ensure(ctx, lookup, &wanted.vulkan.debian, &why)?;
        let include = dir.join("usr/include");
        match version(lookup, &include) {
            Some(version) if version >= *minimum => {
                Ok((include, version, Some(dir.join(SPIRV_CMAKE))))
            }
            _ => Err(Error::config(format!(
                "the packages that registry/toolchains.toml pins hold no Vulkan headers of at \
                 least {minimum}"
            ))
            .hint("mend the pins in [[vulkan.debian]]")),
        }
    };
    bring().map_err(|error| {
        let by_hand = install_command(lookup, &[Package::VulkanHeaders]);
        error
            .hint(format!("{by_hand} (if it has them new enough)"))
            .hint("or name a newer Vulkan SDK with VULKAN_SDK")
    })
}

/// What of Vulkan is there, in a few words; an error where a build for it could not be. Nothing is
/// brought.
pub fn survey(lookup: &dyn Lookup, wanted: &Toolchains, cc: &Path) -> Result<String> {
    let (glslc, _) = glslc(lookup, wanted)?;
    library(lookup, cc)?;
    let headers = match installed(lookup, wanted) {
        Ok((_, version)) => format!("headers {version}"),
        Err(_) => "headers are unpacked into the cache by the next build".to_owned(),
    };
    Ok(format!("glslc {}, {headers}", glslc.version))
}

/// The version of the headers in `dir`; `None` where there are none, or none for C++.
fn version(lookup: &dyn Lookup, dir: &Path) -> Option<Version> {
    if !lookup.is_file(&dir.join(HPP)) {
        return None;
    }
    let text = lookup.text(&dir.join(CORE))?;
    let define = |name: &str| {
        let start = format!("#define {name} ");
        text.lines().find_map(|line| line.strip_prefix(&*start))
    };
    let patch = define("VK_HEADER_VERSION")?.trim();
    let complete = define("VK_HEADER_VERSION_COMPLETE")?;
    let inside = complete.split_once('(')?.1.split(')').next()?;
    let parts: Vec<&str> = inside.split(',').map(str::trim).collect();
    // Variant, major, minor, patch; older ones have no variant.
    let [.., major, minor, _] = parts.as_slice() else {
        return None;
    };
    format!("{major}.{minor}.{patch}").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::toy_ctx;

    fn core(minor: u32, patch: u32) -> String {
        format!(
            "#define VK_HEADER_VERSION {patch}\n\
             #define VK_HEADER_VERSION_COMPLETE VK_MAKE_API_VERSION(0, 1, {minor}, \
             VK_HEADER_VERSION)\n"
        )
    }

    fn machine(minor: u32, patch: u32) -> Fake {
        Fake::complete()
            .with("glslc", "shaderc v2023.8 v2023.8\nspirv-tools v2024.1\n")
            // As compilers tell it.
            .with("cc", "/usr/lib/gcc/12/../../libvulkan.so\n")
            .file("/usr/lib/libvulkan.so", "")
            .file("/usr/include/vulkan/vulkan.hpp", "")
            .file("/usr/include/vulkan/vulkan_core.h", &core(minor, patch))
            .file("/usr/include/spirv/unified1/spirv.hpp", "")
    }

    fn resolve(machine: &Fake) -> Result<VulkanKit> {
        let mut toy = toy_ctx();
        toy.ctx.offline = true;
        let tools = tools::resolve(&toy.ctx, machine)?;
        VulkanKit::resolve(&toy.ctx, machine, &tools)
    }

    #[test]
    fn what_the_system_has_is_taken() {
        let kit = resolve(&machine(4, 309)).unwrap();
        assert_eq!(kit.headers.to_string(), "1.4.309");
        assert_eq!(kit.include, Path::new("/usr/include"));
        assert_eq!(kit.library, Path::new("/usr/lib/libvulkan.so"));
        assert_eq!(kit.spirv, None);
        let flags = kit.flags(Path::new("/b/glslc"));
        assert!(flags.contains(&("Vulkan_GLSLC_EXECUTABLE", PathBuf::from("/b/glslc"))));
        assert_eq!(kit.versions()["glslc"], "2023.8");
    }

    #[test]
    fn what_is_too_old_is_said_with_both_versions() {
        let error = resolve(&machine(3, 239)).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        for part in ["1.3.239", "/usr/include", "at least 1.3."] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        let old = machine(4, 309).with("glslc", "shaderc v2020.1\n");
        let error = resolve(&old).unwrap_err();
        for part in ["glslc 2020.1", "at least 2023.2"] {
            assert!(error.message().contains(part), "{part}: {error}");
        }
        let old = machine(4, 309).with("cmake", "cmake version 3.18.4");
        let error = resolve(&old).unwrap_err();
        assert!(error.message().contains("CMake 3.18.4"), "{error}");
    }

    #[test]
    fn what_is_missing_is_said_with_the_command_that_brings_it() {
        for (machine, what, hint) in [
            (machine(4, 309).without("glslc"), "glslc", "glslc"),
            (
                machine(4, 309).with("cc", "libvulkan.so\n"),
                "libvulkan.so",
                "libvulkan1",
            ),
        ] {
            let error = resolve(&machine).unwrap_err();
            assert_eq!(error.kind(), Kind::Environment);
            assert!(error.message().contains(what), "{error}");
            assert_eq!(error.hints()[0], format!("sudo apt-get install {hint}"));
        }
        let mut bare = machine(4, 309);
        bare.files.clear();
        let bare = bare.file("/usr/lib/libvulkan.so", "");
        let error = resolve(&bare).unwrap_err();
        assert!(error.to_string().contains("none are installed"), "{error}");
        assert!(error.hints()[0].contains("libvulkan-dev spirv-headers"));
    }

    #[test]
    fn a_survey_says_what_is_there_and_brings_nothing() {
        let wanted = tools::tests::committed();
        let cc = Path::new("/usr/bin/cc");
        let told = |machine: &Fake| survey(machine, &wanted, cc);
        assert_eq!(
            told(&machine(4, 309)).unwrap(),
            "glslc 2023.8, headers 1.4.309"
        );
        assert!(told(&machine(3, 239)).unwrap().contains("the next build"));
        assert!(told(&machine(4, 309).without("glslc")).is_err());
    }

    #[test]
    fn a_named_sdk_comes_first() {
        let machine = machine(3, 239)
            .set("VULKAN_SDK", "/sdk")
            .with("/sdk/bin/glslc", "shaderc v2025.1")
            .file("/sdk/lib/libvulkan.so", "")
            .file("/sdk/include/vulkan/vulkan.hpp", "")
            .file("/sdk/include/vulkan/vulkan_core.h", &core(4, 321));
        let kit = resolve(&machine).unwrap();
        assert_eq!(kit.headers.to_string(), "1.4.321");
        assert_eq!(kit.glslc.path, Path::new("/sdk/bin/glslc"));
        assert_eq!(kit.library, Path::new("/sdk/lib/libvulkan.so"));
    }

    #[test]
    fn versions_are_read_from_both_forms() {
        let machine = machine(4, 1).file(
            "/old/vulkan/vulkan_core.h",
            "#define VK_HEADER_VERSION 170\n\
             #define VK_HEADER_VERSION_COMPLETE VK_MAKE_VERSION(1, 2, VK_HEADER_VERSION)\n",
        );
        let machine = machine.file("/old/vulkan/vulkan.hpp", "");
        let found = version(&machine, Path::new("/old")).unwrap();
        assert_eq!(found.to_string(), "1.2.170");
        assert_eq!(version(&machine, Path::new("/none")), None);
    }
}
