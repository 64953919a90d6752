//! A llama-server under test: started on a port of its own choice, watched, and always ended.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::{OsStr, OsString};
use std::hash::{BuildHasher, Hasher};
use std::path::{Path, PathBuf};
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind, Result};
use crate::gate::client::Client;
use crate::gate::orphans::{MARK, Mark};
use crate::gate::session::Halt;
use crate::process::{Group, Signal, describe, tied};
use log::{Growing, tail};
pub use log::{log_tail, log_text};

mod log;
pub mod sanitizer;

/// Variables of the user's environment that would change what a server computes.
const REMOVED: [&str; 3] = [crate::model::SWITCH_PREFIX, "LLAMA_", "GGML_"];

/// Variables by which the user's environment would put other code into a server, unseen. A side may set them.
const LOADERS: [&str; 3] = ["LD_PRELOAD", "LD_AUDIT", "DYLD_INSERT_LIBRARIES"];

/// How often a starting or answering server is looked at.
const POLL: Duration = Duration::from_millis(10);

/// Bytes of a log at which its server is stopped.
const LARGEST_LOG: u64 = 256 << 20;

/// Numbers of the signals that a server is ended with, everywhere.
const TERM: i32 = 15;
const KILL: i32 = 9;

/// How to start a server.
#[derive(Clone, Debug)]
pub struct Launch<'a> {
    /// The program.
    pub program: &'a Path,
    /// Its arguments, without address and key.
    pub args: Vec<OsString>,
    /// Variables that are set after the user's were removed.
    pub env: &'a BTreeMap<String, String>,
    /// Where its output goes.
    pub log: PathBuf,
    /// Whether it is what is judged: that it breaks down is a finding then, and else an error.
    pub is_judged: bool,
    /// Limit until it is ready.
    pub start: Duration,
    /// Limit of one request.
    pub request: Duration,
    /// Limit from asking it to end until it is killed.
    pub stop: Duration,
}

/// A running server. Dropping it ends its whole process group, and what left the group.
#[derive(Debug)]
pub struct Server {
    /// Absent where it ran already: then it is asked, and nothing else.
    process: Option<Started>,
    client: Client,
    is_judged: bool,
    /// Whether it was ready once.
    was_ready: bool,
}

/// What was started. The fields are dropped in this order: first its process group is ended, then
/// what has left the group.
#[derive(Debug)]
struct Started {
    process: Group,
    _escaped: Mark,
    log: PathBuf,
    /// The real path of what was named.
    program: Option<PathBuf>,
}

/// Names of the user's variables that no server under test gets, sorted.
pub fn removed_variables() -> Vec<OsString> {
    let mut names: Vec<OsString> = std::env::vars_os()
        .map(|(name, _)| name)
        .filter(|name| is_removed(name))
        .collect();
    names.sort();
    names
}

fn is_removed(name: &OsStr) -> bool {
    let name = name.to_string_lossy();
    LOADERS.contains(&name.as_ref()) || REMOVED.iter().any(|prefix| name.starts_with(prefix))
}

impl Server {
    /// Starts a server and waits until it is ready. Must be called on the thread that will own
    /// the server until its end.
    ///
    /// The server picks a free port itself (`--port 0`) and says in its log which; nobody else
    /// can take it in between.
    pub fn start(launch: &Launch<'_>, halt: &Halt) -> Result<Self> {
        let key = random_key();
        let mark = Mark::new();
        let log = fs_err::File::create(&launch.log)?.into_file();
        let mut command = tied(launch.program, Signal::Kill);
        for name in removed_variables() {
            command.env_remove(name);
        }
        command
            .args(&launch.args)
            .args(["--host", "127.0.0.1", "--port", "0"])
            // Not an argument: those are visible to every user of the machine.
            .env("LLAMA_API_KEY", &key)
            .env(MARK, mark.value())
            .envs(launch.env)
            .envs(sanitizer::ENV)
            .stdout(log.try_clone()?)
            .stderr(log);
        let process = Group::start(&mut command, launch.stop)?;
        let mut server = Server {
            process: Some(Started {
                process,
                _escaped: mark,
                log: launch.log.clone(),
                program: launch.program.canonicalize().ok(),
            }),
            client: Client::new(0, &key, launch.request),
            is_judged: launch.is_judged,
            was_ready: false,
        };
        match server.wait_ready(launch, &key, halt) {
            Ok(()) => {
                server.was_ready = true;
                Ok(server)
            }
            Err(error) => Err(server.explain(error)),
        }
    }

    /// A server that runs already, which `client` talks to. It is never ended.
    pub fn running(client: Client) -> Self {
        Server {
            process: None,
            client,
            is_judged: false,
            was_ready: true,
        }
    }

    /// How it ended, where it was started here and has.
    fn ended(&mut self) -> Result<Option<ExitStatus>> {
        match &mut self.process {
            Some(started) => started.process.ended(),
            None => Ok(None),
        }
    }

    fn wait_ready(&mut self, launch: &Launch<'_>, key: &str, halt: &Halt) -> Result<()> {
        let begun = Instant::now();
        let mut port = None;
        let mut log = Growing::default();
        loop {
            halt.check()?;
            if let Some(status) = self.ended()? {
                return Err(Error::environment(format!(
                    "the server ended during its start {}",
                    describe(status)
                )));
            }
            self.check_log()?;
            if port.is_none() {
                port = log.port(&launch.log);
                if let Some(port) = port {
                    self.client = Client::new(port, key, launch.request);
                }
            }
            if port.is_some() && self.client.healthy() {
                return Ok(());
            }
            if begun.elapsed() > launch.start {
                let missing = match port {
                    None => "it has not said on which port it listens",
                    Some(_) => "it listens, but is not healthy",
                };
                return Err(Error::environment(format!(
                    "the server was not ready within {} s: {missing}",
                    launch.start.as_secs_f64()
                ))
                .hint("raise limits.start in the gate's definition if the model is that large"));
            }
            std::thread::sleep(POLL);
        }
    }

    /// Its process id, where it was started here.
    pub fn id(&self) -> Option<u32> {
        self.process.as_ref().map(|started| started.process.id())
    }

    /// A server that says the same thing for ever must not fill the disk.
    fn check_log(&self) -> Result<()> {
        let Some(Started { log, .. }) = &self.process else {
            return Ok(());
        };
        let size = std::fs::metadata(log).map_or(0, |meta| meta.len());
        if size <= LARGEST_LOG {
            return Ok(());
        }
        Err(Error::environment(format!(
            "the server has written more than {} MiB to its log",
            LARGEST_LOG >> 20
        ))
        .hint("make it say less; the gate keeps what a server says until it is over"))
    }

    /// Lets `ask` talk to the server. Ends the server, and with it the request, as soon as
    /// `halt` is set. An error says how the server died, where it did, and what it said last.
    pub fn ask<T: Send>(
        &mut self,
        halt: &Halt,
        ask: impl FnOnce(&Client) -> Result<T> + Send,
    ) -> Result<T> {
        let client = self.client.clone();
        let result = std::thread::scope(|scope| {
            let asking = scope.spawn(move || ask(&client));
            while !asking.is_finished() {
                let talks_too_much = self.check_log();
                if talks_too_much.is_err() {
                    self.stop()?;
                    return talks_too_much.and(Err(Error::interrupted()));
                }
                if halt.is_set() || self.ended()?.is_some() {
                    // Its connection closes, which ends the request. One that runs already is
                    // waited for, until the time limit of the request.
                    self.stop()?;
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            match asking.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        });
        match result {
            Ok(value) => Ok(value),
            Err(_) if halt.is_set() => halt.check().and(Err(Error::interrupted())),
            Err(error) => Err(self.explain(error)),
        }
    }

    /// Where it writes its log, where it was started here.
    pub fn log(&self) -> Option<&Path> {
        self.process.as_ref().map(|started| started.log.as_path())
    }

    /// Ends it, and says whether it had to be killed. What a sanitizer in it reported in all its life is a finding.
    /// That it was gone before it was asked to, or that it broke down on the way, is an error: what it answered last
    /// may be half of what it would have said.
    pub fn end(mut self) -> Result<bool> {
        let Some(started) = &mut self.process else {
            return Ok(false);
        };
        let mut killed = false;
        let fault = match started.process.ended()? {
            Some(status) => Some(format!(
                "the server ended {} before it was asked to",
                describe(status)
            )),
            None => {
                let status = started.process.end()?;
                killed = started.process.was_killed();
                let is_well = killed || ends_well(status);
                (!is_well).then(|| {
                    format!(
                        "the server ended {} when it was asked to end",
                        describe(status)
                    )
                })
            }
        };
        if let Some(fault) = fault {
            return Err(self.explain(Error::environment(fault)));
        }
        match self.log().and_then(sanitizer::finding) {
            Some(report) => Err(report),
            None => Ok(killed),
        }
    }

    fn stop(&mut self) -> Result<()> {
        if let Some(started) = &mut self.process {
            started.process.end()?;
        }
        Ok(())
    }

    /// Adds what is known of the server's fate and its last words.
    fn explain(&mut self, error: Error) -> Error {
        let Some(Started { log, .. }) = &self.process else {
            return error;
        };
        if error.kind() == Kind::Interrupted {
            return error;
        }
        let log = log.clone();
        // A dying server closes its connections a moment before it is gone.
        let begun = Instant::now();
        let mut ended = None;
        while ended.is_none() && begun.elapsed() < Duration::from_millis(200) {
            ended = self.ended().ok().flatten();
            std::thread::sleep(POLL);
        }
        let mut message = error.message().to_owned();
        if let Some(status) = ended
            && !message.contains("the server ended")
        {
            message = format!("the server ended {} ({message})", describe(status));
        }
        message.push_str(&format!("\nthe end of {}:", log.display()));
        for line in tail(&log) {
            message.push_str("\n  | ");
            message.push_str(&line);
        }
        let is_fault = self.is_judged && ended.is_some_and(|status| broke(status, self.was_ready));
        let kind = match is_fault {
            true => Kind::Finding,
            false => error.kind(),
        };
        // That is why, whatever the client saw of it.
        let report = sanitizer::finding(&log);
        let mut explained = match &report {
            Some(report) => Error::finding(format!("{}\n{message}", report.message())),
            None => Error::new(kind, message),
        };
        for context in error.contexts() {
            explained = explained.context(context.clone());
        }
        for hint in error.hints() {
            explained = explained.hint(hint.clone());
        }
        explained
    }

    /// The llama.cpp libraries that it has really loaded, the llama.cpp programs that run, and the named program
    /// where that runs, whatever it is called; `None` where the system cannot tell. It may be a script that
    /// starts the server, so every process of its group is looked at.
    pub fn loaded_files(&self) -> Option<BTreeSet<PathBuf>> {
        let named = self.process.as_ref()?.program.as_deref();
        let mut found = files_of(self.id()?, named)?;
        for id in self.companions()? {
            // One that has just ended has nothing loaded.
            found.extend(files_of(id, named).unwrap_or_default());
        }
        Some(found)
    }

    /// Most bytes of memory that its largest process has had resident so far; `None` where the
    /// system cannot tell.
    pub fn peak_memory(&self) -> Option<u64> {
        let own = peak_of(self.id()?)?;
        let companions = self.companions()?.into_iter();
        Some(companions.filter_map(peak_of).fold(own, u64::max))
    }

    /// The other processes of its group.
    fn companions(&self) -> Option<Vec<u32>> {
        let own = self.id()?;
        let mut found = Vec::new();
        for entry in std::fs::read_dir("/proc").ok()?.flatten() {
            let name = entry.file_name();
            let Some(id) = name.to_str().and_then(|name| name.parse::<u32>().ok()) else {
                continue;
            };
            let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            if id != own && process_group(&stat) == Some(own) {
                found.push(id);
            }
        }
        Some(found)
    }
}

/// Whether a server that was asked to end did no more than that. A shell says that a signal ended
/// its child by adding 128.
fn ends_well(status: ExitStatus) -> bool {
    match status.code() {
        Some(code) => code == 0 || code == 128 + TERM,
        None => signal(status) == Some(TERM),
    }
}

/// Whether this end is the server's own fault. What kills with no reason is short of memory; what
/// ends with a code before it is ready says that it cannot run here.
fn broke(status: ExitStatus, was_ready: bool) -> bool {
    match signal(status) {
        Some(signal) => ![TERM, KILL].contains(&signal),
        None => was_ready,
    }
}

#[cfg(unix)]
fn signal(status: ExitStatus) -> Option<i32> {
    std::os::unix::process::ExitStatusExt::signal(&status)
}

#[cfg(not(unix))]
fn signal(_: ExitStatus) -> Option<i32> {
    None
}

/// See [`Server::loaded_files`]; of one process.
fn files_of(id: u32, named: Option<&Path>) -> Option<BTreeSet<PathBuf>> {
    let mut files = libraries(&std::fs::read_to_string(format!("/proc/{id}/maps")).ok()?);
    if let Ok(program) = std::fs::read_link(format!("/proc/{id}/exe"))
        && (named == Some(&*program)
            || is_program(&program.file_name().unwrap_or_default().to_string_lossy()))
    {
        files.insert(program);
    }
    Some(files)
}

/// See [`Server::peak_memory`]; of one process.
fn peak_of(id: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes << 10)
}

/// The process group in a line of `/proc/<pid>/stat`: the third field after the name, which
/// stands in parentheses and may itself hold any.
fn process_group(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_ascii_whitespace().nth(2)?.parse().ok()
}

/// Whether `name` is a program of llama.cpp.
pub fn is_program(name: &str) -> bool {
    name.starts_with("llama-")
}

/// Whether `name` is a library of llama.cpp.
pub fn is_library(name: &str) -> bool {
    ["libggml", "libllama", "libmtmd"]
        .iter()
        .any(|prefix| name.starts_with(prefix))
        && (name.contains(".so") || name.ends_with(".dylib"))
}

/// The llama.cpp libraries among the mapped files of `/proc/<pid>/maps`.
fn libraries(maps: &str) -> BTreeSet<PathBuf> {
    maps.lines()
        .filter_map(|line| line.find('/').map(|at| Path::new(&line[at..])))
        .filter(|path| {
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            is_library(&name)
        })
        .map(Path::to_path_buf)
        .collect()
}

/// 128 bits that nobody can guess: the standard library seeds its hashers from the system.
fn random_key() -> String {
    let half = || {
        let mut hasher = std::collections::hash_map::RandomState::new().build_hasher();
        hasher.write_u32(std::process::id());
        hasher.finish()
    };
    format!("{:016x}{:016x}", half(), half())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn switches_of_the_user_are_removed() {
        for name in [
            "OPENCOTI_X",
            "LLAMA_ARG_PORT",
            "GGML_CUDA_DISABLE_GRAPHS",
            "LD_PRELOAD",
            "LD_AUDIT",
        ] {
            assert!(is_removed(OsStr::new(name)), "{name}");
        }
        for name in ["PATH", "LD_LIBRARY_PATH", "CUDA_VISIBLE_DEVICES"] {
            assert!(!is_removed(OsStr::new(name)), "{name}");
        }
    }

    #[test]
    fn mapped_libraries_are_found() {
        let maps = "\
7f00-7f01 r-xp 00000000 fd:01 7  /x y/out/bin/libllama.so.0.5.0
7f01-7f02 r--p 00000000 fd:01 7  /x y/out/bin/libllama.so.0.5.0
7f02-7f03 r-xp 00000000 fd:01 8  /usr/lib/libggml-base.so.0 (deleted)
7f03-7f04 r-xp 00000000 fd:01 9  /usr/lib/libc.so.6
7f04-7f05 rw-p 00000000 00:00 0  [heap]
7f05-7f06 r--s 00000000 fd:01 9  /models/libllama.gguf
";
        let found: Vec<PathBuf> = libraries(maps).into_iter().collect();
        let expected = [
            "/usr/lib/libggml-base.so.0 (deleted)",
            "/x y/out/bin/libllama.so.0.5.0",
        ];
        assert_eq!(found, expected.map(PathBuf::from));
    }

    #[test]
    fn the_process_group_is_found_behind_any_name() {
        assert_eq!(process_group("77 (a) b) S 1 42 42 0 -1"), Some(42));
        assert_eq!(process_group(""), None);
    }

    #[test]
    #[cfg(unix)]
    fn an_end_is_told_from_a_breakdown() {
        use std::os::unix::process::ExitStatusExt;
        let code = |code: i32| ExitStatus::from_raw(code << 8);
        let signal = ExitStatus::from_raw;
        for well in [code(0), code(143), signal(15)] {
            assert!(ends_well(well), "{well}");
        }
        for ill in [code(1), code(134), signal(6), signal(9), signal(11)] {
            assert!(!ends_well(ill), "{ill}");
        }
        assert!(broke(signal(11), false) && broke(signal(6), true) && broke(code(1), true));
        assert!(!broke(code(1), false) && !broke(signal(9), true) && !broke(signal(15), true));
    }

    #[test]
    fn keys_differ() {
        assert_ne!(random_key(), random_key());
        assert_eq!(random_key().len(), 32);
    }
}
