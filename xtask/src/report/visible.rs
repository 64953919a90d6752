//! Text of records as it may be shown: what a reader cannot see must not change what is read.
//!
//! Names, reasons and paths come from definitions, servers and file systems. Markup in them is
//! escaped where they are written; what no markup language escapes is handled here, once and for
//! every string of a record: control characters (most are not even allowed in XML), and
//! characters that turn the direction of text, join it, or have no width.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result};

/// The text with everything that is not to be seen spelt out.
pub fn visible(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '\n' => shown.push('↵'),
            '\t' => shown.push(' '),
            c if hidden(c) => shown.push_str(&format!("\\u{{{:x}}}", u32::from(c))),
            c => shown.push(c),
        }
    }
    shown
}

fn hidden(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{ffff}'
            | '\u{e0000}'..='\u{e007f}')
        // Noncharacters: no valid XML beyond the first plane either.
        || u32::from(c) & 0xfffe == 0xfffe
}

/// The same value with every string in it, also those that are keys, made [`visible`].
pub fn all_visible<T: Serialize + DeserializeOwned>(value: &T) -> Result<T> {
    let internal = |error: serde_json::Error| Error::internal(error.to_string());
    let mut value = serde_json::to_value(value).map_err(internal)?;
    show(&mut value);
    serde_json::from_value(value).map_err(internal)
}

fn show(value: &mut Value) {
    match value {
        Value::String(text) => *text = visible(text),
        Value::Array(list) => list.iter_mut().for_each(show),
        Value::Object(map) => {
            *map = std::mem::take(map)
                .into_iter()
                .map(|(key, mut value)| {
                    show(&mut value);
                    (visible(&key), value)
                })
                .collect();
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_spelt_out() {
        assert_eq!(
            visible("a\u{202e}b\u{0}c\nd\u{200b}"),
            "a\\u{202e}b\\u{0}c↵d\\u{200b}"
        );
        assert_eq!(visible("<b>\"ü 中 é</b>"), "<b>\"ü 中 é</b>");
        assert_eq!(
            visible("\u{feff}\u{ffff}\u{1ffff}"),
            "\\u{feff}\\u{ffff}\\u{1ffff}"
        );
    }

    #[test]
    fn every_string_of_a_value_is_shown() {
        let value: Value = serde_json::json!({"a\u{7}": ["b\u{7}", {"c": "d\u{7}"}], "n": 1.5});
        let shown = all_visible(&value).unwrap();
        let expected = serde_json::json!({
            "a\\u{7}": ["b\\u{7}", {"c": "d\\u{7}"}], "n": 1.5
        });
        assert_eq!(shown, expected);
    }
}
