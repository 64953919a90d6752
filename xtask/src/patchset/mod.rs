//! Patches and series: load, images, apply, revert, status, verify.

use std::path::PathBuf;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::TreeState;
use crate::vendor::Pristine;

/// A working tree whose content is exactly what its state says.
#[derive(Clone, Debug)]
pub struct WorkingTree {
    /// The folder that holds the tree.
    pub root: PathBuf,
    /// What is applied.
    pub state: TreeState,
}

/// The working tree with the whole series applied, checked by hashes; an error names what is
/// missing or drifted.
pub fn applied(_ctx: &Ctx, _pristine: &Pristine) -> Result<WorkingTree> {
    Err(Error::internal("not written yet"))
}
