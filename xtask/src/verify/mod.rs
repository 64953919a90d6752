//! Base, patches, registry, working tree and builds, checked to the last byte.
//!
//! Nothing is judged here: patches and registry are `lint`'s, the tree is `patchset::status`'s, the
//! builds are `build::check`'s. This room asks all of them and says what they found in one form.

use serde::Serialize;

use crate::build::{self, Build};
use crate::ctx::Ctx;
use crate::diff;
use crate::error::Result;
use crate::lint;
use crate::model::Base;
use crate::patchset::{Images, PatchState, Series, count, registry_of, status_of_all_bytes};
use crate::vendor::{self, Cached, Pristine};

/// The rules whose findings mean that what is recorded is not what is there. What `lint` asks
/// beyond them (docs, style) leaves a build as it is.
const RULES: [&str; 5] = ["additivity", "gates", "markers", "names", "registry"];

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
    fn add(&mut self, part: &'static str, what: impl Into<String>, hint: impl Into<String>) {
        self.findings.push(Finding {
            part,
            what: what.into(),
            hint: hint.into(),
        });
    }
}

/// Checks everything that was recorded of `base`. A base that is not in the cache is brought there.
pub fn verify(ctx: &Ctx, base: &Base, series: &Series) -> Result<Verification> {
    let mut out = Verification::default();
    check_base(ctx, base, &mut out)?;
    if out.findings.is_empty() {
        // Only a base that is right can be measured against.
        check_series(ctx, &vendor::ensure(ctx, base)?, series, &mut out)?;
    }
    check_builds(ctx, base, &mut out)?;
    Ok(out)
}

/// Patches, registry and working tree, against a base that is known to be right.
pub fn series(ctx: &Ctx, pristine: &Pristine, series: &Series) -> Result<Verification> {
    let mut out = Verification::default();
    check_series(ctx, pristine, series, &mut out)?;
    Ok(out)
}

fn check_series(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    out: &mut Verification,
) -> Result<()> {
    check_rules(ctx, pristine, series, out)?;
    let (images, _) = Images::attempt(pristine, series)?;
    let hooks = |patch: &crate::patchset::Patch| -> usize {
        patch.hooks.iter().map(|diff| diff::hooks(diff).len()).sum()
    };
    out.checked.push(format!(
        "patches: {} in {}",
        count(series.patches.iter().map(hooks).sum(), "hook"),
        count(series.patches.len(), "patch")
    ));
    let fresh = registry_of(series, &images);
    out.checked.push(format!(
        "registry: {} and {} in registry/hooks.toml",
        count(fresh.hook.len(), "hook"),
        count(fresh.image.len(), "image")
    ));
    check_tree(ctx, pristine, series, &images, out)
}

fn check_rules(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    out: &mut Verification,
) -> Result<()> {
    for found in lint::run(ctx, pristine, series, &RULES.map(str::to_owned))? {
        if found.file == "registry/hooks.toml" {
            out.add("registry", found.message, found.hint);
        } else {
            let what = format!("{}:{}: {}", found.file, found.line, found.message);
            out.add("patch", what, found.hint);
        }
    }
    Ok(())
}

/// Hashes every file of the cached base.
fn check_base(ctx: &Ctx, base: &Base, out: &mut Verification) -> Result<()> {
    if matches!(vendor::look(ctx, base)?, Cached::Absent) {
        vendor::ensure(ctx, base)?;
    }
    for difference in vendor::check(ctx, base)? {
        out.add(
            "base",
            format!("{} in the cache: {difference}", base.id),
            format!("cargo xtask vendor --base {} --force", base.id),
        );
    }
    out.checked.push(format!(
        "base: every file of {} against tree {}",
        base.id,
        base.tree.short()
    ));
    Ok(())
}

fn check_tree(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    out: &mut Verification,
) -> Result<()> {
    let tree = status_of_all_bytes(ctx, pristine, series, images)?;
    let root = ctx.project.working_tree(&pristine.base.id);
    let name = ctx.project.show(&root);
    if !tree.exists {
        out.checked.push(format!("tree: there is no {name} yet"));
        return Ok(());
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
    Ok(())
}

/// Hashes the artifacts of all finished builds of the base.
fn check_builds(ctx: &Ctx, base: &Base, out: &mut Verification) -> Result<()> {
    for found in Build::all(ctx, &base.id)? {
        let name = ctx.project.show(&found.dir);
        let built = &found.manifest;
        for difference in build::check(&found)? {
            out.add(
                "build",
                format!("{name}/{difference}"),
                format!(
                    "cargo xtask build --{} --backend {}{} makes it again",
                    built.flavour,
                    built.backend,
                    built.variant.flags()
                ),
            );
        }
        for drift in build::drift::check(&found)? {
            out.add("build", format!("{name}: {drift}"), drift.hint);
        }
        out.checked.push(format!(
            "build: {} of {name}",
            count(built.artifacts.len(), "artifact")
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
