//! `cargo xtask status`.

use serde_json::json;

use crate::cli::args::BaseArg;
use crate::cli::problem::painted;
use crate::cli::{Outcome, Status, series};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset::{self, PatchState, UPSTREAMED};

/// Flags of `status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    base: BaseArg,
}

/// Says what is applied. Edits, half-applied patches and an outdated tree are findings.
pub fn run(ctx: &Ctx, args: StatusArgs) -> Result<Outcome> {
    let base = ctx.project.base(args.base.base.as_deref())?;
    let load = || series::load_recorded(ctx, &args.base);
    let told = patchset::tell(ctx, &base, load)?;
    let (tree, problems) = (&told.tree, &told.problems);
    let name = ctx.project.show(&ctx.project.working_tree(&base.id));

    let gap = gap(tree);
    let clean = problems.is_empty()
        && gap.is_none()
        && tree.edited.is_empty()
        && tree.outdated.is_empty()
        && tree
            .patches
            .iter()
            .all(|(_, state)| matches!(state, PatchState::Applied | PatchState::Absent));
    let mut text = format!("base      {} (tree {})\n", base.id, base.tree.short());
    text.push_str(&format!("patch set {}\n", told.patchset.short()));
    if !tree.exists {
        text.push_str(&format!(
            "tree      {name}: none yet; cargo xtask apply{} makes it\n",
            args.base.flag()
        ));
    } else {
        text.push_str(&format!("tree      {name}\n"));
    }
    let sync = crate::sync::open(ctx)?.filter(|open| open.to == base.id);
    if let Some(open) = &sync {
        text.push_str(&format!(
            "sync      from {} is not finished{}; cargo xtask sync --continue, --skip or --abort\n",
            open.from,
            match &open.patch {
                Some(patch) => format!(": the tree shows the conflict of {patch}"),
                None => String::new(),
            }
        ));
    }
    text.push_str(&series_lines(&told));
    text.push_str(&problem_lines(problems));
    for edit in &tree.edited {
        text.push_str(&format!("edited: {edit}\n"));
    }
    if let Some(id) = &tree.editing {
        text.push_str(&format!(
            "hint: cargo xtask refresh {id}{} takes the edits into that patch\n",
            args.base.flag()
        ));
    }
    for path in &tree.outdated {
        text.push_str(&format!(
            "outdated: {path} (cargo xtask apply{})\n",
            args.base.flag()
        ));
    }
    if let Some(id) = gap {
        text.push_str(&format!(
            "half done: {id} is not applied, and one behind it is (cargo xtask apply{})\n",
            args.base.flag()
        ));
    }
    if tree.exists && clean && !tree.patches.is_empty() {
        text.push_str(sum(tree));
    }
    let data = json!({
        "base": base.id,
        "patchset": told.patchset,
        "sync": sync,
        "working_tree": name,
        "sync": sync,
        "tree": tree,
        "problems": problems,
    });
    Ok(Outcome {
        text,
        data,
        status: if clean { Status::Good } else { Status::Finding },
    })
}

/// The first patch that is not applied though one behind it is: a part of the series is what stands before some
/// patch, and never one with a hole, as where a patch was put between those that were applied.
fn gap(tree: &patchset::TreeStatus) -> Option<&str> {
    let applied = |state: &PatchState| *state == PatchState::Applied;
    let last = tree.patches.iter().rposition(|(_, state)| applied(state))?;
    let before = tree.patches[..last].iter();
    let mut absent = before.filter(|(_, state)| *state == PatchState::Absent);
    absent.next().map(|(id, _)| id.as_str())
}

/// The patches, one line each.
fn series_lines(told: &patchset::Told) -> String {
    let tree = &told.tree;
    let mut text = String::new();
    if tree.patches.is_empty() {
        text.push_str("series    none in registry/series.toml\n");
    }
    let states = tree
        .patches
        .iter()
        .map(|(_, state)| state.to_string().len());
    let width = states.chain([8]).max().unwrap_or(0);
    let ids = tree.patches.iter().map(|(id, _)| id.len()).max();
    let ids = ids.unwrap_or(0);
    for (title, (id, state)) in told.titles.iter().zip(&tree.patches) {
        text.push_str(&format!("  {state:width$}  {id:ids$}  {title}\n"));
    }
    text
}

/// What does not sit.
fn problem_lines(problems: &[patchset::Problem]) -> String {
    let mut text = String::new();
    for problem in problems {
        let what = match &problem.landed {
            Some(_) if problem.upstreamed => "upstreamed",
            Some(_) => "partly upstreamed",
            None => "does not apply",
        };
        text.push_str(&format!("{what}: {}\n", painted(problem)));
    }
    if problems.iter().any(|problem| problem.landed.is_some()) {
        text.push_str(&format!("hint: {UPSTREAMED}\n"));
    }
    text
}

/// All of a tree that is in order.
fn sum(tree: &patchset::TreeStatus) -> &'static str {
    let whole = |wanted: PatchState| tree.patches.iter().all(|(_, state)| *state == wanted);
    if whole(PatchState::Applied) {
        "the whole series is applied\n"
    } else if whole(PatchState::Absent) {
        "the tree is the base, without the series\n"
    } else {
        "a part of the series is applied\n"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_a_series_has_no_hole() {
        use PatchState::{Absent, Applied};
        let tree = |states: &[PatchState]| {
            let ids = ["a", "b", "c"].map(str::to_owned);
            patchset::TreeStatus {
                patches: ids.into_iter().zip(states.iter().cloned()).collect(),
                ..patchset::TreeStatus::default()
            }
        };
        for states in [[Applied, Applied, Absent], [Absent; 3], [Applied; 3]] {
            assert_eq!(gap(&tree(&states)), None, "{states:?}");
        }
        assert_eq!(gap(&tree(&[Applied, Absent, Applied])), Some("b"));
        assert_eq!(gap(&tree(&[Absent, Absent, Applied])), Some("a"));
    }
}
