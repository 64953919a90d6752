//! What a finished sync leaves in the checkout.

use crate::authoring::{self, Extra, RETIRED, save_with};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset::Series;
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// Writes the new series, the hooks that differ on this base, the generated files, and the
/// patches that were retired with what says so. All or nothing. Returns the changed files.
pub(super) fn write(
    ctx: &Ctx,
    pristine: &Pristine,
    there: &Series,
    series: &Series,
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
        let reasons: Vec<(String, String)> = retired
            .iter()
            .map(|(id, evidence)| (id.clone(), format!("in upstream: {evidence}")))
            .collect();
        let text = authoring::retired(ctx, &pristine.base, &reasons)?;
        extra
            .written
            .push((RelPath::new(RETIRED)?, text.into_bytes()));
    }
    let saved = save_with(ctx, &lock, pristine, there, series, &extra)?;
    Ok(saved.files)
}
