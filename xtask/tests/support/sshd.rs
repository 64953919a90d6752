//! A real sshd on the loopback, with keys and a configuration of its own, that ends with its test.

#![allow(dead_code)]

#[path = "ci.rs"]
pub mod ci;

use std::fs;
use std::io::Write as _;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Whether everything is there; says so where it is not, and fails there if CI is to have it.
pub fn available(test: &str) -> bool {
    let missing: Vec<&str> = ["/usr/sbin/sshd", "ssh", "ssh-keygen", "rsync"]
        .into_iter()
        .filter(|name| find(name).is_none())
        .collect();
    if missing.is_empty() {
        return true;
    }
    assert!(!ci::on_ci(), "missing: {}", missing.join(" "));
    let _ = writeln!(
        std::io::stderr(),
        "{test}: left out, since there is no {}",
        missing.join(", no ")
    );
    false
}

fn find(name: &str) -> Option<PathBuf> {
    std::env::split_paths(&std::env::var_os("PATH").unwrap())
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// A running sshd.
pub struct Sshd {
    child: Child,
    dir: PathBuf,
    pub port: u16,
    /// Its public key: type and key.
    pub key: String,
}

impl Sshd {
    /// Starts one in `dir`, whose sessions find the programs of `dir/bin` first.
    pub fn start(dir: &Path) -> Sshd {
        fs::create_dir_all(dir.join("bin")).unwrap();
        for name in ["host", "user"] {
            let made = Command::new("ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f"])
                .arg(dir.join(name))
                .status()
                .unwrap();
            assert!(made.success());
        }
        fs::copy(dir.join("user.pub"), dir.join("authorized")).unwrap();
        // Where sshd runs as root, it wants this folder, which a system's start would make.
        let _ = fs::create_dir_all("/run/sshd");
        let port = {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey \"{dir}/host\"\n\
             AuthorizedKeysFile \"{dir}/authorized\"\nStrictModes no\nUsePAM no\nPidFile none\n\
             PermitRootLogin prohibit-password\nPasswordAuthentication no\n\
             KbdInteractiveAuthentication no\nMaxStartups 100\nPrintMotd no\n\
             SetEnv PATH={dir}/bin:/usr/local/bin:/usr/bin:/bin\n",
            dir = dir.display()
        );
        fs::write(dir.join("sshd_config"), config).unwrap();
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--"])
            .args(["/usr/sbin/sshd", "-D", "-E"])
            .arg(dir.join("sshd.log"))
            .arg("-f")
            .arg(dir.join("sshd_config"))
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let key = fs::read_to_string(dir.join("host.pub")).unwrap();
        let words: Vec<&str> = key.split_whitespace().take(2).collect();
        let sshd = Sshd {
            child,
            dir: dir.to_path_buf(),
            port,
            key: words.join(" "),
        };
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = fs::read_to_string(dir.join("sshd.log")).unwrap_or_default();
            assert!(begun.elapsed() < Duration::from_secs(60), "{log}");
            std::thread::sleep(Duration::from_millis(50));
        }
        sshd
    }

    /// Puts a program before the system's in the path of its sessions.
    pub fn shim(&self, name: &str, script: &str) {
        let path = self.dir.join("bin").join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Takes it away again.
    pub fn unshim(&self, name: &str) {
        fs::remove_file(self.dir.join("bin").join(name)).unwrap();
    }

    /// The private key that it lets in.
    pub fn identity(&self) -> PathBuf {
        self.dir.join("user")
    }

    /// Kills every session, as a network or a machine that is gone would end them.
    pub fn kill_sessions(&self) -> usize {
        let own = self.child.id();
        let mut killed = 0;
        for entry in fs::read_dir("/proc").unwrap().flatten() {
            let stat = fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
            let Some((_, fields)) = stat.rsplit_once(") ") else {
                continue;
            };
            let parent = fields.split_whitespace().nth(1);
            if parent.and_then(|id| id.parse().ok()) == Some(own) {
                let id = entry.file_name().to_string_lossy().into_owned();
                let status = Command::new("kill").args(["-KILL", &id]).status().unwrap();
                killed += usize::from(status.success());
            }
        }
        killed
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        self.kill_sessions();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
