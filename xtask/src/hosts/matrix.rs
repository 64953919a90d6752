//! All hosts in one table, with one verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::Kind;
use crate::error::Error;
use crate::gate::missing::counted;
use crate::gate::table::aligned;
use crate::hosts::Task;
use crate::hosts::probe::Facts;
use crate::model::{SkippedGate, Verdict};

/// What gates said on several hosts.
#[derive(Clone, Debug, Serialize)]
pub struct Matrix {
    /// In the order in which they were named.
    pub hosts: Vec<OneHost>,
}

/// One host.
#[derive(Clone, Debug, Serialize)]
pub struct OneHost {
    /// Its name.
    pub name: String,
    /// How far it came.
    pub state: State,
    /// Why it came no further.
    pub error: Option<Problem>,
    /// The run of the store that holds its records; absent where none was begun.
    pub run: Option<String>,
    /// What it says of itself.
    pub facts: Option<Facts>,
    /// Whether its gates were named: then a skipped one is no pass.
    pub named: bool,
    /// Its gates.
    pub gates: Vec<Cell>,
    /// The gates that compute there, by each backend that it declares.
    #[serde(skip)]
    pub backends: BTreeMap<String, BTreeSet<String>>,
    /// Folders there that nobody had touched for a while, and that were removed.
    pub removed: Vec<String>,
    /// The folder there that could not be removed.
    pub left: Option<String>,
    /// Server logs that came back.
    pub logs: Vec<PathBuf>,
    /// Seconds.
    pub seconds: f64,
}

/// How far a host came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// Every gate was run there, or skipped for a reason.
    Done,
    /// Nothing ran there.
    Unable,
    /// It dropped out, or its gates broke off: some of them have no record.
    Broken,
}

/// An error, to be shown.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// Its kind.
    pub kind: Kind,
    /// What happened.
    pub message: String,
    /// What to do.
    pub hints: Vec<String>,
}

/// One gate on one host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cell {
    /// The gate.
    pub gate: String,
    /// What it said; absent where there is no record.
    pub verdict: Option<Verdict>,
    /// Why, where it is not a pass.
    pub reason: Option<String>,
    /// The record.
    pub file: Option<PathBuf>,
}

impl Cell {
    /// One without a record.
    pub fn missing(gate: &str) -> Self {
        Cell {
            gate: gate.to_owned(),
            verdict: None,
            reason: None,
            file: None,
        }
    }

    /// One that did not run for a reason.
    pub fn skipped(gate: &SkippedGate) -> Self {
        Cell {
            verdict: Some(Verdict::Skipped),
            reason: Some(format!("{}; {}", gate.reason, gate.hint)),
            ..Self::missing(&gate.gate)
        }
    }
}

impl OneHost {
    /// Before anything was done.
    pub fn new(task: &Task) -> Self {
        OneHost {
            name: task.host.name.clone(),
            state: State::Unable,
            error: None,
            run: None,
            facts: None,
            named: task.named,
            gates: (task.plans.iter())
                .map(|plan| Cell::missing(&plan.common().definition.id))
                .chain(task.skipped.iter().map(Cell::skipped))
                .collect(),
            backends: task.backends.clone(),
            removed: Vec::new(),
            left: None,
            logs: Vec::new(),
            seconds: 0.0,
        }
    }

    /// One on which nothing was run.
    pub fn failed(task: &Task, error: Error) -> Self {
        let mut one = Self::new(task);
        one.fail(&error);
        one
    }

    /// Takes note of why it came no further.
    pub fn fail(&mut self, error: &Error) {
        if self.state == State::Done {
            self.state = State::Broken;
        }
        self.error = Some(Problem {
            kind: error.kind(),
            message: error.to_string(),
            hints: error.hints().to_vec(),
        });
    }

    /// Over its gates; one without a record is inconclusive. So is a host that was to compute on something, and
    /// on which nothing did: what passes on its processors says nothing of its GPU.
    pub fn verdict(&self) -> Verdict {
        let cells = self.gates.iter().map(|cell| {
            let verdict = cell.verdict.unwrap_or(Verdict::Inconclusive);
            counted(verdict, self.named)
        });
        let idle = self.idle().into_iter().map(|_| Verdict::Inconclusive);
        Verdict::all(cells.chain(idle))
    }

    /// Backends that it declares and of which every gate was skipped, or none is there though no gate was named.
    pub fn idle(&self) -> Vec<&str> {
        let is_skipped = |gate: &String| {
            let cell = self.gates.iter().find(|cell| cell.gate == *gate);
            cell.is_some_and(|cell| cell.verdict == Some(Verdict::Skipped))
        };
        let is_idle = |gates: &BTreeSet<String>| match gates.is_empty() {
            true => !self.named,
            false => gates.iter().all(is_skipped),
        };
        let idle = self.backends.iter().filter(|(_, gates)| is_idle(gates));
        idle.map(|(backend, _)| backend.as_str()).collect()
    }
}

impl Matrix {
    /// The exit code's kind: a finding anywhere is one; else a host that could not do its work leaves
    /// the whole undone; else what is not a pass everywhere is inconclusive. `None` where all is good.
    pub fn kind(&self) -> Option<Kind> {
        let found = |one: &OneHost| {
            let error = one.error.as_ref().map(|error| error.kind);
            one.verdict() == Verdict::Fail || error == Some(Kind::Finding)
        };
        let undone = |one: &OneHost| {
            let error = one.error.as_ref().map(|error| error.kind);
            let broken = one.state != State::Done && error != Some(Kind::Inconclusive);
            broken || one.is_lacking()
        };
        if self.hosts.iter().any(found) {
            Some(Kind::Finding)
        } else if self.hosts.iter().any(undone) {
            Some(Kind::Environment)
        } else if self.hosts.is_empty() || self.hosts.iter().any(|one| !one.is_good()) {
            Some(Kind::Inconclusive)
        } else {
            None
        }
    }

    /// Runs of the store, in the order of the hosts.
    pub fn runs(&self) -> Vec<String> {
        self.hosts
            .iter()
            .filter_map(|one| one.run.clone())
            .collect()
    }

    /// Gates down, hosts across, then what is not a pass.
    pub fn text(&self) -> String {
        let mut gates: Vec<&str> = Vec::new();
        for cell in self.hosts.iter().flat_map(|one| &one.gates) {
            if !gates.contains(&cell.gate.as_str()) {
                gates.push(&cell.gate);
            }
        }
        let names = self.hosts.iter().map(|one| one.name.clone());
        let mut rows = vec![std::iter::once("gate".to_owned()).chain(names).collect()];
        for gate in &gates {
            let cells = self.hosts.iter().map(|one| {
                let cell = one.gates.iter().find(|cell| cell.gate == **gate);
                match cell.map(|cell| (cell.verdict, one.state)) {
                    None => "-".to_owned(),
                    Some((Some(verdict), _)) => verdict.to_string(),
                    Some((None, State::Unable)) => "not run".to_owned(),
                    Some((None, _)) => "NO RECORD".to_owned(),
                }
            });
            rows.push(std::iter::once((*gate).to_owned()).chain(cells).collect());
        }
        let hosts = self.hosts.iter().map(|one| match one.state {
            State::Done => one.verdict().to_string(),
            State::Unable => "COULD NOT RUN".to_owned(),
            State::Broken => "BROKE OFF".to_owned(),
        });
        rows.push(std::iter::once("all".to_owned()).chain(hosts).collect());
        let mut text = aligned(&rows);
        for one in &self.hosts {
            let mut lines = Vec::new();
            if let Some(error) = &one.error {
                lines.push(error.message.clone());
                lines.extend(error.hints.iter().map(|hint| format!("  hint: {hint}")));
            }
            for cell in &one.gates {
                let reason = cell
                    .reason
                    .as_ref()
                    .filter(|_| cell.verdict != Some(Verdict::Pass));
                lines.extend(reason.map(|reason| format!("{}: {reason}", cell.gate)));
            }
            let is_skipped = |cell: &&Cell| cell.verdict == Some(Verdict::Skipped);
            let skipped = one.gates.iter().filter(is_skipped).count();
            if skipped > 0 {
                let of = one.gates.len();
                lines.push(format!("{skipped} of {of} gates skipped, which is no pass"));
            }
            for backend in one.idle() {
                lines.push(format!(
                    "nothing was computed on {backend}: every gate of it was skipped, or there is none; mend that, or \
                     take {backend} out of its `backends`"
                ));
            }
            if let Some(left) = &one.left {
                lines.push(format!("{left} is left there; a later run removes it"));
            }
            for line in lines {
                text.push_str(&format!("{}: {line}\n", one.name));
            }
        }
        text
    }
}

impl OneHost {
    /// Whether it lacks what a gate needs that was named. A gate with a record said something.
    fn is_lacking(&self) -> bool {
        let mut gates = self.gates.iter();
        self.named
            && gates.any(|cell| cell.verdict == Some(Verdict::Skipped) && cell.file.is_none())
    }

    fn is_good(&self) -> bool {
        self.state == State::Done && self.verdict() == Verdict::Pass
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(name: &str, state: State, verdicts: &[Option<Verdict>]) -> OneHost {
        OneHost {
            name: name.to_owned(),
            state,
            error: None,
            run: None,
            facts: None,
            named: false,
            gates: (verdicts.iter().enumerate())
                .map(|(at, verdict)| Cell {
                    verdict: *verdict,
                    ..Cell::missing(&format!("g{at}"))
                })
                .collect(),
            backends: BTreeMap::new(),
            removed: Vec::new(),
            left: None,
            logs: Vec::new(),
            seconds: 1.0,
        }
    }

    fn kind(hosts: &[OneHost]) -> Option<Kind> {
        let hosts = hosts.to_vec();
        Matrix { hosts }.kind()
    }

    #[test]
    fn only_what_passed_everywhere_is_green() {
        use State::{Broken, Done, Unable};
        use Verdict::{Fail, Inconclusive, Pass, Skipped};
        let good = || one("a", Done, &[Some(Pass), Some(Skipped)]);
        assert_eq!(kind(&[good(), good()]), None);
        assert_eq!(kind(&[]), Some(Kind::Inconclusive));
        assert_eq!(kind(&[one("b", Done, &[])]), Some(Kind::Inconclusive));
        let unclear = || one("b", Done, &[Some(Inconclusive)]);
        assert_eq!(kind(&[good(), unclear()]), Some(Kind::Inconclusive));
        let lost = || one("b", Broken, &[Some(Pass), None]);
        assert_eq!(kind(&[good(), lost(), unclear()]), Some(Kind::Environment));
        assert_eq!(
            kind(&[good(), one("b", Unable, &[None])]),
            Some(Kind::Environment)
        );
        let failed = || one("b", Done, &[Some(Fail)]);
        assert_eq!(kind(&[lost(), failed(), unclear()]), Some(Kind::Finding));
        // One that fell and had failed before.
        let fell = one("b", Broken, &[Some(Fail), None]);
        assert_eq!(kind(&[good(), fell]), Some(Kind::Finding));
        // Every gate there has a record, and yet it did not come to its end.
        assert_eq!(
            kind(&[one("b", Broken, &[Some(Pass)])]),
            Some(Kind::Environment)
        );
        let mut named = good();
        named.named = true;
        assert_eq!(
            kind(&[named.clone()]),
            Some(Kind::Environment),
            "a named one lacks something"
        );
        assert_eq!(kind(&[named.clone(), failed()]), Some(Kind::Finding));
        named.gates[1].file = Some("record.json".into());
        assert_eq!(
            kind(&[named]),
            Some(Kind::Inconclusive),
            "a named one has nothing to say"
        );
        let mut wrong = one("b", Unable, &[None]);
        wrong.fail(&Error::finding("a build is stale"));
        assert_eq!(kind(&[good(), wrong]), Some(Kind::Finding));
    }

    #[test]
    fn a_host_on_whose_gpu_nothing_ran_is_not_green() {
        use Verdict::{Pass, Skipped};
        let on = |verdicts: &[Option<Verdict>], gates: &[&str], named| {
            let mut host = one("gpu", State::Done, verdicts);
            let set = |gates: &[&str]| gates.iter().map(|gate| (*gate).to_owned()).collect();
            host.backends.insert("cpu".to_owned(), set(&["g0"]));
            host.backends.insert("cuda".to_owned(), set(gates));
            host.named = named;
            let text = Matrix {
                hosts: vec![host.clone()],
            }
            .text();
            assert_eq!(
                text.contains("nothing was computed on cuda"),
                host.idle() == ["cuda"]
            );
            kind(&[host])
        };
        let part = [Some(Pass), Some(Skipped), Some(Pass)];
        assert_eq!(on(&part, &["g1", "g2"], false), None);
        assert_eq!(on(&part, &["g1"], false), Some(Kind::Inconclusive));
        // A build that is not there leaves no gate to be brought.
        assert_eq!(on(&[Some(Pass)], &[], false), Some(Kind::Inconclusive));
        assert_eq!(
            on(&[Some(Pass)], &[], true),
            None,
            "whoever names gates wants these"
        );
    }

    #[test]
    fn the_table_has_every_gate_of_every_host() {
        let mut lost = one("far", State::Broken, &[Some(Verdict::Pass), None]);
        lost.fail(&Error::environment("it is gone").hint("look"));
        lost.left = Some("run-1".to_owned());
        let near = one("near", State::Done, &[Some(Verdict::Fail)]);
        let few = one(
            "few",
            State::Done,
            &[Some(Verdict::Pass), Some(Verdict::Skipped)],
        );
        let said = Matrix { hosts: vec![few] }.text();
        assert!(
            said.ends_with("few: 1 of 2 gates skipped, which is no pass\n"),
            "{said}"
        );
        let matrix = Matrix {
            hosts: vec![lost, near],
        };
        let text = matrix.text();
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|l| l.split_whitespace().collect())
            .collect();
        assert_eq!(lines[0], ["gate", "far", "near"]);
        assert_eq!(lines[2], ["g0", "pass", "fail"]);
        assert_eq!(lines[3], ["g1", "NO", "RECORD", "-"]);
        assert_eq!(lines[4], ["all", "BROKE", "OFF", "fail"]);
        for said in ["far: it is gone", "hint: look", "run-1 is left there"] {
            assert!(text.contains(said), "{text}");
        }
    }
}
