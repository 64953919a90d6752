//! Whole-tree backups of the working tree, checked by count and digest.

use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::Digest;
use crate::patchset::copy_file;
use crate::project::suggest;
use crate::tree::{TreeManifest, stage};

/// One snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct Snapshot {
    /// Version of this format; 1.
    pub schema: u32,
    /// Its name.
    pub name: String,
    /// Base id.
    pub base: String,
    /// When it was made, UTC.
    pub time: String,
    /// Number of files.
    pub files: usize,
    /// Digest of the tree, its state file included.
    pub tree: Digest,
}

fn dir(ctx: &Ctx, base: &str) -> std::path::PathBuf {
    ctx.project.vendor().join(".snapshots").join(base)
}

fn whole(root: &std::path::Path) -> Result<TreeManifest> {
    // Without the stamps, which are those of other inodes in a copy.
    TreeManifest::of_tree(root, |path| matches!(path, ".git/" | ".patchset/stamps"))
}

/// Copies the working tree of `base`, edits and all, to `vendor/.snapshots/<base>/<name>`.
pub fn snapshot(ctx: &Ctx, base: &str, name: &str) -> Result<Snapshot> {
    if !crate::patchset::is_patch_id(name) {
        return Err(Error::usage(format!("`{name}` is no name for a snapshot"))
            .hint("lowercase letters, digits and single hyphens, beginning with a letter"));
    }
    let _lock = crate::lock::checkout(ctx)?;
    let root = ctx.project.working_tree(base);
    if !root.is_dir() {
        return Err(Error::usage("there is no working tree").hint("cargo xtask apply"));
    }
    let place = dir(ctx, base).join(name);
    if place.exists() {
        return Err(
            Error::usage(format!("there is a snapshot `{name}` already"))
                .hint("choose another name, or delete its folder under vendor/.snapshots"),
        );
    }
    let manifest = whole(&root)?;
    let mut staged = stage(&place)?;
    for (path, _) in manifest.iter() {
        ctx.cancel.check()?;
        let to = path.below(staged.dir()).to_path_buf();
        let to = staged
            .dir()
            .join("tree")
            .join(to.strip_prefix(staged.dir()).unwrap_or(&to));
        if let Some(parent) = to.parent() {
            fs_err::create_dir_all(parent)?;
        }
        copy_file(&path.below(&root), &to)?;
    }
    let copied = whole(&staged.dir().join("tree"))?;
    if copied != manifest {
        return Err(
            Error::finding("the working tree changed while it was copied")
                .hint("run the same command again once nothing writes to it"),
        );
    }
    let snapshot = Snapshot {
        schema: 1,
        name: name.to_owned(),
        base: base.to_owned(),
        time: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        files: manifest.len(),
        tree: manifest.digest(),
    };
    let text =
        serde_json::to_vec_pretty(&snapshot).map_err(|error| Error::internal(error.to_string()))?;
    staged.write(&crate::tree::RelPath::new("snapshot.json")?, &text, false)?;
    staged.commit()?;
    Ok(snapshot)
}

/// All snapshots of `base`, oldest first.
pub fn snapshots(ctx: &Ctx, base: &str) -> Result<Vec<Snapshot>> {
    let dir = dir(ctx, base);
    let mut list = Vec::new();
    if dir.is_dir() {
        for entry in fs_err::read_dir(dir)? {
            let file = entry?.path().join("snapshot.json");
            if file.is_file() {
                list.push(crate::model::read_json::<Snapshot>(&file)?);
            }
        }
    }
    list.sort_by(|a, b| a.time.cmp(&b.time).then_with(|| a.name.cmp(&b.name)));
    Ok(list)
}

/// Makes the working tree what the snapshot is, in one step; the tree as it is now is kept as
/// another snapshot first.
pub fn restore(ctx: &Ctx, base: &str, name: &str) -> Result<(Snapshot, Option<Snapshot>)> {
    let known = snapshots(ctx, base)?;
    let Some(snapshot) = known.iter().find(|known| known.name == name) else {
        let names = known.iter().map(|known| known.name.as_str());
        return Err(
            Error::usage(format!("there is no snapshot `{name}` of {base}")).hint(suggest(
                name,
                names,
                "snapshots",
            )),
        );
    };
    let from = dir(ctx, base).join(name).join("tree");
    let manifest = whole(&from)?;
    if manifest.len() != snapshot.files || manifest.digest() != snapshot.tree {
        return Err(Error::finding(format!(
            "the snapshot `{name}` was changed: expected {} files with digest {}, found {} with {}",
            snapshot.files,
            snapshot.tree,
            manifest.len(),
            manifest.digest()
        ))
        .hint("nothing was restored"));
    }
    let root = ctx.project.working_tree(base);
    let kept = if root.is_dir() && whole(&root)? != manifest {
        let time = jiff::Timestamp::now()
            .strftime("%Y%m%d-%H%M%S-%f")
            .to_string();
        Some(self::snapshot(
            ctx,
            base,
            &format!("before-restore-{time}"),
        )?)
    } else {
        None
    };
    let _lock = crate::lock::checkout(ctx)?;
    let mut staged = stage(&root)?;
    let found = whole(staged.dir())?;
    for (path, _) in found.iter() {
        if manifest.get(path).is_none() {
            staged.remove(path)?;
        }
    }
    for (path, entry) in manifest.iter() {
        if found.get(path) != Some(*entry) {
            if found.get(path).is_some() {
                staged.remove(path)?;
            }
            staged.copy(path, &path.below(&from))?;
        }
    }
    staged.commit()?;
    Ok((snapshot.clone(), kept))
}
