//! The patch-set id inside a built library.
//!
//! The overlay of the patch `ext-core` reserves a field: 32 bytes of magic, then 480 bytes of
//! text padded with NUL. Writing the id into the linked file, not into a source, keeps a change
//! of the id from recompiling anything.

use std::io::Write;
use std::path::Path;

use crate::error::{Error, Result};

/// Begins the field. It must be spelled as in the overlay.
pub const MAGIC: &[u8; 32] = b"OPENCOTI-PATCHSET-STAMP-FIELD-1:";
/// Bytes of text, with at least one NUL at the end.
const TEXT: usize = 480;

/// Reads the text of the field in `file`; `None` where it has no field.
pub fn read(file: &Path) -> Result<Option<String>> {
    let bytes = fs_err::read(file)?;
    match field(&bytes, file)? {
        Some(at) => text(&bytes, at, file).map(Some),
        None => Ok(None),
    }
}

/// Writes `id` into the field of `bytes`, which are those of `file`; `false` where they have none.
pub fn set(bytes: &mut [u8], id: &str, file: &Path) -> Result<bool> {
    if id.is_empty() || id.len() >= TEXT || !id.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Err(Error::internal(format!(
            "`{id}` cannot be stamped: it must be 1 to {} printable ASCII characters",
            TEXT - 1
        )));
    }
    let Some(at) = field(bytes, file)? else {
        return Ok(false);
    };
    text(bytes, at, file)?;
    bytes[at..at + TEXT].fill(0);
    bytes[at..at + id.len()].copy_from_slice(id.as_bytes());
    Ok(true)
}

/// Replaces the content of `file` in one step. Mode and time stamp are kept, so that Ninja sees no
/// reason to link again what depends on it.
pub fn replace(file: &Path, bytes: &[u8]) -> Result<()> {
    let meta = fs_err::metadata(file)?;
    let dir = file.parent().unwrap_or(Path::new("."));
    let mut temp = tempfile::Builder::new()
        .prefix(".stamp-")
        .tempfile_in(dir)?;
    temp.write_all(bytes)?;
    temp.as_file().set_permissions(meta.permissions())?;
    temp.as_file().set_modified(meta.modified()?)?;
    temp.as_file().sync_all()?;
    temp.persist(file).map_err(|error| error.error)?;
    Ok(())
}

/// Offset of the text of the only field in `bytes`.
fn field(bytes: &[u8], file: &Path) -> Result<Option<usize>> {
    let Some(at) = find(bytes, MAGIC, 0) else {
        return Ok(None);
    };
    let broken = |what: &str| {
        Error::finding(format!("{}: {what}", file.display()))
            .hint("only one file of the overlay may spell the magic, and only in the field itself")
    };
    let start = at + MAGIC.len();
    if find(bytes, MAGIC, start).is_some() {
        return Err(broken("the stamp field occurs more than once"));
    }
    if bytes.len() < start + TEXT {
        return Err(broken("the stamp field is cut off"));
    }
    Ok(Some(start))
}

/// The text at `at`. Bytes after the first NUL that are not NUL mean that this is no field.
fn text(bytes: &[u8], at: usize, file: &Path) -> Result<String> {
    let field = &bytes[at..at + TEXT];
    let end = field.iter().position(|byte| *byte == 0);
    let sound = end.is_some_and(|end| {
        field[end..].iter().all(|byte| *byte == 0)
            && field[..end].iter().all(|byte| matches!(byte, b' '..=b'~'))
    });
    if !sound {
        return Err(Error::finding(format!(
            "{}: what follows the magic is no stamp field of {TEXT} bytes",
            file.display()
        )));
    }
    let end = end.unwrap_or(0);
    Ok(String::from_utf8_lossy(&field[..end]).into_owned())
}

/// The first occurrence of `wanted`, which is not empty, at or after `from`. Horspool's search, since
/// a library has millions of bytes and this runs unoptimised under `cargo xtask`.
pub(super) fn find(bytes: &[u8], wanted: &[u8], from: usize) -> Option<usize> {
    let last = wanted.len() - 1;
    let mut skip = [wanted.len(); 256];
    for (at, byte) in wanted[..last].iter().enumerate() {
        skip[usize::from(*byte)] = last - at;
    }
    let mut at = from;
    while at + last < bytes.len() {
        if &bytes[at..=at + last] == wanted {
            return Some(at);
        }
        at += skip[usize::from(bytes[at + last])];
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use std::os::unix::fs::PermissionsExt;

    /// Reads, sets and replaces.
    fn write(file: &Path, id: &str) -> Result<bool> {
        let mut bytes = std::fs::read(file).unwrap();
        let is_set = set(&mut bytes, id, file)?;
        replace(file, &bytes)?;
        Ok(is_set)
    }

    fn library(fields: &[&str]) -> (tempfile::TempDir, std::path::PathBuf) {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("lib.so");
        let mut bytes = b"\x7fELF some code ".repeat(7);
        for field in fields {
            bytes.extend_from_slice(MAGIC);
            let mut text = field.as_bytes().to_vec();
            text.resize(TEXT, 0);
            bytes.extend_from_slice(&text);
            bytes.extend_from_slice(b"OPENCOTI-PATCHSET-STAMP-FIELD-2: code");
        }
        std::fs::write(&file, &bytes).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        (dir, file)
    }

    #[test]
    fn a_field_is_written_in_place() {
        let (dir, file) = library(&["unstamped"]);
        let old = std::fs::File::open(&file).unwrap();
        let long_ago = std::time::SystemTime::now() - std::time::Duration::from_secs(1000);
        old.set_modified(long_ago).unwrap();
        let before = std::fs::metadata(&file).unwrap();
        assert_eq!(read(&file).unwrap().as_deref(), Some("unstamped"));
        assert!(write(&file, "a longer text than that").unwrap());
        assert!(write(&file, "id").unwrap());
        assert_eq!(read(&file).unwrap().as_deref(), Some("id"));
        let after = std::fs::metadata(&file).unwrap();
        assert_eq!(before.modified().unwrap(), after.modified().unwrap());
        assert_eq!(before.permissions(), after.permissions());
        assert_eq!(before.len(), after.len());
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn no_field_is_no_error() {
        let (_dir, file) = library(&[]);
        assert_eq!(read(&file).unwrap(), None);
        assert!(!write(&file, "id").unwrap());
    }

    #[test]
    fn two_fields_are_refused_and_nothing_is_written() {
        let (_dir, file) = library(&["one", "two"]);
        let before = std::fs::read(&file).unwrap();
        let error = write(&file, "id").unwrap_err();
        assert_eq!(error.kind(), Kind::Finding);
        assert!(error.message().contains("more than once"));
        assert_eq!(std::fs::read(&file).unwrap(), before);
    }

    #[test]
    fn a_magic_that_begins_no_field_is_refused() {
        let (_dir, file) = library(&["x"]);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = find(&bytes, MAGIC, 0).unwrap() + MAGIC.len();
        bytes[at + 100] = b'y';
        std::fs::write(&file, &bytes).unwrap();
        assert!(write(&file, "id").is_err());
        bytes.truncate(at + 20);
        std::fs::write(&file, &bytes).unwrap();
        assert!(read(&file).unwrap_err().message().contains("cut off"));
    }

    #[test]
    fn texts_that_do_not_fit_are_refused() {
        let (_dir, file) = library(&["x"]);
        for wrong in ["", "new\nline", "é", &"a".repeat(TEXT)] {
            assert_eq!(write(&file, wrong).unwrap_err().kind(), Kind::Internal);
        }
        assert!(write(&file, &"a".repeat(TEXT - 1)).unwrap());
    }

    #[test]
    fn every_position_is_found() {
        for before in 0..70 {
            let mut bytes = vec![b'P'; before];
            bytes.extend_from_slice(MAGIC);
            assert_eq!(find(&bytes, MAGIC, 0), Some(before));
            assert_eq!(find(&bytes, MAGIC, before + 1), None);
        }
        assert_eq!(find(b"short", MAGIC, 0), None);
    }
}
