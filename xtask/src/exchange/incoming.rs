//! From paths to patches that want in.

use std::path::{Path, PathBuf};

use crate::diff::{self, FilePatch, Strip};
use crate::error::{Error, Result, ResultExt as _};
use crate::exchange::folder::{self, Folder};
use crate::exchange::letter::{author_text, without_trailer};
use crate::exchange::{prose, quilt};
use crate::mail::{self, Mail};

/// More than any patch that a person keeps; what is larger is a mistake or an attack.
const MAX_BYTES: u64 = 64 << 20;

/// One patch that wants in.
#[derive(Clone, Debug)]
pub(super) struct Incoming {
    /// Where it comes from, as the user named it.
    pub(super) origin: String,
    /// The id that it names for itself.
    pub(super) id: Option<String>,
    /// One line; empty where it says nothing.
    pub(super) title: String,
    /// Why; empty where it says nothing.
    pub(super) purpose: String,
    /// `Name <address>`; empty where nobody is named.
    pub(super) author: String,
    /// As mails say it; empty where it is not said.
    pub(super) date: String,
    /// The patch folder, where it is one of our exports.
    pub(super) folder: Option<Folder>,
    /// What it does.
    pub(super) files: Vec<FilePatch>,
    /// What a person should know.
    pub(super) remarks: Vec<String>,
}

/// Reads all of `paths`, in order.
pub(super) fn read(paths: &[PathBuf]) -> Result<Vec<Incoming>> {
    let mut all = Vec::new();
    for path in paths {
        let shown = path.display().to_string();
        let meta = std::fs::metadata(path).context(|| shown.clone())?;
        if meta.is_dir() {
            all.extend(quilt::read(path).context(|| shown)?);
        } else {
            let text = bytes(path)?;
            all.extend(one_file(&text, path, Strip::One).context(|| shown)?);
        }
    }
    Ok(all)
}

/// The bytes of a file, if it is one of a sane size.
pub(super) fn bytes(path: &Path) -> Result<Vec<u8>> {
    let meta = std::fs::metadata(path).context(|| path.display().to_string())?;
    if !meta.is_file() {
        return Err(Error::usage(format!("{} is no plain file", path.display())));
    }
    if meta.len() > MAX_BYTES {
        return Err(Error::config(format!(
            "{} has {} bytes; at most {MAX_BYTES} are read",
            path.display(),
            meta.len()
        )));
    }
    Ok(fs_err::read(path)?)
}

/// The patches of one file: mails, or a diff with or without a description.
pub(super) fn one_file(text: &[u8], path: &Path, strip: Strip) -> Result<Vec<Incoming>> {
    let origin = path.display().to_string();
    let stem = path
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    if strip == Strip::Zero || !prose::is_mail(text) {
        return Ok(vec![prose::read(text, origin, &stem, strip)?]);
    }
    let mails = mail::read_mbox(text)?;
    let several = mails.len() > 1;
    let parts: Vec<(u32, u32)> = mails
        .iter()
        .filter_map(|mail| mail.part)
        .filter(|part| part.number > 0)
        .map(|part| (part.number, part.total))
        .collect();
    let mut all = Vec::new();
    for (number, mail) in (1..).zip(mails) {
        let origin = match several {
            true => format!("{origin}, mail {number}"),
            false => origin.clone(),
        };
        let is_cover = mail.part.is_some_and(|part| part.number == 0);
        if mail.diff.is_empty() && is_cover && several {
            continue;
        }
        all.push(of_mail(mail, origin.clone()).context(|| origin)?);
    }
    if several
        && let (Some((_, total)), Some(last)) = (parts.first(), all.last_mut())
        && !(1..=*total).eq(parts.iter().map(|(number, _)| *number))
    {
        let numbers: Vec<String> = parts.iter().map(|(number, _)| number.to_string()).collect();
        last.remarks.push(format!(
            "of a series of {total}, the file holds number {}, in this order",
            numbers.join(", ")
        ));
    }
    Ok(all)
}

fn of_mail(mail: Mail, origin: String) -> Result<Incoming> {
    if mail.diff.is_empty() {
        return Err(Error::config("the mail holds no diff")
            .hint("leave it out; a cover letter is passed over inside a mailbox"));
    }
    let files = diff::parse_files(&mail.diff)?;
    let folder = folder::unquote(&mail.notes)?;
    let (id, purpose) = without_trailer(&mail.body);
    Ok(Incoming {
        origin,
        id,
        title: mail.subject,
        purpose,
        author: author_text(&mail.author),
        date: mail.date,
        folder,
        files,
        remarks: Vec::new(),
    })
}
