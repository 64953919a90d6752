//! Base, registry and working tree, checked to the last byte.

use serde::Serialize;

use crate::ctx::Ctx;
use crate::diff;
use crate::error::Result;
use crate::patchset::status::{count, status_of_all_bytes};
use crate::patchset::{Images, PatchState, Series, registry_drift, registry_of};
use crate::vendor::Pristine;

/// One thing that is not as it should be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at: `base`, `registry`, `patch`, `tree`, `build`.
    pub part: &'static str,
    /// What is wrong, with file and hashes.
    pub what: String,
    /// What to do.
    pub hint: String,
}

/// The result of [`verify`].
#[derive(Clone, Debug, Default, Serialize)]
pub struct Verification {
    /// What was checked, one line each.
    pub checked: Vec<String>,
    /// What is wrong.
    pub findings: Vec<Finding>,
}

impl Verification {
    /// Adds what another check found.
    pub fn merge(&mut self, other: Verification) {
        self.checked.extend(other.checked);
        self.findings.extend(other.findings);
    }

    /// Adds a finding.
    pub fn add(&mut self, part: &'static str, what: impl Into<String>, hint: impl Into<String>) {
        self.findings.push(Finding {
            part,
            what: what.into(),
            hint: hint.into(),
        });
    }
}

/// Checks hooks against their manifests and markers, the registry against patches and base, and
/// the working tree, where there is one, against both. The base itself and the builds are the
/// caller's: see `vendor::check` and `build::check`.
pub fn verify(ctx: &Ctx, pristine: &Pristine, series: &Series) -> Result<Verification> {
    let mut out = Verification::default();
    check_patches(ctx, series, &mut out);
    let (images, problems) = Images::attempt(pristine, series)?;
    for problem in &problems {
        out.add("patch", problem.to_string(), "mend the hooks of that patch");
    }
    check_registry(ctx, series, &images, &mut out)?;
    let tree = status_of_all_bytes(ctx, pristine, series, &images)?;
    let name = ctx
        .project
        .show(&ctx.project.working_tree(&pristine.base.id));
    if !tree.exists {
        out.checked.push(format!("tree: there is no {name} yet"));
        return Ok(out);
    }
    for edit in &tree.edited {
        out.add(
            "tree",
            format!("{name}/{edit}"),
            "cargo xtask apply --discard-edits takes edits back and keeps a copy",
        );
    }
    for path in &tree.outdated {
        out.add(
            "tree",
            format!("{name}/{path}: as an earlier form of the series left it"),
            "cargo xtask apply",
        );
    }
    let whole = |wanted| tree.patches.iter().all(|(_, state)| *state == wanted);
    if tree.edited.is_empty() && !whole(PatchState::Applied) && !whole(PatchState::Absent) {
        for (id, state) in &tree.patches {
            if *state != PatchState::Applied {
                out.add(
                    "tree",
                    format!("{name}: {id} is {state}"),
                    "cargo xtask apply",
                );
            }
        }
    }
    out.checked.push(format!(
        "tree: {} of {name} against base and series",
        count(pristine.manifest.len(), "file")
    ));
    Ok(out)
}

fn check_patches(ctx: &Ctx, series: &Series, out: &mut Verification) {
    let mut total = 0;
    for patch in &series.patches {
        for gate in &patch.manifest.gates {
            let file = format!("gates/{gate}.toml");
            if !ctx.project.root().join(&file).is_file() {
                out.add(
                    "patch",
                    format!(
                        "{}: it is judged by the gate `{gate}`, and there is no {file}",
                        patch.id()
                    ),
                    "bring the definition back, or mend `gates` in patch.toml",
                );
            }
        }
        let hooks: Vec<diff::Hook> = patch.hooks.iter().flat_map(diff::hooks).collect();
        total += hooks.len();
        for hook in hooks.iter().filter(|hook| !hook.is_marked(patch.id())) {
            out.add(
                "patch",
                format!(
                    "{}: {}:{}: the hook's first line has no marker",
                    patch.id(),
                    hook.path,
                    hook.line
                ),
                format!("write `opencoti-hook: {}` in a comment there", patch.id()),
            );
        }
        let deleted: usize = hooks.iter().map(|hook| hook.deleted).sum();
        let allow = &patch.manifest.allow;
        if deleted > allow.deletions || (allow.deletions > 0 && allow.reason.trim().is_empty()) {
            out.add(
                "patch",
                format!(
                    "{}: {} deleted, {} allowed{}",
                    patch.id(),
                    count(deleted, "upstream line"),
                    allow.deletions,
                    if allow.reason.trim().is_empty() {
                        " and no reason given"
                    } else {
                        ""
                    }
                ),
                "make the hook insert-only, or state number and reason under [allow] in patch.toml",
            );
        }
    }
    out.checked.push(format!(
        "patches: {} in {}",
        count(total, "hook"),
        count(series.patches.len(), "patch").replace("patchs", "patches")
    ));
}

fn check_registry(
    ctx: &Ctx,
    series: &Series,
    images: &Images,
    out: &mut Verification,
) -> Result<()> {
    for drift in registry_drift(&ctx.project, series, images)? {
        out.add(
            "registry",
            drift,
            "cargo xtask refresh, then look at the difference before you commit it",
        );
    }
    let fresh = registry_of(series, images);
    out.checked.push(format!(
        "registry: {} and {} in registry/hooks.toml",
        count(fresh.hook.len(), "hook"),
        count(fresh.image.len(), "image")
    ));
    Ok(())
}
