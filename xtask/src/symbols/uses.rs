//! What a text needs from elsewhere: the names that it uses and does not declare itself.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ops::Range;

use serde::Serialize;
use tree_sitter::Node;

use crate::symbols::cut::{Cut, is_word};
use crate::symbols::parse::{self, one_line};
use crate::symbols::{Language, Outline, Symbol, SymbolKind};
use crate::tree::RelPath;

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

/// One variable of a function: `signature` is its type and name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Local {
    pub name: String,
    pub signature: String,
    pub line: usize,
}

/// The parameters and variables that stand in `lines` of `text`.
pub(super) fn locals(text: &[u8], lines: &Range<usize>) -> Vec<Local> {
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
fn type_parameters(text: &[u8]) -> HashSet<String> {
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
fn line_start(text: &[u8], line: usize) -> usize {
    let Some(before) = line.checked_sub(2) else {
        return 0;
    };
    let mut ends = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n');
    ends.nth(before).map_or(text.len(), |(at, _)| at + 1)
}

/// Parses `text` and each of its branches that the parser does not see with the first one.
fn each_part(
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

fn touches(node: Node<'_>, above: usize, lines: &Range<usize>) -> bool {
    let (from, to) = (node.start_position().row, node.end_position().row);
    above + from + 1 < lines.end && above + to + 1 >= lines.start
}

fn children<'t>(node: Node<'t>) -> impl Iterator<Item = (Node<'t>, Option<&'t str>)> {
    let mut cursor = node.walk();
    let mut more = cursor.goto_first_child();
    std::iter::from_fn(move || {
        let child = more.then(|| (cursor.node(), cursor.field_name()))?;
        more = cursor.goto_next_sibling();
        Some(child)
    })
}

fn text_of(cut: &Cut, node: Node<'_>) -> String {
    one_line(&cut.text[node.byte_range()])
}

/// The names that `node` itself declares as variables.
fn declared_by(node: Node<'_>) -> Vec<Node<'_>> {
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

fn leaves<'t>(declarator: Node<'t>, found: &mut Vec<Node<'t>>) {
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
fn signature(cut: &Cut, node: Node<'_>, declared: Node<'_>) -> String {
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

/// What a node is to the one around it.
#[derive(Clone)]
enum Role {
    Plain,
    Callee,
    Declared,
}

struct Collector<'c> {
    cut: &'c Cut,
    above: usize,
    lines: Option<&'c [Range<usize>]>,
    own: &'c Own,
    /// Variables of the function around, by the lines of that function.
    around: &'c [Around],
    found: &'c mut BTreeSet<Use>,
}

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

impl Collector<'_> {
    fn run(&mut self, root: Node<'_>) {
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
            "field_expression" => {
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
            "qualified_identifier" => self.qualified(node, role, todo),
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
            "enumerator"
            | "preproc_def"
            | "preproc_function_def"
            | "namespace_definition"
            | "type_parameter_declaration"
            | "alias_declaration" => {
                for (child, field) in children(node) {
                    if child.kind() == "preproc_arg" {
                        self.macro_body(child);
                    } else if field != Some("name") && child.kind() != "preproc_params" {
                        let declared = node.kind() == "type_parameter_declaration";
                        let role = if declared {
                            Role::Declared
                        } else {
                            Role::Plain
                        };
                        todo.push((child, role));
                    }
                }
            }
            "preproc_include"
            | "string_literal"
            | "raw_string_literal"
            | "char_literal"
            | "comment"
            | "preproc_call"
            | "attribute_declaration" => {}
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

/// The last part of a qualified name.
pub(super) fn last(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
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
fn type_of(signature: &str, name: &str) -> Option<String> {
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
