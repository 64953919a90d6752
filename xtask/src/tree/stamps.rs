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

use std::collections::BTreeMap;
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

/// What `lstat` says of a file that changes whenever its content does; of a folder, whenever a
/// name in it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp([u8; STAMP]);

/// The files that were hashed, sorted by path.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps(Vec<(String, Stamp, Digest)>);

/// A moment by the clock of the file system that holds a folder.
pub(super) struct Clock {
    file: tempfile::NamedTempFile,
    now: i128,
}

/// A moment before something was read, for telling afterwards what of it is settled.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    now: i128,
    device: u64,
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
    pub(super) fn of(meta: &Metadata) -> Option<Stamp> {
        use std::os::unix::fs::MetadataExt;
        Some(Stamp::new(meta.len(), times(meta), meta.ino(), meta.dev()))
    }

    #[cfg(not(unix))]
    pub(super) fn of(_: &Metadata) -> Option<Stamp> {
        None
    }

    /// `times` are those of the last change of content and of inode.
    pub(super) fn new(size: u64, times: (i128, i128), inode: u64, device: u64) -> Stamp {
        let mut bytes = [0; STAMP];
        bytes[..8].copy_from_slice(&size.to_le_bytes());
        bytes[8..24].copy_from_slice(&times.0.to_le_bytes());
        bytes[24..40].copy_from_slice(&times.1.to_le_bytes());
        bytes[40..48].copy_from_slice(&inode.to_le_bytes());
        bytes[48..].copy_from_slice(&device.to_le_bytes());
        Stamp(bytes)
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// The later of the two times.
    fn latest(&self) -> i128 {
        let time = |at: usize| {
            let mut bytes = [0; 16];
            bytes.copy_from_slice(&self.0[at..at + 16]);
            i128::from_le_bytes(bytes)
        };
        time(8).max(time(24))
    }

    /// All but what a hard link changes: the time of change of the inode.
    fn but_link(mut self) -> Stamp {
        self.0[24..40].fill(0);
        self
    }
}

impl Moment {
    /// The time now. None where nothing can be written to the folder `dir`, or where its file
    /// system does not note in a folder's stamp that a name was added.
    #[cfg(unix)]
    pub fn take(dir: &Path) -> Option<Moment> {
        use std::os::unix::fs::MetadataExt;
        let clock = Clock::read(dir)?;
        let folder = std::fs::metadata(dir).ok()?;
        let (modified, changed) = times(&folder);
        (modified >= clock.now && changed >= clock.now).then_some(Moment {
            now: clock.now,
            device: folder.dev(),
        })
    }

    #[cfg(not(unix))]
    pub fn take(_: &Path) -> Option<Moment> {
        None
    }

    /// Whether what bears this stamp now cannot have changed since shortly before that moment: a
    /// change after it would be another stamp, and none can bear this one any more.
    pub(super) fn settles(&self, stamp: &Stamp) -> bool {
        stamp.latest() < self.now - MARGIN
    }

    /// Whether the file system whose clock this is says `stamp`.
    pub(super) fn is_of(&self, stamp: &Stamp) -> bool {
        stamp.0[48..] == self.device.to_le_bytes()
    }

    /// As if so many seconds had passed.
    #[cfg(test)]
    pub fn ahead(mut self, seconds: i128) -> Moment {
        self.now += seconds * NANOS;
        self
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

    /// Whether all that `meta` says came before that moment, by the ticks of the file system:
    /// enough where `lstat` was asked after it.
    #[cfg(unix)]
    fn is_after(&self, meta: &Metadata) -> bool {
        let (modified, changed) = times(meta);
        modified.max(changed) < self.now
    }

    #[cfg(not(unix))]
    fn is_after(&self, _: &Metadata) -> bool {
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
        let mut files = Vec::with_capacity(rest.len() / 150);
        while !rest.is_empty() {
            let (length, after) = rest.split_first_chunk::<2>()?;
            let (path, after) = after.split_at_checked(u16::from_le_bytes(*length).into())?;
            let (fixed, after) = after.split_first_chunk::<FIXED>()?;
            let path = std::str::from_utf8(path).ok()?.to_owned();
            let stamp = Stamp(fixed[..STAMP].try_into().ok()?);
            let digest = Digest::from_bytes(fixed[STAMP..].try_into().ok()?);
            files.push((path, stamp, digest));
            rest = after;
        }
        // What follows looks for paths by halves.
        files
            .is_sorted_by(|a, b| a.0 < b.0)
            .then_some(Stamps(files))
    }

    fn bytes(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for (path, stamp, digest) in &self.0 {
            let Ok(length) = u16::try_from(path.len()) else {
                continue;
            };
            bytes.extend(length.to_le_bytes());
            bytes.extend(path.as_bytes());
            bytes.extend(stamp.0);
            bytes.extend(digest.bytes());
        }
        let sum = Digest::of(&bytes);
        bytes.extend(sum.bytes());
        bytes
    }

    fn get(&self, path: &RelPath) -> Option<(Stamp, Digest)> {
        let at = self
            .0
            .binary_search_by(|file| file.0.as_str().cmp(path.as_str()));
        let (_, stamp, digest) = self.0.get(at.ok()?)?;
        Some((*stamp, *digest))
    }

    /// The digest of a file's content, where the file is as it was.
    pub(super) fn digest(&self, path: &RelPath, meta: &Metadata) -> Option<Digest> {
        let (stamp, digest) = self.get(path)?;
        (Stamp::of(meta)? == stamp).then_some(digest)
    }

    /// Remembers files, sorted by path, in the place of all that was remembered, but for those
    /// whose stamps are too young. `clock` was read after `lstat` was asked and before those that
    /// were not known before were hashed.
    pub(super) fn of<'a>(
        clock: &Clock,
        known: &Stamps,
        files: impl Iterator<Item = (&'a RelPath, &'a Metadata, Digest)>,
    ) -> Stamps {
        let files = files.filter_map(|(path, meta, digest)| {
            let settled = known.digest(path, meta).is_some() || clock.outdates(meta);
            let stamp = Stamp::of(meta).filter(|_| settled)?;
            Some((path.to_string(), stamp, digest))
        });
        Stamps(files.collect())
    }

    /// What is known of the files of a tree that was just put in the place of this one: `made` was
    /// written, and the rest linked, which gives a file another time of change and leaves all else
    /// as it was. `clock` was read before `lstat` was asked for `now`: what changes later than
    /// that has a later stamp.
    pub(super) fn after(
        &self,
        clock: &Clock,
        made: &BTreeMap<&RelPath, (Metadata, Digest)>,
        now: &[(RelPath, Metadata)],
    ) -> Stamps {
        let files = now.iter().filter_map(|(path, meta)| {
            let stamp = Stamp::of(meta).filter(|_| clock.is_after(meta))?;
            let digest = match made.get(path) {
                // As it was written, before anybody else could see it.
                Some((written, digest)) => (Stamp::of(written)? == stamp).then_some(*digest)?,
                None => {
                    let (old, digest) = self.get(path)?;
                    (old.but_link() == stamp.but_link()).then_some(digest)?
                }
            };
            Some((path.to_string(), stamp, digest))
        });
        Stamps(files.collect())
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

/// Writes a file of stamps that takes the files at `paths` for something else, as no run of ours
/// would leave it.
#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub fn forge(root: &Path, memory: &Path, paths: &[(RelPath, Digest)]) {
    let mut clock = Clock::read(memory.parent().unwrap()).unwrap();
    clock.now += 10 * NANOS;
    let metas: Vec<Metadata> = paths
        .iter()
        .map(|(path, _)| std::fs::symlink_metadata(path.below(root)).unwrap())
        .collect();
    let files = paths
        .iter()
        .zip(&metas)
        .map(|((path, digest), meta)| (path, meta, *digest));
    Stamps::of(&clock, &Stamps::default(), files).save(clock, memory);
}

#[cfg(test)]
#[cfg(unix)]
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

    /// The stamps of one file that was hashed.
    fn of(clock: &Clock, meta: &Metadata) -> Stamps {
        let file = (&path(), meta, Digest::of(b"one"));
        Stamps::of(clock, &Stamps::default(), std::iter::once(file))
    }

    #[test]
    fn an_edit_that_keeps_size_and_time_stamp_is_seen() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("f");
        std::fs::write(&file, "one").unwrap();
        let meta = std::fs::symlink_metadata(&file).unwrap();
        let stamps = of(&clock(dir.path(), 3), &meta);
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
            let stamps = of(&clock(dir.path(), ahead), &meta);
            assert_eq!(stamps.digest(&path(), &meta).is_some(), kept, "{ahead}");
        }
        // A time stamp in the future, as after a clock that was put back.
        let later = SystemTime::now() + Duration::from_secs(3600);
        let opened = File::options().write(true).open(&file).unwrap();
        opened
            .set_times(FileTimes::new().set_modified(later))
            .unwrap();
        let meta = std::fs::symlink_metadata(&file).unwrap();
        let stamps = of(&clock(dir.path(), 3), &meta);
        assert_eq!(stamps.digest(&path(), &meta), None);
    }

    #[test]
    fn a_move_leaves_known_what_only_got_another_link() {
        let dir = tempfile::tempdir().unwrap();
        let (file, link) = (dir.path().join("f"), dir.path().join("g"));
        let look = |path: &Path| std::fs::symlink_metadata(path).unwrap();
        std::fs::write(&file, "one").unwrap();
        let old = of(&clock(dir.path(), 3), &look(&file));
        let after = |stamps: &Stamps, made: Option<&Metadata>, ahead: i128| {
            let made = made.map(|meta| (meta.clone(), Digest::of(b"one")));
            let key = path();
            let made = made.into_iter().map(|made| (&key, made)).collect();
            let now = [(path(), look(&file))];
            let found = stamps.after(&clock(dir.path(), ahead), &made, &now);
            found.digest(&path(), &now[0].1).is_some()
        };
        let none = Stamps::default();
        let written = look(&file);
        std::thread::sleep(Duration::from_millis(30));
        assert!(after(&none, Some(&written), 0), "as it was written");
        std::fs::hard_link(&file, &link).unwrap();
        std::fs::remove_file(&link).unwrap();
        assert_eq!(old.digest(&path(), &look(&file)), None, "another stamp");
        assert!(after(&old, None, 1));
        assert!(!after(&old, None, -1), "may change in the same tick");
        assert!(!after(&none, None, 1), "never hashed");
        assert!(!after(&none, Some(&written), 1), "not as it was written");
        std::fs::write(&file, "two").unwrap();
        assert!(!after(&old, None, 1), "an edit meanwhile");
    }

    #[test]
    fn comes_back_from_disk_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("stamps");
        std::fs::write(dir.path().join("f"), "one").unwrap();
        let meta = std::fs::symlink_metadata(dir.path().join("f")).unwrap();
        let now = clock(dir.path(), 3);
        let stamps = of(&now, &meta);
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
