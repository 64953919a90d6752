//! The one error type of the engine.
//!
//! An error is a value: what kind it is (this decides the exit code), what happened, in which
//! wider task it happened, and what the user can do about it. Messages are lowercase fragments
//! without a full stop, so that they can be joined with `: `.

use std::fmt;

/// Result of every engine operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What sort of failure it is; see `docs/reference/exit-codes.md`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The work was done and something is wrong: a gate failed, a file drifted. Exit code 1.
    Finding,
    /// The work was done and nothing can be said. Exit code 3.
    Inconclusive,
    /// The request makes no sense: unknown base, unknown patch id. Exit code 2.
    Usage,
    /// A file of the project cannot be understood: broken TOML, broken diff. Exit code 2.
    Config,
    /// The surroundings do not allow it: no compiler, no network, full disk. Exit code 2.
    Environment,
    /// The user stopped it. Exit code 2.
    Interrupted,
    /// A fault of this program. Exit code 2.
    Internal,
}

impl Kind {
    /// Exit code of the process: 1 finding, 3 inconclusive, 2 everything that could not run.
    pub fn exit_code(self) -> u8 {
        match self {
            Kind::Finding => 1,
            Kind::Inconclusive => 3,
            Kind::Usage | Kind::Config | Kind::Environment | Kind::Interrupted | Kind::Internal => {
                2
            }
        }
    }
}

/// An error with its kind, its context (innermost first) and hints for the user.
#[derive(Debug)]
pub struct Error(Box<Inner>);

#[derive(Debug)]
struct Inner {
    kind: Kind,
    message: String,
    context: Vec<String>,
    hints: Vec<String>,
    data: Option<serde_json::Value>,
}

impl Error {
    /// An error of `kind`.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        Error(Box::new(Inner {
            kind,
            message: message.into(),
            context: Vec::new(),
            hints: Vec::new(),
            data: None,
        }))
    }

    /// See [`Kind::Finding`].
    pub fn finding(message: impl Into<String>) -> Self {
        Self::new(Kind::Finding, message)
    }

    /// See [`Kind::Usage`].
    pub fn usage(message: impl Into<String>) -> Self {
        Self::new(Kind::Usage, message)
    }

    /// See [`Kind::Config`].
    pub fn config(message: impl Into<String>) -> Self {
        Self::new(Kind::Config, message)
    }

    /// See [`Kind::Environment`].
    pub fn environment(message: impl Into<String>) -> Self {
        Self::new(Kind::Environment, message)
    }

    /// See [`Kind::Internal`].
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Kind::Internal, message)
    }

    /// See [`Kind::Interrupted`].
    pub fn interrupted() -> Self {
        Self::new(Kind::Interrupted, "interrupted")
    }

    /// Adds what was being done; the outermost context is printed first.
    #[must_use]
    pub fn context(mut self, what: impl Into<String>) -> Self {
        self.0.context.push(what.into());
        self
    }

    /// Adds what the user can do: a command or a decision, not a repetition of the message.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Self {
        self.0.hints.push(hint.into());
        self
    }

    /// Adds what a program can read of it: what `--json` prints as the error's `data`.
    #[must_use]
    pub fn data(mut self, data: serde_json::Value) -> Self {
        self.0.data = Some(data);
        self
    }

    /// What was added with [`Error::data`].
    pub fn details(&self) -> Option<&serde_json::Value> {
        self.0.data.as_ref()
    }

    /// The kind.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The innermost message.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// Contexts, innermost first.
    pub fn contexts(&self) -> &[String] {
        &self.0.context
    }

    /// Hints, in the order in which they were added.
    pub fn hints(&self) -> &[String] {
        &self.0.hints
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for context in self.0.context.iter().rev() {
            write!(f, "{context}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let wrapped = Error::environment(error.to_string());
        match error.kind() {
            std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => wrapped
                .hint("free some space and run the same command again; nothing was half written"),
            std::io::ErrorKind::PermissionDenied => {
                wrapped.hint("check the owner and the mode of that path")
            }
            std::io::ErrorKind::ReadOnlyFilesystem => {
                wrapped.hint("the file system is read-only; remount it or use another folder")
            }
            _ => wrapped,
        }
    }
}

/// Adds context and hints to a `Result` on the way up.
pub trait ResultExt<T> {
    /// See [`Error::context`]; the closure runs only on failure.
    fn context(self, what: impl FnOnce() -> String) -> Result<T>;
    /// See [`Error::hint`]; the closure runs only on failure.
    fn hint(self, hint: impl FnOnce() -> String) -> Result<T>;
}

impl<T, E: Into<Error>> ResultExt<T> for std::result::Result<T, E> {
    fn context(self, what: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().context(what()))
    }

    fn hint(self, hint: impl FnOnce() -> String) -> Result<T> {
        self.map_err(|error| error.into().hint(hint()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn context_reads_from_the_outside_in() {
        let error = Error::config("unknown key `pach`")
            .context("reading patch.toml")
            .context("loading series");
        assert_eq!(
            error.to_string(),
            "loading series: reading patch.toml: unknown key `pach`"
        );
        assert_eq!(error.kind().exit_code(), 2);
    }

    #[test]
    fn a_full_disk_says_what_to_do() {
        let error = Error::from(std::io::Error::from(std::io::ErrorKind::StorageFull));
        assert_eq!(error.kind(), Kind::Environment);
        assert!(error.hints()[0].contains("free some space"));
    }
}
