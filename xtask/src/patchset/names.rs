//! Names that are one file on some file systems: they differ only in case, or in how a letter with
//! an accent is written.

use std::collections::HashMap;

use crate::patchset::Series;
use crate::tree::RelPath;
use crate::vendor::Pristine;

/// A new file whose name, or that of a folder above it, collides with another one's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Collision {
    /// Index of the patch in the series.
    pub patch: usize,
    /// The file that it brings.
    pub path: RelPath,
    /// The other spelling of the file, or of a folder above it.
    pub other: String,
    /// Who has that: a patch, or none for the base.
    pub owner: Option<String>,
}

impl std::fmt::Display for Collision {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (path, other) = (&self.path, &self.other);
        // Two ways to write one letter look alike; this shows which is which.
        let spelled = |text: &str| match text.is_ascii() {
            true => text.to_owned(),
            false => text.escape_default().to_string(),
        };
        write!(f, "{} is ", spelled(path.as_str()))?;
        write!(f, "{} of ", spelled(other))?;
        match &self.owner {
            Some(owner) => write!(f, "`{owner}`")?,
            None => f.write_str("the base")?,
        }
        f.write_str(" where case and the form of accents do not count")
    }
}

/// All collisions of the series' new files with the base's files and with each other's.
pub fn collisions(pristine: &Pristine, series: &Series) -> Vec<Collision> {
    if series.patches.iter().all(|patch| patch.overlay.is_empty()) {
        return Vec::new();
    }
    // A folded name to its spelling and its owner.
    let mut seen: HashMap<String, (&str, Option<&str>)> =
        HashMap::with_capacity(pristine.manifest.len() * 2);
    let mut before = "";
    for (path, _) in pristine.manifest.iter() {
        // Sorted by path: most folders are those of the file before.
        let is_known = |part: &&str| {
            before
                .strip_prefix(*part)
                .is_some_and(|rest| rest.starts_with('/'))
        };
        for part in parts(path).skip_while(is_known) {
            seen.entry(RelPath::folded(part)).or_insert((part, None));
        }
        before = path.as_str();
    }
    let mut found = Vec::new();
    for (at, patch) in series.patches.iter().enumerate() {
        for file in &patch.overlay {
            for part in parts(&file.path) {
                let (first, owner) = *seen
                    .entry(RelPath::folded(part))
                    .or_insert((part, Some(patch.id())));
                if first != part {
                    found.push(Collision {
                        patch: at,
                        path: file.path.clone(),
                        other: first.to_owned(),
                        owner: owner.map(str::to_owned),
                    });
                    break;
                }
            }
        }
    }
    found
}

/// The folders above a file, and the file.
fn parts(path: &RelPath) -> impl Iterator<Item = &str> {
    let text = path.as_str();
    let ends = text.match_indices('/').map(|(at, _)| at);
    ends.chain([text.len()]).map(|end| &text[..end])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::patchset::Images;
    use crate::toy::Toy;

    fn said(overlays: [&[(&str, &str)]; 2]) -> Vec<String> {
        let toy = Toy::new();
        toy.patch("a", "", overlays[0]);
        toy.patch("b", "", overlays[1]);
        toy.series(&["a", "b"]);
        let found = collisions(&toy.pristine, &toy.load());
        let (_, problems) = Images::attempt(&toy.pristine, &toy.load()).unwrap();
        assert_eq!(
            problems.is_empty(),
            found.is_empty(),
            "apply refuses it too"
        );
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn files_and_folders_of_base_and_patches_collide_in_case() {
        let end = "where case and the form of accents do not count";
        let file = said([&[("src/Main.c", "")], &[]]);
        assert_eq!(
            file,
            [format!("src/Main.c is src/main.c of the base {end}")]
        );
        let folder = said([&[("SRC/x.c", "")], &[]]);
        assert_eq!(folder, [format!("SRC/x.c is src of the base {end}")]);
        let patches = said([&[("new/README.md", "")], &[("new/readme.md", "")]]);
        assert_eq!(
            patches,
            [format!("new/readme.md is new/README.md of `a` {end}")]
        );
        assert_eq!(said([&[("src/x.c", "")], &[("src/y.c", "")]]), [""; 0]);
    }

    #[test]
    fn two_ways_to_write_a_letter_collide() {
        let found = said([&[("caf\u{e9}", "")], &[("cafe\u{301}", "")]]);
        assert_eq!(found.len(), 1);
        assert!(
            found[0].starts_with("cafe\\u{301} is caf\\u{e9} of `a`"),
            "{found:?}"
        );
        assert_eq!(said([&[("\u{c9}", "")], &[("e\u{301}", "")]]).len(), 1);
        assert_eq!(said([&[("caf\u{e9}", "")], &[("cafe", "")]]).len(), 0);
    }
}
