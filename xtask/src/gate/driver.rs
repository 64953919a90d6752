//! Whether this machine runs what a server's library for CUDA was built with, and for.
//!
//! A server on a driver that is too old finds no device, one on another GPU dies with its first kernel, and both say so in
//! words that help nobody.

use std::path::{Path, PathBuf};

use crate::build::cuda::{TOOLKIT, driver, fatbin, images};
use crate::build::lookup::Lookup;
use crate::build::provenance::{self, Stamp};
use crate::error::{Error, Result};
use crate::model::{Toolchains, Version};

/// Fails where one of `files` is stamped as being of a toolkit that is too new for this machine's driver, after the
/// registry of the checkout at `root`, or holds no code that a GPU of this machine runs. Where the registry, the driver or
/// the file tells nothing, nothing is said.
pub fn runs(lookup: &dyn Lookup, root: &Path, files: &[PathBuf]) -> Result<()> {
    let registry = root.join("registry/toolchains.toml");
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("libggml-cuda") {
            continue;
        }
        let bytes = fs_err::read(file)?;
        if let Stamp::Sound(stamp) = provenance::examine(&bytes)
            && let Some(toolkit) = stamp.backend_tools.get(TOOLKIT)
            && let Ok(toolkit) = toolkit.parse::<Version>()
            && registry.is_file()
        {
            let wanted: Toolchains = crate::model::read_toml(&registry)?;
            driver::runs(lookup, &wanted.cuda, &toolkit)?;
        }
        holds_code(lookup, &name, &bytes)?;
    }
    Ok(())
}

/// Fails where no GPU of this machine runs what the library `name` holds. Which of several GPUs CUDA calls its first is not
/// known here, so that one of them is enough.
fn holds_code(lookup: &dyn Lookup, name: &str, bytes: &[u8]) -> Result<()> {
    let (Some(gpus), Ok(Some(found))) = (driver::gpus(lookup), fatbin::read(bytes)) else {
        return Ok(());
    };
    let archs = &gpus.archs;
    if archs.iter().any(|gpu| images::run_on(&found, gpu)) {
        return Ok(());
    }
    let list: Vec<String> = archs.iter().map(|gpu| gpu.name()).collect();
    Err(Error::environment(format!(
        "{name} holds {}, which no GPU of this machine runs: sm_{}",
        images::summary(&found),
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
    use crate::build::cuda::fatbin::tests::{Image, bin};
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::toy_ctx;
    use crate::model::{Digest, Flavour, Provenance};

    /// A program of the system, with this code for GPUs, stamped as a library of this toolkit.
    fn library_with(dir: &Path, toolkit: &str, images: &[Image]) -> PathBuf {
        let (plain, section) = (dir.join("plain"), dir.join("section"));
        std::fs::copy("/bin/true", &plain).unwrap();
        if !images.is_empty() {
            std::fs::write(&section, bin(images)).unwrap();
            let added = format!(".nv_fatbin={}", section.display());
            let mut objcopy = std::process::Command::new("objcopy");
            let done = objcopy.args(["--add-section", &added]).arg(&plain).status();
            assert!(done.unwrap().success());
        }
        let plain = std::fs::read(plain).unwrap();
        let stamp = |content| Provenance {
            schema: 1,
            file: String::new(),
            content,
            base: "toy".to_owned(),
            tree: Digest::of(b""),
            flavour: Flavour::Vanilla,
            backend: "cuda".to_owned(),
            variant: Default::default(),
            patchset: None,
            source: Digest::of(b""),
            flags: Default::default(),
            compilers: Default::default(),
            backend_tools: [(TOOLKIT.to_owned(), toolkit.to_owned())].into(),
            surroundings: Default::default(),
        };
        let bytes = provenance::stamped(&plain, stamp).unwrap();
        let file = dir.join("libggml-cuda.so.0.1");
        std::fs::write(&file, bytes).unwrap();
        file
    }

    fn library(dir: &Path, toolkit: &str) -> PathBuf {
        library_with(dir, toolkit, &[])
    }

    #[test]
    fn a_server_without_code_for_the_gpu_is_not_started() {
        let toy = toy_ctx();
        let dir = toy.dir.path();
        // PTX is kind 1, machine code kind 2; both compressed, as nvcc writes them.
        let image = |kind: u16, arch: u32| Image(kind, arch, 0x8011, vec![1; 16]);
        let says = |gpus: &str, images: &[Image]| {
            let rows = gpus.split(' ').map(|gpu| format!("{gpu}, 580.95.05\n"));
            let machine = Fake::complete().with("nvidia-smi", &rows.collect::<String>());
            runs(
                &machine,
                toy.root(),
                &[library_with(dir, "13.0.88", images)],
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
        runs(&machine, toy.root(), std::slice::from_ref(&file)).unwrap_err();
        runs(&Fake::complete(), toy.root(), &[file]).unwrap();
    }

    #[test]
    fn a_server_of_a_toolkit_that_is_too_new_is_not_started() {
        let toy = toy_ctx();
        let files = [library(toy.dir.path(), "13.0.88")];
        let says = |driver: &str| {
            let machine = Fake::complete().with("nvidia-smi", &format!("9.0, {driver}\n"));
            runs(&machine, toy.root(), &files)
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
        runs(&old, toy.root(), &[library(toy.dir.path(), "12.4.99")]).unwrap();
        let plain = toy.dir.path().join("libggml-cuda.so.9");
        std::fs::write(&plain, "no ELF").unwrap();
        runs(&old, toy.root(), &[plain]).unwrap();
    }
}
