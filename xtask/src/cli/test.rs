//! `cargo xtask test`: every check of this project, in one command.

use std::time::Instant;

use serde_json::json;
use xshell::{Shell, cmd};

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::Flavour;
use crate::{build, vendor};

/// Flags of `test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// Leave out what needs a real build: seconds instead of minutes
    #[arg(long)]
    quick: bool,
    /// Run only the tests whose name contains this
    filter: Option<String>,
}

/// Environment variable that gives tests a real llama-server, the vanilla one.
pub const SERVER_VAR: &str = "LLAMA_PATCHSET_TEST_SERVER";
/// Environment variable that switches on the tests which build real trees.
pub const REAL_VAR: &str = "LLAMA_PATCHSET_TEST_REAL";

/// Runs the quick gate on the default base, then the unit and integration tests; with `--quick`
/// only those that need no build. The tests come last, so that their summary closes the output.
pub fn run(ctx: &Ctx, args: TestArgs) -> Result<Outcome> {
    let sh = Shell::new().map_err(|error| Error::environment(error.to_string()))?;
    sh.change_dir(ctx.project.root());
    let mut steps: Vec<(String, f64)> = Vec::new();
    let mut step = |name: &str, work: &dyn Fn() -> Result<()>| -> Result<()> {
        let begun = Instant::now();
        work()?;
        let seconds = begun.elapsed().as_secs_f64();
        ctx.sink.note(&format!("step {name}: {seconds:.1} s"));
        steps.push((name.to_owned(), seconds));
        Ok(())
    };
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut server = None;
    if !args.quick {
        let base = ctx.project.base(None)?;
        step("materialise and apply", &|| {
            let pristine = vendor::ensure(ctx, &base)?;
            let series = crate::patchset::Series::load(&ctx.project, &base)?;
            crate::patchset::apply(ctx, &pristine, &series, series.patches.len(), false)?;
            Ok(())
        })?;
        step("lint and verify", &|| {
            passed(cmd!(sh, "{cargo} xtask lint").run())?;
            passed(cmd!(sh, "{cargo} xtask verify").run())
        })?;
        step("build vanilla", &|| {
            build::ensure(ctx, &base, Flavour::Vanilla, "cpu").map(drop)
        })?;
        step("build patched", &|| {
            build::ensure(ctx, &base, Flavour::Patched, "cpu").map(drop)
        })?;
        step("quick gate", &|| {
            passed(cmd!(sh, "{cargo} xtask gate --quick").run())
        })?;
        let vanilla = build::ensure(ctx, &base, Flavour::Vanilla, "cpu")?;
        server = Some(vanilla.program("llama-server"));
    }
    let filter = args.filter.as_slice();
    step("tests", &|| {
        let mut tests = cmd!(
            sh,
            "{cargo} test --workspace --lib --bins --tests -- {filter...}"
        );
        if let Some(server) = &server {
            tests = tests.env(SERVER_VAR, server).env(REAL_VAR, "1");
        }
        passed(tests.run())
    })?;
    let data = json!({ "steps": steps });
    Ok(Outcome::good(String::new(), data))
}

fn passed(result: xshell::Result<()>) -> Result<()> {
    result.map_err(|error| Error::finding(error.to_string()))
}
