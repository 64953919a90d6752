//! What a text needs from elsewhere: the names that it uses and does not declare itself.

mod locals;
mod walk;

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use serde::Serialize;

use crate::symbols::cut::is_word;
use crate::symbols::{Language, Outline, Symbol, SymbolKind};
use crate::tree::RelPath;

pub(super) use locals::locals;
use locals::{each_part, type_of, type_parameters};
use walk::Collector;

/// How a name is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum How {
    /// `name(…)`
    Call,
    /// `x.name(…)` or `x->name(…)`
    MemberCall,
    /// `x.name` or `x->name`
    Member,
    /// As a type, or before `::`.
    Type,
    /// A parameter or variable of the function around the line.
    Local,
    /// Anything else: a constant, a macro, an enum value, a function whose address is taken.
    Other,
}

/// A name that is used.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Use {
    /// The name alone.
    pub name: String,
    /// How it is used.
    pub how: How,
    /// Of `a::name` the `a`; of a member the type of its object, where that is known.
    pub of: Option<String>,
    /// The qualified name of the function around it, where it is not the text's own.
    pub within: Option<String>,
}

/// What `text` uses and does not declare. `path` decides the language.
pub fn uses(path: &RelPath, text: &[u8]) -> BTreeSet<Use> {
    match Language::of(path) {
        Some(Language::C) => collect(text, &Outline::of(path, text), None),
        Some(Language::Cmake) => words(text, None),
        None => BTreeSet::new(),
    }
}

/// What some `lines` (1-based, the end exclusive) of `text` use and do not declare: the lines
/// that a patch put into the file. Names of the function around them are there as
/// [`How::Local`], and give the objects of members their types.
pub fn uses_of_lines(path: &RelPath, text: &[u8], lines: &[Range<usize>]) -> BTreeSet<Use> {
    match Language::of(path) {
        Some(Language::C) => collect(text, &Outline::of(path, text), Some(lines)),
        Some(Language::Cmake) => words(text, Some(lines)),
        None => BTreeSet::new(),
    }
}

/// What the text declares itself.
#[derive(Default)]
struct Own {
    /// Variables and parameters with their types, as far as they are named.
    variables: HashMap<String, Option<String>>,
    /// Functions, macros, enum values.
    names: HashSet<String>,
    types: HashSet<String>,
    members: HashSet<String>,
}

impl Own {
    fn add(&mut self, symbol: &Symbol) {
        use SymbolKind::*;
        let name = symbol.name.clone();
        match symbol.kind {
            Struct | Class | Union | Enum if symbol.defined => {
                self.types.insert(name);
            }
            Typedef | Namespace => {
                self.types.insert(name);
            }
            Field => {
                self.members.insert(name);
            }
            Method => {
                self.members.insert(name.clone());
                self.names.insert(name);
            }
            Function | Macro | EnumValue | Variable => {
                self.names.insert(name);
            }
            _ => {}
        }
    }
}

/// A function around some of the lines: its own lines, its qualified name, its variables with
/// their types.
type Around = (Range<usize>, String, HashMap<String, Option<String>>);

fn collect(text: &[u8], outline: &Outline, lines: Option<&[Range<usize>]>) -> BTreeSet<Use> {
    let inside = |line: usize| lines.is_none_or(|all| all.iter().any(|r| r.contains(&line)));
    let mut own = Own::default();
    for symbol in &outline.symbols {
        // In an upstream file only what the lines declare is theirs.
        if inside(symbol.lines.start) {
            own.add(symbol);
        }
    }
    let mut around: Vec<Around> = Vec::new();
    let functions: Vec<&Symbol> = match lines {
        None => Vec::new(),
        Some(lines) => lines
            .iter()
            .filter_map(|range| {
                outline
                    .symbols
                    .iter()
                    .filter(|s| s.encloses() && s.lines.start < range.start)
                    .filter(|s| matches!(s.kind, SymbolKind::Function | SymbolKind::Method))
                    .filter(|s| s.lines.contains(&range.start))
                    .min_by_key(|s| s.lines.len())
            })
            .collect(),
    };
    for function in functions {
        if around.iter().any(|(lines, ..)| *lines == function.lines) {
            continue;
        }
        let mut variables = HashMap::new();
        for local in locals(text, &function.lines) {
            let kind = type_of(&local.signature, &local.name);
            if inside(local.line) {
                own.variables.insert(local.name, kind);
            } else {
                variables.insert(local.name, kind);
            }
        }
        around.push((function.lines.clone(), function.qualified(), variables));
    }
    if lines.is_none() {
        let all = 0..usize::MAX;
        own.types.extend(type_parameters(text));
        for local in locals(text, &all) {
            let kind = type_of(&local.signature, &local.name);
            own.variables.insert(local.name, kind);
        }
    }
    let mut found = BTreeSet::new();
    each_part(text, 0, 8, &mut |cut, node, above| {
        Collector {
            cut,
            above,
            lines,
            own: &own,
            around: &around,
            found: &mut found,
        }
        .run(node);
    });
    conditions(text, lines, &own, &mut found);
    found
}

/// The names in `#if`, `#ifdef` and `#elif`, which the parser is not given.
fn conditions(text: &[u8], lines: Option<&[Range<usize>]>, own: &Own, found: &mut BTreeSet<Use>) {
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let wanted = lines.is_none_or(|all| all.iter().any(|r| r.contains(&(at + 1))));
        let Some(rest) = line.trim_ascii_start().strip_prefix(b"#") else {
            continue;
        };
        let rest = String::from_utf8_lossy(rest.trim_ascii_start());
        if !wanted || !(rest.starts_with("if") || rest.starts_with("elif")) {
            continue;
        }
        let code = rest.split("//").next().unwrap_or_default();
        for word in identifiers(code.as_bytes()).skip(1) {
            if word != "defined" && !word.starts_with("__") && !own.names.contains(word) {
                found.insert(Use {
                    name: word.to_owned(),
                    how: How::Other,
                    of: None,
                    within: None,
                });
            }
        }
    }
}

/// The words of a text that could be names.
pub(super) fn identifiers(text: &[u8]) -> impl Iterator<Item = &str> {
    text.split(|byte| !is_word(*byte))
        .filter(|word| word.first().is_some_and(|b| !b.is_ascii_digit()))
        .filter_map(|word| std::str::from_utf8(word).ok())
}

/// All words of a CMake text: only those that name a target, function or macro will matter.
fn words(text: &[u8], lines: Option<&[Range<usize>]>) -> BTreeSet<Use> {
    let text = String::from_utf8_lossy(text);
    let mut found = BTreeSet::new();
    for (at, line) in text.lines().enumerate() {
        if lines.is_some_and(|all| !all.iter().any(|r| r.contains(&(at + 1)))) {
            continue;
        }
        let code = line.split('#').next().unwrap_or_default();
        for word in code.split(|c: char| !c.is_alphanumeric() && !"_-.".contains(c)) {
            if word.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                found.insert(Use {
                    name: word.to_owned(),
                    how: How::Other,
                    of: None,
                    within: None,
                });
            }
        }
    }
    found
}

/// The last part of a qualified name.
pub(super) fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}
