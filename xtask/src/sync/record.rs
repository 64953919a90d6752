//! What a finished sync leaves in the checkout.

use toml_edit::{ArrayOfTables, DocumentMut, Item, Table, value};

use crate::authoring::{Extra, save_with};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::Base;
use crate::patchset::Series;
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// Where retired patches are written down.
const RETIRED: &str = "registry/retired.toml";

/// Writes the new series, the hooks that differ on this base, the generated files, and the
/// patches that were retired with what says so. All or nothing. Returns the changed files.
pub(super) fn write(
    ctx: &Ctx,
    pristine: &Pristine,
    there: &Series,
    series: &Series,
    from: &Base,
    retired: &[(String, String)],
) -> Result<Vec<RelPath>> {
    let lock = crate::lock::checkout(ctx)?;
    let mut extra = Extra::default();
    for patch in &series.patches {
        // A file for this base alone goes where the common one serves it again.
        let own = RelPath::new(format!(
            "patches/{}/hooks.{}.patch",
            patch.id(),
            pristine.base.id
        ))?;
        let used = patch.hooks_file.as_deref() == Some(own.as_str());
        if !used && own.below(ctx.project.root()).exists() {
            extra.removed.push(own);
        }
    }
    if !retired.is_empty() {
        let text = retire(ctx, &pristine.base, retired, from)?;
        extra
            .written
            .push((RelPath::new(RETIRED)?, text.into_bytes()));
    }
    let saved = save_with(ctx, &lock, pristine, there, series, &extra)?;
    Ok(saved.files)
}

/// `registry/retired.toml` with these patches added.
fn retire(ctx: &Ctx, base: &Base, retired: &[(String, String)], from: &Base) -> Result<String> {
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
    for (id, evidence) in retired {
        list.retain(|entry| {
            entry.get("id").and_then(Item::as_str) != Some(id)
                || entry.get("base").and_then(Item::as_str) != Some(&base.id)
        });
        let mut entry = Table::new();
        entry["id"] = value(id);
        entry["base"] = value(&base.id);
        entry["since"] = value(if base.commit.is_empty() {
            &base.id
        } else {
            &base.commit
        });
        entry["reason"] = value(if evidence.is_empty() {
            format!(
                "left out when the series went from {} to {}",
                from.id, base.id
            )
        } else {
            format!("in upstream: {evidence}")
        });
        list.push(entry);
    }
    Ok(document.to_string())
}
