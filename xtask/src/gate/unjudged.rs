//! The record of a gate that ended before it could judge anything.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::gate::definition::Plan;
use crate::gate::sides::Sides;
use crate::gate::{chash, model_stamp};
use crate::model::{GateRecord, PromptStamp, Verdict};

/// Inconclusive, for what `error` says.
pub fn record(
    plan: &Plan,
    (name, model): (String, PathBuf),
    sides: &Sides<'_>,
    error: &Error,
) -> Result<GateRecord> {
    let plan = plan.common();
    let definition = &plan.definition;
    let stamp = |side, is_candidate| -> Result<_> {
        sides
            .side(definition, side, is_candidate, &model)?
            .final_stamp()
    };
    let mut reason = error.to_string();
    for hint in error.hints() {
        reason.push_str(&format!("; {hint}"));
    }
    let started = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
    Ok(GateRecord {
        schema: 1,
        gate: definition.id.clone(),
        kind: definition.kind,
        title: definition.title.clone(),
        definition: plan.digest,
        started: started.to_string(),
        seconds: 0.0,
        quick: plan.quick,
        verdict: Verdict::Inconclusive,
        reason: Some(reason),
        model: model_stamp(name, &model)?,
        baseline: stamp(&definition.baseline, false)?,
        candidate: stamp(&definition.candidate, true)?,
        n_predict: definition.n_predict,
        n_max: plan.n_max.clone(),
        slots: plan.slots.clone(),
        prompts: (plan.prompts.iter())
            .map(|prompt| PromptStamp {
                name: prompt.name.clone(),
                length: prompt.ids.len(),
                sha256: chash::digest(&prompt.ids),
                text: None,
            })
            .collect(),
        perf: None,
        acceptance: Vec::new(),
        cells: Vec::new(),
        drafted_against_plain: Vec::new(),
        notes: Vec::new(),
    })
}
