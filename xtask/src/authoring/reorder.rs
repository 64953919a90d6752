//! Another place in the series for a patch.

use std::collections::BTreeMap;

use crate::authoring::refresh::{follow, refuse};
use crate::authoring::same::same_result;
use crate::authoring::save::{Saved, save, unchanged};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset::{Images, Patch, Series};
use crate::vendor::Pristine;

/// Puts the patch `id` directly behind `after`, or first where that is `None`. Every patch in
/// between is moved by a three-way merge; what the whole series makes stays the same.
pub fn reorder(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    id: &str,
    after: Option<&str>,
) -> Result<Saved> {
    let from = series.position(id)? - 1;
    if after == Some(id) {
        return Err(Error::usage(format!("`{id}` cannot stand behind itself")));
    }
    let mut order: Vec<usize> = (0..series.patches.len()).filter(|at| *at != from).collect();
    let to = match after {
        None => 0,
        Some(after) => {
            let at = series.position(after)? - 1;
            order
                .iter()
                .position(|other| *other == at)
                .map_or(0, |at| at + 1)
        }
    };
    order.insert(to, from);
    for (place, at) in order.iter().enumerate() {
        let patch = &series.patches[*at];
        for needed in &patch.manifest.requires {
            let ahead = order[..place]
                .iter()
                .any(|at| series.patches[*at].id() == needed);
            if !ahead {
                return Err(Error::usage(format!(
                    "`{}` requires `{needed}` and would stand before it",
                    patch.id()
                )));
            }
        }
    }
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let old = Images::compute(pristine, series)?;
    let mut patches: Vec<Patch> = Vec::new();
    for at in order {
        let so_far = Series::of(&ctx.project, &series.base, patches.clone())?;
        let new = Images::compute(pristine, &so_far)?;
        let patch = &series.patches[at];
        match follow(
            ctx,
            pristine,
            series,
            patch,
            (&old, at),
            (&new, patches.len()),
        )? {
            Ok(moved) => patches.push(moved),
            Err(conflict) => return Err(refuse(&conflict)),
        }
    }
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    same_result(pristine, &old, &fresh, &|_, content| content.to_vec())?;
    save(ctx, &lock, pristine, series, &fresh, &BTreeMap::new(), &[])
}
