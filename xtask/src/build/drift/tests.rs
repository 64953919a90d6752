//! Planted drift, and a build that has none.

use super::*;
use crate::model::Profile;

fn cache(text: &str) -> Cache {
    Cache::parse(text)
}

fn map(entries: &[(&str, &str)]) -> BTreeMap<String, String> {
    let own = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    entries.iter().map(own).collect()
}

/// Commands by target and words.
fn compiled(entries: &[(&str, &str)]) -> Commands {
    let one = |(at, (target, words)): (usize, &(&str, &str))| {
        let key = (
            format!("<build>/src/f{at}.c"),
            format!("ggml/src/CMakeFiles/{target}.dir/f{at}.c.o"),
        );
        (key, commands::split(words))
    };
    entries.iter().enumerate().map(one).collect()
}

fn told(drifts: &[Drift]) -> Vec<String> {
    drifts.iter().map(ToString::to_string).collect()
}

#[test]
fn what_was_asked_and_is_not_cached_is_told() {
    let cached = cache("GGML_NATIVE:BOOL=ON\nLLAMA_CURL:UNINITIALIZED=OFF\n");
    let asked = map(&[
        ("GGML_NATIVE", "TRUE"),
        ("LLAMA_CURL", "ON"),
        ("GGML_GONE", "1"),
    ]);
    assert_eq!(
        told(&of_cache(&asked, &cached)),
        [
            "GGML_GONE: asked for 1, not in the cache",
            "LLAMA_CURL: asked for ON, cached as OFF",
        ]
    );
}

#[test]
fn what_cmake_says_that_nothing_reads_is_told() {
    let log = "-- Configuring done\nCMake Warning:\n  Manually-specified variables were not used \
               by the project:\n\n    CMAKE_EXPORT_COMPILE_COMMANDS\n    GGML_VULKAN\n\n\n-- Build\n";
    let found = unused(log, &map(&[("GGML_VULKAN", "ON")]));
    assert_eq!(
        told(&found),
        ["GGML_VULKAN: asked for ON, no build file of the tree reads it"]
    );
    assert_eq!(unused("-- all is well\n", &BTreeMap::new()), []);
}

#[test]
fn a_tree_is_asked_only_for_what_it_reads() {
    let text = "option(LLAMA_OPENSSL \"x\" ON)\n# LLAMA_BUILD_UI was here\n\
                llama_option_depr(WARNING     LLAMA_CURL)\nif (NOT DEFINED LLAMA_BUILD_COMMIT)\n";
    let vocabulary = Vocabulary(used(text).collect());
    for (name, wanted) in [
        ("LLAMA_OPENSSL", true),
        ("LLAMA_BUILD_COMMIT", true),
        ("LLAMA_BUILD_UI", false),
        ("LLAMA_CURL", false),
        ("OPENCOTI_EXT_LIB", false),
        // Without it there is no such build: CMake says so, and it is a finding.
        ("GGML_VULKAN", true),
        ("CMAKE_BUILD_TYPE", true),
    ] {
        assert_eq!(vocabulary.wants(name), wanted, "{name}");
    }
}

#[test]
fn named_instruction_sets_beside_native_are_told() {
    let cached = cache("GGML_NATIVE:BOOL=ON\nGGML_AVX512:BOOL=ON\nGGML_AVX2:BOOL=OFF\n");
    // What takes a set away holds, and so does what is no set.
    let harmless = "-mno-fma4 -mno-avx512f -mfloat-abi=hard -mrecip -march=x";
    let env = map(&[("CXXFLAGS", "-g -mavx2"), ("CFLAGS", harmless)]);
    let found = told(&isa::native_and_named(&env, &cached));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("GGML_AVX512: asked for ON, GGML_NATIVE=ON"));
    assert!(found[1].starts_with("CXXFLAGS: asked for -mavx2, "));
    let portable = cache("GGML_NATIVE:BOOL=OFF\nGGML_AVX512:BOOL=ON\n");
    assert_eq!(isa::native_and_named(&env, &portable), []);
}

#[test]
fn a_variant_is_compiled_as_its_name_says() {
    let cached = cache("GGML_NATIVE:BOOL=OFF\nCMAKE_SYSTEM_PROCESSOR:STATIC=x86_64\n");
    let haswell = "cc -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -O3";
    let check =
        |target: &str, words: &str| told(&isa::of_commands(&compiled(&[(target, words)]), &cached));
    for (target, words) in [
        ("ggml-cpu-x64", "cc -O3"),
        ("ggml-cpu-x64-feats", "cc -O3"),
        ("ggml-cpu-haswell-feats", "cc -O3"),
        ("ggml-cpu-haswell", haswell),
        ("ggml-cpu-power9", "cc -O3 -mcpu=power9 -mvsx"),
        ("ggml-cpu-armv8.0_1", "cc -O3 -march=armv8-a"),
        ("ggml-cpu-armv8.2_2", "cc -O3 -march=armv8.2-a+dotprod+fp16"),
        ("ggml-base", "cc -mavx2"),
        // What leaves the instruction set alone, or names what all have.
        (
            "ggml-cpu-x64",
            "cc -m64 -mtune=generic -mno-omit-leaf-frame-pointer -march=x86-64",
        ),
    ] {
        assert_eq!(check(target, words), [""; 0], "{target}");
    }
    let less = format!("{haswell} -mno-avx2");
    let named = format!("cc -march=haswell {haswell}");
    for (target, words, part) in [
        ("ggml-cpu-x64", "cc -mavx512f", "compiled with -mavx512f"),
        (
            "ggml-cpu-haswell-feats",
            "cc -mavx2",
            "compiled with -mavx2",
        ),
        ("ggml-cpu-haswell", "cc -mavx2", "without -mavx -mbmi2"),
        ("ggml-cpu-sandybridge", haswell, "with -mavx2 -mbmi2"),
        (
            "ggml-cpu-x64",
            "cc -march=x86-64-v3",
            "compiled with -march=x86-64-v3",
        ),
        (
            "ggml-cpu-x64-feats",
            "cc -mcpu=haswell",
            "compiled with -mcpu=haswell",
        ),
        ("ggml-cpu-haswell", &named, "compiled with -march=haswell"),
        ("ggml-cpu-haswell", &less, "compiled with -mno-avx2"),
        ("ggml-cpu-x64", "cc -mbmi", "compiled with -mbmi"),
        ("ggml-cpu-x64", "cc -mssse3", "compiled with -mssse3"),
        (
            "ggml-cpu-x64",
            "cc -mavx512fp16",
            "compiled with -mavx512fp16",
        ),
        (
            "ggml-cpu-x64",
            "cc -mnext-year",
            "compiled with -mnext-year",
        ),
        (
            "ggml-cpu-x64",
            "clang -Xclang -target-feature -Xclang +avx2",
            "compiled with -target-feature",
        ),
        (
            "ggml-cpu-armv8.0_1",
            "cc -march=armv8.2-a+dotprod",
            "compiled with -march=armv8.2-a+dotprod",
        ),
        (
            "ggml-cpu-armv8.2_1",
            "cc -march=armv8.2-a+dotprod+sve",
            "compiled with -march=armv8.2-a+dotprod+sve",
        ),
        (
            "ggml-cpu-armv9.2_2",
            "cc -O3",
            "without -march=armv9.2-a+dotprod+fp16+sve+i8mm+sve2+sme",
        ),
        (
            "ggml-cpu",
            "cc -march=native",
            "commands have -march=native",
        ),
        ("llama", "cc -mtune=native", "commands have -mtune=native"),
    ] {
        let found = check(target, words);
        assert_eq!(found.len(), 1, "{target}: {found:?}");
        assert!(found[0].contains(part), "{part}: {found:?}");
    }
}

#[test]
fn variants_of_unknown_names_are_told() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("out")).unwrap();
    let one = |target: &str| {
        let object = format!("ggml/src/CMakeFiles/{target}.dir/a.c.o");
        serde_json::json!({ "file": "a.c", "command": format!("cc -o {object} -c a.c") })
    };
    let all = ["ggml-cpu-z16", "ggml-cpu-power9", "ggml-cpu-power9-feats"];
    let known = ["ggml-cpu-armv8.2_1", "ggml-cpu-zen4", "ggml-cpu", "llama"];
    let commands: Vec<_> = all.iter().chain(&known).map(|name| one(name)).collect();
    let file = dir.path().join("out/compile_commands.json");
    std::fs::write(file, serde_json::json!(commands).to_string()).unwrap();
    assert_eq!(
        unjudged(dir.path()).unwrap(),
        ["ggml-cpu-power9", "ggml-cpu-z16"]
    );
}

#[test]
fn what_runs_on_all_processors_is_compiled_for_all() {
    let cached = cache("GGML_NATIVE:BOOL=OFF\nGGML_CPU_ALL_VARIANTS:BOOL=ON\n");
    let check =
        |target: &str, words: &str| told(&isa::of_commands(&compiled(&[(target, words)]), &cached));
    assert_eq!(check("ggml-base", "cc -O3 -m64"), [""; 0]);
    assert_eq!(check("llama", "nvcc -Xcompiler=-fPIC,-m64"), [""; 0]);
    for (target, words, part) in [
        ("ggml-base", "cc -march=x86-64-v3", "have -march=x86-64-v3"),
        ("llama-server", "cc -mavx2", "have -mavx2"),
        ("ggml-cuda", "nvcc -Xcompiler=-fPIC,-mavx2", "have -mavx2"),
        (
            "ggml-cuda",
            "nvcc --compiler-options -fPIC,-march=znver4",
            "have -march=znver4",
        ),
        // As upstream joins them.
        (
            "ggml-cuda",
            "nvcc -Xcompiler '-Wextra -mavx2'",
            "have -mavx2",
        ),
    ] {
        let found = check(target, words);
        assert_eq!(found.len(), 1, "{words}: {found:?}");
        assert!(found[0].starts_with("GGML_CPU_ALL_VARIANTS: asked for ON, 1 commands"));
        assert!(found[0].contains(part), "{part}: {found:?}");
    }
    // Variables that no command shows.
    let env = map(&[
        ("NVCC_APPEND_FLAGS", "-O3 -Xcompiler -march=haswell"),
        ("NVCC_PREPEND_FLAGS", "-Xcompiler=-fPIC,-march=native"),
        (
            "CCC_OVERRIDE_OPTIONS",
            "# +-mavx2 s/-O2/-mfma/ ^-march=native",
        ),
    ]);
    assert_eq!(
        told(&isa::unseen(&env, &cached)),
        [
            "GGML_CPU_ALL_VARIANTS: asked for ON, NVCC_PREPEND_FLAGS has -march=native",
            "GGML_CPU_ALL_VARIANTS: asked for ON, NVCC_APPEND_FLAGS has -march=haswell",
            "GGML_CPU_ALL_VARIANTS: asked for ON, CCC_OVERRIDE_OPTIONS has -mavx2",
            "GGML_CPU_ALL_VARIANTS: asked for ON, CCC_OVERRIDE_OPTIONS has -mfma",
            "GGML_CPU_ALL_VARIANTS: asked for ON, CCC_OVERRIDE_OPTIONS has -march=native",
        ]
    );
    assert_eq!(isa::unseen(&env, &cache("GGML_NATIVE:BOOL=ON\n")), []);
}

#[test]
fn native_that_reaches_no_kernel_is_told() {
    let cached = cache("GGML_NATIVE:BOOL=ON\nCMAKE_SYSTEM_PROCESSOR:STATIC=x86_64\n");
    let with = compiled(&[("ggml-cpu", "cc -march=native"), ("ggml-cpu", "cc")]);
    assert_eq!(isa::of_commands(&with, &cached), []);
    let without = compiled(&[("ggml-cpu", "cc"), ("llama", "cc -march=native")]);
    assert_eq!(isa::of_commands(&without, &cached).len(), 1);
    // Where it must not be, it is found in what nvcc hands on, too.
    let off = cache("GGML_NATIVE:BOOL=OFF\n");
    for words in [
        "nvcc -Xcompiler=-march=native",
        "nvcc -Xcompiler '-fPIC -march=native'",
    ] {
        let found = told(&isa::of_commands(&compiled(&[("ggml-cuda", words)]), &off));
        assert_eq!(
            found,
            ["GGML_NATIVE: asked for OFF, 1 commands have -march=native"]
        );
    }
}

#[test]
fn a_word_of_the_users_that_another_one_follows_is_told() {
    let commands = compiled(&[("llama", "cc -O0 -march=x86-64-v3 -O3 -march=native")]);
    let env = map(&[("CFLAGS", "-O0 -g -march=x86-64-v3"), ("CXXFLAGS", "-O1")]);
    let found = told(&overridden(&env, &commands));
    assert_eq!(
        found,
        [
            "CFLAGS: asked for -O0, -O3 follows in commands and counts",
            "CFLAGS: asked for -march=x86-64-v3, -march=native follows in commands and counts",
        ]
    );
    let env = map(&[("CFLAGS", "-O3 -DUSER")]);
    assert_eq!(overridden(&env, &commands), []);
}

#[test]
fn a_profile_reaches_every_command() {
    let all = compiled(&[
        ("a", "cc -fsanitize=address"),
        ("b", "cc -fsanitize=address"),
    ]);
    let some = compiled(&[("a", "cc -fsanitize=address"), ("b", "cc")]);
    let none = compiled(&[("a", "cc"), ("b", "cc")]);
    let count = |profile, commands| of_profile(Variant::of(profile), commands).len();
    assert_eq!(count(Profile::Asan, &all), 0);
    assert_eq!(count(Profile::Asan, &some), 1);
    assert_eq!(count(Profile::Asan, &none), 1);
    assert_eq!(count(Profile::Release, &none), 0);
    assert_eq!(count(Profile::Release, &some), 1);
    // The wrong one, and not the right one.
    assert_eq!(count(Profile::Ubsan, &all), 2);
}

#[test]
fn a_refusal_says_what_was_asked_what_is_there_and_what_to_do() {
    refuse(&[]).unwrap();
    let drift = Drift::new("GGML_X", "ON", "cached as OFF", "do this");
    let many = vec![drift.clone(); SHOWN + 3];
    let text = refuse(&many).unwrap_err().to_string();
    assert_eq!(text.matches("GGML_X").count(), SHOWN, "{text}");
    assert!(text.contains("; and 3 more"), "{text}");
    let error = refuse(&[drift.clone(), drift]).unwrap_err();
    assert_eq!(error.kind(), crate::Kind::Finding);
    assert!(
        error
            .message()
            .contains("GGML_X: asked for ON, cached as OFF")
    );
    assert_eq!(error.hints(), ["do this"]);
}

/// What CMake made of the fourteen variants of llama-0.5.0, one a line.
const VARIANTS: &str = "\
x64:
sse42: -msse4.2
sandybridge: -msse4.2 -mavx
ivybridge: -msse4.2 -mf16c -mavx
piledriver: -msse4.2 -mf16c -mfma -mavx
haswell: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2
alderlake: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavxvnni
skylakex: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw
cannonlake: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vbmi
cascadelake: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vnni
icelake: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vbmi -mavx512vnni
cooperlake: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vnni -mavx512bf16
zen4: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vbmi -mavx512vnni -mavx512bf16
sapphirerapids: -msse4.2 -mf16c -mfma -mbmi2 -mavx -mavx2 -mavx512f -mavx512cd -mavx512vl -mavx512dq -mavx512bw -mavx512vbmi -mavx512vnni -mavx512bf16 -mamx-tile -mamx-int8
";

#[test]
fn the_variants_of_a_real_tree_are_as_their_names_say() {
    let cached = cache("GGML_NATIVE:BOOL=OFF\n");
    let all: Vec<(&str, &str)> = VARIANTS
        .lines()
        .filter_map(|line| line.split_once(':'))
        .collect();
    assert_eq!(all.len(), 14);
    for (at, (name, words)) in all.iter().enumerate() {
        let target = format!("ggml-cpu-{name}");
        let good = compiled(&[(&target, words)]);
        assert_eq!(isa::of_commands(&good, &cached), [], "{name}");
        // Those of any other one are wrong.
        let (other, theirs) = all[(at + 1) % all.len()];
        let bad = compiled(&[(&target, theirs)]);
        assert_eq!(
            isa::of_commands(&bad, &cached).len(),
            1,
            "{name} as {other}"
        );
    }
}
