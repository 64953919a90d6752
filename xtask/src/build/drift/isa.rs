//! Instruction sets: what options and names promise, and what compilers are told.

use std::collections::{BTreeMap, BTreeSet};

use crate::build::cache::Cache;
use crate::build::commands::{self, Commands};
use crate::build::drift::Drift;

/// Options of ggml by which one names instruction sets of x86, and the words that compilers get.
const SETS: [(&str, &[&str]); 14] = [
    ("SSE42", &["-msse4.2"]),
    ("AVX", &["-mavx"]),
    ("F16C", &["-mf16c"]),
    ("FMA", &["-mfma"]),
    ("AVX2", &["-mavx2"]),
    ("BMI2", &["-mbmi2"]),
    ("AVX_VNNI", &["-mavxvnni"]),
    (
        "AVX512",
        &[
            "-mavx512f",
            "-mavx512cd",
            "-mavx512vl",
            "-mavx512dq",
            "-mavx512bw",
        ],
    ),
    ("AVX512_VBMI", &["-mavx512vbmi"]),
    ("AVX512_VNNI", &["-mavx512vnni"]),
    ("AVX512_BF16", &["-mavx512bf16"]),
    ("AMX_TILE", &["-mamx-tile"]),
    ("AMX_INT8", &["-mamx-int8"]),
    ("AMX_BF16", &["-mamx-bf16"]),
];

/// What a processor has by its name: another one's, and more.
const PROCESSORS: [(&str, &str, &[&str]); 14] = [
    ("x64", "", &[]),
    ("sse42", "x64", &["SSE42"]),
    ("sandybridge", "sse42", &["AVX"]),
    ("ivybridge", "sandybridge", &["F16C"]),
    ("piledriver", "ivybridge", &["FMA"]),
    ("haswell", "piledriver", &["AVX2", "BMI2"]),
    ("alderlake", "haswell", &["AVX_VNNI"]),
    ("skylakex", "haswell", &["AVX512"]),
    ("cannonlake", "skylakex", &["AVX512_VBMI"]),
    ("cascadelake", "skylakex", &["AVX512_VNNI"]),
    ("icelake", "cannonlake", &["AVX512_VNNI"]),
    ("cooperlake", "cascadelake", &["AVX512_BF16"]),
    ("zen4", "icelake", &["AVX512_BF16"]),
    ("sapphirerapids", "zen4", &["AMX_TILE", "AMX_INT8"]),
];

/// What a processor of ARM's has by its name; the first one has what all have.
const ARM: [(&str, &str); 8] = [
    ("armv8.0_1", ""),
    ("armv8.2_1", "-march=armv8.2-a+dotprod"),
    ("armv8.2_2", "-march=armv8.2-a+dotprod+fp16"),
    ("armv8.2_3", "-march=armv8.2-a+dotprod+fp16+sve"),
    ("armv8.6_1", "-march=armv8.6-a+dotprod+fp16+sve+i8mm"),
    ("armv8.6_2", "-march=armv8.6-a+dotprod+fp16+sve+i8mm+sve2"),
    ("armv9.2_1", "-march=armv9.2-a+dotprod+fp16+sve+i8mm+sme"),
    (
        "armv9.2_2",
        "-march=armv9.2-a+dotprod+fp16+sve+i8mm+sve2+sme",
    ),
];

/// `-march=native` and its like.
const NATIVE: [&str; 3] = ["-march=native", "-mcpu=native", "-mtune=native"];

/// What every processor of its kind has, so that naming it takes nothing away from any.
const FIRST: [&str; 2] = ["-march=x86-64", "-march=armv8-a"];

/// Beginnings of options that leave the instruction set alone, without `-m` and `no-`. All other
/// options with `-m` count as choosing one: what a compiler of next year knows is not on any list.
const HARMLESS: &[&str] = &[
    "64",
    "abi=",
    "accumulate-outgoing-args",
    "align-",
    "branch-cost",
    "branch-protection",
    "branches-within",
    "cet-switch",
    "cmodel=",
    "daz-ftz",
    "default-build-attributes",
    "direct-extern-access",
    "fentry",
    "fix-cortex-",
    "fp16-format=",
    "fpmath=",
    "function-return=",
    "harden-sls=",
    "ieee-fp",
    "implicit-float",
    "indirect-branch",
    "inline-",
    "instrument-return",
    "large-data-threshold=",
    "little-endian",
    "llvm",
    "long-double-",
    "lvi-",
    "macos",
    "manual-endbr",
    "max-vectorize",
    "maxrregcount",
    "memcpy-strategy=",
    "memset-strategy=",
    "ms-bitfields",
    "nop-mcount",
    "omit-leaf-frame-pointer",
    "outline-atomics",
    "prefer-vector-width=",
    "preferred-stack-boundary=",
    "push-args",
    "record-mcount",
    "red-zone",
    "relax",
    "shstk",
    "speculative-load-hardening",
    "stack",
    "tls-",
    "tune=",
];

/// Options of nvcc behind which stand words for the compiler that it calls.
const HANDS_ON: [&str; 2] = ["-Xcompiler", "--compiler-options"];

/// Variables whose words no command shows; those of the last one each stand behind a sign.
const UNSEEN: [&str; 3] = [
    "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS",
    "CCC_OVERRIDE_OPTIONS",
];

fn is_on(cached: &Cache, name: &str) -> bool {
    let value = cached.get(name).unwrap_or_default().to_ascii_uppercase();
    matches!(&*value, "ON" | "TRUE" | "YES" | "Y" | "1")
}

/// The words of a variant, by its name; `None` where the name is not known.
fn words_of(name: &str) -> Option<BTreeSet<&'static str>> {
    if let Some((_, word)) = ARM.iter().find(|(known, _)| *known == name) {
        return Some(
            Some(*word)
                .filter(|word| !word.is_empty())
                .into_iter()
                .collect(),
        );
    }
    let mut words = BTreeSet::new();
    let mut name = name;
    while !name.is_empty() {
        let (_, parent, more) = PROCESSORS.iter().find(|(known, _, _)| *known == name)?;
        for (_, own) in SETS.iter().filter(|(set, _)| more.contains(set)) {
            words.extend(own.iter().copied());
        }
        name = parent;
    }
    Some(words)
}

/// Whether a word chooses instruction sets, or denies them.
fn chooses(word: &str) -> bool {
    if matches!(word, "-target-feature" | "-target-cpu") {
        return true;
    }
    let Some(name) = word.strip_prefix("-m") else {
        return false;
    };
    let name = name.strip_prefix("no-").unwrap_or(name);
    !FIRST.contains(&word) && !HARMLESS.iter().any(|known| name.starts_with(known))
}

/// The words of a command, and each of those that nvcc hands on: several may stand in one, with
/// commas or blanks between them.
fn expanded(words: &[String]) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    let mut is_handed_on = false;
    for word in words {
        let list = HANDS_ON
            .iter()
            .find_map(|option| word.strip_prefix(option)?.strip_prefix('='));
        match list.or_else(|| is_handed_on.then_some(word)) {
            Some(list) => all.extend(list.split([',', ' ', '\t'])),
            None => all.push(word),
        }
        is_handed_on = HANDS_ON.contains(&word.as_str());
    }
    all
}

/// The word of a command that takes this machine's instruction sets.
fn native(words: &[String]) -> Option<&str> {
    let mut all = expanded(words).into_iter();
    all.find(|word| NATIVE.contains(word))
}

/// The words of a command that choose instruction sets. Those that take this machine's are told of
/// by themselves.
fn chosen(words: &[String]) -> BTreeSet<&str> {
    let all = expanded(words).into_iter();
    all.filter(|word| chooses(word) && !NATIVE.contains(word))
        .collect()
}

/// Instruction sets that are named, where `GGML_NATIVE` takes what this machine has.
pub fn native_and_named(env: &BTreeMap<String, String>, cached: &Cache) -> Vec<Drift> {
    if !is_on(cached, "GGML_NATIVE") {
        return Vec::new();
    }
    let found = "GGML_NATIVE=ON, and the compiler takes what this machine has";
    let hint = "name instruction sets or build for this machine, not both: cargo xtask build \
                --cpu-variants builds for named ones";
    let named = SETS.iter().map(|(set, _)| format!("GGML_{set}"));
    let named = named.filter(|name| is_on(cached, name));
    let mut all: Vec<Drift> = named
        .map(|name| Drift::new(name, "ON", found, hint))
        .collect();
    for var in ["CFLAGS", "CXXFLAGS", "CPPFLAGS"] {
        let words = commands::split(env.get(var).map_or("", String::as_str));
        let is_set = |word: &&str| SETS.iter().any(|(_, own)| own.contains(word));
        let sets = expanded(&words).into_iter().filter(is_set);
        all.extend(sets.map(|word| Drift::new(var, word, found, hint)));
    }
    all
}

/// Instruction sets in variables that no command shows, in a build that is for all processors.
pub fn unseen(env: &BTreeMap<String, String>, cached: &Cache) -> Vec<Drift> {
    let mut all = Vec::new();
    if !is_on(cached, EACH) {
        return all;
    }
    for var in UNSEEN {
        let words = commands::split(env.get(var).map_or("", String::as_str));
        let words: Vec<String> = words.iter().map(|word| edited(word).to_owned()).collect();
        for word in chosen(&words).into_iter().chain(native(&words)) {
            all.push(Drift::new(
                EACH,
                "ON",
                format!("{var} has {word}"),
                format!("take {word} out of {var}: it reaches what runs on all processors"),
            ));
        }
    }
    all
}

/// What an edit of `CCC_OVERRIDE_OPTIONS` puts into a command (`+WORD`, `^WORD`, `s/OLD/WORD/`); any other word is itself.
fn edited(word: &str) -> &str {
    let replaced = || word.strip_prefix("s/")?.strip_suffix('/')?.split_once('/');
    match replaced() {
        Some((_, word)) => word,
        None => word.trim_start_matches(['+', '^', '#']),
    }
}

/// The option that compiles the CPU backend for each sort of processor; all else in such a build
/// runs on each.
const EACH: &str = "GGML_CPU_ALL_VARIANTS";

/// Commands that are told of other instruction sets than the options and names promise.
pub fn of_commands(commands: &Commands, cached: &Cache) -> Vec<Drift> {
    let is_native = is_on(cached, "GGML_NATIVE");
    let each = is_on(cached, EACH);
    let mut all = Vec::new();
    let mut portable: BTreeMap<&str, usize> = BTreeMap::new();
    let mut narrowed: BTreeMap<&str, usize> = BTreeMap::new();
    let (mut kernels, mut with_native) = (0, 0);
    for ((file, object), words) in commands {
        let told = native(words);
        if let Some(word) = told.filter(|_| !is_native) {
            *portable.entry(word).or_default() += 1;
        }
        let target = cpu_target(object);
        if let Some(Some(variant)) = target {
            all.extend(of_variant(variant, file, words));
        } else if each {
            for word in chosen(words) {
                *narrowed.entry(word).or_default() += 1;
            }
        }
        if target.is_some() {
            kernels += 1;
            with_native += usize::from(told.is_some());
        }
    }
    all.extend(narrowed.into_iter().map(|(word, count)| {
        Drift::new(
            EACH,
            "ON",
            format!("{count} commands of what runs on all processors have {word}"),
            format!(
                "take {word} out of CFLAGS and CXXFLAGS, or out of the build file that adds it"
            ),
        )
    }));
    all.extend(portable.into_iter().map(|(word, count)| {
        Drift::new(
            "GGML_NATIVE",
            "OFF",
            format!("{count} commands have {word}"),
            format!(
                "take {word} out of CFLAGS and CXXFLAGS, or out of the build file that adds it"
            ),
        )
    }));
    let is_x86 = cached
        .get("CMAKE_SYSTEM_PROCESSOR")
        .unwrap_or(std::env::consts::ARCH);
    if is_native
        && kernels > 0
        && with_native == 0
        && matches!(is_x86, "x86_64" | "AMD64" | "amd64")
    {
        all.push(Drift::new(
            "GGML_NATIVE",
            "ON",
            format!("none of {kernels} commands of the CPU backend has -march=native"),
            "the option does nothing: a build file of the tree does not pass it on",
        ));
    }
    all
}

/// Whether an object is one of the CPU backend; then, of which variant.
fn cpu_target(object: &str) -> Option<Option<&str>> {
    let folder = object.split('/').find(|part| part.ends_with(".dir"))?;
    let rest = folder.strip_suffix(".dir")?.strip_prefix("ggml-cpu")?;
    match rest.strip_prefix('-') {
        None if rest.is_empty() => Some(None),
        // What tells a processor's features runs on all of them.
        Some(variant) if variant.ends_with("-feats") => Some(Some("x64")),
        Some(variant) => Some(Some(variant)),
        None => None,
    }
}

/// Variants of whose names it is not known here what they promise, so that nothing is found in them.
pub fn unknown(commands: &Commands) -> BTreeSet<&str> {
    let targets = commands
        .keys()
        .filter_map(|(_, object)| cpu_target(object)?);
    targets.filter(|name| words_of(name).is_none()).collect()
}

fn of_variant(variant: &str, file: &str, words: &[String]) -> Option<Drift> {
    let promised = words_of(variant)?;
    let found = chosen(words);
    let more: Vec<&str> = found.difference(&promised).copied().collect();
    let less: Vec<&str> = promised.difference(&found).copied().collect();
    let what = match (more.is_empty(), less.is_empty()) {
        (true, true) => return None,
        (false, _) => format!("{file} is compiled with {}", more.join(" ")),
        (true, false) => format!("{file} is compiled without {}", less.join(" ")),
    };
    let asked = match promised.is_empty() {
        true => "no instruction set beyond the first".to_owned(),
        false => promised.into_iter().collect::<Vec<_>>().join(" "),
    };
    Some(Drift::new(
        format!("ggml-cpu-{variant}"),
        asked,
        what,
        "take instruction sets out of CFLAGS and CXXFLAGS; a processor of that name would not run \
         the library, or gain nothing from it",
    ))
}
