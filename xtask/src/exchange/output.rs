//! From named files to the disk: all or none, and nothing that anybody else put there is lost.

use std::collections::BTreeMap;
use std::path::Path;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt as _};
use crate::exchange::Named;
use crate::exchange::export::DIFF_LINE;
use crate::model::Digest;

/// What an export leaves in its folder: digests and names of all it wrote.
const RECORD: &str = ".patchset-export";

/// Called before every change to the disk; tests make it fail, as a kill would.
fn step() -> Result<()> {
    #[cfg(test)]
    return crate::tree::fault::step();
    #[cfg(not(test))]
    Ok(())
}

/// Makes the folder `dir` hold `files` and nothing else, in one step. Says whether anything
/// changed. A folder that holds what no export wrote is refused.
pub fn write_dir(ctx: &Ctx, dir: &Path, files: &[Named]) -> Result<bool> {
    let _lock = crate::lock::checkout(ctx)?;
    let dir = std::path::absolute(dir)?;
    let shown = ctx.project.show(&dir);
    let wanted = contents(files);
    let there = match std::fs::symlink_metadata(&dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(error).context(|| shown),
        Ok(meta) if !meta.is_dir() => {
            return Err(Error::usage(format!("{shown} is there and is no folder"))
                .hint("name a folder that is new, empty, or an earlier export"));
        }
        Ok(_) => Some(found(&dir, &shown)?),
    };
    if there.as_ref() == Some(&wanted) {
        return Ok(false);
    }
    let parent = dir.parent().unwrap_or(Path::new("/"));
    fs_err::create_dir_all(parent)?;
    step()?;
    let beside = tempfile::Builder::new()
        .prefix(".patchset-export-")
        .tempdir_in(parent)
        .context(|| format!("staging beside {shown}"))?;
    let new = beside.path().join("new");
    fs_err::create_dir(&new)?;
    for (name, content) in &wanted {
        step()?;
        crate::model::write_atomic(&new.join(name), content)?;
    }
    step()?;
    if there.is_none() {
        fs_err::rename(&new, &dir)?;
    } else if !crate::tree::exchange(&new, &dir)? {
        fs_err::rename(&dir, beside.path().join("old"))?;
        step()?;
        fs_err::rename(&new, &dir)?;
    }
    step()?;
    fs_err::File::open(parent)?.sync_all()?;
    Ok(true)
}

/// All that the folder is to hold, the record of it included.
fn contents(files: &[Named]) -> BTreeMap<String, Vec<u8>> {
    let mut all: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    let mut record = String::from("made by `cargo xtask export`; the next one replaces it\n");
    for file in files {
        record.push_str(&format!("{}  {}\n", Digest::of(&file.content), file.name));
        all.insert(file.name.clone(), file.content.clone());
    }
    all.insert(RECORD.to_owned(), record.into_bytes());
    all
}

/// What a folder holds, refused where an export did not write all of it.
fn found(dir: &Path, shown: &str) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut all = BTreeMap::new();
    let foreign = |name: &str| {
        Error::usage(format!("{shown} holds {name}, which no export wrote"))
            .hint("nothing was written; name another folder, or move that file away")
    };
    let record = std::fs::read_to_string(dir.join(RECORD)).unwrap_or_default();
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.file_type()?.is_file() {
            return Err(foreign(&name));
        }
        let content = fs_err::read(entry.path())?;
        let line = format!("{}  {name}", Digest::of(&content));
        if name != RECORD && !record.lines().any(|known| known == line) {
            return Err(foreign(&name));
        }
        all.insert(name, content);
    }
    Ok(all)
}

/// Writes a squashed diff. Says whether anything changed. A file that is no unchanged export is
/// refused.
pub fn write_file(ctx: &Ctx, path: &Path, file: &Named) -> Result<bool> {
    let _lock = crate::lock::checkout(ctx)?;
    let path = std::path::absolute(path)?;
    let shown = ctx.project.show(&path);
    match std::fs::symlink_metadata(&path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(error).context(|| shown),
        Ok(meta) if !meta.is_file() => {
            return Err(
                Error::usage(format!("{shown} is there and is no plain file"))
                    .hint("name a file for the diff"),
            );
        }
        Ok(_) => {
            let there = fs_err::read(&path)?;
            if there == file.content {
                return Ok(false);
            }
            if !is_export(&there) {
                return Err(Error::usage(format!(
                    "{shown} is there and is no export, or was edited since"
                ))
                .hint("nothing was written; name another file, or move that one away"));
            }
        }
    }
    step()?;
    crate::model::write_atomic(&path, &file.content)?;
    Ok(true)
}

fn is_export(content: &[u8]) -> bool {
    let end = content.iter().position(|byte| *byte == b'\n');
    let Some((line, rest)) = end.map(|end| (&content[..end], &content[end + 1..])) else {
        return false;
    };
    line == format!("{DIFF_LINE}{}", Digest::of(rest)).as_bytes()
}
