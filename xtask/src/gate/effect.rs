//! Whether the switches that a side sets did anything.
//!
//! A patch may refuse at run time and go on as if its switch were off: a model that it does not know,
//! a library that is not there, a base whose graphs have changed. It says so in the log, and nothing
//! else tells: off equals off, and the gate passes. So a patch declares what its switches say
//! (`log` in `patch.toml`), and each server's log is read when the server has ended, and so is that of
//! each program that reads logits.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader};
use std::path::Path;

use crate::error::{Error, Result};
use crate::model::{PatchManifest, SaysWhen, SwitchLog};

/// Letters of a line of a log that are shown.
const SHOWN: usize = 240;

/// What switches say, by name.
#[derive(Clone, Debug, Default)]
pub struct Effects {
    said: BTreeMap<String, SwitchLog>,
}

/// One server, or one probe, that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Ran<'a> {
    /// Its variables.
    pub env: &'a BTreeMap<String, String>,
    /// Whether it drafted with NextN heads.
    pub drafts: bool,
    /// Whether it is of the patches that declare what it says: else it may say the same in other words.
    pub is_ours: bool,
}

/// What the log of one server tells of its switches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Told {
    /// Why a switch did not do what it is taken for.
    pub doubt: Option<String>,
    /// Of each switch that should have worked there: where it only stood aside, the line that says so.
    pub aside: BTreeMap<String, Option<String>>,
}

/// How often a switch stood aside on the servers of one side.
#[derive(Clone, Debug, Default)]
pub struct Asides {
    servers: usize,
    aside: usize,
    line: String,
}

impl Asides {
    /// Takes note of one more server.
    pub fn add(&mut self, line: Option<String>) {
        self.servers += 1;
        if let Some(line) = line {
            self.aside += 1;
            self.line = line;
        }
    }

    /// Why `switch` did nothing in a whole gate, where it stood aside on every server.
    pub fn doubt(&self, switch: &str) -> Option<String> {
        (self.aside > 0 && self.aside == self.servers).then(|| {
            format!(
                "{switch} is set, and stood aside on each of {} servers: \"{}\"",
                self.servers, self.line
            )
        })
    }
}

impl Effects {
    /// What the patches declare.
    pub fn of<'a>(patches: impl Iterator<Item = &'a PatchManifest>) -> Self {
        let said = patches.flat_map(|patch| patch.log.clone());
        Effects {
            said: said.collect(),
        }
    }

    /// Whether `switch` does something only where something is drafted, as its patch declares it.
    pub fn is_for_drafts(&self, switch: &str) -> bool {
        let said = self.said.get(switch);
        said.is_some_and(|said| said.says.is_some() && said.when != SaysWhen::Always)
    }

    /// What the `log` that a server left tells of its switches.
    pub fn told(&self, ran: Ran<'_>, log: &Path) -> Result<Told> {
        if self.said.is_empty() {
            return Ok(Told::default());
        }
        let file = fs_err::File::open(log)?;
        let lines = BufReader::new(file).split(b'\n').map(|line| {
            let line = line.map_err(|error| {
                Error::from(error).context(format!("reading the log {}", log.display()))
            })?;
            Ok(String::from_utf8_lossy(&line).into_owned())
        });
        self.told_in(ran, lines)
    }

    fn told_in(&self, ran: Ran<'_>, lines: impl Iterator<Item = Result<String>>) -> Result<Told> {
        let on: Vec<(&String, &SwitchLog)> = (self.said.iter())
            .filter(|(name, _)| ran.env.get(*name).is_some_and(|value| is_on(value)))
            .collect();
        // What is planted makes the others refuse, which is what is looked at then.
        if on.is_empty() || on.iter().any(|(_, said)| said.fault) {
            return Ok(Told::default());
        }
        let works =
            |said: &SwitchLog| said.says.is_some() && (ran.drafts || said.when == SaysWhen::Always);
        let asked = on.iter().filter(|(_, said)| works(said));
        let asked: BTreeSet<&String> = asked.map(|(name, _)| *name).collect();
        let (mut said_so, mut aside) = (BTreeSet::new(), BTreeMap::new());
        let shown = |line: &str| -> String { line.trim().chars().take(SHOWN).collect() };
        for line in lines {
            let line = line?;
            for (name, said) in &on {
                let has = |text: &String| holds(&line, text);
                if said.aside.iter().any(has) {
                    aside.entry(*name).or_insert_with(|| shown(&line));
                } else if said.refuses.iter().any(has) {
                    let what = format!("{name} is set, and had no effect: \"{}\"", shown(&line));
                    return Ok(Told {
                        doubt: Some(what),
                        ..Told::default()
                    });
                } else if said.says.as_ref().is_some_and(has) {
                    said_so.insert(*name);
                }
            }
        }
        let is_silent = |name: &&&String| !said_so.contains(**name) && !aside.contains_key(**name);
        let silent = asked.iter().filter(|_| ran.is_ours).find(is_silent);
        let doubt = silent.and_then(|name| {
            let says = self.said.get(*name)?.says.as_ref()?;
            Some(format!(
                "{name} is set, and nothing shows an effect: the log does not say \"{says}\""
            ))
        });
        let only_aside = |name: &String| match said_so.contains(name) {
            true => None,
            false => aside.get(name).cloned(),
        };
        Ok(Told {
            doubt,
            aside: (asked.into_iter())
                .map(|name| (name.clone(), only_aside(name)))
                .collect(),
        })
    }
}

/// Whether a switch of this value is on.
fn is_on(value: &str) -> bool {
    !value.is_empty() && value != "0"
}

/// Whether `line` holds the parts of `text`, which `*` parts, one behind the other.
fn holds(line: &str, text: &str) -> bool {
    let mut rest = Some(line);
    for part in text.split('*') {
        rest = rest.and_then(|rest| Some(&rest[rest.find(part)? + part.len()..]));
    }
    rest.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = r#"
schema = 1
id = "a"
title = "A"
purpose = "B"
switches = ["OPENCOTI_FUSED", "OPENCOTI_DEVICE", "OPENCOTI_KERNELS", "OPENCOTI_FAIL"]
[log.OPENCOTI_FUSED]
says = "drafts of up to * tokens are done in one launch"
refuses = ["drafts are done in a loop", "drafts in one graph *are off"]
aside = ["drafts are done in a loop: p_min"]
[log.OPENCOTI_DEVICE]
refuses = ["goes through host memory"]
[log.OPENCOTI_KERNELS]
says = "kernels are"
when = "always"
[log.OPENCOTI_FAIL]
fault = true
"#;

    fn doubt(env: &[&str], drafts: bool, is_ours: bool, log: &str) -> Option<String> {
        told(env, drafts, is_ours, log).doubt
    }

    fn told(env: &[&str], drafts: bool, is_ours: bool, log: &str) -> Told {
        let manifest: PatchManifest = toml::from_str(MANIFEST).unwrap();
        let effects = Effects::of([manifest].iter());
        let env: BTreeMap<String, String> = (env.iter())
            .map(|set| {
                let (name, value) = set.split_once('=').unwrap();
                (format!("OPENCOTI_{name}"), value.to_owned())
            })
            .collect();
        let ran = Ran {
            env: &env,
            drafts,
            is_ours,
        };
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("log");
        std::fs::write(&file, log).unwrap();
        effects.told(ran, &file).unwrap()
    }

    const ONE: &str =
        "0.1 I init: NextN drafts of up to 3 tokens are done in one launch, buffers\n";
    const LOOP: &str = "0.1 I init: NextN drafts are done in a loop: no compute buffers\n";
    const WINDOW: &str = "0.1 I init: NextN drafts are done in a loop: p_min may end them\n";
    const HOST: &str = "0.9 W a checkpoint goes through host memory: no memory\n";

    #[test]
    fn a_switch_that_works_is_no_doubt() {
        assert_eq!(doubt(&["FUSED=1", "DEVICE=1"], true, true, ONE), None);
        // One that is off may say what it likes.
        for off in [&["FUSED=0"][..], &["FUSED="], &[], &["OTHER=1"]] {
            assert_eq!(doubt(off, true, true, LOOP), None, "{off:?}");
        }
    }

    #[test]
    fn a_refusal_is_a_doubt_wherever_it_stands() {
        let late = format!("{ONE}{}{HOST}", "x\n".repeat(1 << 20));
        let found = doubt(&["FUSED=1", "DEVICE=1"], true, true, &late).unwrap();
        assert!(
            found.contains("OPENCOTI_DEVICE is set, and had no effect"),
            "{found}"
        );
        assert!(
            found.contains("goes through host memory: no memory"),
            "{found}"
        );
        // Without drafts, and of other builds, too.
        assert!(doubt(&["DEVICE=1"], false, false, HOST).is_some());
        let found = doubt(&["FUSED=always"], true, true, LOOP).unwrap();
        assert!(found.contains("no compute buffers"), "{found}");
        let parts = format!("{ONE}W drafts in one graph with the catch-up are off: no memory\n");
        assert!(doubt(&["FUSED=1"], true, true, &parts).is_some());
        // Parts that stand the other way round are something else.
        let turned = format!("{ONE}W are off: drafts in one graph\n");
        assert_eq!(doubt(&["FUSED=1"], true, true, &turned), None);
    }

    #[test]
    fn silence_is_a_doubt_where_drafts_were_made() {
        let found = doubt(&["FUSED=1"], true, true, "I listening\n").unwrap();
        assert!(found.contains("nothing shows an effect"), "{found}");
        assert_eq!(doubt(&["FUSED=1"], false, true, "I listening\n"), None);
        // Another version may say it in other words.
        assert_eq!(doubt(&["FUSED=1"], true, false, "I listening\n"), None);
    }

    #[test]
    fn what_stands_aside_for_a_reason_is_no_refusal() {
        assert_eq!(doubt(&["FUSED=1"], true, true, WINDOW), None);
        let both = format!("{WINDOW}{LOOP}");
        assert!(doubt(&["FUSED=1"], true, true, &both).is_some());
    }

    #[test]
    fn a_planted_fault_is_meant_to_be_refused() {
        assert_eq!(doubt(&["DEVICE=1", "FAIL=1"], true, true, HOST), None);
        assert!(doubt(&["DEVICE=1", "FAIL=0"], true, true, HOST).is_some());
    }

    #[test]
    fn a_switch_that_works_always_says_so_without_drafts() {
        assert_eq!(
            doubt(&["KERNELS=all"], false, true, "W kernels are: x\n"),
            None
        );
        let found = doubt(&["KERNELS=all"], false, true, "W x\n").unwrap();
        assert!(
            found.contains("OPENCOTI_KERNELS is set, and nothing shows"),
            "{found}"
        );
        assert_eq!(doubt(&["KERNELS=0"], false, true, "W x\n"), None);
    }

    #[test]
    fn what_stands_aside_everywhere_did_nothing() {
        let over = |logs: &[&str]| {
            let mut asides = Asides::default();
            for log in logs {
                let told = told(&["FUSED=1", "DEVICE=1"], true, true, log);
                assert_eq!(told.aside.len(), 1, "one switch should have worked");
                asides.add(told.aside["OPENCOTI_FUSED"].clone());
            }
            asides.doubt("OPENCOTI_FUSED")
        };
        let found = over(&[WINDOW, WINDOW]).unwrap();
        assert!(
            found.contains("stood aside on each of 2 servers"),
            "{found}"
        );
        assert!(found.contains("p_min may end them"), "{found}");
        assert_eq!(over(&[WINDOW, ONE]), None);
        // One server may do both, as in two contexts.
        assert_eq!(over(&[&format!("{WINDOW}{ONE}")]), None);
        // Without drafts nothing was to work.
        assert!(told(&["FUSED=1"], false, true, WINDOW).aside.is_empty());
    }
}
