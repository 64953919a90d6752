//! What went into the files of a build, in a form that other programs read: CycloneDX 1.5, JSON.
//!
//! Everything that is named was looked up: the archive and the patches by their digests, what of
//! upstream's `vendor/` the compilers really read, what Cargo's lock file and the Rust library say.
//! The same build gives the same bytes: there is no time in it, and the serial number is a digest.

mod parts;
mod schema;

use std::path::Path;

use serde_json::{Value, json};

use crate::build::{self, Build};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::{Base, Digest, Source};
use crate::vendor::Pristine;
pub use parts::{Part, vendored};
pub use schema::faults;

/// Name of the file in a package.
pub const FILE: &str = "sbom.cdx.json";
/// Version of CycloneDX.
const VERSION: &str = "1.5";
/// Begins the names of our own properties.
const OWN: &str = "llama-patchset:";

/// One patch as it lies in the package.
#[derive(Clone, Debug)]
pub struct PatchFile {
    /// Path in the package.
    pub path: String,
    /// Digest of the file.
    pub sha256: Digest,
}

/// The list of what went into `build`, as bytes of a file. `patches` are what was applied, in order.
pub fn of(ctx: &Ctx, pristine: &Pristine, build: &Build, patches: &[PatchFile]) -> Result<Vec<u8>> {
    let inputs = build::inputs(ctx, build)?;
    let mut all = vec![base(pristine)?];
    all.extend(patches.iter().map(|patch| {
        let name = patch.path.rsplit('/').next().unwrap_or_default();
        json!({
            "type": "file",
            "bom-ref": patch.path,
            "name": name,
            "hashes": hashes(patch.sha256),
            "licenses": licences("MIT"),
        })
    }));
    for part in vendored(pristine, &inputs)? {
        all.push(vendored_part(pristine, &part)?);
    }
    let library = build.dir.join("ext/libggml_ext.a");
    if build.manifest.patchset.is_some() && library.is_file() {
        all.extend(parts::crates(ctx, &library)?.iter().map(rust));
    }
    let contents: Vec<String> = all.iter().filter_map(reference).collect();
    all.extend(tools(build));
    let text = document(build, &pristine.base, all, &contents);
    Ok(text)
}

/// The document, with a serial number that is made of the rest of it.
fn document(build: &Build, base: &Base, components: Vec<Value>, contents: &[String]) -> Vec<u8> {
    let manifest = &build.manifest;
    let name = format!("{}-{}-{}", base.id, manifest.flavour, manifest.backend);
    let name = name + &manifest.variant.suffix();
    let version = match &manifest.patchset {
        Some(patchset) => patchset.id.to_string(),
        None => base.tree.to_string(),
    };
    let mut properties = vec![
        property("source", manifest.source.to_string()),
        property("tree", manifest.tree.to_string()),
    ];
    let flags = manifest.flags.iter();
    properties.extend(flags.map(|(name, value)| property(&format!("flag:{name}"), value.clone())));
    let built = manifest.artifacts.iter().map(|artifact| {
        let name = artifact.path.rsplit('/').next().unwrap_or_default();
        json!({
            "type": "file",
            "bom-ref": format!("bin/{name}"),
            "name": name,
            "hashes": hashes(artifact.sha256),
        })
    });
    let built: Vec<Value> = built.collect();
    let mut document = json!({
        "$schema": format!("http://cyclonedx.org/schema/bom-{VERSION}.schema.json"),
        "bomFormat": "CycloneDX",
        "specVersion": VERSION,
        "version": 1,
        "metadata": {
            "tools": { "components": [{
                "type": "application",
                "name": "llama-patchset",
                "version": env!("CARGO_PKG_VERSION"),
            }] },
            "component": {
                "type": "application",
                "bom-ref": name,
                "name": name,
                "version": version,
                "licenses": licences("MIT"),
                "properties": properties,
                "components": built,
            },
        },
        "components": components,
        "dependencies": [{ "ref": name, "dependsOn": contents }],
    });
    let digest = Digest::of(document.to_string().as_bytes());
    document["serialNumber"] = json!(format!("urn:uuid:{}", uuid(digest)));
    let mut text = serde_json::to_vec_pretty(&document).unwrap_or_default();
    text.push(b'\n');
    text
}

/// A UUID of the kind that is free to be made of anything, version 8.
fn uuid(digest: Digest) -> String {
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.bytes()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x80;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [
        &hex[..8],
        &hex[8..12],
        &hex[12..16],
        &hex[16..20],
        &hex[20..],
    ];
    parts.join("-")
}

fn property(name: &str, value: String) -> Value {
    json!({ "name": format!("{OWN}{name}"), "value": value })
}

fn hashes(sha256: Digest) -> Value {
    json!([{ "alg": "SHA-256", "content": sha256.to_string() }])
}

/// One licence by its SPDX id, several as an expression; what is none of them by its name.
fn licences(text: &str) -> Value {
    match text {
        _ if text.contains(" OR ") => json!([{ "expression": text }]),
        parts::PUBLIC_DOMAIN => json!([{ "license": { "name": text } }]),
        _ => json!([{ "license": { "id": text } }]),
    }
}

fn reference(component: &Value) -> Option<String> {
    component["bom-ref"].as_str().map(str::to_owned)
}

/// llama.cpp, and the archive that it was taken from.
fn base(pristine: &Pristine) -> Result<Value> {
    let base = &pristine.base;
    let version = match base.commit.as_str() {
        "" => base.id.clone(),
        commit => commit.to_owned(),
    };
    let mut component = json!({
        "type": "library",
        "bom-ref": "llama.cpp",
        "name": "llama.cpp",
        "version": version,
        "properties": [
            property("base", base.id.clone()),
            property("tree", base.tree.to_string()),
        ],
    });
    let licence = pristine.root.join("LICENSE");
    if let Some(found) = parts::licence_of(&licence)? {
        component["licenses"] = licences(&found);
    }
    // All sources give the same tree; the first with an archive names it.
    if let Some((purl, sha256)) = base.source.iter().find_map(archive) {
        component["hashes"] = hashes(sha256);
        if let Some(purl) = purl {
            component["purl"] = json!(purl);
        }
    }
    Ok(component)
}

/// The package and the digest of the archive of a source, where it is one.
fn archive(source: &Source) -> Option<(Option<String>, Digest)> {
    let package = |kind: &str, name: &str, version: &str| format!("pkg:{kind}/{name}@{version}");
    match source {
        Source::Pypi(from) => {
            let purl = package("pypi", &from.package, &from.version);
            Some((Some(purl), from.sha256))
        }
        Source::Crates(from) => {
            let purl = package("cargo", &from.package, &from.version);
            Some((Some(purl), from.sha256))
        }
        Source::Tarball(from) => Some((None, from.sha256)),
        Source::Git(_) | Source::Dir(_) => None,
    }
}

fn vendored_part(pristine: &Pristine, part: &Part) -> Result<Value> {
    let mut files = Vec::new();
    for path in &part.files {
        let sha256 = Digest::of_file(&pristine.root.join(path))?;
        files.push(json!({ "type": "file", "name": path, "hashes": hashes(sha256) }));
    }
    let reference = format!("vendor/{}", part.name);
    let mut component = json!({
        "type": "library",
        "bom-ref": reference,
        "name": part.name,
        "components": files,
    });
    if let Some(licence) = &part.licence {
        component["licenses"] = licences(licence);
    }
    Ok(component)
}

fn rust(one: &parts::Crate) -> Value {
    let mut component = json!({
        "type": "library",
        "bom-ref": format!("crate:{}", one.name),
        "name": one.name,
        "version": one.version,
    });
    if let Some(checksum) = &one.checksum {
        component["purl"] = json!(format!("pkg:cargo/{}@{}", one.name, one.version));
        component["hashes"] = json!([{ "alg": "SHA-256", "content": checksum }]);
    }
    if let Some(licence) = &one.licence {
        component["licenses"] = licences(licence);
    }
    component
}

/// What built it and is not in it.
fn tools(build: &Build) -> Vec<Value> {
    let manifest = &build.manifest;
    let compilers = manifest.compilers.iter();
    let compilers =
        compilers.map(|(language, one)| (format!("{} ({language})", one.id), one.version.clone()));
    let mut all: Vec<(String, String)> = compilers.collect();
    all.push(("cmake".to_owned(), manifest.cmake.clone()));
    all.push(("ninja".to_owned(), manifest.ninja.clone()));
    all.extend(manifest.backend_tools.clone());
    let one = |(name, version): (String, String)| {
        json!({
            "type": "application",
            "bom-ref": format!("tool:{name}"),
            "name": name,
            "version": version,
            "scope": "excluded",
        })
    };
    all.into_iter().map(one).collect()
}

/// Whether the licence file of a part, or the part's own files where it has none, is to be packed.
pub fn licence_files(pristine: &Pristine, part: &Part) -> Vec<String> {
    let folder = format!("vendor/{}", part.name);
    let all = pristine.manifest.iter().map(|(path, _)| path.as_str());
    let in_folder = all.filter(|path| {
        let path = Path::new(path);
        let name = path.file_name().and_then(|name| name.to_str());
        path.parent() == Some(Path::new(&folder)) && name.is_some_and(parts::is_licence)
    });
    let found: Vec<String> = in_folder.map(str::to_owned).collect();
    match found.is_empty() {
        false => found,
        // It stands in the sources themselves.
        true => part.licence_in.iter().cloned().collect(),
    }
}

#[cfg(test)]
mod tests;
