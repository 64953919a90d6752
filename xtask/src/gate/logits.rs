//! The gate "same logits, bit for bit".
//!
//! A server tells probabilities of some tokens, after a softmax in which a wrong last bit may drown.
//! So a small program of our own ([`probe`]) is compiled against the headers of each build and
//! linked to its library. It decodes the given ids, a part in batches and the rest one at a time,
//! and writes every logit of every position. For each setting it is run with the baseline, with the
//! baseline again as the A/A control, and with the candidate.

use std::path::PathBuf;
use std::sync::Mutex;

use crate::ctx::Task;
use crate::error::{Error, Result, ResultExt};
use crate::gate::pool;
use crate::gate::session::{Halt, Prompt, Run};
use crate::gate::table::Signs;
use crate::gate::work::{Found, Work};
use crate::model::{
    LogitsAllow, LogitsDifference, LogitsGate, LogitsRecord, LogitsSetting, RowDifference, Verdict,
};
use compare::{Compared, compare};

pub mod compare;
pub mod probe;

/// What a definition asks for, beside what all kinds have.
#[derive(Clone, Debug, PartialEq)]
pub struct LogitsPlan {
    /// What is swept.
    pub settings: Vec<LogitsSetting>,
    /// Ids at the end of each prompt that are decoded one at a time.
    pub single: usize,
    /// Differences that pass all the same.
    pub allow: Option<LogitsAllow>,
}

impl LogitsPlan {
    /// Of a definition, or of its quick subset, checked.
    pub fn new(definition: &LogitsGate, quick: bool) -> Result<Self> {
        let mut settings = definition.settings.clone();
        for (at, setting) in settings.iter().enumerate() {
            let name = &setting.name;
            let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
            if name.is_empty() || !name.bytes().all(plain) {
                return Err(Error::config(format!(
                    "setting name `{name}`: only letters, digits, `-`, `.` and `_` are allowed"
                )));
            }
            if settings.iter().take(at).any(|other| other.name == *name) {
                return Err(Error::config(format!(
                    "setting `{name}` stands there twice"
                )));
            }
            if setting.ubatch == 0 || setting.threads == 0 || setting.batch < setting.ubatch {
                return Err(Error::config(format!(
                    "setting `{name}`: ubatch and threads must be above 0, and batch not below ubatch"
                )));
            }
            let types = [&setting.cache_k, &setting.cache_v];
            let plain = |c: u8| c.is_ascii_alphanumeric() || c == b'_';
            if types
                .iter()
                .any(|name| name.is_empty() || name.len() > 32 || !name.bytes().all(plain))
            {
                return Err(Error::config(format!(
                    "setting `{name}`: cache-k and cache-v are names such as f16 or q8_0"
                )));
            }
        }
        if quick && let Some(subset) = &definition.quick {
            let known = |name: &String| settings.iter().any(|setting| setting.name == *name);
            if let Some(unknown) = subset.settings.iter().find(|name| !known(name)) {
                return Err(Error::config(format!(
                    "quick.settings names {unknown}, which the full gate does not run"
                )));
            }
            settings.retain(|setting| subset.settings.contains(&setting.name));
        }
        if settings.is_empty() {
            return Err(Error::config("no setting; nothing would be run"));
        }
        let ends = definition
            .allow
            .iter()
            .flat_map(|allow| [allow.max_abs, allow.kl]);
        if ends.into_iter().any(|end| !end.is_finite() || end < 0.0) {
            return Err(Error::config("allow holds a number below 0"));
        }
        Ok(LogitsPlan {
            settings,
            single: definition.single,
            allow: definition.allow,
        })
    }
}

/// Reads logits. Comparisons are written against it, so that they can be tested without a build.
pub trait Probe: Sync {
    /// Decodes `prompts` as `setting` says and gives the file that holds their logits. Returns soon
    /// after `halt` is set, with an error, and with no process left.
    fn run(
        &self,
        run: Run,
        setting: &LogitsSetting,
        prompts: &[Prompt],
        halt: &Halt,
    ) -> Result<PathBuf>;
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, plan: &LogitsPlan) -> Result<Found> {
    let sides = [work.runner.baseline, work.runner.candidate];
    if probe::is_static(sides.map(|side| side.program.as_path()))? {
        return Ok(Found::skip(
            "a build with static libraries has none that the probe could be linked to",
        ));
    }
    let Some(probes) = probe::Probes::prepare(work, plan)? else {
        return Ok(Found::skip(
            "a server that was named by path and is no build of this project has no headers, which \
             the probe needs",
        ));
    };
    let comparison = Comparison {
        prompts: &work.plan.prompts,
        plan,
        parallel: work.parallel,
    };
    let logits = comparison.run(&probes, work.halt, work.task)?;
    Ok(Found {
        logits,
        probes: probes.stamps()?,
        ..Found::default()
    })
}

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// What is asked for.
    pub plan: &'a LogitsPlan,
    /// Probes that may run at the same time.
    pub parallel: usize,
}

/// The three runs of a setting.
const RUNS: [Run; 3] = [Run::Baseline, Run::Control, Run::Candidate];

impl Comparison<'_> {
    /// Runs all settings and judges them. The first error stops the others.
    pub fn run(
        &self,
        probe: &dyn Probe,
        halt: &Halt,
        task: &dyn Task,
    ) -> Result<Vec<LogitsRecord>> {
        let settings: Vec<&LogitsSetting> = self.plan.settings.iter().collect();
        let records: Mutex<Vec<(usize, Vec<LogitsRecord>)>> = Mutex::default();
        let one = |at: usize| -> Result<()> {
            let Some(setting) = settings.get(at) else {
                return Ok(());
            };
            let found = self
                .setting(setting, probe, halt)
                .context(|| format!("setting {}", setting.name))?;
            let mut records = records.lock().unwrap_or_else(|lock| lock.into_inner());
            records.push((at, found));
            Ok(())
        };
        pool::each(settings.len(), self.parallel, halt, task, &one)?;
        let mut records = records
            .into_inner()
            .unwrap_or_else(|lock| lock.into_inner());
        records.sort_by_key(|(at, _)| *at);
        Ok(records.into_iter().flat_map(|(_, found)| found).collect())
    }

    fn setting(
        &self,
        setting: &LogitsSetting,
        probe: &dyn Probe,
        halt: &Halt,
    ) -> Result<Vec<LogitsRecord>> {
        let mut files = Vec::new();
        for run in RUNS {
            let file = probe.run(run, setting, self.prompts, halt);
            files.push(file.context(|| run.name().to_owned())?);
        }
        let [baseline, control, candidate] = files.as_slice() else {
            return Err(Error::internal("a run is missing"));
        };
        let control = compare(baseline, control, self.prompts, halt)?;
        let candidate = compare(baseline, candidate, self.prompts, halt)?;
        for file in &files {
            // Of a large model they are large.
            fs_err::remove_file(file)?;
        }
        let pairs = self.prompts.iter().zip(control.into_iter().zip(candidate));
        Ok(pairs
            .map(|(prompt, (control, candidate))| self.judge(setting, prompt, control, candidate))
            .collect())
    }

    fn judge(
        &self,
        setting: &LogitsSetting,
        prompt: &Prompt,
        control: Compared,
        candidate: Compared,
    ) -> LogitsRecord {
        let (verdict, reason) = if let Some(difference) = &control.difference {
            let what = format!(
                "the baseline differs from itself (A/A): {}",
                show(difference)
            );
            (Verdict::Inconclusive, Some(what))
        } else if let Some(what) = &control.empty {
            (Verdict::Inconclusive, Some(what.clone()))
        } else if let Some(difference) = &candidate.difference {
            let within = self.plan.allow.is_some_and(|allow| {
                difference
                    .max_abs
                    .is_some_and(|max_abs| max_abs <= allow.max_abs)
                    && difference.kl_max.is_some_and(|kl| kl <= allow.kl)
            });
            match within {
                true => (
                    Verdict::Pass,
                    Some(format!("within what is allowed: {}", show(difference))),
                ),
                false => (Verdict::Fail, Some(show(difference))),
            }
        } else if let Some(what) = &candidate.empty {
            (Verdict::Inconclusive, Some(what.clone()))
        } else {
            (Verdict::Pass, None)
        };
        LogitsRecord {
            setting: setting.name.clone(),
            prompt: prompt.name.clone(),
            rows: control.rows,
            vocabulary: control.vocabulary,
            verdict,
            reason,
            baseline: control.left,
            control: control.right,
            candidate: candidate.right,
            control_difference: control.difference,
            difference: candidate.difference,
        }
    }
}

/// What a difference is, in words.
fn show(found: &LogitsDifference) -> String {
    let number =
        |value: Option<f64>| value.map_or("no number".to_owned(), |value| format!("{value:.3e}"));
    let mut text = format!(
        "{} logits in {} positions differ, by {} at most (position {}, token {}); KL {} at most, {} on \
         average; first at {}",
        found.values,
        found.rows,
        number(found.max_abs),
        found.max_abs_at.0,
        found.max_abs_at.1,
        number(found.kl_max),
        number(found.kl_mean),
        place(&found.first),
    );
    match &found.first_token {
        Some(row) => text.push_str(&format!(
            "; the most likely token differs in {} positions, first at {}: {} against {}",
            found.tokens,
            row.row,
            top(&row.left_top),
            top(&row.right_top)
        )),
        None => text.push_str("; the most likely token is the same everywhere"),
    }
    text
}

fn place(row: &RowDifference) -> String {
    format!(
        "position {}, token {}: {} against {}",
        row.row, row.token, row.left, row.right
    )
}

fn top(top: &[(u32, f32)]) -> String {
    let each: Vec<String> = top
        .iter()
        .map(|(id, logit)| format!("{id} ({logit})"))
        .collect();
    format!("[{}]", each.join(", "))
}

/// Rows of a table, the first one being its head.
pub fn rows(records: &[LogitsRecord], signs: Signs) -> Vec<Vec<String>> {
    let head = [
        "setting",
        "prompt",
        "logits",
        "baseline",
        "candidate",
        "largest difference",
        "verdict",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    rows.extend(records.iter().map(|record| {
        let difference = record
            .control_difference
            .as_ref()
            .or(record.difference.as_ref());
        vec![
            record.setting.clone(),
            record.prompt.clone(),
            format!("{} x {}", record.rows, record.vocabulary),
            record.baseline.short(),
            record.candidate.short(),
            difference.map_or("none".to_owned(), |found| match found.max_abs {
                Some(value) => format!("{value:.3e}"),
                None => "no number".to_owned(),
            }),
            format!("{} {}", signs.verdict(record.verdict), record.verdict),
        ]
    }));
    rows
}

/// What is not a pass without a difference, a line each.
pub fn faults(records: &[LogitsRecord], signs: Signs) -> Vec<String> {
    let bad = records.iter().filter_map(|record| {
        Some(format!(
            "{} setting `{}`, prompt `{}`: {}",
            signs.verdict(record.verdict),
            record.setting,
            record.prompt,
            record.reason.as_ref()?
        ))
    });
    bad.collect()
}

#[cfg(test)]
mod tests;
