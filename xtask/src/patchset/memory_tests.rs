//! What is remembered of a series: any change shows, and damage costs time only.

use std::cell::Cell;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::patchset::{Reached, Told, apply, reach, tell};
use crate::toy::{HOOK, MAIN, Toy, put};

/// A toy whose base lies in the cache, where it is looked for, and whose series is applied.
fn toy() -> Toy {
    let mut toy = Toy::with_two_patches();
    let upstreams = toy.root().join("registry/upstreams.toml");
    let text = fs::read_to_string(&upstreams).unwrap();
    put(
        &upstreams,
        &format!("{text}source = [{{ dir = {{ path = \"nowhere\" }} }}]\n"),
    );
    toy.pristine.base = toy.ctx.project.base(None).unwrap();
    let entry = crate::vendor::place(&toy.ctx, &toy.pristine.base);
    fs::create_dir_all(&entry).unwrap();
    fs::rename(&toy.pristine.root, entry.join("tree")).unwrap();
    fs::write(entry.join("manifest"), toy.pristine.manifest.text()).unwrap();
    fs::write(entry.join("index"), "origin a test\n").unwrap();
    toy.pristine.root = entry.join("tree");
    put(&toy.root().join("kernels/deep/a.rs"), "one");
    let manifest = toy.root().join("patches/first/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    put(&manifest, &format!("{text}inputs = [\"kernels\"]\n"));
    let series = toy.load();
    apply(&toy.ctx, &toy.pristine, &series, 2, false).unwrap();
    toy
}

/// What `status` says, and whether it had to read the series for it.
fn status(toy: &Toy) -> (Told, bool) {
    let read = Cell::new(false);
    let told = tell(&toy.ctx, &toy.pristine.base, || {
        read.set(true);
        Ok((toy.pristine.clone(), toy.load()))
    });
    (told.unwrap(), read.get())
}

/// The same for `apply`.
fn again(toy: &Toy, until: Option<&str>) -> (Result<Reached, String>, bool) {
    let read = Cell::new(false);
    let reached = reach(&toy.ctx, &toy.pristine.base, until, false, || {
        read.set(true);
        let base = &toy.pristine.base;
        let series = Series::load(&toy.ctx.project, base)?;
        Ok((toy.pristine.clone(), series))
    });
    (reached.map_err(|error| error.to_string()), read.get())
}

/// Remembers the series as if all of it were old.
fn remember(toy: &Toy) {
    let mut begun = begin(&toy.ctx, &toy.pristine.base).unwrap();
    begun.moment = begun.moment.ahead(3);
    let series = toy.load();
    let images = Images::compute(&toy.pristine, &series).unwrap();
    Memory::keep(&toy.ctx, &begun, &toy.pristine, &series, &images);
    assert!(file(toy).exists());
    assert!(!status(toy).1, "it is remembered");
    assert!(!again(toy, None).1);
    // Not in the same tick of the kernel's clock: that is what the two seconds are for.
    std::thread::sleep(std::time::Duration::from_millis(20));
}

fn file(toy: &Toy) -> PathBuf {
    place(&toy.tree())
}

#[test]
fn what_is_remembered_says_what_reading_says() {
    let toy = toy();
    let told = |toy: &Toy| {
        let (told, read) = status(toy);
        (
            format!("{:?}", (told.patchset, told.titles, told.tree)),
            read,
        )
    };
    let tree = toy.tree();
    let main = tree.join("src/main.c");
    let text = fs::read_to_string(&main).unwrap();
    let middle = text.replace("    more(); // opencoti-hook: second\n", "");
    let state = tree.join(".patchset/state.json");
    let states: [(&str, &dyn Fn()); 9] = [
        ("as it is", &|| ()),
        ("edited", &|| put(&main, "x")),
        ("as the base", &|| put(&main, MAIN)),
        ("between", &|| put(&main, &middle)),
        ("mended", &|| put(&main, &text)),
        ("more", &|| put(&tree.join("mine"), "x")),
        ("less", &|| {
            fs::remove_file(tree.join("src/hook.c")).unwrap()
        }),
        ("no state", &|| fs::remove_file(&state).unwrap()),
        ("another state", &|| put(&state, "{}")),
    ];
    let mut seen = Vec::new();
    for (what, act) in states {
        act();
        if what == "another state" {
            let load = || Ok((toy.pristine.clone(), toy.load()));
            assert!(tell(&toy.ctx, &toy.pristine.base, load).is_err());
            continue;
        }
        let _ = fs::remove_file(file(&toy));
        let (by_reading, read) = told(&toy);
        assert!(read);
        let mut begun = begin(&toy.ctx, &toy.pristine.base).unwrap();
        begun.moment = begun.moment.ahead(3);
        let series = toy.load();
        let images = Images::compute(&toy.pristine, &series).unwrap();
        Memory::keep(&toy.ctx, &begun, &toy.pristine, &series, &images);
        assert_eq!(told(&toy), (by_reading.clone(), false), "{what}");
        seen.push(by_reading);
    }
    seen.dedup();
    assert_eq!(seen.len(), 8, "each is another state: {seen:#?}");
}

#[test]
fn an_apply_that_has_nothing_to_do_says_the_same() {
    let toy = toy();
    let _ = fs::remove_file(file(&toy));
    for until in [None, Some("second")] {
        let _ = fs::remove_file(file(&toy));
        let (by_reading, read) = again(&toy, until);
        assert!(read);
        remember(&toy);
        assert_eq!(again(&toy, until), (by_reading, false));
    }
    // Elsewhere than it should be, by the state file or by the files.
    let (moved, read) = again(&toy, Some("first"));
    assert!(read && !moved.unwrap().moved.written.is_empty());
    assert!(!again(&toy, Some("first")).1);
    assert!(
        again(&toy, Some("frist"))
            .0
            .unwrap_err()
            .contains("no patch `frist`")
    );
    assert!(again(&toy, None).1);
    assert!(!again(&toy, None).1, "what is remembered outlives a move");
    put(&toy.tree().join("src/main.c"), "mine\n");
    let (refused, read) = again(&toy, None);
    assert!(read && refused.unwrap_err().contains("src/main.c: expected"));
    put(&toy.tree().join("src/main.c"), MAIN);
    let (moved, read) = again(&toy, None);
    assert!(read && moved.unwrap().moved.written.len() == 1);
}

/// Whether somebody's act makes `status` and `apply` read the series anew.
fn shows(act: impl FnOnce(&Toy, &Path)) {
    let toy = toy();
    remember(&toy);
    act(&toy, &toy.root().join("patches"));
    let bytes = fs::read(file(&toy)).unwrap();
    let memory = recall(&toy.ctx, &toy.pristine.base, &toy.tree());
    assert!(memory.is_none());
    assert_eq!(fs::read(file(&toy)).unwrap(), bytes);
}

#[test]
fn every_change_of_what_it_came_from_shows() {
    shows(|_, patches| put(&patches.join("first/src/src/hook.c"), "void hoook() {}"));
    shows(|_, patches| put(&patches.join("first/src/src/new.c"), ""));
    shows(|_, patches| put(&patches.join("second/README.md"), ""));
    shows(|_, patches| put(&patches.join("second/hooks.toy.patch"), ""));
    shows(|_, patches| fs::remove_file(patches.join("first/src/src/hook.c")).unwrap());
    shows(|_, patches| fs::remove_file(patches.join("first/hooks.patch")).unwrap());
    shows(|_, patches| fs::remove_dir_all(patches.join("second")).unwrap());
    shows(|_, patches| {
        let old = patches.join("first/src/src/hook.c");
        fs::rename(old, patches.join("first/src/src/hock.c")).unwrap();
    });
    shows(|_, patches| {
        // Two folders change places.
        fs::rename(patches.join("first"), patches.join("x")).unwrap();
        fs::rename(patches.join("second"), patches.join("first")).unwrap();
        fs::rename(patches.join("x"), patches.join("second")).unwrap();
    });
    shows(|_, patches| {
        let mode = fs::Permissions::from_mode(0o755);
        fs::set_permissions(patches.join("first/src/src/hook.c"), mode).unwrap();
    });
    shows(|_, patches| {
        // The size and the time that a program can set stay.
        let file = patches.join("first/hooks.patch");
        let before = fs::metadata(&file).unwrap().modified().unwrap();
        put(&file, &HOOK.replace("hook();", "hock();"));
        let times = fs::FileTimes::new().set_modified(before);
        let opened = fs::File::options().write(true).open(&file).unwrap();
        opened.set_times(times).unwrap();
    });
    shows(|_, patches| {
        // What a link leads to bears other stamps.
        fs::rename(patches.join("first"), patches.join("../elsewhere")).unwrap();
        std::os::unix::fs::symlink("../elsewhere", patches.join("first")).unwrap();
    });
    shows(|toy, _| put(&toy.root().join("kernels/deep/a.rs"), "two"));
    shows(|toy, _| put(&toy.root().join("kernels/deep/b.rs"), "two"));
    shows(|toy, _| toy.series(&["first"]));
    shows(|toy, _| {
        let file = toy.root().join("registry/upstreams.toml");
        let text = fs::read_to_string(&file).unwrap();
        put(&file, &format!("# more\n{text}"));
    });
    shows(|toy, _| put(&toy.pristine.root.join("src/main.c"), "damaged"));
    shows(|toy, _| {
        let entry = toy.pristine.root.parent().unwrap();
        fs::remove_file(entry.join("manifest")).unwrap();
    });
}

#[test]
fn what_is_young_is_not_remembered() {
    let toy = toy();
    assert!(status(&toy).1);
    assert!(status(&toy).1);
    assert!(again(&toy, None).1);
    assert!(!file(&toy).exists(), "all stamps are too young");
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(status(&toy).1);
    assert!(file(&toy).exists());
    assert!(!status(&toy).1);
    assert!(!again(&toy, None).1);
    fs::remove_file(file(&toy)).unwrap();
    assert!(again(&toy, None).1);
    assert!(!again(&toy, None).1, "apply remembers too");
}

#[test]
fn what_changes_while_it_is_read_is_not_remembered() {
    let toy = toy();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    let load = |change: &str| {
        let change = toy.root().join(change);
        tell(&toy.ctx, &toy.pristine.base, || {
            let loaded = (toy.pristine.clone(), toy.load());
            if change.is_file() {
                let text = fs::read_to_string(&change).unwrap();
                put(
                    &change,
                    &text
                        .replace("hook();", "hock();")
                        .replace("schema", " schema"),
                );
            }
            Ok(loaded)
        })
        .unwrap();
    };
    load("patches/first/hooks.patch");
    assert!(!file(&toy).exists());
    std::thread::sleep(std::time::Duration::from_millis(2100));
    // Read as it was, and remembered as that.
    load("registry/series.toml");
    assert!(recall(&toy.ctx, &toy.pristine.base, &toy.tree()).is_none());
    let (told, read) = status(&toy);
    assert!(read && told.patchset == toy.load().id);
}

#[test]
fn a_series_that_does_not_apply_or_has_links_is_read_each_time() {
    let toy = toy();
    let hooks = toy.root().join("patches/first/hooks.patch");
    fs::rename(&hooks, toy.root().join("elsewhere")).unwrap();
    std::os::unix::fs::symlink("../../elsewhere", &hooks).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(status(&toy).1 && status(&toy).1);
    fs::remove_file(&hooks).unwrap();
    put(&hooks, &HOOK.replace("one()", "uno()"));
    std::thread::sleep(std::time::Duration::from_millis(2100));
    for _ in 0..2 {
        let (told, read) = status(&toy);
        assert!(read && told.problems.len() == 2);
    }
    assert!(!file(&toy).exists());
}

#[test]
fn a_damaged_file_costs_time_only() {
    let toy = toy();
    remember(&toy);
    let (base, tree) = (&toy.pristine.base, toy.tree());
    let key = key(&toy.ctx, base).unwrap();
    let good = fs::read(file(&toy)).unwrap();
    let memory = Memory::parse(&good, &key).unwrap();
    assert_eq!(memory.bytes(&key), good);
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1;
        assert_eq!(Memory::parse(&bad, &key), None, "byte {at}");
        assert_eq!(Memory::parse(&good[..at], &key), None, "cut at {at}");
    }
    assert_eq!(Memory::parse(&good, &Digest::of(b"another program")), None);
    // Of another version, or with wrong numbers, and a digest that is right.
    for at in 8..good.len() - 32 {
        for value in [0, 0xff] {
            let mut bad = good[..good.len() - 32].to_vec();
            bad[at] = value;
            let sum = Digest::of(&bad);
            bad.extend(sum.bytes());
            let _ = Memory::parse(&bad, &key);
        }
    }
    let mut other = good[..good.len() - 32].to_vec();
    other[8] = 2;
    let sum = Digest::of(&other);
    other.extend(sum.bytes());
    assert_eq!(Memory::parse(&other, &key), None);

    fs::write(file(&toy), &good[..good.len() / 2]).unwrap();
    assert!(recall(&toy.ctx, base, &tree).is_none());
    assert!(status(&toy).0.tree.is_applied());
    let _ = fs::remove_file(file(&toy));
    fs::create_dir(file(&toy)).unwrap();
    assert!(status(&toy).0.tree.is_applied(), "it cannot be written");
    assert!(again(&toy, None).0.unwrap().moved.written.is_empty());
    fs::remove_dir(file(&toy)).unwrap();
    remember(&toy);
}

/// What proves something reads: a memory that lies deceives `status` and an `apply` that takes it
/// for nothing to do. It changes no file.
#[test]
fn a_memory_that_lies_deceives_neither_verify_nor_build() {
    let toy = toy();
    remember(&toy);
    let key = key(&toy.ctx, &toy.pristine.base).unwrap();
    let mut memory = Memory::parse(&fs::read(file(&toy)).unwrap(), &key).unwrap();
    let path = RelPath::new("src/hook.c").unwrap();
    put(&path.below(&toy.tree()), "mine\n");
    let lie = Entry {
        mode: FileMode::Plain,
        sha256: Digest::of(b"mine\n"),
    };
    memory.files.get_mut(&path).unwrap().steps[0].1 = lie;
    fs::write(file(&toy), memory.bytes(&key)).unwrap();
    let (told, read) = status(&toy);
    assert!(!read && told.tree.edited.is_empty(), "the forgery works");

    let series = toy.load();
    crate::patchset::refresh(&toy.ctx, &toy.pristine, &series).unwrap();
    let found = crate::verify::series(&toy.ctx, &toy.pristine, &series).unwrap();
    let named = |finding: &crate::verify::Finding| finding.what.contains("src/hook.c");
    assert!(found.findings.iter().any(named), "{:?}", found.findings);
    assert!(crate::patchset::applied(&toy.ctx, &toy.pristine).is_err());
    let (refused, read) = again(&toy, None);
    assert!(
        read && refused.unwrap_err().contains("src/hook.c"),
        "the state file knows better"
    );
    assert_eq!(
        fs::read_to_string(path.below(&toy.tree())).unwrap(),
        "mine\n"
    );
}
