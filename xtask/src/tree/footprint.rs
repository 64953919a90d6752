//! What was read below a folder, as the stamps of it were: as long as none of them is another,
//! reading all of it again would give the same.
//!
//! Files bear the stamps of `stamps.rs`, and the same rule holds: what changed in the two seconds
//! before it was read is not remembered. Folders bear them too, since adding, renaming and taking
//! away a name changes the folder's. Where there is a symbolic link, which leads to where no stamp
//! was taken, there is no footprint at all.

use std::collections::BTreeSet;
use std::path::Path;

use rayon::prelude::*;

use crate::model::Digest;
use crate::tree::stamps::{Moment, Stamp};

/// So many stamps are asked for by one processor at a time.
const SOME: usize = 256;

/// The names below a folder that were read, and a digest over all their stamps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Footprint {
    /// Relative paths, in the order in which they were found.
    pub paths: Vec<String>,
    /// Digest over their stamps.
    pub stamps: Digest,
}

impl Footprint {
    /// What is below `root` at each of `tops`, and all in it where it is a folder; and the folders
    /// that they lie in, since what is put in the place of a top may itself be old. `moment` was
    /// before the first of it was read. None where some of it may change once more without
    /// another stamp, or where a stamp does not say all.
    pub fn take(root: &Path, tops: &[String], moment: &Moment) -> Option<Footprint> {
        let found = tops
            .par_iter()
            .map(|top| {
                let mut found = Vec::new();
                walk(root, top.clone(), &mut found)?;
                let known =
                    |(_, stamp): &(String, Stamp)| moment.is_of(stamp) && moment.settles(stamp);
                found.iter().all(known).then_some(found)
            })
            .collect::<Option<Vec<_>>>()?;
        let above = tops.iter().flat_map(|top| {
            let ends = top.match_indices('/');
            ends.map(|(end, _)| top[..end].to_owned())
        });
        let above: Vec<String> = above.collect::<BTreeSet<_>>().into_iter().collect();
        let stamped = stamps(root, &above)?;
        let known = |stamp: &Stamp| moment.is_of(stamp) && moment.settles(stamp);
        if !stamped.iter().all(known) || above.iter().any(|path| root.join(path).is_symlink()) {
            return None;
        }
        let above = above.into_iter().zip(stamped);
        Some(Footprint::of(
            above.chain(found.into_iter().flatten()).collect(),
        ))
    }

    /// As [`Footprint::take`], of plain files, which may be on another file system.
    pub fn of_files(root: &Path, files: Vec<String>, moment: &Moment) -> Option<Footprint> {
        let stamps = stamps(root, &files)?;
        let settled = stamps.iter().all(|stamp| moment.settles(stamp));
        settled.then(|| Footprint::of(files.into_iter().zip(stamps).collect()))
    }

    fn of(found: Vec<(String, Stamp)>) -> Footprint {
        let (paths, stamps): (Vec<String>, Vec<Stamp>) = found.into_iter().unzip();
        let stamps = digest(&stamps);
        Footprint { paths, stamps }
    }

    /// Whether all of it still bears its stamps.
    pub fn is_unchanged(&self, root: &Path) -> bool {
        stamps(root, &self.paths).is_some_and(|stamps| digest(&stamps) == self.stamps)
    }
}

/// What changes when this program is another one: a stamp of its file.
pub fn own_stamp() -> Option<Digest> {
    let file = std::env::current_exe().ok()?;
    let stamp = Stamp::of(&std::fs::metadata(file).ok()?)?;
    Some(digest(&[stamp]))
}

fn digest(stamps: &[Stamp]) -> Digest {
    let all: Vec<u8> = stamps
        .iter()
        .flat_map(|stamp| stamp.bytes())
        .copied()
        .collect();
    Digest::of(&all)
}

/// Adds what is at `path` and below it. None where there is anything but files and folders.
fn walk(root: &Path, path: String, found: &mut Vec<(String, Stamp)>) -> Option<()> {
    let place = root.join(&path);
    let meta = std::fs::symlink_metadata(&place).ok()?;
    let is_dir = meta.is_dir();
    if !is_dir && !meta.is_file() {
        return None;
    }
    found.push((path.clone(), Stamp::of(&meta)?));
    if is_dir {
        for entry in std::fs::read_dir(place).ok()? {
            let name = entry.ok()?.file_name();
            walk(root, format!("{path}/{}", name.to_str()?), found)?;
        }
    }
    Some(())
}

fn stamps(root: &Path, paths: &[String]) -> Option<Vec<Stamp>> {
    let folder = Folder::open(root)?;
    let some = paths.par_chunks(SOME).map(|paths| {
        let stamps = paths.iter().map(|path| folder.stamp(path));
        stamps.collect::<Option<Vec<Stamp>>>()
    });
    let all: Vec<Vec<Stamp>> = some.collect::<Option<_>>()?;
    Some(all.concat())
}

/// An open folder: names below it are found without a walk from the root of the file system.
struct Folder {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    open: std::fs::File,
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    path: std::path::PathBuf,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Folder {
    fn open(root: &Path) -> Option<Folder> {
        let open = std::fs::File::open(root).ok()?;
        Some(Folder { open })
    }

    fn stamp(&self, path: &str) -> Option<Stamp> {
        use rustix::fs::{AtFlags, statat};
        let stat = statat(&self.open, path, AtFlags::SYMLINK_NOFOLLOW).ok()?;
        let time = |seconds: i64, rest: u64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
        let times = (
            time(stat.st_mtime, stat.st_mtime_nsec),
            time(stat.st_ctime, stat.st_ctime_nsec),
        );
        let size = u64::try_from(stat.st_size).ok()?;
        Some(Stamp::new(size, times, stat.st_ino, stat.st_dev))
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Folder {
    fn open(root: &Path) -> Option<Folder> {
        let path = root.to_path_buf();
        Some(Folder { path })
    }

    fn stamp(&self, path: &str) -> Option<Stamp> {
        Stamp::of(&std::fs::symlink_metadata(self.path.join(path)).ok()?)
    }
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use std::fs;
    use std::time::Duration;

    use super::*;

    /// A folder with a file in a folder, and what is known of it when all is old enough.
    fn known() -> (tempfile::TempDir, Footprint) {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir_all(dir.path().join("top/sub")).unwrap();
        fs::write(dir.path().join("top/sub/file"), "one").unwrap();
        fs::write(dir.path().join("top/other"), "one").unwrap();
        let moment = Moment::take(dir.path()).unwrap().ahead(3);
        let footprint = Footprint::take(dir.path(), &["top".to_owned()], &moment).unwrap();
        assert_eq!(footprint.paths.len(), 4);
        assert!(footprint.is_unchanged(dir.path()));
        // Not in the same tick of the kernel's clock: that is what the two seconds are for.
        std::thread::sleep(Duration::from_millis(30));
        (dir, footprint)
    }

    /// Whether it shows that somebody did something.
    fn shows(act: impl FnOnce(&Path)) -> bool {
        let (dir, footprint) = known();
        act(&dir.path().join("top"));
        !footprint.is_unchanged(dir.path())
    }

    #[test]
    fn every_kind_of_change_shows() {
        assert!(!shows(|_| ()));
        assert!(!shows(|top| drop(fs::read(top.join("other")).unwrap())));
        assert!(shows(|top| fs::write(top.join("other"), "two").unwrap()));
        assert!(shows(|top| fs::write(top.join("new"), "").unwrap()));
        assert!(shows(|top| fs::write(top.join("sub/new"), "").unwrap()));
        assert!(shows(|top| fs::create_dir(top.join("sub/new")).unwrap()));
        assert!(shows(|top| fs::remove_file(top.join("sub/file")).unwrap()));
        assert!(shows(
            |top| fs::rename(top.join("sub"), top.join("bus")).unwrap()
        ));
        assert!(shows(|top| fs::remove_dir_all(top).unwrap()));
        // Of the same size, in the place of the other.
        assert!(shows(|top| fs::rename(
            top.join("sub/file"),
            top.join("other")
        )
        .unwrap()));
        assert!(shows(|top| {
            use std::os::unix::fs::PermissionsExt;
            let mode = fs::Permissions::from_mode(0o755);
            fs::set_permissions(top.join("other"), mode).unwrap();
        }));
        assert!(shows(|top| {
            // All that a program can set back.
            let file = top.join("sub/file");
            let before = fs::metadata(&file).unwrap().modified().unwrap();
            fs::write(&file, "two").unwrap();
            let times = fs::FileTimes::new().set_modified(before);
            let opened = fs::File::options().write(true).open(&file).unwrap();
            opened.set_times(times).unwrap();
        }));
        assert!(shows(|top| {
            // The same files by way of a link.
            fs::rename(top.join("sub"), top.join("../elsewhere")).unwrap();
            std::os::unix::fs::symlink("../elsewhere", top.join("sub")).unwrap();
        }));
    }

    #[test]
    fn the_folders_above_count_too() {
        let (dir, _) = known();
        let moment = Moment::take(dir.path()).unwrap().ahead(3);
        let take = || Footprint::take(dir.path(), &["top/sub".to_owned()], &moment);
        let footprint = take().unwrap();
        assert_eq!(footprint.paths, ["top", "top/sub", "top/sub/file"]);
        fs::write(dir.path().join("top/beside"), "").unwrap();
        assert!(!footprint.is_unchanged(dir.path()));
        fs::rename(dir.path().join("top"), dir.path().join("real")).unwrap();
        std::os::unix::fs::symlink("real", dir.path().join("top")).unwrap();
        assert!(take().is_none(), "a link");
    }

    #[test]
    fn what_is_young_or_leads_elsewhere_leaves_none() {
        let (dir, _) = known();
        let take = |ahead| {
            let moment = Moment::take(dir.path()).unwrap().ahead(ahead);
            Footprint::take(dir.path(), &["top".to_owned()], &moment)
        };
        assert!(take(3).is_some());
        assert!(take(1).is_none(), "may change in the same tick");
        assert!(take(-10).is_none(), "a clock that was put back");
        let moment = Moment::take(dir.path()).unwrap();
        let files = || vec!["top/other".to_owned()];
        assert!(Footprint::of_files(dir.path(), files(), &moment.ahead(3)).is_some());
        assert!(Footprint::of_files(dir.path(), files(), &moment).is_none());
        std::os::unix::fs::symlink("other", dir.path().join("top/link")).unwrap();
        assert!(take(3).is_none(), "a link");
        fs::remove_file(dir.path().join("top/link")).unwrap();
        assert!(take(3).is_some());
        let other = Path::new("/dev/shm");
        if let Some(moment) = Moment::take(other).map(|moment| moment.ahead(3)) {
            let stamp = Stamp::of(&fs::metadata(dir.path()).unwrap()).unwrap();
            let here = Moment::take(dir.path()).unwrap();
            let same = here.is_of(&Stamp::of(&fs::metadata(other).unwrap()).unwrap());
            assert_eq!(moment.is_of(&stamp), same, "another file system's clock");
        }
    }
}
