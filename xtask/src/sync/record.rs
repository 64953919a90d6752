//! What a finished sync leaves in the checkout.

use crate::authoring::{self, Extra, RETIRED, save_with};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::Base;
use crate::patchset::Series;
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// Writes the new series, the hooks that differ on this base, the generated files, and the
/// patches that were retired with what says so. All or nothing. Returns the changed files.
pub(super) fn write(
    ctx: &Ctx,
    (from, old): (&Base, &Series),
    pristine: &Pristine,
    there: &Series,
    series: &Series,
    retired: &[(String, String)],
) -> Result<Vec<RelPath>> {
    let lock = crate::lock::checkout(ctx)?;
    for (base, known) in [(from, old), (&pristine.base, there)] {
        authoring::unchanged(ctx, base, known)?;
    }
    let mut extra = Extra::default();
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
