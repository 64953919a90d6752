//! Which line of one content is which line of another: three opinions, not one.
//!
//! A diff is one of many shortest descriptions of a change. Where a block occurs twice, which of
//! the two is "the same" depends on the algorithm, and a merge that trusts one of them can put a
//! line into the wrong one without a conflict. So the same lines are compared forwards, backwards
//! and by their unique lines (patience), and a place counts only where all three agree.

use std::collections::HashMap;

use similar::{Algorithm, DiffTag, capture_diff_slices};

/// For each old line its new one, where it has one.
type Opinion = Vec<Option<usize>>;

/// Of more lines in a row that all differ, none is the same line edited.
const EDITED: usize = 3;

/// Two contents, line by line.
pub struct Alignment {
    opinions: [Opinion; 3],
    old_len: usize,
    new_len: usize,
}

/// Where a change of the old content belongs in the new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Landing {
    /// Before this new line, from 0: the lines around it, and those that it replaces, stand
    /// together as before.
    At(usize),
    /// The opinions differ.
    Ambiguous,
    /// The lines around it no longer stand together. What became of the line above and of the
    /// one below, where all agree.
    Torn {
        /// The new place of the line above.
        above: Option<usize>,
        /// The new place of the line below.
        below: Option<usize>,
    },
}

impl Alignment {
    /// Compares two contents.
    pub fn of<T: Eq + std::hash::Hash>(old: &[T], new: &[T]) -> Alignment {
        // Numbers in place of lines: they are compared far more often than read.
        let mut numbers: HashMap<&T, u32> = HashMap::new();
        let mut numbered = |lines| number(lines, &mut numbers);
        let (mut old, mut new) = (numbered(old), numbered(new));
        let forward = opinion(Algorithm::Myers, &old, &new);
        let patience = opinion(Algorithm::Patience, &old, &new);
        old.reverse();
        new.reverse();
        let mut backward = opinion(Algorithm::Myers, &old, &new);
        backward.reverse();
        for place in backward.iter_mut().flatten() {
            *place = new.len() - 1 - *place;
        }
        Alignment {
            opinions: [forward, patience, backward],
            old_len: old.len(),
            new_len: new.len(),
        }
    }

    /// Where a change that replaces the old lines `from..to` (none for an insertion before
    /// `from`) belongs.
    pub fn landing(&self, from: usize, to: usize) -> Landing {
        let places = self
            .opinions
            .each_ref()
            .map(|map| self.one_landing(map, from, to));
        match places {
            [Some(a), Some(b), Some(c)] if a == b && b == c => Landing::At(a),
            [None, None, None] => Landing::Torn {
                above: from.checked_sub(1).and_then(|line| self.agreed(line)),
                below: self.agreed(to),
            },
            _ => Landing::Ambiguous,
        }
    }

    /// Where an insertion before the old line `at` belongs if the line on one side of it is there
    /// and the one on the other side was only edited: one of as few lines, at the same place
    /// between two that are there. `alike` tells whether an old and a new line are one, edited.
    pub fn beside_an_edit(&self, at: usize, alike: impl Fn(usize, usize) -> bool) -> Option<usize> {
        let above = at.checked_sub(1).and_then(|line| self.agreed(line));
        let below = self.agreed(at);
        match (above, below) {
            (Some(above), None) => {
                let place = above + 1;
                let reach = (at..self.old_len.min(at + EDITED + 1))
                    .find_map(|line| Some((line - at, self.agreed(line)?)));
                let (count, next) = reach.unwrap_or((self.old_len - at, self.new_len));
                (count <= EDITED && next == place + count && alike(at, place)).then_some(place)
            }
            (None, Some(place)) => {
                let reach = (0..at)
                    .rev()
                    .take(EDITED + 1)
                    .find_map(|line| Some((at - 1 - line, self.agreed(line)? + 1)));
                let (count, next) = reach.unwrap_or((at, 0));
                let there = at.checked_sub(1).zip(place.checked_sub(1));
                (count <= EDITED
                    && next + count == place
                    && there.is_some_and(|(old, new)| alike(old, new)))
                .then_some(place)
            }
            _ => None,
        }
    }

    /// The new place of an old line, where all opinions agree on it.
    pub fn agreed(&self, line: usize) -> Option<usize> {
        let [a, b, c] = self
            .opinions
            .each_ref()
            .map(|map| map.get(line).copied().flatten());
        (a == b && b == c).then_some(a).flatten()
    }

    fn one_landing(&self, map: &Opinion, from: usize, to: usize) -> Option<usize> {
        let at = match from.checked_sub(1) {
            Some(above) => map.get(above).copied().flatten()? + 1,
            None => 0,
        };
        for (step, line) in (from..to).enumerate() {
            if map.get(line).copied().flatten()? != at + step {
                return None;
            }
        }
        let end = at + (to - from);
        let below = if to < self.old_len {
            map[to]?
        } else {
            self.new_len
        };
        (below == end).then_some(at)
    }

    /// The share of old lines that have a new one, by the first opinion.
    pub fn likeness(&self) -> f64 {
        let kept = self.opinions[0].iter().flatten().count();
        2.0 * kept as f64 / (self.old_len + self.new_len).max(1) as f64
    }
}

/// For each line the number of its content.
fn number<'a, T: Eq + std::hash::Hash>(
    lines: &'a [T],
    numbers: &mut HashMap<&'a T, u32>,
) -> Vec<u32> {
    lines
        .iter()
        .map(|line| {
            let next = numbers.len() as u32;
            *numbers.entry(line).or_insert(next)
        })
        .collect()
}

fn opinion(algorithm: Algorithm, old: &[u32], new: &[u32]) -> Opinion {
    let mut map = vec![None; old.len()];
    for op in capture_diff_slices(algorithm, old, new) {
        if op.tag() == DiffTag::Equal {
            for (from, to) in op.old_range().zip(op.new_range()) {
                map[from] = Some(to);
            }
        }
    }
    map
}

#[cfg(test)]
mod tests {
    use super::*;

    fn align(old: &str, new: &str) -> Alignment {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        Alignment::of(&lines(old), &lines(new))
    }

    #[test]
    fn what_stands_together_lands() {
        let same = align("a b c d", "x a b c d");
        assert_eq!(same.landing(2, 2), Landing::At(3));
        assert_eq!(same.landing(1, 2), Landing::At(2));
        assert_eq!(same.landing(4, 4), Landing::At(5));
        // The top is not the top any more.
        assert!(matches!(same.landing(0, 0), Landing::Torn { .. }));
        assert_eq!(align("a b", "a b c").landing(0, 0), Landing::At(0));
    }

    #[test]
    fn a_changed_neighbour_tears() {
        let torn = align("a b c d", "a b x d");
        assert_eq!(
            torn.landing(2, 2),
            Landing::Torn {
                above: Some(1),
                below: None
            }
        );
        assert_eq!(torn.landing(1, 1), Landing::At(1));
    }

    #[test]
    fn an_edited_neighbour_is_told_from_a_removed_one() {
        let edited = align("a b c d", "a b x d");
        assert_eq!(
            edited.beside_an_edit(2, |old, new| (old, new) == (2, 2)),
            Some(2)
        );
        assert_eq!(
            edited.beside_an_edit(3, |old, new| (old, new) == (2, 2)),
            Some(3)
        );
        assert_eq!(edited.beside_an_edit(2, |_, _| false), None);
        let removed = align("a b c d", "a b d");
        assert_eq!(removed.beside_an_edit(2, |_, _| true), None);
        assert_eq!(removed.beside_an_edit(3, |_, _| true), None);
        for (lines, found) in [(3, Some(1)), (4, None)] {
            let old = format!("a {}z", "o ".repeat(lines));
            let new = format!("a {}z", "n ".repeat(lines));
            assert_eq!(align(&old, &new).beside_an_edit(1, |_, _| true), found);
            let last = align(&old, &new).beside_an_edit(lines + 1, |_, _| true);
            assert_eq!(last, found.map(|_| lines + 1));
        }
        let more = align("a b c d", "a b x y d");
        assert_eq!(more.beside_an_edit(2, |_, _| true), None);
    }

    /// One of two equal blocks went: which one, nobody can say.
    #[test]
    fn of_two_equal_blocks_one_is_ambiguous() {
        let old = "head p q r mid p q r tail";
        let new = "head p q r tail";
        let one = align(old, new);
        for at in [2, 6] {
            assert!(!matches!(one.landing(at, at), Landing::At(_)), "{at}");
        }
    }
}
