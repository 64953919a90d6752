//! Planted differences of two builds, and the verdict that each must give.

use super::*;
use crate::model::Verdict::{self, *};

fn elf(name: &str, exports: &[&str], needed: &[&str]) -> Elf {
    Elf::new(name, exports, needed)
}

fn names(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

const OLD: [&str; 3] = [
    "llama_decode",
    "_ZN13llama_context6decodeEv",
    "_ZNSt6vectorIiE4pushEv",
];

/// The verdict on a library that exports `new`, where an overlay declares `llama_new`.
fn judged(new: &[&str], allow: &ArtifactsAllow) -> (Verdict, String) {
    let check = exports(
        &elf("libllama.so.0", &OLD, &[]),
        &elf("libllama.so.0", new, &[]),
        &names(&["llama_new"]),
        allow,
    );
    (check.verdict, check.reason.unwrap_or(check.found))
}

#[test]
fn each_planted_export_gives_its_verdict() {
    let none = ArtifactsAllow::default();
    let allow = ArtifactsAllow {
        added: vec!["_ZN13llama_context3new*".to_owned()],
        lost: vec!["llama_decode".to_owned()],
        ..none.clone()
    };
    let with = |more: &'static [&'static str]| [&OLD[..], more].concat();
    let table: [(&str, Vec<&str>, &ArtifactsAllow, Verdict, &str); 9] = [
        ("the same", with(&[]), &none, Pass, "3 exports"),
        (
            "a declared function",
            with(&["llama_new"]),
            &none,
            Pass,
            "1 declared",
        ),
        (
            "a method of a declared type",
            with(&["_ZN9llama_new1xEv"]),
            &none,
            Pass,
            "1 declared",
        ),
        (
            "an undeclared one",
            with(&["llama_newer"]),
            &none,
            Fail,
            "llama_newer is new",
        ),
        (
            "a method of theirs",
            with(&["_ZN13llama_context3newEv"]),
            &none,
            Fail,
            "is new",
        ),
        (
            "the same, allowed",
            with(&["_ZN13llama_context3newEv"]),
            &allow,
            Pass,
            "1 allowed",
        ),
        (
            "of the standard library",
            with(&["_ZNSt6vectorIfE4pushEv"]),
            &none,
            Pass,
            "1 instances",
        ),
        (
            "one is lost",
            OLD[1..].to_vec(),
            &none,
            Fail,
            "llama_decode is lost",
        ),
        (
            "the same, allowed",
            OLD[1..].to_vec(),
            &allow,
            Pass,
            "3 exports",
        ),
    ];
    for (name, new, allow, verdict, word) in table {
        let (found, what) = judged(&new, allow);
        assert_eq!(found, verdict, "{name}: {what}");
        assert!(what.contains(word), "{name}: {what}");
    }
    assert_eq!(
        judged(&OLD[..2], &none).0,
        Pass,
        "an instance of theirs may go"
    );
}

#[test]
fn a_weak_symbol_may_go_and_a_strong_one_may_not() {
    let mut old = elf("libllama.so.0", &OLD, &[]);
    let new = elf("libllama.so.0", &OLD[1..], &[]);
    let judged = |old: &Elf| exports(old, &new, &names(&[]), &ArtifactsAllow::default()).verdict;
    assert_eq!(judged(&old), Fail);
    old.weak = names(&OLD[..1]);
    assert_eq!(judged(&old), Pass);
}

#[test]
fn a_file_that_exports_nothing_was_not_understood() {
    let empty = elf("libllama.so.0", &[], &[]);
    let check = exports(&empty, &empty, &BTreeSet::new(), &ArtifactsAllow::default());
    assert_eq!(check.verdict, Fail);
}

#[test]
fn files_and_needs_are_compared() {
    let none = ArtifactsAllow::default();
    let old = [elf("libllama.so.0", &[], &["libc.so.6", "libm.so.6"])];
    assert_eq!(files(&old, &old).verdict, Pass);
    assert_eq!(needs(&old, &old, &none).verdict, Pass);
    let new = [elf(
        "libllama.so.0",
        &[],
        &["libc.so.6", "libm.so.6", "libcurl.so.4"],
    )];
    let check = needs(&old, &new, &none);
    assert_eq!(check.verdict, Fail);
    assert!(check.reason.unwrap().contains("needs libcurl.so.4"));
    let allow = ArtifactsAllow {
        needed: vec!["libllama.so.0: libcurl.so.*".to_owned()],
        ..none.clone()
    };
    assert_eq!(needs(&old, &new, &allow).verdict, Pass);
    assert_eq!(needs(&new, &old, &none).verdict, Fail, "no longer needed");
    let check = files(&old, &[elf("libllama.so.1", &[], &[])]);
    assert_eq!(check.verdict, Fail);
    let reason = check.reason.unwrap();
    assert!(reason.contains("libllama.so.0 is lost") && reason.contains("libllama.so.1 is new"));
    let mut moved = old.clone();
    moved[0].search = vec!["/somewhere".to_owned()];
    assert_eq!(needs(&old, &moved, &none).verdict, Fail);
}

#[test]
fn what_overlays_declare_is_what_stands_at_their_top() {
    let toy = crate::toy::Toy::with_two_patches();
    toy.patch(
        "first",
        crate::toy::HOOK,
        &[(
            "src/hook.cpp",
            "#define MACRO 1\nvoid hook();\nstruct lane { void run(); int width; };\n\
             namespace room { int deep(); }\nstatic int x;\nenum colour { RED };\nstruct theirs;\nclass others;\n",
        )],
    );
    let found = declared(&toy.load());
    for name in ["hook", "lane", "room", "x"] {
        assert!(found.contains(name), "{name}: {found:?}");
    }
    for name in ["MACRO", "run", "deep", "width", "RED", "theirs", "others"] {
        assert!(!found.contains(name), "{name}: {found:?}");
    }
}

/// Needs no build: this very program is an ELF file.
#[cfg(target_os = "linux")]
#[test]
fn a_real_file_is_read() {
    let own = std::env::current_exe().unwrap();
    let found = Elf::read(&own).unwrap().unwrap();
    assert!(
        found.needed.iter().any(|name| name.starts_with("libc.so")),
        "{found:?}"
    );
    let dir = tempfile::tempdir().unwrap();
    let text = dir.path().join("notes.txt");
    fs_err::write(&text, "no ELF").unwrap();
    assert_eq!(Elf::read(&text).unwrap(), None);
    let mut cut = fs_err::read(&own).unwrap();
    cut.truncate(100);
    fs_err::write(&text, cut).unwrap();
    assert_eq!(Elf::read(&text).unwrap_err().kind(), crate::Kind::Finding);
}

fn build(
    dir: &std::path::Path,
    flavour: crate::model::Flavour,
    id: Option<&[u8]>,
    stamp: Option<&str>,
) -> Build {
    use crate::model::{Artifact, BuildManifest, Digest, PatchSetStamp};
    let bin = dir.join("out/bin");
    fs_err::create_dir_all(&bin).unwrap();
    let mut content = b"\x7fELF".to_vec();
    if stamp.is_some() {
        content.extend(build::stamp::MAGIC);
        content.extend(b"unstamped");
        content.resize(content.len() + 480 - 9, 0);
    }
    let file = bin.join("libllama.so");
    fs_err::write(&file, &content).unwrap();
    if let Some(stamp) = stamp {
        let mut bytes = fs_err::read(&file).unwrap();
        build::stamp::set(&mut bytes, stamp, &file).unwrap();
        build::stamp::replace(&file, &bytes).unwrap();
    }
    Build {
        dir: dir.to_path_buf(),
        manifest: BuildManifest {
            schema: 1,
            base: "toy".to_owned(),
            tree: Digest::of(b""),
            flavour,
            backend: "cpu".to_owned(),
            variant: Default::default(),
            patchset: id.map(|id| PatchSetStamp {
                id: Digest::of(id),
                patches: Vec::new(),
            }),
            source: Digest::of(b""),
            flags: [("GGML_NATIVE".to_owned(), "ON".to_owned())].into(),
            compilers: Default::default(),
            cmake: String::new(),
            ninja: String::new(),
            launcher: None,
            backend_tools: Default::default(),
            surroundings: Default::default(),
            artifacts: vec![Artifact {
                path: "out/bin/libllama.so".to_owned(),
                size: content.len() as u64,
                sha256: Digest::of_file(&file).unwrap(),
                content: None,
            }],
        },
    }
}

#[test]
fn the_stamp_must_be_that_of_the_manifest_and_of_the_series() {
    use crate::model::{Digest, Flavour};
    let dir = tempfile::tempdir().unwrap();
    let toy = crate::toy::Toy::with_two_patches();
    let mut without = toy.load();
    without.id = Digest::of(b"set");
    let magic = std::str::from_utf8(build::stamp::MAGIC).unwrap();
    let field = format!("const char field[] = \"{magic}\";\n");
    toy.patch("first", crate::toy::HOOK, &[("src/hook.cpp", &field)]);
    let mut series = toy.load();
    series.id = Digest::of(b"set");
    let id = series.id.to_string();
    let other = Digest::of(b"other").to_string();
    let vanilla = build(&dir.path().join("v"), Flavour::Vanilla, None, None);
    let patched = |name: &str, set: &[u8], stamp| {
        build(&dir.path().join(name), Flavour::Patched, Some(set), stamp)
    };
    let judged = |patched: &Build| stamp(&vanilla, patched, &series).unwrap();
    assert_eq!(judged(&patched("a", b"set", Some(&id))).verdict, Pass);
    for (name, build, word) in [
        (
            "another stamp",
            patched("b", b"set", Some(&other)),
            "the manifest names",
        ),
        (
            "no stamp",
            patched("c", b"set", None),
            "carry a stamp, one must",
        ),
        (
            "another series",
            patched("d", b"other", Some(&other)),
            "the series is",
        ),
    ] {
        let check = judged(&build);
        assert_eq!(check.verdict, Fail, "{name}");
        assert!(
            check.reason.as_ref().unwrap().contains(word),
            "{name}: {check:?}"
        );
    }
    // With static libraries every program may have it, and one must.
    let mut two = patched("t", b"set", Some(&id));
    let mut more = two.manifest.artifacts[0].clone();
    more.path = "out/bin/llama-server".to_owned();
    fs_err::copy(
        two.dir.join("out/bin/libllama.so"),
        two.dir.join(&more.path),
    )
    .unwrap();
    two.manifest.artifacts.push(more);
    assert_eq!(judged(&two).verdict, Fail, "two libraries");
    two.manifest.variant.libraries = Libraries::Static;
    assert_eq!(judged(&two).verdict, Pass, "{:?}", judged(&two));
    let mut none = patched("c", b"set", None);
    none.manifest.variant.libraries = Libraries::Static;
    assert_eq!(judged(&none).verdict, Fail);
    // Where no patch brings the field there is none, and that is all right.
    let of = |build: &Build| stamp(&vanilla, build, &without).unwrap();
    let bare = patched("f", b"set", None);
    assert_eq!(of(&bare).verdict, Pass, "{:?}", of(&bare));
    assert_eq!(judged(&bare).verdict, Fail);
    assert_eq!(of(&patched("g", b"other", None)).verdict, Fail);
    let check = of(&patched("h", b"set", Some(&id)));
    assert!(
        check
            .reason
            .unwrap()
            .contains("no patch of the series brings one")
    );
    let stamped = build(&dir.path().join("w"), Flavour::Vanilla, None, Some(&id));
    let check = stamp(&stamped, &patched("e", b"set", Some(&id)), &series).unwrap();
    assert!(
        check
            .reason
            .unwrap()
            .contains("vanilla's out/bin/libllama.so carries")
    );
}

#[test]
fn builds_without_a_library_in_common_say_nothing() {
    let (old, new) = (elf("a.so", &OLD, &[]), elf("b.so", &OLD, &[]));
    let (old, new) = ([old], [new]);
    let allow = ArtifactsAllow::default();
    let of = |libraries, pairs: &[(&Elf, &Elf)]| -> Vec<Verdict> {
        let checks = all_exports(pairs, libraries, &BTreeSet::new(), &allow);
        checks.iter().map(|check| check.verdict).collect()
    };
    assert_eq!(of(Libraries::Shared, &pairs(&old, &new)), [Inconclusive]);
    assert_eq!(of(Libraries::Shared, &pairs(&old, &old)), [Pass]);
    // Where they are inside the programs there is none, and one that is there all the same is looked at.
    assert_eq!(of(Libraries::Static, &pairs(&old, &new)), []);
    assert_eq!(of(Libraries::Static, &pairs(&old, &old)), [Pass]);
}
