//! What a gate needs and is not there: then it is skipped, which is said and never a pass.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::build::Build;
use crate::build::cuda::driver;
use crate::build::lookup::{Lookup, Machine};
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::gate::Request;
use crate::gate::client::Client;
use crate::gate::definition::Plan;
use crate::gate::device;
use crate::gate::sides::{address, built_for, program};
use crate::model::{
    ChashGate, Digest, Flavour, GateBackend, GateDevice, GateRecord, ModelSource, SideDefinition,
    SkippedGate, Verdict,
};

/// What is missing, and what to do.
type Missing = (String, String);

/// Name and file of a gate's model.
pub type Ready = (String, PathBuf);

/// Gates that can run, with their models; and those that cannot.
pub type Parted = (Vec<(Plan, Ready)>, Vec<SkippedGate>);

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
            Err((reason, hint)) => skipped.push(SkippedGate {
                gate: definition.id.clone(),
                title: definition.title.clone(),
                reason,
                hint,
            }),
        }
    }
    for alike in alike(&skipped) {
        ctx.sink.warn(&alike.to_string());
    }
    Ok((ready, skipped))
}

/// Gates that lack the same.
pub struct Alike<'a> {
    gates: Vec<&'a str>,
    reason: &'a str,
    hint: &'a str,
}

impl std::fmt::Display for Alike<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.gates.as_slice() {
            [gate] => write!(f, "gate {gate} is")?,
            gates => write!(f, "{} gates are", gates.len())?,
        }
        let Alike { reason, hint, .. } = self;
        write!(f, " SKIPPED, which is no pass: {reason} ({hint})")?;
        match self.gates.as_slice() {
            [_] => Ok(()),
            gates => write!(f, ": {}", gates.join(" ")),
        }
    }
}

/// Skipped gates by what they lack, so that one missing build is told of once.
pub fn alike(skipped: &[SkippedGate]) -> Vec<Alike<'_>> {
    let mut all: Vec<Alike<'_>> = Vec::new();
    for gate in skipped {
        let known = all
            .iter_mut()
            .find(|alike| alike.reason == gate.reason && alike.hint == gate.hint);
        match known {
            Some(alike) => alike.gates.push(&gate.gate),
            None => all.push(Alike {
                gates: vec![&gate.gate],
                reason: &gate.reason,
                hint: &gate.hint,
            }),
        }
    }
    all
}

/// What a gate's verdict counts as in that of its run. Whoever names a gate wants its verdict: a
/// named one that was skipped, before it ran or while it did, leaves the run without one.
pub fn counted(verdict: Verdict, named: bool) -> Verdict {
    match verdict {
        Verdict::Skipped if named => Verdict::Inconclusive,
        verdict => verdict,
    }
}

/// A report whose headline has the verdict of the whole run and says that gates were skipped, where
/// some were. The text below it is of those that ran.
pub fn headline(
    report: &str,
    records: &[GateRecord],
    skipped: &[SkippedGate],
    all: Verdict,
) -> String {
    let verdicts = records.iter().map(|record| record.verdict);
    let asked = verdicts.clone().filter(|v| *v == Verdict::Skipped).count();
    let count = skipped.len() + asked;
    if count == 0 {
        return report.to_owned();
    }
    let upper = |verdict: Verdict| verdict.to_string().to_uppercase();
    let of = skipped.len() + records.len();
    report.replacen(
        &format!("# Gates: {}\n", upper(Verdict::all(verdicts))),
        &format!(
            "# Gates: {}\n\n{count} of {of} gates skipped, which is no pass. Of those that ran:\n",
            upper(all)
        ),
        1,
    )
}

/// What the report says of skipped gates.
pub fn section(skipped: &[SkippedGate]) -> String {
    if skipped.is_empty() {
        return String::new();
    }
    let lines = skipped.iter().map(|skipped| {
        let SkippedGate {
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
    for backend in device::backends(gate) {
        if let Some(missing) = no_device(&Machine, backend, &gate.device, Path::new("/dev")) {
            return Ok(Err(missing));
        }
    }
    if request.servers.is_some() {
        return fine;
    }
    for backend in built_for(gate) {
        if backend == GateBackend::Cpu && !request.prebuilt {
            continue;
        }
        let base = ctx.project.base(request.base.as_deref())?;
        for flavour in [Flavour::Vanilla, Flavour::Patched] {
            let name = backend.name();
            if Build::find_variant(ctx, &base.id, flavour, name, request.variant)?.is_none() {
                let hint = match request.prebuilt {
                    true => "it was not brought here".to_owned(),
                    false => format!(
                        "cargo xtask build --backend {name} --base {}{}",
                        base.id,
                        request.variant.flags()
                    ),
                };
                let reason = format!("there is no {flavour} build of {} for {name}", base.id);
                return Ok(Err((reason, hint)));
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

/// The driver or device that a gate wants of a backend, where there is none.
fn no_device(
    lookup: &dyn Lookup,
    backend: GateBackend,
    wanted: &GateDevice,
    dev: &Path,
) -> Option<Missing> {
    match (&wanted.driver, backend) {
        // It may be one for processors, and needs no device.
        (Some(driver), GateBackend::Vulkan) => {
            (!device::has_driver(driver)).then(|| device::no_driver(driver))
        }
        _ => gpu(lookup, backend, dev),
    }
}

/// The device of a backend, where there is none. `dev` is the folder of devices. Where that shows no GPU of NVIDIA's, its
/// driver is asked: it may reach one in another way.
fn gpu(lookup: &dyn Lookup, backend: GateBackend, dev: &Path) -> Option<Missing> {
    // A container may be given another one than the first.
    let nvidia = || {
        let nodes = std::fs::read_dir(dev).into_iter().flatten().flatten();
        let mut names = nodes.map(|entry| entry.file_name().to_string_lossy().into_owned());
        names.any(|name| {
            let number = name.strip_prefix("nvidia").unwrap_or_default();
            !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    let there = match backend {
        GateBackend::Cpu => true,
        GateBackend::Cuda => nvidia() || dev.join("dxg").exists() || driver::gpus(lookup).is_some(),
        GateBackend::Vulkan => {
            let nodes = std::fs::read_dir(dev.join("dri")).into_iter().flatten();
            let mut names = nodes.flatten().map(|entry| entry.file_name());
            let render = names.any(|name| name.to_string_lossy().starts_with("renderD"));
            // Mesa's driver for WSL2 goes through the host's Direct3D.
            render || nvidia() || dev.join("dxg").exists()
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
    if let (Some(_), Some(draft)) = (&request.model, &gate.draft_model) {
        return Ok(Err((
            format!("its draft model is that of a fixture: {}", draft.fixture),
            "run it without --model".to_owned(),
        )));
    }
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

/// What a record says of a draft model.
pub fn draft_note(name: &str, sha256: &Digest) -> String {
    format!("drafts are those of {name}, {sha256}")
}

/// What a record says of a gate's draft model, and the file.
pub fn draft_model(ctx: &Ctx, gate: &ChashGate) -> Result<Option<(String, PathBuf)>> {
    let Some(draft) = &gate.draft_model else {
        return Ok(None);
    };
    let fixture = crate::fixture::load(&ctx.project, &draft.fixture)?;
    let note = draft_note(&fixture.name, &fixture.sha256);
    let made = crate::fixture::ensure_with(ctx, fixture, false)?;
    Ok(Some((note, made.path)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;

    #[test]
    fn a_gpu_is_a_device() {
        let none = Fake::complete();
        let dev = tempfile::tempdir().unwrap();
        let missing = |backend| gpu(&none, backend, dev.path()).is_some();
        assert!(!missing(GateBackend::Cpu));
        assert!(missing(GateBackend::Cuda) && missing(GateBackend::Vulkan));
        fs_err::create_dir(dev.path().join("dri")).unwrap();
        fs_err::write(dev.path().join("dri/card0"), "").unwrap();
        assert!(missing(GateBackend::Vulkan));
        fs_err::write(dev.path().join("dri/renderD128"), "").unwrap();
        assert!(!missing(GateBackend::Vulkan) && missing(GateBackend::Cuda));
        // The driver's own nodes are no GPU.
        fs_err::write(dev.path().join("nvidiactl"), "").unwrap();
        fs_err::write(dev.path().join("nvidia-uvm"), "").unwrap();
        assert!(missing(GateBackend::Cuda));
        fs_err::write(dev.path().join("nvidia3"), "").unwrap();
        assert!(!missing(GateBackend::Cuda));
        // WSL2 has this and nothing else.
        let dev = tempfile::tempdir().unwrap();
        fs_err::write(dev.path().join("dxg"), "").unwrap();
        for backend in [GateBackend::Cuda, GateBackend::Vulkan] {
            let found = gpu(&none, backend, dev.path());
            assert!(found.is_none(), "{}", backend.name());
        }
        // Nothing but the driver's word; that there is none is its word too.
        let dev = tempfile::tempdir().unwrap();
        for (text, is_there) in [
            ("9.0, 580.95.05\n", true),
            ("No devices were found\n", false),
        ] {
            let machine = Fake::complete().with("nvidia-smi", text);
            let found = gpu(&machine, GateBackend::Cuda, dev.path());
            assert_eq!(found.is_none(), is_there, "{text}");
            assert!(gpu(&machine, GateBackend::Vulkan, dev.path()).is_some());
        }
    }

    #[test]
    fn a_driver_that_is_not_there_is_missing_even_beside_a_gpu() {
        let dev = tempfile::tempdir().unwrap();
        fs_err::write(dev.path().join("nvidia0"), "").unwrap();
        let wanted = GateDevice {
            driver: Some("no-such-driver".to_owned()),
            ..GateDevice::default()
        };
        let machine = Fake::complete();
        let found = no_device(&machine, GateBackend::Vulkan, &wanted, dev.path());
        let (reason, _) = found.unwrap();
        assert!(reason.contains("no Vulkan driver `no-such-driver`"));
        // The side on processors wants none.
        assert_eq!(
            no_device(&machine, GateBackend::Cpu, &wanted, dev.path()),
            None
        );
    }

    #[test]
    fn a_named_gate_that_was_skipped_counts() {
        use Verdict::{Inconclusive, Pass, Skipped};
        let over = |named| Verdict::all([Pass, Skipped].map(|verdict| counted(verdict, named)));
        assert_eq!((over(false), over(true)), (Pass, Inconclusive));
    }

    #[test]
    fn the_headline_says_that_gates_were_skipped() {
        let passed = crate::gate::testing::record(&|_, _, _| {});
        let mut itself = passed.clone();
        itself.verdict = Verdict::Skipped;
        let cuda = SkippedGate {
            gate: "cuda".to_owned(),
            title: String::new(),
            reason: String::new(),
            hint: String::new(),
        };
        let records = [passed, itself];
        let text = crate::gate::report::report(&records, "again");
        assert_eq!(headline(&text, &records[..1], &[], Verdict::Pass), text);
        let said = headline(&text, &records, &[cuda], Verdict::Inconclusive);
        let start = "# Gates: INCONCLUSIVE\n\n2 of 3 gates skipped, which is no pass.";
        assert!(said.starts_with(start), "{said}");
    }

    #[test]
    fn what_several_gates_lack_is_said_once() {
        let gate = |gate: &str, reason: &str| SkippedGate {
            gate: gate.to_owned(),
            title: String::new(),
            reason: reason.to_owned(),
            hint: "do".to_owned(),
        };
        let all = [
            gate("a", "no build"),
            gate("b", "no model"),
            gate("c", "no build"),
        ];
        let said: Vec<String> = alike(&all).iter().map(|alike| alike.to_string()).collect();
        let several = "2 gates are SKIPPED, which is no pass: no build (do): a c";
        let one = "gate b is SKIPPED, which is no pass: no model (do)";
        assert_eq!(said, [several, one]);
    }

    #[test]
    fn skipped_gates_stand_in_the_report() {
        assert_eq!(section(&[]), "");
        let text = section(&[SkippedGate {
            gate: "g".to_owned(),
            title: "T".to_owned(),
            reason: "no model".to_owned(),
            hint: "set it".to_owned(),
        }]);
        assert!(text.contains("`g` (T): no model; set it"), "{text}");
        assert!(text.contains("did not pass"));
    }
}
