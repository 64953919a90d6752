//! Sources on this machine: a folder, an archive.

use std::path::{Path, PathBuf};

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{Digest, DirSource, TarballSource};
use crate::tree::FileMode;
use crate::vendor::unpack::{Exclude, Limits, Unpacker, refuse};

/// The archive of `source`, after a look at its digest.
pub(super) fn tarball(ctx: &Ctx, source: &TarballSource) -> Result<PathBuf> {
    let path = ctx.project.root().join(&source.path);
    if !path.is_file() {
        return Err(Error::environment(format!(
            "{} is not there",
            path.display()
        )));
    }
    let found = Digest::of_file(&path)?;
    if found != source.sha256 {
        return Err(Error::finding(format!(
            "{} has sha256 {found}, pinned is {}",
            path.display(),
            source.sha256
        )));
    }
    Ok(path)
}

/// Copies the folder of `source` to `tree`. A `.git` at its top is left out: a clone's files are
/// those of its working tree, as they are.
pub(super) fn copy(ctx: &Ctx, source: &DirSource, exclude: Exclude<'_>, tree: &Path) -> Result<()> {
    let from = ctx.project.root().join(&source.path);
    if !from.is_dir() {
        return Err(Error::environment(format!(
            "{} is no folder",
            from.display()
        )));
    }
    let task = ctx.sink.task(&format!("copying {}", source.path), None);
    let mut unpacker = Unpacker::new(tree, &ctx.cancel, Limits::default())?;
    let mut walker = walkdir::WalkDir::new(&from)
        .min_depth(1)
        .sort_by_file_name()
        .into_iter();
    while let Some(entry) = walker.next() {
        let entry = entry.map_err(|error| Error::environment(error.to_string()))?;
        let below = entry.path().strip_prefix(&from).unwrap_or(entry.path());
        let Some(path) = below.to_str() else {
            return Err(refuse(&below.to_string_lossy(), "its name is not UTF-8"));
        };
        let kind = entry.file_type();
        if kind.is_dir() {
            if path == ".git" || exclude.folder(path) {
                walker.skip_current_dir();
            } else {
                unpacker.folder(path)?;
            }
        } else if path == ".git" || exclude.file(path) {
            continue;
        } else if kind.is_symlink() {
            let target = fs_err::read_link(entry.path())?;
            match target.to_str() {
                Some(target) => unpacker.link(path, target)?,
                None => return Err(refuse(path, "it is a link whose target is not UTF-8")),
            }
        } else if kind.is_file() {
            let mut file = fs_err::File::open(entry.path())?;
            let meta = file.metadata()?;
            let executable = FileMode::of(&meta) == FileMode::Executable;
            unpacker
                .file(path, executable, meta.len(), &mut file)
                .context(|| format!("copying {}", entry.path().display()))?;
        } else {
            return Err(refuse(path, "it is neither a file nor a link"));
        }
        task.message(&format!("{} files", unpacker.files()));
    }
    task.finish(&format!("{} files", unpacker.files()));
    Ok(())
}
