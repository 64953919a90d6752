//! Between text and tokens, by the model's own vocabulary.

use crate::error::Result;
use crate::gate::runner::ServerRunner;
use crate::gate::session::{Halt, Run, Session};
use crate::model::{Digest, MadeUp};

/// Knows a model's vocabulary.
pub trait Words {
    /// The ids of each text, with what the model wants before them.
    fn ids(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>>;
    /// The text of each list of ids.
    fn texts(&self, ids: &[&[u32]]) -> Result<Vec<String>>;
}

impl Words for MadeUp {
    /// The same id for the same word, always.
    fn ids(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>> {
        let id = |word: &str| {
            let digest = Digest::of(word.as_bytes());
            let [a, b, c, d, ..] = *digest.bytes();
            self.low + u32::from_le_bytes([a, b, c, d]) % (self.high - self.low)
        };
        let ids = |text: &&str| text.split_whitespace().map(id).collect();
        Ok(texts.iter().map(ids).collect())
    }

    /// The ids themselves: nothing says which word of many it is.
    fn texts(&self, ids: &[&[u32]]) -> Result<Vec<String>> {
        let text = |ids: &&[u32]| {
            let ids: Vec<String> = ids.iter().map(ToString::to_string).collect();
            ids.join(" ")
        };
        Ok(ids.iter().map(text).collect())
    }
}

/// Asks a server of the baseline, which is started for each call: it lives a moment, and nothing of
/// what is compared depends on it but the prompts, which are the same for all.
#[derive(Debug)]
pub struct ServerWords<'a> {
    runner: &'a ServerRunner<'a>,
    halt: &'a Halt,
}

impl<'a> ServerWords<'a> {
    /// With servers of `runner`.
    pub fn new(runner: &'a ServerRunner<'a>, halt: &'a Halt) -> Self {
        ServerWords { runner, halt }
    }

    fn ask<T: Send>(
        &self,
        ask: impl FnOnce(&crate::gate::client::Client) -> Result<T> + Send,
    ) -> Result<T> {
        let session = Session {
            run: Run::Baseline,
            n_max: 0,
            slots: 1,
            flags: &[],
            trace: None,
            waves: Vec::new(),
        };
        let mut server = self.runner.start(&session, "words", self.halt)?;
        let answer = server.ask(self.halt, ask)?;
        self.runner.end_idle(server, Run::Baseline)?;
        Ok(answer)
    }
}

impl Words for ServerWords<'_> {
    fn ids(&self, texts: &[&str]) -> Result<Vec<Vec<u32>>> {
        self.ask(|client| texts.iter().map(|text| client.tokenize(text)).collect())
    }

    fn texts(&self, ids: &[&[u32]]) -> Result<Vec<String>> {
        self.ask(|client| ids.iter().map(|ids| client.detokenize(ids)).collect())
    }
}
