//! Taking a patch out of a series, and writing down why.

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::authoring::refresh::{follow, refuse};
use crate::authoring::save::{Extra, Saved, save_with, unchanged};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::Base;
use crate::patchset::{Images, Patch, Series};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// Where retired patches are written down.
pub const RETIRED: &str = "registry/retired.toml";

/// Takes the patch `id` out of the series of its base and writes `reason` down. Later patches are
/// moved along by a three-way merge; where that conflicts, or one requires it, nothing is written.
/// Its folder stays: other bases may have it, and history is kept.
pub fn retire(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    id: &str,
    reason: &str,
) -> Result<Saved> {
    let place = series.position(id)? - 1;
    if reason.trim().is_empty() {
        return Err(Error::usage("a reason is needed")
            .hint("--reason says to the next maintainer why the patch is not needed"));
    }
    let requires = |patch: &&Patch| patch.manifest.requires.iter().any(|needed| needed == id);
    if let Some(other) = series.patches.iter().find(requires) {
        return Err(
            Error::usage(format!("`{}` requires `{id}`", other.id())).hint(format!(
                "retire `{}` first, or take `{id}` out of its `requires`",
                other.id()
            )),
        );
    }
    let lock = crate::lock::checkout(ctx)?;
    unchanged(ctx, &series.base, series)?;
    let old = Images::compute(pristine, series)?;
    let mut patches: Vec<Patch> = series.patches[..place].to_vec();
    for (at, patch) in series.patches.iter().enumerate().skip(place + 1) {
        let so_far = Series::of(&ctx.project, &series.base, patches.clone())?;
        let new = Images::compute(pristine, &so_far)?;
        let (from, to) = ((&old, at), (&new, patches.len()));
        match follow(ctx, pristine, series, patch, from, to)? {
            Ok(moved) => patches.push(moved),
            Err(conflict) => return Err(refuse(&conflict)),
        }
    }
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    let list = [(id.to_owned(), reason.trim().to_owned())];
    let extra = Extra {
        written: vec![(
            RelPath::new(RETIRED)?,
            retired(ctx, &series.base, &list)?.into_bytes(),
        )],
        ..Extra::default()
    };
    save_with(ctx, &lock, pristine, series, &fresh, &extra)
}

/// `registry/retired.toml` with these patches (id and reason) added for `base`; what it said of
/// them before is replaced, comments stay.
pub fn retired(ctx: &Ctx, base: &Base, patches: &[(String, String)]) -> Result<String> {
    let path = ctx.project.root().join(RETIRED);
    let text = if path.exists() {
        fs_err::read_to_string(&path)?
    } else {
        "# Patches that are no longer needed, why, and since when.\n\
         # Format: docs/reference/registry.md.\nschema = 1\n"
            .to_owned()
    };
    let mut document: DocumentMut = text
        .parse()
        .map_err(|error: toml_edit::TomlError| Error::config(error.message().to_owned()))
        .context(|| RETIRED.to_owned())?;
    let list = document
        .entry("patch")
        .or_insert(Item::ArrayOfTables(ArrayOfTables::new()))
        .as_array_of_tables_mut()
        .ok_or_else(|| Error::config("`patch` is no list of tables").context(RETIRED))?;
    for (id, reason) in patches {
        list.retain(|entry| {
            entry.get("id").and_then(Item::as_str) != Some(id)
                || entry.get("base").and_then(Item::as_str) != Some(&base.id)
        });
        let mut entry = Table::new();
        entry["id"] = value(id);
        entry["base"] = value(&base.id);
        let since = match base.commit.is_empty() {
            true => &base.id,
            false => &base.commit,
        };
        entry["since"] = value(since);
        entry["reason"] = value(reason);
        list.push(entry);
    }
    Ok(document.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Toy;

    #[test]
    fn a_patch_leaves_the_series_and_the_rest_follows() {
        let toy = Toy::with_two_patches();
        let series = toy.load();
        let error = retire(&toy.ctx, &toy.pristine, &series, "first", " ").unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
        // `second` stands beside the hook of `first`: nobody can say where it then belongs.
        let error = retire(&toy.ctx, &toy.pristine, &series, "first", "why").unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        assert_eq!(toy.load().ids(), ["first", "second"]);
        let saved = retire(&toy.ctx, &toy.pristine, &series, "second", "in upstream").unwrap();
        assert_eq!(saved.patches, ["first"]);
        assert_eq!(toy.load().ids(), ["first"]);
        assert!(toy.root().join("patches/second/hooks.patch").exists());
        let text = std::fs::read_to_string(toy.root().join(RETIRED)).unwrap();
        assert!(text.contains("reason = \"in upstream\"") && text.contains("base = \"toy\""));
        // Said anew, it stands there once.
        let again = retired(
            &toy.ctx,
            &toy.pristine.base,
            &[("second".to_owned(), "else".to_owned())],
        )
        .unwrap();
        assert_eq!(again.matches("id = \"second\"").count(), 1);
        assert!(again.contains("reason = \"else\""));
    }
}
