//! Whether the two servers are what the comparison takes them for. A gate that compares a
//! build with itself, or a stale one, passes by accident.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use crate::build::{self, Build, provenance};
use crate::error::{Error, Result, ResultExt};
use crate::gate::client::Client;
use crate::gate::device::Device;
use crate::gate::server::is_library;
use crate::model::{Artifact, Digest, Flavour, Provenance, SideStamp};
pub use distinct::{indistinct, switched, undeclared, unlike_variants, variant_that_ran};
use loaded::Loaded;

mod distinct;
mod loaded;

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
    /// Whether it carries the patches as this checkout has them, so that it says what they declare.
    pub is_ours: bool,
    /// The server, where it runs already.
    pub running: Option<Running>,
    /// What it is to compute on, where that is no processor.
    pub device: Option<Device>,
    /// How that device called itself when it ran.
    ran_on: Mutex<Option<String>>,
    /// Libraries and programs that were seen loaded.
    loaded: Mutex<Loaded>,
    /// The build that its stamps name, where they were asked for.
    stamped: Option<Provenance>,
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
                device: None,
                artifacts: manifest.artifacts.clone(),
            },
            program,
            env,
            dir: build.dir.clone(),
            built: true,
            is_ours: true,
            running: None,
            device: None,
            ran_on: Mutex::default(),
            loaded: Mutex::default(),
            stamped: None,
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
                device: None,
                artifacts,
            },
            program,
            env,
            dir,
            built: false,
            is_ours: false,
            running: None,
            device: None,
            ran_on: Mutex::default(),
            loaded: Mutex::default(),
            stamped: None,
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
                device: None,
                artifacts: Vec::new(),
            },
            program: PathBuf::new(),
            env: BTreeMap::new(),
            dir: PathBuf::from("/"),
            built: false,
            is_ours: false,
            running: Some(Running {
                client,
                address: address.to_owned(),
            }),
            device: None,
            ran_on: Mutex::default(),
            loaded: Mutex::default(),
            stamped: None,
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
        self.check_elsewhere()
    }

    /// Fails unless every recorded file carries a stamp that holds, and all are of one build: for a
    /// build of this project, that of its manifest. What is known of another server afterwards is
    /// what its stamps say.
    pub fn check_stamps(&mut self) -> Result<()> {
        let mut first: Option<Provenance> = None;
        for file in self.files() {
            let found = provenance::require(&file).hint(|| {
                "cargo xtask inspect says what a file carries; --unstamped gates it all the same"
                    .to_owned()
            })?;
            let Some(found) = found else {
                continue;
            };
            let differs = match &first {
                Some(other) => !found.is_of_the_build_of(other),
                None => self.built && !self.is_build_of(&found),
            };
            if differs {
                return Err(mismatch(format!(
                    "{} is stamped as being of another build: {}",
                    file.display(),
                    found.summary()
                )));
            }
            first.get_or_insert(found);
        }
        self.stamped.clone_from(&first);
        if let Some(found) = first.filter(|_| !self.built) {
            self.stamp.base = Some(found.base);
            self.stamp.flavour = Some(found.flavour);
            self.stamp.patchset = found.patchset;
            self.stamp.source = Some(found.source);
        }
        Ok(())
    }

    /// Whether a stamp is of the build that this side's manifest speaks of.
    fn is_build_of(&self, found: &Provenance) -> bool {
        self.stamp.base.as_ref() == Some(&found.base)
            && self.stamp.flavour == Some(found.flavour)
            && self.stamp.patchset == found.patchset
            && self.stamp.source == Some(found.source)
    }

    /// The recorded files.
    pub fn files(&self) -> Vec<PathBuf> {
        let artifacts = self.stamp.artifacts.iter();
        artifacts
            .map(|artifact| self.dir.join(&artifact.path))
            .collect()
    }

    /// Takes note of the device that a server's `log` proves to have run. That it did not, or that
    /// it was another one than before, is a finding.
    pub fn check_device(&self, log: &str) -> Result<()> {
        let Some(device) = &self.device else {
            return Ok(());
        };
        let name = format!("{}: {}", device.id, device.proof(log)?);
        let mut ran_on = self.ran_on.lock().unwrap_or_else(|lock| lock.into_inner());
        if let Some(before) = ran_on.as_ref().filter(|before| **before != name) {
            return Err(Error::finding(format!(
                "the server ran on {name}, and on {before} before that"
            )));
        }
        *ran_on = Some(name);
        Ok(())
    }

    /// The provenance, with libraries from elsewhere that a named server has loaded.
    pub fn final_stamp(&self) -> Result<SideStamp> {
        let mut stamp = self.stamp.clone();
        stamp.unverified = self.unverified();
        let ran_on = self.ran_on.lock().unwrap_or_else(|lock| lock.into_inner());
        stamp.device = ran_on.clone();
        stamp.artifacts.extend(self.loaded_elsewhere());
        Ok(stamp)
    }
}

fn show_env(env: &BTreeMap<String, String>) -> Vec<String> {
    env.iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect()
}

fn artifact(path: &Path, dir: &Path) -> Result<Artifact> {
    let bytes = fs_err::read(path)?;
    let plain = provenance::plain(&bytes);
    Ok(Artifact {
        path: path.strip_prefix(dir).unwrap_or(path).display().to_string(),
        size: bytes.len() as u64,
        sha256: Digest::of(&bytes),
        content: (plain != bytes).then(|| Digest::of(&plain)),
    })
}

#[cfg(test)]
mod tests;
