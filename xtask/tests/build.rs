//! The build engine on a toy project, with real CMake, Ninja and compilers.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

mod toy;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use llama_patchset::Kind;
use llama_patchset::build::lookup::{Lookup, Machine};
use llama_patchset::build::{self, Build, Difference, provenance, stamp};
use llama_patchset::inspect::inspect;
use llama_patchset::model::{self, Digest, Flavour};
use toy::Toy;

const LIB: &str = "out/bin/libpart.so.1.2.3";

fn modified(path: &Path) -> SystemTime {
    fs::metadata(path).unwrap().modified().unwrap()
}

/// Time stamps of all artifacts.
fn stamps(build: &Build) -> Vec<SystemTime> {
    let artifacts = build.manifest.artifacts.iter();
    artifacts
        .map(|artifact| modified(&build.dir.join(&artifact.path)))
        .collect()
}

#[test]
fn builds_once_finds_it_done_and_repairs_what_was_changed() {
    let toy = Toy::new();
    let first = toy.build(Flavour::Vanilla).unwrap();
    let told = toy.record.take();
    assert!(told.contains(&"task configuring toy vanilla-cpu".to_owned()));
    let output = Command::new(first.program("demo")).output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        told, "../src/part.c u ../src/main.cpp",
        "paths of this machine"
    );
    let artifacts = first.manifest.artifacts.iter();
    let names: Vec<&str> = artifacts.map(|artifact| &*artifact.path).collect();
    assert_eq!(names, ["out/bin/demo", LIB]);
    assert_eq!(first.manifest.flags["CMAKE_BUILD_TYPE"], "Release");
    assert_eq!(first.manifest.flags["GGML_NATIVE"], "ON");
    let here = toy.ctx.project.root().display().to_string();
    let mut values = first.manifest.flags.values();
    assert!(values.all(|value| !value.contains(&here)));
    assert!(first.manifest.compilers.contains_key("CXX"));

    let begun = Instant::now();
    let before = stamps(&first);
    let second = toy.build(Flavour::Vanilla).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(3));
    assert_eq!(second.manifest, first.manifest);
    assert_eq!(toy.record.take(), [""; 0], "nothing to do, nothing to say");
    assert_eq!(stamps(&second), before);

    // One flipped byte.
    let lib = first.dir.join(LIB);
    let mut bytes = fs::read(&lib).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    fs::write(&lib, &bytes).unwrap();
    let found = build::check(&first).unwrap();
    assert!(matches!(&found[..], [Difference::Content { path, .. }] if path == LIB));
    let third = toy.build(Flavour::Vanilla).unwrap();
    assert_eq!(third.manifest, first.manifest, "repaired to the same bytes");
    let warning = &toy.record.take()[0];
    let recorded = first.manifest.artifacts[1].sha256.to_string();
    let flipped = Digest::of(&bytes).to_string();
    for part in ["warn ", LIB, &recorded, &flipped] {
        assert!(warning.contains(part), "{warning}");
    }
    assert_eq!(build::check(&third).unwrap(), []);
}

#[test]
fn sources_decide_even_with_old_time_stamps() {
    let toy = Toy::new();
    let first = toy.build(Flavour::Vanilla).unwrap();
    toy.record.take();
    toy.write("main.cpp", "int main() { return 7; }\n");
    let main = toy.source.join("main.cpp");
    let handle = fs::File::options().write(true).open(main).unwrap();
    let long_ago = SystemTime::now() - Duration::from_secs(9999);
    handle.set_modified(long_ago).unwrap();
    let second = toy.build(Flavour::Vanilla).unwrap();
    assert_ne!(first.manifest.source, second.manifest.source);
    let status = Command::new(second.program("demo")).status().unwrap();
    assert_eq!(status.code(), Some(7), "the old object was used");
    let told = &toy.record.take()[0];
    assert!(
        told.contains("main.cpp changed with an old time stamp"),
        "{told}"
    );

    // A tree that is not what is pinned is not built as vanilla.
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.content = first.manifest.source;
    let error = build::build(&toy.ctx, &recipe, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(error.message().contains("not what is pinned"), "{error}");

    // Nor is one patched that was moved while the build waited for something else.
    let mut recipe = toy.recipe(Flavour::Patched);
    recipe.content = first.manifest.source;
    let error = build::build(&toy.ctx, &recipe, false).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(
        error.message().contains("changed before they were built"),
        "{error}"
    );
    assert!(!toy.manifest_file(Flavour::Patched).exists());
}

#[test]
fn a_patched_build_is_stamped_without_linking_again() {
    let toy = Toy::new();
    let first = toy.build(Flavour::Patched).unwrap();
    let id = |build: &Build| build.manifest.patchset.as_ref().unwrap().id.to_string();
    let text = |build: &Build| stamp::read(&build.dir.join(LIB)).unwrap();
    assert_eq!(text(&first), Some(id(&first)));
    toy.record.take();
    let before = stamps(&first);
    let again = toy.build(Flavour::Patched).unwrap();
    assert_eq!(again.manifest, first.manifest);
    assert_eq!(toy.record.take(), [""; 0]);

    let mut recipe = toy.recipe(Flavour::Patched);
    recipe.patchset.as_mut().unwrap().id = Digest::of(b"two");
    let second = build::build(&toy.ctx, &recipe, false).unwrap();
    assert_eq!(toy.record.take(), [""; 0], "only the stamp is new");
    assert_eq!(text(&second), Some(id(&second)));
    assert_eq!(stamps(&second), before);
    assert_ne!(first.manifest.artifacts, second.manifest.artifacts);

    // Vanilla of the same tree has the same flags, commands and bytes, and no stamp.
    let vanilla = toy.build(Flavour::Vanilla).unwrap();
    assert_eq!(text(&vanilla).as_deref(), Some("unstamped"));
    let differences = build::compare_flags(&vanilla.manifest, &second.manifest);
    assert_eq!(differences, []);
    let commands = build::compare_commands(&vanilla, &second).unwrap();
    assert_eq!((commands.common, commands.changed), (2, vec![]));
    // What was linked is the same; what it is stamped as is not.
    let program = |build: &Build| build.manifest.artifacts[0].clone();
    let (one, two) = (program(&vanilla), program(&second));
    assert_eq!((one.path, one.content), (two.path, two.content));
    assert_ne!(one.sha256, two.sha256);
}

#[test]
fn every_built_file_says_what_it_is_of_and_what_was_edited_is_refused() {
    let toy = Toy::new();
    let build = toy.build(Flavour::Patched).unwrap();
    for artifact in &build.manifest.artifacts {
        let found = inspect(&build.dir.join(&artifact.path)).unwrap();
        assert_eq!(found.sha256, artifact.sha256);
        assert_eq!(Some(found.provenance.content), artifact.content);
        assert_eq!(found.provenance.patchset, build.manifest.patchset);
        assert_eq!(found.provenance.source, build.manifest.source);
        assert_eq!(found.provenance.flags, build.manifest.flags);
        assert!(found.provenance.surroundings.processor.is_some());
        assert_eq!(found.provenance.surroundings, build.manifest.surroundings);
        assert!(found.manifest.is_some());
    }
    // Through the command: sound, edited, without its stamp, without its file.
    let run = |file: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command.arg("inspect").arg(file).arg("--root");
        let output = command.arg(toy.ctx.project.root()).output().unwrap();
        let told = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8(told).unwrap())
    };
    let demo = build.program("demo");
    let (code, told) = run(&demo);
    assert_eq!(code, Some(0), "{told}");
    assert!(
        told.contains("is of") && told.contains("toy patched-cpu"),
        "{told}"
    );
    let sound = fs::read(&demo).unwrap();
    let mut edited = sound.clone();
    edited[sound.len() / 2] ^= 1;
    fs::write(&demo, &edited).unwrap();
    let (code, told) = run(&demo);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("is not what was stamped"), "{told}");
    fs::write(&demo, provenance::plain(&sound)).unwrap();
    let (code, told) = run(&demo);
    assert_eq!(code, Some(1), "{told}");
    assert!(told.contains("carries no stamp"), "{told}");
    // `strip` leaves the section where it is, and changes the rest.
    let remove = ["--remove-section", ".llama-patchset"];
    for (program, args, says) in [
        ("strip", &[][..], "is not what was stamped"),
        ("strip", &["--strip-debug"], "is not what was stamped"),
        ("objcopy", &remove, "carries no stamp"),
    ] {
        fs::write(&demo, &sound).unwrap();
        let done = Command::new(program).args(args).arg(&demo).status();
        assert!(done.unwrap().success());
        let (code, told) = run(&demo);
        assert_eq!(code, Some(1), "{program}: {told}");
        assert!(told.contains(says), "{program}: {told}");
    }
    assert_eq!(run(Path::new("/nonexistent")).0, Some(2));
    // The build takes both for what they are, and mends them.
    assert_eq!(
        toy.build(Flavour::Patched).unwrap().manifest,
        build.manifest
    );
    assert_eq!(fs::read(&demo).unwrap(), sound);
}

#[test]
fn two_stamp_fields_are_a_finding() {
    let toy = Toy::new();
    let field = "OPENCOTI-PATCHSET-STAMP-FIELD-1:";
    toy.write(
        "main.cpp",
        &format!(
            "extern \"C\" const volatile char a[512] = \"{field}\";\n\
             extern \"C\" const volatile char b[512] = \"{field}\";\n\
             int main() {{ return a[40] + b[40]; }}\n"
        ),
    );
    let error = toy.build(Flavour::Patched).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(error.message().contains("more than once"), "{error}");
    assert!(!toy.manifest_file(Flavour::Patched).exists());
}

#[test]
fn a_failing_compile_shows_the_error_and_leaves_no_manifest() {
    let toy = Toy::new();
    toy.build(Flavour::Patched).unwrap();
    toy.write("part.c", "int broken(void) { return no_such_name; }\n");
    let error = toy.build(Flavour::Patched).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding, "{error}");
    let told = error.to_string();
    for part in ["building toy patched-cpu", "part.c:1:", "no_such_name"] {
        assert!(told.contains(part), "{told}");
    }
    assert!(told.lines().count() < 35);
    let log = "target/llama/toy/patched-cpu/build.log";
    assert!(error.hints().iter().any(|hint| hint.contains(log)));
    assert!(toy.ctx.project.root().join(log).is_file());
    assert!(!toy.manifest_file(Flavour::Patched).exists());

    toy.write("new.cmake", "another list of files: CMake is called anew");
    toy.write("CMakeLists.txt", "project(toy)\nno_such_command()\n");
    let error = toy.build(Flavour::Patched).unwrap_err();
    assert!(error.message().starts_with("cmake failed:"), "{error}");
    assert!(error.to_string().contains("no_such_command"), "{error}");
}

#[test]
fn what_is_put_there_after_a_failed_build_is_not_taken_for_built() {
    let (toy, other) = (Toy::new(), Toy::new());
    let first = toy.build(Flavour::Vanilla).unwrap();
    let part = fs::read_to_string(other.source.join("part.c")).unwrap();
    other.write("part.c", &part.replace("__FILE__", "\"foreign\""));
    let foreign = other.build(Flavour::Vanilla).unwrap().dir.join(LIB);
    let main = fs::read_to_string(toy.source.join("main.cpp")).unwrap();
    toy.write("main.cpp", "int main() { return no_such_name; }\n");
    toy.build(Flavour::Vanilla).unwrap_err();
    // It is newer than its object, so that Ninja leaves it.
    fs::copy(&foreign, first.dir.join(LIB)).unwrap();
    toy.write("main.cpp", &main);
    let again = toy.build(Flavour::Vanilla).unwrap();
    assert_eq!(again.manifest.artifacts, first.manifest.artifacts);
    // Likewise where nothing but the manifest is gone.
    fs::remove_file(toy.manifest_file(Flavour::Vanilla)).unwrap();
    fs::copy(&foreign, first.dir.join(LIB)).unwrap();
    let again = toy.build(Flavour::Vanilla).unwrap();
    assert_eq!(again.manifest.artifacts, first.manifest.artifacts);
}

/// Makes of a build what it was before anybody wrote down its surroundings.
fn forget_surroundings(build: &Build) {
    let mut manifest = build.manifest.clone();
    manifest.surroundings = Default::default();
    for artifact in &mut manifest.artifacts {
        let file = build.dir.join(&artifact.path);
        let bytes = fs::read(&file).unwrap();
        let provenance::Stamp::Sound(mut of) = provenance::examine(&bytes) else {
            panic!("not stamped");
        };
        of.surroundings = Default::default();
        let bytes = provenance::stamped(&provenance::plain(&bytes), |_| *of).unwrap();
        artifact.sha256 = Digest::of(&bytes);
        artifact.size = bytes.len() as u64;
        stamp::replace(&file, &bytes).unwrap();
    }
    model::write_json(&build.dir.join("build.json"), &manifest).unwrap();
    for artifact in &mut manifest.artifacts {
        artifact.path = artifact.path.replace("out/bin/", "");
    }
    let beside = build.dir.join("out/bin").join(build::BESIDE);
    model::write_json(&beside, &manifest).unwrap();
    let text = fs::read_to_string(beside).unwrap();
    assert!(!text.contains("surroundings"), "{text}");
}

#[test]
fn a_build_of_before_surroundings_were_written_down_is_stamped_anew_and_no_more() {
    let toy = Toy::new();
    let first = toy.build(Flavour::Patched).unwrap();
    forget_surroundings(&first);
    let found = Build::find(&toy.ctx, "toy", Flavour::Patched, "cpu").unwrap();
    let old = found.unwrap();
    assert_eq!(build::check(&old).unwrap(), []);
    assert!(old.manifest.surroundings.is_empty());
    // Nor were files of compilers.
    let asked = first.dir.join("configure.json");
    let text = fs::read_to_string(&asked).unwrap();
    let mut json: serde_json::Value = serde_json::from_str(&text).unwrap();
    for compiler in ["cc", "cxx"] {
        let fields = json["tools"][compiler].as_object_mut().unwrap();
        assert!(fields.remove("files").is_some());
    }
    fs::write(&asked, json.to_string()).unwrap();
    toy.record.take();
    let before = stamps(&old);
    let again = toy.build(Flavour::Patched).unwrap();
    assert_eq!(toy.record.take(), [""; 0], "only the stamps are new");
    assert_eq!(again.manifest, first.manifest);
    assert_eq!(stamps(&again), before);
    assert_eq!(fs::read_to_string(&asked).unwrap(), text);
}

/// This machine with other compilers, or without some programs.
enum With {
    Compilers(&'static str),
    NoTools,
    NoCache,
}

impl Lookup for With {
    fn find(&self, name: &str) -> Option<PathBuf> {
        let hidden: &[&str] = match self {
            With::Compilers(_) => &[],
            With::NoTools => &["cmake", "cmake3", "ninja", "ninja-build"],
            With::NoCache => &["ccache", "sccache"],
        };
        if hidden.contains(&name) {
            return None;
        }
        Machine.find(name)
    }
    fn output(&self, program: &Path, args: &[&str]) -> Option<String> {
        Machine.output(program, args)
    }
    fn var(&self, name: &str) -> Option<String> {
        match (self, name) {
            (With::Compilers(name), "CC" | "CXX") => Some((*name).to_owned()),
            (With::NoTools, "CMAKE" | "NINJA") => None,
            _ => Machine.var(name),
        }
    }
    fn free_space(&self, path: &Path) -> Option<u64> {
        Machine.free_space(path)
    }
    fn writable(&self, path: &Path) -> bool {
        Machine.writable(path)
    }
}

#[test]
fn compilers_that_are_missing_or_do_not_work_are_told_apart() {
    let toy = Toy::new();
    let recipe = toy.recipe(Flavour::Vanilla);
    let with = |cc| build::build_with(&toy.ctx, &With::Compilers(cc), &recipe, false).unwrap_err();
    let error = with("/nonexistent/cc");
    assert_eq!(error.kind(), Kind::Environment);
    assert!(
        error.message().contains("CC names `/nonexistent/cc`"),
        "{error}"
    );
    // Answers to --version and compiles nothing, which some CMakes and Ninjas do not notice.
    let error = with("/bin/true");
    assert_eq!(error.kind(), Kind::Environment, "{error}");
    assert!(!toy.manifest_file(Flavour::Vanilla).exists());
}

#[test]
#[ignore = "downloads CMake and Ninja"]
fn missing_tools_are_installed_once_and_build() {
    let mut toy = Toy::new();
    let recipe = toy.recipe(Flavour::Vanilla);
    let run = |toy: &Toy| build::build_with(&toy.ctx, &With::NoTools, &recipe, false);
    let error = run(&toy).unwrap_err();
    assert_eq!(error.message(), "cmake is missing, and ninja is missing");
    (toy.ctx.offline, toy.ctx.no_provision) = (false, false);
    // What a killed run left.
    let tools = toy.ctx.project.target().join("tools");
    fs::create_dir_all(tools.join(".installing-x/tree")).unwrap();
    let first = run(&toy).unwrap();
    let told = toy.record.take();
    let notes: Vec<_> = told
        .iter()
        .filter(|line| line.starts_with("note") && !line.starts_with("note ccache: "))
        .collect();
    assert_eq!(notes.len(), 1, "{told:?}");
    assert!(notes[0].contains("installing cmake 3."), "{told:?}");
    let status = Command::new(first.program("demo")).status().unwrap();
    assert!(status.success());
    let mut left = fs::read_dir(&tools).unwrap().map(|entry| entry.unwrap());
    assert!(left.all(|entry| !entry.file_name().to_string_lossy().starts_with(".inst")));
    // Found again without a network.
    toy.ctx.offline = true;
    assert_eq!(run(&toy).unwrap().manifest, first.manifest);
    assert_eq!(toy.record.take(), [""; 0]);
}

#[test]
fn two_checkouts_give_the_same_bytes_with_and_without_a_compiler_cache() {
    let (one, two) = (Toy::new(), Toy::new());
    let first = one.build(Flavour::Vanilla).unwrap().manifest;
    let recipe = two.recipe(Flavour::Vanilla);
    let second = build::build_with(&two.ctx, &With::NoCache, &recipe, false).unwrap();
    assert_eq!(second.manifest.launcher, None);
    assert_eq!(second.manifest.artifacts, first.artifacts);
    let differences = build::compare_flags(&first, &second.manifest);
    let told: Vec<String> = differences.iter().map(ToString::to_string).collect();
    match &first.launcher {
        Some(name) => assert_eq!(told, [format!("launcher: {name} and not set")]),
        None => assert_eq!(told, [""; 0]),
    }
}

#[test]
fn sources_that_change_while_they_are_built_are_refused() {
    let toy = Toy::new();
    toy.write("edit.sh", "echo // edited >> \"$1\"\n");
    toy.write(
        "extra.cmake",
        "add_custom_command(TARGET demo POST_BUILD COMMAND sh ${CMAKE_SOURCE_DIR}/edit.sh \
         ${CMAKE_SOURCE_DIR}/part.c VERBATIM)\n",
    );
    let error = toy.build(Flavour::Patched).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(error.message().contains("changed while"), "{error}");
    assert!(!toy.manifest_file(Flavour::Patched).exists());
}

#[test]
fn a_foreign_library_beside_the_built_ones_is_a_finding() {
    let toy = Toy::new();
    let first = toy.build(Flavour::Vanilla).unwrap();
    let planted = first.dir.join("out/bin/libgomp.so.1");
    fs::copy(first.dir.join(LIB), &planted).unwrap();
    assert_eq!(build::check(&first).unwrap().len(), 1);
    let error = toy.build(Flavour::Vanilla).unwrap_err();
    assert_eq!(error.kind(), Kind::Finding);
    assert!(error.message().contains("libgomp.so.1"), "{error}");
    fs::remove_file(planted).unwrap();
    toy.build(Flavour::Vanilla).unwrap();

    // A library of an earlier version is no stranger: it goes.
    let lists = fs::read_to_string(toy.source.join("CMakeLists.txt")).unwrap();
    toy.write("CMakeLists.txt", &lists.replace("1.2.3", "1.2.4"));
    let second = toy.build(Flavour::Vanilla).unwrap();
    let artifacts = second.manifest.artifacts.iter();
    let names: Vec<&str> = artifacts.map(|artifact| &*artifact.path).collect();
    assert_eq!(names, ["out/bin/demo", "out/bin/libpart.so.1.2.4"]);
}

/// Makes the build take a minute. The step writes its process id into the file.
fn slow(toy: &Toy) -> PathBuf {
    let mark = toy.source.with_file_name("running");
    toy.write("slow.sh", "echo $$ > \"$1\"\nexec sleep 60\n");
    toy.write(
        "extra.cmake",
        &format!(
            "add_custom_target(wait COMMAND sh ${{CMAKE_SOURCE_DIR}}/slow.sh \"{}\" VERBATIM)\n\
             add_dependencies(demo wait)\n",
            mark.display()
        ),
    );
    mark
}

fn wait_for(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "waiting for {what}"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn is_up(mark: &Path) -> bool {
    fs::read_to_string(mark).is_ok_and(|pid| pid.ends_with('\n'))
}

fn is_gone(mark: &Path) -> bool {
    let pid = fs::read_to_string(mark).unwrap();
    let status = Path::new("/proc").join(pid.trim()).join("status");
    // Where nobody reaps orphans, a dead one stays as a zombie.
    !fs::read_to_string(status).is_ok_and(|status| !status.contains("State:\tZ"))
}

#[test]
fn a_cancelled_build_ends_its_children_and_leaves_no_manifest() {
    let toy = Toy::new();
    toy.build(Flavour::Vanilla).unwrap();
    let mark = slow(&toy);
    let (seen, cancel) = (mark.clone(), toy.ctx.cancel.clone());
    let watcher = std::thread::spawn(move || {
        wait_for("the slow step", || is_up(&seen));
        cancel.set();
    });
    let error = toy.build(Flavour::Vanilla).unwrap_err();
    watcher.join().unwrap();
    assert_eq!(error.kind(), Kind::Interrupted);
    assert!(!toy.manifest_file(Flavour::Vanilla).exists());
    if cfg!(target_os = "linux") {
        wait_for("the step to end", || is_gone(&mark));
    }
}

/// Names the folder of the toy to the process that is going to be killed.
const VICTIM: &str = "BUILD_TEST_VICTIM";

#[test]
fn a_killed_build_ends_its_children_and_the_next_one_is_right() {
    if let Some(dir) = std::env::var_os(VICTIM) {
        let _ = Toy::at(Path::new(&dir)).build(Flavour::Vanilla);
        return;
    }
    let toy = Toy::new();
    let mark = slow(&toy);
    let mut victim = Command::new(std::env::current_exe().unwrap())
        .arg("--exact")
        .arg("a_killed_build_ends_its_children_and_the_next_one_is_right")
        .env(VICTIM, toy.source.parent().unwrap())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the slow step", || is_up(&mark));
    victim.kill().unwrap();
    victim.wait().unwrap();
    assert!(!toy.manifest_file(Flavour::Vanilla).exists());
    if cfg!(target_os = "linux") && Machine.find("setpriv").is_some() {
        wait_for("the step to end", || is_gone(&mark));
    }
    toy.write("extra.cmake", "");
    let build = toy.build(Flavour::Vanilla).unwrap();
    let status = Command::new(build.program("demo")).status().unwrap();
    assert!(status.success());
    assert_eq!(build::check(&build).unwrap(), []);
}

#[test]
fn two_builds_of_one_folder_take_turns() {
    let toy = Toy::new();
    let recipe = toy.recipe(Flavour::Vanilla);
    let manifests = std::thread::scope(|scope| {
        let run = || build::build(&toy.ctx, &recipe, false).unwrap().manifest;
        let threads = [scope.spawn(run), scope.spawn(run)];
        threads.map(|thread| thread.join().unwrap())
    });
    assert_eq!(manifests[0], manifests[1]);
    let told = toy.record.take();
    // Compiling is told only where it takes a while; configuring always is.
    let configured = told
        .iter()
        .filter(|line| line.starts_with("task configuring"));
    assert_eq!(configured.count(), 1, "{told:?}");
}

#[test]
fn an_edited_cmake_cache_is_not_built_with() {
    let toy = Toy::new();
    let first = toy.build(Flavour::Vanilla).unwrap();
    let cache = first.dir.join("out/CMakeCache.txt");
    let good = fs::read_to_string(&cache).unwrap();
    let debug = good.replace(":STRING=Release", ":STRING=Debug");
    assert_ne!(good, debug);
    for broken in [&*debug, "garbage"] {
        toy.record.take();
        fs::write(&cache, broken).unwrap();
        let again = toy.build(Flavour::Vanilla).unwrap();
        assert_eq!(again.manifest, first.manifest);
        let told = &toy.record.take()[0];
        assert!(told.contains("its CMakeCache.txt was changed"), "{told}");
    }
    fs::write(first.dir.join("out/build.ninja"), "garbage").unwrap();
    let error = toy.build(Flavour::Vanilla).unwrap_err();
    assert!(
        error.hints().iter().any(|hint| hint.contains("--force")),
        "{error:?}"
    );
    build::build(&toy.ctx, &toy.recipe(Flavour::Vanilla), true).unwrap();
}
