//! What is asked of CMake on made-up machines, and when it is asked again.

use super::*;
use crate::build::lookup::fake::Fake;
use crate::build::testing::{Toy, toy_ctx};
use crate::build::tools;

/// What is asked for `recipe` on a made-up machine.
pub fn request_for(toy: &Toy, machine: &Fake, recipe: &Recipe) -> Request {
    let tools = tools::resolve(&toy.ctx, machine).unwrap();
    let known = (&Vocabulary::default(), Digest::of(b""));
    Request::new(&toy.ctx, machine, recipe, &tools, None, None, known).unwrap()
}

fn request(machine: &Fake) -> (Toy, Recipe, Request) {
    let toy = toy_ctx();
    let recipe = toy.recipe(Flavour::Patched);
    let request = request_for(&toy, machine, &recipe);
    (toy, recipe, request)
}

#[test]
fn both_flavours_are_asked_for_the_same() {
    let machine = Fake::complete();
    let (toy, _, patched) = request(&machine);
    let recipe = toy.recipe(Flavour::Vanilla);
    let vanilla = request_for(&toy, &machine, &recipe);
    let text = |request: &Request, dir: PathBuf| {
        let json = serde_json::to_string(request).unwrap();
        json.replace(dir.to_str().unwrap(), "<build>")
    };
    assert_eq!(
        text(&vanilla, recipe.dir(&toy.ctx)),
        text(&patched, toy.recipe(Flavour::Patched).dir(&toy.ctx)).as_str()
    );
}

#[test]
fn the_users_flags_are_kept_and_recorded() {
    let (_toy, _, request) = request(&Fake::complete().set("CFLAGS", "-DUSER"));
    assert!(request.flags["CMAKE_C_FLAGS"].ends_with(" -DUSER"));
    assert!(!request.flags["CMAKE_CXX_FLAGS"].contains("-DUSER"));
    assert_eq!(request.env["CFLAGS"], "-DUSER");
}

#[test]
fn variables_that_no_command_shows_are_recorded_and_part_of_cache_keys() {
    let (toy, recipe, plain) = request(&Fake::complete());
    let with = |name, value| request_for(&toy, &Fake::complete().set(name, value), &recipe);
    assert_eq!(plain.unseen(), format!("{}\n", plain.host));
    for name in ["CPATH", "GCC_EXEC_PREFIX", "CCC_OVERRIDE_OPTIONS"] {
        let other = with(name, "/checkout/x");
        let places = [("/checkout".to_owned(), "<checkout>")];
        assert_eq!(other.variables(&places)[name], "<checkout>/x");
        assert_eq!(other.flags, plain.flags, "no command shows {name}");
        assert_ne!(other.unseen(), plain.unseen(), "{name}");
    }
    let told = |request: &Request| {
        let mut command = Command::new("ninja");
        request.apply_env(Path::new("/nonexistent"), &mut command);
        let mut all = command.get_envs();
        let found = all.find(|(name, _)| *name == SCCACHE_WORDS);
        found.unwrap().1.unwrap().to_owned()
    };
    let mut moved = plain.clone();
    assert_eq!(told(&moved), told(&plain));
    moved.host = Digest::of(b"another processor");
    assert_ne!(told(&moved), told(&plain));
    // Those that are in commands split no cache.
    let other = with("CFLAGS", "-DUSER");
    assert_eq!(other.unseen(), plain.unseen());
}

#[test]
fn what_ninja_cannot_see_means_from_scratch() {
    let (toy, recipe, request) = request(&Fake::complete());
    let dir = recipe.dir(&toy.ctx);
    assert_eq!(request.need(&dir), Need::Configure);
    std::fs::create_dir_all(dir.join("out")).unwrap();
    assert!(matches!(request.need(&dir), Need::Scratch(_)));
    crate::model::write_json(&dir.join(FILE), &request).unwrap();
    assert_eq!(request.need(&dir), Need::Configure, "killed before the end");
    std::fs::write(dir.join("out/build.ninja"), "").unwrap();
    std::fs::write(dir.join("out/CMakeCache.txt"), "").unwrap();
    assert_eq!(request.need(&dir), Need::Nothing);

    let mut other = request.clone();
    other.flags.insert("GGML_X".to_owned(), "ON".to_owned());
    assert_eq!(other.need(&dir), Need::Configure);
    let mut other = request.clone();
    other.tools.cxx.version_text.push_str(" security update");
    assert!(matches!(other.need(&dir), Need::Scratch(why) if why.contains("C++")));
    // Files of a compiler are not known of a folder of before; then they are.
    let mut other = request.clone();
    other.tools.cc.files = vec!["1 bytes of 7".to_owned()];
    assert_eq!(other.need(&dir), Need::Nothing);
    other.note(&dir).unwrap();
    assert_eq!(other.need(&dir), Need::Nothing);
    other.tools.cc.files = vec!["1 bytes of 8".to_owned()];
    assert!(matches!(other.need(&dir), Need::Scratch(why) if why.contains("C compiler")));
    request.note(&dir).unwrap();
    let mut other = request.clone();
    other.host = Digest::of(b"another");
    assert!(matches!(other.need(&dir), Need::Scratch(why) if why.contains("processor")));
}

#[test]
fn a_compiler_that_does_not_work_is_told_apart() {
    let text = "-- x\nCMake Error at a.cmake:1:\n  The C compiler\n\n  is not able to compile \
                a simple test program.\n";
    let error = failure(text, Flavour::Patched);
    assert_eq!(error.kind(), crate::Kind::Environment);
    assert!(error.message().starts_with("cmake failed:\nCMake Error at"));
}

#[test]
fn what_caches_go_by_is_written_also_where_cmake_is_not_called() {
    let (toy, recipe, request) = request(&Fake::complete().set("CPATH", "/headers"));
    let dir = recipe.dir(&toy.ctx);
    std::fs::create_dir_all(&dir).unwrap();
    // As a tool left it that did not know of variables.
    std::fs::write(dir.join(HOST_FILE), format!("{}\n", request.host)).unwrap();
    request.note(&dir).unwrap();
    let text = std::fs::read_to_string(dir.join(HOST_FILE)).unwrap();
    assert_eq!(text, format!("{}\nCPATH=/headers\n", request.host));
}
