//! Where one hook belongs in a new base. By evidence, never by searching for context alone.
//!
//! The witnesses, in this order, each of which can only place a hook where it is sure:
//!
//! 1. the file as a whole, aligned line by line three ways (`align.rs`), with the same function
//!    around the place on both sides;
//! 2. the same function, found by its qualified name, aligned by itself: it may stand elsewhere
//!    in the file, or in another file, or be indented otherwise;
//! 3. a function that bears another name but has, alone among all new ones, the same body.
//!
//! What none of them places is a conflict.

use std::cell::OnceCell;
use std::rc::Rc;

use crate::diff::lines_of;
use crate::error::Result;
use crate::sync::align::{Alignment, Landing};
use crate::sync::edit::Edit;
use crate::sync::ground::{Anchor, Ground, Source};
use crate::sync::region::{Region, trimmed};
use crate::sync::search;
use crate::sync::verdict::HookVerdict;
use crate::tree::RelPath;

/// What is said of a place that only differs in them.
const OTHER_BLANKS: &str = "the lines around it are indented or end otherwise";

/// What is said of an include that got other neighbours.
const AMONG_INCLUDES: &str = "there are other includes beside it";

/// What is said of a place beside an edited line.
const EDITED_BESIDE: &str = "a line beside it was edited";

/// A hook with a place in the new base.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The file.
    pub file: RelPath,
    /// The change there.
    pub edit: Edit,
    /// Clean, shifted, merged or moved.
    pub verdict: HookVerdict,
    /// What moved, where that needs words.
    pub note: String,
    /// What is around it now.
    pub anchor: String,
}

/// A file of the old side, and what it became on the new one.
pub struct Pair<'a> {
    /// Its path.
    pub path: &'a RelPath,
    /// As the patch found it on the old base.
    pub old: Rc<Source>,
    /// What has the same path on the new base.
    pub new: Option<Rc<Source>>,
    exact: Option<Alignment>,
    /// The same, blind to indentation; made when it is asked for.
    loose: OnceCell<Alignment>,
}

impl<'a> Pair<'a> {
    /// Aligns the two.
    pub fn new(path: &'a RelPath, old: Rc<Source>, new: Option<Rc<Source>>) -> Self {
        let same = new.as_ref().is_some_and(|new| new.content == old.content);
        let mut exact = None;
        if let (Some(new), false) = (&new, same) {
            exact = Some(Alignment::of(
                &lines_of(&old.content),
                &lines_of(&new.content),
            ));
        }
        Pair {
            path,
            old,
            new,
            exact,
            loose: OnceCell::new(),
        }
    }

    /// The two aligned by what they are without their indentation.
    fn loose(&self, new: &Source) -> &Alignment {
        self.loose.get_or_init(|| {
            let (a, b) = (lines_of(&self.old.content), lines_of(&new.content));
            Alignment::of(&trimmed(&a), &trimmed(&b))
        })
    }
}

/// Why a hook has no place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unplaced(pub String);

/// Finds the place of `edit`, which changes `pair.old`.
pub fn place(
    ground: &Ground<'_>,
    old_ground: &Ground<'_>,
    pair: &Pair<'_>,
    edit: &Edit,
) -> Result<Result<Placed, Unplaced>> {
    let anchor = pair.old.around(edit.from);
    let mut reason = match &pair.new {
        Some(new) => match in_file(pair, new, edit, anchor) {
            Ok(placed) => return Ok(Ok(placed)),
            Err(reason) => reason,
        },
        None => "there is no such file".to_owned(),
    };
    if let Some(anchor) = anchor {
        let job = search::Job { pair, edit, anchor };
        match search::elsewhere(ground, old_ground, &job)? {
            search::Found::One(placed) => return Ok(Ok(placed)),
            search::Found::Several(places) => {
                reason = format!("{reason}; `{}` could be {}", anchor.name, places.join(", "));
            }
            search::Found::None => {}
        }
    } else if pair.new.is_none() {
        match search::moved_file(ground, old_ground, pair.path, &pair.old)? {
            search::Found::One((path, source)) => {
                let moved = Pair::new(pair.path, pair.old.clone(), Some(source.clone()));
                match in_file(&moved, &source, edit, None) {
                    Ok(placed) => {
                        return Ok(Ok(Placed {
                            note: format!("{} is {path} now", pair.path),
                            verdict: HookVerdict::Moved,
                            file: path,
                            ..placed
                        }));
                    }
                    Err(why) => reason = format!("it is {path} now, and there {why}"),
                }
            }
            search::Found::Several(places) => {
                reason = format!("{reason}; it could be {}", places.join(", "));
            }
            search::Found::None => {}
        }
    }
    Ok(Err(Unplaced(reason)))
}

/// The place in the file of the same name; else why there is none.
fn in_file(
    pair: &Pair<'_>,
    new: &Rc<Source>,
    edit: &Edit,
    anchor: Option<&Anchor>,
) -> Result<Placed, String> {
    let Some(exact) = &pair.exact else {
        // Not a byte of it changed.
        return Ok(Placed {
            file: pair.path.clone(),
            edit: edit.clone(),
            verdict: HookVerdict::Clean,
            note: String::new(),
            anchor: title(anchor, edit),
        });
    };
    let whole = Region {
        path: pair.path,
        old: &pair.old,
        new,
        old_lines: 0..lines_of(&pair.old.content).len(),
        new_start: 0,
    };
    let mut reason = match exact.landing(edit.from, edit.to) {
        Landing::At(at) => match same_around(&pair.old, new, anchor, at) {
            Ok(renamed) => return Ok(whole.placed(edit, at, anchor, renamed)),
            Err(reason) => match whole.relocated(edit, at, anchor) {
                Some(note) => return Ok(whole.placed(edit, at, anchor, Some(note))),
                None => reason,
            },
        },
        Landing::Ambiguous => "its surroundings occur more than once".to_owned(),
        Landing::Torn { above, below } => match whole.beside_an_edit(exact, edit) {
            Some(at) if same_around(&pair.old, new, anchor, at) == Ok(None) => {
                let edit = whole.at(edit, at);
                return Ok(whole.merged(edit, at, EDITED_BESIDE));
            }
            _ => match whole.among_includes(edit, above, below) {
                Some(at) if anchor.is_none() && new.around(at).is_none() => {
                    return Ok(whole.merged(whole.at(edit, at), at, AMONG_INCLUDES));
                }
                _ => torn(above, below),
            },
        },
    };
    let Some(anchor) = anchor else {
        // Outside of any function only the file as a whole can tell.
        if let Landing::At(at) = pair.loose(new).landing(edit.from, edit.to)
            && new.around(at).is_none()
        {
            return whole
                .reindented(edit, at)
                .map(|edit| whole.merged(edit, at, OTHER_BLANKS))
                .ok_or(reason);
        }
        return Err(reason);
    };
    match partner(&pair.old, new, anchor) {
        Ok(Some(one)) => {
            match in_anchor(pair.path, pair.path, (&pair.old, anchor), (new, one), edit) {
                Ok(placed) => return Ok(placed),
                Err(why) => reason = why,
            }
        }
        Ok(None) => {}
        Err(why) => reason = why,
    }
    // Taken out into a function of its own, or put into another one, and indented otherwise.
    if let Landing::At(at) = pair.loose(new).landing(edit.from, edit.to)
        && let Some(note) = whole.relocated(edit, at, Some(anchor))
        && let Some(edit) = whole.reindented(edit, at)
    {
        let mut placed = whole.merged(edit, at, &format!("{note}; {OTHER_BLANKS}"));
        placed.verdict = HookVerdict::Moved;
        return Ok(placed);
    }
    Err(reason)
}

/// The place inside one function or type, aligned by itself.
pub(super) fn in_anchor(
    old_path: &RelPath,
    new_path: &RelPath,
    (old, from): (&Source, &Anchor),
    (new, to): (&Source, &Anchor),
    edit: &Edit,
) -> Result<Placed, String> {
    if edit.to > from.lines.end {
        return Err(format!("it reaches over the end of {}", from.name));
    }
    let (a, b) = (lines_of(&old.content), lines_of(&new.content));
    let (a, b) = (&a[from.lines.clone()], &b[to.lines.clone()]);
    let region = Region {
        path: new_path,
        old,
        new,
        old_lines: from.lines.clone(),
        new_start: to.lines.start,
    };
    let (first, last) = (edit.from - from.lines.start, edit.to - from.lines.start);
    let mut note = Vec::new();
    if old_path != new_path {
        note.push(format!(
            "`{}` went from {old_path} to {new_path}",
            from.name
        ));
    } else if overtaken(old, from, new, to) {
        note.push(format!("`{}` moved within the file", from.name));
    }
    if from.name != to.name {
        note.push(format!("`{}` is `{}` now", from.name, to.name));
    }
    let moved = !note.is_empty();
    let alignment = Alignment::of(a, b);
    let torn = match alignment.landing(first, last) {
        Landing::At(at) => {
            let mut placed = region.placed(edit, to.lines.start + at, Some(from), None);
            placed.anchor = to.name.clone();
            if moved {
                placed.verdict = HookVerdict::Moved;
                placed.note = note.join("; ");
            }
            return Ok(placed);
        }
        Landing::Ambiguous => {
            return Err(format!(
                "its surroundings occur more than once in {}",
                to.name
            ));
        }
        Landing::Torn { above, below } => match region.beside_an_edit(&alignment, edit) {
            Some(at) => {
                note.push(EDITED_BESIDE.to_owned());
                let edit = region.at(edit, at);
                let mut placed = region.merged(edit, at, &note.join("; "));
                placed.anchor = to.name.clone();
                if moved {
                    placed.verdict = HookVerdict::Moved;
                }
                return Ok(placed);
            }
            None => torn_in(above, below, &to.name),
        },
    };
    let Landing::At(at) = Alignment::of(&trimmed(a), &trimmed(b)).landing(first, last) else {
        return Err(torn);
    };
    let at = to.lines.start + at;
    let Some(edit) = region.reindented(edit, at) else {
        return Err(torn);
    };
    note.push(OTHER_BLANKS.to_owned());
    let mut placed = region.merged(edit, at, &note.join("; "));
    placed.anchor = to.name.clone();
    if moved {
        placed.verdict = HookVerdict::Moved;
    }
    Ok(placed)
}

/// What an old function is in the new file: the only one of its name, or, of overloads, the only
/// one with its signature. An error where several are.
pub(super) fn partner<'n>(
    old: &Source,
    new: &'n Source,
    anchor: &Anchor,
) -> Result<Option<&'n Anchor>, String> {
    let alone = old.named(&anchor.name).count() == 1;
    let mut there: Vec<&Anchor> = new.named(&anchor.name).collect();
    if alone && there.len() == 1 {
        return Ok(there.pop());
    }
    let signed = |one: &&Anchor| one.signature == anchor.signature;
    there.retain(signed);
    let twins = old.named(&anchor.name).filter(signed).count();
    match (twins, there.as_slice()) {
        (_, []) => Ok(None),
        (1, [one]) => Ok(Some(one)),
        _ => Err(format!("there are several functions `{}`", anchor.name)),
    }
}

/// Whether `to` is `from` on the other side: as [`partner`], and of equal twins the one that
/// stands in the same place among them.
fn is_partner(old: &Source, from: &Anchor, new: &Source, to: &Anchor) -> bool {
    match partner(old, new, from) {
        Ok(found) => found.is_some_and(|one| one.lines == to.lines),
        Err(_) => {
            let place = |source: &Source, anchor: &Anchor| {
                let twins: Vec<&Anchor> = source
                    .named(&from.name)
                    .filter(|one| one.signature == from.signature)
                    .collect();
                let at = twins.iter().position(|one| one.lines == anchor.lines);
                (twins.len(), at)
            };
            place(old, from) == place(new, to)
        }
    }
}

/// Whether the place at the new line `at` lies in the function that the old one lay in. `Ok(Some)`
/// says that it was renamed.
fn same_around(
    old: &Source,
    new: &Source,
    anchor: Option<&Anchor>,
    at: usize,
) -> Result<Option<String>, String> {
    match (anchor, new.around(at)) {
        (None, None) => Ok(None),
        (Some(a), Some(b)) if is_partner(old, a, new, b) => Ok(None),
        (Some(a), Some(b)) if a.name == b.name => {
            Err(format!("there are several functions `{}`", a.name))
        }
        (Some(a), Some(b))
            if new.named(&a.name).next().is_none()
                && old.named(&b.name).next().is_none()
                && search::likeness((old, a), (new, b)) >= search::ALIKE =>
        {
            Ok(Some(format!("`{}` is `{}` now", a.name, b.name)))
        }
        (Some(a), Some(b)) => Err(format!(
            "the lines around it stand in `{}`, not in `{}`",
            b.name, a.name
        )),
        (Some(a), None) => Err(format!(
            "the lines around it no longer stand in `{}`",
            a.name
        )),
        (None, Some(b)) => Err(format!("the lines around it stand in `{}` now", b.name)),
    }
}

/// Whether something that stood before `from` now stands behind `to`, or the other way round.
fn overtaken(old: &Source, from: &Anchor, new: &Source, to: &Anchor) -> bool {
    old.anchors.iter().any(|other| {
        if other.name == from.name || old.named(&other.name).count() != 1 {
            return false;
        }
        let mut same = new.named(&other.name);
        let (Some(there), None) = (same.next(), same.next()) else {
            return false;
        };
        let apart =
            |a: &Anchor, b: &Anchor| a.lines.end <= b.lines.start || b.lines.end <= a.lines.start;
        apart(other, from)
            && apart(there, to)
            && (other.lines.start < from.lines.start) != (there.lines.start < to.lines.start)
    })
}

/// What a place is called: the function around it, else what git would write behind `@@`.
pub(super) fn title(anchor: Option<&Anchor>, edit: &Edit) -> String {
    anchor.map_or_else(|| edit.heading.clone(), |anchor| anchor.name.clone())
}

fn torn(above: Option<usize>, below: Option<usize>) -> String {
    match (above, below) {
        (None, None) => "the lines around it changed or are gone".to_owned(),
        (Some(line), None) => format!(
            "the line below it changed or is gone; the one above stands at line {}",
            line + 1
        ),
        (None, Some(line)) => format!(
            "the line above it changed or is gone; the one below stands at line {}",
            line + 1
        ),
        (Some(above), Some(below)) => format!(
            "the lines above and below it are apart: {} and {}",
            above + 1,
            below + 1
        ),
    }
}

fn torn_in(above: Option<usize>, below: Option<usize>, name: &str) -> String {
    let what = match (above, below) {
        (None, None) => "the lines around it changed or are gone",
        (Some(_), None) => "the line below it changed or is gone",
        (None, Some(_)) => "the line above it changed or is gone",
        (Some(_), Some(_)) => "there is something between the lines above and below it",
    };
    format!("in `{name}` {what}")
}
