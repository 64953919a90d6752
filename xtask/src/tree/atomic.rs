//! Exchanging two folders at once.

use std::path::Path;

use crate::error::{Result, ResultExt as _};

/// Exchanges the folders `new` and `dir` in one step. False where the file system cannot;
/// nothing happened then.
pub fn exchange(new: &Path, dir: &Path) -> Result<bool> {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        use rustix::fs::{CWD, RenameFlags, renameat_with};
        use rustix::io::Errno;
        match renameat_with(CWD, new, CWD, dir, RenameFlags::EXCHANGE) {
            Ok(()) => Ok(true),
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => Ok(false),
            Err(errno) => {
                Err(std::io::Error::from(errno)).context(|| format!("exchanging {}", dir.display()))
            }
        }
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    {
        let _ = (new, dir);
        Ok(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_folders_change_places_and_a_lone_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (one, two) = (dir.path().join("one"), dir.path().join("two"));
        fs_err::create_dir(&one).unwrap();
        fs_err::write(one.join("x"), "1").unwrap();
        assert!(exchange(&one, &two).is_err());
        assert!(one.join("x").exists());
        fs_err::create_dir(&two).unwrap();
        if exchange(&one, &two).unwrap() {
            assert!(two.join("x").exists() && !one.join("x").exists());
        } else {
            assert!(one.join("x").exists());
        }
    }
}
