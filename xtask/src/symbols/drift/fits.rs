//! Which declaration a use can mean, and which two are one function.

use super::Declared;
use crate::symbols::uses::{How, Use, last};
use crate::symbols::{Symbol, SymbolKind};

/// Members that the containers, strings and smart pointers of the standard library have: where
/// the type of the object is not known, it is most likely one of those.
const OF_CONTAINERS: [&str; 40] = [
    "append",
    "at",
    "back",
    "begin",
    "c_str",
    "capacity",
    "cbegin",
    "cend",
    "clear",
    "contains",
    "count",
    "data",
    "emplace",
    "emplace_back",
    "empty",
    "end",
    "erase",
    "find",
    "first",
    "front",
    "get",
    "insert",
    "length",
    "load",
    "lock",
    "pop",
    "pop_back",
    "pop_front",
    "push",
    "push_back",
    "push_front",
    "release",
    "reserve",
    "reset",
    "resize",
    "second",
    "size",
    "store",
    "str",
    "substr",
];

/// Whether `used`, which has the name of `symbol`, can mean it.
pub(super) fn fits(used: &Use, symbol: &Symbol) -> bool {
    use SymbolKind::*;
    let within = |scope: &str, of: &str| {
        scope == of || scope.ends_with(&format!("::{of}")) || {
            // `x_ptr` and `x_t` are how upstream calls what leads to an `x`.
            let bare = of.strip_suffix("_ptr").or_else(|| of.strip_suffix("_t"));
            bare.is_some_and(|bare| last(scope) == last(bare))
        }
    };
    // The class whose members need no object here, and the namespaces around it.
    let around = used.within.as_deref().unwrap_or_default();
    let class = around.rsplit_once("::").map_or("", |(class, _)| class);
    let visible = symbol.scope.is_empty()
        || around.starts_with(&format!("{}::", symbol.scope))
        || class == symbol.scope;
    let by_scope = match &used.of {
        Some(of) => within(&symbol.scope, of),
        None => visible,
    };
    match (used.how, symbol.kind) {
        (How::Call, Function | Macro | Struct | Class | Typedef | Variable) => by_scope,
        (How::Call, Method | Field) => match &used.of {
            Some(of) => within(&symbol.scope, of),
            None => !class.is_empty() && class == symbol.scope,
        },
        (How::MemberCall | How::Member, Method | Field) => match &used.of {
            Some(of) => within(&symbol.scope, of),
            None => !OF_CONTAINERS.contains(&symbol.name.as_str()),
        },
        (How::Type, Struct | Class | Union | Enum | Typedef) => {
            // A declaration without a body says nothing that could differ.
            symbol.defined && (used.of.is_none() || by_scope)
        }
        (How::Type, Macro) => true,
        (
            How::Other,
            Variable | EnumValue | Macro | Function | CmakeFunction | CmakeMacro | CmakeTarget,
        ) => by_scope,
        (How::Other, Field | Method) => match &used.of {
            Some(of) => within(&symbol.scope, of),
            None => !class.is_empty() && class == symbol.scope,
        },
        _ => false,
    }
}

/// A function or method that is declared, not defined.
pub(super) fn is_bare(symbol: &Symbol) -> bool {
    is_callable(symbol) && !symbol.defined
}

pub(super) fn is_callable(symbol: &Symbol) -> bool {
    matches!(symbol.kind, SymbolKind::Function | SymbolKind::Method)
}

/// Declaration and definition of one function: `void f(int a = 1)` and `void s::f(int a)`.
pub(super) fn same_but_for_scope(one: &Declared<'_>, two: &Declared<'_>) -> bool {
    let parameters = |side: &Declared<'_>| -> Option<String> {
        let text = &side.tight;
        let from = text.find(&format!("{}(", side.symbol.name))?;
        let mut out = String::new();
        let mut skipping = false;
        let mut depth = 0_i32;
        // Without default values, which stand in one of the two only.
        for c in text[from..].chars() {
            match c {
                '(' | '{' | '<' => depth += 1,
                ')' | '}' | '>' => depth -= 1,
                _ => {}
            }
            match c {
                '=' if depth == 1 => skipping = true,
                ',' if depth == 1 => skipping = false,
                ')' if depth == 0 => skipping = false,
                _ => {}
            }
            if !skipping {
                out.push(c);
            }
        }
        let end = out.find("):").map_or(out.len(), |at| at + 1);
        out.truncate(end);
        Some(out.replace("override", ""))
    };
    is_callable(one.symbol)
        && is_callable(two.symbol)
        && one.symbol.defined != two.symbol.defined
        && parameters(one).is_some_and(|own| parameters(two) == Some(own))
}
