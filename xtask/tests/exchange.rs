//! What we export, in the hands of those that it is for: `git am`, `git apply`, quilt; and the
//! commands as a user runs them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
#![cfg(unix)]

#[path = "support/ci.rs"]
mod ci;
mod support;

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use support::{Checkout, put};

/// The bytes and the executable bit of each file, without the folders that tools keep.
fn tree(root: &Path) -> BTreeMap<PathBuf, (Vec<u8>, bool)> {
    let ours = [".git", ".pc", ".patchset", "patches"];
    walkdir::WalkDir::new(root)
        .into_iter()
        .filter_entry(|entry| {
            entry.depth() != 1 || !ours.contains(&entry.file_name().to_str().unwrap())
        })
        .map(Result::unwrap)
        .filter(|entry| !entry.file_type().is_dir())
        .map(|entry| {
            let path = entry.path().strip_prefix(root).unwrap().to_owned();
            if entry.path_is_symlink() {
                let target = fs::read_link(entry.path()).unwrap();
                return (path, (target.into_os_string().into_encoded_bytes(), false));
            }
            let mode = entry.metadata().unwrap().permissions().mode();
            (path, (fs::read(entry.path()).unwrap(), mode & 0o100 != 0))
        })
        .collect()
}

fn same(found: &Path, wanted: &Path) {
    let (found, wanted) = (tree(found), tree(wanted));
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        wanted.keys().collect::<Vec<_>>()
    );
    for (path, file) in &wanted {
        assert!(found[path] == *file, "{} is another", path.display());
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    let status = Command::new("cp")
        .arg("-a")
        .arg(from.join("."))
        .arg(to)
        .status();
    assert!(status.unwrap().success());
    let status = Command::new("chmod").arg("-R").arg("u+w").arg(to).status();
    assert!(status.unwrap().success());
}

/// Runs a program that depends on nothing of the user's, which must succeed.
fn tool(dir: &Path, program: &str, args: &[&str]) -> String {
    let output = Command::new(program)
        .args(args)
        .current_dir(dir)
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .env("GIT_COMMITTER_NAME", "C")
        .env("GIT_COMMITTER_EMAIL", "c@example.org")
        .env("GIT_AUTHOR_NAME", "C")
        .env("GIT_AUTHOR_EMAIL", "c@example.org")
        .env("QUILT_PATCHES", "patches")
        .env_remove("QUILT_PATCH_OPTS")
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{program} {args:?}: {}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The names of the `.patch` files of an export, with their folder.
fn patches(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|ext| ext == "patch"))
        .map(|path| path.display().to_string())
        .collect();
    names.sort();
    names
}

/// A repository whose only commit is the tree `base`.
fn repository(base: &Path, dir: &Path) {
    copy(base, dir);
    tool(dir, "git", &["init", "-q"]);
    tool(dir, "git", &["config", "core.autocrlf", "false"]);
    tool(dir, "git", &["add", "-A", "-f"]);
    tool(dir, "git", &["commit", "-q", "-m", "the base"]);
}

fn am(repository: &Path, exported: &Path) {
    let names = patches(exported);
    let mut args = vec!["am", "-q", "--keep-non-patch", "--keep-cr"];
    args.extend(names.iter().map(String::as_str));
    tool(repository, "git", &args);
}

/// `quilt push -a` in a copy of `base`; whether there is a quilt to ask.
fn quilt(base: &Path, exported: &Path, dir: &Path) -> bool {
    if Command::new("quilt").arg("--version").output().is_err() {
        assert!(!ci::on_ci(), "quilt is missing, and a CI has to have it");
        let _ = writeln!(
            std::io::stderr(),
            "quilt is missing: not asked (apt-get install quilt)"
        );
        return false;
    }
    copy(base, dir);
    copy(exported, &dir.join("patches"));
    tool(dir, "quilt", &["push", "-a", "-q", "--fuzz=0"]);
    true
}

/// A toy whose series is hard to carry, applied.
fn hard() -> Checkout {
    let toy = Checkout::new(3);
    let root = toy.root();
    let src = root.join("patches/hook/src/src");
    put(&src.join("crlf.txt"), "a\r\n\r\nb\r\n");
    put(&src.join("no end.txt"), "a\nb");
    put(&src.join("empty"), "");
    put(&src.join("Größe.c"), "int grösse;\n-- \nFrom me\n");
    fs::write(src.join("latin1.txt"), b"caf\xe9\n").unwrap();
    put(&src.join("run.sh"), "#!/bin/sh\n");
    fs::set_permissions(src.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    put(
        &root.join("patches/hook/patch.toml"),
        "schema = 1\nid = \"hook\"\ntitle = \"[server] Grüße: [RFC] brackets, and so long that it must be folded\"\n\
         purpose = \"\"\"\nWhy.\n\n---\ndiff -u looks like a diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\nFrom nobody\n\"\"\"\n\
         author = \"Jörg Müller <j@example.org>\"\ndate = \"Sun, 29 Nov 2026 13:16:57 +0100\"\n",
    );
    put(
        &root.join("patches/more/patch.toml"),
        "schema = 1\nid = \"more\"\ntitle = \"More\"\npurpose = \"\"\nrequires = [\"hook\"]\n",
    );
    put(
        &root.join("patches/more/hooks.patch"),
        "diff --git a/src/crlf.txt b/src/crlf.txt\n--- a/src/crlf.txt\n+++ b/src/crlf.txt\n@@ -1,3 +1,4 @@\n a\r\n+x opencoti-hook: more\r\n \r\n b\r\n\
         diff --git a/src/main.c b/src/main.c\n--- a/src/main.c\n+++ b/src/main.c\n@@ -2,4 +2,5 @@ int main() {\n     one();\n     hook(); // opencoti-hook: hook\n+    more(); // opencoti-hook: more\n     two();\n }\n\
         diff --git \"a/src/no end.txt\" \"b/src/no end.txt\"\n--- \"a/src/no end.txt\"\n+++ \"b/src/no end.txt\"\n@@ -1,2 +1,3 @@\n a\n+x opencoti-hook: more\n b\n\\ No newline at end of file\n",
    );
    put(
        &root.join("registry/series.toml"),
        "schema = 1\n[series]\ntoy = [\"hook\", \"more\"]\n",
    );
    toy.ok(&["refresh"]);
    toy.ok(&["apply"]);
    toy
}

fn in_dir(toy: &Checkout, name: &str) -> PathBuf {
    toy.root().parent().unwrap().join(name)
}

#[test]
fn git_am_and_quilt_make_the_tree_that_apply_makes() {
    let toy = hard();
    let base = in_dir(&toy, "upstream");
    let (mails, quilts) = (in_dir(&toy, "mails"), in_dir(&toy, "quilts"));
    toy.ok(&["export", "--output", mails.to_str().unwrap()]);
    let repo = in_dir(&toy, "repo");
    repository(&base, &repo);
    am(&repo, &mails);
    same(&repo, &toy.tree());
    let log = tool(
        &repo,
        "git",
        &["log", "--format=%an|%ae|%aI|%s|%cn%n%b", "--reverse", "-2"],
    );
    assert!(
        log.starts_with("Jörg Müller|j@example.org|2026-11-29T13:16:57+01:00|[server] Grüße: [RFC] brackets, and so long that it must be folded|C\nWhy.\n"),
        "{log}"
    );
    assert!(log.contains("Patchset-Id: hook\n"), "{log}");
    assert!(
        log.contains("llama-patchset|patchset@invalid.example|2000-01-01T00:00:00"),
        "{log}"
    );
    assert!(
        !log.contains("schema = 1"),
        "the block is not for the history: {log}"
    );

    toy.ok(&[
        "export",
        "--format",
        "quilt",
        "--output",
        quilts.to_str().unwrap(),
    ]);
    let dir = in_dir(&toy, "quilted");
    if quilt(&base, &quilts, &dir) {
        same(&dir, &toy.tree());
    }

    let diff = in_dir(&toy, "all.diff");
    toy.ok(&[
        "export",
        "--format",
        "diff",
        "--output",
        diff.to_str().unwrap(),
    ]);
    let plain = in_dir(&toy, "plain");
    repository(&base, &plain);
    tool(&plain, "git", &["apply", diff.to_str().unwrap()]);
    same(&plain, &toy.tree());
    let printed = toy
        .xtask(&["export", "--format", "diff", "--stdout"])
        .output()
        .unwrap();
    assert_eq!(printed.stdout, fs::read(&diff).unwrap());

    // And back from git's own hands, with nothing but what git keeps.
    let out = in_dir(&toy, "git-mails");
    tool(
        &repo,
        "git",
        &["format-patch", "-q", "-2", "-o", out.to_str().unwrap()],
    );
    let made = tree(&toy.tree());
    toy.ok(&["revert"]);
    put(
        &toy.root().join("registry/series.toml"),
        "schema = 1\n[series]\ntoy = []\n",
    );
    fs::remove_dir_all(toy.root().join("patches")).unwrap();
    let names = patches(&out);
    let mut args = vec!["import"];
    args.extend(names.iter().map(String::as_str));
    let text = toy.ok(&args);
    assert!(text.contains("series: hook, more"), "{text}");
    toy.ok(&["apply"]);
    assert!(tree(&toy.tree()) == made);
}

#[test]
fn the_commands_as_a_user_runs_them() {
    let toy = hard();
    let out = in_dir(&toy, "out");
    let out = out.to_str().unwrap();
    toy.fails(&["export"], 2);
    let stderr = toy.fails(&["export", "--stdout"], 2);
    assert!(stderr.contains("there are 2"), "{stderr}");
    toy.fails(&["export", "hook", "--stdout", "--json"], 2);
    let stderr = toy.fails(&["export", "hok", "--output", out], 2);
    assert!(stderr.contains("did you mean `hook`?"), "{stderr}");
    let json: serde_json::Value =
        serde_json::from_str(&toy.ok(&["export", "--output", out, "--json"])).unwrap();
    assert_eq!(json["data"]["files"][1], "0002-more.patch");
    assert_eq!(json["data"]["changed"], true);
    assert!(
        toy.ok(&["export", "--output", out])
            .contains("is up to date")
    );
    put(&Path::new(out).join("0002-more.patch"), "edited\n");
    let stderr = toy.fails(&["export", "--output", out], 2);
    assert!(stderr.contains("which no export wrote"), "{stderr}");

    let mail = in_dir(&toy, "x.patch");
    let text = "From: A <a@example.org>\nDate: Sun, 29 Nov 2026 13:16:57 +0000\nSubject: [PATCH] New file\n\nWhy.\n\n---\n\
                diff --git a/n.c b/n.c\nnew file mode 100644\n--- /dev/null\n+++ b/n.c\n@@ -0,0 +1 @@\n+x\n\
                diff --git a/many/0/0.c b/many/0/0.c\n--- a/many/0/0.c\n+++ b/many/0/0.c\n@@ -1 +1,2 @@\n int v0;\n+int w0;\n";
    put(&mail, text);
    let mail = mail.to_str().unwrap();
    let edited = tree(&toy.tree());
    let json: serde_json::Value =
        serde_json::from_str(&toy.ok(&["import", mail, "--dry-run", "--json"])).unwrap();
    assert_eq!(json["data"]["dry_run"], true);
    assert_eq!(json["data"]["imported"][0]["id"], "new-file");
    assert_eq!(json["data"]["files"].as_array().unwrap().len(), 0);
    let text = toy.ok(&["import", mail]);
    assert!(text.contains("wrote   patches/new-file/src/n.c"), "{text}");
    assert!(text.contains("no marker: many/0/0.c:2"), "{text}");
    assert!(
        tree(&toy.tree()) == edited,
        "the working tree is not touched"
    );
    toy.ok(&["apply"]);
    assert!(toy.tree().join("n.c").exists());
    let stderr = toy.fails(&["import", mail], 2);
    assert!(
        stderr.contains("there is a patch `new-file` already"),
        "{stderr}"
    );
    let stderr = toy.fails(&["import", mail, "--id", "again"], 1);
    assert!(
        stderr.contains("- again: n.c: it creates a file that is there already"),
        "{stderr}"
    );
    // A rewritten line is taken, and waits for a reason.
    let rewrite = in_dir(&toy, "rewrite.diff");
    put(
        &rewrite,
        "--- a/many/1/1.c\n+++ b/many/1/1.c\n@@ -1 +1 @@\n-int v1;\n+int w1; // opencoti-hook: rewrite\n",
    );
    let text = toy.ok(&["import", rewrite.to_str().unwrap()]);
    assert!(
        text.contains("deletes or rewrites 1 upstream lines: write the reason"),
        "{text}"
    );
    let lint = toy.run(&["lint", "--rule", "additivity"]);
    let lint = String::from_utf8(lint.stdout).unwrap();
    assert!(
        lint.contains("deletions are allowed without a reason"),
        "{lint}"
    );
    toy.fails(&["import"], 2);
    toy.fails(&["import", "/nonexistent"], 2);
}

/// Leaves the series of one base, and of its patches nothing that is for others.
fn keep_one_series(root: &Path, id: &str) {
    let project = llama_patchset::project::Project::new(root, root).unwrap();
    let series = project.series().unwrap();
    let own = series.of(id);
    for entry in fs::read_dir(root.join("patches")).unwrap() {
        let dir = entry.unwrap().path();
        let patch = dir.file_name().unwrap().to_string_lossy().into_owned();
        if !own.contains(&patch) {
            fs::remove_dir_all(&dir).unwrap();
            continue;
        }
        for entry in fs::read_dir(&dir).unwrap() {
            let file = entry.unwrap().path();
            let name = file.file_name().unwrap().to_string_lossy().into_owned();
            let base = name.strip_prefix("hooks.").unwrap_or_default();
            if base.strip_suffix(".patch").is_some_and(|base| base != id) {
                fs::remove_file(&file).unwrap();
            }
        }
    }
    put(
        &root.join("registry/series.toml"),
        &format!("schema = 1\n[series]\n\"{id}\" = {own:?}\n"),
    );
}

/// The series of this checkout on the real base, out and in again and through git and quilt.
#[test]
fn the_real_series_goes_out_and_comes_in() {
    let name = llama_patchset::cli::REAL_VAR;
    if std::env::var_os(name).is_none() {
        let _ = writeln!(
            std::io::stderr(),
            "the_real_series_goes_out_and_comes_in: left out, since {name} is not set"
        );
        return;
    }
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let dir = tempfile::tempdir().unwrap();
    // A checkout of its own: the working tree of this one may hold edits.
    let root = dir.path().join("project");
    for part in ["registry", "patches", "ggml-ext", "gates"] {
        let target = checkout.join(part).join("target");
        assert!(!target.exists() || part == "ggml-ext");
        copy(&checkout.join(part), &root.join(part));
    }
    let run = |args: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(args)
            .arg("--root")
            .arg(&root)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let vendor: serde_json::Value = serde_json::from_str(&run(&["vendor", "--json"])).unwrap();
    let base = PathBuf::from(vendor["data"]["path"].as_str().unwrap());
    let id = vendor["data"]["base"].as_str().unwrap();
    keep_one_series(&root, id);
    run(&["apply"]);
    let working = root.join("vendor").join(id);
    let (mails, quilts) = (dir.path().join("mails"), dir.path().join("quilts"));
    run(&["export", "--output", mails.to_str().unwrap()]);
    run(&[
        "export",
        "--format",
        "quilt",
        "--output",
        quilts.to_str().unwrap(),
    ]);
    let repo = dir.path().join("repo");
    repository(&base, &repo);
    am(&repo, &mails);
    same(&repo, &working);
    let quilted = dir.path().join("quilted");
    if quilt(&base, &quilts, &quilted) {
        same(&quilted, &working);
    }

    let before = tree(&root.join("patches"));
    put(
        &root.join("registry/series.toml"),
        &format!("schema = 1\n[series]\n\"{id}\" = []\n"),
    );
    fs::remove_dir_all(root.join("patches")).unwrap();
    run(&["import", quilts.to_str().unwrap()]);
    assert!(
        tree(&root.join("patches")) == before,
        "the folders are the same"
    );
    let again = dir.path().join("again");
    run(&["export", "--output", again.to_str().unwrap()]);
    assert!(tree(&again) == tree(&mails));
}
