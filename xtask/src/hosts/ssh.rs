//! Calling ssh and rsync: with which options, for how long, and what their failures mean.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use crate::ctx::{Cancel, Ctx};
use crate::error::{Error, Result};
use crate::model::{Host, HostKey};
use crate::process::{self, End, Patience};

/// Most lines that a short answer has.
const LINES: usize = 10_000;

/// How long a command that only asks or tidies up may take, besides the time to connect.
pub const SHORT: Duration = Duration::from_secs(60);

/// A host, and how ssh is called for it.
#[derive(Debug)]
pub struct Remote<'a> {
    host: &'a Host,
    address: &'a str,
    options: Vec<String>,
}

/// How a call ended.
#[derive(Debug)]
pub enum Ended {
    /// By itself, with this code and these last lines of output.
    Code(Option<i32>, Vec<String>),
    /// It said nothing for so long.
    Silent(Duration),
    /// It took longer than it may.
    TooLong(Duration),
}

/// How long a call may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Without a word.
    pub silent: Duration,
    /// In all.
    pub total: Duration,
}

impl Limits {
    /// For one that takes no longer than `total`.
    pub fn within(total: Duration) -> Self {
        let silent = total;
        Limits { silent, total }
    }
}

impl<'a> Remote<'a> {
    /// How to reach `host`. A key that the host must have is written into `scratch`; paths begin at
    /// `root`.
    pub fn new(host: &'a Host, root: &Path, scratch: &Path) -> Result<Self> {
        let Some(address) = &host.address else {
            return Err(Error::usage(format!(
                "{} has no address: ssh cannot reach it",
                host.name
            )));
        };
        let path = |path: &str| -> Result<String> {
            let home = || std::env::var_os("HOME").map(PathBuf::from);
            let full = match path.strip_prefix("~/") {
                Some(below) => home().map_or_else(|| root.join(path), |home| home.join(below)),
                None => root.join(path),
            };
            plain(&full)
        };
        let mut options = Vec::new();
        if let Some(config) = &host.config {
            options.extend(["-F".to_owned(), path(config)?]);
        }
        if let Some(port) = host.port {
            options.extend(["-p".to_owned(), port.to_string()]);
        }
        let mut set = |text: String| options.extend(["-o".to_owned(), text]);
        if let Some(identity) = &host.identity {
            set(format!("IdentityFile=\"{}\"", path(identity)?));
            set("IdentitiesOnly=yes".to_owned());
        }
        let mut known = match &host.known_hosts {
            Some(known) => Some(path(known)?),
            None => None,
        };
        let strict = match &host.host_key {
            HostKey::Known => "yes",
            HostKey::AcceptNew => "accept-new",
            HostKey::Pinned(key) => {
                let alias = format!("llama-patchset-{}", host.name);
                let file = scratch.join("known_hosts");
                fs_err::write(&file, format!("{alias} {key}\n"))?;
                known = Some(plain(&file)?);
                set(format!("HostKeyAlias={alias}"));
                set("GlobalKnownHostsFile=/dev/null".to_owned());
                "yes"
            }
        };
        set(format!("StrictHostKeyChecking={strict}"));
        if let Some(known) = known {
            set(format!("UserKnownHostsFile=\"{known}\""));
        }
        set(format!("ConnectTimeout={}", host.connect));
        for option in [
            // Nobody is there to be asked.
            "BatchMode=yes",
            // A connection that is gone is noticed within some twenty seconds.
            "ServerAliveInterval=5",
            "ServerAliveCountMax=4",
            // Ending our ssh must end the session, which a shared connection would outlive.
            "ControlMaster=no",
            "ControlPath=none",
            "RequestTTY=no",
            "RemoteCommand=none",
            "PermitLocalCommand=no",
            "ClearAllForwardings=yes",
            "ForwardAgent=no",
            "ForwardX11=no",
            "UpdateHostKeys=no",
            "LogLevel=ERROR",
        ] {
            set(option.to_owned());
        }
        Ok(Remote {
            host,
            address,
            options,
        })
    }

    /// ssh with a command for the login shell there.
    pub fn ssh(&self, command: &str) -> Command {
        let mut ssh = Command::new("ssh");
        ssh.args(&self.options).args(["-n", "-T", "--"]);
        ssh.arg(self.address).arg(command);
        ssh
    }

    /// rsync over the same ssh, without its two ends.
    pub fn rsync(&self) -> Command {
        let mut rsync = Command::new("rsync");
        let ssh: Vec<String> = (["ssh", "-T"].into_iter().map(str::to_owned))
            .chain(self.options.iter().cloned())
            .map(|word| for_rsync(&word))
            .collect();
        rsync.arg("-e").arg(ssh.join(" "));
        rsync.args(["-rlp", "--no-devices", "--no-specials", "--timeout=60"]);
        rsync.env("LC_ALL", "C").env_remove("RSYNC_RSH");
        rsync
    }

    /// A folder there, for rsync.
    pub fn place(&self, folder: &str) -> String {
        format!("{}:{folder}/", self.address)
    }

    /// Runs a command of ours. `line` is told each line of its output. Fails only where it cannot be
    /// started, or where the user stops us; with `heedless` even that does not end it.
    pub fn call(
        &self,
        ctx: &Ctx,
        mut command: Command,
        limits: Limits,
        heedless: bool,
        line: &mut dyn FnMut(&str),
    ) -> Result<Ended> {
        let own = Cancel::default();
        let said = Cell::new(0_u64);
        let begun = Instant::now();
        let patience = Patience {
            first: limits.silent,
            idle: limits.silent,
        };
        let end = process::watch(
            &mut command,
            &own,
            patience,
            &mut || {
                let stopped = ctx.cancel.is_set() && !heedless;
                if stopped || begun.elapsed() > limits.total {
                    own.set();
                }
                said.get()
            },
            &mut |text| {
                said.set(said.get() + 1);
                line(&visible(text));
            },
        );
        match end {
            Ok(End::Exited { status, output }) => {
                let output = output.iter().map(|line| visible(line)).collect();
                Ok(Ended::Code(status.code(), output))
            }
            Ok(End::Silent { after, .. }) => Ok(Ended::Silent(after)),
            Err(error) if own.is_set() => match ctx.cancel.is_set() && !heedless {
                true => Err(error),
                false => Ok(Ended::TooLong(begun.elapsed())),
            },
            Err(error) => Err(error),
        }
    }

    /// Runs a short command there, which must succeed, and gives its lines.
    pub fn ask(&self, ctx: &Ctx, what: &str, command: &str, heedless: bool) -> Result<Vec<String>> {
        let total = SHORT + Duration::from_secs(self.host.connect);
        let mut lines = Vec::new();
        let ended = self.call(
            ctx,
            self.ssh(command),
            Limits::within(total),
            heedless,
            &mut |line| {
                if lines.len() < LINES {
                    lines.push(line.to_owned());
                }
            },
        )?;
        match ended {
            Ended::Code(Some(0), _) => Ok(lines),
            ended => Err(self.failure(what, &ended)),
        }
    }

    /// What a failed call means, as an error of the surroundings.
    pub fn failure(&self, what: &str, ended: &Ended) -> Error {
        let name = &self.host.name;
        let (code, output) = match ended {
            Ended::Code(code, output) => (*code, output.as_slice()),
            Ended::Silent(after) => {
                let message = format!("{what}: nothing came from it for {} s", after.as_secs());
                return Error::environment(message).hint(format!(
                    "is it up, and is its network? cargo xtask hosts --probe {name}"
                ));
            }
            Ended::TooLong(after) => {
                let message = format!("{what}: it was not done within {} s", after.as_secs());
                return Error::environment(message)
                    .hint("raise `limit` of the host in registry/hosts.toml if it needs longer");
            }
        };
        let said: Vec<&str> = (output.iter().map(String::as_str))
            .filter(|line| !line.starts_with(super::script::MARK))
            .collect();
        let last = said[said.len().saturating_sub(4)..].join("; ");
        let has = |text: &str| output.iter().any(|line| line.contains(text));
        let code = code.map_or_else(|| "a signal".to_owned(), |code| format!("code {code}"));
        let message = format!("{what}: {last} ({code})");
        let address = self.address;
        if has("No space left on device") || has("Disk quota exceeded") || has("File too large") {
            return Error::environment(format!("{what}: its disk is full: {last}")).hint(format!(
                "free some space on {name}, or name another folder as its `dir` in \
                 registry/hosts.toml"
            ));
        }
        let hint = if has("Host key verification failed") || has("REMOTE HOST IDENTIFICATION") {
            format!(
                "its key is not the known one, or not known at all: check it by another way, then \
                 add it with `ssh-keyscan` or as `host-key` in registry/hosts.toml ({address})"
            )
        } else if has("Permission denied") {
            format!(
                "it takes none of your keys: `ssh -o BatchMode=yes {address} true` must work \
                 without a question; `identity` in registry/hosts.toml names a key"
            )
        } else if has("command not found") && has("rsync") {
            format!("install rsync on {name}")
        } else {
            format!("see that `ssh -o BatchMode=yes {address} true` works")
        };
        Error::environment(message).hint(hint)
    }
}

/// What another machine says, without what a terminal would obey.
pub fn visible(text: &str) -> String {
    let plain = |c: char| match c.is_control() && c != '\n' {
        true => char::REPLACEMENT_CHARACTER,
        false => c,
    };
    text.chars().map(plain).collect()
}

/// A path as ssh's options take it within quotes.
fn plain(path: &Path) -> Result<String> {
    match path.to_str() {
        Some(text) if !text.contains(['"', '%', '$', '\\', '\n', '\'']) => Ok(text.to_owned()),
        _ => Err(Error::usage(format!(
            "{} cannot be given to ssh: it has quotes, `%`, `$` or the like in it",
            path.display()
        ))
        .hint("move it to a plain path")),
    }
}

/// A word of `-e` as rsync takes it apart: quotes within quotes are doubled.
fn for_rsync(word: &str) -> String {
    match word.contains([' ', '"', '\'']) {
        true => format!("'{}'", word.replace('\'', "''")),
        false => word.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(more: &str) -> Host {
        toml::from_str(&format!("name = \"a\"\naddress = \"u@a\"\n{more}")).unwrap()
    }

    fn words(command: &Command) -> Vec<String> {
        let args = command.get_args();
        args.map(|arg| arg.to_string_lossy().into_owned()).collect()
    }

    #[test]
    fn ssh_asks_nobody_and_takes_no_unknown_key() {
        let scratch = tempfile::tempdir().unwrap();
        let plain = host("");
        let remote = Remote::new(&plain, Path::new("/c"), scratch.path()).unwrap();
        let ssh = words(&remote.ssh("true"));
        for option in [
            "BatchMode=yes",
            "StrictHostKeyChecking=yes",
            "ControlPath=none",
        ] {
            assert!(ssh.iter().any(|word| word == option), "{ssh:?}");
        }
        assert_eq!(ssh[ssh.len() - 3..], ["--", "u@a", "true"]);
        assert!(!ssh.iter().any(|word| word.contains("UserKnownHostsFile")));
        let rsync = words(&remote.rsync());
        assert!(
            rsync[1].starts_with("ssh -T -o StrictHostKeyChecking=yes"),
            "{rsync:?}"
        );
        assert_eq!(remote.place("d/run-1"), "u@a:d/run-1/");
    }

    #[test]
    fn a_pinned_key_is_the_only_one() {
        let scratch = tempfile::tempdir().unwrap();
        let host = host("host-key = \"ssh-ed25519 AAAA\"\nport = 2222\nidentity = \"keys/a b\"");
        let remote = Remote::new(&host, Path::new("/c"), scratch.path()).unwrap();
        let ssh = words(&remote.ssh("true")).join("\n");
        assert!(ssh.contains("HostKeyAlias=llama-patchset-a") && ssh.contains("-p\n2222"));
        assert!(ssh.contains("IdentityFile=\"/c/keys/a b\""), "{ssh}");
        let known = std::fs::read_to_string(scratch.path().join("known_hosts")).unwrap();
        assert_eq!(known, "llama-patchset-a ssh-ed25519 AAAA\n");
        let rsync = words(&remote.rsync());
        assert!(
            rsync[1].contains(" 'IdentityFile=\"/c/keys/a b\"'"),
            "{rsync:?}"
        );
    }

    #[test]
    fn no_terminal_obeys_a_host() {
        assert_eq!(visible("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb\nc");
    }

    #[test]
    fn failures_say_what_to_do() {
        let scratch = tempfile::tempdir().unwrap();
        let host = host("");
        let remote = Remote::new(&host, Path::new("/c"), scratch.path()).unwrap();
        let hint = |code, line: &str| {
            let error = remote.failure("x", &Ended::Code(Some(code), vec![line.to_owned()]));
            assert_eq!(error.kind(), crate::Kind::Environment);
            format!("{error} {}", error.hints().join(" "))
        };
        assert!(hint(255, "Host key verification failed.").contains("host-key"));
        assert!(hint(255, "u@a: Permission denied (publickey).").contains("identity"));
        assert!(hint(11, "write failed: No space left on device (28)").contains("disk is full"));
        assert!(hint(127, "bash: rsync: command not found").contains("install rsync"));
        assert!(hint(255, "connect: Connection refused").contains("Connection refused"));
        let silent = remote.failure("x", &Ended::Silent(Duration::from_secs(9)));
        assert!(silent.to_string().contains("9 s"));
    }
}
