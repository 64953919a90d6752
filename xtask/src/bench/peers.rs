//! Other programs that apply a series, and how each is called.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

/// One way to apply a series of patches to a copy of the base.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// One `git apply` process that is given all patches.
    GitApply,
    /// One `git apply` process for each patch.
    GitApplyLoop,
    /// One `git am` process that is given all mails; it makes a commit of each.
    GitAm,
    /// One `patch -p1` process for each patch.
    PatchLoop,
    /// `quilt push -a`.
    Quilt,
}

impl Peer {
    /// All of them.
    pub const ALL: [Peer; 5] = [
        Peer::GitApply,
        Peer::GitApplyLoop,
        Peer::GitAm,
        Peer::PatchLoop,
        Peer::Quilt,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Peer::GitApply => "git-apply",
            Peer::GitApplyLoop => "git-apply-loop",
            Peer::GitAm => "git-am",
            Peer::PatchLoop => "patch-loop",
            Peer::Quilt => "quilt",
        }
    }

    /// What is measured, in words.
    pub fn what(self) -> &'static str {
        match self {
            Peer::GitApply => "git apply, one process",
            Peer::GitApplyLoop => "git apply, one process per patch",
            Peer::GitAm => "git am, one process",
            Peer::PatchLoop => "patch -p1, one process per patch",
            Peer::Quilt => "quilt push -a",
        }
    }

    /// The program that it needs.
    pub fn program(self) -> &'static str {
        match self {
            Peer::GitApply | Peer::GitApplyLoop | Peer::GitAm => "git",
            Peer::PatchLoop => "patch",
            Peer::Quilt => "quilt",
        }
    }

    /// Whether its program is on this machine.
    pub fn is_here(self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(self.program()).is_file())
    }

    /// Whether one run of a long series takes a minute.
    pub fn is_slow(self) -> bool {
        self == Peer::Quilt
    }

    /// The command that applies `input` to the copy of the base at `tree`.
    pub(super) fn command(self, tree: &Path, input: &Input) -> Command {
        let mut command = match self {
            Peer::GitApply => {
                let mut command = git(tree);
                command.args(["apply", "--whitespace=nowarn"]);
                command.args(&input.patches);
                command
            }
            Peer::GitApplyLoop => each(
                "git apply --whitespace=nowarn \"$patch\"",
                tree,
                &input.patches,
            ),
            Peer::GitAm => {
                let mut command = git(tree);
                command.args(["am", "--quiet"]).args(&input.mails);
                command
            }
            Peer::PatchLoop => each("patch -p1 -s -i \"$patch\"", tree, &input.patches),
            Peer::Quilt => {
                let mut command = Command::new("quilt");
                command.args(["--quiltrc", "-", "push", "-a", "-q"]);
                command.env("QUILT_PATCHES", &input.quilt);
                command
            }
        };
        command.current_dir(tree);
        quiet(&mut command, tree);
        command
    }
}

/// The series in the forms that the peers take.
pub(super) struct Input {
    /// One diff for each patch.
    pub patches: Vec<PathBuf>,
    /// One mail for each patch.
    pub mails: Vec<PathBuf>,
    /// A folder with the diffs and a `series` file.
    pub quilt: PathBuf,
}

/// `git` in `tree`, whatever the user has configured and wherever the tree lies.
pub(super) fn git(tree: &Path) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "gc.auto=0", "-c", "maintenance.auto=false"]);
    command.args(["-c", "user.name=bench", "-c", "user.email=bench@localhost"]);
    quiet(&mut command, tree);
    command.current_dir(tree);
    command
}

fn quiet(command: &mut Command, tree: &Path) {
    command.env("GIT_CONFIG_GLOBAL", "/dev/null");
    command.env("GIT_CONFIG_NOSYSTEM", "1");
    // The checkout around it is none of its business.
    command.env("GIT_CEILING_DIRECTORIES", tree.parent().unwrap_or(tree));
    command.env("LC_ALL", "C");
    for name in ["GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"] {
        command.env_remove(name);
    }
}

/// A shell that runs `body` for each patch.
fn each(body: &str, tree: &Path, patches: &[PathBuf]) -> Command {
    let mut command = Command::new("sh");
    let script = format!("for patch in \"$@\"; do {body} || exit 1; done");
    command.args(["-c", &script, "sh"]).args(patches);
    command.current_dir(tree);
    command
}
