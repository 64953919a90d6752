//! What an incoming patch is called, and the manifest that it gets.

use crate::error::{Error, Result, ResultExt as _};
use crate::exchange::incoming::Incoming;
use crate::model::PatchManifest;
use crate::patchset::is_patch_id;

/// Longest id that is made of a title.
const LONGEST: usize = 40;

/// The id of a patch: the one that the user gives, that it names, or one made of its title.
/// `number`: its place among those that come in, from 1.
pub(super) fn id(incoming: &Incoming, given: Option<&str>, number: usize) -> Result<String> {
    let manifest = incoming.folder.as_ref().map(manifest_of).transpose()?;
    let id = given
        .map(str::to_owned)
        .or(manifest.map(|manifest| manifest.id))
        .or(incoming.id.clone())
        .unwrap_or_else(|| slug(&incoming.title).unwrap_or_else(|| format!("patch-{number}")));
    if is_patch_id(&id) {
        return Ok(id);
    }
    Err(Error::usage(format!("`{id}` is no patch id"))
        .hint("lowercase letters, digits and single hyphens, beginning with a letter"))
}

/// A title as an id: its ASCII letters and digits, whole words of it where it is long.
pub(super) fn slug(title: &str) -> Option<String> {
    let mut slug = String::new();
    for word in title
        .split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
    {
        if slug.len() + 1 + word.len() > LONGEST && !slug.is_empty() {
            break;
        }
        if !slug.is_empty() {
            slug.push('-');
        }
        slug.push_str(&word[..word.len().min(LONGEST)].to_ascii_lowercase());
    }
    if slug.starts_with(|c: char| c.is_ascii_digit()) {
        slug.insert_str(0, "patch-");
    }
    is_patch_id(&slug).then_some(slug)
}

/// The manifest that one of our exports carries.
fn manifest_of(folder: &crate::exchange::folder::Folder) -> Result<PatchManifest> {
    let text = folder
        .files
        .get("patch.toml")
        .map_or(&[][..], Vec::as_slice);
    let text = std::str::from_utf8(text)
        .map_err(|_| Error::config("it is not UTF-8"))
        .context(|| "the patch.toml that it carries".to_owned())?;
    let manifest: PatchManifest = toml::from_str(text)
        .map_err(|error| Error::config(error.message().trim().replace('\n', ", ")))
        .context(|| "the patch.toml that it carries".to_owned())?;
    if manifest.schema != 1 {
        return Err(Error::config(format!(
            "the patch.toml that it carries has schema {}; this program reads schema 1",
            manifest.schema
        )));
    }
    Ok(manifest)
}

/// The text of the manifest, and what it says. `deletions`: upstream lines that the hooks delete;
/// `first`: the patch that all others stand on.
pub(super) fn manifest(
    incoming: &Incoming,
    id: &str,
    deletions: usize,
    first: Option<&str>,
) -> Result<(String, PatchManifest)> {
    let text = match &incoming.folder {
        Some(folder) => carried(folder, id)?,
        None => written(incoming, id, deletions, first),
    };
    let manifest: PatchManifest =
        toml::from_str(&text).map_err(|error| Error::internal(error.to_string()))?;
    Ok((text, manifest))
}

/// The manifest of one of our exports, to the byte but for another id.
fn carried(folder: &crate::exchange::folder::Folder, id: &str) -> Result<String> {
    let manifest = manifest_of(folder)?;
    let text = folder.files.get("patch.toml").cloned().unwrap_or_default();
    let text = String::from_utf8(text).map_err(|error| Error::internal(error.to_string()))?;
    if manifest.id == id {
        return Ok(text);
    }
    crate::authoring::edit_manifest(&text, |document| {
        document["id"] = toml_edit::value(id);
    })
}

fn written(incoming: &Incoming, id: &str, deletions: usize, first: Option<&str>) -> String {
    let quote = |text: &str| toml_edit::Value::from(text).to_string();
    let purpose = match incoming.purpose.as_str() {
        "" => "Why it exists, and what it does when it is on.\n".to_owned(),
        text => format!("{text}\n"),
    };
    let mut text = format!(
        "schema = 1\nid = {}\ntitle = {}\npurpose = {}\n",
        quote(id),
        quote(&incoming.title),
        quote(&purpose)
    );
    for (key, value) in [("author", &incoming.author), ("date", &incoming.date)] {
        if !value.is_empty() {
            text.push_str(&format!("{key} = {}\n", quote(value)));
        }
    }
    let requires = first.map_or(String::new(), quote);
    text.push_str(&format!("requires = [{requires}]\ngates = [\"chash\"]\n"));
    if deletions > 0 {
        text.push_str(&format!(
            "\n[allow]\ndeletions = {deletions}\nreason = \"\"\n"
        ));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn titles_become_ids() {
        assert_eq!(
            slug("[server] Fix: the n_past bug").as_deref(),
            Some("server-fix-the-n-past-bug")
        );
        assert_eq!(slug("3-way merge").as_deref(), Some("patch-3-way-merge"));
        assert_eq!(slug("Größe").as_deref(), Some("gr-e"));
        assert_eq!(slug("日本語"), None);
        assert_eq!(slug(&"x".repeat(99)).unwrap().len(), 40);
        assert_eq!(
            slug(&"word ".repeat(20)).unwrap(),
            "word-word-word-word-word-word-word-word"
        );
    }

    #[test]
    fn any_text_survives_the_manifest() {
        for text in [
            "",
            "plain",
            "two\nlines\n\nand \"\"\"quotes\"\"\"",
            "back\\slash\ttab",
            "\u{1}\u{7f}",
            "'''",
            "ä 日本",
        ] {
            let incoming = Incoming {
                origin: String::new(),
                id: None,
                title: format!("t {text}"),
                purpose: text.to_owned(),
                author: format!("{text} <a@b>"),
                date: String::new(),
                folder: None,
                files: Vec::new(),
                remarks: Vec::new(),
            };
            let (_, manifest) = manifest(&incoming, "x", 2, Some("first")).unwrap();
            assert_eq!(manifest.title, incoming.title);
            assert!(manifest.purpose.starts_with(text), "{:?}", manifest.purpose);
            assert_eq!(manifest.author, incoming.author);
            assert_eq!((manifest.allow.deletions, manifest.requires.len()), (2, 1));
        }
    }
}
