//! What a server under test is asked, and how its answers are checked. Everything is bounded:
//! time, size, and trust.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::{Error, Result};
use crate::gate::remote::Props;
use crate::gate::session::{Answer, DraftCounts, Prompt};
use crate::gate::texts::Message;

/// Largest answer that is read.
const LARGEST: u64 = 64 << 20;

/// How much of an unexpected answer goes into a message.
const EXCERPT: usize = 300;

/// A bounded HTTP client for one server on this machine.
#[derive(Clone, Debug)]
pub struct Client {
    agent: ureq::Agent,
    base: String,
    key: String,
    limit: Duration,
}

/// How to generate.
#[derive(Clone, Copy, Debug)]
pub struct Sampling {
    /// Exactly this many tokens.
    pub n_predict: usize,
    /// Fixed seed.
    pub seed: u32,
}

/// One element of a `/completion` answer; what is not needed is ignored.
#[derive(Debug, Deserialize)]
struct Completion {
    #[serde(default)]
    index: usize,
    tokens: Option<Vec<u32>>,
    tokens_evaluated: Option<usize>,
    #[serde(default)]
    truncated: bool,
    #[serde(default)]
    stop_type: String,
    #[serde(default)]
    timings: Timings,
}

#[derive(Debug, Default, Deserialize)]
struct Timings {
    #[serde(default)]
    draft_n: u64,
    #[serde(default)]
    draft_n_accepted: u64,
    opencoti: Option<BTreeMap<String, u64>>,
}

/// One answer and what it took.
#[derive(Clone, Debug, PartialEq)]
pub struct Timed {
    /// The answer.
    pub answer: Answer,
    /// From sending the request until its whole answer is there.
    pub wall: Duration,
    /// Tokens of the prompt per second, where the server says it.
    pub prompt: Option<f64>,
    /// Tokens generated per second, where the server says it; it has none of a single token.
    pub decode: Option<f64>,
}

/// The same answer as [`Completion`], read for its speeds.
#[derive(Debug, Deserialize)]
struct Speeds {
    timings: SpeedTimings,
}

#[derive(Debug, Deserialize)]
struct SpeedTimings {
    prompt_per_second: Option<f64>,
    predicted_per_second: Option<f64>,
}

impl Client {
    /// For the server on `port` of this machine; `limit` bounds one whole request.
    pub fn new(port: u16, key: &str, limit: Duration) -> Self {
        Self::of(&format!("http://127.0.0.1:{port}"), key, limit)
    }

    /// For the server at `url`, which is a scheme, a host and a port.
    pub fn of(url: &str, key: &str, limit: Duration) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            // A proxy of the environment must never see, or answer, these requests.
            .proxy(None)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .timeout_global(Some(limit))
            .build()
            .new_agent();
        Client {
            agent,
            base: url.to_owned(),
            key: format!("Bearer {key}"),
            limit,
        }
    }

    /// Whether the server is ready. `false` while it is loading or does not answer yet.
    pub fn healthy(&self) -> bool {
        let answer = self
            .agent
            .get(format!("{}/health", self.base))
            .config()
            .timeout_global(Some(Duration::from_secs(2).min(self.limit)))
            .build()
            .call();
        answer.is_ok_and(|answer| answer.status() == 200)
    }

    /// Sends all `prompts` in one request. The server queues them in one step, so that they take
    /// their slots together: what is batched with what does not depend on timing.
    pub fn complete(&self, prompts: &[&Prompt], sampling: Sampling) -> Result<Vec<Answer>> {
        parse(&self.send(prompts, sampling)?, prompts, sampling.n_predict)
    }

    /// Sends one prompt, and says how long it took.
    pub fn measure(&self, prompt: &Prompt, sampling: Sampling) -> Result<Timed> {
        let begun = Instant::now();
        let text = self.send(&[prompt], sampling)?;
        let wall = begun.elapsed();
        let mut answers = parse(&text, &[prompt], sampling.n_predict)?;
        let speeds: Speeds = serde_json::from_slice(&text).map_err(bad)?;
        let sound = |speed: Option<f64>| speed.filter(|speed| speed.is_finite() && *speed > 0.0);
        Ok(Timed {
            answer: answers.pop().unwrap_or_default(),
            wall,
            prompt: sound(speeds.timings.prompt_per_second),
            decode: sound(speeds.timings.predicted_per_second),
        })
    }

    /// The ids of `text`, as `/completion` would make them of it.
    pub fn tokenize(&self, text: &str) -> Result<Vec<u32>> {
        self.ids_of(text, true)
    }

    /// The ids of a piece of text: no begin of text is added, and what spells a special token is text.
    pub fn tokenize_piece(&self, text: &str) -> Result<Vec<u32>> {
        self.ids_of(text, false)
    }

    fn ids_of(&self, text: &str, special: bool) -> Result<Vec<u32>> {
        #[derive(Deserialize)]
        struct Tokens {
            tokens: Vec<u32>,
        }
        let body = json!({ "content": text, "add_special": special, "parse_special": special });
        let answer = self.post("/tokenize", &body)?;
        let made: Tokens = serde_json::from_slice(&answer).map_err(bad)?;
        if made.tokens.is_empty() {
            return Err(bad("no tokens of a text"));
        }
        Ok(made.tokens)
    }

    /// The text that the model's template makes of a conversation.
    pub fn apply_template(&self, messages: &[Message]) -> Result<String> {
        #[derive(Deserialize)]
        struct Rendered {
            prompt: String,
        }
        let answer = self.post("/apply-template", &json!({ "messages": messages }))?;
        let rendered: Rendered = serde_json::from_slice(&answer).map_err(bad)?;
        Ok(rendered.prompt)
    }

    /// What the server tells of itself.
    pub fn props(&self) -> Result<Props> {
        #[derive(Deserialize)]
        struct Slot {
            speculative: Option<bool>,
        }
        let get = |path: &str| {
            let request = self.agent.get(format!("{}{path}", self.base));
            self.read(path, request.header("Authorization", &self.key).call())
        };
        let mut props: Props = serde_json::from_slice(&get("/props")?).map_err(bad)?;
        // It may be switched off.
        if let Ok(text) = get("/slots")
            && let Ok(slots) = serde_json::from_slice::<Vec<Slot>>(&text)
        {
            props.speculative = slots.first().and_then(|slot| slot.speculative);
        }
        Ok(props)
    }

    fn post(&self, path: &str, body: &Value) -> Result<Vec<u8>> {
        let request = self.agent.post(format!("{}{path}", self.base));
        let sent = (request.header("Authorization", &self.key)).send_json(body);
        self.read(path, sent)
    }

    fn send(&self, prompts: &[&Prompt], sampling: Sampling) -> Result<Vec<u8>> {
        let ids: Vec<&[u32]> = prompts.iter().map(|prompt| prompt.ids.as_slice()).collect();
        let prompt = match ids.as_slice() {
            [one] => json!(one),
            several => json!(several),
        };
        let body = json!({
            "prompt": prompt,
            "n_predict": sampling.n_predict,
            "temperature": 0,
            "seed": sampling.seed,
            "cache_prompt": false,
            "return_tokens": true,
            "ignore_eos": true,
            "stream": false,
        });
        self.post("/completion", &body)
    }

    /// The text of `ids`.
    pub fn detokenize(&self, ids: &[u32]) -> Result<String> {
        #[derive(Deserialize)]
        struct Content {
            content: String,
        }
        let answer = self.post("/detokenize", &json!({ "tokens": ids }))?;
        let content: Content = serde_json::from_slice(&answer).map_err(bad)?;
        Ok(content.content)
    }

    /// Slots busy at the same time, averaged over all decodes; `None` where the server has no
    /// such metric.
    pub fn busy_slots(&self) -> Option<f64> {
        value(&self.metrics()?, "n_busy_slots_per_decode")
    }

    /// What the server has counted of its drafts; `None` where it has no such metrics.
    pub fn drafts(&self) -> Option<DraftCounts> {
        drafts_of(&self.metrics()?)
    }

    fn metrics(&self) -> Option<String> {
        let sent = self
            .agent
            .get(format!("{}/metrics", self.base))
            .header("Authorization", &self.key)
            .call();
        let text = self.read("/metrics", sent).ok()?;
        Some(String::from_utf8_lossy(&text).into_owned())
    }

    fn read(
        &self,
        path: &str,
        sent: std::result::Result<ureq::http::Response<ureq::Body>, ureq::Error>,
    ) -> Result<Vec<u8>> {
        let mut answer = sent.map_err(|error| self.fault(path, &error))?;
        let status = answer.status();
        let text = answer
            .body_mut()
            .with_config()
            .limit(LARGEST)
            .read_to_vec()
            .map_err(|error| self.fault(path, &error))?;
        if status != 200 {
            return Err(bad(format!(
                "HTTP status {} to {path}: {}",
                status.as_u16(),
                excerpt(&text)
            )));
        }
        Ok(text)
    }

    fn fault(&self, path: &str, error: &ureq::Error) -> Error {
        match error {
            ureq::Error::Timeout(_) => Error::environment(format!(
                "the server did not answer {path} within {} s",
                self.limit.as_secs_f64()
            ))
            .hint("raise limits.request in the gate's definition if the machine is that slow"),
            ureq::Error::BodyExceedsLimit(_) => {
                bad(format!("more than {} MiB to {path}", LARGEST >> 20))
            }
            other => Error::environment(format!("{path} failed: {other}")),
        }
    }
}

/// The value of a metric without labels.
fn value<T: std::str::FromStr>(metrics: &str, name: &str) -> Option<T> {
    let of = |line: &str| {
        let value = line.strip_prefix("llamacpp:")?.strip_prefix(name)?;
        value.strip_prefix(' ')?.trim().parse().ok()
    };
    metrics.lines().find_map(of)
}

/// The counts of drafts in `metrics`. Counters by position stand there only once a draft was
/// verified.
fn drafts_of(metrics: &str) -> Option<DraftCounts> {
    const POSITION: &str = "llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"";
    let mut by_position = Vec::new();
    for line in metrics.lines() {
        let Some(rest) = line.strip_prefix(POSITION) else {
            continue;
        };
        let (position, count) = rest.split_once("\"} ")?;
        // In their order, none left out: else a count would go to another's place.
        if position.parse() != Ok(by_position.len()) {
            return None;
        }
        by_position.push(count.trim().parse().ok()?);
    }
    Some(DraftCounts {
        drafts: value(metrics, "spec_decode_num_drafts_total")?,
        drafted: value(metrics, "spec_decode_num_draft_tokens_total")?,
        accepted: value(metrics, "spec_decode_num_accepted_tokens_total")?,
        by_position,
    })
}

/// An answer that no sound server gives.
fn bad(what: impl std::fmt::Display) -> Error {
    Error::environment(format!("the server answered badly: {what}"))
}

fn excerpt(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(EXCERPT)
        .collect();
    match line.trim() {
        "" => "(empty)".to_owned(),
        line => line.to_owned(),
    }
}

fn parse(text: &[u8], prompts: &[&Prompt], n_predict: usize) -> Result<Vec<Answer>> {
    let invalid = |error: serde_json::Error| {
        bad(format!(
            "{error} in {} bytes: {}",
            text.len(),
            excerpt(text)
        ))
    };
    let value: Value = serde_json::from_slice(text).map_err(invalid)?;
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    if list.len() != prompts.len() {
        return Err(bad(format!(
            "{} completions to {} prompts",
            list.len(),
            prompts.len()
        )));
    }
    let mut answers: Vec<Option<Answer>> = vec![None; prompts.len()];
    for item in list {
        let item: Completion = serde_json::from_value(item).map_err(invalid)?;
        let place = if prompts.len() == 1 { 0 } else { item.index };
        let (Some(prompt), Some(answer)) = (prompts.get(place), answers.get_mut(place)) else {
            return Err(bad(format!("completion {place} was not asked for")));
        };
        if answer.is_some() {
            return Err(bad(format!("completion {place} came twice")));
        }
        *answer = Some(item.check(prompt, n_predict)?);
    }
    Ok(answers.into_iter().flatten().collect())
}

impl Completion {
    fn check(self, prompt: &Prompt, n_predict: usize) -> Result<Answer> {
        let name = &prompt.name;
        let Some(tokens) = self.tokens else {
            return Err(bad(format!("no `tokens` for prompt `{name}`"))
                .hint("the server must know `return_tokens` of /completion"));
        };
        if tokens.len() != n_predict {
            return Err(bad(format!(
                "{} tokens instead of {n_predict} for prompt `{name}` (stop type `{}`)",
                tokens.len(),
                self.stop_type
            )));
        }
        if self.truncated {
            return Err(bad(format!("it truncated prompt `{name}`")));
        }
        if let Some(evaluated) = self.tokens_evaluated
            && evaluated != prompt.ids.len()
        {
            return Err(bad(format!(
                "it evaluated {evaluated} tokens of prompt `{name}`, which has {}",
                prompt.ids.len()
            )));
        }
        Ok(Answer {
            tokens,
            drafted: self.timings.draft_n,
            accepted: self.timings.draft_n_accepted,
            counters: self.timings.opencoti,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(name: &str, length: usize) -> Prompt {
        Prompt {
            name: name.to_owned(),
            ids: vec![1; length],
        }
    }

    fn read(text: &str, lengths: &[usize]) -> Result<Vec<Answer>> {
        let prompts: Vec<Prompt> = lengths.iter().map(|n| prompt("p", *n)).collect();
        let prompts: Vec<&Prompt> = prompts.iter().collect();
        parse(text.as_bytes(), &prompts, 2)
    }

    #[test]
    fn answers_come_in_the_order_of_the_prompts() {
        let text = r#"[{"index":1,"tokens":[3,4],"tokens_evaluated":7},
            {"index":0,"tokens":[1,2],"timings":{"draft_n":5,"draft_n_accepted":4}}]"#;
        let answers = read(text, &[5, 7]).unwrap();
        assert_eq!(answers[0].tokens, [1, 2]);
        assert_eq!((answers[0].drafted, answers[0].accepted), (5, 4));
        assert_eq!(answers[1].tokens, [3, 4]);
    }

    #[test]
    fn one_prompt_gives_one_object() {
        assert_eq!(
            read(r#"{"index":9,"tokens":[1,2]}"#, &[5]).unwrap().len(),
            1
        );
    }

    #[test]
    fn drafts_are_read_by_position_or_not_at_all() {
        let text = "# HELP llamacpp:spec_decode_num_drafts_total x\n\
            llamacpp:spec_decode_num_draft_tokens_total 70\n\
            llamacpp:spec_decode_num_accepted_tokens_total 31\n\
            llamacpp:spec_decode_num_drafts_total 24\n\
            llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 19\n\
            llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position=\"1\"} 12\n";
        let found = drafts_of(text).unwrap();
        assert_eq!((found.drafts, found.drafted, found.accepted), (24, 70, 31));
        assert_eq!(found.by_position, [19, 12]);
        assert_eq!(drafts_of(&text.replace("=\"0\"", "=\"2\"")), None);
        assert_eq!(drafts_of(&text.replace("} 12", "} x")), None);
        assert_eq!(
            drafts_of(&text.replace("_drafts_total 24", "_other 24")),
            None
        );
        assert_eq!(drafts_of(""), None);
    }

    #[test]
    fn bad_answers_are_named() {
        let cases = [
            ("", "EOF"),
            (r#"{"tokens":[1,"#, "EOF"),
            (r#"{"content":"x"}"#, "no `tokens`"),
            (r#"{"tokens":[1]}"#, "1 tokens instead of 2"),
            (r#"{"tokens":[1,2,3]}"#, "3 tokens instead of 2"),
            (r#"{"tokens":[1,-2]}"#, "invalid value"),
            (r#"{"tokens":[1,2],"truncated":true}"#, "truncated prompt"),
            (r#"{"tokens":[1,2],"tokens_evaluated":4}"#, "evaluated 4"),
            (
                r#"[{"tokens":[1,2]},{"tokens":[1,2]}]"#,
                "2 completions to 1",
            ),
        ];
        for (text, expected) in cases {
            let error = read(text, &[5]).unwrap_err();
            assert_eq!(error.kind(), crate::Kind::Environment);
            assert!(error.to_string().contains(expected), "{text}: {error}");
        }
        let twice = r#"[{"index":0,"tokens":[1,2]},{"index":0,"tokens":[1,2]}]"#;
        let error = read(twice, &[5, 5]).unwrap_err();
        assert!(error.to_string().contains("came twice"), "{error}");
        let beyond = r#"[{"index":0,"tokens":[1,2]},{"index":2,"tokens":[1,2]}]"#;
        let error = read(beyond, &[5, 5]).unwrap_err();
        assert!(error.to_string().contains("not asked for"), "{error}");
    }
}
