//! Which patch of the series first breaks a gate.
//!
//! Prefixes of the series are built and gated, the next one being chosen by a binary search
//! ([`mod@search`]). Working tree and builds are not the checkout's ([`crate::project::Project::aside`]).
//! A switch of a patch that is not applied cannot be set: it is left out, and where both sides
//! are then the same, there is nothing yet that could break the gate.

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Kind, Result};
use crate::gate::definition::{self, Plan};
use crate::gate::device;
use crate::gate::{Report, Request};
use crate::model::{GateBackend, Metric, SWITCH_PREFIX, SideDefinition, Verdict};
use crate::patchset::{Patch, Series};
use said::{BROKE, said};
use search::{Found, Step, search};

mod said;
pub mod search;

/// What to find.
#[derive(Clone, Debug, Default)]
pub struct Bisect {
    /// The gate, and how to run it.
    pub request: Request,
    /// Judge by this metric alone, in a gate of kind `perf`.
    pub metric: Option<Metric>,
    /// Find the file of the patch whose hooks break it, too.
    pub hooks: bool,
}

/// What came out.
#[derive(Clone, Debug, Serialize)]
pub struct Bisected {
    /// The gate.
    pub gate: String,
    /// The base.
    pub base: String,
    /// The series.
    pub patches: Vec<String>,
    /// Every run, in order.
    pub tested: Vec<Tested>,
    /// What the gate says of the whole series, as far as it was asked.
    pub outcome: BisectOutcome,
    /// Patches that may be to blame; one where it is found.
    pub suspects: Vec<String>,
    /// Of the one suspect: files whose hooks may be to blame, where that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hooks: Option<Vec<String>>,
    /// In one sentence.
    pub summary: String,
    /// Commands that show it again: just with the patches before, and with the one that breaks it.
    pub again: Vec<String>,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum BisectOutcome {
    /// There are suspects.
    Found,
    /// The gate passes with the whole series.
    NothingWrong,
    /// Nothing can be said.
    Unclear,
}

/// One run of the gate.
#[derive(Clone, Debug, Serialize)]
pub struct Tested {
    /// So many patches were applied.
    pub patches: usize,
    /// Hooks of so many files of the next patch besides; absent where that is not asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<usize>,
    /// What the gate said.
    pub verdict: Verdict,
    /// Why, or what else is to be known.
    pub reason: Option<String>,
    /// How long building and gating took.
    pub seconds: f64,
}

/// Finds it. `ctx` must stand aside of the checkout.
pub fn run(ctx: &Ctx, bisect: &Bisect) -> Result<Bisected> {
    if !ctx.project.is_aside() {
        return Err(Error::internal("a bisection would move the working tree"));
    }
    let base = ctx.project.base(bisect.request.base.as_deref())?;
    let series = Series::load(&ctx.project, &base)?;
    let plan = plan(ctx, bisect)?;
    let gate = plan.common().definition.id.clone();
    if series.patches.is_empty() {
        return Err(Error::usage(format!("the series of {} is empty", base.id)));
    }
    let mut work = Work {
        ctx,
        bisect,
        tested: Vec::new(),
        broke: false,
    };
    let starts = starts(&series, &plan);
    let last = series.patches.len();
    let found = search(last, &starts, &mut |count| {
        let patches = series.patches[..count].to_vec();
        work.test(patches, count, None, count == last)
    })?;
    let ids = series.ids();
    let (outcome, suspects, summary) = conclude(&found, &ids, &gate, &work.tested);
    let mut hooks = None;
    if let (true, Found::Between { good, bad }) = (bisect.hooks, found)
        && bad == good + 1
    {
        hooks = Some(by_hooks(&mut work, &series.patches[..bad])?);
    }
    let again = match found {
        Found::Between { good, bad } => [good, bad]
            .iter()
            .map(|count| again(&bisect.request, &gate, &ids, *count))
            .collect(),
        Found::BadFromStart { at } => vec![again(&bisect.request, &gate, &ids, at)],
        _ => Vec::new(),
    };
    Ok(Bisected {
        gate,
        base: base.id.clone(),
        patches: ids,
        tested: work.tested,
        outcome,
        suspects,
        hooks,
        summary,
        again,
    })
}

fn plan(ctx: &Ctx, bisect: &Bisect) -> Result<Plan> {
    let gates = &bisect.request.gates;
    let mut plans = definition::load(&ctx.project, gates, bisect.request.quick)?;
    let (Some(plan), true) = (plans.pop(), gates.len() == 1 && plans.is_empty()) else {
        return Err(Error::usage("a bisection needs exactly one gate")
            .hint("cargo xtask gate --bisect <gate>"));
    };
    let definition = &plan.common().definition;
    let built = |side: &SideDefinition| side.build.is_some();
    if bisect.request.servers.is_some() || !built(&definition.candidate) {
        return Err(Error::usage(format!(
            "the candidate of gate `{}` is no build of this project, so that there are no patches \
             to choose from",
            definition.id
        )));
    }
    if device::backends(definition) != [GateBackend::Cpu] {
        return Err(Error::usage("only builds for cpu can be made one by one"));
    }
    if let (Some(metric), Plan::Perf(_, perf)) = (bisect.metric, &plan) {
        if !perf.thresholds.contains_key(&metric) {
            return Err(Error::usage(format!(
                "gate `{}` has no threshold for {}",
                definition.id,
                metric.name()
            )));
        }
    } else if bisect.metric.is_some() {
        return Err(Error::usage(format!(
            "gate `{}` measures nothing: --metric is for gates of kind perf",
            definition.id
        )));
    }
    Ok(plan)
}

/// Where to begin: without any patch, else where the patches are there whose switches the gate
/// needs, one after another.
fn starts(series: &Series, plan: &Plan) -> Vec<usize> {
    let definition = &plan.common().definition;
    let mut needed: Vec<&str> = [&definition.baseline, &definition.candidate]
        .into_iter()
        .flat_map(|side| side.env.keys())
        .map(String::as_str)
        .filter(|name| name.starts_with(SWITCH_PREFIX))
        .collect();
    if matches!(plan, Plan::Drafts(..)) {
        needed.push(crate::gate::runner::TRACE);
    }
    let mut starts = vec![0];
    for (at, patch) in series.patches.iter().enumerate() {
        let switches = patch.manifest.switches.iter();
        if switches
            .into_iter()
            .any(|switch| needed.contains(&switch.as_str()))
        {
            starts.push(at + 1);
        }
    }
    starts
}

struct Work<'a> {
    ctx: &'a Ctx,
    bisect: &'a Bisect,
    tested: Vec<Tested>,
    /// Whether servers of the whole series break down: then that is what is looked for.
    broke: bool,
}

impl Work<'_> {
    fn test(
        &mut self,
        patches: Vec<Patch>,
        count: usize,
        files: Option<usize>,
        is_whole: bool,
    ) -> Result<Step> {
        let begun = std::time::Instant::now();
        let what = match files {
            None => format!("{count} of the patches"),
            Some(files) => format!("{count} of the patches and the hooks of {files} files"),
        };
        self.ctx.sink.note(&format!("bisecting: {what}"));
        let request = Request {
            patches: Some(patches),
            ..self.bisect.request.clone()
        };
        let report = super::run(self.ctx, &request, "cargo xtask gate").and_then(Report::whole);
        let broke = |error: &Error| error.to_string().contains(BROKE);
        let report = match report {
            // What cannot be built as a whole has to be mended first.
            Err(error) if is_whole && error.kind() != Kind::Inconclusive && !broke(&error) => {
                return Err(error.context("bisecting, the whole series"));
            }
            report => report,
        };
        let said = said(report, self.bisect.metric)?;
        if is_whole && said.broke {
            self.broke = true;
        }
        let verdict = match said.broke && self.broke {
            true => Verdict::Fail,
            false => said.verdict,
        };
        let reason = said.reason.as_deref();
        let reason = reason.map(|reason| reason.lines().next().unwrap_or_default().to_owned());
        self.ctx.sink.note(&format!(
            "bisecting: {what}: {verdict}{}",
            reason
                .as_ref()
                .map(|reason| format!(": {reason}"))
                .unwrap_or_default()
        ));
        self.tested.push(Tested {
            patches: count,
            files,
            verdict,
            reason,
            seconds: begun.elapsed().as_secs_f64(),
        });
        Ok(match verdict {
            Verdict::Pass => Step::Good,
            Verdict::Fail => Step::Bad,
            Verdict::Inconclusive | Verdict::Skipped => Step::Unclear { again: said.again },
        })
    }
}

/// Of one patch that breaks the gate: the files whose hooks do. Hooks are added file by file, in
/// the order of the hooks file; `patches` are the series up to and with that patch.
fn by_hooks(work: &mut Work<'_>, patches: &[Patch]) -> Result<Vec<String>> {
    let Some((last, before)) = patches.split_last() else {
        return Ok(Vec::new());
    };
    let files: Vec<String> = (last.hooks.iter())
        .map(|file| file.path.to_string())
        .collect();
    // What it breaks with no hook at all is its new files' doing, or that of the Rust library.
    let found = search(files.len(), &[0], &mut |count| {
        let mut some = last.clone();
        some.hooks.truncate(count);
        // The patch-set id is made of the text: this is another one.
        let cut = format!("\n{count} of {} files\n", files.len());
        some.hooks_text.extend(cut.as_bytes());
        let mut patches = before.to_vec();
        patches.push(some);
        work.test(patches, before.len(), Some(count), false)
    })?;
    Ok(match found {
        Found::Between { good, bad } => files[good..bad].to_vec(),
        Found::BadFromStart { .. } => vec!["(its new files, without any hook)".to_owned()],
        _ => files,
    })
}

fn conclude(
    found: &Found,
    ids: &[String],
    gate: &str,
    tested: &[Tested],
) -> (BisectOutcome, Vec<String>, String) {
    let reason = |count: usize| {
        let mut of = tested.iter().rev();
        let reason = of.find(|tested| tested.patches == count && tested.files.is_none());
        reason
            .and_then(|tested| tested.reason.as_ref())
            .map_or_else(String::new, |reason| format!(" ({reason})"))
    };
    match *found {
        Found::Nothing => (
            BisectOutcome::NothingWrong,
            Vec::new(),
            format!("gate `{gate}` passes with the whole series: there is nothing to find"),
        ),
        Found::EndUnclear => (
            BisectOutcome::Unclear,
            Vec::new(),
            format!(
                "nothing can be said of the whole series, so that there is nothing to look for{}",
                reason(ids.len())
            ),
        ),
        Found::StartUnclear => (
            BisectOutcome::Unclear,
            ids.to_vec(),
            "nothing can be said of any place to begin from".to_owned(),
        ),
        Found::BadFromStart { at: 0 } => (
            BisectOutcome::Found,
            Vec::new(),
            format!(
                "gate `{gate}` fails without any patch: no patch is to blame{}",
                reason(0)
            ),
        ),
        Found::BadFromStart { at } => (
            BisectOutcome::Found,
            ids[..at].to_vec(),
            format!(
                "gate `{gate}` fails with the first {at} patches already, the fewest that it can be \
                 judged with{}",
                reason(at)
            ),
        ),
        Found::Between { good, bad } => {
            let suspects = ids[good..bad].to_vec();
            let summary = match suspects.as_slice() {
                [one] => format!(
                    "`{one}` (patch {bad} of {}) is the first that breaks gate `{gate}`{}",
                    ids.len(),
                    reason(bad)
                ),
                several => format!(
                    "one of {} breaks gate `{gate}`; nothing can be said of the places between \
                     them",
                    several.join(", ")
                ),
            };
            (BisectOutcome::Found, suspects, summary)
        }
    }
}

/// The command that runs the gate with the first `count` patches.
fn again(request: &Request, gate: &str, ids: &[String], count: usize) -> String {
    let upto = match count.checked_sub(1).and_then(|at| ids.get(at)) {
        Some(id) => id.as_str(),
        None => "base",
    };
    let base = match &request.base {
        Some(base) => format!(" --base {base}"),
        None => String::new(),
    };
    let quick = if request.quick { " --quick" } else { "" };
    format!("cargo xtask gate --gate {gate} --upto {upto}{base}{quick}")
}

/// The patches of the series up to and with `upto`, which may be `base` for none.
pub fn upto(ctx: &Ctx, base: Option<&str>, upto: &str) -> Result<Vec<Patch>> {
    let base = ctx.project.base(base)?;
    let series = Series::load(&ctx.project, &base)?;
    let count = match upto {
        "base" => 0,
        id => series.position(id)?,
    };
    Ok(series.patches.into_iter().take(count).collect())
}

#[cfg(test)]
mod tests;
