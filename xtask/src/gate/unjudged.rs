//! The record of a gate that ended before it could judge anything: one gate's error must not hide
//! what the others say.

use std::path::PathBuf;
use std::time::Instant;

use crate::error::{Error, Kind, Result};
use crate::gate::definition::Plan;
use crate::gate::sides::Sides;
use crate::gate::{model_stamp, prompt_stamp, store};
use crate::model::{GateRecord, ModelStamp, SideStamp, Verdict};

/// Of a gate that began at that time and ended with `error`: a fail where that is a finding, such as
/// a candidate that broke down, else inconclusive.
pub fn record(
    plan: &Plan,
    (name, model): (String, PathBuf),
    sides: &Sides<'_>,
    error: &Error,
    (started, begun): (String, Instant),
) -> GateRecord {
    let plan = plan.common();
    let definition = &plan.definition;
    let stamp = |side, is_candidate| -> Result<_> {
        sides
            .side(definition, side, is_candidate, &model)?
            .final_stamp()
    };
    // What is wrong with a side may be the error itself.
    let stamp = |side, is_candidate| {
        stamp(side, is_candidate).unwrap_or_else(|error| SideStamp {
            server: "unknown".to_owned(),
            base: None,
            flavour: None,
            patchset: None,
            source: None,
            env: Vec::new(),
            unverified: vec![error.to_string()],
            device: None,
            artifacts: Vec::new(),
        })
    };
    let mut reason = error.to_string();
    for hint in error.hints() {
        reason.push_str(&format!("; {hint}"));
    }
    GateRecord {
        schema: store::SCHEMA,
        run: None,
        gate: definition.id.clone(),
        kind: definition.kind,
        title: definition.title.clone(),
        definition: plan.digest,
        started,
        seconds: begun.elapsed().as_secs_f64(),
        quick: plan.quick,
        verdict: match error.kind() {
            Kind::Finding => Verdict::Fail,
            _ => Verdict::Inconclusive,
        },
        reason: Some(reason),
        model: model_stamp(name, &model).map_or_else(|_| ModelStamp::none(), |(stamp, _)| stamp),
        baseline: stamp(&definition.baseline, false),
        candidate: stamp(&definition.candidate, true),
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
    }
}
