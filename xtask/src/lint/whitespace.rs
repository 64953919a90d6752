//! What is inserted into upstream's files and what the overlay brings is clean text.

use crate::diff;
use crate::error::Result;
use crate::lint::{Finding, Rule, Subject};

pub(super) const RULE: Rule = Rule {
    name: "whitespace",
    about: "trailing blanks, carriage returns and missing final line ends in hooks and overlay",
    check,
};

fn check(subject: &Subject<'_>) -> Result<Vec<Finding>> {
    let mut findings = Vec::new();
    for patch in &subject.series.patches {
        for hook in patch.hooks.iter().flat_map(diff::hooks) {
            // A hook in a file with carriage returns has to have them too.
            let upstream = subject.images.pristine(&hook.path);
            let crlf = upstream.is_some_and(|image| image.content.contains(&b'\r'));
            for line in hook.text.split_inclusive(|byte| *byte == b'\n') {
                if let Some(fault) = fault(line, crlf) {
                    let (file, at) = subject.in_hooks(patch, line)?;
                    findings.push(Finding::at(file, at, fault, "mend the line"));
                }
            }
        }
        for file in &patch.overlay {
            if file.content.contains(&0) {
                continue;
            }
            let name = format!("patches/{}/src/{}", patch.id(), file.path);
            for (at, line) in file
                .content
                .split_inclusive(|byte| *byte == b'\n')
                .enumerate()
            {
                if let Some(fault) = fault(line, false) {
                    findings.push(Finding::at(&name, at + 1, fault, "mend the line"));
                }
            }
        }
    }
    Ok(findings)
}

fn fault(line: &[u8], crlf: bool) -> Option<&'static str> {
    let Some(text) = line.strip_suffix(b"\n") else {
        return Some("the last line has no line end");
    };
    let text = match text.strip_suffix(b"\r") {
        Some(text) if crlf => text,
        Some(_) => return Some("a carriage return at the end of the line"),
        None => text,
    };
    matches!(text.last(), Some(b' ' | b'\t')).then_some("trailing blanks")
}
