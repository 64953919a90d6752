//! Prompts as a definition has them: token ids that are written down, read from a file or drawn
//! from a seed, and text that a server makes ids of ([`crate::gate::texts`]).

use std::path::Path;

use crate::error::{Error, Result};
use crate::gate::texts::{Message, Text};
use crate::model::{GeneratedPrompt, MessageDefinition, PromptDefinition};
use crate::tree::RelPath;

/// What a prompt is before a server has seen it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Ids.
    Ids(Vec<u32>),
    /// What a server has to make ids of.
    Text(Text),
}

/// Largest text of a prompt, in bytes.
const LARGEST_TEXT: usize = 4 << 20;

/// What a prompt is; the content of the files that it names is added to `files`.
pub fn source(dir: &Path, prompt: &PromptDefinition, files: &mut Vec<Vec<u8>>) -> Result<Source> {
    let PromptDefinition {
        ids,
        file,
        generate,
        text,
        messages,
        ..
    } = prompt;
    let said = [
        ids.is_some(),
        file.is_some(),
        generate.is_some(),
        text.is_some(),
        messages.is_some(),
    ];
    if said.iter().filter(|is| **is).count() != 1 {
        return Err(Error::config(
            "it needs exactly one of `ids`, `file`, `generate`, `text` and `messages`",
        ));
    }
    if let Some(messages) = messages {
        let messages = messages.iter().map(|message| one(dir, message, files));
        let messages = messages.collect::<Result<Vec<_>>>()?;
        if messages.is_empty() {
            return Err(Error::config("it has no messages"));
        }
        return Ok(Source::Text(Text::Chat(messages)));
    }
    if let Some(text) = text {
        return Ok(Source::Text(Text::Plain(sound(text.clone())?)));
    }
    let ids = match (ids, file, generate) {
        (_, Some(file), _) if !file.ends_with(".ids") => {
            return Ok(Source::Text(Text::Plain(read_text(dir, file, files)?)));
        }
        (_, Some(file), _) => {
            let path = RelPath::new(file.as_str())?.below(dir);
            let content = fs_err::read(&path)?;
            let ids = parse_ids(&content)?;
            files.push(content);
            ids
        }
        (_, _, Some(generate)) => generated(generate)?,
        (ids, ..) => ids.clone().unwrap_or_default(),
    };
    if ids.is_empty() {
        return Err(Error::config("it has no ids"));
    }
    Ok(Source::Ids(ids))
}

fn one(dir: &Path, message: &MessageDefinition, files: &mut Vec<Vec<u8>>) -> Result<Message> {
    let content = match (&message.content, &message.file) {
        (Some(content), None) => sound(content.clone())?,
        (None, Some(file)) => read_text(dir, file, files)?,
        _ => {
            return Err(Error::config(
                "a message needs exactly one of `content` and `file`",
            ));
        }
    };
    Ok(Message {
        role: message.role,
        content,
    })
}

/// The text of a file below `gates/`, without the line break at its end, which editors add.
fn read_text(dir: &Path, file: &str, files: &mut Vec<Vec<u8>>) -> Result<String> {
    let path = RelPath::new(file)?.below(dir);
    if ![".txt", ".md"].iter().any(|end| file.ends_with(end)) {
        return Err(Error::config(format!(
            "`{file}` ends neither in `.txt` nor in `.md` (text), nor in `.ids` (token ids)"
        )));
    }
    let content = fs_err::read(path)?;
    files.push(content.clone());
    let text = String::from_utf8(content)
        .map_err(|_| Error::config(format!("`{file}` is no text in UTF-8")))?;
    sound(text.strip_suffix('\n').unwrap_or(&text).to_owned())
}

fn sound(text: String) -> Result<String> {
    if text.trim().is_empty() {
        return Err(Error::config("its text is empty"));
    }
    if text.len() > LARGEST_TEXT {
        return Err(Error::config(format!(
            "its text has more than {} MiB",
            LARGEST_TEXT >> 20
        )));
    }
    Ok(text)
}

/// The token ids in a file `.ids`: words between blanks; `#` begins a comment.
pub fn parse_ids(content: &[u8]) -> Result<Vec<u32>> {
    let text = std::str::from_utf8(content).map_err(|_| Error::config("its file is no text"))?;
    let mut ids = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        for word in line.split_whitespace() {
            ids.push(
                word.parse().map_err(|_| {
                    Error::config(format!("line {}: `{word}` is no token id", at + 1))
                })?,
            );
        }
    }
    Ok(ids)
}

/// Most ids that a definition may ask for: a typing error must not fill the memory.
const LONGEST: usize = 1 << 20;

/// Ids from SplitMix64, whose output is fixed for ever by its seed.
fn generated(generate: &GeneratedPrompt) -> Result<Vec<u32>> {
    if generate.low >= generate.high {
        return Err(Error::config(format!(
            "generate: low ({}) must be below high ({})",
            generate.low, generate.high
        )));
    }
    if generate.length > LONGEST {
        return Err(Error::config(format!(
            "generate: length is above {LONGEST}"
        )));
    }
    let span = u64::from(generate.high - generate.low);
    let mut state = generate.seed;
    let mut next = || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    };
    Ok((0..generate.length)
        // The remainder is below `span`, which is a u32.
        .map(|_| generate.low + (next() % span) as u32)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_ids_never_change() {
        let ids = |seed, low, high| {
            generated(&GeneratedPrompt {
                seed,
                length: 6,
                low,
                high,
            })
            .unwrap()
        };
        assert_eq!(ids(1, 4, 512), GOLDEN);
        assert_ne!(ids(2, 4, 512), GOLDEN);
        assert_eq!(ids(9, 7, 8), [7; 6]);
    }

    const GOLDEN: [u32; 6] = [501, 143, 42, 179, 5, 132];
}
