//! From paths to patches of the series: computed, proven, and written in one step.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use serde::Serialize;

use crate::authoring::{Extra, Saved, follow, refuse, save_with};
use crate::ctx::Ctx;
use crate::diff;
use crate::error::{Error, Result, ResultExt as _};
use crate::exchange::incoming::{self, Incoming};
use crate::exchange::locate::Offset;
use crate::exchange::naming;
use crate::exchange::take::{Ground, Taken, named, problem, prove, take};
use crate::patchset::{Images, Patch, Problem, Series};
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// What to import.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// Mails, mailboxes, diffs and quilt folders, in order.
    pub paths: Vec<PathBuf>,
    /// The id of the only patch.
    pub id: Option<String>,
    /// The patch behind which they go; at the end where it is absent.
    pub after: Option<String>,
    /// Compute and prove all, and write nothing.
    pub dry_run: bool,
}

/// What an import did, or would do.
#[derive(Clone, Debug, Serialize)]
pub struct Imported {
    /// The patches, in order.
    pub imported: Vec<Summary>,
    /// Later patches of the series whose hooks were moved along.
    pub moved: Vec<String>,
    /// Files of the checkout that changed; none in a dry run.
    pub files: Vec<RelPath>,
    /// The patches of the series, in order.
    pub patches: Vec<String>,
}

/// One imported patch.
#[derive(Clone, Debug, Serialize)]
pub struct Summary {
    /// Its id.
    pub id: String,
    /// Where it comes from.
    pub origin: String,
    /// Its title.
    pub title: String,
    /// Files that it hooks into.
    pub hooked: Vec<RelPath>,
    /// Files that it brings.
    pub new_files: Vec<RelPath>,
    /// Upstream lines that its hooks delete or rewrite.
    pub deletions: usize,
    /// Whether the manifest lacks the reason for them.
    pub wants_reason: bool,
    /// Hunks that were not at their line.
    pub offsets: Vec<Offset>,
    /// Hooks without a marker, each as file and line.
    pub unmarked: Vec<String>,
    /// What a person should look at.
    pub remarks: Vec<String>,
}

/// A series that grows.
struct Growth<'a> {
    ctx: &'a Ctx,
    pristine: &'a Pristine,
    patches: Vec<Patch>,
    images: Images,
    manifests: BTreeMap<String, String>,
    more: Vec<(RelPath, Vec<u8>)>,
    summaries: Vec<Summary>,
    problems: Vec<Problem>,
    failed: BTreeSet<String>,
    /// File to the patch that failed on it.
    broken: BTreeMap<RelPath, String>,
    /// The patch that all others stand on.
    first: Option<String>,
}

/// Takes patches into the series of the base: edits of files that are there become hooks, new
/// files the overlay. All of them or none; the working tree is not touched.
///
/// # Errors
///
/// A finding that lists every patch that does not sit, and those that wait for it; a later patch
/// of the series that does not follow.
pub fn import(ctx: &Ctx, pristine: &Pristine, request: &Request) -> Result<Imported> {
    let incoming = incoming::read(&request.paths)?;
    // Loaded under the lock: another import may just have written it.
    let lock = crate::lock::checkout(ctx)?;
    let series = Series::load(&ctx.project, &pristine.base)?;
    let old = Images::compute(pristine, &series)?;
    let at = match &request.after {
        Some(after) => series.position(after)?,
        None => series.patches.len(),
    };
    let ids = ids(ctx, &incoming, request.id.as_deref())?;
    let mut growth = Growth::new(ctx, pristine, &series, at)?;
    for (id, incoming) in ids.iter().zip(&incoming) {
        growth
            .add(id, incoming)
            .context(|| format!("{}: nothing was imported", incoming.origin))?;
    }
    if !growth.problems.is_empty() {
        return Err(failure(&growth.problems, &ids, &incoming));
    }
    let moved = growth.carry(&series, &old, at)?;
    let fresh = Series::of(&ctx.project, &series.base, growth.patches)?;
    let saved = match request.dry_run {
        true => Saved {
            files: Vec::new(),
            removed: Vec::new(),
            patches: fresh.ids(),
        },
        false => {
            let extra = Extra {
                manifests: growth.manifests,
                written: growth.more,
                ..Extra::default()
            };
            save_with(ctx, &lock, pristine, &series, &fresh, &extra)?
        }
    };
    Ok(Imported {
        imported: growth.summaries,
        moved,
        files: saved.files,
        patches: saved.patches,
    })
}

/// The id of each patch; every one is new.
fn ids(ctx: &Ctx, incoming: &[Incoming], given: Option<&str>) -> Result<Vec<String>> {
    if given.is_some() && incoming.len() != 1 {
        return Err(Error::usage(format!(
            "--id names one patch, and there are {}",
            incoming.len()
        ))
        .hint("import them one by one, or write `Patchset-Id: ID` at the end of each message"));
    }
    let mut ids: Vec<String> = Vec::new();
    for (number, one) in (1..).zip(incoming) {
        let id = naming::id(one, given, number).context(|| one.origin.clone())?;
        let taken = match (ids.contains(&id), ctx.project.patch_dir(&id).exists()) {
            (true, _) => Some(format!("two of the patches would be `{id}`")),
            (_, true) => Some(format!("there is a patch `{id}` already")),
            _ => None,
        };
        if let Some(taken) = taken {
            return Err(Error::usage(taken).context(one.origin.clone()).hint(
                "choose another id with --id, or write `Patchset-Id: ID` at the end of its message",
            ));
        }
        ids.push(id);
    }
    Ok(ids)
}

impl<'a> Growth<'a> {
    fn new(ctx: &'a Ctx, pristine: &'a Pristine, series: &Series, at: usize) -> Result<Self> {
        let patches = series.patches[..at].to_vec();
        let so_far = Series::of(&ctx.project, &series.base, patches.clone())?;
        Ok(Growth {
            ctx,
            pristine,
            images: Images::compute(pristine, &so_far)?,
            first: patches.first().map(|patch| patch.id().to_owned()),
            patches,
            manifests: BTreeMap::new(),
            more: Vec::new(),
            summaries: Vec::new(),
            problems: Vec::new(),
            failed: BTreeSet::new(),
            broken: BTreeMap::new(),
        })
    }

    /// Adds one patch, or its problems.
    fn add(&mut self, id: &str, incoming: &Incoming) -> Result<()> {
        self.ctx.cancel.check()?;
        let (_, stated) = naming::manifest(incoming, id, 0, self.first.as_deref())?;
        let waits = stated.requires.iter().find(|id| self.failed.contains(*id));
        let cause = waits.or_else(|| {
            let named = named(incoming).into_iter();
            named.filter_map(|path| self.broken.get(path)).next()
        });
        if let Some(cause) = cause {
            let problem = Problem {
                follows_from: Some(cause.clone()),
                ..Problem::new(id, None, format!("not tried, since `{cause}` failed"))
            };
            self.fail(id, incoming, vec![problem]);
            return Ok(());
        }
        let stands = |needed: &&String| self.patches.iter().any(|patch| patch.id() == **needed);
        if let Some(missing) = stated.requires.iter().find(|needed| !stands(needed)) {
            let problem = Problem::new(
                id,
                None,
                format!("it requires `{missing}`, which does not stand before it"),
            );
            self.fail(id, incoming, vec![problem]);
            return Ok(());
        }
        let ground = Ground {
            pristine: self.pristine,
            images: &self.images,
        };
        let taken = match take(self.ctx, &ground, incoming)? {
            Ok(taken) => taken,
            Err(faults) => {
                let problems = faults.into_iter().map(|fault| problem(id, fault));
                self.fail(id, incoming, problems.collect());
                return Ok(());
            }
        };
        let (patch, summary) = self.patch(id, incoming, &taken)?;
        let mut patches = self.patches.clone();
        patches.push(patch);
        let grown = Series::of(&self.ctx.project, &self.pristine.base, patches)?;
        let (images, problems) = Images::attempt(self.pristine, &grown)?;
        if !problems.is_empty() {
            self.fail(id, incoming, problems);
            return Ok(());
        }
        prove(&images, grown.patches.len() - 1, &taken)?;
        self.patches = grown.patches;
        self.images = images;
        self.summaries.push(summary);
        Ok(())
    }

    fn fail(&mut self, id: &str, incoming: &Incoming, problems: Vec<Problem>) {
        self.failed.insert(id.to_owned());
        for path in named(incoming) {
            self.broken.insert(path.clone(), id.to_owned());
        }
        self.problems.extend(problems);
    }

    /// The patch as the series has it, and what to say of it.
    fn patch(&mut self, id: &str, incoming: &Incoming, taken: &Taken) -> Result<(Patch, Summary)> {
        let hooks: Vec<diff::Hook> = taken.hooks.iter().flat_map(diff::hooks).collect();
        let deletions = hooks.iter().map(|hook| hook.deleted).sum();
        let first = self.first.as_deref();
        let (text, manifest) = naming::manifest(incoming, id, deletions, first)?;
        let dir = self.ctx.project.show(&self.ctx.project.patch_dir(id));
        let mut remarks = incoming.remarks.clone();
        remarks.extend(taken.remarks.iter().cloned());
        let own = format!("hooks.{}.patch", self.pristine.base.id);
        let mut hooks_name = "hooks.patch";
        if let Some(folder) = &incoming.folder {
            if folder.hooks == own {
                hooks_name = &own;
            }
            if incoming.title
                != manifest
                    .title
                    .split_whitespace()
                    .collect::<Vec<_>>()
                    .join(" ")
            {
                remarks.push("its subject is not the title of the manifest that it carries; the manifest counts".to_owned());
            }
            remarks.extend(self.others(&dir, folder, hooks_name)?);
        }
        self.manifests.insert(id.to_owned(), text);
        let unmarked = hooks
            .iter()
            .filter(|hook| hook.inserted > 0 && !hook.is_marked(id))
            .map(|hook| format!("{}:{}", hook.path, hook.line))
            .collect();
        let summary = Summary {
            id: id.to_owned(),
            origin: incoming.origin.clone(),
            title: manifest.title.clone(),
            hooked: taken.hooks.iter().map(|diff| diff.path.clone()).collect(),
            new_files: taken.overlay.iter().map(|file| file.path.clone()).collect(),
            deletions,
            wants_reason: deletions > 0 && manifest.allow.reason.trim().is_empty(),
            offsets: taken.offsets.clone(),
            unmarked,
            remarks,
        };
        let has_hooks = !taken.hooks.is_empty();
        let patch = Patch {
            manifest,
            hooks: taken.hooks.clone(),
            overlay: taken.overlay.clone(),
            hooks_file: has_hooks.then(|| format!("{dir}/{hooks_name}")),
            hooks_text: taken.hooks_text.clone(),
        };
        Ok((patch, summary))
    }

    /// The other files of a patch folder that an export carries.
    fn others(
        &mut self,
        dir: &str,
        folder: &crate::exchange::folder::Folder,
        hooks_name: &str,
    ) -> Result<Vec<String>> {
        let bases = self.ctx.project.upstreams()?.base;
        let mut remarks = Vec::new();
        for (name, content) in &folder.files {
            if name == "patch.toml" || *name == folder.hooks || name == hooks_name {
                continue;
            }
            let base = name
                .strip_prefix("hooks.")
                .and_then(|rest| rest.strip_suffix(".patch"));
            if base.is_some_and(|id| !bases.iter().any(|base| base.id == id)) {
                remarks.push(format!(
                    "it carries {name}, for a base that is unknown here; left out"
                ));
                continue;
            }
            if name.starts_with("hooks.") {
                diff::parse(content).context(|| format!("the {name} that it carries"))?;
            }
            self.more
                .push((RelPath::new(format!("{dir}/{name}"))?, content.clone()));
        }
        Ok(remarks)
    }

    /// Moves the later patches of the series along.
    fn carry(&mut self, series: &Series, old: &Images, at: usize) -> Result<Vec<String>> {
        let mut moved = Vec::new();
        for (place, later) in series.patches.iter().enumerate().skip(at) {
            let from = (old, place);
            let to = (&self.images, self.patches.len());
            let fresh = follow(self.ctx, self.pristine, series, later, from, to)?
                .map_err(|conflict| refuse(&conflict))?;
            if fresh.hooks != later.hooks {
                moved.push(later.id().to_owned());
            }
            self.patches.push(fresh);
            let grown = Series::of(&self.ctx.project, &series.base, self.patches.clone())?;
            self.images = Images::compute(self.pristine, &grown)?;
        }
        Ok(moved)
    }
}

/// What does not sit: roots first, then those that wait for them.
fn failure(problems: &[Problem], ids: &[String], incoming: &[Incoming]) -> Error {
    let is_root = |problem: &&Problem| problem.follows_from.is_none();
    let roots: Vec<&Problem> = problems.iter().filter(is_root).collect();
    let failed: BTreeSet<&str> = problems
        .iter()
        .map(|problem| problem.patch.as_str())
        .collect();
    let mut text = format!(
        "nothing was imported: {} of {} patches cannot be taken",
        failed.len(),
        ids.len()
    );
    let origin = |id: &str| {
        let at = ids.iter().position(|other| other == id);
        at.and_then(|at| incoming.get(at))
            .map_or("", |incoming| incoming.origin.as_str())
    };
    let cascades = problems.iter().filter(|problem| !is_root(problem));
    let mut named = "";
    for problem in roots.into_iter().chain(cascades) {
        if problem.patch != named {
            named = &problem.patch;
            text.push_str(&format!("\n`{named}`, {}:", origin(named)));
        }
        text.push_str(&format!(
            "\n- {}",
            problem.to_string().replace('\n', "\n  ")
        ));
    }
    Error::finding(text)
        .hint(
            "no switch puts a hunk where it does not sit; make the edits of the first of them by \
             hand: `cargo xtask apply`, `cargo xtask new ID`, edit the working tree, `cargo xtask \
             refresh ID`",
        )
        .hint(
            "or put the series under your branch: `cargo xtask export --output DIR`, in a checkout of \
             the base `git am --keep-non-patch --keep-cr DIR/*.patch`, `git rebase` your branch onto that, \
             `git format-patch` anew, and import those",
        )
}
