//! From `registry/series.toml` and `patches/` to a [`Series`] in memory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rayon::prelude::*;

use crate::diff::{self, FileDiff};
use crate::error::{Error, Kind, Result, ResultExt};
use crate::model::{Base, Digest, PatchManifest, read_toml};
use crate::project::{Project, suggest};
use crate::tree::{FileMode, RelPath};

/// A base with its ordered patches.
#[derive(Clone, Debug)]
pub struct Series {
    /// The base.
    pub base: Base,
    /// The patches, in the order of application.
    pub patches: Vec<Patch>,
    /// The patch-set id: a digest over the base and everything that the patches put into a tree
    /// or into what is built.
    pub id: Digest,
    /// The patches of other bases' series, as base and id, for hints.
    pub elsewhere: Vec<(String, String)>,
}

/// One patch.
#[derive(Clone, Debug)]
pub struct Patch {
    /// Its manifest.
    pub manifest: PatchManifest,
    /// Its hooks, by file.
    pub hooks: Vec<FileDiff>,
    /// Its overlay.
    pub overlay: Vec<Overlay>,
    /// The hooks file, relative to the checkout; absent where the patch has no hooks.
    pub hooks_file: Option<String>,
    /// The text of the hooks file.
    pub hooks_text: Vec<u8>,
}

/// One new file of a patch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlay {
    /// Destination in the tree.
    pub path: RelPath,
    /// Content.
    pub content: Vec<u8>,
    /// Whether it is executable.
    pub executable: bool,
}

impl Series {
    /// Loads the series of `base`.
    pub fn load(project: &Project, base: &Base) -> Result<Series> {
        let registry = project.series()?;
        let known: Vec<String> = project
            .upstreams()?
            .base
            .into_iter()
            .map(|b| b.id)
            .collect();
        if let Some(unknown) = registry.series.keys().find(|id| !known.contains(id)) {
            return Err(Error::config(format!(
                "there is a series for the unknown base `{unknown}`"
            ))
            .context("registry/series.toml")
            .hint(suggest(unknown, known.iter().map(String::as_str), "bases")));
        }
        let ids = registry.of(&base.id);
        let in_series = || format!("registry/series.toml, series of {}", base.id);
        // Side by side; what is wrong is said in the order of the series.
        let loaded: Vec<Result<Patch>> = ids
            .par_iter()
            .map(|id| Patch::load_with(project, id, &base.id, &known))
            .collect();
        let mut patches: Vec<Patch> = Vec::with_capacity(ids.len());
        let mut earlier: BTreeSet<&str> = BTreeSet::new();
        for (id, patch) in ids.iter().zip(loaded) {
            if earlier.contains(id.as_str()) {
                return Err(Error::config(format!("`{id}` stands twice")).context(in_series()));
            }
            let patch = patch.context(in_series)?;
            if let Some(missing) = patch
                .manifest
                .requires
                .iter()
                .find(|needed| !earlier.contains(needed.as_str()))
            {
                return Err(Error::config(format!(
                    "`{id}` requires `{missing}`, which does not stand before it"
                ))
                .context(in_series())
                .hint(format!("put `{missing}` before `{id}`")));
            }
            earlier.insert(id);
            patches.push(patch);
        }
        Series::of(project, base, patches)
    }

    /// The series that `patches` make, on disk or only in memory.
    pub fn of(project: &Project, base: &Base, patches: Vec<Patch>) -> Result<Series> {
        refuse_shared_overlay(&patches)?;
        let id = identity(project, base, &patches)?;
        Ok(Series {
            base: base.clone(),
            patches,
            id,
            elsewhere: elsewhere(project, &base.id),
        })
    }

    /// The ids of all patches, in order.
    pub fn ids(&self) -> Vec<String> {
        self.patches
            .iter()
            .map(|patch| patch.id().to_owned())
            .collect()
    }

    /// How many patches come up to and with `id`.
    pub fn position(&self, id: &str) -> Result<usize> {
        match self.patches.iter().position(|patch| patch.id() == id) {
            Some(at) => Ok(at + 1),
            None => {
                let error =
                    Error::usage(format!("no patch `{id}` in the series of {}", self.base.id));
                let other = self.elsewhere.iter().find(|(_, other)| other == id);
                Err(match other {
                    Some((base, _)) => error.hint(format!(
                        "it is in the series of {base}: add --base {base} to the command"
                    )),
                    None => error.hint(suggest(id, self.patches.iter().map(Patch::id), "patches")),
                })
            }
        }
    }
}

impl Patch {
    /// The patch's id.
    pub fn id(&self) -> &str {
        &self.manifest.id
    }

    /// Loads `patches/<id>` as it is for `base`; `bases` are the ids of all that there are.
    fn load_with(project: &Project, id: &str, base: &str, bases: &[String]) -> Result<Patch> {
        let dir = project.patch_dir(id);
        if !is_patch_id(id) {
            return Err(Error::config(format!("`{id}` is no patch id"))
                .hint("lowercase letters, digits and single hyphens, beginning with a letter"));
        }
        let file = dir.join("patch.toml");
        // One look at the folder says what there is to open.
        let names = match names(project, &dir, bases) {
            Ok(names) if names.iter().any(|name| name == "patch.toml") => names,
            Err(error) if file.is_file() => return Err(error),
            _ => {
                let known = known_patches(project);
                return Err(Error::config(format!(
                    "unknown patch `{id}`: there is no {}",
                    project.show(&file)
                ))
                .hint(suggest(id, known.iter().map(String::as_str), "patches")));
            }
        };
        let manifest: PatchManifest = read_toml(&file)?;
        if manifest.id != id {
            return Err(
                Error::config(format!("its id is `{}`, its folder `{id}`", manifest.id))
                    .context(project.show(&file)),
            );
        }
        let (hooks_file, hooks_text, hooks) = load_hooks(project, &dir, base, &names)?;
        let overlay = match names.iter().any(|name| name == "src") {
            true => {
                load_overlay(&dir.join("src")).context(|| format!("{}/src", project.show(&dir)))?
            }
            false => Vec::new(),
        };
        Ok(Patch {
            manifest,
            hooks,
            overlay,
            hooks_file,
            hooks_text,
        })
    }
}

/// Whether `id` can name a patch: a folder, a marker in a comment and a C identifier in one.
pub fn is_patch_id(id: &str) -> bool {
    id.starts_with(|c: char| c.is_ascii_lowercase())
        && !id.ends_with('-')
        && !id.contains("--")
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

fn known_patches(project: &Project) -> Vec<String> {
    let Ok(entries) = std::fs::read_dir(project.root().join("patches")) else {
        return Vec::new();
    };
    let mut names: Vec<String> = entries
        .flatten()
        .filter(|entry| entry.path().join("patch.toml").is_file())
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// What a patch's folder holds. A file that means nothing is an error: `hooks.<base>.patch` with a
/// misspelt base would silently be passed over for `hooks.patch`.
fn names(project: &Project, dir: &Path, bases: &[String]) -> Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let known = match name.as_str() {
            "patch.toml" | "hooks.patch" | "src" | "README.md" => true,
            _ => name
                .strip_prefix("hooks.")
                .and_then(|rest| rest.strip_suffix(".patch"))
                .is_some_and(|id| bases.iter().any(|base| base == id)),
        };
        if !known {
            return Err(Error::config(format!(
                "{} means nothing",
                project.show(&entry.path())
            ))
            .hint("a patch has patch.toml, hooks.patch, hooks.<base>.patch for a known base, src/ and README.md"));
        }
        names.push(name);
    }
    Ok(names)
}

/// `hooks.<base>.patch` where the base has its own, else `hooks.patch`, else none.
fn load_hooks(
    project: &Project,
    dir: &Path,
    base: &str,
    names: &[String],
) -> Result<(Option<String>, Vec<u8>, Vec<FileDiff>)> {
    let own = format!("hooks.{base}.patch");
    let path = [own.as_str(), "hooks.patch"]
        .into_iter()
        .filter(|name| names.iter().any(|there| there == name))
        .map(|name| dir.join(name))
        .find(|path| path.is_file());
    let Some(path) = path else {
        return Ok((None, Vec::new(), Vec::new()));
    };
    let name = project.show(&path);
    let text = fs_err::read(&path)?;
    if text.trim_ascii().is_empty() {
        // On this base the patch has none, whatever it has on others.
        return Ok((Some(name), Vec::new(), Vec::new()));
    }
    let hooks = diff::parse(&text).context(|| name.clone())?;
    Ok((Some(name), text, hooks))
}

fn load_overlay(dir: &Path) -> Result<Vec<Overlay>> {
    let mut overlay = Vec::new();
    for entry in walkdir::WalkDir::new(dir).sort_by_file_name() {
        let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
        let below = entry.path().strip_prefix(dir).unwrap_or(entry.path());
        if entry.file_type().is_dir() {
            continue;
        }
        if !entry.file_type().is_file() {
            return Err(Error::config(format!(
                "{} is neither a file nor a folder",
                below.display()
            )));
        }
        let meta = entry
            .metadata()
            .map_err(|error| Error::environment(error.to_string()))?;
        overlay.push(Overlay {
            path: RelPath::from_path(below)?,
            content: fs_err::read(entry.path())?,
            executable: FileMode::of(&meta) == FileMode::Executable,
        });
    }
    Ok(overlay)
}

/// The patches of all series but that of `base`; none where the file cannot be read, which whoever
/// needs it will say.
fn elsewhere(project: &Project, base: &str) -> Vec<(String, String)> {
    let series = project.series().map(|file| file.series).unwrap_or_default();
    let others = series.into_iter().filter(|(other, _)| other != base);
    others
        .flat_map(|(other, ids)| ids.into_iter().map(move |id| (other.clone(), id)))
        .collect()
}

fn refuse_shared_overlay(patches: &[Patch]) -> Result<()> {
    let mut owners: BTreeMap<&RelPath, &str> = BTreeMap::new();
    for patch in patches {
        for file in &patch.overlay {
            if let Some(owner) = owners.insert(&file.path, patch.id()) {
                return Err(Error::config(format!(
                    "both `{owner}` and `{}` bring the file {}",
                    patch.id(),
                    file.path
                ))
                .hint("an overlay file belongs to one patch; the other one can hook into it"));
            }
        }
    }
    Ok(())
}

/// The patch-set id. Everything that can change what is built goes in, each part with its
/// length before it; titles, purposes and other prose stay out.
fn identity(project: &Project, base: &Base, patches: &[Patch]) -> Result<Digest> {
    let mut parts: Vec<Vec<u8>> = vec![b"llama-patchset 1".to_vec(), base.tree.bytes().to_vec()];
    for patch in patches {
        parts.push(patch.id().as_bytes().to_vec());
        if patch.hooks_file.is_some() {
            parts.push(b"hooks".to_vec());
            parts.push(patch.hooks_text.clone());
        }
        for file in &patch.overlay {
            parts.push(if file.executable {
                b"exec".to_vec()
            } else {
                b"file".to_vec()
            });
            parts.push(file.path.as_str().as_bytes().to_vec());
            parts.push(Digest::of(&file.content).bytes().to_vec());
        }
        for (name, digest) in inputs(project, patch)? {
            parts.push(b"input".to_vec());
            parts.push(name.into_bytes());
            parts.push(digest.bytes().to_vec());
        }
    }
    Ok(Digest::of_parts(parts.iter().map(Vec::as_slice)))
}

/// The declared inputs of a patch: files, and all files of folders, sorted.
fn inputs(project: &Project, patch: &Patch) -> Result<Vec<(String, Digest)>> {
    let mut list = Vec::new();
    for input in &patch.manifest.inputs {
        let broken = |error: Error| {
            Error::new(Kind::Config, error.message().to_owned())
                .context(format!("input `{input}` of patch `{}`", patch.id()))
        };
        let path = RelPath::new(input.trim_end_matches('/')).map_err(broken)?;
        for entry in walkdir::WalkDir::new(path.below(project.root())).sort_by_file_name() {
            let entry = entry.map_err(|error| broken(Error::config(error.to_string())))?;
            if entry.path_is_symlink() {
                // What it leads to can change without a change of the id.
                let shown = project.show(entry.path());
                return Err(broken(Error::config(format!("{shown} is a symbolic link"))));
            }
            if entry.file_type().is_file() {
                list.push((project.show(entry.path()), Digest::of_file(entry.path())?));
            }
        }
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::is_patch_id;

    #[test]
    fn patch_ids() {
        for good in ["a", "ext-core", "nextn2-x"] {
            assert!(is_patch_id(good), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a--b", "a/b", "..", "a b", "1a", "ä"] {
            assert!(!is_patch_id(bad), "{bad}");
        }
    }
}
