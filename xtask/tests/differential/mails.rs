//! Mails of ours in `git am`, and those of `git format-patch` here.

use std::fs;
use std::path::Path;

use llama_patchset::diff;
use llama_patchset::mail::{self, Author, Mail, Part};
use llama_patchset::tree::FileMode;

use super::git::{self, git};
use super::random::{self, Rng, Tree};
use super::written;

/// A repository whose only commit has `tree`.
fn repository(dir: &Path, tree: &Tree) {
    git::ok(git(dir).args(["init", "-q"]), b"");
    commit(dir, tree, "the base");
}

/// Makes `tree` the next commit.
fn commit(dir: &Path, tree: &Tree, message: &str) {
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        if entry.file_name() == ".git" {
            continue;
        }
        if entry.file_type().unwrap().is_dir() {
            fs::remove_dir_all(entry.path()).unwrap();
        } else {
            fs::remove_file(entry.path()).unwrap();
        }
    }
    git::write(dir, tree);
    git::ok(git(dir).args(["add", "-A", "-f"]), b"");
    git::ok(
        git(dir).args([
            "commit",
            "-q",
            "--allow-empty",
            "--cleanup=verbatim",
            "-F",
            "-",
        ]),
        message.as_bytes(),
    );
}

const SUBJECTS: &[&str] = &[
    "Fix it",
    "[server] keep every bracket [but ours]",
    "Grüße: non-ASCII, and a subject that is so long that it has to be folded somewhere, surely, or is it",
    "plain words that are so many that the subject does not fit into one line of a header any more",
    "equals = and ? and =?UTF-8?q?not=20an=20encoded=20word?=",
    "commas, \"quotes\" and <angles>",
];
const BODIES: &[&str] = &[
    "",
    "One line.",
    "Two paragraphs.\n\n  - indented\n  - list\n\nSigned-off-by: A. Author <author@example.org>",
    "From here on it is no header.\n\nÄ",
    "Subject: of this body",
    "--\nnot a signature\n-- not either",
    "+ plus\n- minus\n@@ at",
];

/// A pair of different trees without links that ours would refuse.
fn trees(rng: &mut Rng) -> (Tree, Tree) {
    loop {
        let before = random::tree(rng);
        let after = random::changed(rng, &before);
        let names: Vec<String> = after
            .keys()
            .map(|path| path.as_str().to_lowercase())
            .collect();
        let collides = (1..names.len()).any(|at| names[..at].contains(&names[at]));
        if before != after && !collides {
            return (before, after);
        }
    }
}

#[test]
fn git_am_takes_our_mails() {
    for seed in 0..10 {
        let mut rng = Rng::new(0xa11 + seed);
        let (before, after) = trees(&mut rng);
        let mail = Mail {
            author: Author {
                name: (*rng.pick(&["A. Author", "Dr. Jörg Müller", "plain"])).into(),
                email: "author@example.org".into(),
            },
            date: "Sun, 29 Nov 2026 13:16:57 +0100".into(),
            part: rng.chance(50).then_some(Part {
                number: 2,
                total: 11,
            }),
            subject: (*rng.pick(SUBJECTS)).into(),
            body: (*rng.pick(BODIES)).into(),
            notes: String::new(),
            diff: written(&before, &after),
        };
        let text = mail::write(&mail).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("repository");
        fs::create_dir(&dir).unwrap();
        repository(&dir, &before);
        git::ok(
            git(&dir).args(["am", "-q", "--keep-cr", "--keep-non-patch"]),
            &text,
        );
        assert_eq!(git::read(&dir), after, "{}", String::from_utf8_lossy(&text));
        let said = git::ok(
            git(&dir).args(["log", "-1", "--format=%an%n%ae%n%aD%n%B"]),
            b"",
        );
        let said = String::from_utf8(said).unwrap();
        let message = match mail.body.as_str() {
            "" => mail.subject.clone(),
            body => format!("{}\n\n{body}", mail.subject),
        };
        let expected = format!(
            "{}\n{}\n{}\n{message}",
            mail.author.name, mail.author.email, mail.date
        );
        assert_eq!(said.trim_end(), expected);
    }
}

#[test]
fn mails_of_git_format_patch_are_read() {
    for seed in 0..10 {
        let mut rng = Rng::new(0xf0 + seed);
        let (before, after) = trees(&mut rng);
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("repository");
        fs::create_dir(&dir).unwrap();
        repository(&dir, &before);
        let (subject, body) = (*rng.pick(SUBJECTS), *rng.pick(BODIES));
        let message = match body {
            "" => format!("{subject}\n"),
            body => format!("{subject}\n\n{body}\n"),
        };
        commit(&dir, &after, &message);
        let text = git::ok(
            git(&dir).args(["format-patch", "-1", "--stdout", "-n"]),
            b"",
        );
        let shown = String::from_utf8_lossy(&text).into_owned();
        let mail = mail::read(&text).unwrap_or_else(|error| panic!("{error}: {shown}"));
        // A message that begins like a header is one for whoever reads a mail, git included.
        if !body.starts_with("Subject: ") {
            assert_eq!(
                (mail.subject.as_str(), mail.body.as_str()),
                (subject, body),
                "{shown}"
            );
        }
        assert_eq!(mail.author.name, "A. Author");
        let part = Part {
            number: 1,
            total: 1,
        };
        assert_eq!(mail.part, Some(part), "{shown}");
        let mut result = before.clone();
        for (path, blob) in diff::apply_files(&mail.files().unwrap(), &before).unwrap() {
            match blob {
                Some(blob) => result.insert(path, blob),
                None => result.remove(&path),
            };
        }
        assert_eq!(result, after, "{shown}");
        // Ours to git's last byte, but for what git makes of its own version and commit.
        let stable = [
            "format-patch",
            "-1",
            "--stdout",
            "-n",
            "--zero-commit",
            "--no-signature",
        ];
        let stable = git::ok(git(&dir).args(stable), b"");
        if !body.starts_with("Subject: ") {
            let again = mail::write(&mail).unwrap();
            assert_eq!(
                String::from_utf8_lossy(&again),
                String::from_utf8_lossy(&stable)
            );
        }
    }
}

#[test]
fn a_series_of_mails_is_read_whole() {
    let mut rng = Rng::new(7);
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("repository");
    fs::create_dir(&dir).unwrap();
    let mut trees = vec![random::tree(&mut rng)];
    repository(&dir, &trees[0]);
    for at in 0..4 {
        let mut next = trees[at].clone();
        while next == trees[at] {
            next = random::changed(&mut rng, &trees[at]);
        }
        next.retain(|_, blob| blob.mode != FileMode::Link || blob.content != b"");
        commit(
            &dir,
            &next,
            &format!("step {at}\n\nFrom {} Mon Sep 17 00:00:00 2002\n", "x"),
        );
        trees.push(next);
    }
    let text = git::ok(
        git(&dir).args(["format-patch", "-4", "--stdout", "--cover-letter", "-M"]),
        b"",
    );
    let mails = mail::read_mbox(&text);
    // The message above looks like the beginning of a mail, for git as well.
    assert!(mails.is_err());
    let text = String::from_utf8_lossy(&text).replace("2002\n", "\n");
    let mails = mail::read_mbox(text.as_bytes()).unwrap();
    assert_eq!(mails.len(), 5);
    for (at, mail) in mails.iter().enumerate() {
        assert_eq!(
            mail.part,
            Some(Part {
                number: at as u32,
                total: 4
            })
        );
        if at == 0 {
            assert!(mail.diff.is_empty());
            continue;
        }
        let mut tree = trees[at - 1].clone();
        for (path, blob) in diff::apply_files(&mail.files().unwrap(), &trees[at - 1]).unwrap() {
            match blob {
                Some(blob) => tree.insert(path, blob),
                None => tree.remove(&path),
            };
        }
        assert_eq!(tree, trees[at]);
    }
}
