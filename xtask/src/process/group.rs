//! A child that cannot outlive us: in a process group of its own, ended on drop, and told by the
//! kernel to die when this program is killed.

use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// How often a process is looked at.
const POLL: Duration = Duration::from_millis(5);

/// A signal that ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signal {
    /// Asks it to end.
    Term,
    /// Ends it.
    Kill,
}

/// A running child that leads its process group.
#[derive(Debug)]
pub struct Group {
    child: Child,
    grace: Duration,
    ended: Option<ExitStatus>,
    killed: bool,
}

/// A command for `program` that gets `signal` when this program is killed. The kernel sends it
/// when the calling *thread* ends, so that thread must see the child to its end. Where the
/// machine has no `setpriv` of util-linux, a plain command.
pub fn tied(program: &Path, signal: Signal) -> Command {
    if !setpriv() {
        return Command::new(program);
    }
    let name = match signal {
        Signal::Term => "TERM",
        Signal::Kill => "KILL",
    };
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", name, "--"]).arg(program);
    command
}

/// As [`tied`], for a command that is complete but for its streams: its arguments, folder and
/// variables stay. One whose program cannot be found stays as it is, so that its absence is said
/// by the start and not by `setpriv`.
pub(super) fn tie(command: &mut Command, signal: Signal) {
    if command.get_program() == "setpriv" || !is_there(command) {
        return;
    }
    let mut tied = tied(Path::new(command.get_program()), signal);
    tied.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => tied.env(name, value),
            None => tied.env_remove(name),
        };
    }
    if let Some(dir) = command.get_current_dir() {
        tied.current_dir(dir);
    }
    *command = tied;
}

/// Whether the program of `command` is a file, or one in the search path.
fn is_there(command: &Command) -> bool {
    let program = Path::new(command.get_program());
    if program.components().count() > 1 {
        let from = command.get_current_dir().unwrap_or(Path::new("."));
        return from.join(program).is_file();
    }
    let own = command.get_envs().find(|(name, _)| *name == "PATH");
    let path = match own {
        Some((_, value)) => value.map(std::ffi::OsStr::to_os_string),
        None => std::env::var_os("PATH"),
    };
    path.is_some_and(|path| std::env::split_paths(&path).any(|dir| dir.join(program).is_file()))
}

impl Group {
    /// Starts `command`, without input, in a group of its own. `grace` is the time between
    /// asking it to end and killing it.
    pub fn start(command: &mut Command, grace: Duration) -> Result<Self> {
        command.stdin(Stdio::null());
        #[cfg(unix)]
        {
            use std::os::unix::process::CommandExt;
            command.process_group(0);
        }
        let child = command.spawn().map_err(|error| {
            let name = command.get_program().to_string_lossy();
            let folder = command.get_current_dir().filter(|dir| !dir.is_dir());
            if let Some(folder) = folder {
                Error::environment(format!("there is no folder {}", folder.display()))
                    .context(format!("starting `{name}`"))
            } else if error.kind() == std::io::ErrorKind::NotFound {
                Error::environment(format!("`{name}` is not installed"))
            } else {
                Error::from(error).context(format!("starting `{name}`"))
            }
        })?;
        Ok(Group {
            child,
            grace,
            ended: None,
            killed: false,
        })
    }

    /// Its streams, as far as they are pipes and were not taken before.
    pub fn streams(&mut self) -> Vec<Box<dyn std::io::Read + Send>> {
        let stdout = self.child.stdout.take().map(|stream| Box::new(stream) as _);
        let stderr = self.child.stderr.take().map(|stream| Box::new(stream) as _);
        stdout.into_iter().chain(stderr).collect()
    }

    /// Its id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// How it ended, where it has. Its whole group is killed before it is reaped, while its id
    /// cannot have been given to anybody else.
    pub fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() && has_ended(&mut self.child)? {
            signal_group(&self.child, Signal::Kill);
            self.ended = Some(self.child.wait()?);
        }
        Ok(self.ended)
    }

    /// Whether [`Group::end`] had to kill it.
    pub fn was_killed(&self) -> bool {
        self.killed
    }

    /// Ends it and its group: asks, waits, kills, reaps.
    pub fn end(&mut self) -> Result<ExitStatus> {
        if let Some(status) = self.ended()? {
            return Ok(status);
        }
        signal_group(&self.child, Signal::Term);
        let begun = Instant::now();
        while begun.elapsed() < self.grace {
            if let Some(status) = self.ended()? {
                return Ok(status);
            }
            std::thread::sleep(POLL);
        }
        signal_group(&self.child, Signal::Kill);
        self.killed = true;
        let status = self.child.wait()?;
        self.ended = Some(status);
        Ok(status)
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.end().is_err() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// Whether `setpriv` of util-linux is there and knows `--pdeathsig`.
fn setpriv() -> bool {
    static THERE: OnceLock<bool> = OnceLock::new();
    *THERE.get_or_init(|| {
        Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", "true"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success())
    })
}

#[cfg(unix)]
fn has_ended(child: &mut Child) -> Result<bool> {
    use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};
    // Leaves it unreaped, so that its id stays its own.
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    match waitid(WaitId::Pid(Pid::from_child(child)), options) {
        Ok(found) => Ok(found.is_some()),
        Err(errno) => Err(std::io::Error::from(errno).into()),
    }
}

#[cfg(not(unix))]
fn has_ended(child: &mut Child) -> Result<bool> {
    Ok(child.try_wait()?.is_some())
}

#[cfg(unix)]
fn signal_group(child: &Child, signal: Signal) {
    use rustix::process::{Pid, kill_process_group};
    let signal = match signal {
        Signal::Term => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
    };
    // Fails only where nothing is left to signal.
    let _ = kill_process_group(Pid::from_child(child), signal);
}

#[cfg(not(unix))]
fn signal_group(_: &Child, _: Signal) {}

/// How a process ended, in words.
pub fn describe(status: ExitStatus) -> String {
    #[cfg(unix)]
    {
        use std::os::unix::process::ExitStatusExt;
        if let Some(signal) = status.signal() {
            return format!("by signal {signal}{}", signal_name(signal));
        }
    }
    match status.code() {
        Some(code) => format!("with exit code {code}"),
        None => "for an unknown reason".to_owned(),
    }
}

#[cfg(unix)]
fn signal_name(signal: i32) -> &'static str {
    use signal_hook::consts::{SIGABRT, SIGFPE, SIGILL, SIGKILL, SIGSEGV, SIGTERM};
    match signal {
        SIGABRT => " (SIGABRT)",
        SIGFPE => " (SIGFPE)",
        SIGILL => " (SIGILL)",
        SIGKILL => " (SIGKILL; out of memory?)",
        SIGSEGV => " (SIGSEGV)",
        SIGTERM => " (SIGTERM)",
        _ => "",
    }
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;

    fn shell(script: &str, grace: u64) -> (Group, tempfile::TempDir) {
        let dir = tempfile::tempdir().unwrap();
        let log = std::fs::File::create(dir.path().join("log")).unwrap();
        let mut command = tied(Path::new("/bin/sh"), Signal::Kill);
        command.arg("-c").arg(script).stdout(log);
        let process = Group::start(&mut command, Duration::from_millis(grace)).unwrap();
        // Let the script come to its main part.
        while !dir.path().join("log").metadata().is_ok_and(|m| m.len() > 0) {
            std::thread::sleep(POLL);
        }
        (process, dir)
    }

    fn alive(pid: &str) -> bool {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        !stat.is_empty() && !stat.contains(") Z")
    }

    fn gone(pid: &str) -> bool {
        let begun = Instant::now();
        while alive(pid) && begun.elapsed() < Duration::from_secs(5) {
            std::thread::sleep(POLL);
        }
        !alive(pid)
    }

    #[test]
    fn dropping_ends_one_that_will_not_listen_and_its_children() {
        let (process, dir) = shell("trap '' TERM; sleep 1000 & echo $!; sleep 1000", 50);
        let pid = process.id().to_string();
        let child = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(alive(&pid) && alive(child.trim()));
        drop(process);
        assert!(gone(&pid), "the process");
        assert!(gone(child.trim()), "its child");
    }

    #[test]
    fn a_leader_that_ends_takes_its_group_along() {
        let (mut process, dir) = shell("sleep 1000 & echo $!; exit 3", 50);
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = process.ended().unwrap() {
                break status;
            }
            assert!(begun.elapsed() < Duration::from_secs(5));
        };
        assert_eq!(describe(status), "with exit code 3");
        let child = std::fs::read_to_string(dir.path().join("log")).unwrap();
        assert!(gone(child.trim()));
    }

    #[test]
    fn asking_is_enough_for_most() {
        let (mut process, _dir) = shell("echo ready; exec sleep 1000", 60_000);
        let status = process.end().unwrap();
        assert_eq!(describe(status), "by signal 15 (SIGTERM)");
    }

    #[test]
    fn tying_changes_nothing_else() {
        let mut command = Command::new("sh");
        command
            .args(["-c", "pwd; echo $A${B-unset}"])
            .env("A", "1")
            .env_remove("B")
            .current_dir("/usr");
        tie(&mut command, Signal::Term);
        assert!(!setpriv() || command.get_program() == "setpriv");
        let output = command.output().unwrap();
        assert_eq!(String::from_utf8(output.stdout).unwrap(), "/usr\n1unset\n");
        for missing in ["no-such-program-here", "/nonexistent/ninja"] {
            let mut command = Command::new(missing);
            tie(&mut command, Signal::Term);
            assert_eq!(command.get_program(), missing);
        }
    }

    #[test]
    fn the_end_of_the_owning_thread_kills_it() {
        if !setpriv() {
            return;
        }
        let (process, _dir) = std::thread::spawn(|| shell("echo ready; exec sleep 1000", 50))
            .join()
            .unwrap();
        assert!(gone(&process.id().to_string()));
    }
}
