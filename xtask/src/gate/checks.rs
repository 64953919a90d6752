//! Questions that are answered with yes or no: how they become verdicts, and how people read them.

use crate::gate::table::Signs;
use crate::model::{CheckRecord, Verdict};

/// Reasons that are named one by one.
const NAMED: usize = 8;

/// Passes where nothing speaks against it.
pub fn check(name: &str, found: String, reasons: Vec<String>) -> CheckRecord {
    let more = reasons.len().saturating_sub(NAMED);
    let mut text = reasons
        .iter()
        .take(NAMED)
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join("; ");
    if more > 0 {
        text.push_str(&format!("; and {more} more"));
    }
    CheckRecord {
        name: name.to_owned(),
        verdict: if reasons.is_empty() {
            Verdict::Pass
        } else {
            Verdict::Fail
        },
        found,
        reason: (!reasons.is_empty()).then_some(text),
    }
}

/// Fails for `reasons`, and also where there is none: then there should have been one.
pub fn failed(name: &str, found: String, reasons: Vec<String>) -> CheckRecord {
    CheckRecord {
        verdict: Verdict::Fail,
        ..check(name, found, reasons)
    }
}

/// Could not be asked.
pub fn skipped(name: &str, reason: &str) -> CheckRecord {
    CheckRecord {
        name: name.to_owned(),
        verdict: Verdict::Skipped,
        found: String::new(),
        reason: Some(reason.to_owned()),
    }
}

/// Rows of a table, the first one being its head.
pub fn rows(checks: &[CheckRecord], signs: Signs) -> Vec<Vec<String>> {
    let mut rows = vec![
        ["asked", "verdict", "looked at"]
            .map(str::to_owned)
            .to_vec(),
    ];
    rows.extend(checks.iter().map(|check| {
        let verdict = format!("{} {}", signs.verdict(check.verdict), check.verdict);
        vec![check.name.clone(), verdict, check.found.clone()]
    }));
    rows
}

/// What did not pass, a line each.
pub fn faults(checks: &[CheckRecord], signs: Signs) -> Vec<String> {
    let bad = checks.iter().filter(|check| check.verdict != Verdict::Pass);
    bad.map(|check| {
        format!(
            "{} {}: {}",
            signs.verdict(check.verdict),
            check.name,
            check.reason.as_deref().unwrap_or_default()
        )
    })
    .collect()
}
