//! Time and memory of a program.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};

/// How often the memory of a program is looked at.
const LOOK: Duration = Duration::from_micros(500);

/// The times of one thing, in seconds, in the order in which they were measured.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Times(Vec<f64>);

impl Times {
    /// Adds one.
    pub fn add(&mut self, time: Duration) {
        self.0.push(time.as_secs_f64());
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The middle one, or the mean of the middle two; 0 where there is none.
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let half = sorted.len() / 2;
        match (sorted.len() % 2, sorted.as_slice()) {
            (_, []) => 0.0,
            (1, sorted) => sorted[half],
            (_, sorted) => f64::midpoint(sorted[half - 1], sorted[half]),
        }
    }

    /// The shortest and the longest.
    pub fn range(&self) -> (f64, f64) {
        let longest = self.0.iter().copied().fold(0.0, f64::max);
        (self.0.iter().copied().fold(longest, f64::min), longest)
    }
}

/// What a program took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Taken {
    /// From its start to its end.
    pub wall: Duration,
    /// On processors, with all that it started and waited for, to a hundredth of a second. What
    /// else the machine does changes it little. Zero where the system does not say.
    pub cpu: Duration,
}

/// The processor time of all children so far that were waited for.
fn children() -> Duration {
    // In ticks, of which every Linux has a hundred a second here.
    let ticks = std::fs::read_to_string("/proc/self/stat")
        .ok()
        .and_then(|text| {
            let (_, fields) = text.rsplit_once(") ")?;
            let mut fields = fields.split(' ').skip(13);
            let mut next = || fields.next()?.parse::<u64>().ok();
            Some(next()? + next()?)
        });
    Duration::from_millis(10 * ticks.unwrap_or(0))
}

/// Runs `command` to its end, which must be a good one. `log` gets what it says.
pub(super) fn time(ctx: &Ctx, command: &mut Command, log: &Path) -> Result<Taken> {
    run(ctx, command, log, |child| Ok(child.wait()?))
}

/// As [`time`], but for the largest resident memory of the program in KiB, as the kernel says it
/// every half millisecond. None where it does not.
pub(super) fn peak(ctx: &Ctx, command: &mut Command, log: &Path) -> Result<Option<u64>> {
    let mut peak = None;
    run(ctx, command, log, |child| {
        let file = format!("/proc/{}/status", child.id());
        loop {
            // It only grows, so that the last look counts.
            peak = std::fs::read_to_string(&file)
                .ok()
                .and_then(|text| high_water(&text))
                .max(peak);
            if let Some(status) = child.try_wait()? {
                return Ok(status);
            }
            std::thread::sleep(LOOK);
        }
    })?;
    Ok(peak)
}

fn high_water(status: &str) -> Option<u64> {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn run(
    ctx: &Ctx,
    command: &mut Command,
    log: &Path,
    wait: impl FnOnce(&mut std::process::Child) -> Result<std::process::ExitStatus>,
) -> Result<Taken> {
    ctx.cancel.check()?;
    let output = File::create(log).context(|| format!("writing {}", log.display()))?;
    command
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output);
    let name = command.get_program().to_string_lossy().into_owned();
    let before = children();
    let begun = Instant::now();
    let mut child = command.spawn().context(|| format!("starting {name}"))?;
    let status = wait(&mut child)?;
    let taken = Taken {
        wall: begun.elapsed(),
        cpu: children().saturating_sub(before),
    };
    ctx.cancel.check()?;
    if status.success() {
        return Ok(taken);
    }
    let said = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<&str> = said.lines().collect();
    let last = lines[lines.len().saturating_sub(10)..].join("\n  ");
    Err(Error::environment(format!(
        "{name} failed ({status}):\n  {last}"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_middle_is_found() {
        let times = |list: &[u64]| {
            let mut times = Times::default();
            for ms in list {
                times.add(Duration::from_millis(*ms));
            }
            times
        };
        assert_eq!(times(&[]).median(), 0.0);
        assert_eq!(times(&[3000, 1000, 2000]).median(), 2.0);
        assert_eq!(times(&[4000, 1000, 2000, 3000]).median(), 2.5);
        assert_eq!(times(&[3000, 1000, 2000]).range(), (1.0, 3.0));
    }

    #[test]
    fn the_high_water_mark_is_read() {
        assert_eq!(
            high_water("VmPeak:\t 9 kB\nVmHWM:\t  12340 kB\n"),
            Some(12340)
        );
        assert_eq!(high_water("VmPeak:\t 9 kB\n"), None);
    }
}
