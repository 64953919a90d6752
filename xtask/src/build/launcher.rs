//! Compiler launchers: which one a build calls, and what it did for that build.
//!
//! | launcher | what it brings | how its work is counted |
//! | --- | --- | --- |
//! | ccache | objects from a folder, or from Redis or HTTP behind it | its log of results, which is of this build alone |
//! | sccache | objects from what its server was started with | its server's counters before and after |
//! | icecc | other machines' processors | not at all |

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::build::lookup::Lookup;
use crate::build::packages::{Package, install_command};
use crate::build::tools::{self, Program};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::Toolchains;
use crate::process;

/// The variable that chooses one where `--launcher` does not.
pub const VAR: &str = "LLAMA_PATCHSET_LAUNCHER";

/// Launchers that can be asked for.
pub const KNOWN: [&str; 3] = ["ccache", "sccache", "icecc"];

/// What the launcher did for the last build of a folder that compiled anything.
const FILE: &str = "launcher.json";
/// Where ccache writes what became of each file.
const LOG: &str = "launcher.log";

/// A machine on which the launcher is chosen, whatever its variables say.
pub struct Chosen<'a> {
    /// The machine.
    pub machine: &'a dyn Lookup,
    /// What [`VAR`] would be set to.
    pub launcher: &'a str,
}

impl Lookup for Chosen<'_> {
    fn find(&self, name: &str) -> Option<PathBuf> {
        self.machine.find(name)
    }

    fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
        self.machine.output(program, args)
    }

    fn var(&self, name: &str) -> Option<String> {
        match name {
            VAR => Some(self.launcher.to_owned()),
            name => self.machine.var(name),
        }
    }

    fn free_space(&self, path: &Path) -> Option<u64> {
        self.machine.free_space(path)
    }

    fn writable(&self, path: &Path) -> bool {
        self.machine.writable(path)
    }

    fn text(&self, path: &Path) -> Option<String> {
        self.machine.text(path)
    }

    fn mark(&self, path: &Path) -> Option<String> {
        self.machine.mark(path)
    }

    fn is_file(&self, path: &Path) -> bool {
        self.machine.is_file(path)
    }
}

/// The launcher that was asked for, or the first one of the registry that is there. One that was
/// asked for and is not there is an error: a build that takes an hour longer than it should is
/// noticed too late.
pub fn choose(lookup: &dyn Lookup, wanted: &Toolchains) -> Result<Option<Program>> {
    let name = match lookup.var(VAR).as_deref() {
        None | Some("" | "auto") => return Ok(tools::launcher(lookup, wanted)),
        Some("none") => return Ok(None),
        Some(name) => KNOWN.iter().find(|known| **known == name).ok_or_else(|| {
            let known = KNOWN.iter().chain(&["auto", "none"]).copied();
            Error::usage(format!("unknown compiler launcher `{name}`"))
                .hint(crate::project::suggest(name, known, "launchers"))
        })?,
    };
    let there = lookup.find(name).and_then(|path| {
        let version = lookup.version(&path)?;
        Some(Program { path, version })
    });
    there.map(Some).ok_or_else(|| {
        Error::environment(format!("{name} was asked for, and it is not installed"))
            .hint(install_command(lookup, &[Package::Named(name)]))
            .hint("or leave the choice to the build: --launcher auto")
    })
}

/// What a launcher did for one build.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LauncherStats {
    /// `ccache`, `sccache` or `icecc`.
    pub name: String,
    /// Files that were not compiled, since their object was there.
    pub hits: u64,
    /// Those of them whose object came over the network; 0 where that is not told.
    pub remote_hits: u64,
    /// Files that were compiled, and whose object was kept.
    pub misses: u64,
    /// Calls that cannot be cached.
    pub uncached: u64,
    /// Files for which the cache or its remote end did not answer.
    pub errors: u64,
    /// Whether the figures are of this build alone; a server's counters are of all its users.
    pub exact: bool,
}

impl LauncherStats {
    fn is_nothing(&self) -> bool {
        self.hits + self.misses + self.uncached + self.errors == 0
    }

    /// `ccache: 198 of 199 objects were there (12 of them over the network)`.
    pub fn summary(&self) -> String {
        let of = self.hits + self.misses;
        let mut text = format!("{}: {} of {of} objects were there", self.name, self.hits);
        if self.remote_hits > 0 {
            text.push_str(&format!(", {} over the network", self.remote_hits));
        }
        if self.uncached > 0 {
            text.push_str(&format!("; {} calls cannot be cached", self.uncached));
        }
        if self.errors > 0 {
            text.push_str(&format!("; the cache did not answer {} times", self.errors));
        }
        if !self.exact {
            text.push_str(" (as its server counts, for all its users)");
        }
        text
    }
}

/// What the launcher did for the last build in `dir` that compiled anything.
pub fn last(dir: &Path) -> Option<LauncherStats> {
    crate::model::read_json(&dir.join(FILE)).ok()
}

/// The launcher of a build that is about to run.
pub struct Watch<'a> {
    lookup: &'a dyn Lookup,
    launcher: Option<&'a Program>,
    dir: &'a Path,
    before: LauncherStats,
}

/// Looks at the launcher before a build in `dir`. One that cannot work is said here, where
/// otherwise every single compilation would fail.
pub fn begin<'a>(
    ctx: &Ctx,
    lookup: &'a dyn Lookup,
    launcher: Option<&'a Program>,
    dir: &'a Path,
) -> Result<Watch<'a>> {
    for name in [FILE, LOG] {
        match fs_err::remove_file(dir.join(name)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
    }
    let mut watch = Watch {
        lookup,
        launcher,
        dir,
        before: LauncherStats::default(),
    };
    match watch.name().as_deref() {
        Some("sccache") => {
            if watch.counted().is_none() {
                start_sccache(ctx, launcher)?;
            }
            watch.before = watch.counted().unwrap_or_default();
        }
        Some("icecc") if !has_iceccd(lookup) => ctx.sink.warn(
            "icecc finds no iceccd on this machine, so that it compiles everything here: start it \
             with its scheduler (iceccd -d -s HOST)",
        ),
        _ => {}
    }
    Ok(watch)
}

fn start_sccache(ctx: &Ctx, launcher: Option<&Program>) -> Result<()> {
    let Some(program) = launcher else {
        return Ok(());
    };
    let mut command = Command::new(&program.path);
    command.arg("--start-server");
    let done = process::capture(ctx, &mut command).context(|| "starting sccache".to_owned())?;
    // One of an older version, which does not tell its counters, runs already.
    if done.status.success() || done.output.contains("Address already in use") {
        return Ok(());
    }
    let said = process::last_lines(&done.output, 2);
    Err(
        Error::environment(format!("the server of sccache does not start: {said}"))
            .hint("look at its variables (SCCACHE_…): the cache that they name may not be built in")
            .hint("or take another launcher: --launcher ccache, --launcher none"),
    )
}

/// Whether a daemon of icecc listens where its client looks for one.
fn has_iceccd(lookup: &dyn Lookup) -> bool {
    use std::os::unix::fs::FileTypeExt;
    let socket =
        |path: PathBuf| std::fs::metadata(path).is_ok_and(|meta| meta.file_type().is_socket());
    if let Some(path) = lookup.var("ICECC_TEST_SOCKET") {
        return socket(path.into());
    }
    let home = lookup.var("HOME").map(PathBuf::from);
    let own = home.map(|home| home.join(".iceccd.socket"));
    ["/var/run/icecc/iceccd.socket", "/var/run/iceccd.socket"]
        .map(PathBuf::from)
        .into_iter()
        .chain(own)
        .any(socket)
}

impl Watch<'_> {
    fn name(&self) -> Option<String> {
        self.launcher.map(Program::name)
    }

    /// What the launcher of `command` is told besides.
    pub fn apply(&self, command: &mut Command) {
        if self.name().as_deref() == Some("ccache") {
            command.env("CCACHE_STATSLOG", self.dir.join(LOG));
        }
    }

    /// What the launcher did since [`begin`]; nothing where it did nothing, or does not tell.
    pub fn end(self, ctx: &Ctx) -> Result<Option<LauncherStats>> {
        let mut stats = match self.name().as_deref() {
            Some("ccache") => {
                let log = std::fs::read(self.dir.join(LOG)).unwrap_or_default();
                of_log(&String::from_utf8_lossy(&log))
            }
            Some("sccache") => match self.counted() {
                Some(after) => less(&after, &self.before),
                None => return Ok(None),
            },
            _ => return Ok(None),
        };
        if stats.is_nothing() {
            return Ok(None);
        }
        stats.name = self.name().unwrap_or_default();
        crate::model::write_json(&self.dir.join(FILE), &stats)?;
        ctx.sink.note(&stats.summary());
        Ok(Some(stats))
    }

    /// What sccache's server has counted; nothing where none runs.
    fn counted(&self) -> Option<LauncherStats> {
        let program = &self.launcher?.path;
        let text = (self.lookup).output(program, &["--show-stats", "--stats-format=json"])?;
        of_server(&text)
    }
}

/// Reads ccache's log of results: a line `# <file>` for each call, then what became of it.
fn of_log(text: &str) -> LauncherStats {
    let mut stats = LauncherStats {
        exact: true,
        ..LauncherStats::default()
    };
    let (mut calls, mut failed) = (0, false);
    for line in text.lines() {
        match line {
            line if line.starts_with('#') => {
                calls += 1;
                stats.errors += u64::from(std::mem::take(&mut failed));
            }
            "direct_cache_hit" | "preprocessed_cache_hit" => stats.hits += 1,
            "cache_miss" => stats.misses += 1,
            "remote_storage_hit" | "secondary_storage_hit" => stats.remote_hits += 1,
            "remote_storage_error"
            | "remote_storage_timeout"
            | "secondary_storage_error"
            | "secondary_storage_timeout" => failed = true,
            _ => {}
        }
    }
    stats.errors += u64::from(failed);
    stats.uncached = u64::saturating_sub(calls, stats.hits + stats.misses);
    stats
}

/// Reads what `sccache --show-stats --stats-format=json` prints.
fn of_server(text: &str) -> Option<LauncherStats> {
    // A line on stderr may stand behind it.
    let value = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let value = value.filter_map(std::result::Result::ok).next()?;
    let stats = value.get("stats")?;
    let sum = |name: &str| -> u64 {
        match stats.get(name) {
            Some(Value::Number(number)) => number.as_u64().unwrap_or_default(),
            Some(Value::Object(map)) => {
                let counts = map.get("counts").and_then(Value::as_object);
                let counts = counts.into_iter().flat_map(|counts| counts.values());
                counts.filter_map(Value::as_u64).sum()
            }
            _ => 0,
        }
    };
    Some(LauncherStats {
        hits: sum("cache_hits"),
        misses: sum("cache_misses"),
        uncached: sum("requests_not_cacheable"),
        errors: sum("cache_errors") + sum("cache_read_errors") + sum("cache_write_errors"),
        ..LauncherStats::default()
    })
}

fn less(after: &LauncherStats, before: &LauncherStats) -> LauncherStats {
    // A server that was started anew meanwhile counts from nothing.
    let less = |pick: fn(&LauncherStats) -> u64| pick(after).saturating_sub(pick(before));
    LauncherStats {
        hits: less(|stats| stats.hits),
        misses: less(|stats| stats.misses),
        uncached: less(|stats| stats.uncached),
        errors: less(|stats| stats.errors),
        ..LauncherStats::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::tools::tests::committed;

    fn chosen(machine: &Fake, launcher: &str) -> Result<Option<String>> {
        let machine = Chosen { machine, launcher };
        choose(&machine, &committed()).map(|found| found.map(|program| program.name()))
    }

    #[test]
    fn what_is_asked_for_must_be_there() {
        let machine = Fake::complete()
            .with("ccache", "ccache version 4.7.5")
            .without("sccache")
            .with("icecc", "ICECC 1.4.0");
        let is = |launcher| chosen(&machine, launcher).unwrap();
        assert_eq!(is("auto").unwrap(), "ccache");
        assert_eq!(is("icecc").unwrap(), "icecc");
        assert_eq!(is("none"), None);
        let missing = chosen(&machine, "sccache").unwrap_err();
        assert_eq!(missing.kind(), crate::Kind::Environment);
        assert_eq!(missing.hints()[0], "sudo apt-get install sccache");
        let unknown = chosen(&machine, "scache").unwrap_err();
        assert_eq!(unknown.kind(), crate::Kind::Usage);
        assert!(unknown.hints()[0].contains("sccache"));
        // icecc alone is never taken by itself: it keeps nothing.
        assert_eq!(chosen(&machine.without("ccache"), "auto").unwrap(), None);
    }

    #[test]
    fn the_variable_chooses_where_nobody_else_does() {
        let machine = Fake::complete().with("ccache", "ccache version 4.7.5");
        let name = |machine: &Fake| {
            let found = choose(machine, &committed()).unwrap();
            found.map(|program| program.name())
        };
        assert_eq!(name(&machine).unwrap(), "ccache");
        // Where it is empty, as some CI systems leave it.
        assert_eq!(name(&machine.clone().set(VAR, "")).unwrap(), "ccache");
        assert_eq!(name(&machine.set(VAR, "none")), None);
    }

    #[test]
    fn the_log_of_ccache_is_counted_by_call() {
        let text = "# a.c\ncache_miss\ndirect_cache_miss\nlocal_storage_miss\n\
                    remote_storage_error\nremote_storage_error\n\
                    # b.c\ndirect_cache_hit\nlocal_storage_miss\nremote_storage_hit\n\
                    remote_storage_read_hit\n# c.c\npreprocessed_cache_hit\nlocal_storage_hit\n\
                    # \nno_input_file\n";
        let stats = of_log(text);
        assert_eq!((stats.hits, stats.misses, stats.remote_hits), (2, 1, 1));
        assert_eq!((stats.uncached, stats.errors), (1, 1));
        assert!(stats.exact);
        assert!(of_log("").is_nothing());
        let said = LauncherStats {
            name: "ccache".to_owned(),
            ..stats
        };
        assert_eq!(
            said.summary(),
            "ccache: 2 of 3 objects were there, 1 over the network; 1 calls cannot be cached; \
             the cache did not answer 1 times"
        );
    }

    #[test]
    fn the_counters_of_sccache_are_those_of_the_time_between() {
        let text = |hits: u64, misses: u64| {
            format!(
                "{{\"stats\":{{\"compile_requests\":9,\"cache_hits\":{{\"counts\":{{\"C/C++\":\
                 {hits},\"Rust\":1}}}},\"cache_misses\":{{\"counts\":{{\"C/C++\":{misses}}}}},\
                 \"requests_not_cacheable\":2}},\"cache_location\":\"Local disk\"}}\nsccache: note\n"
            )
        };
        let before = of_server(&text(3, 4)).unwrap();
        assert_eq!((before.hits, before.misses), (4, 4));
        let between = less(&of_server(&text(5, 5)).unwrap(), &before);
        assert_eq!((between.hits, between.misses, between.uncached), (2, 1, 0));
        assert!(!between.exact && between.summary().contains("as its server counts"));
        // A server that began anew in between.
        assert_eq!(less(&of_server(&text(0, 1)).unwrap(), &before).misses, 0);
        assert_eq!(of_server("sccache: error: couldn't connect"), None);
    }
}
