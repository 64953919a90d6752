//! Servers under test, comparisons, verdicts, reports.
//!
//! | file | what it does |
//! | --- | --- |
//! | `choose` | which gates run where none is named |
//! | `definition`, `prompts` | `gates/*.toml` into plans, fully checked |
//! | `identity` | is each side the build that it is taken for, and are they two? |
//! | `held` | does a file stay what it was? |
//! | `switches` | does a side know the switches that it sets? |
//! | `device` | what a side computes on: chosen, and proven |
//! | `driver` | whether this machine runs the CUDA library of a side |
//! | `variant` | what a profile leaves out of a gate, and the time that it gives |
//! | `effect` | whether the switches of a side did anything |
//! | `ending` | whether a candidate ends when it is asked to |
//! | `sides` | the servers of a run: builds, programs, running servers |
//! | `missing` | what is not there, so that a gate is skipped |
//! | `unjudged` | the record of a gate that ended before it could judge |
//! | `remote` | what a server that runs already tells of itself |
//! | `texts` | prompts that are text into ids |
//! | `orphans` | what servers leave behind |
//! | `bisect` | which patch breaks a gate |
//! | `session` | what gates ask of servers: the [`Runner`](session::Runner) seam |
//! | `server`, `client`, `runner` | that seam with real servers |
//! | `pool` | several sessions at a time |
//! | `chash` | the comparison "same tokens" and its verdicts |
//! | `drafts` | the comparison "same drafts, bit for bit" and its verdicts |
//! | `acceptance` | the comparison "no fewer drafted tokens accepted" and its verdicts |
//! | `perf` | the comparison "not slower" and its verdicts |
//! | `logits` | the comparison "same logits, bit for bit", and the probe that reads them |
//! | `counters` | the comparison "the same counts, or better ones" |
//! | `retrieval` | needles in haystacks, found again or not |
//! | `integrity`, `artifacts` | what needs no model: the tree, and the built files |
//! | `checks` | questions with yes or no, which several kinds ask |
//! | `goldens` | what was recorded once, and `--bless` |
//! | `store` | records as plain files, run by run |
//! | `cases` | what a record judges, one by one, whatever its kind |
//! | `table`, `report` | records for people |
//! | `work` | what a kind of gate is given and gives back |
//!
//! A new kind of gate is a variant of [`definition::Plan`], a type for its definition, a module
//! beside `chash` with a function `gate`, a match arm in `compare`, and a field in [`work::Found`] and
//! in [`GateRecord`]. The compiler names the other places but two: `definition::load_one` reads the kind,
//! and `table` shows its rows.

pub mod acceptance;
pub mod artifacts;
pub mod bisect;
pub mod cases;
pub mod chash;
pub mod checks;
mod choose;
pub mod client;
pub mod counters;
pub mod definition;
pub mod device;
pub mod drafts;
mod driver;
pub mod effect;
mod ending;
pub mod goldens;
mod held;
pub mod identity;
pub mod integrity;
pub mod logits;
pub mod missing;
pub mod orphans;
pub mod perf;
pub mod pool;
pub mod prompts;
pub mod remote;
pub mod report;
pub mod retrieval;
pub mod runner;
pub mod server;
pub mod session;
mod sides;
pub mod store;
mod switches;
pub mod table;
#[cfg(test)]
pub(crate) mod testing;
pub mod texts;
mod unjudged;
mod variant;
pub mod work;

pub use choose::LeftOut;
pub use sides::{built_for, of_another_base, ready_builds};

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Instant;

use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result};
use crate::model::{
    Digest, GateRecord, HostStamp, ModelSource, ModelStamp, PromptStamp, SkippedGate, Variant,
    Verdict,
};
use crate::patchset::Patch;
use definition::Plan;
use ending::Ending;
use held::Held;
use session::Halt;
use sides::{Sides, void};
use work::{Found, Work};

/// What to gate.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// The gates, or all where empty.
    pub gates: Vec<String>,
    /// The base; the default one where absent.
    pub base: Option<String>,
    /// Run only the quick subsets.
    pub quick: bool,
    /// Keep the servers' logs though all went well.
    pub keep_logs: bool,
    /// A GGUF file instead of the definitions' models.
    pub model: Option<PathBuf>,
    /// Record what the gates give in `gates/goldens.toml`.
    pub bless: bool,
    /// Two llama-server programs instead of this project's builds: baseline and candidate.
    pub servers: Option<(PathBuf, PathBuf)>,
    /// Run servers that carry no stamp of where they come from, or one that does not hold.
    pub unstamped: bool,
    /// How the builds are made; only the plain ones are compared with goldens.
    pub variant: Variant,
    /// Only these patches of the series, without the switches of the others. Needs a project that
    /// stands aside of the checkout.
    pub patches: Option<Vec<Patch>>,
    /// Builds were brought here, and there is nothing to build from; see [`crate::hosts`].
    pub prebuilt: bool,
}

/// What a run left.
#[derive(Debug)]
pub struct Report {
    /// One per gate.
    pub records: Vec<GateRecord>,
    /// The files that they were written to, in the same order.
    pub files: Vec<PathBuf>,
    /// The Markdown report.
    pub report: PathBuf,
    /// Gates that did not run since something is not there.
    pub skipped: Vec<SkippedGate>,
    /// Gates that are not for this run, since nobody named them.
    pub left_out: Vec<LeftOut>,
    /// Over all gates. Those that were skipped count where they were named; where nothing ran,
    /// nothing can be said.
    pub verdict: Verdict,
    /// What `--bless` changed in `gates/goldens.toml`.
    pub blessed: Vec<goldens::Change>,
    /// The run's id in the [store].
    pub run: String,
    /// Why gates could not run to their end, each with its gate as context. Each has a record.
    pub errors: Vec<Error>,
    /// A gate that was named, or every gate, lacks what it needs here: the run could not do its work.
    /// Never so for what another machine brought: that one tells of it.
    pub lacking: bool,
}

impl Report {
    /// The report, or the first error where a gate could not run.
    pub fn whole(mut self) -> Result<Self> {
        match self.errors.is_empty() {
            true => Ok(self),
            false => Err(self.errors.swap_remove(0)),
        }
    }
}

/// Runs gates and writes their records and the report below `target/gate/`. `command` is what
/// the report names for running it again.
pub fn run(ctx: &Ctx, request: &Request, command: &str) -> Result<Report> {
    if request.bless {
        goldens::check_request(request)?;
        goldens::check_committed(ctx)?;
    }
    let (mut plans, left_out) = chosen(ctx, request)?;
    variant::fit(ctx, request.variant, &mut plans)?;
    let dir = ctx.project.gate_dir();
    fs_err::create_dir_all(&dir)?;
    // Of two runs on one host, each in a folder of its own, the second waits.
    let beside = ctx.project.root().parent().filter(|_| request.prebuilt);
    let _host = match beside {
        Some(dir) => Some(crate::lock::file(ctx, &dir.join(".lock"))?),
        None => None,
    };
    let _lock = crate::lock::file(ctx, &dir.join(".lock"))?;
    // Another run that was waited for may have recorded some.
    let mut book = goldens::Book::load(&ctx.project)?;
    // A run that breaks off must not leave an older run's verdict to be read as its own.
    forget(&dir, &plans)?;
    let left = orphans::sweep();
    if left > 0 {
        ctx.sink.warn(&format!(
            "ended {left} process(es) of servers that a killed run had left behind"
        ));
    }
    // First what is there: a missing model must not cost a build.
    let (ready, skipped) = missing::part(ctx, request, plans)?;
    let names = ready
        .iter()
        .map(|(plan, _)| plan.common().definition.id.clone());
    let store = store::Store::below(&dir);
    let run = store.begin(store::Intent {
        command: command.to_owned(),
        quick: request.quick,
        named: !request.gates.is_empty(),
        gates: names.collect(),
        skipped: skipped.clone(),
        host: host(),
    })?;
    // A build that breaks must not leave the run before it as the latest.
    let sides = Sides::prepare(ctx, request, &ready)?;
    let place = sides
        .vanilla()
        // Other options, other roundings.
        .filter(|_| request.variant.is_plain())
        .map(goldens::Place::of);
    let mut errors: Vec<Error> = Vec::new();
    let mut records = Vec::new();
    let mut files = Vec::new();
    for (plan, model) in ready {
        let gate = &plan.common().definition.id;
        let begun = (now(), Instant::now());
        let mut record = match run_one(ctx, request, &plan, model.clone(), &sides, &dir) {
            Ok(record) => record,
            Err(error) if stops(ctx, error.kind()) => {
                return Err(error.context(format!("gate {gate}")));
            }
            // The gates after it can still say something.
            Err(error) => {
                let record = unjudged::record(&plan, model, &sides, &error, begun);
                if error.kind() != Kind::Inconclusive {
                    errors.push(error.context(format!("gate {gate}")));
                }
                record
            }
        };
        if let Some(place) = place.as_ref().filter(|_| !request.bless) {
            let golden = book.judge(&record, place);
            goldens::apply(&mut record, golden);
        }
        files.push(run.add(&mut record)?);
        crate::model::write_json(&latest(&dir, gate), &record)?;
        records.push(record);
    }
    let all = (records.iter().map(|record| record.verdict))
        .chain(skipped.iter().map(|_| Verdict::Skipped));
    let named = !request.gates.is_empty();
    let verdict = Verdict::all(all.map(|verdict| missing::counted(verdict, named)));
    let lacking = !request.prebuilt && !skipped.is_empty() && (named || records.is_empty());
    let report = dir.join("report.md");
    let text = report::report(&records, command);
    let mut text = missing::headline(&text, &records, &skipped, verdict);
    text.push_str(&missing::section(&skipped));
    crate::model::write_atomic(&report, text.as_bytes())?;
    let mut blessed = Vec::new();
    if request.bless && !errors.is_empty() {
        return Err(errors.swap_remove(0));
    }
    if request.bless {
        goldens::check_verdicts(&records)?;
        goldens::check_place(&records, place.as_ref())?;
    }
    if let Some(place) = place.filter(|_| request.bless) {
        // What was edited meanwhile was perhaps run.
        goldens::check_committed(ctx)?;
        // Building and running take long: what somebody recorded meanwhile must stay.
        book = goldens::Book::load(&ctx.project)?;
        blessed = book.bless(&records, &place);
        for change in &blessed {
            ctx.sink.note(&format!("golden {change}"));
        }
        book.write()?;
    }
    Ok(Report {
        blessed,
        verdict,
        records,
        files,
        report,
        skipped,
        left_out,
        run: run.stamp().id.clone(),
        errors,
        lacking,
    })
}

/// The gates of a request: those that it names, or those of its base that run by default.
pub fn plans(ctx: &Ctx, request: &Request) -> Result<Vec<Plan>> {
    chosen(ctx, request).map(|(plans, _)| plans)
}

/// As [`plans`], with those that are left out.
fn chosen(ctx: &Ctx, request: &Request) -> Result<(Vec<Plan>, Vec<LeftOut>)> {
    let mut plans = definition::load(&ctx.project, &request.gates, request.quick)?;
    let mut left_out = Vec::new();
    if request.gates.is_empty() {
        if request.servers.is_none() {
            left_out = choose::of_base(ctx, request.base.as_deref(), &mut plans)?;
        }
        left_out.extend(choose::defaults(ctx, &mut plans)?);
    }
    Ok((plans, left_out))
}

/// Whether an error of one gate ends the run: it is not about that gate's servers.
fn stops(ctx: &Ctx, kind: Kind) -> bool {
    ctx.cancel.is_set()
        || match kind {
            Kind::Interrupted | Kind::Usage | Kind::Config | Kind::Internal => true,
            Kind::Finding | Kind::Inconclusive | Kind::Environment => false,
        }
}

fn latest(dir: &Path, gate: &str) -> PathBuf {
    dir.join(format!("latest-{gate}.json"))
}

fn forget(dir: &Path, plans: &[Plan]) -> Result<()> {
    for plan in plans {
        remove(&latest(dir, &plan.common().definition.id))?;
    }
    forget_reports(dir)
}

/// Removes what an older run says for people in `dir`, the folder of gates.
pub fn forget_reports(dir: &Path) -> Result<()> {
    remove(&dir.join("report.md"))?;
    remove(&dir.join("report.html"))
}

fn remove(path: &Path) -> Result<()> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        _ => Ok(()),
    }
}

fn host() -> HostStamp {
    let machine = perf::machine::begin();
    HostStamp {
        name: None,
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        processors: machine.processors,
        model: machine.model,
    }
}

fn now() -> String {
    let now = jiff::Timestamp::now();
    now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A new folder below `dir` for the logs of a gate: one of the same second must not be taken for its own.
fn log_folder(dir: &Path, started: &str, gate: &str) -> Result<PathBuf> {
    fs_err::create_dir_all(dir)?;
    let name = format!("{}-{gate}", file_time(started));
    let mut path = dir.join(&name);
    for number in 2..u32::MAX {
        match std::fs::create_dir(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                path = dir.join(format!("{name}-{number}"));
            }
            Err(error) => return Err(error.into()),
            Ok(()) => break,
        }
    }
    Ok(path)
}

/// `2026-07-29T12:34:56Z` as part of a file name.
fn file_time(time: &str) -> String {
    time.chars().filter(|c| !matches!(c, ':' | '-')).collect()
}

fn model_stamp(name: String, model: &Path) -> Result<(ModelStamp, Option<Held>)> {
    if model.as_os_str().is_empty() {
        return Ok((ModelStamp::none(), None));
    }
    let held = Held::take(model)?;
    let stamp = ModelStamp {
        name,
        size: held.size(),
        sha256: held.sha256(),
    };
    Ok((stamp, Some(held)))
}

/// Fails where a model is no longer what was stamped: then the servers may have read different ones.
fn check_model(what: &str, path: &Path, held: Option<&Held>) -> Result<()> {
    match held.is_none_or(Held::stays) {
        true => Ok(()),
        false => Err(Error::environment(format!(
            "{what} {} was replaced while it was compared",
            path.display()
        ))
        .hint("run the same command again once nothing writes to it")),
    }
}

/// Names the variables of our own environment that the servers do not see.
fn say_what_is_removed(ctx: &Ctx) {
    let removed = server::removed_variables();
    if !removed.is_empty() {
        let names: Vec<_> = removed.iter().map(|name| name.to_string_lossy()).collect();
        ctx.sink.detail(&format!(
            "not passed on to the servers: {}",
            names.join(" ")
        ));
    }
}

/// Runs one gate: prepares both sides, lets its kind compare, and checks afterwards that what was
/// compared is still what was checked.
fn run_one(
    ctx: &Ctx,
    request: &Request,
    what: &Plan,
    (name, model): (String, PathBuf),
    sides: &Sides<'_>,
    dir: &Path,
) -> Result<GateRecord> {
    let begun = Instant::now();
    let started = now();
    let mut plan = what.common().clone();
    let definition = what.common().definition.clone();
    let definition = &definition;
    let (model_stamp, held) = model_stamp(name, &model)?;
    let draft_model = missing::draft_model(ctx, definition)?;
    let draft_held = match &draft_model {
        Some((_, path)) => Some(Held::take(path)?),
        None => None,
    };
    let baseline = sides.side(definition, &definition.baseline, false, &model)?;
    let candidate = sides.side(definition, &definition.candidate, true, &model)?;
    say_what_is_removed(ctx);
    let logs = log_folder(&dir.join("logs"), &started, &definition.id)?;
    let runner = runner::ServerRunner {
        definition,
        model: &model,
        draft_model: draft_model.as_ref().map(|(_, path)| path.as_path()),
        baseline: &baseline,
        candidate: &candidate,
        effects: sides.effects(),
        doubts: Mutex::default(),
        asides: Mutex::default(),
        ends: Mutex::default(),
        logs: logs.clone(),
    };
    // Several copies of a model of unknown size may not fit into memory.
    // A server that runs already gets one gate's prompts at a time.
    let running = baseline.running.is_some() || candidate.running.is_some();
    let parallel = match request.model {
        Some(_) => 1,
        None if running => 1,
        None => definition.parallel.min(ctx.jobs),
    };
    let task = ctx.sink.task(&format!("gate {}", definition.id), None);
    let halt = Halt::new(&ctx.cancel).within(definition.budget);
    let texts = texts::resolve(&mut plan, &runner, &halt)?;
    let found = compare(
        what,
        &Work {
            ctx,
            plan: &plan,
            runner: &runner,
            parallel,
            halt: &halt,
            task: task.as_ref(),
            origin: sides.origin(),
        },
    )?;
    // What was compared must still be what was checked.
    baseline.check_files()?;
    candidate.check_files()?;
    check_model("the model", &model, held.as_ref())?;
    if let Some((_, path)) = &draft_model {
        check_model("the draft model", path, draft_held.as_ref())?;
    }
    // Where nothing is run, nothing can be run on the same thing twice.
    let runs = definition.model != ModelSource::None;
    let nothing = match runs {
        true => void(sides, definition, &baseline, &candidate)?
            .or_else(|| switches::idle(sides.effects(), &plan.n_max, &baseline, &candidate)),
        false => None,
    };
    let mut notes = found.notes.clone();
    let (hangs, doubtful) = match runner.ending() {
        Ending::Well => (None, None),
        Ending::Alike(what) => {
            notes.push(what);
            (None, None)
        }
        Ending::Doubtful(what) => (None, Some(what)),
        Ending::Hangs(what) => (Some(what), None),
    };
    let is_fault = hangs.is_some();
    let reason = (found.skipped.clone())
        .or(hangs)
        .or(nothing)
        .or_else(|| runner.doubt())
        .or(doubtful);
    let verdict = match (&reason, found.verdict()) {
        (_, Verdict::Fail) => Verdict::Fail,
        _ if is_fault => Verdict::Fail,
        (_, Verdict::Skipped) => Verdict::Skipped,
        (Some(_), _) => Verdict::Inconclusive,
        (None, verdict) => verdict,
    };
    task.finish(&verdict.to_string());
    if verdict == Verdict::Pass && !request.keep_logs {
        runner::remove_logs(&logs)?;
    } else {
        ctx.sink
            .note(&format!("server logs: {}", ctx.project.show(&logs)));
    }
    Ok(GateRecord {
        schema: store::SCHEMA,
        run: None,
        gate: definition.id.clone(),
        kind: definition.kind,
        title: definition.title.clone(),
        definition: plan.digest,
        started,
        seconds: begun.elapsed().as_secs_f64(),
        quick: plan.quick,
        verdict,
        reason,
        model: model_stamp,
        baseline: baseline.final_stamp()?,
        candidate: candidate.final_stamp()?,
        n_predict: definition.n_predict,
        n_max: plan.n_max.clone(),
        slots: plan.slots.clone(),
        prompts: (plan.prompts.iter())
            .map(|prompt| prompt_stamp(prompt, texts.get(&prompt.name).copied()))
            .collect(),
        perf: found.perf,
        acceptance: found.acceptance,
        checks: found.checks,
        logits: found.logits,
        probes: found.probes,
        counters: found.counters,
        retrieval: found.retrieval,
        golden: None,
        cells: found.cells,
        drafted_against_plain: found.drafted_against_plain,
        notes: [
            draft_model.into_iter().map(|(note, _)| note).collect(),
            notes,
            sides::remarks(sides, definition, &baseline, &candidate),
        ]
        .concat(),
    })
}

/// Each kind has one entry.
fn compare(what: &Plan, work: &Work<'_>) -> Result<Found> {
    match what {
        Plan::Chash(_) => chash::gate(work),
        Plan::Drafts(_, settings) => drafts::gate(work, settings),
        Plan::Acceptance(_, bars) => acceptance::gate(work, *bars),
        Plan::Perf(_, perf) => perf::gate(work, perf),
        Plan::Integrity(_) => integrity::gate(work),
        Plan::Artifacts(_, allow) => artifacts::gate(work, allow),
        Plan::Logits(_, plan) => logits::gate(work, plan),
        Plan::Counters(_, plan) => counters::gate(work, plan),
        Plan::Retrieval(_, plan) => retrieval::gate(work, plan),
    }
}

fn prompt_stamp(prompt: &session::Prompt, text: Option<Digest>) -> PromptStamp {
    PromptStamp {
        name: prompt.name.clone(),
        length: prompt.ids.len(),
        sha256: chash::digest(&prompt.ids),
        text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_gates_of_one_second_have_folders_of_their_own() {
        let dir = tempfile::tempdir().unwrap();
        let made = || log_folder(&dir.path().join("logs"), "2026-01-02T03:04:05Z", "g").unwrap();
        let (first, second) = (made(), made());
        assert_ne!(first, second);
        assert!(first.is_dir() && second.is_dir());
        assert!(first.ends_with("logs/20260102T030405Z-g"), "{first:?}");
    }
}
