//! The kernels of ggml-ext beside ggml's own ops, through a C program that is compiled against the
//! patched build and loads its libraries.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;

use serde::Serialize;

use crate::build::{self, Build};
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::process::{capture, describe, last_lines};
use crate::stats::{self, bootstrap};

/// The program's source.
const SOURCE: &str = include_str!("../../probe/kernels.c");

/// What to measure.
#[derive(Clone, Debug)]
pub struct KernelOptions {
    /// Figures of each kind.
    pub rounds: usize,
    /// The k of `top_k`.
    pub k: usize,
    /// Lengths of a row.
    pub vocabularies: Vec<usize>,
    /// Numbers of threads.
    pub threads: Vec<usize>,
}

/// What was measured.
#[derive(Clone, Debug, Serialize)]
pub struct KernelReport {
    /// The base of the build.
    pub base: String,
    /// The active kernels and their instruction set, as the build's log says it.
    pub active: String,
    /// Processors of this machine.
    pub processors: usize,
    /// One op, length, number of threads, order of the values and place of the row each.
    pub rows: Vec<KernelRow>,
}

/// One line of the table. Times are medians in nanoseconds, of one graph with one op.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct KernelRow {
    /// Name of the kernel.
    pub op: String,
    /// Length of the row.
    pub vocabulary: usize,
    /// Threads of the graph.
    pub threads: usize,
    /// `random`, or `ascending`: the worst order for a search that keeps the best so far.
    pub order: String,
    /// Where the row lies: `cache` after a call before, `memory` after the caches were filled
    /// with something else.
    pub place: String,
    /// ggml's own op.
    pub ggml: f64,
    /// The kernel.
    pub kernel: f64,
    /// Reading the row and summing it up: what memory or cache allow.
    pub read: f64,
    /// How many times as fast the kernel is: trimmed mean of the rounds, and ends of its interval.
    pub faster: (f64, f64, f64),
}

impl KernelRow {
    /// Bytes that the kernel reads in a second, in GB/s, and those of plain reading.
    pub fn speeds(&self) -> (f64, f64) {
        let bytes = 4.0 * self.vocabulary as f64;
        (bytes / self.kernel, bytes / self.read)
    }
}

/// Measures. Errors: a finding where the patched build is not there or not as recorded, and where a
/// kernel gives other values than ggml's own op.
pub fn kernels(ctx: &Ctx, base: &str, options: &KernelOptions) -> Result<KernelReport> {
    let build = Build::find(ctx, base, crate::model::Flavour::Patched, "cpu")?;
    let Some(build) = build else {
        return Err(
            Error::finding(format!("there is no patched build of {base}"))
                .hint("cargo xtask build --patched"),
        );
    };
    if let Some(first) = build::check_artifacts(&build.dir, &build.manifest.artifacts)?.first() {
        return Err(Error::finding(format!("{}/{first}", build.dir.display()))
            .hint("cargo xtask build --patched"));
    }
    let scratch = ctx.project.target().join("bench");
    fs_err::create_dir_all(&scratch)?;
    let dir = tempfile::Builder::new()
        .prefix("kernels-")
        .tempdir_in(&scratch)?;
    let program = dir.path().join("kernels");
    compile(ctx, &build, dir.path(), &program)?;

    let list = |numbers: &[usize]| -> String {
        let texts: Vec<String> = numbers.iter().map(usize::to_string).collect();
        texts.join(",")
    };
    let mut command = Command::new(&program);
    command
        .args([options.rounds.to_string(), options.k.to_string()])
        .args([list(&options.vocabularies), list(&options.threads)]);
    for (name, _) in std::env::vars_os() {
        if name
            .to_string_lossy()
            .starts_with(crate::model::SWITCH_PREFIX)
        {
            command.env_remove(name);
        }
    }
    if let Some(isa) = std::env::var_os("OPENCOTI_EXT_ISA") {
        command.env("OPENCOTI_EXT_ISA", isa);
    }
    let done = capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(Error::finding(format!(
            "the benchmark ended {}\n{}",
            describe(done.status),
            last_lines(&done.output, 12)
        ))
        .hint("cargo test -p ggml-ext says which kernel is wrong"));
    }
    let (active, rows) = read(&done.output)?;
    Ok(KernelReport {
        base: base.to_owned(),
        active,
        processors: std::thread::available_parallelism().map_or(1, |count| count.get()),
        rows,
    })
}

fn compile(ctx: &Ctx, build: &Build, dir: &Path, program: &Path) -> Result<()> {
    let Some(compiler) = build.manifest.compilers.get("C") else {
        return Err(Error::finding("the build's manifest names no C compiler")
            .hint("cargo xtask build --patched"));
    };
    let source = dir.join("kernels.c");
    fs_err::write(&source, SOURCE)?;
    let bin = build.dir.join("out/bin");
    let mut rpath = OsString::from("-Wl,-rpath,");
    rpath.push(&bin);
    let mut command = Command::new(&compiler.path);
    command
        // As fast as can be: what it reads is the measure of the others.
        .args([
            "-std=gnu11",
            "-O3",
            "-march=native",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-I",
        ])
        .arg(build.dir.join("src/ggml/include"))
        .arg(&source)
        .arg("-o")
        .arg(program)
        .arg("-L")
        .arg(&bin)
        .args(["-lggml-cpu", "-lggml-base"])
        .arg(rpath);
    let done = capture(ctx, &mut command)?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::environment(format!(
        "{} does not compile the benchmark: {}",
        compiler.path,
        last_lines(&done.output, 12)
    )))
}

/// What the program says, as medians.
fn read(text: &str) -> Result<(String, Vec<KernelRow>)> {
    let mut active = None;
    let mut order = Vec::new();
    let mut figures: BTreeMap<Vec<&str>, BTreeMap<&str, Vec<f64>>> = BTreeMap::new();
    for line in text.lines() {
        if let Some(said) = line.strip_prefix("active ") {
            active = Some(said.to_owned());
        } else if let Some(said) = line.strip_prefix("sample ") {
            let words: Vec<&str> = said.split(' ').collect();
            let broken = || Error::internal(format!("the benchmark says `{line}`"));
            let [_, _, _, _, _, what, time] = *words.as_slice() else {
                return Err(broken());
            };
            let time: f64 = time.parse().map_err(|_| broken())?;
            let key = words[..5].to_vec();
            if !figures.contains_key(&key) {
                order.push(key.clone());
            }
            let of_key = figures.entry(key).or_default();
            of_key.entry(what).or_default().push(time.max(1.0));
        }
    }
    let Some(active) = active else {
        return Err(Error::internal(
            "the benchmark does not say which kernels are active",
        ));
    };
    let rows = order.iter().map(|key| row(key, &figures[key]));
    Ok((active, rows.collect::<Result<_>>()?))
}

fn row(key: &[&str], figures: &BTreeMap<&str, Vec<f64>>) -> Result<KernelRow> {
    let number = |text: &str| {
        let parsed = text.parse();
        parsed.map_err(|_| Error::internal(format!("the benchmark says `{text}`")))
    };
    let of = |what: &str| figures.get(what).map_or(&[][..], Vec::as_slice);
    let median = |what: &str| {
        let middle = stats::median(of(what));
        middle.ok_or_else(|| Error::internal(format!("the benchmark says nothing of {what}")))
    };
    let logs: Vec<f64> = (of("ggml").iter().zip(of("kernel")))
        .map(|(ggml, kernel)| (ggml / kernel).ln())
        .collect();
    let mean = bootstrap::trimmed_mean(&logs).exp();
    let ends = bootstrap::interval(&logs, stats::LEVEL, 1);
    Ok::<_, Error>(KernelRow {
        op: key[0].to_owned(),
        vocabulary: number(key[1])?,
        threads: number(key[2])?,
        order: key[3].to_owned(),
        place: key[4].to_owned(),
        ggml: median("ggml")?,
        kernel: median("kernel")?,
        read: median("read")?,
        faster: ends.map_or((mean, 0.0, f64::INFINITY), |ends| {
            (ends.value.exp(), ends.low.exp(), ends.high.exp())
        }),
    })
    .context(|| key.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(times: &[(u64, u64, u64)]) -> String {
        let mut text = String::from("noise\n");
        for (ggml, kernel, read) in times {
            for (what, time) in [("ggml", ggml), ("kernel", kernel), ("read", read)] {
                text += &format!("sample top_k 1000 2 random cache {what} {time}\n");
            }
        }
        text + "active kernels of ggml-ext 1 (avx2): top_k\n"
    }

    #[test]
    fn figures_become_medians_and_a_ratio() {
        let times = [
            (400, 100, 50),
            (600, 100, 60),
            (500, 100, 70),
            (500, 100, 50),
            (500, 100, 80),
        ];
        let (active, rows) = read(&said(&times)).unwrap();
        assert!(active.ends_with("(avx2): top_k"));
        let [row] = rows.as_slice() else {
            panic!("{rows:?}");
        };
        assert_eq!((row.ggml, row.kernel, row.read), (500.0, 100.0, 60.0));
        assert_eq!((row.vocabulary, row.threads), (1000, 2));
        let (middle, low, high) = row.faster;
        assert!(
            (4.9..5.1).contains(&middle) && low < middle && middle < high,
            "{row:?}"
        );
        let (ours, most) = row.speeds();
        assert!((ours - 40.0).abs() < 1e-9 && (most - 66.666).abs() < 1e-2);
    }

    #[test]
    fn what_is_not_understood_is_no_figure() {
        for (text, word) in [
            ("", "active"),
            ("sample top_k 1000 2 random cache ggml\n", "sample"),
            ("sample top_k x 2 random cache ggml 5\nactive a\n", "`x`"),
            (
                "sample top_k 10 2 random cache ggml 5\nactive a\n",
                "nothing of kernel",
            ),
            (
                "sample top_k 10 2 random cache ggml fast\nactive a\n",
                "fast",
            ),
        ] {
            let error = format!("{:?}", read(text).unwrap_err());
            assert!(error.contains(word), "{error}");
        }
    }
}
