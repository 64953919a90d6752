//! What gates ask of servers, without saying how: comparisons are written against [`Runner`],
//! so that their verdicts can be tested without a server.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::ctx::Cancel;
use crate::error::{Error, Kind, Result};

/// A prompt as token ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Prompt {
    /// Name, unique in its definition.
    pub name: String,
    /// The ids.
    pub ids: Vec<u32>,
}

/// Which of a comparison's runs it is. Each is a server process of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Run {
    /// What is compared with.
    Baseline,
    /// The same build again: the A/A control.
    Control,
    /// What is judged.
    Candidate,
}

impl Run {
    /// Name in messages and log files.
    pub fn name(self) -> &'static str {
        match self {
            Run::Baseline => "baseline",
            Run::Control => "control",
            Run::Candidate => "candidate",
        }
    }
}

/// One server's life: its settings, and the waves of prompts that it is sent one after another.
#[derive(Clone, Debug)]
pub struct Session<'a> {
    /// Which run.
    pub run: Run,
    /// Longest draft; 0 is plain decoding.
    pub n_max: u32,
    /// Slots of the server.
    pub slots: usize,
    /// More flags of the server.
    pub flags: &'a [String],
    /// Name of the setting that the flags are, where drafts are to be traced.
    pub trace: Option<&'a str>,
    /// Each wave fills all slots at the same moment.
    pub waves: Vec<Vec<&'a Prompt>>,
}

/// One generated sequence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Token ids.
    pub tokens: Vec<u32>,
    /// Tokens drafted.
    pub drafted: u64,
    /// Drafted tokens that were accepted.
    pub accepted: u64,
    /// What `spec-counters` reports, by name; absent where it is not switched on.
    pub counters: Option<BTreeMap<String, u64>>,
}

/// What a server has counted of its drafts since it started.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DraftCounts {
    /// Drafts that were verified.
    pub drafts: u64,
    /// Tokens in them.
    pub drafted: u64,
    /// Of them accepted.
    pub accepted: u64,
    /// Of them accepted, by their place in the draft.
    pub by_position: Vec<u64>,
}

/// What a session gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Answers {
    /// In the order of the session's waves and of their prompts.
    pub waves: Vec<Vec<Answer>>,
    /// Slots busy at the same time, averaged over all decodes, where the server tells.
    pub busy_slots: Option<f64>,
    /// What the server has counted of its drafts, where it drafts and tells.
    pub drafts: Option<DraftCounts>,
    /// What `spec-trace` wrote, where the session asked for it.
    pub trace: Option<String>,
    /// What `nextn-draft-vocab` wrote, where the session asked for a trace and drafts are over a part of the vocabulary.
    pub vocabulary: Option<String>,
}

impl Session<'_> {
    /// Fails where `answers` lacks one of a prompt, or holds one of none: what is absent on both
    /// sides would be taken for equal.
    pub fn check(&self, answers: &Answers) -> Result<()> {
        let sizes = |(wave, found): (&Vec<&Prompt>, &Vec<Answer>)| wave.len() == found.len();
        let waves = self.waves.iter().zip(&answers.waves);
        let whole = self.waves.len() == answers.waves.len()
            && waves.clone().all(sizes)
            && waves
                .clone()
                .all(|(_, found)| found.iter().all(|a| !a.tokens.is_empty()));
        match whole {
            true => Ok(()),
            false => Err(Error::internal("a session gave another number of answers")),
        }
    }
}

/// Runs sessions. Called from several threads at once.
pub trait Runner: Sync {
    /// Starts a server for `session`, sends its waves, ends it. Returns soon after `halt` is
    /// set, with an error, and with no process left.
    fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers>;
}

/// Stops sessions: because the user wants it, or because another session failed.
#[derive(Debug, Default)]
pub struct Halt {
    cancel: Cancel,
    stop: AtomicBool,
    /// When the time budget ends, and what it was.
    until: Option<(Instant, Duration)>,
}

impl Halt {
    /// Follows the user's `cancel`.
    pub fn new(cancel: &Cancel) -> Self {
        Halt {
            cancel: cancel.clone(),
            stop: AtomicBool::new(false),
            until: None,
        }
    }

    /// Stops by itself after `budget` seconds from now.
    #[must_use]
    pub fn within(mut self, budget: Option<u64>) -> Self {
        self.until = budget.and_then(|seconds| {
            let budget = Duration::from_secs(seconds);
            Some((Instant::now().checked_add(budget)?, budget))
        });
        self
    }

    /// Whether the time budget is used up, and the user has not stopped all before.
    pub fn is_late(&self) -> bool {
        !self.cancel.is_set() && self.until.is_some_and(|(end, _)| Instant::now() >= end)
    }

    /// Stops the other sessions.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::SeqCst);
    }

    /// Whether to stop.
    pub fn is_set(&self) -> bool {
        self.cancel.is_set() || self.stop.load(Ordering::SeqCst) || self.is_late()
    }

    /// Fails once it is set: with [`Kind::Inconclusive`] where the time budget is used up, else
    /// with [`Kind::Interrupted`].
    pub fn check(&self) -> Result<()> {
        if let Some((_, budget)) = self.until
            && self.is_late()
        {
            let seconds = budget.as_secs();
            let message = format!("the time budget of {seconds} s is used up");
            Err(Error::new(Kind::Inconclusive, message)
                .hint("raise budget in the gate's definition, or run it on a quieter machine"))
        } else if self.is_set() {
            Err(Error::interrupted())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_prompt_has_one_answer_with_tokens() {
        let prompt = Prompt {
            name: String::new(),
            ids: vec![1],
        };
        let session = Session {
            run: Run::Baseline,
            n_max: 0,
            slots: 2,
            flags: &[],
            trace: None,
            waves: vec![vec![&prompt, &prompt], vec![&prompt]],
        };
        let check = |sizes: &[usize], tokens: &[u32]| {
            let answer = Answer {
                tokens: tokens.to_vec(),
                ..Answer::default()
            };
            let waves = sizes.iter().map(|size| vec![answer.clone(); *size]);
            session.check(&Answers {
                waves: waves.collect(),
                ..Answers::default()
            })
        };
        check(&[2, 1], &[7]).unwrap();
        for sizes in [&[][..], &[2], &[2, 0], &[1, 1], &[2, 2], &[2, 1, 1]] {
            assert!(check(sizes, &[7]).is_err(), "{sizes:?}");
        }
        assert!(check(&[2, 1], &[]).is_err());
    }
}
