//! Functions and files that stand elsewhere in the new base, or under another name.
//!
//! Followed only where the evidence is unique: one candidate, and none that comes close.

use std::rc::Rc;

use crate::diff::lines_of;
use crate::error::Result;
use crate::sync::align::Alignment;
use crate::sync::edit::Edit;
use crate::sync::ground::{Anchor, Ground, Source, extension};
use crate::sync::place::{Pair, Placed, in_anchor};
use crate::sync::region::trimmed;
use crate::tree::RelPath;

/// How alike two bodies must be to be one function under two names.
pub(super) const ALIKE: f64 = 0.6;

/// How much less alike the next candidate must be.
const MARGIN: f64 = 0.2;

/// A body of fewer lines is no evidence.
const LEAST_LINES: usize = 4;

/// What is looked for.
pub(super) struct Job<'a> {
    pub pair: &'a Pair<'a>,
    pub edit: &'a Edit,
    pub anchor: &'a Anchor,
}

/// What a search gave.
pub(super) enum Found<T> {
    One(T),
    Several(Vec<String>),
    None,
}

/// The function of `job` in another file, or under another name.
pub(super) fn elsewhere(
    ground: &Ground<'_>,
    old_ground: &Ground<'_>,
    job: &Job<'_>,
) -> Result<Found<Placed>> {
    let Job { pair, edit, anchor } = job;
    // Where it still is in its file, that is where it belongs: no place elsewhere is better.
    if pair
        .new
        .as_ref()
        .is_some_and(|new| new.named(&anchor.name).next().is_some())
    {
        return Ok(Found::None);
    }
    let mut found = Vec::new();
    let short = anchor.name.rsplit("::").next().unwrap_or(&anchor.name);
    for (path, source) in ground.changed_with(old_ground, pair.path, short.as_bytes())? {
        let before = old_ground.source(&path)?;
        for there in source.named(&anchor.name) {
            // Declarations in headers are not where a body went, and what was there before the
            // move is something else of that name.
            let fresh = before
                .as_ref()
                .is_none_or(|before| before.named(&anchor.name).next().is_none());
            let alike = likeness((&pair.old, anchor), (&source, there)) >= ALIKE;
            if fresh && alike && there.lines.len() > 1 {
                found.push((path.clone(), source.clone(), there.clone()));
            }
        }
    }
    if found.is_empty() {
        found = renamed(ground, old_ground, job)?;
    }
    match found.as_slice() {
        [] => Ok(Found::None),
        [(path, source, there)] => Ok(
            match in_anchor(pair.path, path, (&pair.old, anchor), (source, there), edit) {
                Ok(placed) => Found::One(placed),
                Err(_) => Found::Several(vec![format!("`{}` in {path}", there.name)]),
            },
        ),
        several => Ok(Found::Several(
            several
                .iter()
                .map(|(path, _, there)| format!("`{}` in {path}", there.name))
                .collect(),
        )),
    }
}

/// How alike two functions are, blanks aside, from 0 to 1.
pub(super) fn likeness((old, a): (&Source, &Anchor), (new, b): (&Source, &Anchor)) -> f64 {
    let (old, new) = (lines_of(&old.content), lines_of(&new.content));
    let (a, b) = (&old[a.lines.clone()], &new[b.lines.clone()]);
    Alignment::of(&trimmed(a), &trimmed(b)).likeness()
}

type Candidate = (RelPath, Rc<Source>, Anchor);

/// Functions of a new name with the same body.
fn renamed(ground: &Ground<'_>, old_ground: &Ground<'_>, job: &Job<'_>) -> Result<Vec<Candidate>> {
    let Job { pair, edit, anchor } = job;
    let old = lines_of(&pair.old.content);
    let body = trimmed(&old[anchor.lines.clone()]);
    if body.len() < LEAST_LINES {
        return Ok(Vec::new());
    }
    // A file that has not even the line beside the hook has not the function.
    let beside = [edit.from.checked_sub(1), Some(edit.to)]
        .into_iter()
        .flatten()
        .filter_map(|line| old.get(line))
        .map(|line| line.trim_ascii())
        .max_by_key(|line| line.len())
        .unwrap_or_default();
    let mut files = ground.changed_with(old_ground, pair.path, beside)?;
    if let Some(new) = &pair.new {
        files.push((pair.path.clone(), new.clone()));
    }
    let mut best: Vec<(f64, Candidate)> = Vec::new();
    for (path, source) in files {
        let before = old_ground.source(&path)?;
        for there in &source.anchors {
            let known = before
                .as_ref()
                .is_some_and(|before| before.named(&there.name).next().is_some());
            let size = there.lines.len();
            if known || size < LEAST_LINES || size > 3 * body.len() || body.len() > 3 * size {
                continue;
            }
            let likeness = likeness((&pair.old, anchor), (&source, there));
            best.push((likeness, (path.clone(), source.clone(), there.clone())));
        }
    }
    best.sort_by(|a, b| b.0.total_cmp(&a.0));
    let Some((top, _)) = best.first() else {
        return Ok(Vec::new());
    };
    if *top < ALIKE {
        return Ok(Vec::new());
    }
    let close = top - MARGIN;
    Ok(best
        .into_iter()
        .take_while(|(likeness, _)| *likeness > close)
        .map(|(_, candidate)| candidate)
        .collect())
}

/// A file of a new path that is the old `path`: the only new one that is much alike.
pub(super) fn moved_file(
    ground: &Ground<'_>,
    old_ground: &Ground<'_>,
    path: &RelPath,
    old: &Source,
) -> Result<Found<(RelPath, Rc<Source>)>> {
    let kind = extension(path);
    let lines = lines_of(&old.content);
    let mut found: Vec<(f64, RelPath, Rc<Source>)> = Vec::new();
    for (there, _) in ground.pristine.manifest.iter() {
        if old_ground.has(there) || extension(there) != kind {
            continue;
        }
        let Some(source) = ground.source(there)? else {
            continue;
        };
        let size = source.content.len();
        if size > 3 * old.content.len() || old.content.len() > 3 * size {
            continue;
        }
        let likeness = Alignment::of(&lines, &lines_of(&source.content)).likeness();
        if likeness >= ALIKE {
            found.push((likeness, there.clone(), source));
        }
    }
    found.sort_by(|a, b| b.0.total_cmp(&a.0));
    let Some(top) = found.first().map(|(likeness, ..)| *likeness) else {
        return Ok(Found::None);
    };
    found.retain(|(likeness, ..)| *likeness > top - MARGIN);
    if found.len() > 1 {
        let names = found.iter().map(|(_, path, _)| path.to_string());
        return Ok(Found::Several(names.collect()));
    }
    Ok(found
        .pop()
        .map_or(Found::None, |(_, path, source)| Found::One((path, source))))
}
