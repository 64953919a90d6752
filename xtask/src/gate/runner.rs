//! [`Runner`] with real servers.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use crate::error::{Error, Kind, Result, ResultExt};
use crate::gate::client::Sampling;
use crate::gate::effect::{Asides, Effects, Ran};
use crate::gate::ending::{self, Ending, Ends};
use crate::gate::identity::Side;
use crate::gate::server::{Launch, Server, log_text};
use crate::gate::session::{Answers, Halt, Run, Runner, Session};
use crate::model::{ChashGate, Digest};

/// The variable that makes a server trace its drafts into a file.
pub const TRACE: &str = "OPENCOTI_SPEC_TRACE";

/// The variable that names the part of the vocabulary that drafts are over, and the one of the file to which it
/// is written.
const PART: [&str; 2] = ["OPENCOTI_DRAFT_VOCAB", "OPENCOTI_DRAFT_VOCAB_TRACE"];

/// Starts one server per session.
#[derive(Debug)]
pub struct ServerRunner<'a> {
    /// The definition.
    pub definition: &'a ChashGate,
    /// The model file.
    pub model: &'a Path,
    /// The draft model file, where there is one.
    pub draft_model: Option<&'a Path>,
    /// What is compared with.
    pub baseline: &'a Side,
    /// What is judged.
    pub candidate: &'a Side,
    /// What the switches of both say in a server's log.
    pub effects: &'a Effects,
    /// Why switches did not do what they are taken for.
    pub doubts: Mutex<Vec<String>>,
    /// How often switches stood aside, by whether it was on the candidate, and by name.
    pub asides: Mutex<BTreeMap<(bool, String), Asides>>,
    /// How the servers of baseline and candidate ended.
    pub ends: Mutex<[Ends; 2]>,
    /// The folder for logs.
    pub logs: PathBuf,
}

impl Runner for ServerRunner<'_> {
    fn run(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
        let flags = match (session.trace, session.flags) {
            (None, [_, ..]) => format!(" and {}", session.flags.join(" ")),
            _ => String::new(),
        };
        let name = format!(
            "{} with n_max {} and {} slot(s){flags}",
            session.run.name(),
            session.n_max,
            session.slots
        );
        self.live(session, halt).context(|| name)
    }
}

impl ServerRunner<'_> {
    fn live(&self, session: &Session<'_>, halt: &Halt) -> Result<Answers> {
        // Two settings must not share a log.
        let setting = match (session.trace, session.flags) {
            (Some(name), _) => format!("-{name}"),
            (None, []) => String::new(),
            (None, flags) => {
                let flags = flags.iter().map(String::as_bytes);
                format!("-{}", &Digest::of_parts(flags).to_string()[..8])
            }
        };
        let name = format!(
            "{}{setting}-n{}-s{}",
            session.run.name(),
            session.n_max,
            session.slots
        );
        let mut server = self.start(session, &name, halt)?;
        let sampling = Sampling {
            n_predict: self.definition.n_predict,
            seed: self.definition.seed,
        };
        let mut answers = Answers::default();
        for wave in &session.waves {
            let names: Vec<&str> = wave.iter().map(|prompt| prompt.name.as_str()).collect();
            let answer = server
                .ask(halt, |client| client.complete(wave, sampling))
                .context(|| format!("prompt {}", names.join(" beside ")))?;
            answers.waves.push(answer);
        }
        if session.slots > 1 {
            answers.busy_slots = server.ask(halt, |client| Ok(client.busy_slots()))?;
        }
        if session.n_max > 0 {
            answers.drafts = server.ask(halt, |client| Ok(client.drafts()))?;
        }
        let is_started = server.id().is_some();
        self.end(server, session, &name)?;
        if is_started && session.slots > 1 && answers.busy_slots.is_none() {
            return Err(Error::new(
                Kind::Inconclusive,
                "the server does not tell how many slots were busy at the same time",
            )
            .hint("its /metrics must have llamacpp:n_busy_slots_per_decode"));
        }
        if session.trace.is_some() {
            let file = self.trace(&name);
            if !file.exists() {
                return Err(Error::new(
                    Kind::Inconclusive,
                    "the server wrote no trace of its drafts",
                )
                .hint("its build needs the patch `spec-trace`"));
            }
            answers.trace = Some(fs_err::read_to_string(file)?);
            let file = self.vocabulary(&name);
            if file.exists() {
                answers.vocabulary = Some(fs_err::read_to_string(file)?);
            }
        }
        Ok(answers)
    }

    /// Starts the server of a session, and checks what it has loaded. `name` is that of its log.
    pub fn start(&self, session: &Session<'_>, name: &str, halt: &Halt) -> Result<Server> {
        let side = self.side(session.run);
        if let Some(running) = &side.running {
            return Ok(Server::running(running.client.clone()));
        }
        let limits = &self.definition.limits;
        let mut env = self.env(session, name);
        let mut args = self.args(session);
        if let Some(device) = &side.device {
            env.extend(device.env.clone());
            args.extend(device.flags().map(OsString::from));
        }
        let log = self.logs.join(format!("{name}.log"));
        let launch = Launch {
            program: &side.program,
            args,
            env: &env,
            log: log.clone(),
            is_judged: session.run == Run::Candidate,
            start: Duration::from_secs(limits.start),
            request: Duration::from_secs(limits.request),
            stop: Duration::from_secs(limits.stop),
        };
        let server = Server::start(&launch, halt)?;
        if let Some(loaded) = server.loaded_files() {
            side.check_loaded(&loaded)?;
        }
        side.check_device(&log_text(&log))
            .context(|| format!("the log {}", log.display()))?;
        Ok(server)
    }

    /// Ends the server of a session, which must end well, and reads in its log whether its switches did
    /// anything. `name` is that of its log.
    pub fn end(&self, server: Server, session: &Session<'_>, name: &str) -> Result<()> {
        let Some(log) = server.log().map(Path::to_path_buf) else {
            return Ok(());
        };
        let killed = server.end()?;
        self.count(session.run, killed);
        let drafts = session.n_max > 0 && self.definition.spec_type.contains("draft-mtp");
        self.hear(session.run, name, (&self.env(session, name), drafts), &log)
    }

    /// Ends a server that was asked for nothing that it would have computed: its log tells nothing of switches.
    pub fn end_idle(&self, server: Server, run: Run) -> Result<()> {
        if server.id().is_some() {
            let killed = server.end()?;
            self.count(run, killed);
        }
        Ok(())
    }

    /// Reads in the log of what has ended whether its switches did anything. `name` is that of the log, and with
    /// its variables stands whether it drafted.
    pub fn hear(
        &self,
        run: Run,
        name: &str,
        (env, drafts): (&BTreeMap<String, String>, bool),
        log: &Path,
    ) -> Result<()> {
        let ran = Ran {
            env,
            drafts,
            is_ours: self.side(run).is_ours,
        };
        let told = self.effects.told(ran, log)?;
        let mut asides = self.asides.lock().unwrap_or_else(|lock| lock.into_inner());
        for (switch, line) in told.aside {
            let key = (run == Run::Candidate, switch);
            asides.entry(key).or_default().add(line);
        }
        drop(asides);
        if let Some(doubt) = told.doubt {
            let mut doubts = self.doubts.lock().unwrap_or_else(|lock| lock.into_inner());
            doubts.push(format!("{name}: {doubt}"));
        }
        Ok(())
    }

    fn count(&self, run: Run, killed: bool) {
        let mut ends = self.ends.lock().unwrap_or_else(|lock| lock.into_inner());
        let [baseline, candidate] = &mut *ends;
        let side = match run {
            Run::Baseline | Run::Control => baseline,
            Run::Candidate => candidate,
        };
        side.asked += 1;
        side.killed += usize::from(killed);
    }

    /// What the ends of all servers say of the candidate. Asked when all have ended.
    pub fn ending(&self) -> Ending {
        let ends = self.ends.lock().unwrap_or_else(|lock| lock.into_inner());
        let [baseline, candidate] = *ends;
        ending::judge(baseline, candidate)
    }

    /// Why what was compared says nothing of the switches that were set, where it does not. Asked when
    /// all servers have ended.
    pub fn doubt(&self) -> Option<String> {
        let doubts = self.doubts.lock().unwrap_or_else(|lock| lock.into_inner());
        let mut doubts = doubts.clone();
        // Servers that run side by side end in any order.
        doubts.sort();
        let more = match doubts.len() {
            0 | 1 => String::new(),
            all => format!(" (and {} more servers)", all - 1),
        };
        if let Some(first) = doubts.first() {
            return Some(format!("{first}{more}"));
        }
        let asides = self.asides.lock().unwrap_or_else(|lock| lock.into_inner());
        asides.iter().find_map(|((is_candidate, switch), asides)| {
            let side = if *is_candidate {
                "candidate"
            } else {
                "baseline"
            };
            Some(format!("{side}: {}", asides.doubt(switch)?))
        })
    }

    /// The variables of a session's server: those of its side, and those of what it traces.
    fn env(&self, session: &Session<'_>, name: &str) -> BTreeMap<String, String> {
        let mut env = self.side(session.run).env.clone();
        if session.trace.is_some() {
            let trace = self.trace(name).to_string_lossy().into_owned();
            env.insert(TRACE.to_owned(), trace);
            let [part, told] = PART;
            if env.contains_key(part) {
                let file = self.vocabulary(name).to_string_lossy().into_owned();
                env.insert(told.to_owned(), file);
            }
        }
        env
    }

    /// The side that a run is of.
    pub fn side(&self, run: Run) -> &Side {
        match run {
            Run::Baseline | Run::Control => self.baseline,
            Run::Candidate => self.candidate,
        }
    }

    fn trace(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.trace"))
    }

    fn vocabulary(&self, name: &str) -> PathBuf {
        self.logs.join(format!("{name}.vocabulary"))
    }

    /// Everything that could make two runs differ is off: other threads' sums, prompts that
    /// join a running batch, state kept from earlier prompts.
    fn args(&self, session: &Session<'_>) -> Vec<OsString> {
        let mut args: Vec<OsString> = vec!["-m".into(), self.model.into()];
        let mut push = |words: &[&str]| args.extend(words.iter().map(OsString::from));
        let slots = session.slots.to_string();
        let context = (self.definition.context.saturating_mul(session.slots)).to_string();
        push(&["-c", &context, "-np", &slots, "-t", "1", "-tb", "1"]);
        push(&["--no-cont-batching", "-fit", "off", "--no-warmup"]);
        push(&["--ctx-checkpoints", "0", "--cache-ram", "0", "--metrics"]);
        if session.n_max > 0 {
            let n_max = session.n_max.to_string();
            push(&["--spec-type", &self.definition.spec_type]);
            push(&["--spec-draft-n-max", &n_max]);
            // Only here: a server that is given one drafts with it.
            if let Some(file) = self.draft_model {
                args.extend(["--spec-draft-model".into(), file.into()]);
            }
        }
        let flags = self.definition.flags.iter().chain(session.flags);
        args.extend(flags.map(OsString::from));
        args
    }
}

/// Removes the logs of a run that went well.
pub fn remove_logs(logs: &Path) -> Result<()> {
    match fs_err::remove_dir_all(logs) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::from(error).context("removing server logs"))
        }
        _ => Ok(()),
    }
}
