//! The perf gate and the published methods of other tools on the same series that were recorded
//! from real servers: 300 rounds in which both sides are the same build. What a round took is
//! real, with whatever its machine did; only the slow-down is put in, by a factor.
//!
//! The tables of `docs/evaluations/perf-gate.md`:
//!
//! ```sh
//! cargo test -p xtask --test perf_recorded -- --ignored --nocapture
//! ```

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout
)]

#[path = "support/noise.rs"]
mod noise;
#[path = "support/rivals.rs"]
mod rivals;

use llama_patchset::model::Verdict;
use llama_patchset::stats::paired::{self, Round};
use llama_patchset::stats::{decide, log_of};

/// What the definitions of this project allow for decoding.
const THRESHOLD: f64 = 0.01;

/// Rounds of a session's control and of its comparison: what a definition has by default.
const CONTROL: usize = 12;
const COMPARED: usize = 24;

/// Sessions that are cut out of a series, evenly from its beginning to its end.
const SESSIONS: usize = 100;

const CHANGES: [f64; 4] = [0.0, 0.01, 0.03, 0.10];

const SERIES: [(&str, &str); 2] = [
    (
        "Requests of 13 ms, load 6 to 8",
        include_str!("data/perf-series-short.csv"),
    ),
    (
        "Requests of 85 ms, load 21 to 29",
        include_str!("data/perf-series-long.csv"),
    ),
];

/// A series: by line the speeds of a round, all of one process before all of the other.
fn series(text: &str) -> Vec<Round> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let rounds = lines.map(|line| {
        let speeds = line.split(',').map(|speed| speed.parse::<f64>().unwrap());
        let mut left: Vec<f64> = speeds.map(|speed| 1.0 / speed).collect();
        let right = left.split_off(left.len() / 2);
        Round { left, right }
    });
    rounds.collect()
}

fn slower(values: &[f64], change: f64) -> Vec<f64> {
    values.iter().map(|time| time * (1.0 + change)).collect()
}

fn all(rounds: &[Round]) -> Vec<f64> {
    let both = |round: &Round| [round.left.clone(), round.right.clone()].concat();
    rounds.iter().flat_map(both).collect()
}

/// Where the sessions begin.
fn starts(rounds: &[Round], length: usize) -> impl Iterator<Item = usize> {
    let last = rounds.len() - length;
    (0..SESSIONS).map(move |at| at * last / (SESSIONS - 1))
}

fn judge(control: &[Round], compared: &[Round], change: f64) -> Verdict {
    let compared: Vec<Round> = (compared.iter())
        .map(|round| Round {
            left: round.left.clone(),
            right: slower(&round.right, change),
        })
        .collect();
    let threshold = log_of(THRESHOLD);
    let control = paired::change(control, 7).unwrap();
    if decide::is_biased(&control, threshold) {
        return Verdict::Inconclusive;
    }
    decide::decide(&paired::change(&compared, 7).unwrap(), threshold)
}

/// Sessions with each verdict, by change: pass, inconclusive, fail.
fn verdicts(rounds: &[Round], change: f64) -> [usize; 3] {
    let mut counts = [0; 3];
    for start in starts(rounds, CONTROL + COMPARED) {
        let (control, rest) = rounds[start..].split_at(CONTROL);
        counts[match judge(control, &rest[..COMPARED], change) {
            Verdict::Pass => 0,
            Verdict::Fail => 2,
            _ => 1,
        }] += 1;
    }
    counts
}

/// What a tool is given that measures one side after the other: as many samples, all of the first
/// half of the session before all of the second.
fn in_blocks(compared: &[Round], change: f64) -> (Vec<f64>, Vec<f64>) {
    let (first, second) = compared.split_at(compared.len() / 2);
    (all(first), slower(&all(second), change))
}

/// Changes between runs of the same thing, from the series itself, which favours whoever uses it.
fn history(rounds: &[Round]) -> Vec<f64> {
    let least = |values: &[f64]| values.iter().copied().fold(f64::INFINITY, f64::min);
    starts(rounds, COMPARED)
        .map(|start| {
            let (left, right) = in_blocks(&rounds[start..start + COMPARED], 0.0);
            least(&right) / least(&left) - 1.0
        })
        .collect()
}

/// Alarms of every method, by change: interleaved, and one side after the other.
fn alarms(rounds: &[Round]) -> Vec<(String, [usize; 4])> {
    let history = history(rounds);
    let mut found = Vec::new();
    for (order, blocks) in [("interleaved", false), ("A…A B…B", true)] {
        for (name, method) in rivals::METHODS {
            let counts = CHANGES.map(|change| {
                let count = starts(rounds, CONTROL + COMPARED).filter(|start| {
                    let compared = &rounds[start + CONTROL..][..COMPARED];
                    let (left, right) = match blocks {
                        true => in_blocks(compared, change),
                        false => (
                            compared.iter().flat_map(|r| r.left.clone()).collect(),
                            compared
                                .iter()
                                .flat_map(|r| slower(&r.right, change))
                                .collect(),
                        ),
                    };
                    method(&left, &right, &history)
                });
                count.count()
            });
            found.push((format!("{name}, {order}"), counts));
        }
    }
    found
}

#[test]
fn a_series_is_whole() {
    for (name, text) in SERIES {
        let rounds = series(text);
        assert_eq!(rounds.len(), 300, "{name}");
        assert!(
            rounds
                .iter()
                .all(|r| r.left.len() == 4 && r.right.len() == 4)
        );
    }
}

/// On real noise, too: what is as quick is never called slower, and what is slower by 3 or 10 %
/// never passes, however loud the machine is.
#[test]
fn no_false_alarm_and_no_false_pass_on_recorded_noise() {
    for (name, text) in SERIES {
        let rounds = series(text);
        let [_, _, failed] = verdicts(&rounds, 0.0);
        assert!(failed <= 5, "{name}: {failed} false alarms of {SESSIONS}");
        for change in [0.03, 0.10] {
            let [passed, _, _] = verdicts(&rounds, change);
            assert!(
                passed <= 2,
                "{name}: {passed} of {SESSIONS} pass at {change}"
            );
        }
    }
}

#[test]
#[ignore = "a measurement"]
fn table() {
    for (name, text) in SERIES {
        let rounds = series(text);
        println!("\n### {name}\n\n| | A/A | 1 % | 3 % | 10 % |\n| --- | --- | --- | --- | --- |");
        let by_change = CHANGES.map(|change| verdicts(&rounds, change));
        for (verdict, at) in [("fail", 2), ("inconclusive", 1), ("pass", 0)] {
            let cells = by_change.map(|counts| counts[at].to_string());
            println!("| **this gate: {verdict}** | {} |", cells.join(" | "));
        }
        for (name, counts) in alarms(&rounds) {
            let cells = counts.map(|count| count.to_string());
            println!("| {name} | {} |", cells.join(" | "));
        }
        let single: Vec<Round> = rounds.clone();
        let change = paired::change(&single, 7).unwrap();
        println!(
            "\nwhole series: {:+.2} % [{:+.2}, {:+.2}]",
            100.0 * change.value,
            100.0 * change.low,
            100.0 * change.high
        );
    }
}
