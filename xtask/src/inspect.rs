//! What a built file says of itself, and whether it holds.

use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::build::{self, cuda, provenance};
use crate::error::{Error, Result, ResultExt};
use crate::gate::artifacts::elf::Elf;
use crate::model::{BuildManifest, Digest, Provenance};

/// A file whose stamp holds.
#[derive(Clone, Debug, Serialize)]
pub struct Inspection {
    /// The file.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Digest of the file, with its stamp.
    pub sha256: Digest,
    /// What the stamp says.
    pub provenance: Provenance,
    /// The manifest beside it, which says the same; absent where there is none.
    pub manifest: Option<PathBuf>,
    /// Libraries that it needs, read from the file.
    pub needed: Vec<String>,
    /// Number of symbols that it exports, read from the file.
    pub exports: usize,
    /// What it holds for GPUs of NVIDIA's, read from the file; absent where that is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cuda: Option<cuda::Images>,
}

/// Reads the stamp of `path`, and checks it against the file and the manifest beside it. A file
/// without a stamp, one that is not what was stamped, and one that the manifest speaks of otherwise
/// are findings.
pub fn inspect(path: &Path) -> Result<Inspection> {
    if !path.is_file() {
        return Err(Error::usage(format!("there is no file {}", path.display()))
            .hint("name a program or library that `cargo xtask build` made"));
    }
    // What a link leads to is what is loaded.
    let path = path.canonicalize()?;
    let found = provenance::require(&path).hint(|| {
        "cargo xtask build makes it anew, and stamps it; nothing is known of this file".to_owned()
    })?;
    let Some(provenance) = found else {
        return Err(Error::finding(format!(
            "{} is of a kind that is not stamped",
            path.display()
        )));
    };
    let bytes = fs_err::read(&path)?;
    let sha256 = Digest::of(&bytes);
    let beside = path.with_file_name(build::BESIDE);
    let manifest = match beside.is_file() {
        true => {
            agrees(&path, &provenance, sha256, &beside)?;
            Some(beside)
        }
        false => None,
    };
    let images = cuda::images::require(&path, &bytes, &provenance.flags)?;
    let elf = Elf::read(&path)?.unwrap_or_default();
    Ok(Inspection {
        size: bytes.len() as u64,
        sha256,
        provenance,
        manifest,
        needed: elf.needed.into_iter().collect(),
        exports: elf.exports.len(),
        cuda: images,
        path,
    })
}

/// Fails where the manifest `beside` speaks of another file or another build.
fn agrees(path: &Path, stamp: &Provenance, sha256: Digest, beside: &Path) -> Result<()> {
    let manifest: BuildManifest = crate::model::read_json(beside)?;
    let fail = |what: String| {
        Err(Error::finding(format!(
            "{} is not what {} says: {what}",
            path.display(),
            beside.display()
        ))
        .hint("the file or the manifest was replaced: bring both from the build they are of"))
    };
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let Some(artifact) = manifest.artifacts.iter().find(|one| *one.path == *name) else {
        return fail("it does not name it".to_owned());
    };
    if artifact.sha256 != sha256 {
        return fail(format!(
            "sha256 {} expected, {sha256} found",
            artifact.sha256
        ));
    }
    let said = Provenance::of(&manifest, &name, artifact.identity());
    if said != *stamp {
        return fail(format!(
            "it is of {}, the file is stamped as of {}",
            said.summary(),
            stamp.summary()
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{Artifact, Flavour};
    use std::fs;

    /// A stamped copy of a program of the system, with its manifest beside it.
    fn stamped(dir: &Path) -> PathBuf {
        let plain = ["/bin/true", "/usr/bin/true"]
            .iter()
            .find_map(|path| fs::read(path).ok())
            .unwrap();
        let mut manifest = BuildManifest {
            schema: 1,
            base: "toy".to_owned(),
            tree: Digest::of(b""),
            flavour: Flavour::Vanilla,
            backend: "cpu".to_owned(),
            variant: Default::default(),
            patchset: None,
            source: Digest::of(b""),
            flags: [("GGML_NATIVE".to_owned(), "ON".to_owned())].into(),
            compilers: Default::default(),
            cmake: String::new(),
            ninja: String::new(),
            launcher: None,
            backend_tools: Default::default(),
            surroundings: Default::default(),
            artifacts: Vec::new(),
        };
        let of = |content| Provenance::of(&manifest, "true", content);
        let bytes = provenance::stamped(&plain, of).unwrap();
        manifest.artifacts.push(Artifact {
            path: "true".to_owned(),
            size: bytes.len() as u64,
            sha256: Digest::of(&bytes),
            content: Some(Digest::of(&plain)),
        });
        let file = dir.join("true");
        fs::write(&file, bytes).unwrap();
        crate::model::write_json(&dir.join(build::BESIDE), &manifest).unwrap();
        file
    }

    fn refused(file: &Path, part: &str) {
        let error = inspect(file).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        assert!(error.to_string().contains(part), "{part}: {error}");
    }

    #[test]
    fn a_sound_file_tells_where_it_comes_from() {
        let dir = tempfile::tempdir().unwrap();
        let file = stamped(dir.path());
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&file, &link).unwrap();
        let found = inspect(&link).unwrap();
        assert_eq!(found.provenance.flags["GGML_NATIVE"], "ON");
        assert!(found.needed.iter().any(|name| name.starts_with("libc.")));
        assert!(found.manifest.is_some());
        // It is known without the manifest, too.
        fs::remove_file(dir.path().join(build::BESIDE)).unwrap();
        assert_eq!(inspect(&file).unwrap().manifest, None);
    }

    #[test]
    fn what_does_not_hold_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = stamped(dir.path());
        let good = fs::read(&file).unwrap();
        let mut edited = good.clone();
        edited[good.len() / 3] ^= 1;
        fs::write(&file, &edited).unwrap();
        refused(&file, "is not what was stamped");
        fs::write(&file, provenance::plain(&good)).unwrap();
        refused(&file, "carries no stamp");
        assert_eq!(
            inspect(&dir.path().join("none")).unwrap_err().kind(),
            crate::Kind::Usage
        );
        // Under another name, and without the manifest that would say so.
        let other = tempfile::tempdir().unwrap();
        let renamed = other.path().join("false");
        fs::write(&renamed, &good).unwrap();
        refused(&renamed, "was built as true");
        // Stamped anew by somebody else: the file is sound, the manifest is of another one.
        let mut forged = stamped_as(&good, "other");
        std::mem::swap(&mut edited, &mut forged);
        fs::write(&file, &edited).unwrap();
        refused(&file, "sha256");
        let beside = dir.path().join(build::BESIDE);
        let mut manifest: BuildManifest = crate::model::read_json(&beside).unwrap();
        manifest.artifacts[0].sha256 = Digest::of(&edited);
        crate::model::write_json(&beside, &manifest).unwrap();
        refused(&file, "it is of toy vanilla-cpu");
        manifest.artifacts.clear();
        crate::model::write_json(&beside, &manifest).unwrap();
        refused(&file, "does not name it");
    }

    fn stamped_as(good: &[u8], base: &str) -> Vec<u8> {
        let provenance::Stamp::Sound(mut stamp) = provenance::examine(good) else {
            panic!("not sound");
        };
        stamp.base = base.to_owned();
        provenance::stamped(&provenance::plain(good), |_| *stamp).unwrap()
    }
}
