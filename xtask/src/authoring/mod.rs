//! The life of a patch: begin it, take edits of the working tree into it, move it about.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `new`, `refresh`, `retire` | a patch begins, takes edits in, goes |
//! | `reorder`, `split`, `fold`, `rename` | it is moved about: one command, one file |
//! | `markers` | its markers, where its id changes |
//! | `same` | what a move must leave as it was |
//! | `rebase` | its hooks on another state of the files: a three-way merge |
//! | `save` | a new series onto the disk, all or nothing |
//! | `snapshot` | the working tree's edits, kept aside |
//!
//! Everything here ends in `save`: the new series is applied in memory first, what it makes is
//! compared with what it must make, and only then are the files of the checkout changed, all
//! or none.

mod fold;
mod markers;
mod new;
mod rebase;
mod refresh;
mod rename;
mod reorder;
mod retire;
mod same;
mod save;
mod snapshot;
mod split;

pub use fold::fold;
pub use new::{PURPOSE, TITLE, new};
pub use rebase::Conflict;
pub use refresh::{Refreshed, follow, refresh, refuse};
pub use rename::rename;
pub use reorder::reorder;
pub use retire::{RETIRED, retire, retired};
pub use save::{Extra, Saved, edit_manifest, save_with, unchanged, with_hooks};
pub use snapshot::{Snapshot, restore, snapshot, snapshots};
pub use split::split;

#[cfg(test)]
mod tests;
