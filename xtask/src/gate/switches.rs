//! Whether a side knows the switches that it sets: one that does not compares off with off, and passes.

use std::collections::BTreeSet;

use crate::error::Result;
use crate::gate::effect::Effects;
use crate::gate::identity::{self, Side};
use crate::model::{PatchManifest, SWITCH_PREFIX};

/// The switches of a side that are on, whatever the case of their first letters.
fn on(side: &Side) -> impl Iterator<Item = &String> {
    let set = side.env.iter().filter(|(switch, value)| {
        switch.to_uppercase().starts_with(SWITCH_PREFIX) && !value.is_empty() && *value != "0"
    });
    set.map(|(switch, _)| switch)
}

/// Why a switch of a server by path switched nothing: none of the patches that its stamp names declares
/// it.
pub fn undeclared(patches: &[PatchManifest], name: &str, side: &Side) -> Option<String> {
    // What carries no stamp says nothing of its patches.
    if side.is_built() || side.stamp.source.is_none() {
        return None;
    }
    let carried = side.stamp.patchset.as_ref();
    let carries = |id: &String| carried.is_some_and(|set| set.patches.contains(id));
    let declares = |switch: &String| {
        let own = patches.iter().filter(|patch| carries(&patch.id));
        own.flat_map(|patch| &patch.switches)
            .any(|known| known == switch)
    };
    let mut set = on(side);
    set.find(|switch| !declares(switch)).map(|switch| {
        format!(
            "the {name} sets {switch}, which none of the patches that its stamp names declares, so that \
             nothing was switched"
        )
    })
}

/// Why a switch switched nothing: no file of the side holds its name, and so none can ask for it. Asked after the
/// run, when it is known what was loaded.
pub fn absent(name: &str, side: &Side) -> Result<Option<String>> {
    let mut missing: BTreeSet<&String> = on(side).collect();
    if side.running.is_some() || missing.is_empty() {
        return Ok(None);
    }
    for file in side.run_files() {
        let bytes = fs_err::read(&file)?;
        missing.retain(|switch| !holds(&bytes, switch));
        if missing.is_empty() {
            return Ok(None);
        }
    }
    let switch = missing.into_iter().next();
    Ok(switch.map(|switch| {
        format!(
            "the {name} sets {switch}, and neither its program nor a library that it has loaded holds that name: \
             nothing was switched"
        )
    }))
}

/// Variables that are read by what loads a program, whatever that holds.
const LOADERS: [&str; 3] = ["LD_PRELOAD", "LD_AUDIT", "LD_LIBRARY_PATH"];

/// Why two sides that run the same bytes are one and the same thing: nothing in them can ask for any of the variables
/// in which they differ. Asked after the run, when it is known what was loaded.
pub fn unread(baseline: &Side, candidate: &Side) -> Result<Option<String>> {
    let names = identity::switched(baseline, candidate);
    if names.is_empty() || names.iter().any(|name| LOADERS.contains(&name.as_str())) {
        return Ok(None);
    }
    for file in baseline.run_files().union(&candidate.run_files()) {
        let bytes = fs_err::read(file)?;
        let reads = |name: &&String| {
            // The server makes this form of a name itself.
            let plain = name.replacen("LLAMA_ARG_NO_", "LLAMA_ARG_", 1);
            holds(&bytes, name) || holds(&bytes, &plain)
        };
        if names.iter().any(reads) {
            return Ok(None);
        }
    }
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    Ok(Some(format!(
        "baseline and candidate run the same files and differ in {} alone, and neither the program nor a library that \
         it has loaded holds such a name: there is nothing that was switched",
        names.join(", ")
    )))
}

/// Why what was switched did nothing: both sides run the same bytes, differ in switches for drafts alone, and with none
/// of the longest drafts `n_max` anything was drafted. Where there is none of those, it is not a question.
pub fn idle(effects: &Effects, n_max: &[u32], baseline: &Side, candidate: &Side) -> Option<String> {
    if n_max.is_empty() || n_max.iter().any(|n_max| *n_max > 0) {
        return None;
    }
    let names = identity::switched(baseline, candidate);
    let is_idle = !names.is_empty() && names.iter().all(|name| effects.is_for_drafts(name));
    let names: Vec<&str> = names.into_iter().map(String::as_str).collect();
    is_idle.then(|| {
        format!(
            "baseline and candidate differ in {} alone, which acts on drafts, and n-max asks for none: nothing was \
             switched",
            names.join(", ")
        )
    })
}

/// Whether `bytes` hold this name, and not only as a part of a longer one.
fn holds(bytes: &[u8], name: &str) -> bool {
    let is_part = |byte: &u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || *byte == b'_';
    memchr::memmem::find_iter(bytes, name.as_bytes()).any(|at| {
        let before = at.checked_sub(1).and_then(|at| bytes.get(at));
        let after = bytes.get(at + name.len());
        !before.is_some_and(is_part) && !after.is_some_and(is_part)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::model::{Digest, Flavour, PatchSetStamp};

    fn by_path(dir: &Path, flavour: Option<Flavour>, patches: &[&str], set: &[&str]) -> Side {
        let program = dir.join("llama-server");
        std::fs::write(&program, "x").unwrap();
        let env = (set.iter()).map(|name| ((*name).to_owned(), "1".to_owned()));
        let mut side = Side::of_path(&program, env.collect()).unwrap();
        side.stamp.flavour = flavour;
        side.stamp.source = flavour.map(|_| Digest::of(b"source"));
        side.stamp.patchset = (!patches.is_empty()).then(|| PatchSetStamp {
            id: Digest::of(b"set"),
            patches: patches.iter().map(|id| (*id).to_owned()).collect(),
        });
        side
    }

    #[test]
    fn a_switch_of_a_server_by_path_is_held_against_its_stamp() {
        let dir = tempfile::tempdir().unwrap();
        let patch = |id: &str, switch: &str| -> PatchManifest {
            toml::from_str(&format!(
                "schema = 1\nid = \"{id}\"\ntitle = \"T\"\npurpose = \"P\"\nswitches = [\"{switch}\"]"
            ))
            .unwrap()
        };
        let patches = [patch("one", "OPENCOTI_ONE"), patch("two", "OPENCOTI_TWO")];
        let found = |flavour, carried: &[&str], set: &[&str]| {
            undeclared(
                &patches,
                "candidate",
                &by_path(dir.path(), flavour, carried, set),
            )
        };
        let patched = Some(Flavour::Patched);
        assert_eq!(found(patched, &["one"], &["OPENCOTI_ONE", "OTHER"]), None);
        for (flavour, carried, set) in [
            (patched, &["one"][..], "OPENCOTI_TWO"),
            (patched, &["one", "two"], "OPENCOTI_THREE"),
            (Some(Flavour::Vanilla), &[], "OPENCOTI_ONE"),
        ] {
            let what = found(flavour, carried, &[set]).unwrap();
            assert!(what.contains(set) && what.contains("candidate"), "{what}");
        }
        // Nothing is known of what carries no stamp.
        assert_eq!(found(None, &[], &["OPENCOTI_ONE"]), None);
    }

    #[test]
    fn a_switch_that_no_file_names_switches_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("llama-server");
        let said = |set: &[(&str, &str)]| {
            let env = set
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()));
            absent(
                "candidate",
                &Side::of_path(&program, env.collect()).unwrap(),
            )
            .unwrap()
        };
        std::fs::write(&program, b"\0OPENCOTI_ONE_MORE\0OPENCOTI_TWO\0").unwrap();
        let what = said(&[("OPENCOTI_TWO", "1"), ("OPENCOTI_ONE", "1")]).unwrap();
        assert!(what.contains("candidate sets OPENCOTI_ONE,"), "{what}");
        assert!(said(&[("opencoti_two", "1")]).is_some());
        for known in [
            ("OPENCOTI_TWO", "1"),
            ("OPENCOTI_ONE", "0"),
            ("OPENCOTI_ONE", ""),
            ("OTHER", "1"),
        ] {
            assert_eq!(said(&[known]), None, "{known:?}");
        }
        // A library beside it may be what asks.
        std::fs::write(dir.path().join("libllama.so"), b"OPENCOTI_ONE").unwrap();
        assert_eq!(said(&[("OPENCOTI_ONE", "1")]), None);
    }

    #[test]
    fn a_variable_that_nothing_reads_makes_no_comparison() {
        let dir = tempfile::tempdir().unwrap();
        let program = dir.path().join("llama-server");
        std::fs::write(&program, b"\0KNOWN\0LLAMA_ARG_HOST\0OPENCOTI_ONE\0").unwrap();
        let side = |set: &[(&str, &str)]| {
            let env = set
                .iter()
                .map(|(name, value)| ((*name).into(), (*value).into()));
            Side::of_path(&program, env.collect()).unwrap()
        };
        let said =
            |left: &[(&str, &str)], right: &[(&str, &str)]| unread(&side(left), &side(right));
        for (left, right) in [
            (&[][..], &[("FOO", "1")][..]),
            (&[], &[("ONE", "1")]),
            (&[("FOO", "1")], &[("FOO", "2")]),
            (&[("KNOWN", "1")], &[("KNOWN", "1"), ("FOO", "1")]),
            (&[], &[("FOO", "1"), ("OPENCOTI_ONE", "0")]),
        ] {
            let what = said(left, right).unwrap();
            let what = what.unwrap_or_else(|| panic!("{left:?} {right:?}"));
            assert!(what.contains("nothing that was switched"), "{what}");
        }
        for (left, right) in [
            (&[][..], &[][..]),
            (&[], &[("KNOWN", "1")]),
            (&[("KNOWN", "1")], &[]),
            (&[("KNOWN", "1")], &[("KNOWN", "2"), ("FOO", "1")]),
            (&[], &[("LLAMA_ARG_NO_HOST", "1")]),
            (&[], &[("LD_PRELOAD", "fault.so")]),
        ] {
            assert_eq!(said(left, right).unwrap(), None, "{left:?} {right:?}");
        }
        // What runs differs, so the variable is not what is compared.
        let other = dir.path().join("other");
        std::fs::write(&other, b"other").unwrap();
        let env = [("FOO".to_owned(), "1".to_owned())];
        let other = Side::of_path(&other, env.into()).unwrap();
        std::fs::write(&program, b"one").unwrap();
        assert_eq!(unread(&side(&[]), &other).unwrap(), None);
    }

    #[test]
    fn a_switch_for_drafts_does_nothing_where_nothing_is_drafted() {
        let patch: PatchManifest = toml::from_str(
            "schema = 1\nid = \"a\"\ntitle = \"T\"\npurpose = \"P\"\n\
             switches = [\"OPENCOTI_ONE\", \"OPENCOTI_TWO\", \"OPENCOTI_THREE\"]\n\
             [log.OPENCOTI_ONE]\nsays = \"one\"\n\
             [log.OPENCOTI_TWO]\nsays = \"two\"\nwhen = \"always\"\n",
        )
        .unwrap();
        let effects = Effects::of([&patch].into_iter());
        let dir = tempfile::tempdir().unwrap();
        let side = |set: &[&str]| by_path(dir.path(), None, &[], set);
        let said = |n_max: &[u32], right: &[&str]| idle(&effects, n_max, &side(&[]), &side(right));
        let what = said(&[0], &["OPENCOTI_ONE"]).unwrap();
        assert!(what.contains("OPENCOTI_ONE"), "{what}");
        for (n_max, right) in [
            (&[0, 3][..], &["OPENCOTI_ONE"][..]),
            (&[0], &["OPENCOTI_TWO"]),
            (&[0], &["OPENCOTI_THREE"]),
            (&[0], &["OPENCOTI_ONE", "OPENCOTI_TWO"]),
            (&[0], &[]),
            (&[], &["OPENCOTI_ONE"]),
        ] {
            assert_eq!(said(n_max, right), None, "{n_max:?} {right:?}");
        }
        // Another program is compared whatever its switches do.
        let other = dir.path().join("other");
        std::fs::create_dir(&other).unwrap();
        let other = by_path(&other, None, &[], &["OPENCOTI_ONE"]);
        std::fs::write(dir.path().join("llama-server"), "y").unwrap();
        let own = Side::of_path(&dir.path().join("llama-server"), Default::default()).unwrap();
        assert_eq!(idle(&effects, &[0], &own, &other), None);
    }
}
