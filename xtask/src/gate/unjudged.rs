//! The record of a gate that ended before it could judge anything.

use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::gate::definition::Plan;
use crate::gate::sides::Sides;
use crate::gate::{model_stamp, prompt_stamp, store};
use crate::model::{GateRecord, Verdict};

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
        schema: store::SCHEMA,
        run: None,
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
            .map(|prompt| prompt_stamp(prompt, None))
            .collect(),
        perf: None,
        acceptance: Vec::new(),
        checks: Vec::new(),
        logits: Vec::new(),
        probes: Vec::new(),
        counters: Vec::new(),
        retrieval: Vec::new(),
        golden: None,
        cells: Vec::new(),
        drafted_against_plain: Vec::new(),
        notes: Vec::new(),
    })
}
