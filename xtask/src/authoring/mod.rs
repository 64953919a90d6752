//! The life of a patch: begin it, take edits of the working tree into it, move it about.
//!
//! Everything here ends in `save`: the new series is applied in memory first, what it makes is
//! compared with what it must make, and only then are the files of the checkout changed, all
//! or none.

mod arrange;
mod new;
mod rebase;
mod refresh;
mod save;
mod snapshot;

pub use arrange::{fold, rename, reorder, split};
pub use new::{PURPOSE, TITLE, new};
pub use rebase::Conflict;
pub use refresh::{Refreshed, follow, refresh, refuse};
pub use save::{Saved, edit_manifest, save_with};
pub use snapshot::{Snapshot, restore, snapshot, snapshots};

#[cfg(test)]
mod tests;
