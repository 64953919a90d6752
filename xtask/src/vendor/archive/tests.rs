use super::*;
use crate::ctx::Quiet;
use std::path::PathBuf;

/// A hand-made archive: headers are written as they are, whatever the crate thinks of them.
#[derive(Default)]
struct Maker(Vec<u8>);

impl Maker {
    fn entry(mut self, kind: EntryType, path: &str, link: &str, content: &[u8]) -> Self {
        self.header(kind, path, link, content.len() as u64, 0o644);
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
        self
    }

    fn header(&mut self, kind: EntryType, path: &str, link: &str, size: u64, mode: u32) {
        let mut header = tar::Header::new_gnu();
        let raw = header.as_gnu_mut().unwrap();
        raw.name[..path.len()].copy_from_slice(path.as_bytes());
        raw.linkname[..link.len()].copy_from_slice(link.as_bytes());
        header.set_entry_type(kind);
        header.set_size(size);
        header.set_mode(mode);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.entry(EntryType::Regular, path, "", content.as_bytes())
    }

    fn end(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

struct Case {
    dir: tempfile::TempDir,
    subdir: &'static str,
    exclude: Vec<String>,
    limits: Limits,
}

impl Case {
    fn new() -> Self {
        Case {
            dir: tempfile::tempdir().unwrap(),
            subdir: "",
            exclude: vec![".git".to_owned(), "docs/".to_owned()],
            limits: Limits::default(),
        }
    }

    fn tree(&self) -> PathBuf {
        self.dir.path().join("tree")
    }

    fn run(&self, bytes: &[u8]) -> Result<u64> {
        let path = self.dir.path().join("a.tar");
        std::fs::write(&path, bytes).unwrap();
        let selection = Selection {
            subdir: self.subdir,
            exclude: Exclude(&self.exclude),
        };
        let cancel = Cancel::default();
        unpack(&path, selection, &self.tree(), self.limits, &cancel, &Quiet)
    }

    fn read(&self, path: &str) -> String {
        std::fs::read_to_string(self.tree().join(path)).unwrap()
    }
}

#[track_caller]
fn refused(bytes: &[u8], why: &str) {
    let error = Case::new().run(bytes).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Finding, "{error}");
    assert!(error.to_string().contains(why), "{error}");
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut out = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

#[test]
fn the_top_level_folder_goes_and_only_the_subfolder_stays() {
    let tar = Maker::default()
        .entry(
            EntryType::XGlobalHeader,
            "pax_global_header",
            "",
            b"12 a=b\n",
        )
        .entry(EntryType::Directory, "top/", "", b"")
        .file("top/vendor/x/a.txt", "a")
        .file("top/vendor/xy/b.txt", "b")
        .file("top/vendor/x/docs/c.txt", "c")
        .file("top/vendor/x/.git", "gitdir: nowhere")
        .file("top/.git/config", "skipped with all that is outside")
        .end();
    for bytes in [tar.clone(), gzip(&tar)] {
        let mut case = Case::new();
        case.subdir = "vendor/x";
        assert_eq!(case.run(&bytes).unwrap(), 1);
        assert_eq!(case.read("a.txt"), "a");
        assert_eq!(std::fs::read_dir(case.tree()).unwrap().count(), 1);
    }
}

#[test]
fn a_leading_dot_folder_is_no_top_level_folder() {
    let case = Case::new();
    let tar = Maker::default()
        .entry(EntryType::Directory, "./", "", b"")
        .file("./top/a", "1")
        .end();
    assert_eq!(case.run(&tar).unwrap(), 1);
    assert_eq!(case.read("a"), "1");
}

#[test]
fn long_names_work() {
    let case = Case::new();
    let name = format!("top/{}/end", "n".repeat(150));
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(1);
    header.set_mode(0o755);
    builder.append_data(&mut header, &name, &b"x"[..]).unwrap();
    assert_eq!(case.run(&builder.into_inner().unwrap()).unwrap(), 1);
    assert_eq!(case.read(&name[4..]), "x");
}

#[test]
fn paths_that_leave_the_tree_are_refused() {
    let one = |path: &str| Maker::default().file(path, "x").end();
    refused(&one("/etc/passwd"), "absolute");
    refused(&one("top/../../x"), "`..` component");
    refused(&one("../x"), "`..` component");
    refused(&one("top//x"), "it is absolute");
    refused(&one("top/a//x"), "empty component");
    refused(&one("top/a\\..\\x"), "backslash");
    refused(&one("top/.git/hooks/post-checkout"), ".git folder");
    refused(&one("top/sub/.git/config"), ".git folder");
    refused(&one("top/.GIT/config"), ".git folder");
    // What looks excluded is not excused.
    refused(&one("top/docs/../../x"), "`..` component");
    refused(&one("/top/docs/x"), "absolute");
    let folder = Maker::default().entry(EntryType::Directory, "top/.git/", "", b"");
    refused(&folder.end(), ".git folder");
}

#[test]
fn an_archive_without_one_top_level_folder_is_refused() {
    let two = Maker::default().file("a/x", "").file("b/x", "").end();
    refused(&two, "more than one top-level folder");
    let none = Maker::default().file("x", "").end();
    refused(&none, "top-level folder");
    refused(&Maker::default().end(), "holds nothing");
}

#[test]
fn links_out_and_writes_through_links_are_refused() {
    let link = |target: &str| Maker::default().entry(EntryType::Symlink, "top/a/l", target, b"");
    refused(&link("/tmp").end(), "absolute");
    refused(&link("../../x").end(), "leaves the tree");
    refused(&link("b/../../../x").end(), "goes up after");
    refused(
        &link("../b").file("top/a/l/x", "1").end(),
        "written through",
    );
    let hard = Maker::default()
        .file("top/a", "1")
        .entry(EntryType::Link, "top/b", "top/a", b"");
    refused(&hard.end(), "hard link");
}

#[cfg(unix)]
#[test]
fn a_link_inside_is_kept() {
    let case = Case::new();
    let tar = Maker::default()
        .file("top/a", "1")
        .entry(EntryType::Symlink, "top/l", "a", b"")
        .end();
    assert_eq!(case.run(&tar).unwrap(), 2);
    assert_eq!(
        std::fs::read_link(case.tree().join("l")).unwrap(),
        Path::new("a")
    );
}

#[test]
fn what_is_no_file_is_refused() {
    for (kind, why) in [
        (EntryType::Fifo, "named pipe"),
        (EntryType::Char, "device"),
        (EntryType::Block, "device"),
        (EntryType::new(b'Z'), "of kind"),
    ] {
        refused(&Maker::default().entry(kind, "top/x", "", b"").end(), why);
    }
}

#[test]
fn duplicates_are_refused_whatever_the_case() {
    let two = |other: &str| Maker::default().file("top/a", "1").file(other, "1").end();
    refused(&two("top/a"), "there twice");
    refused(&two("top/A"), "upper and lower case");
    refused(&two("top/a/b"), "is a file");
}

#[test]
fn bombs_fail_before_they_are_unpacked() {
    let mut huge = Maker::default();
    huge.header(EntryType::Regular, "top/x", "", 1 << 40, 0o644);
    refused(&huge.0, "bytes unpacked");

    let mut case = Case::new();
    case.limits.total = 3 << 20;
    case.limits.entries = 4;
    let zeros = "\0".repeat(1 << 20);
    let mut tar = Maker::default();
    for at in 0..4 {
        // Excluded files count: they have to be inflated too.
        tar = tar.file(&format!("top/docs/{at}"), &zeros);
    }
    let bytes = gzip(&tar.end());
    assert!(bytes.len() < 100_000);
    let error = case.run(&bytes).unwrap_err();
    assert!(error.to_string().contains("bytes unpacked"), "{error}");

    // So do they here.
    let many = (0..5).fold(Maker::default(), |tar, at| {
        tar.file(&format!("top/docs/{at}"), "")
    });
    let error = case.run(&many.end()).unwrap_err();
    assert!(error.to_string().contains("more than 4 entries"), "{error}");
}

#[test]
fn an_endless_name_does_not_fill_the_memory() {
    let name = "n".repeat(3 << 20);
    let tar = Maker::default()
        .entry(EntryType::GNULongName, "././@LongLink", "", name.as_bytes())
        .file("top/x", "1")
        .end();
    refused(&gzip(&tar), "header without end");
}

#[test]
fn a_cut_off_archive_is_no_smaller_archive() {
    let whole = Maker::default()
        .file("top/a", "1")
        .file("top/b", &"2".repeat(2000))
        .end();
    refused(&whole[..1536 + 700], "early");
    refused(&whole[..1024 + 100], "broken");
    let packed = gzip(&whole);
    let case = Case::new();
    assert!(case.run(&packed[..packed.len() / 2]).is_err());
}

#[test]
fn other_formats_are_named() {
    for (bytes, name) in [
        (b"PK\x03\x04....".as_slice(), "zip"),
        (b"\xfd7zXZ\0..", "xz"),
        (b"BZh9....", "bzip2"),
        (b"\x28\xb5\x2f\xfd..", "zstd"),
    ] {
        let error = Case::new().run(bytes).unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        assert!(!error.hints().is_empty());
    }
}
