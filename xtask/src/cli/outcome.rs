//! What a command leaves: text for people, data for programs, and a status.

use serde_json::{Value, json};

use crate::error::{Error, Kind};

/// Version of the JSON that `--json` prints; documented in `docs/reference/json.md`.
const SCHEMA: u32 = 1;

/// How a command that ran to its end went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Done and good. Exit code 0.
    Good,
    /// Done, and something is wrong. Exit code 1.
    Finding,
    /// Done, and nothing can be said. Exit code 3.
    Inconclusive,
    /// Could not do its work: the outcome says what is missing. Exit code 2.
    Unable,
}

impl Status {
    /// See the variants.
    pub fn exit_code(self) -> u8 {
        match self {
            Status::Good => 0,
            Status::Finding => Kind::Finding.exit_code(),
            Status::Inconclusive => Kind::Inconclusive.exit_code(),
            Status::Unable => Kind::Environment.exit_code(),
        }
    }

    fn name(self) -> &'static str {
        match self {
            Status::Good => "good",
            Status::Finding => "finding",
            Status::Inconclusive => "inconclusive",
            Status::Unable => "unable",
        }
    }
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What a person reads on stdout; may hold ANSI colours.
    pub text: String,
    /// What a program reads with `--json`.
    pub data: Value,
    /// How it went.
    pub status: Status,
}

impl Outcome {
    /// A good outcome.
    pub fn good(text: impl Into<String>, data: Value) -> Self {
        Outcome {
            text: text.into(),
            data,
            status: Status::Good,
        }
    }

    /// The document that `--json` prints.
    pub fn json(&self, command: &str) -> String {
        pretty(&json!({
            "schema": SCHEMA,
            "command": command,
            "status": self.status.name(),
            "data": self.data,
        }))
    }
}

/// The document that `--json` prints for a command that failed.
pub fn error_json(command: &str, error: &Error) -> String {
    let mut said = json!({
        "kind": error.kind(),
        "message": error.to_string(),
        "hints": error.hints(),
    });
    if let Some(data) = error.details() {
        said["data"] = data.clone();
    }
    pretty(&json!({
        "schema": SCHEMA,
        "command": command,
        "status": "error",
        "error": said,
    }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}")
}
