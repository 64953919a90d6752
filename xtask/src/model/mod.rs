//! All data types that are read from or written to disk. No behaviour beyond reading, writing
//! and checking themselves.

mod build;
mod digest;
mod fixture;
mod hooks;
mod io;
mod patch;
mod series;
mod state;
mod upstreams;
mod verdict;

pub use build::{Artifact, BuildManifest, Compiler, Flavour, PatchSetStamp};
pub use digest::Digest;
pub use fixture::{Fixture, Fixtures};
pub use hooks::{HookEntry, HooksFile, ImageEntry};
pub use io::{read_json, read_toml, write_atomic, write_json};
pub use patch::{Allow, PatchManifest};
pub use series::Series;
pub use state::{TrackedFile, TreeState};
pub use upstreams::{Base, DirSource, GitSource, PypiSource, Source, TarballSource, Upstreams};
pub use verdict::Verdict;
