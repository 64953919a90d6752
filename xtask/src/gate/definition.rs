//! Reading `gates/*.toml` into plans: everything checked, prompts made.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result, ResultExt};
use crate::gate::counters::CountersPlan;
use crate::gate::logits::LogitsPlan;
use crate::gate::perf::PerfPlan;
use crate::gate::prompts::{Source, source};
use crate::gate::retrieval::RetrievalPlan;
use crate::gate::session::Prompt;
use crate::gate::texts::Text;
use crate::model::{
    AcceptanceGate, ArtifactsAllow, ArtifactsGate, ChashGate, CountersGate, Digest, DraftsGate,
    DraftsSetting, GateHeader, GateKind, IntegrityGate, LogitsGate, PerfGate, RetrievalGate,
};
use crate::project::{Project, suggest};
pub use limits::fits;
use limits::{check, runnable, sizes, unique};
pub use sweep::Setting;

mod flags;
mod limits;
mod sides;
mod sweep;

/// Files of `gates/` that are no definitions.
const OTHERS: [&str; 2] = ["fixtures.toml", "goldens.toml"];

/// A chash definition, ready to run.
#[derive(Clone, Debug)]
pub struct ChashPlan {
    /// The definition.
    pub definition: ChashGate,
    /// Digest of the definition and of the prompt files that it names.
    pub digest: Digest,
    /// The prompts to run. Those that `texts` names have no ids yet.
    pub prompts: Vec<Prompt>,
    /// What has to be made ids of by a server, by the name of the prompt.
    pub texts: BTreeMap<String, Text>,
    /// Ways to run both servers; at least one.
    pub settings: Vec<Setting>,
    /// Longest drafts to run.
    pub n_max: Vec<u32>,
    /// Numbers of slots to run.
    pub slots: Vec<usize>,
    /// Whether this is the quick subset.
    pub quick: bool,
}

/// A gate, ready to run.
#[derive(Clone, Debug)]
pub enum Plan {
    /// Same tokens.
    Chash(Box<ChashPlan>),
    /// Same drafts: with the settings to run, the rest as for "same tokens".
    Drafts(Box<ChashPlan>, Vec<DraftsSetting>),
    /// No fewer accepted: with the drop that is allowed and the least share, the rest as for "same tokens".
    Acceptance(Box<ChashPlan>, [f64; 2]),
    /// Not slower: with what it measures, the rest as for "same tokens".
    Perf(Box<ChashPlan>, Box<PerfPlan>),
    /// The tree is what base and series make.
    Integrity(Box<ChashPlan>),
    /// The patched build is vanilla's and what the patches add: with what is allowed beyond it.
    Artifacts(Box<ChashPlan>, ArtifactsAllow),
    /// Same logits: with the settings to run, the rest as for "same tokens".
    Logits(Box<ChashPlan>, Box<LogitsPlan>),
    /// The same counts: with what is asked of them, the rest as for "same tokens".
    Counters(Box<ChashPlan>, Box<CountersPlan>),
    /// Needles are found: with the haystacks, the rest as for "same tokens".
    Retrieval(Box<ChashPlan>, Box<RetrievalPlan>),
}

impl Plan {
    /// What all kinds have.
    pub fn common(&self) -> &ChashPlan {
        match self {
            Plan::Chash(plan)
            | Plan::Drafts(plan, _)
            | Plan::Perf(plan, _)
            | Plan::Integrity(plan)
            | Plan::Artifacts(plan, _)
            | Plan::Logits(plan, _)
            | Plan::Counters(plan, _)
            | Plan::Retrieval(plan, _)
            | Plan::Acceptance(plan, _) => plan,
        }
    }

    /// As [`Plan::common`], to be changed.
    pub fn common_mut(&mut self) -> &mut ChashPlan {
        match self {
            Plan::Chash(plan)
            | Plan::Drafts(plan, _)
            | Plan::Perf(plan, _)
            | Plan::Integrity(plan)
            | Plan::Artifacts(plan, _)
            | Plan::Logits(plan, _)
            | Plan::Counters(plan, _)
            | Plan::Retrieval(plan, _)
            | Plan::Acceptance(plan, _) => plan,
        }
    }
}

/// The gates named by `ids`, or all of them, sorted by id.
pub fn load(project: &Project, ids: &[String], quick: bool) -> Result<Vec<Plan>> {
    let dir = project.root().join("gates");
    let mut found: Vec<(String, PathBuf)> = Vec::new();
    if dir.is_dir() {
        for entry in fs_err::read_dir(&dir)? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if let Some(id) = name.strip_suffix(".toml")
                && !name.starts_with('.')
                && !OTHERS.contains(&name.as_ref())
            {
                found.push((id.to_owned(), path.clone()));
            }
        }
    }
    found.sort();
    for id in ids {
        if !found.iter().any(|(known, _)| known == id) {
            let known = found.iter().map(|(id, _)| id.as_str());
            return Err(
                Error::usage(format!("unknown gate `{id}`")).hint(suggest(id, known, "gates"))
            );
        }
    }
    found.retain(|(id, _)| ids.is_empty() || ids.contains(id));
    if found.is_empty() {
        return Err(Error::usage("there is no gate to run")
            .hint("add a definition to gates/; see docs/reference/gates.md"));
    }
    found
        .iter()
        .map(|(id, path)| {
            let checked = |plan: Plan| flags::check_plan(&plan).map(|()| plan);
            let plan = load_one(&dir, id, path, quick).and_then(checked);
            plan.context(|| format!("in {}", project.show(path)))
        })
        .collect()
}

fn load_one(dir: &Path, id: &str, path: &Path, quick: bool) -> Result<Plan> {
    let header: GateHeader = crate::model::read_toml(path)?;
    if header.id != id {
        return Err(Error::config(format!(
            "id is `{}`, but the file is called {id}.toml",
            header.id
        )));
    }
    // Its record would take the place of what the run set out to do.
    if format!("{id}.json") == crate::gate::store::RUN {
        return Err(Error::config(format!("`{id}` cannot be the id of a gate"))
            .hint("rename the file and its `id`"));
    }
    match header.kind {
        GateKind::Chash => {
            let definition: ChashGate = crate::model::read_toml(path)?;
            let text = fs_err::read(path)?;
            Ok(Plan::Chash(Box::new(chash(dir, definition, text, quick)?)))
        }
        GateKind::Drafts => {
            let definition: DraftsGate = crate::model::read_toml(path)?;
            let text = fs_err::read(path)?;
            let mut plan = chash(dir, definition.common(), text, quick)?;
            let settings = settings(definition, quick)?;
            // The quick subset is one of settings, and the record must not say more than was run.
            let some = |n_max: &u32| settings.iter().any(|s| s.n_max.contains(n_max));
            plan.n_max.retain(some);
            let some = |slots: &usize| settings.iter().any(|s| s.slots.contains(slots));
            plan.slots.retain(some);
            Ok(Plan::Drafts(Box::new(plan), settings))
        }
        GateKind::Acceptance => {
            let definition: AcceptanceGate = crate::model::read_toml(path)?;
            let text = fs_err::read(path)?;
            let drop = definition.drop;
            if definition.n_max.contains(&0) || !(0.0..1.0).contains(&drop) {
                return Err(Error::config(
                    "n-max holds 0, with which nothing is drafted, or drop is not below 1 and not 0 or above: at 1 nothing fails",
                ));
            }
            let least = definition.least;
            if !(0.0..1.0).contains(&least) {
                return Err(Error::config("least is not below 1 and not 0 or above"));
            }
            let plan = chash(dir, definition.common(), text, quick)?;
            Ok(Plan::Acceptance(Box::new(plan), [drop, least]))
        }
        GateKind::Perf => {
            let definition: PerfGate = crate::model::read_toml(path)?;
            let text = fs_err::read(path)?;
            let perf = PerfPlan::new(&definition, quick)?;
            let plan = chash(dir, definition.common(), text, quick)?;
            Ok(Plan::Perf(Box::new(plan), Box::new(perf)))
        }
        GateKind::Integrity => {
            let definition: IntegrityGate = crate::model::read_toml(path)?;
            let plan = bare(definition.common(), &fs_err::read(path)?);
            Ok(Plan::Integrity(Box::new(plan)))
        }
        GateKind::Artifacts => {
            let definition: ArtifactsGate = crate::model::read_toml(path)?;
            let plan = bare(definition.common(), &fs_err::read(path)?);
            Ok(Plan::Artifacts(Box::new(plan), definition.allow))
        }
        GateKind::Logits => {
            let definition: LogitsGate = crate::model::read_toml(path)?;
            let text = fs_err::read(path)?;
            let logits = LogitsPlan::new(&definition, quick)?;
            let mut plan = chash(dir, definition.common(), text, quick)?;
            // What the check of the context needs is not what is run.
            plan.definition.n_predict = 0;
            (plan.n_max, plan.slots) = (Vec::new(), Vec::new());
            Ok(Plan::Logits(Box::new(plan), Box::new(logits)))
        }
        GateKind::Counters => {
            let definition: CountersGate = crate::model::read_toml(path)?;
            let text = fs_err::read(path)?;
            let counters = CountersPlan::new(&definition)?;
            let plan = chash(dir, definition.common(), text, quick)?;
            Ok(Plan::Counters(Box::new(plan), Box::new(counters)))
        }
        GateKind::Retrieval => {
            let definition: RetrievalGate = crate::model::read_toml(path)?;
            let common = definition.common();
            // Its haystacks are made here, as long as the context allows.
            sizes(&common)?;
            let retrieval = RetrievalPlan::new(&definition, quick)?;
            runnable(&common)?;
            let mut plan = bare(common, &fs_err::read(path)?);
            plan.quick = retrieval.quick;
            Ok(Plan::Retrieval(Box::new(plan), Box::new(retrieval)))
        }
    }
}

/// Without prompts of its own.
fn bare(definition: ChashGate, text: &[u8]) -> ChashPlan {
    ChashPlan {
        n_max: definition.n_max.clone(),
        slots: definition.slots.clone(),
        digest: Digest::of_parts([text]),
        prompts: Vec::new(),
        texts: BTreeMap::new(),
        settings: Vec::new(),
        quick: false,
        definition,
    }
}

fn chash(dir: &Path, definition: ChashGate, text: Vec<u8>, quick: bool) -> Result<ChashPlan> {
    check(&definition)?;
    let mut files = vec![text];
    let mut prompts = Vec::new();
    let mut texts = BTreeMap::new();
    for prompt in &definition.prompts {
        let name = || format!("prompt `{}`", prompt.name);
        let ids = match source(dir, prompt, &mut files).context(name)? {
            Source::Ids(ids) => ids,
            Source::Text(text) => {
                texts.insert(prompt.name.clone(), text);
                Vec::new()
            }
        };
        let prompt = Prompt {
            name: prompt.name.clone(),
            ids,
        };
        fits(&definition, &prompt)?;
        prompts.push(prompt);
    }
    let settings = sweep::settings(&definition, quick)?;
    let digest = Digest::of_parts(files.iter().map(Vec::as_slice));
    let mut plan = ChashPlan {
        n_max: definition.n_max.clone(),
        slots: definition.slots.clone(),
        digest,
        prompts,
        texts,
        settings,
        quick: false,
        definition,
    };
    if quick && let Some(subset) = plan.definition.quick.clone() {
        plan.quick = true;
        keep("quick.n-max", &mut plan.n_max, &subset.n_max, |n| {
            n.to_string()
        })?;
        keep("quick.slots", &mut plan.slots, &subset.slots, |n| {
            n.to_string()
        })?;
        let names: Vec<&str> = subset.prompts.iter().map(String::as_str).collect();
        if let Some(unknown) = names
            .iter()
            .find(|name| !plan.prompts.iter().any(|prompt| prompt.name == **name))
        {
            return Err(Error::config(format!(
                "quick.prompts names `{unknown}`, which is no prompt of this gate"
            )));
        }
        plan.prompts
            .retain(|prompt| names.contains(&prompt.name.as_str()));
        plan.texts.retain(|name, _| names.contains(&name.as_str()));
        if plan.prompts.is_empty() {
            return Err(Error::config("quick.prompts is empty"));
        }
    }
    if plan.definition.drafted_equals_plain && !plan.n_max.contains(&0) {
        return Err(Error::config(
            "drafted-equals-plain needs 0 in n-max, and in quick.n-max",
        ));
    }
    sweep::narrowed(&plan)?;
    Ok(plan)
}

/// The settings to run.
fn settings(definition: DraftsGate, quick: bool) -> Result<Vec<DraftsSetting>> {
    let names: Vec<&String> = definition.settings.iter().map(|s| &s.name).collect();
    unique("setting names", &names)?;
    for setting in &definition.settings {
        let name = &setting.name;
        unique(&format!("n-max of setting `{name}`"), &setting.n_max)?;
        unique(&format!("slots of setting `{name}`"), &setting.slots)?;
        if setting.n_max.contains(&0) {
            return Err(Error::config(format!(
                "setting `{name}` has 0 in n-max; without a drafter there are no drafts"
            )));
        }
        sweep::check(name, &setting.flags)?;
    }
    let mut settings = definition.settings;
    if quick && let Some(subset) = definition.quick {
        let mut names: Vec<String> = settings.iter().map(|s| s.name.clone()).collect();
        keep(
            "quick.settings",
            &mut names,
            &subset.settings,
            String::clone,
        )?;
        settings.retain(|setting| names.contains(&setting.name));
    }
    Ok(settings)
}

/// Reduces `all` to `subset`, which must be part of it.
fn keep<T: PartialEq>(
    key: &str,
    all: &mut Vec<T>,
    subset: &[T],
    show: impl Fn(&T) -> String,
) -> Result<()> {
    if let Some(unknown) = subset.iter().find(|item| !all.contains(item)) {
        let unknown = show(unknown);
        return Err(Error::config(format!(
            "{key} names {unknown}, which the full gate does not run"
        )));
    }
    all.retain(|item| subset.contains(item));
    if all.is_empty() {
        return Err(Error::config(format!("{key} is empty")));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
