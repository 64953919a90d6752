//! What CycloneDX 1.5 requires of the parts that we write.

use std::collections::BTreeSet;

use serde_json::Value;

/// Kinds of components that 1.5 knows.
const KINDS: [&str; 12] = [
    "application",
    "framework",
    "library",
    "container",
    "platform",
    "operating-system",
    "device",
    "device-driver",
    "firmware",
    "file",
    "machine-learning-model",
    "data",
];

/// Where a document is not what the format requires; empty where all is well.
pub fn faults(document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut wrong = |what: String| faults.push(what);
    for (name, value) in [("bomFormat", "CycloneDX"), ("specVersion", "1.5")] {
        if document[name] != value {
            wrong(format!("{name} is {}, not {value:?}", document[name]));
        }
    }
    if document["version"].as_u64().unwrap_or(0) < 1 {
        wrong("version is no number from 1".to_owned());
    }
    let serial = document["serialNumber"].as_str().unwrap_or_default();
    if !serial.strip_prefix("urn:uuid:").is_some_and(is_uuid) {
        wrong(format!("serialNumber {serial:?} is no UUID"));
    }
    let mut references = BTreeSet::new();
    component(
        "metadata.component",
        &document["metadata"]["component"],
        &mut references,
        &mut wrong,
    );
    match document["components"].as_array() {
        None => wrong("components is no list".to_owned()),
        Some(list) => {
            for (at, one) in list.iter().enumerate() {
                component(
                    &format!("components[{at}]"),
                    one,
                    &mut references,
                    &mut wrong,
                );
            }
        }
    }
    for one in document["dependencies"].as_array().into_iter().flatten() {
        let list = one["dependsOn"].as_array().into_iter().flatten();
        for name in list.chain(std::iter::once(&one["ref"])) {
            if !name.as_str().is_some_and(|name| references.contains(name)) {
                wrong(format!("dependencies name {name}, which is no component"));
            }
        }
    }
    faults
}

fn is_uuid(text: &str) -> bool {
    let parts: Vec<&str> = text.split('-').collect();
    let lengths: Vec<usize> = parts.iter().map(|part| part.len()).collect();
    let is_hex = |part: &&str| part.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    lengths == [8, 4, 4, 4, 12] && parts.iter().all(is_hex)
}

fn component(
    place: &str,
    value: &Value,
    references: &mut BTreeSet<String>,
    wrong: &mut dyn FnMut(String),
) {
    let kind = value["type"].as_str().unwrap_or_default();
    if !KINDS.contains(&kind) {
        wrong(format!("{place}.type is {}", value["type"]));
    }
    if value["name"].as_str().unwrap_or_default().is_empty() {
        wrong(format!("{place}.name is missing"));
    }
    if let Some(name) = value["bom-ref"].as_str()
        && !references.insert(name.to_owned())
    {
        wrong(format!("{place}.bom-ref {name:?} stands twice"));
    }
    for hash in value["hashes"].as_array().into_iter().flatten() {
        let content = hash["content"].as_str().unwrap_or_default();
        let is_hex = content.len() == 64 && content.bytes().all(|byte| byte.is_ascii_hexdigit());
        if hash["alg"] != "SHA-256" || !is_hex {
            wrong(format!("{place}.hashes holds {hash}"));
        }
    }
    for licence in value["licenses"].as_array().into_iter().flatten() {
        let text = |value: &Value| value.as_str().is_some_and(|text| !text.is_empty());
        let (one, expression) = (&licence["license"], &licence["expression"]);
        let named = text(&one["id"]) != text(&one["name"]);
        if named == text(expression) {
            wrong(format!("{place}.licenses holds {licence}"));
        }
    }
    for property in value["properties"].as_array().into_iter().flatten() {
        if !property["name"].is_string() || !property["value"].is_string() {
            wrong(format!("{place}.properties holds {property}"));
        }
    }
    for (at, one) in value["components"]
        .as_array()
        .into_iter()
        .flatten()
        .enumerate()
    {
        component(&format!("{place}.components[{at}]"), one, references, wrong);
    }
}
