//! One commit of a git repository, fetched with the user's `git` and read without a checkout.
//!
//! The user's own settings stay in force where they say how to reach a host (proxies,
//! certificates, credentials, `insteadOf` mirrors). Nothing of them touches the files: they are
//! read from the object database, so that no line-ending conversion, filter or hook runs.

use std::collections::VecDeque;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use git2::ObjectType;

use crate::ctx::{Ctx, Task};
use crate::error::{Error, Result};
use crate::model::GitSource;
use crate::process::{self, End, Patience};
use crate::vendor::Programs;
use crate::vendor::source::without_password;
use crate::vendor::unpack::{Exclude, Limits, Unpacker, refuse};

/// A host that does not answer within this is not there. Packets that vanish would otherwise
/// take minutes to be given up.
const CONNECT: Duration = Duration::from_secs(10);
/// A transfer that stands still for this long is dead.
const STALL: Duration = Duration::from_secs(60);

/// How long we wait for a git server.
pub(super) const PATIENCE: Patience = Patience {
    first: CONNECT,
    idle: STALL,
};

/// What git sets for its hooks and aliases: it would make our `git` work on another repository.
/// `GIT_CONFIG_COUNT` stays, since that is how some environments pass credentials.
const FOREIGN: [&str; 13] = [
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_COMMON_DIR",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_SHALLOW_FILE",
    "GIT_GRAFT_FILE",
    "GIT_REPLACE_REF_BASE",
    "GIT_CONFIG",
    "GIT_CEILING_DIRECTORIES",
];

/// Fetches the commit into `<temp>/git` and writes its tree to `tree`.
pub(super) fn fetch(
    ctx: &Ctx,
    programs: &Programs,
    source: &GitSource,
    exclude: Exclude<'_>,
    temp: &Path,
    tree: &Path,
) -> Result<()> {
    let task = ctx.sink.task(
        &format!(
            "git: {} at {}",
            without_password(&source.url),
            &source.commit[..12]
        ),
        None,
    );
    let repo = temp.join("git");
    let trace = temp.join("git-trace");
    // An empty template, so that no hook of the user's is copied in.
    let mut init = git(programs, &repo);
    init.env("GIT_DEFAULT_HASH", "sha1")
        .args(["init", "--quiet", "--bare", "--template="])
        .arg(&repo);
    run(
        ctx,
        &mut init,
        &source.url,
        programs.patience,
        &mut || 1,
        &*task,
    )?;

    let mut fetch = git(programs, &repo);
    fetch.arg("--git-dir").arg(&repo);
    for setting in [
        "protocol.version=2",
        "http.lowSpeedLimit=1",
        "http.lowSpeedTime=45",
        "core.hooksPath=/dev/null",
        "fetch.unpackLimit=1",
        "fetch.recurseSubmodules=false",
        "fetch.writeCommitGraph=false",
        "gc.auto=0",
        "maintenance.auto=false",
    ] {
        fetch.args(["-c", setting]);
    }
    fetch
        .env("GIT_TRACE_PACKET", &trace)
        .args(["fetch", "--depth=1", "--no-tags", "--progress", "--"])
        .args([&source.url, &source.commit]);
    let objects = repo.join("objects");
    let mut answered = false;
    let mut sign = || {
        answered = answered || has_answer(&trace);
        if answered {
            // The trace grows while the server counts, the pack while it sends.
            1 + process::bytes_below(&objects)
                + std::fs::metadata(&trace).map_or(0, |meta| meta.len())
        } else {
            0
        }
    };
    run(
        ctx,
        &mut fetch,
        &source.url,
        programs.patience,
        &mut sign,
        &*task,
    )?;
    let files = write_tree(ctx, &objects, &source.commit, exclude, tree, &*task)?;
    // 100 MB that are of no use any more.
    let _ = std::fs::remove_dir_all(&repo);
    task.finish(&format!("{files} files"));
    Ok(())
}

fn git(programs: &Programs, repo: &Path) -> Command {
    let mut command = Command::new(&programs.git);
    for name in FOREIGN {
        command.env_remove(name);
    }
    if let Some(parent) = repo.parent() {
        // Not inside whatever repository we were started in.
        command.current_dir(parent);
    }
    command
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GCM_INTERACTIVE", "never")
        .env("LC_ALL", "C");
    command
}

/// Whether the server has sent anything: a line such as `packet: fetch< version 2`.
fn has_answer(trace: &Path) -> bool {
    std::fs::read_to_string(trace).is_ok_and(|text| text.lines().any(|line| line.contains("< ")))
}

fn run(
    ctx: &Ctx,
    command: &mut Command,
    url: &str,
    patience: Patience,
    sign: &mut dyn FnMut() -> u64,
    task: &dyn Task,
) -> Result<()> {
    let end = process::watch(command, &ctx.cancel, patience, sign, &mut |line| {
        task.message(line);
    })
    .map_err(|error| {
        if error.message().ends_with("is not installed") {
            error.hint("install git (Debian and Ubuntu: `sudo apt-get install git`)")
        } else {
            error
        }
    })?;
    match end {
        End::Exited { status, .. } if status.success() => Ok(()),
        End::Exited { status, output } => {
            let reason = output
                .iter()
                .rev()
                .find(|line| line.starts_with("fatal: ") || line.starts_with("error: "))
                .or(output.last())
                .map(|line| {
                    let line = line.strip_prefix("fatal: ").unwrap_or(line);
                    line.replace(url, &without_password(url))
                });
            let reason = reason.unwrap_or_else(|| format!("git ended with {status}"));
            let error = Error::environment(reason.clone());
            Err(if reason.contains("No space left on device") {
                error.hint(
                    "free some space and run the same command again; nothing was half written",
                )
            } else if reason.contains("not our ref") {
                error.hint("the repository does not have that commit: check `commit` and `url`")
            } else if reason.contains("Could not resolve") || reason.contains("onnect") {
                error.hint(
                    "git could not reach the host: check the network and `git config http.proxy`",
                )
            } else {
                error
            })
        }
        End::Silent { after, answered } => {
            let seconds = after.as_secs_f64();
            Err(if answered {
                Error::environment(format!("the transfer stood still for {seconds:.0} s"))
            } else {
                Error::environment(format!("no answer within {seconds:.0} s")).hint(
                    "git could not reach the host: check the network and `git config http.proxy`",
                )
            })
        }
    }
}

/// Writes the files of `commit`, straight from the objects.
fn write_tree(
    ctx: &Ctx,
    objects: &Path,
    commit: &str,
    exclude: Exclude<'_>,
    root: &Path,
    task: &dyn Task,
) -> Result<u64> {
    // Only the object database: no configuration, no ownership rules, no attributes.
    let path = objects
        .to_str()
        .ok_or_else(|| Error::environment("the cache folder's path is not UTF-8"))?;
    let odb = git2::Odb::new().map_err(broken)?;
    odb.add_disk_alternate(path).map_err(broken)?;
    let repo = git2::Repository::from_odb(odb).map_err(broken)?;
    let odb = repo.odb().map_err(broken)?;
    let oid = git2::Oid::from_str(commit).map_err(broken)?;
    let tree = repo
        .find_commit(oid)
        .and_then(|commit| commit.tree())
        .map_err(broken)?;

    let mut blobs = Vec::new();
    let mut folders = VecDeque::from([(String::new(), tree)]);
    while let Some((prefix, tree)) = folders.pop_front() {
        ctx.cancel.check()?;
        for entry in &tree {
            let Ok(name) = std::str::from_utf8(entry.name_bytes()) else {
                let shown = String::from_utf8_lossy(entry.name_bytes());
                return Err(refuse(&format!("{prefix}{shown}"), "its name is not UTF-8"));
            };
            let path = format!("{prefix}{name}");
            match entry.kind() {
                Some(ObjectType::Tree) if exclude.folder(&path) => {}
                Some(ObjectType::Tree) => {
                    let below = repo.find_tree(entry.id()).map_err(broken)?;
                    folders.push_back((format!("{path}/"), below));
                }
                _ if exclude.file(&path) => {}
                Some(ObjectType::Blob) => blobs.push((path, entry.filemode(), entry.id())),
                Some(ObjectType::Commit) => {
                    return Err(
                        refuse(&path, "it is a submodule, and its files are elsewhere").hint(
                            format!("use a source that carries them, or add `{path}` to `exclude`"),
                        ),
                    );
                }
                _ => return Err(refuse(&path, "it is neither file nor folder")),
            }
        }
    }
    let total = blobs.len() as u64;
    let mut unpacker = Unpacker::new(root, &ctx.cancel, Limits::default())?;
    for (at, (path, mode, oid)) in (0..).zip(blobs) {
        if at % 64 == 0 {
            task.progress(at, total);
        }
        let blob = odb.read(oid).map_err(broken)?;
        if mode == i32::from(git2::FileMode::Link) {
            match std::str::from_utf8(blob.data()) {
                Ok(target) => unpacker.link(&path, target)?,
                Err(_) => return Err(refuse(&path, "it is a link whose target is not UTF-8")),
            }
        } else {
            let executable = mode == i32::from(git2::FileMode::BlobExecutable);
            let mut content = blob.data();
            unpacker.file(&path, executable, content.len() as u64, &mut content)?;
        }
    }
    Ok(unpacker.files())
}

fn broken(error: git2::Error) -> Error {
    Error::finding(format!(
        "what git fetched cannot be read: {}",
        error.message()
    ))
}

#[cfg(test)]
mod tests;
