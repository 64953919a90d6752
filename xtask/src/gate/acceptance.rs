//! The gate "no fewer drafted tokens accepted".
//!
//! For every longest draft baseline and candidate are run on the same prompts. Counts that are
//! equal for every prompt pass as they are. Else the difference of the shares over all prompts is
//! judged by its interval ([`crate::stats::proportion`]) against the drop that is allowed. So is the
//! difference of accepted tokens per generated one: a side that hardly drafts any more may accept all
//! that it drafts.
//!
//! What the server counts by position in the draft is recorded beside it, without a verdict.
//!
//! The interval takes drafted tokens for independent, which tokens of one prompt are not quite:
//! with few prompts it is narrower than it should be.

use crate::ctx::Task;
use crate::error::{Error, Result};
use crate::gate::chash::one_id;
use crate::gate::pool;
use crate::gate::session::{Answer, Answers, DraftCounts, Halt, Prompt, Run, Runner, Session};
use crate::gate::table::Signs;
use crate::gate::work::{Found, Work};
use crate::model::{AcceptanceRecord, PositionRecord, PositionShare, ShareRecord, Verdict};
use crate::stats::LEVEL;
use crate::stats::proportion::{Proportion, difference, wilson};

/// What to compare.
#[derive(Clone, Debug)]
pub struct Comparison<'a> {
    /// The prompts.
    pub prompts: &'a [Prompt],
    /// Longest drafts.
    pub n_max: &'a [u32],
    /// By how much the accepted share may drop.
    pub drop: f64,
    /// The least share that the candidate must have accepted; 0 asks nothing.
    pub least: f64,
    /// Sessions that may run at the same time.
    pub parallel: usize,
}

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>, [drop, least]: [f64; 2]) -> Result<Found> {
    let comparison = Comparison {
        prompts: &work.plan.prompts,
        n_max: &work.plan.n_max,
        drop,
        least,
        parallel: work.parallel,
    };
    let answers = comparison.answers(work.runner, work.halt, work.task)?;
    Ok(Found {
        acceptance: comparison.records(&answers)?,
        notes: comparison.notes(&answers),
        ..Found::default()
    })
}

impl Comparison<'_> {
    /// Runs all sessions and judges them. The first error stops the others.
    pub fn run(
        &self,
        runner: &dyn Runner,
        halt: &Halt,
        task: &dyn Task,
    ) -> Result<Vec<AcceptanceRecord>> {
        self.records(&self.answers(runner, halt, task)?)
    }

    /// What baseline and candidate answer, by longest draft.
    fn answers(&self, runner: &dyn Runner, halt: &Halt, task: &dyn Task) -> Result<Vec<Answers>> {
        let sides = |n_max: &u32| {
            let n_max = *n_max;
            [Run::Baseline, Run::Candidate].map(|run| Session {
                run,
                n_max,
                slots: 1,
                flags: &[],
                trace: None,
                waves: self.prompts.iter().map(|prompt| vec![prompt]).collect(),
            })
        };
        let sessions: Vec<Session<'_>> = self.n_max.iter().flat_map(sides).collect();
        let run = |session: &Session<'_>| {
            let answers = runner.run(session, halt)?;
            session.check(&answers)?;
            Ok(answers)
        };
        pool::run_all(&sessions, self.parallel, halt, task, &run)
    }

    fn records(&self, answers: &[Answers]) -> Result<Vec<AcceptanceRecord>> {
        let pairs = self.n_max.iter().zip(answers.chunks(2));
        pairs
            .map(|(n_max, pair)| match pair {
                [baseline, candidate] => Ok(self.judge(*n_max, baseline, candidate)),
                _ => Err(Error::internal("a session is missing")),
            })
            .collect()
    }

    /// Where the sides gave other tokens: what is accepted is then of other texts.
    fn notes(&self, answers: &[Answers]) -> Vec<String> {
        let pairs = self.n_max.iter().zip(answers.chunks(2));
        let note = |(n_max, pair): (&u32, &[Answers])| {
            let [baseline, candidate] = pair else {
                return None;
            };
            let other = self.others(baseline, candidate);
            (!other.is_empty()).then(|| {
                format!(
                    "n_max {n_max}: the candidate gave other tokens for {} of {} prompts: {}",
                    other.len(),
                    self.prompts.len(),
                    other.join(", ")
                )
            })
        };
        pairs.filter_map(note).collect()
    }

    /// Prompts for which the sides gave other tokens.
    fn others(&self, baseline: &Answers, candidate: &Answers) -> Vec<&str> {
        let waves = baseline.waves.iter().zip(&candidate.waves);
        let differs = |(left, right): (&Vec<Answer>, &Vec<Answer>)| {
            let tokens = |wave: &[Answer]| -> Vec<Vec<u32>> {
                wave.iter().map(|answer| answer.tokens.clone()).collect()
            };
            tokens(left) != tokens(right)
        };
        let named = self.prompts.iter().zip(waves);
        let others = named.filter(|(_, waves)| differs(*waves));
        others.map(|(prompt, _)| prompt.name.as_str()).collect()
    }

    fn judge(&self, n_max: u32, baseline: &Answers, candidate: &Answers) -> AcceptanceRecord {
        let counts = |answers: &Answers| -> Vec<(u64, u64)> {
            let answers = answers.waves.iter().flatten();
            answers.map(|a| (a.accepted, a.drafted)).collect()
        };
        let (left, right) = (counts(baseline), counts(candidate));
        let equal = left == right;
        let stopped = (self.prompts.iter().zip(left.iter().zip(&right)))
            .find(|(_, (left, right))| left.1 > 0 && right.1 == 0)
            .map(|(prompt, _)| prompt.name.as_str());
        let sum = |counts: &[(u64, u64)]| {
            let add = |sum: (u64, u64), one: &(u64, u64)| (sum.0 + one.0, sum.1 + one.1);
            counts.iter().fold((0, 0), add)
        };
        let (left, right) = (sum(&left), sum(&right));
        let positions = positions(n_max, [baseline, candidate], [left, right]);
        let found = difference(left, right, LEVEL);
        let generated = |answers: &Answers| -> u64 {
            let answers = answers.waves.iter().flatten();
            answers.map(|answer| answer.tokens.len() as u64).sum()
        };
        let (of_left, of_right) = (generated(baseline), generated(candidate));
        let per_token = difference((left.0, of_left), (right.0, of_right), LEVEL);
        let (mut verdict, mut reason) = match self.verdict(equal, found) {
            (Verdict::Pass, _) if !equal => self.not_rarer(per_token, stopped),
            judged => judged,
        };
        if verdict == Verdict::Pass
            && let Some(what) = self.degenerated(baseline, candidate, found)
        {
            (verdict, reason) = (Verdict::Inconclusive, Some(what));
        }
        // Both sides may be wrong in the same way.
        let share = right.0 as f64 / right.1.max(1) as f64;
        if right.1 > 0 && share < self.least {
            verdict = Verdict::Fail;
            reason = Some(format!(
                "the candidate accepted {:.2} % of what it drafted; at least {:.2} % are asked",
                100.0 * share,
                100.0 * self.least
            ));
        }
        let side = |(accepted, drafted): (u64, u64)| ShareRecord {
            drafted,
            accepted,
            share: wilson(accepted, drafted, LEVEL).map(ends),
        };
        AcceptanceRecord {
            n_max,
            verdict,
            reason,
            baseline: side(left),
            candidate: side(right),
            difference: found.map(ends),
            per_token: per_token.map(ends),
            equal,
            drop: Some(self.drop),
            positions_absent: positions.as_ref().err().map(|why| (*why).to_owned()),
            positions: positions.unwrap_or_default(),
        }
    }

    fn verdict(&self, equal: bool, found: Option<Proportion>) -> (Verdict, Option<String>) {
        let Some(found) = found else {
            let what = "nothing was speculated: a side drafted no token";
            return (Verdict::Inconclusive, Some(what.to_owned()));
        };
        if equal || found.low >= -self.drop {
            return (Verdict::Pass, None);
        }
        let what = format!(
            "the accepted share changes by {}; it may drop by {:.2} points",
            show(ends(found)),
            100.0 * self.drop
        );
        if found.high < -self.drop {
            (Verdict::Fail, Some(what))
        } else {
            let what =
                format!("{what}, which the interval straddles: more or longer prompts are needed");
            (Verdict::Inconclusive, Some(what))
        }
    }

    /// Why accepting as much says nothing: what gives one id and no other, as where logits are no numbers, or goes
    /// round in a circle, is easily foretold. `found` is the difference of the shares.
    fn degenerated(
        &self,
        baseline: &Answers,
        candidate: &Answers,
        found: Option<Proportion>,
    ) -> Option<String> {
        if let Some(what) = one_id(&[(Run::Baseline, baseline), (Run::Candidate, candidate)]) {
            return Some(what);
        }
        let found = found.filter(|found| found.low > 0.0)?;
        let others = self.others(baseline, candidate);
        let first = others.first()?;
        Some(format!(
            "the candidate accepts more by {}, of other tokens for {} of {} prompts, first `{first}`: what degenerates \
             is easily foretold too",
            show(ends(found)),
            others.len(),
            self.prompts.len()
        ))
    }

    /// Whether the candidate still drafts as much: `found` is the difference of accepted tokens per
    /// generated one, `stopped` a prompt for which it alone drafted nothing.
    fn not_rarer(
        &self,
        found: Option<Proportion>,
        stopped: Option<&str>,
    ) -> (Verdict, Option<String>) {
        if let Some(prompt) = stopped {
            let what = format!(
                "nothing was speculated: the candidate drafted no token for prompt `{prompt}`"
            );
            return (Verdict::Inconclusive, Some(what));
        }
        // More than were generated: whoever counts so is not understood.
        let Some(found) = found else {
            let what = "a side accepted more tokens than it generated";
            return (Verdict::Inconclusive, Some(what.to_owned()));
        };
        // The share is what is measured, and this its companion: the estimate decides whether it is
        // doubted, and the interval whether it fails.
        if found.value >= -self.drop {
            return (Verdict::Pass, None);
        }
        let what = format!(
            "accepted tokens per generated one change by {}; they may drop by {:.2} points: less is \
             drafted",
            show(ends(found)),
            100.0 * self.drop
        );
        match found.high < -self.drop {
            true => (Verdict::Fail, Some(what)),
            false => (Verdict::Inconclusive, Some(what)),
        }
    }
}

/// The shares by position, or why there are none. `sums` are accepted and drafted tokens as the
/// answers have them: counts that do not belong to them say nothing.
fn positions(
    n_max: u32,
    sides: [&Answers; 2],
    sums: [(u64, u64); 2],
) -> std::result::Result<Vec<PositionRecord>, &'static str> {
    let mut counts = [None, None];
    for ((side, sum), place) in sides.iter().zip(sums).zip(&mut counts) {
        let Some(found) = &side.drafts else {
            return Err("the server's /metrics has no counters by position");
        };
        let falling = found.by_position.is_sorted_by(|a, b| a >= b);
        let whole = (found.by_position.iter().sum(), found.drafted);
        if !falling || whole != sum || found.by_position.first() > Some(&found.drafts) {
            return Err("the server's counters by position do not add up to its answers");
        }
        *place = Some(found);
    }
    let [Some(left), Some(right)] = counts else {
        return Ok(Vec::new());
    };
    let length = left.by_position.len().max(right.by_position.len());
    let records = (0..length.min(n_max as usize)).map(|at| {
        let accepted = |counts: &DraftCounts| counts.by_position.get(at).copied().unwrap_or(0);
        let share = |counts: &DraftCounts| PositionShare {
            drafts: counts.drafts,
            drafted: drafted_at(at as u64, u64::from(n_max), counts),
            accepted: accepted(counts),
            share: wilson(accepted(counts), counts.drafts, LEVEL).map(ends),
        };
        PositionRecord {
            position: at + 1,
            baseline: share(left),
            candidate: share(right),
            difference: difference(
                (accepted(left), left.drafts),
                (accepted(right), right.drafts),
                LEVEL,
            )
            .map(ends),
        }
    });
    Ok(records.collect())
}

/// Fewest and most drafts that can have had a token at position `at` (from 0): every draft has
/// one at 0 and at most `n_max`, and a token stands only behind another.
fn drafted_at(at: u64, n_max: u64, counts: &DraftCounts) -> [u64; 2] {
    let (drafts, drafted) = (counts.drafts, counts.drafted);
    if at == 0 {
        return [drafts, drafts];
    }
    let fewest = drafted.saturating_sub(drafts * at).div_ceil(n_max - at);
    let most = drafted.saturating_sub(drafts) / at;
    [fewest.min(drafts), most.min(drafts)]
}

fn ends(found: Proportion) -> [f64; 3] {
    [found.value, found.low, found.high]
}

fn show([value, low, high]: [f64; 3]) -> String {
    let percent = [value, low, high].map(|share| 100.0 * share);
    format!(
        "{:+.2} [{:+.2}, {:+.2}] points",
        percent[0], percent[1], percent[2]
    )
}

/// Rows of a table, the first one being its head.
pub fn rows(records: &[AcceptanceRecord], signs: Signs) -> Vec<Vec<String>> {
    let head = [
        "n_max",
        "baseline",
        "candidate",
        "difference (95 %)",
        "by position",
        "verdict",
    ];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let side = |side: &ShareRecord| match side.share {
        None => "-".to_owned(),
        Some(share) => {
            let [value, low, high] = share.map(|share| 100.0 * share);
            format!(
                "{}/{} {value:.1} % [{low:.1}, {high:.1}]",
                side.accepted, side.drafted
            )
        }
    };
    rows.extend(records.iter().map(|record| {
        vec![
            record.n_max.to_string(),
            side(&record.baseline),
            side(&record.candidate),
            match record.difference {
                _ if record.equal => "equal for every prompt".to_owned(),
                None => "-".to_owned(),
                Some(difference) => show(difference),
            },
            by_position(&record.positions),
            signs.verdict(record.verdict).to_owned(),
        ]
    }));
    rows
}

/// `81, 53, 33 %`, or both sides where they differ.
fn by_position(positions: &[PositionRecord]) -> String {
    let list = |side: fn(&PositionRecord) -> &PositionShare| {
        let shares = positions.iter().map(|record| match side(record).share {
            Some([value, ..]) => format!("{:.0}", 100.0 * value),
            None => "-".to_owned(),
        });
        shares.collect::<Vec<_>>().join(", ")
    };
    let (left, right) = (list(|r| &r.baseline), list(|r| &r.candidate));
    match positions {
        [] => "-".to_owned(),
        _ if left == right => format!("{left} %"),
        _ => format!("{left} / {right} %"),
    }
}

/// Every `n_max` that did not pass, with the reason.
pub fn faults(records: &[AcceptanceRecord], signs: Signs) -> Vec<String> {
    let line = |record: &AcceptanceRecord| {
        let reason = record.reason.as_deref()?;
        let sign = signs.verdict(record.verdict);
        Some(format!("{sign} n_max {}: {reason}", record.n_max))
    };
    records.iter().filter_map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ctx::{Cancel, Quiet};
    use crate::gate::testing::{Fake, prompts};

    fn judged(
        drop: f64,
        change: &(dyn Fn(&Session<'_>, usize, &mut [Answer]) + Sync),
    ) -> AcceptanceRecord {
        judged_above(0.0, drop, change)
    }

    fn judged_above(
        least: f64,
        drop: f64,
        change: &(dyn Fn(&Session<'_>, usize, &mut [Answer]) + Sync),
    ) -> AcceptanceRecord {
        let prompts = prompts();
        let comparison = Comparison {
            prompts: &prompts,
            n_max: &[3],
            drop,
            least,
            parallel: 2,
        };
        let halt = Halt::new(&Cancel::default());
        let mut records = comparison.run(&Fake(change), &halt, &Quiet).unwrap();
        records.remove(0)
    }

    fn set(accepted: [u64; 2], drafted: u64) -> impl Fn(&Session<'_>, usize, &mut [Answer]) + Sync {
        move |session, _, answers| {
            let at = usize::from(session.run == Run::Candidate);
            answers[0].accepted = accepted[at];
            answers[0].drafted = drafted;
            // Nobody accepts more than there is.
            answers[0].tokens.resize(100_000, 0);
        }
    }

    #[test]
    fn equal_counts_pass_however_few() {
        let record = judged(0.0, &|_, _, _| {});
        assert_eq!((record.verdict, record.equal), (Verdict::Pass, true));
        assert_eq!(
            (record.baseline.accepted, record.baseline.drafted),
            (27, 36)
        );
    }

    #[test]
    fn what_is_wrong_on_both_sides_fails_below_the_least_share() {
        let record = judged_above(0.6, 0.0, &set([500, 500], 1000));
        assert_eq!(record.verdict, Verdict::Fail, "{record:?}");
        assert!(record.reason.unwrap().contains("50.00 %"));
        let record = judged_above(0.5, 0.0, &set([500, 500], 1000));
        assert_eq!(record.verdict, Verdict::Pass, "{record:?}");
        // Nothing drafted says nothing.
        let record = judged_above(0.6, 0.0, &set([0, 0], 0));
        assert_ne!(record.verdict, Verdict::Pass, "{record:?}");
    }

    #[test]
    fn a_drop_is_judged_by_its_interval() {
        let record = judged(0.01, &set([7000, 6000], 10_000));
        assert_eq!(record.verdict, Verdict::Fail, "{record:?}");
        assert!(record.reason.unwrap().contains("-10.00 ["));
        let record = judged(0.01, &set([70, 68], 100));
        assert_eq!(record.verdict, Verdict::Inconclusive, "{record:?}");
        let record = judged(0.02, &set([70_000, 69_900], 100_000));
        assert_eq!(record.verdict, Verdict::Pass, "{record:?}");
        let record = judged(0.01, &set([6000, 7000], 10_000));
        assert_eq!(record.verdict, Verdict::Pass, "{record:?}");
    }

    #[test]
    fn drafting_that_nearly_stops_is_no_pass_though_all_of_it_is_accepted() {
        // Of 1000 tokens of each prompt.
        let of_thousand = |left: (u64, u64), right: (u64, u64)| {
            judged(0.05, &move |session, _, answers| {
                let is_candidate = session.run == Run::Candidate;
                let (accepted, drafted) = if is_candidate { right } else { left };
                (answers[0].accepted, answers[0].drafted) = (accepted, drafted);
                answers[0].tokens.resize(1000, 0);
            })
        };
        let record = of_thousand((600, 800), (10, 10));
        assert_eq!(record.verdict, Verdict::Fail, "{record:?}");
        assert!(record.reason.unwrap().contains("less is drafted"));
        // By less than the interval of so few.
        let record = of_thousand((505, 505), (450, 450));
        assert_eq!(record.verdict, Verdict::Inconclusive, "{record:?}");
        assert!(record.reason.unwrap().contains("less is drafted"));
        let record = of_thousand((505, 505), (500, 500));
        assert_eq!(record.verdict, Verdict::Pass, "{record:?}");
        let record = judged(0.2, &|session, at, answers| {
            if session.run == Run::Candidate && at == 1 {
                (answers[0].accepted, answers[0].drafted) = (0, 0);
            } else if session.run == Run::Candidate {
                (answers[0].accepted, answers[0].drafted) = (8, 8);
            } else {
                (answers[0].accepted, answers[0].drafted) = (4, 8);
            }
        });
        let reason = record.reason.unwrap_or_default();
        assert_eq!(record.verdict, Verdict::Inconclusive, "{reason}");
        assert!(reason.contains("for prompt `b`"), "{reason}");
    }

    #[test]
    fn what_is_accepted_of_a_degenerated_text_says_nothing() {
        // Logits that are no numbers: one id, and every draft is right. The counts may even be equal.
        for accepted in [[700, 1000], [1000, 1000]] {
            let record = judged(0.0, &|session, at, answers| {
                set(accepted, 1000)(session, at, answers);
                if session.run == Run::Candidate {
                    answers[0].tokens.fill(0);
                }
            });
            assert_eq!(record.verdict, Verdict::Inconclusive, "{record:?}");
            let reason = record.reason.unwrap();
            assert!(
                reason.contains("candidate gave the id 0 and no other"),
                "{reason}"
            );
        }
        // A circle of two.
        let circle = |accepted: [u64; 2]| {
            judged(0.05, &move |session, at, answers| {
                set(accepted, 10_000)(session, at, answers);
                if session.run == Run::Candidate {
                    for (at, token) in answers[0].tokens.iter_mut().enumerate() {
                        *token = at as u32 % 2;
                    }
                }
            })
        };
        let record = circle([7000, 9900]);
        assert_eq!(record.verdict, Verdict::Inconclusive, "{record:?}");
        let reason = record.reason.unwrap();
        assert!(
            reason.contains("of other tokens for 3 of 3 prompts, first `a`"),
            "{reason}"
        );
        // Other roundings give other tokens, of which about as many are accepted.
        assert_eq!(circle([7000, 7010]).verdict, Verdict::Pass);
        // More of the same tokens is what is wanted.
        let record = judged(0.0, &set([7000, 9900], 10_000));
        assert_eq!(record.verdict, Verdict::Pass, "{record:?}");
    }

    #[test]
    fn other_tokens_are_noted() {
        let prompts = prompts();
        let comparison = Comparison {
            prompts: &prompts,
            n_max: &[2, 3],
            drop: 0.0,
            least: 0.0,
            parallel: 1,
        };
        let change = |session: &Session<'_>, at: usize, answers: &mut [Answer]| {
            if session.run == Run::Candidate && session.n_max == 3 && at == 1 {
                answers[0].tokens[7] = 9;
            }
        };
        let halt = Halt::new(&Cancel::default());
        let answers = comparison.answers(&Fake(&change), &halt, &Quiet).unwrap();
        let note = "n_max 3: the candidate gave other tokens for 1 of 3 prompts: b";
        assert_eq!(comparison.notes(&answers), [note]);
    }

    #[test]
    fn equal_sums_of_other_prompts_are_not_equal() {
        let record = judged(0.0, &|session, at, answers| {
            let moved = if session.run == Run::Candidate { 1 } else { 0 };
            match at {
                0 => answers[0].accepted += moved,
                1 => answers[0].accepted -= moved,
                _ => {}
            }
        });
        assert_eq!(
            (record.verdict, record.equal),
            (Verdict::Inconclusive, false)
        );
    }

    #[test]
    fn nothing_drafted_is_inconclusive() {
        let record = judged(0.5, &set([0, 0], 0));
        assert_eq!(record.verdict, Verdict::Inconclusive);
        assert!(record.reason.unwrap().contains("nothing was speculated"));
    }

    fn counted(drafts: u64, drafted: u64, by_position: &[u64]) -> Answers {
        Answers {
            drafts: Some(DraftCounts {
                drafts,
                drafted,
                accepted: by_position.iter().sum(),
                by_position: by_position.to_vec(),
            }),
            ..Answers::default()
        }
    }

    #[test]
    fn positions_are_compared_where_they_add_up() {
        let (left, right) = (counted(24, 70, &[19, 12, 8]), counted(30, 90, &[19, 6, 0]));
        let found = positions(3, [&left, &right], [(39, 70), (25, 90)]).unwrap();
        assert_eq!(found.len(), 3);
        let second = &found[1];
        assert_eq!((second.position, second.baseline.accepted), (2, 12));
        assert_eq!(second.baseline.share.map(|share| share[0]), Some(0.5));
        assert_eq!(second.difference.map(|d| (d[0] * 10.0).round()), Some(-3.0));
        // 24 drafts of at most three tokens lack two: one draft of one token, or two of two.
        let drafted = |at: usize| found[at].baseline.drafted;
        assert_eq!(
            (drafted(0), drafted(1), drafted(2)),
            ([24, 24], [23, 24], [22, 23])
        );
        assert_eq!(found[2].candidate.drafted, [30, 30]);
        let short = |at| drafted_at(at, 3, &counted(24, 69, &[]).drafts.unwrap());
        assert_eq!(
            [short(0), short(1), short(2)],
            [[24, 24], [23, 24], [21, 22]]
        );
    }

    #[test]
    fn positions_that_do_not_add_up_are_left_out() {
        let right = counted(24, 70, &[19, 12, 8]);
        let sum = (39, 70);
        for (wrong, part) in [
            (Answers::default(), "no counters"),
            (counted(24, 70, &[19, 12]), "add up"),
            (counted(24, 71, &[19, 12, 8]), "add up"),
            (counted(24, 70, &[12, 19, 8]), "add up"),
            (counted(18, 70, &[19, 12, 8]), "add up"),
        ] {
            let error = positions(3, [&wrong, &right], [sum, sum]).unwrap_err();
            assert!(error.contains(part), "{error}");
            let error = positions(3, [&right, &wrong], [sum, sum]).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let none = counted(0, 0, &[]);
        assert_eq!(positions(3, [&none, &none], [(0, 0); 2]), Ok(Vec::new()));
    }
}
