//! What a gate needs and is not there: then it is skipped, which is said and never a pass.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::build::Build;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::Request;
use crate::gate::client::Client;
use crate::gate::definition::Plan;
use crate::gate::sides::{address, program, wants_build};
use crate::model::{ChashGate, Flavour, GateBackend, ModelSource, SideDefinition, Verdict};

/// A gate that does not run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Skipped {
    /// Its id.
    pub gate: String,
    /// Its title.
    pub title: String,
    /// What is not there.
    pub reason: String,
    /// What to do.
    pub hint: String,
}

/// What is missing, and what to do.
type Missing = (String, String);

/// Name and file of a gate's model.
pub type Ready = (String, PathBuf);

/// Gates that can run, with their models; and those that cannot.
pub type Parted = (Vec<(Plan, Ready)>, Vec<Skipped>);

/// Parts the gates that can run, with their models, from those that cannot.
pub fn part(ctx: &Ctx, request: &Request, plans: Vec<Plan>) -> Result<Parted> {
    let (mut ready, mut skipped) = (Vec::new(), Vec::new());
    for plan in plans {
        let definition = &plan.common().definition;
        let mut found = look(ctx, request, definition)?;
        if found.is_ok() {
            found = model(ctx, request, definition)?;
        }
        match found {
            Ok(model) => ready.push((plan, model)),
            Err((reason, hint)) => {
                let gate = definition.id.clone();
                ctx.sink.warn(&format!(
                    "gate {gate} is SKIPPED, which is no pass: {reason} ({hint})"
                ));
                skipped.push(Skipped {
                    gate,
                    title: definition.title.clone(),
                    reason,
                    hint,
                });
            }
        }
    }
    Ok((ready, skipped))
}

/// A report whose headline says what the gates that ran give, with the verdict of the whole run:
/// a gate that was named and skipped is part of it.
pub fn headline(report: &str, ran: Verdict, all: Verdict) -> String {
    let upper = |verdict: Verdict| verdict.to_string().to_uppercase();
    report.replacen(
        &format!("# Gates: {}\n", upper(ran)),
        &format!(
            "# Gates: {}\n\nA gate that was named was skipped, so that this is no pass. Of those \
             that ran:\n",
            upper(all)
        ),
        1,
    )
}

/// What the report says of skipped gates.
pub fn section(skipped: &[Skipped]) -> String {
    if skipped.is_empty() {
        return String::new();
    }
    let lines = skipped.iter().map(|skipped| {
        let Skipped {
            gate,
            title,
            reason,
            hint,
        } = skipped;
        format!("- – `{gate}` ({title}): {reason}; {hint}\n")
    });
    format!(
        "\n## Skipped\n\nThese gates did not run. They did not pass.\n\n{}",
        lines.collect::<String>()
    )
}

fn look(
    ctx: &Ctx,
    request: &Request,
    gate: &ChashGate,
) -> Result<std::result::Result<Ready, Missing>> {
    let fine = Ok(Ok((String::new(), PathBuf::new())));
    if let Some(missing) = gpu(gate.backend, Path::new("/dev")) {
        return Ok(Err(missing));
    }
    if request.servers.is_some() {
        return fine;
    }
    if gate.backend != GateBackend::Cpu && wants_build(gate) {
        let base = ctx.project.base(request.base.as_deref())?;
        for flavour in [Flavour::Vanilla, Flavour::Patched] {
            let name = gate.backend.name();
            if Build::find(ctx, &base.id, flavour, name)?.is_none() {
                return Ok(Err((
                    format!("there is no {flavour} build of {} for {name}", base.id),
                    "name two servers with --baseline and --candidate".to_owned(),
                )));
            }
        }
    }
    for side in [&gate.baseline, &gate.candidate] {
        if let Some(missing) = server(ctx.project.root(), side)? {
            return Ok(Err(missing));
        }
    }
    fine
}

/// The server of a side, where it is neither built nor there.
fn server(root: &Path, side: &SideDefinition) -> Result<Option<Missing>> {
    if side.build.is_some() {
        return Ok(None);
    }
    for name in [&side.server_env, &side.url_env, &side.api_key_env]
        .into_iter()
        .flatten()
    {
        if std::env::var_os(name).is_none_or(|value| value.is_empty()) {
            return Ok(Some((
                format!("{name} is not set"),
                format!("set {name}, as the gate's definition says"),
            )));
        }
    }
    if let Some(program) = program(root, side) {
        return Ok((!program.is_file()).then(|| {
            (
                format!("there is no server {}", program.display()),
                "build it, or mend the gate's definition".to_owned(),
            )
        }));
    }
    let Some((address, key)) = address(side)? else {
        return Ok(None);
    };
    let client = Client::of(address.as_str(), &key, Duration::from_secs(5));
    Ok((!client.healthy()).then(|| {
        (
            format!("no server answers at {}", address.as_str()),
            "start it".to_owned(),
        )
    }))
}

/// The device of a backend, where there is none. `dev` is the folder of devices.
fn gpu(backend: GateBackend, dev: &Path) -> Option<Missing> {
    let there = match backend {
        GateBackend::Cpu => true,
        GateBackend::Cuda => dev.join("nvidia0").exists() || dev.join("dxg").exists(),
        GateBackend::Vulkan => {
            let nodes = std::fs::read_dir(dev.join("dri")).into_iter().flatten();
            let mut names = nodes.flatten().map(|entry| entry.file_name());
            names.any(|name| name.to_string_lossy().starts_with("renderD"))
                || dev.join("nvidia0").exists()
        }
    };
    (!there).then(|| {
        (
            format!("this machine has no GPU for {}", backend.name()),
            "run it on one that has".to_owned(),
        )
    })
}

fn model(
    ctx: &Ctx,
    request: &Request,
    gate: &ChashGate,
) -> Result<std::result::Result<Ready, Missing>> {
    let file_name = |path: &Path| {
        let name = path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    };
    let is_file = |path: PathBuf, hint: String| match path.is_file() {
        true => Ok((file_name(&path), path)),
        false => Err((format!("there is no model {}", path.display()), hint)),
    };
    Ok(match (&request.model, &gate.model) {
        (_, ModelSource::None) => Ok(("none".to_owned(), PathBuf::new())),
        (Some(path), _) => {
            let path = std::path::absolute(path)?;
            // What the user names must be there.
            return match is_file(path, String::new()) {
                Ok(ready) => Ok(Ok(ready)),
                Err((reason, _)) => Err(Error::usage(reason).hint("name a GGUF file")),
            };
        }
        (None, ModelSource::Fixture(name)) => {
            Ok((name.clone(), crate::fixture::ensure(ctx, name)?))
        }
        (None, ModelSource::Path(path)) => is_file(
            ctx.project.root().join(path),
            "put it there, or use --model".to_owned(),
        ),
        (None, ModelSource::Env(variable)) => match std::env::var_os(variable) {
            Some(path) if !path.is_empty() => is_file(
                std::path::absolute(path)?,
                format!("set {variable} to a GGUF file"),
            ),
            _ => Err((
                format!("its model is named by {variable}, which is not set"),
                format!("set {variable} to a GGUF file, or use --model"),
            )),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_is_a_device() {
        let dev = tempfile::tempdir().unwrap();
        let missing = |backend| gpu(backend, dev.path()).is_some();
        assert!(!missing(GateBackend::Cpu));
        assert!(missing(GateBackend::Cuda) && missing(GateBackend::Vulkan));
        fs_err::create_dir(dev.path().join("dri")).unwrap();
        fs_err::write(dev.path().join("dri/card0"), "").unwrap();
        assert!(missing(GateBackend::Vulkan));
        fs_err::write(dev.path().join("dri/renderD128"), "").unwrap();
        assert!(!missing(GateBackend::Vulkan) && missing(GateBackend::Cuda));
        fs_err::write(dev.path().join("nvidia0"), "").unwrap();
        assert!(!missing(GateBackend::Cuda));
    }

    #[test]
    fn skipped_gates_stand_in_the_report() {
        assert_eq!(section(&[]), "");
        let text = section(&[Skipped {
            gate: "g".to_owned(),
            title: "T".to_owned(),
            reason: "no model".to_owned(),
            hint: "set it".to_owned(),
        }]);
        assert!(text.contains("`g` (T): no model; set it"), "{text}");
        assert!(text.contains("did not pass"));
    }
}
