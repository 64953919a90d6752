//! Sources in words, and whether what the registry says of a base makes sense at all.

use crate::error::{Error, Result};
use crate::model::{Base, Source};
use crate::tree::RelPath;

/// One line that names `source`, without any password of its address.
pub(super) fn label(source: &Source) -> String {
    match source {
        Source::Git(git) => {
            let short = git.commit.get(..12).unwrap_or(&git.commit);
            format!("git {} {short}", without_password(&git.url))
        }
        Source::Pypi(pypi) => format!("pypi {} {}", pypi.package, pypi.version),
        Source::Crates(crates) => format!("crates {} {}", crates.package, crates.version),
        Source::Tarball(tarball) => format!("tarball {}", tarball.path),
        Source::Dir(dir) => format!("dir {}", dir.path),
    }
}

/// `url` without the user and password that it may hold.
pub(super) fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let end = rest.find('/').unwrap_or(rest.len());
    match rest[..end].rfind('@') {
        Some(at) if rest[..at].contains(':') => format!("{scheme}://***@{}", &rest[at + 1..]),
        _ => url.to_owned(),
    }
}

/// Refuses a base whose words could mean something else to a file system or a program.
pub(super) fn check(base: &Base) -> Result<()> {
    let broken = |what: String| {
        Err(Error::config(what).context(format!("base `{}` of registry/upstreams.toml", base.id)))
    };
    let plain = |text: &str, more: &str| {
        !text.is_empty()
            && text.starts_with(|c: char| c.is_ascii_alphanumeric())
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    if !plain(&base.id, "._-") {
        return broken("an id is letters, digits, `.`, `_` and `-`".to_owned());
    }
    for rule in &base.exclude {
        // `.git` itself may be excluded, and nothing else that a tree may not hold.
        let name = rule.strip_suffix('/').unwrap_or(rule);
        if name != ".git" && RelPath::new(name).is_err() {
            return broken(format!("exclude {rule:?} is no path inside the tree"));
        }
    }
    if base.source.is_empty() {
        return broken("it has no source".to_owned());
    }
    for source in &base.source {
        let subdir = match source {
            Source::Git(git) => {
                let hex = git.commit.bytes().all(|b| b.is_ascii_hexdigit());
                if git.commit.len() != 40 || !hex {
                    return broken(format!(
                        "commit `{}` is no full commit id (40 hex digits)",
                        git.commit
                    ));
                }
                if git.url.is_empty() || git.url.starts_with('-') {
                    return broken(format!("`{}` is no address", git.url));
                }
                continue;
            }
            Source::Pypi(pypi) => {
                if !plain(&pypi.package, "._-") || !plain(&pypi.version, "._-+!") {
                    return broken(format!(
                        "`{}=={}` is no package with its version",
                        pypi.package, pypi.version
                    ));
                }
                &pypi.subdir
            }
            Source::Crates(crates) => {
                if !plain(&crates.package, "_-") || !plain(&crates.version, ".-+") {
                    return broken(format!(
                        "`{}@{}` is no crate with its version",
                        crates.package, crates.version
                    ));
                }
                &crates.subdir
            }
            Source::Tarball(tarball) => &tarball.subdir,
            Source::Dir(_) => continue,
        };
        if !subdir.is_empty() && RelPath::new(subdir.as_str()).is_err() {
            return broken(format!("subdir {subdir:?} is no path inside the archive"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn base(text: &str) -> Base {
        let digest = "0".repeat(64);
        toml::from_str(&text.replace("DIGEST", &digest)).unwrap()
    }

    #[test]
    fn passwords_are_not_shown() {
        assert_eq!(
            without_password("https://me:secret@host/x@y"),
            "https://***@host/x@y"
        );
        for plain in [
            "ssh://git@host/x",
            "git@host:x",
            "/some/folder",
            "https://h",
        ] {
            assert_eq!(without_password(plain), plain);
        }
    }

    #[test]
    fn nonsense_is_refused_and_sense_is_not() {
        let good = "id='a-1'\ntree='DIGEST'\nexclude=['.git','docs/']\n\
            [[source]]\npypi={package='p',version='1.0',sha256='DIGEST',subdir='a/b'}";
        check(&base(good)).unwrap();
        for (from, to) in [
            ("a-1", "../a"),
            ("a-1", ""),
            ("docs/", "../docs/"),
            ("docs/", "/"),
            ("package='p'", "package='-r'"),
            ("1.0", "1.0 --index-url=x"),
            ("a/b", "a/../.."),
        ] {
            let error = check(&base(&good.replacen(from, to, 1))).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Config, "{from} {to}");
        }
        for source in [
            "git={url='u',commit='abc'}",
            "git={url='--upload-pack=x',commit='0123456789012345678901234567890123456789'}",
        ] {
            let text = format!("id='a'\ntree='DIGEST'\n[[source]]\n{source}");
            assert!(check(&base(&text)).is_err(), "{source}");
        }
        let good = "id='a'\ntree='DIGEST'\n\
            [[source]]\ncrates={package='p',version='1.0.0',sha256='DIGEST'}";
        check(&base(good)).unwrap();
        for (from, to) in [
            ("package='p'", "package='p = \"1\"\\nq'"),
            ("package='p'", "package='../p'"),
            ("1.0.0", "1\"\\n[patch]"),
            ("1.0.0", "*"),
        ] {
            assert!(
                check(&base(&good.replacen(from, to, 1))).is_err(),
                "{from} {to}"
            );
        }
        assert!(check(&base("id='a'\ntree='DIGEST'")).is_err());
    }
}
