//! Random trees and edits, the same for the same seed.

use std::collections::BTreeMap;

use llama_patchset::tree::{Blob, FileMode, RelPath};

/// Files by path.
pub type Tree = BTreeMap<RelPath, Blob>;

/// A small generator of random numbers (splitmix64).
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Rng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x5851_f42d_4c95_7f2d)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `end`; 0 where there is none.
    pub fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True in `percent` of a hundred cases.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of them.
    pub fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

const NAMES: &[&str] = &[
    "a",
    "b.c",
    "two words",
    "d/a",
    "d/e f/g",
    "d/e",
    "ü/ñ.txt",
    "q\"uote",
    "tail ",
    " head",
    "deep/er/and/deeper",
    "a-b",
    "Upper",
    "x+y/@@",
];

/// Few different lines, so that context is often found in a wrong place as well.
const LINES: &[&str] = &[
    "a",
    "b",
    "c",
    "",
    "{",
    "}",
    "if (x)",
    "if (y)",
    "  hook();",
    "-- ",
    "- x",
    "+ y",
    "@@ -1 +1 @@",
    "int f() {",
    "\\ z",
    "ä ö",
    "\ttab",
    "end ",
    "diff --git a/a b/a",
    "--- a/a",
    "long enough to matter",
];

pub fn path(text: &str) -> RelPath {
    RelPath::new(text).unwrap()
}

fn line(rng: &mut Rng, crlf: bool) -> String {
    let text: &str = rng.pick::<&str>(LINES);
    let end = if crlf || rng.chance(3) { "\r\n" } else { "\n" };
    format!("{text}{end}")
}

fn content(rng: &mut Rng) -> Vec<u8> {
    let crlf = rng.chance(15);
    let count = match rng.below(10) {
        0 => 0,
        1 => 1,
        2..=5 => rng.below(8),
        _ => rng.below(60),
    };
    let mut text: String = (0..count).map(|_| line(rng, crlf)).collect();
    if rng.chance(15) {
        text.pop();
    }
    text.into_bytes()
}

fn blob(rng: &mut Rng) -> Blob {
    match rng.below(20) {
        0 => Blob::new(*rng.pick(&["a", "d/e", "nowhere", "x y"]), FileMode::Link),
        1 | 2 => Blob::new(content(rng), FileMode::Executable),
        _ => Blob::plain(content(rng)),
    }
}

/// Whether a file at `path` fits into `tree`, beside the files and folders there.
pub fn fits(tree: &Tree, path: &RelPath) -> bool {
    let (slashed, text) = (format!("{path}/"), path.as_str());
    !tree.keys().any(|other| {
        let other = other.as_str();
        other == text
            || other.starts_with(&slashed)
            || text
                .strip_prefix(other)
                .is_some_and(|rest| rest.starts_with('/'))
    })
}

fn free_name(rng: &mut Rng, tree: &Tree) -> Option<RelPath> {
    let name = path(rng.pick::<&str>(NAMES));
    fits(tree, &name).then_some(name)
}

/// A tree of a few files.
pub fn tree(rng: &mut Rng) -> Tree {
    let mut tree = Tree::new();
    for _ in 0..1 + rng.below(6) {
        if let Some(name) = free_name(rng, &tree) {
            let blob = blob(rng);
            tree.insert(name, blob);
        }
    }
    tree
}

/// Edits some lines of a content.
pub fn edit(rng: &mut Rng, content: &[u8]) -> Vec<u8> {
    let mut lines: Vec<Vec<u8>> = content
        .split_inclusive(|byte| *byte == b'\n')
        .map(<[u8]>::to_vec)
        .collect();
    let crlf = lines.first().is_some_and(|line| line.ends_with(b"\r\n"));
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(lines.len() + 1);
        match rng.below(5) {
            0 if at < lines.len() => drop(lines.remove(at)),
            1 if at < lines.len() => lines[at] = line(rng, crlf).into_bytes(),
            2 if !lines.is_empty() && rng.chance(30) => {
                let last = lines.len() - 1;
                if lines[last].last() == Some(&b'\n') && lines[last].len() > 1 {
                    lines[last].pop();
                } else {
                    lines[last].push(b'\n');
                }
            }
            _ => {
                for _ in 0..1 + rng.below(3) {
                    lines.insert(at, line(rng, crlf).into_bytes());
                }
            }
        }
    }
    // Only the last line may lack its end.
    let last = lines.len().saturating_sub(1);
    for (at, line) in lines.iter_mut().enumerate() {
        if at != last && line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
    }
    lines.concat()
}

/// What somebody might make of a tree.
pub fn changed(rng: &mut Rng, before: &Tree) -> Tree {
    let mut tree = before.clone();
    for _ in 0..1 + rng.below(3) {
        let names: Vec<RelPath> = tree.keys().cloned().collect();
        if names.is_empty() {
            break;
        }
        let name = rng.pick(&names).clone();
        match rng.below(12) {
            0 => drop(tree.remove(&name)),
            1 => {
                if let Some(to) = free_name(rng, &tree) {
                    let mut blob = tree.remove(&name).unwrap();
                    if rng.chance(50) && blob.mode != FileMode::Link {
                        blob.content = edit(rng, &blob.content);
                    }
                    tree.insert(to, blob);
                }
            }
            2 => {
                if let Some(to) = free_name(rng, &tree) {
                    tree.insert(to, tree[&name].clone());
                }
            }
            3 => {
                let other = rng.pick(&names).clone();
                let (a, b) = (tree[&name].clone(), tree[&other].clone());
                tree.insert(name, b);
                tree.insert(other, a);
            }
            4 => {
                let blob = tree.get_mut(&name).unwrap();
                blob.mode = match blob.mode {
                    FileMode::Plain => FileMode::Executable,
                    FileMode::Executable => FileMode::Plain,
                    FileMode::Link => FileMode::Link,
                };
            }
            5 => {
                let fresh = blob(rng);
                tree.insert(name, fresh);
            }
            6 => {
                if let Some(to) = free_name(rng, &tree) {
                    let fresh = blob(rng);
                    tree.insert(to, fresh);
                }
            }
            _ => {
                let blob = tree.get_mut(&name).unwrap();
                if blob.mode != FileMode::Link {
                    blob.content = edit(rng, &blob.content);
                }
            }
        }
    }
    tree
}

/// A tree that is nearly the one that a patch is for.
pub fn drifted(rng: &mut Rng, tree: &mut Tree) {
    let names: Vec<RelPath> = tree.keys().cloned().collect();
    if names.is_empty() {
        return;
    }
    let name = rng.pick(&names).clone();
    match rng.below(10) {
        0 => drop(tree.remove(&name)),
        1 => {
            if let Some(to) = free_name(rng, tree) {
                let fresh = blob(rng);
                tree.insert(to, fresh);
            }
        }
        2 => {
            let blob = tree.get_mut(&name).unwrap();
            blob.mode = *rng.pick(&[FileMode::Plain, FileMode::Executable]);
        }
        3 => {
            let blob = tree.get_mut(&name).unwrap();
            if blob.content.last() == Some(&b'\n') {
                blob.content.pop();
            } else if blob.mode != FileMode::Link {
                blob.content.push(b'\n');
            }
        }
        4 => {
            let blob = tree.get_mut(&name).unwrap();
            if blob.mode != FileMode::Link {
                blob.content = String::from_utf8_lossy(&blob.content)
                    .replace("\r\n", "\n")
                    .replace('\n', "\r\n")
                    .into_bytes();
            }
        }
        _ => {
            let blob = tree.get_mut(&name).unwrap();
            if blob.mode != FileMode::Link {
                blob.content = edit(rng, &blob.content);
            }
        }
    }
}

/// A tree for people to read.
pub fn shown(tree: &Tree) -> String {
    tree.iter()
        .map(|(path, blob)| {
            let text = String::from_utf8_lossy(&blob.content);
            format!("  {path:?} {:?} {text:?}\n", blob.mode)
        })
        .collect()
}
