//! Looking at everything that commands need.

use std::path::Path;

use crate::build::lookup::Lookup;
use crate::build::packages::{Package, install_command};
use crate::build::tools::{self, CompilerCommand, Found};
use crate::build::{Build, cuda, launcher, provision, vulkan};
use crate::ctx::Ctx;
use crate::doctor::{Check, Need, State};
use crate::error::Result;
use crate::model::{Base, Flavour, Tool, Toolchains, Version};

const GIB: u64 = 1 << 30;
/// What both builds and their sources take, with room to spare.
const TARGET_SPACE: u64 = 2 * GIB;
/// What one base takes: its archive and its tree.
const CACHE_SPACE: u64 = GIB;

/// Looks at everything that the base `base`, or the default one, needs, in the order in which a
/// first run needs it. It changes nothing and uses no network. An error means that the registry
/// cannot be read.
pub fn examine(ctx: &Ctx, base: Option<&str>, lookup: &dyn Lookup) -> Result<Vec<Check>> {
    let wanted = tools::registry(ctx)?;
    let flag = base.map_or_else(String::new, |base| format!(" --base {base}"));
    let machine = Examiner { ctx, lookup, flag };
    let mut list = vec![machine.rust(), machine.git()];
    let python = machine.python();
    let pip = machine.pip(&python);
    let has_pip = pip.state == State::Ok;
    let can_fetch = !ctx.offline && (has_pip || list[1].state == State::Ok);
    let can_install = !ctx.offline && !ctx.no_provision && has_pip;
    list.extend([python, pip]);
    list.extend(machine.compilers(&wanted));
    for (tool, var, package) in [
        (&wanted.cmake, "CMAKE", Package::Cmake),
        (&wanted.ninja, "NINJA", Package::Ninja),
    ] {
        list.push(machine.tool(&wanted, tool, var, package, can_install));
    }
    list.push(machine.launcher(&wanted));
    list.push(machine.vulkan(&wanted));
    list.push(machine.cuda(&wanted));
    for (name, package) in [("ssh", Package::Ssh), ("rsync", Package::Named("rsync"))] {
        list.push(machine.program(name, package, "gate --host"));
    }
    if cfg!(target_os = "linux") {
        list.push(machine.setpriv());
    }
    list.push(machine.folder("checkout", &ctx.project.target(), TARGET_SPACE));
    list.push(machine.folder("cache", ctx.project.cache(), CACHE_SPACE));
    let base = ctx.project.base(base)?;
    list.push(machine.base(&base, can_fetch));
    for flavour in [Flavour::Vanilla, Flavour::Patched] {
        list.push(machine.build(&base, flavour)?);
    }
    Ok(list)
}

struct Examiner<'a> {
    ctx: &'a Ctx,
    lookup: &'a dyn Lookup,
    /// What to add to a command so that it works on the same base.
    flag: String,
}

impl Examiner<'_> {
    /// A check of something that was not found yet.
    fn missing(&self, name: &str, need: Need, purpose: &str) -> Check {
        Check {
            name: name.to_owned(),
            need,
            state: State::Missing,
            found: None,
            path: None,
            wanted: None,
            purpose: purpose.to_owned(),
            fix: None,
        }
    }

    /// A program of any version.
    fn program(&self, name: &str, package: Package, purpose: &str) -> Check {
        let mut check = self.missing(name, Need::Optional, purpose);
        match self.lookup.find(name) {
            Some(path) => {
                check.state = State::Ok;
                check.found = self
                    .lookup
                    .version(&path)
                    .map(|version| version.to_string());
                check.path = Some(path.display().to_string());
            }
            None => check.fix = Some(install_command(self.lookup, &[package])),
        }
        check
    }

    fn rust(&self) -> Check {
        let mut check = self.missing("cargo", Need::Required, "this program, ggml-ext");
        let minimum = env!("CARGO_PKG_RUST_VERSION");
        check.wanted = Some(at_least(minimum));
        check.fix = Some("rustup update".to_owned());
        let cargo = self.lookup.find("cargo");
        let Some(path) = cargo else {
            check.fix = Some("install Rust with rustup: https://rustup.rs".to_owned());
            return check;
        };
        check.path = Some(path.display().to_string());
        let version = self.lookup.version(&path);
        let minimum = minimum.parse::<Version>().ok();
        check.found = version.as_ref().map(ToString::to_string);
        check.state = match (version, minimum) {
            (Some(version), Some(minimum)) if version < minimum => State::TooOld,
            (Some(_), _) => State::Ok,
            (None, _) => State::Unfit,
        };
        if check.state == State::Ok {
            check.fix = None;
        }
        check
    }

    fn git(&self) -> Check {
        self.program("git", Package::Git, "fetching bases from git")
    }

    fn python(&self) -> Check {
        let purpose = "fetching bases and build tools from PyPI";
        self.program("python3", Package::Python, purpose)
    }

    fn pip(&self, python: &Check) -> Check {
        let mut check = self.missing("pip", Need::Optional, &python.purpose);
        let runs = |module: &str| {
            let path = python.path.as_deref().map(Path::new)?;
            let text = self.lookup.output(path, &["-m", module, "--version"])?;
            Some(Version::find(&text).map_or_else(|| "works".to_owned(), |v| v.to_string()))
        };
        if let Some(version) = runs("pip") {
            check.state = State::Ok;
            check.found = Some(version);
        } else if let Some(version) = runs("ensurepip") {
            // It comes with every virtual environment.
            check.state = State::Ok;
            check.found = Some(format!("{version}, in virtual environments"));
        } else {
            check.fix = Some(install_command(self.lookup, &[Package::Pip]));
        }
        check
    }

    fn compilers(&self, wanted: &Toolchains) -> Vec<Check> {
        let purpose = "building llama.cpp";
        match tools::compilers(self.lookup, wanted) {
            Ok((cc, cxx)) => {
                let check = |name: &str, compiler: CompilerCommand| Check {
                    state: State::Ok,
                    found: compiler.version_text.lines().next().map(str::to_owned),
                    path: Some(compiler.path.display().to_string()),
                    ..self.missing(name, Need::Required, purpose)
                };
                vec![check("C compiler", cc), check("C++ compiler", cxx)]
            }
            Err(error) => {
                let message = error.message();
                let state = if message.contains("too old") {
                    State::TooOld
                } else if message.contains("does not run") {
                    State::Unfit
                } else {
                    State::Missing
                };
                vec![Check {
                    state,
                    found: Some(message.to_owned()),
                    fix: error.hints().first().cloned(),
                    ..self.missing("C and C++ compiler", Need::Required, purpose)
                }]
            }
        }
    }

    fn tool(
        &self,
        wanted: &Toolchains,
        tool: &Tool,
        var: &str,
        package: Package,
        can_install: bool,
    ) -> Check {
        let mut check = self.missing(&tool.wheel.package, Need::Required, "building llama.cpp");
        check.wanted = Some(at_least(&tool.minimum.to_string()));
        let found = tools::find(self.lookup, tool, var);
        let (state, program) = match found {
            Found::Good(program) => (State::Ok, Some(program)),
            Found::TooOld(program) => (State::TooOld, Some(program)),
            Found::Broken(path) => {
                check.path = Some(path.display().to_string());
                (State::Unfit, None)
            }
            Found::Missing => (State::Missing, None),
        };
        check.state = state;
        if let Some(program) = program {
            check.found = Some(program.version.to_string());
            check.path = Some(program.path.display().to_string());
        }
        if state == State::Ok {
            return check;
        }
        let dir = provision::folder(self.ctx, wanted);
        if let Some(program) = provision::provisioned(self.lookup, &dir, &tool.wheel) {
            check.state = State::Ok;
            check.found = Some(program.version.to_string());
            check.path = Some(self.ctx.project.show(&program.path));
        } else if can_install {
            check.need = Need::Provisioned;
            check.fix = Some(format!(
                "none: the next build installs {}",
                tool.wheel.version
            ));
        } else {
            check.fix = Some(install_command(self.lookup, &[package]));
        }
        check
    }

    /// What builds call compilers through, as they choose it. One that was asked for and cannot be called breaks them.
    fn launcher(&self, wanted: &Toolchains) -> Check {
        let mut check = self.missing("compiler launcher", Need::Optional, "rebuilding fast");
        match launcher::choose(self.lookup, wanted) {
            Ok(Some(program)) => {
                check.state = State::Ok;
                check.found = Some(format!("{} {}", program.name(), program.version));
                check.path = Some(program.path.display().to_string());
            }
            Ok(None) if self.lookup.var(launcher::VAR).as_deref() == Some("none") => {
                check.state = State::Ok;
                check.found = Some(format!("none, as {} says", launcher::VAR));
            }
            Ok(None) => check.fix = Some(install_command(self.lookup, &[Package::Ccache])),
            Err(error) => {
                check.need = Need::Required;
                check.state = State::Unfit;
                check.wanted = Some(format!("what {} says", launcher::VAR));
                check.found = Some(error.message().to_owned());
                check.fix = error.hints().first().cloned();
            }
        }
        check
    }

    fn vulkan(&self, wanted: &Toolchains) -> Check {
        let mut check = self.missing("Vulkan", Need::Optional, "build --backend vulkan");
        let cc = tools::compilers(self.lookup, wanted).map(|(cc, _)| cc.path);
        match cc.and_then(|cc| vulkan::survey(self.lookup, wanted, &cc)) {
            Ok(found) => {
                check.state = State::Ok;
                check.found = Some(found);
            }
            Err(error) => {
                check.found = Some(error.message().to_owned());
                check.fix = error.hints().first().cloned();
                if error.message().contains("too old") {
                    check.state = State::TooOld;
                }
            }
        }
        check
    }

    fn cuda(&self, wanted: &Toolchains) -> Check {
        let mut check = self.missing("CUDA", Need::Optional, "build --backend cuda");
        match cuda::survey(self.ctx, self.lookup, &wanted.cuda) {
            Ok(found) => {
                check.state = State::Ok;
                check.found = Some(found);
            }
            Err(error) => {
                check.state = State::TooOld;
                check.found = Some(error.to_string());
                check.fix = error.hints().first().cloned();
            }
        }
        check
    }

    fn setpriv(&self) -> Check {
        let purpose = "ending children when this program is killed";
        self.program("setpriv", Package::Setpriv, purpose)
    }

    /// A folder that must be writable and have room.
    fn folder(&self, name: &str, dir: &Path, space: u64) -> Check {
        let name = format!("{name} folder");
        let mut check = self.missing(&name, Need::Required, "downloads, trees, builds");
        check.path = Some(dir.display().to_string());
        check.wanted = Some(format!("writable, {} free", gib(space)));
        let free = self.lookup.free_space(dir);
        let room = free.map_or_else(|| "unknown space".to_owned(), gib);
        if !self.lookup.writable(dir) {
            check.state = State::Unfit;
            check.found = Some("not writable".to_owned());
            check.fix = Some(format!("make {} a folder of yours", dir.display()));
            if dir == self.ctx.project.cache() {
                let var = crate::project::CACHE_VAR;
                check.fix = Some(format!("set {var} to a folder of yours"));
            }
            return check;
        }
        check.found = Some(format!("{room} free"));
        if free.is_some_and(|free| free < space) {
            check.state = State::Unfit;
            check.fix = Some("free some space".to_owned());
        } else {
            check.state = State::Ok;
        }
        check
    }

    fn base(&self, base: &Base, can_fetch: bool) -> Check {
        let mut check = self.missing(&format!("base {}", base.id), Need::Provisioned, "all");
        // Only whether it is there; whether it is what it should be, `verify` says.
        let dir = crate::vendor::place(self.ctx, base);
        match dir.join("tree").is_dir() {
            true => {
                check.state = State::Ok;
                check.path = Some(dir.display().to_string());
            }
            false if can_fetch => {
                check.fix = Some(format!("cargo xtask vendor{}", self.flag));
            }
            false => {
                check.need = Need::Required;
                check.fix = Some(if self.ctx.offline {
                    format!("cargo xtask vendor{}, without --offline", self.flag)
                } else {
                    install_command(self.lookup, &[Package::Git])
                });
            }
        }
        check
    }

    fn build(&self, base: &Base, flavour: Flavour) -> Result<Check> {
        let name = format!("{flavour} build");
        let mut check = self.missing(&name, Need::Provisioned, "gates");
        let dir = self.ctx.project.build_dir(&base.id, flavour, "cpu");
        check.path = Some(self.ctx.project.show(&dir));
        match Build::find(self.ctx, &base.id, flavour, "cpu") {
            Ok(Some(build)) => {
                check.state = State::Ok;
                let programs = build.manifest.artifacts.len();
                check.found = Some(format!("{programs} programs and libraries"));
            }
            Ok(None) => check.fix = Some(format!("cargo xtask build --{flavour}{}", self.flag)),
            Err(error) => {
                check.state = State::Unfit;
                check.found = Some(error.to_string());
                check.fix = Some(format!("cargo xtask build --{flavour}{}", self.flag));
            }
        }
        Ok(check)
    }
}

fn at_least(version: &str) -> String {
    format!("{version} or later")
}

fn gib(bytes: u64) -> String {
    format!("{}.{} GiB", bytes / GIB, bytes % GIB * 10 / GIB)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::lookup::fake::Fake;
    use crate::build::testing::{Toy, toy_ctx};

    fn doctor(toy: &Toy, machine: &Fake) -> Vec<Check> {
        let upstreams = "schema = 1\ndefault = \"toy\"\n[[base]]\nid = \"toy\"\n\
             tree = \"0000000000000000000000000000000000000000000000000000000000000000\"\n";
        let file = toy.root().join("registry/upstreams.toml");
        std::fs::write(file, upstreams).unwrap();
        examine(&toy.ctx, None, machine).unwrap()
    }

    #[test]
    fn another_base_is_looked_at_when_it_is_named() {
        let toy = toy_ctx();
        doctor(&toy, &Fake::default());
        let file = toy.root().join("registry/upstreams.toml");
        let text = std::fs::read_to_string(&file).unwrap();
        let other = text[text.find("[[base]]").unwrap()..].replace("toy", "other");
        std::fs::write(&file, format!("{text}{other}")).unwrap();
        let list = examine(&toy.ctx, Some("other"), &Fake::default()).unwrap();
        assert_eq!(named(&list, "base other").state, State::Missing);
        let fix = named(&list, "patched build").fix.clone().unwrap();
        assert_eq!(fix, "cargo xtask build --patched --base other");
        assert!(list.iter().all(|check| check.name != "base toy"));
        assert!(examine(&toy.ctx, Some("otter"), &Fake::default()).is_err());
    }

    fn named<'a>(list: &'a [Check], name: &str) -> &'a Check {
        let found = list.iter().find(|check| check.name == name);
        found.unwrap_or_else(|| panic!("no check {name} in {list:?}"))
    }

    fn blocking(list: &[Check]) -> Vec<&str> {
        let blocks = list.iter().filter(|check| check.blocks());
        blocks.map(|check| &*check.name).collect()
    }

    #[test]
    fn a_complete_machine_has_nothing_to_do() {
        let toy = toy_ctx();
        let list = doctor(&toy, &Fake::complete());
        assert_eq!(blocking(&list), [""; 0]);
        let todo: Vec<&str> = list
            .iter()
            .filter(|check| check.fix.is_some())
            .map(|check| &*check.name)
            .collect();
        // It builds for processors; what Vulkan needs is nobody's duty.
        let wanted = ["Vulkan", "base toy", "vanilla build", "patched build"];
        assert_eq!(todo, wanted);
        assert_eq!(
            std::fs::read_dir(toy.root()).unwrap().count(),
            1,
            "it wrote"
        );
    }

    #[test]
    fn missing_build_tools_block_only_where_they_cannot_be_installed() {
        let mut toy = toy_ctx();
        let machine = Fake::complete()
            .without("ninja")
            .with("cmake", "cmake version 3.5.1");
        let list = doctor(&toy, &machine);
        assert_eq!(blocking(&list), [""; 0]);
        assert_eq!(named(&list, "ninja").need, Need::Provisioned);
        assert_eq!(named(&list, "cmake").state, State::TooOld);

        let no_pip = machine
            .clone()
            .failing("-m pip --version")
            .failing("-m ensurepip --version");
        assert_eq!(blocking(&doctor(&toy, &no_pip)), ["cmake", "ninja"]);
        toy.ctx.no_provision = true;
        let list = doctor(&toy, &machine);
        assert_eq!(blocking(&list), ["cmake", "ninja"]);
        let fix = named(&list, "ninja").fix.as_deref();
        assert_eq!(fix, Some("sudo apt-get install ninja-build"));
    }

    #[test]
    fn a_base_that_cannot_be_fetched_blocks() {
        let mut toy = toy_ctx();
        let machine = Fake::complete().without("git").without("python3");
        let list = doctor(&toy, &machine);
        assert_eq!(blocking(&list), ["base toy"]);
        toy.ctx.offline = true;
        assert_eq!(blocking(&doctor(&toy, &Fake::complete())), ["base toy"]);
        // A tree of another digest, and one of a base whose name only begins alike.
        let bases = toy.ctx.project.cache().join("bases");
        for other in ["toy-0123/tree", "toy-2-000000000000/tree"] {
            std::fs::create_dir_all(bases.join(other)).unwrap();
        }
        assert_eq!(blocking(&doctor(&toy, &machine)), ["base toy"]);
        std::fs::create_dir_all(bases.join("toy-000000000000/tree")).unwrap();
        assert_eq!(blocking(&doctor(&toy, &machine)), [""; 0]);
    }

    #[test]
    fn compilers_disk_and_permissions_block() {
        let toy = toy_ctx();
        let list = doctor(&toy, &Fake::complete().without("cc"));
        assert_eq!(blocking(&list), ["C and C++ compiler"]);
        let check = named(&list, "C and C++ compiler");
        let fix = check.fix.as_deref();
        assert_eq!(fix, Some("sudo apt-get install build-essential"));

        let mut machine = Fake::complete();
        machine.free = GIB + GIB / 2;
        let list = doctor(&toy, &machine);
        assert_eq!(blocking(&list), ["checkout folder"]);
        let found = named(&list, "checkout folder").found.as_deref();
        assert_eq!(found, Some("1.5 GiB free"));
        machine.writable = false;
        let list = doctor(&toy, &machine);
        assert_eq!(blocking(&list), ["checkout folder", "cache folder"]);
    }

    /// The same one that builds take.
    #[test]
    fn the_launcher_is_the_one_that_is_asked_for() {
        let toy = toy_ctx();
        let machine = Fake::complete()
            .with("sccache", "sccache 0.4.0")
            .with("icecc", "ICECC 1.4.0");
        let is = |machine: &Fake| {
            let list = doctor(&toy, machine);
            named(&list, "compiler launcher").clone()
        };
        let found = |name: &str| is(&machine.clone().set(launcher::VAR, name)).found.unwrap();
        assert!(is(&machine).found.unwrap().starts_with("ccache"));
        for name in ["auto", "ccache", "sccache", "icecc"] {
            let wanted = if name == "auto" { "ccache" } else { name };
            assert!(found(name).starts_with(wanted), "{name}: {}", found(name));
        }
        assert_eq!(found("none"), "none, as LLAMA_PATCHSET_LAUNCHER says");
        for (name, says, fix) in [
            ("icecc", "icecc was asked for", "sudo apt-get install icecc"),
            (
                "ccahe",
                "unknown compiler launcher",
                "did you mean `ccache`?",
            ),
        ] {
            let without = machine.clone().without("icecc").set(launcher::VAR, name);
            let check = is(&without);
            assert!(check.blocks(), "every build ends so: {check:?}");
            assert!(check.found.unwrap().starts_with(says));
            assert_eq!(check.fix.as_deref(), Some(fix));
        }
        let none = is(&Fake::complete().without("ccache"));
        assert!(none.state == State::Missing && !none.blocks());
    }

    #[test]
    fn an_old_rust_is_told() {
        let toy = toy_ctx();
        let list = doctor(&toy, &Fake::complete().with("cargo", "cargo 1.60.0"));
        assert_eq!(blocking(&list), ["cargo"]);
        assert_eq!(named(&list, "cargo").state, State::TooOld);
    }
}
