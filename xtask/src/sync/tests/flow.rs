//! A sync over several commands: stop, solve, go on, leave out, give up, be killed.

use std::fs;

use super::Two;
use crate::Kind;
use crate::sync::{Choices, End, PatchVerdict, Step, abort, begin, look, resume, skip};

const OLD: &str = "void f(void) {\n    one();\n    two();\n    three();\n    four();\n}\n";
/// `two` is gone, so a hook behind it has no place.
const NEW: &str = "int x;\nvoid f(void) {\n    one();\n    deux();\n    three();\n    four();\n}\n";

/// Patch `first` merges, `second` conflicts, `third` merges and stands in another file.
fn three() -> Two {
    let other = "int a;\nint b;\n";
    let two = Two::new(
        &[("f.c", OLD), ("g.c", other)],
        &[("f.c", NEW), ("g.c", &format!("int z;\n{other}"))],
    );
    two.patch_with(
        "first",
        &[("f.c", "three()", "    first(); // opencoti-hook: first\n")],
        &[("own/first.c", "int first;\n")],
        "",
    );
    two.patch(
        "second",
        &[("f.c", "two()", "    second(); // opencoti-hook: second\n")],
    );
    two.patch(
        "third",
        &[("g.c", "int a;", "int c; // opencoti-hook: third\n")],
    );
    two
}

fn start(two: &Two, choices: &Choices) -> crate::Result<Step> {
    begin(&two.ctx, &two.old.base, &two.new.base, choices)
}

fn tree_file(two: &Two, path: &str) -> std::path::PathBuf {
    two.ctx.project.working_tree("new").join(path)
}

fn read(two: &Two, path: &str) -> String {
    fs::read_to_string(tree_file(two, path)).unwrap()
}

fn solve(two: &Two) {
    let text = read(two, "f.c");
    let (before, rest) = text.split_once("<<<<<<<").unwrap();
    let (_, after) = rest.split_once(">>>>>>> second\n").unwrap();
    let solved = format!("{before}    deux();\n    second(); // opencoti-hook: second\n{after}");
    fs::write(tree_file(two, "f.c"), solved).unwrap();
}

fn is_done(step: &Step) -> bool {
    matches!(step.end, End::Done { .. })
}

#[test]
fn a_series_without_conflicts_goes_over_in_one_command() {
    let two = Two::new(&[("f.c", OLD)], &[("f.c", &format!("int x;\n{OLD}"))]);
    two.patch(
        "first",
        &[("f.c", "three()", "    first(); // opencoti-hook: first\n")],
    );
    let before = two.everything();
    let step = look(&two.ctx, &two.old.base, &two.new.base, &Choices::default()).unwrap();
    assert!(
        step.port.complete && two.everything() == before,
        "look writes nothing"
    );
    let step = start(&two, &Choices::default()).unwrap();
    let End::Done {
        proof,
        series,
        files,
    } = &step.end
    else {
        panic!("{:?}", step.end)
    };
    assert_eq!((proof.same_hooks, proof.left_over.len()), (1, 0));
    assert_eq!(series.ids(), ["first"]);
    let names: Vec<String> = files.iter().map(ToString::to_string).collect();
    assert!(
        names.contains(&"patches/first/hooks.new.patch".to_owned()),
        "{names:?}"
    );
    let registry = fs::read_to_string(two.root().join("registry/series.toml")).unwrap();
    assert!(
        registry.contains("# kept") && registry.contains("new = [\"first\"]"),
        "{registry}"
    );
    assert!(read(&two, "f.c").contains("first();"));
    assert!(
        fs::read_to_string(two.root().join("docs/UPSTREAM_SYNC.md"))
            .unwrap()
            .contains("## new")
    );
    // The old series is what it was.
    assert_eq!(two.series().ids(), ["first"]);
}

/// Where the very same hooks serve both bases there is no second file.
#[test]
fn hooks_that_serve_both_bases_stay_one_file() {
    let two = Two::new(
        &[("f.c", OLD), ("g.c", "a\n")],
        &[("f.c", OLD), ("g.c", "b\n")],
    );
    two.patch(
        "first",
        &[("f.c", "three()", "    first(); // opencoti-hook: first\n")],
    );
    // A file of its own from an earlier sync goes.
    super::put(
        &two.root().join("patches/first/hooks.new.patch"),
        "--- a/g.c\n+++ b/g.c\n@@ -1 +1,2 @@\n b\n+c\n",
    );
    assert!(is_done(&start(&two, &Choices::default()).unwrap()));
    assert!(!two.root().join("patches/first/hooks.new.patch").exists());
}

#[test]
fn a_conflict_stops_is_solved_and_remembered() {
    let two = three();
    let step = start(&two, &Choices::default()).unwrap();
    let End::Conflict { patch, files, .. } = &step.end else {
        panic!("{:?}", step.end)
    };
    assert_eq!((patch.as_str(), files.len()), ("second", 1));
    // The patch before it is there, and so is the conflict with three sides.
    let text = read(&two, "f.c");
    assert!(
        text.contains("first();")
            && text.contains("||||||| old")
            && text.contains(">>>>>>> second")
    );
    assert!(tree_file(&two, "own/first.c").exists());
    // Nothing is committed yet, a second sync is refused, and so is going on without solving.
    assert!(two.ctx.project.series().unwrap().of("new").is_empty());
    assert_eq!(
        start(&two, &Choices::default()).unwrap_err().kind(),
        Kind::Usage
    );
    let error = resume(&two.ctx, &Choices::default()).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("f.c:4 still has a conflict marker"),
        "{error}"
    );
    // A solution that loses the hook's line is refused until somebody says that it is meant.
    let good = read(&two, "f.c");
    fs::write(
        tree_file(&two, "f.c"),
        NEW.replace(
            "three();\n",
            "three();\n    first(); // opencoti-hook: first\n",
        ),
    )
    .unwrap();
    let error = resume(&two.ctx, &Choices::default()).unwrap_err();
    assert!(error.to_string().contains("is missing"), "{error}");
    fs::write(tree_file(&two, "f.c"), good).unwrap();

    solve(&two);
    let step = resume(&two.ctx, &Choices::default()).unwrap();
    assert!(is_done(&step), "{:?}", step.end);
    assert_eq!(step.port.reports[1].verdict.word(), "merged");
    assert!(read(&two, "f.c").contains("deux();\n    second();"));
    assert!(read(&two, "g.c").contains("int c;"));

    // The same conflict again is solved as before.
    fs::write(
        two.root().join("registry/series.toml"),
        "schema = 1\n[series]\nold = [\"first\", \"second\", \"third\"]\n",
    )
    .unwrap();
    let step = start(&two, &Choices::default()).unwrap();
    assert!(is_done(&step) && step.recalled == 1);
}

#[test]
fn a_patch_is_left_out_and_the_rest_goes_on() {
    let two = three();
    start(&two, &Choices::default()).unwrap();
    let step = skip(&two.ctx, &Choices::default()).unwrap();
    let End::Done { series, proof, .. } = &step.end else {
        panic!("{:?}", step.end)
    };
    assert_eq!(series.ids(), ["first", "third"]);
    assert_eq!(step.port.reports[1].verdict, PatchVerdict::Skipped);
    assert_eq!(
        proof.left_over.len(),
        1,
        "the patch that is not there is said"
    );
    assert!(!read(&two, "f.c").contains("<<<<<<<"));
}

#[test]
fn abort_is_an_exact_return() {
    let two = three();
    let before = two.everything();
    start(&two, &Choices::default()).unwrap();
    fs::write(tree_file(&two, "f.c"), "my half-done work\n").unwrap();
    let done = abort(&two.ctx).unwrap();
    assert_eq!(two.everything(), before);
    // The half-done work is kept.
    let saved = two.root().join(done.saved_to.unwrap()).join("f.c");
    assert_eq!(fs::read_to_string(saved).unwrap(), "my half-done work\n");
    assert_eq!(abort(&two.ctx).unwrap_err().kind(), Kind::Usage);

    // Also where the new base had a series and a tree at some place of it.
    fs::write(
        two.root().join("registry/series.toml"),
        "schema = 1\n[series]\nold = [\"first\", \"second\", \"third\"]\nnew = [\"own\"]\n",
    )
    .unwrap();
    super::put(
        &two.root().join("patches/own/patch.toml"),
        "schema = 1\nid = \"own\"\ntitle = \"t\"\npurpose = \"p\"\n",
    );
    super::put(&two.root().join("patches/own/src/own.c"), "int own;\n");
    let series = crate::patchset::Series::load(&two.ctx.project, &two.new.base).unwrap();
    crate::patchset::apply(&two.ctx, &two.new, &series, 1, false).unwrap();
    let before = two.everything();
    // A series that is there is not replaced without a word.
    assert_eq!(
        start(&two, &Choices::default()).unwrap_err().kind(),
        Kind::Usage
    );
    let choices = Choices {
        replace: true,
        ..Choices::default()
    };
    start(&two, &choices).unwrap();
    assert_ne!(two.everything(), before);
    abort(&two.ctx).unwrap();
    assert_eq!(two.everything(), before);
}

/// Edits in the tree of the new base are somebody's work.
#[test]
fn a_tree_with_edits_is_not_overwritten() {
    let two = Two::new(&[("f.c", OLD)], &[("f.c", &format!("int x;\n{OLD}"))]);
    two.patch(
        "first",
        &[("f.c", "three()", "    first(); // opencoti-hook: first\n")],
    );
    let series = crate::patchset::Series::load(&two.ctx.project, &two.new.base).unwrap();
    crate::patchset::apply(&two.ctx, &two.new, &series, 0, false).unwrap();
    fs::write(tree_file(&two, "f.c"), "mine\n").unwrap();
    let before = two.everything();
    assert_eq!(
        start(&two, &Choices::default()).unwrap_err().kind(),
        Kind::Finding
    );
    assert_eq!(two.everything(), before);
    let two = three();
    let series = crate::patchset::Series::load(&two.ctx.project, &two.new.base).unwrap();
    crate::patchset::apply(&two.ctx, &two.new, &series, 0, false).unwrap();
    fs::write(tree_file(&two, "f.c"), "mine\n").unwrap();
    let before = two.everything();
    assert_eq!(
        start(&two, &Choices::default()).unwrap_err().kind(),
        Kind::Finding
    );
    assert_eq!(two.everything(), before);
    let error = abort(&two.ctx).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage, "no sync was begun");
}

#[test]
fn a_tree_that_another_command_moved_is_no_solution() {
    let two = three();
    start(&two, &Choices::default()).unwrap();
    let series = crate::patchset::Series::load(&two.ctx.project, &two.new.base).unwrap();
    crate::patchset::apply(&two.ctx, &two.new, &series, 0, true).unwrap();
    let error = resume(&two.ctx, &Choices::default()).unwrap_err();
    assert!(
        error.to_string().contains("another command moved it"),
        "{error}"
    );
}

#[test]
fn what_is_upstream_is_retired_by_one_command() {
    let new = format!("{OLD}int heads(int k) {{\n    return k;\n}}\n");
    let two = Two::new(&[("f.c", OLD)], &[("f.c", &new)]);
    two.patch_with(
        "chain",
        &[("f.c", "three()", "    chain(); // opencoti-hook: chain\n")],
        &[],
        "[upstreamed]\nsymbols = [\"heads\"]\n",
    );
    two.patch(
        "other",
        &[("f.c", "one()", "    other(); // opencoti-hook: other\n")],
    );
    let before = two.everything();
    let step = start(&two, &Choices::default()).unwrap();
    assert!(matches!(&step.end, End::Decide { patch, open: false } if patch == "chain"));
    assert_eq!(two.everything(), before);
    let choices = Choices {
        retire: vec!["chain".to_owned()],
        ..Choices::default()
    };
    let step = start(&two, &choices).unwrap();
    let End::Done { series, .. } = &step.end else {
        panic!("{:?}", step.end)
    };
    assert_eq!(series.ids(), ["other"]);
    let retired = fs::read_to_string(two.root().join("registry/retired.toml")).unwrap();
    assert!(
        retired.contains("id = \"chain\"")
            && retired.contains("base = \"new\"")
            && retired.contains("`heads` is there"),
        "{retired}"
    );
    // Nothing says that the other one is upstream: that is no retirement.
    let two = Two::new(&[("f.c", OLD)], &[("f.c", &new)]);
    two.patch(
        "other",
        &[("f.c", "one()", "    other(); // opencoti-hook: other\n")],
    );
    let choices = Choices {
        retire: vec!["other".to_owned()],
        ..Choices::default()
    };
    assert_eq!(start(&two, &choices).unwrap_err().kind(), Kind::Usage);
}

/// A base that takes no hook of a patch must not read those of another base, and a second sync must
/// not take the first base's away.
#[test]
fn hooks_of_one_base_are_not_those_of_another() {
    let two = Two::with(
        &[("f.c", OLD), ("tools/t.c", OLD)],
        &[("f.c", OLD)],
        "partial = true",
    );
    two.patch(
        "tool",
        &[(
            "tools/t.c",
            "three()",
            "    tool(); // opencoti-hook: tool\n",
        )],
    );
    let hooks = two.root().join("patches/tool/hooks.patch");
    let text = fs::read_to_string(&hooks).unwrap();
    let again = Choices {
        replace: true,
        ..Choices::default()
    };
    for choices in [&Choices::default(), &again] {
        let step = start(&two, choices).unwrap();
        assert!(is_done(&step), "{:?}", step.end);
        assert_eq!(fs::read_to_string(&hooks).unwrap(), text);
        let series = crate::patchset::Series::load(&two.ctx.project, &two.new.base).unwrap();
        assert!(series.patches[0].hooks.is_empty());
        assert_eq!(two.series().patches[0].hooks.len(), 1);
    }
    // A base with hooks of its own hands them on where they fit.
    let two = Two::new(&[("f.c", OLD)], &[("f.c", OLD)]);
    two.patch(
        "first",
        &[("f.c", "three()", "    first(); // opencoti-hook: first\n")],
    );
    let dir = two.root().join("patches/first");
    fs::rename(dir.join("hooks.patch"), dir.join("hooks.old.patch")).unwrap();
    assert!(is_done(&start(&two, &Choices::default()).unwrap()));
    let series = crate::patchset::Series::load(&two.ctx.project, &two.new.base).unwrap();
    assert_eq!(series.patches[0].hooks, two.series().patches[0].hooks);
}

/// What was decided about a patch cannot change under the solutions that stand on it.
#[test]
fn decisions_that_solutions_stand_on_stay() {
    let two = three();
    start(&two, &Choices::default()).unwrap();
    solve(&two);
    let choices = |id: &str| Choices {
        skip: vec![id.to_owned()],
        ..Choices::default()
    };
    for id in ["first", "no-such-patch"] {
        let error = resume(&two.ctx, &choices(id)).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
    }
    // What comes later is open, and nothing of the wrong tries is left.
    let step = resume(&two.ctx, &choices("third")).unwrap();
    let End::Done { series, .. } = &step.end else {
        panic!("{:?}", step.end)
    };
    assert_eq!(series.ids(), ["first", "second"]);
}

/// A solution that loses a line is meant for this time, not for ever.
#[test]
fn an_accepted_loss_is_not_remembered() {
    let two = three();
    start(&two, &Choices::default()).unwrap();
    solve(&two);
    let text = read(&two, "f.c").replace("    second(); // opencoti-hook: second\n", "");
    fs::write(tree_file(&two, "f.c"), text).unwrap();
    let choices = Choices {
        accept_changes: true,
        ..Choices::default()
    };
    assert!(is_done(&resume(&two.ctx, &choices).unwrap()));
    let again = Choices {
        replace: true,
        ..Choices::default()
    };
    let step = start(&two, &again).unwrap();
    assert!(matches!(step.end, End::Conflict { .. }), "{:?}", step.end);
}

/// A kill before every single change of a disk, at each command of a sync: the next command goes
/// on, and in the end everything is as it would have been.
#[test]
fn a_kill_at_any_step_loses_nothing() {
    let wanted = {
        let two = three();
        start(&two, &Choices::default()).unwrap();
        solve(&two);
        assert!(is_done(&resume(&two.ctx, &Choices::default()).unwrap()));
        two.everything()
    };
    for kills in 1.. {
        // Given up in the middle of giving up.
        let two = three();
        let before = two.everything();
        start(&two, &Choices::default()).unwrap();
        crate::tree::fault::kill_after(kills);
        let given_up = abort(&two.ctx);
        if crate::tree::fault::disarm() {
            crate::journal::settle(&two.ctx).unwrap();
            assert!(given_up.is_err());
            // Done but for the last file, or to be done again.
            let _ = abort(&two.ctx);
            assert_eq!(two.everything(), before, "abort, {kills}");
        }

        let two = three();
        crate::tree::fault::kill_after(kills);
        let first = start(&two, &Choices::default());
        let killed = crate::tree::fault::disarm();
        crate::journal::settle(&two.ctx).unwrap();
        let begun = match first {
            Ok(step) => step,
            Err(_) => match start(&two, &Choices::default()) {
                Ok(step) => step,
                // The session was there already.
                Err(_) => resume(&two.ctx, &Choices::default()).unwrap(),
            },
        };
        assert!(matches!(begun.end, End::Conflict { .. }), "{kills}");
        solve(&two);
        crate::tree::fault::kill_after(kills);
        let second = resume(&two.ctx, &Choices::default());
        let killed = crate::tree::fault::disarm() || killed;
        crate::journal::settle(&two.ctx).unwrap();
        if second.is_err() {
            match resume(&two.ctx, &Choices::default()) {
                Ok(step) => assert!(is_done(&step), "{kills}"),
                // The last change of all is to take the session away.
                Err(error) => assert_eq!(error.kind(), Kind::Usage, "{kills}: {error}"),
            }
        }
        assert_eq!(two.everything(), wanted, "{kills}");
        assert!(
            !two.root().join("vendor/.sync/session.json").exists(),
            "{kills}"
        );
        if !killed {
            assert!(kills > 10, "{kills}");
            break;
        }
    }
}

/// Upstream's commits that touched the place of a hook, from a clone that has both.
#[test]
fn a_history_names_the_commits_that_touched_the_place() {
    let new = OLD
        .replace("three();", "three(1);")
        .replace("four();", "vier();");
    let two = Two::new(&[("f.c", OLD)], &[("f.c", &new)]);
    two.patch(
        "first",
        &[("f.c", "two()", "    first(); // opencoti-hook: first\n")],
    );
    let clone = tempfile::tempdir().unwrap();
    let git = |args: &[&str]| {
        let output = std::process::Command::new("git")
            .current_dir(clone.path())
            .args(["-c", "user.name=n", "-c", "user.email=e@example.org"])
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    let commit = |text: &str, subject: &str| {
        fs::write(clone.path().join("f.c"), text).unwrap();
        git(&["add", "."]);
        git(&["commit", "--quiet", "--message", subject]);
        git(&["rev-parse", "HEAD"])
    };
    git(&["init", "--quiet"]);
    let (mut old, mut base) = (two.old.base.clone(), two.new.base.clone());
    old.commit = commit(OLD, "as it was");
    commit(&OLD.replace("three();", "three(1);"), "give three a number");
    base.commit = commit(&new, "say four in german");
    let dir = clone.path().to_path_buf();
    let history = crate::sync::History::of(&two.ctx, dir.clone(), &old, &base).unwrap();
    let port = crate::sync::port(
        &two.ctx,
        &two.old,
        &two.series(),
        &two.new,
        &crate::sync::Decisions::default(),
        &history,
    )
    .unwrap();
    let hook = &port.reports[0].hooks[0];
    assert_ne!(hook.verdict, crate::sync::HookVerdict::Clean);
    let named = |subject: &str| hook.commits.iter().any(|line| line.ends_with(subject));
    assert!(named(" give three a number"), "{:?}", hook.commits);
    assert!(!named(" as it was"), "{:?}", hook.commits);

    // A clone that lacks a commit, and a base that is none, are said.
    base.commit = "0".repeat(40);
    let error = crate::sync::History::of(&two.ctx, dir.clone(), &old, &base).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    base.commit.clear();
    let error = crate::sync::History::of(&two.ctx, dir, &old, &base).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}
