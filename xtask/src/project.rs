//! Where things are: one checkout of the project, and the user's cache that all checkouts share.
//!
//! ```text
//! <root>/registry/          upstreams.toml series.toml hooks.toml …      committed
//! <root>/patches/<id>/      patch.toml hooks.patch src/…                 committed
//! <root>/vendor/<base>/     working tree: the base with its series       git-ignored
//! <root>/target/llama/<base>/<flavour>-<backend>/   builds               git-ignored
//! <cache>/downloads/        archives, named by digest                    shared
//! <cache>/bases/<base>-<digest>/{tree,manifest,index}   pristine trees       shared
//! ```

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::model::{Base, Flavour, SeriesFile, Upstreams};

/// Environment variable that moves the shared cache folder.
pub const CACHE_VAR: &str = "LLAMA_PATCHSET_CACHE";

/// One checkout of the project.
#[derive(Clone, Debug)]
pub struct Project {
    root: PathBuf,
    cache: PathBuf,
    /// Where working trees, patched builds and what gates leave lie instead.
    aside: Option<PathBuf>,
}

impl Project {
    /// A project at `root` with its shared cache at `cache`. Both are made absolute, and `root` is
    /// named without `..` and links, as CMake and compilers name it in what they write.
    pub fn new(root: &Path, cache: &Path) -> Result<Self> {
        let root = match fs_err::canonicalize(root) {
            Ok(root) => root,
            // Then it is no checkout, which is said with the name that was given.
            Err(_) => std::path::absolute(root)?,
        };
        if !root.join("registry/upstreams.toml").is_file() {
            return Err(Error::usage(format!(
                "{} is no checkout of this project: it has no registry/upstreams.toml",
                root.display()
            ))
            .hint("run the command inside the checkout, or name it with --root"));
        }
        Ok(Project {
            root,
            cache: std::path::absolute(cache)?,
            aside: None,
        })
    }

    /// The same checkout with working trees, patched builds and what gates leave below `dir`, so
    /// that its own stay as they are. Vanilla builds are the checkout's: nothing in them changes.
    #[must_use]
    pub fn aside(&self, dir: &Path) -> Self {
        Project {
            aside: Some(dir.to_path_buf()),
            ..self.clone()
        }
    }

    /// The user's cache folder: `LLAMA_PATCHSET_CACHE`, else `XDG_CACHE_HOME/llama-patchset`,
    /// else `~/.cache/llama-patchset`.
    pub fn default_cache() -> Result<PathBuf> {
        let var = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        if let Some(dir) = var(CACHE_VAR) {
            return Ok(dir.into());
        }
        if let Some(dir) = var("XDG_CACHE_HOME") {
            return Ok(Path::new(&dir).join("llama-patchset"));
        }
        match var("HOME") {
            Some(home) => Ok(Path::new(&home).join(".cache/llama-patchset")),
            None => Err(Error::environment(format!(
                "no cache folder: neither {CACHE_VAR} nor XDG_CACHE_HOME nor HOME is set"
            ))
            .hint(format!("set {CACHE_VAR} to a folder of yours"))),
        }
    }

    /// Whether [`Project::aside`] made it.
    pub fn is_aside(&self) -> bool {
        self.aside.is_some()
    }

    /// The checkout.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The shared cache.
    pub fn cache(&self) -> &Path {
        &self.cache
    }

    /// `registry/<name>`.
    pub fn registry(&self, name: &str) -> PathBuf {
        self.root.join("registry").join(name)
    }

    /// `patches/<id>`.
    pub fn patch_dir(&self, id: &str) -> PathBuf {
        self.root.join("patches").join(id)
    }

    /// `vendor/`.
    pub fn vendor(&self) -> PathBuf {
        self.aside.as_ref().unwrap_or(&self.root).join("vendor")
    }

    /// The working tree of `base`: `vendor/<base>`.
    pub fn working_tree(&self, base: &str) -> PathBuf {
        self.vendor().join(base)
    }

    /// `target/`, for what can be made again.
    pub fn target(&self) -> PathBuf {
        self.root.join("target")
    }

    /// The folder of all builds of `base`: `target/llama/<base>`.
    pub fn builds(&self, base: &str) -> PathBuf {
        self.target().join("llama").join(base)
    }

    /// The folder of one build: `target/llama/<base>/<flavour>-<backend>`.
    pub fn build_dir(&self, base: &str, flavour: Flavour, backend: &str) -> PathBuf {
        let builds = match (&self.aside, flavour) {
            (Some(aside), Flavour::Patched) => aside.join("llama").join(base),
            _ => self.builds(base),
        };
        builds.join(format!("{flavour}-{backend}"))
    }

    /// What gates leave: `target/gate`.
    pub fn gate_dir(&self) -> PathBuf {
        match &self.aside {
            Some(aside) => aside.join("gate"),
            None => self.target().join("gate"),
        }
    }

    /// A path as a user wants to read it: relative to the checkout where it lies inside.
    pub fn show(&self, path: &Path) -> String {
        path.strip_prefix(&self.root)
            .unwrap_or(path)
            .display()
            .to_string()
    }

    /// `registry/upstreams.toml`.
    pub fn upstreams(&self) -> Result<Upstreams> {
        let file: Upstreams = crate::model::read_toml(&self.registry("upstreams.toml"))?;
        let broken = |what: String| Err(Error::config(what).context("registry/upstreams.toml"));
        let mut seen = std::collections::BTreeSet::new();
        match file.base.iter().find(|base| !seen.insert(&base.id)) {
            Some(twice) => broken(format!("the base `{}` stands twice", twice.id)),
            None => Ok(file),
        }
    }

    /// `registry/series.toml`.
    pub fn series(&self) -> Result<SeriesFile> {
        crate::model::read_toml(&self.registry("series.toml"))
    }

    /// The base `id`, or the default one.
    pub fn base(&self, id: Option<&str>) -> Result<Base> {
        let mut upstreams = self.upstreams()?;
        let id = id.unwrap_or(&upstreams.default).to_owned();
        if let Some(at) = upstreams.base.iter().position(|base| base.id == id) {
            return Ok(upstreams.base.swap_remove(at));
        }
        let known = upstreams.base.iter().map(|base| base.id.as_str());
        Err(Error::usage(format!("unknown base `{id}`")).hint(suggest(&id, known, "bases")))
    }
}

/// A hint for a name that is not known: the nearest one, else all of them.
pub fn suggest<'a>(wrong: &str, known: impl Iterator<Item = &'a str>, what: &str) -> String {
    let known: Vec<&str> = known.collect();
    let near = known
        .iter()
        .map(|name| (strsim::jaro_winkler(wrong, name), name))
        .filter(|(score, _)| *score > 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0));
    match (near, known.is_empty()) {
        (Some((_, name)), _) => format!("did you mean `{name}`?"),
        (None, true) => format!("there are no {what} yet"),
        (None, false) => format!("known {what}: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_has_one_name_however_it_was_given() {
        let dir = tempfile::tempdir().unwrap();
        let real = fs_err::canonicalize(dir.path()).unwrap().join("real");
        fs_err::create_dir_all(real.join("registry")).unwrap();
        fs_err::create_dir(real.join("deep")).unwrap();
        fs_err::write(real.join("registry/upstreams.toml"), "").unwrap();
        std::os::unix::fs::symlink(&real, dir.path().join("link")).unwrap();
        for given in ["real", "real/deep/..", "link", "link/deep/../.", "./real"] {
            let project = Project::new(&dir.path().join(given), dir.path()).unwrap();
            assert_eq!(project.root(), real, "{given}");
        }
        let missing = Project::new(&dir.path().join("none"), dir.path()).unwrap_err();
        assert!(missing.to_string().contains("/none is no checkout"));
    }

    #[test]
    fn what_stands_aside_shares_all_but_what_it_changes() {
        let dir = tempfile::tempdir().unwrap();
        fs_err::create_dir(dir.path().join("registry")).unwrap();
        fs_err::write(dir.path().join("registry/upstreams.toml"), "").unwrap();
        let own = Project::new(dir.path(), dir.path()).unwrap();
        let aside = own.aside(&dir.path().join("aside"));
        assert!(aside.is_aside() && !own.is_aside());
        for (left, right) in [
            (own.working_tree("b"), aside.working_tree("b")),
            (own.vendor(), aside.vendor()),
            (own.gate_dir(), aside.gate_dir()),
            (
                own.build_dir("b", Flavour::Patched, "cpu"),
                aside.build_dir("b", Flavour::Patched, "cpu"),
            ),
        ] {
            assert!(right.starts_with(dir.path().join("aside")), "{right:?}");
            assert_ne!(left, right);
        }
        assert_eq!(own.patch_dir("p"), aside.patch_dir("p"));
        assert_eq!(own.target(), aside.target());
        assert_eq!(
            own.build_dir("b", Flavour::Vanilla, "cpu"),
            aside.build_dir("b", Flavour::Vanilla, "cpu")
        );
    }
}
