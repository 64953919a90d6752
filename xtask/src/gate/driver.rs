//! Whether the driver of this machine runs what a server's library for CUDA was built with.
//!
//! A server on a driver that is too old finds no device, and says so in words that help nobody.

use std::path::{Path, PathBuf};

use crate::build::cuda::{TOOLKIT, driver};
use crate::build::lookup::Lookup;
use crate::build::provenance::{self, Stamp};
use crate::error::Result;
use crate::model::{Toolchains, Version};

/// Fails where one of `files` is stamped as being of a toolkit that is too new for this machine's driver,
/// after the registry of the checkout at `root`. Where that knows nothing, nothing is said.
pub fn runs(lookup: &dyn Lookup, root: &Path, files: &[PathBuf]) -> Result<()> {
    let registry = root.join("registry/toolchains.toml");
    if !registry.is_file() {
        return Ok(());
    }
    for file in files {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        if !name.starts_with("libggml-cuda") {
            continue;
        }
        let Stamp::Sound(stamp) = provenance::read(file)? else {
            continue;
        };
        let toolkit = stamp.backend_tools.get(TOOLKIT);
        if let Some(toolkit) = toolkit.and_then(|text| text.parse::<Version>().ok()) {
            let wanted: Toolchains = crate::model::read_toml(&registry)?;
            driver::runs(lookup, &wanted.cuda, &toolkit)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::toy_ctx;
    use crate::model::{Digest, Flavour, Provenance};

    /// A program of the system, stamped as a library of this toolkit.
    fn library(dir: &Path, toolkit: &str) -> PathBuf {
        let paths = ["/bin/true", "/usr/bin/true"];
        let plain = paths.iter().find_map(|path| std::fs::read(path).ok());
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
        };
        let bytes = provenance::stamped(&plain.unwrap(), stamp).unwrap();
        let file = dir.join("libggml-cuda.so.0.1");
        std::fs::write(&file, bytes).unwrap();
        file
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
