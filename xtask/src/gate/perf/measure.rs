//! [`Bench`] with real servers.

use std::collections::BTreeMap;

use super::judge::TOKENS;
use super::{Bench, RoundPlan};
use crate::error::{Error, Result, ResultExt};
use crate::gate::chash;
use crate::gate::client::{Sampling, Timed};
use crate::gate::runner::ServerRunner;
use crate::gate::server::Server;
use crate::gate::session::{Halt, Prompt, Run, Session};
use crate::model::{Digest, Metric, RoundRecord, SideSamples};
use crate::stats::paired::right_first;

/// Starts two servers per round, which live side by side; the one that is not asked is idle.
#[derive(Debug)]
pub struct ServerBench<'a> {
    /// Starts servers.
    pub runner: &'a ServerRunner<'a>,
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// Unmeasured runs of every prompt.
    pub warm_up: usize,
}

/// Tokens drafted and accepted, counters, and the digest of the tokens, of one answer.
type Counted = (u64, u64, Option<BTreeMap<String, u64>>, Digest);

/// One running side.
struct Side {
    run: Run,
    /// Name of its log.
    name: String,
    server: Server,
    samples: SideSamples,
    /// What each prompt drafted, accepted and counted the first time.
    first: BTreeMap<String, Counted>,
}

impl Bench for ServerBench<'_> {
    fn round(&self, plan: RoundPlan, halt: &Halt) -> Result<RoundRecord> {
        let other = match plan.control {
            true => Run::Control,
            false => Run::Candidate,
        };
        let mut runs = [Run::Baseline, other];
        if plan.number % 2 == 1 {
            runs.reverse();
        }
        let mut sides = Vec::new();
        for run in runs {
            sides.push(self.start(run, plan, halt)?);
        }
        if plan.number % 2 == 1 {
            sides.reverse();
        }
        let turn = |right_first: bool| if right_first { [1, 0] } else { [0, 1] };
        for _ in 0..self.warm_up {
            for prompt in self.prompts {
                for at in turn(plan.number % 2 == 1) {
                    if let Some(side) = sides.get_mut(at) {
                        self.ask(side, prompt, halt)?;
                    }
                }
            }
        }
        for prompt in self.prompts {
            for right_first in right_first(plan.number, plan.pairs) {
                for at in turn(right_first) {
                    if let Some(side) = sides.get_mut(at) {
                        let (short, long) = self.ask(side, prompt, halt)?;
                        side.add(prompt, &short, &long)?;
                    }
                }
            }
        }
        let mut samples = Vec::new();
        for side in sides {
            samples.push(self.end(side, plan)?);
        }
        let candidate = samples.pop().unwrap_or_default();
        Ok(RoundRecord {
            control: plan.control,
            n_max: plan.n_max,
            baseline: samples.pop().unwrap_or_default(),
            candidate,
        })
    }
}

/// The session of one side of a round.
fn session(run: Run, plan: RoundPlan) -> Session<'static> {
    Session {
        run,
        n_max: plan.n_max,
        slots: 1,
        flags: &[],
        trace: None,
        waves: Vec::new(),
    }
}

impl ServerBench<'_> {
    fn start(&self, run: Run, plan: RoundPlan, halt: &Halt) -> Result<Side> {
        let session = session(run, plan);
        let part = if plan.control { "control" } else { "compare" };
        let name = format!("{part}-n{}-{:03}-{}", plan.n_max, plan.number, run.name());
        let start = || format!("{} with n_max {}", run.name(), plan.n_max);
        Ok(Side {
            run,
            server: self.runner.start(&session, &name, halt).context(start)?,
            name,
            samples: SideSamples::default(),
            first: BTreeMap::new(),
        })
    }

    /// Ends a side, and sums up what it gave.
    fn end(&self, mut side: Side, plan: RoundPlan) -> Result<SideSamples> {
        let mut samples = side.sum();
        if let Some(bytes) = side.server.peak_memory() {
            let values = samples.values.entry(Metric::Rss).or_default();
            values.push(bytes as f64 / f64::from(1 << 20));
        }
        let ended = (self.runner).end(side.server, &session(side.run, plan), &side.name);
        ended.context(|| format!("{} with n_max {}", side.run.name(), plan.n_max))?;
        Ok(samples)
    }

    /// A request for one token, and a request for all of them.
    fn ask(&self, side: &mut Side, prompt: &Prompt, halt: &Halt) -> Result<(Timed, Timed)> {
        let definition = self.runner.definition;
        let sampling = |n_predict| Sampling {
            n_predict,
            seed: definition.seed,
        };
        let run = side.run;
        side.server
            .ask(halt, |client| {
                let short = client.measure(prompt, sampling(1))?;
                Ok((
                    short,
                    client.measure(prompt, sampling(definition.n_predict))?,
                ))
            })
            .context(|| format!("{}, prompt {}", run.name(), prompt.name))
    }
}

impl Side {
    fn add(&mut self, prompt: &Prompt, short: &Timed, long: &Timed) -> Result<()> {
        let speed = |what: &str, speed: Option<f64>| {
            speed.ok_or_else(|| {
                Error::environment(format!(
                    "{} does not tell its speed: no `{what}` above 0 in the timings of prompt {}",
                    self.run.name(),
                    prompt.name
                ))
            })
        };
        let decode = speed("predicted_per_second", long.decode)?;
        let prefill = speed("prompt_per_second", short.prompt)?;
        let values = &mut self.samples.values;
        let mut push = |metric, value| values.entry(metric).or_default().push(value);
        push(Metric::Decode, decode);
        push(Metric::Prompt, prefill);
        push(Metric::FirstToken, 1000.0 * short.wall.as_secs_f64());
        let answer = &long.answer;
        let counters = answer.counters.clone().map(|mut counters| {
            counters.retain(|name, _| !name.starts_with("us_"));
            counters
        });
        let tokens = chash::digest(&answer.tokens);
        let counted = (answer.drafted, answer.accepted, counters, tokens);
        let Some(first) = self.first.get(&prompt.name) else {
            self.first.insert(prompt.name.clone(), counted);
            return Ok(());
        };
        let (none, then) = (BTreeMap::new(), first.2.as_ref());
        let (then, now) = (then.unwrap_or(&none), counted.2.as_ref().unwrap_or(&none));
        let names = then.keys().chain(now.keys());
        let vary = names.filter(|name| then.get(*name) != now.get(*name));
        self.samples.vary.extend(vary.cloned());
        if first.3 != counted.3 {
            self.samples.vary.insert(TOKENS.to_owned());
        }
        Ok(())
    }

    fn sum(&mut self) -> SideSamples {
        let mut sum = BTreeMap::new();
        let mut all_count = true;
        let tokens = self
            .first
            .values()
            .map(|counted| counted.3.bytes().as_slice());
        self.samples.tokens = Some(Digest::of_parts(tokens));
        for (drafted, accepted, counters, _) in self.first.values() {
            self.samples.drafted += drafted;
            self.samples.accepted += accepted;
            match counters {
                Some(counters) => {
                    for (name, value) in counters {
                        *sum.entry(name.clone()).or_default() += value;
                    }
                }
                None => all_count = false,
            }
        }
        self.samples.counters = all_count.then_some(sum);
        std::mem::take(&mut self.samples)
    }
}
