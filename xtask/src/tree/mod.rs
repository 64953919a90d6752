//! Folders as values: safe relative paths, per-file manifests, atomic replacement.

mod atomic;
mod blob;
mod footprint;
mod manifest;
mod path;
mod stamps;
mod swap;
mod walk;

#[cfg(test)]
pub use stamps::forge;
#[cfg(test)]
pub use swap::fault;

pub use atomic::exchange;
pub use blob::{Blob, Files};
pub use footprint::{Footprint, own_stamp};
pub use manifest::{Difference, Entry, FileMode, Scan, TreeManifest, has_below};
pub use path::RelPath;
pub use stamps::Moment;
pub use swap::{Staged, flush, recover, stage, stage_without};
pub use walk::{Listed, list};
