//! From text to [`FileDiff`].

use diffy::patch_set::{FileOperation, ParseOptions, PatchSet};

use crate::diff::{FileDiff, Hunk, Line};
use crate::error::{Error, Result};
use crate::tree::RelPath;

/// What begins a file in a diff that git wrote.
const GIT_HEADER: &[u8] = b"diff --git ";

/// Reads a diff that edits files in place, as `git diff` writes it. New, deleted, renamed and
/// copied files, mode changes and binary diffs are refused: new files belong in the overlay,
/// and the rest is not additive.
pub fn parse(text: &[u8]) -> Result<Vec<FileDiff>> {
    let is_git = text
        .split(|byte| *byte == b'\n')
        .any(|line| line.starts_with(GIT_HEADER));
    refuse_stray_lines(text, is_git)?;
    if !text.ends_with(b"\n") {
        return Err(Error::config("the diff does not end with a line end")
            .hint("it was cut short, or an editor removed the last line end; write it anew"));
    }
    let options = if is_git {
        ParseOptions::gitdiff()
    } else {
        ParseOptions::unidiff()
    };
    let mut files: Vec<FileDiff> = Vec::new();
    for parsed in PatchSet::parse_bytes(text, options) {
        let parsed = parsed.map_err(|error| Error::config(error.to_string()))?;
        let path = match parsed.operation().strip_prefix(1) {
            FileOperation::Modify { original, modified } if original == modified => {
                path_of(&original)?
            }
            FileOperation::Create(path) => {
                return Err(not_in_place(&path, "creates")
                    .hint("put the new file into the patch's src/ folder instead"));
            }
            FileOperation::Delete(path) => return Err(not_in_place(&path, "deletes")),
            FileOperation::Rename { to, .. } => return Err(not_in_place(&to, "renames")),
            FileOperation::Copy { to, .. } => return Err(not_in_place(&to, "copies")),
            FileOperation::Modify { modified, .. } => {
                return Err(not_in_place(&modified, "renames"));
            }
        };
        if parsed.new_mode().is_some() && parsed.old_mode() != parsed.new_mode() {
            return Err(Error::config(format!(
                "the diff changes the mode of {path}"
            )));
        }
        let Some(patch) = parsed.patch().as_text() else {
            return Err(Error::config(format!("the diff of {path} is binary")));
        };
        if patch.hunks().is_empty() {
            return Err(Error::config(format!("the diff of {path} has no hunk")));
        }
        if files.iter().any(|file| file.path == path) {
            return Err(Error::config(format!("the diff names {path} twice"))
                .hint("join its hunks under one header"));
        }
        files.push(FileDiff {
            path,
            hunks: patch.hunks().iter().map(hunk).collect(),
        });
    }
    Ok(files)
}

fn not_in_place(path: &[u8], verb: &str) -> Error {
    let path = String::from_utf8_lossy(path);
    Error::config(format!("the diff {verb} {path}; hooks edit files in place"))
}

fn path_of(bytes: &[u8]) -> Result<RelPath> {
    match std::str::from_utf8(bytes) {
        Ok(text) => RelPath::new(text),
        Err(_) => Err(Error::config(format!(
            "the diff names a path that is not UTF-8: {}",
            String::from_utf8_lossy(bytes)
        ))),
    }
}

fn hunk(hunk: &diffy::Hunk<'_, [u8]>) -> Hunk {
    let heading = hunk.function_context().unwrap_or_default();
    Hunk {
        old_start: hunk.old_range().start(),
        old_len: hunk.old_range().len(),
        new_start: hunk.new_range().start(),
        new_len: hunk.new_range().len(),
        heading: String::from_utf8_lossy(heading).trim().to_owned(),
        lines: hunk
            .lines()
            .iter()
            .map(|line| match line {
                diffy::Line::Context(bytes) => Line::Context(bytes.to_vec()),
                diffy::Line::Delete(bytes) => Line::Delete(bytes.to_vec()),
                diffy::Line::Insert(bytes) => Line::Insert(bytes.to_vec()),
            })
            .collect(),
    }
}

/// Refuses lines that belong to nothing. `diffy` (like git and GNU patch) ends a hunk when the
/// counts of its header are met and takes what follows for prose: a header with a count that is
/// too small would silently drop the rest of a hook.
fn refuse_stray_lines(text: &[u8], is_git: bool) -> Result<()> {
    let (mut old, mut new) = (0usize, 0usize);
    let mut in_file = false;
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let stray = |what: &str| {
            Error::config(format!(
                "line {} of the diff {what}: {:?}",
                at + 1,
                String::from_utf8_lossy(line)
            ))
            .hint("write the diff anew with `git diff`; a hand-edited hunk header has wrong counts")
        };
        if old > 0 || new > 0 {
            match line.first() {
                None | Some(b' ' | b'\r') if old > 0 && new > 0 => (old, new) = (old - 1, new - 1),
                Some(b'-') if old > 0 => old -= 1,
                Some(b'+') if new > 0 => new -= 1,
                Some(b'\\') => {}
                _ => return Err(stray("does not fit its hunk's line counts")),
            }
        } else if line.starts_with(b"@@ ") {
            let counts = std::str::from_utf8(line).ok().and_then(hunk_counts);
            (old, new) = counts.ok_or_else(|| stray("is no hunk header"))?;
            in_file = true;
        } else if line.starts_with(GIT_HEADER) {
            in_file = false;
        } else if is_git && in_file && line.starts_with(b"--- ") {
            return Err(stray("begins a file without a `diff --git` header"));
        } else if in_file
            && matches!(line.first(), Some(b'+' | b'-' | b' '))
            && !line.starts_with(b"-- ")
            && !line.starts_with(b"--- ")
            && !line.starts_with(b"+++ ")
        {
            return Err(stray("stands after the end of its hunk"));
        }
    }
    if old > 0 || new > 0 {
        return Err(Error::config("the diff ends in the middle of a hunk"));
    }
    Ok(())
}

/// `@@ -a,b +c,d @@` to (b, d).
fn hunk_counts(line: &str) -> Option<(usize, usize)> {
    let (ranges, _) = line.strip_prefix("@@ -")?.split_once(" @@")?;
    let (old, new) = ranges.split_once(" +")?;
    let count = |range: &str| match range.split_once(',') {
        Some((_, len)) => len.parse().ok(),
        None => Some(1),
    };
    Some((count(old)?, count(new)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\
diff --git a/x/y.c b/x/y.c
index 1111111..2222222 100644
--- a/x/y.c
+++ b/x/y.c
@@ -1,2 +1,3 @@ int main()
 a
+b
 c
";

    fn error(text: &str) -> String {
        parse(text.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn reads_what_git_writes() {
        let files = parse(GOOD.as_bytes()).unwrap();
        assert_eq!(files.len(), 1);
        assert_eq!(files[0].path.as_str(), "x/y.c");
        let hunk = &files[0].hunks[0];
        assert_eq!((hunk.old_start, hunk.old_len, hunk.new_len), (1, 2, 3));
        assert_eq!(hunk.heading, "int main()");
        assert_eq!(hunk.lines[1], Line::Insert(b"b\n".to_vec()));
    }

    #[test]
    fn carriage_returns_and_missing_final_newlines_survive() {
        let text = "--- a/f\n+++ b/f\n@@ -1 +1,2 @@\n+x\r\n a\r\n\\ No newline at end of file\n";
        let files = parse(text.as_bytes()).unwrap();
        assert_eq!(files[0].hunks[0].lines[0], Line::Insert(b"x\r\n".to_vec()));
        assert_eq!(files[0].hunks[0].lines[1], Line::Context(b"a\r".to_vec()));
    }

    #[test]
    fn a_count_that_is_too_small_is_refused_not_cut_short() {
        let short = GOOD.replace("-1,2 +1,3", "-1,1 +1,2");
        assert!(error(&short).contains("line 8"), "{}", error(&short));
        let long = GOOD.replace("-1,2 +1,3", "-1,3 +1,4");
        assert!(parse(long.as_bytes()).is_err());
    }

    #[test]
    fn a_truncated_diff_is_refused() {
        for cut in 1..GOOD.len() - 1 {
            let text = &GOOD[..cut];
            if let Ok(files) = parse(text.as_bytes()) {
                panic!("cut at {cut}: {files:?}");
            }
        }
    }

    #[test]
    fn everything_but_edits_in_place_is_refused() {
        let create =
            "diff --git a/n b/n\nnew file mode 100644\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n";
        assert!(error(create).contains("creates"), "{}", error(create));
        let rename = "diff --git a/o b/n\nsimilarity index 100%\nrename from o\nrename to n\n";
        assert!(error(rename).contains("renames"));
        let mode = "diff --git a/f b/f\nold mode 100644\nnew mode 100755\n";
        assert!(parse(mode.as_bytes()).is_err());
        let outside = GOOD.replace("x/y.c", "../y.c");
        assert!(
            error(&outside).contains("unsafe path"),
            "{}",
            error(&outside)
        );
        let twice = format!("{GOOD}{GOOD}");
        assert!(error(&twice).contains("twice"));
    }
}
