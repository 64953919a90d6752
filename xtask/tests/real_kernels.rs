//! The kernels of ggml-ext in the real llama.cpp: upstream's own tests of the ops, and faults that are
//! planted in a kernel. Runs under `cargo xtask test`, as `real.rs` does.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/real.rs"]
mod real;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use llama_patchset::model::Digest;
use llama_patchset::tree::TreeManifest;
use real::{copy, manifest_of_the_crate, ok, patched_server, put, root, wanted, xtask};

const SERIES: [&str; 4] = ["ext-core", "spec-counters", "spec-trace", "ext-kernels"];

/// Ops that have a kernel, and whether it has lanes: without any, a fault is one for all instruction sets.
const OPS: [(&str, bool); 3] = [("TOP_K", true), ("ARGMAX", true), ("PAD", false)];

/// A wrong index in the fourth lane; one in the second of each eight places, where the sampler has its largest candidate; and
/// each row copied one place too far: file, what stands there, what is planted.
const PLANTED: [(&str, &str, &str); OPS.len()] = [
    (
        "top_k.rs",
        "best.offer(value, (first + at + lane) as i32);",
        "best.offer(value, (first + at + lane - usize::from(L::N > 1 && lane == 3)) as i32);",
    ),
    (
        "argmax.rs",
        "best.index = (begin + at) as i32;",
        "best.index = (begin + at - usize::from(L::N > 1 && at % 8 == 1)) as i32;",
    ),
    (
        "pad.rs",
        "start.copy_to_nonoverlapping(work.dst.place(at, from), to - from);",
        "start.copy_to_nonoverlapping(work.dst.place(at, from + 1), to - from - 1);",
    ),
];

fn cxx() -> String {
    std::env::var("CXX").unwrap_or_else(|_| "c++".into())
}

/// Compiles `source` into `dir`, without optimisation, where that was not done before with the same source, headers
/// of the folder `include` and compiler. Time stamps say little: another base may have an older file.
fn object(dir: &Path, source: &Path, include: &Path) -> PathBuf {
    // Two tests want the same one at the same time.
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let _one = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(|lock| lock.into_inner());
    fs::create_dir_all(dir).unwrap();
    let version = Command::new(cxx()).arg("--version").output().unwrap();
    let headers = TreeManifest::of_tree(include, |_| false).unwrap();
    let parts = [
        Digest::of_file(source).unwrap(),
        headers.digest(),
        Digest::of(&version.stdout),
    ];
    let key = Digest::of_parts(parts.iter().map(|part| part.bytes().as_slice()));
    let object = dir.join(format!("{key}.o"));
    if object.is_file() {
        return object;
    }
    // What was of another source is not asked for again; one that is not whole must not be found.
    fs::remove_dir_all(dir).unwrap();
    fs::create_dir_all(dir).unwrap();
    let partial = dir.join("partial.o");
    let output = Command::new(cxx())
        .args(["-std=c++17", "-O0", "-c", "-I"])
        .args([include, source])
        .arg("-o")
        .arg(&partial)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    fs::rename(partial, &object).unwrap();
    object
}

#[test]
fn another_source_is_compiled_however_old_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let (source, include) = (dir.path().join("a.cpp"), dir.path().join("include"));
    put(&include.join("b.h"), "#define B 1\n");
    let compiled = |text: &str| {
        fs::write(&source, text).unwrap();
        let handle = fs::File::options().write(true).open(&source).unwrap();
        let long_ago = SystemTime::now() - Duration::from_secs(9999);
        handle.set_modified(long_ago).unwrap();
        let object = object(&dir.path().join("objects"), &source, &include);
        (
            fs::read(&object).unwrap(),
            fs::metadata(&object).unwrap().modified().unwrap(),
        )
    };
    let one = "#include <b.h>\nint a() { return B; }\n";
    let first = compiled(one);
    assert_eq!(compiled(one), first, "compiled again for nothing");
    let second = compiled(&one.replace("return B", "return B + 8"));
    assert_ne!(second.0, first.0);
    put(&include.join("b.h"), "#define B 5\n");
    assert_ne!(compiled(one).0, first.0);
}

/// Compiles upstream's test-backend-ops of the tree of a patched build, without optimisation: a
/// third of the time, and what it tests is in the libraries.
fn backend_ops(dir: &Path) -> PathBuf {
    let build = dir.join("target/llama/llama-0.5.0/patched-cpu");
    let tests = root().join("target/test-checkouts/backend-ops");
    let source = fs::canonicalize(build.join("src/tests/test-backend-ops.cpp")).unwrap();
    let include = build.join("src/ggml/include");
    let object = object(&tests.join("objects"), &source, &include);
    let bin = fs::canonicalize(build.join("out/bin")).unwrap();
    let program = tests.join(dir.file_name().unwrap().to_string_lossy().into_owned() + "-ops");
    let output = Command::new(cxx())
        .arg(&object)
        .arg("-o")
        .arg(&program)
        .arg("-L")
        .arg(&bin)
        .args(["-lggml", "-lggml-base", "-pthread"])
        .arg(format!("-Wl,-rpath,{}", bin.display()))
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    program
}

/// What it says of an op, and whether it passed.
fn judge(program: &Path, op: &str, kernels: &str, isa: &str) -> (bool, String) {
    let output = Command::new(program)
        .args(["test", "-b", "CPU", "-o", op])
        .env("OPENCOTI_EXT_KERNELS", kernels)
        .env("OPENCOTI_EXT_ISA", isa)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    (
        output.status.success(),
        text + &String::from_utf8_lossy(&output.stderr),
    )
}

/// The instruction set that is used where none is asked for: no fault of a lane would show without.
fn has_vectors(said: &str) -> bool {
    !said.contains("(scalar)")
}

#[test]
fn upstream_s_tests_of_the_ops_pass_with_the_kernels() {
    if !wanted("upstream_s_tests_of_the_ops_pass_with_the_kernels") {
        return;
    }
    let program = backend_ops(&root());
    for (op, _) in OPS {
        for isa in ["", "scalar"] {
            let (passed, said) = judge(&program, op, "all", isa);
            assert!(passed, "{op}: {said}");
            assert!(said.contains("kernels of ggml-ext "), "not active: {said}");
            let tests = said.matches("OK").count();
            assert!(tests > 3, "{op}: {said}");
            assert!(isa.is_empty() || said.contains("(scalar)"), "{said}");
        }
    }
}

/// Too short and too few for any figure to mean something.
const MEASURE: [&str; 9] = [
    "bench",
    "kernels",
    "--rounds",
    "3",
    "--vocabulary",
    "1000",
    "--threads",
    "1",
    "--json",
];

#[test]
fn the_benchmark_measures_each_kernel() {
    if !wanted("the_benchmark_measures_each_kernel") {
        return;
    }
    let json: serde_json::Value = serde_json::from_str(&ok(&root(), &MEASURE)).unwrap();
    let report = &json["data"];
    let active = report["active"].as_str().unwrap();
    for name in ["top_k", "argmax", "pad"] {
        assert!(active.contains(name), "{active}");
    }
    let mut rows: Vec<String> = Vec::new();
    for row in report["rows"].as_array().unwrap() {
        let word = |name: &str| row[name].as_str().unwrap();
        rows.push(format!(
            "{} {} {}",
            word("op"),
            word("order"),
            word("place")
        ));
        assert_eq!(
            (&row["vocabulary"], &row["threads"]),
            (&1000.into(), &1.into())
        );
        for time in ["ggml", "kernel", "read"] {
            assert!(row[time].as_f64().unwrap() >= 1.0, "{row}");
        }
    }
    rows.sort();
    let ops = [("argmax", 2), ("pad", 1), ("top_k", 2)];
    let orders = ["ascending", "random"];
    let wanted = ops.iter().flat_map(|(op, count)| {
        let orders = orders[2 - count..].iter();
        orders
            .flat_map(move |order| ["cache", "memory"].map(|place| format!("{op} {order} {place}")))
    });
    assert_eq!(rows, wanted.collect::<Vec<_>>());
}

fn gates() -> [(&'static str, String); 4] {
    let gate = |name: &str, kind: &str, flags: &str, env: &str| {
        format!(
            r#"schema = 1
id = "planted-{name}"
kind = "{kind}"
title = "A planted fault"
model = {{ fixture = "launch-nextn" }}
n-predict = 48
flags = [{flags}]
baseline = {{ build = "patched", env = {{ OPENCOTI_SPEC_COUNTERS = "1" }} }}
[candidate]
build = "patched"
[candidate.env]
OPENCOTI_SPEC_COUNTERS = "1"
{env}
"#
        )
    };
    let prompt =
        "[[prompt]]\nname = \"long\"\ngenerate = { seed = 2, length = 60, low = 4, high = 2048 }\n";
    let setting = "[[setting]]\nname = \"plain\"\nn-max = [3]\nslots = [1]\n";
    let top_k = "OPENCOTI_EXT_KERNELS = \"top_k\"";
    let argmax = "n-max = [0]\nslots = [1]\n";
    let pad = gate("pad", "drafts", "", "OPENCOTI_EXT_KERNELS = \"pad\"") + setting + prompt;
    [
        ("pad", pad),
        (
            "top-k",
            gate("top-k", "drafts", "", top_k) + setting + prompt,
        ),
        (
            "top-k-scalar",
            gate(
                "top-k-scalar",
                "drafts",
                "",
                &format!("{top_k}\nOPENCOTI_EXT_ISA = \"scalar\""),
            ) + setting
                + prompt,
        ),
        (
            "argmax",
            gate(
                "argmax",
                "chash",
                "\"--backend-sampling\", \"--samplers\", \"top_k;temperature\"",
                "OPENCOTI_EXT_KERNELS = \"argmax\"",
            )
            .replace("n-predict", &format!("{argmax}n-predict"))
                + prompt,
        ),
    ]
}

/// The checkout's own crate is built, with faults that only vectors have. Scalar is the control.
#[test]
fn a_wrong_index_in_one_lane_is_caught() {
    if !wanted("a_wrong_index_in_one_lane_is_caught") {
        return;
    }
    let dir = root().join("target/test-checkouts/planted-kernel");
    for part in [
        "registry",
        "gates/fixtures.toml",
        "gates/prompts",
        "ggml-ext/include",
        "Cargo.lock",
    ] {
        copy(&root().join(part), &dir.join(part));
    }
    for patch in SERIES {
        let part = format!("patches/{patch}");
        copy(&root().join(&part), &dir.join(&part));
    }
    put(
        &dir.join("registry/series.toml"),
        format!("schema = 1\n[series]\n\"llama-0.5.0\" = {SERIES:?}\n"),
    );
    crate_with_faults(&dir);
    for (name, text) in gates() {
        put(&dir.join(format!("gates/planted-{name}.toml")), &text);
    }
    ok(&dir, &["apply", "--discard-edits"]);
    ok(&dir, &["build", "--patched"]);

    let program = backend_ops(&dir);
    for (op, has_lanes) in OPS {
        let (passed, said) = judge(&program, op, "all", "");
        assert!(has_vectors(&said), "this machine has no vectors: {said}");
        assert!(!passed, "{op}: {said}");
        let (passed, said) = judge(&program, op, "all", "scalar");
        assert_eq!(passed, has_lanes, "{op}: {said}");
        let (passed, said) = judge(&program, op, "", "");
        assert!(passed, "{op}, by ggml's own code: {said}");
    }
    let output = xtask(&dir, &MEASURE);
    let told = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{told}");
    assert!(told.contains("than ggml"), "{told}");
    for (name, verdict, word) in [
        ("top-k", "fail", "candidates differ"),
        ("top-k-scalar", "pass", ""),
        ("argmax", "fail", ""),
        ("pad", "fail", "differ"),
    ] {
        let server = patched_server(&dir);
        let server = server.to_str().unwrap();
        let gate = format!("planted-{name}");
        let args = [
            "gate",
            "--json",
            "--gate",
            &gate,
            "--baseline",
            server,
            "--candidate",
            server,
        ];
        let output = xtask(&dir, &args);
        let text = String::from_utf8(output.stdout).unwrap();
        let json: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|error| {
            panic!("{error}: {text}{}", String::from_utf8_lossy(&output.stderr))
        });
        let cell = &json["data"]["gates"][0]["cells"][0];
        assert_eq!(cell["verdict"], verdict, "{gate}: {text}");
        let reason = cell["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(word), "{gate}: {reason}");
    }
    a_kernel_that_is_none_is_no_pass(&dir);
}

/// Off against off, which only the log of the program that reads logits says.
fn a_kernel_that_is_none_is_no_pass(dir: &Path) {
    let server = patched_server(dir);
    let server = server.to_str().unwrap();
    for (kernels, code, word) in [
        ("nosuch", 3, "`nosuch`, which is no kernel"),
        ("pad", 0, "pass"),
    ] {
        let text = format!(
            "schema = 1\nid = \"planted-logits\"\nkind = \"logits\"\ntitle = \"T\"\nsingle = 2\n\
             model = {{ fixture = \"launch-nextn\" }}\nbaseline = {{ build = \"patched\" }}\n\
             candidate = {{ build = \"patched\", env = {{ OPENCOTI_EXT_KERNELS = \"{kernels}\" }} }}\n\
             [[setting]]\nname = \"a\"\n\
             [[prompt]]\nname = \"p\"\ngenerate = {{ seed = 2, length = 20, low = 4, high = 2048 }}\n"
        );
        put(&dir.join("gates/planted-logits.toml"), &text);
        let gate = [
            "gate",
            "--gate",
            "planted-logits",
            "--baseline",
            server,
            "--candidate",
            server,
        ];
        let output = xtask(dir, &gate);
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert_eq!(output.status.code(), Some(code), "{kernels}: {said}");
        assert!(said.contains(word), "{kernels}: {said}");
    }
}

/// The crate and a workspace for it alone.
fn crate_with_faults(dir: &Path) {
    put(&dir.join("Cargo.toml"), manifest_of_the_crate());
    copy_with_faults(&root().join("ggml-ext/src"), &dir.join("ggml-ext/src"));
    let manifest = fs::read_to_string(root().join("ggml-ext/Cargo.toml")).unwrap();
    put(&dir.join("ggml-ext/Cargo.toml"), &manifest);
}

fn copy_with_faults(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name().into_string().unwrap());
        if path.is_dir() {
            copy_with_faults(&path, &to.join(&name));
            continue;
        }
        let mut text = fs::read_to_string(&path).unwrap();
        for (file, right, wrong) in PLANTED {
            if file == name {
                assert_eq!(
                    text.matches(right).count(),
                    1,
                    "{name} no longer has `{right}`"
                );
                text = text.replace(right, wrong);
            }
        }
        put(&to.join(&name), &text);
    }
}
