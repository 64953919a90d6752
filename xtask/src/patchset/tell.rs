//! [`status`], of a series that is read only where it may have changed.

use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::{Base, Digest};
use crate::patchset::memory::{self, Memory};
use crate::patchset::status::{TreeStatus, classify_by, glance, read_state, status};
use crate::patchset::{Images, Problem, Series};
use crate::vendor::Pristine;

/// What is told of a working tree.
#[derive(Clone, Debug)]
pub struct Told {
    /// The patch-set id of the series.
    pub patchset: Digest,
    /// The titles of the patches, in order.
    pub titles: Vec<String>,
    /// The tree.
    pub tree: TreeStatus,
    /// What of the series does not apply.
    pub problems: Vec<Problem>,
}

/// As [`status`], of the series that `load` reads. Where nothing changed since it was read last,
/// it is not read again: see `memory.rs`.
pub fn tell(
    ctx: &Ctx,
    base: &Base,
    load: impl FnOnce() -> Result<(Pristine, Series)>,
) -> Result<Told> {
    let lock = crate::lock::reading(ctx)?;
    if let Some(told) = told_by_memory(ctx, base)? {
        return Ok(told);
    }
    let begun = memory::begin(ctx, base);
    // Reading may fetch the base, which takes long.
    drop(lock);
    let (pristine, series) = load()?;
    let (images, problems) = Images::attempt(&pristine, &series)?;
    let tree = status(ctx, &pristine, &series, &images)?;
    if let Some(begun) = begun.filter(|_| problems.is_empty()) {
        let _lock = crate::lock::reading(ctx)?;
        Memory::keep(ctx, &begun, &pristine, &series, &images);
    }
    let titles = series.patches.into_iter().map(|one| one.manifest.title);
    Ok(Told {
        patchset: series.id,
        titles: titles.collect(),
        tree,
        problems,
    })
}

fn told_by_memory(ctx: &Ctx, base: &Base) -> Result<Option<Told>> {
    let root = ctx.project.working_tree(&base.id);
    let Some((pristine, memory)) = memory::recall(ctx, base, &root) else {
        return Ok(None);
    };
    // Who reads all says what is wrong with it.
    let Ok(state) = read_state(&root) else {
        return Ok(None);
    };
    let found = glance(&root)?.remember();
    let tree = classify_by(&pristine.manifest, &memory, &found, state.as_ref());
    Ok(Some(Told {
        patchset: memory.id,
        titles: memory.patches.into_iter().map(|(_, title)| title).collect(),
        tree,
        problems: Vec::new(),
    }))
}
