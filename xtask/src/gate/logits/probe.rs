//! The program that reads logits: compiled against the headers of the build under test, linked to
//! its libraries, and made to prove that it has loaded them.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::{LogitsPlan, Probe};
use crate::build::{self, Build};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::identity::Side;
use crate::gate::runner::ServerRunner;
use crate::gate::server::{log_tail, removed_variables, sanitizer};
use crate::gate::session::{Halt, Prompt, Run};
use crate::gate::work::Work;
use crate::model::{Artifact, Digest, Flash, Libraries, LogitsSetting, ProbeStamp};
use crate::process::{Group, Signal, capture, describe, last_lines, tied};

/// The source.
const SOURCE: &str = include_str!("../../../probe/logits.c");

/// Headers that it includes, directly or not.
const HEADERS: [&str; 2] = ["src/include", "src/ggml/include"];

/// What is linked to it.
const LIBRARIES: [&str; 3] = ["llama", "ggml", "ggml-base"];

/// Where the program lies below a build that was brought from another machine, which may have no
/// compiler; see [`ship`].
pub const BROUGHT: &str = "probe/logits";

/// How often a running probe is looked at.
const POLL: Duration = Duration::from_millis(2);

/// Whether one of these programs is of a build of this project that has its libraries inside its programs.
pub fn is_static(programs: [&Path; 2]) -> Result<bool> {
    for program in programs {
        let build = Build::of_program(program)?;
        if build.is_some_and(|build| build.manifest.variant.libraries == Libraries::Static) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The probes of both sides.
pub struct Probes<'a> {
    runner: &'a ServerRunner<'a>,
    single: usize,
    baseline: One<'a>,
    candidate: One<'a>,
}

/// The probe of one side.
struct One<'a> {
    side: &'a Side,
    build: Build,
    program: PathBuf,
    compiler: String,
    /// Real paths of what every run so far has loaded.
    loaded: Mutex<BTreeSet<PathBuf>>,
}

impl<'a> Probes<'a> {
    /// Compiles both, where they are not there. `None` where a side is no build of this project.
    pub fn prepare(work: &'a Work<'a>, plan: &LogitsPlan) -> Result<Option<Self>> {
        let one = |side: &'a Side| -> Result<Option<One<'a>>> {
            let Some(build) = Build::of_program(&side.program)? else {
                return Ok(None);
            };
            One::prepare(work.ctx, side, build)
                .context(|| format!("the logits probe of {}", side.program.display()))
                .map(Some)
        };
        let (baseline, candidate) = (one(work.runner.baseline)?, one(work.runner.candidate)?);
        Ok(baseline.zip(candidate).map(|(baseline, candidate)| Probes {
            runner: work.runner,
            single: plan.single,
            baseline,
            candidate,
        }))
    }

    /// What was run, and what it had loaded.
    pub fn stamps(&self) -> Result<Vec<ProbeStamp>> {
        let sides = [("baseline", &self.baseline), ("candidate", &self.candidate)];
        sides.iter().map(|(name, one)| one.stamp(name)).collect()
    }
}

impl Probe for Probes<'_> {
    fn run(
        &self,
        run: Run,
        setting: &LogitsSetting,
        prompts: &[Prompt],
        halt: &Halt,
    ) -> Result<PathBuf> {
        let one = match run {
            Run::Baseline | Run::Control => &self.baseline,
            Run::Candidate => &self.candidate,
        };
        let runner = self.runner;
        let file = |end: &str| {
            let name = format!("{}-{}.{end}", setting.name, run.name());
            runner.logs.join(name)
        };
        let text = plan(
            runner.model,
            runner.definition.context,
            setting,
            prompts,
            self.single,
        )?;
        fs_err::write(file("plan"), text)?;
        let limits = &runner.definition.limits;
        one.run(
            [&file("plan"), &file("logits"), &file("log")],
            Duration::from_secs(limits.start + limits.request),
            halt,
        )?;
        let name = format!("{}-{}", setting.name, run.name());
        runner.hear(run, &name, (&one.side.env, false), &file("log"))?;
        Ok(file("logits"))
    }
}

/// What the probe is told: one setting a line, then each prompt as the number of ids that go in
/// batches, the number of those that go alone, and all of them.
pub fn plan(
    model: &Path,
    context: usize,
    setting: &LogitsSetting,
    prompts: &[Prompt],
    single: usize,
) -> Result<String> {
    let model = model.to_str().filter(|path| !path.contains('\n'));
    let Some(model) = model else {
        return Err(Error::usage("the path of the model is no plain text")
            .hint("move it to a path without line breaks and odd bytes"));
    };
    let flash = match setting.flash {
        Flash::Auto => "auto",
        Flash::On => "on",
        Flash::Off => "off",
    };
    let mut text = format!(
        "model {model}\ncontext {context}\nbatch {}\nubatch {}\nthreads {}\nflash {flash}\n\
         cache-k {}\ncache-v {}\nprompts {}\n",
        setting.batch,
        setting.ubatch,
        setting.threads,
        setting.cache_k,
        setting.cache_v,
        prompts.len()
    );
    for prompt in prompts {
        // At least one goes in a batch.
        let alone = single.min(prompt.ids.len().saturating_sub(1));
        let _ = write!(text, "prompt {} {alone}", prompt.ids.len() - alone);
        for id in &prompt.ids {
            let _ = write!(text, " {id}");
        }
        text.push('\n');
    }
    Ok(text)
}

impl<'a> One<'a> {
    fn prepare(ctx: &Ctx, side: &'a Side, build: Build) -> Result<Self> {
        let broken = build::check_artifacts(&build.dir, &build.manifest.artifacts)?;
        if let Some(first) = broken.first() {
            return Err(
                Error::finding(format!("{}/{first}", build.dir.display())).hint(
                    "run `cargo xtask build` again; a build that is not what it says is not gated",
                ),
            );
        }
        let Some(compiler) = build.manifest.compilers.get("C") else {
            return Err(Error::finding("the build's manifest names no C compiler")
                .hint("cargo xtask build writes it anew"));
        };
        let described = format!("{} {} {}", compiler.id, compiler.version, compiler.path);
        let brought = build.dir.join(BROUGHT);
        let program = match brought.is_file() {
            true => brought,
            false => {
                let key = key(&build, &described)?;
                let dir = ctx.project.target().join("gate/probe");
                let dir = dir.join(key.to_string());
                let program = dir.join("logits");
                if !program.is_file() {
                    let bin = build.dir.join("out/bin");
                    compile(ctx, &build, &compiler.path, &dir, bin.as_os_str())?;
                }
                program
            }
        };
        Ok(One {
            side,
            build,
            program,
            compiler: described,
            loaded: Mutex::default(),
        })
    }

    fn run(&self, [plan, out, log]: [&Path; 3], limit: Duration, halt: &Halt) -> Result<()> {
        let said = fs_err::File::create(log)?.into_file();
        let mut command = tied(&self.program, Signal::Kill);
        for name in removed_variables() {
            command.env_remove(name);
        }
        command.args([plan, out]).envs(&self.side.env);
        command.envs(sanitizer::ENV);
        command.stdout(said.try_clone()?).stderr(said);
        let mut group = Group::start(&mut command, Duration::ZERO)?;
        let begun = Instant::now();
        let status = loop {
            if let Some(status) = group.ended()? {
                break status;
            }
            let over = begun.elapsed() > limit;
            if over || halt.is_set() {
                group.end()?;
                halt.check()?;
                return Err(Error::environment(format!(
                    "the probe was not done within {} s",
                    limit.as_secs()
                ))
                .hint("raise limits.request in the gate's definition if the model is that large"));
            }
            std::thread::sleep(POLL);
        };
        let text = String::from_utf8_lossy(&fs_err::read(log)?).into_owned();
        if let Some(report) = sanitizer::finding(log) {
            return Err(report);
        }
        if !status.success() || !text.lines().any(|line| line == "done") {
            return Err(Error::environment(format!(
                "the probe ended {}\n{}",
                describe(status),
                log_tail(log)
            )));
        }
        self.check_loaded(&text)
    }

    /// The libraries that the probe said it had loaded must be those of the build, and the library
    /// that decodes must be among them.
    fn check_loaded(&self, text: &str) -> Result<()> {
        let mut loaded = BTreeSet::new();
        for path in text
            .lines()
            .filter_map(|line| line.strip_prefix("library "))
        {
            loaded.insert(fs_err::canonicalize(path)?);
        }
        let own = self.own()?;
        if let Some(foreign) = loaded.iter().find(|path| !own.contains(*path)) {
            return Err(Error::finding(format!(
                "the probe has loaded {}, which is no recorded file of {}",
                foreign.display(),
                self.build.dir.display()
            ))
            .hint("unset LD_LIBRARY_PATH and LD_PRELOAD, or rebuild"));
        }
        for wanted in ["libllama.", "libggml-base."] {
            let is_it = |path: &PathBuf| {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                name.starts_with(wanted)
            };
            if !loaded.iter().any(is_it) {
                return Err(Error::finding(format!(
                    "the probe does not say that it has loaded {wanted}so: nothing tells which \
                     build it read"
                ))
                .hint("the builds must have shared libraries"));
            }
        }
        self.side.check_loaded(&loaded)?;
        let mut seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        seen.extend(loaded);
        Ok(())
    }

    /// Real paths of the recorded files.
    fn own(&self) -> Result<BTreeSet<PathBuf>> {
        let artifacts = self.build.manifest.artifacts.iter();
        artifacts
            .map(|artifact| Ok(fs_err::canonicalize(self.build.dir.join(&artifact.path))?))
            .collect()
    }

    fn stamp(&self, side: &str) -> Result<ProbeStamp> {
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        let dir = fs_err::canonicalize(&self.build.dir)?;
        let library = |path: &PathBuf| -> Result<Artifact> {
            Ok(Artifact {
                path: path
                    .strip_prefix(&dir)
                    .unwrap_or(path)
                    .display()
                    .to_string(),
                size: fs_err::metadata(path)?.len(),
                sha256: Digest::of_file(path)?,
                content: None,
            })
        };
        Ok(ProbeStamp {
            side: side.to_owned(),
            source: Digest::of(SOURCE.as_bytes()),
            compiler: self.compiler.clone(),
            program: Digest::of_file(&self.program)?,
            libraries: seen.iter().map(library).collect::<Result<_>>()?,
        })
    }
}

/// Changes with everything that goes into the program, and with the place of what it loads.
fn key(build: &Build, compiler: &str) -> Result<Digest> {
    let mut text = format!(
        "{}\n{compiler}{}\n{}\n",
        Digest::of(SOURCE.as_bytes()),
        build::compile_flags(build.manifest.variant.profile),
        build.dir.display()
    );
    for folder in HEADERS {
        let mut headers = Vec::new();
        for entry in fs_err::read_dir(build.dir.join(folder))? {
            let path = entry?.path();
            if path.extension().is_some_and(|end| end == "h") {
                headers.push(path);
            }
        }
        headers.sort();
        for header in headers {
            let _ = writeln!(text, "{} {}", header.display(), Digest::of_file(&header)?);
        }
    }
    Ok(Digest::of(text.as_bytes()))
}

/// Compiles the program for a copy of `build` in the folder `copy`, on whatever machine that is.
pub fn ship(ctx: &Ctx, build: &Build, copy: &Path) -> Result<()> {
    let Some(compiler) = build.manifest.compilers.get("C") else {
        return Err(Error::finding("the build's manifest names no C compiler")
            .hint("cargo xtask build writes it anew"));
    };
    let dir = copy.join(BROUGHT);
    let dir = dir.parent().unwrap_or(copy);
    let origin = std::ffi::OsStr::new("$ORIGIN/../out/bin");
    compile(ctx, build, &compiler.path, dir, origin)
}

/// Makes `dir` with the source and the program in it, in one step. The program looks for its
/// libraries in `libraries`.
fn compile(
    ctx: &Ctx,
    build: &Build,
    compiler: &str,
    dir: &Path,
    libraries: &std::ffi::OsStr,
) -> Result<()> {
    let parent = dir.parent().unwrap_or(dir);
    fs_err::create_dir_all(parent)?;
    let temp = tempfile::Builder::new()
        .prefix(".probe-")
        .tempdir_in(parent)?;
    let source = temp.path().join("logits.c");
    fs_err::write(&source, SOURCE)?;
    let bin = build.dir.join("out/bin");
    let mut command = Command::new(compiler);
    command.args(["-std=gnu11", "-O1"]);
    // A library with a sanitizer in it can only be loaded by a program that has it too.
    let flags = build::compile_flags(build.manifest.variant.profile);
    command.args(flags.split_whitespace());
    for folder in HEADERS {
        command.arg("-I").arg(build.dir.join(folder));
    }
    command
        .arg(&source)
        .arg("-o")
        .arg(temp.path().join("logits"))
        .arg("-L")
        .arg(&bin);
    for library in LIBRARIES {
        command.arg(format!("-l{library}"));
    }
    let mut rpath = std::ffi::OsString::from("-Wl,-rpath,");
    rpath.push(libraries);
    command.arg(rpath);
    let done = capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(Error::environment(format!(
            "{compiler} does not compile it: {}",
            last_lines(&done.output, 12)
        )));
    }
    // Another run may have been quicker; its program is the same.
    if let Err(error) = fs_err::rename(temp.path(), dir)
        && !dir.join("logits").is_file()
    {
        return Err(error.into());
    }
    Ok(())
}

#[cfg(test)]
mod tests;
