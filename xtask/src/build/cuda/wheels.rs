//! A toolkit from pinned Python wheels, where none is installed.
//!
//! Compiler, headers and libraries are unpacked into a folder of the cache that all checkouts share;
//! nothing is installed, and no driver is needed. Each wheel is checked by its digest and kept, so that an
//! interrupted run goes on where it was; the folder is put in place with one rename, so that it is
//! complete or not there.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::build::lookup::Lookup;
use crate::build::provision;
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::model::{CudaTools, CudaWheel, Digest};
use crate::process;

/// Prefix of folders in which a toolkit is prepared.
const STAGING: &str = ".toolkit-";
/// What is fetched and unpacked, with room to spare.
const SPACE: u64 = 2 << 30;
/// Libraries that are linked by a name without a version.
const LINKED: [&str; 3] = ["cudart", "cublas", "cublasLt"];
/// Where the driver's library would be named, in header and folder.
const DRIVER_HEADER: &str = "include/cuda.h";
const STUB: &str = "lib/stubs/libcuda.so";

/// Where the pinned toolkit lies: named by the pins, so that other pins never find it.
pub fn folder(ctx: &Ctx, wanted: &CudaTools) -> PathBuf {
    let digest = Digest::of(requirements(&wanted.wheels).as_bytes());
    let name = format!("cuda-{}", digest.short());
    ctx.project.cache().join("tools").join(name)
}

/// The pins in the form that pip reads.
fn requirements(wheels: &[CudaWheel]) -> String {
    let mut text = String::new();
    for wheel in wheels {
        text.push_str(&format!("{}=={}", wheel.package, wheel.version));
        for digest in &wheel.sha256 {
            text.push_str(&format!(" --hash=sha256:{digest}"));
        }
        text.push('\n');
    }
    text
}

/// Brings the toolkit where it is not there yet, and returns its root. `cc` compiles what stands in
/// for the driver's library when programs are linked.
pub fn ensure(ctx: &Ctx, lookup: &dyn Lookup, wanted: &CudaTools, cc: &Path) -> Result<PathBuf> {
    let dir = folder(ctx, wanted);
    let root = dir.join(&wanted.prefix);
    if dir.is_dir() {
        return Ok(root);
    }
    let why = "a build for CUDA needs a toolkit, and none is installed";
    let refuse = |reason: &str| {
        Error::environment(format!("{why}, and {reason}"))
            .hint("name an installed one with CUDA_PATH")
    };
    if ctx.no_provision {
        return Err(refuse("--no-provision was given"));
    }
    if !cfg!(target_os = "linux") {
        return Err(refuse("wheels of it are pinned for Linux alone"));
    }
    let Some(python) = lookup.find("python3") else {
        return Err(refuse("there is no python3 to fetch one with"));
    };
    let parent = dir.parent().unwrap_or(&dir);
    fs_err::create_dir_all(parent)?;
    if lookup.free_space(parent).is_some_and(|free| free < SPACE) {
        return Err(Error::environment(format!(
            "{why}, and {} has no 2 GB left for one",
            parent.display()
        ))
        .hint("free some space, or name an installed one with CUDA_PATH"));
    }
    let _lock = crate::lock::file(ctx, &parent.join(".cuda-lock"))?;
    if dir.is_dir() {
        return Ok(root); // Another run was at it while we waited.
    }
    provision::clear_leftovers(parent, STAGING)?;
    let staging = tempfile::Builder::new()
        .prefix(STAGING)
        .tempdir_in(parent)?;
    let by_hand = "name an installed toolkit with CUDA_PATH";
    // What is missing offline is said before anything is asked of Python.
    let kept: Vec<Option<PathBuf>> = (wanted.wheels.iter())
        .map(|wheel| kept(ctx, wheel))
        .collect::<Result<_>>()?;
    if ctx.offline
        && let Some((_, wheel)) = (kept.iter().zip(&wanted.wheels)).find(|(kept, _)| kept.is_none())
    {
        return Err(refuse(&format!(
            "{} {} is not in the cache, and --offline was given",
            wheel.package, wheel.version
        ))
        .hint("or run it once without --offline: some 525 MB are fetched")
        .hint(format!(
            "or put the wheel into {}",
            place(ctx, wheel).display()
        )));
    }
    let python = provision::pip(ctx, lookup, &python, staging.path(), by_hand)?;
    ctx.sink.note(&format!(
        "{why}: unpacking a pinned one into {} (525 MB fetched once, 840 MB on disk)",
        dir.display()
    ));
    let task = ctx
        .sink
        .task("fetching CUDA", Some(wanted.wheels.len() as u64));
    let mut files = Vec::new();
    for (at, (wheel, kept)) in wanted.wheels.iter().zip(kept).enumerate() {
        task.progress(at as u64, wanted.wheels.len() as u64);
        task.message(&wheel.package);
        files.push(match kept {
            Some(file) => file,
            None => fetch(ctx, &python, wheel, staging.path())
                .context(|| format!("fetching {} {}", wheel.package, wheel.version))?,
        });
    }
    task.message("unpacking");
    let tree = staging.path().join("tree");
    unpack(ctx, &python, &files, &tree)?;
    complete(ctx, &tree.join(&wanted.prefix), cc)?;
    let nvcc = tree.join(&wanted.prefix).join("bin/nvcc");
    if lookup.output(&nvcc, &["--version"]).is_none() {
        return Err(Error::environment(
            "the nvcc of the pinned wheels does not run on this machine",
        )
        .hint(by_hand));
    }
    fs_err::rename(&tree, &dir).context(|| format!("putting {} in place", dir.display()))?;
    task.finish(&ctx.project.show(&dir));
    Ok(root)
}

/// Where wheels of one package are kept: that of this platform has one of the digests.
fn place(ctx: &Ctx, wheel: &CudaWheel) -> PathBuf {
    let downloads = ctx.project.cache().join("downloads");
    let mut names = wheel.sha256.iter().map(ToString::to_string);
    // The first is that of x86-64, the second that of ARM; see the registry.
    let name = match cfg!(target_arch = "aarch64") {
        true => names.next_back(),
        false => names.next(),
    };
    downloads.join(name.unwrap_or_default())
}

/// The wheel where it is kept. What lies there with another digest is told, and is not used.
fn kept(ctx: &Ctx, wheel: &CudaWheel) -> Result<Option<PathBuf>> {
    for entry in (std::fs::read_dir(place(ctx, wheel)).into_iter().flatten()).flatten() {
        let file = entry.path();
        if !file.is_file() {
            continue;
        }
        let found = Digest::of_file(&file)?;
        if wheel.sha256.contains(&found) {
            return Ok(Some(file));
        }
        ctx.sink.warn(&format!(
            "{} has sha256 {found}, which is not pinned: it is not used",
            file.display()
        ));
    }
    Ok(None)
}

/// Lets pip fetch one wheel, checks it, and keeps it.
fn fetch(ctx: &Ctx, python: &Path, wheel: &CudaWheel, staging: &Path) -> Result<PathBuf> {
    let list = staging.join("pins.txt");
    fs_err::write(&list, requirements(std::slice::from_ref(wheel)))?;
    let to = staging.join(&wheel.package);
    let mut command = process::tied(python, process::Signal::Term);
    command
        .args(["-m", "pip", "download", "--quiet", "--no-input"])
        .args(["--disable-pip-version-check", "--no-deps"])
        // The wheel is kept here: a second copy of it is of no use.
        .args(["--no-cache-dir", "--only-binary", ":all:"])
        .arg("--require-hashes")
        .arg("--dest")
        .arg(&to)
        .arg("-r")
        .arg(&list);
    let done = process::capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(refusal(wheel, &done.output));
    }
    let mut entries = fs_err::read_dir(&to)?;
    let Some(entry) = entries.next().transpose()? else {
        return Err(Error::environment("pip fetched nothing and said nothing"));
    };
    let found = Digest::of_file(&entry.path())?;
    if !wheel.sha256.contains(&found) {
        return Err(wrong_digest(&found));
    }
    let place = ctx
        .project
        .cache()
        .join("downloads")
        .join(found.to_string());
    fs_err::create_dir_all(&place)?;
    let target = place.join(entry.file_name());
    fs_err::rename(entry.path(), &target)?;
    Ok(target)
}

fn wrong_digest(found: &dyn std::fmt::Display) -> Error {
    Error::environment(format!(
        "what was fetched has sha256 {found}, which is not pinned: it is not used"
    ))
    .hint("ask again later; if it stays so, the index serves another file than the one that was pinned")
}

/// The error of a pip that failed.
fn refusal(wheel: &CudaWheel, output: &str) -> Error {
    // pip names the digest that it found in its own words, in the last lines.
    let got = output
        .lines()
        .find_map(|line| line.trim().strip_prefix("Got"))
        .map(str::trim);
    match got {
        Some(found) => wrong_digest(&found),
        None => Error::environment(format!(
            "pip could not fetch it: {}",
            process::last_lines(output, 3)
        ))
        .hint("run the same command again: what was fetched is kept")
        .hint(format!(
            "or name an installed toolkit with CUDA_PATH; {} is then not needed",
            wheel.package
        )),
    }
}

/// Lets pip unpack the files into `tree`.
fn unpack(ctx: &Ctx, python: &Path, files: &[PathBuf], tree: &Path) -> Result<()> {
    let mut command = process::tied(python, process::Signal::Term);
    command
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-input",
            "--no-index",
        ])
        .args(["--disable-pip-version-check", "--no-deps", "--no-compile"])
        .arg("--target")
        .arg(tree)
        .args(files);
    let done = process::capture(ctx, &mut command)?;
    if done.status.success() {
        return Ok(());
    }
    Err(Error::environment(format!(
        "pip could not unpack the toolkit: {}",
        process::last_lines(&done.output, 3)
    ))
    .hint("name an installed one with CUDA_PATH"))
}

/// Adds what an installer of the toolkit adds: names without versions, a `lib64`, and a library that
/// stands in for the driver's.
fn complete(ctx: &Ctx, root: &Path, cc: &Path) -> Result<()> {
    use fs_err::os::unix::fs::symlink;
    symlink("lib", root.join("lib64"))?;
    let mut names: Vec<String> = Vec::new();
    for entry in fs_err::read_dir(root.join("lib"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    for library in LINKED {
        let start = format!("lib{library}.so.");
        let Some(name) = names.iter().find(|name| name.starts_with(&start)) else {
            return Err(Error::config(format!("the pinned wheels hold no {start}*"))
                .hint("mend the pins in [[cuda.wheel]] of registry/toolchains.toml"));
        };
        symlink(name, root.join(format!("lib/lib{library}.so")))?;
    }
    let header = fs_err::read_to_string(root.join(DRIVER_HEADER))?;
    let stub = root.join(STUB);
    if let Some(folder) = stub.parent() {
        fs_err::create_dir_all(folder)?;
    }
    let source = stub.with_extension("c");
    fs_err::write(&source, stub_source(&header))?;
    let mut command = process::tied(cc, process::Signal::Term);
    command
        .args(["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(&stub)
        .arg(&source);
    let done = process::capture(ctx, &mut command)?;
    if !done.status.success() {
        return Err(Error::environment(format!(
            "the compiler could not make a stand-in for the driver's library: {}",
            process::last_lines(&done.output, 3)
        )));
    }
    fs_err::remove_file(&source)?;
    // A compiler cache knows a compiler by its time stamp, and pip's is the moment of unpacking: the
    // same toolkit, unpacked anew, would find nothing that it compiled before.
    let fixed = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let nvcc = root.join("bin/nvcc");
    fs_err::File::open(&nvcc)?
        .set_modified(fixed)
        .context(|| format!("marking {}", nvcc.display()))
}

/// A source that defines every function that the driver's header names. Each returns what NVIDIA's own
/// stand-in returns: "this is a stub" (34). It is linked with, and never found when a program runs: it
/// is called `libcuda.so`, and programs look for `libcuda.so.1`.
fn stub_source(header: &str) -> String {
    let words = header.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let is_function = |word: &&str| {
        word.strip_prefix("cu")
            .and_then(|rest| rest.chars().next())
            .is_some_and(|first| first.is_ascii_uppercase())
    };
    let names: std::collections::BTreeSet<&str> = words.filter(is_function).collect();
    let lines = names
        .iter()
        .map(|name| format!("int {name}(void) {{ return 34; }}\n"));
    lines.collect()
}

#[cfg(test)]
mod tests;
