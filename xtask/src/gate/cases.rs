//! What a gate judged, one by one, whatever its kind.

use serde_json::Value;

use crate::gate::table::place;
use crate::model::{GateKind, GateRecord, TokenDifference, Verdict};

/// One thing that a gate judged.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Case {
    /// What it is, unique in its gate as far as the record's names are.
    pub name: String,
    /// The verdict.
    pub verdict: Verdict,
    /// Why, where it is not a pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Where tokens differ.
    #[serde(skip)]
    pub difference: Option<TokenDifference>,
}

impl Case {
    /// A gate that has no other case, or whose verdict does not follow from them.
    pub fn whole(verdict: Verdict, reason: Option<String>) -> Self {
        Case {
            name: "the gate as a whole".to_owned(),
            verdict,
            reason,
            difference: None,
        }
    }
}

/// Parts of a record that are read here as what they are, or that judge nothing.
const KNOWN: [&str; 3] = ["cells", "acceptance", "perf"];

/// What a part found, which is another thing in every run, and does not say which part it is.
const FOUND: [&str; 11] = [
    "verdict",
    "reason",
    "found",
    "baseline",
    "control",
    "candidate",
    "tokens",
    "rows",
    "vocabulary",
    "compared",
    "machine",
];

/// Everything that `record` judges. Never empty, and never better than the record: where its
/// verdict does not follow from its parts, the gate as a whole is a case of its own.
pub fn cases(record: &GateRecord) -> Vec<Case> {
    let mut cases = parts(record);
    let judged = Verdict::all(cases.iter().map(|case| case.verdict));
    // A headline does not vouch for itself.
    if let Some(why) = doubt(record) {
        cases.insert(0, Case::whole(Verdict::Inconclusive, Some(why)));
        return cases;
    }
    if cases.is_empty() || judged != record.verdict || record.reason.is_some() {
        let whole = Case::whole(record.verdict, record.reason.clone());
        cases.insert(0, whole);
    }
    cases
}

/// What `record` judges by itself, whatever is said of the gate as a whole.
pub fn parts(record: &GateRecord) -> Vec<Case> {
    let mut cases: Vec<Case> = (record.cells.iter())
        .map(|cell| Case {
            name: place(cell),
            verdict: cell.verdict,
            reason: cell.reason.clone(),
            difference: (cell
                .control_difference
                .as_ref()
                .or(cell.difference.as_ref()))
            .cloned(),
        })
        .collect();
    let mut add = |name: String, verdict: Verdict, reason: &Option<String>| {
        cases.push(Case {
            name,
            verdict,
            reason: reason.clone(),
            difference: None,
        });
    };
    for share in &record.acceptance {
        add(
            format!("n_max {}", share.n_max),
            share.verdict,
            &share.reason,
        );
    }
    for metric in record.perf.iter().flat_map(|perf| &perf.metrics) {
        if let Some(verdict) = metric.verdict {
            let name = format!("n_max {}, {}", metric.n_max, metric.metric.name());
            add(name, verdict, &metric.reason);
        }
    }
    for counter in record.perf.iter().flat_map(|perf| &perf.counters) {
        if let Some(verdict) = counter.verdict {
            let name = format!("n_max {}, {}", counter.n_max, counter.name);
            add(name, verdict, &counter.reason);
        }
    }
    if let Ok(Value::Object(parts)) = serde_json::to_value(record) {
        for (name, part) in parts {
            if !KNOWN.contains(&name.as_str()) {
                walk(&name, &part, &mut cases);
            }
        }
    }
    cases
}

/// Why a record that says pass is none: what its kind of gate judges is not there or did not pass, or it has a reason
/// why it should not.
fn doubt(record: &GateRecord) -> Option<String> {
    if record.verdict != Verdict::Pass {
        return None;
    }
    if let Some(reason) = &record.reason {
        return Some(format!("it is said to pass, and also: {reason}"));
    }
    let own: Vec<Verdict> = match record.kind {
        GateKind::Chash | GateKind::Drafts => record.cells.iter().map(|one| one.verdict).collect(),
        GateKind::Acceptance => record.acceptance.iter().map(|one| one.verdict).collect(),
        GateKind::Integrity | GateKind::Artifacts => {
            record.checks.iter().map(|one| one.verdict).collect()
        }
        GateKind::Logits => record.logits.iter().map(|one| one.verdict).collect(),
        GateKind::Retrieval => record.retrieval.iter().map(|one| one.verdict).collect(),
        GateKind::Counters => (record.counters.iter())
            .filter_map(|one| one.verdict)
            .collect(),
        GateKind::Perf => {
            let metrics = record.perf.iter().flat_map(|perf| &perf.metrics);
            metrics.filter_map(|one| one.verdict).collect()
        }
    };
    let passed = own.contains(&Verdict::Pass);
    (!passed).then(|| "it is said to pass, and nothing was judged that passed".to_owned())
}

/// Objects with a verdict, however deep, in the parts that kinds of gates add to their records.
fn walk(path: &str, value: &Value, cases: &mut Vec<Case>) {
    match value {
        Value::Array(list) => list.iter().for_each(|value| walk(path, value, cases)),
        Value::Object(map) => {
            if let Some(verdict) = map.get("verdict").and_then(verdict) {
                let text = |key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
                cases.push(Case {
                    name: named(path, map),
                    verdict,
                    reason: text("reason"),
                    difference: None,
                });
            }
            for (name, value) in map {
                walk(&format!("{path} {name}"), value, cases);
            }
        }
        _ => {}
    }
}

fn verdict(value: &Value) -> Option<Verdict> {
    serde_json::from_value(value.clone()).ok()
}

/// `needles prompt long, depth 0.5`: the part, and its first short scalars.
fn named(path: &str, map: &serde_json::Map<String, Value>) -> String {
    let scalars = map.iter().filter_map(|(key, value)| match value {
        _ if FOUND.contains(&key.as_str()) => None,
        Value::String(text) if text.chars().count() <= 48 => Some(format!("{key} {text}")),
        Value::Number(number) => Some(format!("{key} {number}")),
        _ => None,
    });
    let scalars: Vec<String> = scalars.take(4).collect();
    match scalars.is_empty() {
        true => path.to_owned(),
        false => format!("{path} {}", scalars.join(", ")),
    }
}

/// The verdict of a record, or the worse one that its own parts have: a headline that says more than what it stands
/// over is not believed.
pub fn worst(headline: Verdict, cases: &[Case]) -> Verdict {
    let judged = cases.iter().any(|case| case.verdict != Verdict::Skipped);
    let parts = Verdict::all(cases.iter().map(|case| case.verdict));
    match judged && rank(parts) < rank(headline) {
        true => parts,
        false => headline,
    }
}

/// Worst first.
pub fn rank(verdict: Verdict) -> u8 {
    match verdict {
        Verdict::Fail => 0,
        Verdict::Inconclusive => 1,
        Verdict::Skipped => 2,
        Verdict::Pass => 3,
    }
}

/// How many cases have each verdict.
pub fn counts(cases: &[Case]) -> [(Verdict, usize); 4] {
    [
        Verdict::Fail,
        Verdict::Inconclusive,
        Verdict::Skipped,
        Verdict::Pass,
    ]
    .map(|verdict| {
        (
            verdict,
            cases.iter().filter(|c| c.verdict == verdict).count(),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::testing::{record, tangle};
    use crate::model::CheckRecord;

    #[test]
    fn every_cell_is_a_case() {
        let record = record(&tangle);
        let cases = cases(&record);
        assert_eq!(cases.len(), record.cells.len());
        assert!(cases.iter().any(|c| c.difference.is_some()));
        let summed: usize = counts(&cases).iter().map(|(_, count)| count).sum();
        assert_eq!(summed, cases.len());
    }

    #[test]
    fn a_gate_is_never_better_than_its_record() {
        let mut record = record(&|_, _, _| {});
        record.verdict = Verdict::Inconclusive;
        record.reason = Some("the very same files".to_owned());
        let all = cases(&record);
        assert_eq!(all[0].verdict, Verdict::Inconclusive);
        assert_eq!(all[0].reason.as_deref(), Some("the very same files"));
        record.reason = None;
        assert_eq!(cases(&record)[0].verdict, Verdict::Inconclusive);
        record.cells.clear();
        record.verdict = Verdict::Pass;
        let all = cases(&record);
        assert_eq!((all.len(), all[0].verdict), (1, Verdict::Inconclusive));
        record.verdict = Verdict::Skipped;
        assert_eq!(cases(&record)[0].verdict, Verdict::Skipped);
    }

    #[test]
    fn no_headline_vouches_for_itself() {
        let said = |change: &dyn Fn(&mut GateRecord)| {
            let mut record = record(&|_, _, _| {});
            change(&mut record);
            worst(record.verdict, &cases(&record))
        };
        assert_eq!(said(&|_| {}), Verdict::Pass);
        let skip = |record: &mut GateRecord| {
            let cells = record.cells.iter_mut();
            cells.for_each(|cell| cell.verdict = Verdict::Skipped);
        };
        let check = CheckRecord {
            name: "needs".to_owned(),
            verdict: Verdict::Pass,
            found: String::new(),
            reason: None,
        };
        assert_eq!(said(&skip), Verdict::Inconclusive);
        // What another kind of gate judges is no part of this one.
        assert_eq!(
            said(&|record| {
                record.cells.clear();
                record.checks = vec![check.clone(); 5];
            }),
            Verdict::Inconclusive
        );
        let same = |record: &mut GateRecord| record.reason = Some("the very same".to_owned());
        assert_eq!(said(&same), Verdict::Inconclusive);
        // One that is skipped beside others is.
        assert_eq!(
            said(&|record| record.cells[0].verdict = Verdict::Skipped),
            Verdict::Pass
        );
    }

    #[test]
    fn a_case_has_the_same_name_whatever_was_found() {
        let name = |found: u64, words: u64| {
            let part = serde_json::json!([{
                "baseline": format!("{found}"), "candidate": found, "control": "x", "depth": 0.5,
                "found": format!("{found} files"), "verdict": "pass", "words": words
            }]);
            let mut cases = Vec::new();
            walk("needles", &part, &mut cases);
            cases.remove(0).name
        };
        assert_eq!(name(1, 20), name(2, 20));
        assert_ne!(name(1, 20), name(1, 40));
    }

    #[test]
    fn verdicts_of_unknown_parts_are_found() {
        let part = serde_json::json!([{
            "prompt": "long", "depth": 0.5, "verdict": "fail", "reason": "lost",
            "sides": [{"verdict": "pass"}, {"verdict": "odd"}]
        }]);
        let mut found = Vec::new();
        walk("needles", &part, &mut found);
        assert_eq!(found[0].name, "needles depth 0.5, prompt long");
        assert_eq!((found[0].verdict, found.len()), (Verdict::Fail, 2));
        assert_eq!(found[0].reason.as_deref(), Some("lost"));
    }
}
