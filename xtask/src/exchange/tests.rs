//! Exports, and the way out and in again, on a toy base.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::*;
use crate::Kind;
use crate::diff;
use crate::patchset::Images;
use crate::toy::{Toy, put};
use crate::tree::{RelPath, fault};

/// All files below a folder with bytes and executable bits.
pub(super) fn files(dir: &Path) -> BTreeMap<String, (Vec<u8>, bool)> {
    use std::os::unix::fs::PermissionsExt as _;
    walkdir::WalkDir::new(dir)
        .into_iter()
        .map(Result::unwrap)
        .filter(|entry| entry.file_type().is_file())
        .map(|entry| {
            let mode = entry.metadata().unwrap().permissions().mode();
            let name = entry.path().strip_prefix(dir).unwrap();
            let content = fs::read(entry.path()).unwrap();
            (name.display().to_string(), (content, mode & 0o100 != 0))
        })
        .collect()
}

/// What the whole series makes, by file.
pub(super) fn result(toy: &Toy) -> BTreeMap<RelPath, (Vec<u8>, bool)> {
    let images = Images::compute(&toy.pristine, &toy.load()).unwrap();
    let at_end = |path: &RelPath| {
        let image = images.at(path, images.patches()).unwrap();
        (image.content.clone(), image.executable)
    };
    images
        .paths()
        .map(|path| (path.clone(), at_end(path)))
        .collect()
}

fn exported(toy: &Toy, format: Format) -> Vec<Named> {
    export(&toy.ctx, &toy.pristine, &toy.load(), &[], format).unwrap()
}

/// Writes an export into a folder of the toy, and returns what to import.
fn written(toy: &Toy, format: Format) -> Vec<PathBuf> {
    let dir = toy.root().join("out");
    let files = exported(toy, format);
    write_dir(&toy.ctx, &dir, &files).unwrap();
    match format {
        Format::Quilt => vec![dir],
        _ => files.iter().map(|file| dir.join(&file.name)).collect(),
    }
}

pub(super) fn import_all(toy: &Toy, paths: Vec<PathBuf>) -> crate::Result<Imported> {
    let request = Request {
        paths,
        ..Request::default()
    };
    import(&toy.ctx, &toy.pristine, &request)
}

fn executable(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// A series with all that is hard to carry: hooks on hooks, hooks in another form than ours, CR LF,
/// no line end at the end, names and texts beyond ASCII, brackets, executables, empty files.
fn hard() -> Toy {
    let toy = Toy::with_two_patches();
    let dir = toy.root().join("patches");
    put(
        &dir.join("first/patch.toml"),
        "# Kept.\nschema = 1\r\nid = \"first\"\ntitle = \"[server] Grüße: [RFC] brackets, and so long that it must be folded\"\n\
         purpose = \"\"\"\nWhy, in one line that is a good deal longer than any line of a mail should be, and so is broken.\n\n\
         ---\ndiff -u looks like a diff\nFrom nobody\n\nSigned-off-by: Jörg <j@example.org>\n\"\"\"\n\
         author = \"Jörg \\\"J.\\\" Müller <j@example.org>\"\ndate = \"Sun, 29 Nov 2026 13:16:57 +0100\"\n\
         gates = [\"chash\"]\nswitches = [\"OPENCOTI_X\"]\n[notes]\n\"src/main.c\" = \"Between one and two.\"",
    );
    put(
        &dir.join("first/README.md"),
        "No line end, and an escape \u{1b}[0m",
    );
    let src = dir.join("first/src/src");
    put(&src.join("crlf.txt"), "a\r\n\r\nb\r\n");
    put(&src.join("no end.txt"), "a\nb");
    put(&src.join("empty"), "");
    put(&src.join("Größe \"x\".c"), "int grösse;\n-- \nFrom me\n");
    fs::write(src.join("latin1.txt"), b"caf\xe9\n").unwrap();
    put(&src.join("run.sh"), "#!/bin/sh\n");
    executable(&src.join("run.sh"));
    put(
        &dir.join("second/patch.toml"),
        "schema = 1\nid = \"second\"\ntitle = \"The second\"\npurpose = \"\"\nrequires = [\"first\"]\n",
    );
    // A third one that hooks into an overlay with CR LF and into one without line end.
    put(
        &dir.join("third/hooks.toy.patch"),
        "diff --git a/src/crlf.txt b/src/crlf.txt\n--- a/src/crlf.txt\n+++ b/src/crlf.txt\n@@ -1,3 +1,4 @@\n a\r\n+x opencoti-hook: third\r\n \r\n b\r\n\
         diff --git \"a/src/no end.txt\" \"b/src/no end.txt\"\n--- \"a/src/no end.txt\"\n+++ \"b/src/no end.txt\"\n@@ -1,2 +1,3 @@\n a\n+x opencoti-hook: third\n b\n\\ No newline at end of file\n",
    );
    put(
        &dir.join("third/hooks.patch"),
        "for some other base\n--- a/src/main.c\n+++ b/src/main.c\n@@ -1 +1,2 @@\n+x\n y\n",
    );
    put(
        &dir.join("third/patch.toml"),
        "schema = 1\nid = \"third\"\ntitle = \"\"\npurpose = \"Why.\"\nrequires = [\"first\"]\n",
    );
    toy.series(&["first", "second", "third"]);
    toy
}

/// Takes all patches out, and imports `paths`.
fn again(toy: &Toy, paths: Vec<PathBuf>) {
    toy.series(&[]);
    fs::remove_dir_all(toy.root().join("patches")).unwrap();
    import_all(toy, paths).unwrap();
}

#[test]
fn out_and_in_again_is_the_same_to_the_byte() {
    for format in [Format::Mail, Format::Quilt] {
        let toy = hard();
        let (before, made) = (files(&toy.root().join("patches")), result(&toy));
        let first = exported(&toy, format);
        assert_eq!(first, exported(&toy, format));
        let paths = written(&toy, format);
        again(&toy, paths);
        let after = files(&toy.root().join("patches"));
        assert_eq!(
            before.keys().collect::<Vec<_>>(),
            after.keys().collect::<Vec<_>>()
        );
        for (name, content) in &before {
            assert_eq!(content, &after[name], "{name}");
        }
        assert_eq!(toy.load().ids(), ["first", "second", "third"]);
        assert_eq!(result(&toy), made);
        assert_eq!(exported(&toy, format), first);
    }
}

#[test]
fn a_mailbox_and_single_mails_are_alike() {
    let toy = hard();
    let before = files(&toy.root().join("patches"));
    let mbox: Vec<u8> = exported(&toy, Format::Mail)
        .iter()
        .flat_map(|file| file.content.clone())
        .collect();
    let path = toy.root().join("all.mbox");
    fs::write(&path, mbox).unwrap();
    again(&toy, vec![path]);
    assert_eq!(files(&toy.root().join("patches")), before);
}

/// As after `git am` and `git format-patch`: the block is gone, the id and all that git keeps is not.
#[test]
fn without_its_block_a_mail_keeps_what_git_keeps() {
    let toy = hard();
    let made = result(&toy);
    let mut paths = Vec::new();
    for file in exported(&toy, Format::Mail) {
        let mut mail = crate::mail::read(&file.content).unwrap();
        mail.notes = " src/main.c | 1 +\n".into();
        // As git itself names it: the whole line.
        let text = String::from_utf8_lossy(&mail.diff).into_owned();
        if file.name.ends_with("second.patch") {
            mail.diff = text
                .replace("@@ int main()\n", "@@ int main() {\n")
                .into_bytes();
        }
        let path = toy.root().join(&file.name);
        fs::write(&path, crate::mail::write(&mail).unwrap()).unwrap();
        paths.push(path);
    }
    again(&toy, paths);
    let series = toy.load();
    assert_eq!(series.ids(), ["first", "second", "third"]);
    assert_eq!(result(&toy), made);
    let manifest = &series.patches[0].manifest;
    assert_eq!(
        manifest.title,
        "[server] Grüße: [RFC] brackets, and so long that it must be folded"
    );
    assert_eq!(manifest.author, "Jörg \"J.\" Müller <j@example.org>");
    assert_eq!(manifest.date, "Sun, 29 Nov 2026 13:16:57 +0100");
    assert!(
        manifest
            .purpose
            .ends_with("\n\nSigned-off-by: Jörg <j@example.org>\n")
    );
    assert!(!manifest.purpose.contains("Patchset-Id"));
    // The second time nothing changes any more.
    let first = exported(&toy, Format::Mail);
    let paths = written(&toy, Format::Mail);
    again(&toy, paths);
    assert_eq!(exported(&toy, Format::Mail), first);
}

#[test]
fn a_squashed_diff_is_all_that_the_series_does() {
    let toy = hard();
    let files = exported(&toy, Format::Diff);
    let parsed = diff::parse_files(&files[0].content).unwrap();
    let mut base: BTreeMap<RelPath, crate::tree::Blob> = BTreeMap::new();
    for (path, _) in toy.pristine.manifest.iter() {
        let content = fs::read(path.below(&toy.pristine.root)).unwrap();
        base.insert(path.clone(), crate::tree::Blob::plain(content));
    }
    let changes = diff::apply_files(&parsed, &base).unwrap();
    let made = changes.into_iter().map(|(path, blob)| {
        let blob = blob.unwrap();
        (
            path,
            (blob.content, blob.mode == crate::tree::FileMode::Executable),
        )
    });
    assert_eq!(made.collect::<BTreeMap<_, _>>(), result(&toy));
    // Of two side by side, not of two with one between.
    let some = |ids: &[&str]| {
        let ids: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
        export(&toy.ctx, &toy.pristine, &toy.load(), &ids, Format::Diff)
    };
    let two = some(&["third", "second"]).unwrap();
    assert!(!String::from_utf8_lossy(&two[0].content).contains("hook.c"));
    assert_eq!(some(&["second"]).unwrap()[0].name, "second.diff");
    let error = some(&["first", "third"]).unwrap_err();
    assert!(
        error.to_string().contains("`second` stands between"),
        "{error}"
    );
    assert!(some(&["frist"]).unwrap_err().hints()[0].contains("`first`"));
}

#[test]
fn what_cannot_be_carried_is_refused() {
    let toy = Toy::with_two_patches();
    fs::write(toy.root().join("patches/first/src/src/hook.c"), b"a\0b\n").unwrap();
    for format in [Format::Mail, Format::Quilt, Format::Diff] {
        let error = export(&toy.ctx, &toy.pristine, &toy.load(), &[], format).unwrap_err();
        assert!(
            error.to_string().contains("src/hook.c is binary"),
            "{error}"
        );
    }
    let toy = Toy::new();
    toy.patch("empty", "", &[]);
    let all = |toy: &Toy| export(&toy.ctx, &toy.pristine, &toy.load(), &[], Format::Mail);
    assert!(
        all(&toy)
            .unwrap_err()
            .to_string()
            .contains("has no patches")
    );
    toy.series(&["empty"]);
    let error = all(&toy).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("exporting `empty`: it changes nothing"),
        "{error}"
    );
    toy.patch("lost", crate::toy::HOOK, &[]);
    put(
        &toy.root().join("patches/lost/patch.toml"),
        "schema = 1\nid = \"lost\"\ntitle = \"x\"\npurpose = \"\"\nauthor = \"me\"\n",
    );
    toy.series(&["lost"]);
    let error = all(&toy).unwrap_err();
    assert!(
        error.to_string().contains("author \"me\" cannot be read"),
        "{error}"
    );
}

#[test]
fn an_export_replaces_an_export_and_nothing_else() {
    let toy = Toy::with_two_patches();
    let dir = toy.root().join("deep/out");
    let all = exported(&toy, Format::Mail);
    assert!(write_dir(&toy.ctx, &dir, &all).unwrap());
    assert!(!write_dir(&toy.ctx, &dir, &all).unwrap(), "nothing changed");
    let quilt = exported(&toy, Format::Quilt);
    assert!(write_dir(&toy.ctx, &dir, &quilt[2..]).unwrap());
    assert_eq!(
        files(&dir).len(),
        2,
        "the mails are gone, series and record are there"
    );
    let before = files(&dir);
    let refused = |what: &str| {
        let error = write_dir(&toy.ctx, &dir, &all).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage);
        assert!(error.to_string().contains(what), "{error}");
    };
    put(&dir.join("mine.txt"), "mine\n");
    refused("mine.txt");
    fs::remove_file(dir.join("mine.txt")).unwrap();
    put(&dir.join("series"), "edited\n");
    refused("series");
    fs::write(dir.join("series"), &before["series"].0).unwrap();
    fs::create_dir(dir.join(".pc")).unwrap();
    refused(".pc");
    fs::remove_dir(dir.join(".pc")).unwrap();
    assert!(write_dir(&toy.ctx, &dir, &all).unwrap());

    let link = toy.root().join("link");
    std::os::unix::fs::symlink(&dir, &link).unwrap();
    assert!(write_dir(&toy.ctx, &link, &all).is_err());
    assert!(write_dir(&toy.ctx, &toy.root().join("patches"), &all).is_err());
    fs::create_dir(toy.root().join("void")).unwrap();
    assert!(write_dir(&toy.ctx, &toy.root().join("void"), &all).unwrap());
    let left = fs::read_dir(toy.root().join("deep")).unwrap().count();
    assert_eq!(left, 1, "nothing beside it");

    let file = toy.root().join("all.diff");
    let diff = &exported(&toy, Format::Diff)[0];
    assert!(write_file(&toy.ctx, &file, diff).unwrap());
    assert!(!write_file(&toy.ctx, &file, diff).unwrap());
    let other = &export(
        &toy.ctx,
        &toy.pristine,
        &toy.load(),
        &["first".into()],
        Format::Diff,
    )
    .unwrap()[0];
    assert!(write_file(&toy.ctx, &file, other).unwrap());
    fs::write(&file, [&other.content[..], b"mine\n"].concat()).unwrap();
    let error = write_file(&toy.ctx, &file, diff).unwrap_err();
    assert!(error.to_string().contains("edited since"), "{error}");
}

/// A kill before every single change: the folder is the old export or the new one, and the next
/// export works.
#[test]
fn a_kill_at_any_step_of_an_export_leaves_before_or_after() {
    let toy = Toy::with_two_patches();
    let dir = toy.root().join("out");
    let (old, new) = (exported(&toy, Format::Quilt), exported(&toy, Format::Mail));
    write_dir(&toy.ctx, &dir, &old).unwrap();
    let was = files(&dir);
    write_dir(&toy.ctx, &dir, &new).unwrap();
    let wanted = files(&dir);
    let (mut before, mut after) = (0, 0);
    for kills in 1.. {
        write_dir(&toy.ctx, &dir, &old).unwrap();
        fault::kill_after(kills);
        let result = write_dir(&toy.ctx, &dir, &new);
        let killed = fault::disarm();
        assert_eq!(result.is_err(), killed);
        match files(&dir) {
            found if found == was => before += 1,
            found if found == wanted => after += 1,
            found => panic!("after a kill at step {kills}: {:?}", found.keys()),
        }
        if !killed {
            break;
        }
    }
    assert!(before > 3 && after >= 2, "{before} {after}");
}

/// A patch whose overlay is `content`, out and in again in both forms of a series.
fn keeps(title: &str, content: &[u8]) {
    for format in [Format::Mail, Format::Quilt] {
        let toy = Toy::new();
        toy.patch("one", "", &[("src/new.txt", "")]);
        fs::write(toy.root().join("patches/one/src/src/new.txt"), content).unwrap();
        put(
            &toy.root().join("patches/one/patch.toml"),
            &format!("schema = 1\nid = \"one\"\ntitle = \"{title}\"\npurpose = \"\"\n"),
        );
        toy.series(&["one"]);
        let first = exported(&toy, format);
        let mail = crate::mail::read(&first[0].content).unwrap();
        assert_eq!(mail.subject, title);
        let paths = written(&toy, format);
        again(&toy, paths);
        let patch = &toy.load().patches[0];
        assert_eq!(patch.overlay[0].content, content);
        assert_eq!(patch.manifest.title, title);
        assert_eq!(exported(&toy, format), first);
    }
}

// Each of the next four was lost by another project's patch scripts once.

/// electron#28360.
#[test]
fn carriage_returns_are_kept() {
    keeps("CR LF", b"a\r\n\r\nb\n\rc\r\r\n");
    keeps("Only CR LF", b"a\r\nb\r\n");
}

/// electron#28454.
#[test]
fn text_beyond_ascii_is_kept() {
    keeps("Grüße, 日本語 and é", "ä 日本語\n".as_bytes());
    keeps("No UTF-8", b"caf\xe9 \xff\xfe\n");
}

/// electron#48797.
#[test]
fn brackets_in_a_subject_are_kept() {
    for title in [
        "[server] x",
        "[a] [b] x",
        "[RFC] x",
        "x [y]",
        "[PATCH] x",
        "[PATCH 1/2] x",
        "Re: x",
    ] {
        keeps(title, b"x\n");
    }
}

/// electron#15579.
#[test]
fn a_missing_last_line_end_stays_missing() {
    keeps("None", b"a\nb");
    keeps("Only one line", b"a");
    keeps("One blank", b" ");
    keeps("Several ends", b"a\n\n\n");
}
