//! What is run on a host: shell text that any POSIX `sh` takes, with nothing in it that was not
//! checked or quoted.

use std::collections::BTreeMap;

use crate::model::Host;

/// Begins every line by which the other end speaks to us and not to a reader.
pub const MARK: &str = "LLAMA-PATCHSET ";

/// The file that makes a folder one of ours, which may be removed.
pub const OWNED: &str = ".llama-patchset";

/// Minutes without any change after which a folder has no owner any more.
pub const STALE: u32 = 10;

/// Names of the folders of runs begin so.
pub const PREFIX: &str = "run-";

/// A word for a POSIX shell, whatever is in it.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// A script as one argument of ssh: its words are given to whatever shell the login has, which need
/// not be a POSIX one. So there is no quote in it, no backslash and no exclamation mark.
fn for_login_shell(script: &str) -> String {
    format!("sh -c '{}'", script.replace('\n', " "))
}

/// Tells what the machine is. It changes nothing but for making `dir`.
pub fn probe(dir: &str) -> String {
    let script = r#"
say() { echo "LLAMA-PATCHSET $1 $2"; };
say os "$(uname -s)";
say arch "$(uname -m)";
say libc "$(getconf GNU_LIBC_VERSION 2>/dev/null || echo unknown)";
say rsync "$(command -v rsync || echo none)";
say processors "$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)";
say model "$(grep -m 1 "^model name" /proc/cpuinfo 2>/dev/null | cut -d : -f 2)";
say flags "$(grep -m 1 -E "^(flags|Features)" /proc/cpuinfo 2>/dev/null | cut -d : -f 2)";
umask 077;
mkdir -p DIR && say free "$(df -Pk DIR | { read -r line; read -r a b c free e; echo "$free"; })";
say end "";
"#;
    for_login_shell(&script.replace("DIR", dir))
}

/// Makes the folder `id` below `dir`, and removes those that nobody has touched for a while.
pub fn claim(dir: &str, id: &str) -> String {
    let script = r#"
umask 077; mkdir -p DIR; cd DIR || exit 1;
for old in run-*; do
[ -f "$old/.llama-patchset" ] || continue;
if [ -n "$(find "$old" -mmin -10 2>/dev/null | head -n 1)" ];
then echo "LLAMA-PATCHSET busy $old";
else rm -rf "$old" && echo "LLAMA-PATCHSET stale $old"; fi;
done;
mkdir ID && echo ID >ID/.llama-patchset && echo "LLAMA-PATCHSET made ID";
"#;
    for_login_shell(&script.replace("DIR", dir).replace("ID", id))
}

/// Ends what runs in the folder `id` below `dir`, and removes it.
pub fn remove(dir: &str, id: &str) -> String {
    let script = r#"
p=$(cat DIR/ID/pid 2>/dev/null);
if [ -n "$p" ] && ps -o args= -p "$p" 2>/dev/null | grep -q ID;
then kill -TERM "$p"; n=0;
while kill -0 "$p" 2>/dev/null && [ "$n" -lt 15 ]; do sleep 1; n=$((n+1)); done; fi;
rm -rf DIR/ID
"#;
    for_login_shell(&script.replace("DIR", dir).replace("ID", id))
}

/// Runs the gates: the command that ssh is given.
pub fn start(dir: &str, id: &str) -> String {
    format!("sh {dir}/{id}/run.sh")
}

/// `run.sh`. It says every two seconds that it lives; once nobody listens, it ends the gates.
pub fn run(host: &Host, args: &[String]) -> String {
    let env: BTreeMap<&String, &String> = host.env.iter().collect();
    let env: String = env
        .into_iter()
        .map(|(name, value)| format!("export {name}={}\n", quote(value)))
        .collect();
    let args: Vec<String> = args.iter().map(|arg| quote(arg)).collect();
    format!(
        r#"#!/bin/sh
# Written by `cargo xtask gate --host`: runs the gates of this folder, and ends them once nobody
# listens to it any more.
cd "${{0%/*}}" || exit 121
umask 077
unset LLAMA_PATCHSET_ROOT
{env}export LLAMA_PATCHSET_CACHE="$PWD/cache"
trap '' PIPE
: >progress.log
echo $$ >pid
./xtask --root "$PWD" --offline --no-provision --json {args} >outcome.json 2>>progress.log &
job=$!
trap 'kill -TERM "$job" 2>/dev/null' TERM HUP INT
tail -n +1 -f progress.log 2>/dev/null &
tail=$!
main=$$
(
    while kill -0 "$main" && echo '{MARK}beat'; do
        touch .alive
        sleep 2 >/dev/null 2>&1
    done
    kill -TERM "$main" || exit 0
    sleep 20
    kill -0 "$main" && kill -KILL "$job"
) 2>/dev/null &
beat=$!
wait "$job"
code=$?
while kill -0 "$job" 2>/dev/null; do
    wait "$job"
    code=$?
done
# Not TERM: a child that has only just begun would lose it. Some shells tell of it.
exec 2>/dev/null
kill -KILL "$beat" "$tail"
rm -f pid
echo '{MARK}'"exit $code"
"#,
        args = args.join(" "),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Output};

    fn host(env: &[(&str, &str)]) -> Host {
        let env: String = (env.iter())
            .map(|(name, value)| format!("{name} = {}\n", toml::Value::String((*value).into())))
            .collect();
        let text = format!("name = \"a\"\naddress = \"a\"\n[env]\n{env}");
        toml::from_str(&text).unwrap()
    }

    /// As the login shell of a host would.
    fn sh(command: &str, home: &std::path::Path) -> Output {
        Command::new("sh")
            .args(["-c", command])
            .current_dir(home)
            .env("HOME", home)
            .output()
            .unwrap()
    }

    fn text(output: &Output) -> String {
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    #[test]
    fn commands_are_one_quoted_word_without_surprises() {
        for command in [probe("a/b"), claim("a/b", "run-1"), remove("a", "run-1")] {
            let inner = command
                .strip_prefix("sh -c '")
                .and_then(|rest| rest.strip_suffix('\''));
            let inner = inner.unwrap();
            assert!(!inner.contains(['\'', '\\', '!', '\n']), "{inner}");
        }
    }

    #[test]
    fn the_machine_tells_what_it_is() {
        let home = tempfile::tempdir().unwrap();
        let said = text(&sh(&probe("x/y"), home.path()));
        for what in ["os Linux", "arch ", "processors ", "free ", "end"] {
            assert!(said.contains(&format!("{MARK}{what}")), "{said}");
        }
        assert!(home.path().join("x/y").is_dir());
    }

    #[test]
    fn what_nobody_touches_goes_and_what_is_not_ours_stays() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join("d").join(name);
        for name in ["run-old", "run-new", "run-foreign", "other"] {
            std::fs::create_dir_all(at(name)).unwrap();
            if name != "run-foreign" {
                std::fs::write(at(name).join(OWNED), "").unwrap();
            }
        }
        for name in ["run-old", "run-foreign", "other"] {
            let touched = Command::new("find")
                .arg(at(name))
                .args(["-exec", "touch", "-d", "2020-01-01", "{}", "+"])
                .status()
                .unwrap();
            assert!(touched.success());
        }
        let said = text(&sh(&claim("d", "run-1"), home.path()));
        assert!(
            said.contains("stale run-old") && said.contains("busy run-new"),
            "{said}"
        );
        assert!(said.contains("made run-1"), "{said}");
        assert!(!at("run-old").exists());
        for kept in ["run-new", "run-foreign", "other", "run-1"] {
            assert!(at(kept).is_dir(), "{kept}");
        }
        // The same folder is nobody's twice.
        assert!(!text(&sh(&claim("d", "run-1"), home.path())).contains("made"));
        sh(&remove("d", "run-1"), home.path());
        assert!(!at("run-1").exists() && at("run-new").exists());
    }

    #[test]
    fn variables_and_arguments_arrive_as_they_are() {
        let home = tempfile::tempdir().unwrap();
        let odd = "a b'c\"$HOME`id`\\;&";
        let text = run(&host(&[("ODD", odd)]), &["gate".to_owned(), odd.to_owned()]);
        std::fs::write(home.path().join("run.sh"), text).unwrap();
        let program = "#!/bin/sh\nprintf '%s\\n' \"$ODD\" \"$@\" >&2\nexit 3\n";
        std::fs::write(home.path().join("xtask"), program).unwrap();
        use std::os::unix::fs::PermissionsExt;
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(home.path().join("xtask"), mode).unwrap();
        let output = sh("sh ./run.sh", home.path());
        let said = self::text(&output);
        assert!(said.contains(&format!("{MARK}exit 3")), "{said}");
        let log = std::fs::read_to_string(home.path().join("progress.log")).unwrap();
        let lines: Vec<&str> = log.lines().collect();
        assert_eq!(lines[0], odd);
        assert_eq!(lines.last(), Some(&odd));
    }
}
