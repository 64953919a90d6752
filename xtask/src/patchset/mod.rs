//! Patches and series: load, images, apply, revert, status.
//!
//! [`Series`] is what the registry and `patches/` say; [`Images`] is what that makes of each
//! touched file, computed in memory from the pristine tree; the rest compares a working tree
//! with images, or moves it to them.

mod apply;
pub mod book;
mod images;
mod load;
mod memory;
mod names;
mod problem;
mod refresh;
mod status;
mod tell;

#[cfg(test)]
mod foreign_tests;
#[cfg(test)]
mod state_tests;
#[cfg(test)]
mod tests;

pub use apply::{Moved, Reached, apply, copy_file, reach, revert};
pub use images::{Image, Images, Step, UPSTREAMED, parts, pristine_image};
pub use load::{Overlay, Patch, Series, is_patch_id};
pub use names::{Collision, collisions};
pub use problem::{Landed, Problem};
pub use refresh::{records, refresh, registry_drift, registry_of};
pub use status::{
    PatchState, TreeStatus, WorkingTree, applied, count, position, read_state, scan, status,
    status_of_all_bytes,
};
pub use tell::{Told, tell};
