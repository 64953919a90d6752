//! The benchmark itself, on a toy: it must run, and whoever it measures must do the same work.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::{Path, PathBuf};

use llama_patchset::Ctx;
use llama_patchset::bench::{Options, Peer, Report, patch};
use llama_patchset::cli::REAL_VAR;
use llama_patchset::ctx::{Cancel, Quiet};
use llama_patchset::project::Project;
use llama_patchset::tree::TreeManifest;
use llama_patchset::vendor;

fn put(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn ctx(project: Project) -> Ctx {
    Ctx {
        project,
        sink: Box::new(Quiet),
        offline: true,
        no_provision: true,
        jobs: 1,
        cancel: Cancel::default(),
    }
}

fn measure(ctx: &Ctx, series: usize, hunks: &[usize], peers: Vec<Peer>) -> Report {
    let base = ctx.project.base(None).unwrap();
    let pristine = vendor::ensure(ctx, &base).unwrap();
    let options = Options {
        program: PathBuf::from(env!("CARGO_BIN_EXE_xtask")),
        series: vec![series],
        rounds: Some(1),
        peers: peers.into_iter().filter(|peer| peer.is_here()).collect(),
        hunks: hunks.to_vec(),
        rest: std::time::Duration::ZERO,
    };
    patch(ctx, &pristine, &options).unwrap()
}

/// All peers that are here make the tree that we make, which the benchmark itself checks.
#[test]
fn ten_patches_on_a_toy() {
    let dir = tempfile::tempdir().unwrap();
    let (root, upstream) = (dir.path().join("project"), dir.path().join("upstream"));
    for at in 0..5 {
        let lines: String = (0..40).map(|line| format!("int l{line};\n")).collect();
        put(&upstream.join(format!("src/long{at}.c")), &lines);
    }
    let base = TreeManifest::of_tree(&upstream, |_| false)
        .unwrap()
        .digest();
    put(
        &root.join("registry/upstreams.toml"),
        &format!(
            "schema = 1\ndefault = \"toy\"\n\n[[base]]\nid = \"toy\"\ntree = \"{base}\"\n\n\
             [[base.source]]\ndir = {{ path = \"../upstream\" }}\n"
        ),
    );
    let ctx = ctx(Project::new(&root, &dir.path().join("cache")).unwrap());
    let report = measure(&ctx, 10, &[5, 20], Peer::ALL.to_vec());
    let [sized] = report.series.as_slice() else {
        panic!("{report:?}");
    };
    assert_eq!((sized.patches, sized.files), (10, sized.hooked + 5));
    assert!(sized.rows.len() > 5, "git at least is here");
    for row in &sized.rows {
        assert_eq!(row.times.len(), 1, "{}", row.name);
        assert!(row.times.median() > 0.0, "{}", row.name);
    }
    assert_eq!((report.long[1].lines, report.long[1].ours.len()), (400, 1));
    assert!(!root.join("target/bench/patch").exists(), "nothing is left");
}

/// A hundred patches on the real base: git makes the same bytes.
#[test]
fn a_hundred_patches_on_the_real_base_give_the_bytes_that_git_gives() {
    if std::env::var_os(REAL_VAR).is_none() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let ctx = ctx(Project::new(root, &Project::default_cache().unwrap()).unwrap());
    let report = measure(&ctx, 100, &[10], vec![Peer::GitApply]);
    assert!(report.series[0].files > 100);
}
