//! What is there and what is missing.

mod examine;

use serde::Serialize;

pub use examine::examine;

/// One thing that was looked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct Check {
    /// What was looked for: `cmake`, `C compiler`.
    pub name: String,
    /// How much it matters.
    pub need: Need,
    /// How it is.
    pub state: State,
    /// What was found: a version, an amount, or why it will not do.
    pub found: Option<String>,
    /// Where.
    pub path: Option<String>,
    /// What is needed: `3.18 or later`.
    pub wanted: Option<String>,
    /// What it is for, in a few words.
    pub purpose: String,
    /// The command that brings it; absent where nothing is to be done.
    pub fix: Option<String>,
}

/// How much something matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Need {
    /// Nothing works without it.
    Required,
    /// Commands bring it themselves when they need it.
    Provisioned,
    /// It helps.
    Optional,
}

/// How something is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum State {
    /// There, and good.
    Ok,
    /// Not there.
    Missing,
    /// There, and older than what is needed.
    TooOld,
    /// There, and not working or not enough.
    Unfit,
}

impl std::fmt::Display for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            State::Ok => "ok",
            State::Missing => "missing",
            State::TooOld => "too old",
            State::Unfit => "unfit",
        })
    }
}

impl Check {
    /// Whether nothing works because of this.
    pub fn blocks(&self) -> bool {
        self.need == Need::Required && self.state != State::Ok
    }
}
