//! What is said of patches while somebody edits, and of those that the base has.

use std::fs;

use super::*;
use crate::toy::{HOOK, MAIN, Toy, put};
use crate::vendor::Pristine;

fn look(toy: &Toy, pristine: &Pristine) -> (TreeStatus, Vec<Problem>) {
    let (images, problems) = Images::attempt(pristine, &toy.load()).unwrap();
    let status = status(&toy.ctx, pristine, &toy.load(), &images).unwrap();
    (status, problems)
}

fn states(status: &TreeStatus) -> Vec<PatchState> {
    status.patches.iter().map(|(_, state)| *state).collect()
}

/// The base with other files.
fn changed(toy: &Toy, files: &[(&str, &str)]) -> Pristine {
    for (path, text) in files {
        put(&toy.pristine.root.join(path), text);
    }
    let manifest = crate::tree::TreeManifest::of_tree(&toy.pristine.root, |_| false).unwrap();
    Pristine {
        manifest,
        ..toy.pristine.clone()
    }
}

#[test]
fn an_edit_is_that_of_the_patch_where_the_tree_stands() {
    let toy = Toy::with_two_patches();
    toy.patch("third", "", &[("free.txt", "free\n")]);
    toy.series(&["first", "second", "third"]);
    let series = toy.load();
    apply(&toy.ctx, &toy.pristine, &series, 2, false).unwrap();
    let file = toy.tree().join("src/main.c");
    let text = fs::read_to_string(&file).unwrap();
    put(&file, &text.replace("more()", "most()"));
    let (status, _) = look(&toy, &toy.pristine);
    assert_eq!(
        states(&status),
        [PatchState::Applied, PatchState::Edited, PatchState::Absent]
    );
    assert_eq!(status.editing.as_deref(), Some("second"));
    assert!(!status.is_applied());
    let position = position(&toy.ctx, &toy.pristine, &series).unwrap();
    assert_eq!(position, 2, "where it stands is no doubt");

    // Nothing but the state file can say so.
    fs::remove_file(toy.tree().join(".patchset/state.json")).unwrap();
    let (status, _) = look(&toy, &toy.pristine);
    assert_eq!(states(&status)[..2], [PatchState::Drifted; 2]);
    assert_eq!(status.editing, None);
}

#[test]
fn a_new_file_is_an_edit_too_and_without_a_patch_there_is_nobody_to_take_it() {
    let toy = Toy::with_two_patches();
    apply(&toy.ctx, &toy.pristine, &toy.load(), 1, false).unwrap();
    put(&toy.tree().join("src/mine.c"), "mine\n");
    let (status, _) = look(&toy, &toy.pristine);
    assert_eq!(states(&status), [PatchState::Edited, PatchState::Absent]);
    fs::remove_file(toy.tree().join("src/mine.c")).unwrap();
    apply(&toy.ctx, &toy.pristine, &toy.load(), 0, false).unwrap();
    put(&toy.tree().join("src/main.c"), "other\n");
    let (status, _) = look(&toy, &toy.pristine);
    assert_eq!(states(&status), [PatchState::Absent; 2]);
    assert_eq!((status.editing, status.edited.len()), (None, 1));
}

#[test]
fn what_the_base_has_is_upstreamed_and_the_next_patch_is_tried() {
    let toy = Toy::with_two_patches();
    let main = MAIN.replace("    two", "    hook(); // opencoti-hook: first\n    two");
    let files = [
        ("src/main.c", main.as_str()),
        ("src/hook.c", "void hook() {}\n"),
    ];
    let pristine = changed(&toy, &files);
    let (status, problems) = look(&toy, &pristine);
    assert_eq!(
        states(&status),
        [PatchState::Upstreamed, PatchState::Absent]
    );
    let patches: Vec<&str> = problems
        .iter()
        .map(|problem| problem.patch.as_str())
        .collect();
    assert_eq!(patches, ["first", "first"], "`second` applies");
    assert!(problems.iter().all(|problem| problem.upstreamed));
    let said: Vec<String> = problems.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(said.join("\n"), @r"
    first: src/main.c: 1 of 1 hook is there already, at line 3
    first: src/hook.c: the same file is there already
    ");
    let error = Images::compute(&pristine, &toy.load()).unwrap_err();
    assert!(
        error.hints()[1].contains("registry/retired.toml"),
        "{:?}",
        error.hints()
    );
    assert_eq!(
        error.details().unwrap()["problems"][0]["landed"]["lines"][0],
        3
    );
}

#[test]
fn a_part_of_a_patch_can_be_upstreamed() {
    let toy = Toy::new();
    let two = HOOK.replace("@@ -1,5 +1,6 @@", "@@ -1,5 +1,7 @@").replace(
        "     return 0;\n",
        "+    last(); // opencoti-hook: first\n     return 0;\n",
    );
    toy.patch("first", &two, &[("src/hook.c", "void hook() {}\n")]);
    toy.series(&["first"]);
    // As upstream would write it: without the marker, and some lines further down.
    let main = MAIN.replace("    two", "    hook();\n    two");
    let pristine = changed(&toy, &[("src/main.c", &format!("// new\n\n{main}"))]);
    let (status, problems) = look(&toy, &pristine);
    assert_eq!(states(&status), [PatchState::PartlyUpstreamed]);
    let landed = problems[0].landed.as_ref().unwrap();
    assert_eq!(
        (landed.hooks, landed.of, &landed.lines[..]),
        (1, 2, &[5][..])
    );
    assert!(!problems[0].upstreamed);
    let said = problems[0].to_string();
    assert!(
        said.ends_with("1 of 2 hooks is there already, at line 5"),
        "{said}"
    );
    // The same lines at another place of the file are something else.
    let main = MAIN.replace("int main", "void f() {\n    hook();\n}\nint main");
    let (status, _) = look(&toy, &changed(&toy, &[("src/main.c", &main)]));
    assert_eq!(states(&status), [PatchState::Absent]);
}
