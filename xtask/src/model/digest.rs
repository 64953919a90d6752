//! SHA-256 as a value.

use std::cell::RefCell;
use std::fmt;
use std::io::Read;
use std::path::Path;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

/// A SHA-256 digest; 64 lowercase hex digits in files and messages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(Sha256::digest(bytes).into())
    }

    /// The digest of a file's content, read in pieces.
    pub fn of_file(path: &Path) -> std::io::Result<Self> {
        thread_local! {
            // Whole trees are hashed: a new buffer for each file costs more than reading it.
            static BUFFER: RefCell<Vec<u8>> = RefCell::new(vec![0; 1 << 16]);
        }
        let mut file = fs_err::File::open(path)?;
        let mut hasher = Sha256::new();
        BUFFER.with_borrow_mut(|buffer| {
            loop {
                match file.read(buffer)? {
                    0 => return Ok(Digest(hasher.finalize().into())),
                    n => hasher.update(&buffer[..n]),
                }
            }
        })
    }

    /// The digest of several parts, each with its length before it, so that no two different
    /// lists of parts hash the same bytes.
    pub fn of_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update((part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        Digest(hasher.finalize().into())
    }

    /// A digest that was computed elsewhere.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }

    /// The raw bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// The first 12 hex digits, for people.
    pub fn short(&self) -> String {
        self.to_string()[..12].to_owned()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The value of each byte as a lowercase hex digit; 255 where it is none.
static NIBBLES: [u8; 256] = {
    let mut table = [255; 256];
    let digits = b"0123456789abcdef";
    let mut at = 0;
    while at < 16 {
        table[digits[at] as usize] = at as u8;
        at += 1;
    }
    table
};

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no SHA-256 digest (64 lowercase hex digits)");
        let Ok(digits) = <&[u8; 64]>::try_from(text.as_bytes()) else {
            return Err(wrong());
        };
        // Thousands of them are read at every command, also by a build without optimisation.
        let mut bytes = [0; 32];
        let (mut at, mut seen) = (0, 0);
        while at < 32 {
            let (high, low) = (
                NIBBLES[digits[2 * at] as usize],
                NIBBLES[digits[2 * at + 1] as usize],
            );
            seen |= high | low;
            bytes[at] = (high << 4) | (low & 15);
            at += 1;
        }
        if seen > 15 {
            return Err(wrong());
        }
        Ok(Digest(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prints_and_parses() {
        let digest = Digest::of(b"");
        let text = digest.to_string();
        assert!(text.starts_with("e3b0c44298fc1c14"));
        assert_eq!(text.parse::<Digest>().unwrap(), digest);
        assert!("E3".repeat(32).parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }

    #[test]
    fn parts_do_not_run_together() {
        let a = Digest::of_parts([b"ab".as_slice(), b"c"]);
        let b = Digest::of_parts([b"a".as_slice(), b"bc"]);
        assert_ne!(a, b);
    }
}
