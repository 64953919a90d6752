//! Is the series in order? One rule, one file, one stable name.
//!
//! A rule looks at what is committed (patches, registry, docs) and at the pristine base; it never
//! looks at a working tree, which is `verify`'s.

mod additivity;
mod book;
mod gates;
mod machines;
mod manifest;
mod markers;
mod names;
mod options;
mod registry;
mod retired;
mod switches;
mod unity;
mod whitespace;

use serde::Serialize;

use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::patchset::{Images, Patch, Problem, Series, book as book_of_hooks};
use crate::project::{Project, suggest};
use crate::vendor::Pristine;

/// What a rule looks at.
pub struct Subject<'a> {
    /// The checkout.
    pub project: &'a Project,
    /// The base.
    pub pristine: &'a Pristine,
    /// The series.
    pub series: &'a Series,
    /// What the series makes of the base.
    pub images: &'a Images,
    /// Where it does not apply.
    pub problems: &'a [Problem],
}

/// One thing that is not in order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// File of this checkout.
    pub file: String,
    /// Line in it, from 1.
    pub line: usize,
    /// Name of the rule.
    pub rule: &'static str,
    /// What is wrong.
    pub message: String,
    /// What to do.
    pub hint: String,
}

/// One rule.
pub struct Rule {
    /// Stable name: scripts and suppressions may use it.
    pub name: &'static str,
    /// What it asks, in one line.
    pub about: &'static str,
    /// Its findings; `rule` is filled in by the caller.
    check: fn(&Subject<'_>) -> Result<Vec<Finding>>,
}

/// All rules, in the order of their names.
pub const RULES: &[Rule] = &[
    additivity::RULE,
    book::RULE,
    gates::RULE,
    machines::RULE,
    manifest::RULE,
    markers::RULE,
    names::RULE,
    options::RULE,
    registry::RULE,
    retired::RULE,
    switches::RULE,
    unity::RULE,
    whitespace::RULE,
];

/// Runs the rules named in `only`, or all where it is empty.
pub fn run(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    only: &[String],
) -> Result<Vec<Finding>> {
    if let Some(unknown) = only
        .iter()
        .find(|name| !RULES.iter().any(|rule| rule.name == **name))
    {
        let known = RULES.iter().map(|rule| rule.name);
        return Err(Error::usage(format!("unknown rule `{unknown}`"))
            .hint(suggest(unknown, known, "rules")));
    }
    book_of_hooks::warn(ctx, &series.base.id)?;
    let (images, problems) = Images::attempt(pristine, series)?;
    let subject = Subject {
        project: &ctx.project,
        pristine,
        series,
        images: &images,
        problems: &problems,
    };
    let mut findings = Vec::new();
    for rule in RULES {
        if only.is_empty() || only.iter().any(|name| name == rule.name) {
            let found = (rule.check)(&subject)?;
            findings.extend(found.into_iter().map(|finding| Finding {
                rule: rule.name,
                ..finding
            }));
        }
    }
    findings.sort();
    Ok(findings)
}

impl Finding {
    /// A finding in `file` at `line`.
    fn at(
        file: impl Into<String>,
        line: usize,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Finding {
            file: file.into(),
            line,
            rule: "",
            message: message.into(),
            hint: hint.into(),
        }
    }
}

impl Subject<'_> {
    /// `patches/<id>/patch.toml`, as a user reads it.
    fn manifest(&self, patch: &Patch) -> String {
        let path = self.project.patch_dir(patch.id()).join("patch.toml");
        self.project.show(&path)
    }

    /// The hooks file of a patch and the line of it on which `text` is inserted or deleted; the
    /// first line where that cannot be told.
    fn in_hooks(&self, patch: &Patch, text: &[u8]) -> Result<(String, usize)> {
        let Some(name) = &patch.hooks_file else {
            return Ok((self.manifest(patch), 1));
        };
        let first = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let content = fs_err::read(self.project.root().join(name))?;
        let line = content
            .split(|byte| *byte == b'\n')
            .position(|line| matches!(line.first(), Some(b'+' | b'-')) && &line[1..] == first)
            .map_or(1, |at| at + 1);
        Ok((name.clone(), line))
    }
}

/// The line of `text`, from 1, that holds `needle`; 1 where none does.
fn line_with(text: &str, needle: &str) -> usize {
    text.lines()
        .position(|line| line.contains(needle))
        .map_or(1, |at| at + 1)
}

#[cfg(test)]
mod tests;
