//! Measurements for `docs/evaluations/draft-vocab.md`. No test: nothing is asserted but that the runs were what they say.
//! They take minutes and are left out unless asked for:
//!
//! ```sh
//! cargo test -p xtask --test measure_vocab -- --ignored --nocapture --test-threads 1
//! ```
//!
//! The patched build must be there; the model, of 130 MB, is made below `target/measure/`, and so are the rankings.
//! `sizes` writes `docs/images/draft-vocab.svg`. `MEASURE_ROUNDS` is another number of rounds than 3.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use llama_patchset::fixture::{self, gguf, zipf};
use llama_patchset::gate::client::{Sampling, Timed};
use llama_patchset::gate::server::{Launch, Server};
use llama_patchset::gate::session::{Halt, Prompt};

const SEED: u64 = 7;
const VOCABULARY: usize = 248_320;
const FUSED: [&str; 3] = [
    "OPENCOTI_NEXTN_REUSE",
    "OPENCOTI_NEXTN_KV_ONLY",
    "OPENCOTI_MTP_FUSED_NEXTN",
];

fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap().into()
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// The model, and beside it the tokens by their rank: `zipf.ids`, and the other way round: `zipf-wrong.ids`.
fn model() -> PathBuf {
    let path = root().join("target/measure/zipf.gguf");
    if !path.is_file() {
        fs_err::create_dir_all(path.parent().unwrap()).unwrap();
        let made = fixture::generate("zipf", SEED, &BTreeMap::new()).unwrap();
        let new = path.with_extension("new");
        let file = std::io::BufWriter::new(fs_err::File::create(&new).unwrap());
        gguf::write(&made, file).unwrap();
        fs_err::rename(new, &path).unwrap();
    }
    let mut order = zipf::ranking(SEED, VOCABULARY);
    for name in ["zipf.ids", "zipf-wrong.ids"] {
        let lines: String = order.iter().map(|id| format!("{id}\n")).collect();
        fs_err::write(path.with_file_name(name), lines).unwrap();
        order.reverse();
    }
    path
}

/// A way to draft.
#[derive(Clone, Default)]
struct Way {
    /// File of the ranking below `target/measure/`, and how many of its tokens; none: over all.
    part: Option<(&'static str, usize)>,
    fixed: bool,
    fused: bool,
    /// Where drafted steps are written.
    trace: Option<PathBuf>,
    /// Longest draft; 0: no drafter.
    n_max: u32,
}

fn server(way: &Way, log: &Path) -> Server {
    let model = model();
    let mut args = format!(
        "-c 8192 -np 1 -t 1 -tb 1 --no-cont-batching -fit off --no-warmup --ctx-checkpoints 0 --cache-ram 0 -m {}",
        model.display()
    );
    if way.n_max > 0 {
        let _ = write!(
            args,
            " --spec-type draft-mtp --spec-draft-n-max {}",
            way.n_max
        );
    }
    let mut env = BTreeMap::new();
    let mut set = |name: &str, value: &str| env.insert(name.to_owned(), value.to_owned());
    set("OPENCOTI_SPEC_COUNTERS", "1");
    if let Some((name, first)) = way.part {
        let file = model.with_file_name(name);
        set(
            "OPENCOTI_DRAFT_VOCAB",
            &format!("{}:{first}", file.display()),
        );
    }
    if way.fixed {
        set("OPENCOTI_DRAFT_VOCAB_FIXED", "1");
    }
    if way.fused {
        for name in FUSED {
            set(name, "1");
        }
    }
    if let Some(trace) = &way.trace {
        set("OPENCOTI_SPEC_TRACE", &trace.display().to_string());
    }
    let launch = Launch {
        program: &root().join("target/llama/llama-0.5.0/patched-cpu/out/bin/llama-server"),
        args: args.split_whitespace().map(Into::into).collect(),
        env: &env,
        log: log.into(),
        is_judged: false,
        start: Duration::from_secs(300),
        request: Duration::from_secs(1200),
        stop: Duration::from_secs(5),
    };
    Server::start(&launch, &Halt::default()).unwrap()
}

fn ask(server: &mut Server, ids: &[u32], n_predict: usize) -> Timed {
    let prompt = Prompt {
        name: "measure".to_owned(),
        ids: ids.to_vec(),
    };
    let sampling = Sampling { n_predict, seed: 1 };
    let asked = server.ask(&Halt::default(), |client| client.measure(&prompt, sampling));
    asked.unwrap()
}

/// The beginnings of some texts that the model itself wrote: 24 tokens each.
fn prompts(count: u32) -> Vec<Vec<u32>> {
    let dir = tempfile::tempdir().unwrap();
    let mut server = server(&Way::default(), &dir.path().join("log"));
    let mut state = 12345u32;
    let written = (0..count).map(|_| {
        let seed = (0..4).map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            4 + (state >> 8) % 248_000
        });
        let seed: Vec<u32> = seed.collect();
        let tokens = ask(&mut server, &seed, 64).answer.tokens;
        tokens[40..].to_vec()
    });
    let written = written.collect();
    server.end().unwrap();
    written
}

/// What the law says of the text: distinct tokens, and the share of those beyond some ranks.
#[test]
#[ignore = "a measurement"]
fn text() {
    let dir = tempfile::tempdir().unwrap();
    let mut server = server(&Way::default(), &dir.path().join("log"));
    let mut rank = vec![usize::MAX; VOCABULARY];
    model();
    for (at, id) in zipf::ranking(SEED, VOCABULARY).into_iter().enumerate() {
        rank[id] = at;
    }
    let mut seen = BTreeMap::new();
    let mut all = 0;
    for prompt in prompts(4) {
        let tokens = ask(&mut server, &prompt, 600).answer.tokens;
        for token in &tokens {
            *seen.entry(*token).or_insert(0) += 1;
        }
        all += tokens.len();
    }
    server.end().unwrap();
    let beyond = |first: usize| {
        let outside = seen.iter().filter(|(id, _)| rank[**id as usize] >= first);
        outside.map(|(_, n)| *n as f64).sum::<f64>() / all as f64
    };
    let mut counts: Vec<i32> = seen.values().copied().collect();
    counts.sort_by_key(|n| -n);
    say(&format!(
        "{all} tokens, {} distinct, most frequent {:?}; beyond rank 1024 {:.4}, 4096 {:.4}, 8192 {:.4}, 16384 {:.4}, 32768 {:.4}, 65536 {:.4}",
        seen.len(),
        &counts[..10],
        beyond(1024),
        beyond(4096),
        beyond(8192),
        beyond(16384),
        beyond(32768),
        beyond(65536)
    ));
}

/// Of one server over all rounds.
#[derive(Default)]
struct Measured {
    /// Microseconds for a drafted token, and tokens per second, by round.
    draft: Vec<f64>,
    decode: Vec<f64>,
    /// Of the first round: a server that has just started.
    drafted: u64,
    accepted: u64,
}

const SIZES: [usize; 6] = [131_072, 65_536, 32_768, 16_384, 8_192, 4_096];

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// Hot-set size against time and acceptance, in the loop and in one launch.
#[test]
#[ignore = "a measurement"]
fn sizes() {
    let rounds = std::env::var("MEASURE_ROUNDS").map_or(3, |text| text.parse().unwrap());
    let prompts = prompts(4);
    let dir = tempfile::tempdir().unwrap();
    let parts: Vec<Option<usize>> = [None].into_iter().chain(SIZES.map(Some)).collect();
    let mut lines = Vec::new();
    for fused in [false, true] {
        let mut servers: Vec<Server> = (parts.iter().enumerate())
            .map(|(at, first)| {
                let way = Way {
                    part: first.map(|first| ("zipf.ids", first)),
                    fused,
                    n_max: 3,
                    ..Way::default()
                };
                server(&way, &dir.path().join(format!("{fused}-{at}")))
            })
            .collect();
        let mut measured: Vec<Measured> = parts.iter().map(|_| Measured::default()).collect();
        let mut texts: Vec<Vec<u32>> = Vec::new();
        for round in 0..rounds {
            for at in 0..parts.len() {
                let at = (at + round) % parts.len();
                let mine = &mut measured[at];
                let (mut us, mut drafted, mut accepted, mut speed) = (0, 0, 0, Vec::new());
                for (place, prompt) in prompts.iter().enumerate() {
                    let timed = ask(&mut servers[at], prompt, 250);
                    match texts.get(place) {
                        Some(text) => assert!(*text == timed.answer.tokens, "another text"),
                        None => texts.push(timed.answer.tokens.clone()),
                    }
                    us += timed.answer.counters.as_ref().unwrap()["us_draft"];
                    drafted += timed.answer.drafted;
                    accepted += timed.answer.accepted;
                    speed.push(timed.decode.unwrap());
                }
                if round == 0 {
                    (mine.drafted, mine.accepted) = (drafted, accepted);
                }
                mine.draft.push(us as f64 / drafted as f64);
                mine.decode.push(median(speed));
            }
        }
        for server in servers {
            server.end().unwrap();
        }
        say(&format!(
            "\n{}\n\n| tokens | us for a drafted token | ratio | accepted | tokens/s | ratio |\n| --- | --- | --- | --- | --- | --- |",
            if fused { "one launch" } else { "loop" }
        ));
        let mut points = Vec::new();
        for (first, mine) in parts.iter().zip(&measured) {
            let ratio = |of: &dyn Fn(&Measured) -> &Vec<f64>| {
                let pairs = of(mine).iter().zip(of(&measured[0]));
                median(pairs.map(|(a, b)| a / b).collect())
            };
            let accepted = mine.accepted as f64 / mine.drafted as f64;
            let time = ratio(&|m| &m.draft);
            say(&format!(
                "| {} | {:.0} | {time:.3} | {accepted:.4} | {:.1} | {:.3} |",
                first.unwrap_or(VOCABULARY),
                median(mine.draft.clone()),
                median(mine.decode.clone()),
                ratio(&|m| &m.decode)
            ));
            points.push((first.unwrap_or(VOCABULARY), time, accepted));
        }
        lines.push((if fused { "one launch" } else { "loop" }, points));
    }
    fs_err::write(root().join("docs/images/draft-vocab.svg"), plot(&lines)).unwrap();
}

/// Accepted and drafted tokens of a trace by windows of text. Every draft but the last says how much of it was
/// accepted by where the next one begins.
fn windows(trace: &Path, begin: u64, width: u64) -> Vec<(u64, u64)> {
    let text = fs_err::read_to_string(trace).unwrap();
    let mut drafts: Vec<(u64, u64)> = Vec::new();
    for line in text.lines() {
        let words: Vec<u64> = (line.split(' ').take(4))
            .map(|word| word.parse().unwrap())
            .collect();
        match words[2] {
            0 => drafts.push((words[3], 1)),
            _ => drafts.last_mut().unwrap().1 += 1,
        }
    }
    let mut found: Vec<(u64, u64)> = Vec::new();
    for two in drafts.windows(2) {
        let ((at, length), (next, _)) = (two[0], two[1]);
        let window = ((at - begin) / width) as usize;
        found.resize(found.len().max(window + 1), (0, 0));
        found[window].0 += length;
        found[window].1 += next - at - 1;
    }
    found
}

/// From a ranking that has nothing of the text: how soon drafts are as good as over all tokens.
#[test]
#[ignore = "a measurement"]
fn recovery() {
    let dir = tempfile::tempdir().unwrap();
    let length = 1500;
    let prompts = prompts(2);
    let wrong = Some(("zipf-wrong.ids", 32_768));
    let ways = [
        ("all", None, false),
        ("good", Some(("zipf.ids", 32_768)), false),
        ("good, fixed", Some(("zipf.ids", 32_768)), true),
        ("wrong", wrong, false),
        ("wrong, fixed", wrong, true),
    ];
    for (name, part, fixed) in ways {
        let mut all: Vec<(u64, u64)> = Vec::new();
        let (mut missing, mut promoted) = (0, 0);
        for (at, prompt) in prompts.iter().enumerate() {
            let trace = dir.path().join(format!("{name}-{at}.trace"));
            let way = Way {
                part,
                fixed,
                fused: true,
                trace: Some(trace.clone()),
                n_max: 3,
            };
            let mut server = server(&way, &dir.path().join("log"));
            let answer = ask(&mut server, prompt, length).answer;
            server.end().unwrap();
            let count = |name: &str| answer.counters.as_ref().unwrap().get(name).copied();
            missing += count("vocab_missing").unwrap_or(0);
            promoted += count("vocab_promoted").unwrap_or(0);
            for (at, (drafted, accepted)) in windows(&trace, prompt.len() as u64, 250)
                .into_iter()
                .enumerate()
            {
                all.resize(all.len().max(at + 1), (0, 0));
                all[at].0 += drafted;
                all[at].1 += accepted;
            }
        }
        let shares = all
            .iter()
            .map(|(d, a)| format!("{:.3}", *a as f64 / *d as f64));
        let behind = all
            .iter()
            .skip(2)
            .fold((0, 0), |sum, w| (sum.0 + w.0, sum.1 + w.1));
        say(&format!(
            "| {name} | {} | {:.4} | {missing} | {promoted} |",
            shares.collect::<Vec<_>>().join(" | "),
            behind.1 as f64 / behind.0 as f64
        ));
    }
}

/// Tokens in the part, time for a drafted token, share that is accepted.
type Point = (usize, f64, f64);

/// Time and acceptance over the size of the part, one line for each way.
fn plot(lines: &[(&str, Vec<Point>)]) -> String {
    const WIDE: f64 = 340.0;
    const HIGH: f64 = 220.0;
    let x = |size: usize| {
        let (least, most) = (4096f64.log2(), (VOCABULARY as f64).log2());
        60.0 + WIDE * ((size as f64).log2() - least) / (most - least)
    };
    let y = |value: f64| 30.0 + HIGH * (1.0 - value);
    let mut svg = String::from(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 310\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"900\" height=\"310\" fill=\"#ffffff\"/>\n",
    );
    for (panel, title) in [
        "time for a drafted token, whole head = 1",
        "share of drafted tokens that are accepted",
    ]
    .into_iter()
    .enumerate()
    {
        let left = 440.0 * panel as f64;
        let _ = writeln!(svg, "<g transform=\"translate({left} 0)\">");
        let _ = writeln!(svg, "<text x=\"60\" y=\"18\" fill=\"#222\">{title}</text>");
        for tick in 0..=4 {
            let value = f64::from(tick) / 4.0;
            let _ = writeln!(
                svg,
                "<line x1=\"60\" x2=\"{}\" y1=\"{y:.1}\" y2=\"{y:.1}\" stroke=\"#ddd\"/><text x=\"52\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#222\">{value:.2}</text>",
                60.0 + WIDE,
                y(value) + 4.0,
                y = y(value)
            );
        }
        for size in SIZES.into_iter().chain([VOCABULARY]) {
            let label = format!("{}k", (size + 512) / 1024);
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"270\" text-anchor=\"middle\" fill=\"#222\">{label}</text>",
                x(size)
            );
        }
        let _ = writeln!(
            svg,
            "<text x=\"{}\" y=\"292\" text-anchor=\"middle\" fill=\"#222\">tokens in the part</text>",
            60.0 + WIDE / 2.0
        );
        for ((name, points), (colour, dash)) in
            lines.iter().zip([("#1f6feb", "none"), ("#d1242f", "6 3")])
        {
            let place = |(size, time, accepted): &Point| {
                let value = if panel == 0 { *time } else { *accepted };
                format!("{:.1},{:.1}", x(*size), y(value))
            };
            let way: Vec<String> = points.iter().map(place).collect();
            let _ = writeln!(
                svg,
                "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"><title>{name}</title></polyline>",
                way.join(" ")
            );
        }
        for (at, ((name, _), (colour, dash))) in (lines.iter())
            .zip([("#1f6feb", "none"), ("#d1242f", "6 3")])
            .enumerate()
        {
            let at = 44.0 + 16.0 * at as f64;
            let _ = writeln!(
                svg,
                "<line x1=\"70\" x2=\"100\" y1=\"{at}\" y2=\"{at}\" stroke=\"{colour}\" stroke-width=\"2\" stroke-dasharray=\"{dash}\"/><text x=\"106\" y=\"{}\" fill=\"#222\">{name}</text>",
                at + 4.0
            );
        }
        svg.push_str("</g>\n");
    }
    svg.push_str("</svg>\n");
    svg
}
