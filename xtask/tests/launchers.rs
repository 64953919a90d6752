//! Compiler launchers with a cache behind the network: a real redis-server on the loopback, a real
//! ccache, sccache and icecc, with a scheduler and a daemon of its own. The tree is a small one.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

#[path = "support/ci.rs"]
mod ci;

use std::fs;
use std::io::{Read, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use llama_patchset::tree::TreeManifest;

/// Where a program is; says so where it is missing, and fails there if CI is to have it.
fn program(name: &str, in_ci: bool) -> Option<PathBuf> {
    let found = std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join(name))
        .find(|path| path.is_file());
    if found.is_none() {
        assert!(!in_ci || !ci::on_ci(), "{name} is missing");
        let _ = writeln!(std::io::stderr(), "left out, since there is no {name}");
    }
    found
}

/// A port that is free right now.
fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

/// A redis-server that keeps nothing, and ends with the test.
struct Redis {
    child: Child,
    port: u16,
}

impl Redis {
    fn start() -> Option<Redis> {
        let redis = program("redis-server", true)?;
        let port = free_port();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .arg(redis)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--port", &port.to_string(), "--maxmemory", "64mb"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let redis = Redis { child, port };
        let begun = Instant::now();
        while redis.ask("PING").is_none_or(|said| said != "+PONG") {
            assert!(begun.elapsed() < Duration::from_secs(30), "it is not up");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(redis)
    }

    /// What it answers to one inline command, the first line.
    fn ask(&self, command: &str) -> Option<String> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream
            .set_read_timeout(Some(Duration::from_secs(5)))
            .unwrap();
        stream.write_all(format!("{command}\r\n").as_bytes()).ok()?;
        let mut bytes = [0; 256];
        let got = stream.read(&mut bytes).ok()?;
        let text = String::from_utf8_lossy(&bytes[..got]).into_owned();
        text.lines().next().map(str::to_owned)
    }

    fn keys(&self) -> u64 {
        let said = self.ask("DBSIZE").unwrap();
        said.trim_start_matches(':').parse().unwrap()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

const LISTS: &str = r#"
cmake_minimum_required(VERSION 3.18)
project(toy C CXX)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
add_library(llama SHARED llama.c)
foreach(name llama-server llama-bench)
    add_executable(${name} ${name}.cpp)
    target_link_libraries(${name} llama)
endforeach()
"#;

/// Files that are compiled: one for the library, and one for each program.
const FILES: u64 = 3;

/// Two checkouts of the same small tree.
struct Setup(tempfile::TempDir);

impl Setup {
    fn new() -> Setup {
        let dir = tempfile::tempdir().unwrap();
        let upstream = dir.path().join("upstream");
        fs::create_dir(&upstream).unwrap();
        for (name, text) in [
            ("CMakeLists.txt", LISTS),
            ("llama.c", "int llama(void) { return 7; }\n"),
            (
                "llama-server.cpp",
                "extern \"C\" int llama();\nint main() { return llama(); }\n",
            ),
            (
                "llama-bench.cpp",
                "extern \"C\" int llama();\nint main() { return llama() - 7; }\n",
            ),
        ] {
            fs::write(upstream.join(name), text).unwrap();
        }
        let tree = TreeManifest::of_tree(&upstream, |_| false)
            .unwrap()
            .digest();
        for checkout in ["one", "two"] {
            let registry = dir.path().join(checkout).join("registry");
            fs::create_dir_all(&registry).unwrap();
            let base = format!(
                "schema = 1\ndefault = \"toy\"\n[[base]]\nid = \"toy\"\ntree = \"{tree}\"\n\
                 [[base.source]]\ndir = {{ path = \"../upstream\" }}\n"
            );
            fs::write(registry.join("upstreams.toml"), base).unwrap();
            fs::write(registry.join("series.toml"), "schema = 1\n[series]\n").unwrap();
            let tools = concat!(env!("CARGO_MANIFEST_DIR"), "/../registry/toolchains.toml");
            fs::copy(tools, registry.join("toolchains.toml")).unwrap();
        }
        Setup(dir)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Builds vanilla in a checkout.
    fn build(&self, checkout: &str, launcher: &str, env: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
        command
            .args(["build", "--vanilla", "--json", "--launcher", launcher])
            .args(["--no-provision", "--root"])
            .arg(self.path(checkout))
            .env("LLAMA_PATCHSET_CACHE", self.path("cache"));
        for name in [
            "CCACHE_DISABLE",
            "CCACHE_RECACHE",
            "CCACHE_SECONDARY_STORAGE",
        ] {
            command.env_remove(name);
        }
        command.envs(env.iter().copied()).output().unwrap()
    }

    /// What the launcher did for a build that must succeed.
    fn stats(&self, checkout: &str, launcher: &str, env: &[(&str, &str)]) -> serde_json::Value {
        let output = self.build(checkout, launcher, env);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{error}");
        let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        let build = &json["data"]["builds"][0];
        if launcher != "none" {
            assert_eq!(build["manifest"]["launcher"], launcher);
        }
        build["launcher"].clone()
    }
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_second_folder_with_an_empty_cache_gets_its_objects_from_redis() {
    let (Some(_), Some(redis)) = (program("ccache", true), Redis::start()) else {
        return;
    };
    let setup = Setup::new();
    let url = format!("redis://127.0.0.1:{}", redis.port);
    let (first, second) = (setup.path("first"), setup.path("second"));
    let env = |dir: &'static str| {
        let dir = match dir {
            "first" => text(&first),
            _ => text(&second),
        };
        [("CCACHE_DIR", dir), ("CCACHE_REMOTE_STORAGE", &*url)]
    };
    let cold = setup.stats("one", "ccache", &env("first"));
    assert_eq!((&cold["hits"], &cold["misses"]), (&0.into(), &FILES.into()));
    assert!(redis.keys() >= FILES, "{}", redis.keys());
    let warm = setup.stats("two", "ccache", &env("second"));
    assert_eq!(
        (&warm["hits"], &warm["misses"], &warm["remote_hits"]),
        (&FILES.into(), &0.into(), &FILES.into()),
        "{warm}"
    );
    assert_eq!(warm["exact"], true);
    // Nothing to compile: nothing to tell.
    assert!(setup.stats("two", "ccache", &env("second")).is_null());
    // A redis that is gone makes a build slower, which is said, and fails nothing.
    drop(redis);
    let third = setup.path("third");
    let env = [
        ("CCACHE_DIR", text(&third)),
        ("CCACHE_REMOTE_STORAGE", &*url),
    ];
    fs::remove_dir_all(setup.path("two/target")).unwrap();
    let alone = setup.stats("two", "ccache", &env);
    assert_eq!(alone["misses"], FILES);
    assert!(alone["errors"].as_u64().unwrap() > 0, "{alone}");
}

#[test]
fn sccache_serves_the_folder_that_it_compiled_for() {
    let Some(sccache) = program("sccache", true) else {
        return;
    };
    let setup = Setup::new();
    let (port, cache) = (free_port().to_string(), setup.path("sccache"));
    let env = [
        ("SCCACHE_SERVER_PORT", port.as_str()),
        ("SCCACHE_DIR", text(&cache)),
        ("SCCACHE_IDLE_TIMEOUT", "120"),
    ];
    let cold = setup.stats("one", "sccache", &env);
    assert_eq!(cold["misses"], FILES, "{cold}");
    assert_eq!(cold["exact"], false);
    fs::remove_dir_all(setup.path("one/target")).unwrap();
    let warm = setup.stats("one", "sccache", &env);
    assert_eq!((&warm["hits"], &warm["misses"]), (&FILES.into(), &0.into()));
    // What no command shows is part of its keys as well: another processor's objects are not served,
    // nor those that another variable made.
    for (name, value) in [
        ("SCCACHE_C_CUSTOM_CACHE_BUSTER", "another"),
        ("CPATH", "/nonexistent"),
    ] {
        fs::remove_dir_all(setup.path("one/target")).unwrap();
        let other = [&env[..], &[(name, value)]].concat();
        let other = setup.stats("one", "sccache", &other);
        let counts = (&other["hits"], &other["misses"]);
        assert_eq!(counts, (&0.into(), &FILES.into()), "{name}");
    }
    let stopped = Command::new(sccache)
        .arg("--stop-server")
        .envs(env)
        .output()
        .unwrap();
    assert!(stopped.status.success());
    // A server that cannot start is said once, before a compiler is called.
    let file = setup.path("file");
    fs::write(&file, "").unwrap();
    let broken = [
        ("SCCACHE_SERVER_PORT", port.as_str()),
        ("SCCACHE_REDIS", "redis://127.0.0.1:1"),
        ("SCCACHE_DIR", text(&file)),
    ];
    let output = setup.build("two", "sccache", &broken);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(
        error.contains("the server of sccache does not start"),
        "{error}"
    );
}

/// A scheduler and a daemon of icecc on the loopback, which end with the test.
struct Icecc {
    children: Vec<Child>,
    log: PathBuf,
    socket: PathBuf,
}

impl Icecc {
    /// Both drop root's rights, and write where they are told: into `dir`, which is made for them.
    fn start(dir: &Path) -> Option<Icecc> {
        use std::os::unix::fs::PermissionsExt as _;
        let needed = ["icecc", "icecc-scheduler", "iceccd"].map(|name| program_of_root(name, true));
        let [Some(_), Some(scheduler), Some(daemon)] = needed else {
            return None;
        };
        fs::create_dir(dir).unwrap();
        fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
        // They are to reach it, too.
        let parent = dir.parent().unwrap();
        fs::set_permissions(parent, fs::Permissions::from_mode(0o755)).unwrap();
        let (log, socket) = (dir.join("scheduler.log"), dir.join("socket"));
        let port = free_port();
        let net = format!("test-{port}");
        let start = |program: &Path, log: &Path, args: &[&str]| {
            Command::new("setpriv")
                .args(["--pdeathsig", "KILL", "--"])
                .arg(program)
                .args(["-vvv", "-n", &net, "-l"])
                .arg(log)
                .args(args)
                .env("ICECC_TEST_SOCKET", &socket)
                // Packing the compiler for others takes seconds, and here it goes to nobody.
                .env("ICECC_ENV_COMPRESSION", "none")
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap()
        };
        let own = start(&scheduler, &log, &["-p", &port.to_string()]);
        let icecc = Icecc {
            children: vec![own],
            log,
            socket: socket.clone(),
        };
        icecc.until("scheduler ready");
        let at = format!("127.0.0.1:{port}");
        let folder = dir.join("envs");
        let args = ["-s", &at, "-b", text(&folder), "-N", "here", "-m", "2"];
        let mut icecc = icecc;
        let own = start(
            &daemon,
            &dir.join("daemon.log"),
            &[&args[..], &["--no-remote"]].concat(),
        );
        icecc.children.push(own);
        icecc.until("login here");
        Some(icecc)
    }

    fn said(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn until(&self, said: &str) {
        let begun = Instant::now();
        while !self.said().contains(said) {
            assert!(begun.elapsed() < Duration::from_secs(60), "{}", self.said());
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Icecc {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// As [`program`], also where only root looks.
fn program_of_root(name: &str, in_ci: bool) -> Option<PathBuf> {
    let root = Path::new("/usr/sbin").join(name);
    match root.is_file() {
        true => Some(root),
        false => program(name, in_ci),
    }
}

/// What the scheduler writes down of each job is that it came, on whom it ran, and how it ended. There is one
/// machine, so that all ran here: by the scheduler's word, and not for want of one.
#[test]
fn a_scheduler_of_icecc_is_asked_for_each_file() {
    let setup = Setup::new();
    let Some(icecc) = Icecc::start(&setup.path("icecc")) else {
        return;
    };
    let env = [("ICECC_TEST_SOCKET", text(&icecc.socket))];
    let output = setup.build("one", "icecc", &env);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(!error.contains("iceccd"), "{error}");
    for source in ["llama.c", "llama-server.cpp", "llama-bench.cpp"] {
        icecc.until(&format!("/{source} "));
    }
    let jobs = |start: &str| {
        let said = icecc.said();
        let lines = said.lines().filter(|line| line.contains(start));
        lines.count() as u64
    };
    // CMake's own tries are jobs, too.
    assert!(jobs("NEW ") >= FILES, "{}", icecc.said());
    let begun = Instant::now();
    while jobs(" status=0 ") < FILES {
        assert!(
            begun.elapsed() < Duration::from_secs(30),
            "{}",
            icecc.said()
        );
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(icecc.said().contains("server=here"), "{}", icecc.said());
}

/// A program that passes for it: what is called when, and what is said where no daemon answers.
#[test]
fn icecc_is_called_and_its_missing_daemon_is_said() {
    use std::os::unix::fs::PermissionsExt as _;
    use std::os::unix::net::UnixListener;
    let setup = Setup::new();
    let bin = setup.path("bin");
    fs::create_dir(&bin).unwrap();
    let (fake, calls) = (bin.join("icecc"), setup.path("calls"));
    let script = format!(
        "#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 'ICECC 1.4.0'; exit; }}\n\
         echo \"$1\" >>'{}'\nexec \"$@\"\n",
        calls.display()
    );
    fs::write(&fake, script).unwrap();
    fs::set_permissions(&fake, fs::Permissions::from_mode(0o755)).unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let socket = setup.path("iceccd.socket");
    let env = [
        ("PATH", path.as_str()),
        ("ICECC_TEST_SOCKET", text(&socket)),
    ];
    let output = setup.build("one", "icecc", &env);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{error}");
    assert!(error.contains("icecc finds no iceccd"), "{error}");
    let called = fs::read_to_string(&calls).unwrap().lines().count() as u64;
    assert_eq!(called, FILES);
    let _listener = UnixListener::bind(&socket).unwrap();
    fs::remove_dir_all(setup.path("one/target")).unwrap();
    let output = setup.build("one", "icecc", &env);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!error.contains("iceccd"), "{error}");
}

#[test]
fn a_launcher_that_is_not_there_is_an_error() {
    let setup = Setup::new();
    let output = setup.build("one", "scache", &[]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("unknown compiler launcher `scache`"),
        "{error}"
    );
    // None is a choice, too, and makes no other build.
    assert!(setup.stats("one", "none", &[]).is_null());
}
