//! Records of a host into the store: only those that were asked for, of what was brought.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::Kind;
use crate::error::{Error, Result};
use crate::gate::cases::{cases, worst};
use crate::gate::definition::Plan;
use crate::gate::device;
use crate::gate::missing::draft_note;
use crate::gate::store::{Store, Writer};
use crate::hosts::Task;
use crate::hosts::kit::{Brought, Kit};
use crate::hosts::matrix::Cell;
use crate::hosts::ssh::visible;
use crate::model::{
    Digest, GateRecord, ModelSource, SideDefinition, SideStamp, SkippedGate, Verdict,
};

/// Stores what lies below `back`, the copy of a host's folder, as the run of `writer`. Gives one cell
/// for each gate of the task.
pub fn records(task: &Task, kit: &Kit, writer: &Writer, back: &Path) -> Result<Vec<Cell>> {
    let store = Store::below(&back.join("target/gate"));
    let run = match store.runs()?.pop() {
        Some(id) => Some(store.read(&id)?),
        None => None,
    };
    let stored = run.as_ref().map_or(&[][..], |run| &run.records);
    let there: Vec<SkippedGate> = (run.iter())
        .flat_map(|run| &run.plan)
        .flat_map(|plan| plan.skipped.clone())
        .filter(|skipped| {
            let is_it = |plan: &&Plan| plan.common().definition.id == skipped.gate;
            task.plans.iter().any(|plan| is_it(&plan))
                && !stored
                    .iter()
                    .any(|stored| stored.record.gate == skipped.gate)
        })
        .collect();
    writer.skip(&there)?;
    let mut cells = Vec::new();
    for plan in &task.plans {
        let gate = &plan.common().definition.id;
        let mut cell = Cell::missing(gate);
        let found = stored.iter().find(|stored| stored.record.gate == *gate);
        let unread = run.iter().flat_map(|run| &run.skipped);
        let unread = unread
            .filter(|file| file.file.ends_with(format!("{gate}.json")))
            .map(|file| file.reason.clone())
            .next();
        if let Some(found) = found {
            let mut record = found.record.clone();
            match foreign(plan, kit.brought(), &record) {
                Some(why) => cell.reason = Some(format!("its record was left out: {why}")),
                None => {
                    cell.file = Some(writer.add(&mut record)?);
                    let (verdict, reason) = judged(&record);
                    cell.verdict = Some(verdict);
                    cell.reason = reason;
                }
            }
        } else if let Some(skipped) = there.iter().find(|skipped| skipped.gate == *gate) {
            cell = Cell::skipped(skipped);
        } else if let Some(reason) = unread {
            cell.reason = Some(format!("its record cannot be read: {reason}"));
        }
        cell.reason = cell.reason.map(|reason| visible(&reason));
        cells.push(cell);
    }
    Ok(cells)
}

/// What a record says, or the worse of what its parts say, and why: it comes from a machine that is not this one.
fn judged(record: &GateRecord) -> (Verdict, Option<String>) {
    let cases = cases(record);
    let verdict = worst(record.verdict, &cases);
    let mut parts = cases.iter().filter(|case| case.verdict == verdict);
    if verdict != record.verdict {
        let name = parts
            .next()
            .map_or("a part of it", |case| case.name.as_str());
        let headline = record.verdict;
        let reason = format!("its record says {headline}, and of {name} it says {verdict}");
        return (verdict, Some(reason));
    }
    let first = parts.find_map(|case| Some(format!("{}: {}", case.name, case.reason.as_ref()?)));
    (verdict, record.reason.clone().or(first))
}

/// Why a record is not of what was asked for, or not of what was brought.
fn foreign(plan: &Plan, brought: &Brought, record: &GateRecord) -> Option<String> {
    let common = plan.common();
    if record.definition != common.digest {
        return Some("it is of another definition".to_owned());
    }
    if record.quick != common.quick {
        return Some("it is of another subset".to_owned());
    }
    let definition = &common.definition;
    let sides: [(&str, &SideDefinition, &SideStamp); 2] = [
        ("baseline", &definition.baseline, &record.baseline),
        ("candidate", &definition.candidate, &record.candidate),
    ];
    for (name, side, stamp) in sides {
        // What a host names itself was not brought.
        let Some(flavour) = side.build else {
            continue;
        };
        let backend = device::backend(definition, side).name();
        // All of them: a list of some files of it says nothing of the server.
        let ran: BTreeSet<Digest> = stamp.artifacts.iter().map(|file| file.sha256).collect();
        if !brought.consists_of(flavour, backend, &ran) {
            return Some(format!(
                "its {name} {} is not the {flavour} build for {backend} that was brought",
                stamp.server
            ));
        }
        let mut probes = record.probes.iter().filter(|probe| probe.side == name);
        if probes.any(|probe| !brought.is_probe(flavour, backend, &probe.program)) {
            return Some(format!(
                "the probe of {name} is not the one that was brought"
            ));
        }
    }
    if let ModelSource::Fixture(name) = &definition.model
        && brought.fixture(name) != Some(record.model.sha256)
    {
        return Some(format!("its model is not the {name} that was brought"));
    }
    let draft = definition.draft_model.as_ref()?;
    let digest = brought.fixture(&draft.fixture);
    let note = digest.map(|digest| draft_note(&draft.fixture, &digest));
    let is_noted = note.is_some_and(|note| record.notes.contains(&note));
    (!is_noted).then(|| {
        format!(
            "its draft model is not the {} that was brought",
            draft.fixture
        )
    })
}

/// Server logs of a host, to the other logs.
pub fn logs(host: &str, back: &Path, to: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut moved = Vec::new();
    let entries = match fs_err::read_dir(back.join("target/gate/logs")) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(moved),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let is_empty = fs_err::read_dir(entry.path()).is_ok_and(|mut dir| dir.next().is_none());
        if entry.file_type()?.is_dir() && !is_empty {
            fs_err::create_dir_all(to)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let target = to.join(format!("{host}-{name}"));
            fs_err::rename(entry.path(), &target)?;
            moved.push(target);
        }
    }
    Ok(moved)
}

/// The error that the program printed there as `--json`; `None` where it was none, or is not known.
pub fn error(back: &Path) -> Option<Error> {
    let text = std::fs::read_to_string(back.join("outcome.json")).ok()?;
    let value: Value = serde_json::from_str(&text).ok()?;
    let error = value.get("error")?;
    let text = |value: &Value| visible(value.as_str().unwrap_or_default());
    let kind = match error["kind"].as_str() {
        Some("finding") => Kind::Finding,
        Some("inconclusive") => Kind::Inconclusive,
        Some("interrupted") => Kind::Environment,
        Some("usage" | "config") => Kind::Config,
        Some("internal") => Kind::Internal,
        _ => Kind::Environment,
    };
    let mut said = Error::new(kind, text(&error["message"]));
    for hint in error["hints"].as_array().into_iter().flatten() {
        said = said.hint(text(hint));
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gate::store::Intent;
    use crate::hosts::kit::Part;
    use crate::model::{Artifact, CellRecord, Flavour, HostStamp};
    use crate::toy::{Toy, put};

    #[test]
    fn the_error_of_the_other_end_keeps_its_kind_and_hints() {
        let dir = tempfile::tempdir().unwrap();
        assert!(error(dir.path()).is_none());
        let put = |text: &str| fs_err::write(dir.path().join("outcome.json"), text).unwrap();
        put("{\"status\":\"good\",\"data\":{}}");
        assert!(error(dir.path()).is_none());
        put("{\"status\":\"err");
        assert!(error(dir.path()).is_none());
        put("{\"error\":{\"kind\":\"finding\",\"message\":\"m\",\"hints\":[\"h\"]}}");
        let said = error(dir.path()).unwrap();
        assert_eq!((said.kind(), said.message()), (Kind::Finding, "m"));
        assert_eq!(said.hints(), ["h"]);
    }

    #[test]
    fn a_record_counts_only_if_it_is_of_what_was_brought_and_asked_for() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let project = crate::project::Project::new(root, root).unwrap();
        let plans = crate::gate::definition::load(&project, &["chash".to_owned()], false);
        let plan = plans.unwrap().remove(0);
        let model = Digest::of(b"gguf");
        let ModelSource::Fixture(fixture) = &plan.common().definition.model else {
            panic!("chash runs on a fixture");
        };
        let mut brought = Brought::default();
        for flavour in [Flavour::Vanilla, Flavour::Patched] {
            let digest = |what: &str| Digest::of(format!("{flavour}{what}").as_bytes());
            brought.add(flavour, "cpu", digest(""));
            brought.add(flavour, "vulkan", digest("-vulkan"));
            brought.add_probe(flavour, "cpu", digest("-probe"));
        }
        brought.add_fixture(fixture, model);
        brought.add_fixture("another", Digest::of(b"another"));
        let of = |plan: &Plan, change: &dyn Fn(&mut GateRecord)| {
            let mut record = crate::gate::testing::record(&|_, _, _| {});
            record.definition = plan.common().digest;
            change(&mut record);
            foreign(plan, &brought, &record).unwrap_or_default()
        };
        let why = |change: &dyn Fn(&mut GateRecord)| of(&plan, change);
        assert_eq!(why(&|_| {}), "");
        assert!(why(&|record| record.definition = Digest::of(b"")).contains("definition"));
        assert!(why(&|record| record.quick = true).contains("subset"));
        // Nothing of it, the other flavour's, or that for another backend.
        for file in ["", "vanilla", "patched-vulkan"] {
            let other = |record: &mut GateRecord| {
                record.candidate.artifacts[0].sha256 = Digest::of(file.as_bytes())
            };
            let said = why(&other);
            assert!(
                said.contains("candidate") && said.contains("patched build for cpu"),
                "{file}: {said}"
            );
        }
        assert!(why(&|record| record.baseline.artifacts.clear()).contains("vanilla"));
        // A part of it, in which the server may be missing, and more than it.
        let more = |record: &mut GateRecord| {
            let mut more = record.baseline.artifacts[0].clone();
            more.sha256 = Digest::of(b"vanilla-library");
            record.baseline.artifacts.push(more);
        };
        assert!(why(&more).contains("is not the vanilla build"));
        let mut with = brought.clone();
        with.add(Flavour::Vanilla, "cpu", Digest::of(b"vanilla-library"));
        let of_more = |change: &dyn Fn(&mut GateRecord)| {
            let mut record = crate::gate::testing::record(&|_, _, _| {});
            record.definition = plan.common().digest;
            change(&mut record);
            foreign(&plan, &with, &record).unwrap_or_default()
        };
        assert_eq!(of_more(&more), "");
        assert!(of_more(&|_| {}).contains("is not the vanilla build"));
        let other = |record: &mut GateRecord| record.model.sha256 = Digest::of(b"another");
        assert!(why(&other).contains("its model is not the"));
        let probe = |program: &'static [u8]| {
            move |record: &mut GateRecord| {
                record.probes = vec![crate::model::ProbeStamp {
                    side: "candidate".to_owned(),
                    source: Digest::of(b""),
                    compiler: String::new(),
                    program: Digest::of(program),
                    libraries: Vec::new(),
                }];
            }
        };
        assert_eq!(why(&probe(b"patched-probe")), "");
        for program in [&b"another"[..], b"vanilla-probe"] {
            assert!(why(&probe(program)).contains("probe of candidate"));
        }
        let mut drafts = plan.clone();
        drafts.common_mut().definition.draft_model = Some(crate::model::DraftModel {
            fixture: "another".to_owned(),
        });
        assert!(of(&drafts, &|_| {}).contains("its draft model is not the another"));
        let noted = |record: &mut GateRecord| {
            let note = draft_note("another", &Digest::of(b"another"));
            record.notes.push(note);
        };
        assert_eq!(of(&drafts, &noted), "");
    }

    #[test]
    fn a_headline_that_its_parts_do_not_bear_out_is_not_believed() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let project = crate::project::Project::new(root, root).unwrap();
        let plans = crate::gate::definition::load(&project, &["chash".to_owned()], false);
        let plan = plans.unwrap().remove(0);
        let ModelSource::Fixture(fixture) = plan.common().definition.model.clone() else {
            panic!("chash runs on a fixture");
        };
        let toy = Toy::with_two_patches();
        let mut kit = Kit::new(&toy.ctx, &toy.pristine.base, &toy.load()).unwrap();
        put(&toy.root().join("m"), "gguf");
        kit.add_fixture(&fixture, &toy.root().join("m")).unwrap();
        for flavour in [Flavour::Vanilla, Flavour::Patched] {
            kit.add_build(&toy.ctx, &build(&toy, flavour)).unwrap();
        }
        let task = Task {
            host: toml::from_str("name = \"a\"\naddress = \"a\"\n").unwrap(),
            plans: vec![plan.clone()],
            skipped: Vec::new(),
            named: true,
            quick: false,
            part: Part::default(),
            backends: Default::default(),
        };
        let intent = || Intent {
            command: String::new(),
            quick: false,
            named: true,
            gates: vec!["chash".to_owned()],
            skipped: Vec::new(),
            host: HostStamp {
                name: None,
                system: String::new(),
                processors: 1,
                model: None,
            },
        };
        let said = |change: &dyn Fn(&mut CellRecord)| {
            let mut record = crate::gate::testing::record(&|_, _, _| {});
            record.definition = plan.common().digest;
            assert_eq!(record.verdict, Verdict::Pass);
            change(&mut record.cells[0]);
            let back = tempfile::tempdir().unwrap();
            let there = Store::below(&back.path().join("target/gate"));
            there.begin(intent()).unwrap().add(&mut record).unwrap();
            let here = tempfile::tempdir().unwrap();
            let writer = Store::below(here.path()).begin(intent()).unwrap();
            let cells = records(&task, &kit, &writer, back.path()).unwrap();
            let reason = cells[0].reason.clone().unwrap_or_default();
            (cells[0].verdict, reason)
        };
        assert_eq!(said(&|_| {}), (Some(Verdict::Pass), String::new()));
        for verdict in [Verdict::Fail, Verdict::Inconclusive] {
            let (found, reason) = said(&|cell| cell.verdict = verdict);
            assert_eq!(found, Some(verdict), "{reason}");
            let words = "its record says pass, and of ";
            assert!(reason.starts_with(words) && reason.ends_with(&verdict.to_string()));
        }
    }

    /// One whose server is what made-up records say that it is.
    fn build(toy: &Toy, flavour: Flavour) -> crate::build::Build {
        let dir = toy.ctx.project.build_dir("toy", flavour, "cpu");
        let path = "out/bin/llama-server".to_owned();
        put(&dir.join(&path), &flavour.to_string());
        crate::build::Build {
            manifest: crate::model::BuildManifest {
                schema: 1,
                base: "toy".to_owned(),
                tree: Digest::of(b""),
                flavour,
                backend: "cpu".to_owned(),
                variant: Default::default(),
                patchset: None,
                source: Digest::of(b""),
                flags: [("GGML_NATIVE".to_owned(), "OFF".to_owned())].into(),
                compilers: Default::default(),
                cmake: String::new(),
                ninja: String::new(),
                launcher: None,
                backend_tools: Default::default(),
                surroundings: Default::default(),
                artifacts: vec![Artifact {
                    size: 0,
                    sha256: Digest::of_file(&dir.join(&path)).unwrap(),
                    content: None,
                    path,
                }],
            },
            dir,
        }
    }

    #[test]
    fn logs_get_the_name_of_their_host() {
        let dir = tempfile::tempdir().unwrap();
        let back = dir.path().join("back");
        assert!(logs("a", &back, dir.path()).unwrap().is_empty());
        for name in ["target/gate/logs/t-chash/x.log", "target/gate/logs/empty"] {
            let path = back.join(name);
            match name.ends_with(".log") {
                true => {
                    fs_err::create_dir_all(path.parent().unwrap()).unwrap();
                    fs_err::write(path, "x").unwrap();
                }
                false => fs_err::create_dir_all(path).unwrap(),
            }
        }
        let to = dir.path().join("logs");
        assert_eq!(logs("a", &back, &to).unwrap(), [to.join("a-t-chash")]);
    }
}
