use super::*;

fn with(work: impl FnOnce(&mut Unpacker<'_>, &Path)) {
    let dir = tempfile::tempdir().unwrap();
    let cancel = Cancel::default();
    let root = dir.path().join("tree");
    let limits = Limits {
        file: 10,
        total: 25,
        entries: 8,
    };
    let mut unpacker = Unpacker::new(&root, &cancel, limits).unwrap();
    work(&mut unpacker, &root);
}

fn put(unpacker: &mut Unpacker<'_>, path: &str, content: &str) -> Result<()> {
    unpacker.file(path, false, content.len() as u64, &mut content.as_bytes())
}

#[track_caller]
fn refused(result: Result<()>, why: &str) {
    let error = result.unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Finding, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

#[test]
fn files_keep_content_and_only_the_owners_execute_bit() {
    with(|unpacker, root| {
        unpacker
            .file("a/run", true, 2, &mut "ok".as_bytes())
            .unwrap();
        put(unpacker, "a/plain", "").unwrap();
        assert_eq!(std::fs::read(root.join("a/run")).unwrap(), b"ok");
        assert_eq!(unpacker.files(), 2);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path| {
                let meta = std::fs::metadata(root.join(path)).unwrap();
                meta.permissions().mode() & 0o777
            };
            assert_eq!((mode("a/run"), mode("a/plain")), (0o755, 0o644));
        }
    });
}

#[test]
fn unsafe_paths_are_refused() {
    for path in [
        "/etc/x",
        "../x",
        "a/../../x",
        ".git/hooks/x",
        "a\\b",
        ".GIT",
    ] {
        with(|unpacker, root| {
            refused(put(unpacker, path, "x"), "unsafe path");
            assert_eq!(std::fs::read_dir(root).unwrap().count(), 0);
        });
    }
}

#[test]
fn names_that_collide_are_refused() {
    with(|unpacker, _| {
        put(unpacker, "a/File", "1").unwrap();
        refused(put(unpacker, "a/File", "1"), "there twice");
        refused(put(unpacker, "a/file", "1"), "upper and lower case");
        refused(put(unpacker, "A/other", "1"), "upper and lower case");
        put(unpacker, "caf\u{e9}/x", "1").unwrap();
        refused(put(unpacker, "cafe\u{301}/y", "1"), "form of accents");
        refused(put(unpacker, "CAFE\u{301}", "1"), "form of accents");
        put(unpacker, "cafe", "1").unwrap();
        refused(put(unpacker, "a/File/x", "1"), "is a file");
        refused(put(unpacker, "a", "1"), "a folder already");
        unpacker.folder("a").unwrap();
    });
}

#[cfg(unix)]
#[test]
fn links_stay_inside_and_nothing_is_written_through_them() {
    with(|unpacker, root| {
        unpacker.link("a/b/up", "../../c").unwrap();
        assert_eq!(
            std::fs::read_link(root.join("a/b/up")).unwrap(),
            Path::new("../../c")
        );
        refused(put(unpacker, "a/b/up/x", "1"), "written through");
        refused(put(unpacker, "a/b/up", "1"), "there twice");
    });
    for (path, target, why) in [
        ("l", "/etc/passwd", "absolute"),
        ("l", "..", "leaves"),
        ("a/b/l", "../../../x", "leaves"),
        ("a/l", "b/../../..", "goes up after"),
        ("l", "a/..", "goes up after"),
        ("l", "", "no path"),
    ] {
        with(|unpacker, root| {
            refused(unpacker.link(path, target), why);
            assert!(std::fs::symlink_metadata(root.join(path)).is_err());
        });
    }
}

#[test]
fn sizes_and_numbers_are_bounded() {
    with(|unpacker, _| {
        refused(put(unpacker, "a", "12345678901"), "more than the 10");
    });
    with(|unpacker, _| {
        put(unpacker, "a", "1234567890").unwrap();
        put(unpacker, "b", "1234567890").unwrap();
        refused(put(unpacker, "c", "1234567890"), "more than 25 bytes");
    });
    with(|unpacker, _| {
        for at in 0..8 {
            put(unpacker, &at.to_string(), "").unwrap();
        }
        refused(put(unpacker, "9", ""), "more than 8 entries");
    });
    with(|unpacker, _| {
        refused(
            unpacker.file("a", false, 5, &mut "123".as_bytes()),
            "ends 2 bytes early",
        );
    });
}

#[test]
fn cancelling_stops_it() {
    let dir = tempfile::tempdir().unwrap();
    let cancel = Cancel::default();
    let mut unpacker = Unpacker::new(&dir.path().join("t"), &cancel, Limits::default()).unwrap();
    cancel.set();
    let error = put(&mut unpacker, "a", "x").unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Interrupted);
}

#[test]
fn the_exclusion_rule_is_exact() {
    let rules = [".git".to_owned(), "docs/".to_owned()];
    let rule = Exclude(&rules);
    assert!(rule.file(".git") && rule.file("docs/a/b"));
    assert!(!rule.file("docs") && !rule.file("docs2/a") && !rule.file("a/docs/b"));
    assert!(!rule.file(".git/config") && !rule.file(".gitignore"));
    assert!(rule.folder("docs") && rule.folder("docs/a"));
    assert!(!rule.folder(".git") && !rule.folder("docs2"));
}
