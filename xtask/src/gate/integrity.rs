//! The gate "the tree is what base and series make".
//!
//! Nothing is believed: every file of the base and of the working tree is read and hashed, whatever
//! their time stamps say, and held against what base and series give. Then the series is applied
//! once more, which must not touch a single file.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::SystemTime;

use crate::build::{self, Build};
use crate::ctx::Ctx;
use crate::error::Result;
use crate::gate::checks::{check, failed, skipped};
use crate::gate::work::{Found, Work};
use crate::model::CheckRecord;
use crate::patchset::{Images, Series, apply, count, read_state, registry_drift, scan};
use crate::tree::{Entry, RelPath, TreeManifest};
use crate::vendor::Pristine;

/// Runs a gate of this kind.
pub fn gate(work: &Work<'_>) -> Result<Found> {
    let Some(origin) = &work.origin else {
        return Ok(Found::skip(
            "only builds of this project have a base and a series",
        ));
    };
    let mut checks = checks(work.ctx, origin.pristine, origin.series)?;
    for build in [origin.vanilla, origin.patched] {
        checks.push(of_build(work.ctx, build, origin.pristine, origin.series)?);
    }
    Ok(Found {
        checks,
        ..Found::default()
    })
}

/// Asks of base, registry and working tree.
pub fn checks(ctx: &Ctx, pristine: &Pristine, series: &Series) -> Result<Vec<CheckRecord>> {
    let mut checks = vec![base(pristine)?];
    let (images, problems) = Images::attempt(pristine, series)?;
    if let Some(problem) = problems.first() {
        checks.push(failed(
            "series",
            count(series.patches.len(), "patch"),
            vec![problem.to_string()],
        ));
        return Ok(checks);
    }
    checks.push(check(
        "registry",
        count(images.paths().count(), "file"),
        registry_drift(&ctx.project, series, &images)?,
    ));
    let root = ctx.project.working_tree(&pristine.base.id);
    if !root.is_dir() {
        let missing = format!("there is no {}", ctx.project.show(&root));
        checks.push(failed("tree", String::new(), vec![missing]));
        return Ok(checks);
    }
    let expected = expected(pristine, series, &images);
    let found = scan(&root)?;
    checks.push(tree(&expected, &found));
    checks.push(state(&root, pristine, series)?);
    checks.push(if expected.differences(&found).is_empty() {
        again(ctx, pristine, series, &images, &found)?
    } else {
        skipped("apply again", "the tree is not what it should be as it is")
    });
    Ok(checks)
}

/// Base and series, file by file.
fn expected(pristine: &Pristine, series: &Series, images: &Images) -> TreeManifest {
    let mut files: BTreeMap<RelPath, Entry> = (pristine.manifest.iter())
        .map(|(path, entry)| (path.clone(), *entry))
        .collect();
    for path in images.paths() {
        match images.at(path, series.patches.len()) {
            Some(image) => files.insert(path.clone(), image.entry()),
            None => files.remove(path),
        };
    }
    files.into_iter().collect()
}

fn base(pristine: &Pristine) -> Result<CheckRecord> {
    let found = TreeManifest::of_tree(&pristine.root, |_| false)?;
    let mut reasons: Vec<String> = (pristine.manifest.differences(&found).iter())
        .map(ToString::to_string)
        .collect();
    let (recorded, digest) = (pristine.base.tree, pristine.manifest.digest());
    if recorded != digest {
        reasons.push(format!(
            "registry/upstreams.toml records the tree {recorded}, the cache holds {digest}"
        ));
    }
    let what = format!("{} of {}", count(found.len(), "file"), pristine.base.id);
    Ok(check("base", what, reasons))
}

fn tree(expected: &TreeManifest, found: &TreeManifest) -> CheckRecord {
    let differences = expected.differences(found);
    check(
        "tree",
        format!(
            "{}, tree {}",
            count(found.len(), "file"),
            found.digest().short()
        ),
        differences.iter().map(ToString::to_string).collect(),
    )
}

/// What the tree says of itself.
fn state(root: &Path, pristine: &Pristine, series: &Series) -> Result<CheckRecord> {
    let what = format!("patch set {}", series.id.short());
    let Some(state) = read_state(root)? else {
        let missing = "the tree has no state file".to_owned();
        return Ok(failed("state", what, vec![missing]));
    };
    let mut reasons = Vec::new();
    let mut same = |name: &str, recorded: String, wanted: String| {
        if recorded != wanted {
            reasons.push(format!("{name}: recorded is {recorded}, not {wanted}"));
        }
    };
    same("base", state.base, pristine.base.id.clone());
    same(
        "tree",
        state.tree.to_string(),
        pristine.base.tree.to_string(),
    );
    same(
        "patch set",
        state.patchset.to_string(),
        series.id.to_string(),
    );
    same("patches", state.applied.join(" "), series.ids().join(" "));
    Ok(check("state", what, reasons))
}

/// Applies the series to the tree that has it. The inode and the time of each patched file say
/// whether it was written, whatever `apply` says.
fn again(
    ctx: &Ctx,
    pristine: &Pristine,
    series: &Series,
    images: &Images,
    before: &TreeManifest,
) -> Result<CheckRecord> {
    let root = ctx.project.working_tree(&pristine.base.id);
    let marks = || -> BTreeMap<RelPath, (u64, SystemTime)> {
        let marks = images.paths().filter_map(|path| {
            let meta = std::fs::symlink_metadata(path.below(&root)).ok()?;
            Some((path.clone(), (meta.ino(), meta.modified().ok()?)))
        });
        marks.collect()
    };
    let old = marks();
    let moved = apply(ctx, pristine, series, series.patches.len(), false)?;
    let new = marks();
    let mut reasons: Vec<String> = (moved.written.iter().chain(&moved.removed))
        .map(|path| format!("{path} was changed by applying again"))
        .collect();
    let touched = old
        .iter()
        .filter(|(path, mark)| new.get(*path) != Some(*mark));
    reasons.extend(touched.map(|(path, _)| format!("{path} was written by applying again")));
    let after = scan(&root)?;
    let differences = before.differences(&after);
    reasons.extend(differences.iter().map(ToString::to_string));
    let what = format!("{} stay", count(images.paths().count(), "patched file"));
    Ok(check("apply again", what, reasons))
}

fn of_build(ctx: &Ctx, found: &Build, pristine: &Pristine, series: &Series) -> Result<CheckRecord> {
    let manifest = &found.manifest;
    let mut reasons: Vec<String> = (build::check(found)?.iter())
        .map(ToString::to_string)
        .collect();
    let tree = pristine.manifest.digest();
    if manifest.tree != tree {
        reasons.push(format!(
            "it was built from the tree {}, not {tree}",
            manifest.tree
        ));
    }
    if let Some(stamp) = &manifest.patchset
        && stamp.id != series.id
    {
        reasons.push(format!(
            "it carries the patch set {}, not {}",
            stamp.id, series.id
        ));
    }
    let name = format!("{} build", manifest.flavour);
    let what = format!(
        "{} of {}",
        count(manifest.artifacts.len(), "artifact"),
        ctx.project.show(&found.dir)
    );
    Ok(check(&name, what, reasons))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::model::Verdict::{self, *};
    use crate::patchset::refresh;
    use crate::toy::{Toy, put};

    fn applied() -> Toy {
        let toy = Toy::with_two_patches();
        refresh(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
        apply(&toy.ctx, &toy.pristine, &toy.load(), 2, false).unwrap();
        toy
    }

    fn verdicts(toy: &Toy) -> Vec<(String, Verdict, String)> {
        let found = checks(&toy.ctx, &toy.pristine, &toy.load()).unwrap();
        let each = found.into_iter();
        each.map(|check| (check.name, check.verdict, check.reason.unwrap_or_default()))
            .collect()
    }

    /// Exactly the check `name` fails, for a reason with `word`; what could not be asked any more
    /// is skipped.
    fn only(toy: &Toy, name: &str, word: &str) {
        let found = verdicts(toy);
        for (check, verdict, reason) in &found {
            if check == name {
                assert_eq!(*verdict, Fail, "{found:?}");
                assert!(reason.contains(word), "{word}: {reason}");
            } else {
                assert!(matches!(verdict, Pass | Skipped), "{found:?}");
            }
        }
        assert!(found.iter().any(|(check, ..)| check == name), "{found:?}");
    }

    #[test]
    fn a_tree_that_is_right_passes_every_check() {
        let toy = applied();
        let found = verdicts(&toy);
        assert_eq!(found.len(), 5, "{found:?}");
        assert!(
            found.iter().all(|(_, verdict, _)| *verdict == Pass),
            "{found:?}"
        );
    }

    #[test]
    fn one_changed_byte_fails_though_its_stamps_are_those_of_before() {
        let toy = applied();
        let file = toy.tree().join("src/other.c");
        // What a glance would go by is remembered first, and is then as it was.
        let images = Images::compute(&toy.pristine, &toy.load()).unwrap();
        crate::patchset::status(&toy.ctx, &toy.pristine, &toy.load(), &images).unwrap();
        let time = fs::metadata(&file).unwrap().modified().unwrap();
        fs::write(&file, "int otheR;\n").unwrap();
        let opened = fs::File::options().write(true).open(&file).unwrap();
        opened.set_modified(time).unwrap();
        only(&toy, "tree", "src/other.c");
    }

    #[test]
    fn a_foreign_and_a_missing_file_fail() {
        let toy = applied();
        put(&toy.tree().join("src/foreign.c"), "");
        only(&toy, "tree", "src/foreign.c");
        fs::remove_file(toy.tree().join("src/foreign.c")).unwrap();
        fs::remove_file(toy.tree().join("deep/er/new.txt")).unwrap();
        only(&toy, "tree", "deep/er/new.txt");
    }

    #[test]
    fn a_changed_base_fails() {
        let toy = applied();
        put(&toy.pristine.root.join("CMakeLists.txt"), "project(Toy)\n");
        let found = verdicts(&toy);
        assert_eq!((found[0].0.as_str(), found[0].1), ("base", Fail));
        let mut toy = applied();
        toy.pristine.base.tree = crate::model::Digest::of(b"another");
        let found = verdicts(&toy);
        assert_eq!((found[0].0.as_str(), found[0].1), ("base", Fail));
        assert!(found[0].2.contains("upstreams.toml"), "{found:?}");
    }

    #[test]
    fn a_registry_that_says_something_else_fails() {
        let toy = applied();
        fs::remove_file(toy.root().join("registry/hooks.toml")).unwrap();
        only(&toy, "registry", "missing");
    }

    #[test]
    fn no_tree_and_half_a_series_fail() {
        let toy = applied();
        apply(&toy.ctx, &toy.pristine, &toy.load(), 1, false).unwrap();
        let found = verdicts(&toy);
        let of = |name: &str| found.iter().find(|(check, ..)| check == name).unwrap().1;
        assert_eq!([of("tree"), of("state")], [Fail, Fail]);
        assert_eq!(of("apply again"), Skipped);
        fs::remove_dir_all(toy.tree()).unwrap();
        only(&toy, "tree", "there is no");
    }

    #[test]
    fn a_series_that_does_not_apply_fails() {
        let toy = applied();
        toy.patch("first", "--- a/src/main.c\n+++ b/src/main.c\n@@ -1,2 +1,3 @@\n int mine() {\n+    hook();\n     one();\n", &[]);
        only(&toy, "series", "first");
    }
}
