//! Conflicts as text: markers with all three sides, and solutions that are found again.

use std::ops::Range;

use git2::{MergeFileInput, MergeFileOptions, ObjectType, Oid, merge_file};

use crate::diff::{self, lines_of};
use crate::error::{Error, Result};
use crate::sync::edit::{Edit, edits_of, with_edits};
use crate::tree::RelPath;

const OURS: &[u8] = b"<<<<<<< ";
const ANCESTOR: &[u8] = b"||||||| ";
const MIDDLE: &[u8] = b"=======";
const THEIRS: &[u8] = b">>>>>>> ";

/// What the sides are called.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// The new base.
    pub ours: &'a str,
    /// The old base.
    pub ancestor: &'a str,
    /// The patch.
    pub theirs: &'a str,
}

/// `ours` with markers around all that `theirs` adds to `ancestor`. What a merge would place
/// without conflict is marked as well: it is here because its place is not certain.
pub fn text(ancestor: &[u8], ours: &[u8], theirs: &[u8], names: &Names<'_>) -> Result<Vec<u8>> {
    let (mut a, mut o, mut t) = (
        MergeFileInput::new(),
        MergeFileInput::new(),
        MergeFileInput::new(),
    );
    a.content(ancestor);
    o.content(ours);
    t.content(theirs);
    let mut options = MergeFileOptions::new();
    options
        .style_diff3(true)
        .ancestor_label(names.ancestor)
        .our_label(names.ours)
        .their_label(names.theirs);
    // See authoring/rebase.rs: any other entry of git2 initialises libgit2, this one does not.
    let _ = Oid::hash_object(ObjectType::Blob, b"");
    let merged = merge_file(&a, &o, &t, Some(&mut options))
        .map_err(|error| Error::internal(error.message().to_owned()))?;
    let merged = merged.content().to_vec();
    let regions = regions(&merged);
    if regions.is_empty() {
        return mark_all(ours, &merged, names);
    }
    Ok(merged)
}

/// Markers around every change that makes `merged` of `ours`.
fn mark_all(ours: &[u8], merged: &[u8], names: &Names<'_>) -> Result<Vec<u8>> {
    let path = RelPath::new("file")?;
    let marked: Vec<Edit> = diff::between(&path, ours, merged)
        .iter()
        .flat_map(edits_of)
        .map(|edit| {
            let lines = lines_of(ours);
            let old: Vec<u8> = lines[edit.from..edit.to].concat();
            let mut text = Vec::new();
            let mut line = |marker: &[u8], name: &str| {
                text.extend_from_slice(marker);
                text.extend_from_slice(name.as_bytes());
                text.push(b'\n');
            };
            line(OURS, names.ours);
            let mut out = std::mem::take(&mut text);
            out.extend_from_slice(&old);
            out.extend_from_slice(ANCESTOR);
            out.extend_from_slice(names.ancestor.as_bytes());
            out.push(b'\n');
            out.extend_from_slice(&old);
            out.extend_from_slice(MIDDLE);
            out.push(b'\n');
            out.extend_from_slice(&edit.text);
            out.extend_from_slice(THEIRS);
            out.extend_from_slice(names.theirs.as_bytes());
            out.push(b'\n');
            Edit { text: out, ..edit }
        })
        .collect();
    with_edits(ours, &marked)
}

/// The conflicts of a marked text, as ranges of lines from 0, markers included.
pub fn regions(text: &[u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut open = None;
    for (at, line) in lines_of(text).iter().enumerate() {
        if line.starts_with(OURS) {
            open = Some(at);
        } else if line.starts_with(THEIRS)
            && let Some(from) = open.take()
        {
            found.push(from..at + 1);
        }
    }
    found
}

/// The first line, from 1, of `text` that still is a marker of `marked`.
pub fn first_marker(marked: &[u8], text: &[u8]) -> Option<usize> {
    let middle = |line: &&&[u8]| line.trim_ascii_end() == MIDDLE;
    let (before, lines) = (lines_of(marked), lines_of(text));
    // Such a line may also underline a heading in a comment.
    let own = (before.iter().filter(middle).count()).saturating_sub(regions(marked).len());
    let all = lines.iter().filter(middle).count();
    lines
        .iter()
        .position(|line| {
            [OURS, ANCESTOR, THEIRS]
                .iter()
                .any(|marker| line.starts_with(marker))
                || (all > own && middle(&line))
        })
        .map(|at| at + 1)
}

/// Lines around a conflict that tell it from others.
const AROUND: usize = 3;

/// A conflict as it is remembered: with the lines around it. Without any, and with nothing of the
/// file between its markers, it could be anywhere.
fn key(lines: &[&[u8]], region: &Range<usize>) -> Vec<u8> {
    let from = region.start.saturating_sub(AROUND);
    let to = (region.end + AROUND).min(lines.len());
    lines[from..to].concat()
}

/// Whether a conflict holds lines of the file, and not the patch's alone: only then can it be told
/// from another one of the same patch.
pub fn holds_lines(conflict: &[u8]) -> bool {
    // What stands around it may hold the end of the conflict before.
    lines_of(conflict)
        .into_iter()
        .skip_while(|line| !line.starts_with(OURS))
        .take_while(|line| !line.starts_with(MIDDLE))
        .any(|line| !line.starts_with(OURS) && !line.starts_with(ANCESTOR))
}

/// What became of each conflict of `marked` in `solved`: nothing where the text around them no
/// longer tells beyond doubt where each one is. Conflicts come with the lines around them.
pub fn solutions(marked: &[u8], solved: &[u8]) -> Option<Vec<(Vec<u8>, Vec<u8>)>> {
    let regions = regions(marked);
    let (lines, there) = (lines_of(marked), lines_of(solved));
    let mut found = Vec::new();
    // Lines of the marked and of the solved text that are used up.
    let (mut done, mut at) = (0, 0);
    for (number, region) in regions.iter().enumerate() {
        let common = &lines[done..region.start];
        if there.get(at..at + common.len()) != Some(common) {
            return None;
        }
        at += common.len();
        done = region.end;
        let last = number + 1 == regions.len();
        let until = regions
            .get(number + 1)
            .map_or(lines.len(), |next| next.start);
        let gap = &lines[done..until];
        let end = if last {
            there
                .len()
                .checked_sub(gap.len())
                .filter(|end| *end >= at)?
        } else {
            let mut places = (at..=there.len().checked_sub(gap.len())?)
                .filter(|place| !gap.is_empty() && there[*place..*place + gap.len()] == *gap);
            let (Some(only), None) = (places.next(), places.next()) else {
                return None;
            };
            only
        };
        if there[end..].get(..gap.len()) != Some(gap) {
            return None;
        }
        found.push((key(&lines, region), there[at..end].concat()));
        at = end;
    }
    Some(found)
}

/// `marked` with each conflict replaced by what `solution` knows of it and the lines around it;
/// none where it does not know all of them.
pub fn replay(marked: &[u8], solution: impl Fn(&[u8]) -> Option<Vec<u8>>) -> Option<Vec<u8>> {
    let lines = lines_of(marked);
    let mut out = Vec::new();
    let mut done = 0;
    for region in regions(marked) {
        out.extend_from_slice(&lines[done..region.start].concat());
        out.extend_from_slice(&solution(&key(&lines, &region))?);
        done = region.end;
    }
    out.extend_from_slice(&lines[done..].concat());
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAMES: Names<'_> = Names {
        ours: "new",
        ancestor: "old",
        theirs: "patch",
    };

    fn marked() -> Vec<u8> {
        text(
            b"a\nb\nc\nd\ne\nf\n",
            b"a\nB\nc\nd\nE\nf\n",
            b"a\nb\nhook1\nc\nd\nhook2\ne\nf\n",
            &NAMES,
        )
        .unwrap()
    }

    #[test]
    fn all_three_sides_stand_between_the_markers() {
        insta::assert_snapshot!(String::from_utf8(marked()).unwrap(), @r"
        a
        <<<<<<< new
        B
        ||||||| old
        b
        =======
        b
        hook1
        >>>>>>> patch
        c
        d
        <<<<<<< new
        E
        ||||||| old
        e
        =======
        hook2
        e
        >>>>>>> patch
        f
        ");
        assert_eq!(regions(&marked()).len(), 2);
        assert_eq!(first_marker(&marked(), &marked()), Some(2));
        let left = b"a\nB\nhook1\nc\nd\n=======\nhook2\nE\nf\n";
        assert_eq!(first_marker(&marked(), left), Some(6));
        assert_eq!(first_marker(b"", b"a\n======= b\n"), None);
        // A file may hold lines that look like markers, and no middle one.
        let odd = b"<<<<<<< a\n>>>>>>> b\n";
        assert_eq!(first_marker(odd, b"a\n"), None);
        // Of the file's own.
        let heading = b"Title\n=======\n";
        assert_eq!(first_marker(heading, heading), None);
    }

    #[test]
    fn what_a_merge_would_place_is_marked_too() {
        let text = text(b"a\nb\n", b"x\na\nb\n", b"a\nhook\nb\n", &NAMES).unwrap();
        insta::assert_snapshot!(String::from_utf8(text).unwrap(), @r"
        x
        a
        <<<<<<< new
        ||||||| old
        =======
        hook
        >>>>>>> patch
        b
        ");
    }

    #[test]
    fn a_conflict_without_lines_of_the_file_could_be_anywhere() {
        let placed = text(b"a\nb\n", b"x\na\nb\n", b"a\nhook\nb\n", &NAMES).unwrap();
        assert!(!holds_lines(&placed));
        assert!(holds_lines(&marked()));
        // Behind the end of the conflict before, whose side of the patch is empty.
        let behind =
            b"=======\n>>>>>>> patch\nc\n<<<<<<< new\nx\n||||||| old\n=======\nh\n>>>>>>> patch\n";
        assert!(holds_lines(behind));
        assert!(!holds_lines(b"=======\n>>>>>>> patch\nc\n"));
    }

    #[test]
    fn solutions_are_found_and_replayed() {
        let marked = marked();
        let solved = b"a\nB\nhook1\nc\nd\nhook2\nE\nf\n";
        let known = solutions(&marked, solved).unwrap();
        assert_eq!(known.len(), 2);
        assert_eq!(known[0].1, b"B\nhook1\n");
        let look = |region: &[u8]| {
            known
                .iter()
                .find(|(key, _)| key == region)
                .map(|(_, text)| text.clone())
        };
        // Elsewhere in a longer file: only where the lines around it are the same.
        let lines = b"1\n2\n3\n".as_slice();
        let long = [lines, &marked, lines].concat();
        assert!(replay(&long, look).is_none());
        let known = solutions(&long, &[lines, solved, lines].concat()).unwrap();
        let look = |region: &[u8]| {
            known
                .iter()
                .find(|(key, _)| key == region)
                .map(|(_, text)| text.clone())
        };
        let longer = [b"new line\n".as_slice(), &long, b"more\n"].concat();
        let replayed = replay(&longer, look).unwrap();
        assert_eq!(
            replayed,
            [b"new line\n".as_slice(), lines, solved, lines, b"more\n"].concat()
        );
        assert!(replay(&marked, |_| None).is_none());
        // What lies between two of them also stands in a solution: nobody can say which it is.
        let twice = b"a\nB\nhook1\nc\nd\nc\nd\nhook2\nE\nf\n";
        assert!(solutions(&marked, twice).is_none());
        // Somebody edited around the conflict: nothing is learned.
        assert!(solutions(&marked, b"z\nB\nhook1\nc\nd\nhook2\nE\nf\n").is_none());
    }
}
