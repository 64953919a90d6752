//! A server that runs already. Nothing of it can be set, and little can be checked: what it tells
//! of itself is held against what the gate needs, and the rest is said in the record.

use std::net::{SocketAddr, ToSocketAddrs as _};
use std::path::Path;

use serde::Deserialize;

use crate::error::{Error, Result};
use crate::model::ChashGate;

/// Where it listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address(String);

impl Address {
    /// Reads `http://host:port`. Hosts that are not this machine need `remote`.
    pub fn parse(url: &str, remote: bool) -> Result<Self> {
        let wrong = |what: &str| {
            Err(Error::config(format!("url `{url}`: {what}"))
                .hint("it reads http://127.0.0.1:8080"))
        };
        let url = url.trim_end_matches('/');
        let Some((scheme, rest)) = url.split_once("://") else {
            return wrong("it has no scheme");
        };
        if !matches!(scheme, "http" | "https") {
            return wrong("its scheme is neither http nor https");
        }
        if rest.contains(['/', '?', '#', '@', ' ']) || rest.chars().any(char::is_control) {
            return wrong("it holds more than a host and a port");
        }
        let (host, port) = match rest.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
            _ => (rest, None),
        };
        let port = port.map(str::parse::<u16>);
        if host.is_empty() || matches!(port, Some(Err(_) | Ok(0))) {
            return wrong("its host or its port is none");
        }
        let is_local = host == "localhost"
            || (host.trim_start_matches('[').trim_end_matches(']'))
                .parse::<std::net::IpAddr>()
                .is_ok_and(|ip| ip.is_loopback());
        if !is_local && !remote {
            return Err(Error::config(format!(
                "url `{url}` is another machine: prompts would leave this one"
            ))
            .hint("add `remote = true` to that side if that is wanted"));
        }
        Ok(Address(url.to_owned()))
    }

    /// As a client needs it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Whether two addresses may lead to one server, however they are spelt. One that listens to all
/// addresses of this machine answers at every one of them.
pub fn is_same(left: &str, right: &str) -> bool {
    let (left_at, right_at) = (sockets(left), sockets(right));
    let pairs = left_at
        .iter()
        .flat_map(|left| right_at.iter().map(move |right| (left, right)));
    let meets = |(left, right): (&SocketAddr, &SocketAddr)| {
        left == right || left.port() == right.port() && own(left) && own(right)
    };
    left == right || pairs.into_iter().any(meets)
}

/// Whether it is an address of this machine: only to one of its own can a socket be bound.
fn own(address: &SocketAddr) -> bool {
    let ip = address.ip();
    ip.is_loopback() || ip.is_unspecified() || std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// Where an address leads to; nowhere where its name is not known.
fn sockets(url: &str) -> Vec<SocketAddr> {
    let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
    let port = if scheme == "https" { 443 } else { 80 };
    let has_port = (rest.rsplit_once(':')).is_some_and(|(_, port)| !port.ends_with(']'));
    let place = match has_port {
        true => rest.to_owned(),
        false => format!("{rest}:{port}"),
    };
    place
        .to_socket_addrs()
        .map_or_else(|_| Vec::new(), Iterator::collect)
}

/// What a running server tells by `/props` and `/slots`; what is not needed is ignored.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Props {
    /// Slots.
    pub total_slots: Option<usize>,
    /// The model's file, as the server sees it.
    pub model_path: Option<String>,
    /// What was built.
    pub build_info: Option<String>,
    /// Of which only the context is of interest.
    #[serde(default)]
    pub default_generation_settings: Defaults,
    /// Whether it drafts, from `/slots`; absent where that is switched off.
    #[serde(skip)]
    pub speculative: Option<bool>,
}

/// See [`Props::default_generation_settings`].
#[derive(Clone, Debug, Default, Deserialize)]
pub struct Defaults {
    /// Context cells of a slot.
    pub n_ctx: Option<usize>,
}

/// Refuses a running server that is not what the gate would have started, as far as it tells.
/// `declared` is the longest draft that the definition says it was started with. Returns what
/// nobody can check.
pub fn check(
    gate: &ChashGate,
    declared: Option<u32>,
    props: &Props,
    model: &Path,
) -> Result<Vec<String>> {
    let refuse = |what: String| {
        Err(Error::usage(what).hint("start the server as the gate needs it, or change the gate"))
    };
    let slots = gate.slots.first().copied().unwrap_or(1);
    match props.total_slots {
        Some(there) if there == slots => {}
        Some(there) => return refuse(format!("it has {there} slots, and the gate needs {slots}")),
        None => return refuse("it does not tell how many slots it has".to_owned()),
    }
    match props.default_generation_settings.n_ctx {
        Some(there) if there >= gate.context => {}
        Some(there) => {
            return refuse(format!(
                "its slots have {there} cells, and the gate needs {}",
                gate.context
            ));
        }
        None => return refuse("it does not tell how long its context is".to_owned()),
    }
    let n_max = gate.n_max.first().copied().unwrap_or(0);
    match (props.speculative, n_max) {
        (Some(true), 0) => return refuse("it drafts, and the gate's n-max is 0".to_owned()),
        (Some(false), 1..) => {
            return refuse(format!(
                "it does not draft, and the gate's n-max is {n_max}"
            ));
        }
        (None, 0) if declared != Some(0) => {
            return refuse(
                "it does not tell whether it drafts; say `n-max = 0` on that side if it does not"
                    .to_owned(),
            );
        }
        _ => {}
    }
    let mut unverified = Vec::new();
    if n_max > 0 {
        match declared {
            Some(declared) if declared == n_max => unverified.push(format!(
                "its longest draft: {n_max}, as the definition says; it does not tell"
            )),
            Some(declared) => {
                return refuse(format!(
                    "that side says `n-max = {declared}`, and the gate's n-max is {n_max}"
                ));
            }
            None => {
                return Err(Error::usage(
                    "its longest draft is unknown, since a server does not tell it",
                )
                .hint(format!(
                    "add `n-max = {n_max}` to that side if it was started with \
                     `--spec-draft-n-max {n_max}`"
                )));
            }
        }
    }
    model_is(props, model, &mut unverified)?;
    unverified
        .push("its files, its other flags and its environment: it was running already".to_owned());
    unverified.push(format!(
        "what it says of itself: build {}",
        props.build_info.as_deref().unwrap_or("unknown")
    ));
    Ok(unverified)
}

/// Another model's file gives other tokens, which would look like a fault of the patches.
fn model_is(props: &Props, model: &Path, unverified: &mut Vec<String>) -> Result<()> {
    let Some(path) = props.model_path.as_deref().map(Path::new) else {
        unverified.push("its model: it does not tell".to_owned());
        return Ok(());
    };
    match (path.canonicalize(), model.canonicalize()) {
        (Ok(there), Ok(own)) if there == own => Ok(()),
        // A file of the same name elsewhere, or one that lies on another machine.
        _ if path.file_name() == model.file_name() => {
            unverified.push(format!(
                "its model: it names {}, of which only the file's name is the gate's",
                path.display()
            ));
            Ok(())
        }
        _ => Err(Error::usage(format!(
            "it has the model {}, and the gate's is {}",
            path.display(),
            model.display()
        ))
        .hint("start it with the gate's model, or name its model with --model")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_unless_the_definition_says_more() {
        for good in [
            "http://127.0.0.1:80",
            "http://localhost:1/",
            "http://[::1]:80",
            "http://127.9.9.9:1",
        ] {
            Address::parse(good, false).unwrap();
        }
        for away in [
            "http://10.0.0.1:80",
            "https://example.org",
            "http://127.0.0.1.example.org:80",
            "http://[::2]:80",
            "http://0.0.0.0:80",
        ] {
            let error = Address::parse(away, false).unwrap_err();
            assert!(
                error.to_string().contains("another machine"),
                "{away}: {error}"
            );
            Address::parse(away, true).unwrap();
        }
        for bad in [
            "",
            "127.0.0.1:80",
            "ftp://127.0.0.1:1",
            "http://",
            "http://:80",
            "http://127.0.0.1:0",
            "http://127.0.0.1:x",
            "http://127.0.0.1:80/v1",
            "http://a@127.0.0.1:80",
            "http://127.0.0.1:80#x",
        ] {
            let error = Address::parse(bad, true).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Config, "{bad}");
        }
    }

    #[test]
    fn one_server_is_known_by_any_of_its_names() {
        for (left, right, same) in [
            ("http://127.0.0.1:8080", "http://127.0.0.1:8080", true),
            ("http://127.0.0.1:8080", "http://localhost:8080", true),
            ("http://127.0.0.1:8080", "http://127.0.0.1:08080", true),
            ("http://127.0.0.1:8080", "http://127.0.0.9:8080", true),
            ("http://127.0.0.1:8080", "http://[::1]:8080", true),
            ("http://127.0.0.1", "http://localhost:80", true),
            ("https://10.0.0.1", "https://10.0.0.1:443", true),
            ("http://127.0.0.1:8080", "http://127.0.0.1:8081", false),
            // A machine listens on all of its addresses, and these are nobody's.
            ("http://127.0.0.1:8080", "http://0.0.0.0:8080", true),
            ("http://0.0.0.0:8080", "http://[::]:8080", true),
            ("http://127.0.0.1:8080", "http://0.0.0.0:8081", false),
            ("http://198.51.100.1:80", "http://198.51.100.2:80", false),
            ("http://127.0.0.1:80", "http://198.51.100.2:80", false),
        ] {
            assert_eq!(is_same(left, right), same, "{left} {right}");
            assert_eq!(is_same(right, left), same, "{right} {left}");
        }
    }

    /// An address of a network card, where this machine has one: nothing is sent.
    #[test]
    fn an_address_of_this_machine_is_one_of_its_names() {
        let socket = std::net::UdpSocket::bind("0.0.0.0:0").unwrap();
        let Ok(card) = socket
            .connect("198.51.100.1:9")
            .and_then(|()| socket.local_addr())
        else {
            return;
        };
        let url = format!("http://{}:8080", card.ip());
        assert!(is_same(&url, "http://127.0.0.1:8080"), "{url}");
        assert!(!is_same(&url, "http://127.0.0.1:8081"), "{url}");
    }

    fn gate(n_max: u32) -> ChashGate {
        toml::from_str(&format!(
            "schema = 1\nid = \"g\"\nkind = \"chash\"\ntitle = \"T\"\nn-max = [{n_max}]\n\
             slots = [2]\nn-predict = 4\ncontext = 100\nmodel = {{ path = \"m\" }}\n\
             prompt = [{{ name = \"p\", ids = [1] }}]\n"
        ))
        .unwrap()
    }

    #[test]
    fn what_a_server_tells_is_held_against_the_gate_and_the_rest_is_said() {
        let props = |slots: Option<usize>, n_ctx: Option<usize>, speculative| Props {
            total_slots: slots,
            model_path: Some("/elsewhere/m.gguf".to_owned()),
            build_info: Some("b1".to_owned()),
            default_generation_settings: Defaults { n_ctx },
            speculative,
        };
        let model = Path::new("/models/m.gguf");
        let good = props(Some(2), Some(100), Some(true));
        let unverified = check(&gate(3), Some(3), &good, model).unwrap();
        let all = unverified.join("\n");
        for word in [
            "longest draft: 3",
            "only the file's name",
            "environment",
            "build b1",
        ] {
            assert!(all.contains(word), "{word}: {all}");
        }
        let plain = props(Some(2), Some(100), Some(false));
        let unverified = check(&gate(0), None, &plain, model).unwrap();
        assert!(!unverified.join("\n").contains("longest draft"));
        for (n_max, declared, props, expected) in [
            (3, Some(3), props(Some(1), Some(100), Some(true)), "1 slots"),
            (
                3,
                Some(3),
                props(None, Some(100), Some(true)),
                "how many slots",
            ),
            (3, Some(3), props(Some(2), Some(99), Some(true)), "99 cells"),
            (3, Some(3), props(Some(2), None, Some(true)), "context"),
            (3, Some(3), plain.clone(), "does not draft"),
            (0, None, good.clone(), "it drafts"),
            (
                0,
                None,
                props(Some(2), Some(100), None),
                "whether it drafts",
            ),
            (3, None, good.clone(), "longest draft is unknown"),
            (3, Some(2), good.clone(), "`n-max = 2`"),
        ] {
            let error = check(&gate(n_max), declared, &props, model).unwrap_err();
            assert!(error.to_string().contains(expected), "{expected}: {error}");
        }
        let error = check(&gate(3), Some(3), &good, Path::new("/models/x.gguf")).unwrap_err();
        assert!(error.to_string().contains("the gate's is"), "{error}");
    }
}
