//! The files that a patch touches on the new base: with what could be placed, and with markers around the rest.

use std::collections::BTreeMap;

use crate::error::Result;
use crate::sync::conflict;
use crate::sync::edit::{Edit, edits_of, with_edits};
use crate::sync::overlap::FileDone;
use crate::sync::port::Porter;
use crate::tree::RelPath;

impl Porter<'_> {
    /// The file as the patch found it on the old base.
    pub(super) fn before(&self, at: usize, path: &RelPath) -> Vec<u8> {
        self.images
            .at(path, at)
            .map(|image| image.content.clone())
            .unwrap_or_default()
    }

    /// Each touched file of the new base, with all that could be placed.
    pub(super) fn contents(
        &self,
        files: &BTreeMap<RelPath, FileDone>,
    ) -> Result<BTreeMap<RelPath, Vec<u8>>> {
        let mut contents = BTreeMap::new();
        for (path, edits) in placed_edits(files) {
            if let Some(source) = self.ground.source(&path)? {
                contents.insert(path, with_edits(&source.content, &edits)?);
            }
        }
        Ok(contents)
    }

    /// The same with markers where something could not be placed.
    pub(super) fn marked(
        &self,
        (at, id): (usize, &str),
        files: &BTreeMap<RelPath, FileDone>,
        mut contents: BTreeMap<RelPath, Vec<u8>>,
    ) -> Result<BTreeMap<RelPath, Vec<u8>>> {
        let names = conflict::Names {
            ours: &self.ground.pristine.base.id,
            ancestor: &self.old.base.id,
            theirs: id,
        };
        for (path, file) in files {
            if file.unplaced.is_empty() {
                continue;
            }
            let Some(now) = self.ground.source(path)? else {
                continue;
            };
            // Both sides with what was placed, so that only the rest stands against each other.
            let before = self.before(at, path);
            let ours = contents.get(path).unwrap_or(&now.content).clone();
            let all: Vec<Edit> = self.placed_before(at, path, file)?;
            let ancestor = with_edits(&before, &all)?;
            let mut both = all;
            both.extend(file.unplaced.iter().cloned());
            let theirs = with_edits(&before, &both)?;
            let text = conflict::text(&ancestor, &ours, &theirs, &names)?;
            contents.insert(path.clone(), text);
        }
        Ok(contents)
    }

    /// The edits of this file that were placed, as they were on the old base.
    fn placed_before(&self, at: usize, path: &RelPath, file: &FileDone) -> Result<Vec<Edit>> {
        let after = self
            .images
            .at(path, at + 1)
            .map(|image| image.content.clone())
            .unwrap_or_default();
        let all = crate::diff::between(path, &self.before(at, path), &after);
        Ok(all
            .iter()
            .flat_map(edits_of)
            .filter(|edit| {
                !file
                    .unplaced
                    .iter()
                    .any(|other| (other.from, &other.text) == (edit.from, &edit.text))
            })
            .collect())
    }
}

/// What could be placed, by file.
pub(super) fn placed_edits(files: &BTreeMap<RelPath, FileDone>) -> BTreeMap<RelPath, Vec<Edit>> {
    let mut edits: BTreeMap<RelPath, Vec<Edit>> = BTreeMap::new();
    for placed in files.values().flat_map(|file| &file.placed) {
        let list = edits.entry(placed.file.clone()).or_default();
        list.push(placed.edit.clone());
    }
    edits
}
