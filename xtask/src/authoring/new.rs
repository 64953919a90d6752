//! Beginning a patch.

use std::collections::BTreeMap;

use crate::authoring::save::{Saved, save};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::PatchManifest;
use crate::patchset::{Patch, Series, is_patch_id};
use crate::vendor::Pristine;

/// Begins the patch `id`: a folder with a manifest, at the end of the series, or behind the
/// patch `after`. It is empty until `refresh` takes edits into it.
pub fn new(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    id: &str,
    title: &str,
    after: Option<&str>,
) -> Result<Saved> {
    if !is_patch_id(id) {
        return Err(Error::usage(format!("`{id}` is no patch id"))
            .hint("lowercase letters, digits and single hyphens, beginning with a letter"));
    }
    let dir = ctx.project.patch_dir(id);
    if dir.exists() {
        return Err(Error::usage(format!("there is a patch `{id}` already"))
            .hint("choose another id, or put the existing one into registry/series.toml"));
    }
    let text = manifest_text(id, title, series.patches.first().map(Patch::id));
    let manifest: PatchManifest =
        toml::from_str(&text).map_err(|error| Error::internal(error.to_string()))?;
    let at = match after {
        Some(after) => series.position(after)?,
        None => series.patches.len(),
    };
    let mut patches = series.patches.clone();
    patches.insert(
        at,
        Patch {
            manifest,
            hooks: Vec::new(),
            overlay: Vec::new(),
            hooks_file: None,
            hooks_text: Vec::new(),
        },
    );
    let lock = crate::lock::checkout(ctx)?;
    let fresh = Series::of(&ctx.project, &series.base, patches)?;
    let manifests = BTreeMap::from([(id.to_owned(), text)]);
    save(ctx, &lock, pristine, series, &fresh, &manifests, &[])
}

/// The first text of a manifest. `first`: the patch that all others stand on.
pub fn manifest_text(id: &str, title: &str, first: Option<&str>) -> String {
    let quote = |text: &str| toml_edit::Value::from(text).to_string();
    let requires = first.map_or(String::new(), quote);
    format!(
        "schema = 1\nid = {}\ntitle = {}\npurpose = \"\"\"\nWhy it exists, and what it does when it is \
         on.\n\"\"\"\nrequires = [{requires}]\ngates = [\"chash\"]\n",
        quote(id),
        quote(title),
    )
}
