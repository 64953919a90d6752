//! Servers that exist only in tests, and a record made with them.

use crate::ctx::{Cancel, Quiet};
use crate::error::Result;
use crate::gate::chash::{Comparison, Findings};
use crate::gate::session::{Answer, Answers, Halt, Prompt, Run, Runner, Session};
use crate::model::{
    Artifact, Digest, Flavour, GateKind, GateRecord, ModelStamp, PatchSetStamp, PromptStamp,
    SideStamp, Verdict,
};

/// Tokens that every fake answer has.
pub const N_PREDICT: usize = 8;

/// A runner whose answers depend on nothing but the prompt, before `change` changes them.
pub struct Fake<'a>(pub &'a (dyn Fn(&Session<'_>, usize, &mut [Answer]) + Sync));

impl Runner for Fake<'_> {
    fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
        halt.check()?;
        let answer = |prompt: &&Prompt| Answer {
            tokens: (0..N_PREDICT as u32)
                .map(|n| prompt.ids[0] * 100 + n)
                .collect(),
            drafted: u64::from(session.n_max) * 4,
            accepted: u64::from(session.n_max) * 3,
            counters: None,
        };
        let waves = session.waves.iter().enumerate().map(|(at, wave)| {
            let mut answers: Vec<Answer> = wave.iter().map(answer).collect();
            (self.0)(session, at, &mut answers);
            answers
        });
        Ok(Answers {
            waves: waves.collect(),
            busy_slots: Some(session.slots as f64),
            drafts: None,
            trace: None,
            vocabulary: None,
        })
    }
}

/// Three prompts.
pub fn prompts() -> Vec<Prompt> {
    let prompt = |(at, name): (usize, &&str)| Prompt {
        name: (*name).to_owned(),
        ids: vec![at as u32 + 1],
    };
    ["a", "b", "c"].iter().enumerate().map(prompt).collect()
}

/// Compares with [`Fake`] servers.
pub fn compare(change: &(dyn Fn(&Session<'_>, usize, &mut [Answer]) + Sync)) -> Result<Findings> {
    with(&Fake(change), false)
}

/// Compares with `runner`.
pub fn with(runner: &dyn Runner, drafted_equals_plain: bool) -> Result<Findings> {
    let prompts = prompts();
    let comparison = Comparison {
        prompts: &prompts,
        n_max: &[0, 3],
        slots: &[1, 2],
        settings: &[crate::gate::definition::Setting::default()],
        n_predict: N_PREDICT,
        drafted_equals_plain,
        parallel: 2,
    };
    comparison.run(runner, &Halt::new(&Cancel::default()), &Quiet)
}

/// One fault of each sort, in cells of their own: a candidate that differs, a control that
/// differs, no drafts, other drafts, and tokens that depend on drafting.
pub fn tangle(session: &Session<'_>, wave: usize, answers: &mut [Answer]) {
    match (session.run, session.n_max, session.slots, wave) {
        (Run::Candidate, 3, 1, 1) => answers[0].tokens[5] = 7,
        (Run::Control, 0, 2, 0) => answers[1].tokens[0] = 8,
        (_, 3, 2, 2) => {
            answers
                .iter_mut()
                .for_each(|a| (a.drafted, a.accepted) = (0, 0));
        }
        (Run::Candidate, 3, 2, 0) => answers[0].drafted = 11,
        (_, 3, 1, 2) => answers[0].tokens[7] = 9,
        _ => {}
    }
}

/// A whole record.
pub fn record(change: &(dyn Fn(&Session<'_>, usize, &mut [Answer]) + Sync)) -> GateRecord {
    let findings = compare(change).unwrap();
    let side = |flavour, patches: &[&str]| SideStamp {
        server: format!("target/llama/base/{flavour}-cpu/out/bin/llama-server"),
        base: Some("base".to_owned()),
        flavour: Some(flavour),
        patchset: (flavour == Flavour::Patched).then(|| PatchSetStamp {
            id: Digest::of(b"set"),
            patches: patches.iter().map(|id| (*id).to_owned()).collect(),
        }),
        source: Some(Digest::of(b"source")),
        env: Vec::new(),
        unverified: Vec::new(),
        device: None,
        artifacts: vec![Artifact {
            path: "out/bin/llama-server".to_owned(),
            size: 1,
            sha256: Digest::of(flavour.to_string().as_bytes()),
            content: None,
        }],
    };
    GateRecord {
        schema: 1,
        run: None,
        gate: "chash".to_owned(),
        kind: GateKind::Chash,
        title: "Same tokens".to_owned(),
        definition: Digest::of(b"definition"),
        started: "2026-01-02T03:04:05Z".to_owned(),
        seconds: 12.34,
        quick: false,
        verdict: Verdict::all(findings.cells.iter().map(|cell| cell.verdict)),
        reason: None,
        model: ModelStamp {
            name: "tiny".to_owned(),
            size: 3,
            sha256: Digest::of(b"gguf"),
        },
        baseline: side(Flavour::Vanilla, &[]),
        candidate: side(Flavour::Patched, &["one", "two"]),
        n_predict: N_PREDICT,
        n_max: vec![0, 3],
        slots: vec![1, 2],
        prompts: prompts()
            .iter()
            .map(|prompt| PromptStamp {
                name: prompt.name.clone(),
                length: 1,
                sha256: Digest::of(b""),
                text: None,
            })
            .collect(),
        perf: None,
        acceptance: Vec::new(),
        checks: Vec::new(),
        logits: Vec::new(),
        probes: Vec::new(),
        counters: Vec::new(),
        retrieval: Vec::new(),
        golden: None,
        cells: findings.cells,
        drafted_against_plain: findings.drafted_against_plain,
        notes: findings.notes,
    }
}
