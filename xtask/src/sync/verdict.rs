//! What became of each hook and each patch on the way to another base.

use std::fmt;

use serde::Serialize;

use crate::tree::RelPath;

/// What became of one hook. Ordered: a patch is as good as the worst of its hooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HookVerdict {
    /// Same line, same surroundings.
    Clean,
    /// Same surroundings at another line.
    Shifted,
    /// The surroundings changed, the place did not: a three-way merge without conflict.
    Merged,
    /// The surroundings stand somewhere else now, in another order, file or under another name.
    Moved,
    /// Its lines are in the new base already.
    Upstreamed,
    /// The base is partial and has no such file.
    Absent,
    /// It could only be told once the conflict of another patch is solved.
    Blocked,
    /// It cannot be placed by evidence: a person has to.
    Conflict,
}

impl HookVerdict {
    /// Whether nobody has to look at it: it was placed, or has no place to be in.
    pub fn is_automatic(self) -> bool {
        !matches!(self, HookVerdict::Blocked | HookVerdict::Conflict)
    }

    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            HookVerdict::Clean => "clean",
            HookVerdict::Shifted => "shifted",
            HookVerdict::Merged => "merged",
            HookVerdict::Moved => "moved",
            HookVerdict::Upstreamed => "upstreamed",
            HookVerdict::Absent => "absent",
            HookVerdict::Blocked => "blocked",
            HookVerdict::Conflict => "conflict",
        }
    }
}

impl fmt::Display for HookVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

/// Where a hook stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The file.
    pub file: RelPath,
    /// The line, from 1, before which it stands, in the file as the patches before leave it.
    pub line: usize,
    /// The function, type or section around it; empty at the top of a file.
    pub anchor: String,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)?;
        if !self.anchor.is_empty() {
            write!(f, " in {}", self.anchor)?;
        }
        Ok(())
    }
}

/// One hook on its way.
#[derive(Clone, Debug, Serialize)]
pub struct HookReport {
    /// What became of it.
    pub verdict: HookVerdict,
    /// Where it stood.
    pub before: Place,
    /// Where it stands; absent where it does not.
    pub after: Option<Place>,
    /// Why, where the verdict alone does not say it.
    pub note: String,
    /// The patch whose conflict it waits for.
    pub blocked_by: Option<String>,
    /// Upstream's commits that touched the lines around it, newest first, where a history is at
    /// hand.
    pub commits: Vec<String>,
    /// Its lines, as they were.
    #[serde(skip)]
    pub text: Vec<u8>,
    /// Its lines, as they are now, where that differs: indented otherwise.
    #[serde(skip)]
    pub new_text: Option<Vec<u8>>,
}

/// What became of a patch.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "is")]
pub enum PatchVerdict {
    /// The worst of its hooks' verdicts; `clean` for a patch of new files alone.
    Hooks {
        /// That verdict.
        worst: HookVerdict,
    },
    /// It is in the new base, wholly or in part.
    Upstreamed {
        /// Whether all of it is.
        wholly: bool,
        /// What says so.
        evidence: Vec<String>,
    },
    /// A file of its overlay cannot be put into the new base.
    Overlay {
        /// What stands in the way.
        reason: String,
    },
    /// A patch that it requires is not in the new series yet, or left out of it.
    Blocked {
        /// That patch.
        by: String,
    },
    /// It was left out on request.
    Skipped,
    /// It was retired on request.
    Retired {
        /// What says that it is upstream.
        evidence: Vec<String>,
    },
}

impl PatchVerdict {
    /// Whether it can go into the new series as it is.
    pub fn is_automatic(&self) -> bool {
        match self {
            PatchVerdict::Hooks { worst } => worst.is_automatic(),
            PatchVerdict::Skipped | PatchVerdict::Retired { .. } => true,
            PatchVerdict::Upstreamed { .. }
            | PatchVerdict::Overlay { .. }
            | PatchVerdict::Blocked { .. } => false,
        }
    }

    /// Whether it belongs to the new series, now or once somebody has decided.
    pub fn is_carried(&self) -> bool {
        !matches!(self, PatchVerdict::Skipped | PatchVerdict::Retired { .. })
    }

    /// The word for people.
    pub fn word(&self) -> &'static str {
        match self {
            PatchVerdict::Hooks { worst } => worst.word(),
            PatchVerdict::Upstreamed { wholly: true, .. } => "upstreamed",
            PatchVerdict::Upstreamed { wholly: false, .. } => "upstreamed in part",
            PatchVerdict::Overlay { .. } => "conflict",
            PatchVerdict::Blocked { .. } => "blocked",
            PatchVerdict::Skipped => "skipped",
            PatchVerdict::Retired { .. } => "retired",
        }
    }
}

/// One patch on its way.
#[derive(Clone, Debug, Serialize)]
pub struct PatchReport {
    /// Its id.
    pub patch: String,
    /// What became of it.
    pub verdict: PatchVerdict,
    /// Its hooks, in the order of its files and lines.
    pub hooks: Vec<HookReport>,
    /// Number of files of its overlay.
    pub overlay: usize,
}
