//! Simulated kills: tests make a change to the disk fail, and everything after it.

use std::cell::Cell;

use crate::error::{Error, Result};

thread_local! {
    static LEFT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// The next `calls` steps of this thread work, the one after is a kill.
pub fn kill_after(calls: usize) {
    LEFT.set(Some(calls));
}

/// No more kills; whether there was one.
pub fn disarm() -> bool {
    LEFT.take() == Some(0)
}

/// Whether the simulated process is dead: it must not clean up either.
pub fn is_dead() -> bool {
    LEFT.get() == Some(0)
}

/// Whether a kill is to come: then all is done in a fixed order.
pub fn is_armed() -> bool {
    LEFT.get().is_some()
}

/// One step; called before every change to the disk.
pub fn step() -> Result<()> {
    match LEFT.get() {
        Some(0) => Err(Error::internal("killed")),
        Some(1) => {
            LEFT.set(Some(0));
            Err(Error::internal("killed"))
        }
        Some(left) => {
            LEFT.set(Some(left - 1));
            Ok(())
        }
        None => Ok(()),
    }
}
