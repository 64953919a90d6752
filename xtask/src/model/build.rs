//! `target/llama/<base>/<flavour>-<backend>/build.json`: what a build was made from and what
//! came out.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::model::{Digest, Surroundings, Variant};

/// Which tree a build is made from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Flavour {
    /// The pristine tree.
    Vanilla,
    /// The working tree.
    Patched,
}

impl fmt::Display for Flavour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Flavour::Vanilla => "vanilla",
            Flavour::Patched => "patched",
        })
    }
}

/// Provenance of one build.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct BuildManifest {
    /// Version of this format; 1.
    pub schema: u32,
    /// Base id.
    pub base: String,
    /// Digest of the base's manifest.
    pub tree: Digest,
    /// Which tree it was built from.
    pub flavour: Flavour,
    /// `cpu`, `vulkan` or `cuda`.
    pub backend: String,
    /// How it was made besides; absent where that is the plain way.
    #[serde(default, skip_serializing_if = "Variant::is_plain")]
    pub variant: Variant,
    /// The patch set; absent for vanilla.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub patchset: Option<PatchSetStamp>,
    /// Digest over the paths and contents of the sources that were built.
    pub source: Digest,
    /// Build options as CMake really cached them (`CMAKE_*`, `GGML_*`, `LLAMA_*`, `OPENCOTI_*`
    /// and `BUILD_SHARED_LIBS`), without paths of this machine.
    pub flags: BTreeMap<String, String>,
    /// Compilers, by language (`C`, `CXX`, `CUDA`).
    pub compilers: BTreeMap<String, Compiler>,
    /// `cmake --version`.
    pub cmake: String,
    /// `ninja --version`.
    pub ninja: String,
    /// Compiler launcher, such as `ccache`; absent where none was found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launcher: Option<String>,
    /// Versions of what the backend needs besides, by name: `glslc`, `vulkan-headers`,
    /// `cuda`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_tools: BTreeMap<String, String>,
    /// What of the machine that built went into it; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Surroundings::is_empty")]
    pub surroundings: Surroundings,
    /// Everything that was built and is used: programs and libraries.
    pub artifacts: Vec<Artifact>,
}

/// See [`BuildManifest::patchset`].
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct PatchSetStamp {
    /// The patch-set id.
    pub id: Digest,
    /// The patches, in order.
    pub patches: Vec<String>,
}

/// One compiler.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Compiler {
    /// CMake's id: `GNU`, `Clang`.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Its path.
    pub path: String,
}

/// One built file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Artifact {
    /// Path relative to the build folder: `out/bin/llama-server`.
    pub path: String,
    /// Size in bytes.
    pub size: u64,
    /// Digest of the file.
    pub sha256: Digest,
    /// Digest of the file as the linker made it, without the stamp; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Digest>,
}

impl BuildManifest {
    /// `llama-0.5.0 vanilla-cpu`, with the variant where it is not the plain one.
    pub fn name(&self) -> String {
        let suffix = self.variant.suffix();
        format!("{} {}-{}{suffix}", self.base, self.flavour, self.backend)
    }

    /// The command that makes such a build.
    pub fn command(&self) -> String {
        let (base, backend, flags) = (&self.base, &self.backend, self.variant.flags());
        format!(
            "cargo xtask build --base {base} --backend {backend} --{}{flags}",
            self.flavour
        )
    }

    /// Whether it is for the processor that it was made on.
    pub fn is_native(&self) -> bool {
        let native = self.flags.get("GGML_NATIVE");
        native.is_none_or(|value| value != "OFF")
    }
}

impl Artifact {
    /// What two equal files have alike, whatever builds they are stamped as being of.
    pub fn identity(&self) -> Digest {
        self.content.unwrap_or(self.sha256)
    }
}
