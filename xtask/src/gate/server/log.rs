//! What a server says, read from the file that it says it into.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;

/// Lines of a server's log that go into an error.
const TAIL_LINES: usize = 20;

/// Bytes of the log's end that those lines are looked for in.
const TAIL_BYTES: u64 = 16 << 10;

/// The port in a line such as `… listening on http://127.0.0.1:43033`. Only a whole line
/// counts: half of one could hold half of the number.
pub fn announced_port(log: &str) -> Option<u16> {
    let whole = &log[..log.rfind('\n')?];
    whole
        .lines()
        .filter(|line| line.contains("listening"))
        .find_map(|line| {
            let (_, after) = line
                .split_once("127.0.0.1:")
                .or_else(|| line.split_once("port: "))?;
            let digits = after.split(|c: char| !c.is_ascii_digit()).next()?;
            digits.parse().ok().filter(|port| *port != 0)
        })
}

/// A log that grows while it is read.
#[derive(Debug, Default)]
pub struct Growing {
    /// Bytes that were read.
    read: u64,
    /// What stands behind the last line break that was read.
    rest: Vec<u8>,
}

impl Growing {
    /// The port that is announced in what was written since the last call.
    pub fn port(&mut self, path: &Path) -> Option<u16> {
        let mut bytes = std::mem::take(&mut self.rest);
        let old = bytes.len();
        // A log that cannot be read yet is an empty one; the start limit ends the waiting.
        let _ = std::fs::File::open(path).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.take(super::LARGEST_LOG).read_to_end(&mut bytes)
        });
        self.read += (bytes.len() - old) as u64;
        let port = announced_port(&String::from_utf8_lossy(&bytes));
        let whole = memchr::memrchr(b'\n', &bytes).map_or(0, |at| at + 1);
        self.rest = bytes.split_off(whole);
        port
    }
}

/// A log as far as it is written.
pub fn log_text(path: &Path) -> String {
    let mut bytes = Vec::new();
    // One that cannot be read says nothing.
    let _ = std::fs::File::open(path)
        .and_then(|file| file.take(super::LARGEST_LOG).read_to_end(&mut bytes));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The last lines of a log.
pub fn tail(path: &Path) -> Vec<String> {
    let read = || -> std::io::Result<Vec<u8>> {
        let mut file = std::fs::File::open(path)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))?;
        let mut bytes = Vec::new();
        file.take(TAIL_BYTES).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = match read() {
        Ok(bytes) => bytes,
        Err(error) => return vec![format!("(unreadable: {error})")],
    };
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text
        .lines()
        .map(|line| {
            line.chars()
                .filter(|c| !c.is_control() || *c == '\t')
                .take(400)
                .collect()
        })
        .collect();
    match lines.len() {
        0 => vec!["(it said nothing)".to_owned()],
        n => lines[n.saturating_sub(TAIL_LINES)..].to_vec(),
    }
}

/// The end of a log, for a message.
pub fn log_tail(path: &Path) -> String {
    let lines = tail(path).into_iter().map(|line| format!("  | {line}"));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_read_from_whole_lines_only() {
        let line = "0.00.055.640 I srv  llama_server: listening on http://127.0.0.1:43033\n";
        assert_eq!(announced_port(line), Some(43033));
        assert_eq!(announced_port(&line[..line.len() - 3]), None);
        assert_eq!(announced_port(""), None);
        let older =
            "main: HTTP server is listening, hostname: 127.0.0.1, port: 8123, http threads: 1\n";
        assert_eq!(announced_port(older), Some(8123));
        assert_eq!(
            announced_port("main: server is listening on http://127.0.0.1:99999\n"),
            None
        );
        let other = "connecting to http://127.0.0.1:1\nlistening on http://127.0.0.1:2 - ready\n";
        assert_eq!(announced_port(other), Some(2));
    }

    #[test]
    fn a_port_is_found_however_late_it_is_announced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let mut log = Growing::default();
        assert_eq!(log.port(&path), None, "there is none yet");
        std::fs::write(&path, "x\n".repeat(1 << 20)).unwrap();
        assert_eq!(log.port(&path), None);
        let mut file = std::fs::File::options().append(true).open(&path).unwrap();
        let mut say = |text: &str| {
            std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
            log.port(&path)
        };
        // Half a line could hold half of the number.
        assert_eq!(say("y\nI srv listening on http://127.0.0.1:43"), None);
        assert_eq!(say("033"), None);
        assert_eq!(say("\nz"), Some(43033));
        assert_eq!(say("z\n"), None, "each line is read once");
    }

    #[test]
    fn the_tail_is_short_and_clean() {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("log");
        assert!(tail(&log)[0].starts_with("(unreadable"));
        std::fs::write(&log, "").unwrap();
        assert_eq!(tail(&log), ["(it said nothing)"]);
        let many: String = (0..9999).map(|n| format!("line {n}\u{1b}[0m\n")).collect();
        std::fs::write(&log, many).unwrap();
        let lines = tail(&log);
        assert_eq!(lines.len(), TAIL_LINES);
        assert_eq!(lines[TAIL_LINES - 1], "line 9998[0m");
    }
}
