//! Prompts as token ids: written down, read from a file, or drawn from a seed.

use std::path::Path;

use crate::error::{Error, Result};
use crate::model::{GeneratedPrompt, PromptDefinition};
use crate::tree::RelPath;

/// The ids of a prompt; the content of a prompt file is added to `files`.
pub fn ids(dir: &Path, prompt: &PromptDefinition, files: &mut Vec<Vec<u8>>) -> Result<Vec<u32>> {
    let ids = match (&prompt.ids, &prompt.file, &prompt.generate) {
        (Some(ids), None, None) => ids.clone(),
        (None, Some(file), None) => {
            let path = RelPath::new(file.as_str())?.below(dir);
            let content = fs_err::read(&path)?;
            let ids = parse_ids(&content)?;
            files.push(content);
            ids
        }
        (None, None, Some(generate)) => generated(generate)?,
        _ => {
            return Err(Error::config(
                "it needs exactly one of `ids`, `file` and `generate`",
            ));
        }
    };
    if ids.is_empty() {
        return Err(Error::config("it has no ids"));
    }
    Ok(ids)
}

fn parse_ids(content: &[u8]) -> Result<Vec<u32>> {
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
