//! What the servers of a side were seen to have loaded, and whether it stays what it was.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use super::{Side, artifact};
use crate::build::provenance;
use crate::error::{Error, Result, ResultExt};
use crate::gate::held::Held;
use crate::model::{Artifact, Digest};

/// What was seen so far.
#[derive(Debug, Default)]
pub(super) struct Loaded {
    /// Whether anybody looked: the system may not tell.
    looked: bool,
    /// Real paths, with what lies elsewhere as it was when it was first seen. What is recorded is checked with the
    /// recorded files.
    files: BTreeMap<PathBuf, Option<Elsewhere>>,
}

/// A file that is none of the recorded ones.
#[derive(Debug)]
struct Elsewhere {
    held: Held,
    artifact: Artifact,
}

/// What is said of a side of which nothing was seen.
const UNSEEN: &str = "what computes: its program is none that runs itself, and none of its processes is a program \
                      or has loaded a library that is called as llama.cpp's are";

/// What the system writes behind the path of a file that is no longer there.
const DELETED: &str = " (deleted)";

impl Side {
    /// Takes note of what a running server has loaded. A build must load only its own
    /// libraries: a search path of the user can make two builds load the same ones. A file from elsewhere
    /// must be the same for all servers.
    pub fn check_loaded(&self, loaded: &BTreeSet<PathBuf>) -> Result<()> {
        let mut seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        seen.looked = true;
        let replaced = |path: &str| {
            let message = format!("{path} was replaced while it was compared");
            Error::finding(message).hint("run the same command again once no other command builds")
        };
        for path in loaded {
            if let Some(path) = path.to_string_lossy().strip_suffix(DELETED) {
                return Err(replaced(path));
            }
        }
        let own = self.own_files();
        let elsewhere = || loaded.iter().filter(|path| !own.contains(*path));
        if let Some(foreign) = elsewhere().next().filter(|_| self.built) {
            return Err(Error::finding(format!(
                "{} has loaded {}, which is no recorded file of its build",
                self.program.display(),
                foreign.display()
            ))
            .hint("unset LD_LIBRARY_PATH and LD_PRELOAD, or rebuild"));
        }
        for path in elsewhere() {
            if let Some(Some(known)) = seen.files.get(path) {
                if !known.held.stays() {
                    return Err(replaced(&path.display().to_string()));
                }
                continue;
            }
            // What a server by path loads from elsewhere is asked where it comes from, as what lies beside it.
            if let Some(stamped) = &self.stamped {
                let found = provenance::require(path)
                    .context(|| format!("{} has loaded it", self.program.display()))?;
                if found.is_some_and(|found| !found.is_of_the_build_of(stamped)) {
                    return Err(super::mismatch(format!(
                        "{} has loaded {}, which is stamped as being of another build",
                        self.program.display(),
                        path.display()
                    )));
                }
            }
            let first = Elsewhere {
                held: Held::take(path)?,
                artifact: artifact(path, &self.dir)?,
            };
            seen.files.insert(path.clone(), Some(first));
        }
        let recorded = loaded.iter().filter(|path| own.contains(*path));
        (seen.files).extend(recorded.map(|path| (path.clone(), None)));
        Ok(())
    }

    /// Fails where a file from elsewhere is no longer what the first server had loaded.
    pub(super) fn check_elsewhere(&self) -> Result<()> {
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        let mut found = seen.files.iter();
        let changed = found.find(|(_, known)| {
            let known = known.as_ref();
            known.is_some_and(|known| !known.held.is_whole())
        });
        match changed {
            None => Ok(()),
            Some((path, _)) => Err(Error::finding(format!(
                "{} was replaced while it was compared",
                path.display()
            ))
            .hint("run the same command again once no other command builds")),
        }
    }

    /// Real paths of the recorded files.
    fn own_files(&self) -> BTreeSet<PathBuf> {
        (self.stamp.artifacts.iter())
            .filter_map(|artifact| self.dir.join(&artifact.path).canonicalize().ok())
            .collect()
    }

    /// What was loaded from elsewhere, as it was when it was first seen.
    pub(super) fn loaded_elsewhere(&self) -> Vec<Artifact> {
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        let elsewhere = seen.files.values().flatten();
        elsewhere.map(|known| known.artifact.clone()).collect()
    }

    /// Digests of what was seen loaded.
    pub(super) fn loaded_digests(&self) -> BTreeSet<Digest> {
        let recorded: BTreeMap<PathBuf, Digest> = (self.stamp.artifacts.iter())
            .filter_map(|artifact| {
                let path = self.dir.join(&artifact.path).canonicalize().ok()?;
                Some((path, artifact.identity()))
            })
            .collect();
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        let digest = |(path, known): (&PathBuf, &Option<Elsewhere>)| match known {
            Some(known) => Some(known.artifact.identity()),
            None => recorded.get(path).copied(),
        };
        seen.files.iter().filter_map(digest).collect()
    }

    /// Real paths of what was seen loaded.
    pub(super) fn loaded(&self) -> BTreeSet<PathBuf> {
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        seen.files.keys().cloned().collect()
    }

    /// What cannot be checked of it: besides what is known from the beginning, that nothing is known of what a named
    /// program started, as where it is a script that starts a container.
    pub fn unverified(&self) -> Vec<String> {
        let mut all = self.stamp.unverified.clone();
        if self.is_unseen() {
            all.push(UNSEEN.to_owned());
        }
        all
    }

    /// Whether its servers were looked at, and nothing of llama.cpp was seen to run.
    pub(super) fn is_unseen(&self) -> bool {
        let seen = self.loaded.lock().unwrap_or_else(|lock| lock.into_inner());
        seen.looked && seen.files.is_empty() && !self.built
    }

    /// Files that its servers run, as far as that is known: the program and what was seen loaded. Where nothing
    /// was, all that is recorded.
    pub fn run_files(&self) -> BTreeSet<PathBuf> {
        let mut files = self.loaded();
        if files.is_empty() {
            return self.own_files();
        }
        files.extend(self.program.canonicalize().ok());
        files
    }
}
