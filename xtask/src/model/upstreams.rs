//! `registry/upstreams.toml`: the bases, where they come from and what they must contain.

use serde::{Deserialize, Serialize};

use crate::model::Digest;

/// The whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Upstreams {
    /// Version of this format; 1.
    pub schema: u32,
    /// The base that commands use when none is named.
    pub default: String,
    /// All bases.
    #[serde(default)]
    pub base: Vec<Base>,
}

/// One upstream llama.cpp tree, pinned by content.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Base {
    /// Name: `llama-0.5.0`.
    pub id: String,
    /// Upstream commit, full; empty for trees that never were a commit.
    #[serde(default)]
    pub commit: String,
    /// Upstream build number (`b11312`), 0 where unknown. Pinned here, since a tree without
    /// history cannot tell and CMake would ask an enclosing repository.
    #[serde(default)]
    pub build_number: u32,
    /// Whether folders of upstream are missing, so that it cannot be built in full: a tree that
    /// a package carries without its server or its tests.
    #[serde(default)]
    pub partial: bool,
    /// Digest of the per-file manifest after the exclusion rule.
    pub tree: Digest,
    /// Paths that no build needs: a folder with a trailing slash, or a file. They are left out
    /// when the base is unpacked and are not part of `tree`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// Sources, tried in order.
    #[serde(default)]
    pub source: Vec<Source>,
}

/// Where a base comes from. Externally tagged, so that errors keep line and column.
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// A commit of a git repository, fetched alone with the user's `git`.
    Git(GitSource),
    /// The source distribution of a PyPI package, fetched with `pip download`.
    Pypi(PypiSource),
    /// The archive of a crate, fetched with `cargo fetch`.
    Crates(CratesSource),
    /// A local archive.
    Tarball(TarballSource),
    /// A local folder.
    Dir(DirSource),
}

/// See [`Source::Git`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct GitSource {
    /// Anything that `git fetch` takes.
    pub url: String,
    /// The full commit id.
    pub commit: String,
}

/// See [`Source::Pypi`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PypiSource {
    /// Package name.
    pub package: String,
    /// Exact version.
    pub version: String,
    /// Digest of the archive.
    pub sha256: Digest,
    /// The folder inside the archive, without its top-level folder.
    #[serde(default)]
    pub subdir: String,
}

/// See [`Source::Crates`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct CratesSource {
    /// Name of the crate.
    pub package: String,
    /// Exact version.
    pub version: String,
    /// Digest of the `.crate` file, as the registry's index has it too.
    pub sha256: Digest,
    /// The folder inside the crate.
    #[serde(default)]
    pub subdir: String,
}

/// See [`Source::Tarball`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct TarballSource {
    /// Path of a `.tar` or `.tar.gz`, relative to the checkout.
    pub path: String,
    /// Digest of the archive.
    pub sha256: Digest,
    /// The folder inside the archive, without its top-level folder.
    #[serde(default)]
    pub subdir: String,
}

/// See [`Source::Dir`].
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct DirSource {
    /// Path of a folder, relative to the checkout.
    pub path: String,
}
