//! What a C, C++, CUDA or CMake source declares and uses, and what of it differs between two trees.
//!
//! [`Outline::of`] lists what one text declares, [`uses()`] what a text needs from elsewhere, and
//! [`drift()`] holds the uses of patches against the declarations of two trees. All of it reads
//! text alone: nothing is preprocessed, no type is checked, no compiler is asked. So it errs, in
//! known ways:
//!
//! - Of `#if … #else … #endif` all branches count, whatever the condition says.
//! - What a macro expands to is not seen, only the macro itself.
//! - The type of the object in `object.field` is known where the same text, or the function
//!   around a hook, declares `object` with a type that it names. With `auto`, after a call or
//!   after another field it is not known; then a field of that name counts wherever the includes
//!   reach, unless it bears a name of the standard library's containers.
//! - Templates are told apart by their text, overloads too; which one a call takes is not known.

mod cmake;
mod cut;
mod drift;
mod includes;
mod outline;
mod parse;
mod uses;

use std::fmt;
use std::ops::Range;

use serde::Serialize;

use crate::tree::RelPath;

pub use drift::{Change, Drift, Place, User, drift};
pub use includes::{Folder, Headers, Sources, includes};
pub use uses::{How, Use, uses, uses_of_lines};

/// What sort of thing a [`Symbol`] is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum SymbolKind {
    /// A function outside of any class.
    Function,
    /// A function of a class or struct.
    Method,
    /// `struct` or, in C, what a `typedef struct` names.
    Struct,
    /// `class`.
    Class,
    /// `union`.
    Union,
    /// `enum`, scoped or not.
    Enum,
    /// One name of an enum.
    EnumValue,
    /// Data of a class, struct or union.
    Field,
    /// `#define`, with or without parameters.
    Macro,
    /// `typedef` and `using … =`.
    Typedef,
    /// Data outside of functions and classes.
    Variable,
    /// `namespace`.
    Namespace,
    /// `function(…)` of CMake.
    CmakeFunction,
    /// `macro(…)` of CMake.
    CmakeMacro,
    /// `add_library` or `add_executable` of CMake.
    CmakeTarget,
}

impl fmt::Display for SymbolKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            SymbolKind::Function => "function",
            SymbolKind::Method => "method",
            SymbolKind::Struct => "struct",
            SymbolKind::Class => "class",
            SymbolKind::Union => "union",
            SymbolKind::Enum => "enum",
            SymbolKind::EnumValue => "enum value",
            SymbolKind::Field => "field",
            SymbolKind::Macro => "macro",
            SymbolKind::Typedef => "typedef",
            SymbolKind::Variable => "variable",
            SymbolKind::Namespace => "namespace",
            SymbolKind::CmakeFunction => "CMake function",
            SymbolKind::CmakeMacro => "CMake macro",
            SymbolKind::CmakeTarget => "CMake target",
        })
    }
}

/// One declaration or definition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Symbol {
    /// What it is.
    pub kind: SymbolKind,
    /// Its own name: `process_ubatch`, `operator==`, `~llama_context`.
    pub name: String,
    /// What it is in, from the outside in: `llama_context`, `a::b`; empty at the top. The values
    /// of an unscoped enum stand beside it, as the language has it.
    pub scope: String,
    /// The declaration without its body and without comments, blanks made one. Of an enum value
    /// its name and explicit value, of a macro its parameters and its body.
    pub signature: String,
    /// The lines of all of it, 1-based, the last one exclusive.
    pub lines: Range<usize>,
    /// The lines of its body, braces included.
    pub body: Option<Range<usize>>,
    /// Whether it is defined here, not only declared.
    pub defined: bool,
}

impl Symbol {
    /// Scope and name: `llama_context::process_ubatch`.
    pub fn qualified(&self) -> String {
        if self.scope.is_empty() {
            self.name.clone()
        } else {
            format!("{}::{}", self.scope, self.name)
        }
    }

    /// The signature without the blanks that mean nothing: what decides whether two are the same.
    pub fn tight(&self) -> String {
        match self.kind {
            SymbolKind::Macro => self.signature.clone(),
            _ => parse::tight(&self.signature),
        }
    }

    /// Whether it can stand around lines of code.
    fn encloses(&self) -> bool {
        use SymbolKind::*;
        match self.kind {
            Function | Method | Struct | Class | Union | Enum => self.body.is_some(),
            CmakeFunction | CmakeMacro => true,
            _ => false,
        }
    }
}

/// What one text declares.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Outline {
    /// All of it, sorted by first line; what is inside comes after what is around it.
    pub symbols: Vec<Symbol>,
    /// Line ranges that the parser did not understand, 1-based, the last one exclusive. What
    /// stands in them may be missing above.
    pub trouble: Vec<Range<usize>>,
}

impl Outline {
    /// The outline of `text`. The path decides the language; of one that is not known nothing is
    /// listed. Never fails: what cannot be parsed is named in [`Outline::trouble`].
    pub fn of(path: &RelPath, text: &[u8]) -> Outline {
        match Language::of(path) {
            Some(Language::C) => outline::of(text),
            Some(Language::Cmake) => cmake::outline(text),
            None => Outline::default(),
        }
    }

    /// Whether the file is C, C++ or one of their kin.
    pub fn reads_c(path: &RelPath) -> bool {
        Language::of(path) == Some(Language::C)
    }

    /// The innermost function, class, struct, union or enum around `line` (1-based). Inside a
    /// lambda it is the function with a name.
    pub fn enclosing(&self, line: usize) -> Option<&Symbol> {
        self.symbols
            .iter()
            .filter(|symbol| symbol.encloses() && symbol.lines.contains(&line))
            .min_by_key(|symbol| symbol.lines.len())
    }

    /// All symbols with that qualified name.
    pub fn named<'a>(&'a self, qualified: &'a str) -> impl Iterator<Item = &'a Symbol> {
        self.symbols
            .iter()
            .filter(move |symbol| symbol.qualified() == qualified)
    }
}

/// The languages that this room reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Language {
    /// C, C++, CUDA, HIP, Objective-C as far as it looks like C.
    C,
    /// CMake.
    Cmake,
}

impl Language {
    fn of(path: &RelPath) -> Option<Self> {
        let name = path.as_str().rsplit('/').next().unwrap_or_default();
        if name == "CMakeLists.txt" {
            return Some(Language::Cmake);
        }
        match name.rsplit_once('.')?.1 {
            "c" | "h" | "cc" | "cpp" | "cxx" | "hpp" | "hh" | "inc" | "inl" | "cu" | "cuh"
            | "m" | "mm" | "metal" => Some(Language::C),
            "cmake" => Some(Language::Cmake),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests;
