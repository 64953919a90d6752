//! Which files of the tree went into a build, as the compilers told Ninja.

use std::collections::BTreeSet;
use std::path::{Component, Path, PathBuf};
use std::process::Command;

use crate::build::Build;
use crate::build::configure::Request;
use crate::ctx::Ctx;
use crate::error::{Error, Result};
use crate::process;

/// Paths below the tree of everything that was compiled or included, sorted.
pub fn inputs(ctx: &Ctx, build: &Build) -> Result<BTreeSet<String>> {
    let request: Request = crate::model::read_json(&build.dir.join("configure.json"))?;
    let out = build.dir.join("out");
    let mut command = Command::new(&request.tools.ninja.path);
    command.arg("-C").arg(&out).args(["-t", "deps"]);
    let done = process::capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(Error::environment(format!(
            "ninja failed: {}",
            process::last_lines(&done.output, 3)
        )));
    }
    let found = read(&done.output, &build.dir);
    if found.is_empty() {
        return Err(Error::finding(format!(
            "Ninja does not know what went into {}",
            ctx.project.show(&build.dir)
        ))
        .hint(format!(
            "cargo xtask build --{} --backend {}{} --force makes it anew",
            build.manifest.flavour,
            build.manifest.backend,
            build.manifest.variant.flags()
        )));
    }
    Ok(found)
}

/// Indented lines of Ninja's list are files, relative to `dir/out` or absolute.
fn read(list: &str, dir: &Path) -> BTreeSet<String> {
    let (out, src) = (dir.join("out"), dir.join("src"));
    let real = std::fs::canonicalize(&src).unwrap_or_else(|_| src.clone());
    let files = list.lines().filter_map(|line| line.strip_prefix("    "));
    files
        .filter_map(|file| {
            let path = lexical(&out.join(file.trim()));
            let below = path.strip_prefix(&src).or(path.strip_prefix(&real)).ok()?;
            Some(below.to_str()?.to_owned())
        })
        .collect()
}

/// A path without `.` and `..`.
fn lexical(path: &Path) -> PathBuf {
    let mut clean = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => {
                clean.pop();
            }
            Component::CurDir => {}
            part => clean.push(part),
        }
    }
    clean
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_tree_are_told_from_others() {
        let list = "a.o: #deps 3, deps mtime 1 (VALID)\n    /b/src/a.c\n    ../src/vendor/x/../y.h\n\
                    \x20   /usr/include/stdio.h\n    gen/z.h\n\nc.o: #deps 1\n    /b/src/a.c\n";
        let found: Vec<String> = read(list, Path::new("/b")).into_iter().collect();
        assert_eq!(found, ["a.c", "vendor/y.h"]);
    }
}
