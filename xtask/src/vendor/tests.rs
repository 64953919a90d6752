use std::path::Path;
use std::sync::{Arc, Mutex};

use super::obtain::some;
use super::*;
use crate::Kind;
use crate::ctx::{Cancel, Quiet, Sink, Task};
use crate::project::Project;

/// Remembers what the user would read.
#[derive(Clone, Default)]
pub(super) struct Recorder(Arc<Mutex<Vec<String>>>);

impl Recorder {
    fn warnings(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

impl Sink for Recorder {
    fn note(&self, _: &str) {}
    fn warn(&self, message: &str) {
        self.0.lock().unwrap().push(message.to_owned());
    }
    fn detail(&self, _: &str) {}
    fn task(&self, _: &str, _: Option<u64>) -> Box<dyn Task> {
        Box::new(Quiet)
    }
}

/// A checkout with a cache of its own.
pub(super) struct World {
    pub dir: tempfile::TempDir,
    pub ctx: Ctx,
    pub told: Recorder,
}

impl World {
    pub(super) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("registry")).unwrap();
        std::fs::write(root.join("registry/upstreams.toml"), "").unwrap();
        let (ctx, told) = Self::context(&root, &dir.path().join("cache"));
        World { dir, ctx, told }
    }

    fn context(root: &Path, cache: &Path) -> (Ctx, Recorder) {
        let told = Recorder::default();
        let ctx = Ctx {
            project: Project::new(root, cache).unwrap(),
            sink: Box::new(told.clone()),
            offline: false,
            no_provision: true,
            jobs: 1,
            cancel: Cancel::default(),
        };
        (ctx, told)
    }

    /// A second process on the same cache.
    fn other(&self) -> Ctx {
        Self::context(self.ctx.project.root(), self.ctx.project.cache()).0
    }

    pub(super) fn write(&self, path: &str, content: &str) {
        let path = self.ctx.project.root().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }

    fn leftovers(&self) -> usize {
        let cache = self.ctx.project.cache();
        ["bases", "downloads"]
            .iter()
            .filter_map(|name| std::fs::read_dir(cache.join(name)).ok())
            .flatten()
            .filter(|entry| {
                let name = entry.as_ref().unwrap().file_name();
                name.to_string_lossy().starts_with(".tmp-")
            })
            .count()
    }
}

pub(super) fn base(tree: &Digest, sources: &str) -> Base {
    toml::from_str(&format!(
        "id = 'b'\ntree = '{tree}'\nexclude = ['.git', 'docs/']\n{sources}"
    ))
    .unwrap()
}

const UP: &str = "[[source]]\ndir = { path = 'up' }\n";
const GONE: &str = "[[source]]\ndir = { path = 'gone' }\n";

/// A world with a folder `up`, and the base that is exactly it.
fn with_folder() -> (World, Base) {
    let world = World::new();
    world.write("up/src/a.cpp", "int a;\r\n");
    world.write("up/run.sh", "#!/bin/sh\n");
    world.write("up/docs/readme", "left out");
    world.write("up/.git/config", "of a clone");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        let script = world.ctx.project.root().join("up/run.sh");
        std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o700)).unwrap();
    }
    let survey = survey(&world.ctx, &base(&Digest::of(b""), UP)).unwrap();
    assert_eq!((survey.files, survey.pinned), (2, false));
    let base = base(&survey.tree, UP);
    (world, base)
}

#[test]
fn a_base_is_unpacked_once_and_then_found() {
    let (world, base) = with_folder();
    assert_eq!(world.leftovers(), 0, "a survey keeps nothing");
    assert!(matches!(look(&world.ctx, &base).unwrap(), Cached::Absent));
    let first = obtain(&world.ctx, &base, false).unwrap();
    assert!(first.fresh);
    assert_eq!(first.origin, "dir up");
    assert_eq!(first.pristine.manifest.digest(), base.tree);
    assert_eq!(
        std::fs::read(first.pristine.root.join("src/a.cpp")).unwrap(),
        b"int a;\r\n"
    );
    assert!(!first.pristine.root.join("docs").exists());
    // Not even its source is needed any more, and it costs no lock.
    std::fs::remove_dir_all(world.ctx.project.root().join("up")).unwrap();
    let _lock = Cache::of(&world.ctx.project).lock(&world.ctx).unwrap();
    let second = obtain(&world.ctx, &base, false).unwrap();
    assert!(!second.fresh);
    assert_eq!(second.origin, "dir up");
    assert_eq!(second.pristine.root, first.pristine.root);
    assert!(check(&world.ctx, &base).unwrap().is_empty());
    assert_eq!(world.leftovers(), 0);
    assert_eq!(world.told.warnings(), [""; 0]);
}

#[cfg(unix)]
#[test]
fn the_cached_tree_is_readable_and_has_gits_modes() {
    use std::os::unix::fs::PermissionsExt;
    let (world, base) = with_folder();
    let pristine = ensure(&world.ctx, &base).unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(pristine.root.join("run.sh")), 0o755);
    assert_eq!(mode(pristine.root.join("src/a.cpp")), 0o644);
    // Not the private mode of temporary folders.
    let plain = mode(world.ctx.project.root().to_path_buf());
    assert_eq!(mode(pristine.root.parent().unwrap().to_path_buf()), plain);
}

#[test]
fn a_flipped_byte_is_named_even_with_its_old_time_stamp() {
    let (world, base) = with_folder();
    let pristine = ensure(&world.ctx, &base).unwrap();
    let path = pristine.root.join("src/a.cpp");
    let stamp = std::fs::metadata(&path).unwrap().modified().unwrap();
    std::fs::write(&path, "int b;\r\n").unwrap();
    let differences = check(&world.ctx, &base).unwrap();
    assert_eq!(
        differences[0].to_string(),
        format!(
            "src/a.cpp: expected sha256 {}, found {}",
            Digest::of(b"int a;\r\n"),
            Digest::of(b"int b;\r\n")
        )
    );
    assert_eq!(differences.len(), 1);
    // The quick look sees the time stamp.
    let error = ensure(&world.ctx, &base).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(error.to_string().contains("src/a.cpp: expected sha256"));
    assert!(error.hints()[0].contains("--force"));
    // With the old stamp only the full check does.
    let file = std::fs::File::options().write(true).open(&path).unwrap();
    file.set_modified(stamp).unwrap();
    assert!(ensure(&world.ctx, &base).is_ok());
    assert_eq!(check(&world.ctx, &base).unwrap(), differences);
    // And --force makes it good.
    assert!(obtain(&world.ctx, &base, true).unwrap().fresh);
    assert!(check(&world.ctx, &base).unwrap().is_empty());
    assert_eq!(world.leftovers(), 0);
}

#[test]
fn a_touched_file_is_hashed_and_other_changes_are_named() {
    let (world, base) = with_folder();
    let root = ensure(&world.ctx, &base).unwrap().root;
    let file = std::fs::File::options()
        .write(true)
        .open(root.join("src/a.cpp"))
        .unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    assert!(ensure(&world.ctx, &base).is_ok(), "the content is the same");

    std::fs::write(root.join("new"), "").unwrap();
    std::fs::remove_file(root.join("src/a.cpp")).unwrap();
    let Cached::Changed(faults) = look(&world.ctx, &base).unwrap() else {
        panic!("not seen");
    };
    assert_eq!(faults, ["new: not part of the tree", "src/a.cpp: missing"]);
    std::fs::remove_dir_all(&root).unwrap();
    assert!(matches!(
        look(&world.ctx, &base).unwrap(),
        Cached::Changed(_)
    ));
    assert_eq!(check(&world.ctx, &base).unwrap().len(), 2);
}

#[cfg(unix)]
#[test]
fn a_lost_execute_bit_is_named() {
    use std::os::unix::fs::PermissionsExt;
    let (world, base) = with_folder();
    let root = ensure(&world.ctx, &base).unwrap().root;
    let plain = std::fs::Permissions::from_mode(0o644);
    std::fs::set_permissions(root.join("run.sh"), plain).unwrap();
    let error = ensure(&world.ctx, &base).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("run.sh: expected a file of kind")
    );
}

#[test]
fn what_a_killed_run_left_is_cleared_and_completed() {
    let (world, base) = with_folder();
    let cache = Cache::of(&world.ctx.project);
    for dir in [cache.bases(), cache.downloads()] {
        std::fs::create_dir_all(dir.join(".tmp-dead/base/tree")).unwrap();
        std::fs::write(dir.join(".tmp-dead/base/tree/half"), "x").unwrap();
    }
    // A folder with a tree, but killed before its index was written.
    std::fs::create_dir_all(cache.entry(&base).join("tree")).unwrap();
    assert!(matches!(
        look(&world.ctx, &base).unwrap(),
        Cached::Incomplete(_)
    ));
    assert!(obtain(&world.ctx, &base, false).unwrap().fresh);
    assert_eq!(world.leftovers(), 0);
    assert!(world.told.warnings()[0].contains("unpacking it anew"));

    // Also when there is nothing else to do, but not while another process is at work.
    let other = cache.bases().join(".tmp-other");
    std::fs::create_dir(&other).unwrap();
    let file = std::fs::File::open(world.ctx.project.cache().join("vendor.lock")).unwrap();
    file.lock().unwrap();
    ensure(&world.ctx, &base).unwrap();
    assert!(
        other.exists(),
        "it may belong to the process that holds the lock"
    );
    file.unlock().unwrap();
    ensure(&world.ctx, &base).unwrap();
    assert!(!other.exists());
}

#[test]
fn who_takes_the_lock_clears_first() {
    let (world, base) = with_folder();
    let leftover = Cache::of(&world.ctx.project).bases().join(".tmp-dead");
    std::fs::create_dir(&leftover).unwrap();
    survey(&world.ctx, &base).unwrap();
    assert!(!leftover.exists());
}

#[test]
fn a_manifest_is_believed_only_with_the_pinned_digest() {
    let (world, base) = with_folder();
    let pristine = ensure(&world.ctx, &base).unwrap();
    // Tree, manifest and index agree with each other, but not with the pin.
    let dir = pristine.root.parent().unwrap();
    std::fs::write(pristine.root.join("src/a.cpp"), "int b;\r\n").unwrap();
    let forged = TreeManifest::of_tree(&pristine.root, |_| false).unwrap();
    std::fs::write(dir.join("manifest"), forged.text()).unwrap();
    let Cached::Incomplete(why) = look(&world.ctx, &base).unwrap() else {
        panic!("believed");
    };
    assert!(why.contains(&base.tree.to_string()), "{why}");
    assert!(check(&world.ctx, &base).is_err());
    assert!(obtain(&world.ctx, &base, false).unwrap().fresh);
    assert!(check(&world.ctx, &base).unwrap().is_empty());
}

#[test]
fn two_processes_at_once_unpack_once() {
    let (world, base) = with_folder();
    let fresh: usize = std::thread::scope(|scope| {
        let runs: Vec<_> = (0..4)
            .map(|_| {
                let (ctx, base) = (world.other(), &base);
                scope.spawn(move || obtain(&ctx, base, false).unwrap())
            })
            .collect();
        runs.into_iter()
            .map(|run| usize::from(run.join().unwrap().fresh))
            .sum()
    });
    assert_eq!(fresh, 1);
    assert!(check(&world.ctx, &base).unwrap().is_empty());
}

#[test]
fn a_wrong_digest_installs_nothing_and_says_what_is_known() {
    let (world, good) = with_folder();
    let wrong = base(&Digest::of(b"other"), UP);
    let error = ensure(&world.ctx, &wrong).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    let text = error.to_string();
    assert!(
        text.contains("dir up: its 2 files have tree digest"),
        "{text}"
    );
    assert!(text.contains(&good.tree.to_string()) && text.contains(&wrong.tree.to_string()));
    assert!(error.hints()[0].contains("--print-digest"));
    assert!(matches!(look(&world.ctx, &wrong).unwrap(), Cached::Absent));
    assert_eq!(world.leftovers(), 0);

    // With another source that is right, the differing files are named.
    world.write("bad/src/a.cpp", "int bad;");
    let both = base(&good.tree, &format!("[[source]]\ndir={{path='bad'}}\n{UP}"));
    let done = obtain(&world.ctx, &both, false).unwrap();
    assert_eq!(done.origin, "dir up");
    let [warning] = &world.told.warnings()[..] else {
        panic!("one line");
    };
    assert!(warning.contains("dir bad"), "{warning}");
    assert!(
        warning.contains("run.sh: missing; src/a.cpp: expected sha256"),
        "{warning}"
    );
}

#[test]
fn a_forced_run_that_fails_keeps_what_was_there() {
    let (world, base) = with_folder();
    ensure(&world.ctx, &base).unwrap();
    world.write("up/src/a.cpp", "int moved_on;");
    let error = obtain(&world.ctx, &base, true).unwrap_err();
    assert!(
        error.to_string().contains("src/a.cpp: expected sha256"),
        "{error}"
    );
    assert!(check(&world.ctx, &base).unwrap().is_empty());
    assert_eq!(world.leftovers(), 0);
}

#[test]
fn a_source_that_fails_is_told_in_one_line_when_a_later_one_works() {
    let (world, good) = with_folder();
    let base = base(&good.tree, &format!("{GONE}{UP}"));
    let done = obtain(&world.ctx, &base, false).unwrap();
    assert_eq!(done.failed.len(), 1);
    let [line] = &world.told.warnings()[..] else {
        panic!("one line");
    };
    assert!(
        line.contains("from dir up") && line.contains("dir gone: "),
        "{line}"
    );
}

#[test]
fn when_all_sources_fail_each_is_listed() {
    let (world, good) = with_folder();
    let sources = format!(
        "{GONE}[[source]]\ntarball = {{ path = 'x.tar', sha256 = '{}' }}\n",
        good.tree
    );
    let error = ensure(&world.ctx, &base(&good.tree, &sources)).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    let text = error.to_string();
    for part in [
        "no source of base `b`",
        "dir gone: ",
        "tarball x.tar: ",
        "is not there",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn offline_says_what_would_be_fetched() {
    let (mut world, good) = with_folder();
    world.ctx.offline = true;
    let commit = "0123456789012345678901234567890123456789";
    let remote = format!(
        "[[source]]\ngit = {{ url = 'https://host.invalid/x', commit = '{commit}' }}\n\
         [[source]]\npypi = {{ package = 'p', version = '1', sha256 = '{}' }}\n",
        good.tree
    );
    let error = ensure(&world.ctx, &base(&good.tree, &remote)).unwrap_err();
    assert_eq!(error.kind(), Kind::Environment);
    let text = error.to_string();
    assert!(text.contains("git https://host.invalid/x 012345678901: not in the cache"));
    assert!(text.contains("pypi p 1: not in the cache"));
    let hints = error.hints().join("\n");
    assert!(hints.contains("without --offline"), "{hints}");
    let place = Cache::of(&world.ctx.project).download_dir(&good.tree);
    assert!(hints.contains("pip download") && hints.contains(place.to_str().unwrap()));

    // Local sources and the cache work.
    let all = base(&good.tree, &format!("{remote}{UP}"));
    assert!(obtain(&world.ctx, &all, false).unwrap().fresh);
    assert!(!obtain(&world.ctx, &all, false).unwrap().fresh);
}

#[test]
fn a_tarball_is_checked_before_it_is_unpacked() {
    let (world, good) = with_folder();
    let root = world.ctx.project.root().to_path_buf();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all("top/x", root.join("up")).unwrap();
    let bytes = builder.into_inner().unwrap();
    std::fs::write(root.join("a.tar"), &bytes).unwrap();
    let tarball = |sha256: Digest| {
        let text = format!("[[source]]\ntarball={{path='a.tar',sha256='{sha256}',subdir='x'}}\n");
        base(&good.tree, &text)
    };
    let error = ensure(&world.ctx, &tarball(Digest::of(b""))).unwrap_err();
    assert!(error.to_string().contains("pinned is"), "{error}");
    // The clone's `.git` folder is no part of an archive.
    let error = ensure(&world.ctx, &tarball(Digest::of(&bytes))).unwrap_err();
    assert!(error.to_string().contains(".git folder"), "{error}");
    assert_eq!(world.leftovers(), 0);

    std::fs::remove_dir_all(root.join("up/.git")).unwrap();
    let mut builder = tar::Builder::new(Vec::new());
    builder.append_dir_all("top/x", root.join("up")).unwrap();
    let bytes = builder.into_inner().unwrap();
    std::fs::write(root.join("a.tar"), &bytes).unwrap();
    let done = obtain(&world.ctx, &tarball(Digest::of(&bytes)), false).unwrap();
    assert_eq!(done.origin, "tarball a.tar");
}

#[test]
fn an_interrupted_run_leaves_nothing_and_tries_no_other_source() {
    let (world, base) = with_folder();
    world.ctx.cancel.set();
    let error = ensure(&world.ctx, &base).unwrap_err();
    assert_eq!(error.kind(), Kind::Interrupted);
    assert_eq!(world.leftovers(), 0);
    assert!(matches!(look(&world.ctx, &base).unwrap(), Cached::Absent));
}

#[test]
fn long_lists_are_cut() {
    let lines: Vec<String> = (0..6).map(|at| at.to_string()).collect();
    assert_eq!(some(&lines, ";"), "0;1;2;3;and 2 more");
    assert_eq!(some(&lines[..4], ";"), "0;1;2;3");
}
