//! What no definition may hold: numbers that no machine holds, and what would compare nothing.

use std::collections::BTreeSet;

use crate::error::{Error, Result};
use crate::gate::definition::{flags, sides};
use crate::gate::session::Prompt;
use crate::model::ChashGate;

/// Longest time limit: a week, in seconds. A longer one is no limit, and cannot be added to a time.
const LONGEST: u64 = 7 * 24 * 3600;

/// Most slots of a server, longest draft, and most cells and tokens of a sequence: no machine holds more, and a
/// typing error must not fill its memory.
const MOST_SLOTS: usize = 256;
const LONGEST_DRAFT: u32 = 1024;
const MOST_CELLS: usize = 1 << 22;

/// Longest name of a prompt, in letters.
const LONGEST_NAME: usize = 64;

/// Refuses a prompt that does not fit into the context with what is generated and one draft.
pub fn fits(definition: &ChashGate, prompt: &Prompt) -> Result<()> {
    let longest = largest(&definition.n_max) as usize;
    let need = prompt.ids.len() + definition.n_predict + longest + 1;
    if need > definition.context {
        return Err(Error::config(format!(
            "prompt `{}` needs {need} cells, but context is {}",
            prompt.name, definition.context
        ))
        .hint("raise context, or lower n-predict or the prompt's length"));
    }
    Ok(())
}

fn largest(n_max: &[u32]) -> u32 {
    n_max.iter().copied().max().unwrap_or(0)
}

/// Refuses numbers that no machine can hold, before anything is computed from them.
pub(super) fn sizes(definition: &ChashGate) -> Result<()> {
    let above = |key: &str, found: &dyn std::fmt::Display, most: &dyn std::fmt::Display| {
        Err(Error::config(format!(
            "{key} holds {found}, which is above {most}"
        )))
    };
    let is_many = |slots: &&usize| **slots > MOST_SLOTS;
    if let Some(slots) = definition.slots.iter().find(is_many) {
        return above("slots", slots, &MOST_SLOTS);
    }
    let is_long = |n_max: &&u32| **n_max > LONGEST_DRAFT;
    if let Some(n_max) = definition.n_max.iter().find(is_long) {
        return above("n-max", n_max, &LONGEST_DRAFT);
    }
    let cells = [
        ("n-predict", definition.n_predict),
        ("context", definition.context),
    ];
    match cells.into_iter().find(|(_, size)| *size > MOST_CELLS) {
        Some((key, size)) => above(key, &size, &MOST_CELLS),
        None => Ok(()),
    }
}

/// Names of prompts stand in records, tables and pages, each of which has signs of its own.
fn prompt_name(name: &str) -> Result<()> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "._ +-".contains(c);
    if !name.is_empty() && name.len() <= LONGEST_NAME && name.chars().all(is_plain) {
        return Ok(());
    }
    let shown: String = name.chars().take(LONGEST_NAME).collect();
    Err(Error::config(format!(
        "prompt name {shown:?}: it needs 1 to {LONGEST_NAME} letters, digits, blanks, `.`, `_`, `+` and `-`"
    )))
}

pub(super) fn check(definition: &ChashGate) -> Result<()> {
    let fail = |message: &str| Err(Error::config(message));
    sizes(definition)?;
    for prompt in &definition.prompts {
        prompt_name(&prompt.name)?;
    }
    unique("n-max", &definition.n_max)?;
    unique("slots", &definition.slots)?;
    let names: Vec<&String> = definition.prompts.iter().map(|p| &p.name).collect();
    unique("prompt names", &names)?;
    if definition.slots.contains(&0) {
        return fail("slots holds 0; a server has at least one slot");
    }
    if definition.n_predict == 0 {
        return fail("n-predict is 0; nothing would be compared");
    }
    if definition.draft_model.is_some() && largest(&definition.n_max) == 0 {
        return fail("draft-model stands beside n-max of 0 alone; nothing would be drafted");
    }
    runnable(definition)
}

/// What holds for every kind that starts servers.
pub(super) fn runnable(definition: &ChashGate) -> Result<()> {
    let fail = |message: &str| Err(Error::config(message));
    if definition.parallel == 0 {
        return fail("parallel is 0; nothing would run");
    }
    servers(definition)
}

/// Checks of what kinds with and without prompts have alike.
fn servers(definition: &ChashGate) -> Result<()> {
    let fail = |message: &str| Err(Error::config(message));
    let limits = &definition.limits;
    if limits.start == 0 || limits.request == 0 {
        return fail("a time limit is 0; nothing would ever be in time");
    }
    let times = [limits.start, limits.request, limits.stop];
    if (times.into_iter().chain(definition.budget)).any(|seconds| seconds > LONGEST) {
        return fail("a time limit or the budget is above a week of 604800 seconds");
    }
    if definition.budget == Some(0) {
        return fail("budget is 0; nothing would be run");
    }
    flags::check(&definition.flags)?;
    sides::check_device(definition)?;
    sides::check(definition, "baseline", &definition.baseline)?;
    sides::check(definition, "candidate", &definition.candidate)
}

pub(super) fn unique<T: Ord + std::fmt::Debug>(what: &str, items: &[T]) -> Result<()> {
    if items.is_empty() {
        return Err(Error::config(format!(
            "{what}: empty; nothing would be run"
        )));
    }
    let mut seen = BTreeSet::new();
    match items.iter().find(|item| !seen.insert(*item)) {
        Some(twice) => Err(Error::config(format!(
            "{what}: {twice:?} stands there twice"
        ))),
        None => Ok(()),
    }
}
