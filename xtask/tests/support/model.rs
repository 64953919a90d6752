//! A model that computes next to nothing, but as a real one does it: what it gives next depends on
//! everything in its KV cache, and what it drafts is traced. Faults can be planted in it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use llama_patchset::Result;
use llama_patchset::ctx::{Cancel, Quiet};
use llama_patchset::gate::definition::Setting;
use llama_patchset::gate::session::{Answer, Answers, Halt, Prompt, Run, Runner, Session};
use llama_patchset::gate::{acceptance, chash, drafts};
use llama_patchset::model::{DraftsSetting, Verdict};

/// Tokens of each sequence.
const N_PREDICT: usize = 48;

/// What is planted in the candidate, unless it says otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// One id of one draft.
    DraftToken,
    /// One unit in the last place of one logit of one draft.
    DraftUlp,
    /// The cell before the one that is meant, from the 30th token on.
    KvOffByOne,
    /// The last token alone.
    LastToken,
    /// Every process of both sides starts from other numbers.
    Random,
    /// Neither side drafts.
    NoDrafts,
    /// The candidate does not count.
    NoCounters,
    /// The candidate launches as often as the baseline.
    SameLaunches,
    /// The candidate's drafts are accepted half as often.
    FewerAccepted,
}

/// Which gate looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// Same tokens.
    Chash,
    /// Same drafts.
    Drafts,
    /// No fewer accepted.
    Acceptance,
}

struct Model {
    fault: Fault,
    starts: AtomicU32,
}

impl Model {
    /// The tokens after `prompt`.
    fn generate(&self, prompt: &Prompt, is_candidate: bool, start: u32) -> Vec<u32> {
        let here = |fault| is_candidate && self.fault == fault;
        let mut cells = prompt.ids.clone();
        let mut tokens = Vec::new();
        for step in 0..N_PREDICT {
            let skip = usize::from(here(Fault::KvOffByOne) && step >= 30);
            let read = &cells[..cells.len() - skip];
            let mut next = read.iter().fold(start, |sum, id| {
                sum.wrapping_mul(31).wrapping_add(*id) % 509
            });
            if here(Fault::LastToken) && step + 1 == N_PREDICT {
                next += 1;
            }
            cells.push(next);
            tokens.push(next);
        }
        tokens
    }
}

impl Runner for Model {
    fn run(&self, session: &Session<'_>, _: &Halt) -> Result<Answers> {
        let is_candidate = session.run == Run::Candidate;
        let here = |fault| is_candidate && self.fault == fault;
        let start = match self.fault {
            Fault::Random => self.starts.fetch_add(1, Ordering::SeqCst),
            _ => 0,
        };
        let drafted = match (session.n_max, self.fault) {
            (0, _) | (_, Fault::NoDrafts) => 0,
            (n, _) => 400 * u64::from(n),
        };
        let accepted = match here(Fault::FewerAccepted) {
            true => drafted / 4,
            false => drafted / 2,
        };
        let launches = match is_candidate && self.fault != Fault::SameLaunches {
            true => 20,
            false => 40,
        };
        let counters = BTreeMap::from([("launches_dft".to_owned(), launches)]);
        let answer = |prompt: &&Prompt| Answer {
            tokens: self.generate(prompt, is_candidate, start),
            drafted,
            accepted,
            counters: (!here(Fault::NoCounters)).then(|| counters.clone()),
        };
        let waves: Vec<Vec<Answer>> = (session.waves.iter())
            .map(|wave| wave.iter().map(answer).collect())
            .collect();
        Ok(Answers {
            trace: session
                .trace
                .map(|_| self.trace(drafted, start, is_candidate)),
            waves,
            drafts: None,
            busy_slots: Some(session.slots as f64),
            vocabulary: None,
        })
    }
}

impl Model {
    fn trace(&self, drafted: u64, start: u32, is_candidate: bool) -> String {
        let here = |fault| is_candidate && self.fault == fault;
        let steps = if drafted == 0 { 0 } else { 12 };
        let mut text = String::new();
        for step in 0..steps {
            let odd = step == 7;
            let id = 9 + start + u32::from(odd && here(Fault::DraftToken));
            let bits = 0x4100_0000_u32 + u32::from(odd && here(Fault::DraftUlp));
            text.push_str(&format!(
                "0 {} 0 {} {id} 1 {id}:{bits:08x}\n",
                step + 1,
                40 + step
            ));
        }
        text
    }
}

/// Verdict of a gate on a model with a fault, and its first reason.
pub fn judge(fault: Fault, gate: Gate) -> (Verdict, String) {
    let prompt = |name: &str, ids: &[u32]| Prompt {
        name: name.to_owned(),
        ids: ids.to_vec(),
    };
    let prompts = [prompt("a", &[1, 2, 3]), prompt("b", &[4, 5])];
    let runner = Model {
        fault,
        starts: AtomicU32::new(0),
    };
    let halt = Halt::new(&Cancel::default());
    let all: Vec<(Verdict, Option<String>)> = match gate {
        Gate::Chash => {
            let comparison = chash::Comparison {
                prompts: &prompts,
                n_max: &[2],
                slots: &[1],
                settings: &[Setting::default()],
                n_predict: N_PREDICT,
                drafted_equals_plain: false,
                parallel: 1,
            };
            let findings = comparison.run(&runner, &halt, &Quiet).unwrap();
            let cells = findings.cells.into_iter();
            cells.map(|cell| (cell.verdict, cell.reason)).collect()
        }
        Gate::Drafts => {
            let settings = [DraftsSetting {
                name: "plain".to_owned(),
                n_max: vec![2],
                slots: vec![1],
                flags: Vec::new(),
                fewer_launches: true,
                part: false,
                part_rounds: false,
            }];
            let comparison = drafts::Comparison {
                prompts: &prompts,
                settings: &settings,
                n_predict: N_PREDICT,
                parallel: 1,
            };
            let cells = comparison.run(&runner, &halt, &Quiet).unwrap().into_iter();
            cells.map(|cell| (cell.verdict, cell.reason)).collect()
        }
        Gate::Acceptance => {
            let comparison = acceptance::Comparison {
                prompts: &prompts,
                n_max: &[2],
                drop: 0.01,
                least: 0.0,
                parallel: 1,
            };
            let shares = comparison.run(&runner, &halt, &Quiet).unwrap().into_iter();
            shares.map(|share| (share.verdict, share.reason)).collect()
        }
    };
    let verdict = Verdict::all(all.iter().map(|(verdict, _)| *verdict));
    let reason = all.into_iter().find(|(found, _)| *found == verdict);
    (
        verdict,
        reason.and_then(|(_, reason)| reason).unwrap_or_default(),
    )
}
