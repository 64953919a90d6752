//! Gates on other machines: builds, models and definitions are brought there with rsync over ssh, run
//! there by this very program, and their records come back into the store.
//!
//! | file | what it does |
//! | --- | --- |
//! | `script` | the shell text that runs there |
//! | `ssh` | calls of ssh and rsync, and what their failures mean |
//! | `probe` | what a host says of itself, and whether what is brought can run |
//! | `kit` | what is brought |
//! | `session` | one host from beginning to end |
//! | `bring` | records of a host into the store |
//! | `matrix` | all hosts in one table, with one verdict |
//!
//! A host needs ssh, rsync and the libraries that the builds need: no Rust, no compiler, no checkout.
//! Every run has a folder of its own there, and removes it; one that could not is removed by a later
//! run once nothing in it has changed for ten minutes.

mod bring;
pub mod kit;
pub mod matrix;
pub mod probe;
pub mod script;
mod session;
pub mod ssh;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use crate::build::lookup::{Lookup, Machine};
use crate::build::packages::{Package, install_command};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::definition::Plan;
use crate::gate::{self, Request, built_for, device};
use crate::model::{Base, ChashGate, GateBackend, Host, HostsFile, ModelSource, SkippedGate};
use crate::patchset::Series;
use crate::project::suggest;
use kit::{Kit, Part};
pub use matrix::{Cell, Matrix, OneHost, State};
pub use session::ask;

/// The file of hosts: `path`, or `registry/hosts.toml`.
pub fn load(ctx: &Ctx, path: Option<&Path>) -> Result<HostsFile> {
    let path = match path {
        Some(path) => std::path::absolute(path)?,
        None => ctx.project.registry("hosts.toml"),
    };
    if !path.is_file() {
        return Err(Error::usage(format!(
            "there is no {}, which names the hosts",
            ctx.project.show(&path)
        ))
        .hint("docs/reference/hosts.md says what stands in it"));
    }
    let file: HostsFile = crate::model::read_toml(&path)?;
    file.check().context(|| ctx.project.show(&path))?;
    Ok(file)
}

/// The hosts of `names` that ssh can reach, each once; `all` are all of them.
pub fn select(file: &HostsFile, names: &[String]) -> Result<Vec<Host>> {
    let reached = || file.host.iter().filter(|host| host.address.is_some());
    let mut chosen: Vec<Host> = Vec::new();
    for name in names {
        let found: Vec<&Host> = match name.as_str() {
            "all" => reached().collect(),
            name => reached().filter(|host| host.name == name).collect(),
        };
        if found.is_empty() {
            let known = reached().map(|host| host.name.as_str());
            let message = match name.as_str() {
                "all" => "no host has an address".to_owned(),
                name if file.host.iter().any(|host| host.name == name) => {
                    format!("the host `{name}` has no address: ssh cannot reach it")
                }
                name => format!("unknown host `{name}`"),
            };
            return Err(Error::usage(message).hint(suggest(name, known, "hosts with an address")));
        }
        for host in found {
            if !chosen.iter().any(|other| other.name == host.name) {
                chosen.push(host.clone());
            }
        }
    }
    Ok(chosen)
}

/// Fails where the programs are missing on this machine that reach others.
fn check_tools(lookup: &dyn Lookup) -> Result<()> {
    for (name, package) in [("ssh", Package::Ssh), ("rsync", Package::Named("rsync"))] {
        if lookup.find(name).is_none() {
            return Err(
                Error::environment(format!("{name} is not installed on this machine"))
                    .hint(install_command(lookup, &[package])),
            );
        }
    }
    Ok(())
}

/// What is to run on one host.
#[derive(Clone, Debug)]
pub struct Task {
    /// The host.
    pub host: Host,
    /// The gates, fully read.
    pub plans: Vec<Plan>,
    /// Gates that were named and cannot run there.
    pub skipped: Vec<SkippedGate>,
    /// Whether its gates were named.
    pub named: bool,
    /// Whether only quick subsets run.
    pub quick: bool,
    /// What it gets.
    pub part: Part,
    /// The gates that compute there, by each backend that it declares.
    pub backends: BTreeMap<String, BTreeSet<String>>,
}

/// Runs gates on `hosts`, side by side. A host that fails does not keep the others from going on: its
/// failure stands in the matrix. An error means that nothing was run anywhere.
pub fn run(ctx: &Ctx, request: &Request, hosts: &[Host], command: &str) -> Result<Matrix> {
    check_tools(&Machine)?;
    let base = ctx.project.base(request.base.as_deref())?;
    let mut tasks = Vec::new();
    for host in hosts {
        tasks.push(task(ctx, request, host).context(|| format!("host {}", host.name))?);
    }
    // A run that breaks off must not leave an older run's verdict to be read as its own.
    gate::forget_reports(&ctx.project.gate_dir())?;
    let mut kit = prepare(ctx, &base, &mut tasks)?;
    let mut ready = Vec::new();
    for task in &tasks {
        ready.push((task, kit.needs(&task.part)?));
    }
    let run = session::Run {
        ctx,
        kit: &kit,
        base: &base.id,
        request,
        command,
    };
    let hosts = std::thread::scope(|scope| {
        let running: Vec<_> = (ready.iter())
            .map(|(task, needs)| scope.spawn(|| run.host(task, needs)))
            .collect();
        (running.into_iter().zip(&tasks))
            .map(|(thread, task)| match thread.join() {
                Ok(one) => one,
                Err(_) => OneHost::failed(task, Error::internal("its thread has panicked")),
            })
            .collect()
    });
    // What was interrupted is no result, though what is there was stored.
    ctx.cancel.check()?;
    Ok(Matrix { hosts })
}

/// What runs on `host`: the gates that were named, else its own, else those of the base that its
/// backends can run.
fn task(ctx: &Ctx, request: &Request, host: &Host) -> Result<Task> {
    let gates = match request.gates.is_empty() {
        true => host.gates.clone(),
        false => request.gates.clone(),
    };
    let wanted = Request {
        gates,
        quick: request.quick || host.quick,
        ..request.clone()
    };
    let named = !wanted.gates.is_empty();
    let mut task = Task {
        host: host.clone(),
        plans: Vec::new(),
        skipped: Vec::new(),
        named,
        quick: wanted.quick,
        part: Part::default(),
        backends: (host.backends.iter())
            .map(|backend| (backend.clone(), BTreeSet::new()))
            .collect(),
    };
    let mut here = Vec::new();
    for plan in gate::plans(ctx, &wanted)? {
        let definition = &plan.common().definition;
        let (reason, hint) = if definition.model == ModelSource::None {
            if !named {
                here.push(definition.id.clone());
                continue;
            }
            let hint = format!("run it here: cargo xtask gate --gate {}", definition.id);
            (
                "it asks nothing of a machine: it judges the tree and the files".to_owned(),
                hint,
            )
        } else if let Some(backend) = (device::backends(definition).into_iter())
            .find(|backend| !host.backends.iter().any(|has| has == backend.name()))
        {
            if !named {
                continue;
            }
            let name = backend.name();
            (
                format!("{} has no backend {name}", host.name),
                format!("add {name} to its `backends`, or leave the gate out"),
            )
        } else {
            for backend in device::backends(definition) {
                let gates = task.backends.entry(backend.name().to_owned()).or_default();
                gates.insert(definition.id.clone());
            }
            task.plans.push(plan);
            continue;
        };
        task.skipped.push(skipped(&plan, reason, hint));
    }
    if !here.is_empty() {
        ctx.sink.detail(&format!(
            "not run on hosts, since they ask nothing of a machine: {}",
            here.join(" ")
        ));
    }
    Ok(task)
}

fn skipped(plan: &Plan, reason: String, hint: String) -> SkippedGate {
    let definition = &plan.common().definition;
    SkippedGate {
        gate: definition.id.clone(),
        title: definition.title.clone(),
        reason,
        hint,
    }
}

/// Makes what the tasks need: builds and models of this project, as gates here would use them.
fn prepare(ctx: &Ctx, base: &Base, tasks: &mut [Task]) -> Result<Kit> {
    let mut builds = BTreeMap::new();
    let mut without: BTreeSet<GateBackendName> = BTreeSet::new();
    let plans = tasks.iter().flat_map(|task| &task.plans);
    let wanted: Vec<GateBackend> = plans
        .flat_map(|plan| built_for(&plan.common().definition))
        .collect();
    for backend in wanted {
        let name = backend.name();
        if builds.contains_key(name) || without.contains(name) {
            continue;
        }
        match gate::ready_builds(ctx, base, backend)? {
            Some(made) => {
                builds.insert(name, made);
            }
            None => {
                without.insert(name);
            }
        }
    }
    let mut kit = Kit::new(ctx, base, &Series::load(&ctx.project, base)?)?;
    for build in builds.values().flatten() {
        kit.add_build(ctx, build)?;
    }
    let mut models = BTreeSet::new();
    for task in tasks.iter_mut() {
        let (plans, missing): (Vec<Plan>, Vec<Plan>) = std::mem::take(&mut task.plans)
            .into_iter()
            .partition(|plan| {
                let needed = built_for(&plan.common().definition);
                !needed
                    .iter()
                    .any(|backend| without.contains(backend.name()))
            });
        task.plans = plans;
        for plan in missing {
            let needed = built_for(&plan.common().definition);
            // Both sides may want the same one.
            let names: BTreeSet<&str> = (needed.iter().map(|backend| backend.name()))
                .filter(|name| without.contains(name))
                .collect();
            let names = names.into_iter().collect::<Vec<_>>().join(",");
            let reason = format!("there is no build of {} for {names}", base.id);
            let hint = format!("cargo xtask build --backend {names} --base {}", base.id);
            task.skipped.push(skipped(&plan, reason, hint));
        }
        for plan in &task.plans {
            let definition = &plan.common().definition;
            let backends = built_for(definition).into_iter();
            task.part
                .backends
                .extend(backends.map(|backend| backend.name().to_owned()));
            for name in fixtures(definition) {
                task.part.fixtures.insert(name.clone());
                models.insert(name.clone());
            }
        }
    }
    for name in models {
        kit.add_fixture(&name, &crate::fixture::ensure(ctx, &name)?)?;
    }
    Ok(kit)
}

/// The models of a gate that are made here.
fn fixtures(definition: &ChashGate) -> impl Iterator<Item = &String> {
    let model = match &definition.model {
        ModelSource::Fixture(name) => Some(name),
        _ => None,
    };
    let draft = definition.draft_model.as_ref().map(|draft| &draft.fixture);
    model.into_iter().chain(draft)
}

type GateBackendName = &'static str;

#[cfg(test)]
mod tests {
    use super::*;

    fn file() -> HostsFile {
        toml::from_str(
            "schema = 1\n[[host]]\nname = \"a\"\naddress = \"a\"\n[[host]]\nname = \"b\"\n\
             runner = \"r\"\n[[host]]\nname = \"c\"\naddress = \"c\"\n",
        )
        .unwrap()
    }

    #[test]
    fn what_is_missing_here_is_said_with_what_brings_it() {
        use crate::build::lookup::fake::Fake;
        check_tools(&Fake::complete()).unwrap();
        let error = check_tools(&Fake::complete().without("rsync")).unwrap_err();
        assert_eq!(error.hints(), ["sudo apt-get install rsync"]);
        let error = check_tools(&Fake::complete().without("ssh")).unwrap_err();
        assert_eq!(error.hints(), ["sudo apt-get install openssh-client"]);
    }

    #[test]
    fn a_draft_model_is_brought_too() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let project = crate::project::Project::new(root, root).unwrap();
        let names = ["chash-qwen4exp-sidecar".to_owned()];
        let plans = gate::definition::load(&project, &names, false).unwrap();
        let definition = &plans[0].common().definition;
        let draft = &definition.draft_model.as_ref().unwrap().fixture;
        let found: Vec<&String> = fixtures(definition).collect();
        assert!(found.len() == 2 && found.contains(&draft), "{found:?}");
    }

    #[test]
    fn hosts_are_chosen_once_and_only_where_ssh_reaches_them() {
        let chosen = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
            select(&file(), &names)
                .map(|hosts| hosts.into_iter().map(|host| host.name).collect::<Vec<_>>())
        };
        assert_eq!(chosen(&["all"]).unwrap(), ["a", "c"]);
        assert_eq!(chosen(&["c", "all", "c"]).unwrap(), ["c", "a"]);
        let error = chosen(&["b"]).unwrap_err();
        assert!(error.to_string().contains("no address"), "{error}");
        let error = chosen(&["x"]).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
        assert!(error.hints()[0].contains("a, c"), "{:?}", error.hints());
    }
}
