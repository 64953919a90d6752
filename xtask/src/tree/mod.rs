//! Folders as values: safe relative paths, per-file manifests, atomic replacement.

mod manifest;
mod path;
mod swap;

pub use manifest::{Difference, Entry, FileMode, TreeManifest};
pub use path::RelPath;
pub use swap::{Staged, stage};
