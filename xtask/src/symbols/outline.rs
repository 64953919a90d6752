//! The outline of a C or C++ text, from the parser's tree.

mod by_layout;
mod data;
mod names;

use std::ops::Range;

use tree_sitter::Node;

use crate::symbols::cut::Cut;
use crate::symbols::parse::{self, one_line};
use crate::symbols::{Outline, Symbol, SymbolKind};
use names::{children, find_function, is_name, join, split};

/// How deep branches of conditionals are followed that lie in other branches.
const DEEPEST: usize = 8;

pub(super) fn of(source: &[u8]) -> Outline {
    let mut out = Outline::default();
    fragment(source, 0, "", false, DEEPEST, &mut out);
    out.symbols
        .sort_by_key(|s| (s.lines.start, std::cmp::Reverse(s.lines.end)));
    // An error around others is no news.
    out.trouble
        .sort_by_key(|range| (range.start, std::cmp::Reverse(range.end)));
    out.trouble.dedup();
    let all = std::mem::take(&mut out.trouble);
    for (index, range) in all.iter().enumerate() {
        let next = all.get(index + 1);
        if next.is_none_or(|next| next.start >= range.end) {
            out.trouble.push(range.clone());
        }
    }
    out
}

/// Adds what `source` declares. It begins `lines` lines below the top, inside of `scope`.
fn fragment(
    source: &[u8],
    lines: usize,
    scope: &str,
    in_class: bool,
    depth: usize,
    out: &mut Outline,
) {
    let cut = Cut::of(source);
    let Some(tree) = parse::tree(&cut.parse) else {
        out.trouble.push(lines + 1..lines + 2);
        return;
    };
    let mut walk = Walk {
        cut: &cut,
        lines,
        found: Vec::new(),
        trouble: Vec::new(),
    };
    walk.run(tree.root_node(), scope, in_class);
    walk.broken(tree.root_node());
    let Walk {
        mut found, trouble, ..
    } = walk;
    if tree.root_node().has_error() {
        by_layout::add(&cut, lines, scope, &mut found, &trouble);
    }
    for rest in by_layout::swallowed(&cut, lines, &mut found, &trouble) {
        if depth == 0 {
            break;
        }
        // What the walk made of it in there is found anew.
        let (from, to) = (lines + rest.start + 1, lines + rest.end + 1);
        found.retain(|symbol| !(from..to).contains(&symbol.lines.start));
        let text = &source[cut.offset(rest.start)..cut.offset(rest.end)];
        fragment(text, lines + rest.start, scope, in_class, depth - 1, out);
    }
    if depth > 0 {
        for branch in &cut.branches {
            let above = cut.row(branch.start);
            let line = lines + above + 1;
            let around = found
                .iter()
                .filter(|s: &&Symbol| s.body.as_ref().is_some_and(|b| b.contains(&line)))
                .min_by_key(|s| s.lines.len());
            let (scope, in_class) = match around {
                // What a function holds is its own affair.
                Some(s) if matches!(s.kind, SymbolKind::Function | SymbolKind::Method) => continue,
                Some(s) if s.kind == SymbolKind::Enum => {
                    let text = [b"enum {".as_slice(), &source[branch.clone()], b"};"].concat();
                    fragment(&text, lines + above, &s.scope, false, 0, out);
                    continue;
                }
                Some(s) => (s.qualified(), s.kind != SymbolKind::Namespace),
                None => (scope.to_owned(), in_class),
            };
            fragment(
                &source[branch.clone()],
                lines + above,
                &scope,
                in_class,
                depth - 1,
                out,
            );
        }
    }
    out.symbols.extend(found);
    out.trouble.extend(trouble);
}

/// A node still to be looked at, and what it is in.
struct Todo<'t> {
    node: Node<'t>,
    scope: String,
    in_class: bool,
    /// Inside of a function: only what the parser wrongly put there counts.
    in_body: bool,
}

struct Walk<'c> {
    cut: &'c Cut,
    lines: usize,
    found: Vec<Symbol>,
    trouble: Vec<Range<usize>>,
}

impl Walk<'_> {
    // With a stack of its own: sources may be nested deeper than ours.
    fn run(&mut self, root: Node<'_>, scope: &str, in_class: bool) {
        let mut todo = vec![Todo {
            node: root,
            scope: scope.to_owned(),
            in_class,
            in_body: false,
        }];
        while let Some(next) = todo.pop() {
            let from = todo.len();
            self.visit(&next, &mut todo);
            // In the order of the text.
            todo[from..].reverse();
        }
    }

    fn visit<'t>(&mut self, at: &Todo<'t>, todo: &mut Vec<Todo<'t>>) {
        let node = at.node;
        let inside = |node: Node<'t>, todo: &mut Vec<Todo<'t>>, scope: &str, in_class: bool| {
            for child in children(node) {
                todo.push(Todo {
                    node: child,
                    scope: scope.to_owned(),
                    in_class,
                    in_body: at.in_body,
                });
            }
        };
        match node.kind() {
            "translation_unit"
            | "declaration_list"
            | "field_declaration_list"
            | "linkage_specification"
            | "template_declaration"
            | "export_declaration"
            | "access_specifier" => inside(node, todo, &at.scope, at.in_class),
            "ERROR" => {
                inside(node, todo, &at.scope, at.in_class);
            }
            "namespace_definition" => {
                let name = node.child_by_field_name("name").map(|n| self.text(n));
                let name = name.unwrap_or_default();
                let body = node.child_by_field_name("body");
                let scope = if name.is_empty() {
                    at.scope.clone()
                } else {
                    self.push(SymbolKind::Namespace, &name, at, node, body, true);
                    join(&at.scope, &name)
                };
                if let Some(body) = body {
                    inside(body, todo, &scope, false);
                }
            }
            "function_definition" => self.function(at, todo),
            "compound_statement" if at.in_body => {
                inside(node, todo, &at.scope, at.in_class);
            }
            "class_specifier" | "struct_specifier" | "union_specifier" | "enum_specifier" => {
                self.class(at, node, None, todo);
            }
            "declaration" | "field_declaration" => self.declaration(at, todo),
            "type_definition" | "alias_declaration" => self.typedef(at, todo),
            "preproc_def" | "preproc_function_def" => {
                if let Some(name) = node.child_by_field_name("name") {
                    let name = self.text(name);
                    let macro_at = Todo {
                        node,
                        scope: String::new(),
                        in_class: false,
                        in_body: false,
                    };
                    let body = node.child_by_field_name("parameters");
                    self.push(SymbolKind::Macro, &name, &macro_at, node, body, true);
                }
            }
            // A function whose head the parser took for a call: `MACRO(x) { … }`, and statements
            // around a function that it took for a local one.
            _ if at.in_body && node.has_error() => inside(node, todo, &at.scope, at.in_class),
            _ => {}
        }
    }

    fn function<'t>(&mut self, at: &Todo<'t>, todo: &mut Vec<Todo<'t>>) {
        let node = at.node;
        let body = node.child_by_field_name("body").or_else(|| {
            children(node)
                .find(|child| matches!(child.kind(), "try_statement" | "compound_statement"))
        });
        let declarator = node.child_by_field_name("declarator");
        let name = declarator.and_then(|d| self.declared(d));
        let real = declarator.is_some_and(|d| find_function(d).is_some());
        if let Some(name) = name.filter(|name| real && is_name(name)) {
            self.callable(at, &name, body, true);
        } else if let (Some(body), Some(kind)) = (body, node.child_by_field_name("type")) {
            // `class API name { … }` reads like a function.
            if matches!(kind.kind(), "class_specifier" | "struct_specifier") {
                todo.push(Todo {
                    node: body,
                    scope: at.scope.clone(),
                    in_class: true,
                    in_body: true,
                });
                return;
            }
        }
        if let Some(kind) = node.child_by_field_name("type") {
            self.class(at, kind, None, todo);
        }
        if let Some(body) = body.filter(|body| body.has_error()) {
            todo.push(Todo {
                node: body,
                scope: at.scope.clone(),
                in_class: at.in_class,
                in_body: true,
            });
        }
    }

    /// Notes what was not understood.
    fn broken(&mut self, root: Node<'_>) {
        let mut nodes = vec![root];
        while let Some(node) = nodes.pop() {
            if node.is_error() || node.is_missing() {
                self.trouble.push(self.span(node));
            }
            if node.has_error() {
                nodes.extend(children(node));
            }
        }
    }

    fn callable(&mut self, at: &Todo<'_>, name: &str, body: Option<Node<'_>>, defined: bool) {
        let (within, name) = split(name);
        let scope = join(&at.scope, within);
        let kind = if at.in_class || (!within.is_empty() && self.is_class(within)) {
            SymbolKind::Method
        } else {
            SymbolKind::Function
        };
        let inner = Todo {
            node: at.node,
            scope,
            in_class: at.in_class,
            in_body: at.in_body,
        };
        self.push(kind, name, &inner, at.node, body, defined);
    }

    /// Whether `within::` is a class as far as this text says. `f` in `ns::f` is rare where the
    /// namespace is not opened, so that what is not known to be a namespace counts as a class.
    fn is_class(&self, within: &str) -> bool {
        !self
            .found
            .iter()
            .any(|s| s.kind == SymbolKind::Namespace && s.qualified() == within)
    }

    /// The name that a declarator declares: through pointers, references, arrays and parentheses.
    fn declared(&self, declarator: Node<'_>) -> Option<String> {
        let mut node = declarator;
        loop {
            match node.kind() {
                "identifier"
                | "field_identifier"
                | "type_identifier"
                | "qualified_identifier"
                | "destructor_name"
                | "operator_name"
                | "operator_cast"
                | "template_function"
                | "template_type"
                | "primitive_type" => {
                    let text = match (node.kind(), node.child_by_field_name("declarator")) {
                        // `operator bool() const`: the parameters are part of the node.
                        ("operator_cast", Some(inner)) => {
                            let range = node.start_byte()..inner.start_byte();
                            one_line(&self.cut.text[range])
                        }
                        _ => self.text(node),
                    };
                    return Some(text.replace(":: ", "::").replace(" ::", "::"));
                }
                "operator_cast_declarator" => return Some(self.text(node)),
                _ => {
                    node = node.child_by_field_name("declarator").or_else(|| {
                        children(node).find(|child| {
                            let kind = child.kind();
                            kind.ends_with("declarator") || kind.ends_with("identifier")
                        })
                    })?;
                }
            }
        }
    }

    fn push(
        &mut self,
        kind: SymbolKind,
        name: &str,
        at: &Todo<'_>,
        node: Node<'_>,
        body: Option<Node<'_>>,
        defined: bool,
    ) {
        let (signature, body) = if kind == SymbolKind::Macro {
            // `M (x)` is another macro than `M(x)`.
            let part = |name| node.child_by_field_name(name).map(|n| self.text(n));
            let parameters = part("parameters").unwrap_or_default();
            let value = part("value").unwrap_or_default();
            let text = format!("{name}{parameters} {value}");
            (text.trim_end().to_owned(), None)
        } else {
            let end = body.map_or(node.end_byte(), |body| body.start_byte());
            let text = &self.cut.text[self.start(node).min(end)..end];
            let signature = one_line(text);
            let signature = signature.trim_end_matches([';', ' ', ',', '=']);
            (signature.to_owned(), body.map(|body| self.span(body)))
        };
        let mut lines = self.span(node);
        let first = self.lines + 1 + self.cut.row(self.start(node));
        lines.start = first.min(lines.start);
        self.found.push(Symbol {
            kind,
            name: name.to_owned(),
            scope: at.scope.clone(),
            signature,
            lines,
            body,
            defined,
        });
    }

    /// Where the declaration of `node` begins: with its template's head, and with what was taken
    /// out of the text before it.
    fn start(&self, node: Node<'_>) -> usize {
        let outer = node
            .parent()
            .filter(|parent| parent.kind() == "template_declaration")
            .unwrap_or(node);
        let mut start = outer.start_byte();
        loop {
            let before = self.cut.text[..start].trim_ascii_end().len();
            let at = self.cut.decorations.partition_point(|d| d.end < before);
            match self.cut.decorations.get(at) {
                Some(range) if range.end == before && range.start < start => start = range.start,
                _ => return start,
            }
        }
    }

    fn span(&self, node: Node<'_>) -> Range<usize> {
        let (from, to) = (node.start_position().row, node.end_position());
        // The end is exclusive: at column 0 the line is not part of it any more.
        let to = to.row + usize::from(to.column > 0);
        self.lines + from + 1..self.lines + to.max(from + 1) + 1
    }

    fn text(&self, node: Node<'_>) -> String {
        one_line(&self.cut.text[node.byte_range()])
    }
}
