//! Finding programs. Behind a trait, so that tests can take things away.

use std::ffi::OsStr;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use crate::model::Version;
use crate::process::Group;

/// How long a tool may take to say what it is; a wrapper on a slow network drive needs some.
const PATIENCE: Duration = Duration::from_secs(20);

/// The surroundings as far as tools are concerned.
pub trait Lookup {
    /// The first executable file called `name` on `PATH`; a name with a slash is a path.
    fn find(&self, name: &str) -> Option<PathBuf>;
    /// What `program` prints with `args`, stdout and stderr together; nothing where it fails.
    fn output(&self, program: &Path, args: &[&str]) -> Option<String>;
    /// An environment variable that is set and not empty.
    fn var(&self, name: &str) -> Option<String>;
    /// Bytes that are free for this user on the file system of `path` or of its nearest
    /// existing parent.
    fn free_space(&self, path: &Path) -> Option<u64>;
    /// Whether files can be made in `path`, or in its nearest existing parent.
    fn writable(&self, path: &Path) -> bool;

    /// The text of a file; nothing where it cannot be read.
    fn text(&self, path: &Path) -> Option<String> {
        std::fs::read_to_string(path).ok()
    }

    /// Size and time stamp of the file behind `path`, as text; nothing where there is none.
    fn mark(&self, path: &Path) -> Option<String> {
        let meta = std::fs::metadata(path).ok()?;
        let since = meta.modified().ok()?.duration_since(SystemTime::UNIX_EPOCH);
        Some(format!("{} bytes of {}", meta.len(), since.ok()?.as_secs()))
    }

    /// Whether `path` is a file.
    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    /// The first of `names` that is found.
    fn find_any(&self, names: &[String]) -> Option<PathBuf> {
        names.iter().find_map(|name| self.find(name))
    }

    /// The version that `program --version` tells.
    fn version(&self, program: &Path) -> Option<Version> {
        Version::find(&self.output(program, &["--version"])?)
    }
}

/// The machine that this runs on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Machine;

impl Lookup for Machine {
    fn find(&self, name: &str) -> Option<PathBuf> {
        if name.contains('/') {
            return is_program(Path::new(name)).then(|| PathBuf::from(name));
        }
        find_on(&std::env::var_os("PATH")?, name)
    }

    fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
        output_within(program, args, PATIENCE)
    }

    fn var(&self, name: &str) -> Option<String> {
        std::env::var(name).ok().filter(|value| !value.is_empty())
    }

    fn free_space(&self, path: &Path) -> Option<u64> {
        let stat = rustix::fs::statvfs(existing(path)?).ok()?;
        Some(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn writable(&self, path: &Path) -> bool {
        existing(path).is_some_and(|dir| tempfile::tempfile_in(dir).is_ok())
    }
}

/// What `program` prints, stdout before stderr, where it ends well and in time.
fn output_within(program: &Path, args: &[&str], limit: Duration) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).env("LC_ALL", "C");
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::start(&mut command, Duration::ZERO).ok()?;
    let streams = group.streams().into_iter().map(|mut stream| {
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = Vec::new();
            if stream.read_to_end(&mut bytes).is_ok() {
                let _ = sender.send(bytes);
            }
        });
        receiver
    });
    let streams: Vec<_> = streams.collect();
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = group.ended().ok()? {
            break status;
        }
        if begun.elapsed() > limit {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    let mut text = String::new();
    for stream in streams {
        // Its group is gone, so the pipe closes, unless something left the group with it.
        let bytes = stream.recv_timeout(limit).ok()?;
        text.push_str(&String::from_utf8_lossy(&bytes));
    }
    status.success().then_some(text)
}

/// `path` or its nearest parent that is there.
fn existing(path: &Path) -> Option<&Path> {
    path.ancestors().find(|dir| dir.is_dir())
}

/// The first executable file `name` in the folders of `path`, absolute ones only: a relative
/// one would mean something else in the folder that a child runs in.
fn find_on(path: &OsStr, name: &str) -> Option<PathBuf> {
    std::env::split_paths(path)
        .filter(|dir| dir.is_absolute())
        .map(|dir| dir.join(name))
        .find(|file| is_program(file))
}

fn is_program(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    std::fs::metadata(path)
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// A made-up machine.
#[cfg(test)]
pub mod fake {
    use super::*;
    use std::collections::BTreeMap;

    /// Programs with their output, variables and disks of a made-up machine.
    #[derive(Clone, Debug, Default)]
    pub struct Fake {
        /// Path of a program to what it prints with any arguments.
        pub programs: BTreeMap<PathBuf, String>,
        /// Environment.
        pub vars: BTreeMap<String, String>,
        /// Free space everywhere.
        pub free: u64,
        /// Whether everything can be written.
        pub writable: bool,
        /// Arguments, joined by blanks, with which every program fails.
        pub failing: Vec<String>,
        /// Path of a file to its text.
        pub files: BTreeMap<PathBuf, String>,
    }

    impl Fake {
        /// Adds `/usr/bin/<name>` that prints `output`.
        pub fn with(mut self, name: &str, output: &str) -> Self {
            let path = Path::new("/usr/bin").join(name);
            self.programs.insert(path, output.to_owned());
            self
        }

        /// Takes `/usr/bin/<name>` away.
        pub fn without(mut self, name: &str) -> Self {
            self.programs.remove(&Path::new("/usr/bin").join(name));
            self
        }

        /// Sets a variable.
        pub fn set(mut self, name: &str, value: &str) -> Self {
            self.vars.insert(name.to_owned(), value.to_owned());
            self
        }

        /// Makes every program fail with these arguments.
        pub fn failing(mut self, args: &str) -> Self {
            self.failing.push(args.to_owned());
            self
        }

        /// Adds the file `path` with `text`.
        pub fn file(mut self, path: &str, text: &str) -> Self {
            self.files.insert(PathBuf::from(path), text.to_owned());
            self
        }

        /// A machine on which nothing is missing.
        pub fn complete() -> Self {
            Fake {
                free: 100 << 30,
                writable: true,
                ..Fake::default()
            }
            .with("cargo", "cargo 1.99.0 (abc 2026-09-01)")
            .with("rustc", "rustc 1.99.0 (abc 2026-09-01)")
            .with("git", "git version 2.47.3")
            .with("python3", "Python 3.11.7")
            .with(
                "cc",
                "cc (Debian 12.2.0) 12.2.0\nFree Software Foundation, Inc.",
            )
            .with(
                "c++",
                "c++ (Debian 12.2.0) 12.2.0\nFree Software Foundation, Inc.",
            )
            .with("cmake", "cmake version 3.25.1")
            .with("ninja", "1.11.1")
            .with("ccache", "ccache version 4.7.5")
            .with("setpriv", "setpriv from util-linux 2.38.1")
            .with("ssh", "OpenSSH_9.2p1")
            .with("rsync", "rsync  version 3.2.7  protocol version 31")
            .with("apt-get", "apt 2.6.1")
        }
    }

    impl Lookup for Fake {
        fn find(&self, name: &str) -> Option<PathBuf> {
            let path = Path::new("/usr/bin").join(name);
            self.programs.contains_key(&path).then_some(path)
        }

        fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
            if self.failing.contains(&args.join(" ")) {
                return None;
            }
            self.programs.get(program).cloned()
        }

        fn var(&self, name: &str) -> Option<String> {
            self.vars.get(name).cloned()
        }

        fn text(&self, path: &Path) -> Option<String> {
            self.files.get(path).cloned()
        }

        fn mark(&self, path: &Path) -> Option<String> {
            self.files.get(path).cloned()
        }

        fn is_file(&self, path: &Path) -> bool {
            self.files.contains_key(path)
        }

        fn free_space(&self, _: &Path) -> Option<u64> {
            Some(self.free)
        }

        fn writable(&self, _: &Path) -> bool {
            self.writable
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn a_tool_that_hangs_is_none() {
        let sh = |script: &str, seconds| {
            let limit = Duration::from_secs(seconds);
            output_within(Path::new("/bin/sh"), &["-c", script], limit)
        };
        assert_eq!(
            sh("echo err >&2; echo out", 20).as_deref(),
            Some("out\nerr\n")
        );
        assert_eq!(sh("echo out; exit 1", 20), None);
        let long = sh("yes 12345678 | head -n 100000", 20).unwrap();
        assert_eq!(long.len(), 900_000);
        let begun = Instant::now();
        assert_eq!(sh("echo 1.2; sleep 1000", 1), None);
        assert_eq!(sh("sleep 1000 & echo 1.2", 20).as_deref(), Some("1.2\n"));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn only_executable_files_in_absolute_folders_count() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("a"), dir.path().join("b"));
        for folder in [&first, &second] {
            std::fs::create_dir(folder).unwrap();
            std::fs::write(folder.join("tool"), "").unwrap();
        }
        std::fs::create_dir(first.join("folder")).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(second.join("tool"), mode).unwrap();
        let path = std::env::join_paths([Path::new("."), &first, &second]).unwrap();
        assert_eq!(find_on(&path, "tool"), Some(second.join("tool")));
        assert_eq!(find_on(&path, "folder"), None);
        assert_eq!(find_on(OsStr::new(""), "tool"), None);
    }

    #[test]
    fn space_is_told_for_folders_that_are_not_there_yet() {
        let dir = tempfile::tempdir().unwrap();
        assert!(Machine.free_space(&dir.path().join("a/b/c")).unwrap() > 0);
        assert!(Machine.writable(&dir.path().join("a/b/c")));
    }
}
