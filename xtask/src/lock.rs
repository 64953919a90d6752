//! Locks between processes. They go with the process, so a killed one never leaves one behind.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::ctx::Ctx;
use crate::error::{Result, ResultExt};

/// How often a lock that somebody else holds is tried.
const POLL: Duration = Duration::from_millis(50);

/// Shorter waits are not worth a line.
const PATIENCE: Duration = Duration::from_millis(500);

/// A held lock; released on drop.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] File);

/// Serialises commands that change this checkout.
pub fn checkout(ctx: &Ctx) -> Result<Lock> {
    let dir = ctx.project.vendor();
    fs_err::create_dir_all(&dir)?;
    file(ctx, &dir.join(".lock"))
}

/// Keeps commands from changing this checkout while it is read. `None` where none ever changed
/// it, since a command that only reads writes nothing.
pub fn reading(ctx: &Ctx) -> Result<Option<Lock>> {
    let path = ctx.project.vendor().join(".lock");
    match std::fs::File::open(&path) {
        Ok(file) => wait(ctx, &path, file, File::try_lock_shared).map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error).context(|| format!("opening {}", path.display())),
    }
}

/// Takes the lock that is the file `path`, which is made where it is missing. Says so when it
/// has to wait, and stops waiting when the user stops us.
pub fn file(ctx: &Ctx, path: &Path) -> Result<Lock> {
    let file = fs_err::OpenOptions::new()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path)?
        .into_file();
    wait(ctx, path, file, File::try_lock)
}

fn wait(
    ctx: &Ctx,
    path: &Path,
    file: File,
    take: impl Fn(&File) -> std::result::Result<(), TryLockError>,
) -> Result<Lock> {
    let begun = Instant::now();
    let mut told = false;
    loop {
        match take(&file) {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).context(|| format!("locking {}", path.display()));
            }
        }
        if !told && begun.elapsed() >= PATIENCE {
            told = true;
            let shown = ctx.project.show(path);
            ctx.sink.note(&format!(
                "another command holds {shown}; waiting for it to end"
            ));
        }
        ctx.cancel.check()?;
        std::thread::sleep(POLL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Toy;

    #[test]
    fn readers_wait_for_writers_and_not_for_each_other() {
        let toy = Toy::new();
        assert!(reading(&toy.ctx).unwrap().is_none(), "nothing to wait for");
        let writer = checkout(&toy.ctx).unwrap();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| reading(&toy.ctx));
            std::thread::sleep(POLL * 2);
            assert!(!waiting.is_finished());
            drop(writer);
            let first = waiting.join().unwrap().unwrap();
            assert!(first.is_some());
            assert!(reading(&toy.ctx).unwrap().is_some());
        });
    }

    #[test]
    fn waiting_ends_with_the_holder_or_with_the_user() {
        let toy = Toy::new();
        let held = checkout(&toy.ctx).unwrap();
        let cancel = toy.ctx.cancel.clone();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| checkout(&toy.ctx));
            std::thread::sleep(POLL * 2);
            assert!(!waiting.is_finished());
            cancel.set();
            let error = waiting.join().unwrap().unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Interrupted);
        });
        drop(held);
        assert!(checkout(&toy.ctx).is_ok());
    }
}
