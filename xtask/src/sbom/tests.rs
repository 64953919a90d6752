//! A document of a build that never was, and faults in it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::*;
use crate::model::{Artifact, BuildManifest, Compiler, Flavour};
use crate::toy::Toy;

fn build(toy: &Toy) -> Build {
    let compiler = Compiler {
        id: "GNU".to_owned(),
        version: "12.2.0".to_owned(),
        path: "/usr/bin/cc".to_owned(),
    };
    Build {
        dir: PathBuf::from("/nonexistent"),
        manifest: BuildManifest {
            schema: 1,
            base: toy.pristine.base.id.clone(),
            tree: toy.pristine.base.tree,
            flavour: Flavour::Vanilla,
            backend: "cpu".to_owned(),
            variant: Default::default(),
            patchset: None,
            source: Digest::of(b""),
            flags: [("GGML_NATIVE".to_owned(), "ON".to_owned())].into(),
            compilers: [("C".to_owned(), compiler)].into(),
            cmake: "3.25.1".to_owned(),
            ninja: "1.11.1".to_owned(),
            launcher: None,
            backend_tools: BTreeMap::new(),
            surroundings: Default::default(),
            artifacts: vec![Artifact {
                path: "out/bin/llama-server".to_owned(),
                size: 1,
                sha256: Digest::of(b"x"),
                content: None,
            }],
        },
    }
}

fn value() -> Value {
    let toy = Toy::new();
    let build = build(&toy);
    let mut all = vec![base(&toy.pristine).unwrap()];
    let contents: Vec<String> = all.iter().filter_map(reference).collect();
    all.extend(tools(&build));
    let text = document(&build, &toy.pristine.base, all.clone(), &contents);
    assert_eq!(text, document(&build, &toy.pristine.base, all, &contents));
    serde_json::from_slice(&text).unwrap()
}

#[test]
fn a_document_has_what_the_format_requires() {
    let document = value();
    assert_eq!(faults(&document), [""; 0]);
    let text = document.to_string();
    for part in [
        "llama.cpp",
        "flag:GGML_NATIVE",
        "GNU (C)",
        "bin/llama-server",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("timestamp"));
}

#[test]
fn each_fault_is_found() {
    let good = value();
    for (pointer, planted, part) in [
        ("/bomFormat", json!("SPDX"), "bomFormat"),
        ("/specVersion", json!("9"), "specVersion"),
        ("/version", json!(0), "version"),
        ("/serialNumber", json!("urn:uuid:1"), "serialNumber"),
        ("/components/0/type", json!("thing"), "components[0].type"),
        ("/components/0/name", json!(""), "components[0].name"),
        ("/components/1/bom-ref", json!("llama.cpp"), "stands twice"),
        (
            "/components/0/hashes",
            json!([{ "alg": "SHA-256", "content": "0" }]),
            "hashes",
        ),
        (
            "/components/0/licenses",
            json!([{ "license": { "id": "MIT" }, "expression": "MIT" }]),
            "licenses",
        ),
        ("/dependencies/0/ref", json!("nobody"), "no component"),
        (
            "/metadata/component/properties/0/value",
            json!(1),
            "properties",
        ),
    ] {
        let mut bad = good.clone();
        let (parent, name) = pointer.rsplit_once('/').unwrap();
        bad.pointer_mut(parent).unwrap()[name] = planted;
        let found = faults(&bad);
        assert!(
            found.iter().any(|fault| fault.contains(part)),
            "{pointer}: {found:?}"
        );
    }
}

#[test]
fn a_serial_number_is_a_uuid_of_what_is_said() {
    let first = uuid(Digest::of(b"one"));
    assert_eq!(first.len(), 36);
    assert_eq!(first.as_bytes()[14], b'8');
    assert_ne!(first, uuid(Digest::of(b"two")));
}
