//! Which files were hashed, and what `lstat` said of them then: what spares hashing them again.
//!
//! A file is believed to be what it was where size, time of change of content and of inode (in
//! nanoseconds), inode and device are what they were. The time of change of the inode cannot be
//! set by a program, so that an edit that keeps size and time stamp is seen. What changed in the
//! two seconds before it was hashed is not remembered, since it could change once more without
//! another time stamp; the clock for that is the file system's own.
//!
//! Only for telling somebody what is there: whatever proves something hashes the files. A file
//! that is mapped into memory and written to in the same place twice may keep its stamps until
//! the kernel writes it out; the same is true of git's index.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io::Write;
use std::path::Path;

use crate::model::Digest;
use crate::tree::RelPath;

/// First bytes of the file; the last one is the version of the format.
const MAGIC: &[u8; 8] = b"lpstamp\x01";
/// Stamps younger than this when a file is hashed say nothing: nanoseconds. FAT has the coarsest
/// clock, of two seconds.
const MARGIN: i128 = 2_000_000_000;
const NANOS: i128 = 1_000_000_000;
/// Bytes of a stamp, and of the digest behind it.
const FIXED: usize = STAMP + 32;
const STAMP: usize = 8 + 16 + 16 + 8 + 8;

/// What `lstat` says of a file that changes whenever its content does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp([u8; STAMP]);

/// The files that were hashed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps(HashMap<RelPath, (Stamp, Digest)>);

/// A moment by the clock of the file system that holds a folder.
pub(super) struct Clock {
    file: tempfile::NamedTempFile,
    now: i128,
}

#[cfg(unix)]
fn times(meta: &Metadata) -> (i128, i128) {
    use std::os::unix::fs::MetadataExt;
    let nanos = |seconds: i64, rest: i64| i128::from(seconds) * NANOS + i128::from(rest);
    (
        nanos(meta.mtime(), meta.mtime_nsec()),
        nanos(meta.ctime(), meta.ctime_nsec()),
    )
}

impl Stamp {
    /// None where the system cannot say enough.
    #[cfg(unix)]
    fn of(meta: &Metadata) -> Option<Stamp> {
        use std::os::unix::fs::MetadataExt;
        let (modified, changed) = times(meta);
        let mut bytes = [0; STAMP];
        bytes[..8].copy_from_slice(&meta.len().to_le_bytes());
        bytes[8..24].copy_from_slice(&modified.to_le_bytes());
        bytes[24..40].copy_from_slice(&changed.to_le_bytes());
        bytes[40..48].copy_from_slice(&meta.ino().to_le_bytes());
        bytes[48..].copy_from_slice(&meta.dev().to_le_bytes());
        Some(Stamp(bytes))
    }

    #[cfg(not(unix))]
    fn of(_: &Metadata) -> Option<Stamp> {
        None
    }
}

impl Clock {
    /// The time now. None where nothing can be written below `dir`: then nothing is remembered.
    #[cfg(unix)]
    pub(super) fn read(dir: &Path) -> Option<Clock> {
        let file = tempfile::Builder::new()
            .prefix(".tmp-")
            .tempfile_in(dir)
            .ok()?;
        let (modified, changed) = times(&file.as_file().metadata().ok()?);
        Some(Clock {
            file,
            now: modified.min(changed),
        })
    }

    #[cfg(not(unix))]
    pub(super) fn read(_: &Path) -> Option<Clock> {
        None
    }

    /// Whether a change of that file from now on would show in its stamps.
    #[cfg(unix)]
    fn outdates(&self, meta: &Metadata) -> bool {
        let (modified, changed) = times(meta);
        modified.max(changed) < self.now - MARGIN
    }

    #[cfg(not(unix))]
    fn outdates(&self, _: &Metadata) -> bool {
        false
    }
}

impl Stamps {
    /// What was remembered in `file`; nothing where there is none, or where it is damaged.
    pub(super) fn read(file: &Path) -> Stamps {
        std::fs::read(file)
            .ok()
            .and_then(|bytes| Self::parse(&bytes))
            .unwrap_or_default()
    }

    fn parse(bytes: &[u8]) -> Option<Stamps> {
        let (body, sum) = bytes.split_last_chunk::<32>()?;
        if Digest::of(body).bytes() != sum {
            return None;
        }
        let mut rest = body.strip_prefix(MAGIC)?;
        let mut files = HashMap::with_capacity(rest.len() / 150);
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (path, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            let (fixed, after) = after.split_first_chunk::<FIXED>()?;
            let path = RelPath::new(std::str::from_utf8(path).ok()?).ok()?;
            let stamp = Stamp(fixed[..STAMP].try_into().ok()?);
            let digest = Digest::from_bytes(fixed[STAMP..].try_into().ok()?);
            files.insert(path, (stamp, digest));
            rest = after;
        }
        Some(Stamps(files))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (path, (stamp, digest)) in &self.0 {
            let text = path.as_str().as_bytes();
            let Ok(length) = u16::try_from(text.len()) else {
                continue;
            };
            bytes.extend(length.to_le_bytes());
            bytes.extend(text);
            bytes.extend(stamp.0);
            bytes.extend(digest.bytes());
        }
        let sum = Digest::of(&bytes);
        bytes.extend(sum.bytes());
        bytes
    }

    /// The digest of a file's content, where the file is as it was.
    pub(super) fn digest(&self, path: &RelPath, meta: &Metadata) -> Option<Digest> {
        let (stamp, digest) = self.0.get(path)?;
        (Stamp::of(meta)? == *stamp).then_some(*digest)
    }

    /// Remembers a file, or says that its stamps are too young for that. `clock` was read after
    /// `meta` and before the file was hashed.
    pub(super) fn remember(
        &mut self,
        clock: &Clock,
        path: &RelPath,
        meta: &Metadata,
        digest: Digest,
    ) -> bool {
        match Stamp::of(meta).filter(|_| clock.outdates(meta)) {
            Some(stamp) => {
                self.0.insert(path.clone(), (stamp, digest));
                true
            }
            None => false,
        }
    }

    /// Forgets all files but those.
    pub(super) fn keep(&mut self, wanted: impl Fn(&RelPath) -> bool) {
        self.0.retain(|path, _| wanted(path));
    }

    /// Writes them to `file`, which lies in the folder that `clock` was read for. A failure
    /// costs time only, and is none.
    pub(super) fn save(&self, clock: Clock, file: &Path) {
        let mut temp = clock.file;
        // Not flushed: a file that a crash left half written is told by its digest.
        if temp.write_all(&self.bytes()).is_ok() {
            let _ = temp.persist(file);
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::fs::{File, FileTimes};
    use std::time::{Duration, SystemTime};

    use super::*;

    /// A clock that says that `ahead` seconds have passed.
    fn clock(dir: &Path, ahead: i128) -> Clock {
        let mut clock = Clock::read(dir).unwrap();
        clock.now += ahead * NANOS;
        clock
    }

    fn path() -> RelPath {
        RelPath::new("f").unwrap()
    }

    #[test]
    fn an_edit_that_keeps_size_and_time_stamp_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "one").unwrap();
        let meta = std::fs::symlink_metadata(&file).unwrap();
        let mut stamps = Stamps::default();
        stamps.remember(&clock(dir.path(), 3), &path(), &meta, Digest::of(b"one"));
        assert_eq!(stamps.digest(&path(), &meta), Some(Digest::of(b"one")));

        // Not in the same tick of the kernel's clock: that case is the next test.
        std::thread::sleep(Duration::from_millis(30));
        std::fs::write(&file, "two").unwrap();
        let times = FileTimes::new().set_modified(meta.modified().unwrap());
        let opened = File::options().write(true).open(&file).unwrap();
        opened.set_times(times).unwrap();
        let after = std::fs::symlink_metadata(&file).unwrap();
        assert_eq!(after.modified().unwrap(), meta.modified().unwrap());
        assert_eq!(after.len(), meta.len());
        assert_eq!(stamps.digest(&path(), &after), None);
    }

    #[test]
    fn what_could_change_in_the_same_tick_is_not_remembered() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "one").unwrap();
        let meta = std::fs::symlink_metadata(&file).unwrap();
        for (ahead, kept) in [(0, false), (1, false), (3, true), (-10, false)] {
            let mut stamps = Stamps::default();
            let clock = clock(dir.path(), ahead);
            stamps.remember(&clock, &path(), &meta, Digest::of(b"one"));
            assert_eq!(stamps.digest(&path(), &meta).is_some(), kept, "{ahead}");
        }
        // A time stamp in the future, as after a clock that was put back.
        let later = SystemTime::now() + Duration::from_secs(3600);
        let opened = File::options().write(true).open(&file).unwrap();
        opened
            .set_times(FileTimes::new().set_modified(later))
            .unwrap();
        let meta = std::fs::symlink_metadata(&file).unwrap();
        let mut stamps = Stamps::default();
        stamps.remember(&clock(dir.path(), 3), &path(), &meta, Digest::of(b"one"));
        assert_eq!(stamps.digest(&path(), &meta), None);
    }

    #[test]
    fn comes_back_from_disk_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("stamps");
        std::fs::write(dir.path().join("f"), "one").unwrap();
        let meta = std::fs::symlink_metadata(dir.path().join("f")).unwrap();
        let mut stamps = Stamps::default();
        let now = clock(dir.path(), 3);
        stamps.remember(&now, &path(), &meta, Digest::of(b"one"));
        stamps.save(now, &place);
        assert_eq!(Stamps::read(&place), stamps);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 2);

        let good = std::fs::read(&place).unwrap();
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 1;
            assert_eq!(Stamps::parse(&bad), None, "byte {at}");
            assert_eq!(Stamps::parse(&good[..at]), None, "cut at {at}");
        }
    }
}
