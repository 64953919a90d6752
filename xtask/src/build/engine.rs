//! One build from beginning to end.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::build::configure::{self, Need, Request};
use crate::build::cuda::{self, CudaKit};
use crate::build::drift::{self, Vocabulary};
use crate::build::launcher::{self, Watch};
use crate::build::lookup::Lookup;
use crate::build::manifest::{self, Difference};
use crate::build::ninja::{Line, Reader};
use crate::build::source::Sources;
use crate::build::tools::{self, Toolset};
use crate::build::vulkan::VulkanKit;
use crate::build::{Build, Recipe, ext, options, shaders};
use crate::ctx::{Ctx, Task};
use crate::error::{Error, Result, ResultExt};
use crate::model::{BuildManifest, Flavour};
use crate::process;
use crate::tree::TreeManifest;

/// The sources that Ninja was last run on: manifest in text form.
const SEEN: &str = "source.manifest";
/// What Ninja takes where nothing changed.
const NOTHING: Duration = Duration::from_millis(400);
/// Ninja's output.
const LOG: &str = "build.log";

/// Builds `recipe` where anything changed, else finds it done; see [`crate::build`].
pub fn run(ctx: &Ctx, lookup: &dyn Lookup, recipe: &Recipe, force: bool) -> Result<Build> {
    options::of(&recipe.backend, recipe.variant)?;
    let tools = tools::resolve(ctx, lookup)?;
    // Before anything is made: what is too old is not found out by a compiler.
    let kit = match &*recipe.backend {
        options::VULKAN => Some(VulkanKit::resolve(ctx, lookup, &tools)?),
        _ => None,
    };
    let cuda = match &*recipe.backend {
        options::CUDA => Some(CudaKit::resolve(ctx, lookup, &tools, recipe)?),
        _ => None,
    };
    let dir = recipe.dir(ctx);
    fs_err::create_dir_all(&dir)?;
    let _lock = crate::lock::file(ctx, &dir.join(".lock"))?;
    ext::link(&recipe.source, &dir.join("src"))?;
    let ext = match recipe.flavour {
        Flavour::Vanilla => None,
        Flavour::Patched => ext::ensure(ctx, &dir)?,
    };
    let sources = Sources::read(&recipe.source)?;
    held(ctx, recipe, &sources)?;
    let paths = sources.paths_digest();
    let shaders = match &kit {
        Some(kit) => {
            shaders::install(&dir, kit)?;
            shaders::folder(ctx, lookup, kit, &sources.manifest)?
        }
        None => None,
    };
    let mut request = Request::new(
        ctx,
        lookup,
        recipe,
        &tools,
        ext.as_ref(),
        kit.as_ref(),
        (&Vocabulary::read(&recipe.source, &sources)?, paths),
    )?;
    if let Some((kit, archs)) = &cuda {
        kit.ask(&mut request, lookup, archs, &dir)?;
    }
    let old = crate::model::read_json::<BuildManifest>(&dir.join(manifest::FILE)).ok();
    let need = if force {
        Need::Scratch("as asked for".to_owned())
    } else {
        match need(&request, &sources, &dir) {
            // It did when the manifest was written. Ninja would build with what it says now.
            Need::Nothing if old.is_some() && !manifest::holds(&request, &dir) => {
                Need::Scratch("its CMakeCache.txt was changed".to_owned())
            }
            need => need,
        }
    };
    // From here on the folder is in motion: a killed run must leave no manifest.
    remove(&dir.join(manifest::FILE))?;
    remove(&dir.join("out/bin").join(manifest::BESIDE))?;
    match &need {
        Need::Scratch(why) => {
            if dir.join("out").exists() {
                let name = recipe.name();
                ctx.sink
                    .note(&format!("building {name} from scratch: {why}"));
            }
            configure::scratch(&dir)?;
        }
        Need::Nothing | Need::Configure => match old {
            Some(old) => repair(ctx, old, &dir)?,
            None => clear(&dir)?,
        },
    }
    match &need {
        Need::Nothing => request.note(&dir)?,
        _ => configure(ctx, recipe, &request, &dir)?,
    }
    crate::model::write_atomic(&dir.join(SEEN), sources.manifest.text().as_bytes())?;
    if kit.is_some() {
        shaders::note_dependencies(&dir, &sources.manifest)?;
    }
    let launcher = launcher::begin(ctx, lookup, request.tools.launcher.as_ref(), &dir)?;
    compile(ctx, recipe, &request, &dir, shaders.as_deref(), &launcher)?;
    launcher.end(ctx)?;
    drop_dead(ctx, &request, &dir)?;
    if !sources.unchanged()? {
        // It is not known which objects saw which content.
        remove(&dir.join(SEEN))?;
        return Err(Error::finding(format!(
            "the sources in {} changed while they were being built",
            ctx.project.show(&recipe.source)
        ))
        .hint("run the same command again once nothing writes to them"));
    }
    let manifest = manifest::collect(ctx, recipe, &request, &sources, &dir)?;
    let build = Build { dir, manifest };
    if cuda.is_some() {
        cuda::images::check(&build)?;
    }
    manifest::write_beside(&build.dir, &build.manifest)?;
    crate::model::write_json(&build.dir.join(manifest::FILE), &build.manifest)?;
    Ok(build)
}

/// Refuses sources that are no longer those that the recipe speaks of: another command may have
/// moved the tree while this one looked for tools or waited for a lock, and the manifest would
/// then name a patch set that is not in the programs.
pub(super) fn held(ctx: &Ctx, recipe: &Recipe, sources: &Sources) -> Result<()> {
    let found = sources.digest();
    if found == recipe.content {
        return Ok(());
    }
    Err(match recipe.flavour {
        Flavour::Vanilla => Error::finding(format!(
            "the pristine tree of {} is not what is pinned: expected {}, found {found}",
            recipe.base, recipe.content
        ))
        .hint(format!("cargo xtask vendor --base {} --force", recipe.base)),
        Flavour::Patched => Error::finding(format!(
            "the sources in {} changed before they were built: expected tree {}, found {found}",
            ctx.project.show(&recipe.source),
            recipe.content
        ))
        .hint("run the same command again once nothing writes to them"),
    })
}

/// What has to be done, as far as CMake's inputs and time stamps tell.
fn need(request: &Request, sources: &Sources, dir: &Path) -> Need {
    let need = request.need(dir);
    let built = dir.join("out/.ninja_log").exists();
    if matches!(need, Need::Scratch(_)) || !built {
        return need;
    }
    let seen = dir.join(SEEN);
    let read = || -> Result<_> {
        let then = fs_err::metadata(&seen)?.modified()?;
        Ok((TreeManifest::parse(&fs_err::read_to_string(&seen)?)?, then))
    };
    let Ok((old, then)) = read() else {
        return Need::Scratch("it is not known what it was built from".to_owned());
    };
    match sources.changed_unseen(&old, then).as_slice() {
        [] => need,
        [file] => Need::Scratch(format!("{file} changed with an old time stamp")),
        [file, more @ ..] => Need::Scratch(format!(
            "{file} and {} more files changed with old time stamps",
            more.len()
        )),
    }
}

/// Calls CMake, and refuses flags that do not hold before anything is compiled: a build may take an hour. They
/// are looked at once more at the end, since Ninja calls CMake by itself where a build file changed.
pub(super) fn configure(ctx: &Ctx, recipe: &Recipe, request: &Request, dir: &Path) -> Result<()> {
    request.run(ctx, dir, recipe)?;
    let drifts = drift::of_build(request, recipe.variant, dir)?;
    if !drifts.is_empty() {
        // What was refused is no configuration: the next build must not take it for one.
        remove(&dir.join("out/build.ninja"))?;
    }
    drift::refuse(&drifts)?;
    let unjudged = drift::unjudged(dir)?;
    if !unjudged.is_empty() {
        ctx.sink.warn(&format!(
            "it is not known which instruction sets the names of {} promise, so that their \
             commands were not judged",
            unjudged.join(", ")
        ));
    }
    Ok(())
}

/// Removes artifacts that are not what was recorded, so that Ninja makes them again.
fn repair(ctx: &Ctx, manifest: BuildManifest, dir: &Path) -> Result<()> {
    let build = Build {
        dir: dir.to_path_buf(),
        manifest,
    };
    for difference in manifest::check(&build)? {
        let file = dir.join(difference.path());
        match difference {
            // Ninja sees by itself that a file is missing. Foreign files are dealt with at the
            // end: this build may be about to make one of that name.
            Difference::Missing { .. } => {}
            Difference::Unknown { .. } if !file.is_symlink() => {}
            Difference::Unknown { .. } => remove(&file)?,
            Difference::Content {
                expected, found, ..
            } => {
                ctx.sink.warn(&format!(
                    "{} was changed after it was built: expected sha256 {expected}, found \
                     {found}; making it again",
                    ctx.project.show(&file)
                ));
                remove(&file)?;
            }
        }
    }
    Ok(())
}

/// Removes programs, libraries and archives of which no manifest says what they are, so that Ninja links them
/// again. A build that fails or is killed leaves them so; what is put into their place meanwhile is newer
/// than what it should be made of, and would be taken for built. What Ninja did not make it makes
/// anyhow, or does not know: those are dealt with at the end.
fn clear(dir: &Path) -> Result<()> {
    let out = dir.join("out");
    let log = match fs_err::read(out.join(".ninja_log")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        log => log?,
    };
    // Begin, end and time stamp stand before it, a hash behind it.
    let log = String::from_utf8_lossy(&log);
    let made = log.lines().filter_map(|line| line.split('\t').nth(3));
    let made: BTreeSet<PathBuf> = made.map(|path| out.join(path)).collect();
    let programs = manifest::programs(dir)?.into_iter();
    let programs = programs.map(|program| dir.join(program));
    // What is inside them lies in archives first, with static libraries all of llama.cpp.
    let is_archive = |file: &&PathBuf| file.extension().is_some_and(|ending| ending == "a");
    let archives = made.iter().filter(is_archive).cloned();
    for file in programs.chain(archives) {
        if made.contains(&file) && file.exists() {
            remove(&file)?;
        }
    }
    Ok(())
}

/// Removes what earlier configurations made and this one does not, such as libraries of another
/// version. Ninja calls CMake by itself when a build file changed, so that it is not known here
/// whether there is a new configuration.
fn drop_dead(ctx: &Ctx, request: &Request, dir: &Path) -> Result<()> {
    let mut command = Command::new(&request.tools.ninja.path);
    command.arg("-C").arg(dir.join("out"));
    command.args(["-t", "cleandead"]);
    let done = process::capture(ctx, &mut command)?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::environment(format!(
        "ninja failed: {}",
        process::last_lines(&done.output, 3)
    )))
}

pub(super) fn compile(
    ctx: &Ctx,
    recipe: &Recipe,
    request: &Request,
    dir: &Path,
    shaders: Option<&Path>,
    launcher: &Watch<'_>,
) -> Result<()> {
    use std::io::Write;
    let Toolset { ninja, .. } = &request.tools;
    let log_path = dir.join(LOG);
    let mut log = std::io::BufWriter::new(fs_err::File::create(&log_path)?);
    let mut command = process::tied(&ninja.path, process::Signal::Term);
    command.args(["-j", &ctx.jobs.to_string()]);
    command.args(&recipe.targets).current_dir(dir.join("out"));
    request.apply_env(dir, &mut command);
    launcher.apply(&mut command);
    command.env_remove(shaders::VAR);
    if let Some(shaders) = shaders {
        command.env(shaders::VAR, shaders);
    }
    let mut reader = Reader::default();
    let begun = Instant::now();
    // Said only once there is something to do: upstream has a few steps that always run.
    let mut task: Option<Box<dyn Task>> = None;
    let title = format!("building {}", recipe.name());
    let status = process::stream(ctx, &mut command, &mut |line| {
        writeln!(log, "{line}")?;
        if let Line::Step { done, total, what } = reader.line(line)
            && (task.is_some() || begun.elapsed() > NOTHING)
        {
            let task = task.get_or_insert_with(|| ctx.sink.task(&title, Some(total)));
            task.progress(done, total);
            task.message(what);
        }
        Ok(())
    });
    log.flush()
        .context(|| format!("writing {}", log_path.display()))?;
    let status = status.context(|| title.clone())?;
    if !status.success() {
        drop(task);
        let log = ctx.project.show(&log_path);
        return Err(reader.error(recipe.flavour, &log).context(title));
    }
    if let Some(task) = task {
        task.finish(&format!("{} steps", reader.steps.1));
    }
    Ok(())
}

fn remove(file: &Path) -> Result<()> {
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).context(|| format!("removing {}", file.display()))
        }
        _ => Ok(()),
    }
}
