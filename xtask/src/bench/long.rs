//! One long file with many hunks: the time must grow as the file does.

use std::path::Path;
use std::time::Instant;

use serde::Serialize;

use crate::bench::measure::{Times, time};
use crate::bench::peers::git;
use crate::ctx::Ctx;
use crate::diff;
use crate::error::{Error, Result};

/// Lines between two hunks.
const GAP: usize = 20;

/// The times of one length.
#[derive(Clone, Debug, Serialize)]
pub struct Long {
    /// Lines of the file.
    pub lines: usize,
    /// Hunks of the diff.
    pub hunks: usize,
    /// Reading the diff and applying it, within this process.
    pub ours: Times,
    /// One `git apply` process, where there is a git.
    pub git: Times,
}

/// A file of `20 * hunks` lines, and a diff with as many hunks.
fn make(hunks: usize) -> (String, String) {
    let line = |at: usize| format!("int line_{at} = compute({}, {});\n", at % 97, at % 31);
    let old: String = (0..hunks * GAP).map(line).collect();
    let mut diff = String::from("diff --git a/long.c b/long.c\n--- a/long.c\n+++ b/long.c\n");
    for hunk in 0..hunks {
        let first = hunk * GAP + 7;
        diff.push_str(&format!("@@ -{},6 +{},7 @@\n", first + 1, first + 1 + hunk));
        for at in 0..6 {
            if at == 3 {
                diff.push_str(&format!("+    hook({hunk}); // opencoti-hook: long\n"));
            }
            diff.push(' ');
            diff.push_str(&line(first + at));
        }
    }
    (old, diff)
}

/// Measures files with so many hunks, `rounds` times each, in turns. `dir` is for scratch files.
pub(super) fn measure(
    ctx: &Ctx,
    hunks: &[usize],
    rounds: usize,
    with_git: bool,
    dir: &Path,
) -> Result<Vec<Long>> {
    let inputs: Vec<(String, String)> = hunks.iter().map(|hunks| make(*hunks)).collect();
    let mut list: Vec<Long> = hunks
        .iter()
        .map(|hunks| Long {
            lines: hunks * GAP,
            hunks: *hunks,
            ours: Times::default(),
            git: Times::default(),
        })
        .collect();
    fs_err::create_dir_all(dir)?;
    for _ in 0..rounds {
        for (long, (old, text)) in list.iter_mut().zip(&inputs) {
            ctx.cancel.check()?;
            let begun = Instant::now();
            let files = diff::parse(text.as_bytes())?;
            let [file] = files.as_slice() else {
                return Err(Error::internal("the diff names another number of files"));
            };
            let new = diff::apply(file, old.as_bytes())
                .map_err(|fault| Error::internal(fault.to_string()))?;
            long.ours.add(begun.elapsed());
            if with_git {
                let tree = dir.join("tree");
                fs_err::create_dir_all(&tree)?;
                fs_err::write(tree.join("long.c"), old)?;
                fs_err::write(dir.join("long.patch"), text)?;
                let mut command = git(&tree);
                command.args(["apply", "../long.patch"]);
                long.git
                    .add(time(ctx, &mut command, &dir.join("log"))?.wall);
                if fs_err::read(tree.join("long.c"))? != new {
                    return Err(Error::finding("git makes another file of the long diff"));
                }
            }
        }
    }
    Ok(list)
}
