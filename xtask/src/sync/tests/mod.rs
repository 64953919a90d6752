//! Two toy bases, a series on the first, and what becomes of it on the second.

mod flow;
mod torture;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::ctx::{Cancel, Ctx, Quiet};
use crate::diff;
use crate::patchset::Series;
use crate::project::Project;
use crate::sync::{Decisions, History, Port, port};
use crate::tree::{RelPath, TreeManifest};
use crate::vendor::Pristine;

/// A project with the bases `old` and `new`.
pub struct Two {
    _dir: tempfile::TempDir,
    pub ctx: Ctx,
    pub old: Pristine,
    pub new: Pristine,
}

pub type Files<'a> = &'a [(&'a str, &'a str)];

impl Two {
    pub fn new(old: Files<'_>, new: Files<'_>) -> Two {
        Two::with(old, new, "")
    }

    /// `more` goes into the entry of the new base.
    pub fn with(old: Files<'_>, new: Files<'_>, more: &str) -> Two {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("project");
        let cache = dir.path().join("cache");
        let mut upstreams = "schema = 1\ndefault = \"old\"\n".to_owned();
        for (id, files) in [("old", old), ("new", new)] {
            let source = dir.path().join("sources").join(id);
            for (path, text) in files {
                put(&source.join(path), text);
            }
            fs::create_dir_all(&source).unwrap();
            let digest = TreeManifest::of_tree(&source, |_| false).unwrap().digest();
            let more = if id == "new" { more } else { "" };
            upstreams.push_str(&format!(
                "[[base]]\nid = \"{id}\"\ntree = \"{digest}\"\n{more}\n[[base.source]]\n\
                 dir = {{ path = {:?} }}\n",
                source.display().to_string()
            ));
        }
        put(&root.join("registry/upstreams.toml"), &upstreams);
        put(
            &root.join("registry/series.toml"),
            "schema = 1\n# kept\n[series]\nold = []\n",
        );
        let ctx = Ctx {
            project: Project::new(&root, &cache).unwrap(),
            sink: Box::new(Quiet),
            offline: true,
            no_provision: true,
            jobs: 1,
            cancel: Cancel::default(),
        };
        let base = |id| {
            let base = ctx.project.base(Some(id)).unwrap();
            crate::vendor::ensure(&ctx, &base).unwrap()
        };
        let (old, new) = (base("old"), base("new"));
        Two {
            _dir: dir,
            ctx,
            old,
            new,
        }
    }

    /// A patch that inserts `hook` behind the first line that holds `after`, in each file.
    pub fn patch(&self, id: &str, hooks: &[(&str, &str, &str)]) {
        self.patch_with(id, hooks, &[], "");
    }

    /// The same with overlay files and more of a manifest. Hooks go behind those of the patches
    /// that are there.
    pub fn patch_with(
        &self,
        id: &str,
        hooks: &[(&str, &str, &str)],
        overlay: Files<'_>,
        more: &str,
    ) {
        let series = self.series();
        let images = crate::patchset::Images::compute(&self.old, &series).unwrap();
        let mut after: BTreeMap<RelPath, (String, String)> = BTreeMap::new();
        for (path, anchor, text) in hooks {
            let path = RelPath::new(*path).unwrap();
            let (_, now) = after.entry(path.clone()).or_insert_with(|| {
                let content = match images.at(&path, images.patches()) {
                    Some(image) => image.content.clone(),
                    None => fs::read(path.below(&self.old.root)).unwrap(),
                };
                let text = String::from_utf8(content).unwrap();
                (text.clone(), text)
            });
            let at = now.find(anchor).unwrap_or_else(|| panic!("no {anchor}"));
            let end = now[at..].find('\n').unwrap() + at + 1;
            now.insert_str(end, text);
        }
        let hooks: Vec<u8> = after
            .iter()
            .flat_map(|(path, (before, after))| {
                diff::between(path, before.as_bytes(), after.as_bytes())
            })
            .flat_map(|diff| diff::to_text(&diff))
            .collect();
        let dir = self.root().join("patches").join(id);
        put(
            &dir.join("patch.toml"),
            &format!(
                "schema = 1\nid = \"{id}\"\ntitle = \"The {id}\"\npurpose = \"Test.\"\n{more}"
            ),
        );
        if !hooks.is_empty() {
            put(&dir.join("hooks.patch"), &String::from_utf8(hooks).unwrap());
        }
        for (path, text) in overlay {
            put(&dir.join("src").join(path), text);
        }
        let mut ids = series.ids();
        ids.push(id.to_owned());
        put(
            &self.root().join("registry/series.toml"),
            &format!("schema = 1\n# kept\n[series]\nold = {ids:?}\n"),
        );
    }

    pub fn series(&self) -> Series {
        Series::load(&self.ctx.project, &self.old.base).unwrap()
    }

    pub fn port(&self) -> Port {
        self.port_with(&Decisions::default())
    }

    pub fn port_with(&self, decisions: &Decisions) -> Port {
        port(
            &self.ctx,
            &self.old,
            &self.series(),
            &self.new,
            decisions,
            &History::none(),
        )
        .unwrap()
    }

    /// The new base with what could be carried over.
    pub fn file(&self, port: &Port, path: &str) -> String {
        let series = Series::of(&self.ctx.project, &self.new.base, port.patches.clone()).unwrap();
        let images = crate::patchset::Images::compute(&self.new, &series).unwrap();
        let path = RelPath::new(path).unwrap();
        let content = match images.at(&path, images.patches()) {
            Some(image) => image.content.clone(),
            None => fs::read(path.below(&self.new.root)).unwrap(),
        };
        String::from_utf8(content).unwrap()
    }

    pub fn root(&self) -> &Path {
        self.ctx.project.root()
    }

    /// Every committed file and every working tree, so that "as before" can be asked.
    pub fn everything(&self) -> BTreeMap<String, String> {
        let mut all = BTreeMap::new();
        for entry in walkdir::WalkDir::new(self.root()) {
            let entry = entry.unwrap();
            let path = entry.path().strip_prefix(self.root()).unwrap();
            let path = path.display().to_string();
            let ours = [
                "vendor/.lock",
                "vendor/.sync",
                "vendor/.discarded",
                // It names the folder of the test.
                "registry/upstreams.toml",
            ];
            // Only spares hashing.
            if path.ends_with(".patchset/stamps") {
                continue;
            }
            if entry.file_type().is_file() && !ours.iter().any(|own| path.starts_with(own)) {
                all.insert(path, fs::read_to_string(entry.path()).unwrap());
            }
        }
        all
    }
}

/// Writes a file and the folders above it.
pub fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}
