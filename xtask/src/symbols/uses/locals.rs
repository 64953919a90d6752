//! Variables of functions, and their types as far as they are written down.

use std::collections::HashSet;
use std::ops::Range;

use tree_sitter::Node;

use crate::symbols::cut::Cut;
use crate::symbols::parse::{self, one_line};

/// One variable of a function: `signature` is its type and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::symbols) struct Local {
    pub name: String,
    pub signature: String,
    pub line: usize,
}

/// The parameters and variables that stand in `lines` of `text`.
pub(in crate::symbols) fn locals(text: &[u8], lines: &Range<usize>) -> Vec<Local> {
    let mut found = Vec::new();
    // A function alone parses as well as in its file, and sooner.
    let from = line_start(text, lines.start);
    let to = line_start(text, lines.end);
    each_part(
        &text[from..to.max(from)],
        lines.start.saturating_sub(1),
        8,
        &mut |cut, node, above| {
            let mut todo = vec![node];
            while let Some(node) = todo.pop() {
                if !touches(node, above, lines) {
                    continue;
                }
                todo.extend(children(node).map(|(child, _)| child));
                for declared in declared_by(node) {
                    let line = above + declared.start_position().row + 1;
                    if lines.contains(&line) {
                        found.push(Local {
                            name: text_of(cut, declared),
                            signature: signature(cut, node, declared),
                            line,
                        });
                    }
                }
            }
        },
    );
    found.sort_by_key(|local| local.line);
    found
}

/// The types that templates take.
pub(super) fn type_parameters(text: &[u8]) -> HashSet<String> {
    let mut found = HashSet::new();
    each_part(text, 0, 8, &mut |cut, node, _| {
        let mut todo = vec![node];
        while let Some(node) = todo.pop() {
            let named = node.kind() == "type_parameter_declaration"
                || node.kind() == "variadic_type_parameter_declaration";
            for (child, _) in children(node) {
                if named && child.kind() == "type_identifier" {
                    found.insert(text_of(cut, child));
                }
                todo.push(child);
            }
        }
    });
    found
}

/// Where a line begins; the end where there is none.
pub(super) fn line_start(text: &[u8], line: usize) -> usize {
    let Some(before) = line.checked_sub(2) else {
        return 0;
    };
    let mut ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.nth(before).map_or(text.len(), |(at, _)| at + 1)
}

/// Parses `text` and each of its branches that the parser does not see with the first one.
pub(super) fn each_part(
    text: &[u8],
    above: usize,
    depth: usize,
    visit: &mut dyn FnMut(&Cut, Node<'_>, usize),
) {
    let cut = Cut::of(text);
    if let Some(tree) = parse::tree(&cut.parse) {
        visit(&cut, tree.root_node(), above);
    }
    if depth == 0 {
        return;
    }
    for branch in &cut.branches {
        let lines = cut.row(branch.start);
        each_part(&text[branch.clone()], above + lines, depth - 1, visit);
    }
}

pub(super) fn touches(node: Node<'_>, above: usize, lines: &Range<usize>) -> bool {
    let (from, to) = (node.start_position().row, node.end_position().row);
    above + from + 1 < lines.end && above + to + 1 >= lines.start
}

pub(super) fn children<'t>(node: Node<'t>) -> impl Iterator<Item = (Node<'t>, Option<&'t str>)> {
    let mut cursor = node.walk();
    let mut more = cursor.goto_first_child();
    std::iter::from_fn(move || {
        let child = more.then(|| (cursor.node(), cursor.field_name()))?;
        more = cursor.goto_next_sibling();
        Some(child)
    })
}

pub(super) fn text_of(cut: &Cut, node: Node<'_>) -> String {
    one_line(&cut.text[node.byte_range()])
}

/// The names that `node` itself declares as variables.
pub(super) fn declared_by(node: Node<'_>) -> Vec<Node<'_>> {
    if !matches!(
        node.kind(),
        "declaration"
            | "parameter_declaration"
            | "optional_parameter_declaration"
            | "for_range_loop"
            | "condition_clause"
            | "init_statement"
            | "lambda_capture_initializer"
    ) {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (child, field) in children(node) {
        if field == Some("declarator") {
            leaves(child, &mut found);
        } else if node.kind() == "lambda_capture_initializer" && field == Some("left") {
            found.push(child);
        }
    }
    found
}

pub(super) fn leaves<'t>(declarator: Node<'t>, found: &mut Vec<Node<'t>>) {
    let mut todo = vec![declarator];
    while let Some(node) = todo.pop() {
        match node.kind() {
            "identifier" => found.push(node),
            "structured_binding_declarator" => todo.extend(children(node).map(|(c, _)| c)),
            _ => {
                let inner = node.child_by_field_name("declarator").or_else(|| {
                    children(node)
                        .map(|(c, _)| c)
                        .find(|c| c.kind() == "identifier" || c.kind().ends_with("declarator"))
                });
                todo.extend(inner);
            }
        }
    }
}

/// Type and name of a variable, without its value.
pub(super) fn signature(cut: &Cut, node: Node<'_>, declared: Node<'_>) -> String {
    let kind = node.child_by_field_name("type");
    let start = node.start_byte();
    let first = children(node)
        .find(|(_, field)| *field == Some("declarator"))
        .map_or(declared, |(child, _)| child);
    let head_end = match kind.and_then(|kind| kind.child_by_field_name("body")) {
        Some(body) => body.start_byte(),
        None => first.start_byte(),
    };
    // The declarator that this name is part of: from its stars to its brackets.
    let mut own = declared;
    while let Some(parent) = own.parent() {
        if parent.id() == node.id() || parent.kind() == "init_declarator" {
            break;
        }
        own = parent;
    }
    let mut text = cut.text[start.min(head_end)..head_end].to_vec();
    text.push(b' ');
    text.extend(&cut.text[own.byte_range()]);
    one_line(&text)
        .trim_start_matches("for(")
        .trim_start_matches("for (")
        .to_owned()
}

/// Words before a type that are not it.
const QUALIFIERS: [&str; 15] = [
    "class",
    "const",
    "constexpr",
    "enum",
    "extern",
    "inline",
    "mutable",
    "register",
    "signed",
    "static",
    "struct",
    "thread_local",
    "union",
    "unsigned",
    "volatile",
];

/// The type in the signature of the variable `name`, as far as members are asked of it: of a
/// pointer, a reference or a smart pointer what it leads to. Nothing where it is deduced.
pub(super) fn type_of(signature: &str, name: &str) -> Option<String> {
    let end = signature.rfind(name)?;
    let mut text = signature[..end].trim();
    for pointer in ["std::unique_ptr<", "std::shared_ptr<"] {
        if let Some((_, inner)) = text.split_once(pointer) {
            text = inner.split(['>', ',']).next().unwrap_or(inner);
        }
    }
    let text = text.split('<').next().unwrap_or(text);
    let words = text.split(|c: char| !(c.is_alphanumeric() || "_:".contains(c)));
    let word = words
        .rev()
        .find(|word| !word.is_empty() && !QUALIFIERS.contains(word))?;
    (word != "auto").then(|| word.to_owned())
}
