//! `cargo xtask build`.

use serde_json::{Value, json};

use crate::build::launcher::{self, Chosen};
use crate::build::lookup::{Lookup, Machine};
use crate::build::{self, Build, CommandDifferences, FlagDifference};
use crate::cli::args::{BaseArg, VariantArgs};
use crate::cli::{Outcome, Status, build_cuda};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Flavour, Variant};

/// Flags of `build`.
#[derive(Debug, clap::Args)]
pub struct BuildArgs {
    #[command(flatten)]
    base: BaseArg,
    /// Build the pristine tree [default: both]
    #[arg(long)]
    vanilla: bool,
    /// Build the working tree, with the series applied [default: both]
    #[arg(long)]
    patched: bool,
    /// Where the models are to run: `cpu`, `vulkan`, `cuda`, or several with commas between them
    #[arg(
        long,
        value_name = "NAME",
        default_value = "cpu",
        value_delimiter = ','
    )]
    backend: Vec<String>,
    #[command(flatten)]
    cuda: build_cuda::CudaArgs,
    /// What compilers are called through: `ccache`, `sccache`, `icecc`, `none`, or `auto`, the
    /// first of ccache and sccache that is installed
    #[arg(long, value_name = "NAME", env = launcher::VAR, default_value = "auto")]
    launcher: String,
    #[command(flatten)]
    variant: VariantArgs,
    /// Remove what was built before
    #[arg(long)]
    force: bool,
}

impl BuildArgs {
    /// How the builds are made.
    pub fn variant(&self) -> Variant {
        self.variant.variant()
    }
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: BuildArgs) -> Result<Outcome> {
    for backend in &args.backend {
        build::backend(backend)?;
    }
    let gpus = args.cuda.gpus(&args.backend)?;
    let base = ctx.project.base(args.base.base.as_deref())?;
    let lookup: &dyn Lookup = &Chosen {
        machine: &Machine,
        launcher: &args.launcher,
    };
    let variant = args.variant();
    variant.check()?;
    if args.cuda.probe {
        if variant != Variant::default() {
            return Err(Error::usage("--probe is of the plain build")
                .hint("leave out --profile, --libraries and --cpu-variants"));
        }
        let flavour = match args.vanilla && !args.patched {
            true => Flavour::Vanilla,
            false => Flavour::Patched,
        };
        return build_cuda::probe(ctx, lookup, &base, flavour, gpus);
    }
    let both = args.vanilla == args.patched;
    let mut outcomes = Vec::new();
    for backend in &args.backend {
        let mut builds = Vec::new();
        for (flavour, wanted) in [
            (Flavour::Vanilla, args.vanilla),
            (Flavour::Patched, args.patched),
        ] {
            if !wanted && !both {
                continue;
            }
            let (force, gpus) = (args.force, gpus.clone());
            builds.push(match &**backend {
                build_cuda::NAME => {
                    build::cuda::ensure(ctx, lookup, &base, flavour, gpus, variant, force)?
                }
                _ => build::ensure_with(ctx, lookup, &base, flavour, backend, variant, force)?,
            });
        }
        let compared = match builds.as_slice() {
            [vanilla, patched] => Some((
                build::compare_flags(&vanilla.manifest, &patched.manifest),
                build::compare_commands(vanilla, patched)?,
            )),
            _ => None,
        };
        outcomes.push(outcome(ctx, &builds, compared));
    }
    Ok(joined(outcomes))
}

/// The outcomes of several backends as one: the worst status, and for `--json` one object each
/// below `backends` where there are several.
fn joined(outcomes: Vec<Outcome>) -> Outcome {
    match <[Outcome; 1]>::try_from(outcomes) {
        Ok([one]) => one,
        Err(several) => Outcome {
            text: several.iter().map(|one| one.text.as_str()).collect(),
            status: match several.iter().all(|one| one.status == Status::Good) {
                true => Status::Good,
                false => Status::Finding,
            },
            data: json!({
                "backends": several.into_iter().map(|one| one.data).collect::<Vec<_>>(),
            }),
        },
    }
}

fn outcome(
    ctx: &Ctx,
    builds: &[Build],
    compared: Option<(Vec<FlagDifference>, CommandDifferences)>,
) -> Outcome {
    let mut text = String::new();
    for build in builds {
        text.push_str(&summary(ctx, build));
    }
    let mut data = json!({
        "builds": builds.iter().map(|build| describe(ctx, build)).collect::<Vec<_>>(),
    });
    let mut status = Status::Good;
    if let Some((flags, commands)) = compared {
        if flags.is_empty() {
            text.push_str("same options and tools in both builds\n");
        } else {
            // The one is then no reference for the other.
            status = Status::Finding;
            text.push_str("the two builds differ in options or tools (vanilla, patched):\n");
            for flag in &flags {
                text.push_str(&format!("  {flag}\n"));
            }
        }
        text.push_str(&format!(
            "{} compile commands in common, {} of them differ; {} only in vanilla, {} only in \
             patched\n",
            commands.common,
            commands.changed.len(),
            commands.only_first.len(),
            commands.only_second.len()
        ));
        if !commands.changed.is_empty() || !commands.only_first.is_empty() {
            status = Status::Finding;
        }
        for command in &commands.changed {
            text.push_str(&format!("  {command}\n"));
        }
        data["flag_differences"] = json!(flags);
        data["command_differences"] = json!(commands);
    }
    Outcome { text, data, status }
}

fn describe(ctx: &Ctx, build: &Build) -> Value {
    json!({
        "dir": ctx.project.show(&build.dir),
        "manifest": build.manifest,
        "launcher": launcher::last(&build.dir),
    })
}

fn summary(ctx: &Ctx, build: &Build) -> String {
    let manifest = &build.manifest;
    let size: u64 = manifest
        .artifacts
        .iter()
        .map(|artifact| artifact.size)
        .sum();
    let patchset = match &manifest.patchset {
        Some(patchset) => format!(
            ", patch set {} ({})",
            patchset.id.short(),
            patchset.patches.join(", ")
        ),
        None => String::new(),
    };
    let launcher = launcher::last(&build.dir);
    let launcher = launcher.map_or_else(String::new, |stats| format!("  {}\n", stats.summary()));
    format!(
        "{}: {} programs and libraries, {}.{} MB, in {}{patchset}\n{launcher}",
        manifest.name(),
        manifest.artifacts.len(),
        size / 1_000_000,
        size % 1_000_000 / 100_000,
        ctx.project.show(&build.dir.join("out/bin")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::toy_ctx;

    #[test]
    fn one_finding_among_backends_is_a_finding() {
        let toy = toy_ctx();
        let good = || outcome(&toy.ctx, &[], None);
        assert_eq!(joined(vec![good()]).data, good().data);
        let both = joined(vec![good(), good()]);
        assert_eq!(both.status, Status::Good);
        assert_eq!(both.data["backends"][1], good().data);
        let mut bad = good();
        bad.status = Status::Finding;
        assert_eq!(joined(vec![bad, good()]).status, Status::Finding);
    }

    #[test]
    fn builds_that_differ_in_options_are_a_finding() {
        let toy = toy_ctx();
        let commands = CommandDifferences::default;
        let same = outcome(&toy.ctx, &[], Some((Vec::new(), commands())));
        assert_eq!(same.status, Status::Good);
        let flag = FlagDifference {
            name: "GGML_NATIVE".to_owned(),
            first: Some("ON".to_owned()),
            second: None,
        };
        let other = outcome(&toy.ctx, &[], Some((vec![flag], commands())));
        assert_eq!(other.status, Status::Finding);
        assert!(other.text.contains("GGML_NATIVE: ON and not set"));
        assert_eq!(other.data["flag_differences"][0]["name"], "GGML_NATIVE");
        assert_eq!(outcome(&toy.ctx, &[], None).status, Status::Good);
        // An object of vanilla that is compiled otherwise, or not at all, is vanilla's no more.
        let with = |change: &dyn Fn(&mut CommandDifferences)| {
            let mut differ = commands();
            change(&mut differ);
            outcome(&toy.ctx, &[], Some((Vec::new(), differ))).status
        };
        let lost = with(&|differ| differ.only_first.push("a.cpp".to_owned()));
        assert_eq!(lost, Status::Finding);
        let more = with(&|differ| differ.only_second.push("a.cpp".to_owned()));
        assert_eq!(more, Status::Good);
        let changed = with(&|differ| {
            differ.changed.push(build::ChangedCommand {
                file: "a.cpp".to_owned(),
                only_first: vec!["-O2".to_owned()],
                only_second: Vec::new(),
            });
        });
        assert_eq!(changed, Status::Finding);
    }
}
