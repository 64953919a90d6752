//! The command line as clap sees it. Names of flags follow cargo's.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::model::{Libraries, Processors, Profile, Variant};

/// Keep a series of patches alive on llama.cpp, build it, and prove that it is right.
#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    version,
    disable_help_subcommand = true
)]
#[command(
    after_help = "Exit codes: 0 done and good · 1 a finding · 2 could not run · 3 inconclusive"
)]
#[allow(missing_docs)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

/// Flags that every command takes.
#[derive(Debug, Args)]
pub struct Global {
    /// Print one JSON document on stdout instead of text; progress stays on stderr
    #[arg(long, global = true)]
    pub json: bool,
    /// Say more on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// When to use colour
    #[arg(long, global = true, value_name = "WHEN", default_value = "auto")]
    pub color: Color,
    /// Use only what is already on this machine
    #[arg(long, global = true)]
    pub offline: bool,
    /// Never install a missing build tool into target/
    #[arg(long, global = true)]
    pub no_provision: bool,
    /// Parallel build jobs [default: number of processors]
    #[arg(short, long, global = true, value_name = "N", value_parser = positive)]
    pub jobs: Option<usize>,
    /// The checkout to work in [default: the one around the current folder]
    #[arg(long, global = true, value_name = "DIR", env = "LLAMA_PATCHSET_ROOT")]
    pub root: Option<PathBuf>,
}

/// Colour of the output.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub enum Color {
    Auto,
    Always,
    Never,
}

impl Color {
    /// Makes it the choice of all streams.
    pub fn write_global(self) {
        match self {
            Color::Auto => anstream::ColorChoice::Auto,
            Color::Always => anstream::ColorChoice::Always,
            Color::Never => anstream::ColorChoice::Never,
        }
        .write_global();
    }
}

/// The base that a command works on.
#[derive(Debug, Default, Args)]
pub struct BaseArg {
    /// The base to work on [default: the one that registry/upstreams.toml names]
    #[arg(long, value_name = "ID")]
    pub base: Option<String>,
}

impl BaseArg {
    /// What to add to a command that is named to the user, so that it works on the same base.
    pub fn flag(&self) -> String {
        self.base
            .as_ref()
            .map_or_else(String::new, |base| format!(" --base {base}"))
    }
}

/// How the builds that a command is about are made.
#[derive(Debug, Args)]
pub struct VariantArgs {
    /// What compilers are asked to do: `asan` and `ubsan` build with sanitizers, whose reports fail
    /// a gate
    #[arg(long, value_name = "NAME", default_value = "release", value_parser = profile())]
    profile: Profile,
    /// Whether llama.cpp's libraries lie beside the programs or are inside them
    #[arg(long, value_name = "KIND", default_value = "shared", value_parser = ["shared", "static"])]
    libraries: String,
    /// The CPU backend compiled for each sort of processor instead of this one; the best is loaded
    /// at run time
    #[arg(long)]
    cpu_variants: bool,
}

impl VariantArgs {
    /// What they say.
    pub fn variant(&self) -> Variant {
        Variant {
            profile: self.profile,
            libraries: match &*self.libraries {
                "static" => Libraries::Static,
                _ => Libraries::Shared,
            },
            processors: match self.cpu_variants {
                true => Processors::All,
                false => Processors::Native,
            },
        }
    }
}

/// Reads the name of a profile.
fn profile() -> impl clap::builder::TypedValueParser<Value = Profile> {
    use clap::builder::TypedValueParser as _;
    let names = Profile::ALL.map(Profile::name);
    clap::builder::PossibleValuesParser::new(names).map(|name| {
        let known = Profile::ALL.into_iter().find(|one| one.name() == name);
        known.unwrap_or_default()
    })
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Say what is there, what is missing, and how to get it
    Doctor(super::doctor::DoctorArgs),
    /// Fetch, check and unpack a base
    Vendor(super::vendor::VendorArgs),
    /// Apply the series to the working tree
    Apply(super::apply::ApplyArgs),
    /// Take the series off the working tree
    Revert(super::revert::RevertArgs),
    /// Say what is applied, from hashes
    Status(super::status::StatusArgs),
    /// Begin a patch
    New(super::new::NewArgs),
    /// Put the working tree at a patch, to edit it
    Edit(super::edit::EditArgs),
    /// Apply the next patch to the working tree
    Push(super::goto::StepArgs),
    /// Take the last applied patch off the working tree
    Pop(super::goto::StepArgs),
    /// Put the working tree at a patch, the base or the top
    Goto(super::goto::GotoArgs),
    /// Move a patch to another place in the series
    Reorder(super::reorder::ReorderArgs),
    /// Move some files of a patch into a new patch behind it
    Split(super::split::SplitArgs),
    /// Take a patch into the one before it
    Fold(super::fold::FoldArgs),
    /// Give a patch another id
    Rename(super::rename::RenameArgs),
    /// Take a patch out of the series, and write down why
    Retire(super::retire::RetireArgs),
    /// Copy the working tree, edits and all; list the copies
    Snapshot(super::snapshot::SnapshotArgs),
    /// Make the working tree what a snapshot is
    Restore(super::snapshot::RestoreArgs),
    /// Take edits of the working tree into a patch; write registry and docs anew
    Refresh(super::refresh::RefreshArgs),
    /// Move a series to another base, and say what became of every hook
    Sync(super::sync::SyncArgs),
    /// Write patches as mails, as a quilt folder, or as one diff
    Export(super::export::ExportArgs),
    /// Take patches from mails, quilt folders or diffs into the series
    Import(super::import::ImportArgs),
    /// Check base, registry and working tree to the last byte
    Verify(super::verify::VerifyArgs),
    /// Check the series: additivity, markers, registry, gates, names, white space
    Lint(super::lint::LintArgs),
    /// Build vanilla and patched
    Build(super::build::BuildArgs),
    /// Say where a built file comes from, and whether its stamp holds
    Inspect(super::inspect::InspectArgs),
    /// Pack a build with its licences and patches, to be given away
    Package(super::package::PackageArgs),
    /// Make the tiny models that the gates run on
    Fixture(super::fixture::FixtureArgs),
    /// Prove that the series is right: the main job, sets up all it needs
    Gate(super::gate::GateArgs),
    /// Say which machines gates can run on, and what they are
    Hosts(super::hosts::HostsArgs),
    /// Rank the tokens of texts, for drafts over a part of the vocabulary
    Rank(super::rank::RankArgs),
    /// Show what gates found: a page, Markdown for a comment, JUnit XML
    Report(super::report::ReportArgs),
    /// Measure how fast this program is, beside others
    Bench(super::bench::BenchArgs),
    /// Test this project itself: lint, quick gate, verify, then the unit and integration tests
    Test(super::test::TestArgs),
}

impl Command {
    /// The name that the user typed.
    pub fn name(&self) -> &'static str {
        match self {
            Command::Doctor(_) => "doctor",
            Command::Vendor(_) => "vendor",
            Command::Apply(_) => "apply",
            Command::Revert(_) => "revert",
            Command::Status(_) => "status",
            Command::New(_) => "new",
            Command::Edit(_) => "edit",
            Command::Push(_) => "push",
            Command::Pop(_) => "pop",
            Command::Goto(_) => "goto",
            Command::Reorder(_) => "reorder",
            Command::Split(_) => "split",
            Command::Fold(_) => "fold",
            Command::Rename(_) => "rename",
            Command::Retire(_) => "retire",
            Command::Snapshot(_) => "snapshot",
            Command::Restore(_) => "restore",
            Command::Refresh(_) => "refresh",
            Command::Sync(_) => "sync",
            Command::Export(_) => "export",
            Command::Import(_) => "import",
            Command::Verify(_) => "verify",
            Command::Lint(_) => "lint",
            Command::Build(_) => "build",
            Command::Inspect(_) => "inspect",
            Command::Package(_) => "package",
            Command::Fixture(_) => "fixture",
            Command::Gate(_) => "gate",
            Command::Hosts(_) => "hosts",
            Command::Rank(_) => "rank",
            Command::Report(_) => "report",
            Command::Bench(_) => "bench",
            Command::Test(_) => "test",
        }
    }
}

fn positive(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(0) | Err(_) => Err("it must be a whole number from 1".to_owned()),
        Ok(number) => Ok(number),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_sound() {
        <super::Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn a_variant_is_named_alike_by_all_that_are_about_builds() {
        let asked = |words: &str| -> Variant {
            let words = format!("xtask {words}");
            let cli = Cli::try_parse_from(words.split(' ')).unwrap();
            match cli.command {
                Command::Build(args) => args.variant(),
                Command::Package(args) => args.variant(),
                Command::Gate(args) => args.variant(),
                other => panic!("{other:?}"),
            }
        };
        for command in ["build", "package", "gate"] {
            assert!(asked(command).is_plain(), "{command}");
            for flags in [
                " --profile asan",
                " --libraries static",
                " --cpu-variants",
                " --profile debug --libraries static --cpu-variants",
            ] {
                let variant = asked(&format!("{command}{flags}"));
                assert_eq!(variant.flags(), flags, "{command}");
            }
        }
    }

    /// What is recorded, brought elsewhere, or of parts of the series is of plain builds.
    #[test]
    fn a_gate_on_a_variant_is_no_other_sort_of_gate() {
        let flags = ["--profile asan", "--libraries static", "--cpu-variants"];
        for other in [
            "--bless",
            "--bisect chash",
            "--upto base",
            "--host a",
            "--prebuilt",
            "--baseline a --candidate b",
            "--compare a b",
        ] {
            let words = format!("xtask gate {other}");
            assert!(Cli::try_parse_from(words.split(' ')).is_ok(), "{other}");
            for flag in flags {
                let words = format!("xtask gate {other} {flag}");
                let error = Cli::try_parse_from(words.split(' ')).unwrap_err();
                let kind = error.kind();
                assert_eq!(kind, clap::error::ErrorKind::ArgumentConflict, "{words}");
            }
        }
    }
}
