//! The tools of a build: found on the machine, else installed into `target/tools`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::build::launcher;
use crate::build::lookup::Lookup;
use crate::build::packages::{Package, install_command};
use crate::build::provision;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::model::{Tool, Toolchains, Version};

/// Everything that a build calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Toolset {
    /// CMake.
    pub cmake: Program,
    /// Ninja.
    pub ninja: Program,
    /// C compiler.
    pub cc: CompilerCommand,
    /// C++ compiler.
    pub cxx: CompilerCommand,
    /// Compiler cache, where one is found.
    pub launcher: Option<Program>,
}

/// A program and its version.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Program {
    /// Absolute path.
    pub path: PathBuf,
    /// What `--version` tells.
    pub version: Version,
}

/// A compiler as it is called.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CompilerCommand {
    /// Absolute path.
    pub path: PathBuf,
    /// Arguments that belong to the command, as in `CC="clang --target=…"`.
    pub args: Vec<String>,
    /// All of `--version`: a compiler that was replaced in place is another compiler.
    pub version_text: String,
    /// Sizes and time stamps of the program and of what it calls to compile: a compiler that was
    /// replaced in place may say the same. Empty where nobody looked.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<String>,
}

impl CompilerCommand {
    /// Whether it is another compiler than `old`, of which files need not be known.
    pub fn is_another_than(&self, old: &CompilerCommand) -> bool {
        let mut old = old.clone();
        if old.files.is_empty() {
            old.files.clone_from(&self.files);
        }
        *self != old
    }
}

impl Program {
    /// File name, such as `ccache`.
    pub fn name(&self) -> String {
        let name = self.path.file_name().unwrap_or_default();
        name.to_string_lossy().into_owned()
    }
}

/// How the search for a tool ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// It is there and new enough.
    Good(Program),
    /// It is there and older than the minimum.
    TooOld(Program),
    /// It is there and does not tell its version.
    Broken(PathBuf),
    /// It is not there.
    Missing,
}

/// Reads `registry/toolchains.toml`.
pub fn registry(ctx: &Ctx) -> Result<Toolchains> {
    crate::model::read_toml(&ctx.project.registry("toolchains.toml"))
}

/// Finds all tools, and installs CMake and Ninja where they are missing or too old.
pub fn resolve(ctx: &Ctx, lookup: &dyn Lookup) -> Result<Toolset> {
    let wanted = registry(ctx)?;
    // Compilers first: nothing is installed for a build that cannot be.
    let (cc, cxx) = compilers(lookup, &wanted)?;
    let cmake = find(lookup, &wanted.cmake, "CMAKE");
    let ninja = find(lookup, &wanted.ninja, "NINJA");
    let (cmake, ninja) = match (cmake, ninja) {
        (Found::Good(cmake), Found::Good(ninja)) => (cmake, ninja),
        (cmake, ninja) => provision::fill(ctx, lookup, &wanted, cmake, ninja)?,
    };
    Ok(Toolset {
        cmake,
        ninja,
        cc,
        cxx,
        launcher: launcher::choose(lookup, &wanted)?,
    })
}

/// The first usable compiler cache.
pub fn launcher(lookup: &dyn Lookup, wanted: &Toolchains) -> Option<Program> {
    wanted.launcher.names.iter().find_map(|name| {
        let path = lookup.find(name)?;
        let version = lookup.version(&path)?;
        Some(Program { path, version })
    })
}

/// Looks for a tool: the variable `var` where it is set, else `PATH`.
pub fn find(lookup: &dyn Lookup, tool: &Tool, var: &str) -> Found {
    let path = match lookup.var(var) {
        Some(name) => lookup.find(&name),
        None => lookup.find_any(&tool.names),
    };
    let Some(path) = path else {
        return Found::Missing;
    };
    match lookup.version(&path) {
        Some(version) if version >= tool.minimum => Found::Good(Program { path, version }),
        Some(version) => Found::TooOld(Program { path, version }),
        None => Found::Broken(path),
    }
}

/// The C and the C++ compiler: `CC` and `CXX`, else the first complete pair.
pub fn compilers(
    lookup: &dyn Lookup,
    wanted: &Toolchains,
) -> Result<(CompilerCommand, CompilerCommand)> {
    let (cc, cxx) = (lookup.var("CC"), lookup.var("CXX"));
    let names = match (cc, cxx) {
        (Some(cc), Some(cxx)) => (cc, cxx),
        (cc, cxx) => {
            let pairs = &wanted.compilers.pairs;
            let pair = pairs.iter().find(|(c, cpp)| {
                (cc.is_some() || lookup.find(c).is_some())
                    && (cxx.is_some() || lookup.find(cpp).is_some())
            });
            let Some((c, cpp)) = pair else {
                return Err(no_compiler(lookup, wanted, cc.is_some(), cxx.is_some()));
            };
            (
                cc.unwrap_or_else(|| c.clone()),
                cxx.unwrap_or_else(|| cpp.clone()),
            )
        }
    };
    Ok((
        compiler(lookup, wanted, "C", "CC", &names.0)?,
        compiler(lookup, wanted, "C++", "CXX", &names.1)?,
    ))
}

fn no_compiler(lookup: &dyn Lookup, wanted: &Toolchains, cc: bool, cxx: bool) -> Error {
    let tried = |pick: fn(&(String, String)) -> &str| {
        let names: Vec<&str> = wanted.compilers.pairs.iter().map(pick).collect();
        names.join(", ")
    };
    let message = match (cc, cxx) {
        (true, false) => format!(
            "no C++ compiler: none of {} is on PATH",
            tried(|pair| &pair.1)
        ),
        (false, true) => format!(
            "no C compiler: none of {} is on PATH",
            tried(|pair| &pair.0)
        ),
        _ => format!(
            "no C and C++ compiler: no pair of {} with {} is on PATH",
            tried(|pair| &pair.0),
            tried(|pair| &pair.1)
        ),
    };
    Error::environment(message)
        .hint(install_command(lookup, &[Package::Compilers]))
        .hint("or name your own: CC=/path/to/cc CXX=/path/to/c++")
}

/// Looks at one compiler command. A compiler cache in front of it is dropped: the build calls
/// one on its own account.
fn compiler(
    lookup: &dyn Lookup,
    wanted: &Toolchains,
    language: &str,
    var: &str,
    command: &str,
) -> Result<CompilerCommand> {
    let mut words = command.split_whitespace().skip_while(|word| {
        let name = Path::new(word).file_name().unwrap_or_default();
        let own = wanted.launcher.names.iter().map(String::as_str);
        own.chain(launcher::KNOWN).any(|known| name == known)
    });
    let name = words.next().unwrap_or_default();
    let args: Vec<String> = words.map(str::to_owned).collect();
    let Some(path) = lookup.find(name) else {
        return Err(Error::environment(format!(
            "no {language} compiler: {var} names `{name}`, which is not an executable program"
        ))
        .hint(format!(
            "unset {var}, or set it to a compiler that is there"
        ))
        .hint(install_command(lookup, &[Package::Compilers])));
    };
    let Some(text) = lookup.output(&path, &["--version"]) else {
        return Err(Error::environment(format!(
            "the {language} compiler {} does not run: `{0} --version` failed",
            path.display()
        ))
        .hint("install it anew, or name another one with CC and CXX"));
    };
    let id = family(&text);
    let minimum = id.and_then(|id| wanted.compilers.minimum.get(id));
    if let (Some(minimum), Some(version)) = (minimum, Version::find(&text))
        && version < *minimum
    {
        return Err(Error::environment(format!(
            "the {language} compiler {} is too old: version {version}, at least {minimum} is \
             needed",
            path.display()
        ))
        .hint(format!(
            "install a newer one and name it: CC=… CXX=…, or {}",
            install_command(lookup, &[Package::Compilers])
        )));
    }
    // gcc is a small program that calls this one; clang names none, or itself.
    let inner = match language {
        "C" => "-print-prog-name=cc1",
        _ => "-print-prog-name=cc1plus",
    };
    let inner = lookup.output(&path, &[inner]).unwrap_or_default();
    let inner = Some(PathBuf::from(inner.trim())).filter(|inner| inner.is_absolute());
    let files = [Some(path.clone()), inner].into_iter().flatten();
    let files = files.filter_map(|file| lookup.mark(&file)).collect();
    Ok(CompilerCommand {
        path,
        args,
        files,
        version_text: text.trim().to_owned(),
    })
}

/// CMake's id of the compiler whose `--version` is `text`, as far as it is known.
pub(super) fn family(text: &str) -> Option<&'static str> {
    if text.contains("Apple clang") || text.contains("Apple LLVM") {
        Some("AppleClang")
    } else if text.contains("clang") {
        Some("Clang")
    } else if text.contains("Free Software Foundation") {
        Some("GNU")
    } else {
        None
    }
}

#[cfg(test)]
#[allow(missing_docs)]
pub mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;

    /// The committed registry.
    pub fn committed() -> Toolchains {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/toolchains.toml");
        crate::model::read_toml(Path::new(path)).unwrap()
    }

    #[test]
    fn a_missing_compiler_is_one_clear_error() {
        let wanted = committed();
        let machine = Fake::complete().without("c++");
        let error = compilers(&machine, &wanted).unwrap_err();
        assert!(error.message().starts_with("no C and C++ compiler"));
        assert_eq!(error.hints()[0], "sudo apt-get install build-essential");
        let error = compilers(&machine.set("CC", "cc"), &wanted).unwrap_err();
        assert!(error.message().starts_with("no C++ compiler"), "{error}");
        let machine = Fake::complete().set("CC", "/nonexistent/cc");
        let error = compilers(&machine, &wanted).unwrap_err();
        assert!(error.message().contains("CC names `/nonexistent/cc`"));
        assert_eq!(error.kind(), crate::Kind::Environment);
    }

    #[test]
    fn compilers_are_taken_in_pairs() {
        let wanted = committed();
        let text = "gcc 12.2.0\nFree Software Foundation";
        // `cc` alone must not be mixed with `g++`.
        let machine = Fake::complete()
            .without("c++")
            .with("gcc", text)
            .with("g++", text);
        let (cc, cxx) = compilers(&machine, &wanted).unwrap();
        assert_eq!(cc.path, Path::new("/usr/bin/gcc"));
        assert_eq!(cxx.path, Path::new("/usr/bin/g++"));
    }

    #[test]
    fn a_cache_in_cc_is_dropped_and_arguments_are_kept() {
        let wanted = committed();
        let machine = Fake::complete()
            .set("CC", "ccache cc -m64")
            .set("CXX", "/opt/bin/sccache c++");
        let (cc, cxx) = compilers(&machine, &wanted).unwrap();
        assert_eq!(cc.path, Path::new("/usr/bin/cc"));
        assert_eq!(cc.args, ["-m64"]);
        assert!(cxx.args.is_empty());
    }

    #[test]
    fn a_compiler_that_was_replaced_and_says_the_same_is_another_one() {
        let wanted = committed();
        let at = |mark: &str| {
            let machine = Fake::complete().file("/usr/bin/cc", mark);
            compilers(&machine, &wanted).unwrap().0
        };
        let (old, new) = (at("1 bytes of 7"), at("1 bytes of 8"));
        assert_eq!(old.version_text, new.version_text);
        assert!(new.is_another_than(&old));
        assert!(!old.is_another_than(&at("1 bytes of 7")));
        // One of which only the version was written down.
        let mut older = old.clone();
        older.files.clear();
        assert!(!new.is_another_than(&older));
        older.version_text.push('x');
        assert!(new.is_another_than(&older));
    }

    /// A machine whose compilers call a program of their own.
    struct Calls(Fake);

    impl Lookup for Calls {
        fn find(&self, name: &str) -> Option<PathBuf> {
            self.0.find(name)
        }
        fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
            match args {
                ["-print-prog-name=cc1plus"] => Some("/usr/lib/cc1plus\n".to_owned()),
                _ => self.0.output(program, args),
            }
        }
        fn var(&self, name: &str) -> Option<String> {
            self.0.var(name)
        }
        fn free_space(&self, path: &Path) -> Option<u64> {
            self.0.free_space(path)
        }
        fn writable(&self, path: &Path) -> bool {
            self.0.writable(path)
        }
        fn mark(&self, path: &Path) -> Option<String> {
            self.0.mark(path)
        }
    }

    #[test]
    fn what_a_compiler_calls_is_looked_at_too() {
        let wanted = committed();
        let at = |mark: &str| {
            let machine = Fake::complete()
                .file("/usr/bin/c++", "the same")
                .file("/usr/lib/cc1plus", mark);
            compilers(&Calls(machine), &wanted).unwrap().1
        };
        assert_eq!(at("one").files, ["the same", "one"]);
        assert!(at("one").is_another_than(&at("two")));
    }

    #[test]
    fn an_old_compiler_is_refused() {
        let wanted = committed();
        let old = "cc (GCC) 7.5.0\nFree Software Foundation, Inc.";
        let error = compilers(&Fake::complete().with("cc", old), &wanted).unwrap_err();
        assert!(error.message().contains("version 7.5.0, at least 9"));
    }

    #[test]
    fn tools_are_found_too_old_broken_or_missing() {
        let wanted = committed().cmake;
        let is = |machine: &Fake| find(machine, &wanted, "CMAKE");
        assert!(matches!(is(&Fake::complete()), Found::Good(_)));
        let old = Fake::complete().with("cmake", "cmake version 3.9.1");
        assert!(matches!(is(&old), Found::TooOld(_)));
        // `cmake3` is looked for only where there is no `cmake`.
        assert!(matches!(
            is(&old.with("cmake3", "3.20.0")),
            Found::TooOld(_)
        ));
        let broken = Fake::complete().with("cmake", "Segmentation fault");
        assert!(matches!(is(&broken), Found::Broken(_)));
        assert_eq!(is(&Fake::complete().without("cmake")), Found::Missing);
    }
}
