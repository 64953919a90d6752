//! What a gate says.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A gate proves, fails, or says that it cannot tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// The control passed and the comparison passed.
    Pass,
    /// The control passed and the comparison did not.
    Fail,
    /// The control did not pass, so that the comparison says nothing. Never green.
    Inconclusive,
    /// Not run, for a stated reason. Never counted as passed.
    Skipped,
}

impl Verdict {
    /// The verdict over several: fail before inconclusive before pass; skipped ones do not
    /// count, and nothing but skipped ones is inconclusive.
    pub fn all(verdicts: impl IntoIterator<Item = Verdict>) -> Verdict {
        let mut sum = Verdict::Inconclusive;
        for (at, verdict) in verdicts
            .into_iter()
            .filter(|verdict| *verdict != Verdict::Skipped)
            .enumerate()
        {
            sum = match (at, sum, verdict) {
                (0, _, first) => first,
                (_, Verdict::Fail, _) | (_, _, Verdict::Fail) => Verdict::Fail,
                (_, Verdict::Inconclusive, _) | (_, _, Verdict::Inconclusive) => {
                    Verdict::Inconclusive
                }
                _ => Verdict::Pass,
            };
        }
        sum
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Verdict::Pass => "pass",
            Verdict::Fail => "fail",
            Verdict::Inconclusive => "inconclusive",
            Verdict::Skipped => "skipped",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{self, *};

    #[test]
    fn only_passes_pass() {
        assert_eq!(Verdict::all([]), Inconclusive);
        assert_eq!(Verdict::all([Skipped]), Inconclusive);
        assert_eq!(Verdict::all([Pass, Skipped, Pass]), Pass);
        assert_eq!(Verdict::all([Pass, Inconclusive]), Inconclusive);
        assert_eq!(Verdict::all([Inconclusive, Pass]), Inconclusive);
        assert_eq!(Verdict::all([Inconclusive, Fail, Pass]), Fail);
    }
}
