//! Running tools: output line by line, and no child that outlives a Ctrl-C.

use std::io::{BufRead, BufReader, Read};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::ctx::Ctx;
use crate::error::Result;
use crate::process::group::tie;
use crate::process::{Group, Signal};

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
/// stderr. Once the run is cancelled, or `on_line` fails, the group is ended; when this program is
/// killed, `command` is asked to end.
pub fn stream(
    ctx: &Ctx,
    command: &mut Command,
    on_line: &mut dyn FnMut(&str) -> Result<()>,
) -> Result<ExitStatus> {
    ctx.cancel.check()?;
    ctx.sink.detail(&shown(command));
    tie(command, Signal::Term);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut group = Group::start(command, GRACE)?;
    let (sender, lines) = channel();
    for stream in group.streams() {
        read_lines(stream, sender.clone());
    }
    drop(sender);
    watch(&mut group, ctx, &lines, on_line)
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

fn watch(
    group: &mut Group,
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
        if group.ended()?.is_some() {
            until = until.or_else(|| Some(Instant::now() + DRAIN));
        }
        if let (Some(status), Some(until)) = (group.ended()?, until)
            && Instant::now() >= until
        {
            return Ok(status);
        }
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
    use crate::toy::Toy;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn both_streams_and_the_status_arrive() {
        let toy = Toy::new();
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
        let toy = Toy::new();
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
        let toy = Toy::new();
        let begun = Instant::now();
        let done = capture(&toy.ctx, &mut shell("sleep 20 & echo done")).unwrap();
        assert_eq!(done.output, "done\n");
        assert!(begun.elapsed() < Duration::from_secs(10));
    }

    #[test]
    fn a_missing_program_is_named() {
        let toy = Toy::new();
        let error = capture(&toy.ctx, &mut Command::new("/nonexistent/ninja")).unwrap_err();
        assert_eq!(error.kind(), Kind::Environment);
        assert!(
            error
                .to_string()
                .contains("`/nonexistent/ninja` is not installed")
        );
    }

    #[test]
    fn a_missing_folder_is_not_taken_for_a_missing_program() {
        let toy = Toy::new();
        let error = capture(&toy.ctx, shell("true").current_dir("/nonexistent")).unwrap_err();
        assert!(
            error
                .to_string()
                .contains("there is no folder /nonexistent"),
            "{error}"
        );
    }

    #[test]
    fn last_lines_skip_blank_ones() {
        assert_eq!(last_lines("a\n\nb\n \nc\n", 2), "b\nc");
        assert_eq!(last_lines("", 2), "");
    }
}
