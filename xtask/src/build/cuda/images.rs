//! Whether a built file holds code for the GPUs that it is stamped as being for.

use std::collections::BTreeMap;
use std::path::Path;

use crate::build::Build;
use crate::build::cuda::{ARCHS, fatbin};
use crate::error::{Error, Result};
use crate::model::{CudaArch, CudaArchs};

pub use fatbin::Images;

/// How the library is called that holds all code for GPUs, where it is not inside the programs.
const LIBRARY: &str = "libggml-cuda.";

/// What to do where only a file is known, and not its build.
const ANEW: &str =
    "build it anew: cargo xtask build --backend cuda --force, with the flags of that build";

/// Whether the file `name` of a build with `flags` must hold code for GPUs: the library of that name, and with
/// static libraries every program of a build for CUDA.
fn is_wanted(name: &str, flags: &BTreeMap<String, String>) -> bool {
    let is_static = flags
        .get("BUILD_SHARED_LIBS")
        .is_some_and(|value| value == "OFF");
    let is_inside = is_static && flags.contains_key(ARCHS) && !name.starts_with("lib");
    name.starts_with(LIBRARY) || is_inside
}

/// The images of the file `path` with the content `bytes`, which was built with `flags`; `None` where it
/// has none and needs none. Code for other GPUs than those of the flags is a finding.
pub fn require(
    path: &Path,
    bytes: &[u8],
    flags: &BTreeMap<String, String>,
) -> Result<Option<Images>> {
    let show = path.display();
    let images = fatbin::read(bytes).map_err(|what| {
        Error::finding(format!("{show}: its code for GPUs cannot be read: {what}"))
            .hint("the file is damaged, or of a toolkit that writes it in another way")
    })?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(images) = images else {
        return match is_wanted(&name, flags) {
            true => Err(Error::finding(format!("{show} holds no code for GPUs")).hint(ANEW)),
            false => Ok(None),
        };
    };
    let Some(wanted) = flags.get(ARCHS) else {
        return Err(Error::finding(format!(
            "{show} holds code for GPUs, and its stamp does not say for which"
        )));
    };
    let archs: CudaArchs = wanted.parse().map_err(|what| {
        Error::finding(format!("{show}: its stamp says {ARCHS}={wanted}: {what}"))
    })?;
    match difference(&archs, &images) {
        None => Ok(Some(images)),
        Some(what) => Err(Error::finding(format!(
            "{show} is stamped as being for {wanted}, and {what}"
        ))
        .hint(ANEW)),
    }
}

/// Checks the files of a finished build for CUDA, whatever they are called: at least one must hold code.
pub fn check(build: &Build) -> Result<()> {
    let mut is_held = false;
    for artifact in &build.manifest.artifacts {
        let path = build.dir.join(&artifact.path);
        let images = require(&path, &fs_err::read(&path)?, &build.manifest.flags)?;
        is_held |= images.is_some();
    }
    match is_held {
        true => Ok(()),
        false => Err(Error::finding(format!(
            "{} is a build for CUDA, and none of its files holds code for GPUs",
            build.manifest.name()
        ))
        .hint(format!(
            "build it anew: {} --force",
            build.manifest.command()
        ))),
    }
}

/// Whether a GPU runs something of the images. Machine code runs on GPUs of its own generation that are not older, PTX on all
/// that are not older; what is marked as of one architecture runs on that alone, and what is marked as of a family within
/// its generation.
pub fn run_on(images: &Images, gpu: &CudaArch) -> bool {
    let any = |map: &BTreeMap<String, usize>, is_ptx: bool| {
        let archs = map.keys().filter_map(|name| name.parse::<CudaArchs>().ok());
        let archs: Vec<CudaArch> = archs
            .flat_map(|list| list.iter().cloned().collect::<Vec<_>>())
            .collect();
        archs.iter().any(|arch| match &*arch.suffix {
            "a" => arch.number == gpu.number,
            "" if is_ptx => arch.number <= gpu.number,
            _ => arch.number / 10 == gpu.number / 10 && arch.number <= gpu.number,
        })
    };
    any(&images.cubins, false) || any(&images.ptx, true)
}

/// `code for sm_80, sm_90 and PTX for sm_90`.
pub fn summary(images: &Images) -> String {
    let list = |map: &BTreeMap<String, usize>| match map.len() {
        0 => "none".to_owned(),
        _ => format!(
            "sm_{}",
            map.keys().cloned().collect::<Vec<_>>().join(", sm_")
        ),
    };
    format!(
        "code for {} and PTX for {}",
        list(&images.cubins),
        list(&images.ptx)
    )
}

/// How the images are not those of `archs`.
fn difference(archs: &CudaArchs, images: &Images) -> Option<String> {
    // Upstream compiles for 120a where it is told 120, and so for its like.
    let plain = |name: &str| match name.strip_suffix('a') {
        Some(number) if number.len() == 3 && number.starts_with("12") => number.to_owned(),
        _ => name.to_owned(),
    };
    let list = |mut names: Vec<String>| {
        names.sort();
        names.dedup();
        names
    };
    let found = |map: &BTreeMap<String, usize>| list(map.keys().map(|name| plain(name)).collect());
    let wanted = |is: fn(&crate::model::CudaArch) -> bool| {
        let of = archs.iter().filter(|arch| is(arch));
        list(of.map(|arch| plain(&arch.name())).collect())
    };
    for (what, wanted, found) in [
        ("code", wanted(|arch| arch.real), found(&images.cubins)),
        ("PTX", wanted(|arch| arch.ptx), found(&images.ptx)),
    ] {
        if wanted != found {
            let show = |names: &[String]| match names {
                [] => "none".to_owned(),
                names => format!("sm_{}", names.join(", sm_")),
            };
            return Some(format!(
                "holds {what} for {}, where {} is wanted",
                show(&found),
                show(&wanted)
            ));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::cuda::fatbin::tests::{Image, program};
    use crate::model::{BuildManifest, Digest, Flavour};

    fn images(cubins: &[&str], ptx: &[&str]) -> Images {
        let map = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), 1)).collect();
        Images {
            cubins: map(cubins),
            ptx: map(ptx),
            ..Images::default()
        }
    }

    #[test]
    fn images_must_be_those_of_the_stamp() {
        let says = |archs: &str, cubins: &[&str], ptx: &[&str]| {
            difference(&archs.parse().unwrap(), &images(cubins, ptx))
        };
        assert_eq!(says("90", &["90"], &["90"]), None);
        assert_eq!(says("80;120", &["120a", "80"], &["120a", "80"]), None);
        assert_eq!(says("120a-real", &["120a"], &[]), None);
        assert_eq!(says("80-virtual;90-real", &["90"], &["80"]), None);
        for (archs, cubins, ptx, part) in [
            (
                "90",
                &["80"][..],
                &["90"][..],
                "code for sm_80, where sm_90 is wanted",
            ),
            ("90", &["90"], &[], "PTX for none, where sm_90"),
            ("90", &["80", "90"], &["90"], "sm_80, sm_90, where sm_90"),
            ("90a", &["90"], &["90"], "sm_90, where sm_90a"),
            ("80;90", &["90"], &["90"], "where sm_80, sm_90"),
        ] {
            let found = says(archs, cubins, ptx).unwrap();
            assert!(found.contains(part), "{part}: {found}");
        }
    }

    #[test]
    fn a_gpu_runs_code_of_its_generation_and_ptx_that_is_not_newer() {
        let gpu = |number: &str| {
            number
                .parse::<CudaArchs>()
                .unwrap()
                .iter()
                .next()
                .cloned()
                .unwrap()
        };
        for (cubins, ptx, on, runs) in [
            (&["90"][..], &["90"][..], "90", true),
            (&["90"], &["90"], "80", false),
            (&["80"], &[], "86", true),
            (&["86"], &[], "80", false),
            (&["80"], &[], "90", false),
            (&[], &["80"], "90", true),
            (&[], &["80"], "120", true),
            (&[], &["90"], "89", false),
            (&["80", "90"], &[], "89", true),
            (&["90a"], &["90a"], "90", true),
            (&["120a"], &["120a"], "121", false),
            (&["100f"], &[], "103", true),
            (&["100f"], &["100f"], "120", false),
            (&["103f"], &[], "100", false),
            (&[], &[], "90", false),
            // 9.0 and 10.0 are two generations, 100 and 103 one.
            (&["100"], &[], "103", true),
            (&["90"], &[], "100", false),
        ] {
            let images = images(cubins, ptx);
            assert_eq!(
                run_on(&images, &gpu(on)),
                runs,
                "{cubins:?} {ptx:?} on {on}"
            );
        }
        assert_eq!(
            summary(&images(&["80", "90"], &[])),
            "code for sm_80, sm_90 and PTX for none"
        );
    }

    #[test]
    fn a_library_without_code_for_gpus_is_a_finding() {
        let bytes = std::fs::read(std::env::current_exe().unwrap()).unwrap();
        let flags: BTreeMap<_, _> = [(ARCHS.to_owned(), "90".to_owned())].into();
        let library = Path::new("/x/libggml-cuda.so.0.1");
        let error = require(library, &bytes, &flags).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        assert!(error.message().contains("holds no code for GPUs"));
        let other = Path::new("/x/libllama.so");
        assert_eq!(require(other, &bytes, &flags).unwrap(), None);
    }
    /// Machine code and PTX for `arch`, compressed, as nvcc writes them.
    fn both(arch: u32) -> [Image; 2] {
        [2, 1].map(|kind| Image(kind, arch, 0x8011, vec![1; 16]))
    }

    fn flags(shared: &str) -> BTreeMap<String, String> {
        [(ARCHS, "90"), ("BUILD_SHARED_LIBS", shared)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    }

    #[test]
    fn programs_with_static_libraries_are_looked_at_too() {
        let dir = tempfile::tempdir().unwrap();
        let (none, right, wrong) = (
            program(dir.path(), &[]),
            program(dir.path(), &both(90)),
            program(dir.path(), &both(80)),
        );
        let server = Path::new("/x/llama-server");
        for (bytes, says) in [
            (&none, "holds no code for GPUs"),
            (&wrong, "holds code for sm_80, where sm_90 is wanted"),
        ] {
            let error = require(server, bytes, &flags("OFF")).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Finding);
            assert!(error.message().contains(says), "{says}: {error}");
        }
        assert!(require(server, &right, &flags("OFF")).unwrap().is_some());
        // Beside a library that holds it a program has none, and without CUDA there is none.
        assert_eq!(require(server, &none, &flags("ON")).unwrap(), None);
        let cpu = [("BUILD_SHARED_LIBS".to_owned(), "OFF".to_owned())].into();
        assert_eq!(require(server, &none, &cpu).unwrap(), None);
    }

    #[test]
    fn a_build_for_cuda_holds_code_somewhere() {
        let dir = tempfile::tempdir().unwrap();
        let says = |name: &str, bytes: &[u8], shared: &str| {
            fs_err::write(dir.path().join(name), bytes).unwrap();
            let artifact = crate::model::Artifact {
                path: name.to_owned(),
                size: 0,
                sha256: Digest::of(bytes),
                content: None,
            };
            check(&Build {
                dir: dir.path().to_path_buf(),
                manifest: BuildManifest {
                    schema: 1,
                    base: "toy".to_owned(),
                    tree: Digest::of(b""),
                    flavour: Flavour::Patched,
                    backend: "cuda".to_owned(),
                    variant: Default::default(),
                    patchset: None,
                    source: Digest::of(b""),
                    flags: flags(shared),
                    compilers: Default::default(),
                    cmake: String::new(),
                    ninja: String::new(),
                    launcher: None,
                    backend_tools: Default::default(),
                    surroundings: Default::default(),
                    artifacts: vec![artifact],
                },
            })
        };
        let (none, right, wrong) = (
            program(dir.path(), &[]),
            program(dir.path(), &both(90)),
            program(dir.path(), &both(80)),
        );
        says("llama-server", &right, "OFF").unwrap();
        says("libggml-cuda.so", &right, "ON").unwrap();
        // Whatever the file is called that has it.
        says("libggml-cuda-all.so", &right, "ON").unwrap();
        for (name, bytes, shared, part) in [
            ("llama-server", &none, "OFF", "holds no code for GPUs"),
            ("llama-server", &wrong, "OFF", "holds code for sm_80"),
            ("libggml-cuda-all.so", &wrong, "ON", "holds code for sm_80"),
            ("libllama.so", &none, "ON", "none of its files holds code"),
        ] {
            let error = says(name, bytes, shared).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Finding);
            assert!(error.message().contains(part), "{part}: {error}");
        }
    }
}
