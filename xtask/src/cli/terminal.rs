//! stderr: notes, warnings, progress, errors; and signals.

use std::io::Write;
use std::time::{Duration, Instant};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::ctx::{Cancel, Sink, Task};
use crate::error::{Error, Result};

const ERROR: Style = AnsiColor::Red.on_default().bold();
const WARN: Style = AnsiColor::Yellow.on_default().bold();
const HINT: Style = AnsiColor::Cyan.on_default().bold();
const DIM: Style = Style::new().dimmed();

/// A line on stderr. Nothing can be done about a stderr that cannot be written to.
fn line(text: &str) {
    let _ = writeln!(anstream::stderr(), "{text}");
}

/// Prints an error with its context, and its hints after a blank line.
pub fn print_error(error: &Error) {
    let message = super::problem::message(error);
    line(&format!("{ERROR}error{ERROR:#}: {message}"));
    if !error.hints().is_empty() {
        line("");
    }
    for hint in error.hints() {
        line(&format!("{HINT}hint{HINT:#}: {hint}"));
    }
}

/// Sets `cancel` on SIGINT and SIGTERM. A second signal ends the process at once; servers under
/// test die with it, since they are told to when their parent does.
pub fn cancel_on_signals(cancel: &Cancel) -> Result<()> {
    for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 130, cancel.flag())?;
        signal_hook::flag::register(signal, cancel.flag())?;
    }
    Ok(())
}

/// The sink of a person or a log: bars on a terminal, plain lines elsewhere.
#[derive(Debug)]
pub struct Terminal {
    verbose: bool,
    bars: bool,
}

impl Terminal {
    /// `bars`: whether stderr is a terminal.
    pub fn new(verbose: bool, bars: bool) -> Self {
        Terminal { verbose, bars }
    }
}

impl Sink for Terminal {
    fn note(&self, message: &str) {
        line(message);
    }

    fn warn(&self, message: &str) {
        line(&format!("{WARN}warning{WARN:#}: {message}"));
    }

    fn detail(&self, message: &str) {
        if self.verbose {
            line(&format!("{DIM}{message}{DIM:#}"));
        }
    }

    fn task(&self, title: &str, total: Option<u64>) -> Box<dyn Task> {
        let bar = if self.bars {
            let bar = ProgressBar::with_draw_target(total, ProgressDrawTarget::stderr());
            bar.set_style(style(total.is_some()));
            bar.enable_steady_tick(Duration::from_millis(120));
            bar.set_prefix(title.to_owned());
            Some(bar)
        } else {
            line(&format!("{title} ..."));
            None
        };
        Box::new(Running {
            title: title.to_owned(),
            bar,
            begun: Instant::now(),
            told: std::sync::Mutex::new(Instant::now()),
        })
    }
}

fn style(bounded: bool) -> ProgressStyle {
    let template = if bounded {
        "{prefix} [{bar:30}] {pos}/{len} {wide_msg}"
    } else {
        "{prefix} {spinner} {wide_msg}"
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}

/// Without a terminal, a long task says a line this often.
const PLAIN_INTERVAL: Duration = Duration::from_secs(30);

struct Running {
    title: String,
    bar: Option<ProgressBar>,
    begun: Instant,
    told: std::sync::Mutex<Instant>,
}

impl Task for Running {
    fn progress(&self, done: u64, total: u64) {
        if let Some(bar) = &self.bar {
            if bar.length() != Some(total) {
                bar.set_length(total);
                bar.set_style(style(true));
            }
            bar.set_position(done);
            return;
        }
        if let Ok(mut told) = self.told.lock()
            && told.elapsed() >= PLAIN_INTERVAL
        {
            *told = Instant::now();
            line(&format!("{}: {done}/{total}", self.title));
        }
    }

    fn message(&self, message: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(message.to_owned());
        }
    }

    fn finish(self: Box<Self>, summary: &str) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
        let seconds = self.begun.elapsed().as_secs_f64();
        line(&format!(
            "{}: {summary} {DIM}({seconds:.1} s){DIM:#}",
            self.title
        ));
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
