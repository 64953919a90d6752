//! Types, fields, variables and typedefs: what a declaration without a function declares.

use tree_sitter::Node;

use super::names::{children, fields, find_function, is_name, join, split};
use super::{Todo, Walk};
use crate::symbols::parse::one_line;
use crate::symbols::{Symbol, SymbolKind};

impl Walk<'_> {
    /// A class, struct, union or enum, where it has a body; `named` is the name that a typedef
    /// gives it.
    pub(super) fn class<'t>(
        &mut self,
        at: &Todo<'t>,
        node: Node<'t>,
        named: Option<&str>,
        todo: &mut Vec<Todo<'t>>,
    ) {
        let kind = match node.kind() {
            "class_specifier" => SymbolKind::Class,
            "struct_specifier" => SymbolKind::Struct,
            "union_specifier" => SymbolKind::Union,
            "enum_specifier" => SymbolKind::Enum,
            _ => return,
        };
        let own = node.child_by_field_name("name").map(|name| self.text(name));
        let body = node.child_by_field_name("body");
        let Some(body) = body else {
            // `struct x;` alone declares; in `struct x * y` it is only used.
            if let Some(own) = own.filter(|_| at.node.id() == node.id() && !at.in_body) {
                self.push(kind, &own, at, node, None, false);
            }
            return;
        };
        let name = own.as_deref().or(named).unwrap_or_default().to_owned();
        if !name.is_empty() {
            self.push(kind, &name, at, node, Some(body), true);
        }
        let inner = join(&at.scope, &name);
        if kind == SymbolKind::Enum {
            let scoped = children(node).any(|c| matches!(c.kind(), "class" | "struct"));
            let scope = if scoped { inner } else { at.scope.clone() };
            for value in children(body).filter(|child| child.kind() == "enumerator") {
                if let Some(name) = value.child_by_field_name("name") {
                    let name = self.text(name);
                    let at = Todo {
                        node: value,
                        scope: scope.clone(),
                        in_class: false,
                        in_body: false,
                    };
                    self.push(SymbolKind::EnumValue, &name, &at, value, None, true);
                }
            }
            return;
        }
        // An anonymous union's fields are those of what is around it.
        let scope = if name.is_empty() {
            at.scope.clone()
        } else {
            inner
        };
        todo.push(Todo {
            node: body,
            scope,
            in_class: true,
            in_body: at.in_body,
        });
    }

    pub(super) fn declaration<'t>(&mut self, at: &Todo<'t>, todo: &mut Vec<Todo<'t>>) {
        let node = at.node;
        let declarators: Vec<Node<'t>> = fields(node, "declarator");
        if let Some(kind) = node.child_by_field_name("type") {
            let first = declarators.first().and_then(|d| self.declared(*d));
            if declarators.is_empty() {
                let at = Todo {
                    node: kind,
                    scope: at.scope.clone(),
                    ..*at
                };
                self.class(&at, kind, None, todo);
            } else {
                self.class(at, kind, first.as_deref(), todo);
            }
        }
        if at.in_body {
            return;
        }
        for declarator in declarators {
            let Some(name) = self.declared(declarator).filter(|name| is_name(name)) else {
                continue;
            };
            if find_function(declarator).is_some() {
                self.callable(at, &name, None, false);
                continue;
            }
            let kind = if at.in_class {
                SymbolKind::Field
            } else {
                SymbolKind::Variable
            };
            let (within, name) = split(&name);
            let value = declarator.child_by_field_name("value");
            let signature = self.field(node, declarator, name);
            let extern_ = signature.starts_with("extern ");
            let lines = self.span(node);
            self.found.push(Symbol {
                kind,
                name: name.to_owned(),
                scope: join(&at.scope, within),
                signature,
                lines,
                body: value.map(|value| self.span(value)),
                defined: !extern_,
            });
        }
    }

    /// Type and name of one declarator: what stands before the first one, and this one. Default
    /// values of fields count, since they are what a patch may build on; the value of a variable
    /// does not, since it may be a table.
    pub(super) fn field(&self, node: Node<'_>, declarator: Node<'_>, name: &str) -> String {
        let first = fields(node, "declarator")
            .first()
            .map_or(declarator, |d| *d);
        let own = declarator
            .child_by_field_name("declarator")
            .filter(|_| declarator.kind() == "init_declarator")
            .unwrap_or(declarator);
        // A struct with a body stands as its name alone.
        let kind = node.child_by_field_name("type");
        let body = kind.and_then(|kind| kind.child_by_field_name("body"));
        let head_end = body.map_or(first.start_byte(), |body| body.start_byte());
        let mut text = self.cut.text[node.start_byte().min(head_end)..head_end].to_vec();
        text.push(b' ');
        text.extend(&self.cut.text[own.byte_range()]);
        if node.kind() == "field_declaration" && fields(node, "declarator").len() == 1 {
            text.extend(&self.cut.text[own.end_byte()..node.end_byte()]);
        }
        let text = one_line(&text);
        let text = text.trim_end_matches([';', ' ']);
        if text.is_empty() {
            name.to_owned()
        } else {
            text.to_owned()
        }
    }

    pub(super) fn typedef<'t>(&mut self, at: &Todo<'t>, todo: &mut Vec<Todo<'t>>) {
        let node = at.node;
        let names: Vec<String> = if node.kind() == "alias_declaration" {
            let name = node.child_by_field_name("name");
            name.map(|name| self.text(name)).into_iter().collect()
        } else {
            let declarators = fields(node, "declarator");
            declarators
                .into_iter()
                .filter_map(|d| self.declared(d))
                .collect()
        };
        let kind = node.child_by_field_name("type");
        let mut told = None;
        if let Some(kind) = kind.filter(|kind| kind.child_by_field_name("body").is_some()) {
            let own = kind.child_by_field_name("name").map(|name| self.text(name));
            told = own.clone().or_else(|| names.first().cloned());
            self.class(at, kind, names.first().map(String::as_str), todo);
        }
        for name in names {
            if told.as_ref() != Some(&name) && is_name(&name) {
                let body = kind.and_then(|kind| kind.child_by_field_name("body"));
                self.push(SymbolKind::Typedef, &name, at, node, body, true);
            }
        }
    }
}
