//! A series of any length for a real base, from a generator that gives the same everywhere.

use std::collections::BTreeMap;

use crate::error::{Error, Result};
use crate::tree::{FileMode, RelPath};
use crate::vendor::Pristine;

/// Kinds of files that get hooks.
const HOOKED: [&str; 9] = ["c", "cc", "cpp", "cu", "cuh", "h", "hpp", "metal", "py"];
/// At most so many upstream files get hooks: a longer series stacks on the same ones.
const POOL: usize = 400;
/// Lines of context around a hook.
const CONTEXT: usize = 3;

/// A series.
#[derive(Clone, Debug)]
pub struct Generated {
    /// Its patches, in order.
    pub patches: Vec<Made>,
    /// Upstream files that got hooks.
    pub hooked: usize,
}

/// A patch of two files: a hook and a new file, or two hooks.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its id.
    pub id: String,
    /// Its hooks as a diff.
    pub hooks: String,
    /// Its new file, where it has one.
    pub overlay: Option<(RelPath, String)>,
}

impl Made {
    /// All of it as one diff.
    pub fn diff(&self) -> String {
        let Some((path, text)) = &self.overlay else {
            return self.hooks.clone();
        };
        let lines: String = text.lines().map(|line| format!("+{line}\n")).collect();
        format!(
            "{}diff --git a/{path} b/{path}\nnew file mode 100644\n--- /dev/null\n+++ b/{path}\n\
             @@ -0,0 +1,{} @@\n{lines}",
            self.hooks,
            text.lines().count()
        )
    }
}

/// SplitMix64: the same numbers on every machine.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound.max(1) as u64) as usize
    }
}

/// A series of `count` patches for `pristine`.
pub fn generate(pristine: &Pristine, count: usize) -> Result<Generated> {
    let mut numbers = Numbers(count as u64);
    let mut pool = pool(pristine, &mut numbers)?;
    if pool.len() < 2 {
        return Err(Error::usage(format!(
            "{} has no two source files that a hook could go into",
            pristine.base.id
        )));
    }
    let mut touched: BTreeMap<usize, ()> = BTreeMap::new();
    let mut patches = Vec::with_capacity(count);
    for at in 0..count {
        let id = format!("bench-{at}");
        let first = numbers.below(pool.len());
        let mut hooked = vec![first];
        let overlay = if at % 2 == 0 {
            let path = RelPath::new(format!("bench/part-{}/new-{at}.h", at % 50))?;
            let lines = (0..20 + numbers.below(60)).map(|line| format!("int v{at}_{line};\n"));
            Some((path, lines.collect()))
        } else {
            hooked.push((first + 1 + numbers.below(pool.len() - 1)) % pool.len());
            None
        };
        // As git orders them.
        hooked.sort_by(|a, b| pool[*a].0.cmp(&pool[*b].0));
        let mut hooks = String::new();
        for index in hooked {
            touched.insert(index, ());
            let (path, lines) = &mut pool[index];
            let line = CONTEXT + numbers.below(lines.len() - 2 * CONTEXT);
            hooks.push_str(&hook(path, lines, line, &id));
        }
        patches.push(Made { id, hooks, overlay });
    }
    Ok(Generated {
        patches,
        hooked: touched.len(),
    })
}

/// The upstream files that get hooks, as lines.
fn pool(pristine: &Pristine, numbers: &mut Numbers) -> Result<Vec<(RelPath, Vec<String>)>> {
    let mut paths: Vec<&RelPath> = pristine
        .manifest
        .iter()
        .filter(|(path, entry)| {
            let name = path.as_str();
            let plain = |b: u8| b.is_ascii_alphanumeric() || b"_-./".contains(&b);
            entry.mode == FileMode::Plain
                && name.bytes().all(plain)
                && name
                    .rsplit_once('.')
                    .is_some_and(|(_, end)| HOOKED.contains(&end))
        })
        .map(|(path, _)| path)
        .collect();
    let mut pool = Vec::new();
    while pool.len() < POOL && !paths.is_empty() {
        let path = paths.swap_remove(numbers.below(paths.len()));
        let Ok(text) = String::from_utf8(fs_err::read(path.below(&pristine.root))?) else {
            continue;
        };
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        if lines.len() > 4 * CONTEXT && text.ends_with('\n') && !text.contains('\r') {
            pool.push((path.clone(), lines));
        }
    }
    Ok(pool)
}

/// Inserts a hook before `lines[at]` and returns it as a diff.
fn hook(path: &RelPath, lines: &mut Vec<String>, at: usize, id: &str) -> String {
    let first = at - CONTEXT;
    let mut diff = format!(
        "diff --git a/{path} b/{path}\n--- a/{path}\n+++ b/{path}\n@@ -{},{} +{},{} @@\n",
        first + 1,
        2 * CONTEXT,
        first + 1,
        2 * CONTEXT + 2
    );
    let new = [
        format!("/* opencoti-hook: {id} */"),
        format!("/* of {} */", path.as_str().len()),
    ];
    let mut put = |sign: char, line: &str| {
        diff.push(sign);
        diff.push_str(line);
        diff.push('\n');
    };
    lines[first..at].iter().for_each(|line| put(' ', line));
    new.iter().for_each(|line| put('+', line));
    lines[at..at + CONTEXT]
        .iter()
        .for_each(|line| put(' ', line));
    lines.splice(at..at, new);
    diff
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patchset::Images;
    use crate::toy::{Toy, put};
    use crate::tree::TreeManifest;

    /// A toy whose base has files that are long enough for hooks.
    pub fn toy() -> Toy {
        let mut toy = Toy::new();
        for at in 0..5 {
            let lines: String = (0..40).map(|line| format!("int l{line};\n")).collect();
            put(&toy.pristine.root.join(format!("src/long{at}.c")), &lines);
        }
        toy.pristine.manifest = TreeManifest::of_tree(&toy.pristine.root, |_| false).unwrap();
        toy
    }

    #[test]
    fn a_series_applies_stacks_and_is_the_same_each_time() {
        let toy = toy();
        let made = generate(&toy.pristine, 30).unwrap();
        let again = generate(&toy.pristine, 30).unwrap();
        let texts = |made: &Generated| made.patches.iter().map(Made::diff).collect::<Vec<_>>();
        assert_eq!(texts(&made), texts(&again));
        assert_eq!(made.hooked, 5);
        for patch in &made.patches {
            let overlay: Vec<(&str, &str)> = patch
                .overlay
                .iter()
                .map(|(path, text)| (path.as_str(), text.as_str()))
                .collect();
            toy.patch(&patch.id, &patch.hooks, &overlay);
        }
        let ids: Vec<&str> = made.patches.iter().map(|patch| patch.id.as_str()).collect();
        toy.series(&ids);
        let images = Images::compute(&toy.pristine, &toy.load()).unwrap();
        assert_eq!(images.paths().count(), 5 + 15);
    }
}
