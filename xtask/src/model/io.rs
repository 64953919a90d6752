//! Reading and writing the project's data files.

use std::io::Write;
use std::path::Path;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result, ResultExt};

/// Version of every TOML format of the project.
const SCHEMA: i64 = 1;

/// What every TOML file begins with.
#[derive(Deserialize)]
struct Header {
    schema: i64,
}

/// Reads a TOML file. A broken one is an error with file, line and column; one of another schema
/// is named as such, and not by the first key that is new in it.
pub fn read_toml<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs_err::read_to_string(path)?;
    parse_toml(&text, &path.display().to_string())
}

/// As [`read_toml`], of a text that stands in the file `name`.
pub fn parse_toml<T: DeserializeOwned>(text: &str, name: &str) -> Result<T> {
    // All are read at every command: twice only where need be.
    if !begins_with_schema(text)
        && let Ok(Header { schema }) = toml::from_str(text)
        && schema != SCHEMA
    {
        return Err(Error::config(format!(
            "schema {schema} is not understood; this program reads schema {SCHEMA}"
        ))
        .context(name)
        .hint("use the version of this program that belongs to the checkout"));
    }
    toml::from_str(text).map_err(|error| {
        let place = match error.span() {
            Some(span) => {
                let (line, column) = line_column(text, span.start);
                format!("{name}:{line}:{column}")
            }
            None => name.to_owned(),
        };
        let message = error.message().trim().replace('\n', ", ");
        let near = near(&message).map(str::to_owned);
        let error = Error::config(message).context(place);
        match near {
            Some(near) => error.hint(format!("did you mean `{near}`?")),
            None => error,
        }
    })
}

/// The nearest of what could stand there, in a message such as ``unknown field `x`, expected one
/// of `a`, `b` ``.
fn near(message: &str) -> Option<&str> {
    let rest = ["unknown field ", "unknown variant "]
        .iter()
        .find_map(|begin| message.strip_prefix(begin))?;
    let (wrong, known) = rest.split_once(", expected ")?;
    let wrong = wrong.trim_matches('`');
    let known = known.split('`').skip(1).step_by(2);
    let scored = known.map(|name| (strsim::jaro_winkler(wrong, name), name));
    let best = scored.max_by(|a, b| a.0.total_cmp(&b.0))?;
    (best.0 > 0.8).then_some(best.1)
}

/// Whether the first key is the schema that this program reads, as in every file that is right.
fn begins_with_schema(text: &str) -> bool {
    let mut lines = text.lines().map(str::trim);
    let first = lines.find(|line| !line.is_empty() && !line.starts_with('#'));
    first == Some("schema = 1")
}

/// Reads a JSON file that this program wrote.
pub fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = fs_err::read_to_string(path)?;
    serde_json::from_str(&text)
        .map_err(|error| Error::config(error.to_string()).context(path.display().to_string()))
}

/// Writes a JSON file in one step; see [`write_atomic`].
pub fn write_json<T: Serialize>(path: &Path, value: &T) -> Result<()> {
    write_atomic(path, &json_bytes(value)?)
}

/// What [`write_json`] writes.
pub fn json_bytes<T: Serialize>(value: &T) -> Result<Vec<u8>> {
    let mut text =
        serde_json::to_vec_pretty(value).map_err(|error| Error::internal(error.to_string()))?;
    text.push(b'\n');
    Ok(text)
}

/// Writes a file so that after a crash the old or the new content is there, never a mixture:
/// a temporary file beside it, flushed to disk, renamed over it.
pub fn write_atomic(path: &Path, content: &[u8]) -> Result<()> {
    let dir = path.parent().unwrap_or(Path::new("."));
    fs_err::create_dir_all(dir)?;
    let write = || -> std::io::Result<()> {
        let mut file = tempfile::Builder::new()
            .prefix(".tmp-")
            .permissions_for_all()
            .tempfile_in(dir)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)?;
        std::fs::File::open(dir)?.sync_all()
    };
    write().context(|| format!("writing {}", path.display()))
}

trait PermissionsForAll {
    fn permissions_for_all(&mut self) -> &mut Self;
}

impl PermissionsForAll for tempfile::Builder<'_, '_> {
    /// Temporary files are private by default; data files should have the usual mode.
    fn permissions_for_all(&mut self) -> &mut Self {
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            self.permissions(std::fs::Permissions::from_mode(0o644));
        }
        self
    }
}

/// Line and column, both from 1, of the byte `offset` of `text`.
fn line_column(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n')
        .count()
        + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SeriesFile;

    #[test]
    fn broken_toml_names_file_line_and_column() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("series.toml");
        std::fs::write(&path, "schema = 1\n[series]\n\"x\" = [1]\n").unwrap();
        let error = read_toml::<SeriesFile>(&path).unwrap_err();
        assert!(error.to_string().contains("series.toml:3:8"), "{error}");
        assert_eq!(error.kind(), crate::Kind::Config);
    }

    #[test]
    fn the_nearest_of_what_could_stand_there_is_named() {
        for (message, expected) in [
            (
                "unknown field `n_max`, expected one of `kind`, `n-max`",
                Some("n-max"),
            ),
            ("unknown field `titel`, expected `title`", Some("title")),
            (
                "unknown variant `vanila`, expected `vanilla` or `patched`",
                Some("vanilla"),
            ),
            (
                "unknown field `quux`, expected one of `kind`, `n-max`",
                None,
            ),
            ("missing field `id`", None),
        ] {
            assert_eq!(near(message), expected, "{message}");
        }
    }

    #[test]
    fn another_schema_is_named_before_its_new_keys() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("series.toml");
        std::fs::write(&path, "schema = 2\nnew = 1\n[series]\n").unwrap();
        let error = read_toml::<SeriesFile>(&path).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("series.toml: schema 2"), "{text}");
        std::fs::write(&path, "[series]\n").unwrap();
        let missing = read_toml::<SeriesFile>(&path).unwrap_err().to_string();
        assert!(missing.contains("missing field `schema`"), "{missing}");
    }

    #[test]
    fn atomic_write_replaces_and_leaves_no_temporary_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sub/file.json");
        write_atomic(&path, b"one").unwrap();
        write_atomic(&path, b"two").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"two");
        assert_eq!(
            std::fs::read_dir(dir.path().join("sub")).unwrap().count(),
            1
        );
    }
}
