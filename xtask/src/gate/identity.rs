//! Whether the two servers are what the comparison takes them for. A gate that compares a
//! build with itself, or a stale one, passes by accident.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::build::{self, Build};
use crate::error::{Error, Result, ResultExt};
use crate::gate::client::Client;
use crate::gate::server::{is_library, is_program};
use crate::model::{Artifact, Digest, Flavour, SWITCH_PREFIX, SideStamp};
use crate::project::suggest;

/// One of the two servers that are compared.
#[derive(Debug)]
pub struct Side {
    /// The server.
    pub program: PathBuf,
    /// Its environment.
    pub env: BTreeMap<String, String>,
    /// Its provenance.
    pub stamp: SideStamp,
    /// The folder that artifact paths start from.
    dir: PathBuf,
    /// Whether it was built here, so that everything it loads must be known.
    built: bool,
    /// The server, where it runs already.
    pub running: Option<Running>,
    /// Libraries and programs that were seen loaded, real paths.
    loaded: Mutex<BTreeSet<PathBuf>>,
}

/// A server that runs already.
#[derive(Debug)]
pub struct Running {
    /// Talks to it.
    pub client: Client,
    /// Where it listens.
    pub address: String,
}

/// Why a build is not gated.
fn mismatch(message: impl Into<String>) -> Error {
    Error::finding(message)
        .hint("run `cargo xtask build` again; a build that is not what it says is not gated")
}

impl Side {
    /// A build of this project, which must be of flavour `expected` and whose files must be
    /// those that its manifest records. Errors name the file and both digests.
    pub fn of_build(
        build: &Build,
        expected: Flavour,
        env: BTreeMap<String, String>,
    ) -> Result<Self> {
        let manifest = &build.manifest;
        let context = || format!("checking the {expected} build");
        if manifest.flavour != expected {
            return Err(mismatch(format!(
                "{} is a {} build",
                build.dir.display(),
                manifest.flavour
            )))
            .context(context);
        }
        match (expected, &manifest.patchset) {
            (Flavour::Vanilla, Some(stamp)) => {
                let message = format!("it carries the patch set {}", stamp.id.short());
                return Err(mismatch(message)).context(context);
            }
            (Flavour::Patched, None) => {
                return Err(mismatch("it carries no patch set")).context(context);
            }
            _ => {}
        }
        let program = build.program("llama-server");
        let side = Side {
            stamp: SideStamp {
                server: program.display().to_string(),
                base: Some(manifest.base.clone()),
                flavour: Some(manifest.flavour),
                patchset: manifest.patchset.clone(),
                source: Some(manifest.source),
                env: show_env(&env),
                unverified: Vec::new(),
                artifacts: manifest.artifacts.clone(),
            },
            program,
            env,
            dir: build.dir.clone(),
            built: true,
            running: None,
            loaded: Mutex::default(),
        };
        let server = side
            .program
            .strip_prefix(&side.dir)
            .unwrap_or(&side.program);
        if !(side.stamp.artifacts.iter()).any(|artifact| Path::new(&artifact.path) == server) {
            let message = format!("its manifest does not record {}", server.display());
            return Err(mismatch(message)).context(context);
        }
        side.check_files().context(context)?;
        Ok(side)
    }

    /// A server that the user named. Nothing is known of it but its files.
    pub fn of_path(program: &Path, env: BTreeMap<String, String>) -> Result<Self> {
        let program = std::path::absolute(program)?;
        if !program.is_file() {
            return Err(
                Error::usage(format!("there is no file {}", program.display()))
                    .hint("name the llama-server program itself"),
            );
        }
        let dir = program.parent().unwrap_or(Path::new("/")).to_path_buf();
        // What a link leads to is what runs, and what is hashed.
        let mut files = vec![program.canonicalize()?];
        for entry in fs_err::read_dir(&dir)? {
            let entry = entry?;
            let is_link = entry.file_type()?.is_symlink();
            if is_library(&entry.file_name().to_string_lossy()) && !is_link {
                files.push(entry.path());
            }
        }
        files.sort();
        let artifacts = files
            .iter()
            .map(|file| artifact(file, &dir))
            .collect::<Result<_>>()?;
        Ok(Side {
            stamp: SideStamp {
                server: program.display().to_string(),
                base: None,
                flavour: None,
                patchset: None,
                source: None,
                env: show_env(&env),
                unverified: Vec::new(),
                artifacts,
            },
            program,
            env,
            dir,
            built: false,
            running: None,
            loaded: Mutex::default(),
        })
    }

    /// A server that runs already, of which `unverified` cannot be checked.
    pub fn of_running(client: Client, address: &str, unverified: Vec<String>) -> Self {
        Side {
            stamp: SideStamp {
                server: address.to_owned(),
                base: None,
                flavour: None,
                patchset: None,
                source: None,
                env: Vec::new(),
                unverified,
                artifacts: Vec::new(),
            },
            program: PathBuf::new(),
            env: BTreeMap::new(),
            dir: PathBuf::from("/"),
            built: false,
            running: Some(Running {
                client,
                address: address.to_owned(),
            }),
            loaded: Mutex::default(),
        }
    }

    /// Whether it is a build of this project.
    pub fn is_built(&self) -> bool {
        self.built
    }

    /// Checks every recorded file against its digest. Called before a run, and after it too:
    /// a build that was replaced in between was not compared.
    pub fn check_files(&self) -> Result<()> {
        let found = build::check_artifacts(&self.dir, &self.stamp.artifacts)?;
        if let Some(first) = found.first() {
            let dir = self.dir.display();
            return Err(mismatch(format!("{dir}/{first}")));
        }
        Ok(())
    }

    /// The recorded files.
    pub fn files(&self) -> Vec<PathBuf> {
        let artifacts = self.stamp.artifacts.iter();
        artifacts
            .map(|artifact| self.dir.join(&artifact.path))
            .collect()
    }

    /// Takes note of what a running server has loaded. A build must load only its own
    /// libraries: a search path of the user can make two builds load the same ones.
    pub fn check_loaded(&self, loaded: &BTreeSet<PathBuf>) -> Result<()> {
        let mut seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        if loaded.iter().all(|path| seen.contains(path)) {
            return Ok(());
        }
        if self.built {
            let own = self.own_files();
            if let Some(foreign) = loaded.iter().find(|path| !own.contains(*path)) {
                if foreign.to_string_lossy().ends_with(" (deleted)") {
                    return Err(Error::finding(format!(
                        "{} was replaced while it was compared",
                        foreign.to_string_lossy().trim_end_matches(" (deleted)")
                    ))
                    .hint("run the same command again once no other command builds"));
                }
                return Err(Error::finding(format!(
                    "{} has loaded {}, which is no recorded file of its build",
                    self.program.display(),
                    foreign.display()
                ))
                .hint("unset LD_LIBRARY_PATH and LD_PRELOAD, or rebuild"));
            }
        }
        seen.extend(loaded.iter().cloned());
        Ok(())
    }

    /// The provenance, with libraries from elsewhere that a named server has loaded.
    pub fn final_stamp(&self) -> Result<SideStamp> {
        let mut stamp = self.stamp.clone();
        let own = self.own_files();
        for path in self.loaded() {
            if !own.contains(&path) {
                stamp.artifacts.push(artifact(&path, &self.dir)?);
            }
        }
        Ok(stamp)
    }

    /// Real paths of the recorded files.
    fn own_files(&self) -> BTreeSet<PathBuf> {
        (self.stamp.artifacts.iter())
            .filter_map(|artifact| self.dir.join(&artifact.path).canonicalize().ok())
            .collect()
    }

    fn loaded(&self) -> BTreeSet<PathBuf> {
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        seen.clone()
    }
}

/// Why comparing these two says nothing, where it does not: they are the same thing. Asked
/// after the run, when it is known what was loaded.
pub fn indistinct(baseline: &Side, candidate: &Side) -> Option<String> {
    if let (Some(left), Some(right)) = (&baseline.running, &candidate.running) {
        return (left.address == right.address).then(|| {
            "baseline and candidate are the very same running server: the candidate was not \
             compared with anything else"
                .to_owned()
        });
    }
    // What a running server has loaded is not known.
    if baseline.running.is_some() || candidate.running.is_some() {
        return None;
    }
    if baseline.env != candidate.env {
        return None;
    }
    let files = |side: &Side| -> BTreeSet<Digest> {
        let artifacts = side.stamp.artifacts.iter();
        artifacts.map(|artifact| artifact.sha256).collect()
    };
    if files(baseline) == files(candidate) {
        return Some(
            "baseline and candidate are the very same files with the same environment: \
             the candidate was not compared with anything else"
                .to_owned(),
        );
    }
    let shared: Vec<String> = (baseline.loaded().intersection(&candidate.loaded()))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            name.starts_with("libllama") || is_program(&name)
        })
        .map(|path| path.display().to_string())
        .collect();
    match shared.as_slice() {
        [] => None,
        shared => Some(format!("both servers have loaded {}", shared.join(", "))),
    }
}

/// Why switching says nothing, where a side sets a variable that no patch listens to: with a
/// misspelt switch, off would be compared with off. `declared` are the series' switches.
pub fn undeclared(sides: &[&Side], declared: &[String]) -> Option<String> {
    let mut set = sides.iter().flat_map(|side| side.env.keys());
    let unknown = set.find(|name| name.starts_with(SWITCH_PREFIX) && !declared.contains(name))?;
    let near = suggest(unknown, declared.iter().map(String::as_str), "switches");
    Some(format!(
        "no patch of the series declares the switch {unknown}, so that nothing was switched \
         ({near})"
    ))
}

fn show_env(env: &BTreeMap<String, String>) -> Vec<String> {
    env.iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn artifact(path: &Path, dir: &Path) -> Result<Artifact> {
    Ok(Artifact {
        path: path.strip_prefix(dir).unwrap_or(path).display().to_string(),
        size: fs_err::metadata(path)?.len(),
        sha256: Digest::of_file(path)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::model::{BuildManifest, PatchSetStamp};

    fn build(dir: &Path, flavour: Flavour, text: &str) -> Build {
        fs_err::create_dir_all(dir.join("out/bin")).unwrap();
        let mut artifacts = Vec::new();
        for name in ["out/bin/llama-server", "out/bin/libllama.so.1"] {
            fs_err::write(dir.join(name), format!("{text}{name}")).unwrap();
            artifacts.push(artifact(&dir.join(name), dir).unwrap());
        }
        Build {
            dir: dir.to_path_buf(),
            manifest: BuildManifest {
                schema: 1,
                base: "base".to_owned(),
                tree: Digest::of(b""),
                flavour,
                backend: "cpu".to_owned(),
                patchset: (flavour == Flavour::Patched).then(|| PatchSetStamp {
                    id: Digest::of(b"set"),
                    patches: Vec::new(),
                }),
                source: Digest::of(b""),
                flags: BTreeMap::new(),
                compilers: BTreeMap::new(),
                cmake: String::new(),
                ninja: String::new(),
                launcher: None,
                artifacts,
            },
        }
    }

    fn fails(build: &Build, expected: Flavour, words: &[&str]) {
        let error = Side::of_build(build, expected, BTreeMap::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Finding);
        for word in words {
            assert!(error.to_string().contains(word), "{word}: {error}");
        }
    }

    #[test]
    fn a_build_must_be_what_its_manifest_says() {
        let dir = tempfile::tempdir().unwrap();
        let good = build(dir.path(), Flavour::Vanilla, "");
        Side::of_build(&good, Flavour::Vanilla, BTreeMap::new()).unwrap();
        fails(&good, Flavour::Patched, &["is a vanilla build"]);

        let mut set = good.clone();
        set.manifest.patchset = build(dir.path(), Flavour::Patched, "").manifest.patchset;
        fails(&set, Flavour::Vanilla, &["carries the patch set"]);
        let mut bare = good.clone();
        bare.manifest.flavour = Flavour::Patched;
        fails(&bare, Flavour::Patched, &["carries no patch set"]);
        let mut unknown = good.clone();
        unknown.manifest.artifacts.remove(0);
        fails(
            &unknown,
            Flavour::Vanilla,
            &["does not record out/bin/llama-server"],
        );

        let library = dir.path().join("out/bin/libllama.so.1");
        let recorded = Digest::of_file(&library).unwrap().to_string();
        fs_err::write(&library, "stale").unwrap();
        let found = Digest::of(b"stale").to_string();
        fails(
            &good,
            Flavour::Vanilla,
            &["libllama.so.1", &recorded, &found],
        );
        fs_err::remove_file(&library).unwrap();
        fails(&good, Flavour::Vanilla, &["libllama.so.1: missing"]);
    }

    #[test]
    fn a_build_may_load_only_its_own_libraries() {
        let dir = tempfile::tempdir().unwrap();
        let good = build(dir.path(), Flavour::Vanilla, "");
        let side = Side::of_build(&good, Flavour::Vanilla, BTreeMap::new()).unwrap();
        let own = dir
            .path()
            .canonicalize()
            .unwrap()
            .join("out/bin/libllama.so.1");
        side.check_loaded(&BTreeSet::from([own.clone()])).unwrap();
        let foreign = BTreeSet::from([own, PathBuf::from("/usr/lib/libggml.so")]);
        let error = side.check_loaded(&foreign).unwrap_err();
        assert_eq!(error.kind(), Kind::Finding);
        assert!(error.to_string().contains("/usr/lib/libggml.so"), "{error}");
    }

    #[test]
    fn the_same_thing_twice_is_no_comparison() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        let side = |build: &Build, flavour, env: &[(&str, &str)]| {
            let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
            Side::of_build(build, flavour, env.collect()).unwrap()
        };
        let vanilla = build(&path("v"), Flavour::Vanilla, "");
        let same = build(&path("s"), Flavour::Patched, "");
        let other = build(&path("o"), Flavour::Patched, "x");
        let baseline = side(&vanilla, Flavour::Vanilla, &[]);
        let reason = indistinct(&baseline, &side(&same, Flavour::Patched, &[])).unwrap();
        assert!(reason.contains("very same files"), "{reason}");
        let switched = side(&same, Flavour::Patched, &[("A", "1")]);
        assert_eq!(indistinct(&baseline, &switched), None);
        let candidate = side(&other, Flavour::Patched, &[]);
        assert_eq!(indistinct(&baseline, &candidate), None);
    }

    #[test]
    fn a_switch_that_nobody_declares_is_no_comparison() {
        let dir = tempfile::tempdir().unwrap();
        let build = build(dir.path(), Flavour::Patched, "");
        let side = |name: &str| {
            let env = BTreeMap::from([(name.to_owned(), "1".to_owned())]);
            Side::of_build(&build, Flavour::Patched, env).unwrap()
        };
        let declared = ["OPENCOTI_COUNTERS".to_owned()];
        let (right, other) = (side("OPENCOTI_COUNTERS"), side("OMP_NUM_THREADS"));
        assert_eq!(undeclared(&[&other, &right], &declared), None);
        let reason = undeclared(&[&right, &side("OPENCOTI_COUNTER")], &declared).unwrap();
        assert!(reason.contains("OPENCOTI_COUNTER, so"), "{reason}");
        assert!(reason.contains("did you mean `OPENCOTI_COUNTERS`?"));
        assert!(undeclared(&[&right, &other], &[]).is_some());
    }

    #[test]
    fn named_servers_that_load_one_library_are_no_comparison() {
        let dir = tempfile::tempdir().unwrap();
        let side = |name: &str| {
            fs_err::create_dir(dir.path().join(name)).unwrap();
            let program = dir.path().join(name).join("llama-server");
            fs_err::write(&program, name).unwrap();
            Side::of_path(&program, BTreeMap::new()).unwrap()
        };
        let (baseline, candidate) = (side("a"), side("b"));
        let library = dir.path().join("libllama.so");
        fs_err::write(&library, "").unwrap();
        for side in [&baseline, &candidate] {
            assert_eq!(indistinct(&baseline, &candidate), None);
            side.check_loaded(&BTreeSet::from([library.clone()]))
                .unwrap();
            assert_eq!(side.final_stamp().unwrap().artifacts.len(), 2);
        }
        let reason = indistinct(&baseline, &candidate).unwrap();
        assert!(reason.contains("both servers have loaded"), "{reason}");
        let error = Side::of_path(dir.path(), BTreeMap::new()).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
    }
}
