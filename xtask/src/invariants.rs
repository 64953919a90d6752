//! What must hold for any input of the readers, as functions of bytes.
//!
//! The fuzz targets in `fuzz/` call these with inputs that libFuzzer makes; `tests/corpus.rs` calls
//! them with the inputs that were kept. Each returns what does not hold.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;

use crate::diff::{self, FileDiff, FilePatch, Hunk, Operation, Strip};
use crate::error::Kind;
use crate::model::{
    ChashGate, Digest, Fixtures, GateHeader, HookEntry, HooksFile, PatchManifest, Retired,
    SeriesFile, Toolchains, Upstreams, parse_toml,
};
use crate::tree::{Blob, FileMode, RelPath};
use crate::{Error, mail};

/// What does not hold, for a person.
pub type Broken = String;

/// A check over bytes.
pub type Check = fn(&[u8]) -> Result<(), Broken>;

/// All checks by the name of their fuzz target and of the folder of their corpus.
pub const CHECKS: [(&str, Check); 4] = [
    ("diff", check_diff),
    ("hooks", check_hooks),
    ("mail", check_mail),
    ("manifest", check_manifest),
];

/// Larger trees than this are not made of what a hunk's header says.
const MAX_LINES: usize = 2_000;

/// Any diff: what is read is written as bytes that are read as the same, and applying it to a tree
/// that it may or may not fit ends in a result.
pub fn check_diff(input: &[u8]) -> Result<(), Broken> {
    for strip in [Strip::Zero, Strip::One] {
        let Some((files, end)) = read(diff::parse_with_end(input, strip))? else {
            continue;
        };
        hold(end <= input.len(), || "the end lies behind it".to_owned())?;
        let text = diff::files_to_text(&files);
        let again = diff::parse_files(&text)
            .map_err(|error| format!("what was written is not read: {error}\n{}", shown(&text)))?;
        let meant = as_written(files.clone());
        hold(again == meant, || {
            format!("written anew it is another diff:\n{meant:?}\n{again:?}")
        })?;
        hold(diff::files_to_text(&again) == text, || {
            "it is not written alike twice".to_owned()
        })?;
        for tree in [small_tree(), fitting_tree(&files)] {
            let (once, twice) = (
                diff::apply_files(&files, &tree),
                diff::apply_files(&again, &tree),
            );
            match (once, twice) {
                (Ok(once), Ok(twice)) => {
                    hold(once == twice, || "written anew it does other".to_owned())?;
                    hold(once.windows(2).all(|pair| pair[0].0 < pair[1].0), || {
                        "a file is changed twice".to_owned()
                    })?;
                    for (path, after) in &once {
                        let before = tree.get(path);
                        check_between(path, before, after.as_ref())?;
                    }
                }
                (Err(fault), _) => hold(fault.number <= files.len(), || fault.to_string())?,
                (Ok(_), Err(fault)) => {
                    return Err(format!("written anew it does not apply: {fault}"));
                }
            }
        }
    }
    Ok(())
}

/// A diff of our own between two files does what it says.
fn check_between(
    path: &RelPath,
    before: Option<&Blob>,
    after: Option<&Blob>,
) -> Result<(), Broken> {
    let fresh = diff::between_files(path, before, after).map_err(|error| error.to_string())?;
    if fresh.is_empty() {
        return hold(before == after, || format!("{path} is not the same"));
    }
    let tree: BTreeMap<RelPath, Blob> = before
        .map(|blob| (path.clone(), blob.clone()))
        .into_iter()
        .collect();
    let fresh = diff::parse_files(&diff::files_to_text(&fresh))
        .map_err(|error| format!("our own diff is not read: {error}"))?;
    let made =
        diff::apply_files(&fresh, &tree).map_err(|fault| format!("our own diff: {fault}"))?;
    hold(made == [(path.clone(), after.cloned())], || {
        format!("our own diff makes another {path}")
    })
}

/// What [`diff::files_to_text`] says where a diff that git did not write says nothing of modes.
fn as_written(mut files: Vec<FilePatch>) -> Vec<FilePatch> {
    let mut is_git = false;
    for file in &mut files {
        match file.operation {
            Operation::Create(_) => {
                file.new_mode.get_or_insert(FileMode::Plain);
            }
            // Written as it was read, but behind a header of git's, where that cannot be.
            Operation::Delete(_) if file.old_mode.is_none() && !is_git => continue,
            Operation::Delete(_) => {
                file.old_mode.get_or_insert(FileMode::Plain);
            }
            _ => {}
        }
        is_git = true;
    }
    files
}

fn small_tree() -> BTreeMap<RelPath, Blob> {
    let files = [("f", "a\nb\nc\n"), ("d/e", "a\n"), ("x/y.c", "a\nc\n")];
    files
        .into_iter()
        .filter_map(|(path, text)| Some((RelPath::new(path).ok()?, Blob::plain(text))))
        .collect()
}

/// A tree in which the old side of every hunk stands at its line, as far as one can be made.
fn fitting_tree(files: &[FilePatch]) -> BTreeMap<RelPath, Blob> {
    let mut tree = BTreeMap::new();
    for file in files {
        let mode = file
            .old_mode
            .or(file.index.as_ref().and_then(|index| index.mode))
            .unwrap_or(FileMode::Plain);
        if let Some(path) = file.old_path() {
            let content = before(&file.hunks);
            tree.entry(path.clone()).or_insert(Blob::new(content, mode));
        }
    }
    tree
}

/// A file whose lines at the places of `hunks` are what those expect.
fn before(hunks: &[Hunk]) -> Vec<u8> {
    let mut content = Vec::new();
    let mut lines = 0;
    for hunk in hunks {
        let first = hunk.old_start.saturating_sub(usize::from(hunk.old_len > 0));
        while lines < first.min(MAX_LINES) {
            content.extend(format!("line {lines}\n").into_bytes());
            lines += 1;
        }
        for line in hunk.lines.iter().filter_map(|line| line.old_side()) {
            content.extend_from_slice(line);
            lines += 1;
        }
    }
    content
}

/// The hooks of a patch: each is where and what the diff says, the registry's entries for them are
/// written and read back as the same, and what sits on a file once is known to sit there.
pub fn check_hooks(input: &[u8]) -> Result<(), Broken> {
    let Some(files) = read(diff::parse(input))? else {
        return Ok(());
    };
    let mut registry = HooksFile {
        schema: 1,
        ..HooksFile::default()
    };
    for file in &files {
        let text = diff::to_text(file);
        let again = diff::parse(&text).map_err(|error| format!("not read again: {error}"))?;
        hold(again == [file.clone()], || {
            format!("{} is written as another diff", file.path)
        })?;
        let list = diff::hooks(file);
        check_counts(file, list.iter().map(|hook| (hook.inserted, hook.deleted)))?;
        for hook in list {
            let _ = hook.is_marked("ext-core");
            registry.hook.push(HookEntry {
                base: "base".to_owned(),
                patch: "patch".to_owned(),
                file: hook.path.to_string(),
                line: hook.line,
                inserted: hook.inserted,
                deleted: hook.deleted,
                anchor: hook.heading,
                sha256: Digest::of(&hook.text),
            });
        }
        let old = before(&file.hunks);
        if let Ok(new) = diff::apply(file, &old) {
            hold(diff::is_applied(file, &new), || {
                format!("{} was applied, yet is not said to be", file.path)
            })?;
            check_between(&file.path, Some(&Blob::plain(old)), Some(&Blob::plain(new)))?;
        }
    }
    let text = toml::to_string(&registry).map_err(|error| error.to_string())?;
    let again: HooksFile = parse_toml(&text, "hooks.toml").map_err(|error| error.to_string())?;
    hold(again == registry, || {
        format!("the registry is read as another:\n{text}")
    })
}

fn check_counts(
    file: &FileDiff,
    hooks: impl Iterator<Item = (usize, usize)>,
) -> Result<(), Broken> {
    let lines = || file.hunks.iter().flat_map(|hunk| &hunk.lines);
    let inserted = lines().filter(|line| line.old_side().is_none()).count();
    let deleted = lines().filter(|line| line.new_side().is_none()).count();
    let sum = hooks.fold((0, 0), |sum, hook| (sum.0 + hook.0, sum.1 + hook.1));
    hold(sum == (inserted, deleted), || {
        format!("{}: hooks leave lines out", file.path)
    })
}

/// Mails: what can be written is read back as the same and written as the same bytes again.
pub fn check_mail(input: &[u8]) -> Result<(), Broken> {
    let Some(mails) = read(mail::read_mbox(input))? else {
        return Ok(());
    };
    for one in &mails {
        if !one.diff.is_empty() {
            one.files()
                .map_err(|error| format!("the diff of a mail is no diff: {error}"))?;
        }
        let Ok(text) = mail::write(one) else {
            continue;
        };
        let back = mail::read(&text).map_err(|error| format!("not read again: {error}"))?;
        hold(back == *one, || format!("another mail:\n{one:?}\n{back:?}"))?;
        let twice = mail::write(&back).map_err(|error| format!("not written again: {error}"))?;
        hold(twice == text, || "not written alike twice".to_owned())?;
    }
    Ok(())
}

/// The files of the project: each reader takes the text or says in which line it does not.
pub fn check_manifest(input: &[u8]) -> Result<(), Broken> {
    let Ok(text) = std::str::from_utf8(input) else {
        return Ok(());
    };
    if let Some(patch) = toml_of::<PatchManifest>(text)? {
        let _ = crate::patchset::is_patch_id(&patch.id);
        for path in patch
            .inputs
            .iter()
            .filter_map(|path| RelPath::new(path).ok())
        {
            let inside = path.below("root".as_ref());
            let mut parts = inside.components();
            hold(
                parts.next() == Some(std::path::Component::Normal("root".as_ref()))
                    && parts.all(|part| matches!(part, std::path::Component::Normal(_))),
                || format!("{path} leaves its tree"),
            )?;
        }
    }
    toml_of::<SeriesFile>(text)?;
    toml_of::<Retired>(text)?;
    toml_of::<Fixtures>(text)?;
    toml_of::<Toolchains>(text)?;
    toml_of::<GateHeader>(text)?;
    toml_of::<ChashGate>(text)?;
    if let Some(file) = toml_of::<Upstreams>(text)? {
        for base in &file.base {
            let written = serde_json::to_string(&base.source).map_err(|e| e.to_string())?;
            let back: Vec<crate::model::Source> =
                serde_json::from_str(&written).map_err(|error| error.to_string())?;
            hold(back.len() == base.source.len(), || written)?;
        }
    }
    if let Some(file) = toml_of::<HooksFile>(text)? {
        let written = toml::to_string(&file).map_err(|error| error.to_string())?;
        let back: HooksFile =
            parse_toml(&written, "hooks.toml").map_err(|error| error.to_string())?;
        hold(back == file, || format!("read as another:\n{written}"))?;
    }
    Ok(())
}

fn toml_of<T: DeserializeOwned>(text: &str) -> Result<Option<T>, Broken> {
    let value = match parse_toml::<T>(text, "FILE") {
        Ok(value) => return Ok(Some(value)),
        error => error.map(Some),
    };
    if let Err(error) = &value {
        let lines = text.split('\n').count();
        let place = error.contexts().first().map_or("", String::as_str);
        let line = place.split(':').nth(1).and_then(|line| line.parse().ok());
        hold(line.unwrap_or(1) <= lines, || {
            format!("no such line: {place}")
        })?;
    }
    read(value).map(Option::flatten)
}

/// None for an error of the kind that a broken file is.
fn read<T>(result: Result<T, Error>) -> Result<Option<T>, Broken> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if matches!(error.kind(), Kind::Config | Kind::Usage) => Ok(None),
        Err(error) => Err(format!("an error of kind {:?}: {error}", error.kind())),
    }
}

fn hold(holds: bool, otherwise: impl FnOnce() -> Broken) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn shown(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}
