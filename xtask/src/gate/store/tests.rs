//! Runs that are whole, broken off, damaged and forged.

use super::*;
use crate::gate::testing::record;

fn host() -> HostStamp {
    HostStamp {
        name: None,
        system: "linux x86_64".to_owned(),
        processors: 2,
        model: None,
    }
}

fn begin(store: &Store, gates: &[&str]) -> Writer {
    let gates = gates.iter().map(|gate| (*gate).to_owned()).collect();
    let intent = Intent {
        command: "cargo xtask gate".to_owned(),
        quick: false,
        named: false,
        gates,
        skipped: Vec::new(),
        host: host(),
    };
    store.begin(intent).unwrap()
}

fn named(gate: &str) -> GateRecord {
    let mut record = record(&|_, _, _| {});
    record.gate = gate.to_owned();
    record
}

#[test]
fn the_newest_run_is_the_last_also_after_a_clock_was_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    let later = "20990101T235959Z-0000";
    fs_err::create_dir_all(dir.path().join("records").join(later)).unwrap();
    let first = begin(&store, &["a"]).stamp().id.clone();
    assert!(first.starts_with("20990102T000000Z-"), "{first}");
    let second = begin(&store, &["a"]).stamp().id.clone();
    assert_eq!(store.find("latest").unwrap(), second);
    assert!(second > first);
}

#[test]
fn a_record_of_another_run_is_none_of_this() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    let good = begin(&store, &["a"]);
    let file = good.add(&mut named("a")).unwrap();
    let bad = begin(&store, &["a"]);
    let id = &bad.stamp().id;
    fs_err::copy(&file, dir.path().join("records").join(id).join("a.json")).unwrap();
    let read = store.read(id).unwrap();
    assert_eq!(read.missing, ["a"]);
    assert!(read.skipped[0].reason.contains("another run"));
    assert!(store.read(&good.stamp().id).unwrap().skipped.is_empty());
}

#[test]
fn what_was_written_is_read_in_the_order_of_the_plan() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    assert!(store.runs().unwrap().is_empty());
    let writer = begin(&store, &["z", "lost", "a"]);
    writer.add(&mut named("a")).unwrap();
    let file = writer.add(&mut named("z")).unwrap();
    let run = store.read(&store.find("latest").unwrap()).unwrap();
    let gates: Vec<&str> = run.records.iter().map(|s| s.record.gate.as_str()).collect();
    assert_eq!(gates, ["z", "a"]);
    assert_eq!(run.missing, ["lost"]);
    assert!(run.skipped.is_empty(), "{:?}", run.skipped);
    assert_eq!(read_record(&file).unwrap(), run.records[0]);
    assert_eq!(run.records[0].record.run.as_ref(), Some(writer.stamp()));
    writer.idle(&["cuda"]).unwrap();
    let run = store.read(&writer.stamp().id).unwrap();
    assert_eq!(run.missing, ["lost", "backend cuda"]);
}

#[test]
fn damaged_old_and_foreign_files_are_named_and_skipped() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    let writer = begin(&store, &["a", "cut", "new", "more", "odd"]);
    let file = writer.add(&mut named("a")).unwrap();
    let good = fs_err::read_to_string(&file).unwrap();
    let write = |name: &str, text: &[u8]| fs_err::write(writer.dir.join(name), text).unwrap();
    write("cut.json", &good.as_bytes()[..good.len() / 2]);
    write(
        "new.json",
        good.replace("\"schema\": 1", "\"schema\": 2").as_bytes(),
    );
    write(
        "more.json",
        good.replace("\"quick\"", "\"later\": 1, \"quick\"")
            .as_bytes(),
    );
    write("odd.json", b"[1, 2]");
    write("bytes.json", &[0xff, 0xfe]);
    write("renamed.json", good.as_bytes());
    write("null.json", good.replace("12.34", "null").as_bytes());
    write(".tmp-x.json", b"{");
    write("notes.txt", b"x");
    fs_err::create_dir(writer.dir.join("folder.json")).unwrap();
    let run = store.read(&writer.stamp().id).unwrap();
    assert_eq!(run.records.len(), 1);
    assert_eq!(run.missing, ["cut", "new", "more", "odd"]);
    let reason = |name: &str| {
        let mut all = run.skipped.iter();
        let found = all.find(|skipped| skipped.file.ends_with(name));
        found.map_or("", |skipped| skipped.reason.as_str())
    };
    assert!(reason("cut.json").contains("damaged: EOF"));
    assert!(reason("new.json").contains("schema 2 is not understood"));
    assert!(reason("more.json").contains("unknown field `later`"));
    assert!(reason("odd.json").contains("no schema"));
    assert!(!reason("bytes.json").is_empty());
    assert!(reason("renamed.json").contains("another gate: a"));
    assert!(reason("null.json").contains("invalid type: null"));
    assert_eq!(run.skipped.len(), 7);
    let error = read_record(&writer.dir.join("new.json")).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Config);
    fs_err::remove_file(writer.dir.join(RUN)).unwrap();
    let run = store.read(&writer.stamp().id).unwrap();
    assert!(run.plan.is_none() && run.skipped.len() == 8);
}

#[test]
fn writers_of_the_same_moment_do_not_meet() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    let record = named("a");
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..4 {
                    begin(&store, &["a"]).add(&mut record.clone()).unwrap();
                    // A reader in between sees whole files or none.
                    for run in store.runs().unwrap() {
                        let run = store.read(&run).unwrap();
                        let damaged = |s: &Skipped| !s.reason.contains("missing");
                        assert!(!run.skipped.iter().any(damaged), "{:?}", run.skipped);
                    }
                }
            });
        }
    });
    let runs = store.runs().unwrap();
    assert_eq!(runs.len(), 32);
    for run in runs {
        assert_eq!(store.read(&run).unwrap().records.len(), 1);
    }
}

#[test]
fn a_run_is_found_by_what_only_it_begins_with() {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::below(dir.path());
    assert!(store.find("latest").is_err());
    for id in ["20260101T000000Z-aaaa", "20260102T000000Z-bbbb"] {
        fs_err::create_dir_all(dir.path().join("records").join(id)).unwrap();
    }
    assert_eq!(store.find("20260101").unwrap(), "20260101T000000Z-aaaa");
    assert_eq!(store.find("latest").unwrap(), "20260102T000000Z-bbbb");
    assert!(
        store
            .find("2026")
            .unwrap_err()
            .to_string()
            .contains("2 runs")
    );
    assert!(store.find("").is_err() && store.find("../records").is_err());
}
