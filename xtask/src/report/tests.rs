//! The three forms of one report, made of records that exist only here.

mod hostile;

use std::collections::BTreeMap;

use html5ever::tendril::TendrilSink;
use markup5ever_rcdom::{Handle, NodeData, RcDom};
use quick_xml::Reader;
use quick_xml::events::Event;

use super::gather::report_of;
use super::{Report, html, junit, markdown};
use crate::gate::store::{Skipped, StoredRecord, StoredRun};
use crate::gate::testing::{record, tangle};
use crate::model::{
    AcceptanceRecord, ChangeRecord, CounterRecord, GateKind, GateRecord, HostStamp, MachineStamp,
    Metric, MetricRecord, PerfRecord, PositionRecord, PositionShare, RoundRecord, RunRecord,
    RunStamp, ShareRecord, SideSamples, SkippedGate, Verdict,
};

fn acceptance() -> GateRecord {
    let mut record = record(&|_, _, _| {});
    record.gate = "acceptance".to_owned();
    record.kind = GateKind::Acceptance;
    record.cells.clear();
    record.drafted_against_plain.clear();
    let share = |accepted: u64| ShareRecord {
        drafted: 100,
        accepted,
        share: Some([accepted as f64 / 100.0, 0.4, 0.8]),
    };
    let position = |position: usize, left: u64, right: u64| {
        let share = |accepted: u64| PositionShare {
            drafts: 50,
            drafted: [48, 50],
            accepted,
            share: Some([accepted as f64 / 50.0, 0.1, 0.9]),
        };
        PositionRecord {
            position,
            baseline: share(left),
            candidate: share(right),
            difference: Some([0.0, -0.1, 0.1]),
        }
    };
    record.acceptance = vec![AcceptanceRecord {
        n_max: 2,
        verdict: Verdict::Inconclusive,
        reason: Some("the interval straddles".to_owned()),
        baseline: share(60),
        candidate: share(58),
        difference: Some([-0.02, -0.15, 0.11]),
        per_token: None,
        equal: false,
        drop: Some(0.01),
        positions: vec![position(1, 40, 39), position(2, 20, 19)],
        positions_absent: None,
    }];
    record.verdict = Verdict::Inconclusive;
    record
}

pub(super) fn perf() -> GateRecord {
    let mut record = record(&|_, _, _| {});
    record.gate = "perf".to_owned();
    record.kind = GateKind::Perf;
    record.cells.clear();
    record.drafted_against_plain.clear();
    let change = |percent: f64| ChangeRecord {
        percent,
        low: percent - 0.5,
        high: percent + 0.5,
        pairs: 48,
    };
    let metric = |n_max, baseline, candidate, percent| MetricRecord {
        metric: Metric::Decode,
        n_max,
        verdict: Some(Verdict::Pass),
        reason: None,
        threshold: Some(0.01),
        baseline: Some(baseline),
        candidate: Some(candidate),
        worse: Some(change(percent)),
        control: Some(change(0.0)),
        detectable: Some(1.6),
        more_pairs: Some(0),
    };
    let counter = |name: &str, baseline, candidate| CounterRecord {
        name: name.to_owned(),
        n_max: 3,
        relation: None,
        verdict: None,
        reason: None,
        baseline: Some(baseline),
        candidate: Some(candidate),
    };
    let samples = |speed: f64, accepted| SideSamples {
        values: BTreeMap::from([(Metric::Decode, vec![speed, speed + 1.0])]),
        drafted: 100,
        accepted,
        ..SideSamples::default()
    };
    let rounds = (0..8).map(|at| RoundRecord {
        control: false,
        n_max: 3,
        baseline: samples(200.0 + f64::from(at), 63),
        candidate: samples(240.0 + f64::from(at), 64),
    });
    record.perf = Some(PerfRecord {
        planned: [6, 8],
        done: [6, 8],
        pairs_per_round: 4,
        machine: MachineStamp {
            processors: 2,
            model: None,
            governor: None,
            mhz: [None, None],
            load: [None, None],
        },
        metrics: vec![metric(0, 180.0, 179.0, 0.5), metric(3, 204.0, 244.0, -16.4)],
        counters: vec![
            counter("cycles", 100, 100),
            counter("launches_dft", 300, 100),
            counter("launches_tgt", 102, 102),
        ],
        rounds: rounds.collect(),
    });
    record
}

fn run(id: &str, gates: &[&str], records: Vec<GateRecord>) -> StoredRun {
    let stamp = RunStamp {
        id: id.to_owned(),
        host: HostStamp {
            name: None,
            system: "linux x86_64".to_owned(),
            processors: 2,
            model: Some("Some CPU".to_owned()),
        },
    };
    let has = |gate: &&&str| !records.iter().any(|record| record.gate == **gate);
    StoredRun {
        id: id.to_owned(),
        missing: gates
            .iter()
            .filter(has)
            .map(|gate| (*gate).to_owned())
            .collect(),
        plan: Some(RunRecord {
            schema: 1,
            run: stamp,
            started: "2026-01-02T03:04:05Z".to_owned(),
            command: "cargo xtask gate".to_owned(),
            quick: false,
            named: false,
            gates: gates.iter().map(|gate| (*gate).to_owned()).collect(),
            skipped: Vec::new(),
            idle: Vec::new(),
        }),
        records: records
            .into_iter()
            .map(|record| StoredRecord {
                file: format!("records/{id}/{}.json", record.gate).into(),
                record,
            })
            .collect(),
        skipped: Vec::new(),
    }
}

fn whole() -> Report {
    let mut skipped = record(&|_, _, _| {});
    skipped.gate = "gpu".to_owned();
    skipped.verdict = Verdict::Skipped;
    skipped.reason = Some("there is no such device".to_owned());
    skipped.cells.clear();
    let records = vec![perf(), acceptance(), record(&tangle), skipped];
    let gates = ["perf", "acceptance", "chash", "gpu", "lost", "torn"];
    let mut run = run("20260102T030405Z-abcd", &gates, records);
    run.skipped.push(Skipped {
        file: "records/x/torn.json".into(),
        reason: "it is damaged: EOF".to_owned(),
    });
    let earlier = self::run("20260101T030405Z-0000", &["perf"], vec![perf()]);
    let history = [&earlier, &run].map(super::history::past);
    report_of(vec![run], history.to_vec()).unwrap()
}

#[test]
fn what_is_missing_or_cannot_be_read_is_no_pass() {
    let verdict = |run: StoredRun| report_of(vec![run], Vec::new()).unwrap().verdict;
    assert_eq!(verdict(run("r", &["perf"], vec![perf()])), Verdict::Pass);
    assert_eq!(
        verdict(run("r", &["perf", "b"], vec![perf()])),
        Verdict::Inconclusive
    );
    let mut unread = run("r", &["perf"], vec![perf()]);
    unread.skipped.push(Skipped {
        file: "r/x.json".into(),
        reason: "it is damaged".to_owned(),
    });
    assert_eq!(verdict(unread), Verdict::Inconclusive);
    assert_eq!(
        verdict(run("r", &["chash"], vec![record(&tangle)])),
        Verdict::Fail
    );
    // Whatever a record says of itself.
    let mut lie = record(&tangle);
    lie.verdict = Verdict::Pass;
    assert_eq!(verdict(run("r", &["chash"], vec![lie])), Verdict::Fail);
}

fn skipped_gate(gate: &str) -> SkippedGate {
    SkippedGate {
        gate: gate.to_owned(),
        title: "Same tokens on a GPU".to_owned(),
        reason: "this machine has no GPU".to_owned(),
        hint: "run it on one that has".to_owned(),
    }
}

#[test]
fn a_gate_that_was_skipped_stands_in_every_form() {
    let report = |named: bool, gates: &[&str], records| {
        let mut run = run("r", gates, records);
        let plan = run.plan.as_mut().unwrap();
        plan.skipped.push(skipped_gate("cuda"));
        plan.named = named;
        let history = vec![super::history::past(&run)];
        report_of(vec![run], history).unwrap()
    };
    let some = report(false, &["perf"], vec![perf()]);
    assert_eq!(some.verdict, Verdict::Pass);
    assert_eq!(some.gates[0].verdict(), Verdict::Skipped);
    assert_eq!(some.history[0].gates[1].1, Verdict::Skipped);
    let (counts, texts) = xml(&junit(&some).unwrap());
    assert_eq!((counts["testsuite"], counts["skipped"]), (2, 1));
    let why = "this machine has no GPU; run it on one that has";
    assert!(texts.iter().any(|text| text == why), "{texts:?}");
    let comment = markdown(&some);
    let page = html(&some);
    for word in [why, "cuda", "1 of 2 gates was skipped, which is no pass."] {
        assert!(comment.contains(word), "{word}: {comment}");
        assert!(page.contains(word), "{word}: {page}");
    }
    assert!(!page.contains("Every comparison passed"));
    // Where it was named, or where nothing else ran, the others do not decide.
    let named = report(true, &["perf"], vec![perf()]);
    assert_eq!(named.verdict, Verdict::Inconclusive);
    assert!(html(&named).contains("What was asked for did not run."));
    assert_eq!(report(false, &[], vec![]).verdict, Verdict::Inconclusive);
}

#[test]
fn a_backend_on_which_nothing_ran_stands_in_every_form() {
    let mut run = run("r", &["perf"], vec![perf()]);
    run.plan.as_mut().unwrap().idle.push("cuda".to_owned());
    run.missing.push(RunRecord::idle_name("cuda"));
    let history = vec![super::history::past(&run)];
    let report = report_of(vec![run], history).unwrap();
    assert_eq!(report.verdict, Verdict::Inconclusive);
    assert_eq!(report.history[0].gates[1].1, Verdict::Inconclusive);
    let (counts, texts) = xml(&junit(&report).unwrap());
    assert_eq!((counts["testsuite"], counts["error"]), (2, 1));
    let why = "nothing was computed on it";
    assert!(texts.iter().any(|text| text.contains(why)), "{texts:?}");
    for form in [markdown(&report), html(&report)] {
        assert!(
            form.contains("backend cuda") && form.contains(why),
            "{form}"
        );
    }
}

#[test]
fn a_named_gate_that_skipped_itself_is_no_pass() {
    let mut skipped = record(&|_, _, _| {});
    skipped.gate = "logits".to_owned();
    skipped.verdict = Verdict::Skipped;
    skipped.cells.clear();
    let mut run = run("r", &["perf", "logits"], vec![perf(), skipped]);
    let verdict = |run: &StoredRun| report_of(vec![run.clone()], Vec::new()).unwrap().verdict;
    assert_eq!(verdict(&run), Verdict::Pass);
    run.plan.as_mut().unwrap().named = true;
    assert_eq!(verdict(&run), Verdict::Inconclusive);
}

#[test]
fn the_comment_reads_well() {
    insta::assert_snapshot!("comment", markdown(&whole()));
}

#[test]
fn junit_has_a_suite_for_each_gate() {
    let text = junit(&whole()).unwrap();
    insta::assert_snapshot!("junit", text);
    let (counts, _) = xml(&text);
    assert_eq!(counts["testsuite"], 7);
    assert_eq!(counts["skipped"], 1);
}

/// Elements by name, and all attribute values and texts. Fails on what is no XML.
fn xml(text: &str) -> (BTreeMap<String, usize>, Vec<String>) {
    if let Some(found) = text.chars().find(|c| c.is_control() && *c != '\n') {
        panic!("{found:?} is not allowed in XML");
    }
    let mut reader = Reader::from_str(text);
    reader.config_mut().check_end_names = true;
    let (mut counts, mut texts, mut depth) = (BTreeMap::new(), Vec::new(), 0usize);
    loop {
        let event = reader.read_event().unwrap();
        depth += usize::from(matches!(event, Event::Start(_)));
        match event {
            Event::Eof => break,
            Event::End(_) => depth -= 1,
            Event::Text(part) => texts.push(part.to_string()),
            Event::Start(start) | Event::Empty(start) => {
                let name = start.name().as_ref().to_owned();
                *counts.entry(name).or_insert(0) += 1;
                for attribute in start.attributes() {
                    let value = attribute.unwrap().normalized_value(Default::default());
                    texts.push(value.unwrap().into_owned());
                }
            }
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    (counts, texts)
}

/// The page as a browser reads it: every element as `tag.class` with its depth, and all texts.
struct Page {
    elements: Vec<(usize, String)>,
    attributes: Vec<(String, String)>,
    texts: Vec<String>,
}

fn parse(text: &str) -> Page {
    let dom = html5ever::parse_document(RcDom::default(), Default::default()).one(text);
    let errors = dom.errors.borrow();
    assert!(errors.is_empty(), "{errors:?}");
    let mut page = Page {
        elements: Vec::new(),
        attributes: Vec::new(),
        texts: Vec::new(),
    };
    visit(&dom.document, 0, &mut page);
    page
}

fn visit(node: &Handle, depth: usize, page: &mut Page) {
    match &node.data {
        NodeData::Element { name, attrs, .. } => {
            let mut shown = name.local.to_string();
            for attribute in attrs.borrow().iter() {
                let (key, value) = (
                    attribute.name.local.to_string(),
                    attribute.value.to_string(),
                );
                if key == "class" {
                    shown = format!("{shown}.{}", value.replace(' ', "."));
                }
                page.attributes.push((key, value));
            }
            page.elements.push((depth, shown));
        }
        NodeData::Text { contents } => page.texts.push(contents.borrow().to_string()),
        NodeData::Comment { .. } => panic!("a comment came out of text"),
        _ => {}
    }
    for child in node.children.borrow().iter() {
        visit(child, depth + 1, page);
    }
}

/// What the page is made of, without what is inside charts and tables.
#[test]
fn the_page_keeps_its_structure() {
    let page = parse(&html(&whole()));
    let shown = |(depth, name): &&(usize, String)| {
        let outer = [
            "h1", "h2", "h3", "section", "figure", "table", "details", "ol", "header",
        ];
        *depth < 10
            && outer
                .iter()
                .any(|tag| name == tag || name.starts_with(&format!("{tag}.")))
    };
    let lines = page.elements.iter().filter(shown);
    let lines: Vec<String> = lines
        .map(|(d, name)| format!("{}{name}", "  ".repeat(*d)))
        .collect();
    insta::assert_snapshot!("page", lines.join("\n"));
    let text = page.texts.join(" ");
    for part in [
        "it has no record: the run broke off",
        "damaged: EOF",
        "no such device",
    ] {
        assert!(text.contains(part), "{part}");
    }
}

#[test]
fn the_page_needs_nothing_from_elsewhere() {
    let text = html(&whole());
    let page = parse(&text);
    for tag in ["script", "link", "img", "iframe", "object", "base", "form"] {
        assert!(!page.elements.iter().any(|(_, name)| name == tag), "{tag}");
    }
    for (name, value) in &page.attributes {
        assert!(!name.starts_with("on"), "{name}");
        if ["href", "src", "data", "action", "xlink:href"].contains(&name.as_str()) {
            assert!(value.starts_with('#'), "{name}={value}");
        }
    }
    assert!(!text.contains("http:") && !text.contains("https:"));
    assert!(!text.contains("url(") && !text.contains("@import"));
}

#[test]
fn every_picture_says_what_it_shows() {
    let text = html(&whole());
    let dom = html5ever::parse_document(RcDom::default(), Default::default()).one(text.as_str());
    let mut pictures = 0;
    pictures_of(&dom.document, &mut pictures);
    assert!(pictures > 12, "{pictures}");
    let page = parse(&text);
    let mut ids: Vec<&str> = Vec::new();
    for (_, value) in page.attributes.iter().filter(|(name, _)| name == "id") {
        assert!(!ids.contains(&value.as_str()), "{value} stands twice");
        ids.push(value);
    }
}

fn pictures_of(node: &Handle, pictures: &mut usize) {
    if let NodeData::Element { name, attrs, .. } = &node.data
        && &*name.local == "svg"
    {
        let attrs = attrs.borrow();
        let has = |name: &str| attrs.iter().any(|a| &*a.name.local == name);
        let named = has("role") && (has("aria-label") || has("aria-labelledby"));
        assert!(named || has("aria-hidden"), "{attrs:?}");
        *pictures += usize::from(named);
    }
    for child in node.children.borrow().iter() {
        pictures_of(child, pictures);
    }
}
