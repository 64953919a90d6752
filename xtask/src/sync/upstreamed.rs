//! Is it upstream already? A hook, by its lines; a patch, by the probes of its manifest.

use std::collections::BTreeSet;

use crate::diff::lines_of;
use crate::error::Result;
use crate::model::Probes;
use crate::sync::edit::Edit;
use crate::sync::ground::Ground;
use crate::sync::place::{Pair, partner};

/// Words that say nothing by being there: `else {` or `return;` is no evidence.
const COMMON: &[&str] = &[
    "break", "case", "continue", "default", "do", "else", "endif", "false", "for", "if", "int",
    "null", "nullptr", "return", "switch", "true", "void", "while",
];

/// A shorter name says as little.
const LEAST_NAME: usize = 3;

/// Whether the lines of `edit`, marker and white space aside, stand in the new file, in the
/// function that they were hooked into, more often than in the old file without the patch.
pub(super) fn hook(pair: &Pair<'_>, edit: &Edit) -> bool {
    let Some(new) = &pair.new else { return false };
    if edit.from != edit.to {
        return false;
    }
    let code = code_of(&lines_of(&edit.text));
    if !code.iter().any(|line| says_something(line)) {
        return false;
    }
    let (a, b) = (lines_of(&pair.old.content), lines_of(&new.content));
    let (a, b) = match pair.old.around(edit.from) {
        None => (&a[..], &b[..]),
        Some(anchor) => {
            let Ok(Some(there)) = partner(&pair.old, new, anchor) else {
                return false;
            };
            (&a[anchor.lines.clone()], &b[there.lines.clone()])
        }
    };
    count(&code, &code_of(b)) > count(&code, &code_of(a))
}

/// Whether a line of code names anything of its own.
fn says_something(line: &[u8]) -> bool {
    line.split(|byte| !byte.is_ascii_alphanumeric() && *byte != b'_')
        .filter(|word| word.len() >= LEAST_NAME && !word[0].is_ascii_digit())
        .any(|word| !COMMON.iter().any(|common| common.as_bytes() == word))
}

/// How often `code` stands in `lines`, in one piece.
fn count(code: &[Vec<u8>], lines: &[Vec<u8>]) -> usize {
    lines
        .windows(code.len())
        .filter(|window| *window == code)
        .count()
}

/// The lines without white space, comments to their end, and what then is empty.
fn code_of(lines: &[&[u8]]) -> Vec<Vec<u8>> {
    lines
        .iter()
        .map(|line| {
            let end = memchr::memmem::find(line, b"//").unwrap_or(line.len());
            let end = match line[..end]
                .iter()
                .position(|byte| !byte.is_ascii_whitespace())
            {
                // CMake's and shell's comments; a directive of the preprocessor is code.
                Some(at) if line[at..end].starts_with(b"# ") => at,
                _ => end,
            };
            line[..end]
                .iter()
                .copied()
                .filter(|byte| !byte.is_ascii_whitespace())
                .collect::<Vec<u8>>()
        })
        .filter(|line| !line.is_empty())
        .collect()
}

/// What the probes of a manifest find in the new base that the old one has not, and how many
/// there are.
pub(super) fn probes(
    ground: &Ground<'_>,
    old_ground: &Ground<'_>,
    probes: &Probes,
) -> Result<(Vec<String>, usize)> {
    let wanted: BTreeSet<(&str, bool)> = probes
        .symbols
        .iter()
        .map(|name| (name.as_str(), true))
        .chain(probes.strings.iter().map(|text| (text.as_str(), false)))
        .collect();
    let mut found = BTreeSet::new();
    let mut known = BTreeSet::new();
    if wanted.is_empty() {
        return Ok((Vec::new(), 0));
    }
    for (from, other, into) in [
        (ground, old_ground, &mut found),
        (old_ground, ground, &mut known),
    ] {
        for (path, entry) in from.pristine.manifest.iter() {
            let same = other
                .pristine
                .manifest
                .get(path)
                .is_some_and(|there| there.sha256 == entry.sha256);
            if entry.mode == crate::tree::FileMode::Link {
                continue;
            }
            // What both have is in the old base; only what differs needs reading twice.
            if same && std::ptr::eq(from, ground) {
                continue;
            }
            let text = fs_err::read(path.below(&from.pristine.root))?;
            for (probe, is_symbol) in &wanted {
                if into.contains(&(*probe, *is_symbol)) {
                    continue;
                }
                let short = probe.rsplit("::").next().unwrap_or(probe);
                if memchr::memmem::find(&text, short.as_bytes()).is_none() {
                    continue;
                }
                let there = if *is_symbol {
                    from.source(path)?
                        .is_some_and(|source| source.defines(probe))
                } else {
                    memchr::memmem::find(&text, probe.as_bytes()).is_some()
                };
                if there {
                    into.insert((*probe, *is_symbol));
                }
            }
        }
    }
    let evidence = found
        .difference(&known)
        .map(|(probe, is_symbol)| match is_symbol {
            true => format!("the symbol `{probe}` is there"),
            false => format!("the text {probe:?} is there"),
        })
        .collect();
    Ok((evidence, wanted.len()))
}
