//! `cargo xtask sync`.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::cli::{Outcome, Status, gate};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::patchset::{Series, count};
use crate::symbols::Change;
use crate::sync::{self, Choices, End, HookReport, HookVerdict, PatchReport, PatchVerdict, Step};

/// Flags of `sync`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: 0 every hook has its place, and what was built passes · 1 somebody has \
                  to look: a conflict, a patch that is upstream, changed declarations (--check), a \
                  failed gate · 2 could not run · 3 a gate is inconclusive"
)]
pub struct SyncArgs {
    /// The base to go to
    #[arg(value_name = "BASE", required_unless_present_any = ["continue_", "skip", "abort"])]
    to: Option<String>,
    /// The base that the series comes from [default: the one that registry/upstreams.toml names]
    #[arg(long, value_name = "ID", conflicts_with_all = ["continue_", "skip", "abort"])]
    from: Option<String>,
    /// Only say what would happen; write nothing
    #[arg(long, requires = "to", conflicts_with_all = ["continue_", "skip", "abort"])]
    check: bool,
    /// Take what the working tree shows as the solution, and go on
    #[arg(long = "continue", conflicts_with_all = ["to", "skip", "abort"])]
    continue_: bool,
    /// Leave the patch out that the sync stopped at, and go on
    #[arg(long, conflicts_with_all = ["to", "abort"])]
    skip: bool,
    /// End the sync; the working tree is what it was before
    #[arg(long, conflicts_with = "to")]
    abort: bool,
    /// Leave this patch out of the new series; may be repeated
    #[arg(long, value_name = "ID")]
    skip_patch: Vec<String>,
    /// Retire this patch: it is in the new base; may be repeated
    #[arg(long, value_name = "ID")]
    retire: Vec<String>,
    /// Keep this patch although it seems to be in the new base; may be repeated
    #[arg(long, value_name = "ID")]
    keep: Vec<String>,
    /// Lines of hooks that a solution changes or leaves out are meant so
    #[arg(long, requires = "continue_")]
    accept_changes: bool,
    /// The new base has a series already: carry over in its place
    #[arg(long, requires = "to")]
    replace: bool,
    /// A clone of upstream: names the commits that touched a place
    #[arg(long, value_name = "DIR", conflicts_with = "abort")]
    history: Option<PathBuf>,
    /// Stop when the series is written; build and judge nothing
    #[arg(long)]
    no_gates: bool,
}

/// Moves a series to another base.
pub fn run(ctx: &Ctx, args: SyncArgs) -> Result<Outcome> {
    if args.abort {
        return abort(ctx);
    }
    let choices = Choices {
        skip: args.skip_patch.clone(),
        retire: args.retire.clone(),
        keep: args.keep.clone(),
        history: args.history.clone(),
        accept_changes: args.accept_changes,
        replace: args.replace,
    };
    let step = if args.continue_ {
        sync::resume(ctx, &choices)?
    } else if args.skip {
        sync::skip(ctx, &choices)?
    } else {
        let from = ctx.project.base(args.from.as_deref())?;
        let to = ctx.project.base(args.to.as_deref())?;
        if args.check {
            sync::look(ctx, &from, &to, &choices)?
        } else {
            sync::begin(ctx, &from, &to, &choices)?
        }
    };
    let mut outcome = outcome(&step);
    if let End::Done { series, .. } = &step.end {
        lint(ctx, &step, series, &mut outcome)?;
        if !args.no_gates {
            judge(ctx, series, &mut outcome)?;
        }
    }
    Ok(outcome)
}

fn abort(ctx: &Ctx) -> Result<Outcome> {
    let done = sync::abort(ctx)?;
    let mut text = format!(
        "the sync from {} to {} is ended; nothing of it is left",
        done.from, done.to
    );
    if let Some(dir) = &done.saved_to {
        text.push_str(&format!("\nwhat the working tree held was put under {dir}"));
    }
    Ok(Outcome::good(text, json!({ "aborted": done })))
}

/// What the rules say of the new series.
fn lint(ctx: &Ctx, step: &Step, series: &Series, outcome: &mut Outcome) -> Result<()> {
    let findings = crate::lint::run(ctx, &step.pristine.1, series, &[])?;
    for finding in &findings {
        outcome.text.push_str(&format!(
            "{}:{}: {}: {}\n  hint: {}\n",
            finding.file, finding.line, finding.rule, finding.message, finding.hint
        ));
    }
    if let Value::Object(data) = &mut outcome.data {
        data.insert("lint".to_owned(), json!(findings));
    }
    if !findings.is_empty() {
        outcome.status = Status::Finding;
    }
    Ok(())
}

/// Builds and gates the new series, and adds that to the answer.
fn judge(ctx: &Ctx, series: &Series, outcome: &mut Outcome) -> Result<()> {
    if series.base.partial {
        outcome.text.push_str(&format!(
            "\n{} is a partial tree: nothing is built from it",
            series.base.id
        ));
        return Ok(());
    }
    let gates = gate::of_base(ctx, &series.base.id)?;
    outcome.text.push_str("\n\n");
    outcome.text.push_str(&gates.text);
    if let Value::Object(data) = &mut outcome.data {
        data.insert("gates".to_owned(), gates.data);
    }
    if outcome.status == Status::Good {
        outcome.status = gates.status;
    }
    Ok(())
}

fn outcome(step: &Step) -> Outcome {
    let drift = &step.drift;
    let reports = &step.port.reports;
    let hooks: usize = reports.iter().map(|report| report.hooks.len()).sum();
    let mut text = format!(
        "{} to {}: {}, {}\n\n",
        step.from.id,
        step.to.id,
        count(reports.len(), "patch"),
        count(hooks, "hook")
    );
    let width = reports
        .iter()
        .map(|report| report.patch.len())
        .max()
        .unwrap_or_default();
    for report in reports {
        patch(&mut text, report, width);
    }
    if step.recalled > 0 {
        text.push_str(&format!(
            "{} solved as before, from vendor/.sync/solutions\n",
            step.recalled
        ));
    }
    if let Some(dir) = &step.saved_to {
        text.push_str(&format!("what the working tree held is kept under {dir}\n"));
    }
    drifts(&mut text, drift);
    let status = end(&mut text, step, drift);
    let data = json!({
        "from": step.from.id,
        "to": step.to.id,
        "complete": step.port.complete,
        "patches": reports,
        "recalled": step.recalled,
        "drift": drift,
        "saved_to": step.saved_to,
        "end": end_data(step),
    });
    Outcome { text, data, status }
}

fn patch(text: &mut String, report: &PatchReport, width: usize) {
    let mut counts: Vec<(HookVerdict, usize)> = Vec::new();
    for hook in &report.hooks {
        match counts.iter_mut().find(|(word, _)| *word == hook.verdict) {
            Some((_, count)) => *count += 1,
            None => counts.push((hook.verdict, 1)),
        }
    }
    counts.sort();
    let counts: Vec<String> = counts
        .iter()
        .map(|(word, count)| format!("{count} {word}"))
        .collect();
    let mut line = format!(
        "{:width$}  {:18}  {}",
        report.patch,
        report.verdict.word(),
        counts.join(", ")
    );
    line.truncate(line.trim_end().len());
    text.push_str(&line);
    text.push('\n');
    match &report.verdict {
        PatchVerdict::Upstreamed { evidence, .. } | PatchVerdict::Retired { evidence } => {
            for what in evidence {
                text.push_str(&format!("  {what}\n"));
            }
        }
        PatchVerdict::Blocked { by } => text.push_str(&format!("  it requires {by}\n")),
        PatchVerdict::Overlay { reason } => text.push_str(&format!("  {reason}\n")),
        PatchVerdict::Hooks { .. } | PatchVerdict::Skipped => {}
    }
    for hook in &report.hooks {
        self::hook(text, hook);
    }
}

fn hook(text: &mut String, hook: &HookReport) {
    let plain = matches!(
        hook.verdict,
        HookVerdict::Clean | HookVerdict::Shifted | HookVerdict::Absent
    );
    if plain && hook.note.is_empty() || hook.verdict == HookVerdict::Clean {
        return;
    }
    text.push_str(&format!("  {:10}  {}", hook.verdict, hook.before));
    if let Some(after) = &hook.after {
        text.push_str(&format!("\n{:14}now {after}", ""));
    }
    if !hook.note.is_empty() {
        text.push_str(&format!("\n{:14}{}", "", hook.note));
    }
    if let Some(patch) = &hook.blocked_by {
        text.push_str(&format!("\n{:14}waits for {patch}", ""));
    }
    for commit in &hook.commits {
        text.push_str(&format!("\n{:14}commit {commit}", ""));
    }
    text.push('\n');
}

fn drifts(text: &mut String, drift: &[sync::Drift]) {
    let real: Vec<&sync::Drift> = drift.iter().filter(|one| one.matters()).collect();
    if real.is_empty() {
        return;
    }
    text.push_str(&format!(
        "\n{} that the series uses changed; look at each use:\n",
        count(real.len(), "declaration")
    ));
    for one in real {
        let found = &one.declaration;
        let kind = found
            .kind
            .map_or_else(|| "variable".to_owned(), |kind| kind.to_string());
        let what = match found.change {
            Change::Removed => "removed",
            Change::Changed => "changed",
            Change::AddedOverload => "overload added",
            Change::Moved => "moved",
        };
        text.push_str(&format!("  {what}: {kind} {}\n", found.name));
        for (sign, place) in [('-', &found.before), ('+', &found.after)] {
            if let Some(place) = place {
                text.push_str(&format!(
                    "    {sign} {}:{}: {}\n",
                    place.file, place.line, place.signature
                ));
            }
        }
        let users: Vec<String> = one
            .used_by
            .iter()
            .map(|(patch, file)| format!("{patch} in {file}"))
            .collect();
        text.push_str(&format!("    used by {}\n", users.join(", ")));
    }
}

fn end(text: &mut String, step: &Step, drift: &[sync::Drift]) -> Status {
    text.push('\n');
    match &step.end {
        End::Looked { proof } => {
            if let Some(proof) = proof {
                self::proof(text, proof);
            }
            if !step.port.complete {
                text.push_str("nothing was written; the series needs a person\n");
                return Status::Finding;
            }
            text.push_str("nothing was written\n");
            if drift.iter().any(sync::Drift::matters) {
                Status::Finding
            } else {
                Status::Good
            }
        }
        End::Done {
            proof,
            series,
            files,
        } => {
            for file in files {
                text.push_str(&format!("  wrote   {file}\n"));
            }
            self::proof(text, proof);
            text.push_str(&format!(
                "the series of {} is {}\n",
                series.base.id,
                match series.ids().as_slice() {
                    [] => "empty".to_owned(),
                    ids => ids.join(", "),
                }
            ));
            Status::Good
        }
        End::Conflict { patch, files, tree } => {
            for (path, count) in files {
                text.push_str(&format!("  {tree}/{path}: {count} to solve\n"));
            }
            if files.is_empty() {
                text.push_str(&format!(
                    "  {tree}: put the lines above where they belong, in any of its files\n"
                ));
            }
            text.push_str(&format!(
                "stopped at {patch}. Edit these files, then cargo xtask sync --continue; --skip \
                 leaves the patch out, --abort ends the sync\n"
            ));
            Status::Finding
        }
        End::Decide { patch, open } => {
            decide(text, step, patch, *open);
            Status::Finding
        }
    }
}

/// What can be said of a patch that waits for a decision, and how.
fn decide(text: &mut String, step: &Step, patch: &str, open: bool) {
    let command = match open {
        true => "cargo xtask sync --continue".to_owned(),
        false => format!("cargo xtask sync {}", step.to.id),
    };
    let report = step.port.reports.iter().find(|one| one.patch == patch);
    let upstreamed =
        report.is_some_and(|one| matches!(one.verdict, PatchVerdict::Upstreamed { .. }));
    text.push_str(match open {
        true => "the sync waits for a decision:\n",
        false => "nothing was written; a decision is needed:\n",
    });
    if upstreamed {
        text.push_str(&format!(
            "  {command} --retire {patch}: it is upstream; leave it out and write down why\n  \
             {command} --keep {patch}: carry it over all the same\n"
        ));
    }
    text.push_str(&format!(
        "  {command} --skip-patch {patch}: leave it out of the new series\n"
    ));
    if !upstreamed {
        text.push_str("  or change the patch on its own base, and begin again\n");
    }
}

fn proof(text: &mut String, proof: &sync::Proof) {
    text.push_str(&format!(
        "old and new patched tree differ as the two bases do: {} and {} with the same bytes, {} \
         deleted",
        count(proof.same_hooks, "hook"),
        count(proof.same_overlay, "overlay file"),
        count(proof.deleted, "upstream line")
    ));
    if proof.left_over.is_empty() {
        text.push_str(", nothing is left over\n");
        return;
    }
    text.push_str("; left over:\n");
    for one in &proof.left_over {
        text.push_str(&format!("  {}: {}\n", one.patch, one.what));
        for (sign, lines) in [('-', &one.old), ('+', &one.new)] {
            for line in lines.lines() {
                text.push_str(&format!("    {sign}{line}\n"));
            }
        }
    }
}

fn end_data(step: &Step) -> Value {
    match &step.end {
        End::Looked { proof } => json!({ "is": "looked", "proof": proof }),
        End::Done {
            proof,
            series,
            files,
        } => json!({
            "is": "done", "proof": proof, "series": series.ids(), "patchset": series.id,
            "files": files,
        }),
        End::Conflict { patch, files, tree } => json!({
            "is": "conflict", "patch": patch, "files": files, "tree": tree,
        }),
        End::Decide { patch, open } => json!({ "is": "decide", "patch": patch, "open": open }),
    }
}
