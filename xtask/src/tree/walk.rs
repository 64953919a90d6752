//! Listing a tree, on all processors.

use std::fs::Metadata;
use std::path::Path;

use rayon::prelude::*;

use crate::error::{Result, ResultExt};
use crate::tree::RelPath;

/// A file or link with what `lstat` says of it.
pub type Listed = (RelPath, Metadata);

/// All that is in the tree at `root` and no folder, sorted by path, without what `skip` says.
/// `skip` is asked for folders too (with a trailing slash), so that whole folders are not even
/// listed.
pub fn list(root: &Path, skip: &(dyn Fn(&str) -> bool + Sync)) -> Result<Vec<Listed>> {
    let mut files = folder(root, "", skip)?;
    files.sort_unstable_by(|a, b| a.0.cmp(&b.0));
    Ok(files)
}

fn folder(dir: &Path, below: &str, skip: &(dyn Fn(&str) -> bool + Sync)) -> Result<Vec<Listed>> {
    let reading = || format!("reading {}", dir.display());
    let mut files = Vec::new();
    let mut folders = Vec::new();
    for entry in std::fs::read_dir(dir).context(reading)? {
        let entry = entry.context(reading)?;
        let name = entry.file_name();
        let is_dir = entry.file_type().context(reading)?.is_dir();
        let mut path = format!("{below}{}", name.to_string_lossy());
        if is_dir {
            path.push('/');
        }
        if skip(&path) {
            continue;
        }
        if is_dir {
            folders.push((entry.path(), path));
            continue;
        }
        let path = match name.to_str() {
            Some(_) => RelPath::new(path)?,
            // Says what is wrong with it.
            None => RelPath::from_path(&Path::new(below).join(&name))?,
        };
        // Relative to the open folder: no walk through the path.
        files.push((path, entry.metadata().context(reading)?));
    }
    let deeper: Vec<Result<Vec<Listed>>> = folders
        .into_par_iter()
        .map(|(dir, path)| folder(&dir, &path, skip))
        .collect();
    for found in deeper {
        files.extend(found?);
    }
    Ok(files)
}
