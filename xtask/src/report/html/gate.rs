//! One gate with everything that it left, failing cases first.

use maud::{Markup, html};

use super::sign::{glyph, name};
use crate::gate::table::{Signs, place, rows};
use crate::model::{GateRecord, SideStamp, TokenDifference, Verdict};
use crate::report::cases::{Case, rank};
use crate::report::file_name;
use crate::report::gather::{Gate, State};

/// Cases that are named; the record has them all.
const NAMED: usize = 60;

/// The gate, open where it did not pass.
pub fn details(gate: &Gate, at: usize) -> Markup {
    let verdict = gate.verdict();
    html! {
        details class=(format!("gate {}", name(verdict))) id=(format!("gate-{at}")) open[verdict != Verdict::Pass] {
            summary {
                (glyph(verdict))
                span class="id" { (gate.id) }
                span class="word" { (verdict.to_string()) }
            }
            @match &gate.state {
                State::Missing { why } => { p class="caution" { (why) } }
                State::Recorded { record, cases, file } => {
                    p { (record.title) @if record.quick { " Only the quick subset of the definition ran." } }
                    (faults(cases))
                    (table(record))
                    (notes(record))
                    (compared(record, &format!("{}/{}", gate.run, file_name(file))))
                }
            }
        }
    }
}

fn faults(cases: &[Case]) -> Markup {
    let mut faults: Vec<&Case> = cases
        .iter()
        .filter(|c| c.verdict != Verdict::Pass)
        .collect();
    faults.sort_by_key(|case| rank(case.verdict));
    html! {
        @if !faults.is_empty() {
            ul class="faults" {
                @for case in faults.iter().take(NAMED) {
                    li {
                        (glyph(case.verdict))
                        div {
                            strong { (case.name) }
                            @if let Some(reason) = &case.reason { p { (reason) } }
                            @if let Some(found) = &case.difference { (difference(found)) }
                        }
                    }
                }
                @if faults.len() > NAMED { li { "and " (faults.len() - NAMED) " more, all of them in the record" } }
            }
        }
    }
}

fn difference(found: &TokenDifference) -> Markup {
    let ids = |ids: &[u32]| {
        html! {
            @for (at, id) in ids.iter().enumerate() {
                @if found.from.checked_add(at) == Some(found.index) { mark { (id) } } @else { span { (id) } }
                " "
            }
        }
    };
    html! {
        dl class="ids" {
            dt { "compared with, from " (found.from) } dd { (ids(&found.left)) }
            dt { "judged" } dd { (ids(&found.right)) }
        }
    }
}

fn table(record: &GateRecord) -> Markup {
    let rows = rows(record, Signs::Unicode);
    let Some((head, body)) = rows.split_first() else {
        return html! {};
    };
    html! {
        // What was skipped has a table of nothing.
        @if !body.is_empty() && record.verdict != Verdict::Skipped {
            div class="scroll" { table class="numbers" {
                thead { tr { @for cell in head { th scope="col" { (cell) } } } }
                tbody { @for row in body { tr {
                    @for cell in row { td class=[tone(cell)] { (cell) } }
                } } }
            } }
        }
    }
}

/// The class of a cell that begins with the sign of a verdict.
fn tone(cell: &str) -> Option<&'static str> {
    let all = [
        Verdict::Pass,
        Verdict::Fail,
        Verdict::Inconclusive,
        Verdict::Skipped,
    ];
    let of = |verdict: &Verdict| cell.starts_with(Signs::Unicode.verdict(*verdict));
    all.into_iter().find(of).map(name)
}

fn notes(record: &GateRecord) -> Markup {
    let cells = record.cells.iter().flat_map(|cell| {
        let notes = cell.notes.iter();
        notes.map(|note| format!("{}: {note}", place(cell)))
    });
    let notes: Vec<String> = record.notes.iter().cloned().chain(cells).collect();
    html! {
        @if !notes.is_empty() {
            h4 { "Notes" }
            ul { @for note in &notes { li { (note) } } }
        }
    }
}

fn compared(record: &GateRecord, file: &str) -> Markup {
    let model = &record.model;
    html! {
        details class="compared" {
            summary { "What was compared" }
            dl {
                dt { "model" }
                dd { (model.name) ", " (model.size) " bytes, sha256 " code { (model.sha256.to_string()) } }
                dt { "prompts" }
                dd {
                    @for (at, prompt) in record.prompts.iter().enumerate() {
                        @if at > 0 { ", " }
                        (prompt.name) " (" (prompt.length) " ids)"
                    }
                    "; " (record.n_predict) " tokens generated for each"
                }
                (side("baseline", &record.baseline))
                (side("candidate", &record.candidate))
                dt { "definition" } dd { "sha256 " code { (record.definition.to_string()) } }
                dt { "begun" } dd { (record.started) ", " (format!("{:.1}", record.seconds)) " s" }
                dt { "record" } dd { code { (file) } }
            }
        }
    }
}

fn side(name: &str, stamp: &SideStamp) -> Markup {
    html! {
        dt { (name) }
        dd {
            @if let (Some(flavour), Some(base)) = (stamp.flavour, &stamp.base) {
                (flavour.to_string()) " build of " (base) ", "
            }
            @if let Some(set) = &stamp.patchset {
                "patch set " code { (set.id.short()) } " (" (set.patches.join(", ")) "), "
            }
            @if stamp.env.is_empty() { "no switches" } @else { "switches " code { (stamp.env.join(" ")) } }
            details {
                summary { (stamp.artifacts.len()) " files" }
                p { code { (stamp.server) } }
                ul class="files" {
                    @for artifact in &stamp.artifacts {
                        li { code { (artifact.path) } " " code { (artifact.sha256.to_string()) } }
                    }
                }
            }
        }
    }
}
