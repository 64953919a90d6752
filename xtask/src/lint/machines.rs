//! What a build needs and where gates run: a file that cannot be read is noticed before the day that it is wanted.

use crate::error::{Result, ResultExt};
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
        if !path.exists() {
            continue;
        }
        let file = format!("registry/{name}");
        let text = fs_err::read_to_string(&path)?;
        if let Err(error) = read(&text, &file) {
            let message = error.to_string();
            let line = line_in(&message, &file).unwrap_or(1);
            findings.push(Finding::at(file, line, message, hint));
        }
    }
    Ok(findings)
}

/// The line that an error of the parser names: `file:LINE:column`.
fn line_in(message: &str, file: &str) -> Option<usize> {
    let (_, rest) = message.split_once(&format!("{file}:"))?;
    rest.split(':').next()?.parse().ok()
}
