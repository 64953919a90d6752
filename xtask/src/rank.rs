//! Which tokens of a vocabulary come how often in some texts, the most frequent first: what drafts over a part of the
//! vocabulary are to begin with (patch `nextn-draft-vocab`).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::client::Client;
use crate::gate::prompts::parse_ids;
use crate::gate::server::{Launch, Server};
use crate::gate::session::Halt;
use crate::model::Digest;

/// Bytes of a text that are sent at once.
const PIECE: usize = 256 << 10;

/// What to rank.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// The model whose tokens they are.
    pub model: &'a Path,
    /// The llama-server that makes tokens of text.
    pub server: &'a Path,
    /// Files: `.ids` hold token ids, all others text in UTF-8.
    pub texts: &'a [PathBuf],
}

/// A text that was counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Counted {
    /// Name of the file, without its folder.
    pub name: String,
    /// Digest of its content.
    pub sha256: Digest,
    /// Its tokens.
    pub tokens: u64,
}

/// The tokens of all texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranking {
    /// Digest of the model's file.
    pub model: Digest,
    /// The texts, in the order in which they were named.
    pub texts: Vec<Counted>,
    /// Each token that came, and how often: the most frequent first, ties by id.
    pub tokens: Vec<(u32, u64)>,
}

impl Ranking {
    fn new(model: Digest, texts: Vec<Counted>, counts: BTreeMap<u32, u64>) -> Self {
        let mut tokens: Vec<(u32, u64)> = counts.into_iter().collect();
        // The map has them by id, and the sort is stable.
        tokens.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        Ranking {
            model,
            texts,
            tokens,
        }
    }

    /// How many tokens were counted.
    pub fn total(&self) -> u64 {
        self.tokens.iter().map(|(_, count)| count).sum()
    }

    /// The share of the texts that the first `first` tokens are.
    pub fn share(&self, first: usize) -> f64 {
        let inside: u64 = self.tokens.iter().take(first).map(|(_, n)| n).sum();
        inside as f64 / self.total().max(1) as f64
    }

    /// The file: comments that say of what it was made, then one id a line. Equal texts and models give equal bytes.
    pub fn file(&self) -> String {
        let mut file = String::new();
        let _ = writeln!(
            file,
            "# Token ids, the most frequent first, ties by id: {} of {} tokens.\n# model {}",
            self.tokens.len(),
            self.total(),
            self.model
        );
        for text in &self.texts {
            let _ = writeln!(
                file,
                "# text {} {} ({} tokens)",
                text.sha256, text.name, text.tokens
            );
        }
        for (id, _) in &self.tokens {
            let _ = writeln!(file, "{id}");
        }
        file
    }
}

/// Counts the tokens of all texts. A server is started only where one of them is text.
pub fn rank(ctx: &Ctx, request: &Request<'_>) -> Result<Ranking> {
    let contents = request.texts.iter().map(|path| {
        let content = fs_err::read(path)?;
        if is_ids(path) {
            let ids = parse_ids(&content).context(|| path.display().to_string())?;
            Ok((path, Digest::of(&content), Content::Ids(ids)))
        } else {
            let digest = Digest::of(&content);
            let text = String::from_utf8(content).map_err(|_| {
                Error::usage(format!("{} is no text in UTF-8", path.display()))
                    .hint("files of token ids end in `.ids`")
            })?;
            Ok((path, digest, Content::Text(text)))
        }
    });
    let contents = contents.collect::<Result<Vec<_>>>()?;
    let model = Digest::of_file(request.model)?;
    let is_text = |content: &Content| matches!(content, Content::Text(_));
    let halt = Halt::new(&ctx.cancel);
    let logs = tempfile::tempdir()?;
    let mut server = match contents.iter().any(|(_, _, content)| is_text(content)) {
        true => Some(start(request, &logs.path().join("log"), &halt)?),
        false => None,
    };
    let mut counts = BTreeMap::new();
    let mut texts = Vec::new();
    for (path, sha256, content) in contents {
        ctx.sink.detail(&format!("counting {}", path.display()));
        let ids = match (content, &mut server) {
            (Content::Ids(ids), _) => ids,
            (Content::Text(text), Some(server)) => server
                .ask(&halt, |client| tokenize(client, &text))
                .hint(|| "the model needs a vocabulary for text; fixtures have none".to_owned())
                .context(|| path.display().to_string())?,
            (Content::Text(_), None) => return Err(Error::internal("no server for a text")),
        };
        for id in &ids {
            *counts.entry(*id).or_insert(0) += 1;
        }
        texts.push(Counted {
            name: name(path),
            sha256,
            tokens: ids.len() as u64,
        });
    }
    if let Some(server) = server {
        server.end()?;
    }
    if counts.is_empty() {
        return Err(Error::usage("the texts hold no token"));
    }
    Ok(Ranking::new(model, texts, counts))
}

enum Content {
    Ids(Vec<u32>),
    Text(String),
}

fn is_ids(path: &Path) -> bool {
    path.extension().is_some_and(|end| end == "ids")
}

fn name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    // A line of a comment must stay one.
    name.replace(char::is_control, "?")
}

fn start(request: &Request<'_>, log: &Path, halt: &Halt) -> Result<Server> {
    let mut args: Vec<std::ffi::OsString> = vec!["-m".into(), request.model.into()];
    let flags = "-c 512 -np 1 -ngl 0 --no-warmup -fit off --ctx-checkpoints 0 --cache-ram 0";
    args.extend(flags.split(' ').map(Into::into));
    let launch = Launch {
        program: request.server,
        args,
        env: &BTreeMap::new(),
        log: log.into(),
        is_judged: false,
        start: Duration::from_secs(600),
        request: Duration::from_secs(600),
        stop: Duration::from_secs(5),
    };
    Server::start(&launch, halt)
}

fn tokenize(client: &Client, text: &str) -> Result<Vec<u32>> {
    let mut ids = Vec::new();
    for piece in pieces(text) {
        ids.extend(client.tokenize_piece(piece)?);
    }
    Ok(ids)
}

/// Cuts `text` into pieces of at most [`PIECE`] bytes, behind the end of a line where there is one. Empty texts have none.
fn pieces(mut text: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    while text.len() > PIECE {
        let mut at = PIECE;
        while !text.is_char_boundary(at) {
            at -= 1;
        }
        let at = text[..at].rfind('\n').map_or(at, |line| line + 1);
        let (piece, rest) = text.split_at(at);
        pieces.push(piece);
        text = rest;
    }
    if !text.is_empty() {
        pieces.push(text);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ranking(counts: &[(u32, u64)]) -> Ranking {
        let texts = vec![Counted {
            name: name(Path::new("of/some\nfolder/a.txt")),
            sha256: Digest::of(b"a"),
            tokens: 4,
        }];
        Ranking::new(Digest::of(b"m"), texts, counts.iter().copied().collect())
    }

    #[test]
    fn the_most_frequent_is_first_and_ties_go_by_id() {
        let ranking = ranking(&[(9, 2), (4, 7), (3, 2), (8, 1)]);
        let ids: Vec<u32> = ranking.tokens.iter().map(|(id, _)| *id).collect();
        assert_eq!(ids, [4, 3, 9, 8]);
        assert_eq!(ranking.total(), 12);
        assert_eq!(ranking.share(1), 7.0 / 12.0);
        assert_eq!(ranking.share(100), 1.0);
    }

    #[test]
    fn the_file_reads_back_as_the_ids_in_their_order() {
        let file = ranking(&[(9, 2), (4, 7)]).file();
        assert_eq!(parse_ids(file.as_bytes()).unwrap(), [4, 9]);
        assert!(
            file.contains(&format!("# model {}\n", Digest::of(b"m"))),
            "{file}"
        );
        assert!(file.contains(" a.txt (4 tokens)\n"), "{file}");
    }

    #[test]
    fn pieces_end_with_lines_and_are_the_text() {
        let long = "0123456789\n".repeat(60_000);
        let cut = pieces(&long);
        assert!(cut.len() == 3 && cut.iter().all(|piece| piece.ends_with('\n')));
        assert_eq!(cut.concat(), long);
        let one_line = "ü".repeat(300_000);
        let cut = pieces(&one_line);
        assert!(cut.iter().all(|piece| piece.len() <= PIECE));
        assert_eq!(cut.concat(), one_line);
        assert!(pieces("").is_empty());
    }

    #[test]
    fn names_stay_on_their_line() {
        assert_eq!(name(Path::new("x/a\nb")), "a?b");
    }
}
