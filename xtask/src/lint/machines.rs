//! What a build needs and where gates run: a file that cannot be read is noticed before the day that it is wanted.

use std::path::Path;

use crate::error::{Error, Result, ResultExt};
use crate::lint::{Finding, Rule, Subject};
use crate::model::{HostsFile, Toolchains, parse_toml};

pub(super) const RULE: Rule = Rule {
    name: "machines",
    about: "registry/toolchains.toml and registry/hosts.toml, where they are not what they must be",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let toolchains = |text: &str, name: &str| parse_toml::<Toolchains>(text, name).map(|_| ());
    let hosts = |text: &str, name: &str| {
        let file = parse_toml::<HostsFile>(text, name)?;
        file.check().context(|| name.to_owned())
    };
    type Read<'a> = &'a dyn Fn(&str, &str) -> Result<()>;
    let files: [(&str, Read<'_>, &str); 2] = [
        (
            "toolchains.toml",
            &toolchains,
            "docs/reference/build.md says what stands in it",
        ),
        (
            "hosts.toml",
            &hosts,
            "docs/reference/hosts.md says what stands in it",
        ),
    ];
    let mut findings = Vec::new();
    for (name, read, hint) in files {
        let path = subject.project.registry(name);
        // A checkout may build nothing, and gate on no other machine.
        if path.symlink_metadata().is_err() {
            continue;
        }
        let file = format!("registry/{name}");
        if let Err(error) = text(&path, &file).and_then(|text| read(&text, &file)) {
            let message = error.to_string();
            let line = line_in(&message, &file).unwrap_or(1);
            findings.push(Finding::at(file, line, message, hint));
        }
    }
    Ok(findings)
}

/// What a file holds; that it is none, or no text, is a finding as well.
fn text(path: &Path, file: &str) -> Result<String> {
    let wrong = |what: &str| Error::config(format!("{file} {what}"));
    // Reading a pipe would wait for ever.
    match path.metadata() {
        Ok(meta) if !meta.is_file() => return Err(wrong("is no file")),
        Ok(meta) if meta.len() > LARGEST => {
            return Err(wrong("is no file of settings: it is too large"));
        }
        Ok(_) => {}
        Err(error) => return Err(wrong(&format!("cannot be read: {error}"))),
    }
    std::fs::read_to_string(path).map_err(|error| wrong(&format!("cannot be read: {error}")))
}

/// Largest file of settings, in bytes.
const LARGEST: u64 = 1 << 20;

/// The line that an error of the parser names: `file:LINE:column`.
fn line_in(message: &str, file: &str) -> Option<usize> {
    let (_, rest) = message.split_once(&format!("{file}:"))?;
    rest.split(':').next()?.parse().ok()
}
