//! What `spec-trace` writes: one line for each drafted step.

use std::collections::BTreeMap;

use crate::error::{Error, Result};

/// The steps of every sequence, in the order in which they were drafted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Trace<'a>(pub(super) BTreeMap<u32, Vec<Step<'a>>>);

/// `seq cycle step pos id n id:bits …`; see `docs/reference/gates.md`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step<'a> {
    pub(super) cycle: u64,
    pub(super) step: u32,
    pub(super) pos: u32,
    pub(super) id: u32,
    pub(super) candidates: Vec<&'a str>,
}

impl<'a> Trace<'a> {
    /// Reads a whole trace. A line that is not one, or that is cut off, is an error.
    pub fn read(text: &'a str) -> Result<Self> {
        let mut trace = Trace::default();
        if !text.is_empty() && !text.ends_with('\n') {
            return Err(bad(text.lines().last().unwrap_or_default()));
        }
        for line in text.lines() {
            let (seq, step) = step(line).ok_or_else(|| bad(line))?;
            trace.0.entry(seq).or_default().push(step);
        }
        Ok(trace)
    }

    /// The first logit that is no number, or above all: two that are equal say nothing. Below all is what a
    /// sampler takes out with.
    pub fn unsound(&self) -> Option<String> {
        let steps = self
            .0
            .iter()
            .flat_map(|(seq, steps)| steps.iter().map(move |step| (seq, step)));
        steps.into_iter().find_map(|(seq, step)| {
            let value = step.candidates.iter().find(|candidate| {
                let value = logit(candidate);
                value.is_nan() || value == f32::INFINITY
            })?;
            Some(format!(
                "a logit is no number: sequence {seq}, cycle {}, step {}, position {}: {value}",
                step.cycle, step.step, step.pos
            ))
        })
    }

    /// Where `other` differs first, in words.
    pub fn difference(&self, other: &Trace<'_>) -> Option<String> {
        let empty = Vec::new();
        let both = self.0.keys().chain(other.0.keys());
        let first = both.filter_map(|seq| {
            let left = self.0.get(seq).unwrap_or(&empty);
            let right = other.0.get(seq).map(Vec::as_slice).unwrap_or(&[]);
            let at = (0..left.len().max(right.len())).find(|at| left.get(*at) != right.get(*at))?;
            Some((at, *seq, left.get(at), right.get(at)))
        });
        let (at, seq, left, right) = first.min_by_key(|(at, seq, ..)| (*at, *seq))?;
        Some(match (left, right) {
            (Some(left), Some(right)) => format!(
                "sequence {seq}, drafted step {at} (cycle {}, step {}, position {}): {}",
                left.cycle,
                left.step,
                left.pos,
                left.against(right)
            ),
            (Some(_), None) => format!("sequence {seq}: the second run ends before step {at}"),
            _ => format!("sequence {seq}: the first run ends before step {at}"),
        })
    }
}

impl Step<'_> {
    fn against(&self, other: &Step<'_>) -> String {
        let place = |step: &Step<'_>| (step.cycle, step.step, step.pos);
        if place(self) != place(other) {
            return format!(
                "the other is at cycle {}, step {}, position {}",
                other.cycle, other.step, other.pos
            );
        }
        let pairs = self.candidates.iter().zip(&other.candidates);
        let differ = pairs.clone().filter(|(a, b)| a != b).count();
        let first = pairs
            .filter(|(a, b)| a != b)
            .map(|(a, b)| format!("{a} against {b}"));
        format!(
            "drafted {} against {}; {differ} of {} candidates differ, first {}",
            self.id,
            other.id,
            self.candidates.len(),
            first.take(1).collect::<String>()
        )
    }
}

fn step(line: &str) -> Option<(u32, Step<'_>)> {
    let mut words = line.split(' ');
    let mut number = || words.next()?.parse::<u32>().ok();
    let (seq, cycle, at, pos, id, n) = (
        number()?,
        number()?,
        number()?,
        number()?,
        number()?,
        number()?,
    );
    let candidates: Vec<&str> = words.collect();
    let right = |word: &&str| {
        word.split_once(':').is_some_and(|(id, bits)| {
            id.parse::<u32>().is_ok()
                && bits.len() == 8
                && bits.bytes().all(|b| b.is_ascii_hexdigit())
        })
    };
    (candidates.len() == n as usize && n > 0 && candidates.iter().all(right)).then_some((
        seq,
        Step {
            cycle: cycle.into(),
            step: at,
            pos,
            id,
            candidates,
        },
    ))
}

/// Both halves were seen to be numbers when the trace was read.
pub(super) fn logit(candidate: &str) -> f32 {
    let bits = candidate
        .split_once(':')
        .map(|(_, bits)| u32::from_str_radix(bits, 16));
    f32::from_bits(bits.and_then(Result::ok).unwrap_or(f32::NAN.to_bits()))
}

fn bad(line: &str) -> Error {
    let start: String = line.chars().take(80).collect();
    Error::environment(format!("no line of a draft trace: `{start}`"))
        .hint("both servers must have the patch `spec-trace`")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "0 1 0 40 7 2 7:41000000 8:40000000\n0 1 1 41 9 2 9:41000000 3:40000000\n";

    #[test]
    fn equal_traces_have_no_difference() {
        let trace = Trace::read(TWO).unwrap();
        assert_eq!(trace.difference(&trace), None);
        assert_eq!(Trace::read("").unwrap(), Trace::default());
    }

    #[test]
    fn what_is_no_number_is_named() {
        assert_eq!(Trace::read(TWO).unwrap().unsound(), None);
        // Taken out by a sampler.
        let out = TWO.replace("3:40000000", "3:ff800000");
        assert_eq!(Trace::read(&out).unwrap().unsound(), None);
        for bits in ["7fc00000", "ffc00001", "7f800000"] {
            let text = TWO.replace("3:40000000", &format!("3:{bits}"));
            let what = Trace::read(&text).unwrap().unsound().unwrap();
            assert!(
                what.contains("step 1, position 41") && what.contains(bits),
                "{what}"
            );
        }
    }

    #[test]
    fn the_order_of_sequences_does_not_count() {
        let a = "0 1 0 4 7 1 7:41000000\n1 1 0 9 8 1 8:41000000\n";
        let b = "1 1 0 9 8 1 8:41000000\n0 1 0 4 7 1 7:41000000\n";
        let (a, b) = (Trace::read(a).unwrap(), Trace::read(b).unwrap());
        assert_eq!(a.difference(&b), None);
    }

    #[test]
    fn one_bit_of_one_logit_is_seen_and_named() {
        let other = TWO.replace("3:40000000", "3:40000001");
        let (a, b) = (Trace::read(TWO).unwrap(), Trace::read(&other).unwrap());
        let what = a.difference(&b).unwrap();
        for part in [
            "step 1 (cycle 1, step 1, position 41)",
            "9 against 9",
            "1 of 2",
            "3:40000000 against 3:40000001",
        ] {
            assert!(what.contains(part), "{what}");
        }
    }

    #[test]
    fn a_missing_step_and_another_place_are_named() {
        let one = TWO.lines().next().unwrap().to_owned() + "\n";
        let (a, b) = (Trace::read(TWO).unwrap(), Trace::read(&one).unwrap());
        assert!(
            a.difference(&b)
                .unwrap()
                .contains("second run ends before step 1")
        );
        assert!(
            b.difference(&a)
                .unwrap()
                .contains("first run ends before step 1")
        );
        let moved = TWO.replace("0 1 1 41", "0 1 1 42");
        let c = Trace::read(&moved).unwrap();
        assert!(a.difference(&c).unwrap().contains("position 42"));
    }

    #[test]
    fn lines_that_are_none_are_refused() {
        for text in [
            "0 1 0 40 7 2 7:41000000\n",
            "0 1 0 40 7 1 7:4100000g\n",
            "0 1 0 40 7 0\n",
            "0 1 0 40\n",
            "hello\n",
            "0 1 0 40 7 1 7:41000000",
            "0 1 0 -1 7 1 7:41000000\n",
        ] {
            assert!(Trace::read(text).is_err(), "{text:?}");
        }
    }
}
