//! Engine of the patch-set manager: keeps a series of additive patches on a pinned llama.cpp,
//! builds it, and proves that the result is right.
//!
//! This file is the map: each room uses those above it and none below.
//!
//! | room | what lives there |
//! | --- | --- |
//! | [`error`] | the one error type: kind (which decides the exit code), context, hints |
//! | [`model`] | the files of the project as types: registry, patches, gates, manifests, records |
//! | [`project`] | where things are: registry, patches, vendor trees, cache, target |
//! | [`ctx`] | what every operation is given: project, progress sink, cancellation, `--offline`, `--jobs` |
//! | [`lock`] | locks between processes |
//! | [`tree`] | folders as values: safe relative paths, per-file manifests, atomic replacement |
//! | [`journal`] | changes to several committed files: all or none |
//! | [`process`] | running other programs, none of which outlives us |
//! | [`vendor`] | bases: fetch, check, unpack, materialise |
//! | [`diff`] | unified diffs: parse, write, and apply exactly |
//! | [`mail`] | diffs with an author and a reason, as `git format-patch` writes and `git am` takes them |
//! | [`patchset`] | patches and series: load, images, apply, revert, status |
//! | [`authoring`] | the life of a patch: begin, refresh, reorder, split, fold, rename, snapshots |
//! | [`symbols`] | what a C++ or CMake source declares and uses, and what of it differs between two trees |
//! | [`sync`] | moving a series to another base, with a verdict for every hook |
//! | [`exchange`] | patches in and out: mails, quilt folders, diffs |
//! | [`build`] | tools, CMake, ninja, stamps and build manifests |
//! | [`lint`] | is the series in order? one rule, one file |
//! | [`verify`] | is everything as recorded? asks lint, the tree and the builds |
//! | [`fixture`] | tiny GGUF models, deterministic to the last byte |
//! | [`stats`] | intervals and verdicts from what was measured |
//! | [`gate`] | servers under test, comparisons, verdicts, records |
//! | [`hosts`] | gates on other machines, with ssh and rsync |
//! | [`inspect`] | what a built file says of itself, and whether it holds |
//! | [`sbom`] | what went into a build, for other programs to read |
//! | [`mod@package`] | a build with all that its users may ask for, in one archive |
//! | [`rank`](mod@rank) | which tokens of a vocabulary come how often in some texts |
//! | [`report`] | records as a page, as Markdown, as JUnit XML; two records compared |
//! | [`doctor`] | what is there and what is missing |
//! | [`bench`](mod@bench) | our own speed beside that of other programs |
//! | [`invariants`] | what must hold for any input of the readers, for fuzzing |
//! | [`cli`] | the only part that knows of clap and terminals: one command, one file |
//!
//! `toy` is a checkout with a base of a few lines, for tests.

pub mod authoring;
pub mod bench;
pub mod build;
pub mod cli;
pub mod ctx;
pub mod diff;
pub mod doctor;
pub mod error;
pub mod exchange;
pub mod fixture;
pub mod gate;
pub mod hosts;
pub mod inspect;
pub mod invariants;
pub mod journal;
pub mod lint;
pub mod lock;
pub mod mail;
pub mod model;
pub mod package;
pub mod patchset;
pub mod process;
pub mod project;
pub mod rank;
pub mod report;
pub mod sbom;
pub mod stats;
pub mod symbols;
pub mod sync;
pub mod tree;
pub mod vendor;
pub mod verify;

#[cfg(test)]
mod toy;

pub use ctx::Ctx;
pub use error::{Error, Kind, Result};
