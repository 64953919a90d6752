//! Folders as values: safe relative paths, per-file manifests, atomic replacement.

mod atomic;
mod blob;
mod manifest;
mod path;
mod swap;

#[cfg(test)]
pub use swap::fault;

pub use atomic::exchange;
pub use blob::{Blob, Files};
pub use manifest::{Difference, Entry, FileMode, TreeManifest};
pub use path::RelPath;
pub use swap::{Staged, flush, recover, stage};
