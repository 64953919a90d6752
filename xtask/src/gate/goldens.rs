//! Digests that were recorded once, and are compared with ever after.
//!
//! A comparison of two builds says nothing where both changed: by another compiler, by a fixture
//! that was made anew, by an upstream whose tree is not what it was. A golden does. It is of the
//! baseline, and holds for one base, model, backend and definition, and for one sort of machine,
//! since other processors round otherwise. Elsewhere there is none, which is said and fails nothing.

use std::collections::BTreeMap;
use std::path::PathBuf;

use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result, ResultExt};
use crate::gate::Request;
use crate::model::{
    Artifact, BuildManifest, Digest, Flavour, GateRecord, Golden, GoldenRecord, Goldens, Verdict,
};
use crate::patchset::count;
use crate::project::Project;

/// Stands above what is written.
const HEADER: &str = "\
# What gates are expected to give, by base, model, backend and sort of machine. Written by
# `cargo xtask gate --bless`, committed, and compared with by every gate: do not edit.
# See docs/reference/gates.md.
";

/// Differences that are named one by one.
const NAMED: usize = 6;

/// What is recorded, and for what.
#[derive(Clone, Debug)]
pub struct Book {
    file: PathBuf,
    goldens: Goldens,
}

/// What a golden is recorded for, besides gate, model and definition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The base.
    pub base: String,
    /// The backend.
    pub backend: String,
    /// See [`machine`].
    pub machine: String,
    /// Digest over the files of the vanilla build.
    pub files: Digest,
}

/// One digest that `--bless` changes.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Change {
    /// The gate.
    pub gate: String,
    /// What it is of.
    pub name: String,
    /// What was recorded.
    pub old: Option<Digest>,
    /// What is recorded now; absent where the gate no longer asks.
    pub new: Option<Digest>,
}

impl std::fmt::Display for Change {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let show =
            |digest: &Option<Digest>| digest.map_or("none".to_owned(), |digest| digest.short());
        write!(
            f,
            "{}: {}: {} -> {}",
            self.gate,
            self.name,
            show(&self.old),
            show(&self.new)
        )
    }
}

impl Place {
    /// Of a build of this project on this machine.
    pub fn of(manifest: &BuildManifest) -> Self {
        let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Place {
            base: manifest.base.clone(),
            backend: manifest.backend.clone(),
            machine: machine(std::env::consts::ARCH, &info, manifest),
            files: files(&manifest.artifacts),
        }
    }
}

/// What of a machine and of the compiler changes roundings: the architecture, the processor's
/// features that kernels are chosen by, the compiler, and the options of the build.
pub fn machine(arch: &str, cpuinfo: &str, manifest: &BuildManifest) -> String {
    let list = cpuinfo.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        matches!(name.trim(), "flags" | "Features").then_some(value)
    });
    // x86_64 has a feature `smep`, which says nothing of arithmetic.
    let families: &[&str] = match arch {
        "x86_64" | "x86" => &["avx512", "avx_", "avx10", "amx_"],
        _ => &["sve", "sme"],
    };
    let chosen = |feature: &&str| {
        FEATURES.contains(feature) || families.iter().any(|prefix| feature.starts_with(prefix))
    };
    let mut features: Vec<&str> = list
        .unwrap_or_default()
        .split_whitespace()
        .filter(chosen)
        .collect();
    features.sort_unstable();
    features.dedup();
    let features = match features.as_slice() {
        [] => "unknown".to_owned(),
        some => some.join(","),
    };
    let compilers: Vec<String> = (manifest.compilers.values())
        .map(|compiler| format!("{} {}", compiler.id, compiler.version))
        .collect();
    let mut flags = manifest.flags.clone();
    flags.retain(|name, _| !name.starts_with("OPENCOTI_"));
    let flags: Vec<String> = flags
        .iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    let flags = Digest::of(flags.join("\n").as_bytes()).short();
    format!(
        "{arch} {features}; {}; options {flags}",
        compilers.join(", ")
    )
}

/// Features that kernels are chosen by, beside families of them.
const FEATURES: [&str; 16] = [
    "sse3", "pni", "ssse3", "sse4_1", "sse4_2", "avx", "avx2", "f16c", "fma", "bmi2", "asimd",
    "asimddp", "asimdhp", "fphp", "i8mm", "bf16",
];

/// Whether the baseline of a record is the vanilla build that a golden is of. A server by path, one
/// that runs already and a build for another backend are something else under the same name.
fn is_vanilla(record: &GateRecord, place: &Place) -> bool {
    let side = &record.baseline;
    side.base.as_ref() == Some(&place.base)
        && side.flavour == Some(Flavour::Vanilla)
        && files(&side.artifacts) == place.files
}

fn files(artifacts: &[Artifact]) -> Digest {
    let digests = artifacts.iter().map(|artifact| artifact.sha256.bytes());
    Digest::of_parts(digests.map(|digest| digest.as_slice()))
}

/// What a record holds that can be recorded, by name: the baseline's digests.
pub fn entries(record: &GateRecord) -> BTreeMap<String, Digest> {
    let mut entries = BTreeMap::new();
    for cell in record.cells.iter().filter(|cell| cell.steps.is_none()) {
        // With other prompts beside it, a prompt may be rounded otherwise.
        let prompts: Vec<&str> = cell
            .baseline
            .iter()
            .map(|answer| answer.prompt.as_str())
            .collect();
        let mut name = format!("{}, n_max {}", prompts.join(" + "), cell.n_max);
        // Other flags may round otherwise; `--quick` may leave a setting out.
        if let Some(setting) = &cell.setting {
            name = format!("{setting}: {name}");
        }
        let digests: Vec<&[u8]> = cell
            .baseline
            .iter()
            .map(|answer| answer.sha256.bytes().as_slice())
            .collect();
        let digest = match cell.baseline.as_slice() {
            // What reports show is found again in the file.
            [one] => one.sha256,
            _ => Digest::of_parts(digests),
        };
        entries.insert(name, digest);
    }
    for logits in &record.logits {
        entries.insert(
            format!("{}, {}", logits.setting, logits.prompt),
            logits.baseline,
        );
    }
    entries
}

impl Book {
    /// Reads `gates/goldens.toml`; an empty one where there is none.
    pub fn load(project: &Project) -> Result<Self> {
        let file = project.root().join("gates/goldens.toml");
        let goldens: Goldens = match file.is_file() {
            true => crate::model::read_toml(&file).hint(|| {
                "cargo xtask gate --bless writes it; git has its earlier forms".to_owned()
            })?,
            false => Goldens {
                schema: 1,
                golden: Vec::new(),
            },
        };
        for (at, golden) in goldens.golden.iter().enumerate() {
            if (goldens.golden.iter().take(at)).any(|other| key(other) == key(golden)) {
                return Err(Error::config(format!(
                    "gate {} has two goldens for one base, model and sort of machine",
                    golden.gate
                ))
                .context(project.show(&file))
                .hint("a merge may have left both: take one out, or git has its earlier forms"));
            }
        }
        Ok(Book { file, goldens })
    }

    /// What the record of a gate has to do with what is recorded; `None` where it holds nothing that
    /// could be.
    pub fn judge(&self, record: &GateRecord, place: &Place) -> Option<GoldenRecord> {
        let found = entries(record);
        if found.is_empty() {
            return None;
        }
        let none = |reason: String| {
            Some(GoldenRecord {
                verdict: Verdict::Skipped,
                machine: place.machine.clone(),
                compared: 0,
                reason: self::reason(Verdict::Skipped, std::slice::from_ref(&reason)),
                reasons: vec![reason],
            })
        };
        if !is_vanilla(record, place) {
            return none(format!(
                "its baseline is not the vanilla build of {} for {}",
                place.base, place.backend
            ));
        }
        let Some(golden) = self
            .goldens
            .golden
            .iter()
            .find(|golden| is_of(golden, record, place))
        else {
            return none("there is none for this base, model and sort of machine".to_owned());
        };
        if golden.definition != record.definition {
            return none("it was recorded with another definition of the gate".to_owned());
        }
        let mut reasons = Vec::new();
        let mut compared = 0;
        for (name, digest) in &found {
            let golden = golden.entry.get(name);
            if golden.is_none() && record.quick {
                // Other prompts lie beside each other in the quick subset.
                continue;
            }
            compared += 1;
            match golden {
                Some(golden) if golden == digest => {}
                Some(golden) => reasons.push(format!(
                    "{name}: golden {}, baseline {}",
                    golden.short(),
                    digest.short()
                )),
                None => reasons.push(format!("{name}: the golden lacks it")),
            }
        }
        if compared == 0 {
            return none("the full gate runs nothing of the quick subset".to_owned());
        }
        if !record.quick {
            let gone = golden
                .entry
                .keys()
                .filter(|name| !found.contains_key(*name));
            reasons.extend(gone.map(|name| format!("{name}: the run lacks it")));
        }
        let verdict = if reasons.is_empty() {
            Verdict::Pass
        } else {
            Verdict::Fail
        };
        Some(GoldenRecord {
            verdict,
            machine: place.machine.clone(),
            compared,
            reason: reason(verdict, &reasons),
            reasons,
        })
    }

    /// Takes the records over, and says what changes. Records without anything to take over are
    /// passed by.
    pub fn bless(&mut self, records: &[GateRecord], place: &Place) -> Vec<Change> {
        let mut changes = Vec::new();
        for record in records {
            let entry = entries(record);
            if entry.is_empty() || !is_vanilla(record, place) {
                continue;
            }
            let list = &mut self.goldens.golden;
            let old = list
                .iter()
                .position(|golden| is_of(golden, record, place))
                .map(|at| list.remove(at));
            let old = old.map(|golden| golden.entry).unwrap_or_default();
            let mut names: Vec<&String> = old.keys().chain(entry.keys()).collect();
            names.sort();
            names.dedup();
            for name in names {
                let (old, new) = (old.get(name).copied(), entry.get(name).copied());
                if old != new {
                    changes.push(Change {
                        gate: record.gate.clone(),
                        name: name.clone(),
                        old,
                        new,
                    });
                }
            }
            list.push(Golden {
                gate: record.gate.clone(),
                base: place.base.clone(),
                model: record.model.sha256,
                backend: place.backend.clone(),
                machine: place.machine.clone(),
                definition: record.definition,
                entry,
            });
            list.sort_by_cached_key(key);
        }
        changes
    }

    /// Writes the file, in one step.
    pub fn write(&self) -> Result<()> {
        let text =
            toml::to_string(&self.goldens).map_err(|error| Error::internal(error.to_string()))?;
        crate::model::write_atomic(&self.file, format!("{HEADER}{text}").as_bytes())?;
        Ok(())
    }
}

/// What there is one golden for.
fn key(golden: &Golden) -> [String; 5] {
    [
        golden.gate.clone(),
        golden.base.clone(),
        golden.model.to_string(),
        golden.backend.clone(),
        golden.machine.clone(),
    ]
}

fn is_of(golden: &Golden, record: &GateRecord, place: &Place) -> bool {
    golden.gate == record.gate
        && golden.model == record.model.sha256
        && golden.base == place.base
        && golden.backend == place.backend
        && golden.machine == place.machine
}

/// Takes over what a record's golden says into its verdict. Of a baseline that differs from itself
/// no golden can say more than its control does.
pub fn apply(record: &mut GateRecord, golden: Option<GoldenRecord>) {
    let differs = golden
        .as_ref()
        .is_some_and(|golden| golden.verdict == Verdict::Fail);
    if differs && record.verdict == Verdict::Pass {
        record.verdict = Verdict::Fail;
    }
    record.golden = golden;
}

/// What a person reads of it.
pub fn line(golden: &GoldenRecord) -> String {
    match (golden.verdict, &golden.reason) {
        (Verdict::Skipped | Verdict::Inconclusive, Some(reason)) => {
            format!("golden: {reason} (this machine: {})", golden.machine)
        }
        (_, Some(reason)) => format!("golden: {reason}"),
        (_, None) => format!("golden: {} as recorded", count(golden.compared, "digest")),
    }
}

/// The reasons of a verdict in one line.
fn reason(verdict: Verdict, reasons: &[String]) -> Option<String> {
    let named = reasons.iter().take(NAMED).map(String::as_str);
    let named = named.collect::<Vec<_>>().join("; ");
    let more = match reasons.len().saturating_sub(NAMED) {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    match verdict {
        Verdict::Pass => None,
        Verdict::Skipped | Verdict::Inconclusive => Some(format!("not compared, {named}{more}")),
        Verdict::Fail => Some(format!(
            "the baseline itself is not what was recorded in gates/goldens.toml: {named}{more}"
        )),
    }
}

/// Refuses to bless where something in the checkout is not committed: nobody could tell later what
/// was blessed. The goldens themselves do not count.
pub fn check_committed(ctx: &Ctx) -> Result<()> {
    let root = ctx.project.root();
    let refuse = |what: String| {
        Error::usage(format!(
            "goldens are recorded of a committed state alone: {what}"
        ))
        .hint("commit or take back what differs, then bless again")
    };
    let repository = git2::Repository::discover(root).map_err(|error| {
        refuse(format!(
            "{} is in no git repository that can be read: {error}",
            root.display()
        ))
    })?;
    let mut options = git2::StatusOptions::new();
    options.include_untracked(true).include_ignored(false);
    let statuses = repository
        .statuses(Some(&mut options))
        .map_err(|error| refuse(error.to_string()))?;
    let changed: Vec<String> = (statuses.iter())
        .map(|entry| String::from_utf8_lossy(entry.path_bytes()).into_owned())
        .filter(|path| !path.ends_with("gates/goldens.toml"))
        .collect();
    match changed.as_slice() {
        [] => Ok(()),
        [first, ..] => Err(refuse(format!(
            "{} differ, first {first}",
            count(changed.len(), "file")
        ))),
    }
}

/// Refuses to bless what has no whole definition or no build behind it.
pub fn check_request(request: &Request) -> Result<()> {
    let plain = request.variant.is_plain();
    if request.quick || request.servers.is_some() || request.patches.is_some() || !plain {
        return Err(Error::usage(
            "goldens are recorded of whole definitions and of this project's builds",
        )
        .hint("cargo xtask gate --bless, without --quick, --baseline, --candidate, --upto and --profile"));
    }
    Ok(())
}

/// Refuses to bless records of which one is no pass. A gate that was skipped gives nothing to bless,
/// and hides nothing.
pub fn check_verdicts(records: &[GateRecord]) -> Result<()> {
    for record in records {
        let kind = match record.verdict {
            Verdict::Pass | Verdict::Skipped => continue,
            Verdict::Fail => Kind::Finding,
            Verdict::Inconclusive => Kind::Inconclusive,
        };
        return Err(Error::new(
            kind,
            format!(
                "nothing is recorded: gate {} gave {}",
                record.gate, record.verdict
            ),
        )
        .hint("a golden is what a run that passed gave"));
    }
    if records.iter().all(|record| entries(record).is_empty()) {
        return Err(Error::usage(
            "nothing is recorded: no gate of kind chash or logits was run",
        ));
    }
    Ok(())
}

/// Refuses to bless where no record is of the vanilla build for the CPU, of which alone there are goldens.
pub fn check_place(records: &[GateRecord], place: Option<&Place>) -> Result<()> {
    let takes = |record: &GateRecord| {
        place.is_some_and(|place| is_vanilla(record, place) && !entries(record).is_empty())
    };
    if records.iter().any(takes) {
        return Ok(());
    }
    Err(Error::usage(
        "nothing is recorded: no gate of kind chash or logits has the vanilla build for the CPU as its baseline",
    )
    .hint("goldens are of that build alone; take --bless out, or name another gate"))
}

#[cfg(test)]
mod tests;
