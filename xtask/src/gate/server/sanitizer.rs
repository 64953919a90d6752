//! What sanitizers report, read from the log of the server that they are in.
//!
//! A report is never a pass: not where the server went on after it, not where its tokens are right.

use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// What a program with a sanitizer in it is told; it means nothing to others. A user's own
/// settings could send reports elsewhere, or go on after them.
///
/// Leaks are not looked for: a server keeps what it holds until its process ends, and the search
/// needs rights that containers do not give.
pub const ENV: [(&str, &str); 4] = [
    (
        "ASAN_OPTIONS",
        "halt_on_error=1:abort_on_error=1:detect_leaks=0:log_path=stderr",
    ),
    ("LSAN_OPTIONS", "log_path=stderr"),
    ("TSAN_OPTIONS", "halt_on_error=1:log_path=stderr"),
    (
        "UBSAN_OPTIONS",
        "halt_on_error=1:abort_on_error=1:print_stacktrace=1:log_path=stderr",
    ),
];

/// Lines of a report that are shown.
const LINES: usize = 40;
/// Bytes of a line that are shown.
const WIDTH: usize = 300;
/// Bytes of a log that are looked through: more than a server may write.
const LARGEST: u64 = 512 << 20;

/// The first report in a log, as an error that is a finding.
pub fn finding(log: &Path) -> Option<Error> {
    let report = report(log)?;
    Some(
        Error::finding(format!("a sanitizer reported:\n{report}")).hint(format!(
            "mend what it reports; the whole log is {}",
            log.display()
        )),
    )
}

/// The first report in a log.
pub fn report(log: &Path) -> Option<String> {
    let mut bytes = Vec::new();
    let file = std::fs::File::open(log).ok()?;
    file.take(LARGEST).read_to_end(&mut bytes).ok()?;
    first(&String::from_utf8_lossy(&bytes))
}

fn first(text: &str) -> Option<String> {
    let mut lines = text.lines().skip_while(|line| !is_report(line));
    let first = lines.next()?;
    let shown: Vec<String> = std::iter::once(first)
        .chain(lines)
        .take(LINES)
        .map(|line| {
            let printable = line.chars().filter(|c| !c.is_control() || *c == '\t');
            let line: String = printable.take(WIDTH).collect();
            format!("  | {}", line.trim_end())
        })
        .collect();
    Some(shown.join("\n"))
}

/// Whether a report begins with this line.
fn is_report(line: &str) -> bool {
    let by_name = [
        "ERROR: AddressSanitizer",
        "ERROR: LeakSanitizer",
        "ERROR: MemorySanitizer",
        "ERROR: ThreadSanitizer",
        "WARNING: ThreadSanitizer",
        "WARNING: MemorySanitizer",
        "ERROR: UndefinedBehaviorSanitizer",
        "SUMMARY: UndefinedBehaviorSanitizer",
        "Sanitizer:DEADLYSIGNAL",
        "Sanitizer: CHECK failed",
        "Sanitizer CHECK failed",
    ];
    by_name.iter().any(|name| line.contains(name)) || is_undefined(line)
}

/// `file.cpp:12:5: runtime error: …`
fn is_undefined(line: &str) -> bool {
    let Some((place, _)) = line.split_once(": runtime error: ") else {
        return false;
    };
    let mut parts = place.rsplit(':');
    let is_number = |part: Option<&str>| {
        part.is_some_and(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()))
    };
    is_number(parts.next()) && is_number(parts.next()) && parts.next().is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_of_all_of_them_are_found_wherever_they_stand() {
        for line in [
            "==7==ERROR: AddressSanitizer: heap-buffer-overflow on address 0x60",
            "==7==ERROR: LeakSanitizer: detected memory leaks",
            "AddressSanitizer:DEADLYSIGNAL",
            "WARNING: ThreadSanitizer: data race (pid=7)",
            "../src/ggml/src/ggml.c:12:5: runtime error: signed integer overflow",
            "x.cpp:1:2: runtime error: load of misaligned address",
        ] {
            let log = format!("srv ready\n{line}\n    #0 0x1 in f x.c:1\nafter\n");
            let found = first(&log).unwrap();
            assert!(
                found.starts_with(&format!("  | {line}\n  |     #0")),
                "{found}"
            );
        }
    }

    #[test]
    fn what_only_looks_like_one_is_none() {
        for line in [
            "E srv: runtime error: no such model",
            "a: runtime error: b",
            "1:2: runtime error: c",
            "built with AddressSanitizer",
            "",
        ] {
            assert_eq!(first(line), None, "{line}");
        }
        assert_eq!(report(Path::new("/nonexistent")), None);
    }

    #[test]
    fn a_long_report_is_cut_and_cleaned() {
        let log = format!(
            "==1==ERROR: AddressSanitizer: x\x1b[1m\n{}",
            "y\n".repeat(99)
        );
        let found = first(&log).unwrap();
        assert_eq!(found.lines().count(), LINES);
        assert!(!found.contains('\x1b'));
    }
}
