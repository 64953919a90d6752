//! The table of a gate: one row per number of slots and longest draft, one column per prompt,
//! or per setting in a gate of kind `drafts`.

use crate::gate::perf::show;
use crate::gate::{acceptance, checks, counters, goldens, logits, retrieval};
use crate::model::{CellRecord, GateKind, GateRecord, Verdict};

/// Which signs a table may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signs {
    /// For terminals: ✔ and ✖.
    Unicode,
    /// For logs and pipes: words.
    Ascii,
}

impl Signs {
    /// The sign of a verdict; no sign needs colour to be told from another.
    pub fn verdict(self, verdict: Verdict) -> &'static str {
        match (self, verdict) {
            (Signs::Unicode, Verdict::Pass) => "✔",
            (Signs::Unicode, Verdict::Fail) => "✖",
            (Signs::Unicode, Verdict::Inconclusive) => "?",
            (Signs::Unicode, Verdict::Skipped) => "–",
            (Signs::Ascii, Verdict::Pass) => "ok",
            (Signs::Ascii, Verdict::Fail) => "FAIL",
            (Signs::Ascii, Verdict::Inconclusive) => "??",
            (Signs::Ascii, Verdict::Skipped) => "-",
        }
    }
}

/// Rows of a table, the first one being its head.
pub fn rows(record: &GateRecord, signs: Signs) -> Vec<Vec<String>> {
    if let Some(perf) = &record.perf {
        return show::rows(perf, signs);
    }
    match record.kind {
        GateKind::Acceptance => return acceptance::rows(&record.acceptance, signs),
        GateKind::Integrity | GateKind::Artifacts => return checks::rows(&record.checks, signs),
        GateKind::Logits => return logits::rows(&record.logits, signs),
        GateKind::Counters => return counters::rows(&record.counters, &record.checks, signs),
        GateKind::Retrieval => return retrieval::rows(&record.retrieval, signs),
        GateKind::Chash | GateKind::Drafts | GateKind::Perf => {}
    }
    let settings = settings(record);
    let has_settings = settings.iter().any(Option::is_some);
    let mut head: Vec<String> = Vec::new();
    if has_settings {
        head.push("setting".to_owned());
    }
    head.extend(["slots".to_owned(), "n_max".to_owned()]);
    let columns = columns(record);
    head.extend(columns.iter().map(|name| (*name).to_owned()));
    head.push("drafted".to_owned());
    head.push("accepted".to_owned());
    let mut rows = vec![head];
    let places = settings.iter().flat_map(|setting| {
        let slots = record.slots.iter();
        slots.map(move |slots| (*setting, *slots))
    });
    for (setting, slots) in places {
        for &n_max in &record.n_max {
            let of_row = |cell: &&CellRecord| {
                cell.slots == slots && cell.n_max == n_max && cell.setting.as_deref() == setting
            };
            let cells: Vec<&CellRecord> = record.cells.iter().filter(of_row).collect();
            // Each setting has its own lists.
            if cells.is_empty() && (has_settings || record.kind == GateKind::Drafts) {
                continue;
            }
            let mut row: Vec<String> = Vec::new();
            if has_settings {
                row.push(setting.unwrap_or("-").to_owned());
            }
            row.extend([slots.to_string(), n_max.to_string()]);
            for name in &columns {
                let cell = cells.iter().find(|cell| cell.prompt == *name);
                row.push(cell.map_or("-".to_owned(), |cell| show(cell, signs)));
            }
            let answers = || cells.iter().flat_map(|cell| &cell.candidate);
            // A record may come from anywhere, and must not end the program that shows it.
            let drafted = answers().fold(0u64, |sum, a| sum.saturating_add(a.drafted));
            let accepted = answers().fold(0u64, |sum, a| sum.saturating_add(a.accepted));
            row.push(drafted.to_string());
            row.push(match drafted {
                0 => "-".to_owned(),
                _ => format!(
                    "{accepted} ({:.0} %)",
                    100.0 * accepted as f64 / drafted as f64
                ),
            });
            rows.push(row);
        }
    }
    rows
}

/// The settings of the cells, in their order; one that is none where there are none.
fn settings(record: &GateRecord) -> Vec<Option<&str>> {
    let mut names: Vec<Option<&str>> = Vec::new();
    for cell in &record.cells {
        let name = cell.setting.as_deref();
        if !names.contains(&name) {
            names.push(name);
        }
    }
    if names.is_empty() {
        names.push(None);
    }
    names
}

/// The prompts, or the settings in the order of their cells.
fn columns(record: &GateRecord) -> Vec<&str> {
    if record.kind == GateKind::Chash {
        return record.prompts.iter().map(|p| p.name.as_str()).collect();
    }
    let mut names: Vec<&str> = record.cells.iter().map(|c| c.prompt.as_str()).collect();
    names.dedup();
    names
}

/// `✔ 2c08114d7f`, or both hashes where they differ; `✔ 512 steps` where steps were compared.
fn show(cell: &CellRecord, signs: Signs) -> String {
    let sign = signs.verdict(cell.verdict);
    if let Some(steps) = cell.steps {
        return format!("{sign} {steps} steps");
    }
    // The sequence that differs may be one that was decoded beside the leading prompt.
    let place = [&cell.control_difference, &cell.difference]
        .into_iter()
        .flatten()
        .map(|difference| difference.place)
        .next()
        .unwrap_or(0);
    let hash = |answers: &[crate::model::AnswerRecord]| {
        answers
            .get(place)
            .map_or("-".to_owned(), |a| a.chash.clone())
    };
    let baseline = hash(&cell.baseline);
    let other = if cell.control_difference.is_some() {
        hash(&cell.control)
    } else {
        hash(&cell.candidate)
    };
    if baseline == other {
        format!("{sign} {baseline}")
    } else {
        format!("{sign} {baseline}/{other}")
    }
}

/// The rows in columns, for a terminal or a log.
pub fn aligned(rows: &[Vec<String>]) -> String {
    let columns = rows.first().map_or(0, Vec::len);
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            line.push_str(&format!("{cell:<width$}  "));
        }
        text.push_str(line.trim_end());
        text.push('\n');
        if at == 0 {
            let rule: Vec<String> = widths.iter().map(|width| "-".repeat(*width)).collect();
            text.push_str(&rule.join("  "));
            text.push('\n');
        }
    }
    text
}

/// The rows as a Markdown table.
pub fn markdown(rows: &[Vec<String>]) -> String {
    let line = |cells: &[String]| {
        let cells: Vec<String> = cells.iter().map(|cell| cell.replace('|', "\\|")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let mut text = String::new();
    for (at, row) in rows.iter().enumerate() {
        text.push_str(&line(row));
        if at == 0 {
            text.push_str(&line(&vec!["---".to_owned(); row.len()]));
        }
    }
    text
}

/// Cells that are explained on a terminal; the report explains all.
const SHOWN: usize = 6;

/// What a person reads of one gate: verdict, table, and every cell that is not a pass.
pub fn text(record: &GateRecord, signs: Signs) -> String {
    let mut text = format!(
        "{} gate {}: {}{} - {}\n\n{}",
        signs.verdict(record.verdict),
        record.gate,
        record.verdict,
        if record.quick { " (quick subset)" } else { "" },
        record.title,
        aligned(&rows(record, signs)),
    );
    if let Some(reason) = &record.reason {
        text.push_str(&format!("\ncaution: {reason}\n"));
    }
    let faults: Vec<&CellRecord> = faults(record).collect();
    if !faults.is_empty() {
        text.push('\n');
    }
    for cell in faults.iter().take(SHOWN) {
        text.push_str(&format!(
            "{} {}: {}\n",
            signs.verdict(cell.verdict),
            place(cell),
            cell.reason.as_deref().unwrap_or_default()
        ));
    }
    if faults.len() > SHOWN {
        let more = faults.len() - SHOWN;
        text.push_str(&format!("and {more} more, named in the report\n"));
    }
    for fault in acceptance::faults(&record.acceptance, signs) {
        text.push_str(&format!("{fault}\n"));
    }
    if let Some(perf) = &record.perf {
        for fault in show::faults(perf, signs) {
            text.push_str(&format!("{fault}\n"));
        }
    }
    for fault in of_kinds(record, signs) {
        text.push_str(&format!("{fault}\n"));
    }
    if let Some(golden) = &record.golden {
        text.push_str(&format!("{}\n", goldens::line(golden)));
    }
    for note in &record.notes {
        text.push_str(&format!("note: {note}\n"));
    }
    text
}

/// What did not pass in the kinds that have no cells, a line each.
pub fn of_kinds(record: &GateRecord, signs: Signs) -> Vec<String> {
    let mut faults = checks::faults(&record.checks, signs);
    faults.extend(logits::faults(&record.logits, signs));
    faults.extend(counters::faults(&record.counters, signs));
    faults.extend(retrieval::faults(&record.retrieval, signs));
    faults
}

/// The cells that did not pass.
pub fn faults(record: &GateRecord) -> impl Iterator<Item = &CellRecord> {
    record
        .cells
        .iter()
        .filter(|cell| cell.verdict != Verdict::Pass)
}

/// `prompt `long`, n_max 3, 2 slots`.
pub fn place(cell: &CellRecord) -> String {
    let setting = match &cell.setting {
        Some(name) => format!("setting `{name}`, "),
        None => String::new(),
    };
    format!(
        "{setting}{} `{}`, n_max {}, {} slot{}",
        if cell.steps.is_some() {
            "setting"
        } else {
            "prompt"
        },
        cell.prompt,
        cell.n_max,
        cell.slots,
        if cell.slots == 1 { "" } else { "s" }
    )
}
