//! A llama-server of the patched build, asked over HTTP, for the tests of speculative checkpoints.

#![allow(dead_code)]

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::real::root;

pub const DEVICE: (&str, &str) = ("OPENCOTI_SPEC_CKPT_DEVICE", "1");
pub const EXACT: (&str, &str) = ("OPENCOTI_SPEC_REPLAY_EXACT", "1");
pub const SWAP: [(&str, &str); 3] = [
    ("OPENCOTI_SPEC_CKPT_DEVICE", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP", "1"),
    ("OPENCOTI_SPEC_CKPT_SWAP_MIN", "0"),
];

/// Drafts of three tokens from the model's own NextN block.
pub const MTP: &str = "--spec-type draft-mtp --spec-draft-n-max 3";

pub type Counters = BTreeMap<String, u64>;

/// The folder of the patched build.
pub fn build() -> PathBuf {
    root().join("target/llama/llama-0.5.0/patched-cpu")
}

pub fn fixture(name: &str) -> PathBuf {
    root().join(format!("target/fixtures/{name}.gguf"))
}

/// Ended when it is dropped.
pub struct Running {
    child: Child,
    port: u16,
    log: tempfile::NamedTempFile,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// One slot, drafts of three tokens or none, nothing else that makes checkpoints.
    pub fn start(drafts: bool, env: &[(&str, &str)]) -> Self {
        Self::with("-np 1 --ctx-checkpoints 0 --cache-ram 0", drafts, env)
    }

    pub fn with(more: &str, drafts: bool, env: &[(&str, &str)]) -> Self {
        let drafts = if drafts { MTP } else { "" };
        Self::of(
            &fixture("qwen3next-nextn"),
            &format!("-c 2048 --no-cont-batching {more} {drafts}"),
            env,
        )
    }

    /// Any model and arguments.
    pub fn of(model: &Path, args: &str, env: &[(&str, &str)]) -> Self {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let args = format!("--host 127.0.0.1 --port {port} -t 1 -tb 1 -fit off --no-warmup {args}");
        let mut command = Command::new(build().join("out/bin/llama-server"));
        command.arg("-m").arg(model);
        command.args(args.split_whitespace());
        command.env("OPENCOTI_SPEC_COUNTERS", "1");
        command.env("GGML_NO_BACKTRACE", "1");
        command.envs(env.iter().copied());
        let log = tempfile::NamedTempFile::new().unwrap();
        let both = log.reopen().unwrap();
        command.stdout(both.try_clone().unwrap()).stderr(both);
        let running = Running {
            child: command.spawn().unwrap(),
            port,
            log,
        };
        let begun = Instant::now();
        while running
            .ask("GET", "/health", "", Duration::from_secs(1))
            .is_none_or(|answer| !answer.contains("ok"))
        {
            assert!(begun.elapsed() < Duration::from_secs(60), "not ready");
            std::thread::sleep(Duration::from_millis(20));
        }
        running
    }

    /// What it has said so far.
    pub fn log(&self) -> String {
        let bytes = std::fs::read(self.log.path()).unwrap();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn send(&self, method: &str, path: &str, body: &str, limit: Duration) -> Option<TcpStream> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(limit)).ok()?;
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )
        .ok()?;
        Some(stream)
    }

    /// The body of an answer, where it comes in time.
    pub fn ask(&self, method: &str, path: &str, body: &str, limit: Duration) -> Option<String> {
        let begun = Instant::now();
        let mut stream = self.send(method, path, body, limit)?;
        let mut text = Vec::new();
        let mut some = [0; 4096];
        while begun.elapsed() < limit {
            match stream.read(&mut some) {
                Ok(0) => {
                    let text = String::from_utf8_lossy(&text);
                    return Some(text.split_once("\r\n\r\n")?.1.to_owned());
                }
                Ok(count) => text.extend(&some[..count]),
                Err(_) => return None,
            }
        }
        None
    }

    /// A completion as it comes, once `events` pieces of it are there. To drop it is to hang up.
    pub fn stream(&self, body: &Value, events: usize) -> Option<TcpStream> {
        let mut body = body.clone();
        body["stream"] = json!(true);
        let limit = Duration::from_secs(20);
        let mut stream = self.send("POST", "/completion", &body.to_string(), limit)?;
        let mut text = String::new();
        let mut some = [0; 512];
        while text.matches("data: ").count() < events {
            match stream.read(&mut some) {
                Ok(0) | Err(_) => return None,
                Ok(count) => text.push_str(&String::from_utf8_lossy(&some[..count])),
            }
        }
        Some(stream)
    }

    /// Tokens and counters of a completion.
    pub fn complete(
        &self,
        n_predict: usize,
        temperature: f64,
        seed: u64,
        limit: Duration,
    ) -> Option<(Vec<u64>, Counters)> {
        self.completion(
            &json!({
                "prompt": [17, 300, 42, 300, 42, 199, 7], "n_predict": n_predict, "temperature": temperature,
                "seed": seed, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "cache_prompt": false, "return_tokens": true,
                "ignore_eos": true,
            }),
            limit,
        )
    }

    pub fn completion(&self, body: &Value, limit: Duration) -> Option<(Vec<u64>, Counters)> {
        let answer = self.answer(body, limit)?;
        let tokens = serde_json::from_value(answer["tokens"].clone()).ok()?;
        let counters = serde_json::from_value(answer["timings"]["opencoti"].clone()).ok()?;
        Some((tokens, counters))
    }

    /// The whole answer to a request for a completion.
    pub fn answer(&self, body: &Value, limit: Duration) -> Option<Value> {
        let answer = self.ask("POST", "/completion", &body.to_string(), limit)?;
        serde_json::from_str(&answer).ok()
    }
}
