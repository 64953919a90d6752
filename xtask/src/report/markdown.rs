//! Markdown for a comment on a pull request: the verdict at a glance, everything else folded.

use std::fmt::Write as _;

use crate::gate::table::{Signs, markdown as table, rows};
use crate::model::Verdict;
use crate::report::cases::{Case, counts};
use crate::report::gather::{Gate, Report, State};
use crate::report::speeds;

/// Cases of a gate that are named; a comment has no room for more.
const NAMED: usize = 10;

/// The comment. Its length depends on the gates and their rows, not on the store.
// Writing to a string cannot fail; that is why the results are dropped here.
pub fn markdown(report: &Report) -> String {
    let sign = Signs::Unicode;
    let mut text = format!(
        "### {} Gates: {}\n\n",
        sign.verdict(report.verdict),
        report.verdict
    );
    for subject in report.subjects() {
        let _ = writeln!(text, "- {}", inline(&subject));
    }
    for run in &report.runs {
        let host = run.plan.as_ref().map(|plan| &plan.run.host);
        let host = host.map_or(String::new(), |host| {
            let model = host.model.as_deref().unwrap_or("unknown processor");
            let name = host.name.as_deref().map(|name| format!(", {name}"));
            let name = name.unwrap_or_default();
            format!("{name}, {}, {} × {}", host.system, host.processors, model)
        });
        let _ = writeln!(text, "- run {}{}", code(&run.id), inline(&host));
    }
    text.push('\n');
    let mut overview = vec![
        ["", "gate", "cases", "s", "judged"]
            .map(str::to_owned)
            .to_vec(),
    ];
    overview.extend(report.gates.iter().map(|gate| {
        let record = gate.record();
        vec![
            sign.verdict(gate.verdict()).to_owned(),
            code(&gate.id),
            tally(gate.cases()),
            record.map_or(String::new(), |record| format!("{:.0}", record.seconds)),
            match &gate.state {
                State::Recorded { record, .. } => {
                    let quick = if record.quick { " (quick subset)" } else { "" };
                    inline(&format!("{}{quick}", record.title))
                }
                State::Missing { why } => inline(why),
                State::Skipped { title, .. } => inline(title),
            },
        ]
    }));
    let _ = writeln!(text, "{}", table(&overview));
    if let Some(words) = report.skipped_words() {
        let _ = writeln!(text, "{words}\n");
    }
    for (file, reason) in &report.skipped {
        let _ = writeln!(text, "- not read: {}: {}", code(file), inline(reason));
    }
    for speeds in report.records().filter_map(speeds::table) {
        let _ = writeln!(
            text,
            "\n**{}** on {}\n",
            inline(&speeds.gate),
            inline(&speeds.model)
        );
        let mut rows = vec![speeds::HEAD.map(str::to_owned).to_vec()];
        rows.extend(speeds.rows.iter().map(|row| speeds::cells(row).to_vec()));
        text.push_str(&table(&rows));
    }
    for gate in &report.gates {
        details(&mut text, gate);
    }
    if let Some(plan) = report.runs.last().and_then(|run| run.plan.as_ref()) {
        let _ = writeln!(text, "\n{}", code(&plan.command));
    }
    text
}

fn details(text: &mut String, gate: &Gate) {
    if gate.is_missing() {
        return;
    }
    let verdict = gate.verdict();
    let open = if verdict == Verdict::Pass {
        ""
    } else {
        " open"
    };
    let _ = writeln!(
        text,
        "\n<details{open}><summary>{} <code>{}</code>: {verdict}</summary>\n",
        Signs::Unicode.verdict(verdict),
        escape(&gate.id)
    );
    let faults = || gate.cases().iter().filter(|c| c.verdict != Verdict::Pass);
    for case in faults().take(NAMED) {
        let reason = case.reason.as_deref().unwrap_or_default();
        let _ = writeln!(
            text,
            "- {} {}: {}",
            Signs::Unicode.verdict(case.verdict),
            inline(&case.name),
            inline(reason)
        );
    }
    match faults().count().saturating_sub(NAMED) {
        0 => {}
        more => {
            let _ = writeln!(text, "- and {more} more");
        }
    }
    // What was skipped has a table of nothing.
    if let Some(record) = gate.record().filter(|_| verdict != Verdict::Skipped) {
        let rows = rows(record, Signs::Unicode);
        let cells = |row: &Vec<String>| row.iter().map(|cell| inline(cell)).collect();
        let rows: Vec<Vec<String>> = rows.iter().map(cells).collect();
        let _ = writeln!(text, "\n{}", table(&rows));
    }
    text.push_str("</details>\n");
}

/// `24 ✔`, or `1 ✖ 23 ✔`.
fn tally(cases: &[Case]) -> String {
    let some = counts(cases).into_iter().filter(|(_, count)| *count > 0);
    let words = some.map(|(verdict, count)| format!("{count} {}", Signs::Unicode.verdict(verdict)));
    words.collect::<Vec<_>>().join(" ")
}

/// Text that Markdown and the HTML in it must take as text; also no mention of a person, no link
/// to an issue.
fn inline(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => shown.push_str("&amp;"),
            '<' => shown.push_str("&lt;"),
            '>' => shown.push_str("&gt;"),
            '@' => shown.push_str("&#64;"),
            '#' => shown.push_str("&#35;"),
            '\\' | '`' | '*' | '_' | '[' | ']' | '~' | '!' => {
                shown.push('\\');
                shown.push(c);
            }
            c => shown.push(c),
        }
    }
    // What looks like an address would become a link.
    shown.replace("://", ":&#47;/").replace("www.", "www&#46;")
}

/// Text between backticks, as many as it takes.
fn code(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(longest + 1);
    match longest {
        0 => format!("{fence}{text}{fence}"),
        _ => format!("{fence} {text} {fence}"),
    }
}

fn escape(text: &str) -> String {
    let text = text.replace('&', "&amp;");
    text.replace('<', "&lt;").replace('>', "&gt;")
}
