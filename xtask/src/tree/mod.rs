//! Folders as values: safe relative paths, per-file manifests, atomic replacement.

mod atomic;
mod blob;
#[cfg(test)]
pub mod fault;
mod footprint;
mod manifest;
mod path;
mod stamps;
mod swap;
mod walk;

#[cfg(test)]
pub use stamps::forge;

pub use atomic::exchange;
pub use blob::{Blob, Files};
pub use footprint::{Footprint, own_stamp};
pub use manifest::{Difference, Entry, FileMode, Scan, TreeManifest, has_below};
pub use path::RelPath;
pub use stamps::Moment;
pub use swap::{Staged, flush, recover, stage, stage_without};
pub use walk::{Listed, list};
