//! JUnit XML, as CI systems read it: one suite for each gate, one test case for each of its
//! [cases](crate::report::cases).

use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};

use crate::error::{Error, Result};
use crate::model::Verdict;
use crate::report::cases::Case;
use crate::report::gather::{Gate, Report, State, subject};

/// A failed case is a `failure`, an inconclusive or missing one an `error`, a skipped one
/// `skipped`. Nothing else is a pass.
pub fn junit(report: &Report) -> Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    write(report, &mut writer).map_err(|error| Error::internal(error.to_string()))?;
    let mut text = String::from_utf8(writer.into_inner())
        .map_err(|error| Error::internal(error.to_string()))?;
    text.push('\n');
    Ok(text)
}

fn write(report: &Report, writer: &mut Writer<Vec<u8>>) -> std::io::Result<()> {
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let suites: Vec<(&Gate, Vec<Case>)> = (report.gates.iter())
        .map(|gate| (gate, cases(gate)))
        .collect();
    let unread = unread(report);
    let all = suites.iter().flat_map(|(_, cases)| cases).chain(&unread);
    let all: Vec<&Case> = all.collect();
    let mut root = BytesStart::new("testsuites");
    root.push_attribute(("name", "gates"));
    numbers(&mut root, &all);
    writer.write_event(Event::Start(root))?;
    for (gate, cases) in &suites {
        suite(writer, &gate.id, Some(gate), cases)?;
    }
    if !unread.is_empty() {
        suite(writer, "records that cannot be read", None, &unread)?;
    }
    writer.write_event(Event::End(BytesEnd::new("testsuites")))
}

/// The cases of a gate; the gate itself where it is missing, or worse than all of them.
fn cases(gate: &Gate) -> Vec<Case> {
    match &gate.state {
        State::Recorded { cases, .. } => cases.clone(),
        State::Missing { why } => vec![Case {
            name: "the gate as a whole".to_owned(),
            verdict: Verdict::Inconclusive,
            reason: Some(why.clone()),
            difference: None,
        }],
    }
}

/// A file that is not understood must not make a run green.
fn unread(report: &Report) -> Vec<Case> {
    let case = |(file, reason): &(String, String)| Case {
        name: file.clone(),
        verdict: Verdict::Inconclusive,
        reason: Some(reason.clone()),
        difference: None,
    };
    report.skipped.iter().map(case).collect()
}

fn numbers(element: &mut BytesStart<'_>, cases: &[&Case]) {
    let count = |verdict| cases.iter().filter(|case| case.verdict == verdict).count();
    for (name, number) in [
        ("tests", cases.len()),
        ("failures", count(Verdict::Fail)),
        ("errors", count(Verdict::Inconclusive)),
        ("skipped", count(Verdict::Skipped)),
    ] {
        element.push_attribute((name, number.to_string().as_str()));
    }
}

fn suite(
    writer: &mut Writer<Vec<u8>>,
    name: &str,
    gate: Option<&Gate>,
    cases: &[Case],
) -> std::io::Result<()> {
    let mut suite = BytesStart::new("testsuite");
    suite.push_attribute(("name", name));
    numbers(&mut suite, &cases.iter().collect::<Vec<_>>());
    let record = gate.and_then(Gate::record);
    if let Some(record) = record {
        suite.push_attribute(("time", format!("{:.3}", record.seconds).as_str()));
        suite.push_attribute(("timestamp", record.started.trim_end_matches('Z')));
    }
    writer.write_event(Event::Start(suite))?;
    if let Some(gate) = gate {
        let mut properties = vec![("run", gate.run.clone())];
        if let Some(record) = record {
            properties.push(("judged", subject(record)));
            properties.push(("model", record.model.name.clone()));
            properties.push(("quick", record.quick.to_string()));
        }
        writer.write_event(Event::Start(BytesStart::new("properties")))?;
        for (name, value) in properties {
            let mut property = BytesStart::new("property");
            property.push_attribute(("name", name));
            property.push_attribute(("value", value.as_str()));
            writer.write_event(Event::Empty(property))?;
        }
        writer.write_event(Event::End(BytesEnd::new("properties")))?;
    }
    for case in cases {
        test_case(writer, name, case)?;
    }
    writer.write_event(Event::End(BytesEnd::new("testsuite")))
}

fn test_case(writer: &mut Writer<Vec<u8>>, suite: &str, case: &Case) -> std::io::Result<()> {
    let mut element = BytesStart::new("testcase");
    element.push_attribute(("classname", suite));
    element.push_attribute(("name", case.name.as_str()));
    let (tag, word) = match case.verdict {
        Verdict::Pass => return writer.write_event(Event::Empty(element)),
        Verdict::Fail => ("failure", "fail"),
        Verdict::Inconclusive => ("error", "inconclusive"),
        Verdict::Skipped => ("skipped", "skipped"),
    };
    writer.write_event(Event::Start(element))?;
    let reason = case.reason.as_deref().unwrap_or(word);
    let mut inner = BytesStart::new(tag);
    inner.push_attribute(("message", reason));
    if case.verdict == Verdict::Skipped {
        writer.write_event(Event::Empty(inner))?;
    } else {
        inner.push_attribute(("type", word));
        writer.write_event(Event::Start(inner))?;
        writer.write_event(Event::Text(BytesText::new(&told(case, reason))))?;
        writer.write_event(Event::End(BytesEnd::new(tag)))?;
    }
    writer.write_event(Event::End(BytesEnd::new("testcase")))
}

/// The reason, and the ids where tokens differ.
fn told(case: &Case, reason: &str) -> String {
    match &case.difference {
        None => reason.to_owned(),
        Some(d) => format!(
            "{reason}\nids from {}: {:?}\ninstead of: {:?}",
            d.from, d.right, d.left
        ),
    }
}
