//! `registry/hosts.toml`: machines that gates run on.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::model::GateBackend;

/// The whole file.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HostsFile {
    /// Version of this format; 1.
    pub schema: u32,
    /// The machines.
    #[serde(default)]
    pub host: Vec<Host>,
}

/// One machine: reached with ssh, rented from GitHub Actions, or both.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// What it is called here, in records and in tables.
    pub name: String,
    /// Where ssh finds it: `host`, `user@host`, or a name of ssh's own configuration. Absent where
    /// it is none for ssh.
    #[serde(default)]
    pub address: Option<String>,
    /// The port, where it is another than ssh's configuration says.
    #[serde(default)]
    pub port: Option<u16>,
    /// The file with the private key, instead of what ssh's configuration says.
    #[serde(default)]
    pub identity: Option<String>,
    /// A configuration of ssh's, instead of the user's.
    #[serde(default)]
    pub config: Option<String>,
    /// How it proves who it is.
    #[serde(default)]
    pub host_key: HostKey,
    /// The file of known keys, instead of the user's.
    #[serde(default)]
    pub known_hosts: Option<String>,
    /// The folder there below which runs make theirs; relative to the login's home.
    #[serde(default = "default_dir")]
    pub dir: String,
    /// What it can compute on, as in `cargo xtask build --backend`.
    #[serde(default = "default_backends")]
    pub backends: Vec<String>,
    /// The gates that run there where none is named; else all that its backends can run.
    #[serde(default)]
    pub gates: Vec<String>,
    /// Whether only the quick subsets run there.
    #[serde(default)]
    pub quick: bool,
    /// Variables of the gates there, such as those that name models.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Seconds that all of its gates may take.
    #[serde(default = "default_limit")]
    pub limit: u64,
    /// Seconds until a host that does not answer is given up.
    #[serde(default = "default_connect")]
    pub connect: u64,
    /// The label of a machine of GitHub Actions; absent where it is none of theirs.
    #[serde(default)]
    pub runner: Option<String>,
}

/// How a host proves who it is. There is no way to take any key.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum HostKey {
    /// Its key is in the file of known keys already.
    #[default]
    Known,
    /// The key that it shows first is kept, and another one later is refused.
    AcceptNew,
    /// It is this one: type and key, as in `ssh-ed25519 AAAA…`.
    Pinned(String),
}

impl From<String> for HostKey {
    fn from(text: String) -> Self {
        match text.as_str() {
            "known" => HostKey::Known,
            "accept-new" => HostKey::AcceptNew,
            _ => HostKey::Pinned(text),
        }
    }
}

fn default_dir() -> String {
    ".cache/llama-patchset-hosts".to_owned()
}

fn default_backends() -> Vec<String> {
    vec!["cpu".to_owned()]
}

fn default_limit() -> u64 {
    4 * 3600
}

fn default_connect() -> u64 {
    10
}

impl HostsFile {
    /// Fails on what could be taken for something else by ssh, rsync or a shell, and on what makes
    /// no sense.
    pub fn check(&self) -> Result<()> {
        let mut seen = BTreeSet::new();
        for host in &self.host {
            host.check().map_err(|error| {
                error
                    .context(format!("host `{}`", host.name))
                    .hint("docs/reference/hosts.md says what may stand there")
            })?;
            if !seen.insert(&host.name) {
                return Err(Error::config(format!(
                    "the host `{}` stands twice",
                    host.name
                )));
            }
        }
        match self.schema {
            1 => Ok(()),
            other => Err(Error::config(format!("schema {other} is not understood"))),
        }
    }
}

impl Host {
    fn check(&self) -> Result<()> {
        let wrong = |what: &str, text: &str, rule: &str| {
            Err(Error::config(format!(
                "{what} `{}`: {rule}",
                text.escape_debug()
            )))
        };
        if !is_word(&self.name, "-") || self.name == "all" || self.name.len() > 40 {
            let rule = "lowercase letters, digits and hyphens, and not `all`";
            return wrong("its name", &self.name, rule);
        }
        if self.name.bytes().any(|byte| byte.is_ascii_uppercase()) {
            return wrong("its name", &self.name, "lowercase letters only");
        }
        if self.address.is_none() && self.runner.is_none() {
            return Err(Error::config("it has neither an `address` nor a `runner`"));
        }
        if let Some(address) = &self.address {
            let (user, name) = match address.split_once('@') {
                Some((user, name)) => (Some(user), name),
                None => (None, address.as_str()),
            };
            if !is_word(name, "-._") || user.is_some_and(|user| !is_word(user, "-._")) {
                let rule = "host or user@host, of letters, digits and -._; anything else goes into \
                            ssh's configuration";
                return wrong("address", address, rule);
            }
        }
        if let Some(runner) = &self.runner
            && !is_word(runner, "-._")
        {
            return wrong("runner", runner, "letters, digits and -._");
        }
        if self.port == Some(0) || self.limit == 0 || self.connect == 0 {
            return Err(Error::config("port, limit and connect are numbers from 1"));
        }
        let parts: Vec<&str> = self.dir.trim_start_matches('/').split('/').collect();
        if !parts
            .iter()
            .all(|part| is_word(part.trim_start_matches('.'), "-._"))
        {
            let rule = "a folder of letters, digits and -._, without `..` and not the root";
            return wrong("dir", &self.dir, rule);
        }
        for path in [&self.identity, &self.config, &self.known_hosts]
            .into_iter()
            .flatten()
        {
            let plain = |c: char| c.is_ascii_alphanumeric() || "-._/+@~ ".contains(c);
            if path.is_empty() || path.starts_with('-') || !path.chars().all(plain) {
                let rule = "a path of letters, digits, blanks and -._/+@~";
                return wrong("file", path, rule);
            }
        }
        if let HostKey::Pinned(key) = &self.host_key {
            let words: Vec<&str> = key.split(' ').collect();
            let base64 = |c: char| c.is_ascii_alphanumeric() || "+/=".contains(c);
            let is_key = matches!(words.as_slice(), [kind, key]
                if is_word(kind, "-@.") && key.len() > 40 && key.chars().all(base64));
            if !is_key {
                let rule = "`known`, `accept-new`, or a key as `ssh-keyscan` prints it, without the \
                            name before it";
                return wrong("host-key", key, rule);
            }
        }
        if self.backends.is_empty() {
            return Err(Error::config("it has no backends"));
        }
        for backend in &self.backends {
            if !GateBackend::ALL.iter().any(|known| known.name() == backend) {
                return wrong("backend", backend, "it is none of cpu, vulkan and cuda");
            }
        }
        for (name, value) in &self.env {
            let starts = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
            let word = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
            if !starts || !word {
                return wrong("variable", name, "letters, digits and _");
            }
            if value.contains(['\0', '\n', '\r']) {
                return wrong("variable", name, "its value has a line break");
            }
        }
        Ok(())
    }
}

/// Letters, digits and some more characters, beginning with a letter or digit.
fn is_word(text: &str, more: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_alphanumeric())
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &str) -> Result<HostsFile> {
        let text = format!("schema = 1\n[[host]]\nname = \"one\"\n{lines}\n");
        let file: HostsFile =
            toml::from_str(&text).map_err(|error| Error::config(error.to_string()))?;
        file.check()?;
        Ok(file)
    }

    #[test]
    fn a_host_needs_little() {
        let file = read("address = \"gate@gpu-1.example\"").unwrap();
        let host = &file.host[0];
        assert_eq!(host.dir, ".cache/llama-patchset-hosts");
        assert_eq!(
            (host.backends.as_slice(), host.limit),
            (&["cpu".to_owned()][..], 14_400)
        );
        assert_eq!(host.host_key, HostKey::Known);
        assert!(read("runner = \"ubuntu-24.04\"").is_ok());
        let key = format!("ssh-ed25519 {}", "A".repeat(68));
        let file = read(&format!("address = \"a\"\nhost-key = \"{key}\"")).unwrap();
        assert_eq!(file.host[0].host_key, HostKey::Pinned(key));
        for dir in ["/srv/gates", "gates", ".a/b.c", "/var/tmp/x_y-z"] {
            read(&format!("address = \"a\"\ndir = \"{dir}\"")).unwrap();
        }
    }

    #[test]
    fn nothing_reaches_a_shell_or_becomes_an_option() {
        for bad in [
            "address = \"-oProxyCommand=touch x\"",
            "address = \"a;reboot\"",
            "address = \"a b\"",
            "address = \"$(x)\"",
            "address = \"u@-x\"",
            "address = \"u@h@i\"",
            "address = \"\"",
            "address = \"a:/x\"",
            "address = \"a\"\ndir = \"../x\"",
            "address = \"a\"\ndir = \"x/../y\"",
            "address = \"a\"\ndir = \"/\"",
            "address = \"a\"\ndir = \"\"",
            "address = \"a\"\ndir = \"a//b\"",
            "address = \"a\"\ndir = \"-x\"",
            "address = \"a\"\ndir = \"a b\"",
            "address = \"a\"\ndir = \"~\"",
            "address = \"a\"\ndir = \"$HOME/x\"",
            "address = \"a\"\nidentity = \"-x\"",
            "address = \"a\"\nidentity = \"a\\\"b\"",
            "address = \"a\"\nknown-hosts = \"a%h\"",
            "address = \"a\"\nconfig = \"a\\nb\"",
            "address = \"a\"\nhost-key = \"any\"",
            "address = \"a\"\nhost-key = \"ssh-ed25519 AAAA\\nevil\"",
            "address = \"a\"\nport = 0",
            "address = \"a\"\nlimit = 0",
            "address = \"a\"\nbackends = []",
            "address = \"a\"\nbackends = [\"../x\"]",
            "address = \"a\"\nenv = { \"A;B\" = \"x\" }",
            "address = \"a\"\nenv = { \"1A\" = \"x\" }",
            "address = \"a\"\nenv = { A = \"x\\ny\" }",
            "address = \"a\"\nenvironment = {}",
            "runner = \"a b\"",
            "",
        ] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn names_are_plain_and_there_once() {
        let named = |names: &[&str]| {
            let hosts = names
                .iter()
                .map(|name| format!("[[host]]\nname = \"{name}\"\nrunner = \"r\"\n"));
            let text = format!("schema = 1\n{}", hosts.collect::<String>());
            toml::from_str::<HostsFile>(&text).unwrap().check()
        };
        named(&["gpu-1", "x"]).unwrap();
        for bad in [
            &["all"][..],
            &["a", "a"],
            &["A"],
            &["-a"],
            &["a/b"],
            &[""],
            &["a b"],
        ] {
            assert!(named(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_committed_file_is_read() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/hosts.toml");
        let file: HostsFile = crate::model::read_toml(std::path::Path::new(path)).unwrap();
        file.check().unwrap();
    }
}
