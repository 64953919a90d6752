//! Archives in the cache: found there, or brought there by whatever fetches them.

use std::path::{Path, PathBuf};

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::Digest;
use crate::vendor::cache::Cache;

/// The archive in the cache, if its content is what its folder's name says. A broken one is
/// removed. Any file name will do, so that people can put one there by hand.
fn cached(ctx: &Ctx, cache: &Cache, sha256: &Digest) -> Result<Option<PathBuf>> {
    let dir = cache.download_dir(sha256);
    let Ok(entries) = std::fs::read_dir(&dir) else {
        return Ok(None);
    };
    for entry in entries {
        let path = entry?.path();
        if !path.is_file() {
            continue;
        }
        if Digest::of_file(&path)? == *sha256 {
            return Ok(Some(path));
        }
        ctx.sink.warn(&format!(
            "{} is not what its folder's name says; removing it",
            path.display()
        ));
        fs_err::remove_file(&path)?;
    }
    Ok(None)
}

/// The archive with that digest, from the cache or else from `fetch`, which puts it somewhere
/// into or outside of the folder that it is given. `by_hand` is what a person would type for the
/// same. The caller holds the lock.
pub(super) fn archive(
    ctx: &Ctx,
    cache: &Cache,
    sha256: &Digest,
    by_hand: &str,
    fetch: impl FnOnce(&Path) -> Result<PathBuf>,
) -> Result<PathBuf> {
    if let Some(path) = cached(ctx, cache, sha256)? {
        ctx.sink.detail(&format!("found {}", path.display()));
        return Ok(path);
    }
    let dir = cache.download_dir(sha256);
    if ctx.offline {
        return Err(
            Error::environment("not in the cache, and --offline was given").hint(format!(
                "run `{by_hand}` where there is a network, and put the archive into {}",
                dir.display()
            )),
        );
    }
    let temp = cache.temp_in(&cache.downloads())?;
    let file = fetch(temp.path())?;
    let name = file.file_name().unwrap_or_default();
    let staged = temp.path().join("archive");
    fs_err::create_dir(&staged)?;
    let ours = staged.join(name);
    if file.starts_with(temp.path()) {
        fs_err::rename(&file, &ours)?;
    } else {
        // It belongs to the program that fetched it.
        fs_err::copy(&file, &ours)?;
    }
    let found = Digest::of_file(&ours)?;
    if found != *sha256 {
        return Err(Error::finding(format!(
            "the archive has sha256 {found}, pinned is {sha256}"
        )));
    }
    fs_err::File::open(&ours)?.sync_all()?;
    // Only an empty folder can be there: what it held was found wrong and removed.
    let _ = std::fs::remove_dir(&dir);
    fs_err::rename(&staged, &dir)?;
    fs_err::File::open(cache.downloads())?.sync_all()?;
    Ok(dir.join(name))
}
