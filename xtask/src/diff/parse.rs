//! The restriction to edits in place, which is all that hooks may be.

use std::collections::HashSet;

use crate::diff::{FileDiff, FilePatch, Operation, parse_files};
use crate::error::{Error, Result};

/// Reads a diff that edits files in place, as `git diff` writes it. New, deleted, renamed and
/// copied files, mode changes and binary diffs are refused: new files belong in the overlay,
/// and the rest is not additive.
pub fn parse(text: &[u8]) -> Result<Vec<FileDiff>> {
    let mut files: Vec<FileDiff> = Vec::new();
    let mut seen = HashSet::new();
    for file in parse_files(text)? {
        let file = in_place(file)?;
        if !seen.insert(file.path.clone()) {
            return Err(Error::config(format!("the diff names {} twice", file.path))
                .hint("join its hunks under one header"));
        }
        files.push(file);
    }
    Ok(files)
}

fn in_place(file: FilePatch) -> Result<FileDiff> {
    let refused = |verb: &str| {
        Error::config(format!(
            "the diff {verb} {}; hooks edit files in place",
            file.path()
        ))
    };
    match &file.operation {
        Operation::Edit(_) if file.new_mode.is_some() => Err(refused("changes the mode of")),
        Operation::Edit(path) => Ok(FileDiff {
            path: path.clone(),
            hunks: file.hunks,
        }),
        Operation::Create(_) => {
            Err(refused("creates").hint("put the new file into the patch's src/ folder instead"))
        }
        Operation::Delete(_) => Err(refused("deletes")),
        Operation::Rename { .. } => Err(refused("renames")),
        Operation::Copy { .. } => Err(refused("copies")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diff::Line;

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
        assert_eq!(hunk.heading_text(), "int main()");
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
