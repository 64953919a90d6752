//! Planted logits, and the verdict that each must give.

use std::io::Write as _;

use super::*;
use crate::Kind;
use crate::ctx::{Cancel, Quiet};
use crate::gate::testing::prompts;

const VOCABULARY: usize = 8;

fn definition(text: &str) -> LogitsGate {
    let text = format!(
        "schema = 1\nid = \"l\"\nkind = \"logits\"\ntitle = \"t\"\nmodel = {{ fixture = \"f\" }}\n\
         single = 2\nprompt = []\n{text}\n[[setting]]\nname = \"one\"\n[[setting]]\nname = \"two\"\nubatch = 64\n"
    );
    toml::from_str(&text).unwrap()
}

/// Logits of a position, before a fault changes them.
fn row(prompt: usize, at: usize) -> Vec<f32> {
    let value = |token: usize| ((prompt * 31 + at * 7 + token * 3) % 11) as f32 - 4.5;
    (0..VOCABULARY).map(value).collect()
}

type Change<'a> = dyn Fn(Run, &str, usize, usize, &mut Vec<f32>) + Sync + 'a;

/// A probe whose logits depend on nothing but the place, before `change` changes them.
struct Fake<'a> {
    dir: tempfile::TempDir,
    rows: usize,
    change: &'a Change<'a>,
}

impl Probe for Fake<'_> {
    fn run(
        &self,
        run: Run,
        setting: &LogitsSetting,
        prompts: &[Prompt],
        _: &Halt,
    ) -> Result<PathBuf> {
        let path = self
            .dir
            .path()
            .join(format!("{}-{}", setting.name, run.name()));
        let mut file = fs_err::File::create(&path)?;
        file.write_all(compare::MAGIC)?;
        file.write_all(&(VOCABULARY as u32).to_le_bytes())?;
        file.write_all(&(prompts.len() as u32).to_le_bytes())?;
        for prompt in 0..prompts.len() {
            file.write_all(&(self.rows as u32).to_le_bytes())?;
            for at in 0..self.rows {
                let mut values = row(prompt, at);
                (self.change)(run, &setting.name, prompt, at, &mut values);
                for value in values {
                    file.write_all(&value.to_le_bytes())?;
                }
            }
        }
        Ok(path)
    }
}

const ROWS: usize = 6;

fn judged(text: &str, change: &Change<'_>) -> Result<Vec<LogitsRecord>> {
    let plan = LogitsPlan::new(&definition(text), false)?;
    let mut prompts = prompts();
    for prompt in &mut prompts {
        prompt.ids = vec![1; ROWS];
    }
    let comparison = Comparison {
        prompts: &prompts,
        plan: &plan,
        parallel: 2,
    };
    let fake = Fake {
        dir: tempfile::tempdir()?,
        rows: ROWS,
        change,
    };
    let records = comparison.run(&fake, &Halt::new(&Cancel::default()), &Quiet)?;
    assert_eq!(
        fs_err::read_dir(fake.dir.path())?.count(),
        0,
        "files are left"
    );
    Ok(records)
}

fn verdict(records: &[LogitsRecord]) -> Verdict {
    Verdict::all(records.iter().map(|record| record.verdict))
}

/// Changes one logit of the candidate: setting `two`, prompt 1, position 3, token 5.
fn one(change: impl Fn(&mut f32) + Sync) -> impl Fn(Run, &str, usize, usize, &mut Vec<f32>) + Sync {
    move |run, setting, prompt, at, values| {
        if (run, setting, prompt, at) == (Run::Candidate, "two", 1, 3) {
            change(&mut values[5]);
        }
    }
}

#[test]
fn equal_logits_pass_in_every_setting_and_prompt() {
    let records = judged("", &|_, _, _, _, _| {}).unwrap();
    assert_eq!(records.len(), 6);
    assert_eq!(verdict(&records), Verdict::Pass);
    assert!(
        records
            .iter()
            .all(|record| record.baseline == record.candidate && record.reason.is_none())
    );
    assert_eq!((records[0].rows, records[0].vocabulary), (ROWS, VOCABULARY));
}

#[test]
fn one_logit_off_by_its_last_bit_fails_and_is_named() {
    let records = judged("", &one(|value| *value = value.next_up())).unwrap();
    assert_eq!(verdict(&records), Verdict::Fail);
    let bad: Vec<&LogitsRecord> = records
        .iter()
        .filter(|r| r.verdict != Verdict::Pass)
        .collect();
    assert_eq!(bad.len(), 1);
    assert_eq!(
        (bad[0].setting.as_str(), bad[0].prompt.as_str()),
        ("two", "b")
    );
    let found = bad[0].difference.as_ref().unwrap();
    assert_eq!((found.rows, found.values, found.tokens), (1, 1, 0));
    assert_eq!(
        (found.first.row, found.first.token, found.max_abs_at),
        (3, 5, (3, 5))
    );
    let was = row(1, 3)[5];
    assert_eq!(found.first.left, format!("{:08x}", was.to_bits()));
    assert_eq!(
        found.first.right,
        format!("{:08x}", was.next_up().to_bits())
    );
    assert_eq!(
        found.max_abs,
        Some(f64::from(was.next_up()) - f64::from(was))
    );
    assert!(found.kl_max.unwrap() < 1e-9);
    assert_eq!(found.first.left_top.len(), 5);
    assert!(
        bad[0]
            .reason
            .as_ref()
            .unwrap()
            .contains("position 3, token 5")
    );
}

#[test]
fn another_token_is_named_with_the_top_of_both() {
    let records = judged("", &one(|value| *value = 20.0)).unwrap();
    let found = records[4].difference.as_ref().unwrap();
    let first = found.first_token.as_ref().unwrap();
    assert_eq!(
        (found.tokens, first.row, first.right_top[0]),
        (1, 3, (5, 20.0))
    );
    assert_ne!(first.left_top[0].0, 5);
    // Nearly all of the mass has moved to a token that had little.
    assert!(found.kl_max.unwrap() > 5.0 && found.kl_mean.unwrap() < found.kl_max.unwrap());
}

#[test]
fn the_divergence_is_that_of_the_formula() {
    // Two tokens matter: p = (1/2, 1/2), q = (4/5, 1/5).
    let set = |values: &mut Vec<f32>, two: [f32; 2]| {
        values.fill(-1e9);
        values[..2].copy_from_slice(&two);
    };
    let records = judged("", &|run, _, _, _, values| {
        let ln4 = 4f32.ln();
        set(
            values,
            if run == Run::Candidate {
                [ln4, 0.0]
            } else {
                [0.0, 0.0]
            },
        );
    })
    .unwrap();
    let found = records[0].difference.as_ref().unwrap();
    let expected = 0.5 * (0.5f64 / 0.8).ln() + 0.5 * (0.5f64 / 0.2).ln();
    assert!((found.kl_max.unwrap() - expected).abs() < 1e-6, "{found:?}");
    assert!((found.kl_mean.unwrap() - expected).abs() < 1e-6);
}

#[test]
fn what_cannot_be_judged_is_inconclusive() {
    let shaky = |run: Run, _: &str, prompt: usize, at: usize, values: &mut Vec<f32>| {
        if (run, prompt, at) == (Run::Control, 0, 0) {
            values[0] = values[0].next_up();
        }
    };
    let constant = |_: Run, _: &str, _: usize, at: usize, values: &mut Vec<f32>| {
        if at == 2 {
            values.fill(0.5);
        }
    };
    let nan = |_: Run, _: &str, _: usize, _: usize, values: &mut Vec<f32>| values[1] = f32::NAN;
    let table: [(&str, &Change<'_>, &str); 3] = [
        ("baseline", &shaky, "differs from itself"),
        ("constant", &constant, "position 2: all logits are the same"),
        ("no numbers", &nan, "is no number"),
    ];
    for (name, change, word) in table {
        let records = judged("", change).unwrap();
        assert_eq!(verdict(&records), Verdict::Inconclusive, "{name}");
        let reasons: Vec<&str> = records.iter().filter_map(|r| r.reason.as_deref()).collect();
        assert!(reasons[0].contains(word), "{name}: {reasons:?}");
    }
}

#[test]
fn what_is_not_finite_is_a_difference_that_json_can_hold() {
    for value in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        let records = judged(
            "allow = { max-abs = 1e30, kl = 1e30 }",
            &one(move |logit| *logit = value),
        )
        .unwrap();
        let record = &records[4];
        // The baseline is sound: what is no number is the candidate's fault.
        assert_eq!(record.verdict, Verdict::Fail, "{value}");
        assert_eq!(record.difference.as_ref().unwrap().max_abs, None);
        let json = serde_json::to_string(record).unwrap();
        assert_eq!(
            &serde_json::from_str::<LogitsRecord>(&json).unwrap(),
            record
        );
    }
}

#[test]
fn an_allowance_is_kept_to() {
    let change = one(|value| *value += 0.25);
    for (allow, verdict) in [
        ("allow = { max-abs = 0.3, kl = 1.0 }", Verdict::Pass),
        ("allow = { max-abs = 0.2, kl = 1.0 }", Verdict::Fail),
        ("allow = { max-abs = 0.3, kl = 0.0 }", Verdict::Fail),
        ("", Verdict::Fail),
    ] {
        let records = judged(allow, &change).unwrap();
        assert_eq!(super::tests::verdict(&records), verdict, "{allow}");
        assert!(records[4].reason.is_some(), "it is said all the same");
    }
}

#[test]
fn files_that_are_not_whole_are_no_pass() {
    let dir = tempfile::tempdir().unwrap();
    let prompts = vec![Prompt {
        name: "p".to_owned(),
        ids: vec![1, 2],
    }];
    let whole = |rows: u32, vocabulary: u32, values: usize| {
        let mut bytes = compare::MAGIC.to_vec();
        for number in [vocabulary, 1, rows] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.extend((0..values).flat_map(|at| (at as f32).to_le_bytes()));
        bytes
    };
    let good = whole(2, 3, 6);
    let cases: [(&str, Vec<u8>); 6] = [
        ("cut off", whole(2, 3, 5)),
        ("too long", whole(2, 3, 7)),
        ("a row too few", whole(1, 3, 3)),
        ("another vocabulary", whole(2, 4, 8)),
        ("no head", b"LOGITS".to_vec()),
        (
            "another sort of file",
            [b"LOGITS02".as_slice(), &good[8..]].concat(),
        ),
    ];
    let (a, b) = (dir.path().join("a"), dir.path().join("b"));
    fs_err::write(&a, &good).unwrap();
    fs_err::write(&b, &good).unwrap();
    let halt = Halt::new(&Cancel::default());
    assert!(
        compare::compare(&a, &b, &prompts, &halt).unwrap()[0]
            .difference
            .is_none()
    );
    for (name, bytes) in cases {
        fs_err::write(&b, bytes).unwrap();
        assert!(compare::compare(&a, &b, &prompts, &halt).is_err(), "{name}");
    }
}

#[test]
fn plans_that_make_no_sense_are_refused() {
    let with = |setting: &str| {
        let mut definition = definition("");
        definition.settings = toml::from_str::<Settings>(setting).unwrap().setting;
        LogitsPlan::new(&definition, false).unwrap_err().to_string()
    };
    #[derive(serde::Deserialize)]
    struct Settings {
        setting: Vec<LogitsSetting>,
    }
    for (setting, word) in [
        ("setting = []", "no setting"),
        ("[[setting]]\nname = \"a b\"\n", "only letters"),
        (
            "[[setting]]\nname = \"a\"\n[[setting]]\nname = \"a\"\n",
            "twice",
        ),
        ("[[setting]]\nname = \"a\"\nubatch = 0\n", "above 0"),
        (
            "[[setting]]\nname = \"a\"\nbatch = 8\nubatch = 16\n",
            "not below ubatch",
        ),
        (
            "[[setting]]\nname = \"a\"\ncache-k = \"f16 x\"\n",
            "names such as",
        ),
    ] {
        let error = with(setting);
        assert!(error.contains(word), "{setting}: {error}");
    }
    let quick = "quick = { settings = [\"three\"], prompts = [] }";
    let error = LogitsPlan::new(&definition(quick), true).unwrap_err();
    assert!(error.to_string().contains("three"));
}

#[test]
fn the_probe_is_told_what_the_setting_says() {
    let setting = LogitsPlan::new(&definition(""), false)
        .unwrap()
        .settings
        .remove(1);
    let prompts = [Prompt {
        name: "p".to_owned(),
        ids: vec![7, 8, 9],
    }];
    let text = probe::plan(std::path::Path::new("/m x.gguf"), 64, &setting, &prompts, 2).unwrap();
    assert_eq!(
        text,
        "model /m x.gguf\ncontext 64\nbatch 512\nubatch 64\nthreads 1\nflash auto\ncache-k f16\n\
         cache-v f16\nprompts 1\nprompt 1 2 7 8 9\n"
    );
    let text = probe::plan(std::path::Path::new("/m"), 64, &setting, &prompts, 99).unwrap();
    assert!(text.ends_with("prompt 1 2 7 8 9\n"), "{text}");
    let error = probe::plan(std::path::Path::new("/a\nb"), 64, &setting, &prompts, 2).unwrap_err();
    assert_eq!(error.kind(), Kind::Usage);
}
