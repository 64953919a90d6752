//! Whether a built file holds code for the GPUs that it is stamped as being for.

use std::collections::BTreeMap;
use std::path::Path;

use crate::build::Build;
use crate::build::cuda::{ARCHS, fatbin};
use crate::error::{Error, Result};
use crate::model::CudaArchs;

pub use fatbin::Images;

/// How the library is called that holds all code for GPUs.
const LIBRARY: &str = "libggml-cuda.";

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
    let is_wanted = name.starts_with(LIBRARY);
    let Some(images) = images else {
        return match is_wanted {
            true => Err(Error::finding(format!("{show} holds no code for GPUs"))),
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
        .hint("build it anew: cargo xtask build --backend cuda --force")),
    }
}

/// Checks the libraries of a finished build.
pub fn check(build: &Build) -> Result<()> {
    for artifact in &build.manifest.artifacts {
        let name = artifact.path.rsplit('/').next().unwrap_or_default();
        if name.starts_with(LIBRARY) {
            let path = build.dir.join(&artifact.path);
            require(&path, &fs_err::read(&path)?, &build.manifest.flags)?;
        }
    }
    Ok(())
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
}
