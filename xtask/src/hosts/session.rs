//! One host from beginning to end.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::Kind;
use crate::ctx::Ctx;
use crate::error::{Error, Result, ResultExt};
use crate::gate::Request;
use crate::gate::missing::counted;
use crate::gate::store::{Intent, Store, Writer};
use crate::hosts::kit::Kit;
use crate::hosts::matrix::{Cell, OneHost, State};
use crate::hosts::probe::{Facts, Needs};
use crate::hosts::script::{self, MARK};
use crate::hosts::ssh::{Ended, Limits, Remote};
use crate::hosts::{Task, bring};
use crate::model::{Digest, Host, HostStamp, SkippedGate, Verdict};

/// A running `run.sh` says something every two seconds.
const SILENT: Duration = Duration::from_secs(60);

/// What all hosts of a run have in common.
pub struct Run<'a> {
    /// Where messages go.
    pub ctx: &'a Ctx,
    /// What is brought.
    pub kit: &'a Kit,
    /// The base's id.
    pub base: &'a str,
    /// What was asked for.
    pub request: &'a Request,
    /// What makes it again.
    pub command: &'a str,
}

/// What `host` says of itself.
pub fn ask(ctx: &Ctx, host: &Host) -> Result<Facts> {
    let scratch = tempfile::tempdir()?;
    let remote = Remote::new(host, ctx.project.root(), scratch.path())?;
    facts(ctx, host, &remote)
}

fn facts(ctx: &Ctx, host: &Host, remote: &Remote<'_>) -> Result<Facts> {
    let lines = remote.ask(ctx, "reaching it", &script::probe(&host.dir), false)?;
    Facts::read(&lines)
}

/// A name that no other run has.
fn id(host: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let now = jiff::Timestamp::now();
    let parts = [
        host.as_bytes().to_vec(),
        now.as_nanosecond().to_le_bytes().to_vec(),
        std::process::id().to_le_bytes().to_vec(),
        NEXT.fetch_add(1, Ordering::SeqCst).to_le_bytes().to_vec(),
    ];
    let digest = Digest::of_parts(parts.iter().map(Vec::as_slice)).to_string();
    let time = now.strftime("%Y%m%dT%H%M%SZ");
    format!("{}{time}-{}", script::PREFIX, &digest[..10])
}

impl Run<'_> {
    /// Does all of `task`. What goes wrong stands in the result.
    pub fn host(&self, task: &Task, needs: &Needs) -> OneHost {
        let begun = Instant::now();
        let mut one = OneHost::new(task);
        if let Err(error) = self.all(task, needs, &mut one) {
            if error.kind() != Kind::Interrupted {
                self.ctx.sink.warn(&format!("host {}: {error}", one.name));
            }
            one.fail(&error);
        }
        one.seconds = begun.elapsed().as_secs_f64();
        one
    }

    /// The run is begun before the host is asked anything: of one that cannot be reached, gates without a record
    /// must stand in every report, and not nothing.
    fn all(&self, task: &Task, needs: &Needs, one: &mut OneHost) -> Result<()> {
        let mut writer = Store::below(&self.ctx.project.gate_dir()).begin(Intent {
            command: self.command.to_owned(),
            quick: task.quick,
            named: task.named,
            gates: (task.plans.iter())
                .map(|plan| plan.common().definition.id.clone())
                .collect(),
            skipped: task.skipped.clone(),
            host: HostStamp {
                name: Some(task.host.name.clone()),
                system: "unknown".to_owned(),
                processors: 0,
                model: None,
            },
        })?;
        one.run = Some(writer.stamp().id.clone());
        let ended = match task.plans.is_empty() {
            true => {
                one.state = State::Done;
                Ok(())
            }
            false => self.steps(task, needs, &mut writer, one),
        };
        // Reports are made of the store alone.
        let idle = writer.idle(&one.idle());
        ended.and(idle)
    }

    fn steps(
        &self,
        task: &Task,
        needs: &Needs,
        writer: &mut Writer,
        one: &mut OneHost,
    ) -> Result<()> {
        let (ctx, host) = (self.ctx, &task.host);
        let scratch = self.kit.of_host(&host.name)?;
        let remote = Remote::new(host, ctx.project.root(), &scratch)?;
        let facts = facts(ctx, host, &remote)?;
        writer.on(facts.stamp(&host.name))?;
        let fits = facts.check(needs);
        one.facts = Some(facts);
        fits?;
        let id = id(&host.name);
        let claimed = remote.ask(
            ctx,
            "making a folder there",
            &script::claim(&host.dir, &id),
            false,
        )?;
        let said = |what: &str| -> Vec<String> {
            let start = format!("{MARK}{what} ");
            let lines = claimed.iter().filter_map(|line| line.strip_prefix(&start));
            lines.map(|name| format!("{}/{name}", host.dir)).collect()
        };
        one.removed = said("stale");
        for stale in &one.removed {
            ctx.sink.note(&format!(
                "host {}: removed {stale}, which a run that was killed had left there",
                host.name
            ));
        }
        for busy in said("busy") {
            ctx.sink
                .detail(&format!("host {}: {busy} is of another run", host.name));
        }
        if said("made").is_empty() {
            return Err(Error::environment(
                "its folder was not made, for no reason that it tells",
            ));
        }
        let result = self.inside(task, &remote, &id, (&scratch, writer), one);
        // Even where the user has stopped us; a second Ctrl-C ends that too.
        let what = "removing what was brought there";
        if let Err(error) = remote.ask(ctx, what, &script::remove(&host.dir, &id), true) {
            ctx.sink.warn(&format!("host {}: {error}", host.name));
            one.left = Some(format!("{}/{id}", host.dir));
        }
        result
    }

    /// Between making and removing the folder `id` there.
    fn inside(
        &self,
        task: &Task,
        remote: &Remote<'_>,
        id: &str,
        (scratch, writer): (&Path, &Writer),
        one: &mut OneHost,
    ) -> Result<()> {
        let (ctx, host) = (self.ctx, &task.host);
        let shown = ctx.sink.task(&format!("host {}", host.name), None);
        shown.message("bringing builds and models");
        let folder = format!("{}/{id}", host.dir);
        let send = scratch.join("send");
        fs_err::create_dir_all(&send)?;
        fs_err::write(send.join("run.sh"), script::run(host, &self.args(task)))?;
        let mut upload = remote.rsync();
        upload.args(["--chmod=u+rwX,go=", "--info=progress2"]);
        for exclude in self.kit.excludes(&task.part) {
            upload.arg(format!("--exclude={exclude}"));
        }
        upload.arg("--");
        for from in [self.kit.root(), send] {
            upload.arg(format!("{}/", from.display()));
        }
        upload.arg(remote.place(&folder));
        let limits = Limits {
            silent: Duration::from_secs(300),
            total: Duration::from_secs(host.limit),
        };
        let ended = remote.call(ctx, upload, limits, false, &mut |_| {})?;
        if !matches!(ended, Ended::Code(Some(0), _)) {
            return Err(remote.failure("bringing builds and models there", &ended));
        }

        one.state = State::Broken;
        let mut code = None;
        let limits = Limits {
            silent: SILENT,
            total: Duration::from_secs(host.limit),
        };
        let command = remote.ssh(&script::start(&host.dir, id));
        let ended = remote.call(ctx, command, limits, false, &mut |line| match line
            .strip_prefix(MARK)
        {
            Some(said) => {
                let number = said.strip_prefix("exit ");
                code = number
                    .and_then(|number| number.parse::<i32>().ok())
                    .or(code);
            }
            None => {
                shown.message(line);
                ctx.sink.detail(&format!("host {}: {line}", host.name));
            }
        })?;

        // Also where it dropped out: it may be back, with the records that it had written.
        let back = scratch.join("back");
        let fetched = self.fetch(remote, &folder, &back);
        if fetched.is_ok() || back.is_dir() {
            let mut gates = bring::records(task, self.kit, writer, &back)?;
            gates.extend(task.skipped.iter().map(Cell::skipped));
            one.gates = gates;
            one.logs = bring::logs(&host.name, &back, &ctx.project.gate_dir().join("logs"))?;
        }
        let Some(code) = code else {
            return Err(remote
                .failure("it dropped out while its gates ran", &ended)
                .hint("run the same command again once it is back"));
        };
        fetched?;
        // The program's own words.
        if let Some(error) = bring::error(&back) {
            return Err(error.context("its gates broke off"));
        }
        let lost: Vec<&str> = (one.gates.iter())
            .filter(|cell| cell.verdict.is_none())
            .map(|cell| cell.gate.as_str())
            .collect();
        if !matches!(code, 0 | 1 | 3) || !lost.is_empty() {
            let log = std::fs::read_to_string(back.join("progress.log")).unwrap_or_default();
            let last = crate::process::last_lines(&log, 3);
            let without = match lost.is_empty() {
                true => String::new(),
                false => format!(", without a record of {}", lost.join(" ")),
            };
            return Err(Error::environment(format!(
                "its gates ended with exit code {code}{without}: {last}"
            )));
        }
        if let Some(what) = disagrees(code, one, task) {
            return Err(Error::environment(what)
                .hint("its records and what it said do not belong together: run it again"));
        }
        one.state = State::Done;
        shown.finish(&one.verdict().to_string());
        Ok(())
    }

    /// Records, logs and what the program said, into `back`.
    fn fetch(&self, remote: &Remote<'_>, folder: &str, back: &Path) -> Result<()> {
        let mut download = remote.rsync();
        download.args(["--no-links", "--chmod=u+rwX,go=", "--max-size=64m"]);
        for kept in [
            "/outcome.json",
            "/progress.log",
            "/target/",
            "/target/gate/",
            "/target/gate/records/***",
            "/target/gate/logs/***",
        ] {
            download.arg(format!("--include={kept}"));
        }
        download.args(["--exclude=*", "--"]);
        download.arg(remote.place(folder));
        download.arg(format!("{}/", back.display()));
        let limits = Limits::within(Duration::from_secs(600));
        let ended = remote.call(self.ctx, download, limits, false, &mut |_| {})?;
        match ended {
            Ended::Code(Some(0), _) => Ok(()),
            ended => Err(remote.failure("bringing records back", &ended)),
        }
        .context(|| "its gates came to an end".to_owned())
    }

    /// What the program is called with there.
    fn args(&self, task: &Task) -> Vec<String> {
        let mut args = vec!["gate", "--prebuilt", "--base", self.base];
        if task.quick {
            args.push("--quick");
        }
        if self.request.keep_logs {
            args.push("--keep-logs");
        }
        if self.request.unstamped {
            args.push("--unstamped");
        }
        args.push("--gate");
        let gates = task.plans.iter().map(|plan| &plan.common().definition.id);
        args.extend(gates.map(String::as_str));
        args.into_iter().map(str::to_owned).collect()
    }
}

/// How the exit code of the program there is not that of the records which came back. All of its gates were
/// named.
fn disagrees(code: i32, one: &OneHost, task: &Task) -> Option<String> {
    let ran = one.gates.iter().filter(|cell| {
        let is_here = |skipped: &&SkippedGate| skipped.gate == cell.gate;
        !task.skipped.iter().any(|skipped| is_here(&skipped))
    });
    let verdict = Verdict::all(ran.map(|cell| {
        let verdict = cell.verdict.unwrap_or(Verdict::Inconclusive);
        counted(verdict, true)
    }));
    let expected = match verdict {
        Verdict::Pass => 0,
        Verdict::Fail => 1,
        Verdict::Inconclusive | Verdict::Skipped => 3,
    };
    (code != expected).then(|| {
        format!("its gates ended with exit code {code}, and their records say {verdict}, which is {expected}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_said_and_its_records_must_agree() {
        let host = "name = \"a\"\naddress = \"a\"\n";
        let skipped = |gate: &str| SkippedGate {
            gate: gate.to_owned(),
            title: String::new(),
            reason: String::new(),
            hint: String::new(),
        };
        let task = Task {
            host: toml::from_str(host).unwrap(),
            plans: Vec::new(),
            skipped: vec![skipped("here")],
            named: false,
            quick: false,
            part: Default::default(),
            backends: Default::default(),
        };
        let said = |code: i32, verdicts: &[Option<Verdict>]| {
            let mut one = OneHost::new(&task);
            one.gates
                .extend(verdicts.iter().enumerate().map(|(at, verdict)| Cell {
                    verdict: *verdict,
                    ..Cell::missing(&format!("g{at}"))
                }));
            disagrees(code, &one, &task)
        };
        use Verdict::{Fail, Inconclusive, Pass, Skipped};
        for (code, verdicts) in [
            (0, &[Some(Pass), Some(Pass)][..]),
            (1, &[Some(Pass), Some(Fail), Some(Skipped)]),
            (3, &[Some(Pass), Some(Inconclusive)]),
            (3, &[Some(Pass), Some(Skipped)]),
            (3, &[Some(Pass), None]),
        ] {
            assert_eq!(said(code, verdicts), None);
            for other in [0, 1, 3].into_iter().filter(|other| *other != code) {
                let what = said(other, verdicts).unwrap();
                assert!(what.contains(&format!("exit code {other},")), "{what}");
            }
        }
    }

    #[test]
    fn no_two_runs_have_the_same_folder() {
        let ids: std::collections::BTreeSet<String> = (0..1000).map(|_| id("a")).collect();
        assert_eq!(ids.len(), 1000);
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        assert!(
            ids.iter()
                .all(|id| id.starts_with("run-") && id.chars().all(plain))
        );
    }
}
