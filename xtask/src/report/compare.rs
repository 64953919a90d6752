//! What differs between two records of one gate, and whether it became worse.
//!
//! Both records are verdicts of their own: candidate against baseline in one session. Compared
//! here is the earlier one (A) with the later one (B). What is not the same question (another
//! kind, model, prompt or number of tokens) is refused, with the reason.

mod figures;
pub mod show;
#[cfg(test)]
mod tests;

use std::path::Path;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::store::{Store, StoredRecord, read_record, read_run};
use crate::gate::table::place;
use crate::model::{CellRecord, GateRecord, Verdict};
use crate::report::cases::{cases, rank};
use crate::report::gather::subject;
use crate::report::visible::{all_visible, visible};
pub use figures::Figure;

/// Two runs, or two records.
#[derive(Clone, Debug, Serialize)]
pub struct Comparison {
    /// Over all gates: fail where something became worse, inconclusive where that cannot be
    /// said, else pass.
    pub verdict: Verdict,
    /// What A is.
    pub a: String,
    /// What B is.
    pub b: String,
    /// The gates that both have.
    pub gates: Vec<GateComparison>,
    /// Gates that only A has: B says nothing of them.
    pub lost: Vec<String>,
    /// Gates that only B has.
    pub new: Vec<String>,
}

/// One gate in both.
#[derive(Clone, Debug, Serialize)]
pub struct GateComparison {
    /// The gate.
    pub gate: String,
    /// What follows.
    pub verdict: Verdict,
    /// Verdicts of A and B.
    pub verdicts: [Verdict; 2],
    /// What A and B judged.
    pub judged: [String; 2],
    /// Cases whose verdict changed, became worse ones first.
    pub changed: Vec<Change>,
    /// Cases that both have.
    pub common: usize,
    /// Cases that only A has.
    pub lost: Vec<String>,
    /// Cases that only B has.
    pub new: Vec<String>,
    /// Sequences whose tokens are others in B.
    pub tokens: Vec<TokenChange>,
    /// Acceptance and speed that can be compared.
    pub figures: Vec<Figure>,
    /// What a reader should know before believing any of it.
    pub notes: Vec<String>,
}

/// A case with another verdict.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The case.
    pub case: String,
    /// In A.
    pub from: Verdict,
    /// In B.
    pub to: Verdict,
    /// Why, in B.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// A sequence with other tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TokenChange {
    /// The cell.
    pub cell: String,
    /// The prompt.
    pub prompt: String,
    /// Of which side: `baseline`, `candidate`, or `both`.
    pub side: &'static str,
    /// chash in A and in B, of the candidate where it changed, else of the baseline.
    pub chash: [String; 2],
}

/// Compares what `a` and `b` name: a record file, a folder of a run, a run of the store (its id,
/// the beginning of it, or `latest`), or one gate of a run (`RUN/GATE`).
pub fn compare(ctx: &Ctx, a: &str, b: &str) -> Result<Comparison> {
    in_store(&Store::below(&super::folder(ctx)), a, b)
}

fn in_store(store: &Store, a: &str, b: &str) -> Result<Comparison> {
    let (left, right) = (resolve(store, a)?, resolve(store, b)?);
    let find = |records: &[StoredRecord], gate: &str| {
        let mut records = records.iter();
        records
            .find(|s| s.record.gate == gate)
            .map(|s| s.record.clone())
    };
    let single = |records: &[StoredRecord]| records.len() == 1;
    let mut result = Comparison {
        verdict: Verdict::Pass,
        a: visible(a),
        b: visible(b),
        gates: Vec::new(),
        lost: Vec::new(),
        new: Vec::new(),
    };
    // Two records that were named are meant for each other, whatever their gates are called.
    if single(&left.records) && single(&right.records) && left.named && right.named {
        let gate = records(&left.records[0].record, &right.records[0].record)?;
        result.gates.push(gate);
    } else {
        for stored in &left.records {
            let gate = &stored.record.gate;
            match find(&right.records, gate) {
                Some(other) => result.gates.push(records(&stored.record, &other)?),
                None => result.lost.push(visible(gate)),
            }
        }
        let new = right.records.iter().map(|stored| &stored.record.gate);
        let new = new.filter(|gate| find(&left.records, gate).is_none());
        result.new = new.map(|gate| visible(gate)).collect();
        // Of what B set out to do and did not finish nothing is known.
        let unknown = right.missing.iter().map(|gate| visible(gate));
        for gate in unknown.collect::<Vec<_>>() {
            if !result.lost.contains(&gate) {
                result.lost.push(gate);
            }
        }
    }
    if result.gates.is_empty() {
        return Err(Error::usage(format!("{a} and {b} have no gate in common"))
            .hint(format!("{a}: {}", names(&left.records)))
            .hint(format!("{b}: {}", names(&right.records))));
    }
    let lost = result.lost.iter().map(|_| Verdict::Inconclusive);
    result.verdict = Verdict::all(result.gates.iter().map(|g| g.verdict).chain(lost));
    Ok(result)
}

fn names(records: &[StoredRecord]) -> String {
    let names: Vec<String> = records.iter().map(|s| visible(&s.record.gate)).collect();
    match names.is_empty() {
        true => "no readable record".to_owned(),
        false => names.join(", "),
    }
}

/// What one of the two names stands for.
struct Found {
    records: Vec<StoredRecord>,
    missing: Vec<String>,
    /// Whether it names one record, not a run.
    named: bool,
}

fn resolve(store: &Store, name: &str) -> Result<Found> {
    let path = Path::new(name);
    if path.is_file() {
        return Ok(Found {
            records: vec![read_record(path)?],
            missing: Vec::new(),
            named: true,
        });
    }
    // The id of a run does not begin so.
    if path.is_absolute() && !path.is_dir() {
        let what = match path.exists() {
            true => format!(
                "{} is neither a record nor a folder of records",
                visible(name)
            ),
            false => format!("there is no file {}", visible(name)),
        };
        return Err(
            Error::usage(what).hint("name a record, a run's folder, the id of a run, or `latest`")
        );
    }
    let (run, gate) = match (path.is_dir(), name.split_once('/')) {
        (true, _) => (read_run(path)?, None),
        (false, Some((run, gate))) => (store.read(&store.find(run)?)?, Some(gate)),
        (false, None) => (store.read(&store.find(name)?)?, None),
    };
    // A gate whose record is damaged must not be compared by leaving it out.
    if let Some(skipped) = run.skipped.first()
        && gate.is_none()
    {
        return Err(
            Error::config(format!("it cannot be read: {}", skipped.reason))
                .context(skipped.file.display().to_string())
                .hint(format!("compare one gate of the run: {name}/GATE")),
        );
    }
    let Some(gate) = gate else {
        return Ok(Found {
            records: run.records,
            missing: run.missing,
            named: false,
        });
    };
    let known: Vec<String> = run.records.iter().map(|s| s.record.gate.clone()).collect();
    let found = run.records.into_iter().find(|s| s.record.gate == gate);
    match found {
        Some(found) => Ok(Found {
            records: vec![found],
            missing: Vec::new(),
            named: true,
        }),
        None => Err(Error::usage(format!(
            "the run {} has no readable record of `{gate}`",
            run.id
        ))
        .hint(crate::project::suggest(
            gate,
            known.iter().map(String::as_str),
            "gates",
        ))),
    }
}

/// Compares two records. Refused where they answer different questions.
pub fn records(a: &GateRecord, b: &GateRecord) -> Result<GateComparison> {
    let (a, b) = (all_visible(a)?, all_visible(b)?);
    if let Some(reason) = incomparable(&a, &b) {
        return Err(
            Error::usage(format!("these records cannot be compared: {reason}"))
                .context(format!("gate {}", b.gate))
                .hint("compare two runs of one definition on one model"),
        );
    }
    let (left, right) = (cases(&a), cases(&b));
    let mut changed = Vec::new();
    let mut lost = Vec::new();
    let mut common = 0;
    let mut verdicts = Vec::new();
    for case in &left {
        let Some(other) = right.iter().find(|other| other.name == case.name) else {
            lost.push(case.name.clone());
            continue;
        };
        common += 1;
        verdicts.push(step(case.verdict, other.verdict));
        if case.verdict != other.verdict {
            changed.push(Change {
                case: case.name.clone(),
                from: case.verdict,
                to: other.verdict,
                reason: other.reason.clone(),
            });
        }
    }
    changed.sort_by_key(|change| rank(step(change.from, change.to)));
    let fresh = right
        .iter()
        .filter(|case| !left.iter().any(|l| l.name == case.name));
    for case in fresh.clone() {
        // What only B judged has nothing to be worse than, but a failure is one all the same.
        if case.verdict == Verdict::Fail && a.verdict != Verdict::Fail {
            verdicts.push(Verdict::Fail);
        }
    }
    let new = fresh.map(|case| case.name.clone()).collect();
    let figures = figures::figures(&a, &b);
    verdicts.extend(figures.iter().filter_map(|figure| figure.verdict));
    verdicts.push(step(a.verdict, b.verdict));
    // A quick run has fewer cells than a whole one by being asked to; any other one has lost them.
    // Where no cell is in both, nothing was compared.
    let is_part = b.quick && !a.quick;
    if common == 0 || (!lost.is_empty() && !is_part) {
        verdicts.push(Verdict::Inconclusive);
    }
    Ok(GateComparison {
        gate: b.gate.clone(),
        verdict: Verdict::all(verdicts),
        verdicts: [a.verdict, b.verdict],
        judged: [subject(&a), subject(&b)],
        changed,
        common,
        lost,
        new,
        tokens: tokens(&a, &b),
        figures,
        notes: notes(&a, &b),
    })
}

/// What a verdict that was `a` and is `b` says.
fn step(a: Verdict, b: Verdict) -> Verdict {
    match (a, b) {
        // It was known to fail: it did not become worse.
        (Verdict::Fail, Verdict::Fail) => Verdict::Pass,
        (_, Verdict::Fail) => Verdict::Fail,
        (_, Verdict::Pass) => Verdict::Pass,
        (Verdict::Skipped, Verdict::Skipped) => Verdict::Skipped,
        (_, Verdict::Inconclusive | Verdict::Skipped) => Verdict::Inconclusive,
    }
}

/// Why the two answer different questions, if they do.
fn incomparable(a: &GateRecord, b: &GateRecord) -> Option<String> {
    if a.kind != b.kind {
        return Some(format!("a gate of another kind ({:?}, {:?})", a.kind, b.kind).to_lowercase());
    }
    if a.model.sha256 != b.model.sha256 {
        return Some(format!(
            "other models: {} ({}) and {} ({})",
            a.model.name,
            a.model.sha256.short(),
            b.model.name,
            b.model.sha256.short()
        ));
    }
    if a.n_predict != b.n_predict {
        return Some(format!(
            "{} and {} tokens generated for each prompt",
            a.n_predict, b.n_predict
        ));
    }
    let mut shared = a.prompts.is_empty() && b.prompts.is_empty();
    for prompt in &a.prompts {
        let Some(other) = b.prompts.iter().find(|other| other.name == prompt.name) else {
            continue;
        };
        if (other.sha256, other.length) != (prompt.sha256, prompt.length) {
            return Some(format!(
                "the prompt `{}` is another one ({} and {})",
                prompt.name,
                prompt.sha256.short(),
                other.sha256.short()
            ));
        }
        shared = true;
    }
    (!shared).then(|| "they have no prompt in common".to_owned())
}

/// Cells with other tokens. Two cells with the same name were given the same prompts beside
/// each other only where all prompts are the same.
fn tokens(a: &GateRecord, b: &GateRecord) -> Vec<TokenChange> {
    let same_prompts = a.prompts == b.prompts;
    let mut changes = Vec::new();
    let cells = a
        .cells
        .iter()
        .filter(|cell| same_prompts || cell.slots == 1);
    for cell in cells {
        let same = |other: &&CellRecord| place(other) == place(cell);
        let Some(other) = b.cells.iter().find(same) else {
            continue;
        };
        let sides = cell.candidate.iter().zip(&cell.baseline);
        let others = other.candidate.iter().zip(&other.baseline);
        for ((candidate, baseline), (candidate_b, baseline_b)) in sides.zip(others) {
            let moved = [
                candidate.sha256 != candidate_b.sha256,
                baseline.sha256 != baseline_b.sha256,
            ];
            let (side, from, to) = match moved {
                [false, false] => continue,
                [true, true] => ("both", candidate, candidate_b),
                [true, false] => ("candidate", candidate, candidate_b),
                [false, true] => ("baseline", baseline, baseline_b),
            };
            changes.push(TokenChange {
                cell: place(cell),
                prompt: from.prompt.clone(),
                side,
                chash: [from.chash.clone(), to.chash.clone()],
            });
        }
    }
    changes
}

fn notes(a: &GateRecord, b: &GateRecord) -> Vec<String> {
    let mut notes = Vec::new();
    if a.gate != b.gate {
        notes.push(format!("records of two gates: {} and {}", a.gate, b.gate));
    }
    if a.definition != b.definition {
        notes.push("the definition or its prompts changed".to_owned());
    }
    if a.quick != b.quick {
        notes.push("only one of them is a quick run: what both have is compared".to_owned());
    }
    let base = |record: &GateRecord| record.baseline.artifacts.clone();
    if base(a) != base(b) {
        notes.push(
            "the baselines are other builds: each candidate was judged against its own".to_owned(),
        );
    }
    let host = |record: &GateRecord| record.run.as_ref().map(|run| run.host.clone());
    if let (Some(left), Some(right)) = (host(a), host(b))
        && left != right
    {
        notes.push("they ran on different machines".to_owned());
    }
    notes
}
