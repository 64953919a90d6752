//! `target/gate/records/<run>/run.json`: what a run of gates set out to do.

use serde::{Deserialize, Serialize};

/// One run of gates. Written before the first gate, so that a run that breaks off is seen to
/// lack records instead of passing with those that it has.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunRecord {
    /// Version of this format; 1.
    pub schema: u32,
    /// The run.
    pub run: RunStamp,
    /// When it began, RFC 3339, UTC.
    pub started: String,
    /// What makes it again.
    pub command: String,
    /// Whether only the quick subsets run.
    pub quick: bool,
    /// Whether its gates were named one by one: then a skipped one is no pass of the run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub named: bool,
    /// The gates that are to run, in their order.
    pub gates: Vec<String>,
    /// Gates that do not run since something is not there. They leave no record.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<SkippedGate>,
    /// Backends on which the machine was to compute and did not, since every gate of one was skipped
    /// or there is none. Said at the end, and never a pass of the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub idle: Vec<String>,
}

impl RunRecord {
    /// The name under which a backend that computed nothing stands among the gates without a record.
    pub fn idle_name(backend: &str) -> String {
        format!("backend {backend}")
    }
}

/// A gate that does not run.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct SkippedGate {
    /// Its id.
    pub gate: String,
    /// Its title.
    pub title: String,
    /// What is not there.
    pub reason: String,
    /// What to do.
    pub hint: String,
}

/// What all records of one run share.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct RunStamp {
    /// The run's id, which is also the name of its folder. Later runs sort behind earlier ones.
    pub id: String,
    /// Where it ran.
    pub host: HostStamp,
}

/// A machine.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub struct HostStamp {
    /// What `registry/hosts.toml` calls it; absent for the machine that the command ran on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// `linux x86_64`.
    pub system: String,
    /// Processors that may be used.
    pub processors: usize,
    /// Name of the first one, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
}
