//! Apply and status on a series of any length, beside other programs, in turns.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rayon::prelude::*;
use serde::Serialize;

use crate::bench::long::{self, Long};
use crate::bench::measure::{Taken, Times, peak, time};
use crate::bench::peers::{Input, Peer, git};
use crate::bench::series::{Generated, Made, generate};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::mail::{self, Author, Mail, Part};
use crate::patchset::{Images, Series, copy_file};
use crate::project::{CACHE_VAR, Project};
use crate::tree::{TreeManifest, flush};
use crate::vendor::Pristine;

/// Rounds where none are asked for.
const ROUNDS: usize = 5;
/// From so many patches on, a slow peer runs once where no rounds are asked for.
const LONG_SERIES: usize = 500;
/// Stamps of files are believed once they are that old: see `tree/stamps.rs`.
const SETTLE: Duration = Duration::from_millis(2300);
/// What only peers put into a tree.
const THEIRS: [&str; 3] = [".git/", ".pc/", ".patchset/"];

/// What to measure.
#[derive(Clone, Debug)]
pub struct Options {
    /// The program that is measured as ours.
    pub program: PathBuf,
    /// Numbers of patches.
    pub series: Vec<usize>,
    /// How often, where the user says so.
    pub rounds: Option<usize>,
    /// Whom to measure beside us.
    pub peers: Vec<Peer>,
    /// Hunks of the long files.
    pub hunks: Vec<usize>,
    /// How long the disk rests before each thing that is timed. Without a journal, ext4 passes
    /// over the inodes of files that were deleted within a minute, one by one, whenever a file is
    /// made; what was deleted for the sake of measuring should not count.
    pub rest: Duration,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Report {
    /// The base.
    pub base: String,
    /// How this program was compiled.
    pub profile: &'static str,
    /// Processors.
    pub processors: usize,
    /// Seconds for which the disk rested before each thing that was timed.
    pub rest: u64,
    /// The load of the machine before and after, over a minute; absent where it cannot be read.
    pub load: (Option<f64>, Option<f64>),
    /// Each length of series.
    pub series: Vec<Sized>,
    /// Long files.
    pub long: Vec<Long>,
}

/// One length of series.
#[derive(Clone, Debug, Serialize)]
pub struct Sized {
    /// Patches.
    pub patches: usize,
    /// Upstream files that they change.
    pub hooked: usize,
    /// Files that they write.
    pub files: usize,
    /// Bytes of these files.
    pub bytes: u64,
    /// Our largest resident memory at an apply, in KiB.
    pub peak_kib: Option<u64>,
    /// What was timed, ours first.
    pub rows: Vec<Row>,
}

/// One thing that was timed.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Its short name.
    pub name: &'static str,
    /// In words.
    pub what: &'static str,
    /// Seconds from start to end.
    pub times: Times,
    /// Seconds on processors; see `measure.rs`.
    pub cpu: Times,
}

/// Ours, in the order in which a round does them.
const OURS: [(&str, &str); 6] = [
    (
        "apply",
        "apply to a tree that is the base, nothing remembered",
    ),
    (
        "apply-known",
        "apply to a tree that is the base and was looked at",
    ),
    ("apply-again", "apply, nothing to change"),
    ("status", "status"),
    ("status-hashing", "status, nothing remembered"),
    ("apply-new", "apply without a tree: the base is copied too"),
];

/// Measures. `pristine` is a base of the project; scratch files lie in a folder of this run
/// under `target/bench`.
pub fn patch(ctx: &Ctx, pristine: &Pristine, options: &Options) -> Result<Report> {
    let scratch = ctx.project.target().join("bench");
    fs_err::create_dir_all(&scratch)?;
    // Its own: another run may be at work, and must not lose its files.
    let scratch = tempfile::Builder::new()
        .prefix("patch-")
        .tempdir_in(scratch)?;
    let dir = scratch.path();
    let before = load();
    let task = ctx
        .sink
        .task("Measuring", Some(options.series.len() as u64 + 1));
    let mut series = Vec::new();
    for (done, count) in options.series.iter().enumerate() {
        task.message(&format!("{count} patches"));
        let bench = Bench::new(ctx, pristine, options, *count, dir)?;
        series.push(bench.measure()?);
        task.progress(done as u64 + 1, options.series.len() as u64 + 1);
    }
    task.message("long files");
    let with_git = options.peers.iter().any(|peer| peer.program() == "git");
    let rounds = options.rounds.unwrap_or(ROUNDS);
    let long = long::measure(ctx, &options.hunks, rounds, with_git, &dir.join("long"))?;
    scratch.close()?;
    task.finish("done");
    Ok(Report {
        base: pristine.base.id.clone(),
        profile: if cfg!(debug_assertions) {
            "dev"
        } else {
            "release"
        },
        processors: std::thread::available_parallelism().map_or(1, Into::into),
        rest: options.rest.as_secs(),
        load: (before, load()),
        series,
        long,
    })
}

fn load() -> Option<f64> {
    let text = std::fs::read_to_string("/proc/loadavg").ok()?;
    text.split(' ').next()?.parse().ok()
}

/// One length of series, with its scratch checkout and what the peers take.
struct Bench<'a> {
    ctx: &'a Ctx,
    pristine: &'a Pristine,
    options: &'a Options,
    count: usize,
    dir: PathBuf,
    project: Project,
    input: Input,
    expected: TreeManifest,
    sized: Sized,
}

impl<'a> Bench<'a> {
    fn new(
        ctx: &'a Ctx,
        pristine: &'a Pristine,
        options: &'a Options,
        count: usize,
        dir: &Path,
    ) -> Result<Self> {
        let dir = dir.join(count.to_string());
        if dir.exists() {
            fs_err::remove_dir_all(&dir)?;
        }
        let made = generate(pristine, count)?;
        let project = checkout(ctx, &made, &pristine.base.id, &dir.join("checkout"))?;
        let input = input(&made, &dir)?;
        let series = Series::load(&project, &pristine.base)?;
        let images = Images::compute(pristine, &series)?;
        let mut expected = pristine.manifest.clone();
        let (mut files, mut bytes) = (0, 0);
        for path in images.paths() {
            if let Some(image) = images.at(path, count) {
                expected.insert(path.clone(), image.entry());
                files += 1;
                bytes += image.content.len() as u64;
            }
        }
        let row = |(name, what)| Row {
            name,
            what,
            times: Times::default(),
            cpu: Times::default(),
        };
        let theirs = options.peers.iter().map(|peer| (peer.name(), peer.what()));
        Ok(Bench {
            ctx,
            pristine,
            options,
            count,
            dir,
            project,
            input,
            expected,
            sized: Sized {
                patches: count,
                hooked: made.hooked,
                files,
                bytes,
                peak_kib: None,
                rows: OURS.into_iter().chain(theirs).map(row).collect(),
            },
        })
    }

    fn measure(mut self) -> Result<Sized> {
        let rounds = self.options.rounds.unwrap_or(ROUNDS);
        self.ours(&["apply"], None)?;
        for round in 0..rounds {
            self.round()?;
            for peer in self.options.peers.clone() {
                let once = self.options.rounds.is_none() && self.count >= LONG_SERIES;
                if round == 0 || !(once && peer.is_slow()) {
                    self.theirs(peer, round == 0)?;
                }
            }
        }
        fs_err::remove_dir_all(&self.dir)?;
        Ok(self.sized)
    }

    /// All that is ours, once.
    fn round(&mut self) -> Result<()> {
        let own = self.tree().join(".patchset");
        let forget = || {
            let mut files = ["stamps", "series"].into_iter();
            files.try_for_each(|name| match std::fs::remove_file(own.join(name)) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            })
        };
        self.ours(&["revert"], None)?;
        forget()?;
        if self.sized.peak_kib.is_none() {
            flush(&self.dir)?;
            let log = self.dir.join("log");
            self.sized.peak_kib = peak(self.ctx, &mut self.command(&["apply"]), &log)?;
            self.ours(&["revert"], None)?;
            forget()?;
        }
        self.ours(&["apply"], Some("apply"))?;
        self.check(&self.tree(), "apply")?;
        self.ours(&["revert"], None)?;
        std::thread::sleep(SETTLE);
        self.ours(&["status"], None)?;
        self.ours(&["apply"], Some("apply-known"))?;
        std::thread::sleep(SETTLE);
        self.ours(&["status"], None)?;
        self.ours(&["apply"], Some("apply-again"))?;
        self.ours(&["status"], Some("status"))?;
        forget()?;
        self.ours(&["status"], Some("status-hashing"))?;
        fs_err::remove_dir_all(self.tree())?;
        self.ours(&["apply"], Some("apply-new"))?;
        self.check(&self.tree(), "apply")
    }

    fn tree(&self) -> PathBuf {
        self.project.working_tree(&self.pristine.base.id)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.options.program);
        command.args(args).arg("--offline");
        command.args(["--base", &self.pristine.base.id, "--root"]);
        command.arg(self.project.root());
        command.env(CACHE_VAR, self.project.cache());
        command
    }

    /// Runs our program, and takes the time where `row` says for what.
    fn ours(&mut self, args: &[&str], row: Option<&str>) -> Result<()> {
        // What others left to be written is not ours to wait for.
        flush(&self.dir)?;
        if row.is_some() {
            self.rest()?;
        }
        let log = self.dir.join("log");
        let taken = time(self.ctx, &mut self.command(args), &log)?;
        self.add(row, taken);
        Ok(())
    }

    fn rest(&self) -> Result<()> {
        let begun = Instant::now();
        while begun.elapsed() < self.options.rest {
            self.ctx.cancel.check()?;
            let left = self.options.rest.saturating_sub(begun.elapsed());
            std::thread::sleep(left.min(Duration::from_millis(100)));
        }
        Ok(())
    }

    fn add(&mut self, name: Option<&str>, taken: Taken) {
        for row in &mut self.sized.rows {
            if Some(row.name) == name {
                row.times.add(taken.wall);
                row.cpu.add(taken.cpu);
            }
        }
    }

    /// A peer on a fresh copy of the base. Only its own work is timed.
    fn theirs(&mut self, peer: Peer, check: bool) -> Result<()> {
        let tree = self.dir.join("tree");
        if tree.exists() {
            fs_err::remove_dir_all(&tree)?;
        }
        copy(self.pristine, &tree)?;
        let log = self.dir.join("log");
        if peer == Peer::GitAm {
            for args in [
                &["init", "-q"][..],
                &["add", "-A", "-f"],
                &["commit", "-q", "-m", "base"],
            ] {
                time(self.ctx, git(&tree).args(args), &log)?;
            }
        }
        flush(&self.dir)?;
        self.rest()?;
        let mut command = peer.command(&tree, &self.input);
        let taken = time(self.ctx, &mut command, &log).context(|| peer.what().to_owned())?;
        self.add(Some(peer.name()), taken);
        if check {
            self.check(&tree, peer.what())?;
        }
        Ok(())
    }

    /// Whoever did not make the tree that the series makes did other work.
    fn check(&self, tree: &Path, who: &str) -> Result<()> {
        let found = TreeManifest::of_tree(tree, |path| THEIRS.contains(&path))?;
        match self.expected.differences(&found).first() {
            None => Ok(()),
            Some(first) => Err(Error::finding(format!("{who} made another tree: {first}"))),
        }
    }
}

/// A checkout whose series is `made`.
fn checkout(ctx: &Ctx, made: &Generated, base: &str, root: &Path) -> Result<Project> {
    let registry = root.join("registry");
    fs_err::create_dir_all(&registry)?;
    let upstreams = ctx.project.registry("upstreams.toml");
    fs_err::copy(upstreams, registry.join("upstreams.toml"))?;
    let ids: Vec<&str> = made.patches.iter().map(|patch| patch.id.as_str()).collect();
    let text = format!("schema = 1\n\n[series]\n{base:?} = {ids:?}\n");
    fs_err::write(registry.join("series.toml"), text)?;
    for patch in &made.patches {
        let dir = root.join("patches").join(&patch.id);
        fs_err::create_dir_all(&dir)?;
        let text = format!(
            "schema = 1\nid = {:?}\ntitle = {:?}\npurpose = \"Measures.\"\n",
            patch.id, patch.id
        );
        fs_err::write(dir.join("patch.toml"), text)?;
        fs_err::write(dir.join("hooks.patch"), &patch.hooks)?;
        if let Some((path, text)) = &patch.overlay {
            let file = path.below(&dir.join("src"));
            fs_err::create_dir_all(file.parent().unwrap_or(&dir))?;
            fs_err::write(file, text)?;
        }
    }
    Project::new(root, ctx.project.cache())
}

/// The same for the peers.
fn input(made: &Generated, dir: &Path) -> Result<Input> {
    let mut input = Input {
        patches: Vec::new(),
        mails: Vec::new(),
        quilt: dir.join("patches"),
    };
    let mails = dir.join("mails");
    fs_err::create_dir_all(&input.quilt)?;
    fs_err::create_dir_all(&mails)?;
    let mut series = String::new();
    for (at, patch) in made.patches.iter().enumerate() {
        let name = format!("{:04}.patch", at + 1);
        let path = input.quilt.join(&name);
        fs_err::write(&path, patch.diff())?;
        input.patches.push(path);
        series.push_str(&name);
        series.push('\n');
        let path = mails.join(&name);
        let part = Part {
            number: at as u32 + 1,
            total: made.patches.len() as u32,
        };
        fs_err::write(&path, mail::write(&letter(patch, part))?)?;
        input.mails.push(path);
    }
    fs_err::write(input.quilt.join("series"), series)?;
    Ok(input)
}

fn letter(patch: &Made, part: Part) -> Mail {
    Mail {
        author: Author {
            name: "Bench".to_owned(),
            email: "bench@localhost".to_owned(),
        },
        date: "Sun, 29 Nov 2026 12:00:00 +0000".to_owned(),
        part: Some(part),
        subject: patch.id.clone(),
        body: String::new(),
        notes: String::new(),
        diff: patch.diff().into_bytes(),
    }
}

/// Copies the base to `tree`.
fn copy(pristine: &Pristine, tree: &Path) -> Result<()> {
    let paths: Vec<_> = pristine.manifest.iter().map(|(path, _)| path).collect();
    paths.into_par_iter().try_for_each(|path| {
        let to = path.below(tree);
        fs_err::create_dir_all(to.parent().unwrap_or(tree))?;
        copy_file(&path.below(&pristine.root), &to)
    })
}
