//! Whether this machine runs what a server's code for CUDA was built with, and for.
//!
//! A server on a driver that is too old finds no device, one on another GPU dies with its first kernel, and both say so in
//! words that help nobody.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::build::cuda::driver::Gpus;
use crate::build::cuda::{Images, TOOLKIT, driver, fatbin, images};
use crate::build::lookup::Lookup;
use crate::build::provenance::{self, Stamp};
use crate::error::{Error, Result};
use crate::model::{GateBackend, Toolchains, Version};

/// Fails where one of `files` is of a toolkit that is too new for this machine's driver, as its stamp says and after the
/// registry of the checkout at `root`; or is stamped as a build for CUDA and does not hold the code that such a file must;
/// or holds no code that a GPU of this machine runs. Where the registry, the driver or the file tells nothing, nothing is said.
///
/// Every file is looked at, whatever it is called: with static libraries the code is inside the server. `env` are the
/// variables that the server is given; they may choose among several GPUs.
pub fn runs(
    lookup: &dyn Lookup,
    root: &Path,
    files: &[PathBuf],
    env: &BTreeMap<String, String>,
) -> Result<()> {
    let mut toolkits: Vec<Version> = Vec::new();
    let mut all: Vec<(String, Images)> = Vec::new();
    for file in files {
        let bytes = fs_err::read(file)?;
        let images = match provenance::examine(&bytes) {
            Stamp::Sound(stamp) if stamp.backend == GateBackend::Cuda.name() => {
                let toolkit = stamp.backend_tools.get(TOOLKIT);
                let toolkit = toolkit.and_then(|text| text.parse::<Version>().ok());
                toolkits.extend(toolkit.filter(|toolkit| !toolkits.contains(toolkit)));
                images::require(file, &bytes, &stamp.flags)?
            }
            _ => fatbin::read(&bytes).ok().flatten(),
        };
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        all.extend(images.map(|images| (name.into_owned(), images)));
    }
    if toolkits.is_empty() && all.is_empty() {
        return Ok(());
    }
    let Some(gpus) = driver::gpus(lookup) else {
        return Ok(());
    };
    let registry = root.join("registry/toolchains.toml");
    if !toolkits.is_empty() && registry.is_file() {
        let wanted: Toolchains = crate::model::read_toml(&registry)?;
        for toolkit in &toolkits {
            driver::fits(&wanted.cuda, toolkit, &gpus.driver)?;
        }
    }
    let var = |name: &str| env.get(name).cloned().or_else(|| lookup.var(name));
    let first = gpus.first(&var);
    for (name, images) in &all {
        holds_code(&gpus, first, name, images)?;
    }
    Ok(())
}

/// Fails where the GPU that is CUDA's first does not run what the file `name` holds. Where it is not known which one that
/// is, one of them is enough.
fn holds_code(gpus: &Gpus, first: Option<usize>, name: &str, found: &Images) -> Result<()> {
    if let Some((number, gpu)) = first.and_then(|number| Some((number, gpus.list.get(number)?))) {
        return match images::run_on(found, gpu) {
            true => Ok(()),
            false => Err(Error::environment(format!(
                "{name} holds {}, which GPU {number} of this machine does not run, sm_{}, and that is the one it gets",
                images::summary(found),
                gpu.name()
            ))
            .hint(format!(
                "build it for that one: cargo xtask build --backend cuda --arch '{}'",
                gpu.name()
            ))
            .hint(format!("or choose another one: {} counts from 0", driver::VISIBLE))),
        };
    }
    let archs = &gpus.archs;
    if archs.iter().any(|gpu| images::run_on(found, gpu)) {
        return Ok(());
    }
    let list: Vec<String> = archs.iter().map(|gpu| gpu.name()).collect();
    Err(Error::environment(format!(
        "{name} holds {}, which no GPU of this machine runs: sm_{}",
        images::summary(found),
        list.join(", sm_")
    ))
    .hint(format!(
        "build it for them: cargo xtask build --backend cuda --arch '{}'",
        list.join(";")
    )))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::cuda::ARCHS;
    use crate::build::cuda::fatbin::tests::{Image, program};
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::toy_ctx;
    use crate::model::{Digest, Flavour, Provenance};

    /// A file for CUDA called `name` in `dir`, stamped as being of this toolkit and for just the GPUs of `images`.
    fn file_with(dir: &Path, name: &str, toolkit: &str, images: &[Image]) -> PathBuf {
        let plain = program(dir, images);
        let archs: Vec<String> = (images.iter())
            .map(|Image(kind, arch, ..)| match *kind {
                1 => format!("{arch}-virtual"),
                _ => format!("{arch}-real"),
            })
            .collect();
        let shared = if name.starts_with("lib") { "ON" } else { "OFF" };
        let flags = [
            (ARCHS.to_owned(), archs.join(";")),
            ("BUILD_SHARED_LIBS".to_owned(), shared.to_owned()),
        ];
        let stamp = |content| Provenance {
            schema: 1,
            file: name.to_owned(),
            content,
            base: "toy".to_owned(),
            tree: Digest::of(b""),
            flavour: Flavour::Vanilla,
            backend: "cuda".to_owned(),
            variant: Default::default(),
            patchset: None,
            source: Digest::of(b""),
            flags: flags.into(),
            compilers: Default::default(),
            backend_tools: [(TOOLKIT.to_owned(), toolkit.to_owned())].into(),
            surroundings: Default::default(),
        };
        let bytes = provenance::stamped(&plain, stamp).unwrap();
        let file = dir.join(name);
        std::fs::write(&file, bytes).unwrap();
        file
    }

    /// PTX is kind 1, machine code kind 2; both compressed, as nvcc writes them.
    fn image(kind: u16, arch: u32) -> Image {
        Image(kind, arch, 0x8011, vec![1; 16])
    }

    fn library_with(dir: &Path, toolkit: &str, images: &[Image]) -> PathBuf {
        file_with(dir, "libggml-cuda.so.0.1", toolkit, images)
    }

    fn library(dir: &Path, toolkit: &str) -> PathBuf {
        library_with(dir, toolkit, &[image(2, 90)])
    }

    #[test]
    fn a_server_without_code_for_the_gpu_is_not_started() {
        let toy = toy_ctx();
        let dir = toy.dir.path();
        let says = |gpus: &str, images: &[Image]| {
            let rows = gpus.split(' ').map(|gpu| format!("{gpu}, 580.95.05\n"));
            let machine = Fake::complete().with("nvidia-smi", &rows.collect::<String>());
            runs(
                &machine,
                toy.root(),
                &[library_with(dir, "13.0.88", images)],
                &BTreeMap::new(),
            )
        };
        says("9.0", &[image(2, 90), image(1, 90)]).unwrap();
        says("8.9", &[image(2, 80)]).unwrap();
        says("12.0", &[image(1, 90)]).unwrap();
        says("8.0 9.0", &[image(2, 90)]).unwrap();
        let error = says("8.0", &[image(2, 90), image(1, 90)]).unwrap_err();
        assert_eq!(error.kind().exit_code(), 2);
        assert_eq!(
            error.message(),
            "libggml-cuda.so.0.1 holds code for sm_90 and PTX for sm_90, which no GPU of this machine runs: sm_80"
        );
        assert!(error.hints()[0].ends_with("--arch '80'"), "{error:?}");
        let error = says("8.6 12.0", &[image(2, 90)]).unwrap_err();
        assert!(
            error
                .message()
                .ends_with("PTX for none, which no GPU of this machine runs: sm_86, sm_120")
        );
        // Neither a stamp nor the registry is needed for it.
        std::fs::remove_file(toy.root().join("registry/toolchains.toml")).unwrap();
        let file = library_with(dir, "13.0.88", &[image(2, 90)]);
        std::fs::write(&file, provenance::plain(&std::fs::read(&file).unwrap())).unwrap();
        let machine = Fake::complete().with("nvidia-smi", "8.0, 580.95.05\n");
        let none = BTreeMap::new();
        runs(&machine, toy.root(), std::slice::from_ref(&file), &none).unwrap_err();
        runs(&Fake::complete(), toy.root(), &[file], &none).unwrap();
    }

    #[test]
    fn of_several_gpus_the_one_counts_that_the_server_gets() {
        let toy = toy_ctx();
        let dir = toy.dir.path();
        let file = library_with(dir, "13.0.88", &[image(2, 90)]);
        let machine = Fake::complete().with("nvidia-smi", "9.0, 580.95.05\n8.9, 580.95.05\n");
        let says = |machine: &Fake, env: &[(&str, &str)]| {
            let env = env.iter();
            let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let files = std::slice::from_ref(&file);
            runs(machine, toy.root(), files, &env.collect())
        };
        let by_bus = (driver::ORDER, driver::BY_BUS);
        // Which one is CUDA's second is not known where it counts by speed.
        says(&machine, &[(driver::VISIBLE, "1")]).unwrap();
        says(&machine, &[by_bus]).unwrap();
        says(&machine, &[by_bus, (driver::VISIBLE, "0,1")]).unwrap();
        for error in [
            says(&machine, &[by_bus, (driver::VISIBLE, "1")]),
            // The user's own variables reach it, too.
            says(
                &machine.clone().set(by_bus.0, by_bus.1),
                &[(driver::VISIBLE, "1,0")],
            ),
            says(&machine.clone().set(driver::VISIBLE, "1"), &[by_bus]),
        ] {
            let error = error.unwrap_err();
            assert_eq!(error.kind().exit_code(), 2);
            assert!(
                error
                    .message()
                    .contains("which GPU 1 of this machine does not run, sm_89"),
                "{error}"
            );
            assert!(error.hints()[0].ends_with("--arch '89'"), "{error:?}");
        }
        // What the side sets counts before what the user has set.
        let user = machine.clone().set(driver::VISIBLE, "1");
        says(&user, &[by_bus, (driver::VISIBLE, "0")]).unwrap();
    }

    #[test]
    fn code_inside_a_static_server_is_looked_at() {
        let toy = toy_ctx();
        let dir = toy.dir.path();
        let says = |gpu: &str, driver: &str, images: &[Image]| {
            let machine = Fake::complete().with("nvidia-smi", &format!("{gpu}, {driver}\n"));
            let server = file_with(dir, "llama-server", "13.0.88", images);
            runs(&machine, toy.root(), &[server], &BTreeMap::new())
        };
        says("9.0", "580.95.05", &[image(2, 90)]).unwrap();
        let error = says("8.0", "580.95.05", &[image(2, 90)]).unwrap_err();
        assert!(
            error
                .message()
                .starts_with("llama-server holds code for sm_90"),
            "{error}"
        );
        let error = says("9.0", "535.104.05", &[image(2, 90)]).unwrap_err();
        assert!(
            error.message().contains("too new for the driver"),
            "{error}"
        );
        // One that is stamped as being for CUDA and has no code at all would compute on the processor.
        let error = says("9.0", "580.95.05", &[]).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        assert!(
            error.message().contains("holds no code for GPUs"),
            "{error}"
        );
    }

    #[test]
    fn a_server_of_a_toolkit_that_is_too_new_is_not_started() {
        let toy = toy_ctx();
        let files = [library(toy.dir.path(), "13.0.88")];
        let says = |driver: &str| {
            let machine = Fake::complete().with("nvidia-smi", &format!("9.0, {driver}\n"));
            runs(&machine, toy.root(), &files, &BTreeMap::new())
        };
        says("580.95.05").unwrap();
        let error = says("535.104.05").unwrap_err();
        assert_eq!(error.kind().exit_code(), 2);
        assert!(
            error
                .message()
                .contains("CUDA 13.0.88 is too new for the driver 535.104")
        );
        // One of an older toolkit runs, and what carries no stamp is not judged here.
        let old = Fake::complete().with("nvidia-smi", "9.0, 535.104.05\n");
        let none = BTreeMap::new();
        let older = [library(toy.dir.path(), "12.4.99")];
        runs(&old, toy.root(), &older, &none).unwrap();
        let plain = toy.dir.path().join("libggml-cuda.so.9");
        std::fs::write(&plain, "no ELF").unwrap();
        runs(&old, toy.root(), &[plain], &none).unwrap();
    }
}
