//! The noise of a machine that others use too, as a series of times.
//!
//! Every time is a product: what the work takes, a jitter that is log-normal, a drift over the
//! whole session (heat), slow spells that begin at random and last for several requests (another
//! process), outliers of single requests, and what a start of a process brings along.

#![allow(dead_code)]

use llama_patchset::fixture::rng::Stream;
use llama_patchset::stats::paired::{Round, right_first};

/// How noisy.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Standard deviation of the logarithm of a request.
    pub jitter: f64,
    /// Change over the whole session.
    pub drift: f64,
    /// Probability that a slow spell begins at a request; it lasts ten on average.
    pub spell: f64,
    /// How much slower a spell is, at most.
    pub slow: f64,
    /// Probability of an outlier; it is up to half as long again.
    pub outlier: f64,
    /// Standard deviation of the logarithm of a process.
    pub process: f64,
}

impl Default for Noise {
    fn default() -> Self {
        Noise {
            jitter: 0.015,
            drift: 0.05,
            spell: 0.01,
            slow: 0.4,
            outlier: 0.02,
            process: 0.003,
        }
    }
}

/// What is reported.
pub fn kinds() -> [(&'static str, Noise); 3] {
    let quiet = Noise {
        jitter: 0.004,
        drift: 0.01,
        spell: 0.002,
        slow: 0.2,
        outlier: 0.005,
        process: 0.001,
    };
    let loud = Noise {
        jitter: 0.03,
        drift: 0.1,
        spell: 0.03,
        slow: 0.8,
        outlier: 0.05,
        process: 0.006,
    };
    [
        ("A quiet machine", quiet),
        ("A shared machine (default)", Noise::default()),
        ("A busy machine", loud),
    ]
}

/// One session.
#[derive(Clone, Debug)]
pub struct Session {
    /// By round.
    pub rounds: Vec<Round>,
    change: f64,
}

/// The machine as time goes by.
struct Machine<'a> {
    noise: &'a Noise,
    stream: Stream,
    at: usize,
    of: usize,
    spell: f64,
    left: usize,
}

impl Machine<'_> {
    fn uniform(&mut self) -> f64 {
        self.stream.next() as f64 / u64::MAX as f64
    }

    fn normal(&mut self) -> f64 {
        f64::from(self.stream.normal())
    }

    fn process(&mut self) -> f64 {
        (self.noise.process * self.normal()).exp()
    }

    fn request(&mut self) -> f64 {
        let noise = self.noise;
        self.at += 1;
        if self.left > 0 {
            self.left -= 1;
        } else if self.uniform() < noise.spell {
            self.spell = noise.slow * self.uniform();
            self.left = 1 + (-10.0 * (1.0 - self.uniform()).max(1e-9).ln()) as usize;
        }
        let spell = if self.left > 0 { self.spell } else { 0.0 };
        let outlier = match self.uniform() < noise.outlier {
            true => 0.5 * self.uniform(),
            false => 0.0,
        };
        let drift = noise.drift * self.at as f64 / self.of as f64;
        let jitter = (noise.jitter * self.normal()).exp();
        0.1 * jitter * (1.0 + drift) * (1.0 + spell) * (1.0 + outlier)
    }
}

impl Noise {
    fn machine(&self, seed: u64, of: usize) -> Machine<'_> {
        Machine {
            noise: self,
            stream: Stream::new(seed, "machine"),
            at: 0,
            of,
            spell: 0.0,
            left: 0,
        }
    }

    /// A session whose right side takes longer by the fraction `change`.
    pub fn session(&self, rounds: usize, pairs: usize, change: f64, seed: u64) -> Session {
        let mut machine = self.machine(seed, rounds * pairs * 2);
        let round = |number| {
            let starts = [machine.process(), machine.process() * (1.0 + change)];
            let mut round = Round::default();
            for right_first in right_first(number, pairs) {
                let first = machine.request();
                let second = machine.request();
                let (left, right) = match right_first {
                    true => (second, first),
                    false => (first, second),
                };
                round.left.push(left * starts[0]);
                round.right.push(right * starts[1]);
            }
            round
        };
        Session {
            rounds: (0..rounds).map(round).collect(),
            change,
        }
    }

    /// As many samples of one side as a session has, one after another, in one process.
    pub fn block(&self, machine_seed: u64, count: usize, change: f64) -> (Vec<f64>, Vec<f64>) {
        let mut machine = self.machine(machine_seed, 2 * count);
        let mut side = |change: f64| -> Vec<f64> {
            let start = machine.process() * (1.0 + change);
            (0..count).map(|_| machine.request() * start).collect()
        };
        let left = side(0.0);
        (left, side(change))
    }
}

impl Session {
    /// All samples of either side.
    pub fn samples(&self) -> (Vec<f64>, Vec<f64>) {
        let left = self.rounds.iter().flat_map(|round| round.left.clone());
        let right = self.rounds.iter().flat_map(|round| round.right.clone());
        (left.collect(), right.collect())
    }

    /// The same work on the same machine, all of the left side first.
    pub fn again_in_blocks(&self, noise: &Noise, seed: u64) -> (Vec<f64>, Vec<f64>) {
        noise.block(seed, self.samples().0.len(), self.change)
    }

    /// Breaks the pairs: what was measured on the left half a session away takes its place.
    pub fn unpair(&mut self) {
        let half = self.rounds.len() / 2;
        let lefts: Vec<Vec<f64>> = self.rounds.iter().map(|r| r.left.clone()).collect();
        for (at, round) in self.rounds.iter_mut().enumerate() {
            round.left = lefts[(at * 7 + half) % lefts.len()].clone();
        }
    }
}
