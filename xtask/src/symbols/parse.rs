//! The parser, and signatures as text.

use std::cell::RefCell;

use tree_sitter::{Parser, Tree};

use crate::symbols::cut::is_word;

thread_local! {
    static PARSER: RefCell<Option<Parser>> = RefCell::new(cpp());
}

fn cpp() -> Option<Parser> {
    let mut parser = Parser::new();
    parser
        .set_language(&tree_sitter_cpp::LANGUAGE.into())
        .ok()
        .map(|()| parser)
}

/// The tree of a C++ text. Every text has one; nothing comes only where the grammar does not fit
/// the parser's version, which a test of this room would see.
pub(super) fn tree(text: &[u8]) -> Option<Tree> {
    PARSER.with_borrow_mut(|parser| parser.as_mut()?.parse(text, None))
}

/// `text` in one line: each run of blanks is one, and there is none inside of parentheses and
/// before a comma.
pub(super) fn one_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace().filter(|word| *word != "\\") {
        let glued = out.is_empty()
            || out.ends_with(['(', '[', '<'])
            || word.starts_with([')', ',', ';', ']', '>', '('])
                && !(word.starts_with('(') && out.ends_with(','));
        if !glued {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}

/// `text` without the blanks that separate nothing.
pub(super) fn tight(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for word in text.split_whitespace() {
        let last = out.bytes().last();
        if last.is_some_and(is_word) && word.bytes().next().is_some_and(is_word) {
            out.push(' ');
        }
        out.push_str(word);
    }
    out
}
