//! The life of a working tree on a toy base.

use std::fs;
use std::os::unix::fs::MetadataExt;

use super::*;
use crate::Kind;
use crate::toy::{HOOK, MAIN, Toy, put};
use crate::tree::fault;

pub(super) fn apply_all(toy: &Toy) -> Moved {
    let series = toy.load();
    apply(
        &toy.ctx,
        &toy.pristine,
        &series,
        series.patches.len(),
        false,
    )
    .unwrap()
}

fn states(toy: &Toy) -> Vec<PatchState> {
    let series = toy.load();
    let (images, _) = Images::attempt(&toy.pristine, &series).unwrap();
    let status = status(&toy.ctx, &toy.pristine, &series, &images).unwrap();
    status.patches.into_iter().map(|(_, state)| state).collect()
}

fn main_c(toy: &Toy) -> String {
    fs::read_to_string(toy.tree().join("src/main.c")).unwrap()
}

#[test]
fn apply_and_revert_are_exact_opposites() {
    let toy = Toy::with_two_patches();
    let moved = apply_all(&toy);
    assert!(moved.created);
    assert!(main_c(&toy).contains("hook(); // opencoti-hook: first\n    more();"));
    assert!(toy.tree().join("deep/er/new.txt").exists());
    assert!(applied(&toy.ctx, &toy.pristine).is_ok());

    revert(&toy.ctx, &toy.pristine, &toy.load(), false).unwrap();
    assert_eq!(toy.tree_digest(), toy.pristine.manifest.digest());
    assert!(!toy.tree().join("deep").exists(), "no empty folder stays");
    assert_eq!(states(&toy), [PatchState::Absent; 2]);
    assert!(applied(&toy.ctx, &toy.pristine).is_err());
}

#[test]
fn what_is_applied_is_read_from_the_files_alone() {
    let toy = Toy::with_two_patches();
    let missing = applied(&toy.ctx, &toy.pristine).unwrap_err();
    assert_eq!(missing.kind(), Kind::Usage, "{missing}");
    apply_all(&toy);
    let state = toy.tree().join(".patchset/state.json");
    let text = fs::read_to_string(&state).unwrap();

    // Without a state file, and with another input of the build, the files are still right.
    fs::remove_file(&state).unwrap();
    let manifest = toy.root().join("patches/first/patch.toml");
    let inputs = fs::read_to_string(&manifest).unwrap() + "inputs = [\"registry\"]\n";
    put(&manifest, &inputs);
    let tree = applied(&toy.ctx, &toy.pristine).unwrap();
    assert_eq!(tree.series.id, toy.load().id);

    // A state file that says so does not make it so.
    put(&toy.tree().join("src/main.c"), MAIN);
    put(&state, &text);
    assert!(applied(&toy.ctx, &toy.pristine).is_err());
}

#[test]
fn a_second_apply_touches_nothing() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let inode = |path: &str| fs::metadata(toy.tree().join(path)).unwrap().ino();
    let before = (inode("src/main.c"), inode("src/other.c"), inode("."));
    let moved = apply_all(&toy);
    assert!(moved.written.is_empty() && moved.removed.is_empty() && !moved.created);
    assert_eq!(
        before,
        (inode("src/main.c"), inode("src/other.c"), inode("."))
    );
}

#[test]
fn a_change_of_one_overlay_file_writes_that_file_alone() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let stamp = |path: &str| {
        fs::metadata(toy.tree().join(path))
            .unwrap()
            .modified()
            .unwrap()
    };
    let before = stamp("src/main.c");
    put(
        &toy.root().join("patches/first/src/src/hook.c"),
        "void hook() { }\n",
    );
    let moved = apply_all(&toy);
    assert_eq!(moved.written.len(), 1);
    assert_eq!(moved.written[0].as_str(), "src/hook.c");
    assert_eq!(stamp("src/main.c"), before);
}

#[test]
fn until_stops_after_a_patch() {
    let toy = Toy::with_two_patches();
    let series = toy.load();
    apply(&toy.ctx, &toy.pristine, &series, 1, false).unwrap();
    assert_eq!(states(&toy), [PatchState::Applied, PatchState::Absent]);
    let error = applied(&toy.ctx, &toy.pristine).unwrap_err();
    assert!(error.to_string().contains("not applied"), "{error}");
    apply_all(&toy);
    assert_eq!(states(&toy), [PatchState::Applied; 2]);
    assert!(series.position("secnd").unwrap_err().hints()[0].contains("`second`"));
    put(
        &toy.root().join("registry/upstreams.toml"),
        &(fs::read_to_string(toy.root().join("registry/upstreams.toml")).unwrap()
            + &format!("[[base]]\nid = \"old\"\ntree = \"{}\"\n", "0".repeat(64))),
    );
    put(
        &toy.root().join("registry/series.toml"),
        "schema = 1\n[series]\ntoy = []\nold = [\"first\"]\n",
    );
    let hint = toy.load().position("first").unwrap_err().hints()[0].clone();
    assert!(hint.contains("--base old"), "{hint}");
}

#[test]
fn edits_are_named_and_never_overwritten() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let edited = main_c(&toy).replace("two", "TWO");
    put(&toy.tree().join("src/main.c"), &edited);
    put(&toy.tree().join("src/mine.c"), "mine\n");
    fs::remove_file(toy.tree().join("src/other.c")).unwrap();
    assert_eq!(states(&toy), [PatchState::Applied, PatchState::Edited]);

    for result in [
        revert(&toy.ctx, &toy.pristine, &toy.load(), false),
        apply(&toy.ctx, &toy.pristine, &toy.load(), 1, false),
    ] {
        let error = result.unwrap_err();
        assert_eq!(error.kind(), Kind::Finding);
        let text = error.to_string();
        for name in [
            "src/main.c: expected sha256",
            "src/mine.c: not part",
            "src/other.c: missing",
        ] {
            assert!(text.contains(name), "{text}");
        }
    }
    assert_eq!(main_c(&toy), edited, "a refused run leaves what it found");

    let moved = revert(&toy.ctx, &toy.pristine, &toy.load(), true).unwrap();
    assert_eq!(toy.tree_digest(), toy.pristine.manifest.digest());
    let saved = toy.root().join(moved.saved_to.unwrap());
    assert_eq!(
        fs::read_to_string(saved.join("src/main.c")).unwrap(),
        edited
    );
    assert_eq!(
        fs::read_to_string(saved.join("src/mine.c")).unwrap(),
        "mine\n"
    );
}

#[test]
fn a_half_applied_tree_is_called_partial_and_mended() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    put(&toy.tree().join("src/main.c"), MAIN);
    assert_eq!(states(&toy), [PatchState::Partial; 2]);
    apply_all(&toy);
    assert_eq!(states(&toy), [PatchState::Applied; 2]);
}

#[test]
fn a_shrunk_series_takes_its_old_files_away() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    toy.series(&["first"]);
    let moved = apply_all(&toy);
    assert_eq!(moved.removed.len(), 1, "{moved:?}");
    assert!(!toy.tree().join("deep").exists());
    assert!(applied(&toy.ctx, &toy.pristine).is_ok());
}

#[test]
fn a_series_that_no_longer_applies_can_still_be_reverted() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    toy.patch("first", &HOOK.replace("one()", "wrong()"), &[]);
    let series = toy.load();
    assert!(apply(&toy.ctx, &toy.pristine, &series, 2, false).is_err());
    revert(&toy.ctx, &toy.pristine, &series, false).unwrap();
    assert_eq!(toy.tree_digest(), toy.pristine.manifest.digest());
}

#[test]
fn root_failures_and_what_follows_are_told_apart() {
    let toy = Toy::with_two_patches();
    toy.patch("first", &HOOK.replace("     one();", "     uno();"), &[]);
    toy.patch("third", "", &[("free.txt", "free\n")]);
    toy.series(&["first", "second", "third"]);
    let series = toy.load();
    let (images, problems) = Images::attempt(&toy.pristine, &series).unwrap();
    assert_eq!(problems.len(), 2);
    assert_eq!(problems[0].follows_from, None);
    assert_eq!(problems[1].follows_from.as_deref(), Some("first"));
    assert_eq!(
        images.paths().count(),
        1,
        "the independent third one is tried"
    );
    let error = Images::compute(&toy.pristine, &series).unwrap_err();
    insta::assert_snapshot!(error.to_string(), @r"
    the series does not apply to toy
    - first: src/main.c: hunk 1 (int main()), line 2: the file is not what the hunk expects
        line    expected      | found
           1    int main() {  | int main() {
           2 !      uno();    |     one();
           3        two();    |     two();
           4        return 0; |     return 0;
           5    }             | }
    - second: not tried, since `first` failed
    ");
}

#[test]
fn a_patch_whose_result_is_there_already_is_called_so() {
    let toy = Toy::new();
    let tree = &toy.pristine.root;
    put(
        &tree.join("src/main.c"),
        &MAIN.replace("    two", "    hook(); // opencoti-hook: first\n    two"),
    );
    let mut pristine = toy.pristine.clone();
    pristine.manifest = crate::tree::TreeManifest::of_tree(tree, |_| false).unwrap();
    toy.patch("first", HOOK, &[]);
    toy.series(&["first"]);
    let (_, problems) = Images::attempt(&pristine, &toy.load()).unwrap();
    assert!(problems[0].upstreamed, "{problems:?}");
}

#[test]
fn overlays_never_replace_upstream_files_or_each_other() {
    let toy = Toy::new();
    toy.patch("a", "", &[("src/other.c", "mine\n")]);
    toy.series(&["a"]);
    let error = Images::compute(&toy.pristine, &toy.load()).unwrap_err();
    assert!(error.to_string().contains("is there already"), "{error}");
    toy.patch("b", "", &[("x", "1\n")]);
    toy.patch("c", "", &[("x", "2\n")]);
    toy.series(&["b", "c"]);
    let error = Series::load(&toy.ctx.project, &toy.pristine.base).unwrap_err();
    assert!(error.to_string().contains("both `b` and `c`"), "{error}");
}

#[test]
fn the_patch_set_id_follows_what_is_built_and_nothing_else() {
    let toy = Toy::with_two_patches();
    let id = toy.load().id;
    let manifest = toy.root().join("patches/first/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    put(&manifest, &text.replace("The first", "Another title"));
    assert_eq!(toy.load().id, id, "prose is not built");
    toy.series(&["first"]);
    assert_ne!(toy.load().id, id);
    toy.series(&["first", "second"]);
    put(&toy.root().join("kernels/a.rs"), "1");
    put(&manifest, &format!("{text}inputs = [\"kernels\"]\n"));
    let with_input = toy.load().id;
    assert_ne!(with_input, id);
    put(&toy.root().join("kernels/a.rs"), "2");
    assert_ne!(toy.load().id, with_input);
}

#[test]
fn bad_series_and_manifests_are_clear_errors() {
    let toy = Toy::with_two_patches();
    let error = |toy: &Toy| Series::load(&toy.ctx.project, &toy.pristine.base).unwrap_err();
    toy.series(&["frist"]);
    let unknown = error(&toy);
    assert!(
        unknown.hints()[0].contains("did you mean `first`?"),
        "{unknown}"
    );
    toy.series(&["first", "first"]);
    assert!(error(&toy).to_string().contains("stands twice"));
    toy.series(&["../first"]);
    assert!(error(&toy).to_string().contains("no patch id"));
    toy.series(&["first"]);
    put(&toy.root().join("patches/first/hooks.tyo.patch"), HOOK);
    assert!(
        error(&toy)
            .to_string()
            .contains("hooks.tyo.patch means nothing")
    );
    fs::remove_file(toy.root().join("patches/first/hooks.tyo.patch")).unwrap();
    let manifest = toy.root().join("patches/first/patch.toml");
    let text = fs::read_to_string(&manifest).unwrap();
    put(&manifest, &format!("{text}requires = [\"second\"]\n"));
    assert!(error(&toy).to_string().contains("requires `second`"));
    put(&manifest, &format!("{text}gate = [\"chash\"]\n"));
    let typo = error(&toy).to_string();
    assert!(
        typo.contains("patch.toml:6:1: unknown field `gate`"),
        "{typo}"
    );
    put(&manifest, &text.replace("schema = 1", "schema = 2"));
    assert!(error(&toy).to_string().contains("schema 2"));
}

/// Where the stamps of the working tree lie.
fn stamps(toy: &Toy) -> std::path::PathBuf {
    toy.tree().join(".patchset/stamps")
}

fn edits(toy: &Toy) -> Vec<String> {
    let images = Images::compute(&toy.pristine, &toy.load()).unwrap();
    let found = status(&toy.ctx, &toy.pristine, &toy.load(), &images).unwrap();
    let paths = found.edited.iter().map(|edit| edit.path().to_string());
    paths.collect()
}

#[test]
fn an_edit_that_keeps_size_and_time_stamp_is_found_though_the_file_was_hashed_before() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let file = toy.tree().join("src/other.c");
    assert!(edits(&toy).is_empty());
    assert!(!stamps(&toy).exists(), "all stamps are too young");

    // Racy: the same size, in the same moment in which it was hashed.
    fs::write(&file, "int OTHER;\n").unwrap();
    assert_eq!(edits(&toy), ["src/other.c"]);
    fs::write(&file, "int other;\n").unwrap();
    assert!(edits(&toy).is_empty());

    std::thread::sleep(std::time::Duration::from_millis(2100));
    assert!(edits(&toy).is_empty());
    let kept = fs::read(stamps(&toy)).unwrap();
    let before = fs::metadata(&file).unwrap();
    fs::write(&file, "int OTHER;\n").unwrap();
    let times = fs::FileTimes::new().set_modified(before.modified().unwrap());
    let opened = fs::File::options().write(true).open(&file).unwrap();
    opened.set_times(times).unwrap();
    let after = fs::metadata(&file).unwrap();
    assert_eq!(
        (before.len(), before.mtime_nsec()),
        (after.len(), after.mtime_nsec())
    );
    assert_eq!(edits(&toy), ["src/other.c"]);
    let series = toy.load();
    assert!(apply(&toy.ctx, &toy.pristine, &series, 2, false).is_err());

    // Damaged ones say nothing; a folder in their place neither.
    fs::write(stamps(&toy), &kept[..kept.len() / 2]).unwrap();
    assert_eq!(edits(&toy), ["src/other.c"]);
    let _ = fs::remove_file(stamps(&toy));
    fs::create_dir(stamps(&toy)).unwrap();
    assert_eq!(edits(&toy), ["src/other.c"]);
}

/// What proves something hashes: stamps that lie deceive `status`, and nothing else.
#[test]
fn stamps_that_lie_do_not_deceive_verify_and_build() {
    let toy = Toy::with_two_patches();
    apply_all(&toy);
    let path = crate::tree::RelPath::new("src/other.c").unwrap();
    let true_digest = toy.pristine.manifest.get(&path).unwrap().sha256;
    put(&toy.tree().join("src/other.c"), "int OTHER;\n");
    crate::tree::forge(&toy.tree(), &stamps(&toy), &[(path, true_digest)]);
    assert!(edits(&toy).is_empty(), "the forgery works");

    let series = toy.load();
    refresh(&toy.ctx, &toy.pristine, &series).unwrap();
    let found = crate::verify::series(&toy.ctx, &toy.pristine, &series).unwrap();
    let named = |finding: &crate::verify::Finding| finding.what.contains("src/other.c");
    assert!(found.findings.iter().any(named), "{:?}", found.findings);
    assert!(applied(&toy.ctx, &toy.pristine).is_err());
}

/// A kill before every single change to the disk, enumerated: afterwards the tree is exactly
/// what it was or exactly what it should become, and the next command works.
#[test]
fn a_kill_at_any_step_leaves_before_or_after() {
    kill_at_any_step(&Toy::with_two_patches());
}

/// As many files as are written to disk by one call.
#[test]
fn a_kill_at_any_step_of_many_files_leaves_before_or_after() {
    let toy = Toy::with_two_patches();
    let names: Vec<String> = (0..40).map(|at| format!("many/{at}")).collect();
    let files: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "")).collect();
    toy.patch("third", "", &files);
    toy.series(&["first", "second", "third"]);
    kill_at_any_step(&toy);
}

fn kill_at_any_step(toy: &Toy) {
    apply_all(toy);
    let patched = toy.tree_digest();
    let vanilla = toy.pristine.manifest.digest();
    let series = toy.load();
    let mut kills = 0;
    let (mut before, mut after) = (0, 0);
    loop {
        revert(&toy.ctx, &toy.pristine, &series, false).unwrap();
        fault::kill_after(kills + 1);
        let count = series.patches.len();
        let result = apply(&toy.ctx, &toy.pristine, &series, count, false);
        let killed = fault::disarm();
        assert_eq!(result.is_err(), killed);
        let digest = toy.tree_digest();
        match digest {
            d if d == vanilla => before += 1,
            d if d == patched => after += 1,
            _ => panic!("after a kill at step {kills} the tree is neither vanilla nor patched"),
        }
        apply_all(toy);
        assert_eq!(toy.tree_digest(), patched, "after a kill at step {kills}");
        assert_eq!(
            fs::read_dir(toy.root().join("vendor")).unwrap().count(),
            2,
            "tree and lock"
        );
        if !killed {
            break;
        }
        kills += 1;
    }
    assert!(
        kills > 20 && before > 10 && after > 1,
        "{kills} {before} {after}"
    );
}

/// The same for the first apply, which makes the tree.
#[test]
fn a_kill_while_the_tree_is_made_leaves_none_or_all() {
    for kills in 1.. {
        let toy = Toy::with_two_patches();
        let series = toy.load();
        fault::kill_after(kills);
        let result = apply(&toy.ctx, &toy.pristine, &series, 2, false);
        let killed = fault::disarm();
        assert_eq!(result.is_err(), killed);
        if toy.tree().exists() {
            assert!(applied(&toy.ctx, &toy.pristine).is_ok());
        }
        apply_all(&toy);
        assert!(applied(&toy.ctx, &toy.pristine).is_ok());
        if !killed {
            assert!(kills > 8);
            break;
        }
    }
}
