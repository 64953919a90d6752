//! For which processor a build is that is for the one that it was made on.

use std::collections::BTreeSet;
use std::path::Path;

use crate::build::Build;
use crate::build::configure::{self, Request};
use crate::build::lookup::Lookup;
use crate::error::{Error, Result};
use crate::model::Digest;

/// Where Linux tells of its processors.
const CPUINFO: &str = "/proc/cpuinfo";

/// What the C compiler at `cc` makes of `-march=native`: the processor as far as generated code
/// depends on it. Where it cannot tell, what the system says of the processor; `None` where that says nothing.
pub fn known(lookup: &dyn Lookup, cc: &Path) -> Option<Digest> {
    let args = ["-march=native", "-###", "-E", "-x", "c", "/dev/null"];
    let text = lookup.output(cc, &args).unwrap_or_default();
    // The line that names the flags; others hold paths.
    let line = text
        .lines()
        .find(|line| {
            line.contains("-march=") && line.contains("-quiet") || line.contains("-target-cpu")
        })
        .unwrap_or_default();
    // clang tells the current folder, too.
    let words = line.split_whitespace().filter(|word| !word.contains('/'));
    let words: Vec<&str> = words.collect();
    if !words.is_empty() {
        return Some(Digest::of_parts(words.into_iter().map(str::as_bytes)));
    }
    let told = lookup.text(Path::new(CPUINFO))?;
    let lines: BTreeSet<&str> = told.lines().filter(|line| is_of_the_kind(line)).collect();
    (!lines.is_empty()).then(|| Digest::of_parts(lines.into_iter().map(str::as_bytes)))
}

/// As [`known`], with [`unknown`] where nobody can tell.
pub fn here(lookup: &dyn Lookup, cc: &Path) -> Digest {
    known(lookup, cc).unwrap_or_else(unknown)
}

/// What stands for a processor of which nothing is known: equal to no other one.
pub fn unknown() -> Digest {
    Digest::of_parts(std::iter::empty())
}

/// Whether a line tells what a processor can, and not how fast it runs or which one it is.
fn is_of_the_kind(line: &str) -> bool {
    let name = line.split(':').next().unwrap_or_default().trim();
    ["flags", "Features", "model name", "cpu", "isa", "CPU part"].contains(&name)
}

/// Fails where `build` is for the processor that it was made on and that is not the one of this
/// machine, as the compiler that made it tells. Gates compare a build with one of the same
/// processor, and hosts are asked for the features of this one.
pub fn check(lookup: &dyn Lookup, build: &Build) -> Result<()> {
    let manifest = &build.manifest;
    if !manifest.is_native() {
        return Ok(());
    }
    let asked =
        || -> Option<Request> { crate::model::read_json(&build.dir.join(configure::FILE)).ok() };
    // A manifest of before it was recorded does not say it.
    let recorded = manifest.surroundings.processor;
    let recorded = recorded.or_else(|| Some(asked()?.host));
    let recorded = recorded.filter(|digest| *digest != unknown());
    let compiler = manifest.compilers.get("C");
    let found = compiler.and_then(|compiler| known(lookup, Path::new(&compiler.path)));
    if recorded.is_some() && recorded == found {
        return Ok(());
    }
    let show = |digest: Option<Digest>| digest.map_or("unknown".to_owned(), |one| one.short());
    Err(Error::finding(format!(
        "the build {} is for the processor that it was made on ({}), which is not what its compiler \
         makes of this one ({}): another processor, or a compiler that was replaced",
        manifest.name(),
        show(recorded),
        show(found)
    ))
    .hint(format!("make it here: {}", manifest.command())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::manifest::tests::build;

    fn machine(processor: &str) -> Fake {
        let text = format!("Target: x\n cc1 -E -quiet -march={processor} -mno-sse4a\n");
        Fake::complete().with("cc", &text)
    }

    #[test]
    fn a_build_of_another_processor_is_told_apart() {
        let dir = tempfile::tempdir().unwrap();
        let mut build = build(dir.path());
        let cc = Path::new("/usr/bin/cc");
        let mut compiler = build.manifest.compilers["CXX"].clone();
        compiler.path = "/usr/bin/cc".to_owned();
        build.manifest.compilers.insert("C".to_owned(), compiler);
        let one = machine("znver4");
        assert_eq!(here(&one, cc), here(&machine("znver4"), cc));
        // Nobody wrote down what it is for.
        let error = check(&one, &build).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Finding);
        assert!(error.to_string().contains("(unknown)"), "{error}");
        build.manifest.surroundings.processor = Some(here(&one, cc));
        check(&one, &build).unwrap();
        for other in [machine("haswell"), machine("znver4").without("cc")] {
            let error = check(&other, &build).unwrap_err();
            assert!(
                error
                    .to_string()
                    .contains("not what its compiler makes of this one"),
                "{error}"
            );
            assert!(error.hints()[0].contains("--backend cpu"), "{error}");
        }
        // One that is for named processors runs on any that has them.
        let flags = &mut build.manifest.flags;
        flags.insert("GGML_NATIVE".to_owned(), "OFF".to_owned());
        check(&machine("haswell"), &build).unwrap();
    }

    #[test]
    fn a_processor_of_which_nothing_is_told_is_equal_to_no_other() {
        let (dir, cc) = (tempfile::tempdir().unwrap(), Path::new("/usr/bin/cc"));
        let silent = |cpuinfo: &str| {
            let machine = Fake::complete().with("cc", "unrecognized option -march=native\n");
            machine.file(CPUINFO, cpuinfo)
        };
        let told =
            silent("processor\t: 0\nflags\t: avx\ncpu MHz\t: 1\nprocessor\t: 1\nflags\t: avx\n");
        assert!(known(&told, cc).is_some());
        let faster = silent("processor\t: 0\nflags\t: avx\ncpu MHz\t: 2\n");
        assert_eq!(known(&told, cc), known(&faster, cc));
        assert_ne!(known(&told, cc), known(&silent("flags\t: avx2\n"), cc));
        let nothing = silent("");
        assert_eq!((known(&nothing, cc), here(&nothing, cc)), (None, unknown()));
        let mut build = build(dir.path());
        let mut compiler = build.manifest.compilers["CXX"].clone();
        compiler.path = "/usr/bin/cc".to_owned();
        build.manifest.compilers.insert("C".to_owned(), compiler);
        build.manifest.surroundings.processor = Some(unknown());
        let error = check(&nothing, &build).unwrap_err();
        assert_eq!(error.message().matches("(unknown)").count(), 2, "{error}");
    }

    #[test]
    fn what_was_asked_of_cmake_says_it_where_an_older_manifest_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let toy = crate::build::testing::toy_ctx();
        let one = machine("znver4");
        let recipe = toy.recipe(crate::model::Flavour::Vanilla);
        let request = configure::tests::request_for(&toy, &one, &recipe);
        let mut build = build(dir.path());
        let mut compiler = build.manifest.compilers["CXX"].clone();
        compiler.path = request.tools.cc.path.display().to_string();
        build.manifest.compilers.insert("C".to_owned(), compiler);
        crate::model::write_json(&dir.path().join(configure::FILE), &request).unwrap();
        check(&one, &build).unwrap();
        check(&machine("haswell"), &build).unwrap_err();
    }
}
