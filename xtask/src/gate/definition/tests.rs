use super::*;

const GOOD: &str = r#"
schema = 1
id = "same"
kind = "chash"
title = "Same tokens"
model = { fixture = "tiny" }
n-max = [0, 2]
slots = [1, 2]
n-predict = 8
context = 64
[quick]
n-max = [2]
slots = [1]
prompts = ["b"]
[[prompt]]
name = "a"
ids = [1, 2]
[[prompt]]
name = "b"
generate = { seed = 1, length = 5, low = 4, high = 512 }
"#;

fn load_text(text: &str, quick: bool) -> Result<ChashPlan> {
    let dir = tempfile::tempdir().unwrap();
    fs_err::create_dir_all(dir.path().join("registry")).unwrap();
    fs_err::create_dir_all(dir.path().join("gates/prompts")).unwrap();
    fs_err::write(dir.path().join("registry/upstreams.toml"), "").unwrap();
    fs_err::write(dir.path().join("gates/fixtures.toml"), "other = 1").unwrap();
    fs_err::write(dir.path().join("gates/same.toml"), text).unwrap();
    fs_err::write(dir.path().join("gates/prompts/p.ids"), "1 2 # three\n4\n").unwrap();
    let project = Project::new(dir.path(), dir.path()).unwrap();
    let mut plans = load(&project, &[], quick)?;
    assert_eq!(plans.len(), 1);
    Ok(plans.remove(0).common().clone())
}

#[test]
fn a_definition_becomes_a_plan() {
    let plan = load_text(GOOD, false).unwrap();
    assert_eq!(plan.prompts.len(), 2);
    assert_eq!(plan.prompts[0].ids, [1, 2]);
    assert_eq!(plan.prompts[1].ids, [501, 143, 42, 179, 5]);
    assert_eq!(
        (plan.n_max.as_slice(), plan.quick),
        ([0, 2].as_slice(), false)
    );
    let quick = load_text(GOOD, true).unwrap();
    assert_eq!(quick.n_max, [2]);
    assert_eq!(quick.slots, [1]);
    assert_eq!(quick.prompts.len(), 1);
    assert!(quick.quick);
    assert_eq!(quick.digest, plan.digest);
}

#[test]
fn a_prompt_file_is_read_and_is_part_of_the_digest() {
    let text = GOOD.replace("ids = [1, 2]", "file = \"prompts/p.ids\"");
    let plan = load_text(&text, false).unwrap();
    assert_eq!(plan.prompts[0].ids, [1, 2, 4]);
    assert_ne!(plan.digest, Digest::of_parts([text.as_bytes()]));
}

#[test]
fn every_fault_is_refused_by_name() {
    let cases = [
        ("n-max = [0, 2]", "n-max = [0, 0]", "twice"),
        ("n-max = [0, 2]", "n-max = []", "n-max: empty"),
        ("n-max = [0, 2]", "n_max = [0, 2]", "same.toml:7:1"),
        ("slots = [1, 2]\nn", "slots = [0]\nn", "at least one slot"),
        ("n-predict = 8", "n-predict = 0", "n-predict is 0"),
        ("context = 64", "context = 14", "needs 16 cells"),
        ("context = 64", "flags = [\"--port=1\"]", "`--port`"),
        ("context = 64", "parallel = 0", "parallel is 0"),
        ("context = 64", "limits = { request = 0 }", "time limit"),
        (
            "context = 64",
            "candidate = { build = \"patched\", env = { \"A=B\" = \"\" } }",
            "A=B",
        ),
        (
            "context = 64",
            "candidate = { build = \"other\" }",
            "same.toml:10:",
        ),
        (
            "n-max = [0, 2]",
            "n-max = [2]\ndrafted-equals-plain = true",
            "needs 0",
        ),
        ("name = \"b\"", "name = \"a\"", "prompt names: \"a\""),
        ("ids = [1, 2]", "ids = []", "no ids"),
        ("ids = [1, 2]", "", "exactly one of"),
        ("ids = [1, 2]", "ids = [1]\nfile = \"x\"", "exactly one of"),
        ("ids = [1, 2]", "ids = [-1]", "same.toml:17:8"),
        ("ids = [1, 2]", "file = \"../x\"", "unsafe path"),
        ("low = 4", "low = 512", "must be below"),
        ("length = 5", "length = 99999999", "above"),
        ("schema = 1", "schema = 2", "schema 2"),
        ("id = \"same\"", "id = \"other\"", "same.toml"),
        ("kind = \"chash\"", "kind = \"logit\"", "same.toml:4:8"),
        ("model = { fixture", "model = { picture", "same.toml:6:"),
    ];
    for (from, to, expected) in cases {
        let text = GOOD.replacen(from, to, 1);
        assert_ne!(text, GOOD, "{from}");
        let error = load_text(&text, false).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config, "{to}: {error}");
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
    for (from, to, expected) in [
        ("n-max = [2]", "n-max = [3]", "quick.n-max names 3"),
        ("prompts = [\"b\"]", "prompts = [\"c\"]", "names `c`"),
        (
            "prompts = [\"b\"]",
            "prompts = []",
            "quick.prompts is empty",
        ),
    ] {
        let error = load_text(&GOOD.replacen(from, to, 1), true).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
}

const DRAFTS: &str = r#"
schema = 1
id = "same"
kind = "drafts"
title = "Same drafts"
model = { fixture = "tiny" }
n-predict = 8
context = 64
candidate = { build = "patched", env = { A = "1" } }
[quick]
settings = ["b"]
prompts = ["p"]
[[setting]]
name = "a"
n-max = [2, 9]
slots = [1]
[[setting]]
name = "b"
n-max = [3]
slots = [2]
flags = ["-fa", "off"]
fewer-launches = true
[[prompt]]
name = "p"
ids = [1, 2]
"#;

fn load_drafts(text: &str, quick: bool) -> Result<(ChashPlan, Vec<DraftsSetting>)> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("same.toml");
    fs_err::write(&path, text).unwrap();
    match load_one(dir.path(), "same", &path, quick)? {
        Plan::Drafts(plan, settings) => Ok((*plan, settings)),
        _ => panic!("another kind"),
    }
}

#[test]
fn a_drafts_definition_becomes_a_plan() {
    let (plan, settings) = load_drafts(DRAFTS, false).unwrap();
    assert_eq!((plan.n_max, plan.slots), (vec![2, 3, 9], vec![1, 2]));
    assert_eq!(
        plan.definition.baseline.build,
        crate::model::Flavour::Patched
    );
    assert_eq!(settings.len(), 2);
    let (plan, settings) = load_drafts(DRAFTS, true).unwrap();
    assert!(plan.quick);
    assert_eq!(settings.len(), 1);
    assert!(settings[0].fewer_launches && settings[0].name == "b");
}

#[test]
fn every_fault_of_a_drafts_definition_is_refused_by_name() {
    for (from, to, expected) in [
        ("n-max = [3]", "n-max = [0]", "setting `b` has 0"),
        ("n-max = [3]", "n-max = [3, 3]", "twice"),
        ("slots = [2]", "slots = []", "slots of setting `b`: empty"),
        ("name = \"b\"", "name = \"a\"", "setting names: \"a\""),
        ("name = \"b\"", "name = \"b/c\"", "setting name `b/c`"),
        ("\"-fa\"", "\"-np\"", "`-np`"),
        ("fewer-launches", "fewer_launches", "same.toml:22:1"),
        ("context = 64", "context = 64\nslots = [1]", "same.toml:9:1"),
        ("context = 64", "context = 19", "needs 20 cells"),
        (
            "settings = [\"b\"]",
            "settings = [\"c\"]",
            "quick.settings names c",
        ),
        ("candidate =", "baseline =", "candidate"),
    ] {
        let text = DRAFTS.replacen(from, to, 1);
        assert_ne!(text, DRAFTS, "{from}");
        let error = load_drafts(&text, true).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config, "{to}: {error}");
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
}
