//! Planted goldens, and what must be said of each.

use super::*;
use crate::gate::testing::{record, tangle};
use crate::model::Compiler;
use crate::toy::Toy;

fn place() -> Place {
    Place {
        base: "base".to_owned(),
        backend: "cpu".to_owned(),
        machine: "x86_64 avx2".to_owned(),
        files: files(&good().baseline.artifacts),
    }
}

fn good() -> GateRecord {
    record(&|_, _, _| {})
}

fn book(toy: &Toy) -> Book {
    Book::load(&toy.ctx.project).unwrap()
}

#[test]
fn what_was_blessed_is_read_again_and_passes() {
    let toy = Toy::new();
    let mut first = book(&toy);
    let changes = first.bless(&[good()], &place());
    assert_eq!(changes.len(), good().cells.len());
    assert!(
        changes
            .iter()
            .all(|change| change.old.is_none() && change.new.is_some())
    );
    first.write().unwrap();
    let text = fs_err::read_to_string(toy.root().join("gates/goldens.toml")).unwrap();
    assert!(text.starts_with("# What gates are expected to give"));
    let mut again = book(&toy);
    let golden = again.judge(&good(), &place()).unwrap();
    assert_eq!(
        (golden.verdict, golden.compared),
        (Verdict::Pass, changes.len())
    );
    assert_eq!(again.bless(&[good()], &place()), [], "nothing changes");
    again.write().unwrap();
    let after = fs_err::read_to_string(toy.root().join("gates/goldens.toml")).unwrap();
    assert_eq!(after, text, "not a byte");
}

#[test]
fn blessing_nothing_is_an_error() {
    check_place(&[good()], Some(&place())).unwrap();
    let mut patched = good();
    patched.baseline.flavour = Some(Flavour::Patched);
    let mut empty = good();
    empty.cells.clear();
    for (records, place) in [
        (vec![patched], Some(place())),
        (vec![empty], Some(place())),
        // No gate had a build for the CPU.
        (vec![good()], None),
    ] {
        let error = check_place(&records, place.as_ref()).unwrap_err();
        assert_eq!(error.kind(), Kind::Usage, "{error}");
    }
}

#[test]
fn a_golden_is_of_the_vanilla_build_alone() {
    let toy = Toy::new();
    let mut book = book(&toy);
    let mut patched = good();
    patched.baseline.flavour = Some(Flavour::Patched);
    let mut by_path = good();
    by_path.baseline.base = None;
    // As a build for another backend has it.
    let mut other = good();
    other.baseline.artifacts[0].sha256 = Digest::of(b"other");
    let others = [patched, by_path, other];
    assert_eq!(book.bless(&others, &place()), []);
    book.bless(&[good()], &place());
    for record in others {
        let golden = book.judge(&record, &place()).unwrap();
        assert_eq!(golden.verdict, Verdict::Skipped);
        assert!(golden.reasons[0].contains("vanilla build"), "{golden:?}");
    }
}

#[test]
fn a_baseline_that_is_not_what_was_recorded_fails_and_both_are_named() {
    let toy = Toy::new();
    let mut book = book(&toy);
    book.bless(&[good()], &place());
    // Baseline, control and candidate changed alike: no comparison of theirs sees it.
    let mut changed = record(&|session, wave, answers| {
        if session.n_max == 3 && session.slots == 1 && wave == 1 {
            answers[0].tokens[2] = 77;
        }
    });
    assert_eq!(changed.verdict, Verdict::Pass);
    let golden = book.judge(&changed, &place()).unwrap();
    assert_eq!(golden.reasons.len(), 1);
    let (old, new) = (
        entries(&good())["b, n_max 3"],
        entries(&changed)["b, n_max 3"],
    );
    let expected = format!(
        "b, n_max 3: golden {}, baseline {}",
        old.short(),
        new.short()
    );
    assert_eq!(golden.reasons[0], expected);
    let mut shaky = changed.clone();
    shaky.verdict = Verdict::Inconclusive;
    apply(&mut shaky, Some(golden.clone()));
    assert_eq!(shaky.verdict, Verdict::Inconclusive);
    apply(&mut changed, Some(golden));
    assert_eq!(changed.verdict, Verdict::Fail);
    // Reports take every verdict of a record, and the reason beside it.
    let json = serde_json::to_value(&changed).unwrap();
    assert_eq!(json["golden"]["verdict"], "fail");
    assert!(
        json["golden"]["reason"]
            .as_str()
            .unwrap()
            .contains(&expected)
    );
    let text = crate::gate::table::text(&changed, crate::gate::table::Signs::Ascii);
    assert!(
        text.contains(&expected) && text.contains("golden: the baseline itself"),
        "{text}"
    );
    let changes = book.bless(&[changed], &place());
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].old, changes[0].new), (Some(old), Some(new)));
    assert!(
        changes[0]
            .to_string()
            .contains(&format!("{} -> {}", old.short(), new.short()))
    );
}

#[test]
fn a_neighbour_that_changed_is_seen_too() {
    let toy = Toy::new();
    let mut book = book(&toy);
    book.bless(&[good()], &place());
    let changed = record(&|session, wave, answers| {
        if session.slots == 2 && wave == 0 && session.n_max == 0 {
            answers[1].tokens[7] = 1;
        }
    });
    let golden = book.judge(&changed, &place()).unwrap();
    assert_eq!(golden.verdict, Verdict::Fail);
    assert!(
        golden.reasons[0].starts_with("a + b, n_max 0"),
        "{golden:?}"
    );
}

#[test]
fn where_there_is_none_it_is_said_and_fails_nothing() {
    let toy = Toy::new();
    let mut book = book(&toy);
    book.bless(&[good()], &place());
    let elsewhere = |change: &dyn Fn(&mut Place)| {
        let mut place = place();
        change(&mut place);
        place
    };
    for place in [
        elsewhere(&|place| place.machine = "aarch64 sve".to_owned()),
        elsewhere(&|place| place.base = "other".to_owned()),
        elsewhere(&|place| place.backend = "cuda".to_owned()),
    ] {
        let golden = book.judge(&good(), &place).unwrap();
        assert_eq!((golden.verdict, golden.compared), (Verdict::Skipped, 0));
        let mut record = good();
        apply(&mut record, Some(golden.clone()));
        assert_eq!(record.verdict, Verdict::Pass);
        assert!(line(&golden).contains("not compared"), "{}", line(&golden));
        assert!(line(&golden).contains(&place.machine));
    }
    let mut other = good();
    other.definition = Digest::of(b"edited");
    let golden = book.judge(&other, &place()).unwrap();
    assert!(golden.reasons[0].contains("another definition"));
    other.model.sha256 = Digest::of(b"another model");
    assert_eq!(
        book.judge(&other, &place()).unwrap().verdict,
        Verdict::Skipped
    );
    other.cells.clear();
    assert_eq!(
        book.judge(&other, &place()),
        None,
        "nothing that could be recorded"
    );
}

#[test]
fn a_quick_run_is_held_against_its_part_alone() {
    let toy = Toy::new();
    let mut book = book(&toy);
    book.bless(&[good()], &place());
    let mut quick = good();
    quick.cells.retain(|cell| cell.slots == 1);
    let golden = book.judge(&quick, &place()).unwrap();
    assert_eq!(golden.verdict, Verdict::Fail, "a full run must be whole");
    quick.quick = true;
    let golden = book.judge(&quick, &place()).unwrap();
    assert_eq!(
        (golden.verdict, golden.compared),
        (Verdict::Pass, quick.cells.len())
    );
    quick.cells[0].baseline[0].sha256 = Digest::of(b"other");
    assert_eq!(book.judge(&quick, &place()).unwrap().verdict, Verdict::Fail);
    for cell in &mut quick.cells {
        cell.baseline[0].prompt = "unknown".to_owned();
    }
    assert_eq!(
        book.judge(&quick, &place()).unwrap().verdict,
        Verdict::Skipped
    );
}

#[test]
fn a_run_that_is_no_pass_is_not_blessed() {
    check_verdicts(&[good()]).unwrap();
    let failed = record(&tangle);
    let error = check_verdicts(&[good(), failed]).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    let mut unsure = good();
    unsure.verdict = Verdict::Inconclusive;
    assert_eq!(
        check_verdicts(&[good(), unsure]).unwrap_err().kind(),
        Kind::Inconclusive
    );
    let mut empty = good();
    empty.cells.clear();
    assert_eq!(check_verdicts(&[empty]).unwrap_err().kind(), Kind::Usage);
    let request = Request {
        quick: true,
        ..Request::default()
    };
    assert_eq!(check_request(&request).unwrap_err().kind(), Kind::Usage);
}

#[test]
fn a_checkout_with_anything_uncommitted_is_not_blessed() {
    let toy = Toy::new();
    let error = check_committed(&toy.ctx).unwrap_err();
    assert!(error.to_string().contains("no git repository"), "{error}");
    let repository = git2::Repository::init(toy.root()).unwrap();
    let commit = || {
        let mut index = repository.index().unwrap();
        index
            .add_all(["*"], git2::IndexAddOption::DEFAULT, None)
            .unwrap();
        index.write().unwrap();
        let tree = repository.find_tree(index.write_tree().unwrap()).unwrap();
        let who = git2::Signature::now("a", "a@example.org").unwrap();
        let parent = repository
            .head()
            .ok()
            .map(|head| head.peel_to_commit().unwrap());
        let parents: Vec<_> = parent.iter().collect();
        repository
            .commit(Some("HEAD"), &who, &who, "m", &tree, &parents)
            .unwrap();
    };
    assert!(
        check_committed(&toy.ctx)
            .unwrap_err()
            .to_string()
            .contains("differ")
    );
    commit();
    check_committed(&toy.ctx).unwrap();
    // Those of an earlier blessing may lie there.
    crate::toy::put(&toy.root().join("gates/goldens.toml"), "schema = 1\n");
    check_committed(&toy.ctx).unwrap();
    crate::toy::put(
        &toy.root().join("gates/chash.toml"),
        "id = \"chash\"\n# edited\n",
    );
    let error = check_committed(&toy.ctx).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("1 file differ, first gates/chash.toml"),
        "{error}"
    );
}

#[test]
fn the_machine_is_told_by_what_changes_roundings() {
    let compiler = |version: &str| Compiler {
        id: "GNU".to_owned(),
        version: version.to_owned(),
        path: "/usr/bin/cc".to_owned(),
    };
    let manifest = |version: &str, native: &str| BuildManifest {
        schema: 1,
        base: "base".to_owned(),
        tree: Digest::of(b""),
        flavour: Flavour::Vanilla,
        backend: "cpu".to_owned(),
        variant: Default::default(),
        patchset: None,
        source: Digest::of(b""),
        flags: [("GGML_NATIVE".to_owned(), native.to_owned())].into(),
        compilers: [("C".to_owned(), compiler(version))].into(),
        cmake: String::new(),
        ninja: String::new(),
        launcher: None,
        backend_tools: BTreeMap::new(),
        surroundings: Default::default(),
        artifacts: Vec::new(),
    };
    let info = "model name\t: X\nflags\t\t: fpu vme smep avx2 fma avx512f rdtscp avx512_vnni\n";
    let here = machine("x86_64", info, &manifest("12.2.0", "ON"));
    assert!(
        here.starts_with("x86_64 avx2,avx512_vnni,avx512f,fma; GNU 12.2.0; options "),
        "{here}"
    );
    let same = info.replace("rdtscp", "rdrand").replace(": X", ": Y");
    assert_eq!(machine("x86_64", &same, &manifest("12.2.0", "ON")), here);
    for other in [
        machine(
            "x86_64",
            &info.replace("avx512_vnni", ""),
            &manifest("12.2.0", "ON"),
        ),
        machine("x86_64", info, &manifest("13.1.0", "ON")),
        machine("x86_64", info, &manifest("12.2.0", "OFF")),
        machine(
            "aarch64",
            "Features\t: fp asimd sve2 i8mm\n",
            &manifest("12.2.0", "ON"),
        ),
        machine("x86_64", "", &manifest("12.2.0", "ON")),
    ] {
        assert_ne!(other, here);
    }
}

#[test]
fn two_goldens_for_one_thing_are_refused() {
    let toy = Toy::new();
    let mut first = book(&toy);
    first.bless(&[good()], &place());
    first.write().unwrap();
    let file = toy.root().join("gates/goldens.toml");
    let text = fs_err::read_to_string(&file).unwrap();
    let (_, golden) = text.split_once("[[golden]]").unwrap();
    fs_err::write(&file, format!("{text}\n[[golden]]{golden}")).unwrap();
    let error = Book::load(&toy.ctx.project).unwrap_err();
    assert!(error.to_string().contains("two goldens"), "{error}");
}

#[test]
fn every_setting_has_goldens_of_its_own() {
    let mut record = good();
    let count = entries(&record).len();
    let mut more = record.cells.clone();
    for cell in &mut record.cells {
        cell.setting = Some("first".to_owned());
    }
    for cell in &mut more {
        cell.setting = Some("second".to_owned());
    }
    record.cells.extend(more);
    assert_eq!(entries(&record).len(), 2 * count);
}
