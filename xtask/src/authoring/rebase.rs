//! Moving a patch from the files that it stood on to others.
//!
//! A three-way merge against real files (libgit2's xdiff): the file as the patch found it, as the
//! patch left it, and as it now finds it. Nothing is searched for. A patch on unchanged files is
//! not touched at all.

use git2::{MergeFileInput, MergeFileOptions, ObjectType, Oid, merge_file};

use crate::diff::{self, FileDiff};
use crate::error::{Error, Result};
use crate::tree::RelPath;

/// A file of a patch that cannot be moved by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// The patch.
    pub patch: String,
    /// The file.
    pub path: RelPath,
    /// What stands against each other, with markers.
    pub text: String,
}

/// The contents of one file on both sides of a patch, and what it is to stand on.
pub struct Sides<'a> {
    /// As the patch found it.
    pub old_before: &'a [u8],
    /// As the patch left it.
    pub old_after: &'a [u8],
    /// As it now finds it.
    pub new_before: &'a [u8],
}

/// What the patch makes of the file that it now finds.
pub fn merge(sides: &Sides<'_>) -> Result<std::result::Result<Vec<u8>, String>> {
    if sides.new_before == sides.old_before {
        return Ok(Ok(sides.old_after.to_vec()));
    }
    let (mut ancestor, mut ours, mut theirs) = (
        MergeFileInput::new(),
        MergeFileInput::new(),
        MergeFileInput::new(),
    );
    ancestor.content(sides.old_before);
    ours.content(sides.new_before);
    theirs.content(sides.old_after);
    let mut options = MergeFileOptions::new();
    options
        .style_diff3(true)
        .ancestor_label("before")
        .our_label("now")
        .their_label("patch");
    // `merge_file` is the one entry of git2 that does not initialise libgit2, which then has no
    // allocator and fails without a message. Any other entry does.
    let _ = Oid::hash_object(ObjectType::Blob, b"");
    let merged = merge_file(&ancestor, &ours, &theirs, Some(&mut options))
        .map_err(|error| Error::internal(error.message().to_owned()))?;
    Ok(if merged.is_automergeable() {
        Ok(merged.content().to_vec())
    } else {
        Err(String::from_utf8_lossy(merged.content()).into_owned())
    })
}

/// The hooks of `patch` in `path`, moved; none where nothing of them is left.
pub fn hooks(
    patch: &str,
    path: &RelPath,
    sides: &Sides<'_>,
) -> Result<std::result::Result<Option<FileDiff>, Conflict>> {
    Ok(match merge(sides)? {
        Ok(after) => Ok(diff::between(path, sides.new_before, &after)),
        Err(text) => Err(Conflict {
            patch: patch.to_owned(),
            path: path.clone(),
            text,
        }),
    })
}
