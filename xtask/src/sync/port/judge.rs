//! What became of a hook that found no place, and of a patch as a whole.

use crate::error::{Error, Result};
use crate::patchset::Patch;
use crate::sync::port::Porter;
use crate::sync::upstreamed;
use crate::sync::verdict::{HookReport, HookVerdict, PatchVerdict};
use crate::tree::RelPath;

impl Porter<'_> {
    /// Says what kind of failure it is.
    pub(super) fn unplaced(&self, report: &mut HookReport, path: &RelPath, reason: String) {
        report.note = reason;
        let new = &self.ground.pristine;
        if let Some(patch) = self.broken.get(path) {
            report.verdict = HookVerdict::Blocked;
            report.blocked_by = Some(patch.clone());
        } else if let Some(patch) = self.owner_missing(path) {
            report.verdict = HookVerdict::Blocked;
            report.blocked_by = Some(patch);
        } else if new.base.partial && !self.ground.has(path) {
            report.verdict = HookVerdict::Absent;
            report.note.clear();
        }
    }

    /// The patch whose overlay would have brought the file, where it is not there.
    pub(super) fn owner_missing(&self, path: &RelPath) -> Option<String> {
        if self.ground.has(path) {
            return None;
        }
        self.owners.get(path).cloned()
    }

    /// Why an overlay file cannot go into the new base, or that it is there already.
    pub(super) fn overlay(&self, patch: &Patch) -> Result<Option<(bool, String)>> {
        for file in &patch.overlay {
            if let Some(there) = self.ground.source(&file.path)? {
                let same = there.content == file.content;
                return Ok(Some((same, format!("{} is in the new base", file.path))));
            }
        }
        Ok(None)
    }

    pub(super) fn verdict(
        &self,
        patch: &Patch,
        reports: &mut [HookReport],
        overlay: Option<(bool, String)>,
        needs: Option<String>,
        solved: bool,
    ) -> Result<PatchVerdict> {
        let retire = self.decisions.retire.contains(patch.id());
        let keep = self.decisions.keep.contains(patch.id());
        let (mut evidence, wanted) = match keep {
            true => (Vec::new(), 0),
            false => {
                upstreamed::probes(&self.ground, &self.old_ground, &patch.manifest.upstreamed)?
            }
        };
        let by_probe = wanted > 0 && evidence.len() == wanted;
        if let (Some(by), false) = (needs, retire) {
            // What is upstream is so whatever the patches before it need: nobody is to mend it in vain.
            return Ok(match by_probe {
                true => PatchVerdict::Upstreamed {
                    wholly: true,
                    evidence,
                },
                false => PatchVerdict::Blocked { by },
            });
        }
        if !keep {
            let there = reports
                .iter()
                .filter(|report| report.verdict == HookVerdict::Upstreamed)
                .count();
            if there > 0 {
                evidence.push(format!(
                    "{there} of {} hooks are in the new base",
                    reports.len()
                ));
            }
            let same_file = overlay.as_ref().is_some_and(|(same, _)| *same);
            if let (true, Some((_, what))) = (same_file, &overlay) {
                evidence.push(format!("{what}, byte for byte"));
            }
            if retire && evidence.is_empty() {
                return Err(Error::usage(format!(
                    "nothing says that `{}` is in {}",
                    patch.id(),
                    self.ground.pristine.base.id
                ))
                .hint(format!(
                    "--skip-patch {} leaves it out of the new series without retiring it",
                    patch.id()
                )));
            }
            if retire {
                return Ok(PatchVerdict::Retired { evidence });
            }
            if !evidence.is_empty() {
                let by_hooks = there == reports.len() && there > 0;
                return Ok(PatchVerdict::Upstreamed {
                    wholly: by_probe || by_hooks,
                    evidence,
                });
            }
        }
        if let Some((_, reason)) = overlay {
            return Ok(PatchVerdict::Overlay { reason });
        }
        if solved {
            for report in reports
                .iter_mut()
                .filter(|report| !report.verdict.is_automatic())
            {
                report.verdict = HookVerdict::Merged;
                report.note = format!("solved by hand: {}", report.note);
            }
        }
        Ok(PatchVerdict::Hooks {
            worst: reports
                .iter()
                .map(|report| report.verdict)
                .max()
                .unwrap_or(HookVerdict::Clean),
        })
    }
}
