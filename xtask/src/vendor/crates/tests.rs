use super::*;
use crate::model::Digest;
use crate::process::Patience;
use crate::vendor::Vendor;
use crate::vendor::tests::{World, base};

/// A `cargo` that does what `fetch` says for `cargo fetch`, and names a crate that lies in
/// `$registry/src/index/p-1` for `cargo metadata`.
#[cfg(unix)]
fn fake(world: &World, fetch: &str) -> Programs {
    use std::os::unix::fs::PermissionsExt;
    let path = world.dir.path().join("fake-cargo");
    let registry = world.dir.path().join("registry");
    let text = format!(
        "#!/bin/sh\nregistry={}\nif [ $1 = metadata ]; then\n\
         echo 'warning: something' >&2\n\
         echo '{{\"packages\":[{{\"name\":\"p\",\"version\":\"1.0.0\",\"manifest_path\":\"'$registry'/src/index/p-1.0.0/Cargo.toml\"}}]}}'\n\
         exit\nfi\n{fetch}\n",
        registry.display()
    );
    std::fs::create_dir_all(registry.join("cache/index")).unwrap();
    std::fs::write(&path, text).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    Programs {
        cargo: path.into(),
        ..Programs::default()
    }
}

/// A crate with one file of a tree, in a place where the fake cargo finds it.
fn packed_crate(world: &World) -> (PathBuf, Digest) {
    let mut builder = tar::Builder::new(flate2::write::GzEncoder::new(
        Vec::new(),
        flate2::Compression::fast(),
    ));
    for name in ["p-1.0.0/Cargo.toml", "p-1.0.0/up/a.c"] {
        let mut header = tar::Header::new_gnu();
        header.set_size(2);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &b"a\n"[..]).unwrap();
    }
    let bytes = builder.into_inner().unwrap().finish().unwrap();
    let path = world.dir.path().join("delivered");
    std::fs::write(&path, &bytes).unwrap();
    (path, Digest::of(&bytes))
}

#[cfg(unix)]
fn get(world: &World, programs: Programs, sha256: Digest) -> Result<PathBuf> {
    let cache = Cache::of(&world.ctx.project);
    let _lock = cache.lock(&world.ctx)?;
    let source = CratesSource {
        package: "p".to_owned(),
        version: "1.0.0".to_owned(),
        sha256,
        subdir: "up".to_owned(),
    };
    archive(&world.ctx, &programs, &cache, &source)
}

#[cfg(unix)]
const INTO: &str = "$registry/cache/index/p-1.0.0.crate";

#[cfg(unix)]
#[test]
fn a_crate_is_fetched_once_and_its_subfolder_unpacked() {
    let world = World::new();
    let (path, sha256) = packed_crate(&world);
    let script = format!(
        "grep -q '^p = \"=1.0.0\"$' Cargo.toml && grep -q '^.workspace.$' Cargo.toml && \
         cp {} {INTO}",
        path.display()
    );
    let mut vendor = Vendor::new(&world.ctx);
    vendor.programs = fake(&world, &script);
    let text =
        format!("[[source]]\ncrates={{package='p',version='1.0.0',sha256='{sha256}',subdir='up'}}");
    let mut base = base(&Digest::of(b""), &text);
    base.tree = vendor.survey(&base).unwrap().tree;
    let cached = Cache::of(&world.ctx.project).download_dir(&sha256);
    assert!(cached.join("p-1.0.0.crate").is_file());
    // cargo's own copy stays where it is.
    let registry = world.dir.path().join("registry");
    assert!(registry.join("cache/index/p-1.0.0.crate").is_file());
    // The second time cargo is not even there.
    vendor.programs.cargo = "no-such-cargo".into();
    let done = vendor.obtain(&base, false).unwrap();
    assert_eq!(done.origin, "crates p 1.0.0");
    assert_eq!(
        std::fs::read(done.pristine.root.join("a.c")).unwrap(),
        b"a\n"
    );
    assert!(!done.pristine.root.join("Cargo.toml").exists());
}

#[cfg(unix)]
#[test]
fn another_archive_than_the_pinned_one_is_not_kept() {
    let world = World::new();
    let (path, _) = packed_crate(&world);
    let programs = fake(&world, &format!("cp {} {INTO}", path.display()));
    let error = get(&world, programs, Digest::of(b"pinned")).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Finding);
    assert!(error.to_string().contains("pinned is"), "{error}");
    let downloads = Cache::of(&world.ctx.project).downloads();
    assert_eq!(std::fs::read_dir(downloads).unwrap().count(), 0);
}

#[cfg(unix)]
#[test]
fn a_damaged_archive_in_our_cache_is_fetched_again() {
    let world = World::new();
    let (path, sha256) = packed_crate(&world);
    let dir = Cache::of(&world.ctx.project).download_dir(&sha256);
    std::fs::create_dir_all(&dir).unwrap();
    std::fs::write(dir.join("p-1.0.0.crate"), "damaged").unwrap();
    let programs = fake(&world, &format!("cp {} {INTO}", path.display()));
    let got = get(&world, programs, sha256).unwrap();
    assert_eq!(Digest::of_file(&got).unwrap(), sha256);
    std::fs::rename(&got, dir.join("by-hand")).unwrap();
    let got = get(&world, fake(&world, "exit 1"), sha256).unwrap();
    assert!(got.ends_with("by-hand"));
}

#[cfg(unix)]
#[test]
fn a_cargo_without_archives_is_told_apart() {
    let world = World::new();
    let error = get(&world, fake(&world, "exit 0"), Digest::of(b"")).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Environment);
    assert!(error.to_string().contains("keeps no archive"), "{error}");
    assert!(error.hints()[0].contains("p-1.0.0.crate"));
}

#[cfg(unix)]
#[test]
fn a_cargo_that_hangs_is_killed() {
    let world = World::new();
    let mut programs = fake(&world, "echo Updating; sleep 60");
    let short = std::time::Duration::from_millis(800);
    programs.patience_cargo = Patience {
        first: short,
        idle: short,
    };
    let begun = std::time::Instant::now();
    let error = get(&world, programs, Digest::of(b"")).unwrap_err();
    assert!(error.to_string().contains("no sign of life"), "{error}");
    assert!(begun.elapsed() < std::time::Duration::from_secs(10));
}

#[test]
fn offline_nothing_is_run_and_the_way_by_hand_is_told() {
    let mut world = World::new();
    world.ctx.offline = true;
    let digest = Digest::of(b"");
    let text = format!("[[source]]\ncrates={{package='p',version='1.0.0',sha256='{digest}'}}");
    let mut vendor = Vendor::new(&world.ctx);
    vendor.programs.cargo = "no-such-cargo".into();
    let error = vendor.obtain(&base(&digest, &text), false).unwrap_err();
    assert!(error.to_string().contains("--offline was given"), "{error}");
    let hints = error.hints().join("\n");
    assert!(hints.contains("cargo add p@=1.0.0"), "{hints}");
}

#[test]
fn a_missing_cargo_is_named() {
    let world = World::new();
    let mut vendor = Vendor::new(&world.ctx);
    vendor.programs.cargo = "no-such-cargo".into();
    let digest = Digest::of(b"");
    let text = format!("[[source]]\ncrates={{package='p',version='1.0.0',sha256='{digest}'}}");
    let error = vendor.obtain(&base(&digest, &text), false).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("`no-such-cargo` is not installed")
    );
    assert!(error.hints()[0].contains("rustup"));
}

#[test]
fn cargos_words_become_a_reason() {
    let lines = |text: &str| -> Vec<String> { text.lines().map(str::to_owned).collect() };
    let error = failed(
        &lines(
            "    Updating crates.io index\n\
             error: failed to download from `https://host/p/1/download`\n\n\
             Caused by:\n  [6] Could not resolve hostname\nCaused by:\n  the last word",
        ),
        "exit status: 101",
    );
    assert_eq!(error.kind(), crate::Kind::Environment);
    assert_eq!(
        error.to_string(),
        "failed to download from `https://host/p/1/download` (the last word)"
    );
    let error = failed(
        &lines("error: failed to verify the checksum of `p v1.0.0`"),
        "exit status: 101",
    );
    assert_eq!(error.kind(), crate::Kind::Finding);
    let full = lines("error: failed to write\nCaused by:\n  No space left on device (os error 28)");
    assert!(failed(&full, "1").hints()[0].contains("free some space"));
    assert_eq!(failed(&[], "exit status: 7").to_string(), "exit status: 7");
}
