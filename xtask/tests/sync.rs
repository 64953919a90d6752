//! Syncing over upstream's real history. Needs the bases in the cache, which `cargo xtask test`
//! sees to; a plain `cargo test` says that it left these tests out.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use llama_patchset::cli::BASES_VAR;
use llama_patchset::ctx::{Cancel, Quiet};
use llama_patchset::diff::{self, Hook};
use llama_patchset::model::{Base, PatchManifest, Source};
use llama_patchset::patchset::{Images, Patch, Series};
use llama_patchset::project::Project;
use llama_patchset::sync::{Decisions, History, HookVerdict, PatchVerdict, Port, port};
use llama_patchset::vendor::{self, Pristine};
use llama_patchset::{Ctx, tree::RelPath};

/// The source distributions that carry the trees, oldest first.
const VERSIONS: [&str; 6] = ["0.3.31", "0.3.32", "0.3.33", "0.3.34", "0.3.35", "0.3.36"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .unwrap()
        .into()
}

/// Not with `eprintln`: the harness swallows that where a test passes.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

fn wanted(test: &str) -> bool {
    let wanted = std::env::var_os(BASES_VAR).is_some();
    if !wanted {
        say(&format!(
            "{test}: left out, since {BASES_VAR} is not set; `cargo xtask test` sets it"
        ));
    }
    wanted
}

fn ctx() -> Ctx {
    Ctx {
        project: Project::new(&root(), &Project::default_cache().unwrap()).unwrap(),
        sink: Box::new(Quiet),
        offline: true,
        no_provision: true,
        jobs: 2,
        cancel: Cancel::default(),
    }
}

/// The base whose tree came with that version.
fn base(ctx: &Ctx, version: &str) -> Pristine {
    let is_it = |base: &Base| {
        base.source
            .iter()
            .any(|source| matches!(source, Source::Pypi(pypi) if pypi.version == version))
    };
    let all = ctx.project.upstreams().unwrap().base;
    let base = all.into_iter().find(is_it).unwrap();
    vendor::ensure(ctx, &base).unwrap()
}

/// `more` goes into the manifest.
fn patch(id: &str, more: &str, hooks: Vec<u8>) -> Patch {
    let text = format!("schema = 1\nid = {id:?}\ntitle = \"t\"\npurpose = \"p\"\n{more}");
    let manifest: PatchManifest = toml::from_str(&text).unwrap();
    Patch {
        manifest,
        hooks: diff::parse(&hooks).unwrap(),
        overlay: Vec::new(),
        hooks_file: Some(format!("patches/{id}/hooks.patch")),
        hooks_text: hooks,
    }
}

/// The series as somebody ported it to that base by hand.
fn by_hand(ctx: &Ctx, version: &str, base: &Pristine) -> Series {
    let read = |id: &str| {
        // Named after llama.cpp's own version where it has one.
        let folder = version.replace("0.3.36", "0.5.0");
        let file = root().join(format!("xtask/tests/data/ports/{folder}/{id}.patch"));
        fs::read(file).unwrap()
    };
    let patches = ["ext-core", "spec-counters"]
        .map(|id| patch(id, "", read(id)))
        .to_vec();
    Series::of(&ctx.project, &base.base, patches).unwrap()
}

fn carry(ctx: &Ctx, old: &Pristine, series: &Series, new: &Pristine) -> Port {
    port(
        ctx,
        old,
        series,
        new,
        &Decisions::default(),
        &History::none(),
    )
    .unwrap()
}

/// Patch and text of a hook; hooks of one text are told apart by their order in a file.
type Key = (String, RelPath, Vec<u8>);

fn hooks(series: &Series) -> BTreeMap<Key, Vec<usize>> {
    let mut all: BTreeMap<Key, Vec<usize>> = BTreeMap::new();
    for patch in &series.patches {
        for Hook {
            path, line, text, ..
        } in patch.hooks.iter().flat_map(diff::hooks)
        {
            let key = (patch.id().to_owned(), path, text);
            all.entry(key).or_default().push(line);
        }
    }
    all
}

/// Whether two places of a file are one: nothing but blank lines between them.
fn only_blanks_between(base: &Pristine, path: &RelPath, a: usize, b: usize) -> bool {
    let content = fs::read(path.below(&base.root)).unwrap();
    diff::lines_of(&content)[a.min(b) - 1..a.max(b) - 1]
        .iter()
        .all(|line| line.trim_ascii().is_empty())
}

/// Every consecutive pair of bases, both ways: no hook may land where the hand port does not have
/// it, and at least four of five must land by themselves.
#[test]
fn the_series_goes_over_every_pair_of_bases_as_by_hand() {
    if !wanted("the_series_goes_over_every_pair_of_bases_as_by_hand") {
        return;
    }
    let ctx = ctx();
    let bases: Vec<(&str, Pristine)> = VERSIONS
        .iter()
        .map(|version| (*version, base(&ctx, version)))
        .collect();
    let mut pairs: Vec<(usize, usize)> = (1..bases.len()).map(|at| (at - 1, at)).collect();
    pairs.extend((1..bases.len()).map(|at| (at, at - 1)));
    let (mut placed, mut possible, mut wrong) = (0, 0, Vec::new());
    for (from, to) in pairs {
        let ((old_version, old), (new_version, new)) = (&bases[from], &bases[to]);
        let series = by_hand(&ctx, old_version, old);
        let expected = hooks(&by_hand(&ctx, new_version, new));
        let begun = Instant::now();
        let port = carry(&ctx, old, &series, new);
        let seconds = begun.elapsed().as_secs_f64();
        let (mut here, mut could) = (0, 0);
        let mut seen: BTreeMap<Key, usize> = BTreeMap::new();
        for report in &port.reports {
            for hook in &report.hooks {
                let key = (
                    report.patch.clone(),
                    hook.before.file.clone(),
                    hook.text.clone(),
                );
                let nth = seen.entry(key.clone()).or_default();
                let lines = expected.get(&key).cloned().unwrap_or_default();
                // Where the port by hand has as many, the order tells which is which.
                let same_count = lines.len() == hooks(&series)[&key].len();
                let same = |a: usize, b: usize| only_blanks_between(new, &key.1, a, b);
                let right = |line: usize| match same_count {
                    true => same(lines[*nth], line),
                    false => lines.iter().any(|other| same(*other, line)),
                };
                could += usize::from(!lines.is_empty());
                if let Some(after) = &hook.after {
                    // The patches of this data share no file, so the line is the base's own. By hand
                    // the lines were left as they are, so that indentation is no difference.
                    if after.file == hook.before.file && right(after.line) {
                        here += 1;
                    } else {
                        wrong.push(format!(
                            "{old_version} to {new_version}: {} went to {after}, by hand it is at \
                             {lines:?}",
                            hook.before
                        ));
                    }
                } else if !lines.is_empty() {
                    say(&format!(
                        "{old_version} to {new_version}: by hand only: {}: {}",
                        hook.before, hook.note
                    ));
                }
                *seen.entry(key).or_default() += 1;
            }
        }
        say(&format!(
            "{old_version} to {new_version}: {here} of {could} by itself, {seconds:.2} s"
        ));
        placed += here;
        possible += could;
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(
        placed * 100 >= possible * 80,
        "{placed} of {possible} moves were automatic"
    );
    say(&format!(
        "{placed} of {possible} hook moves were automatic, none was wrong"
    ));
}

/// A random number generator that gives the same on every machine.
struct Rng(u64);

impl Rng {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// A hook: its patch, its file, the line of the base (from 0) before which it stands, its text.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Probe {
    patch: usize,
    path: RelPath,
    line: usize,
    text: String,
}

/// `count` hooks, ten to a patch, at random lines of random sources that both bases have and that
/// differ.
fn probes(old: &Pristine, new: &Pristine, count: usize) -> Vec<Probe> {
    let mut rng = Rng(0x9e37_79b9_7f4a_7c15);
    let folders = ["src/", "common/", "tools/server/", "ggml/src/"];
    let files: Vec<&RelPath> = old
        .manifest
        .iter()
        .map(|(path, _)| path)
        .filter(|path| {
            let text = path.as_str();
            folders.iter().any(|folder| text.starts_with(folder))
                && (text.ends_with(".cpp") || text.ends_with(".h"))
                && new.manifest.get(path) != old.manifest.get(path)
                && new.manifest.get(path).is_some()
        })
        .collect();
    (0..count)
        .map(|number| {
            let path = files[rng.below(files.len())];
            let content = fs::read(path.below(&old.root)).unwrap();
            let patch = number / 10;
            Probe {
                patch,
                path: path.clone(),
                line: rng.below(diff::lines_of(&content).len() - 1) + 1,
                text: format!("    probe_{number}(); // opencoti-hook: p{patch:02}\n"),
            }
        })
        .collect()
}

/// The series that inserts these.
fn series_of(ctx: &Ctx, base: &Pristine, probes: &[Probe]) -> Series {
    let mut contents: BTreeMap<RelPath, Vec<u8>> = BTreeMap::new();
    let mut inserted: BTreeMap<RelPath, Vec<usize>> = BTreeMap::new();
    let mut patches = Vec::new();
    let last = probes.iter().map(|probe| probe.patch).max().unwrap_or(0);
    for number in 0..=last {
        let mut before: BTreeMap<RelPath, Vec<u8>> = BTreeMap::new();
        for probe in probes.iter().filter(|probe| probe.patch == number) {
            let now = contents
                .entry(probe.path.clone())
                .or_insert_with(|| fs::read(probe.path.below(&base.root)).unwrap());
            before
                .entry(probe.path.clone())
                .or_insert_with(|| now.clone());
            let there = inserted.entry(probe.path.clone()).or_default();
            let at = probe.line + there.iter().filter(|line| **line <= probe.line).count();
            there.push(probe.line);
            let lines = diff::lines_of(now);
            *now = [
                lines[..at].concat(),
                probe.text.clone().into_bytes(),
                lines[at..].concat(),
            ]
            .concat();
        }
        let text: Vec<u8> = before
            .iter()
            .filter_map(|(path, before)| diff::between(path, before, &contents[path]))
            .flat_map(|diff| diff::to_text(&diff))
            .collect();
        patches.push(patch(&format!("p{number:02}"), "", text));
    }
    Series::of(&ctx.project, &base.base, patches).unwrap()
}

/// Where the hooks of a series stand in its base.
fn lines_in(ctx: &Ctx, base: &Pristine, patches: &[Patch]) -> BTreeMap<String, (RelPath, usize)> {
    let series = Series::of(&ctx.project, &base.base, patches.to_vec()).unwrap();
    let images = Images::compute(base, &series).unwrap();
    let mut found = BTreeMap::new();
    for path in images.paths() {
        let content = String::from_utf8(images.at(path, images.patches()).unwrap().content.clone());
        let mut line = 0;
        for text in content.unwrap().lines() {
            match text.trim().strip_prefix("probe_") {
                Some(_) => {
                    found.insert(text.trim().to_owned(), (path.clone(), line));
                }
                None => line += 1,
            }
        }
    }
    found
}

/// Three hundred hooks over two releases: in time, in proportion to their number, and what comes
/// over comes back to where it was.
#[test]
fn three_hundred_hooks_go_over_two_releases_and_back() {
    if !wanted("three_hundred_hooks_go_over_two_releases_and_back") {
        return;
    }
    let ctx = ctx();
    let (old, new) = (base(&ctx, "0.3.34"), base(&ctx, "0.3.36"));
    let mut probes = probes(&old, &new, 300);
    let series = series_of(&ctx, &old, &probes);
    let begun = Instant::now();
    let port = carry(&ctx, &old, &series, &new);
    let seconds = begun.elapsed().as_secs_f64();
    let mut counts: BTreeMap<HookVerdict, usize> = BTreeMap::new();
    let hooks: Vec<_> = port
        .reports
        .iter()
        .flat_map(|report| &report.hooks)
        .collect();
    for hook in &hooks {
        *counts.entry(hook.verdict).or_default() += 1;
    }
    say(&format!("300 hooks: {counts:?}, {seconds:.1} s"));
    assert!(seconds < 20.0, "{seconds}");

    // Those that have a place, as a series of their own, go over as a whole …
    let mut port = port;
    while !port.complete {
        let lost: Vec<String> = port
            .reports
            .iter()
            .flat_map(|report| &report.hooks)
            .filter(|hook| hook.after.is_none())
            .map(|hook| String::from_utf8(hook.text.clone()).unwrap())
            .collect();
        assert!(!lost.is_empty());
        probes.retain(|probe| !lost.contains(&probe.text));
        port = carry(&ctx, &old, &series_of(&ctx, &old, &probes), &new);
    }
    assert!(probes.len() >= 240, "{}", probes.len());
    // … and back.
    let there = Series::of(&ctx.project, &new.base, port.patches).unwrap();
    let back = carry(&ctx, &new, &there, &old);
    let before = lines_in(&ctx, &old, &series_of(&ctx, &old, &probes).patches);
    let after = lines_in(&ctx, &old, &back.patches);
    let astray: Vec<_> = after
        .iter()
        .filter(|(text, place)| before[*text] != **place)
        .collect();
    assert!(astray.is_empty(), "{astray:?}");
    say(&format!("{} of {} came back", after.len(), before.len()));
    assert!(after.len() * 100 >= before.len() * 80);
}

/// The feature that upstream got between two bases is told by a probe, not by lines: none of the
/// patch's own is there.
#[test]
fn a_feature_that_upstream_got_is_reported() {
    if !wanted("a_feature_that_upstream_got_is_reported") {
        return;
    }
    let ctx = ctx();
    let (old, new) = (base(&ctx, "0.3.31"), base(&ctx, "0.3.32"));
    let path = RelPath::new("src/llama-cparams.h").unwrap();
    let before = fs::read(path.below(&old.root)).unwrap();
    let text = String::from_utf8(before.clone()).unwrap();
    let after = text.replacen(
        "struct llama_cparams {\n",
        "struct llama_cparams {\n    int32_t own_head = 0; // opencoti-hook: chain-heads\n",
        1,
    );
    let hooks = diff::to_text(&diff::between(&path, &before, after.as_bytes()).unwrap());
    let probes = "[upstreamed]\nsymbols = [\"llama_set_nextn_layer_offset\"]\n";
    let standin = patch("chain-heads", probes, hooks);
    let series = Series::of(&ctx.project, &old.base, vec![standin]).unwrap();
    let port = carry(&ctx, &old, &series, &new);
    match &port.reports[0].verdict {
        PatchVerdict::Upstreamed { wholly, evidence } => {
            assert!(wholly);
            assert_eq!(
                evidence[0],
                "the symbol `llama_set_nextn_layer_offset` is there"
            );
        }
        other => panic!("{other:?}"),
    }
    let mut decisions = Decisions::default();
    decisions.retire.insert("chain-heads".to_owned());
    let none = History::none();
    let port = llama_patchset::sync::port(&ctx, &old, &series, &new, &decisions, &none).unwrap();
    assert!(port.complete && port.patches.is_empty());
}

/// The project's own patch for what the next base has of its own; the patches beside it go on.
#[test]
fn the_chain_of_heads_is_reported_where_upstream_has_its_own() {
    if !wanted("the_chain_of_heads_is_reported_where_upstream_has_its_own") {
        return;
    }
    let ctx = ctx();
    let (old, new) = (base(&ctx, "0.3.31"), base(&ctx, "0.3.32"));
    let series = Series::load(&ctx.project, &old.base).unwrap();
    let port = carry(&ctx, &old, &series, &new);
    let upstreamed = |verdict: &PatchVerdict| match verdict {
        PatchVerdict::Upstreamed { wholly, .. } => *wholly,
        _ => false,
    };
    let found: Vec<&str> = (port.reports.iter())
        .filter(|report| upstreamed(&report.verdict))
        .map(|report| report.patch.as_str())
        .collect();
    assert_eq!(found, ["nextn-chain-heads"]);
}

/// The same for a feature of one architecture, whose hooks have no place there any more: nobody has to mend them.
#[test]
fn the_nextn_block_of_qwen4exp_is_reported_where_upstream_has_its_own() {
    if !wanted("the_nextn_block_of_qwen4exp_is_reported_where_upstream_has_its_own") {
        return;
    }
    let ctx = ctx();
    let old = base(&ctx, "0.3.36");
    let new = ctx.project.base(Some("llama-0.8.0-partial")).unwrap();
    let new = vendor::ensure(&ctx, &new).unwrap();
    let series = Series::load(&ctx.project, &old.base).unwrap();
    let port = carry(&ctx, &old, &series, &new);
    let mut reports = port.reports.iter();
    let report = reports.find(|report| report.patch == "qwen4exp-nextn");
    match &report.unwrap().verdict {
        PatchVerdict::Upstreamed { wholly, evidence } => {
            assert!(wholly);
            let symbol = "the symbol `llama_model_qwen4exp::graph_mtp` is there";
            assert_eq!(evidence[0], symbol);
        }
        other => panic!("{other:?}"),
    }
}

/// What a base without the server can take, it takes; the rest is absent and no conflict.
#[test]
fn a_partial_base_takes_what_it_has_files_for() {
    if !wanted("a_partial_base_takes_what_it_has_files_for") {
        return;
    }
    let ctx = ctx();
    let old = base(&ctx, "0.3.36");
    let series = by_hand(&ctx, "0.3.36", &old);
    for id in ["llama-0.6.0-partial", "llama-0.8.0-partial"] {
        let new = vendor::ensure(&ctx, &ctx.project.base(Some(id)).unwrap()).unwrap();
        let port = carry(&ctx, &old, &series, &new);
        for report in port.reports.iter().flat_map(|report| &report.hooks) {
            let has = new.manifest.get(&report.before.file).is_some();
            let absent = report.verdict == HookVerdict::Absent;
            assert_eq!(absent, !has, "{id}: {}", report.before);
        }
    }
}

/// What was carried over by itself compiles: each touched source of `ext-core` and of the library,
/// on every base, without building it. (The server's sources need an overlay of their base: what
/// they lack is told by the declarations, see the README of the data.)
#[test]
fn what_was_carried_over_compiles() {
    if !wanted("what_was_carried_over_compiles") {
        return;
    }
    let ctx = ctx();
    let newest = base(&ctx, "0.3.36");
    let series = by_hand(&ctx, "0.3.36", &newest);
    let dir = tempfile::tempdir().unwrap();
    let mut jobs = Vec::new();
    for version in ["0.3.33", "0.3.35"] {
        let new = base(&ctx, version);
        let tree = dir.path().join(version);
        let port = carry(&ctx, &newest, &series, &new);
        let placed = port
            .reports
            .iter()
            .flat_map(|report| &report.hooks)
            .filter(|hook| hook.before.file.as_str().starts_with("src/"))
            .inspect(|hook| assert!(hook.after.is_some(), "{version}: {}", hook.before))
            .count();
        assert_eq!(placed, 4, "{version}");
        for (path, _) in new.manifest.iter() {
            let text = path.as_str();
            let header = text.ends_with(".h") || text.ends_with(".hpp");
            if header || text.starts_with("src/llama-") {
                copy(&path.below(&new.root), &path.below(&tree));
            }
        }
        for overlay in ["ext-core", "spec-counters"] {
            let from = root().join("patches").join(overlay).join("src");
            for entry in walkdir::WalkDir::new(&from) {
                let entry = entry.unwrap();
                if entry.file_type().is_file() {
                    let below = entry.path().strip_prefix(&from).unwrap();
                    copy(entry.path(), &tree.join(below));
                }
            }
        }
        let mut touched: BTreeMap<RelPath, Vec<(usize, Vec<u8>)>> = BTreeMap::new();
        for hook in port.reports.iter().flat_map(|report| &report.hooks) {
            if let Some(after) = hook.after.as_ref()
                && after.file.as_str().starts_with("src/")
            {
                let text = hook.new_text.clone().unwrap_or(hook.text.clone());
                let list = touched.entry(after.file.clone()).or_default();
                list.push((after.line - 1, text));
            }
        }
        for (path, hooks) in touched {
            let content = fs::read(path.below(&new.root)).unwrap();
            let lines = diff::lines_of(&content);
            let mut text = Vec::new();
            for (at, line) in lines.iter().enumerate() {
                for (_, hook) in hooks.iter().filter(|(line, _)| *line == at) {
                    text.extend_from_slice(hook);
                }
                text.extend_from_slice(line);
            }
            fs::write(path.below(&tree), text).unwrap();
        }
        jobs.push((version, tree));
    }
    let children: Vec<_> = jobs
        .iter()
        .map(|(version, tree)| {
            let child = Command::new("c++")
                .args(["-std=c++17", "-fsyntax-only", "-w"])
                .args([
                    "-I.",
                    "-Isrc",
                    "-Iinclude",
                    "-Icommon",
                    "-Iggml/include",
                    "-Iggml/src",
                ])
                .arg("src/llama-context.cpp")
                .current_dir(tree)
                .stderr(Stdio::piped())
                .spawn()
                .unwrap();
            (version, child)
        })
        .collect();
    for (version, child) in children {
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{version}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to.parent().unwrap()).unwrap();
    fs::copy(from, to).unwrap();
}
