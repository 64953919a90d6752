//! A llama-server that decodes nothing: as much of its command line and of its HTTP as the gate
//! uses, with faults on request.
//!
//! It runs inside the test program itself, started again by a shell script that passes for a
//! llama-server; so no second program has to be built or installed.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Environment variables between the script and the server.
const FAULT: &str = "FAKE_SERVER_FAULT";
const ARGS: &str = "FAKE_SERVER_ARGS";
const PIDS: &str = "FAKE_SERVER_PIDS";
/// A program that the faults `report` and `report-and-die` run; to be exported by `before`.
pub const RUN: &str = "FAKE_SERVER_RUN";

/// Writes a program `dir/llama-server` with `fault`, which leaves a file named by its process id
/// in `pids`. `before` is shell code that runs before the server.
pub fn install(dir: &Path, fault: &str, pids: &Path, before: &str) -> PathBuf {
    std::fs::create_dir_all(dir).unwrap();
    std::fs::create_dir_all(pids).unwrap();
    let path = dir.join("llama-server");
    // What is seen to run must be another thing on each side, and the test program is the same. The shell may
    // still start the one that is written anew.
    let beside = dir.join("llama-beside");
    let mut program = std::fs::read("/bin/sleep").unwrap();
    program.extend_from_slice(dir.as_os_str().as_encoded_bytes());
    let temp = dir.join(".llama-beside");
    std::fs::write(&temp, program).unwrap();
    std::fs::set_permissions(&temp, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::rename(&temp, &beside).unwrap();
    let script = format!(
        "#!/bin/sh\n# {dir}\n{before}\n'{beside}' 60 >/dev/null 2>&1 &\nexport {FAULT}='{fault}' {PIDS}='{pids}' {ARGS}=\"$*\"\n\
         exec '{test}' fake_server_entry --exact --ignored --nocapture\n",
        dir = dir.display(),
        beside = beside.display(),
        pids = pids.display(),
        test = std::env::current_exe().unwrap().display(),
    );
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// Serves until it is killed. Returns at once where no script has started it.
pub fn serve() {
    let Ok(fault) = std::env::var(FAULT) else {
        return;
    };
    let args = std::env::var(ARGS).unwrap();
    let pids = std::env::var(PIDS).unwrap();
    let key = std::env::var("LLAMA_API_KEY").unwrap();
    // Only this machine, a port of the system's choice, and a key that no process list shows.
    assert!(args.contains("--host 127.0.0.1 --port 0"), "{args}");
    assert!(key.is_empty() || !args.contains(&key), "{args}");
    std::fs::write(Path::new(&pids).join(std::process::id().to_string()), &key).unwrap();
    for removed in ["OPENCOTI_TEST", "LLAMA_ARG_TEST", "GGML_TEST"] {
        assert!(
            std::env::var_os(removed).is_none(),
            "{removed} came through"
        );
    }
    if fault == "babble" {
        // A file with a hole: long, and yet nothing on the disk.
        let log = std::fs::File::from(
            std::os::fd::AsFd::as_fd(&std::io::stdout())
                .try_clone_to_owned()
                .unwrap(),
        );
        log.set_len(1 << 30).unwrap();
        std::thread::sleep(Duration::from_secs(600));
    }
    if fault == "hang-at-start" {
        std::thread::sleep(Duration::from_secs(600));
    }
    if let Ok(said) = std::env::var("OPENCOTI_SAY") {
        eprintln!("W say: {said}");
    }
    if args.contains("--die") {
        eprintln!("error: invalid argument: --die");
        std::process::exit(1);
    }
    if fault == "refuse-port" {
        eprintln!("E srv start: couldn't bind HTTP server socket, hostname: 127.0.0.1");
        std::process::exit(1);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    println!(
        "\nI srv listening on http://{}",
        listener.local_addr().unwrap()
    );
    let before = std::fs::read_dir(&pids).unwrap().count();
    let server = Fake {
        noise: std::cell::Cell::new(before as u64 * 1_000_003),
        asked: std::cell::Cell::new(0),
        fault,
        key,
        n_max: value(&args, "--spec-draft-n-max").unwrap_or(0),
        slots: value(&args, "-np").unwrap(),
    };
    for stream in listener.incoming() {
        server.answer(stream.unwrap());
        // Behind its last answer, which is a good one: two waves, each a request.
        if server.fault == "die-after" && server.asked.get() == 2 {
            eprintln!("GGML_ASSERT(after) failed");
            std::process::abort();
        }
    }
}

fn value(args: &str, flag: &str) -> Option<u32> {
    let mut words = args.split(' ').skip_while(|word| *word != flag);
    words.nth(1).map(|word| word.parse().unwrap())
}

struct Fake {
    fault: String,
    key: String,
    /// State of the noise: the same in every run, since servers are counted and not timed.
    noise: std::cell::Cell<u64>,
    /// Completions so far.
    asked: std::cell::Cell<u64>,
    n_max: u32,
    slots: u32,
}

impl Fake {
    fn answer(&self, stream: TcpStream) {
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut request, mut length, mut authorized) = (String::new(), 0, false);
        if reader.read_line(&mut request).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).unwrap();
            let line = line.trim().to_ascii_lowercase();
            if line.is_empty() {
                break;
            }
            if let Some(text) = line.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap();
            }
            authorized |= line == format!("authorization: bearer {}", self.key);
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).unwrap();
        let (status, text) = match request.split(' ').nth(1).unwrap() {
            "/health" => (200, "{\"status\":\"ok\"}".to_owned()),
            _ if !authorized => (401, "no".to_owned()),
            "/metrics" if self.fault == "no-metrics" => (501, "no".to_owned()),
            "/metrics" => (200, self.metrics()),
            "/props" => (200, self.props()),
            "/slots" => (
                200,
                format!("[{{\"id\":0,\"speculative\":{}}}]", self.n_max > 0),
            ),
            "/tokenize" => self.tokenize(&serde_json::from_slice(&body).unwrap()),
            "/apply-template" => {
                let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let said = body["messages"].as_array().unwrap().iter().map(|message| {
                    let word = |key: &str| message[key].as_str().unwrap();
                    format!("<{}>{}", word("role"), word("content"))
                });
                let prompt: String = said.collect();
                (200, serde_json::json!({ "prompt": prompt }).to_string())
            }
            "/detokenize" => (200, text_of(&serde_json::from_slice(&body).unwrap())),
            "/completion" => self.completion(&serde_json::from_slice(&body).unwrap()),
            other => (404, other.to_owned()),
        };
        let cut = usize::from(self.fault == "truncate") * 20;
        let sent = &text[..text.len().saturating_sub(cut)];
        let mut stream = stream;
        let _ = write!(
            stream,
            "HTTP/1.1 {status} X\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{sent}",
            sent.len()
        );
    }

    fn metrics(&self) -> String {
        let busy = match self.fault.as_str() {
            "idle-slots" => 1.0,
            "nearly-idle-slots" => 1.01,
            _ => f64::from(self.slots),
        };
        format!("# TYPE x gauge\nllamacpp:n_busy_slots_per_decode {busy}\n")
    }

    fn props(&self) -> String {
        serde_json::json!({
            "total_slots": self.slots,
            "default_generation_settings": { "n_ctx": 1024 },
            "model_path": "model.gguf",
            "build_info": "b1-fake",
        })
        .to_string()
    }

    /// One id for each byte.
    fn tokenize(&self, body: &serde_json::Value) -> (u16, String) {
        // A prompt has both, a piece of text neither.
        assert_eq!(body["add_special"], body["parse_special"]);
        let mut ids: Vec<u32> = (body["content"].as_str().unwrap().bytes())
            .map(u32::from)
            .collect();
        match self.fault.as_str() {
            "no-tokenizer" => return (500, "{\"error\":\"unordered_map::at\"}".to_owned()),
            "other-tokenizer" => ids[2] += 1,
            _ => {}
        }
        (200, serde_json::json!({ "tokens": ids }).to_string())
    }

    fn completion(&self, body: &serde_json::Value) -> (u16, String) {
        match self.fault.as_str() {
            "hang-in-request" => std::thread::sleep(Duration::from_secs(600)),
            "http-500" => return (500, "{\"error\":\"out of luck\"}".to_owned()),
            "no-tokens" => return (200, "{\"content\":\"x\"}".to_owned()),
            "die-late" if self.asked.get() == 9 => {
                eprintln!("GGML_ASSERT(late) failed");
                std::process::abort();
            }
            _ => {}
        }
        if self.fault.starts_with("report") && self.asked.get() == 1 {
            // What it says goes into our log.
            let _ = std::process::Command::new(std::env::var(RUN).unwrap()).status();
            if self.fault == "report-and-die" {
                std::process::abort();
            }
        }
        self.asked.set(self.asked.get() + 1);
        let n_predict = body["n_predict"].as_u64().unwrap();
        let prompts = body["prompt"].as_array().unwrap();
        let single = !prompts[0].is_array();
        let prompts = match single {
            true => vec![&body["prompt"]],
            false => prompts.iter().collect(),
        };
        let mut text = String::new();
        for (index, prompt) in prompts.iter().enumerate() {
            let ids: Vec<u64> = (prompt.as_array().unwrap().iter())
                .map(|id| id.as_u64().unwrap())
                .collect();
            let tokens: Vec<u64> = (0..n_predict).map(|n| self.token(&ids, n)).collect();
            let comma = if index > 0 { "," } else { "" };
            let drafts = match (self.n_max, self.fault.as_str()) {
                (0, _) | (_, "no-drafts") => String::new(),
                _ => ",\"draft_n\":9,\"draft_n_accepted\":6".to_owned(),
            };
            let _ = write!(
                text,
                "{comma}{{\"index\":{index},\"tokens\":{tokens:?},\"tokens_evaluated\":{},\
                 \"timings\":{{\"predicted_n\":{n_predict}{drafts}{}}}}}",
                ids.len(),
                self.timings()
            );
        }
        (200, if single { text } else { format!("[{text}]") })
    }

    /// What the timings hold beside tokens: speeds with 1 % of noise and now and then an outlier,
    /// slower by the per cent that the fault says, and counters.
    fn timings(&self) -> String {
        let slow: f64 = match self.fault.strip_prefix("slow-") {
            Some(percent) => 1.0 + percent.parse::<f64>().unwrap() / 100.0,
            None => 1.0,
        };
        let uniform = || {
            let state = self.noise.get().wrapping_add(0x9e37_79b9_7f4a_7c15);
            self.noise.set(state);
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb) as f64 / u64::MAX as f64
        };
        let jitter: f64 = (0..12).map(|_| uniform()).sum::<f64>() - 6.0;
        let outlier = if uniform() < 0.02 { 1.3 } else { 1.0 };
        let speed = 100.0 / (slow * outlier * (0.01 * jitter).exp());
        let counters = match self.fault.as_str() {
            "no-counters" => String::new(),
            _ => format!(
                ",\"opencoti\":{{\"launches_dft\":{},\"cycles\":20,\"us_draft\":{}}}",
                40 + u64::from(self.fault == "more-launches"),
                (1e6 * uniform()) as u64
            ),
        };
        format!(",\"prompt_per_second\":{speed},\"predicted_per_second\":{speed}{counters}")
    }

    fn token(&self, ids: &[u64], n: u64) -> u64 {
        if self.fault == "die" && n == 40 {
            eprintln!("GGML_ASSERT(false) failed");
            std::process::abort();
        }
        if let Some(needle) = needle(ids) {
            let answer = match self.fault.as_str() {
                "forget" => b"I do not know".to_vec(),
                _ => needle,
            };
            return answer.get(n as usize).map_or(46, |byte| u64::from(*byte));
        }
        let plain = ids.iter().fold(n, |sum, id| (sum * 31 + id) % 509);
        match self.fault.as_str() {
            "one-id" => 0,
            // Only the prompt of three ids.
            "flip" if ids.len() == 3 && n == 17 => 510,
            "other-tokens" if n == 3 => 510,
            "random" => (plain + u64::from(std::process::id())) % 509,
            _ => plain,
        }
    }
}

/// A vocabulary in which each byte is a token.
fn text_of(body: &serde_json::Value) -> String {
    let ids = body["tokens"].as_array().unwrap().iter();
    let bytes: Vec<u8> = ids.map(|id| id.as_u64().unwrap() as u8).collect();
    let text = String::from_utf8_lossy(&bytes);
    serde_json::json!({ "content": text }).to_string()
}

/// The number of seven digits in a prompt of bytes.
fn needle(ids: &[u64]) -> Option<Vec<u8>> {
    let bytes: Vec<u8> = ids
        .iter()
        .map(|id| u8::try_from(*id).unwrap_or(0))
        .collect();
    let mut numbers = bytes.split(|byte| !byte.is_ascii_digit());
    numbers.find(|digits| digits.len() == 7).map(<[u8]>::to_vec)
}
