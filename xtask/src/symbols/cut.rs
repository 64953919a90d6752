//! Makes a C text easier to parse without moving anything: what is taken out becomes blanks, so
//! that every offset and every line stays what it was.

use std::ops::Range;

/// A text in the forms that the others need; all have the same length.
pub(super) struct Cut {
    /// Without comments.
    pub text: Vec<u8>,
    /// Without comments, strings and character literals (their quotes stay).
    pub code: Vec<u8>,
    /// What the parser is given: without comments, conditional directives, all but the first
    /// branch of each conditional, and macros that only decorate a declaration.
    pub parse: Vec<u8>,
    /// The branches that are not in `parse`.
    pub branches: Vec<Range<usize>>,
    /// The decorating macros that are not in `parse`.
    pub decorations: Vec<Range<usize>>,
    /// Where the lines end.
    ends: Vec<usize>,
}

impl Cut {
    pub(super) fn of(source: &[u8]) -> Self {
        let (text, code) = without_comments(source);
        let mut parse = text.clone();
        let branches = conditionals(&code, &mut parse);
        let decorations = decorations(&code, &mut parse);
        Cut {
            text,
            code,
            parse,
            branches,
            decorations,
            ends: source
                .iter()
                .enumerate()
                .filter(|(_, byte)| **byte == b'\n')
                .map(|(at, _)| at)
                .collect(),
        }
    }

    /// Where a line begins, counted from 0; the end where there is none.
    pub(super) fn offset(&self, row: usize) -> usize {
        match row.checked_sub(1) {
            None => 0,
            Some(before) => self.ends.get(before).map_or(self.text.len(), |end| end + 1),
        }
    }

    /// How many lines there are, the part behind the last line end included.
    pub(super) fn rows(&self) -> usize {
        self.ends.len() + 1
    }

    /// The line of an offset, from 0.
    pub(super) fn row(&self, offset: usize) -> usize {
        self.ends.partition_point(|end| *end < offset)
    }
}

pub(super) fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

fn blank(bytes: &mut [u8]) {
    for byte in bytes {
        if *byte != b'\n' {
            *byte = b' ';
        }
    }
}

/// The text without comments, and without the insides of literals too.
fn without_comments(source: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut text, mut code) = (source.to_vec(), source.to_vec());
    let find = |from: usize, what: &[u8]| {
        source[from..]
            .windows(what.len())
            .position(|at| at == what)
            .map_or(source.len(), |at| from + at)
    };
    let mut at = 0;
    while at < source.len() {
        let next = source.get(at + 1).copied();
        match source[at] {
            b'/' if next == Some(b'/') => {
                let mut end = find(at, b"\n");
                // A backslash at the end of the line continues the comment.
                while end < source.len() && source[..end].trim_ascii_end().ends_with(b"\\") {
                    end = find(end + 1, b"\n");
                }
                blank(&mut text[at..end]);
                blank(&mut code[at..end]);
                at = end;
            }
            b'/' if next == Some(b'*') => {
                let end = (find(at + 2, b"*/") + 2).min(source.len());
                blank(&mut text[at..end]);
                blank(&mut code[at..end]);
                at = end;
            }
            b'R' if next == Some(b'"') && (at == 0 || raw_prefix(source, at)) => {
                let open = find(at, b"(");
                let name = &source[(at + 2).min(open)..open];
                if name.len() > 16 {
                    at += 1;
                    continue;
                }
                let close = [b")", name, b"\""].concat();
                let end = find(open, &close);
                if open < end {
                    blank(&mut code[open + 1..end]);
                }
                at = (end + close.len()).min(source.len());
            }
            // Not the separator of digits in `1'000`.
            b'\'' if at > 0 && source[at - 1].is_ascii_hexdigit() && digits(source, at) => at += 1,
            quote @ (b'"' | b'\'') => {
                let mut end = at + 1;
                while end < source.len() && source[end] != quote && source[end] != b'\n' {
                    end += if source[end] == b'\\' { 2 } else { 1 };
                }
                let end = end.min(source.len());
                blank(&mut code[at + 1..end]);
                // An open quote ends with its line: an apostrophe in the text of `#error`.
                at = end + usize::from(source.get(end) == Some(&quote));
            }
            _ => at += 1,
        }
    }
    (text, code)
}

/// Whether the `R` at `at` begins a raw string, perhaps after `u8`, `u`, `U` or `L`.
fn raw_prefix(source: &[u8], at: usize) -> bool {
    let mut from = at;
    while from > 0 && is_word(source[from - 1]) {
        from -= 1;
    }
    matches!(&source[from..at], b"" | b"u8" | b"u" | b"U" | b"L")
}

/// Whether the quote at `at` stands in a number.
fn digits(source: &[u8], at: usize) -> bool {
    let mut from = at;
    while from > 0 && (is_word(source[from - 1]) || source[from - 1] == b'\'') {
        from -= 1;
    }
    source[from].is_ascii_digit() && source.get(at + 1).is_some_and(u8::is_ascii_hexdigit)
}

/// Takes the directives of conditionals and all branches but one out of `parse`; returns those
/// branches. The branch that stays is the first one, or the second after `#if 0`.
fn conditionals(code: &[u8], parse: &mut [u8]) -> Vec<Range<usize>> {
    struct Open {
        /// Whether a branch was kept already.
        kept: bool,
        /// Where the branch began that is being left out.
        out: Option<usize>,
        /// Whether all of it lies in a branch that is left out.
        dead: bool,
    }
    let mut open: Vec<Open> = Vec::new();
    let mut branches = Vec::new();
    let mut at = 0;
    while at < code.len() {
        let line = at;
        let mut end = line_end(code, at);
        let Some((word, rest)) = directive(&code[line..end]) else {
            at = end + 1;
            continue;
        };
        // The lines that a backslash joins to it.
        while end < code.len() && code[line..end].trim_ascii_end().ends_with(b"\\") {
            end = line_end(code, end + 1);
        }
        at = end + 1;
        match word {
            b"if" | b"ifdef" | b"ifndef" => {
                let dead = open.last().is_some_and(|o| o.dead || o.out.is_some());
                let never = word == b"if" && rest.trim_ascii() == b"0";
                open.push(Open {
                    kept: !never,
                    out: (never && !dead).then_some(at),
                    dead,
                });
            }
            b"elif" | b"else" | b"elifdef" | b"elifndef" => {
                let Some(last) = open.last_mut().filter(|last| !last.dead) else {
                    continue;
                };
                if let Some(from) = last.out.take() {
                    branches.push(from..line);
                }
                if last.kept {
                    last.out = Some(at.min(code.len()));
                }
                last.kept = true;
            }
            b"endif" => {
                if let Some(Open {
                    out: Some(from), ..
                }) = open.pop()
                {
                    branches.push(from..line);
                }
            }
            _ => continue,
        }
        blank(&mut parse[line..end.min(code.len())]);
    }
    branches.retain(|range| range.start < range.end);
    for range in &branches {
        blank(&mut parse[range.clone()]);
    }
    branches.sort_by_key(|range| range.start);
    branches
}

fn line_end(code: &[u8], at: usize) -> usize {
    code.get(at..)
        .and_then(|rest| rest.iter().position(|byte| *byte == b'\n'))
        .map_or(code.len(), |found| at + found)
}

/// The word of a directive and what follows it on the line.
fn directive(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let rest = line
        .trim_ascii_start()
        .strip_prefix(b"#")?
        .trim_ascii_start();
    let end = rest
        .iter()
        .position(|byte| !is_word(*byte))
        .unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// Words that only decorate a declaration.
const WORDS: [&str; 22] = [
    "GGML_CALL",
    "GGML_NORETURN",
    "GGML_RESTRICT",
    "GGML_EXTENSION",
    "GGML_CACHE_ALIGN",
    "__device__",
    "__forceinline",
    "__forceinline__",
    "__global__",
    "__host__",
    "__inline__",
    "__noinline__",
    "__restrict",
    "__restrict__",
    "__shared__",
    "__constant__",
    "__extension__",
    "__volatile__",
    "noexcept_",
    "restrict",
    "_Thread_local",
    "ACC_UNUSED",
];

/// The same, with arguments in parentheses.
const CALLS: [&str; 7] = [
    "__launch_bounds__",
    "__attribute__",
    "__declspec",
    "__align__",
    "_Static_assert",
    "GGML_ATTRIBUTE_FORMAT",
    "LLAMA_ATTRIBUTE_FORMAT",
];

/// Takes out what only decorates. Of `GGML_DEPRECATED(declaration, "text");` the declaration
/// stays; of the launch of a CUDA kernel its `<<<…>>>` goes.
fn decorations(code: &[u8], parse: &mut [u8]) -> Vec<Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while at < code.len() {
        if code[at] == b'<' && code[at..].starts_with(b"<<<") {
            let near = &code[at..(at + 600).min(code.len())];
            if let Some(end) = near.windows(3).position(|three| three == b">>>") {
                let end = at + end + 3;
                blank(&mut parse[at..end]);
                at = end;
                continue;
            }
        }
        if !is_word(code[at]) {
            at += 1;
            continue;
        }
        let mut end = at;
        while end < code.len() && is_word(code[end]) {
            end += 1;
        }
        // Most words are none of these.
        if !matches!(code[at], b'A'..=b'Z' | b'_' | b'r' | b'n') {
            at = end;
            continue;
        }
        let word = std::str::from_utf8(&code[at..end]).unwrap_or_default();
        let opening = code[end..].trim_ascii_start().first() == Some(&b'(');
        let caps = !word.bytes().any(|byte| byte.is_ascii_lowercase());
        if on_define(code, at) {
            // The body of a macro is not parsed.
        } else if word == "GGML_TABLE_BEGIN" {
            // Two macros with the middle of an array between them.
            let stop = b"GGML_TABLE_END()";
            let rest = code[at..].windows(stop.len());
            if let Some(stop_at) = rest.into_iter().position(|here| here == stop) {
                end = at + stop_at + stop.len();
                blank(&mut parse[at..end]);
            }
        } else if is_format(word) {
            // Between two parts of a string.
            blank(&mut parse[at..end]);
        } else if WORDS.contains(&word) || (caps && word.ends_with("_API") && !opening) {
            found.push(at..end);
        } else if CALLS.contains(&word) && opening {
            end = closing(code, end).map_or(end, |close| close + 1);
            found.push(at..end);
        } else if caps
            && word.ends_with("DEPRECATED")
            && opening
            && let Some((open, close)) = around(code, end)
        {
            let comma = last_comma(code, open, close);
            found.push(at..open + 1);
            if let Some(comma) = comma {
                found.push(comma..close + 1);
            } else {
                found.push(close..close + 1);
            }
            end = open + 1;
        }
        at = end;
    }
    found.sort_by_key(|range| range.start);
    for range in &found {
        blank(&mut parse[range.clone()]);
    }
    found
}

/// `PRId64` and the like.
fn is_format(word: &str) -> bool {
    word.strip_prefix("PRI")
        .is_some_and(|rest| rest.starts_with(['d', 'i', 'u', 'x', 'X', 'o']))
}

/// Whether the line of `at` is a directive.
fn on_define(code: &[u8], at: usize) -> bool {
    let start = code[..at]
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |found| found + 1);
    code[start..at].trim_ascii_start().starts_with(b"#")
}

/// The parentheses that open at or after the blanks at `at`.
fn around(code: &[u8], at: usize) -> Option<(usize, usize)> {
    let open = at + code.get(at..)?.iter().position(|byte| *byte == b'(')?;
    Some((open, closing(code, at)?))
}

/// Where the parenthesis closes that opens at or after the blanks at `at`.
fn closing(code: &[u8], at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (index, byte) in code.iter().enumerate().skip(at).take(4000) {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    return Some(index);
                }
            }
            _ => {}
        }
    }
    None
}

/// The last comma between the parentheses that is in no inner ones.
fn last_comma(code: &[u8], open: usize, close: usize) -> Option<usize> {
    let (mut depth, mut last) = (0_usize, None);
    for (index, byte) in code.iter().enumerate().take(close).skip(open + 1) {
        match byte {
            b'(' => depth += 1,
            b')' => depth = depth.saturating_sub(1),
            b',' if depth == 0 => last = Some(index),
            _ => {}
        }
    }
    last
}
