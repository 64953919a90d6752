//! Running tools: output line by line, and no child that outlives a Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::build::lookup::Lookup;
use crate::ctx::Ctx;
use crate::error::{Error, Result};

/// How often the cancel flag is looked at.
const POLL: Duration = Duration::from_millis(50);
/// How long a child may take to end after it was asked to.
const GRACE: Duration = Duration::from_secs(5);
/// How long output is still read after the child ended: a daemon that it left behind may hold
/// the pipe open for ever.
const DRAIN: Duration = Duration::from_secs(2);

/// A child that ended.
#[derive(Debug)]
pub struct Done {
    /// How.
    pub status: ExitStatus,
    /// stdout and stderr, interleaved by line.
    pub output: String,
}

/// Runs `command` to its end and keeps its output.
pub fn capture(ctx: &Ctx, command: &mut Command) -> Result<Done> {
    let mut output = String::new();
    let status = stream(ctx, command, &mut |line| {
        output.push_str(line);
        output.push('\n');
        Ok(())
    })?;
    Ok(Done { status, output })
}

/// Runs `command` in a process group of its own and hands over each line of its stdout and
/// stderr. Once the run is cancelled, or `on_line` fails, the group is ended.
pub fn stream(
    ctx: &Ctx,
    command: &mut Command,
    on_line: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<ExitStatus> {
    ctx.cancel.check()?;
    let name = command.get_program().to_string_lossy().into_owned();
    ctx.sink.detail(&shown(command));
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn()
        .map_err(|error| Error::from(error).context(format!("starting {name}")))?;
    let mut group = Group { child, ended: None };
    let (sender, lines) = channel();
    if let Some(stdout) = group.child.stdout.take() {
        read_lines(stdout, sender.clone());
    }
    if let Some(stderr) = group.child.stderr.take() {
        read_lines(stderr, sender);
    }
    group.watch(ctx, &lines, on_line)
}

/// A command as a person would type it, for `-v`.
fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let words: Vec<String> = words
        .map(|word| {
            let word = word.to_string_lossy();
            if word.contains([' ', '"', '\'', '$', ';']) {
                format!("'{}'", word.replace('\'', r"'\''"))
            } else {
                word.into_owned()
            }
        })
        .collect();
    words.join(" ")
}

fn read_lines(source: impl Read + Send + 'static, to: Sender<String>) {
    std::thread::spawn(move || {
        let mut source = BufReader::new(source);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            match source.read_until(b'\n', &mut bytes) {
                Ok(0) | Err(_) => return,
                Ok(_) => {
                    let line = String::from_utf8_lossy(&bytes);
                    if to
                        .send(line.trim_end_matches(['\n', '\r']).to_owned())
                        .is_err()
                    {
                        return;
                    }
                }
            }
        }
    });
}

/// A running child; its group is ended when this is dropped.
struct Group {
    child: Child,
    ended: Option<ExitStatus>,
}

impl Group {
    fn watch(
        &mut self,
        ctx: &Ctx,
        lines: &Receiver<String>,
        on_line: &mut dyn FnMut(&str) -> Result<()>,
    ) -> Result<ExitStatus> {
        let mut until: Option<Instant> = None;
        loop {
            ctx.cancel.check()?;
            match lines.recv_timeout(POLL) {
                Ok(line) => {
                    on_line(&line)?;
                    continue;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    // All output is read; only the exit status is left.
                    std::thread::sleep(Duration::from_millis(1));
                    until = Some(Instant::now());
                }
            }
            if self.try_wait()?.is_some() {
                until = until.or_else(|| Some(Instant::now() + DRAIN));
            }
            if let (Some(status), Some(until)) = (self.ended, until)
                && Instant::now() >= until
            {
                return Ok(status);
            }
        }
    }

    fn try_wait(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait()?;
        }
        Ok(self.ended)
    }

    fn signal(&self, signal: rustix::process::Signal) {
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id().cast_signed()) {
            // It may have ended by itself in between.
            let _ = rustix::process::kill_process_group(pid, signal);
        }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if matches!(self.try_wait(), Ok(Some(_))) {
            return;
        }
        // Ninja passes it on to its jobs, each of which has a group of its own.
        self.signal(rustix::process::Signal::TERM);
        let begun = Instant::now();
        while begun.elapsed() < GRACE {
            if matches!(self.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(POLL);
        }
        self.signal(rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}

/// A command for `program` that is told to end when this process is killed. Where the machine
/// has no `setpriv` that can do it, a plain command.
pub fn tied(lookup: &dyn Lookup, program: &std::path::Path) -> Command {
    let setpriv = lookup.find("setpriv").filter(|setpriv| {
        lookup
            .output(setpriv, &["--help"])
            .is_some_and(|help| help.contains("--pdeathsig"))
    });
    match setpriv {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    }
}

/// The last `count` lines that are not blank.
pub fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text
        .lines()
        .filter(|line| !line.trim().is_empty())
        .collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::build::testing::toy_ctx;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_status_arrive() {
        let toy = toy_ctx();
        let done = capture(
            &toy.ctx,
            &mut shell("echo out; echo err >&2; printf tail; exit 3"),
        )
        .unwrap();
        assert_eq!(done.status.code(), Some(3));
        for line in ["out\n", "err\n", "tail\n"] {
            assert!(done.output.contains(line), "{done:?}");
        }
    }

    #[test]
    fn a_cancelled_run_ends_the_whole_group() {
        let toy = toy_ctx();
        let mark = toy.root().join("alive");
        let cancel = toy.ctx.cancel.clone();
        let script = format!("(sleep 1; touch '{}') & echo up; wait", mark.display());
        let error = stream(&toy.ctx, &mut shell(&script), &mut |line| {
            assert_eq!(line, "up");
            cancel.set();
            Ok(())
        })
        .unwrap_err();
        assert_eq!(error.kind(), Kind::Interrupted);
        std::thread::sleep(Duration::from_millis(1300));
        assert!(!mark.exists(), "the grandchild lived on");
    }

    #[test]
    fn a_daemon_that_holds_the_pipe_does_not_block() {
        let toy = toy_ctx();
        let begun = Instant::now();
        let done = capture(&toy.ctx, &mut shell("sleep 20 & echo done")).unwrap();
        assert_eq!(done.output, "done\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_missing_program_is_named() {
        let toy = toy_ctx();
        let error = capture(&toy.ctx, &mut Command::new("/nonexistent/ninja")).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.to_string().contains("starting /nonexistent/ninja"));
    }

    #[test]
    fn last_lines_skip_blank_ones() {
        assert_eq!(last_lines("a\n\nb\n \nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
