//! What is given away of a build: one archive with all that its users may ask for.
//!
//! ```text
//! <base>-<flavour>-<backend>/
//!   bin/                     programs, libraries and the links between them, stamped
//!   bin/llama-patchset.json  the manifest
//!   licences/                upstream's, and this project's
//!   patches/                 the series as mails for `git am` (patched builds)
//! ```
//!
//! The same build gives the same archive: names are sorted, times are zero, owners are nobody.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::build::{self, Build, provenance};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::exchange::{self, Format};
use crate::model::{Base, Digest, Flavour};
use crate::patchset::Series;
use crate::vendor::Pristine;

/// A written archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Package {
    /// Where it is.
    pub path: PathBuf,
    /// Size in bytes.
    pub size: u64,
    /// Its digest.
    pub sha256: Digest,
    /// Names of what it holds.
    pub files: Vec<String>,
}

/// One entry of the archive.
enum Item {
    /// Content, and whether it is run.
    File(Vec<u8>, bool),
    /// A link to a name beside it.
    Link(PathBuf),
}

/// Packs the finished build of `base` into `dir`. A build that is not what its manifest says, or whose
/// files carry no stamp that holds, or that is of another series, is a finding.
pub fn package(
    ctx: &Ctx,
    base: &Base,
    flavour: Flavour,
    backend: &str,
    dir: &Path,
) -> Result<Package> {
    let hint = || {
        format!(
            "cargo xtask build --{flavour} --backend {backend} --base {}",
            base.id
        )
    };
    let Some(build) = Build::find(ctx, &base.id, flavour, backend)? else {
        return Err(Error::usage(format!(
            "there is no {flavour} build of {} for {backend}",
            base.id
        ))
        .hint(hint()));
    };
    if let Some(first) = build::check(&build)?.first() {
        return Err(Error::finding(format!("{first}")).hint(hint()));
    }
    let pristine = crate::vendor::ensure(ctx, base)?;
    let mut items = files(&build)?;
    licences(ctx, &pristine, &mut items)?;
    if let Some(patchset) = &build.manifest.patchset {
        let series = Series::load(&ctx.project, base)?;
        if series.id != patchset.id {
            return Err(Error::finding(format!(
                "the build carries the patch set {}, the series is {}",
                patchset.id.short(),
                series.id.short()
            ))
            .hint(hint()));
        }
        for mail in exchange::export(ctx, &pristine, &series, &[], Format::Mail)? {
            items.insert(
                format!("patches/{}", mail.name),
                Item::File(mail.content, false),
            );
        }
    }
    let name = format!("{}-{flavour}-{backend}", base.id);
    let bytes = archive(&name, &items).context(|| format!("packing {name}"))?;
    fs_err::create_dir_all(dir)?;
    let path = dir.join(format!("{name}.tar.gz"));
    crate::model::write_atomic(&path, &bytes)?;
    Ok(Package {
        size: bytes.len() as u64,
        sha256: Digest::of(&bytes),
        files: items.into_keys().collect(),
        path,
    })
}

/// What was built, the manifest beside it, and the links among it.
fn files(build: &Build) -> Result<BTreeMap<String, Item>> {
    let mut items = BTreeMap::new();
    let bin = build.dir.join("out/bin");
    for artifact in &build.manifest.artifacts {
        let file = build.dir.join(&artifact.path);
        provenance::require(&file)?;
        let name = artifact.path.rsplit('/').next().unwrap_or_default();
        items.insert(
            format!("bin/{name}"),
            Item::File(fs_err::read(&file)?, true),
        );
    }
    let beside = bin.join(build::BESIDE);
    items.insert(
        format!("bin/{}", build::BESIDE),
        Item::File(fs_err::read(beside)?, false),
    );
    for entry in fs_err::read_dir(&bin)? {
        let entry = entry?;
        if !entry.file_type()?.is_symlink() {
            continue;
        }
        let target = fs_err::read_link(entry.path())?;
        let name = entry.file_name().to_string_lossy().into_owned();
        // Only what leads to something that is packed too.
        let leads = entry.path().canonicalize().ok().and_then(|path| {
            let name = path.file_name()?.to_string_lossy().into_owned();
            Some(items.contains_key(&format!("bin/{name}")))
        });
        if leads == Some(true) && target.components().count() == 1 {
            items.insert(format!("bin/{name}"), Item::Link(target));
        }
    }
    Ok(items)
}

/// The licences of what is in the binaries.
fn licences(ctx: &Ctx, pristine: &Pristine, items: &mut BTreeMap<String, Item>) -> Result<()> {
    let mut add = |name: String, path: &Path| -> Result<()> {
        let content = fs_err::read(path)?;
        items.insert(format!("licences/{name}"), Item::File(content, false));
        Ok(())
    };
    for (path, _) in pristine.manifest.iter() {
        let name = path.as_str();
        let is_licence = name == "LICENSE" || name.starts_with("licenses/");
        if is_licence {
            let flat = name.trim_start_matches("licenses/");
            add(format!("llama.cpp-{flat}"), &path.below(&pristine.root))?;
        }
    }
    let own = ctx.project.root().join("LICENSE");
    if own.is_file() {
        add("llama-patchset-LICENSE".to_owned(), &own)?;
    }
    match items
        .keys()
        .any(|name| name.starts_with("licences/llama.cpp-"))
    {
        true => Ok(()),
        false => Err(Error::finding(
            "the base has no file LICENSE, and a package must carry its licence",
        )),
    }
}

/// The bytes of the archive.
fn archive(top: &str, items: &BTreeMap<String, Item>) -> std::io::Result<Vec<u8>> {
    let encoder = flate2::GzBuilder::new()
        .mtime(0)
        .write(Vec::new(), flate2::Compression::default());
    let mut builder = tar::Builder::new(encoder);
    for (name, item) in items {
        let path = format!("{top}/{name}");
        let mut header = tar::Header::new_gnu();
        header.set_mtime(0);
        header.set_uid(0);
        header.set_gid(0);
        match item {
            Item::File(content, is_run) => {
                header.set_mode(if *is_run { 0o755 } else { 0o644 });
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_slice())?;
            }
            Item::Link(target) => {
                header.set_entry_type(tar::EntryType::Symlink);
                header.set_mode(0o777);
                header.set_size(0);
                builder.append_link(&mut header, path, target)?;
            }
        }
    }
    let mut encoder = builder.into_inner()?;
    encoder.flush()?;
    encoder.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_items_give_the_same_bytes_and_can_be_unpacked() {
        let mut items = BTreeMap::new();
        items.insert("bin/a.so".to_owned(), Item::Link("a.so.1".into()));
        items.insert("bin/a.so.1".to_owned(), Item::File(b"code".to_vec(), true));
        items.insert("licences/L".to_owned(), Item::File(b"text".to_vec(), false));
        let bytes = archive("top", &items).unwrap();
        assert_eq!(bytes, archive("top", &items).unwrap());
        let dir = tempfile::tempdir().unwrap();
        let plain = flate2::read::GzDecoder::new(&*bytes);
        tar::Archive::new(plain).unpack(dir.path()).unwrap();
        let read = |name: &str| fs_err::read_to_string(dir.path().join(name)).unwrap();
        assert_eq!(read("top/bin/a.so"), "code", "through the link");
        assert_eq!(read("top/licences/L"), "text");
        use std::os::unix::fs::PermissionsExt;
        let mode = |name: &str| {
            let meta = fs_err::metadata(dir.path().join(name)).unwrap();
            meta.permissions().mode() & 0o777
        };
        assert_eq!(
            (mode("top/bin/a.so.1"), mode("top/licences/L")),
            (0o755, 0o644)
        );
    }
}
