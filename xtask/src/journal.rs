//! Changes to several committed files at once: all of them, or none.
//!
//! The new contents are staged in a folder, which is renamed into place when it is complete:
//! that rename is the moment of decision. Then each file is replaced, and the folder removed. A
//! kill before the rename leaves nothing done; after it, the next command finishes the work.
//!
//! ```text
//! vendor/.journal.new/   being staged; worthless
//! vendor/.journal/       decided: plan.json, and the contents as files 0, 1, …
//! ```

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::lock::Lock;
use crate::tree::RelPath;

/// What is to become of files of the checkout.
#[derive(Clone, Debug, Default)]
pub struct Changes {
    files: BTreeMap<RelPath, Option<NewFile>>,
}

#[derive(Clone, Debug)]
struct NewFile {
    content: Vec<u8>,
    executable: bool,
}

/// `plan.json`.
#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Plan {
    schema: u32,
    steps: Vec<Step>,
}

#[derive(Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Step {
    path: RelPath,
    /// Number of the staged content; absent where the file goes.
    staged: Option<usize>,
    executable: bool,
}

/// Called before every change to the disk; tests make it fail, as a kill would.
fn step() -> Result<()> {
    #[cfg(test)]
    return crate::tree::fault::step();
    #[cfg(not(test))]
    Ok(())
}

impl Changes {
    /// Writes a file.
    pub fn write(&mut self, path: RelPath, content: impl Into<Vec<u8>>, executable: bool) {
        let content = content.into();
        self.files.insert(
            path,
            Some(NewFile {
                content,
                executable,
            }),
        );
    }

    /// Removes a file, and the folders that it leaves empty.
    pub fn remove(&mut self, path: RelPath) {
        self.files.insert(path, None);
    }

    /// The files that are to change.
    pub fn paths(&self) -> impl Iterator<Item = &RelPath> {
        self.files.keys()
    }

    /// The files that go away.
    pub fn removed(&self) -> impl Iterator<Item = &RelPath> {
        let gone = self.files.iter().filter(|(_, new)| new.is_none());
        gone.map(|(path, _)| path)
    }

    /// Leaves out what is as it should be already.
    pub fn drop_unchanged(&mut self, root: &Path) {
        self.files.retain(|path, new| {
            let now = std::fs::read(path.below(root)).ok();
            now.as_ref() != new.as_ref().map(|new| &new.content)
        });
    }

    /// Carries the changes out. The caller holds the checkout's lock.
    pub fn commit(self, ctx: &Ctx, lock: &Lock) -> Result<()> {
        if self.files.is_empty() {
            return Ok(());
        }
        let (new, decided) = places(ctx);
        step()?;
        fs_err::create_dir_all(&new)?;
        let mut steps = Vec::new();
        for (at, (path, file)) in self.files.into_iter().enumerate() {
            path.resolve(ctx.project.root())?;
            if let Some(file) = &file {
                step()?;
                crate::model::write_atomic(&new.join(at.to_string()), &file.content)?;
            }
            steps.push(Step {
                path,
                staged: file.is_some().then_some(at),
                executable: file.is_some_and(|file| file.executable),
            });
        }
        step()?;
        crate::model::write_json(&new.join("plan.json"), &Plan { schema: 1, steps })?;
        step()?;
        fs_err::rename(&new, &decided)?;
        sync(decided.parent())?;
        finish(ctx, lock)
    }
}

fn places(ctx: &Ctx) -> (PathBuf, PathBuf) {
    let vendor = ctx.project.vendor();
    (vendor.join(".journal.new"), vendor.join(".journal"))
}

/// Finishes what a killed command had decided, and clears what it had not. For the beginning of
/// every command.
pub fn settle(ctx: &Ctx) -> Result<()> {
    let (new, decided) = places(ctx);
    if !new.exists() && !decided.exists() {
        return Ok(());
    }
    let lock = crate::lock::checkout(ctx)?;
    finish(ctx, &lock)
}

fn finish(ctx: &Ctx, _lock: &Lock) -> Result<()> {
    let (new, decided) = places(ctx);
    if new.exists() {
        step()?;
        fs_err::remove_dir_all(&new)?;
    }
    if !decided.exists() {
        return Ok(());
    }
    let plan: Plan = crate::model::read_json(&decided.join("plan.json"))?;
    if plan.schema != 1 {
        return Err(
            Error::config("a journal of another version of this program")
                .context(decided.display().to_string())
                .hint("finish with the version that wrote it"),
        );
    }
    for Step {
        path,
        staged,
        executable,
    } in &plan.steps
    {
        let dest = path.resolve(ctx.project.root())?;
        match staged {
            Some(at) => {
                step()?;
                let content = fs_err::read(decided.join(at.to_string()))?;
                crate::model::write_atomic(&dest, &content)?;
                set_executable(&dest, *executable)?;
            }
            None => remove(ctx.project.root(), &dest)?,
        }
    }
    step()?;
    // Renamed first: a half-removed journal must not look like a decision.
    fs_err::rename(&decided, &new)?;
    step()?;
    fs_err::remove_dir_all(&new)?;
    Ok(())
}

fn remove(root: &Path, file: &Path) -> Result<()> {
    step()?;
    match std::fs::remove_file(file) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(error).context(|| format!("removing {}", file.display()));
        }
        _ => {}
    }
    let mut parent = file.parent();
    while let Some(dir) = parent.filter(|dir| *dir != root) {
        if std::fs::remove_dir(dir).is_err() {
            break;
        }
        parent = dir.parent();
    }
    Ok(())
}

fn set_executable(path: &Path, executable: bool) -> Result<()> {
    #[cfg(unix)]
    if executable {
        use std::os::unix::fs::PermissionsExt;
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(0o755))?;
    }
    #[cfg(not(unix))]
    let _ = (path, executable);
    Ok(())
}

fn sync(dir: Option<&Path>) -> Result<()> {
    if let Some(dir) = dir {
        fs_err::File::open(dir)?.sync_all()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::toy::{Toy, put};
    use crate::tree::fault;

    fn rel(path: &str) -> RelPath {
        RelPath::new(path).unwrap()
    }

    fn state(toy: &Toy) -> [Option<String>; 3] {
        ["a.txt", "deep/b.txt", "gone/c.txt"]
            .map(|path| std::fs::read_to_string(toy.root().join(path)).ok())
    }

    /// A kill before every single change, enumerated: after `settle`, all is before or after.
    #[test]
    fn a_kill_at_any_step_leaves_all_or_nothing() {
        let (mut before, mut after) = (0, 0);
        for kills in 1.. {
            let toy = Toy::new();
            put(&toy.root().join("a.txt"), "old");
            put(&toy.root().join("gone/c.txt"), "old");
            let old = state(&toy);
            let mut changes = Changes::default();
            changes.write(rel("a.txt"), "new", false);
            changes.write(rel("deep/b.txt"), "new", true);
            changes.remove(rel("gone/c.txt"));
            fault::kill_after(kills);
            // The lock of a killed process goes with it.
            let result = {
                let lock = crate::lock::checkout(&toy.ctx).unwrap();
                changes.commit(&toy.ctx, &lock)
            };
            let killed = fault::disarm();
            assert_eq!(result.is_err(), killed);
            settle(&toy.ctx).unwrap();
            let new = [Some("new".to_owned()), Some("new".to_owned()), None];
            match state(&toy) {
                found if found == old => before += 1,
                found if found == new => {
                    after += 1;
                    assert!(!toy.root().join("gone").exists());
                }
                found => panic!("after a kill at step {kills}: {found:?}"),
            }
            let left = std::fs::read_dir(toy.root().join("vendor"))
                .unwrap()
                .count();
            assert_eq!(left, 1, "only the lock");
            if !killed {
                break;
            }
        }
        assert!(before > 3 && after > 4, "{before} {after}");
    }
}
