//! Two files of logits, compared row by row: of a large model they do not fit into memory.

use std::io::{BufReader, Read};
use std::path::Path;

use sha2::Digest as _;

use crate::error::{Error, Result, ResultExt};
use crate::gate::session::{Halt, Prompt};
use crate::model::{Digest, LogitsDifference, RowDifference};

/// Begins a file.
pub const MAGIC: &[u8; 8] = b"LOGITS01";

/// The most likely tokens that are shown.
const TOP: usize = 5;

/// What two runs gave for one prompt.
#[derive(Clone, Debug, PartialEq)]
pub struct Compared {
    /// Positions.
    pub rows: usize,
    /// Logits of each.
    pub vocabulary: usize,
    /// Digest over all logits of the left run.
    pub left: Digest,
    /// The same of the right one.
    pub right: Digest,
    /// How they differ.
    pub difference: Option<LogitsDifference>,
    /// Why equal logits would say nothing: they are no numbers, or all the same.
    pub empty: Option<String>,
}

/// An open file of logits.
struct Logits {
    file: BufReader<fs_err::File>,
    vocabulary: usize,
}

impl Logits {
    fn open(path: &Path, prompts: usize) -> Result<Self> {
        let mut file = BufReader::with_capacity(1 << 18, fs_err::File::open(path)?);
        let mut head = [0; 16];
        file.read_exact(&mut head)?;
        let number = |at: usize| -> usize {
            let mut bytes = [0; 4];
            bytes.copy_from_slice(&head[at..at + 4]);
            u32::from_le_bytes(bytes) as usize
        };
        if !head.starts_with(MAGIC) || number(8) == 0 || number(12) != prompts {
            return Err(Error::internal(format!(
                "{} is no file of the logits of {prompts} prompts",
                path.display()
            )));
        }
        Ok(Logits {
            file,
            vocabulary: number(8),
        })
    }

    /// The number of rows of the next prompt, which must be `wanted`.
    fn rows(&mut self, wanted: usize) -> Result<()> {
        let mut bytes = [0; 4];
        self.file.read_exact(&mut bytes)?;
        let found = u32::from_le_bytes(bytes) as usize;
        if found != wanted {
            return Err(Error::internal(format!(
                "{found} positions of logits, {wanted} ids were given"
            )));
        }
        Ok(())
    }

    /// Fails where anything is left.
    fn end(mut self) -> Result<()> {
        match self.file.read(&mut [0])? {
            0 => Ok(()),
            _ => Err(Error::internal(
                "there is more than the logits of all prompts",
            )),
        }
    }
}

/// Compares two files that hold the logits of `prompts`.
pub fn compare(
    left: &Path,
    right: &Path,
    prompts: &[Prompt],
    halt: &Halt,
) -> Result<Vec<Compared>> {
    let open = |path| Logits::open(path, prompts.len());
    let (mut left, mut right) = (open(left)?, open(right)?);
    if left.vocabulary != right.vocabulary {
        return Err(Error::finding(format!(
            "the vocabularies differ: {} against {}",
            left.vocabulary, right.vocabulary
        )));
    }
    let one = |prompt: &Prompt| {
        let found = prompt_of(&mut left, &mut right, prompt.ids.len(), halt);
        found.context(|| format!("logits of prompt {}", prompt.name))
    };
    let found = prompts.iter().map(one).collect::<Result<_>>()?;
    left.end()?;
    right.end()?;
    Ok(found)
}

fn prompt_of(left: &mut Logits, right: &mut Logits, rows: usize, halt: &Halt) -> Result<Compared> {
    left.rows(rows)?;
    right.rows(rows)?;
    let vocabulary = left.vocabulary;
    let (mut a, mut b) = (vec![0; 4 * vocabulary], vec![0; 4 * vocabulary]);
    let (mut digest_a, mut digest_b) = (sha2::Sha256::new(), sha2::Sha256::new());
    let mut sum = Sum::default();
    let mut empty = None;
    for row in 0..rows {
        halt.check()?;
        left.file.read_exact(&mut a)?;
        right.file.read_exact(&mut b)?;
        digest_a.update(&a);
        digest_b.update(&b);
        empty = empty.or_else(|| {
            nothing(&a)
                .or_else(|| nothing(&b))
                .map(|what| format!("position {row}: {what}"))
        });
        if a != b {
            sum.add(row, &floats(&a), &floats(&b));
        }
    }
    let end = |digest: sha2::Sha256| Digest::from_bytes(digest.finalize().into());
    let (left, right) = (end(digest_a), end(digest_b));
    Ok(Compared {
        rows,
        vocabulary,
        left,
        right,
        difference: sum.difference(rows),
        empty,
    })
}

fn floats(bytes: &[u8]) -> Vec<f32> {
    let chunks = bytes.as_chunks::<4>().0.iter();
    chunks.map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Why these logits say nothing, where they do not.
fn nothing(row: &[u8]) -> Option<String> {
    let values = floats(row);
    let first = values.first()?.to_bits();
    if values.iter().any(|value| value.is_nan()) {
        return Some("a logit is no number".to_owned());
    }
    // A vocabulary of one would always be.
    let constant = values.len() > 1 && values.iter().all(|value| value.to_bits() == first);
    constant.then(|| "all logits are the same: nothing was computed".to_owned())
}

/// What was found so far.
#[derive(Default)]
struct Sum {
    rows: usize,
    values: u64,
    /// `None` from the first value on that is no number.
    max_abs: Option<Option<f64>>,
    max_abs_at: (usize, u32),
    kl: Option<(f64, f64)>,
    no_kl: bool,
    tokens: usize,
    first: Option<RowDifference>,
    first_token: Option<RowDifference>,
}

impl Sum {
    fn add(&mut self, row: usize, left: &[f32], right: &[f32]) {
        self.rows += 1;
        let mut first = None;
        for (token, (a, b)) in (0u32..).zip(left.iter().zip(right)) {
            if a.to_bits() == b.to_bits() {
                continue;
            }
            self.values += 1;
            first.get_or_insert(token);
            let distance = (f64::from(*a) - f64::from(*b)).abs();
            let largest = self.max_abs.unwrap_or(Some(-1.0));
            if let Some(largest) = largest {
                if !distance.is_finite() {
                    (self.max_abs, self.max_abs_at) = (Some(None), (row, token));
                } else if distance > largest {
                    (self.max_abs, self.max_abs_at) = (Some(Some(distance)), (row, token));
                }
            }
        }
        match divergence(left, right) {
            Some(kl) => {
                let (sum, largest) = self.kl.unwrap_or((0.0, 0.0));
                self.kl = Some((sum + kl, largest.max(kl)));
            }
            None => self.no_kl = true,
        }
        let shown = || RowDifference {
            row,
            token: first.unwrap_or(0),
            left: bits(left, first),
            right: bits(right, first),
            left_top: shown_top(left),
            right_top: shown_top(right),
        };
        if self.first.is_none() {
            self.first = Some(shown());
        }
        let most = |row: &[f32]| top(row).first().map(|(token, _)| *token);
        if most(left) != most(right) {
            self.tokens += 1;
            if self.first_token.is_none() {
                self.first_token = Some(shown());
            }
        }
    }

    fn difference(self, rows: usize) -> Option<LogitsDifference> {
        let kl = self.kl.filter(|_| !self.no_kl);
        Some(LogitsDifference {
            rows: self.rows,
            values: self.values,
            max_abs: self.max_abs.flatten(),
            max_abs_at: self.max_abs_at,
            kl_max: kl.map(|(_, largest)| largest),
            kl_mean: kl.map(|(sum, _)| sum / rows as f64),
            tokens: self.tokens,
            first: self.first?,
            first_token: self.first_token,
        })
    }
}

fn bits(row: &[f32], token: Option<u32>) -> String {
    let value = token.and_then(|token| row.get(token as usize));
    value.map_or(String::new(), |value| format!("{:08x}", value.to_bits()))
}

/// The most likely tokens; of equal ones the first, as a greedy sampler has it.
fn top(row: &[f32]) -> Vec<(u32, f32)> {
    let mut best: Vec<(u32, f32)> = Vec::with_capacity(TOP + 1);
    for (token, value) in (0u32..).zip(row.iter().copied()) {
        let at = best.partition_point(|(_, other)| *other >= value);
        if at < TOP && !value.is_nan() {
            best.insert(at, (token, value));
            best.truncate(TOP);
        }
    }
    best
}

/// The same in numbers that JSON has.
fn shown_top(row: &[f32]) -> Vec<(u32, f32)> {
    let finite = |value: f32| value.clamp(f32::MIN, f32::MAX);
    let top = top(row).into_iter();
    top.map(|(token, value)| (token, finite(value))).collect()
}

/// KL divergence of `right` from `left`, both as softmax, in nats; `None` where one is none.
fn divergence(left: &[f32], right: &[f32]) -> Option<f64> {
    let logs = |row: &[f32]| -> Vec<f64> {
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let shifted: Vec<f64> = row
            .iter()
            .map(|value| f64::from(*value) - f64::from(largest))
            .collect();
        let total: f64 = shifted.iter().map(|value| value.exp()).sum();
        shifted.iter().map(|value| value - total.ln()).collect()
    };
    let (left, right) = (logs(left), logs(right));
    let terms = left.iter().zip(&right).map(|(p, q)| match p.exp() {
        0.0 => 0.0,
        share => share * (p - q),
    });
    let sum: f64 = terms.sum();
    // What rounding leaves of nothing may be a little below it.
    sum.is_finite().then_some(sum.max(0.0))
}
