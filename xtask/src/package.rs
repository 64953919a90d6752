//! What is given away of a build: one archive with all that its users may ask for.
//!
//! ```text
//! <base>-<flavour>-<backend>/
//!   bin/                     programs, libraries and the links between them, stamped
//!   bin/llama-patchset.json  the manifest
//!   licences/                upstream's, those of what it includes and is built in, and this project's
//!   patches/                 the series as mails for `git am` (patched builds)
//!   sbom.cdx.json            what went into it, for other programs to read
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
use crate::gate;
use crate::model::{Base, Digest, Flavour, Variant};
use crate::patchset::Series;
use crate::sbom::{self, PatchFile};
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
    /// Whether its code is for the sort of processor that built it, and dies on one that lacks what that has.
    pub native: bool,
}

/// One entry of the archive.
enum Item {
    /// Content, and whether it is run.
    File(Vec<u8>, bool),
    /// A link to a name beside it.
    Link(PathBuf),
}

/// What to pack, and where to.
#[derive(Clone, Debug)]
pub struct Order<'a> {
    /// Which tree it was built from.
    pub flavour: Flavour,
    /// For what it was built.
    pub backend: &'a str,
    /// How it was built besides.
    pub variant: Variant,
    /// The folder to write into.
    pub dir: &'a Path,
    /// Whether an archive of that name and another content is replaced.
    pub force: bool,
}

/// Packs the finished build of `base`. A build that is not what its manifest says, or whose
/// files carry no stamp that holds, or that is of another base or series, is a finding; an archive of that
/// name that holds something else is a usage error.
pub fn package(ctx: &Ctx, base: &Base, order: &Order<'_>) -> Result<Package> {
    let Order {
        flavour,
        backend,
        variant,
        ..
    } = *order;
    let hint = || {
        format!(
            "cargo xtask build --{flavour} --backend {backend} --base {}{}",
            base.id,
            variant.flags()
        )
    };
    let Some(build) = Build::find_variant(ctx, &base.id, flavour, backend, variant)? else {
        return Err(Error::usage(format!(
            "there is no {flavour} build of {} for {backend}{}",
            base.id,
            variant.suffix()
        ))
        .hint(hint()));
    };
    if let Some(first) = build::check(&build)?.first() {
        return Err(Error::finding(format!("{first}")).hint(hint()));
    }
    if let Some(what) = gate::of_another_base(&build.manifest, base) {
        return Err(Error::finding(format!(
            "{} is no build of {} as it is now: {what}",
            build.manifest.name(),
            base.id
        ))
        .hint(hint()));
    }
    let pristine = crate::vendor::ensure(ctx, base)?;
    let mut items = files(&build)?;
    licences(ctx, &pristine, &build, &mut items)?;
    let mut patches = Vec::new();
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
            let path = format!("patches/{}", mail.name);
            patches.push(PatchFile {
                path: path.clone(),
                sha256: Digest::of(&mail.content),
            });
            items.insert(path, Item::File(mail.content, false));
        }
    }
    let list = sbom::of(ctx, &pristine, &build, &patches)?;
    items.insert(sbom::FILE.to_owned(), Item::File(list, false));
    let name = format!("{}-{flavour}-{backend}{}", base.id, variant.suffix());
    let bytes = archive(&name, &items).context(|| format!("packing {name}"))?;
    // Somebody may have built meanwhile: what was read must be of one moment.
    if let Some(first) = build::check(&build)?.first() {
        return Err(Error::finding(format!("{first}"))
            .hint("run the same command again once nothing builds"));
    }
    let path = order.dir.join(format!("{name}.tar.gz"));
    put(ctx, order, &path, &bytes)?;
    let native = build.manifest.is_native();
    if native {
        ctx.sink.warn(&format!(
            "{name} is for the sort of processor that built it (GGML_NATIVE=ON): on one that lacks what that has its programs \
             end with an illegal instruction. For all processors build and pack it with --cpu-variants"
        ));
    }
    Ok(Package {
        native,
        size: bytes.len() as u64,
        sha256: Digest::of(&bytes),
        files: items.into_keys().collect(),
        path,
    })
}

/// Writes the archive in one step. What a killed run left half written is removed.
fn put(ctx: &Ctx, order: &Order<'_>, path: &Path, bytes: &[u8]) -> Result<()> {
    fs_err::create_dir_all(order.dir)?;
    let _lock = crate::lock::file(ctx, &order.dir.join(".lock"))?;
    for entry in fs_err::read_dir(order.dir)? {
        let entry = entry?;
        let is_left = entry.file_name().to_string_lossy().starts_with(".tmp-");
        if is_left && entry.file_type()?.is_file() {
            fs_err::remove_file(entry.path())?;
        }
    }
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Ok(meta) if meta.is_file() && Digest::of_file(path)? == Digest::of(bytes) => return Ok(()),
        Ok(meta) if meta.is_file() && order.force => {}
        Ok(_) => {
            return Err(Error::usage(format!(
                "{} is there, and holds something else",
                ctx.project.show(path)
            ))
            .hint("--force replaces it; --output names another folder"));
        }
        Err(error) => return Err(error.into()),
    }
    crate::model::write_atomic(path, bytes)
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
fn licences(
    ctx: &Ctx,
    pristine: &Pristine,
    build: &Build,
    items: &mut BTreeMap<String, Item>,
) -> Result<()> {
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
    let inputs = build::inputs(ctx, build)?;
    for part in sbom::vendored(pristine, &inputs)? {
        for path in sbom::licence_files(pristine, &part) {
            let flat = path.trim_start_matches("vendor/").replace('/', "-");
            add(flat, &pristine.root.join(&path))?;
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
    use crate::model::BuildManifest;
    use crate::toy::Toy;

    #[test]
    fn vanilla_of_another_base_is_not_packed() {
        let toy = Toy::with_two_patches();
        let base = toy.pristine.base.clone();
        let out = toy.root().join("packed");
        let says = |change: &dyn Fn(&mut BuildManifest)| {
            let mut manifest = BuildManifest {
                schema: 1,
                base: base.id.clone(),
                tree: base.tree,
                flavour: Flavour::Vanilla,
                backend: "cpu".to_owned(),
                variant: Variant::default(),
                patchset: None,
                source: base.tree,
                flags: BTreeMap::new(),
                compilers: BTreeMap::new(),
                cmake: String::new(),
                ninja: String::new(),
                launcher: None,
                backend_tools: BTreeMap::new(),
                surroundings: Default::default(),
                artifacts: Vec::new(),
            };
            change(&mut manifest);
            let dir = toy.ctx.project.build_dir(&base.id, Flavour::Vanilla, "cpu");
            let beside = dir.join("out/bin").join(build::BESIDE);
            fs_err::create_dir_all(dir.join("out/bin")).unwrap();
            for file in [dir.join("build.json"), beside] {
                crate::model::write_json(&file, &manifest).unwrap();
            }
            let order = Order {
                flavour: Flavour::Vanilla,
                backend: "cpu",
                variant: Variant::default(),
                dir: &out,
                force: false,
            };
            let error = package(&toy.ctx, &base, &order).unwrap_err();
            assert!(!out.exists());
            error.to_string()
        };
        let other = Digest::of(b"other");
        let tree = says(&|manifest| (manifest.tree, manifest.source) = (other, other));
        assert!(tree.contains("it was built from the tree"), "{tree}");
        let source = says(&|manifest| manifest.source = other);
        assert!(source.contains("its sources are"), "{source}");
        // That of the base comes further: to what a build without a folder lacks.
        let right = says(&|_| {});
        assert!(!right.contains("is no build of"), "{right}");
    }

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
