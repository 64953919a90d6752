//! One page: no script, no font, no picture and no style sheet from elsewhere, so that it can be
//! mailed, attached and opened in ten years.
//!
//! All text passes through [`maud`], which escapes it; records were made
//! [visible](crate::report::visible) before.

mod gate;
mod sign;

use maud::{DOCTYPE, Markup, PreEscaped, html};

use crate::model::Verdict;
use crate::report::cases::counts;
use crate::report::gather::{Gate, Report, State};
use crate::report::history::Past;
use crate::report::{plots, speeds};
use sign::{glyph, name, strip};

/// The page.
pub fn html(report: &Report) -> String {
    let subjects = report.subjects().join(" · ");
    let title = format!("Gates: {} {subjects}", report.verdict);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                // Whatever a name in a record manages to be, it loads nothing.
                meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'";
                title { (title.trim_end()) }
                style { (PreEscaped(include_str!("html/style.css"))) }
            }
            body {
                header { (head(report, &subjects)) }
                main {
                    (overview(report))
                    (speed(report))
                    (charts(report))
                    (history(report))
                    section {
                        h2 { "Gate by gate" }
                        @for (at, gate) in report.gates.iter().enumerate() { (gate::details(gate, at)) }
                    }
                    (unread(report))
                    (again(report))
                }
            }
        }
    };
    page.into_string()
}

fn head(report: &Report, subjects: &str) -> Markup {
    let cases = report
        .gates
        .iter()
        .map(|gate| gate.cases().len())
        .sum::<usize>();
    let bad = |verdict| {
        let cases = report.gates.iter().flat_map(Gate::cases);
        cases.filter(|case| case.verdict == verdict).count()
    };
    let missing = report.gates.iter().filter(|gate| gate.is_missing()).count();
    let seconds: f64 = report.records().map(|record| record.seconds).sum();
    html! {
        p class="eyebrow" { "llama-patchset · gate report" }
        div class=(format!("verdict {}", name(report.verdict))) {
            (glyph(report.verdict))
            div {
                h1 { (report.verdict.to_string()) }
                p { (meaning(report)) }
            }
        }
        @if !subjects.is_empty() { p class="subject" { (subjects) } }
        dl class="facts" {
            div { dt { "gates" } dd { (report.gates.len()) } }
            div { dt { "cases" } dd { (cases) } }
            div { dt { "failed" } dd { (bad(Verdict::Fail)) } }
            div { dt { "inconclusive" } dd { (bad(Verdict::Inconclusive) + missing) } }
            div { dt { "skipped" } dd { (bad(Verdict::Skipped)) } }
            div { dt { "minutes" } dd { (format!("{:.1}", seconds / 60.0)) } }
        }
        @for run in &report.runs {
            p class="run" {
                "Run " code { (run.id) }
                @if let Some(plan) = &run.plan {
                    ", begun " (plan.started.replace('T', " ").replace('Z', " UTC")) " on "
                    @if let Some(name) = &plan.run.host.name { (name) ", " }
                    (plan.run.host.system) ", " (plan.run.host.processors) " processors"
                    @if let Some(model) = &plan.run.host.model { " (" (model) ")" }
                }
            }
        }
    }
}

fn meaning(report: &Report) -> String {
    let quick = report.records().any(|record| record.quick);
    let missing = report.gates.iter().filter(|gate| gate.is_missing()).count();
    let text = match report.verdict {
        Verdict::Pass if report.skipped_gates() > 0 => {
            "Every comparison that ran passed, and so did its control where it has one.".to_owned()
        }
        Verdict::Pass => {
            "Every comparison passed, and so did its control where it has one.".to_owned()
        }
        Verdict::Fail => "A comparison did not pass. What differs is named below.".to_owned(),
        _ if missing > 0 => {
            format!(
                "{missing} of {} gates left no record. This is not a pass.",
                report.gates.len()
            )
        }
        _ if !report.skipped.is_empty() => {
            "Some records cannot be read. This is not a pass.".to_owned()
        }
        _ if report.skipped_gates() > 0
            && !(report.gates.iter()).any(|gate| gate.verdict() == Verdict::Inconclusive) =>
        {
            "What was asked for did not run.".to_owned()
        }
        _ => {
            "A control did not pass, or a run did not do what it was there for. This is not a pass."
                .to_owned()
        }
    };
    let skipped = report.skipped_words();
    let quick = quick.then(|| "Only quick subsets ran.".to_owned());
    let words: Vec<String> = [Some(text), skipped, quick].into_iter().flatten().collect();
    words.join(" ")
}

fn overview(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Verdicts" }
            ol class="gates" {
                @for (at, gate) in report.gates.iter().enumerate() {
                    li {
                        (glyph(gate.verdict()))
                        div class="what" {
                            a href=(format!("#gate-{at}")) { (gate.id) }
                            p { @match &gate.state {
                                State::Recorded { record, .. } => { (record.title) }
                                State::Missing { why } => { (why) }
                                State::Skipped { title, .. } => { (title) }
                            } }
                        }
                        div class="cells" {
                            (strip(gate.cases()))
                            p { (tally(gate)) }
                        }
                    }
                }
            }
            ul class="legend" {
                @for verdict in [Verdict::Pass, Verdict::Fail, Verdict::Inconclusive, Verdict::Skipped] {
                    li { (sign::key(verdict)) (verdict.to_string()) }
                }
            }
        }
    }
}

/// `23 pass, 1 fail · 12 s`.
fn tally(gate: &Gate) -> String {
    let some = counts(gate.cases())
        .into_iter()
        .filter(|(_, count)| *count > 0);
    let words: Vec<String> = some
        .map(|(verdict, count)| format!("{count} {verdict}"))
        .collect();
    match gate.record() {
        Some(record) => {
            let quick = if record.quick { " · quick" } else { "" };
            format!("{} · {:.0} s{quick}", words.join(", "), record.seconds)
        }
        None if gate.is_missing() => "no record".to_owned(),
        None => words.join(", "),
    }
}

fn speed(report: &Report) -> Markup {
    let tables: Vec<_> = report.records().filter_map(speeds::table).collect();
    html! {
        @if !tables.is_empty() {
            section {
                h2 { "Speed and acceptance" }
                div class="pair" { @for table in &tables { div {
                    h3 { (table.gate) " on " (table.model) }
                    div class="scroll" { table class="numbers speeds" {
                        thead { tr { @for title in speeds::HEAD { th scope="col" { (title) } } } }
                        tbody { @for row in &table.rows { tr {
                            @for (at, cell) in speeds::cells(row).iter().enumerate() {
                                @if at == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        } } }
                    } }
                } } }
                p class="hint" { "Ours is the candidate. Speeds are medians of both sides in one session; only their paired change is judged." }
            }
        }
    }
}

fn charts(report: &Report) -> Markup {
    let records: Vec<_> = report.records().enumerate().collect();
    let accepted = records
        .iter()
        .filter(|(_, record)| !record.acceptance.is_empty());
    let measured = || {
        records
            .iter()
            .filter_map(|(at, r)| Some((at, r, r.perf.as_ref()?)))
    };
    html! {
        @if records.iter().any(|(_, record)| !record.acceptance.is_empty()) {
            section {
                h2 { "Acceptance" }
                div class="charts" {
                    @for (at, record) in accepted { (plots::acceptance(record, &format!("a{at}"))) }
                }
                p class="hint" { "In all: accepted of drafted tokens. By position: accepted of all drafts that were verified. Both sides on the same prompts, with Wilson intervals of 95 %." }
            }
        }
        @if measured().next().is_some() {
            section {
                h2 { "Speed" }
                div class="charts" {
                    @for (at, record, perf) in measured() { (plots::speed(record, perf, &format!("s{at}"))) }
                    @for (at, record, perf) in measured() { (plots::launches(record, perf, &format!("l{at}"))) }
                }
            }
        }
    }
}

fn history(report: &Report) -> Markup {
    let past = &report.history;
    let mut gates: Vec<&str> = Vec::new();
    for (gate, _) in past.iter().flat_map(|past| &past.gates) {
        if !gates.contains(&gate.as_str()) {
            gates.push(gate);
        }
    }
    let shown = |past: &Past| report.runs.iter().any(|run| run.id == past.run);
    html! {
        @if past.len() > 1 {
            section {
                h2 { "History" }
                div class="scroll" { table class="history" {
                    thead { tr {
                        th scope="col" { "run" }
                        @for gate in &gates { th scope="col" class="turned" { span { (gate) } } }
                        th scope="col" { "judged" }
                    } }
                    tbody { @for past in past.iter().rev() { tr class=[shown(past).then_some("shown")] {
                        th scope="row" {
                            (past.when())
                            @if past.quick { " " span class="tag" { "quick" } }
                            @if past.skipped > 0 { " " span class="tag" { (past.skipped) " not read" } }
                        }
                        @for gate in &gates {
                            td class="sign" {
                                @if let Some((_, verdict)) = past.gates.iter().find(|(id, _)| id == gate) {
                                    (glyph(*verdict))
                                }
                            }
                        }
                        td { @match past.subjects.as_slice() {
                            [] => { "servers named by path" }
                            subjects => { (subjects.join("; ")) }
                        } }
                    } } }
                } }
                div class="charts" {
                    (plots::history(past, "Decoding slower by", |past| &past.decode, "hd"))
                    (plots::history(past, "Accepted in all", |past| &past.accepted, "ha"))
                }
                p class="hint" { "Newest run first; those of this page stand out. In the charts a dashed line is where another base or patch set begins." }
            }
        }
    }
}

fn unread(report: &Report) -> Markup {
    html! {
        @if !report.skipped.is_empty() {
            section {
                h2 { "Not read" }
                ul { @for (file, reason) in &report.skipped { li { code { (file) } ": " (reason) } } }
            }
        }
    }
}

fn again(report: &Report) -> Markup {
    html! {
        section {
            h2 { "Again" }
            @for run in &report.runs {
                @if let Some(plan) = &run.plan { pre { (plan.command) } }
            }
        }
    }
}
