//! What a built file carries of where it comes from.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::model::{
    BuildManifest, Compiler, Digest, Flavour, PatchSetStamp, Surroundings, Variant,
};

/// The stamp inside a program or library. It holds nothing that differs between two checkouts, so
/// that the same inputs give the same bytes, stamp and all.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Provenance {
    /// Version of this format; 1.
    pub schema: u32,
    /// File name as it was built.
    pub file: String,
    /// Digest of the file as the linker made it, without the stamp.
    pub content: Digest,
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
    /// Build options as CMake really cached them.
    pub flags: BTreeMap<String, String>,
    /// Compilers by language: id and version.
    pub compilers: BTreeMap<String, String>,
    /// Versions of what the backend needs besides.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub backend_tools: BTreeMap<String, String>,
    /// What of the machine that built went into it; absent where nobody looked.
    #[serde(default, skip_serializing_if = "Surroundings::is_empty")]
    pub surroundings: Surroundings,
}

impl Provenance {
    /// The stamp of the file called `file`, whose content is `content`, of a build.
    pub fn of(manifest: &BuildManifest, file: &str, content: Digest) -> Self {
        let compiler = |compiler: &Compiler| format!("{} {}", compiler.id, compiler.version);
        let compilers = manifest.compilers.iter();
        Provenance {
            schema: 1,
            file: file.to_owned(),
            content,
            base: manifest.base.clone(),
            tree: manifest.tree,
            flavour: manifest.flavour,
            backend: manifest.backend.clone(),
            variant: manifest.variant,
            patchset: manifest.patchset.clone(),
            source: manifest.source,
            flags: manifest.flags.clone(),
            compilers: compilers
                .map(|(language, one)| (language.clone(), compiler(one)))
                .collect(),
            backend_tools: manifest.backend_tools.clone(),
            surroundings: manifest.surroundings.without_places(),
        }
    }

    /// Whether both are of one build.
    pub fn is_of_the_build_of(&self, other: &Provenance) -> bool {
        let facts = |stamp: &Provenance| {
            let mut stamp = stamp.clone();
            stamp.file.clear();
            stamp.content = Digest::of(b"");
            stamp
        };
        facts(self) == facts(other)
    }

    /// Of what build it is, in one line.
    pub fn summary(&self) -> String {
        let patchset = match &self.patchset {
            Some(patchset) => format!(", patch set {}", patchset.id.short()),
            None => String::new(),
        };
        format!(
            "{} {}-{}{}{patchset}, source {}",
            self.base,
            self.flavour,
            self.backend,
            self.variant.suffix(),
            self.source.short()
        )
    }
}
