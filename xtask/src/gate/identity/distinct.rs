//! Whether two sides are two things, and whether what is switched is a switch.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Side;
use crate::gate::remote;
use crate::gate::server::is_program;
use crate::model::{Artifact, Digest, SWITCH_PREFIX};
use crate::project::suggest;

/// Why comparing these two says nothing, where it does not: they are the same thing. Asked
/// after the run, when it is known what was loaded.
pub fn indistinct(baseline: &Side, candidate: &Side) -> Option<String> {
    if let (Some(left), Some(right)) = (&baseline.running, &candidate.running) {
        return remote::is_same(&left.address, &right.address).then(|| {
            "baseline and candidate are the very same running server: the candidate was not \
             compared with anything else"
                .to_owned()
        });
    }
    // What a running server has loaded is not known.
    if baseline.running.is_some() || candidate.running.is_some() {
        return None;
    }
    if effective(&baseline.env) != effective(&candidate.env) {
        return None;
    }
    let (left, right) = (baseline.loaded_digests(), candidate.loaded_digests());
    let are_seen = !left.is_empty() && !right.is_empty();
    if have_same_files(baseline, candidate) {
        return Some(
            "baseline and candidate are the very same files with the same environment: \
             the candidate was not compared with anything else"
                .to_owned(),
        );
    }
    let shared: Vec<String> = (baseline.loaded().intersection(&candidate.loaded()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libllama") || is_program(&name)
        })
        .map(|path| path.display().to_string())
        .collect();
    if !shared.is_empty() {
        return Some(format!("both servers have loaded {}", shared.join(", ")));
    }
    if are_seen && left == right {
        return Some(
            "what both servers have loaded are the very same bytes: the files beside them that \
             differ were not run"
                .to_owned(),
        );
    }
    if baseline.is_unseen() && candidate.is_unseen() {
        return Some(
            "of neither side was seen what computes: two scripts that start one and the same server would look so too"
                .to_owned(),
        );
    }
    None
}

/// Whether both are the same files. What was really loaded says more than what lies there: equal programs may load
/// other libraries, and other programs the same.
fn have_same_files(baseline: &Side, candidate: &Side) -> bool {
    let files = |side: &Side| -> BTreeSet<Digest> {
        let artifacts = side.stamp.artifacts.iter();
        artifacts.map(Artifact::identity).collect()
    };
    let (left, right) = (baseline.loaded_digests(), candidate.loaded_digests());
    let are_seen = !left.is_empty() && !right.is_empty();
    files(baseline) == files(candidate) && !(are_seen && left != right)
}

/// How the library of a variant of the CPU backend is called, up to the variant's name.
const CPU_VARIANT: &str = "libggml-cpu-";

/// The variants of the CPU backend of a build that has several: those that its servers have loaded, and the number of all.
fn variants(side: &Side) -> (BTreeSet<String>, usize) {
    let name = |path: &Path| {
        let name = path.file_name()?.to_str()?;
        name.starts_with(CPU_VARIANT).then(|| name.to_owned())
    };
    let loaded = side.loaded();
    let artifacts = side.stamp.artifacts.iter();
    let all = artifacts.filter_map(|artifact| name(Path::new(&artifact.path)));
    (
        loaded.iter().filter_map(|path| name(path)).collect(),
        all.count(),
    )
}

/// What a gate on a build with variants for processors says of: one of them.
pub fn variant_that_ran(side: &Side) -> Option<String> {
    let (ran, all) = variants(side);
    let names = ran
        .iter()
        .map(String::as_str)
        .collect::<Vec<_>>()
        .join(", ");
    (!ran.is_empty()).then(|| {
        format!(
            "of {all} variants of the CPU backend it had loaded {names}; no other one was judged"
        )
    })
}

/// Why comparing two builds of this project says nothing of the patches, where the candidate has not loaded the variant of the CPU
/// backend that the baseline has: one that cannot be loaded is passed over in silence, and another one computes.
pub fn unlike_variants(baseline: &Side, candidate: &Side) -> Option<String> {
    let ((left, _), (right, _)) = (variants(baseline), variants(candidate));
    // All are loaded once, to be asked how well they fit, and some systems keep what cannot be unloaded.
    if !baseline.is_built() || !candidate.is_built() || left.is_subset(&right) {
        return None;
    }
    let show = |names: &BTreeSet<String>| match names.len() {
        0 => "none".to_owned(),
        _ => names
            .iter()
            .map(String::as_str)
            .collect::<Vec<_>>()
            .join(", "),
    };
    Some(format!(
        "baseline and candidate have loaded different variants of the CPU backend: {} and {}",
        show(&left),
        show(&right)
    ))
}

/// The variables that make two sides out of what runs the same bytes; none where it does not, or is not known.
pub fn switched<'a>(baseline: &'a Side, candidate: &'a Side) -> BTreeSet<&'a String> {
    if baseline.running.is_some() || candidate.running.is_some() {
        return BTreeSet::new();
    }
    let (left, right) = (baseline.loaded_digests(), candidate.loaded_digests());
    let is_one = !left.is_empty() && left == right;
    if !is_one && !have_same_files(baseline, candidate) {
        return BTreeSet::new();
    }
    let (left, right) = (effective(&baseline.env), effective(&candidate.env));
    let names = left.keys().chain(right.keys()).copied();
    names
        .filter(|name| left.get(*name) != right.get(*name))
        .collect()
}

/// An environment without the switches that are set to off: empty, or `0`.
fn effective(env: &BTreeMap<String, String>) -> BTreeMap<&String, &String> {
    let is_off = |name: &str, value: &str| {
        name.starts_with(SWITCH_PREFIX) && (value.is_empty() || value == "0")
    };
    env.iter()
        .filter(|(name, value)| !is_off(name, value))
        .collect()
}

/// So many wrong letters still make a variable a misspelt switch.
const MISSPELT: usize = 3;

/// Why switching says nothing, where a side sets a variable that no patch listens to: with a
/// misspelt switch, off would be compared with off. `declared` are the series' switches.
pub fn undeclared(sides: &[&Side], declared: &[String]) -> Option<String> {
    let mut set = sides.iter().flat_map(|side| side.env.keys());
    // A slip can be in the prefix too, or in the case.
    let is_near = |name: &str, switch: &String| {
        strsim::damerau_levenshtein(&name.to_uppercase(), switch) <= MISSPELT
    };
    let unknown = set.find(|name| {
        let looks_like = name.to_uppercase().starts_with(SWITCH_PREFIX)
            || declared.iter().any(|switch| is_near(name, switch));
        looks_like && !declared.contains(name)
    })?;
    let near = suggest(unknown, declared.iter().map(String::as_str), "switches");
    Some(format!(
        "no patch of the series declares the switch {unknown}, so that nothing was switched \
         ({near})"
    ))
}
