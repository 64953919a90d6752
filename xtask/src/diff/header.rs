//! From the lines above the hunks to a [`FilePatch`] without hunks.

use std::borrow::Cow;

use crate::diff::hunk::{Lines, WRITE_ANEW};
use crate::diff::name::{Strip, is_epoch, take_name, two_names, whole_name};
use crate::diff::{FilePatch, Index, Operation, Similarity, name};
use crate::error::{Error, Result, ResultExt as _};
use crate::tree::{FileMode, RelPath};

/// One way to read the two names in a `diff --git` line.
type Names<'a> = (Cow<'a, [u8]>, Cow<'a, [u8]>);

/// What a `diff --git` header says, line by line.
#[derive(Default)]
struct Said {
    old_mode: Option<FileMode>,
    new_mode: Option<FileMode>,
    deleted: Option<FileMode>,
    created: Option<FileMode>,
    copy_from: Option<RelPath>,
    copy_to: Option<RelPath>,
    rename_from: Option<RelPath>,
    rename_to: Option<RelPath>,
    similarity: Option<Similarity>,
    index: Option<Index>,
}

/// Reads a header that begins with `diff --git`. The second value says whether hunks follow.
pub(super) fn git(lines: &mut Lines<'_>, strip: Strip) -> Result<(FilePatch, bool)> {
    let start = lines.clone();
    let Some(names) = lines.take(b"diff --git ") else {
        return Err(lines.stray("is no `diff --git` header"));
    };
    if names.ends_with(b"\r") {
        return Err(start.stray("cannot be read"));
    }
    let candidates: Vec<Names<'_>> = two_names(names)
        .into_iter()
        .filter(|(old, new)| strip.off(old).is_some() && strip.off(new).is_some())
        .collect();
    let said = extended(lines)?;
    let shown = String::from_utf8_lossy(names);
    let context = || format!("`diff --git {shown}`");
    if let Some(what) = binary(lines) {
        return Err(Error::config(format!("it is {what}")).context(context())).hint(|| {
            "a binary change cannot be kept as a patch; bring the file in an overlay".into()
        });
    }
    let labels = labels(lines, strip)?;
    let file = assemble(said, &candidates, labels.as_ref(), strip)
        .context(context)
        .hint(|| WRITE_ANEW.into())?;
    Ok((file, labels.is_some()))
}

/// The lines between `diff --git` and `---`, each at most once.
fn extended(lines: &mut Lines<'_>) -> Result<Said> {
    let mut said = Said::default();
    loop {
        let before = lines.clone();
        match extended_line(lines, &mut said) {
            Ok(Some(true)) => {}
            Ok(Some(false)) => return Err(before.stray("says twice what it says")),
            Ok(None) => return Ok(said),
            Err(error) => {
                return Err(error.context(format!("line {} of the diff", before.number())));
            }
        }
    }
}

/// Takes one such line. None where the next line is another; false where it was there already.
fn extended_line(lines: &mut Lines<'_>, said: &mut Said) -> Result<Option<bool>> {
    // What `rename from` and `copy from` name has no prefix.
    let bare = |rest: &[u8]| -> Result<RelPath> { name::path(&whole_name(rest)?) };
    let fresh = if let Some(rest) = lines.take(b"old mode ") {
        fill(&mut said.old_mode, mode(rest))?
    } else if let Some(rest) = lines.take(b"new mode ") {
        fill(&mut said.new_mode, mode(rest))?
    } else if let Some(rest) = lines.take(b"deleted file mode ") {
        fill(&mut said.deleted, mode(rest))?
    } else if let Some(rest) = lines.take(b"new file mode ") {
        fill(&mut said.created, mode(rest))?
    } else if let Some(rest) = lines.take(b"copy from ") {
        fill(&mut said.copy_from, bare(rest))?
    } else if let Some(rest) = lines.take(b"copy to ") {
        fill(&mut said.copy_to, bare(rest))?
    } else if let Some(rest) = lines.take(b"rename from ") {
        fill(&mut said.rename_from, bare(rest))?
    } else if let Some(rest) = lines.take(b"rename to ") {
        fill(&mut said.rename_to, bare(rest))?
    } else if let Some(rest) = lines.take(b"similarity index ") {
        fill(&mut said.similarity, percent(rest).map(Similarity::Alike))?
    } else if let Some(rest) = lines.take(b"dissimilarity index ") {
        fill(&mut said.similarity, percent(rest).map(Similarity::Unlike))?
    } else if let Some(rest) = lines.take(b"index ") {
        fill(&mut said.index, index(rest))?
    } else {
        return Ok(None);
    };
    Ok(Some(fresh))
}

/// Puts the value into its place; false where there is one already.
fn fill<T>(place: &mut Option<T>, value: Result<T>) -> Result<bool> {
    Ok(place.replace(value?).is_none())
}

fn mode(text: &[u8]) -> Result<FileMode> {
    match text {
        b"100644" => Ok(FileMode::Plain),
        b"100755" => Ok(FileMode::Executable),
        b"120000" => Ok(FileMode::Link),
        b"160000" => Err(Error::config("the diff touches a submodule (mode 160000)")
            .hint("vendor the submodule's files; a patch cannot move a submodule")),
        other => Err(Error::config(format!(
            "the diff names the mode {:?}",
            String::from_utf8_lossy(other)
        ))
        .hint("only 100644, 100755 and 120000 are modes of files in git")),
    }
}

fn percent(text: &[u8]) -> Result<u8> {
    std::str::from_utf8(text)
        .ok()
        .and_then(|text| text.strip_suffix('%')?.parse().ok())
        .filter(|value| *value <= 100)
        .ok_or_else(|| {
            Error::config("a similarity index is not between 0% and 100%").hint(WRITE_ANEW)
        })
}

/// `<hex>..<hex>[ <mode>]`.
fn index(text: &[u8]) -> Result<Index> {
    let broken = || Error::config("an index line is broken").hint(WRITE_ANEW);
    let text = std::str::from_utf8(text).map_err(|_| broken())?;
    let (ids, stated) = match text.split_once(' ') {
        Some((ids, stated)) => (ids, Some(mode(stated.as_bytes())?)),
        None => (text, None),
    };
    let (old, new) = ids.split_once("..").ok_or_else(broken)?;
    let valid = |id: &str| {
        (1..=64).contains(&id.len())
            && id
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    if !valid(old) || !valid(new) {
        return Err(broken());
    }
    Ok(Index {
        old: old.to_owned(),
        new: new.to_owned(),
        mode: stated,
    })
}

/// What kind of binary change follows, if one does.
pub(super) fn binary(lines: &Lines<'_>) -> Option<&'static str> {
    let line = lines.peek()?;
    if line == b"GIT binary patch" {
        Some("a binary patch")
    } else if line.starts_with(b"Binary files ") || line.starts_with(b"Files ") {
        line.ends_with(b" differ")
            .then_some("a binary change without its content")
    } else {
        None
    }
}

/// The names in `---` and `+++`; absent for `/dev/null`.
struct Labels {
    old: Option<RelPath>,
    new: Option<RelPath>,
}

/// Reads `---` and `+++`, behind which there must be a hunk; none where they are not there.
fn labels(lines: &mut Lines<'_>, strip: Strip) -> Result<Option<Labels>> {
    let Some((old, _)) = label(lines, b"--- ", strip)? else {
        return match lines.peek() {
            Some(line) if line.starts_with(b"@@ ") => {
                Err(lines.stray("comes without `---` and `+++` lines before it"))
            }
            _ => Ok(None),
        };
    };
    let Some((new, _)) = label(lines, b"+++ ", strip)? else {
        return Err(lines.stray("stands where a `+++` line must be"));
    };
    Ok(Some(Labels { old, new }))
}

/// One label: its path (none for `/dev/null`), and what stands behind the name.
type Label<'a> = (Option<RelPath>, &'a [u8]);

fn label<'a>(lines: &mut Lines<'a>, sign: &[u8], strip: Strip) -> Result<Option<Label<'a>>> {
    let before = lines.clone();
    let Some(text) = lines.take(sign) else {
        return Ok(None);
    };
    if text.ends_with(b"\r") {
        return Err(before.stray("cannot be read"));
    }
    let (name, rest) = take_name(text)?;
    let stamp = rest.strip_prefix(b"\t").unwrap_or_default();
    if (!rest.is_empty() && !rest.starts_with(b"\t")) || stamp.contains(&b'\t') {
        return Err(before.stray("has something behind its name"));
    }
    if name == b"/dev/null" {
        return Ok(Some((None, rest)));
    }
    let path = strip
        .path(&name)
        .context(|| format!("line {} of the diff", before.number()))?;
    Ok(Some((Some(path), rest)))
}

/// What the header says as one change, if all of it agrees with itself and with the labels.
fn assemble(
    said: Said,
    candidates: &[Names<'_>],
    labels: Option<&Labels>,
    strip: Strip,
) -> Result<FilePatch> {
    if said.old_mode.is_some() != said.new_mode.is_some() {
        return Err(Error::config("only one of `old mode` and `new mode`"));
    }
    let operation = operation(&said, candidates, strip)?;
    let is_lone = matches!(operation, Operation::Create(_) | Operation::Delete(_));
    if is_lone && (said.old_mode.is_some() || said.new_mode.is_some()) {
        return Err(Error::config(
            "a change of mode of a file that is new or gone",
        ));
    }
    let file = FilePatch {
        operation,
        old_mode: said.deleted.or(said.old_mode),
        new_mode: said.created.or(said.new_mode),
        similarity: said.similarity,
        index: said.index,
        hunks: Vec::new(),
    };
    match labels {
        Some(labels)
            if labels.old.as_ref() != file.old_path() || labels.new.as_ref() != file.new_path() =>
        {
            Err(Error::config(
                "`---` and `+++` do not say what the header says",
            ))
        }
        None if matches!(file.operation, Operation::Edit(_)) && file.old_mode == file.new_mode => {
            Err(Error::config(
                "it changes nothing: no hunk, no mode, no name",
            ))
        }
        _ => Ok(file),
    }
}

/// What becomes of which file. The names of a rename or copy stand in lines of their own; those
/// of all else only in the first line, which has to have one reading.
fn operation(said: &Said, candidates: &[Names<'_>], strip: Strip) -> Result<Operation> {
    let same: Vec<&[u8]> = candidates
        .iter()
        .filter_map(|(old, new)| Some((strip.off(old)?, strip.off(new)?)))
        .filter(|(old, new)| old == new)
        .map(|(old, _)| old)
        .collect();
    let path = |what: &str| match same.as_slice() {
        [one] => name::path(one),
        [] => Err(Error::config(format!("two different names, yet it {what}"))),
        _ => Err(Error::config("the names can be read in several ways")),
    };
    let kinds = [
        said.created.is_some(),
        said.deleted.is_some(),
        said.rename_from.is_some() || said.rename_to.is_some(),
        said.copy_from.is_some() || said.copy_to.is_some(),
    ];
    if kinds.iter().filter(|kind| **kind).count() > 1 {
        return Err(Error::config(
            "more than one of created, deleted, renamed and copied",
        ));
    }
    let pair = |from: &Option<RelPath>, to: &Option<RelPath>| -> Result<(RelPath, RelPath)> {
        let (Some(from), Some(to)) = (from, to) else {
            return Err(Error::config("only one of the two names"));
        };
        let fits = |(old, new): &Names<'_>| {
            strip.off(old) == Some(from.as_str().as_bytes())
                && strip.off(new) == Some(to.as_str().as_bytes())
        };
        if from == to || !candidates.iter().any(fits) {
            return Err(Error::config("the names in the header do not agree"));
        }
        Ok((from.clone(), to.clone()))
    };
    Ok(if kinds[0] {
        Operation::Create(path("is created")?)
    } else if kinds[1] {
        Operation::Delete(path("is deleted")?)
    } else if kinds[2] {
        let (from, to) = pair(&said.rename_from, &said.rename_to)?;
        Operation::Rename { from, to }
    } else if kinds[3] {
        let (from, to) = pair(&said.copy_from, &said.copy_to)?;
        Operation::Copy { from, to }
    } else {
        Operation::Edit(path("is neither renamed nor copied")?)
    })
}

/// Reads `---` and `+++` of a diff that git did not write.
pub(super) fn plain(lines: &mut Lines<'_>, strip: Strip) -> Result<FilePatch> {
    let start = lines.clone();
    let mut ahead = start.clone();
    for _ in 0..2 {
        if ahead.peek().is_some_and(is_stamped_behind_a_blank) {
            return Err(
                ahead.stray("has a time stamp behind a blank, which could be part of a name")
            );
        }
        ahead.advance();
    }
    let (Some((old, old_rest)), Some((new, new_rest))) =
        (label(lines, b"--- ", strip)?, label(lines, b"+++ ", strip)?)
    else {
        return Err(start.stray("begins no file"));
    };
    let operation = match (old, new) {
        (None, None) => return Err(start.stray("names no file on either side")),
        (None, Some(path)) => Operation::Create(path),
        (Some(path), None) => Operation::Delete(path),
        (Some(old), Some(new)) => {
            let Some(path) = agreed(&old, &new) else {
                return Err(start.stray("names another file than the line after it"));
            };
            match (is_epoch(old_rest), is_epoch(new_rest)) {
                (true, true) => return Err(start.stray("names a file that never exists")),
                (true, false) => Operation::Create(path),
                (false, true) => Operation::Delete(path),
                (false, false) => Operation::Edit(path),
            }
        }
    };
    Ok(FilePatch::new(operation))
}

/// Whether a name is followed by a date without a tab between them. Git takes such a date off.
fn is_stamped_behind_a_blank(label: &[u8]) -> bool {
    let name = label
        .split(|byte| *byte == b'\t')
        .next()
        .unwrap_or_default();
    name.split(|byte| *byte == b' ').skip(2).any(|word| {
        word.len() == 10
            && word.iter().enumerate().all(|(at, byte)| match at {
                4 | 7 => *byte == b'-',
                _ => byte.is_ascii_digit(),
            })
    })
}

/// The file that two labels mean: the same, or one is the other with a mark for the old version.
fn agreed(old: &RelPath, new: &RelPath) -> Option<RelPath> {
    let marked = |long: &RelPath, short: &RelPath| {
        [".orig", "~"]
            .iter()
            .any(|mark| long.as_str().strip_suffix(mark) == Some(short.as_str()))
    };
    if old == new || marked(old, new) {
        Some(new.clone())
    } else if marked(new, old) {
        Some(old.clone())
    } else {
        None
    }
}
