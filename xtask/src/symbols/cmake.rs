//! The outline of a CMake file: its functions, macros and targets.

use crate::symbols::{Outline, Symbol, SymbolKind};

pub(super) fn outline(text: &[u8]) -> Outline {
    let text = String::from_utf8_lossy(text);
    let mut out = Outline::default();
    let mut open: Vec<usize> = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let code = line.split('#').next().unwrap_or_default().trim();
        let Some((command, rest)) = code.split_once('(') else {
            continue;
        };
        let command = command.trim_end().to_ascii_lowercase();
        let arguments = rest.split(')').next().unwrap_or_default();
        let mut words = arguments.split_whitespace();
        let kind = match command.as_str() {
            "function" => SymbolKind::CmakeFunction,
            "macro" => SymbolKind::CmakeMacro,
            "add_library" | "add_executable" => SymbolKind::CmakeTarget,
            "endfunction" | "endmacro" => {
                if let Some(symbol) = open.pop().and_then(|at| out.symbols.get_mut(at)) {
                    symbol.lines.end = number + 1;
                    symbol.body = Some(symbol.lines.start + 1..number);
                }
                continue;
            }
            _ => continue,
        };
        let Some(name) = words.next() else { continue };
        if kind != SymbolKind::CmakeTarget {
            open.push(out.symbols.len());
        }
        let arguments: Vec<&str> = words.collect();
        let signature = if kind == SymbolKind::CmakeTarget {
            format!("{command}({name})")
        } else {
            let blank = if arguments.is_empty() { "" } else { " " };
            format!("{command}({name}{blank}{})", arguments.join(" "))
        };
        out.symbols.push(Symbol {
            kind,
            name: name.trim_matches('"').to_owned(),
            scope: String::new(),
            signature,
            lines: number..number + 1,
            body: None,
            defined: true,
        });
    }
    // What is never closed goes on to the end of the file.
    let end = text.lines().count() + 1;
    for at in open {
        if let Some(symbol) = out.symbols.get_mut(at) {
            symbol.lines.end = end;
        }
    }
    out
}
