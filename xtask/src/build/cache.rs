//! What CMake really decided: `CMakeCache.txt` and its compiler files.

use std::collections::BTreeMap;
use std::path::Path;

use crate::error::{Error, Result};
use crate::model::Compiler;

/// One entry of `CMakeCache.txt`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// `BOOL`, `STRING`, `PATH`, `FILEPATH`, `UNINITIALIZED`, `INTERNAL` or `STATIC`.
    pub kind: String,
    /// The value.
    pub value: String,
}

/// All entries of a `CMakeCache.txt`.
#[derive(Clone, Debug, Default)]
pub struct Cache(BTreeMap<String, Entry>);

/// Beginnings of the names that a build manifest records.
const RECORDED: [&str; 4] = ["CMAKE_", "GGML_", "LLAMA_", "OPENCOTI_"];

impl Cache {
    /// Reads `<out>/CMakeCache.txt`.
    pub fn read(out: &Path) -> Result<Self> {
        Ok(Self::parse(&fs_err::read_to_string(
            out.join("CMakeCache.txt"),
        )?))
    }

    pub(super) fn parse(text: &str) -> Self {
        let entries = text.lines().filter_map(|line| {
            if line.starts_with(['#', '/']) {
                return None;
            }
            let (name, value) = line.split_once('=')?;
            let (name, kind) = name.split_once(':')?;
            // Values with blanks at their ends are quoted, and so are odd names.
            let plain = |text: &str, quote: char| {
                let inner = text.strip_prefix(quote)?.strip_suffix(quote)?;
                Some(inner.to_owned())
            };
            let entry = Entry {
                kind: kind.to_owned(),
                value: plain(value, '\'').unwrap_or_else(|| value.to_owned()),
            };
            Some((plain(name, '"').unwrap_or_else(|| name.to_owned()), entry))
        });
        Cache(entries.collect())
    }

    /// The value of `name`.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(|entry| &*entry.value)
    }

    /// Build options, with the paths of this machine either replaced by what they stand for
    /// (`places`: path and name) or left out.
    pub fn flags(&self, places: &[(String, &str)]) -> BTreeMap<String, String> {
        let recorded = |name: &str| {
            // The compiler cache has a field of its own in the manifest.
            if name.ends_with("_COMPILER_LAUNCHER") {
                return false;
            }
            name == "BUILD_SHARED_LIBS" || RECORDED.iter().any(|start| name.starts_with(start))
        };
        self.0
            .iter()
            .filter(|(name, entry)| {
                recorded(name) && !matches!(&*entry.kind, "INTERNAL" | "STATIC")
            })
            .filter_map(|(name, entry)| {
                let value = normalise(&entry.value, places);
                (!value.starts_with('/')).then(|| (name.clone(), value))
            })
            .collect()
    }
}

/// Replaces each path of `places`, the longest first, by its name.
pub fn normalise(text: &str, places: &[(String, &str)]) -> String {
    let mut places: Vec<_> = places.iter().collect();
    places.sort_by_key(|(path, _)| std::cmp::Reverse(path.len()));
    let mut text = text.to_owned();
    for (path, name) in places {
        text = text.replace(path, name);
    }
    text
}

/// Whether CMake takes both for the same.
pub fn same_value(a: &str, b: &str) -> bool {
    let truth = |text: &str| match &*text.to_ascii_uppercase() {
        "ON" | "TRUE" | "YES" | "Y" | "1" => Some(true),
        "OFF" | "FALSE" | "NO" | "N" | "0" => Some(false),
        _ => None,
    };
    a == b || (truth(a).is_some() && truth(a) == truth(b))
}

/// The compilers that CMake settled on, from `<out>/CMakeFiles/<version>/CMake*Compiler.cmake`.
pub fn compilers(out: &Path) -> Result<BTreeMap<String, Compiler>> {
    let mut compilers = BTreeMap::new();
    for language in ["C", "CXX", "CUDA"] {
        let name = format!("CMake{language}Compiler.cmake");
        let Some(file) = below_version(&out.join("CMakeFiles"), &name)? else {
            continue;
        };
        let text = fs_err::read_to_string(&file)?;
        let get = |name: &str| {
            let start = format!("set(CMAKE_{language}_{name} \"");
            text.lines()
                .find_map(|line| line.strip_prefix(&*start)?.strip_suffix("\")"))
                .map(str::to_owned)
                .ok_or_else(|| {
                    Error::internal(format!(
                        "{}: no CMAKE_{language}_{name}; this CMake writes it in a way that is \
                         not known",
                        file.display()
                    ))
                })
        };
        let compiler = Compiler {
            id: get("COMPILER_ID")?,
            version: get("COMPILER_VERSION")?,
            path: get("COMPILER")?,
        };
        compilers.insert(language.to_owned(), compiler);
    }
    if compilers.is_empty() {
        return Err(Error::internal(format!(
            "CMake left no compiler files in {}",
            out.display()
        )));
    }
    Ok(compilers)
}

/// The file `name` in the one folder of `dir` that is named by CMake's version.
fn below_version(dir: &Path, name: &str) -> Result<Option<std::path::PathBuf>> {
    for entry in fs_err::read_dir(dir)? {
        let entry = entry?;
        let starts = entry.file_name().to_string_lossy().chars().next();
        let file = entry.path().join(name);
        if starts.is_some_and(|c| c.is_ascii_digit()) && file.is_file() {
            return Ok(Some(file));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# This is the CMakeCache file.\n//comment: x=y\nBUILD_SHARED_LIBS:BOOL=ON\n\
        CMAKE_AR:FILEPATH=/usr/bin/ar\nCMAKE_C_FLAGS:STRING=-ffile-prefix-map=\"/d/b\"=..\n\
        GGML_NATIVE:BOOL=ON\nLLAMA_CURL:UNINITIALIZED=OFF\nCMAKE_GENERATOR:INTERNAL=Ninja\n\
        CMAKE_PROJECT_NAME:STATIC=x\nOPENCOTI_EXT_LIB:FILEPATH=/d/b/ext/lib.a\nOTHER:BOOL=ON\n\
        GGML_X:STRING=a=b\nGGML_BLANK:STRING=' x '\n";

    #[test]
    fn flags_are_options_without_paths_of_this_machine() {
        let cache = Cache::parse(TEXT);
        let flags = cache.flags(&[
            ("/d".to_owned(), "<checkout>"),
            ("/d/b".to_owned(), "<build>"),
        ]);
        let flags: Vec<String> = flags.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(
            flags,
            [
                "BUILD_SHARED_LIBS=ON",
                "CMAKE_C_FLAGS=-ffile-prefix-map=\"<build>\"=..",
                "GGML_BLANK= x ",
                "GGML_NATIVE=ON",
                "GGML_X=a=b",
                "LLAMA_CURL=OFF",
                "OPENCOTI_EXT_LIB=<build>/ext/lib.a",
            ]
        );
    }

    #[test]
    fn compilers_come_from_cmakes_files() {
        let out = tempfile::tempdir().unwrap();
        let dir = out.path().join("CMakeFiles/3.25.1");
        std::fs::create_dir_all(&dir).unwrap();
        assert!(compilers(out.path()).is_err());
        std::fs::write(
            dir.join("CMakeCXXCompiler.cmake"),
            "set(CMAKE_CXX_COMPILER \"/usr/bin/c++\")\nset(CMAKE_CXX_COMPILER_ARG1 \"\")\n\
             set(CMAKE_CXX_COMPILER_ID \"GNU\")\nset(CMAKE_CXX_COMPILER_VERSION \"12.2.0\")\n",
        )
        .unwrap();
        let found = compilers(out.path()).unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found["CXX"].id, "GNU");
        assert_eq!(found["CXX"].version, "12.2.0");
        assert_eq!(found["CXX"].path, "/usr/bin/c++");
    }
}
