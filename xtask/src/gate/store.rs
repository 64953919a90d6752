//! The store of gate records: plain files below `target/gate/records/`.
//!
//! ```text
//! <run>/run.json      what the run set out to do, written before its first gate
//! <run>/<gate>.json   one record for each gate that came to an end
//! ```
//!
//! A run is a folder of its own and a file appears whole, so that writers need not know of each
//! other and a kill leaves complete records. Whoever reads takes nothing for granted: what cannot
//! be understood is a [`Skipped`] with its reason, and a gate that a run planned and has no
//! readable record of is missing, never passed.

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::error::{Error, Result, ResultExt};
use crate::model::{GateRecord, HostStamp, RunRecord, RunStamp, SkippedGate, write_json};
use crate::project::suggest;

/// Version of records and runs that is read and written.
pub const SCHEMA: u32 = 1;

/// Name of the file that a run begins with.
pub(super) const RUN: &str = "run.json";

/// Largest file that is read: records are some ten kilobytes.
const LARGEST: u64 = 64 << 20;

/// The store of one checkout.
#[derive(Clone, Debug)]
pub struct Store {
    dir: PathBuf,
}

/// A run that is being written.
#[derive(Clone, Debug)]
pub struct Writer {
    dir: PathBuf,
    stamp: RunStamp,
}

/// What a run sets out to do; see [`RunRecord`].
#[derive(Clone, Debug)]
pub struct Intent {
    /// What makes it again.
    pub command: String,
    /// Whether only the quick subsets run.
    pub quick: bool,
    /// Whether its gates were named one by one.
    pub named: bool,
    /// The gates that are to run.
    pub gates: Vec<String>,
    /// Gates that do not run.
    pub skipped: Vec<SkippedGate>,
    /// Where it runs.
    pub host: HostStamp,
}

/// A run as it was found.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRun {
    /// The folder's name.
    pub id: String,
    /// What it set out to do; absent where that cannot be read.
    pub plan: Option<RunRecord>,
    /// Its records: planned ones first, in that order.
    pub records: Vec<StoredRecord>,
    /// Planned gates without a readable record, and [backends](RunRecord::idle_name) that computed nothing.
    pub missing: Vec<String>,
    /// Files that could not be understood.
    pub skipped: Vec<Skipped>,
}

/// A record and where it lies.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredRecord {
    /// The file.
    pub file: PathBuf,
    /// The record.
    pub record: GateRecord,
}

/// A file that was left out, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skipped {
    /// The file.
    pub file: PathBuf,
    /// Why.
    pub reason: String,
}

impl Store {
    /// The store of the checkout whose folder of gates (`target/gate`) is `gates`.
    pub fn below(gates: &Path) -> Self {
        Store {
            dir: gates.join("records"),
        }
    }

    /// Begins a run. Its id is made of the time and of digits that no other run of the same
    /// second has. Where the newest run is of that second or later, as after a clock that was put
    /// back, it is of the second after that one: the newest must be the last.
    pub fn begin(&self, intent: Intent) -> Result<Writer> {
        fs_err::create_dir_all(&self.dir)?;
        let (id, dir, started) = loop {
            let now = jiff::Timestamp::now();
            let newest = self.runs()?.iter().rev().find_map(|id| begun(id));
            let time = match newest {
                Some(newest) if newest >= now => newest,
                _ => now,
            };
            let id = format!("{}-{}", time.strftime("%Y%m%dT%H%M%SZ"), tag(&now));
            let dir = self.dir.join(&id);
            match fs_err::create_dir(&dir) {
                Ok(()) => break (id, dir, now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error.into()),
            }
        };
        let stamp = RunStamp {
            id,
            host: intent.host,
        };
        let run = RunRecord {
            schema: SCHEMA,
            run: stamp.clone(),
            started,
            command: intent.command,
            quick: intent.quick,
            named: intent.named,
            gates: intent.gates,
            skipped: intent.skipped,
            idle: Vec::new(),
        };
        write_json(&dir.join(RUN), &run)?;
        Ok(Writer { dir, stamp })
    }

    /// Ids of all runs, oldest first.
    pub fn runs(&self) -> Result<Vec<String>> {
        let mut ids = Vec::new();
        for (name, path) in entries(&self.dir)? {
            if path.is_dir() {
                ids.push(name);
            }
        }
        Ok(ids)
    }

    /// The run whose id is, or alone begins with, `text`; `latest` is the newest.
    pub fn find(&self, text: &str) -> Result<String> {
        let mut runs = self.runs()?;
        if text == "latest" {
            return runs.pop().ok_or_else(|| {
                Error::usage("there is no record of a gate yet").hint("cargo xtask gate")
            });
        }
        if let Some(at) = runs.iter().position(|run| run == text) {
            return Ok(runs.swap_remove(at));
        }
        let begins = |run: &&String| !text.is_empty() && run.starts_with(text);
        match runs.iter().filter(begins).collect::<Vec<_>>().as_slice() {
            [one] => Ok((*one).clone()),
            [] => Err(
                Error::usage(format!("no run is `{text}` or begins with it"))
                    .hint(suggest(
                        text,
                        runs.iter().rev().take(8).map(String::as_str),
                        "runs",
                    ))
                    .hint("`latest` is the newest run; a path to a record works too"),
            ),
            several => Err(
                Error::usage(format!("{} runs begin with `{text}`", several.len())).hint(format!(
                    "they end with {} and {}",
                    several[0],
                    several[several.len() - 1]
                )),
            ),
        }
    }

    /// Reads a run.
    pub fn read(&self, id: &str) -> Result<StoredRun> {
        read_run(&self.dir.join(id))
    }
}

impl Writer {
    /// Says afterwards what the machine is, which nobody knew when the run began.
    pub fn on(&mut self, host: HostStamp) -> Result<()> {
        let file = self.dir.join(RUN);
        let mut run: RunRecord = crate::model::read_json(&file)?;
        self.stamp.host = host;
        run.run = self.stamp.clone();
        write_json(&file, &run)
    }

    /// Says afterwards that some of the planned gates could not run where they were to run.
    pub fn skip(&self, skipped: &[SkippedGate]) -> Result<()> {
        let file = self.dir.join(RUN);
        let mut run: RunRecord = crate::model::read_json(&file)?;
        run.gates
            .retain(|gate| !skipped.iter().any(|skipped| skipped.gate == *gate));
        run.skipped.extend_from_slice(skipped);
        write_json(&file, &run)
    }

    /// Says afterwards on which backends nothing was computed.
    pub fn idle(&self, backends: &[&str]) -> Result<()> {
        if backends.is_empty() {
            return Ok(());
        }
        let file = self.dir.join(RUN);
        let mut run: RunRecord = crate::model::read_json(&file)?;
        run.idle = backends.iter().map(|name| (*name).to_owned()).collect();
        write_json(&file, &run)
    }

    /// The run.
    pub fn stamp(&self) -> &RunStamp {
        &self.stamp
    }

    /// Stores a record, and says where.
    pub fn add(&self, record: &mut GateRecord) -> Result<PathBuf> {
        record.run = Some(self.stamp.clone());
        let file = self.dir.join(format!("{}.json", record.gate));
        write_json(&file, record)?;
        Ok(file)
    }
}

/// The second after the one in which a run began by its id, where the id says it.
fn begun(id: &str) -> Option<jiff::Timestamp> {
    let (time, _) = id.split_once('-')?;
    let time = jiff::civil::DateTime::strptime("%Y%m%dT%H%M%SZ", time).ok()?;
    let time = jiff::tz::Offset::UTC.to_timestamp(time).ok()?;
    time.checked_add(jiff::SignedDuration::from_secs(1)).ok()
}

/// Four digits from what differs between two runs of the same second.
fn tag(now: &jiff::Timestamp) -> String {
    let parts = [
        now.as_nanosecond().to_le_bytes().to_vec(),
        std::process::id().to_le_bytes().to_vec(),
    ];
    let digest = crate::model::Digest::of_parts(parts.iter().map(Vec::as_slice));
    digest.to_string()[..4].to_owned()
}

/// Reads the run that is the folder `dir`.
pub fn read_run(dir: &Path) -> Result<StoredRun> {
    let name = dir.file_name().unwrap_or_default();
    let mut run = StoredRun {
        id: name.to_string_lossy().into_owned(),
        plan: None,
        records: Vec::new(),
        missing: Vec::new(),
        skipped: Vec::new(),
    };
    if !dir.is_dir() {
        return Err(Error::usage(format!("{} is no run", dir.display())));
    }
    for (name, file) in entries(dir)? {
        if !name.ends_with(".json") || file.is_dir() {
            continue;
        }
        let skip = |reason| Skipped {
            file: file.clone(),
            reason,
        };
        if name == RUN {
            match read::<RunRecord>(&file) {
                Ok(plan) => run.plan = Some(plan),
                Err(reason) => run.skipped.push(skip(reason)),
            }
            continue;
        }
        match read::<GateRecord>(&file) {
            Ok(record) if format!("{}.json", record.gate) != name => run.skipped.push(skip(
                format!("it is the record of another gate: {}", record.gate),
            )),
            Ok(record) if is_of_another(&record, &run.id) => run
                .skipped
                .push(skip("it is the record of another run".to_owned())),
            Ok(record) => run.records.push(StoredRecord { file, record }),
            Err(reason) => run.skipped.push(skip(reason)),
        }
    }
    if run.plan.is_none()
        && !run
            .skipped
            .iter()
            .any(|skipped| skipped.file.ends_with(RUN))
    {
        run.skipped.push(Skipped {
            file: dir.join(RUN),
            reason: "it is missing: what the run set out to do is not known".to_owned(),
        });
    }
    if let Some(plan) = &run.plan {
        let place = |gate: &str| plan.gates.iter().position(|planned| planned == gate);
        let last = plan.gates.len();
        run.records
            .sort_by_key(|stored| place(&stored.record.gate).unwrap_or(last));
        let lacks = |gate: &&String| !run.records.iter().any(|s| s.record.gate == **gate);
        run.missing = plan.gates.iter().filter(lacks).cloned().collect();
        let idle = plan.idle.iter();
        run.missing
            .extend(idle.map(|backend| RunRecord::idle_name(backend)));
    }
    Ok(run)
}

/// Whether a record says that it belongs to another run than the one in whose folder it lies. A
/// folder that was given a name of its own has no run's id.
fn is_of_another(record: &GateRecord, folder: &str) -> bool {
    begun(folder).is_some() && record.run.as_ref().is_some_and(|run| run.id != folder)
}

/// Reads one record wherever it lies. What cannot be understood is a config error.
pub fn read_record(file: &Path) -> Result<StoredRecord> {
    let record = read(file)
        .map_err(Error::config)
        .context(|| file.display().to_string())?;
    Ok(StoredRecord {
        file: file.to_owned(),
        record,
    })
}

/// Reads a file of the store, or says in one line why not.
fn read<T: DeserializeOwned>(file: &Path) -> std::result::Result<T, String> {
    let size = fs_err::metadata(file).map_err(|error| error.to_string())?;
    if size.len() > LARGEST {
        return Err(format!("{} bytes are more than a record has", size.len()));
    }
    let text = fs_err::read_to_string(file).map_err(|error| error.to_string())?;
    let value: Value =
        serde_json::from_str(&text).map_err(|error| format!("it is damaged: {error}"))?;
    // The schema first: its number explains more than the first key that is new in it.
    match value.get("schema").map(Value::as_u64) {
        Some(Some(schema)) if schema == u64::from(SCHEMA) => {}
        Some(Some(schema)) => {
            return Err(format!(
                "schema {schema} is not understood; this program reads schema {SCHEMA}"
            ));
        }
        _ => return Err("it has no schema: it is no record of this program".to_owned()),
    }
    serde_json::from_value(value)
        .map_err(|error| format!("it does not fit schema {SCHEMA}: {error}"))
}

/// Entries of a folder by name, without temporary and hidden ones; none where there is no folder.
fn entries(dir: &Path) -> Result<Vec<(String, PathBuf)>> {
    let list = match fs_err::read_dir(dir) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        list => list?,
    };
    let mut entries = Vec::new();
    for entry in list {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            entries.push((name, entry.path()));
        }
    }
    entries.sort();
    Ok(entries)
}

#[cfg(test)]
mod tests;
