//! The C header is what `src/abi.rs` says, and C lays its structures out as Rust does.
//!
//! After a change of the interface: `GGML_EXT_HEADER=write cargo test -p ggml-ext --test header`.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const BEGIN: &str = "// ggml-ext: Rust kernels for ggml, behind a C interface.
//
// The library is a static one: libggml_ext.a, linked into ggml's CPU backend.
//
// Generated from ggml-ext/src/abi.rs, and compared with it by a test: do not edit.

#ifndef GGML_EXT_H
#define GGML_EXT_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern \"C\" {
#endif
";

const END: &str = "
#ifdef __cplusplus
}
#endif

#endif // GGML_EXT_H
";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).into()
}

/// A Rust type in C, around the name of what has it. Panics on any that the header has no use for.
fn declare(rust: &str, name: &str) -> String {
    if let Some(list) = rust.strip_prefix('[') {
        let (item, length) = list.strip_suffix(']').unwrap().split_once("; ").unwrap();
        return format!("{}[{length}]", declare(item, name));
    }
    if let Some(function) = rust.strip_prefix("Option<unsafe extern \"C\" fn(") {
        let argument = function.strip_suffix(")>").unwrap();
        return format!("void (* {name})({})", declare(argument, "").trim_end());
    }
    let plain = |rust: &str| -> String {
        match rust {
            "i32" => "int32_t".into(),
            "u32" => "uint32_t".into(),
            "i64" => "int64_t".into(),
            "usize" => "size_t".into(),
            "c_char" => "char".into(),
            "c_void" => "void".into(),
            own if own.starts_with("ggml_ext_") => format!("struct {own}"),
            other => panic!("{other}: give it a C type here"),
        }
    };
    let made = if let Some(inner) = rust.strip_prefix("*const ") {
        format!("const {} * {name}", plain(inner))
    } else if let Some(inner) = rust.strip_prefix("*mut ") {
        format!("{} * {name}", plain(inner))
    } else {
        format!("{} {name}", plain(rust))
    };
    made.trim_end().to_owned()
}

/// The name and the type of `name: type`.
fn pair(text: &str) -> (&str, &str) {
    let (name, rust) = text.trim().trim_end_matches(',').split_once(": ").unwrap();
    (name.trim_start_matches("r#"), rust)
}

/// The header, from the lines of `abi.rs` that are public and documented.
fn header(source: &str) -> String {
    let (source, _) = source
        .split_once("// What is not of the header.")
        .expect("the line behind which nothing is of the header");
    let mut out = BEGIN.to_owned();
    let mut lines = source.lines();
    let mut docs: Vec<&str> = Vec::new();
    let flush = |docs: &mut Vec<&str>, out: &mut String| {
        out.push('\n');
        for line in docs.drain(..) {
            // What Rust calls so is the caller's part.
            let line = if line == " # Safety" {
                " The caller sees to it:"
            } else {
                line
            };
            let _ = writeln!(out, "//{line}");
        }
    };
    while let Some(line) = lines.next() {
        if let Some(text) = line.strip_prefix("///") {
            docs.push(text);
        } else if let Some(constant) = line.strip_prefix("pub const ") {
            let (name, value) = constant
                .strip_suffix(';')
                .unwrap()
                .split_once(" = ")
                .unwrap();
            flush(&mut docs, &mut out);
            let _ = writeln!(out, "#define {} {value}", pair(name).0);
        } else if let Some(name) = line.strip_prefix("pub struct ") {
            flush(&mut docs, &mut out);
            let _ = writeln!(out, "struct {name}"); // `name` ends in the brace
            for field in lines.by_ref().take_while(|line| *line != "}") {
                if let Some(text) = field.trim().strip_prefix("///") {
                    let _ = writeln!(out, "    //{text}");
                    continue;
                }
                let (name, rust) = pair(field.trim().strip_prefix("pub ").unwrap());
                let _ = writeln!(out, "    {};", declare(rust, name));
            }
            out.push_str("};\n");
        } else if line.starts_with("pub ") && line.contains("extern \"C\" fn ") {
            let mut text = line.to_owned();
            while !text.ends_with('{') {
                text.push_str(lines.next().unwrap().trim());
                text.push(' ');
                text.truncate(text.trim_end().len());
            }
            flush(&mut docs, &mut out);
            function(&text, &mut out);
        } else if line.starts_with("use ") || line == "}" {
            docs.clear();
        }
    }
    out + END
}

fn function(text: &str, out: &mut String) {
    let (_, text) = text.split_once("fn ").unwrap();
    let (name, text) = text.split_once('(').unwrap();
    let (arguments, text) = text.split_once(')').unwrap();
    let result = text
        .trim()
        .strip_prefix("-> ")
        .unwrap()
        .trim_end_matches(" {");
    let arguments: Vec<String> = arguments
        .split(',')
        .filter(|argument| !argument.trim().is_empty())
        .map(|argument| {
            let (name, rust) = pair(argument);
            declare(rust, name)
        })
        .collect();
    let arguments = match arguments.as_slice() {
        [] => "void".to_owned(),
        some => some.join(", "),
    };
    let _ = writeln!(out, "{}({arguments});", declare(result, name));
}

#[test]
fn the_header_is_what_the_source_says() {
    let source = std::fs::read_to_string(root().join("src/abi.rs")).unwrap();
    let path = root().join("include/ggml-ext.h");
    let made = header(&source);
    if std::env::var_os("GGML_EXT_HEADER").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap();
    assert!(
        made == found,
        "include/ggml-ext.h is another one: GGML_EXT_HEADER=write cargo test -p ggml-ext --test header\n{made}"
    );
    // So that what is left out would be seen: every function, and every structure.
    let exported = source.matches("#[unsafe(no_mangle)]").count();
    assert_eq!(
        made.matches(");\n").count() - made.matches(" (* ").count(),
        exported
    );
    assert_eq!(
        made.matches("\nstruct ggml_ext_").count(),
        source.matches("#[repr(C)]").count()
    );
}

#[test]
fn types_are_turned_inside_out() {
    assert_eq!(declare("[usize; 4]", "nb"), "size_t nb[4]");
    assert_eq!(declare("*const i32", "params"), "const int32_t * params");
    assert_eq!(
        declare("Option<unsafe extern \"C\" fn(*mut c_void)>", "barrier"),
        "void (* barrier)(void *)"
    );
}
