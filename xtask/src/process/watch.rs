//! Running a program of the user's that may hang: it is watched, and killed with all that it
//! started when it gives no sign of life, or when the user stops us.

use std::io::Read;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::ctx::Cancel;
use crate::error::{Result, ResultExt};
use crate::process::group::tie;
use crate::process::{Group, Signal};

/// How long a program may be silent.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// Until the first sign of life.
    pub first: Duration,
    /// From one sign of life to the next.
    pub idle: Duration,
}

/// How a watched program ended.
#[derive(Debug)]
pub enum End {
    /// By itself.
    Exited {
        /// Its status.
        status: ExitStatus,
        /// The last lines of stdout and stderr, in the order in which they came.
        output: Vec<String>,
    },
    /// We killed it: no sign of life for that long. `answered`: there had been one before.
    Silent {
        /// How long.
        after: Duration,
        /// Whether it had shown a sign of life before.
        answered: bool,
    },
}

/// Lines of output that are kept.
const KEPT: usize = 200;
const POLL: Duration = Duration::from_millis(50);
/// How long it may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(1);
/// How often the (possibly costly) sign of life is looked for.
const LOOK: Duration = Duration::from_millis(500);

/// Runs `command` to its end. `sign` is a number that changes while the program gets on, 0 until
/// it does at all; `line` is told each line of output. Fails only where the program cannot be
/// started, or when `cancel` is set. When this program is killed, `command` is asked to end.
pub fn run(
    command: &mut Command,
    cancel: &Cancel,
    patience: Patience,
    sign: &mut dyn FnMut() -> u64,
    line: &mut dyn FnMut(&str),
) -> Result<End> {
    cancel.check()?;
    let program = command.get_program().to_string_lossy().into_owned();
    tie(command, Signal::Term);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::start(command, GRACE)?;
    let lines = listen(&mut group);
    let mut output = std::collections::VecDeque::new();
    let mut take = |text: String| {
        line(&text);
        if output.len() == KEPT {
            output.pop_front();
        }
        output.push_back(text);
    };
    let (mut last, mut since, mut looked) = (0, Instant::now(), Instant::now());
    let status = loop {
        let mut spoke = false;
        match lines.recv_timeout(POLL) {
            Ok(text) => {
                take(text);
                spoke = true;
            }
            // Both pipes are closed: it is about to end.
            Err(RecvTimeoutError::Disconnected) => std::thread::sleep(POLL),
            Err(RecvTimeoutError::Timeout) => {}
        }
        cancel.check()?;
        if !spoke
            && let Some(status) = group
                .ended()
                .context(|| format!("waiting for `{program}`"))?
        {
            break status;
        }
        if looked.elapsed() < LOOK.min(patience.first) {
            continue;
        }
        looked = Instant::now();
        let now = sign();
        if now != last {
            (last, since) = (now, Instant::now());
        }
        let answered = last != 0;
        let limit = if answered {
            patience.idle
        } else {
            patience.first
        };
        if since.elapsed() >= limit {
            return Ok(End::Silent {
                after: since.elapsed(),
                answered,
            });
        }
    };
    // What is still in the pipes, until they close; a background process that holds them open
    // must not hold us for long.
    let ended = Instant::now();
    while let Some(left) = Duration::from_secs(1).checked_sub(ended.elapsed())
        && let Ok(text) = lines.recv_timeout(left)
    {
        take(text);
    }
    Ok(End::Exited {
        status,
        output: output.into(),
    })
}

/// Reads both streams, line by line; a carriage return ends a line too.
fn listen(group: &mut Group) -> Receiver<String> {
    let (sender, receiver) = channel();
    for mut stream in group.streams() {
        let sender = sender.clone();
        std::thread::spawn(move || {
            let mut pending = Vec::new();
            let mut buffer = [0; 4096];
            while let Ok(got @ 1..) = stream.read(&mut buffer) {
                for byte in &buffer[..got] {
                    // A line without end is cut, not kept.
                    if matches!(byte, b'\n' | b'\r') || pending.len() > 8192 {
                        let text = String::from_utf8_lossy(&pending).trim_end().to_owned();
                        pending.clear();
                        if !text.is_empty() && sender.send(text).is_err() {
                            return;
                        }
                    } else {
                        pending.push(*byte);
                    }
                }
            }
            let text = String::from_utf8_lossy(&pending).trim_end().to_owned();
            if !text.is_empty() {
                let _ = sender.send(text);
            }
        });
    }
    receiver
}

/// Bytes in all files below `dir`; a measure of progress.
pub fn bytes_below(dir: &std::path::Path) -> u64 {
    walkdir::WalkDir::new(dir)
        .into_iter()
        .filter_map(std::result::Result::ok)
        .filter_map(|entry| entry.metadata().ok())
        .filter(std::fs::Metadata::is_file)
        .map(|meta| meta.len())
        .sum()
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn patience(first: u64, idle: u64) -> Patience {
        Patience {
            first: Duration::from_millis(first),
            idle: Duration::from_millis(idle),
        }
    }

    fn watch(script: &str, first: u64, idle: u64) -> (Result<End>, Vec<String>) {
        let mut lines = Vec::new();
        let count = std::cell::Cell::new(0);
        let end = run(
            &mut sh(script),
            &Cancel::default(),
            patience(first, idle),
            &mut || count.get(),
            &mut |line| {
                count.set(count.get() + 1);
                lines.push(line.to_owned());
            },
        );
        (end, lines)
    }

    #[test]
    fn output_and_status_come_back() {
        let (end, lines) = watch("echo one; printf 'a\\rb' >&2; exit 3", 5000, 5000);
        let End::Exited { status, output } = end.unwrap() else {
            panic!("killed");
        };
        assert_eq!(status.code(), Some(3));
        assert_eq!(output, lines);
        assert_eq!(lines.len(), 3, "{lines:?}");
    }

    #[test]
    fn a_background_process_does_not_hold_us() {
        let begun = Instant::now();
        let (end, lines) = watch("sleep 20 & echo done", 5000, 5000);
        assert!(matches!(end.unwrap(), End::Exited { .. }));
        assert_eq!(lines, ["done"]);
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn silence_kills_the_whole_group() {
        let dir = tempfile::tempdir().unwrap();
        let pid = dir.path().join("pid");
        let script = format!("sleep 60 & echo $! > {}; wait", pid.display());
        let begun = Instant::now();
        let (end, _) = watch(&script, 400, 400);
        assert!(matches!(
            end.unwrap(),
            End::Silent {
                answered: false,
                ..
            }
        ));
        assert!(begun.elapsed() < Duration::from_secs(5));
        let pid: i32 = std::fs::read_to_string(pid)
            .unwrap()
            .trim()
            .parse()
            .unwrap();
        let alive = || {
            // A zombie that nobody has reaped yet is as dead as one that is gone.
            std::fs::read_to_string(format!("/proc/{pid}/stat"))
                .is_ok_and(|stat| !stat.contains(") Z "))
        };
        let begun = Instant::now();
        while alive() && begun.elapsed() < Duration::from_secs(2) {
            std::thread::sleep(POLL);
        }
        assert!(!alive(), "the grandchild lives on");
    }

    #[test]
    fn a_program_that_answered_gets_more_patience() {
        let (end, _) = watch("echo hello; sleep 60", 300, 900);
        let End::Silent { after, answered } = end.unwrap() else {
            panic!("not killed");
        };
        assert!(answered && after >= Duration::from_millis(900));
    }

    #[test]
    fn cancelling_kills_it() {
        let cancel = Cancel::default();
        let setter = cancel.clone();
        std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(200));
            setter.set();
        });
        let begun = Instant::now();
        let error = run(
            &mut sh("sleep 60"),
            &cancel,
            patience(60_000, 60_000),
            &mut || 0,
            &mut |_| {},
        )
        .unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Interrupted);
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = run(
            &mut Command::new("no-such-program-here"),
            &Cancel::default(),
            patience(1, 1),
            &mut || 0,
            &mut |_| {},
        )
        .unwrap_err();
        assert_eq!(error.to_string(), "`no-such-program-here` is not installed");
    }
}
