//! The installed git, outside of any repository and of any configuration.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use llama_patchset::tree::{Blob, FileMode, RelPath};

use super::random::Tree;

/// What `git apply` did.
#[derive(Debug)]
pub enum Applied {
    /// It applied each hunk at its line.
    Exact(Tree),
    /// It applied, but had to look elsewhere.
    Offset(String, Tree),
    /// It refused.
    Refused(String),
}

/// Git in `dir`, which is taken for no part of any repository above it.
pub fn git(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("LC_ALL", "C")
        .env("HOME", dir)
        .env("GIT_CEILING_DIRECTORIES", dir.parent().unwrap())
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_AUTHOR_NAME", "A. Author")
        .env("GIT_AUTHOR_EMAIL", "author@example.org")
        .env("GIT_COMMITTER_NAME", "C. Committer")
        .env("GIT_COMMITTER_EMAIL", "committer@example.org");
    command
}

/// Runs git with `input`.
pub fn feed(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git is needed");
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    let writer = std::thread::spawn(move || {
        // Git may stop reading.
        let _ = stdin.write_all(&input);
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    output
}

/// Runs git, which must succeed, and returns its stdout.
pub fn ok(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let output = feed(command, input);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    output.stdout
}

/// Writes a tree into an empty folder.
pub fn write(dir: &Path, tree: &Tree) {
    for (path, blob) in tree {
        let at = path.below(dir);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        match blob.mode {
            FileMode::Link => {
                symlink(std::str::from_utf8(&blob.content).unwrap(), &at).unwrap();
            }
            mode => {
                fs::write(&at, &blob.content).unwrap();
                if mode == FileMode::Executable {
                    fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
                }
            }
        }
    }
}

/// Reads a tree, without what lies in `.git`.
pub fn read(dir: &Path) -> Tree {
    let mut tree = BTreeMap::new();
    let walk = walkdir::WalkDir::new(dir)
        .into_iter()
        .filter_entry(|entry| entry.file_name() != ".git");
    for entry in walk {
        let entry = entry.unwrap();
        let kind = entry.file_type();
        if kind.is_dir() {
            continue;
        }
        let Ok(path) = RelPath::from_path(entry.path().strip_prefix(dir).unwrap()) else {
            // A name that ours refuses: let the comparison fail on it.
            let shown = entry
                .path()
                .display()
                .to_string()
                .replace(['\\', '\n', '\r', '\t'], "?");
            let name = format!("unsafe {}", shown.replace('/', "_"));
            tree.insert(RelPath::new(name).unwrap(), Blob::plain(""));
            continue;
        };
        let blob = if kind.is_symlink() {
            let target = fs::read_link(entry.path()).unwrap();
            Blob::new(target.to_str().unwrap(), FileMode::Link)
        } else {
            let mode = match entry.metadata().unwrap().permissions().mode() & 0o100 {
                0 => FileMode::Plain,
                _ => FileMode::Executable,
            };
            Blob::new(fs::read(entry.path()).unwrap(), mode)
        };
        tree.insert(path, blob);
    }
    tree
}

/// Lets `git apply` apply `patch` to `tree`.
pub fn apply(tree: &Tree, patch: &[u8], strip: usize) -> Applied {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path().join("tree");
    fs::create_dir(&dir).unwrap();
    write(&dir, tree);
    let strip = format!("-p{strip}");
    let output = feed(git(&dir).args(["apply", "-v", &strip, "-"]), patch);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    if !output.status.success() {
        Applied::Refused(stderr)
    } else if stderr
        .lines()
        .any(|line| line.starts_with("Hunk #") && line.contains("(offset "))
    {
        Applied::Offset(stderr, read(&dir))
    } else {
        Applied::Exact(read(&dir))
    }
}

/// Diffs of many pairs of trees at once, as git writes them.
pub fn diffs(pairs: &[(Tree, Tree)], options: &[&str]) -> Vec<Vec<u8>> {
    let dir = tempfile::tempdir().unwrap();
    let repo = git2::Repository::init_bare(dir.path()).unwrap();
    let write = |tree: &Tree| {
        let mut index = git2::Index::new().unwrap();
        for (path, blob) in tree {
            let mode = match blob.mode {
                FileMode::Plain => 0o100_644,
                FileMode::Executable => 0o100_755,
                FileMode::Link => 0o120_000,
            };
            index
                .add(&git2::IndexEntry {
                    ctime: git2::IndexTime::new(0, 0),
                    mtime: git2::IndexTime::new(0, 0),
                    dev: 0,
                    ino: 0,
                    mode,
                    uid: 0,
                    gid: 0,
                    file_size: 0,
                    id: repo.blob(&blob.content).unwrap(),
                    flags: 0,
                    flags_extended: 0,
                    path: path.as_str().as_bytes().to_vec(),
                })
                .unwrap();
        }
        index.write_tree_to(&repo).unwrap()
    };
    let ids: Vec<String> = pairs
        .iter()
        .map(|(old, new)| format!("{} {}", write(old), write(new)))
        .collect();
    let mut command = git(dir.path());
    command
        .args(["diff-tree", "--stdin", "-r", "-p"])
        .args(options);
    let mut input = ids.join("\n").into_bytes();
    input.push(b'\n');
    let text = ok(&mut command, &input);
    let mut diffs = Vec::new();
    let mut rest = &text[..];
    for (at, id) in ids.iter().enumerate() {
        let head = format!("{id}\n");
        rest = rest
            .strip_prefix(head.as_bytes())
            .expect("each pair has its line");
        let end = match ids.get(at + 1) {
            Some(next) => {
                let next = format!("\n{next}\n");
                // The line of the next pair stands at the beginning of a line; no content of
                // ours looks like it.
                match rest.starts_with(&next.as_bytes()[1..]) {
                    true => 0,
                    false => {
                        1 + rest
                            .windows(next.len())
                            .position(|window| window == next.as_bytes())
                            .unwrap()
                    }
                }
            }
            None => rest.len(),
        };
        diffs.push(rest[..end].to_vec());
        rest = &rest[end..];
    }
    diffs
}
