//! `target/gate/report.md`: what a person reads the next day.

use std::fmt::Write as _;

use crate::gate::acceptance;
use crate::gate::goldens;
use crate::gate::perf::show;
use crate::gate::table::{Signs, faults, markdown, of_kinds, place, rows};
use crate::model::{CellRecord, GateKind, GateRecord, ProbeStamp, SideStamp, Verdict};

/// The report over all gates of one run. `command` is what makes it again.
pub fn report(records: &[GateRecord], command: &str) -> String {
    let verdict = Verdict::all(records.iter().map(|record| record.verdict));
    let mut text = format!("# Gates: {}\n\n", verdict.to_string().to_uppercase());
    text.push_str(match verdict {
        Verdict::Pass => "Every comparison passed, and so did its control where it has one.\n\n",
        Verdict::Fail => "A comparison did not pass. What differs is named below.\n\n",
        Verdict::Inconclusive | Verdict::Skipped => {
            "Nothing can be said: a control did not pass, or the run did not do what it was \
             meant to do. This is not a pass.\n\n"
        }
    });
    for record in records {
        gate(&mut text, record);
    }
    let _ = write!(text, "## Again\n\n```sh\n{command}\n```\n");
    text
}

// Writing to a string cannot fail; that is why the results are dropped here.
fn gate(text: &mut String, record: &GateRecord) {
    let _ = writeln!(
        text,
        "## {} `{}`: {}\n\n{}\n",
        Signs::Unicode.verdict(record.verdict),
        record.gate,
        record.verdict,
        record.title
    );
    if record.quick {
        let _ = writeln!(text, "Only the quick subset of the definition ran.\n");
    }
    if let Some(reason) = &record.reason {
        let _ = writeln!(text, "**Caution:** {reason}\n");
    }
    let _ = writeln!(text, "{}", markdown(&rows(record, Signs::Unicode)));
    let _ = match record.kind {
        GateKind::Drafts => writeln!(
            text,
            "Each entry is a setting and the number of drafted steps whose ids and logits were \
             compared bit for bit.\n"
        ),
        GateKind::Acceptance => writeln!(
            text,
            "Accepted of drafted tokens over all prompts, with intervals that hold the true share in 95 of 100 cases.\n"
        ),
        GateKind::Perf => writeln!(
            text,
            "Above 0 is worse. Each interval holds the true change in 95 of 100 cases; it passes where it lies \
             wholly within what is allowed and fails where it lies wholly beyond.\n"
        ),
        GateKind::Integrity => writeln!(
            text,
            "Every file was read and hashed; no time stamp was trusted.\n"
        ),
        GateKind::Artifacts => writeln!(
            text,
            "What the files export, need and carry was read from the files.\n"
        ),
        GateKind::Logits => writeln!(
            text,
            "All logits of every position, bit for bit. The columns of the sides are the beginnings of SHA-256 over them.\n"
        ),
        GateKind::Counters => writeln!(
            text,
            "Counts over one run of all prompts, compared exactly.\n"
        ),
        GateKind::Retrieval => writeln!(
            text,
            "Whether the number that the haystack holds is in the answer.\n"
        ),
        GateKind::Chash => writeln!(
            text,
            "Each entry is the chash (first ten digits of SHA-256 over the token ids) of the prompt \
         that leads the cell; two hashes where the runs differ. With more than one slot the \
         prompts decoded beside it are compared too.\n"
        ),
    };
    for cell in faults(record) {
        fault(text, cell);
    }
    let acceptance = acceptance::faults(&record.acceptance, Signs::Unicode);
    list(text, "Not passed", &acceptance);
    if let Some(perf) = &record.perf {
        list(text, "Not passed", &show::faults(perf, Signs::Unicode));
    }
    if let Some(golden) = &record.golden {
        let _ = writeln!(text, "{}\n", goldens::line(golden));
    }
    list(text, "Not passed", &of_kinds(record, Signs::Unicode));
    let notes: Vec<String> = (record.notes.iter().cloned())
        .chain(record.cells.iter().flat_map(|cell| {
            let notes = cell.notes.iter();
            notes.map(|note| format!("{}: {note}", place(cell)))
        }))
        .collect();
    list(text, "Notes", &notes);
    compared(text, record);
}

fn fault(text: &mut String, cell: &CellRecord) {
    let _ = writeln!(
        text,
        "### {} {}\n\n{}\n",
        Signs::Unicode.verdict(cell.verdict),
        place(cell),
        cell.reason.as_deref().unwrap_or_default()
    );
}

fn compared(text: &mut String, record: &GateRecord) {
    let _ = writeln!(text, "### What was compared\n");
    let model = &record.model;
    if !model.is_none() {
        let _ = writeln!(
            text,
            "- model: {} ({} bytes, sha256 `{}`)",
            model.name, model.size, model.sha256
        );
    }
    let prompts: Vec<String> = (record.prompts.iter())
        .map(|prompt| format!("`{}` ({} ids)", prompt.name, prompt.length))
        .collect();
    if !prompts.is_empty() {
        let _ = writeln!(
            text,
            "- prompts: {}; {} tokens generated for each",
            prompts.join(", "),
            record.n_predict
        );
    }
    let baseline = match record.kind {
        GateKind::Chash => "baseline, run twice",
        GateKind::Drafts => "baseline, run again where it differs",
        GateKind::Acceptance => "baseline",
        GateKind::Perf => "baseline, measured against itself first",
        GateKind::Logits | GateKind::Counters | GateKind::Retrieval => "baseline, run twice",
        GateKind::Integrity | GateKind::Artifacts => "baseline, not run",
    };
    side(text, baseline, &record.baseline);
    side(text, "candidate", &record.candidate);
    for probe in &record.probes {
        probed(text, probe);
    }
    let equal = record.drafted_against_plain.iter().filter(|r| r.equal);
    if !record.drafted_against_plain.is_empty() {
        let _ = writeln!(
            text,
            "- drafted against plain decoding, both on the baseline: {} of {} cells equal",
            equal.count(),
            record.drafted_against_plain.len()
        );
    }
    let _ = writeln!(
        text,
        "- definition: sha256 `{}`\n- begun {}, {:.1} s\n",
        record.definition, record.started, record.seconds
    );
}

fn side(text: &mut String, name: &str, stamp: &SideStamp) {
    let _ = write!(text, "- {name}: `{}`", stamp.server);
    if let (Some(flavour), Some(base)) = (stamp.flavour, &stamp.base) {
        let _ = write!(text, ", {flavour} build of {base}");
    }
    if let Some(set) = &stamp.patchset {
        let _ = write!(
            text,
            ", patch set `{}` ({})",
            set.id.short(),
            set.patches.join(", ")
        );
    }
    let _ = match stamp.env.as_slice() {
        [] => writeln!(text, ", no switches"),
        env => writeln!(text, ", switches `{}`", env.join(" ")),
    };
    for artifact in &stamp.artifacts {
        let _ = writeln!(text, "  - `{}` `{}`", artifact.path, artifact.sha256);
    }
}

fn probed(text: &mut String, probe: &ProbeStamp) {
    let _ = writeln!(
        text,
        "- probe of the {}: source `{}`, program `{}`, by {}; it had loaded",
        probe.side,
        probe.source.short(),
        probe.program.short(),
        probe.compiler
    );
    for library in &probe.libraries {
        let _ = writeln!(text, "  - `{}` `{}`", library.path, library.sha256);
    }
}

fn list(text: &mut String, title: &str, items: &[String]) {
    if items.is_empty() {
        return;
    }
    let _ = writeln!(text, "### {title}\n");
    for item in items {
        let _ = writeln!(text, "- {item}");
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::table::text;
    use crate::gate::testing::{record, tangle};

    #[test]
    fn a_pass_reads_well() {
        let record = record(&|_, _, _| {});
        assert_eq!(record.verdict, Verdict::Pass);
        let report = report(std::slice::from_ref(&record), "cargo xtask gate");
        insta::assert_snapshot!("pass_report", report);
        insta::assert_snapshot!("pass_terminal", text(&record, Signs::Unicode));
        insta::assert_snapshot!("pass_plain", text(&record, Signs::Ascii));
    }

    #[test]
    fn a_failure_names_every_cell() {
        let mut record = record(&tangle);
        record.quick = true;
        record.reason = Some("both servers have loaded libllama.so".to_owned());
        assert_eq!(record.verdict, Verdict::Fail);
        let report = report(std::slice::from_ref(&record), "cargo xtask gate");
        insta::assert_snapshot!("fail_report", report);
        insta::assert_snapshot!("fail_terminal", text(&record, Signs::Unicode));
        let plain = text(&record, Signs::Ascii);
        insta::assert_snapshot!("fail_plain", plain);
        assert!(plain.is_ascii());
    }
}
