//! Flags and variables of a definition that would go round what the gate sets and reads.

use super::Plan;
use crate::error::{Error, Result};
use crate::gate::device;
use crate::model::{ChashGate, GateBackend, SideDefinition};

/// Flags that the gate sets itself; a definition that sets them too would compare something
/// else than it says.
const OWN_FLAGS: [&str; 70] = [
    "-m",
    "--model",
    "-mu",
    "--model-url",
    "-hf",
    "-hfr",
    "--hf-repo",
    "-hff",
    "--hf-file",
    "-fit",
    "--fit",
    "-c",
    "--ctx-size",
    "-np",
    "--parallel",
    "-cb",
    "--cont-batching",
    "--host",
    "--port",
    "--reuse-port",
    "--api-key",
    "--api-key-file",
    "--log-file",
    "--log-jsonl",
    // What the log says: whether a switch acted, and on which device, is read there.
    "--log-disable",
    "-v",
    "--verbose",
    "--log-verbose",
    "-lv",
    "--verbosity",
    "--log-verbosity",
    "--no-log-jsonl",
    "--spec-type",
    "--spec-draft-n-max",
    "--api-prefix",
    "-ctxcp",
    "--ctx-checkpoints",
    "--swa-checkpoints",
    "-cram",
    "--cache-ram",
    "--ssl-key-file",
    "--ssl-cert-file",
    "-nocb",
    "--no-cont-batching",
    // Where it computes, which `backend` and `device` say.
    "-dev",
    "--device",
    "-mg",
    "--main-gpu",
    "--list-devices",
    "-devd",
    "--device-draft",
    "--spec-draft-device",
    // Another model than the one that the record names.
    "-hfd",
    "-hfrd",
    "--hf-repo-draft",
    "--spec-draft-hf",
    "-md",
    "--model-draft",
    "--spec-draft-model",
    "-dr",
    "--docker-repo",
    "--models-dir",
    "--models-preset",
    // How much of a draft is accepted, drawn and not found.
    "--spec-synth-len",
    "--spec-synth-rates",
    // The context of a slot, and the longest draft.
    "--kv-unified-per-slot",
    "--draft",
    "--draft-n",
    "--draft-max",
    // Computes on another machine.
    "--rpc",
];

/// Flags that put a part of the model or of the cache elsewhere than on the device that a gate is about: the log
/// says all the same that all layers lie there.
const ELSEWHERE: [&str; 21] = [
    "-ot",
    "--override-tensor",
    "-cmoe",
    "--cpu-moe",
    "-ncmoe",
    "--n-cpu-moe",
    "-ncffn",
    "--n-cpu-ffn",
    "-nkvo",
    "--no-kv-offload",
    "--no-op-offload",
    // The same of what drafts.
    "-otd",
    "--override-tensor-draft",
    "--spec-draft-override-tensor",
    "-cmoed",
    "--cpu-moe-draft",
    "--spec-draft-cpu-moe",
    "-ncmoed",
    "--n-cpu-moe-draft",
    "--spec-draft-n-cpu-moe",
    "--spec-draft-ncmoe",
];

/// Variables that are as good as those flags, behind `LLAMA_ARG_` and perhaps `NO_`.
const OWN_VARIABLES: [&str; 38] = [
    "MODEL",
    "MODEL_URL",
    "HF_REPO",
    "HF_FILE",
    "FIT",
    "CTX_SIZE",
    "N_PARALLEL",
    "CONT_BATCHING",
    "HOST",
    "PORT",
    "REUSE_PORT",
    "API_KEY",
    "API_KEY_FILE",
    "API_PREFIX",
    "LOG_FILE",
    "LOG_JSONL",
    "LOG_VERBOSITY",
    "SPEC_TYPE",
    "SPEC_DRAFT_N_MAX",
    "SPEC_DRAFT_MODEL",
    "SPEC_DRAFT_HF_REPO",
    "MODEL_DRAFT",
    "HFD_REPO",
    "CTX_CHECKPOINTS",
    "SWA_CHECKPOINTS",
    "CACHE_RAM",
    "SSL_KEY_FILE",
    "SSL_CERT_FILE",
    "DEVICE",
    "MAIN_GPU",
    "DOCKER_REPO",
    "MODELS_DIR",
    "MODELS_PRESET",
    "SPEC_SYNTH_LEN",
    "SPEC_SYNTH_RATES",
    "KV_UNIFIED_PER_SLOT",
    "DRAFT_MAX",
    "RPC",
];

/// As [`OWN_VARIABLES`], for [`ELSEWHERE`].
const VARIABLES_ELSEWHERE: [&str; 7] = [
    "OVERRIDE_TENSOR",
    "CPU_MOE",
    "N_CPU_MOE",
    "N_CPU_FFN",
    "KV_OFFLOAD",
    "SPEC_DRAFT_CPU_MOE",
    "SPEC_DRAFT_N_CPU_MOE",
];

/// The name of a flag, spelt as the server shows it: it takes others too.
fn name_of(flag: &str) -> String {
    let name = flag.split('=').next().unwrap_or_default();
    match name.starts_with("--") {
        true => name.replace('_', "-"),
        false => name.to_owned(),
    }
}

/// Refuses flags that the gate sets itself.
pub fn check(flags: &[String]) -> Result<()> {
    for flag in flags {
        let name = name_of(flag);
        // A preset names a model, and sets what the gate sets.
        let is_preset =
            name.starts_with("--") && (name.ends_with("-default") || name.ends_with("-spec"));
        if is_preset || OWN_FLAGS.contains(&name.as_str()) {
            return Err(Error::config(format!(
                "flags holds `{name}`, which the gate sets itself"
            )));
        }
    }
    Ok(())
}

/// Refuses variables of a side that are as good as flags which are refused.
pub fn check_env(gate: &ChashGate, key: &str, side: &SideDefinition) -> Result<()> {
    let on_device = device::backend(gate, side) != GateBackend::Cpu;
    let is_own = |name: &str| {
        // Older servers read these.
        if name.starts_with("LLAMA_LOG_") || name == "LLAMA_API_KEY" {
            return true;
        }
        let Some(flag) = name.strip_prefix("LLAMA_ARG_") else {
            return false;
        };
        let flag = flag.strip_prefix("NO_").unwrap_or(flag);
        OWN_VARIABLES.contains(&flag) || on_device && VARIABLES_ELSEWHERE.contains(&flag)
    };
    match side.env.keys().find(|name| is_own(name)) {
        None => Ok(()),
        Some(name) => Err(Error::config(format!(
            "{key}.env holds `{name}`, which goes round what the gate sets itself"
        ))),
    }
}

/// Refuses flags with which a gate for a device would not be about that device alone.
pub fn check_plan(plan: &Plan) -> Result<()> {
    let common = plan.common();
    let gate = &common.definition;
    if device::backends(gate) == [GateBackend::Cpu] {
        return Ok(());
    }
    let swept = common.settings.iter().flat_map(|setting| &setting.flags);
    let drafts = match plan {
        Plan::Drafts(_, settings) => settings.as_slice(),
        _ => &[],
    };
    let drafts = drafts.iter().flat_map(|setting| &setting.flags);
    let mut all = gate.flags.iter().chain(swept).chain(drafts);
    let found = all.find_map(|flag| {
        let name = name_of(flag);
        ELSEWHERE.contains(&name.as_str()).then_some(name)
    });
    match found {
        None => Ok(()),
        Some(name) => Err(Error::config(format!(
            "flags hold `{name}`, which leaves a part of the model to processors: the gate is for a device"
        ))),
    }
}
