//! A throw-away checkout with a small CMake project, and a sink that remembers.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use llama_patchset::build::{self, Build, Recipe};
use llama_patchset::ctx::{Cancel, Quiet, Sink, Task};
use llama_patchset::model::{Digest, Flavour, PatchSetStamp};
use llama_patchset::project::Project;
use llama_patchset::tree::TreeManifest;
use llama_patchset::{Ctx, Result};

/// Keeps what the user would have seen.
#[derive(Clone, Default)]
pub struct Record(Arc<Mutex<Vec<String>>>);

impl Record {
    fn add(&self, kind: &str, message: &str) {
        self.0.lock().unwrap().push(format!("{kind} {message}"));
    }

    /// All that came since the last call.
    pub fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }
}

impl Sink for Record {
    fn note(&self, message: &str) {
        self.add("note", message);
    }
    fn warn(&self, message: &str) {
        self.add("warn", message);
    }
    fn detail(&self, _: &str) {}
    fn task(&self, title: &str, _: Option<u64>) -> Box<dyn Task> {
        self.add("task", title);
        Box::new(Quiet)
    }
}

/// The checkout, and the tree that it builds.
pub struct Toy {
    pub ctx: Ctx,
    pub record: Record,
    pub source: PathBuf,
    _dir: Option<tempfile::TempDir>,
}

const LISTS: &str = r#"
cmake_minimum_required(VERSION 3.18)
project(toy C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
option(GGML_NATIVE "an option with a default" ON)
add_library(part SHARED part.c)
set_target_properties(part PROPERTIES VERSION 1.2.3 SOVERSION 1)
add_executable(demo main.cpp)
target_link_libraries(demo part)
include(extra.cmake OPTIONAL)
"#;

const PART: &str = r#"
static const volatile char field[512] = "OPENCOTI-PATCHSET-STAMP-FIELD-1:" "unstamped";
const char * part(void) { return __FILE__; }
int text(void) { return field[32]; }
"#;

const MAIN: &str = r#"
#include <cstdio>
extern "C" { const char * part(void); int text(void); }
int main() { std::printf("%s %c %s", part(), text(), __FILE__); }
"#;

impl Toy {
    /// A fresh one.
    pub fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let toy = Toy::at(dir.path());
        toy.write("CMakeLists.txt", LISTS);
        toy.write("part.c", PART);
        toy.write("main.cpp", MAIN);
        Toy {
            _dir: Some(dir),
            ..toy
        }
    }

    /// The one that lies in `dir`.
    pub fn at(dir: &Path) -> Self {
        // With a blank, since users have them.
        let root = dir.join("check out");
        fs::create_dir_all(root.join("registry")).unwrap();
        fs::write(root.join("registry/upstreams.toml"), "schema = 1\n").unwrap();
        let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/toolchains.toml");
        fs::copy(tools, root.join("registry/toolchains.toml")).unwrap();
        let record = Record::default();
        Toy {
            ctx: Ctx {
                project: Project::new(&root, &dir.join("cache")).unwrap(),
                sink: Box::new(record.clone()),
                offline: true,
                no_provision: true,
                jobs: 1,
                cancel: Cancel::default(),
            },
            record,
            source: dir.join("tree"),
            _dir: None,
        }
    }

    /// Writes a source file.
    pub fn write(&self, path: &str, text: &str) {
        fs::create_dir_all(&self.source).unwrap();
        fs::write(self.source.join(path), text).unwrap();
    }

    pub fn recipe(&self, flavour: Flavour) -> Recipe {
        let tree = TreeManifest::of_tree(&self.source, |_| false).unwrap();
        Recipe {
            base: "toy".to_owned(),
            commit: String::new(),
            build_number: 0,
            tree: tree.digest(),
            flavour,
            backend: "cpu".to_owned(),
            cuda: Default::default(),
            variant: Default::default(),
            source: self.source.clone(),
            content: tree.digest(),
            patchset: (flavour == Flavour::Patched).then(|| PatchSetStamp {
                id: Digest::of(b"one"),
                patches: vec!["p".to_owned()],
            }),
            targets: vec!["demo".to_owned()],
        }
    }

    pub fn build(&self, flavour: Flavour) -> Result<Build> {
        build::build(&self.ctx, &self.recipe(flavour), false)
    }

    /// Where the build's manifest lies while it is true.
    pub fn manifest_file(&self, flavour: Flavour) -> PathBuf {
        let dir = self.ctx.project.build_dir("toy", flavour, "cpu");
        dir.join("build.json")
    }
}
