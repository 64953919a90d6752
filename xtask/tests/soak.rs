//! A soak test of drafts in one launch: several slots, more clients than slots, requests that are broken
//! off at random. Takes minutes, so it is left out unless asked for:
//!
//! ```sh
//! cargo test -p xtask --test soak -- --ignored --nocapture
//! ```
//!
//! `SOAK_MODEL` names a GGUF file in place of the fixture, `SOAK_TOKENS` another number of tokens
//! than 10,000, `SOAK_SWITCHES` other switches, with commas between them, `SOAK_FLAGS` more server flags, `SOAK_SERVER` another llama-server than the patched one;
//! with `SOAK_OFF` set, the server under test has no switch, to see what the loop does.
//! The server and the fixture must be there.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const SLOTS: usize = 4;
const CLIENTS: usize = 8;
const PROMPTS: usize = 16;
const LONGEST: usize = 96;
/// What the resident size may grow by between the second third of the run and the last one. Buffers
/// that grow with the longest batch so far make steps of up to a megabyte.
const GROWTH_KIB: f64 = 2048.0;
/// What slots share a batch with decides how sums are rounded, and with that now and then a token, also
/// without any switch (see `SOAK_OFF`); so some answers are other than those of requests that are alone.
const OTHERWISE: f64 = 0.03;

const SWITCHES: [&str; 4] = [
    "OPENCOTI_NEXTN_REUSE",
    "OPENCOTI_NEXTN_KV_ONLY",
    "OPENCOTI_MTP_FUSED_NEXTN",
    "OPENCOTI_NEXTN_ONE_LAUNCH",
];

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().into()
}

/// Numbers that are the same in every run; which request meets which is not.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = (self.0)
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }
}

struct Server {
    process: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Server {
    fn start(switches: &[&str], log: &Path) -> Self {
        let variable = |name: &str, default: &str| {
            std::env::var(name).map_or_else(|_| root().join(default), PathBuf::from)
        };
        let program = variable(
            "SOAK_SERVER",
            "target/llama/llama-0.5.0/patched-cpu/out/bin/llama-server",
        );
        let model = variable("SOAK_MODEL", "target/fixtures/qwen35-nextn.gguf");
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = free.local_addr().unwrap().port();
        drop(free);
        let args = format!(
            "-c 4096 -np {SLOTS} -t 1 -tb 1 -fit off --no-warmup --ctx-checkpoints 0 --cache-ram 0 \
             --spec-type draft-mtp --spec-draft-n-max 4 --host 127.0.0.1 --port {port} {}",
            std::env::var("SOAK_FLAGS").unwrap_or_default()
        );
        let log = fs_err::File::create(log).unwrap().into_file();
        let process = Command::new(program)
            .arg("-m")
            .arg(model)
            .args(args.split_whitespace())
            .envs(switches.iter().map(|name| (*name, "1")))
            // Else each of many threads takes memory of its own, now and then.
            .env("MALLOC_ARENA_MAX", "1")
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut server = Server { process, port };
        let begun = Instant::now();
        while server.get_health().is_none() {
            assert!(server.process.try_wait().unwrap().is_none(), "it ended");
            assert!(begun.elapsed() < Duration::from_secs(120), "not ready");
            std::thread::sleep(Duration::from_millis(50));
        }
        server
    }

    fn get_health(&self) -> Option<()> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        let request = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.starts_with("HTTP/1.1 200").then_some(())
    }

    /// The tokens of an answer, as they stream in; after `stop` of them the connection is closed.
    fn complete(&self, prompt: &[usize], n_predict: usize, stop: usize, cache: bool) -> Vec<u64> {
        let body = serde_json::json!({
            "prompt": prompt, "n_predict": n_predict, "temperature": 0, "seed": 1,
            "cache_prompt": cache, "return_tokens": true, "stream": true,
        })
        .to_string();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).unwrap();
        let limit = Some(Duration::from_secs(300));
        stream.set_read_timeout(limit).unwrap();
        let head = format!(
            "POST /completion HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut tokens = Vec::new();
        for line in BufReader::new(stream).lines() {
            let line = line.unwrap();
            let Some(event) = line.strip_prefix("data: ") else {
                assert!(!line.starts_with("error"), "{line}");
                continue;
            };
            let event: serde_json::Value = serde_json::from_str(event).unwrap();
            // The last event has all tokens again, or none.
            if event["stop"] == true {
                break;
            }
            let new = event["tokens"].as_array().unwrap();
            tokens.extend(new.iter().map(|token| token.as_u64().unwrap()));
            if tokens.len() >= stop {
                break;
            }
        }
        tokens
    }

    fn resident_kib(&self) -> f64 {
        let path = format!("/proc/{}/status", self.process.id());
        let text = fs_err::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.starts_with("VmRSS:"));
        let number = line.unwrap().split_whitespace().nth(1).unwrap();
        number.parse().unwrap()
    }
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

#[test]
#[ignore = "takes minutes"]
fn drafts_in_one_launch_neither_leak_nor_diverge() {
    let goal: usize = std::env::var("SOAK_TOKENS").map_or(10_000, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let mut random = Random(7);
    let prompts: Vec<Vec<usize>> = (0..PROMPTS)
        .map(|_| {
            let length = 5 + random.below(296);
            (0..length).map(|_| 4 + random.below(500)).collect()
        })
        .collect();
    let alone = |server: &Server| -> Vec<Vec<u64>> {
        let ask = |prompt: &Vec<usize>| server.complete(prompt, LONGEST, usize::MAX, false);
        prompts.iter().map(ask).collect()
    };
    let expected = alone(&Server::start(&[], &dir.path().join("loop")));
    assert!(expected.iter().all(|answer| answer.len() == LONGEST));

    let asked = std::env::var("SOAK_SWITCHES").unwrap_or_else(|_| SWITCHES.join(","));
    let switches: Vec<&str> = match std::env::var_os("SOAK_OFF") {
        Some(_) => Vec::new(),
        None => asked.split(',').collect(),
    };
    let server = Server::start(&switches, &dir.path().join("switches"));
    assert_eq!(alone(&server), expected, "before");
    let (given, broken, whole) = (
        AtomicUsize::new(0),
        AtomicUsize::new(0),
        AtomicUsize::new(0),
    );
    let other = Mutex::new(Vec::new());
    let done = AtomicBool::new(false);
    let sizes = std::thread::scope(|scope| {
        let (server, prompts, expected) = (&server, &prompts, &expected);
        let (given, broken, whole, other, done) = (&given, &broken, &whole, &other, &done);
        let watch = scope.spawn(move || {
            let mut sizes = Vec::new();
            while !done.load(Ordering::Relaxed) {
                sizes.push(server.resident_kib());
                std::thread::sleep(Duration::from_millis(100));
            }
            sizes
        });
        let clients: Vec<_> = (0..CLIENTS)
            .map(|at| {
                scope.spawn(move || {
                    let mut random = Random(100 + at as u64);
                    while given.load(Ordering::Relaxed) < goal {
                        let which = random.below(PROMPTS);
                        let n_predict = 1 + random.below(LONGEST);
                        let stop = match random.below(3) {
                            0 => 1 + random.below(n_predict),
                            _ => usize::MAX,
                        };
                        let cache = random.below(2) == 0;
                        let tokens = server.complete(&prompts[which], n_predict, stop, cache);
                        given.fetch_add(tokens.len(), Ordering::Relaxed);
                        let count = if stop < n_predict { broken } else { whole };
                        count.fetch_add(1, Ordering::Relaxed);
                        let right = &expected[which][..tokens.len()];
                        if tokens != right {
                            let mut other = other.lock().unwrap();
                            other.push(format!("prompt {which}: {tokens:?} against {right:?}"));
                        }
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        watch.join().unwrap()
    });
    let other = other.into_inner().unwrap();
    let (broken, whole) = (broken.into_inner(), whole.into_inner());
    let third = sizes.len() / 3;
    let growth = mean(&sizes[2 * third..]) - mean(&sizes[third..2 * third]);
    let _ = writeln!(
        std::io::stderr(),
        "{} tokens, {broken} requests broken off, {whole} not, {} other than alone; resident {:.0} KiB, \
         {growth:+.0} KiB from the second third to the last",
        given.into_inner(),
        other.len(),
        sizes[sizes.len() - 1],
    );
    assert_eq!(alone(&server), expected, "afterwards");
    let most = OTHERWISE * (broken + whole) as f64;
    assert!((other.len() as f64) < most, "{}", other.join("\n"));
    assert!(growth < GROWTH_KIB, "{growth} KiB");
}
