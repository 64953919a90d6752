//! What every operation of the engine is given, and how it talks back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Result};
use crate::project::Project;

/// Everything an operation may depend on.
pub struct Ctx {
    /// Where things are.
    pub project: Project,
    /// Where messages and progress go.
    pub sink: Box<dyn Sink>,
    /// Use only what is already on this machine.
    pub offline: bool,
    /// Never install a tool by ourselves.
    pub no_provision: bool,
    /// Parallel jobs for builds.
    pub jobs: usize,
    /// Set once by Ctrl-C; long work polls it.
    pub cancel: Cancel,
}

/// A flag that is set once and polled by long work.
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<AtomicBool>);

impl Cancel {
    /// Asks all work that polls this flag to stop.
    pub fn set(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }

    /// The shared flag, for a signal handler.
    pub fn flag(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.0)
    }

    /// Fails with [`crate::Kind::Interrupted`] once the flag is set.
    pub fn check(&self) -> Result<()> {
        if self.is_set() {
            Err(Error::interrupted())
        } else {
            Ok(())
        }
    }
}

/// Where the engine's messages go. The engine does not know whether that is a terminal, a log
/// or nothing.
pub trait Sink: Send + Sync {
    /// One line that the user should see.
    fn note(&self, message: &str);
    /// One line about something that is not as it should be, and what to do.
    fn warn(&self, message: &str);
    /// One line for `-v`.
    fn detail(&self, message: &str);
    /// Starts a piece of work that takes a while; `total` is the number of steps where known.
    fn task(&self, title: &str, total: Option<u64>) -> Box<dyn Task>;
}

/// A running piece of work of a [`Sink`]. Dropping it without `finish` means that it failed.
pub trait Task: Send {
    /// `done` of `total` steps; `total` may change while tools discover work.
    fn progress(&self, done: u64, total: u64);
    /// What is being done right now.
    fn message(&self, message: &str);
    /// Ends it with a one-line summary.
    fn finish(self: Box<Self>, summary: &str);
}

/// A sink that swallows everything; for tests and for callers that only want the result.
#[derive(Clone, Copy, Debug, Default)]
pub struct Quiet;

impl Sink for Quiet {
    fn note(&self, _: &str) {}
    fn warn(&self, _: &str) {}
    fn detail(&self, _: &str) {}
    fn task(&self, _: &str, _: Option<u64>) -> Box<dyn Task> {
        Box::new(Quiet)
    }
}

impl Task for Quiet {
    fn progress(&self, _: u64, _: u64) {}
    fn message(&self, _: &str) {}
    fn finish(self: Box<Self>, _: &str) {}
}
