//! Folders as quilt keeps them: `series`, and the patches that it names.

use std::path::Path;

use crate::diff::Strip;
use crate::error::{Error, Result, ResultExt as _};
use crate::exchange::incoming::{Incoming, bytes, one_file};
use crate::tree::RelPath;

/// The patches of the folder `dir`, which holds `series` itself or in `patches/`. Quilt's own
/// records (`.pc`) are not looked at.
pub(super) fn read(dir: &Path) -> Result<Vec<Incoming>> {
    let places = [dir.to_path_buf(), dir.join("patches")];
    let Some(dir) = places.iter().find(|dir| dir.join("series").is_file()) else {
        return Err(
            Error::usage("the folder holds no `series` file").hint(format!(
                "name the patches themselves, in order: {}/*.patch",
                dir.display()
            )),
        );
    };
    let text = bytes(&dir.join("series"))?;
    let text =
        String::from_utf8(text).map_err(|_| Error::config("it is not UTF-8").context("series"))?;
    let mut all = Vec::new();
    for (name, strip) in entries(&text)? {
        let path = name.resolve(dir).context(|| "series".to_owned())?;
        let text = bytes(&path)?;
        all.extend(one_file(&text, &path, strip).context(|| path.display().to_string())?);
    }
    if all.is_empty() {
        return Err(Error::config("its `series` names no patch"));
    }
    Ok(all)
}

/// The patches that a `series` file names.
fn entries(text: &str) -> Result<Vec<(RelPath, Strip)>> {
    let mut list: Vec<(RelPath, Strip)> = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let at = || format!("series:{number}");
        // Inside a word, `#` is part of a name.
        let hash = line
            .match_indices('#')
            .map(|(at, _)| at)
            .find(|at| line[..*at].is_empty() || line[..*at].ends_with([' ', '\t']));
        let (entry, comment) = line.split_at(hash.unwrap_or(line.len()));
        let mut words = entry.split_whitespace();
        let Some(name) = words.next() else {
            continue;
        };
        if name.starts_with(['+', '-']) || comment.starts_with("#+") || comment.starts_with("#-") {
            return Err(Error::config(format!("{line:?} has a guard"))
                .context(at())
                .hint("guards choose patches by what is built; write a series without them"));
        }
        let mut strip = Strip::One;
        for word in words {
            strip = match word {
                "-p0" => Strip::Zero,
                "-p1" | "-pab" | "-p" => Strip::One,
                "-R" => {
                    return Err(Error::config(format!("{name} is applied in reverse"))
                        .context(at())
                        .hint("turn the patch around: `interdiff`, or `git diff -R`"));
                }
                other => {
                    return Err(Error::config(format!("the option {other:?} is not known"))
                        .context(at())
                        .hint("quilt's -p0 and -p1 are; refresh the patch with one of them"));
                }
            };
        }
        let name = RelPath::new(name).context(at)?;
        if list.iter().any(|(other, _)| *other == name) {
            return Err(Error::config(format!("{name} stands twice")).context(at()));
        }
        list.push((name, strip));
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_and_comments_of_a_series() {
        let list = entries("# head\n\na.patch\n  b#1.patch -p0 # why\nsub/c.patch\t-p1\n").unwrap();
        let list: Vec<(&str, Strip)> = list
            .iter()
            .map(|(name, strip)| (name.as_str(), *strip))
            .collect();
        assert_eq!(
            list,
            [
                ("a.patch", Strip::One),
                ("b#1.patch", Strip::Zero),
                ("sub/c.patch", Strip::One)
            ]
        );
    }

    #[test]
    fn what_a_series_may_not_say() {
        for (line, why) in [
            ("+x86 a.patch", "guard"),
            ("-x86 a.patch", "guard"),
            ("a.patch #+stable", "guard"),
            ("a.patch -R", "reverse"),
            ("a.patch -p2", "-p2"),
            ("a.patch -p1 b.patch", "b.patch"),
            ("../a.patch", "unsafe path"),
            ("/etc/passwd", "unsafe path"),
            (".git/x", "unsafe path"),
            ("a\na", "twice"),
        ] {
            let error = entries(line).unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains("series:"),
                "{line}: {error}"
            );
        }
    }
}
