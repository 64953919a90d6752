//! Gates on builds that are made another way than the plain one.

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::definition::Plan;
use crate::model::{Profile, Variant};

/// How much longer a server may take that is not optimised, or has a sanitizer in it.
const PATIENCE: u64 = 10;

/// Leaves out what says nothing of such builds, and gives the others time.
pub fn fit(ctx: &Ctx, variant: Variant, plans: &mut Vec<Plan>) -> Result<()> {
    if variant.profile == Profile::Release {
        return Ok(());
    }
    let is_measured = |plan: &Plan| matches!(plan, Plan::Perf(..));
    let measured = plans.iter().filter(|plan| is_measured(plan));
    let measured: Vec<&str> = measured.map(|plan| &*plan.common().definition.id).collect();
    if !measured.is_empty() {
        ctx.sink.note(&format!(
            "not run, since nobody asks how fast a build with profile {} is: {}",
            variant.profile,
            measured.join(" ")
        ));
    }
    plans.retain(|plan| !is_measured(plan));
    if plans.is_empty() {
        return Err(Error::usage(format!(
            "no gate that was named says anything of builds with profile {}",
            variant.profile
        ))
        .hint("name gates of another kind, or leave out --profile"));
    }
    for plan in plans {
        let limits = &mut plan.common_mut().definition.limits;
        for limit in [&mut limits.start, &mut limits.request, &mut limits.stop] {
            *limit = limit.saturating_mul(PATIENCE);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::definition;
    use crate::toy::{Toy, put};

    #[test]
    fn what_measures_is_left_out_and_the_rest_has_time() {
        let toy = Toy::new();
        let body = "title = \"T\"\nmodel = { path = \"m\" }\nn-predict = 4\n\
                    n-max = [1]\n[[prompt]]\nname = \"a\"\nids = [5]\n";
        for (id, more) in [
            ("same", "kind = \"chash\"\nslots = [1]\n"),
            ("fast", "kind = \"perf\"\nthreshold = { decode = 0.5 }\n"),
        ] {
            put(
                &toy.root().join(format!("gates/{id}.toml")),
                &format!("schema = 1\nid = \"{id}\"\n{more}{body}"),
            );
        }
        let load = |ids: &[String]| definition::load(&toy.ctx.project, ids, false).unwrap();
        let mut plans = load(&["fast".to_owned(), "same".to_owned()]);
        fit(&toy.ctx, Variant::default(), &mut plans).unwrap();
        assert_eq!(plans.len(), 2);
        let before = load(&["same".to_owned()])[0]
            .common()
            .definition
            .limits
            .start;
        fit(&toy.ctx, Variant::of(Profile::Asan), &mut plans).unwrap();
        assert_eq!(plans.len(), 1);
        assert_eq!(plans[0].common().definition.limits.start, before * PATIENCE);
        let mut alone = load(&["fast".to_owned()]);
        let error = fit(&toy.ctx, Variant::of(Profile::Debug), &mut alone).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
    }
}
