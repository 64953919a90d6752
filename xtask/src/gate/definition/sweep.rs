//! `[[setting]]` of a gate of kind `chash`: what is swept beside drafts and slots.

use crate::error::{Error, Result};
use crate::model::ChashGate;

use super::{ChashPlan, flags as server_flags, keep, unique};

/// A way to run both servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// Name; absent where the definition has no settings.
    pub name: Option<String>,
    /// More flags.
    pub flags: Vec<String>,
    /// Longest drafts to run with it.
    pub n_max: Option<Vec<u32>>,
    /// Numbers of slots to run with it.
    pub slots: Option<Vec<usize>>,
}

/// The settings to run; one without a name where a definition has none.
pub fn settings(definition: &ChashGate, quick: bool) -> Result<Vec<Setting>> {
    let subset = match &definition.quick {
        Some(subset) if quick => subset.settings.as_ref(),
        _ => None,
    };
    if definition.settings.is_empty() {
        return match subset {
            Some(_) => Err(Error::config(
                "quick.settings names settings, of which this gate has none",
            )),
            None => Ok(vec![Setting::default()]),
        };
    }
    let mut names: Vec<String> = (definition.settings.iter())
        .map(|setting| setting.name.clone())
        .collect();
    unique("setting names", &names)?;
    let mut found = Vec::new();
    for setting in &definition.settings {
        let name = &setting.name;
        check(name, &setting.flags)?;
        if let Some(n_max) = &setting.n_max {
            part(name, "n-max", n_max, &definition.n_max)?;
        }
        if let Some(slots) = &setting.slots {
            part(name, "slots", slots, &definition.slots)?;
        }
        found.push(Setting {
            name: Some(name.clone()),
            flags: setting.flags.clone(),
            n_max: setting.n_max.clone(),
            slots: setting.slots.clone(),
        });
    }
    if let Some(subset) = subset {
        keep("quick.settings", &mut names, subset, String::clone)?;
        found.retain(|setting| (setting.name.as_ref()).is_some_and(|name| names.contains(name)));
    }
    Ok(found)
}

/// Refuses settings of which nothing is left to run, and such as leave out the plain decoding that
/// drafted decoding is to equal: both would pass by not being there.
pub fn narrowed(plan: &ChashPlan) -> Result<()> {
    for setting in &plan.settings {
        let name = setting.name.as_deref().unwrap_or_default();
        let drafts = |n_max: &u32| {
            setting
                .n_max
                .as_ref()
                .is_none_or(|some| some.contains(n_max))
        };
        let slots = |slots: &usize| {
            setting
                .slots
                .as_ref()
                .is_none_or(|some| some.contains(slots))
        };
        if !plan.n_max.iter().any(drafts) || !plan.slots.iter().any(slots) {
            return Err(Error::config(format!(
                "nothing is left to run of setting `{name}` in the quick subset"
            ))
            .hint(
                "name in quick.settings those that have something of quick.n-max and quick.slots",
            ));
        }
        if plan.definition.drafted_equals_plain && !drafts(&0) {
            return Err(Error::config(format!(
                "drafted-equals-plain needs 0 in n-max of setting `{name}`"
            )));
        }
    }
    Ok(())
}

/// A name that can be part of a file's, and flags that are not the gate's own.
pub fn check(name: &str, flags: &[String]) -> Result<()> {
    let plain = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'.' | b'_');
    if name.is_empty() || !name.bytes().all(plain) {
        return Err(Error::config(format!(
            "setting name `{name}`: only letters, digits, `-`, `.` and `_` are allowed"
        )));
    }
    server_flags::check(flags)
}

/// What a setting narrows must be part of what the definition runs, since that is checked, shown
/// and cut down by `quick`.
fn part<T: Ord + std::fmt::Debug>(name: &str, key: &str, some: &[T], all: &[T]) -> Result<()> {
    unique(&format!("{key} of setting `{name}`"), some)?;
    match some.iter().find(|item| !all.contains(item)) {
        Some(unknown) => Err(Error::config(format!(
            "{key} of setting `{name}` names {unknown:?}, which {key} of the gate does not"
        ))),
        None => Ok(()),
    }
}
