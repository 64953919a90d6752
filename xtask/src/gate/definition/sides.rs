//! Checks of `baseline` and `candidate`.

use crate::error::{Error, Result};
use crate::gate::device;
use crate::gate::remote::Address;
use crate::model::{ChashGate, GateBackend, GateDevice, GateKind, SideDefinition};

/// Refuses a wish for a device that nothing would come of.
pub fn check_device(gate: &ChashGate) -> Result<()> {
    let backends = device::backends(gate);
    let fail = |message: &str| Err(Error::config(message));
    if gate.kind == GateKind::Logits && backends != [GateBackend::Cpu] {
        return fail("logits are read on processors only: backend must be `cpu`");
    }
    if gate.device == GateDevice::default() {
        return Ok(());
    }
    if backends == [GateBackend::Cpu] {
        return fail("device is for backend `vulkan` or `cuda`; both sides compute on processors");
    }
    if gate.device.driver.is_some() && !backends.contains(&GateBackend::Vulkan) {
        return fail("device.driver names a Vulkan driver, and no side has backend `vulkan`");
    }
    let driver = gate.device.driver.as_deref();
    let is_odd = driver.is_some_and(|driver| driver.is_empty() || driver.contains('/'));
    if is_odd || gate.device.name.as_deref() == Some("") {
        return fail("device.driver and device.name must be names: not empty, and no paths");
    }
    Ok(())
}

/// Refuses a side that says nothing, or too much.
pub fn check(gate: &ChashGate, key: &str, side: &SideDefinition) -> Result<()> {
    let fail = |message: String| Err(Error::config(format!("{key}: {message}")));
    let said = [
        ("build", side.build.is_some()),
        ("server", side.server.is_some()),
        ("server-env", side.server_env.is_some()),
        ("url", side.url.is_some()),
        ("url-env", side.url_env.is_some()),
    ];
    let said: Vec<&str> = (said.iter().filter(|(_, is)| *is))
        .map(|(name, _)| *name)
        .collect();
    if said.len() != 1 {
        return fail(format!(
            "it needs exactly one of `build`, `server`, `server-env`, `url` and `url-env`, and \
             has {}",
            match said.as_slice() {
                [] => "none".to_owned(),
                several => several.join(", "),
            }
        ));
    }
    let variables = [&side.server_env, &side.url_env, &side.api_key_env];
    let named = variables.into_iter().flatten().chain(side.env.keys());
    for name in named {
        if name.is_empty() || name.contains(['=', '\0']) {
            return Err(Error::config(format!(
                "{name:?} is no name of an environment variable"
            )));
        }
    }
    super::flags::check_env(gate, key, side)?;
    if !side.is_running() {
        if side.api_key_env.is_some() || side.remote || side.n_max.is_some() {
            return fail(
                "`api-key-env`, `remote` and `n-max` are for a server that runs already (`url`)"
                    .to_owned(),
            );
        }
        return Ok(());
    }
    if side.backend.is_some() {
        return fail(
            "`backend` is for a server that the gate starts; one that runs already computes where \
             it does"
                .to_owned(),
        );
    }
    if !side.env.is_empty() {
        return fail(
            "`env` cannot reach a server that runs already; start it with these variables"
                .to_owned(),
        );
    }
    if let Some(url) = &side.url {
        Address::parse(url, side.remote).map_err(|error| error.context(key.to_owned()))?;
    }
    // What a running server cannot do: start anew, trace, or be what the gate asks for twice.
    if !matches!(gate.kind, GateKind::Chash | GateKind::Acceptance) {
        return fail(
            "a gate of this kind starts its servers itself; `url` is for kinds `chash` and \
             `acceptance`"
                .to_owned(),
        );
    }
    if gate.n_max.len() > 1 || gate.slots.len() > 1 || !gate.settings.is_empty() {
        return fail(
            "a server that runs already has one setting: n-max and slots must hold one number \
             each, and there can be no [[setting]]"
                .to_owned(),
        );
    }
    if !gate.flags.is_empty() {
        return fail("`flags` cannot reach a server that runs already".to_owned());
    }
    Ok(())
}
