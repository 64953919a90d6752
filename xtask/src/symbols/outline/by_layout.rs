//! What the layout of a text says where the parser is lost: a function begins at the left edge,
//! and ends with a brace there.

use std::ops::Range;

use super::names::{is_name, join, split};
use crate::symbols::cut::{Cut, is_word};
use crate::symbols::parse::one_line;
use crate::symbols::{Symbol, SymbolKind};

/// How many lines the head of a function may have.
const HEAD: usize = 40;

/// Adds the functions that the layout shows and the parser has missed, and takes out those that
/// it put together from the parts of others.
pub(super) fn add(
    cut: &Cut,
    lines: usize,
    scope: &str,
    found: &mut Vec<Symbol>,
    trouble: &[Range<usize>],
) {
    let mut shown = functions(cut, scope);
    for symbol in &mut shown {
        for range in std::iter::once(&mut symbol.lines).chain(&mut symbol.body) {
            *range = range.start + lines..range.end + lines;
        }
    }
    let same = |one: &Symbol, two: &Symbol| {
        one.name == two.name
            && one.lines.contains(&two.lines.start)
            && is_callable(one)
            && is_callable(two)
    };
    found.retain(|symbol| {
        let broken = |t: &Range<usize>| t.start < symbol.lines.end && symbol.lines.start < t.end;
        let inside = |s: &Symbol| {
            s.name != symbol.name
                && symbol.lines.start < s.lines.start
                && s.lines.start < symbol.lines.end
        };
        !(is_callable(symbol)
            && symbol.defined
            && trouble.iter().any(broken)
            && shown.iter().any(inside)
            && !shown.iter().any(|s| same(s, symbol)))
    });
    for mut symbol in shown {
        // With a body it is more than a declaration, and no variable.
        found.retain(|known| {
            let variable = known.kind == SymbolKind::Variable
                && known.name == symbol.name
                && known.lines.start == symbol.lines.start;
            !variable && (known.defined || !same(&symbol, known))
        });
        // With its template or what decorates it the parser's begins earlier.
        let known = |known: &Symbol| same(&symbol, known) || same(known, &symbol);
        if found.iter().any(known) {
            continue;
        }
        let space = found
            .iter()
            .filter(|s| s.kind == SymbolKind::Namespace && s.lines.contains(&symbol.lines.start))
            .min_by_key(|s| s.lines.len());
        if let Some(space) = space {
            symbol.scope = join(&space.qualified(), &symbol.scope);
        }
        found.push(symbol);
    }
}

fn is_callable(symbol: &Symbol) -> bool {
    matches!(symbol.kind, SymbolKind::Function | SymbolKind::Method)
}

/// The functions at the left edge, each with lines as if the text stood alone.
fn functions(cut: &Cut, scope: &str) -> Vec<Symbol> {
    let mut found = Vec::new();
    let mut row = 0;
    while row < cut.rows() {
        let Some(symbol) = function(cut, row, scope) else {
            row += 1;
            continue;
        };
        row = symbol.lines.end - 1;
        found.push(symbol);
    }
    found
}

fn function(cut: &Cut, row: usize, scope: &str) -> Option<Symbol> {
    let start = cut.offset(row);
    // An error may end with the head, and the body stand beside it.
    let end = cut.rows();
    let limit = cut.offset((row + HEAD).min(end));
    let near = cut.parse.get(start..limit)?;
    if !near.first().is_some_and(|byte| is_word(*byte)) {
        return None;
    }
    let brace = near.iter().position(|byte| matches!(byte, b'{' | b';'))?;
    let head = &near[..brace];
    let open = head.iter().position(|byte| *byte == b'(')?;
    if near[brace] == b';' || head[..open].contains(&b'=') || !head.contains(&b')') {
        return None;
    }
    let before = head[..open].trim_ascii_end();
    let name_at = before
        .iter()
        .rposition(|byte| !(is_word(*byte) || matches!(byte, b':' | b'~')))?;
    let name = String::from_utf8_lossy(&before[name_at + 1..]).into_owned();
    let first = String::from_utf8_lossy(before);
    let first = first.split_whitespace().next().unwrap_or_default();
    // Operators and templates are too much for this, and macros are none of its business.
    let odd = |byte: &u8| matches!(byte, b'#' | b'\\' | b'<');
    let joined = cut.code[..start].trim_ascii_end().ends_with(b"\\");
    if joined || before.iter().any(odd) || before.windows(8).any(|word| word == b"operator") {
        return None;
    }
    // A function has a type before its name, or a class.
    const NONE: [&str; 12] = [
        "case",
        "class",
        "decltype",
        "else",
        "enum",
        "extern",
        "namespace",
        "return",
        "struct",
        "template",
        "typedef",
        "using",
    ];
    if !is_name(&name) || NONE.contains(&first) || NONE.contains(&name.as_str()) {
        return None;
    }
    let body = row + near[..brace].iter().filter(|byte| **byte == b'\n').count();
    let last = closing_row(cut, body, start + brace, end)?;
    let (within, own) = split(&name);
    Some(Symbol {
        kind: if !within.is_empty() {
            SymbolKind::Method
        } else {
            SymbolKind::Function
        },
        name: own.to_owned(),
        scope: join(scope, within),
        signature: one_line(&cut.text[start..start + brace]),
        lines: row + 1..last + 2,
        body: Some(body + 1..last + 2),
        defined: true,
    })
}

/// The row of the brace that ends what opens at `brace` in row `body`.
fn closing_row(cut: &Cut, body: usize, brace: usize, end: usize) -> Option<usize> {
    let line = &cut.parse[brace..cut.offset(body + 1)];
    let count = |what: u8| line.iter().filter(|byte| **byte == what).count();
    if count(b'{') == count(b'}') {
        return Some(body);
    }
    (body + 1..end).find(|row| is_brace(cut, *row))
}

/// Whether the row is a lone brace at the left edge.
fn is_brace(cut: &Cut, row: usize) -> bool {
    cut.code[cut.offset(row)..cut.offset(row + 1)].trim_ascii_end() == b"}"
}

/// Ends functions that swallowed what follows them, since the parser missed their end: where one
/// that begins at the left edge has trouble in it, and a lone brace at the left edge before its
/// end. Returns the rows (from 0) of what was swallowed.
pub(super) fn swallowed(
    cut: &Cut,
    lines: usize,
    found: &mut [Symbol],
    trouble: &[Range<usize>],
) -> Vec<Range<usize>> {
    let mut rest: Vec<Range<usize>> = Vec::new();
    let spans: Vec<Range<usize>> = found.iter().map(|symbol| symbol.lines.clone()).collect();
    for symbol in found {
        let broken = |t: &Range<usize>| t.start < symbol.lines.end && symbol.lines.start < t.end;
        let rows = symbol.lines.start - lines - 1..symbol.lines.end - lines - 1;
        let known = rest.iter().any(|range| range.contains(&rows.start));
        if !is_callable(symbol) || known || !trouble.iter().any(broken) {
            continue;
        }
        let row = |row: usize| &cut.code[cut.offset(row)..cut.offset(row + 1)];
        if row(rows.start).first().is_none_or(u8::is_ascii_whitespace) {
            continue;
        }
        let Some(brace) = (rows.start + 1..rows.end).find(|at| is_brace(cut, *at)) else {
            continue;
        };
        let follows = (brace + 1..rows.end).any(|at| !row(at).trim_ascii().is_empty());
        if let Some(body) = symbol.body.as_mut().filter(|_| follows) {
            symbol.lines.end = lines + brace + 2;
            body.end = body.end.min(symbol.lines.end);
            // Not in the middle of the next one.
            let from = symbol.lines.end;
            let cut_in_two = |s: &&Range<usize>| s.start >= from && s.start < lines + rows.end + 1;
            let last = spans.iter().filter(cut_in_two).map(|s| s.end - lines - 1);
            rest.push(brace + 1..last.max().unwrap_or(0).max(rows.end));
        }
    }
    rest
}
