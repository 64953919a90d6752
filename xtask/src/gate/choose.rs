//! Which gates run where none is named.

use std::collections::BTreeSet;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::definition::Plan;
use crate::model::PatchManifest;
use crate::patchset::Series;

/// A gate that is not run, since nobody named it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LeftOut {
    /// The gate.
    pub gate: String,
    /// Why.
    pub reason: &'static str,
}

/// Keeps the gates of a base, and gives the others. A gate that patches name is theirs: it runs on the bases whose series
/// has one of them. A gate that no patch names runs on every base.
///
/// Refuses where a gate is missing that a patch of the base is to be judged by: a lost or misspelt
/// definition would pass by not being there.
pub fn of_base(ctx: &Ctx, base: Option<&str>, plans: &mut Vec<Plan>) -> Result<Vec<LeftOut>> {
    let base = ctx.project.base(base)?;
    let mut own = BTreeSet::new();
    for patch in Series::load(&ctx.project, &base)?.patches {
        let known = || plans.iter().map(id);
        for gate in &patch.manifest.gates {
            if !known().any(|known| known == gate) {
                return Err(Error::config(format!(
                    "`{}` is judged by the gate `{gate}`, and there is no gates/{gate}.toml",
                    patch.id()
                ))
                .hint(crate::project::suggest(gate, known(), "gates"))
                .hint("bring the definition back, or mend `gates` in patch.toml"));
            }
        }
        own.extend(patch.manifest.gates);
    }
    let named = named(ctx)?;
    let is_here = |plan: &Plan| own.contains(id(plan)) || !named.contains(id(plan));
    let others = part(plans, is_here);
    if !others.is_empty() {
        ctx.sink.note(&format!(
            "not run, since they judge patches that are not in the series of {}: {}",
            base.id,
            others.join(" ")
        ));
    }
    Ok(left_out(
        others,
        "it judges patches that are not in the series of the base",
    ))
}

fn left_out(gates: Vec<String>, reason: &'static str) -> Vec<LeftOut> {
    let gates = gates.into_iter();
    gates.map(|gate| LeftOut { gate, reason }).collect()
}

/// Leaves out what runs only where it is named, says so, and gives it.
pub fn defaults(ctx: &Ctx, plans: &mut Vec<Plan>) -> Result<Vec<LeftOut>> {
    let others = part(plans, |plan| plan.common().definition.default);
    if plans.is_empty() {
        return Err(Error::usage("no gate runs without being named")
            .hint(format!("cargo xtask gate --gate {}", others.join(" "))));
    }
    if !others.is_empty() {
        ctx.sink.note(&format!(
            "not run, since its definition is no default: {0} (cargo xtask gate --gate {0})",
            others.join(" ")
        ));
    }
    Ok(left_out(others, "its definition is no default"))
}

fn id(plan: &Plan) -> &str {
    &plan.common().definition.id
}

/// Keeps what `is_kept`, and names the others.
fn part(plans: &mut Vec<Plan>, is_kept: impl Fn(&Plan) -> bool) -> Vec<String> {
    let others = plans.iter().filter(|plan| !is_kept(plan));
    let others = others.map(|plan| id(plan).to_owned()).collect();
    plans.retain(is_kept);
    others
}

/// The gates that patches of any series name.
fn named(ctx: &Ctx) -> Result<BTreeSet<String>> {
    let series = ctx.project.series()?;
    let patches: BTreeSet<&String> = series.series.values().flatten().collect();
    let mut named = BTreeSet::new();
    for patch in patches {
        let manifest = ctx.project.patch_dir(patch).join("patch.toml");
        // What cannot be read takes no gate away: too many run, which shows, and not too few.
        if let Ok(manifest) = crate::model::read_toml::<PatchManifest>(&manifest) {
            named.extend(manifest.gates);
        }
    }
    Ok(named)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::definition;
    use crate::toy::{Toy, put};

    /// Two series: `toy` has `one`, another base has `two`. Gates of each, of both, of none.
    fn toy() -> Toy {
        let toy = Toy::new();
        for (patch, gates) in [
            ("one", "\"chash\", \"both\""),
            ("two", "\"theirs\", \"both\""),
        ] {
            toy.patch(patch, "", &[(&format!("src/{patch}.c"), "int x;\n")]);
            let path = toy.root().join("patches").join(patch).join("patch.toml");
            let text = fs_err::read_to_string(&path).unwrap();
            put(&path, &text.replace("\"chash\"", gates));
        }
        let upstreams = toy.root().join("registry/upstreams.toml");
        let text = fs_err::read_to_string(&upstreams).unwrap();
        let (_, base) = text.split_once("[[base]]").unwrap();
        let other = base.replace("id = \"toy\"", "id = \"other\"");
        put(&upstreams, &format!("{text}\n[[base]]{other}"));
        put(
            &toy.root().join("registry/series.toml"),
            "schema = 1\n[series]\ntoy = [\"one\"]\nother = [\"two\"]\n",
        );
        for gate in ["chash", "both", "theirs", "general"] {
            put(
                &toy.root().join(format!("gates/{gate}.toml")),
                &format!(
                    "schema = 1\nid = \"{gate}\"\nkind = \"integrity\"\ntitle = \"T\"\n\
                     default = {}\n",
                    gate != "both"
                ),
            );
        }
        toy
    }

    fn load(toy: &Toy) -> Vec<Plan> {
        definition::load(&toy.ctx.project, &[], false).unwrap()
    }

    fn ids(plans: &[Plan]) -> Vec<&str> {
        plans.iter().map(id).collect()
    }

    #[test]
    fn a_base_runs_the_gates_of_its_patches_and_those_of_none() {
        let toy = toy();
        let mut plans = load(&toy);
        let others = of_base(&toy.ctx, Some("toy"), &mut plans).unwrap();
        assert_eq!(ids(&plans), ["both", "chash", "general"]);
        assert!(
            others.len() == 1 && others[0].gate == "theirs",
            "{others:?}"
        );
        let others = defaults(&toy.ctx, &mut plans).unwrap();
        assert_eq!(ids(&plans), ["chash", "general"]);
        assert!(others.len() == 1 && others[0].gate == "both", "{others:?}");
    }

    #[test]
    fn a_gate_that_a_patch_is_judged_by_must_be_there() {
        let toy = toy();
        fs_err::remove_file(toy.root().join("gates/chash.toml")).unwrap();
        let error = of_base(&toy.ctx, Some("toy"), &mut load(&toy)).unwrap_err();
        assert!(error.to_string().contains("no gates/chash.toml"), "{error}");
        // That of a patch which is not in the series is not missed.
        fs_err::remove_file(toy.root().join("gates/theirs.toml")).unwrap();
        put(
            &toy.root().join("gates/chash.toml"),
            "schema = 1\nid = \"chash\"\nkind = \"integrity\"\ntitle = \"T\"\n",
        );
        of_base(&toy.ctx, Some("toy"), &mut load(&toy)).unwrap();
    }

    #[test]
    fn a_patch_that_cannot_be_read_takes_no_gate_away() {
        let toy = toy();
        put(&toy.root().join("patches/two/patch.toml"), "schema = ");
        let mut plans = load(&toy);
        of_base(&toy.ctx, Some("toy"), &mut plans).unwrap();
        assert_eq!(ids(&plans), ["both", "chash", "general", "theirs"]);
    }
}
