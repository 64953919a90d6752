//! Names as the linker spells them.

/// The outermost name that a symbol belongs to: `llama_context` of a method of it, of its vtable or
/// of its type information; the symbol itself where it is not mangled. `None` where it cannot be
/// told, or where it is of the standard library.
pub fn owner(symbol: &str) -> Option<&str> {
    let Some(mangled) = symbol.strip_prefix("_Z") else {
        return Some(symbol);
    };
    // Virtual tables, type information and its name, guards of local variables, thunks.
    let special = ["TV", "TT", "TI", "TS", "GV", "TC"];
    let mut rest = mangled;
    for prefix in special {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    if let Some(thunk) = rest.strip_prefix("Th").or_else(|| rest.strip_prefix("Tv")) {
        rest = thunk.split_once('_').map_or("", |(_, rest)| rest);
    }
    // Something inside a function: `Z <function> E …`.
    rest = rest.strip_prefix('Z').unwrap_or(rest);
    if let Some(nested) = rest.strip_prefix('N') {
        rest = nested.trim_start_matches(['r', 'V', 'K', 'R', 'O']);
    }
    let rest = rest.strip_prefix('L').unwrap_or(rest);
    identifier(rest)
}

/// A length and that many bytes.
fn identifier(text: &str) -> Option<&str> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let length: usize = text[..end].parse().ok()?;
    text.get(end..end.checked_add(length)?)
}

/// Whether it is of the standard library: instances of its templates come and go with what is
/// inlined where.
pub fn is_of_std(symbol: &str) -> bool {
    let Some(mangled) = symbol.strip_prefix("_Z") else {
        return false;
    };
    let special = ["TV", "TT", "TI", "TS", "GV"];
    let mut rest = mangled;
    for prefix in special {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    rest = rest.strip_prefix('Z').unwrap_or(rest);
    let nested = rest
        .strip_prefix('N')
        .map(|rest| rest.trim_start_matches(['r', 'V', 'K', 'R', 'O']));
    let rest = nested.unwrap_or(rest);
    // `St` is `std`, `Sa` `Sb` `Ss` `Si` `So` `Sd` are what it abbreviates.
    let of_std = ["St", "Sa", "Sb", "Ss", "Si", "So", "Sd"];
    of_std.iter().any(|prefix| rest.starts_with(prefix))
        || rest.starts_with("9__gnu_cxx")
        || rest.starts_with("L9__gnu_cxx")
}

/// Whether one of `patterns` is `name`; a `*` at a pattern's end stands for anything.
pub fn matches(patterns: &[String], name: &str) -> bool {
    patterns
        .iter()
        .any(|pattern| match pattern.strip_suffix('*') {
            Some(start) => name.starts_with(start),
            None => pattern == name,
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_owner_of_every_sort_of_symbol_is_found() {
        for (symbol, wanted) in [
            ("llama_opencoti_patchset", Some("llama_opencoti_patchset")),
            (
                "_Z17spec_counters_getPK13llama_context",
                Some("spec_counters_get"),
            ),
            (
                "_ZN13llama_context6decodeERK11llama_batch",
                Some("llama_context"),
            ),
            ("_ZNK16llama_nextn_lane4sizeEv", Some("llama_nextn_lane")),
            ("_ZTV17llama_nextn_fused", Some("llama_nextn_fused")),
            ("_ZTIN1a1bE", Some("a")),
            ("_ZThn16_N13llama_context6decodeEv", Some("llama_context")),
            ("_ZZN13llama_context6decodeEvE5state", Some("llama_context")),
            ("_ZGVZ17spec_counters_getvE1x", Some("spec_counters_get")),
            ("_ZL6hidden", Some("hidden")),
            ("_ZNSt6vectorIiSaIiEE9push_backEOi", None),
            ("_Z99short", None),
            ("_Z", None),
        ] {
            assert_eq!(owner(symbol), wanted, "{symbol}");
        }
    }

    #[test]
    fn instances_of_the_standard_library_are_told_from_ours() {
        for (symbol, wanted) in [
            ("_ZNSt6vectorIiSaIiEE17_M_realloc_insertIJiEEEvv", true),
            ("_ZSt4sortv", true),
            ("_ZTVSt13runtime_error", true),
            ("_ZNKSt3mapIiiE4findEv", true),
            ("_ZN9__gnu_cxx13new_allocatorIiEC1Ev", true),
            ("_ZN13llama_context3runESt6vectorIiSaIiEE", false),
            ("St", false),
            ("Stat", false),
        ] {
            assert_eq!(is_of_std(symbol), wanted, "{symbol}");
        }
    }

    #[test]
    fn a_star_stands_for_anything_at_the_end_only() {
        let patterns = ["_ZN3foo*".to_owned(), "bar".to_owned(), "*x".to_owned()];
        assert!(matches(&patterns, "_ZN3foo3barEv"));
        assert!(matches(&patterns, "bar"));
        assert!(!matches(&patterns, "bar2"));
        assert!(!matches(&patterns, "ax"));
    }
}
