//! A toy project for engine tests: a base of three files and whatever series a test writes.

use std::fs;
use std::path::{Path, PathBuf};

use crate::ctx::{Cancel, Ctx, Quiet};
use crate::model::Digest;
use crate::patchset::Series;
use crate::project::Project;
use crate::tree::TreeManifest;
use crate::vendor::Pristine;

/// The base's `main.c`.
pub const MAIN: &str = "int main() {\n    one();\n    two();\n    return 0;\n}\n";

/// A hook for `main.c`, between `one` and `two`.
pub const HOOK: &str = "\
diff --git a/src/main.c b/src/main.c
--- a/src/main.c
+++ b/src/main.c
@@ -1,5 +1,6 @@ int main()
 int main() {
     one();
+    hook(); // opencoti-hook: first
     two();
     return 0;
 }
";

/// A project in a temporary folder.
pub struct Toy {
    _dir: tempfile::TempDir,
    /// What engine functions take.
    pub ctx: Ctx,
    /// The base, unpacked.
    pub pristine: Pristine,
}

impl Toy {
    /// A project with the base and an empty series.
    pub fn new() -> Toy {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        let tree = dir.path().join("cache/tree");
        put(&tree.join("src/main.c"), MAIN);
        put(&tree.join("src/other.c"), "int other;\n");
        put(&tree.join("CMakeLists.txt"), "project(toy)\n");
        let manifest = TreeManifest::of_tree(&tree, |_| false).unwrap();
        let digest = manifest.digest();
        put(
            &root.join("registry/upstreams.toml"),
            &format!(
                "schema = 1\ndefault = \"toy\"\n[[base]]\nid = \"toy\"\ntree = \"{digest}\"\n"
            ),
        );
        let project = Project::new(&root, &dir.path().join("cache")).unwrap();
        let base = project.base(None).unwrap();
        let toy = Toy {
            ctx: Ctx {
                project,
                sink: Box::new(Quiet),
                offline: true,
                no_provision: true,
                jobs: 1,
                cancel: Cancel::default(),
            },
            pristine: Pristine {
                base,
                root: tree,
                manifest,
            },
            _dir: dir,
        };
        put(&root.join("gates/chash.toml"), "id = \"chash\"\n");
        toy.series(&[]);
        toy
    }

    /// A project whose series is `first` (a hook and an overlay file) and `second` (a hook into
    /// the same place and into the overlay of the first).
    pub fn with_two_patches() -> Toy {
        let toy = Toy::new();
        toy.patch("first", HOOK, &[("src/hook.c", "void hook() {}\n")]);
        toy.patch(
            "second",
            "\
--- a/src/main.c
+++ b/src/main.c
@@ -2,4 +2,5 @@ int main()
     one();
     hook(); // opencoti-hook: first
+    more(); // opencoti-hook: second
     two();
     return 0;
",
            &[("deep/er/new.txt", "new\n")],
        );
        toy.series(&["first", "second"]);
        toy
    }

    /// Writes a patch.
    pub fn patch(&self, id: &str, hooks: &str, overlay: &[(&str, &str)]) {
        let dir = self.root().join("patches").join(id);
        put(
            &dir.join("patch.toml"),
            &format!(
                "schema = 1\nid = \"{id}\"\ntitle = \"The {id}\"\npurpose = \"Test.\"\n\
                 gates = [\"chash\"]\n"
            ),
        );
        if !hooks.is_empty() {
            put(&dir.join("hooks.patch"), hooks);
        }
        for (path, text) in overlay {
            put(&dir.join("src").join(path), text);
        }
    }

    /// Writes the series.
    pub fn series(&self, ids: &[&str]) {
        put(
            &self.root().join("registry/series.toml"),
            &format!("schema = 1\n[series]\ntoy = {ids:?}\n"),
        );
    }

    /// Loads the series.
    pub fn load(&self) -> Series {
        Series::load(&self.ctx.project, &self.pristine.base).unwrap()
    }

    /// The checkout.
    pub fn root(&self) -> &Path {
        self.ctx.project.root()
    }

    /// The working tree.
    pub fn tree(&self) -> PathBuf {
        self.ctx.project.working_tree("toy")
    }

    /// Digest of the working tree as a whole.
    pub fn tree_digest(&self) -> Digest {
        crate::patchset::scan(&self.tree()).unwrap().digest()
    }
}

/// Writes a file and the folders above it.
pub fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
