//! Drafts over a part of the vocabulary, beside those over all of it.
//!
//! The part gives other drafts, and other drafts make other rounds. So steps are compared that have the same text before
//! them: the first one of each draft that begins at the same place in both runs, and those behind it as long as the same
//! tokens were drafted. At such a step the candidates of the part must be those of the whole without the tokens that the part lacks,
//! bit for bit and in their order; what follows them must not have been among the best of the whole. Where rounds have other
//! shapes too (several slots, `p_min`), keys and values are rounded otherwise, and logits may differ by [`ROUNDING`].

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use super::read;
use super::token_difference;
use super::trace::{Step, Trace, logit};
use crate::gate::session::Answers;

/// What a logit may differ by where batches differ: the cache keeps halves, and quantised heads round what they multiply with to 8 bits.
const ROUNDING: f32 = 5e-2;

/// Why a cell does not pass.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// A difference that no missing token explains.
    Fault(String),
    /// What was run cannot tell.
    Nothing(String),
}

/// What the part held at which draft.
#[derive(Debug, Default, PartialEq, Eq)]
struct Members {
    begun: BTreeSet<u32>,
    /// Draft before which it changed, the token that went, the one that came.
    changes: Vec<(u64, u32, u32)>,
}

impl Members {
    /// `0 id …`, then for each change `draft slot old new`.
    fn read(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let mut first = lines.next()?.split(' ');
        (first.next()? == "0").then_some(())?;
        let begun = first.map(|word| word.parse().ok());
        let mut members = Members {
            begun: begun.collect::<Option<_>>()?,
            changes: Vec::new(),
        };
        for line in lines {
            let mut words = line.split(' ');
            let draft = words.next()?.parse().ok()?;
            let mut number = || words.next()?.parse::<u32>().ok();
            let (_slot, old, new) = (number()?, number()?, number()?);
            members.changes.push((draft, old, new));
        }
        Some(members)
    }
}

/// What the drafts of two runs have in common, in numbers.
#[derive(Debug, Default)]
struct Count {
    steps: usize,
    /// Of them: the whole drafted a token that the part lacks.
    missing: usize,
    /// Of them: a candidate of the whole is one.
    touched: usize,
    /// All that the part drafted.
    drafted: usize,
}

/// Compares a run over the whole vocabulary with one over a part of it. What was compared goes into `notes`.
pub fn compare(
    whole: &Answers,
    part: &Answers,
    slots: usize,
    rounds: bool,
    notes: &mut Vec<String>,
) -> Option<Found> {
    if let Some(what) = token_difference(whole, part) {
        return Some(Found::Fault(what));
    }
    let Some(members) = part.vocabulary.as_deref().and_then(Members::read) else {
        let what = "the candidate did not say over which tokens it drafts";
        return Some(Found::Nothing(what.to_owned()));
    };
    if slots > 1 && !members.changes.is_empty() {
        let what = "with several slots nobody knows before which draft the part changed: \
                    set OPENCOTI_DRAFT_VOCAB_FIXED=1, or slots = [1]";
        return Some(Found::Nothing(what.to_owned()));
    }
    let mut count = Count::default();
    match traces(&read(whole), &read(part), &members, rounds, &mut count) {
        Err(what) => return Some(Found::Fault(what)),
        Ok(true) => {}
        Ok(false) => {
            let what = "the two runs have not the same requests";
            return Some(Found::Nothing(what.to_owned()));
        }
    }
    notes.push(format!(
        "{} drafted steps compared; at {} the best token was one that the part lacks, at {} a candidate; \
         the part of {} tokens changed {} times",
        count.steps,
        count.missing,
        count.touched,
        members.begun.len(),
        members.changes.len()
    ));
    // Drafts that differ begin elsewhere, which is why not all can be compared.
    if count.steps < count.drafted / 4 {
        return Some(Found::Nothing(format!(
            "only {} of {} drafted steps have a counterpart with the same text before it",
            count.steps, count.drafted
        )));
    }
    if count.touched == 0 {
        let what =
            "no candidate was one that the part lacks: this is no part, or nothing was drafted";
        return Some(Found::Nothing(what.to_owned()));
    }
    None
}

/// The drafts of one request by the position at which they begin.
type Drafts<'t, 'a> = BTreeMap<u32, &'t [Step<'a>]>;

fn traces(
    whole: &Trace<'_>,
    part: &Trace<'_>,
    members: &Members,
    rounds: bool,
    count: &mut Count,
) -> Result<bool, String> {
    if !whole.0.keys().eq(part.0.keys()) {
        return Ok(false);
    }
    for (seq, steps) in &whole.0 {
        let (left, right) = (requests(steps), requests(&part.0[seq]));
        if left.len() != right.len() {
            return Ok(false);
        }
        let mut held = members.begun.clone();
        let mut changes = members.changes.iter().peekable();
        for (left, right) in left.iter().zip(&right) {
            for (pos, drafted) in right {
                count.drafted += drafted.len();
                let cycle = drafted.first().map_or(0, |step| step.cycle);
                while let Some((_, old, new)) = changes.next_if(|(draft, ..)| *draft <= cycle) {
                    held.remove(old);
                    held.insert(*new);
                }
                for (a, b) in left
                    .get(pos)
                    .copied()
                    .unwrap_or_default()
                    .iter()
                    .zip(*drafted)
                {
                    step(a, b, &held, rounds, count)
                        .map_err(|what| format!("sequence {seq}, {}: {what}", place(b)))?;
                    if a.id != b.id {
                        break;
                    }
                }
            }
        }
    }
    Ok(true)
}

fn place(step: &Step<'_>) -> String {
    format!(
        "cycle {}, step {}, position {}",
        step.cycle, step.step, step.pos
    )
}

/// The drafts of each request. Within one, each draft begins behind the one before, and not further than a draft is long.
fn requests<'t, 'a>(steps: &'t [Step<'a>]) -> Vec<Drafts<'t, 'a>> {
    let mut requests: Vec<Drafts<'t, 'a>> = Vec::new();
    let mut last: Option<(u32, u32)> = None;
    for drafted in steps.chunk_by(|a, b| a.cycle == b.cycle) {
        let (begin, length) = (drafted[0].pos, drafted.len() as u32);
        let goes_on = last.is_some_and(|(at, length)| begin > at && begin <= at + length + 1);
        match requests.last_mut() {
            Some(request) if goes_on => {
                request.insert(begin, drafted);
            }
            _ => requests.push([(begin, drafted)].into()),
        }
        last = Some((begin, length));
    }
    requests
}

fn step(
    whole: &Step<'_>,
    part: &Step<'_>,
    held: &BTreeSet<u32>,
    rounds: bool,
    count: &mut Count,
) -> Result<(), String> {
    let held = |candidate: &&str| held.contains(&id(candidate));
    let kept: Vec<&str> = whole.candidates.iter().copied().filter(held).collect();
    count.steps += 1;
    count.touched += usize::from(kept.len() < whole.candidates.len());
    count.missing += usize::from(whole.candidates.first().is_some_and(|best| !held(best)));
    if rounds {
        return nearly(whole, part, &kept, held);
    }
    for (at, right) in part.candidates.iter().enumerate() {
        if !held(right) {
            return Err(format!("{right} is a token that the part lacks"));
        }
        match kept.get(at) {
            Some(left) if left == right => {}
            Some(left) => {
                return Err(format!("candidate {at} is {right}, and must be {left}"));
            }
            None => {
                let best = |other: &&&str| id(other) == id(right);
                if let Some(other) = whole.candidates.iter().find(best) {
                    return Err(format!("{right} is {other} over the whole vocabulary"));
                }
                let least = whole
                    .candidates
                    .iter()
                    .map(|c| logit(c))
                    .fold(f32::MAX, f32::min);
                if !is_at_most(logit(right), least) {
                    return Err(format!(
                        "{right} would be among the best over the whole vocabulary, and is not"
                    ));
                }
            }
        }
    }
    if part.candidates.len() < kept.len() || Some(part.id) != part.candidates.first().map(|c| id(c))
    {
        return Err("there are too few candidates, or the best one was not drafted".to_owned());
    }
    Ok(())
}

/// As [`step`], by id in place of order.
fn nearly(
    whole: &Step<'_>,
    part: &Step<'_>,
    kept: &[&str],
    held: impl Fn(&&str) -> bool,
) -> Result<(), String> {
    let least = |step: &Step<'_>| {
        let logits = step.candidates.iter().map(|c| logit(c));
        logits.fold(f32::MAX, f32::min)
    };
    for right in &part.candidates {
        if !held(right) {
            return Err(format!("{right} is a token that the part lacks"));
        }
        match whole.candidates.iter().find(|left| id(left) == id(right)) {
            Some(left) if (logit(left) - logit(right)).abs() <= ROUNDING => {}
            Some(left) => return Err(format!("{right} is {left} over the whole vocabulary")),
            None if is_at_most(logit(right), least(whole) + ROUNDING) => {}
            None => {
                return Err(format!(
                    "{right} would be among the best over the whole vocabulary, and is not"
                ));
            }
        }
    }
    let lost = |left: &&&str| {
        let found = part.candidates.iter().any(|right| id(right) == id(left));
        !found && !is_at_most(logit(left), least(part) + ROUNDING)
    };
    match kept.iter().find(lost) {
        Some(left) => Err(format!("{left} is no candidate, though the part has it")),
        None => Ok(()),
    }
}

/// What is no number is at most nothing.
fn is_at_most(value: f32, most: f32) -> bool {
    value.partial_cmp(&most).is_some_and(Ordering::is_le)
}

/// Both halves were seen to be numbers when the trace was read.
fn id(candidate: &str) -> u32 {
    let id = candidate.split_once(':').map(|(id, _)| id.parse());
    id.and_then(Result::ok).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    // 3.0, 2.0, 1.0 and 0.5
    const WHOLE: &str = "0 1 0 40 7 3 7:40400000 8:40000000 9:3f800000\n\
                         0 2 0 42 8 3 8:40400000 7:40000000 5:3f800000\n\
                         0 2 1 43 9 3 9:40400000 7:40000000 5:3f800000\n";
    const PART: &str = "0 1 0 40 7 3 7:40400000 9:3f800000 5:3f000000\n\
                        0 2 0 42 7 3 7:40000000 5:3f800000 9:3f000000\n\
                        0 2 1 43 9 3 9:40400000 7:40000000 5:3f800000\n";
    const HELD: &str = "0 5 7 9\n";

    fn answers(trace: &str, vocabulary: Option<&str>) -> Answers {
        Answers {
            trace: Some(trace.to_owned()),
            vocabulary: vocabulary.map(str::to_owned),
            ..Answers::default()
        }
    }

    fn found(part: &str, vocabulary: &str) -> (Option<Found>, Vec<String>) {
        let mut notes = Vec::new();
        let (whole, part) = (answers(WHOLE, None), answers(part, Some(vocabulary)));
        (compare(&whole, &part, 1, false, &mut notes), notes)
    }

    fn fault(part: &str, vocabulary: &str) -> String {
        match found(part, vocabulary).0 {
            Some(Found::Fault(what)) => what,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn missing_tokens_explain_their_own_absence() {
        let (found, notes) = found(PART, HELD);
        assert_eq!(found, None);
        // The step behind a draft that differs has another text before it.
        assert!(notes[0].starts_with("2 drafted steps"), "{}", notes[0]);
        assert!(notes[0].contains("at 1 the best token"), "{}", notes[0]);
    }

    #[test]
    fn an_id_map_that_is_off_by_one_is_seen() {
        let off = PART.replace("0 1 0 40 7 3 7:40400000", "0 1 0 40 9 3 9:40400000");
        assert!(fault(&off, HELD).contains("candidate 0 is 9:40400000"));
    }

    #[test]
    fn a_stale_row_is_seen_by_its_logit() {
        // 8 came in for 9, and has the row of another token.
        let held = "0 5 7 9\n1 2 9 8\n";
        let right = "0 1 0 40 7 3 7:40400000 8:40000000 5:3f000000\n";
        assert_eq!(found(right, held).0, None);
        let stale = right.replace("8:40000000 5:3f000000", "5:3f000000 8:3e000000");
        assert!(fault(&stale, held).contains("candidate 1 is 5:3f000000, and must be 8"));
        let loud = "0 1 0 40 5 3 5:41000000 7:40400000 8:40000000\n";
        assert!(fault(loud, held).contains("must be 7:40400000"));
        // What is no number is not at the end of any list.
        let none = right.replace("5:3f000000", "5:7fc00000");
        assert!(fault(&none, held).contains("would be among the best"));
        // Behind all that the whole has.
        let late = right.replace("5:3f000000", "5:3fc00000");
        assert!(fault(&late, held).contains("would be among the best"));
    }

    #[test]
    fn rounding_is_told_from_another_token() {
        let nearly = |part: &str| {
            let (whole, part) = (answers(WHOLE, None), answers(part, Some(HELD)));
            compare(&whole, &part, 1, true, &mut Vec::new())
        };
        assert_eq!(nearly(PART), None);
        assert_eq!(nearly(&PART.replace("7:40400000", "7:40400001")), None);
        for (from, to, what) in [
            ("7:40400000", "7:40480000", "is 7:40400000 over the whole"),
            (
                "9:3f800000 5:3f000000",
                "5:3f800000 9:3f000000",
                "is 9:3f800000 over the whole",
            ),
            (
                "9:3f800000 5:3f000000",
                "5:3fc00000 9:3f800000",
                "would be among the best",
            ),
            (
                "40 7 3 7:40400000 9:3f800000",
                "40 9 2 9:3f800000",
                "no candidate, though",
            ),
            (
                "9:3f800000 5:3f000000",
                "8:40000000 9:3f800000",
                "that the part lacks",
            ),
            (
                "9:3f800000 5:3f000000",
                "9:3f800000 5:7fc00000",
                "would be among the best",
            ),
        ] {
            let Some(Found::Fault(found)) = nearly(&PART.replacen(from, to, 1)) else {
                panic!("{from} -> {to}");
            };
            assert!(found.contains(what), "{found}");
        }
    }

    #[test]
    fn a_token_counts_from_the_draft_before_which_it_came() {
        let late = "0 5 7 9\n2 2 9 8\n";
        let at_once = "0 1 0 40 7 3 7:40400000 8:40000000 5:3f000000\n";
        assert!(fault(at_once, late).contains("8:40000000 is a token that the part lacks"));
        let second = "0 1 0 40 7 3 7:40400000 9:3f800000 5:3f000000\n\
                      0 2 0 42 8 3 8:40400000 7:40000000 5:3f800000\n";
        assert_eq!(found(second, late).0, None);
        assert!(fault(PART, late).contains("cycle 2"));
    }

    #[test]
    fn what_cannot_tell_is_no_pass() {
        let nothing = |whole: &str, part: &str, vocabulary: Option<&str>, slots| {
            let (whole, part) = (answers(whole, None), answers(part, vocabulary));
            match compare(&whole, &part, slots, false, &mut Vec::new()) {
                Some(Found::Nothing(what)) => what,
                other => panic!("{other:?}"),
            }
        };
        assert!(nothing(WHOLE, WHOLE, None, 1).contains("did not say"));
        assert!(nothing(WHOLE, WHOLE, Some("1 2 3\n"), 1).contains("did not say"));
        assert!(nothing(WHOLE, WHOLE, Some("0 5 7 8 9\n"), 1).contains("no candidate"));
        assert!(nothing(WHOLE, PART, Some("0 5 7 9\n1 2 9 8\n"), 2).contains("several slots"));
        // A draft of nine steps, of which the whole has the first alone.
        let rest = |n: u32| format!("0 1 {n} {} 7 1 7:40000000\n", 40 + n);
        let long: String = (1..9).map(rest).collect();
        let part = format!("0 1 0 40 7 3 7:40400000 9:3f800000 5:3f000000\n{long}");
        let whole = "0 1 0 40 7 3 7:40400000 8:40000000 9:3f800000\n";
        assert!(nothing(whole, &part, Some(HELD), 1).contains("only 1 of 9 drafted steps"));
        let moved = PART
            .replace("0 2 0 42", "0 2 0 90")
            .replace("0 2 1 43", "0 2 1 91");
        assert!(nothing(WHOLE, &moved, Some(HELD), 1).contains("not the same requests"));
    }

    #[test]
    fn requests_end_where_positions_jump() {
        let text = "0 1 0 40 7 1 7:40400000\n0 1 1 41 7 1 7:40400000\n0 2 0 43 7 1 7:40400000\n\
                    0 3 0 47 7 1 7:40400000\n0 4 0 9 7 1 7:40400000\n";
        let trace = Trace::read(text).unwrap();
        let begins: Vec<Vec<u32>> = (requests(&trace.0[&0]).iter())
            .map(|request| request.keys().copied().collect())
            .collect();
        assert_eq!(begins, [vec![40, 43], vec![47], vec![9]]);
    }
}
