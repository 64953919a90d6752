//! Against the installed git: where `git apply` applies every hunk at its line, we give the same
//! bytes, modes and names; where it refuses or has to look elsewhere, we refuse. What differs is
//! listed here and explained in `docs/deviations.md`.
//!
//! `LLAMA_PATCHSET_DIFFERENTIAL_CASES` sets the number of random cases,
//! `LLAMA_PATCHSET_DIFFERENTIAL_SEED` where they begin.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![allow(clippy::print_stdout)]
#![cfg(unix)]

#[path = "differential/git.rs"]
mod git;
#[path = "differential/lessons.rs"]
mod lessons;
#[path = "differential/mails.rs"]
mod mails;
#[path = "differential/mutate.rs"]
mod mutate;
#[path = "differential/random.rs"]
mod random;

use std::collections::BTreeMap;

use llama_patchset::Error;
use llama_patchset::diff::{self, Strip};
use rayon::prelude::*;

use git::Applied;
use random::{Rng, Tree};

/// Refusals of ours where git applies: a piece of our message, and the row of
/// `docs/deviations.md` that explains it.
const STRICTER: &[(&str, &str)] = &[
    ("the header names line 0 for lines that exist", "numbers"),
    ("the header's old and new line do not agree", "numbers"),
    ("it overlaps the hunk before it or is out of order", "order"),
    (
        "the line has a line end, which the hunk says it lacks",
        "line-end",
    ),
    (
        "a line without line end would be followed by more",
        "line-end",
    ),
    ("follows a line without line end", "marker"),
    ("says again what the line before it says", "marker"),
    ("follows no line", "marker"),
    ("follows an empty line, which is no line at all", "marker"),
    ("stands after the end of its hunk", "stray"),
    ("stands for a file that was left out", "stray"),
    ("is not part of a hunk", "stray"),
    ("begins a file without a `diff --git` header", "stray"),
    ("does not end with a line end", "truncated"),
    ("but no hunk follows", "truncated"),
    ("the diff ends, and", "truncated"),
    ("is no hunk header", "truncated"),
    ("it changes nothing: no hunk, no mode, no name", "truncated"),
    ("stands where a `+++` line must be", "header"),
    ("comes without `---` and `+++` lines", "header"),
    ("says twice what it says", "header"),
    ("has something behind its name", "header"),
    ("a similarity index is not between", "header"),
    ("an index line is broken", "header"),
    ("only one of `old mode` and `new mode`", "header"),
    ("only one of the two names", "header"),
    ("a change of mode of a file that is new or gone", "header"),
    ("`---` and `+++` do not say what the header says", "header"),
    ("two different names, yet it", "header"),
    ("the names in the header do not agree", "header"),
    ("the names can be read in several ways", "header"),
    ("names another file than the line after it", "header"),
    ("names a file that never exists", "header"),
    ("begins the diff of a merge", "header"),
    ("cannot be read", "crlf"),
    ("the diff names the mode", "modes"),
    ("the diff says that it is of kind", "modes"),
    ("touches a submodule", "submodules"),
    ("binary", "binary"),
    ("leaves the tree", "links"),
    ("has no leading folder to strip", "names"),
    ("has a time stamp behind a blank", "names"),
    ("unsafe path", "names"),
    ("a path that is not UTF-8", "names"),
    ("a name in quotes", "names"),
    ("differ only in case", "names"),
    ("two parts of the diff make this file", "twice"),
    ("the diff has deleted or renamed it before", "twice"),
    ("the diff changes it and then takes it away", "twice"),
    ("and the diff does not say that it is new", "new"),
];

/// Cases in one repository and one call of `git diff-tree`.
const BATCH: u64 = 50;

/// One patch on one tree.
struct Case {
    tree: Tree,
    patch: Vec<u8>,
    strip: usize,
}

/// What we make of a case.
fn ours(case: &Case) -> Result<Tree, String> {
    let strip = [Strip::Zero, Strip::One][case.strip];
    let files =
        diff::parse_files_stripped(&case.patch, strip).map_err(|error| error.to_string())?;
    let changes = diff::apply_files(&files, &case.tree)
        .map_err(|refusal| Error::from(*refusal).to_string())?;
    let mut tree = case.tree.clone();
    for (path, blob) in changes {
        match blob {
            Some(blob) => tree.insert(path, blob),
            None => tree.remove(&path),
        };
    }
    Ok(tree)
}

/// The deviation where the two differ as they should; what happened where they differ otherwise.
type Outcome = Result<Option<&'static str>, String>;

/// Why the two disagree; the name of the deviation where it is a known one; none where they agree.
fn compare(case: &Case) -> Outcome {
    match (git::apply(&case.tree, &case.patch, case.strip), ours(case)) {
        (Applied::Exact(theirs), Ok(ours)) if theirs == ours => Ok(None),
        (Applied::Exact(theirs), Ok(ours)) => Err(format!(
            "another result\ngit:\n{}ours:\n{}",
            random::shown(&theirs),
            random::shown(&ours)
        )),
        (Applied::Exact(_), Err(reason))
            if reason.contains("the file") && deletes_without_context(case) =>
        {
            Ok(Some("zero-context"))
        }
        (Applied::Exact(_), Err(reason)) => STRICTER
            .iter()
            .find(|(piece, _)| reason.contains(piece))
            .map(|(_, row)| Some(*row))
            .ok_or(format!("git applies, ours refuses: {reason}")),
        (_, Err(_)) => Ok(None),
        (Applied::Offset(_, theirs), Ok(ours))
            if theirs == ours && deletes_without_context(case) =>
        {
            Ok(Some("zero-context"))
        }
        (Applied::Offset(said, _), Ok(_)) => {
            Err(format!("ours applies, git looks elsewhere: {said}"))
        }
        (Applied::Refused(said), Ok(_)) => {
            let errors: Vec<&str> = said
                .lines()
                .filter(|line| line.starts_with("error"))
                .collect();
            Err(format!("ours applies, git refuses: {}", errors.join(" ")))
        }
    }
}

/// Whether some hunk only deletes, and has no context. Its header names the line before as the
/// new one, which git takes for the place and then says that it had to look elsewhere.
fn deletes_without_context(case: &Case) -> bool {
    let strip = [Strip::Zero, Strip::One][case.strip];
    let files = diff::parse_files_stripped(&case.patch, strip).unwrap_or_default();
    let mut hunks = files.iter().flat_map(|file| &file.hunks);
    hunks.any(|hunk| hunk.new_len == 0 && hunk.new_start > 0)
}

/// Options of `git diff-tree` and the strip that goes with them.
const WRITERS: &[(&[&str], usize)] = &[
    (&[], 1),
    (&["-M"], 1),
    (&["-M", "-C", "--find-copies-harder"], 1),
    (&["-B", "-M20%", "--full-index"], 1),
    (&["-U0"], 1),
    (&["-U1", "--histogram"], 1),
    (&["--no-prefix", "-M"], 0),
    (&["-D"], 1),
    (&["-a", "-U10"], 1),
];

/// The cases of one batch.
fn batch(number: u64) -> Vec<Case> {
    let mut rng = Rng::new(number);
    let (options, strip) = *rng.pick(WRITERS);
    let pairs: Vec<(Tree, Tree)> = (0..BATCH)
        .map(|_| {
            let before = random::tree(&mut rng);
            let after = random::changed(&mut rng, &before);
            (before, after)
        })
        .collect();
    let by_us = rng.chance(20);
    let texts = if by_us {
        pairs.iter().map(|(old, new)| written(old, new)).collect()
    } else {
        git::diffs(&pairs, options)
    };
    let strip = if by_us { 1 } else { strip };
    let mut cases = Vec::new();
    for ((mut tree, after), text) in pairs.into_iter().zip(texts) {
        if text.is_empty() {
            continue;
        }
        let mut patch = text.clone();
        match rng.below(10) {
            0 | 1 => untouched(&tree, &after, &text, strip, options),
            2..=6 => patch = mutate::mutate(&mut rng, &text),
            _ => {}
        }
        if rng.chance(30) {
            random::drifted(&mut rng, &mut tree);
        }
        cases.push(Case { tree, patch, strip });
    }
    cases
}

/// The diff from one tree to another as we write it.
fn written(old: &Tree, new: &Tree) -> Vec<u8> {
    let mut paths: Vec<_> = old.keys().chain(new.keys()).collect();
    paths.sort();
    paths.dedup();
    let files: Vec<_> = paths
        .into_iter()
        .flat_map(|path| diff::between_files(path, old.get(path), new.get(path)).unwrap())
        .collect();
    diff::files_to_text(&files)
}

/// What git (or we) wrote from one tree to another gives that other, and reads and writes back
/// to the same text.
fn untouched(before: &Tree, after: &Tree, text: &[u8], strip: usize, options: &[&str]) {
    let read = diff::parse_files_stripped(text, [Strip::Zero, Strip::One][strip]);
    let files = match read {
        Ok(files) => files,
        Err(error) if error.to_string().contains("only in case") => return,
        Err(error) => panic!("{error}: {}", String::from_utf8_lossy(text)),
    };
    let shown = String::from_utf8_lossy(text);
    // Without prefixes the text differs, and without the content of deleted files or without
    // context a diff cannot be applied.
    if strip == 1 {
        assert_eq!(String::from_utf8_lossy(&diff::files_to_text(&files)), shown);
    }
    if options.contains(&"-D") || options.contains(&"-U0") {
        return;
    }
    let case = Case {
        tree: before.clone(),
        patch: text.to_vec(),
        strip,
    };
    match ours(&case) {
        Ok(result) => assert_eq!(&result, after, "{shown}"),
        // With `-B`, git writes a copy over a file that is there, and does not take it itself.
        Err(reason) => match git::apply(before, text, strip) {
            Applied::Refused(_) => {}
            _ => panic!("{reason}: {shown}"),
        },
    }
}

fn number(name: &str, default: u64) -> u64 {
    match std::env::var(name) {
        Ok(text) => text
            .parse()
            .unwrap_or_else(|_| panic!("{name}={text} is no number")),
        Err(_) => default,
    }
}

/// What came of one batch.
struct Found {
    cases: usize,
    known: Vec<&'static str>,
    /// A class and all that is needed to look into it.
    faults: Vec<(String, String)>,
}

/// Compares the cases of one batch.
fn examined(number: u64) -> Found {
    let cases = batch(number);
    let mut found = Found {
        cases: cases.len(),
        known: Vec::new(),
        faults: Vec::new(),
    };
    for (at, case) in cases.iter().enumerate() {
        match compare(case) {
            Ok(None) => {}
            Ok(Some(row)) => found.known.push(row),
            Err(fault) => {
                let class = fault.lines().next().unwrap_or_default().chars();
                let class = class.filter(char::is_ascii_lowercase).take(90).collect();
                let patch = String::from_utf8_lossy(&case.patch);
                let tree = random::shown(&case.tree);
                let text = format!("batch {number}, case {at}: {fault}\n{patch}\n{tree}");
                // At once as well, for long runs.
                println!("{text}");
                found.faults.push((class, text));
            }
        }
    }
    found
}

#[test]
fn we_and_git_agree_on_random_patches() {
    let count = number("LLAMA_PATCHSET_DIFFERENTIAL_CASES", 300);
    let seed = number("LLAMA_PATCHSET_DIFFERENTIAL_SEED", 0);
    let found: Vec<Found> = (seed..seed + count.div_ceil(BATCH))
        .into_par_iter()
        .map(examined)
        .collect();
    let mut known: BTreeMap<&str, usize> = BTreeMap::new();
    let mut faults: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for found in &found {
        for row in &found.known {
            *known.entry(row).or_default() += 1;
        }
        for (class, text) in &found.faults {
            faults.entry(class).or_default().push(text);
        }
    }
    let cases: usize = found.iter().map(|found| found.cases).sum();
    println!("{cases} cases, known deviations: {known:#?}");
    if !faults.is_empty() {
        for (class, list) in &faults {
            println!("==== {} times: {class}", list.len());
            let shortest = list.iter().min_by_key(|text| text.len()).unwrap();
            println!("{shortest}\n");
        }
        panic!("{} kinds of disagreement with git", faults.len());
    }
}

#[test]
fn each_deviation_is_explained() {
    let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/deviations.md");
    let docs = std::fs::read_to_string(docs).unwrap();
    for (_, row) in STRICTER {
        assert!(
            docs.contains(&format!("| `{row}` |")),
            "docs/deviations.md has no row {row}"
        );
    }
}
