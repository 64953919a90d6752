//! Prompts that are text: made ids of by the servers under test, so that both sides provably get
//! the same.
//!
//! Both sides are asked, each by a server of its own, before anything is compared. Where they
//! make different ids, the gate ends with that finding: nothing else could be compared. What is
//! then sent to either side are ids, whose digest is in the record.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::error::{Error, Result, ResultExt};
use crate::gate::client::Client;
use crate::gate::definition::{ChashPlan, fits};
use crate::gate::runner::ServerRunner;
use crate::gate::session::{Halt, Run, Session};
use crate::model::{Digest, Role};

/// What a server has to make ids of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Text {
    /// Text as it is.
    Plain(String),
    /// A conversation.
    Chat(Vec<Message>),
}

/// One message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// What.
    pub content: String,
}

/// What a side made of a text: the text after the model's template, and ids.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// The text.
    pub text: String,
    /// The ids.
    pub ids: Vec<u32>,
}

/// Gives the prompts of `plan` that are text their ids. Returns the digest of each text after the
/// model's template, by the prompt's name.
pub fn resolve(
    plan: &mut ChashPlan,
    runner: &ServerRunner<'_>,
    halt: &Halt,
) -> Result<BTreeMap<String, Digest>> {
    if plan.texts.is_empty() {
        return Ok(BTreeMap::new());
    }
    let sides = [Run::Baseline, Run::Candidate].map(|run| {
        make(plan, runner, run, halt)
            .context(|| format!("making ids of the prompts, {}", run.name()))
    });
    let [baseline, candidate] = sides;
    take(plan, baseline?, &candidate?)
}

fn make(
    plan: &ChashPlan,
    runner: &ServerRunner<'_>,
    run: Run,
    halt: &Halt,
) -> Result<BTreeMap<String, Made>> {
    // A running server is asked as it is; one that is started needs no drafter for this.
    let running = runner.side(run).running.is_some();
    let session = Session {
        run,
        n_max: match running {
            true => plan.n_max.first().copied().unwrap_or(0),
            false => 0,
        },
        slots: match running {
            true => plan.slots.first().copied().unwrap_or(1),
            false => 1,
        },
        flags: &[],
        trace: None,
        waves: Vec::new(),
    };
    let name = format!("texts-{}", run.name());
    let mut server = runner.start(&session, &name, halt)?;
    let made = server.ask(halt, |client| {
        let texts = plan.texts.iter();
        texts
            .map(|(name, text)| {
                let made = one(client, text)
                    .hint(|| "the model needs a vocabulary for text; fixtures have none".to_owned())
                    .context(|| format!("prompt `{name}`"))?;
                Ok((name.clone(), made))
            })
            .collect()
    })?;
    runner.end_idle(server, run)?;
    Ok(made)
}

fn one(client: &Client, text: &Text) -> Result<Made> {
    let text = match text {
        Text::Plain(text) => text.clone(),
        Text::Chat(messages) => client.apply_template(messages)?,
    };
    let ids = client.tokenize(&text)?;
    if ids.is_empty() {
        return Err(Error::environment("the server made no ids of it"));
    }
    Ok(Made { text, ids })
}

/// Takes what both sides made, where it is the same.
fn take(
    plan: &mut ChashPlan,
    baseline: BTreeMap<String, Made>,
    candidate: &BTreeMap<String, Made>,
) -> Result<BTreeMap<String, Digest>> {
    let mut digests = BTreeMap::new();
    for (name, left) in baseline {
        let Some(right) = candidate.get(&name) else {
            return Err(Error::internal(format!("prompt `{name}` has no ids")));
        };
        if left.text != right.text {
            return Err(Error::finding(format!(
                "prompt `{name}`: the model's template gives another text on the candidate"
            )));
        }
        if left.ids != right.ids {
            let pairs = left.ids.iter().zip(&right.ids);
            let at = pairs.take_while(|(a, b)| a == b).count();
            let show = |ids: &[u32]| match ids.get(at) {
                Some(id) => id.to_string(),
                None => "the end".to_owned(),
            };
            return Err(Error::finding(format!(
                "prompt `{name}`: baseline and candidate make other ids of the same text, first \
                 at place {at}: {} against {}",
                show(&left.ids),
                show(&right.ids)
            )));
        }
        digests.insert(name.clone(), Digest::of(left.text.as_bytes()));
        let prompts = plan.prompts.iter_mut();
        for prompt in prompts.filter(|prompt| prompt.name == name) {
            prompt.ids.clone_from(&left.ids);
        }
    }
    for prompt in &plan.prompts {
        fits(&plan.definition, prompt)?;
    }
    plan.texts.clear();
    Ok(digests)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;
    use crate::gate::definition::{self, Plan};
    use crate::project::Project;

    fn plan(more: &str) -> Result<ChashPlan> {
        let dir = tempfile::tempdir().unwrap();
        for folder in ["registry", "gates/prompts"] {
            fs_err::create_dir_all(dir.path().join(folder)).unwrap();
        }
        let write = |path: &str, text: &str| fs_err::write(dir.path().join(path), text).unwrap();
        write("registry/upstreams.toml", "");
        write("gates/prompts/a.txt", "Say it.\n");
        write("gates/prompts/empty.md", " \n");
        write(
            "gates/g.toml",
            &format!(
                "schema = 1\nid = \"g\"\nkind = \"chash\"\ntitle = \"T\"\nn-max = [0]\n\
                 slots = [1]\nn-predict = 4\ncontext = 16\nmodel = {{ path = \"m\" }}\n\
                 [[prompt]]\nname = \"p\"\n{more}\n"
            ),
        );
        let project = Project::new(dir.path(), dir.path()).unwrap();
        match definition::load(&project, &[], false)?.remove(0) {
            Plan::Chash(plan) => Ok(*plan),
            _ => panic!("another kind"),
        }
    }

    fn made(text: &str, ids: &[u32]) -> BTreeMap<String, Made> {
        let made = Made {
            text: text.to_owned(),
            ids: ids.to_vec(),
        };
        BTreeMap::from([("p".to_owned(), made)])
    }

    #[test]
    fn texts_come_from_every_place_that_they_can_stand_in() {
        let text = |more: &str| plan(more).unwrap().texts.remove("p").unwrap();
        let plain = Text::Plain("Say it.".to_owned());
        assert_eq!(text("text = \"Say it.\""), plain);
        assert_eq!(text("file = \"prompts/a.txt\""), plain);
        let Text::Chat(chat) = text(
            "messages = [{ role = \"system\", content = \"Be brief.\" }, \
             { role = \"user\", file = \"prompts/a.txt\" }]",
        ) else {
            panic!("no conversation");
        };
        assert_eq!(chat[0].role, Role::System);
        assert_eq!(chat[1].content, "Say it.");
        let digest = |more: &str| plan(more).unwrap().digest;
        assert_ne!(digest("file = \"prompts/a.txt\""), digest("text = \"x\""));
        for (more, expected) in [
            ("text = \" \"", "its text is empty"),
            ("file = \"prompts/empty.md\"", "its text is empty"),
            ("file = \"prompts/a.json\"", "ends neither in `.txt`"),
            ("messages = []", "no messages"),
            (
                "messages = [{ role = \"user\" }]",
                "exactly one of `content`",
            ),
            (
                "messages = [{ role = \"tool\", content = \"x\" }]",
                "g.toml:12:",
            ),
            ("text = \"x\"\nids = [1]", "exactly one of"),
        ] {
            let error = plan(more).unwrap_err();
            assert_eq!(error.kind(), Kind::Config, "{more}");
            assert!(error.to_string().contains(expected), "{more}: {error}");
        }
    }

    #[test]
    fn both_sides_must_make_the_same_of_a_text() {
        let fresh = || plan("text = \"Say it.\"").unwrap();
        let mut good = fresh();
        let digests = take(&mut good, made("t", &[1, 2]), &made("t", &[1, 2])).unwrap();
        assert_eq!(digests["p"], Digest::of(b"t"));
        assert_eq!(good.prompts[0].ids, [1, 2]);
        for (candidate, expected) in [
            (made("u", &[1, 2]), "another text"),
            (made("t", &[1, 3]), "first at place 1: 2 against 3"),
            (made("t", &[1]), "first at place 1: 2 against the end"),
        ] {
            let error = take(&mut fresh(), made("t", &[1, 2]), &candidate).unwrap_err();
            assert_eq!(error.kind(), Kind::Finding);
            assert!(error.to_string().contains(expected), "{error}");
        }
        // Only now is its length known.
        let long: Vec<u32> = (0..12).collect();
        let error = take(&mut fresh(), made("t", &long), &made("t", &long)).unwrap_err();
        assert!(error.to_string().contains("needs 17 cells"), "{error}");
    }
}
