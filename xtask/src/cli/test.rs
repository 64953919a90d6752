//! `cargo xtask test`: every check of this project, in one command.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use serde_json::json;

use crate::build::Build;
use crate::cli::{Outcome, Status};
use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result, ResultExt};
use crate::gate;
use crate::gate::table::Signs;
use crate::model::{Flavour, Verdict};

/// Flags of `test`.
#[derive(Debug, clap::Args)]
pub struct TestArgs {
    /// Leave out what needs a real build: seconds instead of minutes
    #[arg(long)]
    quick: bool,
    /// Run only the tests of the file xtask/tests/NAME.rs, or, where there is none, those whose name contains this
    #[arg(value_name = "NAME")]
    filter: Option<String>,
}

/// Environment variable that gives tests a real llama-server, the vanilla one.
pub const SERVER_VAR: &str = "LLAMA_PATCHSET_TEST_SERVER";
/// Environment variable that switches on the tests which build real trees.
pub const REAL_VAR: &str = "LLAMA_PATCHSET_TEST_REAL";

/// Environment variable that switches on the tests which need every base in the cache.
pub const BASES_VAR: &str = "LLAMA_PATCHSET_TEST_BASES";

/// Lints the series, runs the quick gate on the default base, verifies what is recorded, then runs
/// the unit and integration tests; with `--quick` only those that need no build. With `json`, what
/// cargo prints goes to stderr, since stdout is for one document.
pub fn run(ctx: &Ctx, args: TestArgs, json: bool) -> Result<Outcome> {
    let mut steps: Vec<(&str, f64)> = Vec::new();
    let mut step = |name: &'static str, work: &dyn Fn() -> Result<()>| -> Result<()> {
        let begun = Instant::now();
        work().context(|| name.to_owned())?;
        let seconds = begun.elapsed().as_secs_f64();
        ctx.sink.note(&format!("step {name}: {seconds:.1} s"));
        steps.push((name, seconds));
        Ok(())
    };
    if let Some(filter) = &args.filter {
        let is_real = filter.starts_with("real") && is_file_of_tests(ctx.project.root(), filter);
        if args.quick && is_real {
            let what = format!("the tests of {filter} need builds, and would leave themselves out");
            return Err(Error::usage(what).hint("leave out --quick"));
        }
        is_any(ctx, filter)?;
    }
    let mut server = None;
    if !args.quick {
        let base = ctx.project.base(None)?;
        step("lint", &|| {
            let outcome = super::lint::run(ctx, super::lint::LintArgs::default())?;
            passed(outcome.status == Status::Good, &outcome.text)
        })?;
        step("quick gate", &|| quick_gate(ctx))?;
        step("verify", &|| {
            let outcome = super::verify::run(ctx, super::verify::VerifyArgs::default())?;
            passed(outcome.status == Status::Good, &outcome.text)
        })?;
        server = Build::find(ctx, &base.id, Flavour::Vanilla, "cpu")?;
        step("bases", &|| {
            for base in ctx.project.upstreams()?.base {
                crate::vendor::ensure(ctx, &base)?;
            }
            Ok(())
        })?;
    }
    // Not a step: the runner's own summary is to be the last thing said.
    let begun = Instant::now();
    let mut tests = cargo(ctx.project.root(), args.filter.as_deref());
    if json {
        tests.stdout(std::io::stderr());
    }
    if let Some(server) = &server {
        tests
            .env(SERVER_VAR, server.program("llama-server"))
            .env(REAL_VAR, "1")
            .env(BASES_VAR, "1");
    }
    let status = tests.status()?;
    ctx.cancel.check()?;
    passed(status.success(), "a test failed")?;
    steps.push(("tests", begun.elapsed().as_secs_f64()));
    Ok(Outcome::good(String::new(), json!({ "steps": steps })))
}

/// The command that runs the tests of `filter`, or all.
fn cargo(root: &Path, filter: Option<&str>) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.arg("test").current_dir(root);
    match filter {
        Some(file) if is_file_of_tests(root, file) => {
            command.args(["--package", "xtask", "--test", file, "--"])
        }
        filter => {
            command.args(["--workspace", "--lib", "--bins", "--tests", "--"]);
            command.args(filter)
        }
    };
    command
}

fn is_file_of_tests(root: &Path, name: &str) -> bool {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    plain
        && root
            .join("xtask/tests")
            .join(format!("{name}.rs"))
            .is_file()
}

/// Fails where no test is of that name: none that runs is none that passes.
fn is_any(ctx: &Ctx, filter: &str) -> Result<()> {
    let count = |more: &[&str]| -> Result<usize> {
        let mut list = cargo(ctx.project.root(), Some(filter));
        let listed = list.args(more).stderr(Stdio::inherit()).output();
        let listed = listed
            .map_err(Error::from)
            .context(|| "asking cargo for the tests".to_owned())?;
        ctx.cancel.check()?;
        passed(listed.status.success(), "the tests do not build")?;
        Ok(tests_in(&String::from_utf8_lossy(&listed.stdout)))
    };
    let (all, ignored) = (count(&["--list"])?, count(&["--list", "--ignored"])?);
    let what = match (all, all.saturating_sub(ignored)) {
        (0, _) => format!("no test is called `{filter}`, or is in a file of that name"),
        (_, 0) => format!("all tests of `{filter}` are ignored, since they measure"),
        _ => return Ok(()),
    };
    Err(Error::usage(what)
        .hint("cargo xtask test --quick runs all that need no build")
        .hint("what measures is called by hand: cargo test -p xtask --test measure -- --ignored"))
}

/// How many tests a list of the test harness names.
fn tests_in(list: &str) -> usize {
    list.lines().filter(|line| line.ends_with(": test")).count()
}

/// The main job, quickly, with the flags of this call.
fn quick_gate(ctx: &Ctx) -> Result<()> {
    let request = gate::Request {
        quick: true,
        ..gate::Request::default()
    };
    let report = gate::run(ctx, &request, "cargo xtask gate --quick")?;
    for record in &report.records {
        ctx.sink.note(&gate::table::text(record, Signs::Ascii));
    }
    let report = match report.verdict {
        Verdict::Fail => report,
        _ => report.whole()?,
    };
    match report.verdict {
        Verdict::Pass => Ok(()),
        Verdict::Fail => Err(Error::finding("a gate failed")),
        Verdict::Inconclusive | Verdict::Skipped => {
            Err(Error::new(Kind::Inconclusive, "a gate could not tell"))
        }
    }
    .hint(|| format!("see {}", ctx.project.show(&report.report)))
}

fn passed(good: bool, what: &str) -> Result<()> {
    if good {
        Ok(())
    } else {
        Err(Error::finding(what.trim_end()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(filter: Option<&str>) -> Vec<String> {
        let root = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
        let command = cargo(root, filter);
        let words = command
            .get_args()
            .map(|word| word.to_string_lossy().into_owned());
        words.collect()
    }

    #[test]
    fn a_name_is_that_of_a_file_or_a_part_of_a_test_s() {
        let file = ["test", "--package", "xtask", "--test", "real_kernels", "--"];
        assert_eq!(words(Some("real_kernels")), file);
        let all = ["test", "--workspace", "--lib", "--bins", "--tests", "--"];
        assert_eq!(words(None), all);
        for name in ["kernels", "../tests/real_kernels", "support/real"] {
            assert_eq!(words(Some(name)), [&all[..], &[name]].concat());
        }
    }

    #[test]
    fn tests_are_counted_in_a_list() {
        assert_eq!(
            tests_in("0 tests, 0 benchmarks\n\n0 tests, 0 benchmarks\n"),
            0
        );
        assert_eq!(
            tests_in("a::b: test\nc: benchmark\nd: test\n\n2 tests, 1 benchmark\n"),
            2
        );
    }
}
