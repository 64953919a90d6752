//! Processes of servers under test that left their process group, as `setsid` makes them do.
//!
//! Every server is started with a variable that nobody else has, and its children inherit it. So
//! they are found wherever they have gone: when their server ends, and, where this program was
//! killed before it could look, by the next run. Linux only; elsewhere there is only the group.

use std::sync::atomic::{AtomicU64, Ordering};

/// The variable: process id and start of the program that started the server, and a number.
pub const MARK: &str = "LLAMA_PATCHSET_SERVER";

/// The mark of one server. What still carries it is killed when this is dropped.
#[derive(Debug)]
pub struct Mark(String);

impl Mark {
    /// One that no other server has.
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let own = std::process::id();
        Mark(format!(
            "{own}.{}.{}",
            started(own).unwrap_or(0),
            NEXT.fetch_add(1, Ordering::SeqCst)
        ))
    }

    /// What [`MARK`] is set to.
    pub fn value(&self) -> &str {
        &self.0
    }
}

impl Default for Mark {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Mark {
    fn drop(&mut self) {
        kill(|mark| mark == self.0);
    }
}

/// Kills what servers left behind whose program is gone. Returns how many there were.
pub fn sweep() -> usize {
    kill(|mark| {
        let mut parts = mark.split('.');
        let owner = parts.next().and_then(|id| id.parse().ok());
        let since: Option<u64> = parts.next().and_then(|since| since.parse().ok());
        // What cannot be read was not written by this program.
        match (owner, since) {
            (Some(owner), Some(since)) => started(owner) != Some(since),
            _ => false,
        }
    })
}

/// When a process began, in ticks since the system did: with its id it names a process for ever.
fn started(id: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(19)?.parse().ok()
}

/// Kills every process whose mark `is_meant`.
#[cfg(target_os = "linux")]
fn kill(is_meant: impl Fn(&str) -> bool) -> usize {
    use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let mut killed = 0;
    for entry in entries.flatten() {
        let name = entry.file_name();
        let id = name.to_str().and_then(|name| name.parse::<i32>().ok());
        let Some(pid) = id.and_then(Pid::from_raw) else {
            continue;
        };
        let mark = || {
            let environ = std::fs::read(entry.path().join("environ")).ok()?;
            let mut variables = environ.split(|byte| *byte == 0);
            let found =
                variables.find_map(|v| v.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))?;
            String::from_utf8(found.to_vec()).ok()
        };
        if !mark().is_some_and(|mark| is_meant(&mark)) {
            continue;
        }
        // Held first and then looked at again: an id can be given to somebody else in between.
        let Ok(held) = pidfd_open(pid, PidfdFlags::empty()) else {
            continue;
        };
        if mark().is_some_and(|mark| is_meant(&mark))
            && pidfd_send_signal(held, Signal::KILL).is_ok()
        {
            killed += 1;
        }
    }
    killed
}

#[cfg(not(target_os = "linux"))]
fn kill(_: impl Fn(&str) -> bool) -> usize {
    0
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use super::*;
    use std::process::{Child, Command};
    use std::time::{Duration, Instant};

    fn sleeper(mark: &str) -> Child {
        let mut command = Command::new("sleep");
        command.arg("1000").env(MARK, mark).spawn().unwrap()
    }

    fn ends(child: &mut Child) -> bool {
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(5) {
            if child.try_wait().unwrap().is_some() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    #[test]
    fn only_what_carries_the_mark_is_killed() {
        let (mark, other) = (Mark::new(), Mark::new());
        assert_ne!(mark.value(), other.value());
        let mut meant = sleeper(mark.value());
        let mut spared = sleeper(other.value());
        // A child has its variables only once it runs its program.
        std::thread::sleep(Duration::from_millis(100));
        drop(mark);
        assert!(ends(&mut meant));
        assert!(spared.try_wait().unwrap().is_none());
        drop(other);
        assert!(ends(&mut spared));
    }

    #[test]
    fn what_a_killed_program_left_is_swept_and_nothing_else() {
        let own = Mark::new();
        let mut child = Command::new("true").spawn().unwrap();
        let (gone, since) = (child.id(), started(child.id()).unwrap_or(1));
        child.wait().unwrap();
        let mut left = sleeper(&format!("{gone}.{since}.0"));
        // The same id, given to another program since: this one.
        let mut older = sleeper(&format!("{}.1.0", std::process::id()));
        let mut living = sleeper(own.value());
        let mut foreign = sleeper("whatever");
        std::thread::sleep(Duration::from_millis(100));
        assert!(sweep() >= 2);
        assert!(ends(&mut left) && ends(&mut older));
        assert!(living.try_wait().unwrap().is_none());
        assert!(foreign.try_wait().unwrap().is_none());
        foreign.kill().unwrap();
        foreign.wait().unwrap();
        drop(own);
        assert!(ends(&mut living));
    }
}
