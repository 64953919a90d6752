//! Patches in and out: mails, quilt folders, diffs.
//!
//! | file | what lives there |
//! | --- | --- |
//! | `export.rs` | from a series to named files |
//! | `output.rs` | from named files to the disk: all or none, and nothing of anybody else's |
//! | `letter.rs` | a patch as a mail: subject, message, author |
//! | `folder.rs` | the files of a patch folder, quoted where `git am` drops them |
//! | `incoming.rs`, `prose.rs`, `quilt.rs` | from paths to patches that want in |
//! | `locate.rs` | where a hunk sits: its line, or one place that cannot be another |
//! | `naming.rs` | the id of an incoming patch, and its manifest |
//! | `take.rs` | one incoming patch on the files before it: hooks and overlay |
//! | `import.rs` | all of them, proven, written in one step |
//!
//! What is exported and imported again is the same patch folder to the byte; what is imported is
//! stored in the project's own terms, exact hunks on the pinned base.

mod export;
mod folder;
mod import;
mod incoming;
mod letter;
mod locate;
mod naming;
mod output;
mod prose;
mod quilt;
mod take;

pub use export::{Format, Named, export};
pub use import::{Imported, Request, Summary, import};
pub use letter::{NEUTRAL_AUTHOR, NEUTRAL_DATE};
pub use locate::Offset;
pub use output::{write_dir, write_file};

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_import;
#[cfg(test)]
mod tests_refused;
