//! From a series to named files.

use crate::ctx::Ctx;
use crate::diff;
use crate::error::{Error, Result, ResultExt as _};
use crate::exchange::folder::Folder;
use crate::exchange::letter::{self, binary, canonical};
use crate::mail::{self, Part};
use crate::model::Digest;
use crate::patchset::{Image, Images, Patch, Series, pristine_image};
use crate::tree::{Blob, FileMode, RelPath};
use crate::vendor::Pristine;

/// What an export is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// One mail for each patch, as `git am` takes them.
    Mail,
    /// A folder with `series` and one `.patch` for each patch, as quilt has it.
    Quilt,
    /// One diff with all that the patches do together.
    Diff,
}

/// One file of an export.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// Its name, without folders.
    pub name: String,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// What a squashed diff begins with; the digest is that of all bytes behind this line.
pub(super) const DIFF_LINE: &str = "Patchset-Export: sha256=";

/// The files of an export of the patches `ids`, all where it is empty, in the order of the series.
/// The bytes depend on nothing but the base and the patches.
///
/// # Errors
///
/// Unknown ids, patches that do not apply, patches that change nothing, binary files, and, for a
/// diff, patches that do not stand side by side in the series.
pub fn export(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    ids: &[String],
    format: Format,
) -> Result<Vec<Named>> {
    let images = Images::compute(pristine, series)?;
    let mut chosen: Vec<usize> = match ids {
        [] => (0..series.patches.len()).collect(),
        ids => ids
            .iter()
            .map(|id| Ok(series.position(id)? - 1))
            .collect::<Result<_>>()?,
    };
    chosen.sort_unstable();
    chosen.dedup();
    if chosen.is_empty() {
        return Err(Error::usage(format!(
            "the series of {} has no patches",
            series.base.id
        )));
    }
    if format == Format::Diff {
        return Ok(vec![squashed(pristine, series, &images, &chosen)?]);
    }
    let total = u32::try_from(chosen.len()).map_err(|error| Error::internal(error.to_string()))?;
    let mut files = Vec::new();
    for (number, at) in (1..).zip(&chosen) {
        ctx.cancel.check()?;
        let patch = &series.patches[*at];
        let part = (total > 1).then_some(Part { number, total });
        let content = folder(ctx, series, patch)
            .and_then(|folder| letter::mail(patch, &folder, part))
            .and_then(|mail| mail::write(&mail))
            .context(|| format!("exporting `{}`", patch.id()))?;
        files.push(Named {
            name: format!("{number:04}-{}.patch", patch.id()),
            content,
        });
    }
    if format == Format::Quilt {
        let names = files.iter().map(|file| format!("{}\n", file.name));
        let content = names.collect::<String>().into_bytes();
        files.push(Named {
            name: "series".to_owned(),
            content,
        });
    }
    Ok(files)
}

/// The files of the patch's folder that the diff does not give back to the byte.
fn folder(ctx: &Ctx, series: &Series, patch: &Patch) -> Result<Folder> {
    let dir = ctx.project.patch_dir(patch.id());
    let hooks = patch
        .hooks_file
        .as_deref()
        .and_then(|file| file.rsplit('/').next())
        .unwrap_or("hooks.patch");
    let mut folder = Folder {
        base: series.base.tree.to_string(),
        hooks: hooks.to_owned(),
        ..Folder::default()
    };
    for entry in fs_err::read_dir(&dir)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name == "src" {
            continue;
        }
        let content = fs_err::read(entry.path())?;
        if name != hooks || content != canonical(&patch.hooks) {
            folder.files.insert(name, content);
        }
    }
    Ok(folder)
}

/// What patches side by side do together.
fn squashed(
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    chosen: &[usize],
) -> Result<Named> {
    let (first, last) = match chosen {
        [first, .., last] => (*first, *last),
        [only] => (*only, *only),
        [] => return Err(Error::internal("no patch was chosen")),
    };
    if last - first + 1 != chosen.len() {
        let between = &series.patches[first..=last];
        let gap = between
            .iter()
            .zip(first..)
            .find(|(_, at)| !chosen.contains(at))
            .map_or("another patch", |(patch, _)| patch.id());
        return Err(
            Error::usage(format!("`{gap}` stands between the patches of the diff"))
                .hint("name it too, or export the patches as mails"),
        );
    }
    let mut text = Vec::new();
    for path in images.paths() {
        let before = before(pristine, images, path, first)?;
        let after = blob(images.at(path, last + 1).cloned()).or_else(|| before.clone());
        let files = diff::between_files(path, before.as_ref(), after.as_ref())?;
        if !files.is_empty() && after.is_some_and(|after| after.content.contains(&0)) {
            return Err(binary(path.as_str()));
        }
        text.extend(diff::files_to_text(&files));
    }
    if text.is_empty() {
        return Err(Error::usage("the patches change nothing"));
    }
    let mut content = format!("{DIFF_LINE}{}\n", Digest::of(&text)).into_bytes();
    content.extend(text);
    let name = match (chosen, series.patches.get(first)) {
        ([_], Some(only)) => format!("{}.diff", only.id()),
        _ => format!("{}.diff", series.base.id),
    };
    Ok(Named { name, content })
}

/// A file as the first `count` patches leave it.
fn before(
    pristine: &Pristine,
    images: &Images,
    path: &RelPath,
    count: usize,
) -> Result<Option<Blob>> {
    if images.steps(path).is_empty() {
        return Ok(blob(pristine_image(pristine, path)?));
    }
    Ok(blob(images.at(path, count).cloned()))
}

fn blob(image: Option<Image>) -> Option<Blob> {
    image.map(|image| {
        let mode = match image.executable {
            true => FileMode::Executable,
            false => FileMode::Plain,
        };
        Blob::new(image.content, mode)
    })
}
