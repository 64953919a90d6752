//! One incoming patch on the files before it: edits become hooks, new files the overlay.

use std::collections::{BTreeMap, BTreeSet};

use crate::ctx::Ctx;
use crate::diff::{self, FileDiff, FilePatch, Hunk, Operation};
use crate::error::{Error, Result};
use crate::exchange::incoming::Incoming;
use crate::exchange::letter::canonical;
use crate::exchange::locate::{Offset, place};
use crate::patchset::{Image, Images, Overlay, Problem, pristine_image};
use crate::tree::{FileMode, RelPath};
use crate::vendor::Pristine;

/// The files that an incoming patch finds.
pub(super) struct Ground<'a> {
    pub(super) pristine: &'a Pristine,
    /// Images of the series so far.
    pub(super) images: &'a Images,
}

/// What a patch makes of the files that it touches.
#[derive(Debug, Default)]
pub(super) struct Taken {
    /// Its edits, sorted by path.
    pub(super) hooks: Vec<FileDiff>,
    /// Text of the edits.
    pub(super) hooks_text: Vec<u8>,
    /// Its new files, sorted by path.
    pub(super) overlay: Vec<Overlay>,
    /// What each file must be with it.
    pub(super) results: Vec<(RelPath, Vec<u8>, bool)>,
    /// Hunks that were moved.
    pub(super) offsets: Vec<Offset>,
    /// What a person should look at.
    pub(super) remarks: Vec<String>,
}

/// A file on its way through a patch.
struct Work {
    /// As it was before; absent for a new file.
    before: Option<Image>,
    now: Vec<u8>,
    executable: bool,
    /// Its hunks, as they were read, while there is only one run of them.
    hunks: Option<Vec<Hunk>>,
}

/// Names with their faults.
type Faults = Vec<(RelPath, String)>;

impl Ground<'_> {
    fn file(&self, path: &RelPath) -> Result<Option<Image>> {
        if self.images.steps(path).is_empty() {
            return pristine_image(self.pristine, path);
        }
        Ok(self.images.at(path, self.images.patches()).cloned())
    }
}

/// Puts a patch on its ground. Without faults, it is taken; with faults, nothing of it is.
pub(super) fn take(
    ctx: &Ctx,
    ground: &Ground<'_>,
    incoming: &Incoming,
) -> Result<std::result::Result<Taken, Faults>> {
    let mut work: BTreeMap<RelPath, Work> = BTreeMap::new();
    let mut taken = Taken::default();
    let mut faults = Faults::new();
    for file in &incoming.files {
        ctx.cancel.check()?;
        match one(ground, (incoming, file), &mut work, &mut taken)? {
            Ok(()) => {}
            Err(fault) => faults.push((file.path().clone(), fault)),
        }
    }
    faults.extend(aliases(&work));
    if !faults.is_empty() {
        return Ok(Err(faults));
    }
    // Our own hooks come back as they are; those of others are written anew, from what they do.
    let own = incoming.folder.is_some() && taken.offsets.is_empty();
    for (path, file) in work {
        taken
            .results
            .push((path.clone(), file.now.clone(), file.executable));
        let Some(before) = file.before else {
            taken.overlay.push(Overlay {
                path,
                content: file.now,
                executable: file.executable,
            });
            continue;
        };
        let hunks = file.hunks.filter(|_| own);
        match hunks.map_or_else(
            || diff::between(&path, &before.content, &file.now),
            |hunks| {
                Some(FileDiff {
                    path: path.clone(),
                    hunks,
                })
            },
        ) {
            Some(diff) => taken.hooks.push(diff),
            None => taken
                .remarks
                .push(format!("{path}: its edits come to nothing")),
        }
    }
    taken.hooks_text = canonical(&taken.hooks);
    if let Some(folder) = &incoming.folder
        && let Some(text) = folder.files.get(&folder.hooks)
    {
        let mut stated = diff::parse(text)
            .map_err(|error| error.context(format!("the {} that it carries", folder.hooks)))?;
        stated.sort_by(|a, b| a.path.cmp(&b.path));
        if stated == taken.hooks {
            taken.hooks_text = text.clone();
        } else {
            taken.remarks.push(format!(
                "the {} that it carries is not its diff; the diff counts",
                folder.hooks
            ));
        }
    }
    Ok(Ok(taken))
}

type Fault<T> = std::result::Result<T, String>;

/// One file of a diff.
fn one(
    ground: &Ground<'_>,
    (incoming, file): (&Incoming, &FilePatch),
    work: &mut BTreeMap<RelPath, Work>,
    taken: &mut Taken,
) -> Result<Fault<()>> {
    let path = file.path();
    let is_link = |mode: Option<FileMode>| mode == Some(FileMode::Link);
    if is_link(file.new_mode) || is_link(file.index.as_ref().and_then(|index| index.mode)) {
        return fault("it is a symbolic link; a patch brings plain files only");
    }
    match &file.operation {
        Operation::Delete(_) => fault(
            "it deletes the file; hooks edit files in place. Leave the file, and hook around its use",
        ),
        Operation::Rename { from, .. } => fault(&format!(
            "it renames {from}; hooks edit files in place. Edit the file where it is, or bring a new \
             file and hook into {from}"
        )),
        Operation::Edit(_) => edit(ground, (incoming, file), work, taken),
        Operation::Create(_) => {
            if let Some(refused) = occupied(ground, path, work)? {
                return fault(&refused);
            }
            create(file, b"", file.new_mode, work)
        }
        Operation::Copy { from, .. } => {
            if let Some(refused) = occupied(ground, path, work)? {
                return fault(&refused);
            }
            let Some(source) = ground.file(from)? else {
                return fault(&format!("it copies {from}, and there is no such file"));
            };
            let mode = match source.executable {
                true => FileMode::Executable,
                false => FileMode::Plain,
            };
            let mode = file.new_mode.unwrap_or(mode);
            create(file, &source.content, Some(mode), work)
        }
    }
}

fn fault<T>(text: &str) -> Result<Fault<T>> {
    Ok(Err(text.to_owned()))
}

fn occupied(
    ground: &Ground<'_>,
    path: &RelPath,
    work: &BTreeMap<RelPath, Work>,
) -> Result<Option<String>> {
    if work.contains_key(path) {
        return Ok(Some("two parts of the diff make it".to_owned()));
    }
    Ok(ground
        .file(path)?
        .map(|_| "it creates a file that is there already; edit it instead".to_owned()))
}

fn create(
    file: &FilePatch,
    source: &[u8],
    mode: Option<FileMode>,
    work: &mut BTreeMap<RelPath, Work>,
) -> Result<Fault<()>> {
    let now = match diff::apply_hunks(&file.hunks, source) {
        Ok(now) => now,
        Err(mismatch) => return fault(&mismatch.to_string()),
    };
    if now.contains(&0) {
        return fault("it is binary: it holds a NUL byte. Put such a file into the patch's src/");
    }
    let made = Work {
        before: None,
        now,
        executable: mode == Some(FileMode::Executable),
        hunks: None,
    };
    work.insert(file.path().clone(), made);
    Ok(Ok(()))
}

fn edit(
    ground: &Ground<'_>,
    (incoming, file): (&Incoming, &FilePatch),
    work: &mut BTreeMap<RelPath, Work>,
    taken: &mut Taken,
) -> Result<Fault<()>> {
    let path = file.path();
    let (before, content, executable, first) = match work.get(path) {
        Some(work) => (
            work.before.clone(),
            work.now.clone(),
            work.executable,
            false,
        ),
        None => match ground.file(path)? {
            Some(image) => {
                let (content, executable) = (image.content.clone(), image.executable);
                (Some(image), content, executable, true)
            }
            None => return fault(&missing(ground, file)),
        },
    };
    if let Some(mode) = file.new_mode
        && (mode == FileMode::Executable) != executable
    {
        return fault("it changes the file's mode; a patch does not change modes of files");
    }
    let base = ground.pristine.base.tree.to_string();
    let folder = incoming.folder.as_ref();
    let same_base = folder.is_some_and(|folder| folder.base == base);
    match place(path, &file.hunks, &content, same_base) {
        Ok(placed) => {
            taken.offsets.extend(placed.offsets);
            let remarks = placed.remarks.into_iter();
            taken
                .remarks
                .extend(remarks.map(|remark| format!("{path}: {remark}")));
            let hunks = first.then(|| file.hunks.clone());
            if placed.content.contains(&0) && !content.contains(&0) {
                return fault("it puts a NUL byte into the file, which no text diff carries");
            }
            let made = Work {
                before,
                now: placed.content,
                executable,
                hunks,
            };
            work.insert(path.clone(), made);
            Ok(Ok(()))
        }
        Err(unplaced) => fault(&unplaced.to_string()),
    }
}

/// What to say of an edit of a file that is not there.
fn missing(ground: &Ground<'_>, file: &FilePatch) -> String {
    let path = file.path().as_str();
    if !file.hunks.is_empty() && file.hunks.iter().all(|hunk| hunk.old_len == 0) {
        return "there is no such file, and the diff does not say that it is new; write it with \
                `git diff`, or give its old side the name /dev/null"
            .to_owned();
    }
    let covers = |out: &&String| match out.strip_suffix('/') {
        Some(folder) => path
            .strip_prefix(folder)
            .is_some_and(|rest| rest.starts_with('/')),
        None => out.as_str() == path,
    };
    if ground.pristine.base.exclude.iter().any(|out| covers(&out)) {
        return format!(
            "the base {} leaves this file out; take its part off the patch",
            ground.pristine.base.id
        );
    }
    let name = path.rsplit('/').next().unwrap_or(path);
    let same: Vec<&str> = ground
        .pristine
        .manifest
        .iter()
        .map(|(other, _)| other.as_str())
        .filter(|other| other.rsplit('/').next() == Some(name))
        .take(3)
        .collect();
    match same.as_slice() {
        [] => "there is no such file".to_owned(),
        same => format!(
            "there is no such file; of that name are: {}",
            same.join(", ")
        ),
    }
}

/// New files with a character in their names that some file systems leave out or write otherwise.
/// Names that are another's in another spelling, [`Images::attempt`] finds.
fn aliases(work: &BTreeMap<RelPath, Work>) -> Faults {
    let mut faults = Faults::new();
    for (path, _) in work.iter().filter(|(_, file)| file.before.is_none()) {
        if let Some(c) = path.as_str().chars().find(|c| is_invisible(*c)) {
            faults.push((
                path.clone(),
                format!(
                    "its name holds U+{:04X}, which is invisible or joins the character before it; \
                     some file systems take it for another name",
                    u32::from(c)
                ),
            ));
        }
    }
    faults
}

/// Combining marks, zero-width characters, marks of direction.
fn is_invisible(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{300}'..='\u{36f}' | '\u{1ab0}'..='\u{1aff}' | '\u{1dc0}'..='\u{1dff}'
        | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
        | '\u{20d0}'..='\u{20ff}' | '\u{fe00}'..='\u{fe0f}' | '\u{fe20}'..='\u{fe2f}' | '\u{feff}')
}

/// Every file that an incoming patch names.
pub(super) fn named(incoming: &Incoming) -> BTreeSet<&RelPath> {
    let files = incoming.files.iter();
    files
        .flat_map(|file| [file.old_path(), file.new_path()])
        .flatten()
        .collect()
}

/// A fault as the series reports it.
pub(super) fn problem(id: &str, (file, detail): (RelPath, String)) -> Problem {
    Problem::new(id, Some(&file), detail)
}

/// What the images say against what the patch has to make.
pub(super) fn prove(images: &Images, at: usize, taken: &Taken) -> Result<()> {
    let wrong = |path: &RelPath| {
        Error::internal(format!(
            "a re-apply would not give {path} as the patch makes it"
        ))
        .hint("nothing was written; please report this")
    };
    for (path, content, executable) in &taken.results {
        match images.at(path, at + 1) {
            Some(image) if image.content == *content && image.executable == *executable => {}
            _ => return Err(wrong(path)),
        }
    }
    let touches = |path: &&RelPath| images.steps(path).iter().any(|step| step.patch == at);
    let known = |path: &RelPath| taken.results.iter().any(|(other, ..)| other == path);
    match images.paths().filter(touches).find(|path| !known(path)) {
        None => Ok(()),
        Some(path) => Err(wrong(path)),
    }
}
