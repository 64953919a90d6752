//! The gate "the patched build is vanilla's and what the patches add".
//!
//! What a build exports and needs is read from its ELF files, not from what was asked for. The
//! patched build must export all that vanilla exports, and beyond it only what the overlays declare
//! or the definition allows; it must need no other library, be compiled with the same words, and
//! carry the id of the patch set that its manifest names.

use std::collections::BTreeSet;

use crate::build::{self, Build};
use crate::error::{Result, ResultExt};
use crate::gate::checks::{check, failed};
use crate::gate::identity::Side;
use crate::gate::work::{Found, Origin, Work};
use crate::model::{ArtifactsAllow, CheckRecord, Libraries, Verdict};
use crate::patchset::{Patch, Series, count};
use crate::symbols::{Outline, Symbol, SymbolKind};
use elf::Elf;

pub mod elf;
pub mod names;

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, allow: &ArtifactsAllow) -> Result<Found> {
    let Some(origin) = &work.origin else {
        return Ok(Found::skip(
            "only builds of this project have a series that says what may differ",
        ));
    };
    let (vanilla, patched) = (read(work.runner.baseline)?, read(work.runner.candidate)?);
    if vanilla.is_empty() || patched.is_empty() {
        return Ok(Found::skip(
            "the builds hold no ELF files, which alone are read",
        ));
    }
    let declared = declared(origin.series);
    let mut checks = vec![files(&vanilla, &patched)];
    let libraries = origin.patched.manifest.variant.libraries;
    let pairs = pairs(&vanilla, &patched);
    checks.extend(all_exports(&pairs, libraries, &declared, allow));
    checks.push(needs(&vanilla, &patched, allow));
    checks.extend(of_builds(origin)?);
    Ok(Found {
        checks,
        ..Found::default()
    })
}

/// Programs and libraries of a side; not what is no ELF.
fn read(side: &Side) -> Result<Vec<Elf>> {
    let files = side.files();
    let read = |path: &std::path::PathBuf| Elf::read(path).context(|| path.display().to_string());
    files
        .iter()
        .filter_map(|path| read(path).transpose())
        .collect()
}

/// The files that both sides have, by soname.
fn pairs<'a>(vanilla: &'a [Elf], patched: &'a [Elf]) -> Vec<(&'a Elf, &'a Elf)> {
    let mut pairs = Vec::new();
    for old in vanilla.iter().filter(|file| file.is_library()) {
        pairs.extend(
            (patched.iter())
                .find(|new| new.name == old.name)
                .map(|new| (old, new)),
        );
    }
    pairs
}

fn files(vanilla: &[Elf], patched: &[Elf]) -> CheckRecord {
    let names = |files: &[Elf]| -> BTreeSet<String> {
        files.iter().map(|file| file.name.clone()).collect()
    };
    let (old, new) = (names(vanilla), names(patched));
    let mut reasons: Vec<String> = old
        .difference(&new)
        .map(|name| format!("{name} is lost"))
        .collect();
    reasons.extend(new.difference(&old).map(|name| format!("{name} is new")));
    check(
        "files",
        format!("{} programs and libraries", new.len()),
        reasons,
    )
}

/// Exported symbols of each library. Without any there is nothing that could differ; where they are inside the programs
/// nothing is linked to them, so that nothing is asked.
fn all_exports(
    pairs: &[(&Elf, &Elf)],
    libraries: Libraries,
    declared: &BTreeSet<String>,
    allow: &ArtifactsAllow,
) -> Vec<CheckRecord> {
    if pairs.is_empty() && libraries == Libraries::Static {
        return Vec::new();
    }
    if pairs.is_empty() {
        return vec![CheckRecord {
            name: "exports".to_owned(),
            verdict: Verdict::Inconclusive,
            found: String::new(),
            reason: Some("the builds have no shared library in common".to_owned()),
        }];
    }
    let each = pairs.iter();
    each.map(|(old, new)| exports(old, new, declared, allow))
        .collect()
}

/// Exported symbols of one library.
fn exports(
    old: &Elf,
    new: &Elf,
    declared: &BTreeSet<String>,
    allow: &ArtifactsAllow,
) -> CheckRecord {
    let lost = (old.exports.difference(&new.exports))
        .filter(|name| !old.weak.contains(*name))
        .filter(|name| !names::is_of_std(name) && !names::matches(&allow.lost, name))
        .map(|name| format!("{name} is lost"));
    let mut reasons: Vec<String> = lost.collect();
    let mut by_declaration = 0;
    let mut by_allowance = 0;
    let mut of_std = 0;
    for name in new.exports.difference(&old.exports) {
        if names::is_of_std(name) {
            of_std += 1;
        } else if names::owner(name).is_some_and(|owner| declared.contains(owner)) {
            by_declaration += 1;
        } else if names::matches(&allow.added, name) {
            by_allowance += 1;
        } else {
            reasons.push(format!("{name} is new, and no overlay declares it"));
        }
    }
    if old.exports.is_empty() {
        reasons.push("vanilla's exports nothing: the file was not understood".to_owned());
    }
    let found = format!(
        "{} of vanilla; new: {by_declaration} declared by overlays, {by_allowance} allowed, \
         {of_std} instances of the standard library",
        count(old.exports.len(), "export")
    );
    check(&format!("exports of {}", old.name), found, reasons)
}

/// Needed libraries, and where they are looked for.
fn needs(vanilla: &[Elf], patched: &[Elf], allow: &ArtifactsAllow) -> CheckRecord {
    let mut reasons = Vec::new();
    let mut needed = 0;
    for new in patched {
        let Some(old) = vanilla.iter().find(|old| old.name == new.name) else {
            continue;
        };
        needed += new.needed.len();
        for name in new.needed.difference(&old.needed) {
            if !names::matches(&allow.needed, &format!("{}: {name}", new.name)) {
                reasons.push(format!("{} needs {name}, vanilla's does not", new.name));
            }
        }
        for name in old.needed.difference(&new.needed) {
            reasons.push(format!("{} no longer needs {name}", new.name));
        }
        if new.search != old.search {
            reasons.push(format!(
                "{} looks for libraries in {:?}, vanilla's in {:?}",
                new.name, new.search, old.search
            ));
        }
    }
    check("needed libraries", count(needed, "need"), reasons)
}

/// What the manifests and the build folders say.
fn of_builds(origin: &Origin<'_>) -> Result<Vec<CheckRecord>> {
    let (vanilla, patched) = (origin.vanilla, origin.patched);
    let flags = build::compare_flags(&vanilla.manifest, &patched.manifest);
    let found = format!(
        "{} as CMake cached them",
        count(vanilla.manifest.flags.len(), "option")
    );
    let flags = check(
        "flags",
        found,
        flags.iter().map(ToString::to_string).collect(),
    );
    let commands = build::compare_commands(vanilla, patched)?;
    let mut reasons: Vec<String> = commands.changed.iter().map(ToString::to_string).collect();
    let lost = commands.only_first.iter();
    reasons.extend(lost.map(|object| format!("{object} is no longer made")));
    if commands.common == 0 {
        reasons.push("no compile command is common to both".to_owned());
    }
    let found = format!(
        "{} of both, {} of the patched build alone",
        count(commands.common, "compile command"),
        commands.only_second.len()
    );
    let commands = check("commands", found, reasons);
    Ok(vec![
        flags,
        commands,
        stamp(vanilla, patched, origin.series)?,
    ])
}

/// The patch-set id inside the built libraries.
fn stamp(vanilla: &Build, patched: &Build, series: &Series) -> Result<CheckRecord> {
    let mut reasons = Vec::new();
    let stamps = |build: &Build| -> Result<Vec<(String, String)>> {
        let mut found = Vec::new();
        for artifact in &build.manifest.artifacts {
            if let Some(text) = build::stamp::read(&build.dir.join(&artifact.path))? {
                found.push((artifact.path.clone(), text));
            }
        }
        Ok(found)
    };
    let recorded = patched
        .manifest
        .patchset
        .as_ref()
        .map(|stamp| stamp.id.to_string());
    if recorded.as_deref() != Some(series.id.to_string().as_str()) {
        reasons.push(format!(
            "the manifest names the patch set {}, the series is {}",
            recorded.as_deref().unwrap_or("none"),
            series.id
        ));
    }
    for (path, text) in stamps(vanilla)? {
        reasons.push(format!("vanilla's {path} carries the patch set {text}"));
    }
    let found = stamps(patched)?;
    for (path, text) in &found {
        if Some(text.as_str()) != recorded.as_deref() {
            reasons.push(format!(
                "{path} carries {text}, the manifest names {}",
                recorded.as_deref().unwrap_or("none")
            ));
        }
    }
    let brings = |patch: &Patch| {
        let has = |bytes: &[u8]| memchr::memmem::find(bytes, build::stamp::MAGIC).is_some();
        let mut overlay = patch.overlay.iter();
        overlay.any(|file| has(&file.content)) || has(&patch.hooks_text)
    };
    // Without a patch that brings the field, as `ext-core` does, there is none to be written into.
    let wanted = usize::from(series.patches.iter().any(brings));
    // With static libraries it is in every program that has the field linked to it.
    let is_right = match patched.manifest.variant.libraries {
        Libraries::Static if wanted > 0 => !found.is_empty(),
        _ => found.len() == wanted,
    };
    if !is_right {
        reasons.push(format!(
            "{} carry a stamp, {}",
            count(found.len(), "library"),
            match wanted {
                0 => "and no patch of the series brings one",
                _ => "one must",
            }
        ));
    }
    let what = found.iter().map(|(path, text)| format!("{path}: {text}"));
    let mut what = what.collect::<Vec<_>>().join(", ");
    if wanted == 0 && found.is_empty() {
        what = "no patch of the series brings the field; the manifest names the series".to_owned();
    }
    Ok(if reasons.is_empty() {
        check("stamp", what, reasons)
    } else {
        failed("stamp", what, reasons)
    })
}

/// Names at the top of the overlays' sources: functions, types, variables, namespaces.
fn declared(series: &Series) -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for patch in &series.patches {
        for overlay in &patch.overlay {
            let outline = Outline::of(&overlay.path, &overlay.content);
            let symbols = outline.symbols.into_iter();
            names.extend(symbols.filter(counts).map(|symbol| {
                let outer = symbol.scope.split("::").next().unwrap_or_default();
                match outer {
                    "" => symbol.name.clone(),
                    outer => outer.to_owned(),
                }
            }));
        }
    }
    names.remove("std");
    names
}

/// Whether this can be exported, or own what can. A type that is only mentioned (`struct theirs;`)
/// is somebody else's: its methods would all be taken for declared.
fn counts(symbol: &Symbol) -> bool {
    match symbol.kind {
        SymbolKind::Struct | SymbolKind::Class | SymbolKind::Union => symbol.body.is_some(),
        SymbolKind::Function
        | SymbolKind::Method
        | SymbolKind::Variable
        | SymbolKind::Namespace => true,
        _ => false,
    }
}

#[cfg(test)]
mod tests;
