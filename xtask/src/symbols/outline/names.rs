//! Names in declarators, and small steps through the parser's tree.

use tree_sitter::Node;

pub(super) fn children(node: Node<'_>) -> impl Iterator<Item = Node<'_>> {
    let mut cursor = node.walk();
    let mut more = cursor.goto_first_child();
    std::iter::from_fn(move || {
        let child = more.then(|| cursor.node())?;
        more = cursor.goto_next_sibling();
        Some(child)
    })
}

pub(super) fn fields<'t>(node: Node<'t>, name: &str) -> Vec<Node<'t>> {
    let mut cursor = node.walk();
    node.children_by_field_name(name, &mut cursor).collect()
}

/// The function declarator of a declarator that declares a function: not a pointer to one.
pub(super) fn find_function(declarator: Node<'_>) -> Option<Node<'_>> {
    let mut node = declarator;
    loop {
        match node.kind() {
            "function_declarator" => {
                let inner = node.child_by_field_name("declarator")?;
                // `(*name)(…)` is a pointer; `(name)(…)` is odd but a function.
                let pointer = inner.kind() == "parenthesized_declarator"
                    && children(inner).any(|c| c.kind().contains("pointer"));
                return (!pointer).then_some(node);
            }
            "pointer_declarator" | "reference_declarator" | "attributed_declarator" => {
                node = node.child_by_field_name("declarator").or_else(|| {
                    children(node).find(|child| child.kind().ends_with("declarator"))
                })?;
            }
            "operator_cast" => return Some(node),
            "qualified_identifier" => node = node.child_by_field_name("name")?,
            _ => return None,
        }
    }
}

pub(super) fn is_name(name: &str) -> bool {
    let last = split(name).1;
    // What the parser takes for a function where a macro confuses it.
    !matches!(
        last,
        "if" | "for" | "while" | "switch" | "return" | "else" | "do" | "catch" | ""
    )
}

pub(super) fn join(scope: &str, name: &str) -> String {
    match (scope.is_empty(), name.is_empty()) {
        (true, _) => name.to_owned(),
        (_, true) => scope.to_owned(),
        _ => format!("{scope}::{name}"),
    }
}

/// Scope and name of `a::b::name`; the `::` of template arguments do not count.
pub(super) fn split(name: &str) -> (&str, &str) {
    let mut depth = 0_usize;
    let bytes = name.as_bytes();
    if name.contains("operator") {
        let at = name.find("operator").unwrap_or(0);
        return (name[..at].trim_end_matches("::"), &name[at..]);
    }
    for at in (0..bytes.len()).rev() {
        match bytes[at] {
            b'>' => depth += 1,
            b'<' => depth = depth.saturating_sub(1),
            b':' if depth == 0 && at > 0 && bytes[at - 1] == b':' => {
                return (&name[..at - 1], &name[at + 1..]);
            }
            _ => {}
        }
    }
    ("", name)
}
