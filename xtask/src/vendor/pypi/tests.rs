use super::*;
use crate::model::Digest;
use crate::process::Patience;
use crate::vendor::Vendor;
use crate::vendor::tests::{World, base};

/// A `python3` whose pip does what `script` says; `$dest` is the folder to download to.
#[cfg(unix)]
fn fake(world: &World, script: &str) -> Programs {
    use std::os::unix::fs::PermissionsExt;
    let path = world.dir.path().join("fake-python");
    let text = format!(
        "#!/bin/sh\nwhile [ $# -gt 0 ]; do case $1 in --dest) dest=$2;; \
         --requirement) wanted=$2;; esac; shift; done\n{script}\n"
    );
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Programs {
        python: path.into(),
        ..Programs::default()
    }
}

/// A source distribution with one file, in a place where the fake pip finds it.
fn sdist(world: &World) -> (PathBuf, Digest) {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(2);
    header.set_mode(0o644);
    builder
        .append_data(&mut header, "p-1/vendor/x/a.c", &b"a\n"[..])
        .unwrap();
    let bytes = builder.into_inner().unwrap();
    let path = world.dir.path().join("p-1.tar");
    std::fs::write(&path, &bytes).unwrap();
    (path, Digest::of(&bytes))
}

fn source(sha256: Digest) -> PypiSource {
    PypiSource {
        package: "p".to_owned(),
        version: "1".to_owned(),
        sha256,
        subdir: "vendor/x".to_owned(),
    }
}

#[cfg(unix)]
fn get(world: &World, programs: Programs, sha256: Digest) -> Result<PathBuf> {
    let cache = Cache::of(&world.ctx.project);
    let _lock = cache.lock(&world.ctx)?;
    archive(&world.ctx, &programs, &cache, &source(sha256))
}

#[cfg(unix)]
#[test]
fn an_archive_is_fetched_once_and_unpacked() {
    let world = World::new();
    let (path, sha256) = sdist(&world);
    let script = format!(
        "grep -q '^p==1 --hash=sha256:{sha256}$' \"$wanted\" && cp {} \"$dest\" && touch {}/again",
        path.display(),
        world.dir.path().display()
    );
    let mut vendor = Vendor::new(&world.ctx);
    vendor.programs = fake(&world, &script);
    let text =
        format!("[[source]]\npypi={{package='p',version='1',sha256='{sha256}',subdir='vendor/x'}}");
    let mut base = base(&Digest::of(b""), &text);
    base.tree = vendor.survey(&base).unwrap().tree;
    let cached = Cache::of(&world.ctx.project).download_dir(&sha256);
    assert!(cached.join("p-1.tar").is_file());
    // The second time pip is not even there.
    vendor.programs.python = "no-such-python".into();
    let done = vendor.obtain(&base, false).unwrap();
    assert_eq!(done.origin, "pypi p 1");
    assert_eq!(
        std::fs::read(done.pristine.root.join("a.c")).unwrap(),
        b"a\n"
    );
}

#[cfg(unix)]
#[test]
fn another_archive_than_the_pinned_one_is_not_kept() {
    let world = World::new();
    let (path, _) = sdist(&world);
    let wrong = Digest::of(b"pinned");
    let programs = fake(&world, &format!("cp {} \"$dest\"", path.display()));
    let error = get(&world, programs, wrong).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Finding);
    assert!(error.to_string().contains("pinned is"), "{error}");
    let downloads = Cache::of(&world.ctx.project).downloads();
    assert_eq!(std::fs::read_dir(downloads).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_damaged_archive_in_the_cache_is_fetched_again() {
    let world = World::new();
    let (path, sha256) = sdist(&world);
    let dir = Cache::of(&world.ctx.project).download_dir(&sha256);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("p-1.tar"), "damaged").unwrap();
    let programs = fake(&world, &format!("cp {} \"$dest\"", path.display()));
    let got = get(&world, programs, sha256).unwrap();
    assert_eq!(Digest::of_file(&got).unwrap(), sha256);
    // One that a person put there, under any name, will do.
    std::fs::rename(&got, dir.join("by-hand")).unwrap();
    let got = get(&world, fake(&world, "exit 1"), sha256).unwrap();
    assert!(got.ends_with("by-hand"));
}

#[cfg(unix)]
#[test]
fn a_pip_that_hangs_is_killed() {
    let world = World::new();
    let mut programs = fake(&world, "echo Collecting; sleep 60");
    let short = std::time::Duration::from_millis(800);
    programs.patience_pip = Patience {
        first: short,
        idle: short,
    };
    let begun = std::time::Instant::now();
    let error = get(&world, programs, Digest::of(b"")).unwrap_err();
    assert!(error.to_string().contains("no sign of life"), "{error}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn a_missing_python_or_pip_is_named_with_its_package() {
    let world = World::new();
    let mut vendor = Vendor::new(&world.ctx);
    vendor.programs.python = "no-such-python".into();
    let digest = Digest::of(b"");
    let text = format!("[[source]]\npypi={{package='p',version='1',sha256='{digest}'}}");
    let error = vendor.obtain(&base(&digest, &text), false).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`no-such-python` is not installed")
    );
    assert!(error.hints()[0].contains("python3-pip"));

    let error = failed(&["/usr/bin/python3: No module named pip".to_owned()], "1");
    assert!(error.hints()[0].contains("python3-pip"));
}

#[test]
fn pips_words_become_a_reason() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let error = failed(
        &lines(
            "ERROR: THESE PACKAGES DO NOT MATCH THE HASHES FROM THE REQUIREMENTS FILE.\n\
             \x20   p==1:\n        Expected sha256 aa\n             Got        bb",
        ),
        "exit status: 1",
    );
    assert_eq!(error.kind(), crate::Kind::Finding);
    assert!(error.to_string().ends_with("it has sha256 bb"), "{error}");

    let error = failed(
        &lines(
            "WARNING: Retrying (Retry(total=0)) after connection broken by 'NewConnectionError(\
             '<pip._vendor.urllib3.connection.HTTPSConnection object at 0x7f>: Failed to \
             establish a new connection: [Errno -2] Name or service not known')': /simple/p/\n\
             ERROR: Could not find a version that satisfies the requirement p==1\n\
             ERROR: No matching distribution found for p==1",
        ),
        "exit status: 1",
    );
    assert_eq!(error.kind(), crate::Kind::Environment);
    let text = error.to_string();
    assert!(
        text.starts_with("No matching distribution found for p==1 ("),
        "{text}"
    );
    assert!(text.ends_with("Name or service not known)"), "{text}");
    let error = failed(
        &lines(
            "ERROR: Exception:\nTraceback (most recent call last):\n\
             OSError: [Errno 28] No space left on device",
        ),
        "exit status: 2",
    );
    assert!(error.to_string().starts_with("OSError"), "{error}");
    assert!(error.hints()[0].contains("free some space"));
    assert_eq!(failed(&[], "exit status: 7").to_string(), "exit status: 7");
}
