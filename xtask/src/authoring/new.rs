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
    let text = manifest_text(
        id,
        title,
        series.patches.first().map(Patch::id),
        gates(ctx, pristine),
    );
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

/// The title of a patch to which nobody has given one.
pub const TITLE: &str = "What this patch does";

/// The purpose of a patch, until somebody writes it.
pub const PURPOSE: &str = "Why it exists, and what it does when it is on.";

/// The gate that can judge every patch, where it can judge any: it needs a definition, and a base
/// that can be built.
pub fn gates(ctx: &Ctx, pristine: &Pristine) -> &'static [&'static str] {
    let is_defined = ctx.project.root().join("gates/chash.toml").is_file();
    match is_defined && pristine.is_buildable() {
        true => &["chash"],
        false => &[],
    }
}

/// The first text of a manifest. `first`: the patch that all others stand on.
pub fn manifest_text(id: &str, title: &str, first: Option<&str>, gates: &[&str]) -> String {
    let quote = |text: &str| toml_edit::Value::from(text).to_string();
    let requires = first.map_or(String::new(), quote);
    let gates: Vec<String> = gates.iter().map(|gate| quote(gate)).collect();
    format!(
        "schema = 1\nid = {}\ntitle = {}\npurpose = \"\"\"\n{PURPOSE}\n\"\"\"\nrequires = \
         [{requires}]\ngates = [{}]\n",
        quote(id),
        quote(title),
        gates.join(", "),
    )
}
