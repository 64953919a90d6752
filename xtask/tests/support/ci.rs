//! Whether a test may be left out where something is missing.

#![allow(dead_code)]

/// Whether this is a run that leaves nothing out: where `CI` is set and not empty, as `.ci/run` does. A test that says
/// so may pass elsewhere without having looked at anything.
pub fn on_ci() -> bool {
    std::env::var_os("CI").is_some_and(|value| !value.is_empty())
}
