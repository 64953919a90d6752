//! Made-up machines.

use super::*;
use crate::build::drift::Vocabulary;
use crate::build::lookup::fake::Fake;
use crate::build::testing::{Toy, toy_ctx};

const NVCC: &str = "nvcc: NVIDIA (R) Cuda compiler driver\nCuda compilation tools, release 13.0, V13.0.88\n\
    compute_80\ncompute_90\ncompute_120\n";
const HOST: &str = "#if __GNUC__ > 15\n#error -- unsupported GNU version! gcc versions later than 15 are not supported!\n\
    #error -- unsupported clang version! clang version must be less than 21 and greater than 3.2 .\n";

/// A machine with a toolkit and without a GPU.
fn machine() -> Fake {
    Fake::complete()
        .with("/usr/local/cuda/bin/nvcc", NVCC)
        .file("/usr/local/cuda/include/crt/host_config.h", HOST)
}

fn asks(toy: &Toy, machine: &Fake, arch: Option<&str>) -> Result<(CudaKit, CudaArchs)> {
    let tools = tools::resolve(&toy.ctx, machine)?;
    let mut recipe = toy.recipe(Flavour::Patched);
    recipe.backend = crate::build::options::CUDA.to_owned();
    recipe.cuda.gpus = arch.map(|arch| wish(arch).unwrap());
    CudaKit::resolve(&toy.ctx, machine, &tools, &recipe)
}

fn refused(machine: &Fake, arch: &str, parts: &[&str]) -> Error {
    let toy = toy_ctx();
    let error = asks(&toy, machine, Some(arch)).unwrap_err();
    assert_eq!(error.kind().exit_code(), 2);
    for part in parts {
        assert!(error.to_string().contains(part), "{part}: {error}");
    }
    assert!(!error.hints().is_empty(), "{error}");
    assert!(
        !toy.ctx.project.cache().join("tools").exists(),
        "it began to fetch"
    );
    error
}

#[test]
fn an_installed_toolkit_is_taken() {
    let toy = toy_ctx();
    let (kit, archs) = asks(&toy, &machine(), Some("120;90")).unwrap();
    assert_eq!(kit.root, Path::new("/usr/local/cuda"));
    assert_eq!(kit.nvcc.version.to_string(), "13.0.88");
    assert_eq!(archs.to_string(), "90;120");
    assert_eq!(kit.versions()["cuda"], "13.0.88");
    // What the environment names comes first, then `PATH`.
    let with_path = machine().with("nvcc", &NVCC.replace("13.0", "12.9"));
    let (kit, _) = asks(&toy, &with_path, Some("90")).unwrap();
    assert_eq!(
        (kit.root, kit.nvcc.version.to_string()),
        (PathBuf::from("/usr"), "12.9.88".into())
    );
    let named = with_path
        .set("CUDA_PATH", "/own")
        .with("/own/bin/nvcc", &NVCC.replace("13.0", "12.8"));
    let (kit, _) = asks(&toy, &named, Some("90")).unwrap();
    assert_eq!(kit.root, Path::new("/own"));
}

#[test]
fn a_toolkit_that_is_named_and_is_none_is_refused() {
    for name in NAMED {
        let error = refused(
            &machine().set(name, "/nowhere"),
            "90",
            &["is no CUDA compiler"],
        );
        assert!(
            error.to_string().contains(&format!("{name} is /nowhere")),
            "{error}"
        );
    }
    let silent = machine().with("/usr/local/cuda/bin/nvcc", "nothing\n");
    refused(
        &silent,
        "90",
        &["/usr/local/cuda/bin/nvcc", "tells its version"],
    );
}

#[test]
fn what_is_too_old_is_said_with_both_versions() {
    let old = NVCC.replace("13.0", "11.5");
    refused(
        &machine().with("/usr/local/cuda/bin/nvcc", &old),
        "90",
        &[
            "toolkit 11.5.88 at /usr/local/cuda",
            "too old",
            "at least 11.8",
        ],
    );
    let cmake = machine().with("cmake", "cmake version 3.18.0");
    // 3.18 is enough for all; what the registry says is what counts.
    let toy = toy_ctx();
    asks(&toy, &cmake, Some("90")).unwrap();
    let registry = toy.root().join("registry/toolchains.toml");
    let text = std::fs::read_to_string(&registry).unwrap();
    std::fs::write(
        &registry,
        text.replace("cmake = \"3.18\"", "cmake = \"3.99\""),
    )
    .unwrap();
    let error = asks(&toy, &machine(), Some("90")).unwrap_err();
    assert!(error.message().contains("at least 3.99"), "{error}");
}

#[test]
fn a_host_compiler_that_nvcc_does_not_take_is_refused() {
    let gnu = |version: &str| {
        let text = format!("c++ (GCC) {version}\nFree Software Foundation");
        machine().with("cc", &text).with("c++", &text)
    };
    let toy = toy_ctx();
    asks(&toy, &gnu("15.2.0"), Some("90")).unwrap();
    let error = refused(
        &gnu("16.1.0"),
        "90",
        &["/usr/bin/c++", "16.1.0", "CUDA 13.0.88", "at most gcc 15"],
    );
    assert!(error.hints()[0].contains("CXX=g++-15"));
    let clang = |version: &str| {
        let text = format!("clang version {version}");
        machine().with("cc", &text).with("c++", &text)
    };
    asks(&toy, &clang("20.1.0"), Some("90")).unwrap();
    refused(&clang("21.1.0"), "90", &["at most clang 20"]);
}

#[test]
fn a_gpu_that_nvcc_does_not_know_is_refused() {
    let error = refused(
        &machine(),
        "90;70",
        &["CUDA 13.0.88 does not compile for sm_70"],
    );
    assert_eq!(error.kind(), crate::Kind::Usage);
    assert_eq!(error.hints()[0], "it compiles for 80, 90, 120");
    for text in ["sm_90", "", "9.0", "all"] {
        let error = wish(text).unwrap_err();
        assert_eq!(error.kind(), crate::Kind::Usage);
    }
}

#[test]
fn native_needs_a_gpu_and_says_so_before_anything_is_fetched() {
    let toy = toy_ctx();
    let bare = Fake::complete();
    for machine in [
        machine(),
        bare.clone(),
        bare.with("nvidia-smi", "No devices were found\n"),
    ] {
        let error = refused(&machine, "native", &["no GPU of NVIDIA's"]);
        assert!(error.hints()[0].contains("--arch 90"));
        assert!(asks(&toy, &machine, None).is_err());
    }
    let here = machine().with("nvidia-smi", "9.0, 580.95.05\n9.0, 580.95.05\n");
    for arch in [Some("native"), None] {
        let (_, archs) = asks(&toy, &here, arch).unwrap();
        assert_eq!(archs.to_string(), "90");
    }
}

#[test]
fn a_driver_that_could_not_run_it_is_told_before_it_is_built() {
    let old = machine().with("nvidia-smi", "9.0, 535.104.05\n");
    refused(
        &old,
        "native",
        &[
            "CUDA 13.0.88 is too new for the driver 535.104.5",
            "580.65.6",
        ],
    );
    // For another machine, this one's driver does not count.
    asks(&toy_ctx(), &old, Some("90")).unwrap();
}

#[test]
fn without_a_wish_it_is_built_as_before() {
    let toy = toy_ctx();
    let mut recipe = toy.recipe(Flavour::Vanilla);
    recipe.backend = crate::build::options::CUDA.to_owned();
    let machine = machine();
    let tools = tools::resolve(&toy.ctx, &machine).unwrap();
    let (kit, archs) = asks(&toy, &machine, Some("80;90")).unwrap();
    let known = (&Vocabulary::default(), crate::model::Digest::of(b""));
    let mut request = Request::new(&toy.ctx, &machine, &recipe, &tools, None, None, known).unwrap();
    let dir = recipe.dir(&toy.ctx);
    kit.ask(&mut request, &machine, &archs, &dir).unwrap();
    std::fs::create_dir_all(&dir).unwrap();
    crate::model::write_json(&dir.join(configure::FILE), &request).unwrap();
    // The other flavour is to be like it.
    let (_, found) = asks(&toy, &machine, None).unwrap();
    assert_eq!(found.to_string(), "80;90");
    let (_, found) = asks(&toy, &machine, Some("120")).unwrap();
    assert_eq!(found.to_string(), "120");
}

#[test]
fn cmake_is_asked_for_all_of_it() {
    let toy = toy_ctx();
    let machine = machine()
        .set("LDFLAGS", "-Lown")
        .set("CUDAFLAGS", "-lineinfo")
        .set("NVCC_APPEND_FLAGS", "-G");
    let recipe = toy.recipe(Flavour::Patched);
    let ask = |machine: &Fake| {
        let tools = tools::resolve(&toy.ctx, machine).unwrap();
        let (kit, archs) = asks(&toy, machine, Some("90")).unwrap();
        let known = (&Vocabulary::default(), crate::model::Digest::of(b""));
        let mut request =
            Request::new(&toy.ctx, machine, &recipe, &tools, None, None, known).unwrap();
        kit.ask(&mut request, machine, &archs, Path::new("/b"))
            .unwrap();
        request
    };
    let request = ask(&machine);
    let flags = &request.flags;
    assert_eq!(flags[ARCHS], "90");
    assert_eq!(flags["CMAKE_CUDA_COMPILER"], "/usr/local/cuda/bin/nvcc");
    assert_eq!(flags["CMAKE_CUDA_HOST_COMPILER"], "/usr/bin/c++");
    assert_eq!(flags["CMAKE_CUDA_COMPILER_LAUNCHER"], "/usr/bin/ccache");
    assert_eq!(
        flags["CMAKE_CUDA_FLAGS"], "-lineinfo",
        "ccache maps paths itself"
    );
    assert_eq!(
        flags["CMAKE_EXE_LINKER_FLAGS"],
        "-Wl,--allow-shlib-undefined -Lown"
    );
    assert_eq!(request.env["NVCC_APPEND_FLAGS"], "-G");
    let plain = ask(&machine.without("ccache"));
    let map = r#""-Xcompiler=-ffile-prefix-map=\"/b\"=..""#;
    assert_eq!(plain.flags["CMAKE_CUDA_FLAGS"], format!("{map} -lineinfo"));
    // Another toolkit: nothing that was made with the old one stays.
    let dir = toy.dir.path().join("build");
    std::fs::create_dir_all(dir.join("out")).unwrap();
    crate::model::write_json(&dir.join(configure::FILE), &request).unwrap();
    let mut other = request.clone();
    other.cuda.as_mut().unwrap().nvcc_text.push('x');
    let need = other.need(&dir);
    assert!(matches!(need, configure::Need::Scratch(why) if why.contains("CUDA toolkit")));
}

#[test]
fn a_survey_says_what_is_there_and_brings_nothing() {
    let toy = toy_ctx();
    let wanted = tools::tests::committed().cuda;
    let told = |machine: &Fake| survey(&toy.ctx, machine, &wanted);
    assert_eq!(told(&machine()).unwrap(), "toolkit 13.0.88, no GPU");
    let gpu = Fake::complete().with("nvidia-smi", "9.0, 580.95.05\n");
    assert_eq!(
        told(&gpu).unwrap(),
        "the next build unpacks a toolkit into the cache, sm_90 with driver 580.95.5"
    );
    let old = machine().with("/usr/local/cuda/bin/nvcc", "release 10.2, V10.2.89");
    assert!(
        told(&old)
            .unwrap_err()
            .message()
            .contains("10.2.89 is too old")
    );
    assert!(!toy.ctx.project.cache().join("tools").exists());
}
