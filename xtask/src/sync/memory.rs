//! Solved conflicts, remembered: the same conflict between the same lines of the same file, on
//! whatever base it comes again, is solved the same way. One file each below
//! `vendor/.sync/solutions`.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::ctx::Ctx;
use crate::error::Result;
use crate::model::{Digest, read_json, write_json};
use crate::sync::conflict;
use crate::sync::store::step;
use crate::tree::RelPath;

/// One solution on the disk. The conflict stands beside it, so that people can read it and a
/// changed file cannot pass for another.
#[derive(Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
struct Solution {
    schema: u32,
    conflict: String,
    solution: String,
}

fn file(ctx: &Ctx, path: &RelPath, conflict: &[u8]) -> PathBuf {
    let key = [path.as_str().as_bytes(), &unlabelled(conflict)];
    let name = Digest::of_parts(key).to_string();
    ctx.project
        .vendor()
        .join(".sync/solutions")
        .join(format!("{name}.json"))
}

/// The conflict without the names of bases, which differ from one sync to the next.
fn unlabelled(conflict: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for line in crate::diff::lines_of(conflict) {
        let marker = [b"<<<<<<< ", b"||||||| "]
            .iter()
            .find(|marker| line.starts_with(**marker));
        match marker {
            Some(marker) => {
                out.extend_from_slice(*marker);
                out.push(b'\n');
            }
            None => out.extend_from_slice(line),
        }
    }
    out
}

/// Remembers how the conflicts of `marked` were solved; returns how many. What is not UTF-8 is
/// not remembered.
pub fn remember(ctx: &Ctx, path: &RelPath, marked: &[u8], solved: &[u8]) -> Result<usize> {
    let mut count = 0;
    for (key, text) in conflict::solutions(marked, solved).unwrap_or_default() {
        if !conflict::holds_lines(&key) {
            continue;
        }
        let (Ok(conflict), Ok(solution)) =
            (String::from_utf8(key.clone()), String::from_utf8(text))
        else {
            continue;
        };
        step()?;
        write_json(
            &file(ctx, path, &key),
            &Solution {
                schema: 1,
                conflict,
                solution,
            },
        )?;
        count += 1;
    }
    Ok(count)
}

/// `marked`, solved from memory; none where one of its conflicts is not known.
pub fn recall(ctx: &Ctx, path: &RelPath, marked: &[u8]) -> Option<Vec<u8>> {
    if conflict::regions(marked).is_empty() {
        return None;
    }
    conflict::replay(marked, |region| {
        if !conflict::holds_lines(region) {
            return None;
        }
        let known: Solution = read_json(&file(ctx, path, region)).ok()?;
        let same = unlabelled(known.conflict.as_bytes()) == unlabelled(region);
        (known.schema == 1 && same).then(|| known.solution.into_bytes())
    })
}
