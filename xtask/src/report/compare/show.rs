//! A comparison for people.

use std::fmt::Write as _;

use crate::gate::table::{Signs, aligned};
use crate::model::Verdict;
use crate::report::compare::{Comparison, Figure, GateComparison};

/// Changes of one sort that are listed; `--json` has all.
const SHOWN: usize = 12;

/// The whole comparison. Nothing that is the same is listed.
// Writing to a string cannot fail; that is why the results are dropped here.
pub fn text(comparison: &Comparison, signs: Signs) -> String {
    let mut text = String::new();
    for gate in &comparison.gates {
        self::gate(&mut text, gate, signs);
    }
    for gate in &comparison.lost {
        let _ = writeln!(
            text,
            "{} {gate}: no record in B",
            signs.verdict(Verdict::Inconclusive)
        );
    }
    for gate in &comparison.new {
        let _ = writeln!(text, "{gate}: only in B");
    }
    let _ = writeln!(
        text,
        "{} B ({}) against A ({}): {}",
        signs.verdict(comparison.verdict),
        comparison.b,
        comparison.a,
        match comparison.verdict {
            Verdict::Pass => "nothing became worse",
            Verdict::Fail => "something became worse",
            Verdict::Inconclusive | Verdict::Skipped => "it cannot be said whether it became worse",
        }
    );
    text
}

fn gate(text: &mut String, gate: &GateComparison, signs: Signs) {
    let [a, b] = gate.verdicts;
    let _ = writeln!(
        text,
        "{} gate {}: {a} -> {b}, {} cases in both",
        signs.verdict(gate.verdict),
        gate.gate,
        gate.common
    );
    let [before, now] = &gate.judged;
    if before != now {
        let _ = writeln!(text, "  judged: {before} -> {now}");
    }
    for note in &gate.notes {
        let _ = writeln!(text, "  note: {note}");
    }
    let changed = gate.changed.iter().map(|change| {
        let reason = change.reason.as_deref().map(|r| format!(": {r}"));
        let (from, to) = (change.from, change.to);
        format!(
            "{}: {from} -> {to}{}",
            change.case,
            reason.unwrap_or_default()
        )
    });
    list(text, changed);
    list(
        text,
        gate.lost.iter().map(|case| format!("{case}: only in A")),
    );
    list(
        text,
        gate.new.iter().map(|case| format!("{case}: only in B")),
    );
    let tokens = gate.tokens.iter().map(|change| {
        let [a, b] = &change.chash;
        format!(
            "other tokens of {} ({}), prompt `{}`: {a} -> {b}",
            change.side, change.cell, change.prompt
        )
    });
    list(text, tokens);
    if !gate.figures.is_empty() {
        let head = [
            "figure",
            "A",
            "B",
            "B worse by (95 %)",
            "allowed",
            "verdict",
        ];
        let mut rows = vec![head.map(str::to_owned).to_vec()];
        rows.extend(gate.figures.iter().map(|figure| row(figure, signs)));
        for line in aligned(&rows).lines() {
            let _ = writeln!(text, "  {line}");
        }
    }
    text.push('\n');
}

fn row(figure: &Figure, signs: Signs) -> Vec<String> {
    let none = || "-".to_owned();
    let [a, b] = figure.values.clone();
    vec![
        figure.name.clone(),
        a,
        b,
        figure.worse.map_or_else(none, |[value, low, high]| {
            format!("{value:+.2} [{low:+.2}, {high:+.2}]")
        }),
        figure
            .allowed
            .map_or_else(none, |allowed| format!("{allowed:.2}")),
        figure.verdict.map_or("-", |v| signs.verdict(v)).to_owned(),
    ]
}

fn list(text: &mut String, lines: impl Iterator<Item = String>) {
    let lines: Vec<String> = lines.collect();
    for line in lines.iter().take(SHOWN) {
        let _ = writeln!(text, "  {line}");
    }
    if lines.len() > SHOWN {
        let _ = writeln!(text, "  and {} more", lines.len() - SHOWN);
    }
}
