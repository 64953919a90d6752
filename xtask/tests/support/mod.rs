//! A toy checkout on disk, for tests that run the program itself.

#![allow(dead_code)]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use llama_patchset::model::Digest;
use llama_patchset::tree::TreeManifest;

/// A checkout with the base `toy` (a folder source) and a series of one patch.
pub struct Checkout {
    dir: tempfile::TempDir,
    /// Digest of the base.
    pub base: Digest,
}

/// Writes a file and the folders above it.
pub fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Checkout {
    /// A checkout whose base has `files` further files, so that copying it takes a while.
    pub fn new(files: usize) -> Checkout {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        let upstream = dir.path().join("upstream");
        put(
            &upstream.join("src/main.c"),
            "int main() {\n    one();\n    two();\n}\n",
        );
        put(&upstream.join("CMakeLists.txt"), "project(toy)\n");
        for at in 0..files {
            put(
                &upstream.join(format!("many/{}/{at}.c", at % 20)),
                &format!("int v{at};\n"),
            );
        }
        let base = TreeManifest::of_tree(&upstream, |_| false)
            .unwrap()
            .digest();
        put(
            &root.join("registry/upstreams.toml"),
            &format!(
                "schema = 1\ndefault = \"toy\"\n\n[[base]]\nid = \"toy\"\ntree = \"{base}\"\n\n\
                 [[base.source]]\ndir = {{ path = \"../upstream\" }}\n"
            ),
        );
        put(
            &root.join("registry/series.toml"),
            "schema = 1\n[series]\ntoy = [\"hook\"]\n",
        );
        put(
            &root.join("patches/hook/patch.toml"),
            "schema = 1\nid = \"hook\"\ntitle = \"A hook\"\npurpose = \"Test.\"\n\
             gates = [\"chash\"]\n",
        );
        put(&root.join("gates/chash.toml"), "id = \"chash\"\n");
        put(
            &root.join("patches/hook/hooks.patch"),
            "--- a/src/main.c\n+++ b/src/main.c\n@@ -1,4 +1,5 @@\n int main() {\n     one();\n\
             +    hook(); // opencoti-hook: hook\n     two();\n }\n",
        );
        put(
            &root.join("patches/hook/src/src/hook.c"),
            "void hook() {}\n",
        );
        Checkout { dir, base }
    }

    /// The checkout.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("project")
    }

    /// The working tree.
    pub fn tree(&self) -> PathBuf {
        self.root().join("vendor/toy")
    }

    /// Digest of the working tree, none where there is no tree.
    pub fn tree_digest(&self) -> Option<Digest> {
        let skip = |path: &str| path == ".patchset/";
        let tree = self.tree();
        tree.exists()
            .then(|| TreeManifest::of_tree(&tree, skip).unwrap().digest())
    }

    /// The program, ready to run in this checkout.
    pub fn xtask(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(args)
            .current_dir(self.root())
            .env("LLAMA_PATCHSET_CACHE", self.dir.path().join("cache"))
            .env_remove("LLAMA_PATCHSET_ROOT");
        command
    }

    /// Runs the program.
    pub fn run(&self, args: &[&str]) -> Output {
        self.xtask(args).output().unwrap()
    }

    /// Runs the program, which must succeed, and returns its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Runs the program, which must end with `code`, and returns its stderr.
    pub fn fails(&self, args: &[&str], code: i32) -> String {
        let output = self.run(args);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {stderr}");
        assert!(!stderr.contains("panicked"), "{stderr}");
        stderr
    }
}
