//! Where something turns from good to bad: a binary search that puts up with places of which
//! nothing can be said.

use crate::error::Result;

/// What a place is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// As it should be.
    Good,
    /// Not as it should be.
    Bad,
    /// Nothing can be said, and whether it may be otherwise another time.
    Unclear {
        /// Whether asking again may help.
        again: bool,
    },
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The last place is good.
    Nothing,
    /// Nothing can be said of the last place.
    EndUnclear,
    /// The first place that can be judged is bad: what is wrong came with it or before.
    BadFromStart {
        /// That place.
        at: usize,
    },
    /// Nothing can be said of any place to begin from.
    StartUnclear,
    /// A good place, and the next bad one; between them only places of which nothing can be said.
    Between {
        /// The last good one.
        good: usize,
        /// The first bad one.
        bad: usize,
    },
}

/// How often a place that is unclear is asked again.
const AGAIN: usize = 2;

/// Finds where the places up to `last` turn bad. `starts` are places to begin from, in ascending
/// order; the first of which something can be said is taken.
///
/// As every binary search it takes for granted that what is bad stays bad. Where it does not, what
/// is found is still a place that is bad behind one that is good, but there may be others.
pub fn search(
    last: usize,
    starts: &[usize],
    test: &mut dyn FnMut(usize) -> Result<Step>,
) -> Result<Found> {
    let mut ask = |place: usize| -> Result<Option<bool>> {
        for _ in 0..=AGAIN {
            match test(place)? {
                Step::Good => return Ok(Some(true)),
                Step::Bad => return Ok(Some(false)),
                Step::Unclear { again: false } => return Ok(None),
                Step::Unclear { again: true } => {}
            }
        }
        Ok(None)
    };
    match ask(last)? {
        Some(true) => return Ok(Found::Nothing),
        None => return Ok(Found::EndUnclear),
        Some(false) => {}
    }
    let (mut good, mut bad) = (None, last);
    for start in starts.iter().copied().filter(|start| *start < last) {
        match ask(start)? {
            Some(true) => {
                good = Some(start);
                break;
            }
            Some(false) => return Ok(Found::BadFromStart { at: start }),
            None => {}
        }
    }
    let Some(mut good) = good else {
        return Ok(Found::StartUnclear);
    };
    let mut unclear = vec![false; last + 1];
    loop {
        let middle = good + (bad - good) / 2;
        let open = (good + 1..bad).filter(|place| !unclear[*place]);
        // Of two that are equally near the lower one: its series is smaller.
        let Some(place) = open.min_by_key(|place| (place.abs_diff(middle), *place)) else {
            return Ok(Found::Between { good, bad });
        };
        match ask(place)? {
            Some(true) => good = place,
            Some(false) => bad = place,
            None => unclear[place] = true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Searches in `places`: `g`ood, `b`ad, `?` for always unclear, `!` for unclear and not worth
    /// asking again, `~` for unclear at first and then good, `^` for at first and then bad.
    fn run(places: &str, starts: &[usize]) -> (Found, Vec<usize>) {
        let places: Vec<char> = places.chars().collect();
        let mut asked = Vec::new();
        let mut times: BTreeMap<usize, usize> = BTreeMap::new();
        let found = search(places.len() - 1, starts, &mut |place| {
            asked.push(place);
            let time = times.entry(place).or_default();
            *time += 1;
            Ok(match (places[place], *time) {
                ('g', _) => Step::Good,
                ('b', _) => Step::Bad,
                ('!', _) => Step::Unclear { again: false },
                ('~', 3..) => Step::Good,
                ('^', 2..) => Step::Bad,
                _ => Step::Unclear { again: true },
            })
        });
        (found.unwrap(), asked)
    }

    #[test]
    fn every_culprit_is_found_in_few_steps() {
        for last in 1..40 {
            for bad in 1..=last {
                let places: String = (0..=last)
                    .map(|p| if p < bad { 'g' } else { 'b' })
                    .collect();
                let (found, asked) = run(&places, &[0]);
                assert_eq!(found, Found::Between { good: bad - 1, bad }, "{places}");
                let bound = 2 + (last as f64).log2().ceil() as usize;
                assert!(asked.len() <= bound, "{places}: {asked:?}");
                // Nothing is built twice.
                let mut once = asked.clone();
                once.sort_unstable();
                once.dedup();
                assert_eq!(once.len(), asked.len());
            }
        }
    }

    #[test]
    fn both_ends_are_looked_at_first() {
        assert_eq!(run("ggg", &[0]), (Found::Nothing, vec![2]));
        assert_eq!(run("gg!", &[0]), (Found::EndUnclear, vec![2]));
        assert_eq!(
            run("bbb", &[0]),
            (Found::BadFromStart { at: 0 }, vec![2, 0])
        );
        assert_eq!(run("!gb", &[0]), (Found::StartUnclear, vec![2, 0]));
        // What the gate needs comes with patch 1.
        let (found, asked) = run("!ggb", &[0, 1]);
        assert_eq!(found, Found::Between { good: 2, bad: 3 });
        assert_eq!(asked, [3, 0, 1, 2]);
        assert_eq!(run("!bbb", &[0, 1]).0, Found::BadFromStart { at: 1 });
        assert_eq!(run("!gb", &[0, 2]).0, Found::StartUnclear);
    }

    #[test]
    fn what_is_unclear_is_asked_again_and_then_skipped() {
        assert_eq!(run("g~b", &[0]).0, Found::Between { good: 1, bad: 2 });
        assert_eq!(run("g^b", &[0]).0, Found::Between { good: 0, bad: 1 });
        let (found, asked) = run("g?b", &[0]);
        assert_eq!(found, Found::Between { good: 0, bad: 2 });
        assert_eq!(asked, [2, 0, 1, 1, 1]);
        assert_eq!(run("g!b", &[0]).1, [2, 0, 1]);
        for (places, good, bad) in [
            ("g!!!b", 0, 4),
            ("gg!!b", 1, 4),
            ("g!!bb", 0, 3),
            ("gg!bb", 1, 3),
            ("g!g!b!b", 2, 4),
            ("!g!!!!!!b", 1, 8),
        ] {
            assert_eq!(
                run(places, &[0, 1]).0,
                Found::Between { good, bad },
                "{places}"
            );
        }
        // Every pattern of skips: a good one before, a bad one behind, none judged between.
        for mask in 0..1 << 7 {
            for turn in 1..=8usize {
                let places: String = (0..=8usize)
                    .map(|p| match p {
                        1..=7 if mask >> (p - 1) & 1 == 1 => '!',
                        _ if p < turn => 'g',
                        _ => 'b',
                    })
                    .collect();
                let Found::Between { good, bad } = run(&places, &[0]).0 else {
                    panic!("{places}");
                };
                let all: Vec<char> = places.chars().collect();
                assert!(all[good] == 'g' && all[bad] == 'b', "{places}");
                assert!(all[good + 1..bad].iter().all(|c| *c == '!'), "{places}");
            }
        }
    }

    #[test]
    fn what_does_not_stay_bad_still_gives_a_place_that_turns_bad() {
        for places in ["gbgb", "gbggbgb", "gbbgggbb", "gggbgggggb"] {
            let Found::Between { good, bad } = run(places, &[0]).0 else {
                panic!("{places}");
            };
            assert_eq!(bad, good + 1);
            let all: Vec<char> = places.chars().collect();
            assert!(all[good] == 'g' && all[bad] == 'b', "{places}");
        }
    }

    #[test]
    fn an_error_ends_it() {
        let error = search(3, &[0], &mut |_| Err(crate::Error::interrupted())).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Interrupted);
    }
}
