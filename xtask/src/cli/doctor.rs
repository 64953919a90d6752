//! `cargo xtask doctor`.

use comfy_table::{Table, presets};
use serde_json::json;

use crate::build::lookup::Machine;
use crate::cli::args::BaseArg;
use crate::cli::{Outcome, Status};
use crate::ctx::Ctx;
use crate::doctor::{self, Check, Need, State};
use crate::error::Result;

/// Flags of `doctor`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Exit codes: 0 commands can run · 2 something that is required is missing")]
pub struct DoctorArgs {
    #[command(flatten)]
    base: BaseArg,
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: DoctorArgs) -> Result<Outcome> {
    let checks = doctor::examine(ctx, args.base.base.as_deref(), &Machine)?;
    Ok(outcome(&checks))
}

fn outcome(checks: &[Check]) -> Outcome {
    let able = !checks.iter().any(Check::blocks);
    Outcome {
        text: text(checks),
        data: json!({ "able": able, "checks": checks }),
        status: if able { Status::Good } else { Status::Unable },
    }
}

fn text(checks: &[Check]) -> String {
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header(["what", "state", "found", "needed", "where"]);
    for check in checks {
        let state = match (check.state, check.need) {
            (State::Ok, _) | (_, Need::Required) => check.state.to_string(),
            (state, Need::Provisioned) => format!("{state} (comes by itself)"),
            (state, Need::Optional) => format!("{state} (optional)"),
        };
        let cell = |value: &Option<String>| value.clone().unwrap_or_default();
        table.add_row([
            check.name.clone(),
            state,
            cell(&check.found),
            cell(&check.wanted),
            cell(&check.path),
        ]);
    }
    let mut text: String = table
        .lines()
        .map(|line| format!("{}\n", line.trim_end()))
        .collect();
    for (need, heading) in [
        (Need::Required, "To do before anything works:"),
        (Need::Provisioned, "What commands bring by themselves:"),
        (Need::Optional, "What would help:"),
    ] {
        let open: Vec<&Check> = checks
            .iter()
            .filter(|check| check.need == need && check.state != State::Ok)
            .collect();
        if open.is_empty() {
            continue;
        }
        text.push_str(&format!("\n{heading}\n"));
        for check in open {
            let fix = check
                .fix
                .as_deref()
                .unwrap_or("nothing is known that brings it");
            text.push_str(&format!("  {} ({}): {fix}\n", check.name, check.purpose));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, need: Need, state: State, fix: Option<&str>) -> Check {
        Check {
            name: name.to_owned(),
            need,
            state,
            found: (state != State::Missing).then(|| "1.2.3".to_owned()),
            path: (state != State::Missing).then(|| format!("/usr/bin/{name}")),
            wanted: Some("1.0 or later".to_owned()),
            purpose: "building".to_owned(),
            fix: fix.map(str::to_owned),
        }
    }

    #[test]
    fn what_is_missing_ends_in_a_list_of_commands() {
        let checks = [
            check(
                "cc",
                Need::Required,
                State::Missing,
                Some("apt-get install gcc"),
            ),
            check("cmake", Need::Provisioned, State::TooOld, Some("none")),
            check("ninja", Need::Required, State::Ok, None),
            check(
                "ccache",
                Need::Optional,
                State::Missing,
                Some("apt-get install ccache"),
            ),
        ];
        insta::assert_snapshot!(text(&checks), @"
         what    state                      found  needed        where
         cc      missing                           1.0 or later
         cmake   too old (comes by itself)  1.2.3  1.0 or later  /usr/bin/cmake
         ninja   ok                         1.2.3  1.0 or later  /usr/bin/ninja
         ccache  missing (optional)                1.0 or later

        To do before anything works:
          cc (building): apt-get install gcc

        What commands bring by themselves:
          cmake (building): none

        What would help:
          ccache (building): apt-get install ccache
        ");
        let outcome = outcome(&checks);
        assert_eq!(outcome.status, Status::Unable);
        assert_eq!(outcome.data["able"], false);
        assert_eq!(outcome.data["checks"][1]["state"], "too-old");
        assert_eq!(super::outcome(&checks[1..]).status, Status::Good);
    }
}
