use super::*;
use crate::model::Digest;
use crate::vendor::tests::{World, base};
use crate::vendor::{Vendor, obtain};

/// A repository with everything that a checkout would spoil.
struct Upstream {
    world: World,
}

impl Upstream {
    fn new() -> Self {
        let upstream = Upstream {
            world: World::new(),
        };
        upstream.git(&["init", "--quiet", "."]);
        for setting in [
            ["core.autocrlf", "true"],
            ["user.name", "t"],
            ["user.email", "t@localhost"],
        ] {
            upstream.git(&["config", setting[0], setting[1]]);
        }
        upstream.add("crlf.txt", "one\r\ntwo\r\n", "100644");
        upstream.add("lf.txt", "one\ntwo\n", "100644");
        upstream.add("run.sh", "#!/bin/sh\n", "100755");
        upstream.add("sub/link", "../lf.txt", "120000");
        upstream.add("docs/left-out", "x", "100644");
        upstream.add(".gitattributes", "* text eol=crlf ident\n", "100644");
        upstream
    }

    fn dir(&self) -> std::path::PathBuf {
        self.world.dir.path().join("upstream")
    }

    fn git(&self, args: &[&str]) -> String {
        std::fs::create_dir_all(self.dir()).unwrap();
        let output = Command::new("git")
            .current_dir(self.dir())
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env_remove("GIT_DIR")
            .args(args)
            .output()
            .unwrap();
        assert!(output.status.success(), "git {args:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// Puts a file into the index, byte by byte.
    fn add(&self, path: &str, content: &str, mode: &str) {
        let file = self.dir().join("content");
        std::fs::write(&file, content).unwrap();
        let id = self.git(&["hash-object", "-w", "--no-filters", "content"]);
        std::fs::remove_file(file).unwrap();
        self.index(path, &id, mode);
    }

    fn index(&self, path: &str, id: &str, mode: &str) {
        let entry = format!("{mode},{id},{path}");
        self.git(&["update-index", "--add", "--cacheinfo", &entry]);
    }

    fn commit(&self) -> String {
        self.git(&["commit", "--quiet", "-m", "x"]);
        self.git(&["rev-parse", "HEAD"])
    }

    fn source(&self, commit: &str) -> String {
        format!(
            "[[source]]\ngit = {{ url = 'file://{}', commit = '{commit}' }}\n",
            self.dir().display()
        )
    }
}

#[cfg(unix)]
#[test]
fn files_are_those_of_the_commit_to_the_last_byte() {
    let upstream = Upstream::new();
    let commit = upstream.commit();
    upstream.add("later", "x", "100644");
    upstream.commit();
    let sources = upstream.source(&commit);
    let ctx = &upstream.world.ctx;
    let found = crate::vendor::survey(ctx, &base(&Digest::of(b""), &sources)).unwrap();
    assert_eq!(found.files, 5, "not the later commit, not the docs");
    let done = obtain(ctx, &base(&found.tree, &sources), false).unwrap();
    assert!(done.origin.ends_with(&commit[..12]));
    let root = done.pristine.root;
    let read = |path: &str| std::fs::read_to_string(root.join(path)).unwrap();
    assert_eq!(read("crlf.txt"), "one\r\ntwo\r\n");
    assert_eq!(read("lf.txt"), "one\ntwo\n");
    assert_eq!(
        std::fs::read_link(root.join("sub/link")).unwrap(),
        Path::new("../lf.txt")
    );
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &str| {
        let meta = std::fs::metadata(root.join(path)).unwrap();
        meta.permissions().mode() & 0o777
    };
    assert_eq!((mode("run.sh"), mode("lf.txt")), (0o755, 0o644));
    assert!(!root.join(".git").exists() && !root.join("docs").exists());
}

#[test]
fn a_submodule_is_refused_unless_excluded() {
    let upstream = Upstream::new();
    let commit = upstream.commit();
    upstream.index("third/party", &commit, "160000");
    upstream.index("docs/party", &commit, "160000");
    let sources = upstream.source(&upstream.commit());
    let ctx = &upstream.world.ctx;
    let mut base = base(&Digest::of(b""), &sources);
    let error = crate::vendor::survey(ctx, &base).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("\"third/party\": it is a submodule")
    );
    base.exclude.push("third/party".to_owned());
    crate::vendor::survey(ctx, &base).unwrap();
}

#[test]
fn a_link_out_of_the_tree_is_refused() {
    let upstream = Upstream::new();
    upstream.add("evil", "../../x", "120000");
    let sources = upstream.source(&upstream.commit());
    let base = base(&Digest::of(b""), &sources);
    let error = crate::vendor::survey(&upstream.world.ctx, &base).unwrap_err();
    assert!(error.to_string().contains("leaves the tree"), "{error}");
}

#[test]
fn an_unknown_commit_is_named_with_a_hint() {
    let upstream = Upstream::new();
    upstream.commit();
    let sources = upstream.source(&"1".repeat(40));
    let base = base(&Digest::of(b""), &sources);
    let error = obtain(&upstream.world.ctx, &base, false).unwrap_err();
    assert!(error.to_string().contains("not our ref"), "{error}");
    assert!(error.hints()[0].contains("check `commit`"));
}

#[test]
fn a_missing_git_is_named_with_its_package() {
    let world = World::new();
    let mut vendor = Vendor::new(&world.ctx);
    vendor.programs.git = "no-such-git-here".into();
    let commit = "1".repeat(40);
    let text =
        format!("[[source]]\ngit = {{ url = 'https://host.invalid/x', commit = '{commit}' }}");
    let error = vendor
        .obtain(&base(&Digest::of(b""), &text), false)
        .unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`no-such-git-here` is not installed")
    );
    assert!(error.hints()[0].contains("apt-get install git"));
}

#[test]
fn a_server_that_never_answers_is_given_up_soon() {
    let world = World::new();
    let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let source = GitSource {
        url: format!("git://{}/x", server.local_addr().unwrap()),
        commit: "1".repeat(40),
    };
    let programs = Programs {
        patience: Patience {
            first: Duration::from_millis(1500),
            idle: Duration::from_secs(60),
        },
        ..Programs::default()
    };
    let temp = world.dir.path().join("temp");
    std::fs::create_dir(&temp).unwrap();
    let begun = std::time::Instant::now();
    let tree = temp.join("tree");
    let error = fetch(&world.ctx, &programs, &source, Exclude(&[]), &temp, &tree).unwrap_err();
    assert!(error.to_string().contains("no answer within"), "{error}");
    assert!(begun.elapsed() < Duration::from_secs(10));
    assert!(!tree.exists());
}

#[test]
fn the_repository_that_we_run_in_is_not_the_one_we_fetch_into() {
    let command = git(&Programs::default(), Path::new("/cache/temp/git"));
    let removed = |name: &str| {
        command
            .get_envs()
            .any(|(key, value)| key == name && value.is_none())
    };
    assert!(removed("GIT_DIR") && removed("GIT_WORK_TREE") && removed("GIT_OBJECT_DIRECTORY"));
    assert_eq!(command.get_current_dir(), Some(Path::new("/cache/temp")));
}
