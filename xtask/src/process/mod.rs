//! Running other programs: one that must not outlive us, one whose output is wanted line by line,
//! one that may hang.

mod group;
mod stream;
mod watch;

pub use group::{Group, Signal, describe, tied};
pub use stream::{Done, capture, last_lines, stream};
pub use watch::{End, Patience, bytes_below, run as watch};
