//! The readers on every input that fuzzing has found worth keeping, among them each that once broke
//! one. What must hold is in `invariants.rs`; how the inputs are found, in `fuzz/`.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use llama_patchset::invariants::CHECKS;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

fn inputs(target: &str) -> Vec<PathBuf> {
    let list = std::fs::read_dir(corpus().join(target)).expect("a target without a corpus");
    let mut list: Vec<PathBuf> = list.map(|entry| entry.unwrap().path()).collect();
    list.sort();
    list
}

#[test]
fn the_readers_hold_on_the_whole_corpus() {
    for (target, check) in CHECKS {
        let inputs = inputs(target);
        assert!(inputs.len() >= 3, "{target}: hardly an input");
        for path in inputs {
            let input = std::fs::read(&path).unwrap();
            if let Err(broken) = check(&input) {
                panic!("{}: {broken}", path.display());
            }
            // Cut short and with a byte turned, which is what a mutation does first.
            for at in (0..input.len()).step_by(input.len() / 16 + 1) {
                let mut turned = input.clone();
                turned[at] ^= 0x20;
                for other in [&input[..at], &turned] {
                    if let Err(broken) = check(other) {
                        panic!("{} changed at {at}: {broken}", path.display());
                    }
                }
            }
        }
    }
}

#[test]
fn every_target_has_a_corpus_and_every_corpus_a_target() {
    let mut folders: Vec<String> = std::fs::read_dir(corpus())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    folders.sort();
    let mut targets = CHECKS.map(|(name, _)| name);
    targets.sort_unstable();
    assert_eq!(folders, targets);
    let manifest = std::fs::read_to_string(corpus().join("../Cargo.toml")).unwrap();
    for target in targets {
        assert!(manifest.contains(&format!("path = \"targets/{target}.rs\"")));
    }
    let sizes = targets
        .iter()
        .flat_map(|target| inputs(target))
        .map(|path| std::fs::metadata(path).unwrap().len());
    let (sum, largest) = sizes.fold((0, 0), |(sum, largest), size| {
        (sum + size, size.max(largest))
    });
    assert!(sum < 300_000 && largest < 20_000, "{sum} bytes, {largest}");
}
