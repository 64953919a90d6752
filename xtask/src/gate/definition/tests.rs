use super::*;
use crate::model::GateBackend;

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
        ("context = 64", "limits = { stop = 604801 }", "above a week"),
        (
            "context = 64",
            "budget = 9223372036854775807",
            "above a week",
        ),
        ("context = 64", "flags = [\"-hf\", \"a/b\"]", "holds `-hf`"),
        (
            "context = 64",
            "flags = [\"-hfd\", \"a/b\"]",
            "holds `-hfd`",
        ),
        (
            "context = 64",
            "flags = [\"--ctx_size\", \"9\"]",
            "holds `--ctx-size`",
        ),
        (
            "context = 64",
            "flags = [\"--fim-qwen-3b-default\"]",
            "holds `--fim-qwen-3b-default`",
        ),
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
        ("kind = \"chash\"", "kind = \"nothing\"", "same.toml:4:8"),
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
        Some(crate::model::Flavour::Patched)
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

/// `GOOD` with lines added before its tables.
fn with(more: &str) -> String {
    GOOD.replacen("context = 64", &format!("context = 64\n{more}"), 1)
}

#[test]
fn sides_say_one_thing_and_what_goes_with_it() {
    for good in [
        "baseline = { server = \"old/llama-server\", env = { A = \"1\" } }",
        "candidate = { server-env = \"NEW_SERVER\" }",
        "backend = \"vulkan\"\nbudget = 60",
    ] {
        load_text(&with(good), false).unwrap();
    }
    for (more, expected) in [
        ("baseline = {}", "baseline: it needs exactly one of"),
        (
            "baseline = { build = \"vanilla\", server = \"x\" }",
            "has build, server",
        ),
        (
            "candidate = { build = \"patched\", remote = true }",
            "candidate: `api-key-env`, `remote`",
        ),
        (
            "candidate = { url = \"http://127.0.0.1:1\", env = { A = \"1\" } }",
            "`env` cannot reach",
        ),
        (
            "candidate = { url = \"http://10.0.0.1:1\" }",
            "another machine",
        ),
        ("candidate = { url = \"127.0.0.1\" }", "no scheme"),
        (
            "candidate = { url = \"http://127.0.0.1:1\" }",
            "has one setting",
        ),
        ("candidate = { server-env = \"A=B\" }", "A=B"),
        ("backend = \"metal\"", "same.toml:11:"),
        ("budget = 0", "budget is 0"),
    ] {
        let error = load_text(&with(more), false).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config, "{more}: {error}");
        assert!(error.to_string().contains(expected), "{more}: {error}");
    }
    // A running server has one setting, and no gate can start it anew.
    let one = with("candidate = { url = \"http://127.0.0.1:1\", n-max = 2 }")
        .replacen("n-max = [0, 2]", "n-max = [2]", 1)
        .replacen("slots = [1, 2]", "slots = [1]", 1);
    load_text(&one, false).unwrap();
    let drafts = DRAFTS.replacen(
        "candidate = { build = \"patched\", env = { A = \"1\" } }",
        "candidate = { url = \"http://127.0.0.1:1\" }",
        1,
    );
    let error = load_drafts(&drafts, false).unwrap_err();
    assert!(error.to_string().contains("of this kind"), "{error}");
}

const SETTINGS: &str = "\n[[setting]]\nname = \"fa\"\nflags = [\"-fa\", \"on\"]\n\
                        [[setting]]\nname = \"kv\"\nflags = [\"-ctk\", \"q8_0\"]\nn-max = [2]\n";

#[test]
fn a_device_is_wanted_where_it_can_be_had() {
    let load = |more: &str| load_text(&with(more), false);
    let lavapipe = "device = { driver = \"lvp\", name = \"llvmpipe\" }\n";
    let plan = load(&format!("backend = \"vulkan\"\n{lavapipe}")).unwrap();
    assert_eq!(plan.definition.device.driver.as_deref(), Some("lvp"));
    let one = "candidate = { build = \"patched\", backend = \"vulkan\" }\n";
    let plan = load(&format!("{lavapipe}{one}")).unwrap();
    let backends = crate::gate::device::backends(&plan.definition);
    assert_eq!(backends, [GateBackend::Cpu, GateBackend::Vulkan]);
    for (more, part) in [
        (lavapipe.to_owned(), "both sides compute on processors"),
        (
            format!("backend = \"cuda\"\n{lavapipe}"),
            "no side has backend `vulkan`",
        ),
        (
            "backend = \"vulkan\"\ndevice = { driver = \"/x/lvp\" }\n".to_owned(),
            "no paths",
        ),
        (
            "backend = \"vulkan\"\ndevice = { name = \"\" }\n".to_owned(),
            "not empty",
        ),
        (
            "backend = \"vulkan\"\nflags = [\"--device\", \"none\"]\n".to_owned(),
            "which the gate sets itself",
        ),
        ("backend = \"gpu\"\n".to_owned(), "vulkan"),
    ] {
        let error = load(&more).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config);
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
}

#[test]
fn settings_are_swept_and_cut_down() {
    assert_eq!(
        load_text(GOOD, false).unwrap().settings,
        [Setting::default()]
    );
    let text = format!("{GOOD}{SETTINGS}");
    let plan = load_text(&text, true).unwrap();
    assert_eq!(plan.settings.len(), 2);
    assert_eq!(plan.settings[1].name.as_deref(), Some("kv"));
    assert_eq!(plan.settings[1].n_max, Some(vec![2]));
    let quick = text.replacen("[quick]", "[quick]\nsettings = [\"kv\"]", 1);
    assert_eq!(load_text(&quick, true).unwrap().settings.len(), 1);
    assert_eq!(load_text(&quick, false).unwrap().settings.len(), 2);
    for (from, to, expected) in [
        ("name = \"kv\"", "name = \"fa\"", "setting names"),
        ("name = \"kv\"", "name = \"k v\"", "setting name `k v`"),
        ("\"-ctk\"", "\"--port\"", "`--port`"),
        (
            "settings = [\"kv\"]",
            "settings = [\"x\"]",
            "quick.settings names x",
        ),
        (
            "flags = [\"-ctk\"",
            "flag = [\"-ctk\"",
            "unknown field `flag`",
        ),
        (
            "flags = [\"-ctk\"",
            "slots = [9]\nflags = [\"-ctk\"",
            "slots of setting `kv` names 9",
        ),
    ] {
        let text = quick.replacen(from, to, 1);
        assert_ne!(text, quick, "{from}");
        let error = load_text(&text, true).unwrap_err();
        assert!(error.to_string().contains(expected), "{to}: {error}");
    }
    let none = GOOD.replacen("[quick]", "[quick]\nsettings = [\"kv\"]", 1);
    let error = load_text(&none, true).unwrap_err();
    assert!(error.to_string().contains("has none"), "{error}");
}

#[test]
fn a_misspelt_key_is_answered_with_the_right_one() {
    for (more, right) in [
        ("bugdet = 60", "budget"),
        ("backnd = \"cpu\"", "backend"),
        ("backend = \"vulcan\"", "vulkan"),
        ("baseline = { sever = \"x\" }", "server"),
        ("baseline = { api-key = \"x\" }", "api-key-env"),
        ("[[setting]]\nname = \"a\"\nflag = []", "flags"),
        ("[[prompt]]\nname = \"a\"\nmesages = []", "messages"),
        (
            "[[prompt]]\nname = \"a\"\nmessages = [{ role = \"users\", content = \"x\" }]",
            "user",
        ),
    ] {
        // A table ends what stood before it; the rest of the keys are there by then.
        let text = match more.starts_with('[') {
            true => format!("{GOOD}{more}\n"),
            false => with(more),
        };
        let error = load_text(&text, false).unwrap_err();
        let line = text
            .lines()
            .position(|line| more.ends_with(line) && !line.is_empty());
        let place = format!("same.toml:{}:", line.unwrap() + 1);
        assert!(error.to_string().contains(&place), "{place} {error}");
        let hint = format!("did you mean `{right}`?");
        assert!(
            error.hints().contains(&hint),
            "{more}: {error} {:?}",
            error.hints()
        );
    }
}

#[test]
fn a_gate_does_not_take_the_name_of_a_runs_own_file() {
    let dir = tempfile::tempdir().unwrap();
    for folder in ["registry", "gates"] {
        fs_err::create_dir(dir.path().join(folder)).unwrap();
    }
    fs_err::write(dir.path().join("registry/upstreams.toml"), "").unwrap();
    let text = GOOD.replace("\"same\"", "\"run\"");
    fs_err::write(dir.path().join("gates/run.toml"), text).unwrap();
    let project = Project::new(dir.path(), dir.path()).unwrap();
    let error = load(&project, &[], false).unwrap_err();
    assert!(error.to_string().contains("cannot be the id"), "{error}");
}

#[test]
fn a_setting_of_which_nothing_is_left_is_refused() {
    let setting = "[[setting]]\nname = \"s\"\nn-max = [0]\n";
    let text = GOOD.replace("[quick]", &format!("{setting}[quick]"));
    load_text(&text, false).unwrap();
    let error = load_text(&text, true).unwrap_err();
    assert!(error.to_string().contains("nothing is left"), "{error}");
    let equal = "context = 64\ndrafted-equals-plain = true";
    let text = text.replace("context = 64", equal);
    load_text(&text, false).unwrap();
    let error = load_text(&text.replace("n-max = [0]\n", "n-max = [2]\n"), false).unwrap_err();
    assert!(
        error.to_string().contains("0 in n-max of setting"),
        "{error}"
    );
}

#[test]
fn a_retrieval_gate_has_sides_and_limits_like_any_other() {
    let load = |more: &str| {
        load_text(
            &format!(
                "schema = 1\nid = \"same\"\nkind = \"retrieval\"\ntitle = \"T\"\n\
                 model = {{ path = \"m\" }}\nwords = [20]\ndepths = [0.5]\nn-predict = 8\n{more}\n"
            ),
            false,
        )
    };
    load("").unwrap();
    for (more, word) in [
        ("baseline = { url = \"http://127.0.0.1:1\" }", "kind"),
        (
            "candidate = { build = \"patched\", server = \"x\" }",
            "exactly one",
        ),
        ("limits = { request = 0 }", "time limit"),
        ("budget = 0", "budget is 0"),
    ] {
        let error = load(more).unwrap_err();
        assert!(error.to_string().contains(word), "{word}: {error}");
    }
}

#[test]
fn the_definitions_of_this_checkout_can_all_be_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let project = Project::new(&root, &root).unwrap();
    for quick in [false, true] {
        assert!(!load(&project, &[], quick).unwrap().is_empty());
    }
}

#[test]
fn a_flag_of_the_gate_is_refused_under_each_of_its_names() {
    for flag in [
        "-cram",
        "--swa-checkpoints",
        "-hf",
        "--fit",
        "--model-url=x",
        "-lv",
        "--log_verbosity=0",
        "-v",
        "--log-disable",
        // Acceptance that is thrown, and not found.
        "--spec-synth-len",
        "--spec_synth_rates=1,1",
        "--kv-unified-per-slot",
        "--draft-max",
        "--fim-qwen-7b-spec",
        "--fim-qwen-14b-spec",
        "--spec-default",
        "--rpc",
        // The drafter of both sides.
        "-devd",
        "--device-draft",
        "--spec-draft-device=none",
    ] {
        let text = GOOD.replace("[quick]", &format!("flags = [\"{flag}\"]\n[quick]"));
        let error = load_text(&text, false).unwrap_err();
        assert!(error.to_string().contains("sets itself"), "{flag}: {error}");
    }
}

#[test]
fn a_variable_that_is_as_good_as_a_flag_of_the_gate_is_refused() {
    let with = |backend: &str, name: &str| {
        let side =
            format!("{backend}candidate = {{ build = \"patched\", env = {{ {name} = \"1\" }} }}\n");
        load_text(&GOOD.replace("[quick]", &format!("{side}[quick]")), false)
    };
    let cuda = "backend = \"cuda\"\n";
    for name in [
        "LLAMA_ARG_CTX_SIZE",
        "LLAMA_LOG_VERBOSITY",
        "LLAMA_ARG_LOG_VERBOSITY",
        "LLAMA_ARG_NO_CONT_BATCHING",
        "LLAMA_ARG_SPEC_SYNTH_LEN",
        "LLAMA_ARG_SPEC_SYNTH_RATES",
        "LLAMA_ARG_KV_UNIFIED_PER_SLOT",
        "LLAMA_ARG_DRAFT_MAX",
        "LLAMA_ARG_RPC",
    ] {
        let error = with("", name).unwrap_err();
        assert!(
            error
                .to_string()
                .contains(&format!("candidate.env holds `{name}`")),
            "{error}"
        );
    }
    // What says where a gate for a device computes; on processors it says nothing.
    for name in [
        "LLAMA_ARG_OVERRIDE_TENSOR",
        "LLAMA_ARG_NO_KV_OFFLOAD",
        "LLAMA_ARG_SPEC_DRAFT_CPU_MOE",
        "LLAMA_ARG_SPEC_DRAFT_N_CPU_MOE",
        "LLAMA_ARG_N_CPU_FFN",
    ] {
        with("", name).unwrap();
        assert!(with(cuda, name).is_err(), "{name}");
    }
    // One side may be given what the gate does not set.
    for name in [
        "LLAMA_ARG_FLASH_ATTN",
        "LLAMA_ARG_SWA_FULL",
        "OPENCOTI_X",
        "GGML_X",
    ] {
        with(cuda, name).unwrap();
    }
}

#[test]
fn a_gate_for_a_device_leaves_nothing_to_processors() {
    let with = |backend: &str, more: &str| {
        let text = GOOD
            .replace("[quick]", &format!("{backend}[quick]"))
            .replace(
                "[[prompt]]\nname = \"a\"",
                &format!("{more}[[prompt]]\nname = \"a\""),
            );
        load_text(&text, false)
    };
    for flag in [
        "-ot",
        "--cpu-moe",
        "-ncmoe",
        "--no_kv_offload",
        "-otd",
        "--override-tensor-draft",
        "--spec-draft-override-tensor=.*=CPU",
        "-cmoed",
        "--cpu-moe-draft",
        "--spec-draft-cpu-moe",
        "-ncmoed",
        "--n-cpu-moe-draft",
        "--spec-draft-n-cpu-moe",
        "--spec_draft_ncmoe",
        "-ncffn",
        "--n-cpu-ffn",
        "--no-op-offload",
    ] {
        let whole = format!("flags = [\"{flag}\"]\n");
        let swept = format!("[[setting]]\nname = \"s\"\nflags = [\"{flag}\"]\n");
        with(&whole, "").unwrap();
        with("", &swept).unwrap();
        for (head, more) in [(whole.as_str(), ""), ("", swept.as_str())] {
            let error = with(&format!("backend = \"vulkan\"\n{head}"), more).unwrap_err();
            assert!(
                error.to_string().contains("the gate is for a device"),
                "{error}"
            );
        }
    }
}

#[test]
fn what_no_machine_can_hold_is_refused() {
    let retrieval = "schema = 1\nid = \"same\"\nkind = \"retrieval\"\ntitle = \"T\"\n\
                     model = { path = \"m\" }\nwords = [20]\ndepths = [0.5]\nn-predict = 8\ncontext = 1024\n";
    for (text, from, to, word) in [
        (
            GOOD,
            "slots = [1, 2]",
            "slots = [9223372036854775807]",
            "slots holds 9223372036854775807",
        ),
        (GOOD, "slots = [1, 2]", "slots = [1, 257]", "above 256"),
        (
            GOOD,
            "n-max = [0, 2]",
            "n-max = [0, 4000000000]",
            "n-max holds 4000000000",
        ),
        (
            GOOD,
            "n-predict = 8",
            "n-predict = 9223372036854775807",
            "n-predict holds",
        ),
        (
            GOOD,
            "context = 64",
            "context = 9223372036854775807",
            "context holds",
        ),
        (DRAFTS, "slots = [2]", "slots = [4000000000]", "slots holds"),
        (DRAFTS, "n-max = [3]", "n-max = [4000000000]", "n-max holds"),
        (
            retrieval,
            "n-predict = 8",
            "n-predict = 4000000000",
            "n-predict holds",
        ),
        (
            retrieval,
            "words = [20]\ndepths = [0.5]\nn-predict = 8\ncontext = 1024",
            "words = [4000000000]\ndepths = []\nn-predict = 8\ncontext = 4000000000",
            "context holds",
        ),
    ] {
        let text = text.replacen(from, to, 1);
        assert!(text.contains(to), "{from}");
        let error = load_text(&text, false).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config, "{to}: {error}");
        assert!(error.to_string().contains(word), "{to}: {error}");
    }
    for most in ["slots = [256]", "slots = [1]\nparallel = 7"] {
        load_text(&GOOD.replacen("slots = [1, 2]", most, 1), false).unwrap();
    }
}

/// They go into records, tables and pages.
#[test]
fn a_prompts_name_is_one_short_line() {
    let long = "x".repeat(65);
    for name in [
        "",
        "../../x",
        "a\\nb",
        "\\u001b[31mred",
        "a|b",
        long.as_str(),
    ] {
        let text = GOOD.replacen("name = \"a\"", &format!("name = \"{name}\""), 1);
        let error = load_text(&text, false).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Config, "{name}: {error}");
        let said = error.to_string();
        assert!(said.contains("prompt name"), "{name}: {said}");
        assert!(!said.contains('\u{1b}'), "{said:?}");
    }
    for name in ["two words", "a-b_c.d+1", &long[1..]] {
        let text = GOOD.replacen("name = \"a\"", &format!("name = \"{name}\""), 1);
        load_text(&text, false).unwrap();
    }
}
