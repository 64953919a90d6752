//! The program as a user runs it, on a toy base: order of commands, bad input, kills, two at once.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod support;

use std::fs;
use std::time::{Duration, Instant};

use support::{Checkout, put};

#[test]
fn the_life_of_a_working_tree() {
    let toy = Checkout::new(0);
    assert!(toy.ok(&["status"]).contains("none yet"));
    toy.ok(&["refresh"]);
    toy.ok(&["apply"]);
    let status: serde_json::Value = serde_json::from_str(&toy.ok(&["status", "--json"])).unwrap();
    assert_eq!(status["schema"], 1);
    assert_eq!(status["data"]["tree"]["patches"][0][1], "applied");
    assert!(toy.ok(&["verify"]).contains("everything is as recorded"));
    assert!(toy.ok(&["apply"]).contains("nothing to change"));
    toy.ok(&["revert"]);
    assert_eq!(toy.tree_digest(), Some(toy.base));
}

#[test]
fn a_flipped_byte_is_found_wherever_it_is() {
    let toy = Checkout::new(3);
    toy.ok(&["refresh"]);
    toy.ok(&["apply"]);
    put(&toy.tree().join("src/hook.c"), "void hook() {;\n");
    let output = toy.run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(
        text.contains("vendor/toy/src/hook.c: expected sha256"),
        "{text}"
    );
    toy.fails(&["revert"], 1);
    toy.ok(&["apply", "--discard-edits"]);

    let cache = toy.root().parent().unwrap().join("cache/bases");
    let cached = fs::read_dir(cache)
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path()
        .join("tree/many/0/0.c");
    let mut permissions = fs::metadata(&cached).unwrap().permissions();
    #[allow(clippy::permissions_set_readonly_false)]
    permissions.set_readonly(false);
    fs::set_permissions(&cached, permissions).unwrap();
    put(&cached, "int v1;\n");
    let output = toy.run(&["verify"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("many/0/0.c: expected sha256"), "{text}");
}

#[test]
fn bad_input_is_one_clear_error() {
    let toy = Checkout::new(0);
    let stderr = toy.fails(&["status", "--base", "tyo"], 2);
    assert!(
        stderr.contains("unknown base `tyo`") && stderr.contains("bases: toy"),
        "{stderr}"
    );
    let stderr = toy.fails(&["apply", "--until", "hok"], 2);
    assert!(stderr.contains("did you mean `hook`?"), "{stderr}");
    toy.fails(&["apply", "--no-such-flag"], 2);
    toy.fails(&["no-such-command"], 2);
    toy.fails(&["status", "--root", "/nonexistent"], 2);
    toy.fails(&["revert"], 2);
    for args in [&["--json", "apply", "--no-such-flag"][..], &["--json"]] {
        let output = toy.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(json["error"]["kind"], "usage", "{json}");
        assert!(!json["error"]["message"].as_str().unwrap().is_empty());
    }

    let series = toy.root().join("registry/series.toml");
    let good = fs::read_to_string(&series).unwrap();
    put(&series, "schema = 1\n[series]\ntoy = [\"hook\"\n");
    let stderr = toy.fails(&["status"], 2);
    assert!(stderr.contains("series.toml:"), "{stderr}");
    put(&series, "schema = 1\nserie = 1\n");
    let stderr = toy.fails(&["status"], 2);
    assert!(
        stderr.contains("series.toml:2:1: unknown field `serie`"),
        "{stderr}"
    );
    put(&series, &good);

    let hooks = toy.root().join("patches/hook/hooks.patch");
    let diff = fs::read_to_string(&hooks).unwrap();
    put(&hooks, &diff[..diff.len() - 10]);
    toy.fails(&["apply"], 2);
    assert_eq!(
        toy.tree_digest(),
        None,
        "a refused run leaves what it found"
    );
    put(&hooks, &diff.replace("     one();", "     uno();"));
    let stderr = toy.fails(&["apply"], 1);
    assert!(
        stderr.contains("2 !      uno();   |     one();"),
        "{stderr}"
    );
    assert_eq!(toy.tree_digest(), None);
    let json = toy.run(&["apply", "--json"]);
    let json: serde_json::Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["error"]["kind"], "finding");
    let problem = &json["error"]["data"]["problems"][0];
    assert_eq!(problem["mismatch"]["rows"][1]["found"], "    one();");
}

/// SIGKILL after ever longer waits, from before anything happened until after the end: the tree
/// is always none, vanilla or patched, and the next command works at once.
#[test]
fn a_killed_apply_leaves_vanilla_or_patched() {
    let toy = Checkout::new(600);
    toy.ok(&["apply"]);
    let patched = toy.tree_digest();
    let begun = Instant::now();
    toy.ok(&["revert"]);
    let whole = begun.elapsed();
    let vanilla = toy.tree_digest();
    assert_ne!(patched, vanilla);
    let (mut before, mut after) = (0, 0);
    const KILLS: u32 = 40;
    for at in 0..KILLS {
        let mut child = toy
            .xtask(&["apply"])
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(whole * at / KILLS * 5 / 4 + Duration::from_micros(u64::from(at) * 37));
        child.kill().unwrap();
        child.wait().unwrap();
        match toy.tree_digest() {
            digest if digest == vanilla => before += 1,
            digest if digest == patched => after += 1,
            other => panic!("kill {at}: {other:?} is neither {vanilla:?} nor {patched:?}"),
        }
        toy.ok(&["revert"]);
        assert_eq!(toy.tree_digest(), vanilla);
        let beside = fs::read_dir(toy.root().join("vendor")).unwrap().count();
        assert_eq!(beside, 2, "only the tree and the lock");
    }
    assert!(
        before > 0 && after > 0,
        "the waits must cover both: {before} before, {after} after"
    );
}

#[test]
fn two_at_once_wait_for_each_other() {
    let toy = Checkout::new(300);
    let children: Vec<_> = (0..4)
        .map(|at| {
            let verb = if at % 2 == 0 { "apply" } else { "status" };
            toy.xtask(&[verb])
                .stdout(std::process::Stdio::null())
                .stderr(std::process::Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    for child in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
    assert!(toy.ok(&["status"]).contains("the whole series is applied"));
}

#[test]
fn a_base_without_a_series_is_no_error_and_a_partial_one_is_not_built() {
    let toy = Checkout::new(0);
    let file = toy.root().join("registry/upstreams.toml");
    let text = fs::read_to_string(&file).unwrap();
    let at = text.find("[[base]]").unwrap();
    let second = text[at..].replacen("\"toy\"", "\"bare\"\npartial = true", 1);
    assert!(second.contains("bare"), "{text}");
    put(&file, &format!("{text}\n{second}"));
    toy.ok(&["refresh"]);
    let bare = |command: &str| toy.ok(&[command, "--base", "bare"]);
    assert!(bare("status").contains("none in registry/series.toml"));
    assert!(bare("lint").contains("nothing to lint"));
    assert!(bare("refresh").contains("up to date"));
    assert!(bare("apply").contains("no patch applied"));
    assert!(bare("verify").contains("everything is as recorded"));
    assert!(bare("revert").contains("nothing to change"));
    assert!(toy.ok(&["vendor", "--list"]).contains("bare (partial)"));
    let output = toy.run(&["build", "--base", "bare", "--vanilla"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("`bare` is partial"), "{error}");
}

/// 0 where every hook has its place, 1 where a person has to look, 2 where it cannot be looked at;
/// `--check` writes nothing either way.
#[test]
fn a_sync_answers_with_its_exit_code() {
    let toy = Checkout::new(0);
    let root = toy.root();
    let texts = [
        (
            "near",
            "int first;\nint main() {\n    one();\n    two();\n}\n",
        ),
        ("far", "int main() {\n    other();\n}\n"),
    ];
    let mut upstreams = fs::read_to_string(root.join("registry/upstreams.toml")).unwrap();
    for (id, text) in texts {
        let tree = root.parent().unwrap().join(id);
        put(&tree.join("src/main.c"), text);
        put(&tree.join("CMakeLists.txt"), "project(toy)\n");
        let digest = llama_patchset::tree::TreeManifest::of_tree(&tree, |_| false)
            .unwrap()
            .digest();
        upstreams.push_str(&format!(
            "\n[[base]]\nid = \"{id}\"\ntree = \"{digest}\"\n\n[[base.source]]\n\
             dir = {{ path = \"../{id}\" }}\n"
        ));
    }
    put(&root.join("registry/upstreams.toml"), &upstreams);
    // In order by every rule: a sync lints what it writes.
    put(
        &root.join("patches/hook/patch.toml"),
        "schema = 1\nid = \"hook\"\ntitle = \"A hook\"\npurpose = \"It calls what the overlay brings.\"\n\
         gates = [\"chash\"]\n\n[notes]\n\"src/main.c\" = \"Between one and two.\"\n",
    );
    let series = fs::read_to_string(root.join("registry/series.toml")).unwrap();
    let text = toy.ok(&["sync", "near", "--check"]);
    assert!(
        text.contains("hook  shifted") && text.contains("nothing is left over"),
        "{text}"
    );
    let output = toy.run(&["sync", "far", "--check", "--json"]);
    assert_eq!(output.status.code(), Some(1));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        json["data"]["patches"][0]["hooks"][0]["verdict"],
        "conflict"
    );
    assert_eq!(
        json["data"]["patches"][0]["hooks"][0]["before"]["file"],
        "src/main.c"
    );
    assert_eq!(json["data"]["end"]["is"], "looked");
    for wrong in [
        &["sync", "nowhere"][..],
        &["sync"],
        &["sync", "toy"],
        &["sync", "--continue"],
        &["sync", "near", "--continue"],
        &["sync", "near", "--keep", "no-such-patch"],
    ] {
        toy.fails(wrong, 2);
    }
    assert_eq!(
        fs::read_to_string(root.join("registry/series.toml")).unwrap(),
        series
    );
    assert!(!root.join("vendor/near").exists() && !root.join("vendor/far").exists());

    // For real, a conflict, and back.
    toy.fails(&["sync", "far", "--no-gates"], 1);
    assert!(
        fs::read_to_string(root.join("vendor/far/src/main.c"))
            .unwrap()
            .contains("<<<<<<<")
    );
    toy.ok(&["sync", "--abort"]);
    assert!(!root.join("vendor/far").exists());
    toy.ok(&["sync", "near", "--no-gates"]);
    toy.ok(&["status", "--base", "near"]);
    assert!(
        fs::read_to_string(root.join("registry/series.toml"))
            .unwrap()
            .contains("near = [\"hook\"]")
    );
}
