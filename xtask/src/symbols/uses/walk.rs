//! The walk through the parser's tree that finds the uses.

use std::collections::{BTreeSet, HashSet};
use std::ops::Range;

use tree_sitter::Node;

use super::locals::{children, each_part, text_of, touches};
use super::{Around, How, Own, Use, identifiers, last};
use crate::symbols::cut::Cut;

/// What a node is to the one around it.
#[derive(Clone)]
enum Role {
    Plain,
    Callee,
    Declared,
}

pub(super) struct Collector<'c> {
    pub cut: &'c Cut,
    pub above: usize,
    pub lines: Option<&'c [Range<usize>]>,
    pub own: &'c Own,
    /// Variables of the function around, by the lines of that function.
    pub around: &'c [Around],
    pub found: &'c mut BTreeSet<Use>,
}

impl Collector<'_> {
    pub(super) fn run(&mut self, root: Node<'_>) {
        let mut todo = vec![(root, Role::Plain)];
        while let Some((node, role)) = todo.pop() {
            if self.wanted(node) {
                self.visit(node, role, &mut todo);
            }
        }
    }

    fn wanted(&self, node: Node<'_>) -> bool {
        self.lines
            .is_none_or(|all| all.iter().any(|range| touches(node, self.above, range)))
    }

    fn visit<'t>(&mut self, node: Node<'t>, role: Role, todo: &mut Vec<(Node<'t>, Role)>) {
        match node.kind() {
            "identifier" => match role {
                Role::Plain => self.name(node, How::Other, None),
                Role::Callee => self.name(node, How::Call, None),
                Role::Declared => {}
            },
            "type_identifier" => {
                if !matches!(role, Role::Declared) {
                    self.name(node, How::Type, None);
                }
            }
            "namespace_identifier" => self.name(node, How::Type, None),
            "field_designator" | "field_initializer" => {
                for (child, _) in children(node) {
                    if child.kind() == "field_identifier" {
                        self.name(child, How::Member, None);
                    } else {
                        todo.push((child, Role::Plain));
                    }
                }
            }
            "field_expression" => self.field(node, role, todo),
            "qualified_identifier" => self.qualified(node, role, todo),
            "enumerator"
            | "preproc_def"
            | "preproc_function_def"
            | "namespace_definition"
            | "type_parameter_declaration"
            | "alias_declaration" => self.named(node, todo),
            "preproc_include"
            | "string_literal"
            | "raw_string_literal"
            | "char_literal"
            | "comment"
            | "preproc_call"
            | "attribute_declaration" => {}
            _ => parts(node, role, todo),
        }
    }

    /// `object.field` or `object->field`.
    fn field<'t>(&mut self, node: Node<'t>, role: Role, todo: &mut Vec<(Node<'t>, Role)>) {
        let argument = node.child_by_field_name("argument");
        if let Some(field) = node.child_by_field_name("field") {
            let how = match role {
                Role::Callee => How::MemberCall,
                _ => How::Member,
            };
            self.member(field, how, argument);
            // The arguments of a template.
            todo.extend(
                children(field)
                    .filter(|(c, _)| c.kind() == "template_argument_list")
                    .map(|(c, _)| (c, Role::Plain)),
            );
        }
        todo.extend(argument.map(|argument| (argument, Role::Plain)));
    }

    /// Something that gives itself a name, which is no use of it.
    fn named<'t>(&mut self, node: Node<'t>, todo: &mut Vec<(Node<'t>, Role)>) {
        let declared = node.kind() == "type_parameter_declaration";
        for (child, field) in children(node) {
            if child.kind() == "preproc_arg" {
                self.macro_body(child);
            } else if field != Some("name") && child.kind() != "preproc_params" {
                let role = if declared {
                    Role::Declared
                } else {
                    Role::Plain
                };
                todo.push((child, role));
            }
        }
    }

    fn macro_body(&mut self, value: Node<'_>) {
        let text = &self.cut.text[value.byte_range()];
        let own: HashSet<String> = value
            .parent()
            .and_then(|parent| parent.child_by_field_name("parameters"))
            .map(|parameters| self.cut.text[parameters.byte_range()].to_vec())
            .map(|text| identifiers(&text).map(str::to_owned).collect())
            .unwrap_or_default();
        let mut inner = BTreeSet::new();
        let line = self.above + value.start_position().row + 1;
        each_part(text, 0, 0, &mut |cut, node, _| {
            Collector {
                cut,
                above: line,
                lines: None,
                own: self.own,
                around: &[],
                found: &mut inner,
            }
            .run(node);
        });
        inner.retain(|used| !own.contains(&used.name));
        self.found.extend(inner);
    }

    fn qualified<'t>(&mut self, node: Node<'t>, role: Role, todo: &mut Vec<(Node<'t>, Role)>) {
        if matches!(role, Role::Declared) {
            return;
        }
        let mut scopes = Vec::new();
        let mut node = node;
        while node.kind() == "qualified_identifier" {
            if let Some(scope) = node.child_by_field_name("scope") {
                // Arguments of a template may hold our names, the template's name is in `scopes`.
                let arguments = children(scope).map(|(c, _)| c);
                todo.extend(
                    arguments
                        .filter(|c| c.kind() == "template_argument_list")
                        .map(|c| (c, Role::Plain)),
                );
                let named = scope.child_by_field_name("name").unwrap_or(scope);
                scopes.push((text_of(self.cut, named), named));
            }
            match node.child_by_field_name("name") {
                Some(name) => node = name,
                None => return,
            }
        }
        let foreign = scopes.first().is_some_and(|(scope, _)| scope == "std");
        let of: Vec<String> = scopes.iter().map(|(scope, _)| scope.clone()).collect();
        let of = Some(of.join("::")).filter(|of| !of.is_empty());
        if !foreign {
            for (_, scope) in &scopes {
                self.name(*scope, How::Type, None);
            }
        }
        let named = node.child_by_field_name("name").unwrap_or(node);
        if named.id() != node.id() {
            todo.extend(
                children(node)
                    .filter(|(c, _)| c.kind() == "template_argument_list")
                    .map(|(c, _)| (c, Role::Plain)),
            );
        }
        if !foreign {
            let how = match (role, named.kind()) {
                (_, "type_identifier") => How::Type,
                (Role::Callee, _) => How::Call,
                _ => How::Other,
            };
            self.name(named, how, of);
        }
    }

    /// A member of `object`.
    fn member(&mut self, field: Node<'_>, how: How, object: Option<Node<'_>>) {
        let named = field.child_by_field_name("name").unwrap_or(field);
        let line = self.above + named.start_position().row + 1;
        let around = self.around.iter().find(|(lines, ..)| lines.contains(&line));
        let of = match object.map(|object| (object.kind(), object)) {
            Some(("this", _)) => around.and_then(|(_, function, _)| {
                function
                    .rsplit_once("::")
                    .map(|(class, _)| class.to_owned())
            }),
            Some(("identifier", object)) => {
                let name = text_of(self.cut, object);
                let own = self.own.variables.get(&name);
                own.or_else(|| around.and_then(|(_, _, vars)| vars.get(&name)))
                    .cloned()
                    .flatten()
            }
            _ => None,
        };
        let name = text_of(self.cut, named);
        match &of {
            Some(of) if self.own.types.contains(last(of)) || is_foreign(of) => return,
            None if self.own.members.contains(&name) => return,
            _ => {}
        }
        self.name(named, how, of);
    }

    fn name(&mut self, node: Node<'_>, how: How, of: Option<String>) {
        let line = self.above + node.start_position().row + 1;
        let inside = |all: &[Range<usize>]| all.iter().any(|range| range.contains(&line));
        if self.lines.is_some_and(|all| !inside(all)) {
            return;
        }
        let name = text_of(self.cut, node);
        if name.is_empty() || is_keyword(&name) {
            return;
        }
        let around = self.around.iter().find(|(lines, ..)| lines.contains(&line));
        let mut how = how;
        match how {
            How::Call | How::Other if of.is_none() => {
                let own = self.own.variables.contains_key(&name)
                    || self.own.names.contains(&name)
                    || self.own.members.contains(&name);
                if own {
                    return;
                }
                if around.is_some_and(|(_, _, variables)| variables.contains_key(&name)) {
                    how = How::Local;
                }
            }
            // A constructor of a type of our own.
            How::Call | How::Type if self.own.types.contains(&name) => return,
            How::Call | How::Other | How::Type
                if of
                    .as_deref()
                    .is_some_and(|of| self.own.types.contains(last(of))) =>
            {
                return;
            }
            _ => {}
        }
        if how == How::Call && self.own.types.contains(&name) {
            return;
        }
        self.found.insert(Use {
            name,
            how,
            of,
            within: around.map(|(_, function, _)| function.clone()),
        });
    }
}

/// What the parts of a node that is no name itself are to it.
fn parts<'t>(node: Node<'t>, role: Role, todo: &mut Vec<(Node<'t>, Role)>) {
    match node.kind() {
        "call_expression" => {
            for (child, field) in children(node) {
                let callee = field == Some("function");
                todo.push((child, if callee { Role::Callee } else { Role::Plain }));
            }
        }
        "template_function" | "template_type" => {
            for (child, field) in children(node) {
                let named = field == Some("name");
                todo.push((child, if named { role.clone() } else { Role::Plain }));
            }
        }
        "class_specifier" | "struct_specifier" | "union_specifier" | "enum_specifier" => {
            let defined = node.child_by_field_name("body").is_some();
            for (child, field) in children(node) {
                let own = defined && field == Some("name");
                todo.push((child, if own { Role::Declared } else { Role::Plain }));
            }
        }
        kind => {
            let declares = kind.ends_with("declarator")
                && matches!(role, Role::Declared)
                && kind != "init_declarator";
            for (child, field) in children(node) {
                let role = match field {
                    Some("declarator") if kind == "init_declarator" => role.clone(),
                    Some("declarator") => Role::Declared,
                    // `* name` and `& name` have no field for it.
                    None if declares && !child.kind().ends_with("list") => Role::Declared,
                    _ => Role::Plain,
                };
                todo.push((child, role));
            }
        }
    }
}

/// Types whose members are none of upstream's.
fn is_foreign(kind: &str) -> bool {
    kind.starts_with("std::") || kind.starts_with("::std::") || kind == "json"
}

fn is_keyword(name: &str) -> bool {
    matches!(
        name,
        "std"
            | "this"
            | "true"
            | "false"
            | "nullptr"
            | "NULL"
            | "defined"
            | "size_t"
            | "ssize_t"
            | "__VA_ARGS__"
            | "__func__"
            | "__FILE__"
            | "__LINE__"
    ) || (name.ends_with("_t")
        && (name.starts_with("int") || name.starts_with("uint"))
        && name.bytes().any(|b| b.is_ascii_digit()))
}
