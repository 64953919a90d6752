//! Tools, CMake, ninja, stamps and build manifests.

use std::path::PathBuf;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Base, BuildManifest, Flavour};

/// A finished build whose artifacts are what its manifest says.
#[derive(Clone, Debug)]
pub struct Build {
    /// `target/llama/<base>/<flavour>-<backend>`.
    pub dir: PathBuf,
    /// Provenance.
    pub manifest: BuildManifest,
}

impl Build {
    /// Path of the built program `name`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.dir.join("out/bin").join(name)
    }
}

/// Builds `flavour` of `base` for `backend` where anything changed, else finds it done.
pub fn ensure(_ctx: &Ctx, _base: &Base, _flavour: Flavour, _backend: &str) -> Result<Build> {
    Err(Error::internal("not written yet"))
}
