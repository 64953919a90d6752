//! Whether a file stays what it was while it is compared.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use crate::error::Result;
use crate::model::Digest;

/// A file of which the digest is known.
#[derive(Clone, Debug)]
pub struct Held {
    path: PathBuf,
    state: State,
    sha256: Digest,
}

/// What the system says of a file, and what changes where it is written or replaced.
#[derive(Clone, Debug, PartialEq, Eq)]
struct State {
    size: u64,
    modified: Option<SystemTime>,
    inode: Option<u64>,
}

impl State {
    fn of(path: &Path) -> Result<Self> {
        let meta = fs_err::metadata(path)?;
        #[cfg(unix)]
        let inode = Some(std::os::unix::fs::MetadataExt::ino(&meta));
        #[cfg(not(unix))]
        let inode = None;
        Ok(State {
            size: meta.len(),
            modified: meta.modified().ok(),
            inode,
        })
    }
}

impl Held {
    /// A file as it is now.
    pub fn take(path: &Path) -> Result<Self> {
        // First what changes with the bytes: a write in between is seen the next time.
        let state = State::of(path)?;
        Ok(Held {
            path: path.to_path_buf(),
            state,
            sha256: Digest::of_file(path)?,
        })
    }

    /// Its bytes, when it was taken.
    pub fn size(&self) -> u64 {
        self.state.size
    }

    /// Its digest, when it was taken.
    pub fn sha256(&self) -> Digest {
        self.sha256
    }

    /// Whether it is still the same. Its bytes are read only where the system says that it was written or replaced.
    pub fn stays(&self) -> bool {
        match State::of(&self.path) {
            Ok(state) if state == self.state => true,
            Ok(_) => self.is_whole(),
            Err(_) => false,
        }
    }

    /// Whether it is still the same, byte for byte.
    pub fn is_whole(&self) -> bool {
        Digest::of_file(&self.path).is_ok_and(|now| now == self.sha256)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_stays_while_its_bytes_do() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("m.gguf");
        fs_err::write(&file, "GGUF").unwrap();
        let held = Held::take(&file).unwrap();
        assert_eq!((held.size(), held.sha256()), (4, Digest::of(b"GGUF")));
        assert!(held.stays());
        // Another file of the same bytes is the same.
        let other = dir.path().join("other");
        fs_err::write(&other, "GGUF").unwrap();
        fs_err::rename(&other, &file).unwrap();
        assert!(held.stays());
        fs_err::write(&file, "GGUX").unwrap();
        assert!(!held.stays() && !held.is_whole());
        fs_err::remove_file(&file).unwrap();
        assert!(!held.stays());
        assert!(Held::take(&file).is_err());
    }
}
