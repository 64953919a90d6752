//! Locks between processes. They go with the process, so a killed one never leaves one behind.

use std::fs::{File, TryLockError};
use std::path::Path;
use std::time::Duration;

use crate::ctx::Ctx;
use crate::error::{Result, ResultExt};

/// How often a lock that somebody else holds is tried.
const POLL: Duration = Duration::from_millis(50);

/// A held lock; released on drop.
#[derive(Debug)]
pub struct Lock(#[allow(dead_code)] File);

/// Serialises commands that change this checkout.
pub fn checkout(ctx: &Ctx) -> Result<Lock> {
    let dir = ctx.project.vendor();
    fs_err::create_dir_all(&dir)?;
    file(ctx, &dir.join(".lock"))
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
    let mut told = false;
    loop {
        match file.try_lock() {
            Ok(()) => return Ok(Lock(file)),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => {
                return Err(error).context(|| format!("locking {}", path.display()));
            }
        }
        if !told {
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
