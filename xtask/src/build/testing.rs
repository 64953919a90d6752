//! A throw-away checkout for the tests of this module.

use std::path::{Path, PathBuf};

use crate::build::Recipe;
use crate::ctx::{Cancel, Ctx, Quiet};
use crate::model::{Digest, Flavour};
use crate::project::Project;

/// A checkout without a vendored tree.
pub struct Toy {
    /// Its context.
    pub ctx: Ctx,
    /// Keeps the folder alive.
    #[allow(dead_code)]
    pub dir: tempfile::TempDir,
}

impl Toy {
    /// The checkout.
    pub fn root(&self) -> &Path {
        self.ctx.project.root()
    }

    /// A recipe for a tree that need not be there.
    pub fn recipe(&self, flavour: Flavour) -> Recipe {
        Recipe {
            base: "toy".to_owned(),
            commit: "0123456789abcdef".to_owned(),
            build_number: 7,
            tree: Digest::of(b""),
            flavour,
            backend: "cpu".to_owned(),
            cuda: Default::default(),
            variant: Default::default(),
            source: PathBuf::from("/nonexistent"),
            content: Digest::of(b""),
            patchset: None,
            targets: vec!["demo".to_owned()],
        }
    }
}

/// A checkout with the committed registry of tools.
pub fn toy_ctx() -> Toy {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("checkout");
    std::fs::create_dir_all(root.join("registry")).unwrap();
    std::fs::write(root.join("registry/upstreams.toml"), "schema = 1\n").unwrap();
    let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/toolchains.toml");
    std::fs::copy(tools, root.join("registry/toolchains.toml")).unwrap();
    let ctx = Ctx {
        project: Project::new(&root, &dir.path().join("cache")).unwrap(),
        sink: Box::new(Quiet),
        offline: false,
        no_provision: false,
        jobs: 1,
        cancel: Cancel::default(),
    };
    Toy { ctx, dir }
}
