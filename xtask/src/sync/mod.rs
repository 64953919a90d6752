//! Sync: a series moves to another base, and every hook can say what became of it.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `verdict.rs` | what can become of a hook and of a patch |
//! | `align.rs` | which line of one content is which of another: three opinions |
//! | `edit.rs`, `ground.rs` | hooks as edits; the files of a base with what they define |
//! | `place.rs`, `region.rs`, `search.rs` | where one hook belongs; functions and files that went elsewhere |
//! | `upstreamed.rs` | is it in the new base already? |
//! | `port.rs`, `port/`, `overlap.rs` | the whole series, in memory: what is tried, what becomes of it, files with markers |
//! | `drift.rs` | declarations that hooks use and that differ in the new base |
//! | `proof.rs` | what differs between the two patched trees that does not between the bases |
//! | `conflict.rs`, `solution.rs`, `memory.rs` | markers with three sides; what a solution must not lose; solutions that are found again |
//! | `session.rs`, `work.rs`, `store.rs`, `stage.rs`, `record.rs` | a sync over several commands: decisions, working tree, registry |
//! | `history.rs` | upstream's commits, from a clone |

mod align;
mod conflict;
mod drift;
mod edit;
mod ground;
mod history;
mod memory;
mod overlap;
mod place;
mod port;
mod proof;
mod record;
mod region;
mod search;
mod session;
mod solution;
mod stage;
mod store;
mod upstreamed;
mod verdict;
mod work;

#[cfg(test)]
mod tests;

pub use drift::{Drift, drift};
pub use history::History;
pub use port::{Decisions, Port, port};
pub use proof::{LeftOver, Proof, prove};
pub use session::{Aborted, Choices, End, Open, Step, abort, begin, look, open, resume, skip};
pub use verdict::{HookReport, HookVerdict, PatchReport, PatchVerdict, Place};
