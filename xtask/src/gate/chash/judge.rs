//! Verdicts of the gate "same tokens": pure functions of what servers answered.

use super::Findings;
use crate::gate::session::{Answer, Answers, Prompt, Run};
use crate::model::{AnswerRecord, CellRecord, Digest, TokenDifference, Verdict};

/// Judges the wave that prompt `lead` leads in the baseline, the control and the candidate.
pub fn judge_cell(prompts: &[&Prompt], n_max: u32, runs: [&Answers; 3], lead: usize) -> CellRecord {
    let [baseline, control, candidate] = runs.map(|run| run.waves[lead].as_slice());
    let slots = prompts.len();
    let control_difference = first_difference(prompts, baseline, control);
    let difference = first_difference(prompts, baseline, candidate);
    let mut notes = Vec::new();
    let counts = |wave: &[Answer]| -> Vec<(u64, u64)> {
        wave.iter().map(|a| (a.drafted, a.accepted)).collect()
    };
    if counts(baseline) != counts(candidate) {
        notes.push(format!(
            "drafted/accepted differ: baseline {}, candidate {}",
            show_counts(baseline),
            show_counts(candidate)
        ));
    }
    if slots > 1 && runs.iter().any(|run| run.busy_slots.is_none()) {
        notes.push("the server does not tell how many slots were busy at the same time".to_owned());
    }
    let (verdict, reason) = if let Some(difference) = &control_difference {
        let what = show_difference(difference, baseline, control, "first run", "second run");
        let what = format!("the baseline differs from itself (A/A): {what}");
        (Verdict::Inconclusive, Some(what))
    } else if let Some(difference) = &difference {
        let what = show_difference(difference, baseline, candidate, "baseline", "candidate");
        (Verdict::Fail, Some(what))
    } else if let Some(what) = purpose_missed(prompts, n_max, runs, lead) {
        (Verdict::Inconclusive, Some(what))
    } else {
        (Verdict::Pass, None)
    };
    let records = |wave: &[Answer]| -> Vec<AnswerRecord> {
        let pairs = prompts.iter().zip(wave);
        pairs
            .map(|(prompt, answer)| record(prompt, answer))
            .collect()
    };
    CellRecord {
        setting: None,
        prompt: prompts[0].name.clone(),
        n_max,
        slots,
        steps: None,
        verdict,
        reason,
        notes,
        control_difference,
        difference,
        baseline: records(baseline),
        control: records(control),
        candidate: records(candidate),
    }
}

/// A cell of which not all runs were done, and why.
pub fn not_run(prompts: &[&Prompt], n_max: u32, why: Option<crate::Error>) -> CellRecord {
    let why = why.map_or_else(String::new, |error| format!(": {error}"));
    CellRecord {
        setting: None,
        prompt: prompts[0].name.clone(),
        n_max,
        slots: prompts.len(),
        steps: None,
        verdict: Verdict::Inconclusive,
        reason: Some(format!("not run{why}")),
        notes: Vec::new(),
        control_difference: None,
        difference: None,
        baseline: Vec::new(),
        control: Vec::new(),
        candidate: Vec::new(),
    }
}

/// How the runs did not do what the cell is there to compare, where they did not: equal tokens
/// prove nothing about drafting where nothing was drafted.
fn purpose_missed(
    prompts: &[&Prompt],
    n_max: u32,
    runs: [&Answers; 3],
    lead: usize,
) -> Option<String> {
    for (run, answers) in [Run::Baseline, Run::Control, Run::Candidate]
        .iter()
        .zip(runs)
    {
        for (prompt, answer) in prompts.iter().zip(&answers.waves[lead]) {
            if n_max > 0 && answer.drafted == 0 {
                return Some(format!(
                    "nothing was speculated: {} drafted no token for prompt `{}`",
                    run.name(),
                    prompt.name
                ));
            }
            if n_max == 0 && answer.drafted > 0 {
                return Some(format!(
                    "{} drafted tokens for prompt `{}` although n_max is 0; look at the \
                     definition's flags",
                    run.name(),
                    prompt.name
                ));
            }
        }
        if let Some(what) = idle(*run, answers, prompts.len()) {
            return Some(what);
        }
        if let Some(what) = one_id(&[(*run, answers)]) {
            return Some(what);
        }
    }
    None
}

/// Why several slots say nothing of sequences beside each other, where they do not. The server's
/// average is over all that it decoded, and sequences that draft well end before the others: so not all
/// slots are asked for, but a quarter of those beside the first.
pub fn idle(run: Run, answers: &Answers, slots: usize) -> Option<String> {
    // One that ran already may not tell; one that was started must.
    let busy = answers.busy_slots.filter(|_| slots > 1)?;
    let least = 1.0 + (slots as f64 - 1.0) / 4.0;
    // What is no number is too few.
    (!busy.is_finite() || busy < least).then(|| {
        format!(
            "the slots of {} were not busy at the same time ({busy:.2} of {slots} on average)",
            run.name()
        )
    })
}

/// Why sessions say nothing, where all sequences of one consist of one and the same id.
pub fn one_id(sessions: &[(Run, &Answers)]) -> Option<String> {
    sessions.iter().find_map(|(run, answers)| {
        let id = monotone(answers)?;
        Some(format!(
            "{} gave the id {id} and no other: it may not compute anything",
            run.name()
        ))
    })
}

/// The one id that all sequences of a session consist of, as they do where all logits are no numbers.
fn monotone(answers: &Answers) -> Option<u32> {
    let mut ids = answers
        .waves
        .iter()
        .flatten()
        .flat_map(|answer| &answer.tokens);
    let first = *ids.next()?;
    let mut rest = ids.peekable();
    rest.peek()?;
    rest.all(|id| *id == first).then_some(first)
}

/// What a record holds of an answer.
pub fn record(prompt: &Prompt, answer: &Answer) -> AnswerRecord {
    let sha256 = digest(&answer.tokens);
    AnswerRecord {
        prompt: prompt.name.clone(),
        tokens: answer.tokens.len(),
        sha256,
        chash: chash(&sha256),
        drafted: answer.drafted,
        accepted: answer.accepted,
    }
}

/// SHA-256 over the ids as u32 little-endian.
pub fn digest(ids: &[u32]) -> Digest {
    let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
    Digest::of(&bytes)
}

/// The first ten hex digits.
pub fn chash(digest: &Digest) -> String {
    digest.to_string()[..10].to_owned()
}

/// Ids before and after the first differing one that are shown.
const AROUND: usize = 3;

/// Where the waves of one cell differ first.
pub fn first_difference(
    prompts: &[&Prompt],
    left: &[Answer],
    right: &[Answer],
) -> Option<TokenDifference> {
    let pairs = left.iter().zip(right);
    for (place, (left, right)) in pairs.enumerate() {
        let (left, right) = (&left.tokens, &right.tokens);
        if digest(left) == digest(right) {
            continue;
        }
        let index = left.iter().zip(right).take_while(|(a, b)| a == b).count();
        let from = index.saturating_sub(AROUND);
        let around = |ids: &[u32]| ids[from..ids.len().min(index + AROUND + 1)].to_vec();
        return Some(TokenDifference {
            prompt: prompts[place].name.clone(),
            place,
            index,
            from,
            left: around(left),
            right: around(right),
        });
    }
    None
}

/// `baseline 2c08114d7f against candidate 0917d62458, first at token 41: 18 against 93 (…)`.
fn show_difference(
    difference: &TokenDifference,
    left: &[Answer],
    right: &[Answer],
    left_name: &str,
    right_name: &str,
) -> String {
    let at = difference.index - difference.from;
    let id = |ids: &[u32]| match ids.get(at) {
        Some(id) => id.to_string(),
        None => "the end".to_owned(),
    };
    let hash = |wave: &[Answer]| chash(&digest(&wave[difference.place].tokens));
    let whose = match difference.place {
        0 => String::new(),
        _ => format!("prompt `{}` beside it: ", difference.prompt),
    };
    format!(
        "{whose}{left_name} {} against {right_name} {}, first at token {}: {} against {} \
         (from token {}: {:?} against {:?})",
        hash(left),
        hash(right),
        difference.index,
        id(&difference.left),
        id(&difference.right),
        difference.from,
        difference.left,
        difference.right,
    )
}

fn show_counts(wave: &[Answer]) -> String {
    let each: Vec<String> = wave
        .iter()
        .map(|answer| format!("{}/{}", answer.drafted, answer.accepted))
        .collect();
    each.join(" + ")
}

/// What the whole run did not reach, though each cell may have passed.
pub fn notes(findings: &Findings) -> Vec<String> {
    let drafting: Vec<&AnswerRecord> = (findings.cells.iter())
        .filter(|cell| cell.n_max > 0)
        .flat_map(|cell| &cell.baseline)
        .collect();
    let drafted: u64 = drafting.iter().map(|answer| answer.drafted).sum();
    let accepted: u64 = drafting.iter().map(|answer| answer.accepted).sum();
    let mut notes = Vec::new();
    if drafting.is_empty() {
        notes.push("only plain decoding was compared: n_max is 0 everywhere".to_owned());
    } else if drafted > 0 && accepted == 0 {
        notes.push("no draft was ever accepted, so that acceptance was not exercised".to_owned());
    } else if drafted > 0 && accepted == drafted {
        notes.push("every draft was accepted, so that rejection was not exercised".to_owned());
    }
    let differ = (findings.drafted_against_plain.iter())
        .filter(|record| !record.equal)
        .count();
    if differ > 0 {
        notes.push(format!(
            "drafted decoding differs from plain decoding in {differ} of {} cells of the baseline",
            findings.drafted_against_plain.len()
        ));
    }
    notes
}
