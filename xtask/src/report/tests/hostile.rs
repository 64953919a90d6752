//! Records that somebody made who means no good, or that a disk damaged.

use serde_json::{Value, json};

use super::*;
use crate::report::compare;

/// Puts `text` in place of every string of a record that is free text.
fn poison(value: &mut Value, text: &str) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(|value| poison(value, text)),
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    // What is no free text: digests, and words with a meaning.
                    Value::String(_)
                        if ["sha256", "definition", "source", "id"].contains(&key.as_str()) => {}
                    Value::String(_)
                        if ["verdict", "kind", "flavour", "metric"].contains(&key.as_str()) => {}
                    Value::String(old) => *old = text.to_owned(),
                    Value::Array(list) if list.iter().any(Value::is_string) => {
                        *list = vec![Value::String(text.to_owned()); list.len()];
                    }
                    value => poison(value, text),
                }
            }
        }
        _ => {}
    }
}

fn poisoned(text: &str) -> Report {
    let records = [perf(), acceptance(), record(&tangle)].map(|record| {
        let mut value = serde_json::to_value(&record).unwrap();
        poison(&mut value, text);
        serde_json::from_value(value).unwrap()
    });
    let mut run = run(text, &[text], records.to_vec());
    if let Some(plan) = &mut run.plan {
        plan.command = text.to_owned();
        plan.started = text.to_owned();
        plan.run.host.name = Some(text.to_owned());
        plan.run.host.system = text.to_owned();
        plan.run.host.model = Some(text.to_owned());
    }
    run.missing = vec![text.to_owned()];
    run.skipped.push(Skipped {
        file: std::path::Path::new("x").join(text.replace('/', "")),
        reason: text.to_owned(),
    });
    let history = vec![crate::report::history::past(&run); 2];
    report_of(vec![run], history).unwrap()
}

const POISON: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "' onload='x",
    "</style></svg><b>",
    "a\nb\r\n\tc",
    "\u{202e}desrever\u{2066}\u{200b}",
    "\u{0}\u{1b}[31m]]>--><!--&amp;&#0;",
    "https://example.org ![x](https://example.org/x) @somebody #1 `|` \\",
];

#[test]
fn no_text_of_a_record_becomes_markup() {
    let clean = parse(&html(&poisoned("x")));
    for text in POISON {
        let report = poisoned(text);
        let made = html(&report);
        let page = parse(&made);
        assert_eq!(page.elements, clean.elements, "{text:?}");
        let shown = crate::report::visible::visible(text);
        assert!(
            page.texts.iter().any(|found| found.contains(&shown)),
            "{text:?}"
        );
        assert!(
            !made.contains(['\u{202e}', '\u{2066}', '\u{0}', '\u{1b}']),
            "{text:?}"
        );
        let (counts, texts) = xml(&junit(&report).unwrap());
        assert_eq!(counts, xml(&junit(&poisoned("x")).unwrap()).0, "{text:?}");
        assert!(texts.contains(&shown), "{text:?}");
    }
}

#[test]
fn no_text_of_a_record_becomes_markdown() {
    let tags = |made: &str| -> Vec<String> {
        // Between backticks nothing is a tag.
        let outside = made
            .lines()
            .filter(|line| !line.contains('`') || line.contains("\\`"));
        let parts = outside.flat_map(|line| line.split('<').skip(1).map(str::to_owned));
        let names = parts.map(|rest| rest.split(['>', ' ']).next().unwrap_or_default().to_owned());
        names.collect()
    };
    let clean = tags(&markdown(&poisoned("x")));
    assert!(clean.len() > 8, "{clean:?}");
    for text in POISON {
        let made = markdown(&poisoned(text));
        let known = |tag: &String| clean.contains(tag);
        assert!(tags(&made).iter().all(known), "{text:?}: {made}");
        assert!(!made.contains(['\u{202e}', '\u{0}', '\u{1b}']), "{text:?}");
    }
}

#[test]
fn markdown_leaves_people_and_issues_alone() {
    let made = markdown(&poisoned("@somebody #1 ![x](y) https://example.org"));
    let outside = made.lines().filter(|line| !line.contains('`'));
    for line in outside {
        for wild in ["@somebody", "#1", "![", "https://"] {
            assert!(!line.contains(wild) || line.contains("<code>"), "{line}");
        }
    }
}

static CLEAN: std::sync::LazyLock<Vec<(usize, String)>> =
    std::sync::LazyLock::new(|| parse(&html(&poisoned("x"))).elements);

proptest::proptest! {
    #![proptest_config(proptest::prelude::ProptestConfig::with_cases(8))]
    #[test]
    fn any_text_stays_text(text in "[\\PC\\x00-\\x1f<>&'\"]{0,24}") {
        let report = poisoned(&format!("x{text}"));
        let page = parse(&html(&report));
        proptest::prop_assert_eq!(&page.elements, &*CLEAN);
        xml(&junit(&report).unwrap());
    }
}

/// Sets every number that stands under `key`.
fn set_numbers(value: &mut Value, key: &str, number: &Value, inside: bool) {
    match value {
        Value::Array(list) => {
            let all = list.iter_mut();
            all.for_each(|value| set_numbers(value, key, number, inside));
        }
        Value::Object(map) => {
            for (name, value) in map {
                set_numbers(value, key, number, name == key);
            }
        }
        Value::Number(_) if inside => *value = number.clone(),
        _ => {}
    }
}

fn keys_of_numbers(value: &Value, key: &str, keys: &mut Vec<String>) {
    match value {
        Value::Array(list) => list
            .iter()
            .for_each(|value| keys_of_numbers(value, key, keys)),
        Value::Object(map) => map
            .iter()
            .for_each(|(key, value)| keys_of_numbers(value, key, keys)),
        Value::Number(_) if !keys.iter().any(|known| known == key) => keys.push(key.to_owned()),
        _ => {}
    }
}

#[test]
fn no_number_of_a_record_ends_the_program() {
    let (mut tried, mut drawn) = (0, Vec::new());
    for record in [perf(), acceptance(), record(&tangle)] {
        let clean = serde_json::to_value(&record).unwrap();
        let mut keys = Vec::new();
        keys_of_numbers(&clean, "", &mut keys);
        for key in keys {
            for number in [
                json!(0),
                json!(u32::MAX),
                json!(u64::MAX),
                json!(-1e308),
                json!(1e308),
            ] {
                let mut value = clean.clone();
                set_numbers(&mut value, &key, &number, false);
                // What does not fit is no record.
                let Ok(odd) = serde_json::from_value::<GateRecord>(value) else {
                    continue;
                };
                let _ = compare::records(&record, &odd);
                let run = run("r", &["x"], vec![odd]);
                let history = vec![crate::report::history::past(&run); 2];
                let report = report_of(vec![run], history).unwrap();
                let made = html(&report);
                if made.contains("NaN") {
                    drawn.push(format!("{key} = {number}"));
                }
                markdown(&report);
                junit(&report).unwrap();
                tried += 1;
            }
        }
    }
    assert!(drawn.is_empty(), "not a number: {drawn:?}");
    assert!(tried > 100, "{tried}");
}
