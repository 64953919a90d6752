//! The servers of a run: builds of this project, programs, and servers that run already.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::build::Build;
use crate::build::lookup::Machine;
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::Request;
use crate::gate::client::Client;
use crate::gate::definition::Plan;
use crate::gate::device::{self, Device};
use crate::gate::driver;
use crate::gate::effect::Effects;
use crate::gate::identity::{self, Side};
use crate::gate::missing::Ready;
use crate::gate::remote::{self, Address};
use crate::gate::switches;
use crate::gate::work::Origin;
use crate::model::{
    Base, BuildManifest, ChashGate, Digest, Flavour, GateBackend, PatchManifest, PatchSetStamp,
    SideDefinition, Variant, read_toml,
};
use crate::patchset::{Patch, Series};
use crate::vendor::Pristine;

/// What the gates of a run compare.
pub struct Sides<'a> {
    root: PathBuf,
    /// Whether servers may run that carry no stamp.
    unstamped: bool,
    /// The two that the user named, in place of what definitions say.
    named: Option<&'a (PathBuf, PathBuf)>,
    /// Vanilla and patched, by backend.
    builds: BTreeMap<&'static str, [Build; 2]>,
    /// What the builds for the CPU were made from.
    made: Option<(Pristine, Series)>,
    /// What the patches declare, and what of that is not applied.
    switches: Vec<String>,
    dropped: Vec<String>,
    /// What their switches say in a server's log.
    effects: Effects,
    /// The patches of this checkout, and the patch sets that they make: what servers by path may carry.
    patches: Vec<PatchManifest>,
    sets: Vec<Digest>,
}

impl<'a> Sides<'a> {
    /// Builds what the definitions need, and no more.
    pub fn prepare(ctx: &Ctx, request: &'a Request, plans: &[(Plan, Ready)]) -> Result<Self> {
        let mut sides = Sides {
            root: ctx.project.root().to_path_buf(),
            unstamped: request.unstamped,
            named: request.servers.as_ref(),
            builds: BTreeMap::new(),
            made: None,
            switches: Vec::new(),
            dropped: Vec::new(),
            effects: Effects::default(),
            patches: Vec::new(),
            sets: Vec::new(),
        };
        sides.know(ctx)?;
        let definitions = plans.iter().map(|(plan, _)| &plan.common().definition);
        let mut backends: Vec<GateBackend> = Vec::new();
        for backend in definitions.flat_map(built_for) {
            if !backends.contains(&backend) {
                backends.push(backend);
            }
        }
        if sides.named.is_some() || backends.is_empty() {
            return Ok(sides);
        }
        let base: Base = ctx.project.base(request.base.as_deref())?;
        let series = Series::load(&ctx.project, &base)?;
        let all = |patches: &[Patch]| -> Vec<String> {
            let switches = patches.iter().flat_map(|patch| &patch.manifest.switches);
            switches.cloned().collect()
        };
        let applied = request.patches.as_ref().unwrap_or(&series.patches);
        sides.switches = all(applied);
        sides.effects = Effects::of(applied.iter().map(|patch| &patch.manifest));
        sides.dropped = all(&series.patches);
        let own = &sides.switches;
        let is_set = |name: &String| {
            let definitions = plans.iter().map(|(plan, _)| &plan.common().definition);
            let mut sides = definitions.flat_map(|gate| [&gate.baseline, &gate.candidate]);
            sides.any(|side| side.env.contains_key(name))
        };
        (sides.dropped).retain(|name| !own.contains(name) && is_set(name));
        for backend in backends {
            let builds = match (backend, &request.patches) {
                (any, _) if request.prebuilt => found(ctx, &base, &series, any)?,
                (GateBackend::Cpu, Some(patches)) => some(ctx, &base, patches)?,
                // Those for GPUs were made before, or the gate would be skipped; see `missing`.
                (_, None) => whole(ctx, &base, &series, backend, request.variant)?,
                (other, _) => found(ctx, &base, &series, other)?,
            };
            if !request.unstamped {
                for build in &builds {
                    let flavour = build.manifest.flavour;
                    Side::of_build(build, flavour, BTreeMap::new())?.check_stamps()?;
                }
            }
            sides.builds.insert(backend.name(), builds);
        }
        let series = match &request.patches {
            Some(patches) => Series::of(&ctx.project, &base, patches.clone())?,
            None => series,
        };
        if !request.prebuilt {
            sides.made = Some((crate::vendor::ensure(ctx, &base)?, series));
        }
        Ok(sides)
    }

    /// The manifest of the vanilla build for the CPU, where there is one.
    pub fn vanilla(&self) -> Option<&BuildManifest> {
        let [vanilla, _] = self.builds.get(GateBackend::Cpu.name())?;
        Some(&vanilla.manifest)
    }

    /// Reads what is known here of patches that servers by path may carry.
    fn know(&mut self, ctx: &Ctx) -> Result<()> {
        let dir = ctx.project.root().join("patches");
        if !dir.is_dir() {
            return Ok(());
        }
        for entry in fs_err::read_dir(&dir)? {
            let file = entry?.path().join("patch.toml");
            // One that cannot be read declares nothing.
            if let Ok(manifest) = read_toml(&file) {
                self.patches.push(manifest);
            }
        }
        self.effects = Effects::of(self.patches.iter());
        // Servers by path need no base.
        let bases = ctx.project.upstreams().map(|known| known.base);
        for base in bases.unwrap_or_default() {
            // One whose series is broken is nobody's: its servers are asked for less.
            if let Ok(series) = Series::load(&ctx.project, &base) {
                self.sets.push(series.id);
            }
        }
        Ok(())
    }

    /// What switches say in a server's log.
    pub fn effects(&self) -> &Effects {
        &self.effects
    }

    /// What the builds for the CPU were made from; `None` where there are none.
    pub fn origin(&self) -> Option<Origin<'_>> {
        let (pristine, series) = self.made.as_ref()?;
        let [vanilla, patched] = self.builds.get(GateBackend::Cpu.name())?;
        Some(Origin {
            pristine,
            series,
            vanilla,
            patched,
        })
    }

    /// One side of a gate, checked as far as that goes.
    pub fn side(
        &self,
        gate: &ChashGate,
        definition: &SideDefinition,
        is_candidate: bool,
        model: &Path,
    ) -> Result<Side> {
        let mut env = definition.env.clone();
        env.retain(|name, _| !self.dropped.contains(name));
        let started = |mut side: Side| -> Result<Side> {
            // A build was checked when it was made.
            if !self.unstamped && !side.is_built() {
                side.check_stamps()?;
            }
            side.device = Device::of(gate, definition)?;
            if device::backend(gate, definition) == GateBackend::Cuda {
                let mut env = side.env.clone();
                env.extend(side.device.iter().flat_map(|device| device.env.clone()));
                driver::runs(&Machine, &self.root, &side.files(), &env)?;
            }
            let set = side.stamp.patchset.as_ref();
            side.is_ours |= set.is_some_and(|set| self.sets.contains(&set.id));
            Ok(side)
        };
        if let Some((baseline, candidate)) = self.named {
            let program = if is_candidate { candidate } else { baseline };
            return started(Side::of_path(program, env)?);
        }
        if let Some(flavour) = definition.build {
            let backend = device::backend(gate, definition);
            let [vanilla, patched] = (self.builds.get(backend.name()))
                .ok_or_else(|| Error::internal("a build was not prepared"))?;
            let build = match flavour {
                Flavour::Vanilla => vanilla,
                Flavour::Patched => patched,
            };
            // Without any patch the vanilla build stands in for the patched one.
            return started(Side::of_build(build, build.manifest.flavour, env)?);
        }
        if let Some(program) = program(&self.root, definition) {
            return started(Side::of_path(&program, env)?);
        }
        let name = if is_candidate {
            "candidate"
        } else {
            "baseline"
        };
        running(gate, definition, model).context(|| format!("the running server of {name}"))
    }

    /// Switches that belong to patches which are not applied.
    pub fn dropped(&self) -> &[String] {
        &self.dropped
    }

    /// Whether the sides of gates are builds of this project, unless they say otherwise.
    fn are_built(&self) -> bool {
        self.named.is_none()
    }
}

/// The backends of the sides that are builds of this project.
pub fn built_for(gate: &ChashGate) -> Vec<GateBackend> {
    let sides = [&gate.baseline, &gate.candidate].into_iter();
    sides
        .filter(|side| side.build.is_some())
        .map(|side| device::backend(gate, side))
        .collect()
}

/// The program that a side names, where it does.
pub fn program(root: &Path, side: &SideDefinition) -> Option<PathBuf> {
    let from_env = || {
        let value = std::env::var_os(side.server_env.as_ref()?)?;
        (!value.is_empty()).then(|| PathBuf::from(value))
    };
    match &side.server {
        Some(path) => Some(root.join(path)),
        None => from_env(),
    }
}

/// Where the running server of a side listens, where it names one, and who may ask it.
pub fn address(side: &SideDefinition) -> Result<Option<(Address, String)>> {
    let var = |name: &Option<String>| {
        let value = std::env::var(name.as_ref()?).ok()?;
        (!value.is_empty()).then_some(value)
    };
    let Some(url) = side.url.clone().or_else(|| var(&side.url_env)) else {
        return Ok(None);
    };
    let key = match &side.api_key_env {
        None => Some(String::new()),
        name => var(name),
    };
    let address = Address::parse(&url, side.remote)?;
    Ok(key.map(|key| (address, key)))
}

fn running(gate: &ChashGate, side: &SideDefinition, model: &Path) -> Result<Side> {
    let Some((address, key)) = address(side)? else {
        return Err(Error::internal("a side says nothing"));
    };
    let limit = Duration::from_secs(gate.limits.request);
    let client = Client::of(address.as_str(), &key, limit);
    let props = client.props()?;
    let unverified = remote::check(gate, side.n_max, &props, model)?;
    Ok(Side::of_running(client, address.as_str(), unverified))
}

/// Vanilla and patched builds of `base` for `backend`, as gates here would run them: those for the
/// CPU are made, others must have been made before. `None` where they were not.
pub fn ready_builds(ctx: &Ctx, base: &Base, backend: GateBackend) -> Result<Option<[Build; 2]>> {
    let series = Series::load(&ctx.project, base)?;
    if backend == GateBackend::Cpu {
        return whole(ctx, base, &series, backend, Variant::default()).map(Some);
    }
    for flavour in [Flavour::Vanilla, Flavour::Patched] {
        if Build::find(ctx, &base.id, flavour, backend.name())?.is_none() {
            return Ok(None);
        }
    }
    found(ctx, base, &series, backend).map(Some)
}

fn whole(
    ctx: &Ctx,
    base: &Base,
    series: &Series,
    backend: GateBackend,
    variant: Variant,
) -> Result<[Build; 2]> {
    let pristine = crate::vendor::ensure(ctx, base)?;
    crate::patchset::apply(ctx, &pristine, series, series.patches.len(), false)?;
    let build =
        |flavour| crate::build::ensure_variant(ctx, base, flavour, backend.name(), variant, false);
    alike([build(Flavour::Vanilla)?, build(Flavour::Patched)?])
}

/// These patches alone, with a working tree and a build that are not the checkout's.
fn some(ctx: &Ctx, base: &Base, patches: &[Patch]) -> Result<[Build; 2]> {
    if !ctx.project.is_aside() {
        return Err(Error::internal(
            "the working tree of the checkout would be moved",
        ));
    }
    let vanilla = crate::build::ensure(ctx, base, Flavour::Vanilla, "cpu")?;
    if patches.is_empty() {
        return Ok([vanilla.clone(), vanilla]);
    }
    let pristine = crate::vendor::ensure(ctx, base)?;
    let some = Series::of(&ctx.project, base, patches.to_vec())?;
    crate::patchset::apply(ctx, &pristine, &some, patches.len(), true)?;
    let source = ctx.project.working_tree(&base.id);
    let recipe = crate::build::Recipe {
        base: base.id.clone(),
        commit: base.commit.clone(),
        build_number: base.build_number,
        tree: pristine.manifest.digest(),
        flavour: Flavour::Patched,
        backend: "cpu".to_owned(),
        cuda: Default::default(),
        variant: Default::default(),
        content: crate::patchset::scan(&source)?.digest(),
        source,
        patchset: Some(PatchSetStamp {
            id: some.id,
            patches: some.ids(),
        }),
        targets: vec!["llama-server".to_owned()],
    };
    let patched = crate::build::build(ctx, &recipe, false)?;
    alike([vanilla, patched])
}

fn alike(builds: [Build; 2]) -> Result<[Build; 2]> {
    let [vanilla, patched] = &builds;
    let flags = crate::build::compare_flags(&vanilla.manifest, &patched.manifest);
    match flags.first() {
        Some(first) => Err(Error::finding(format!(
            "vanilla and patched were not built alike: {first}"
        ))
        .hint("cargo xtask build lists all differences; mend the flags or CMake hooks")),
        None => Ok(builds),
    }
}

/// Builds that were made before: they must be of this base and this series.
fn found(ctx: &Ctx, base: &Base, series: &Series, backend: GateBackend) -> Result<[Build; 2]> {
    let find = |flavour| {
        let build = Build::find(ctx, &base.id, flavour, backend.name())?;
        build.ok_or_else(|| Error::internal("a build is gone"))
    };
    let builds = [find(Flavour::Vanilla)?, find(Flavour::Patched)?];
    for build in &builds {
        if let Some(what) = stale(&build.manifest, base, series) {
            return Err(Error::finding(format!(
                "the {} build of {} for {} is stale: {what}",
                build.manifest.flavour,
                base.id,
                backend.name()
            ))
            .hint("build it anew; a build that is not of the series is not gated"));
        }
    }
    alike(builds)
}

/// Why a build is not of `base` and `series`.
fn stale(manifest: &BuildManifest, base: &Base, series: &Series) -> Option<String> {
    if let Some(what) = of_another_base(manifest, base) {
        return Some(what);
    }
    let set = manifest.patchset.as_ref()?;
    (set.id != series.id).then(|| {
        let (there, wanted) = (set.id.short(), series.id.short());
        format!("it carries the patch set {there}, the series is {wanted}")
    })
}

/// Why a build was not made from `base`, whatever series it carries; vanilla is made from that and nothing else.
pub fn of_another_base(manifest: &BuildManifest, base: &Base) -> Option<String> {
    if manifest.tree != base.tree {
        return Some(format!("it was built from the tree {}", manifest.tree));
    }
    let is_vanilla = manifest.flavour == Flavour::Vanilla;
    match (is_vanilla, &manifest.patchset) {
        (true, Some(set)) => Some(format!(
            "it is vanilla and carries the patch set {}",
            set.id.short()
        )),
        (true, None) if manifest.source != manifest.tree => Some(format!(
            "it is vanilla, and its sources are {} in place of the tree",
            manifest.source
        )),
        (false, None) => Some("it is patched and carries no patch set".to_owned()),
        _ => None,
    }
}

/// What a reader of the verdict has to know of the sides: what could not be checked of servers that ran
/// already, what servers by path are in place of, and the switches that were left out.
pub fn remarks(
    sides: &Sides<'_>,
    gate: &ChashGate,
    baseline: &Side,
    candidate: &Side,
) -> Vec<String> {
    let both = [("baseline", baseline), ("candidate", candidate)];
    let remarks = both.iter().flat_map(|(name, side)| {
        let unverified = side.unverified().into_iter();
        unverified.map(move |what| format!("{name}, not verified: {what}"))
    });
    let mut remarks: Vec<String> = remarks.collect();
    remarks.extend(both.iter().filter_map(|(name, side)| {
        let what = identity::variant_that_ran(side)?;
        Some(format!("{name}: {what}"))
    }));
    if let Some(what) = other_flavour(&gate.baseline, baseline) {
        remarks.push(format!("the baseline {what}"));
    }
    if let (Some(left), Some(right)) = (&baseline.stamp.base, &candidate.stamp.base)
        && left != right
    {
        remarks.push(format!(
            "the sides are of different bases: {left} against {right}"
        ));
    }
    let is_set = |name: &&String| {
        [&gate.baseline, &gate.candidate]
            .iter()
            .any(|side| side.env.contains_key(*name))
    };
    let left_out: Vec<&str> = (sides.dropped.iter().filter(is_set))
        .map(String::as_str)
        .collect();
    if !left_out.is_empty() {
        remarks.push(format!(
            "without the switches of patches that are not applied: {}",
            left_out.join(", ")
        ));
    }
    remarks
}

/// What a server by path is, where its stamp has another flavour than the build in whose place it is.
fn other_flavour(definition: &SideDefinition, side: &Side) -> Option<String> {
    let (wanted, found) = (definition.build?, side.stamp.flavour?);
    (wanted != found && !side.is_built()).then(|| {
        format!("is stamped as a {found} build, and the definition names the {wanted} one")
    })
}

/// Why the two sides are no comparison, whatever their tokens are.
pub fn void(
    sides: &Sides<'_>,
    gate: &ChashGate,
    baseline: &Side,
    candidate: &Side,
) -> Result<Option<String>> {
    // A baseline may be another patched build, to which this one is compared. But a candidate without
    // patches says nothing of them.
    if let Some(what) = other_flavour(&gate.candidate, candidate) {
        let what = format!("the candidate {what}: that one was not judged");
        return Ok(Some(what));
    }
    for (name, side) in [("baseline", baseline), ("candidate", candidate)] {
        let unknown = match switches::undeclared(&sides.patches, name, side) {
            None => switches::absent(name, side)?,
            unknown => unknown,
        };
        if unknown.is_some() {
            return Ok(unknown);
        }
    }
    // What another server listens to is not known.
    let built: Vec<&Side> = [baseline, candidate]
        .into_iter()
        .filter(|side| sides.are_built() && side.is_built())
        .collect();
    let unknown = identity::undeclared(&built, &sides.switches);
    let found = match unknown.or_else(|| identity::indistinct(baseline, candidate)) {
        None => switches::unread(baseline, candidate)?,
        found => found,
    };
    let found = found.or_else(|| identity::unlike_variants(baseline, candidate));
    Ok(found.map(|reason| match sides.dropped() {
        [] => reason,
        dropped if baseline.env == candidate.env => format!(
            "{reason} (without the switches of patches that are not applied: {})",
            dropped.join(", ")
        ),
        _ => reason,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::Toy;

    #[test]
    fn a_flavour_is_held_against_the_definition() {
        let dir = tempfile::tempdir().unwrap();
        let wanted = |flavour| crate::model::SideDefinition {
            build: Some(flavour),
            ..Default::default()
        };
        let by_path = |flavour| {
            let program = dir.path().join("llama-server");
            std::fs::write(&program, "x").unwrap();
            let mut side = Side::of_path(&program, BTreeMap::new()).unwrap();
            side.stamp.flavour = flavour;
            side
        };
        let vanilla = by_path(Some(Flavour::Vanilla));
        assert_eq!(other_flavour(&wanted(Flavour::Vanilla), &vanilla), None);
        let what = other_flavour(&wanted(Flavour::Patched), &vanilla).unwrap();
        assert!(what.contains("stamped as a vanilla build"), "{what}");
        let unknown = by_path(None);
        assert_eq!(other_flavour(&wanted(Flavour::Patched), &unknown), None);
    }

    #[test]
    fn a_build_of_another_series_or_base_is_stale() {
        let toy = Toy::with_two_patches();
        let (base, series) = (toy.pristine.base.clone(), toy.load());
        let manifest = |tree, set| BuildManifest {
            schema: 1,
            base: base.id.clone(),
            tree,
            flavour: Flavour::Patched,
            backend: "cuda".to_owned(),
            variant: Default::default(),
            patchset: Some(PatchSetStamp {
                id: set,
                patches: Vec::new(),
            }),
            source: Digest::of(b""),
            flags: BTreeMap::new(),
            compilers: BTreeMap::new(),
            cmake: String::new(),
            ninja: String::new(),
            launcher: None,
            backend_tools: BTreeMap::new(),
            surroundings: Default::default(),
            artifacts: Vec::new(),
        };
        let is_stale = |tree, set| stale(&manifest(tree, set), &base, &series);
        assert_eq!(is_stale(base.tree, series.id), None);
        let other = Digest::of(b"other");
        assert!(is_stale(base.tree, other).unwrap().contains("patch set"));
        assert!(is_stale(other, series.id).unwrap().contains("tree"));
        // Vanilla is the base, and nothing else.
        let mut vanilla = manifest(base.tree, series.id);
        vanilla.flavour = Flavour::Vanilla;
        let says = |manifest: &BuildManifest| stale(manifest, &base, &series).unwrap_or_default();
        assert!(says(&vanilla).contains("vanilla and carries the patch set"));
        vanilla.patchset = None;
        assert!(says(&vanilla).contains("its sources are"));
        vanilla.source = base.tree;
        assert_eq!(says(&vanilla), "");
        vanilla.flavour = Flavour::Patched;
        assert!(says(&vanilla).contains("carries no patch set"));
    }
}
