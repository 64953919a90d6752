//! How servers end when they are asked to. One that has to be killed hangs, in a destructor or in a thread that
//! nobody joins, after all its answers were right.

/// How the servers of one side ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ends {
    /// Those that were asked to end.
    pub asked: usize,
    /// Those of them that had to be killed.
    pub killed: usize,
}

/// What that says of the candidate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Nothing.
    Well,
    /// Nothing, since the baseline does the same; to be said.
    Alike(String),
    /// It hung now and then, as on a machine that is too slow for `limits.stop`.
    Doubtful(String),
    /// It hangs each time.
    Hangs(String),
}

/// Judges both sides. A candidate that hangs each time where no baseline does is a fault; one that hangs now and
/// then cannot be judged.
pub fn judge(baseline: Ends, candidate: Ends) -> Ending {
    if candidate.killed == 0 {
        return Ending::Well;
    }
    let count = |ends: Ends| format!("{} of {} servers", ends.killed, ends.asked);
    let candidates = count(candidate);
    if baseline.killed > 0 {
        return Ending::Alike(format!(
            "servers of both sides had to be killed when they were asked to end: {} of the baseline, {candidates} of \
             the candidate",
            count(baseline)
        ));
    }
    let what = format!(
        "{candidates} of the candidate had to be killed when they were asked to end, and none of the baseline: see what \
         hangs there, or raise limits.stop"
    );
    match candidate.killed == candidate.asked {
        true => Ending::Hangs(what),
        false => Ending::Doubtful(what),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_candidate_that_hangs_alone_is_at_fault() {
        let ends = |killed, asked| Ends { asked, killed };
        assert_eq!(judge(ends(0, 2), ends(0, 1)), Ending::Well);
        // A slow baseline says nothing of the candidate.
        assert_eq!(judge(ends(2, 2), ends(0, 1)), Ending::Well);
        assert!(matches!(judge(ends(1, 2), ends(1, 1)), Ending::Alike(_)));
        assert!(matches!(judge(ends(0, 2), ends(1, 2)), Ending::Doubtful(_)));
        let Ending::Hangs(what) = judge(ends(0, 2), ends(2, 2)) else {
            panic!("it hangs");
        };
        assert!(what.contains("2 of 2 servers of the candidate"), "{what}");
    }
}
