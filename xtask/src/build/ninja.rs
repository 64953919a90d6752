//! Reading what Ninja prints: progress, and the one failure that matters.

use crate::model::Flavour;
use crate::{Error, Kind};

/// How Ninja is told to begin each line; see [`Reader`].
pub const STATUS: &str = "[%f/%t] ";

/// Most lines of a failing command that are shown.
const SHOWN: usize = 30;
/// Most columns of a shown line.
const COLUMNS: usize = 400;
/// Most lines that are kept while a build runs.
const KEPT: usize = 4000;

/// Follows Ninja's output.
#[derive(Debug, Default)]
pub struct Reader {
    /// Steps done and steps in all, as last told.
    pub steps: (u64, u64),
    /// Output of the first command that failed.
    failed: Vec<String>,
    /// Whether the lines that come belong to it.
    inside: bool,
    /// Last lines, for a failure that is not a command's.
    last: std::collections::VecDeque<String>,
}

/// What a line says.
#[derive(Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A step ended.
    Step {
        /// Steps done.
        done: u64,
        /// Steps in all.
        total: u64,
        /// What it did.
        what: &'a str,
    },
    /// Anything else.
    Other,
}

impl Reader {
    /// Takes the next line.
    pub fn line<'a>(&mut self, line: &'a str) -> Line<'a> {
        if let Some((done, total, what)) = status(line) {
            self.steps = (done, total);
            self.inside = false;
            return Line::Step { done, total, what };
        }
        if line.starts_with("FAILED: ") {
            // Others fail too, until the running jobs are through: only the first counts.
            self.inside = self.failed.is_empty();
        } else if line.starts_with("ninja: ") {
            self.inside = false;
        }
        if self.inside && self.failed.len() < KEPT {
            self.failed.push(line.to_owned());
        }
        self.last.push_back(line.to_owned());
        if self.last.len() > SHOWN {
            self.last.pop_front();
        }
        Line::Other
    }

    /// The error of a build that failed. That a pinned, unpatched tree does not compile is a
    /// fault of the surroundings; that a patched one does not is a finding.
    pub fn error(&self, flavour: Flavour, log: &str) -> Error {
        let all = || self.failed.iter().chain(&self.last);
        let says = |text: &str| all().any(|line| line.contains(text));
        let failed = self
            .failed
            .first()
            .and_then(|line| line.strip_prefix("FAILED: "))
            .map(|what| what.trim().trim_start_matches("[code=1]").trim())
            .map_or_else(
                || "ninja failed".to_owned(),
                |what| format!("{what} failed"),
            );
        let message = format!("{failed}:\n{}", self.excerpt().join("\n"));
        let full_log = format!("the whole output is in {log}");
        if says("No space left on device") || says("Disk quota exceeded") {
            return Error::environment(message)
                .hint("the disk is full: free some space and run the same command again")
                .hint(full_log);
        }
        if says("Killed signal terminated") || says("unable to execute command: Killed") {
            return Error::environment(message)
                .hint("the compiler was killed, most likely for want of memory: use fewer --jobs")
                .hint(full_log);
        }
        let kind = match flavour {
            Flavour::Vanilla => Kind::Environment,
            Flavour::Patched => Kind::Finding,
        };
        let error = Error::new(kind, message).hint(full_log);
        if self.failed.is_empty() && self.steps.1 == 0 {
            // It did not come to a single step: the build folder is at fault, not a source.
            return error.hint("cargo xtask build --force builds it from scratch");
        }
        error
    }

    /// The lines to show: from the first that tells an error, else the last ones.
    fn excerpt(&self) -> Vec<String> {
        // First `FAILED: <output>`, then the command.
        let body = self.failed.get(2..).unwrap_or_default();
        let cut = |line: &String| -> String { line.chars().take(COLUMNS).collect() };
        if body.is_empty() {
            return self.last.iter().map(cut).collect();
        }
        let first = body
            .iter()
            .position(|line| line.contains("error:") || line.contains("undefined reference"))
            // With the lines that say in which function it stands.
            .map_or(body.len().saturating_sub(SHOWN), |at| at.saturating_sub(3));
        body.iter().skip(first).take(SHOWN).map(cut).collect()
    }
}

/// `[3/216] Building …`
fn status(line: &str) -> Option<(u64, u64, &str)> {
    let (numbers, what) = line.strip_prefix('[')?.split_once("] ")?;
    let (done, total) = numbers.split_once('/')?;
    Some((done.parse().ok()?, total.parse().ok()?, what))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Reader {
        let mut reader = Reader::default();
        for line in text.lines() {
            reader.line(line);
        }
        reader
    }

    #[test]
    fn steps_are_counted() {
        let mut reader = Reader::default();
        assert_eq!(
            reader.line("[3/216] Building C object a.o"),
            Line::Step {
                done: 3,
                total: 216,
                what: "Building C object a.o"
            }
        );
        assert_eq!(reader.line("[x/2] no"), Line::Other);
        assert_eq!(reader.line("[info] something"), Line::Other);
        assert_eq!(reader.steps, (3, 216));
    }

    #[test]
    fn the_first_error_is_shown_and_not_the_noise() {
        let mut text = String::from("[1/9] ok\nFAILED: a.o \ncc -c a.c\n");
        for at in 0..100 {
            text.push_str(&format!("a.c:1: warning: number {at}\n"));
        }
        text.push_str("a.c: In function 'main':\na.c:7: error: boom\n  7 | x\n");
        for at in 0..100 {
            text.push_str(&format!("a.c:8: note: number {at}\n"));
        }
        text.push_str("[2/9] other\nFAILED: b.o\ncc -c b.c\nb.c:1: error: second\n");
        text.push_str("ninja: build stopped: subcommand failed.\n");
        let error = read(&text).error(Flavour::Patched, "build.log");
        assert!(error.message().starts_with("a.o failed:\n"), "{error}");
        assert!(error.message().contains("a.c:7: error: boom"));
        assert!(!error.message().contains("second"));
        assert!(error.message().lines().count() <= SHOWN + 1);
        assert_eq!(error.kind(), Kind::Finding);
        assert!(error.hints()[0].contains("build.log"));
    }

    #[test]
    fn a_failure_of_ninja_itself_is_shown() {
        let error = read("ninja: error: unknown target 'x', did you mean 'y'?")
            .error(Flavour::Vanilla, "build.log");
        assert!(error.message().contains("unknown target 'x'"), "{error}");
        assert_eq!(error.kind(), Kind::Environment);
    }

    #[test]
    fn a_full_disk_and_a_killed_compiler_say_what_to_do() {
        let full = "FAILED: a.o\ncc\nfatal error: error writing to a.s: No space left on device\n";
        let error = read(full).error(Flavour::Patched, "build.log");
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.hints()[0].contains("disk is full"));
        let killed =
            "FAILED: a.o\ncc\nc++: fatal error: Killed signal terminated program cc1plus\n";
        let error = read(killed).error(Flavour::Patched, "build.log");
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.hints()[0].contains("--jobs"));
    }
}
