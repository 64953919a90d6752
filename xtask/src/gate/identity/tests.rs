//! Sides that are what they should be, and sides that are not.

use std::collections::BTreeSet;

use super::*;
use crate::Kind;
use crate::model::{BuildManifest, PatchSetStamp};

fn build(dir: &Path, flavour: Flavour, text: &str) -> Build {
    fs_err::create_dir_all(dir.join("out/bin")).unwrap();
    let mut artifacts = Vec::new();
    for name in ["out/bin/llama-server", "out/bin/libllama.so.1"] {
        fs_err::write(dir.join(name), format!("{text}{name}")).unwrap();
        artifacts.push(artifact(&dir.join(name), dir).unwrap());
    }
    Build {
        dir: dir.to_path_buf(),
        manifest: BuildManifest {
            schema: 1,
            base: "base".to_owned(),
            tree: Digest::of(b""),
            flavour,
            backend: "cpu".to_owned(),
            variant: Default::default(),
            patchset: (flavour == Flavour::Patched).then(|| PatchSetStamp {
                id: Digest::of(b"set"),
                patches: Vec::new(),
            }),
            source: Digest::of(b""),
            flags: BTreeMap::new(),
            compilers: BTreeMap::new(),
            cmake: String::new(),
            ninja: String::new(),
            launcher: None,
            backend_tools: BTreeMap::new(),
            surroundings: Default::default(),
            artifacts,
        },
    }
}

fn fails(build: &Build, expected: Flavour, words: &[&str]) {
    let error = Side::of_build(build, expected, BTreeMap::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    for word in words {
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn a_build_must_be_what_its_manifest_says() {
    let dir = tempfile::tempdir().unwrap();
    let good = build(dir.path(), Flavour::Vanilla, "");
    Side::of_build(&good, Flavour::Vanilla, BTreeMap::new()).unwrap();
    fails(&good, Flavour::Patched, &["is a vanilla build"]);

    let mut set = good.clone();
    set.manifest.patchset = build(dir.path(), Flavour::Patched, "").manifest.patchset;
    fails(&set, Flavour::Vanilla, &["carries the patch set"]);
    let mut bare = good.clone();
    bare.manifest.flavour = Flavour::Patched;
    fails(&bare, Flavour::Patched, &["carries no patch set"]);
    let mut unknown = good.clone();
    unknown.manifest.artifacts.remove(0);
    fails(
        &unknown,
        Flavour::Vanilla,
        &["does not record out/bin/llama-server"],
    );

    let library = dir.path().join("out/bin/libllama.so.1");
    let recorded = Digest::of_file(&library).unwrap().to_string();
    fs_err::write(&library, "stale").unwrap();
    let found = Digest::of(b"stale").to_string();
    fails(
        &good,
        Flavour::Vanilla,
        &["libllama.so.1", &recorded, &found],
    );
    fs_err::remove_file(&library).unwrap();
    fails(&good, Flavour::Vanilla, &["libllama.so.1: missing"]);
}

#[test]
fn a_build_may_load_only_its_own_libraries() {
    let dir = tempfile::tempdir().unwrap();
    let good = build(dir.path(), Flavour::Vanilla, "");
    let side = Side::of_build(&good, Flavour::Vanilla, BTreeMap::new()).unwrap();
    let own = dir
        .path()
        .canonicalize()
        .unwrap()
        .join("out/bin/libllama.so.1");
    side.check_loaded(&BTreeSet::from([own.clone()])).unwrap();
    let foreign = BTreeSet::from([own, PathBuf::from("/usr/lib/libggml.so")]);
    let error = side.check_loaded(&foreign).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(error.to_string().contains("/usr/lib/libggml.so"), "{error}");
}

#[test]
fn the_same_thing_twice_is_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name);
    let side = |build: &Build, flavour, env: &[(&str, &str)]| {
        let env = env.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned()));
        Side::of_build(build, flavour, env.collect()).unwrap()
    };
    let vanilla = build(&path("v"), Flavour::Vanilla, "");
    let same = build(&path("s"), Flavour::Patched, "");
    let other = build(&path("o"), Flavour::Patched, "x");
    let baseline = side(&vanilla, Flavour::Vanilla, &[]);
    let reason = indistinct(&baseline, &side(&same, Flavour::Patched, &[])).unwrap();
    assert!(reason.contains("very same files"), "{reason}");
    let switched = side(&same, Flavour::Patched, &[("A", "1")]);
    assert_eq!(indistinct(&baseline, &switched), None);
    for (value, is_off) in [("", true), ("0", true), ("1", false), ("00", false)] {
        let switched = side(&same, Flavour::Patched, &[("OPENCOTI_A", value)]);
        let reason = indistinct(&baseline, &switched);
        assert_eq!(reason.is_some(), is_off, "{value}: off against off");
    }
    let candidate = side(&other, Flavour::Patched, &[]);
    assert_eq!(indistinct(&baseline, &candidate), None);
}

#[test]
fn a_switch_that_nobody_declares_is_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let build = build(dir.path(), Flavour::Patched, "");
    let side = |name: &str| {
        let env = BTreeMap::from([(name.to_owned(), "1".to_owned())]);
        Side::of_build(&build, Flavour::Patched, env).unwrap()
    };
    let declared = ["OPENCOTI_COUNTERS".to_owned()];
    let (right, other) = (side("OPENCOTI_COUNTERS"), side("OMP_NUM_THREADS"));
    assert_eq!(undeclared(&[&other, &right], &declared), None);
    let reason = undeclared(&[&right, &side("OPENCOTI_COUNTER")], &declared).unwrap();
    assert!(reason.contains("OPENCOTI_COUNTER, so"), "{reason}");
    assert!(reason.contains("did you mean `OPENCOTI_COUNTERS`?"));
    assert!(undeclared(&[&right, &other], &[]).is_some());
    // A slip in the prefix.
    for name in [
        "OPENCOTTI_COUNTERS",
        "PENCOTI_COUNTERS",
        "opencoti_counters",
    ] {
        let reason = undeclared(&[&side(name)], &declared).unwrap();
        assert!(reason.contains(name), "{reason}");
    }
}

#[test]
fn a_stray_file_beside_a_copy_makes_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str| {
        let folder = dir.path().join(name);
        fs_err::create_dir(&folder).unwrap();
        fs_err::write(folder.join("llama-server"), "server").unwrap();
        fs_err::write(folder.join("libllama.so"), "library").unwrap();
        fs_err::write(folder.join("libggml-stray.so"), name).unwrap();
        let side = Side::of_path(&folder.join("llama-server"), BTreeMap::new()).unwrap();
        let loaded = ["llama-server", "libllama.so"];
        let real = folder.canonicalize().unwrap();
        side.check_loaded(&loaded.iter().map(|name| real.join(name)).collect())
            .unwrap();
        side
    };
    let (baseline, candidate) = (side("a"), side("b"));
    let reason = indistinct(&baseline, &candidate).unwrap();
    assert!(reason.contains("very same bytes"), "{reason}");
    let stray = dir
        .path()
        .join("b/libggml-stray.so")
        .canonicalize()
        .unwrap();
    candidate.check_loaded(&BTreeSet::from([stray])).unwrap();
    assert_eq!(indistinct(&baseline, &candidate), None);
}

#[test]
fn named_servers_that_load_one_library_are_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str| {
        fs_err::create_dir(dir.path().join(name)).unwrap();
        let program = dir.path().join(name).join("llama-server");
        fs_err::write(&program, name).unwrap();
        Side::of_path(&program, BTreeMap::new()).unwrap()
    };
    let (baseline, candidate) = (side("a"), side("b"));
    let library = dir.path().join("libllama.so");
    fs_err::write(&library, "").unwrap();
    for side in [&baseline, &candidate] {
        assert_eq!(indistinct(&baseline, &candidate), None);
        side.check_loaded(&BTreeSet::from([library.clone()]))
            .unwrap();
        assert_eq!(side.final_stamp().unwrap().artifacts.len(), 2);
    }
    let reason = indistinct(&baseline, &candidate).unwrap();
    assert!(reason.contains("both servers have loaded"), "{reason}");
    let error = Side::of_path(dir.path(), BTreeMap::new()).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}

#[test]
fn what_is_loaded_from_elsewhere_must_stay_what_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let program = dir.path().join("llama-server");
    fs_err::write(&program, "server").unwrap();
    let library = dir.path().join("libllama.so");
    let loaded = BTreeSet::from([library.clone()]);
    let side = || Side::of_path(&program, BTreeMap::new()).unwrap();
    // It lies beside the program only from now on, and so is none of the recorded files.
    let (between, after, whole) = (side(), side(), side());
    fs_err::write(&library, "one").unwrap();
    for side in [&between, &after, &whole] {
        side.check_loaded(&loaded).unwrap();
        side.check_loaded(&loaded).unwrap();
        side.check_files().unwrap();
    }
    let stamp = whole.final_stamp().unwrap();
    assert_eq!(stamp.artifacts[1].sha256, Digest::of(b"one"));
    fs_err::write(&library, "two").unwrap();
    for error in [
        between.check_loaded(&loaded).unwrap_err(),
        after.check_files().unwrap_err(),
    ] {
        assert_eq!(error.kind(), Kind::Finding);
        assert!(
            error.to_string().contains("libllama.so was replaced"),
            "{error}"
        );
    }
    // The record says what ran first.
    let stamp = whole.final_stamp().unwrap();
    assert_eq!(stamp.artifacts[1].sha256, Digest::of(b"one"));
    let gone = BTreeSet::from([PathBuf::from("/x/libllama.so (deleted)")]);
    let error = side().check_loaded(&gone).unwrap_err();
    assert!(
        error.to_string().contains("/x/libllama.so was replaced"),
        "{error}"
    );
}

/// As two forks are installed, of which only a library was patched: bin/llama-server and lib/libllama.so.
#[test]
fn equal_programs_that_load_other_libraries_are_a_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str, library: &str| {
        let path = |below: &str| dir.path().join(name).join(below);
        for folder in ["bin", "lib"] {
            fs_err::create_dir_all(path(folder)).unwrap();
        }
        fs_err::write(path("bin/llama-server"), "server").unwrap();
        fs_err::write(path("lib/libllama.so"), library).unwrap();
        let side = Side::of_path(&path("bin/llama-server"), BTreeMap::new()).unwrap();
        let loaded = ["bin/llama-server", "lib/libllama.so"];
        let real = |below: &&str| path(below).canonicalize().unwrap();
        (side, loaded.iter().map(real).collect::<BTreeSet<PathBuf>>())
    };
    let ((baseline, left), (candidate, right)) = (side("a", "one"), side("b", "two"));
    let (copy, same) = side("c", "one");
    // Not yet known.
    assert!(indistinct(&baseline, &candidate).is_some());
    baseline.check_loaded(&left).unwrap();
    candidate.check_loaded(&right).unwrap();
    copy.check_loaded(&same).unwrap();
    assert_eq!(indistinct(&baseline, &candidate), None);
    let reason = indistinct(&baseline, &copy).unwrap();
    assert!(reason.contains("very same files"), "{reason}");
}

#[test]
fn two_sides_of_which_nothing_was_seen_are_no_comparison() {
    let dir = tempfile::tempdir().unwrap();
    let side = |name: &str| {
        fs_err::create_dir(dir.path().join(name)).unwrap();
        let program = dir.path().join(name).join("start-it");
        fs_err::write(&program, name).unwrap();
        let side = Side::of_path(&program, BTreeMap::new()).unwrap();
        (side, BTreeSet::from([program.canonicalize().unwrap()]))
    };
    let ((baseline, program), (candidate, _)) = (side("a"), side("b"));
    // Where the system does not tell, nobody looked.
    assert_eq!(indistinct(&baseline, &candidate), None);
    let none = BTreeSet::new();
    baseline.check_loaded(&none).unwrap();
    candidate.check_loaded(&none).unwrap();
    let reason = indistinct(&baseline, &candidate).unwrap();
    assert!(reason.contains("of neither side was seen"), "{reason}");
    for side in [&baseline, &candidate] {
        let unverified = side.final_stamp().unwrap().unverified;
        assert!(unverified[0].starts_with("what computes"), "{unverified:?}");
    }
    // A static server under any name is its own program.
    baseline.check_loaded(&program).unwrap();
    assert_eq!(indistinct(&baseline, &candidate), None);
    assert!(baseline.final_stamp().unwrap().unverified.is_empty());
}

/// A library that cannot be loaded is passed over, and another one computes: that is no comparison of the patches.
#[test]
fn two_builds_must_load_the_same_variant_of_the_cpu_backend() {
    let dir = tempfile::tempdir().unwrap();
    let names = ["libggml-cpu-x64.so", "libggml-cpu-haswell.so"];
    let side = |name: &str, flavour, text: &str| {
        let mut build = build(&dir.path().join(name), flavour, text);
        for name in names {
            let path = build.dir.join("out/bin").join(name);
            fs_err::write(&path, format!("{text}{name}")).unwrap();
            let artifact = artifact(&path, &build.dir).unwrap();
            build.manifest.artifacts.push(artifact);
        }
        Side::of_build(&build, flavour, BTreeMap::new()).unwrap()
    };
    let load = |side: &Side, name: &str| {
        let path = side.dir.join("out/bin").join(name).canonicalize().unwrap();
        side.check_loaded(&BTreeSet::from([path])).unwrap();
    };
    let baseline = side("v", Flavour::Vanilla, "");
    let (same, other, none) = (
        side("same", Flavour::Patched, "a"),
        side("other", Flavour::Patched, "b"),
        side("none", Flavour::Patched, "c"),
    );
    assert_eq!(variant_that_ran(&baseline), None, "nothing ran yet");
    load(&baseline, "libggml-cpu-haswell.so");
    load(&same, "libggml-cpu-haswell.so");
    load(&other, "libggml-cpu-x64.so");
    load(&none, "libllama.so.1");
    assert_eq!(unlike_variants(&baseline, &same), None);
    // One more that was looked at and could not be unloaded is no other one.
    load(&same, "libggml-cpu-x64.so");
    assert_eq!(unlike_variants(&baseline, &same), None);
    for (candidate, what) in [
        (&other, "libggml-cpu-haswell.so and libggml-cpu-x64.so"),
        (&none, "libggml-cpu-haswell.so and none"),
    ] {
        let reason = unlike_variants(&baseline, candidate).unwrap();
        assert!(reason.ends_with(what), "{reason}");
    }
    let said = variant_that_ran(&other).unwrap();
    assert!(
        said.contains("of 2 variants") && said.contains("libggml-cpu-x64.so;"),
        "{said}"
    );
    // The user's own servers may be of any two sorts.
    let path = |side: &Side| Side::of_path(&side.program, BTreeMap::new()).unwrap();
    let (left, right) = (path(&baseline), path(&other));
    load_by_path(&left, "libggml-cpu-haswell.so");
    load_by_path(&right, "libggml-cpu-x64.so");
    assert_eq!(unlike_variants(&left, &right), None);
}

/// Both are of one build, and both stamps hold.
#[test]
fn a_library_in_the_place_of_another_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let plain = fs_err::read("/bin/true").unwrap();
    let manifest = build(&dir.path().join("m"), Flavour::Vanilla, "").manifest;
    let put = |name: &str, built: &str| {
        let of = |content| Provenance::of(&manifest, built, content);
        let bytes = provenance::stamped(&plain, of).unwrap();
        fs_err::write(dir.path().join(name), bytes).unwrap();
    };
    let check = || {
        let program = dir.path().join("llama-server");
        let mut side = Side::of_path(&program, BTreeMap::new()).unwrap();
        side.check_stamps()
    };
    put("llama-server", "llama-server");
    put("libggml-cpu-x64.so", "libggml-cpu-x64.so");
    put("libggml-cpu-haswell.so", "libggml-cpu-haswell.so");
    check().unwrap();
    put("libggml-cpu-x64.so", "libggml-cpu-haswell.so");
    let error = check().unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(
        error
            .to_string()
            .contains("was built as libggml-cpu-haswell.so"),
        "{error}"
    );
}

fn load_by_path(side: &Side, name: &str) {
    let path = side.dir.join(name).canonicalize().unwrap();
    side.check_loaded(&BTreeSet::from([path])).unwrap();
}
