//! Flags that do nothing, and flags that are contradicted.
//!
//! What was asked for is compared with what is there: CMake's cache, CMake's own words, and the
//! commands that compile. A build whose flags do not hold is no build of those flags, and is
//! refused.

mod isa;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde::Serialize;

use crate::build::cache::{self, Cache};
use crate::build::commands::{self, Commands};
use crate::build::configure::Request;
use crate::build::source::Sources;
use crate::build::{Build, ext, options};
use crate::error::{Error, Result};
use crate::model::Variant;

/// A flag that is not what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Drift {
    /// The option, the word, or the target.
    pub about: String,
    /// What was asked for.
    pub asked: String,
    /// What is there.
    pub found: String,
    /// What to do.
    pub hint: String,
}

impl std::fmt::Display for Drift {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{}: asked for {}, {}",
            self.about, self.asked, self.found
        )
    }
}

impl Drift {
    fn new(
        about: impl Into<String>,
        asked: impl Into<String>,
        found: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Drift {
            about: about.into(),
            asked: asked.into(),
            found: found.into(),
            hint: hint.into(),
        }
    }
}

/// Variables of CMake itself, which it takes without a declaration.
const OF_CMAKE: &str = "CMAKE_";
/// What compilers are told twice, where the last word counts.
const LAST_COUNTS: [&str; 4] = ["-O", "-march=", "-mcpu=", "-mtune="];

/// Names in the build files of a tree, of which a build asks only those that are there.
#[derive(Clone, Debug, Default)]
pub struct Vocabulary(BTreeSet<String>);

impl Vocabulary {
    /// Reads all build files of `sources`.
    pub fn read(root: &Path, sources: &Sources) -> Result<Self> {
        let mut names = BTreeSet::new();
        for (path, _) in sources.manifest.iter() {
            if is_build_file(path.as_str()) {
                let text = fs_err::read(path.below(root))?;
                names.extend(used(&String::from_utf8_lossy(&text)));
            }
        }
        Ok(Vocabulary(names))
    }

    /// Whether some build file reads `name`.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    /// Whether `name` is asked for: what a tree of another time has, or a series without the patch
    /// that reads it, is not.
    pub fn wants(&self, name: &str) -> bool {
        let by_tree = name == ext::LIB_FLAG
            || name == ext::INCLUDE_FLAG
            || options::WHERE_KNOWN.contains(&name);
        !by_tree || self.has(name)
    }
}

/// Whether CMake reads a file of this path.
pub fn is_build_file(path: &str) -> bool {
    path.ends_with("CMakeLists.txt") || path.ends_with(".cmake")
}

/// Names that a build file uses. A retired option, which upstream hands to a function that only
/// warns, is not used.
fn used(text: &str) -> impl Iterator<Item = String> + '_ {
    let lines = text
        .lines()
        .map(|line| line.split('#').next().unwrap_or(""));
    let lines = lines.filter(|line| !line.contains("option_depr"));
    lines
        .flat_map(|line| line.split(|c: char| !c.is_ascii_alphanumeric() && c != '_'))
        .filter(|word| word.chars().any(|c| c.is_ascii_uppercase()))
        .map(str::to_owned)
}

/// All that is wrong with the flags of the finished build.
pub fn check(build: &Build) -> Result<Vec<Drift>> {
    // Where CMake left nothing, there is nothing that could be another.
    if !build.dir.join("out/CMakeCache.txt").is_file() {
        return Ok(Vec::new());
    }
    let request: Request = crate::model::read_json(&build.dir.join("configure.json"))?;
    of_build(&request, build.manifest.variant, &build.dir)
}

/// The same of what CMake left in `dir`, sorted.
pub fn of_build(request: &Request, variant: Variant, dir: &Path) -> Result<Vec<Drift>> {
    let cached = Cache::read(&dir.join("out"))?;
    let log = std::fs::read_to_string(dir.join("configure.log")).unwrap_or_default();
    let commands = commands::read(dir)?;
    let mut all = of_cache(&request.asked(), &cached);
    all.extend(unused(&log, &request.flags));
    all.extend(isa::native_and_named(&request.env, &cached));
    all.extend(isa::unseen(&request.env, &cached));
    all.extend(isa::of_commands(&commands, &cached));
    all.extend(overridden(&request.env, &commands));
    all.extend(of_profile(variant, &commands));
    all.sort();
    all.dedup();
    Ok(all)
}

/// Variants of the CPU backend in `dir` whose instruction sets cannot be judged, sorted.
pub fn unjudged(dir: &Path) -> Result<Vec<String>> {
    let commands = commands::read(dir)?;
    let names = isa::unknown(&commands).into_iter();
    Ok(names.map(|name| format!("ggml-cpu-{name}")).collect())
}

/// Options of `asked` that are cached with another value, or not at all, or that nothing declares.
pub fn of_cache(asked: &BTreeMap<String, String>, cached: &Cache) -> Vec<Drift> {
    let by_force = "a build file of the tree sets it by force, or the cache was edited: see \
                    CMakeCache.txt in the build, then cargo xtask build --force";
    let one = |(name, wanted): (&String, &String)| match cached.get(name) {
        None => Some(Drift::new(name, wanted, "not in the cache", by_force)),
        Some(found) if !cache::same_value(found, wanted) => Some(Drift::new(
            name,
            wanted,
            format!("cached as {found}"),
            by_force,
        )),
        Some(_) => None,
    };
    asked.iter().filter_map(one).collect()
}

/// What CMake says that no build file read.
fn unused(log: &str, asked: &BTreeMap<String, String>) -> Vec<Drift> {
    let lines = log.lines();
    let told = lines.skip_while(|line| !line.contains("variables were not used by the project"));
    let names = told.skip(1).skip_while(|line| line.trim().is_empty());
    let names = names.map(str::trim).take_while(|line| !line.is_empty());
    names
        .filter(|name| !name.starts_with(OF_CMAKE))
        .map(|name| {
            let value = asked.get(name).map_or("a value", String::as_str);
            Drift::new(
                name,
                value,
                "no build file of the tree reads it",
                "the tree has no such option: build for another backend or base, or bring the \
                 patch that reads it",
            )
        })
        .collect()
}

/// Words of the user's variables that another word behind them makes void.
fn overridden(env: &BTreeMap<String, String>, commands: &Commands) -> Vec<Drift> {
    let mut all = Vec::new();
    for (var, is_cxx) in [("CFLAGS", false), ("CXXFLAGS", true), ("CPPFLAGS", false)] {
        let words = commands::split(env.get(var).map_or("", String::as_str));
        for kind in LAST_COUNTS {
            let Some(asked) = words.iter().rfind(|word| word.starts_with(kind)) else {
                continue;
            };
            let of_language = commands
                .iter()
                .filter(|((file, _), _)| var == "CPPFLAGS" || file.ends_with(".c") != is_cxx);
            let effective = of_language.filter_map(|(_, words)| last(words, kind));
            let others: BTreeSet<&str> = effective.filter(|word| word != asked).collect();
            if !others.is_empty() {
                let others: Vec<&str> = others.into_iter().collect();
                all.push(Drift::new(
                    var,
                    asked,
                    format!("{} follows in commands and counts", others.join(", ")),
                    format!(
                        "take {asked} out of {var}; cargo xtask build --profile chooses how \
                         much is optimised"
                    ),
                ));
            }
        }
    }
    all
}

fn last<'a>(words: &'a [String], kind: &str) -> Option<&'a str> {
    let found = words.iter().rfind(|word| word.starts_with(kind));
    found.map(String::as_str)
}

/// Commands that do not do what the profile says, or do what another one says.
fn of_profile(variant: Variant, commands: &Commands) -> Vec<Drift> {
    let wanted = variant.profile.sanitizer();
    let mut without = 0;
    let mut foreign: BTreeMap<&str, usize> = BTreeMap::new();
    for words in commands.values() {
        let mut found = false;
        for word in words {
            match word.strip_prefix("-fsanitize=") {
                Some(name) if Some(name) == wanted => found = true,
                Some(name) => *foreign.entry(name).or_default() += 1,
                None => {}
            }
        }
        without += usize::from(wanted.is_some() && !found);
    }
    let about = format!("profile {}", variant.profile);
    let mut all = Vec::new();
    if let Some(name) = wanted.filter(|_| without > 0) {
        all.push(Drift::new(
            &about,
            format!("-fsanitize={name}"),
            format!("{without} of {} commands lack it", commands.len()),
            "a build file of the tree takes the flags away: look for CMAKE_CXX_FLAGS in it",
        ));
    }
    all.extend(foreign.into_iter().map(|(name, count)| {
        Drift::new(
            &about,
            wanted.map_or("no sanitizer".to_owned(), |name| {
                format!("-fsanitize={name}")
            }),
            format!("{count} commands have -fsanitize={name}"),
            "take it out of CFLAGS and CXXFLAGS, and name a profile with --profile",
        )
    }));
    all
}

/// How many are told by name.
const SHOWN: usize = 8;

/// One finding of all of `drifts`.
pub fn refuse(drifts: &[Drift]) -> Result<()> {
    if drifts.is_empty() {
        return Ok(());
    }
    let shown = drifts.iter().take(SHOWN);
    let mut told: Vec<String> = shown.map(ToString::to_string).collect();
    // One word may reach each command of each variant.
    if let more @ 1.. = drifts.len().saturating_sub(SHOWN) {
        told.push(format!("and {more} more"));
    }
    let mut error = Error::finding(format!(
        "flags do not hold as they were given: {}",
        told.join("; ")
    ));
    let mut hints: Vec<&String> = drifts.iter().map(|drift| &drift.hint).collect();
    hints.sort();
    hints.dedup();
    for hint in hints {
        error = error.hint(hint.clone());
    }
    Err(error)
}

#[cfg(test)]
mod tests;
