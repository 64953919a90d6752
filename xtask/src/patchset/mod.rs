//! Patches and series: load, images, apply, revert, status, verify.
//!
//! [`Series`] is what the registry and `patches/` say; [`Images`] is what that makes of each
//! touched file, computed in memory from the pristine tree; the rest compares a working tree
//! with images, or moves it to them.

mod apply;
pub mod book;
mod images;
mod load;
mod refresh;
mod status;
mod verify;

#[cfg(test)]
mod tests;

pub use apply::{Moved, apply, revert};
pub use images::{Images, Problem, Step};
pub use load::{Overlay, Patch, Series};
pub use refresh::{refresh, registry_drift, registry_of};
pub use status::{PatchState, TreeStatus, WorkingTree, applied, scan, status};
pub use verify::{Finding, Verification, verify};
