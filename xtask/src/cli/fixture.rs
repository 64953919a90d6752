//! `cargo xtask fixture`.

use comfy_table::{Table, presets};
use serde_json::{Value, json};

use crate::cli::Outcome;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::fixture;
use crate::model::Fixture;

/// Flags of `fixture`.
#[derive(Debug, clap::Args)]
pub struct FixtureArgs {
    /// The fixtures to make [default: all]
    #[arg(value_name = "NAME")]
    names: Vec<String>,
    /// Say which there are, and make none
    #[arg(long, conflicts_with = "force")]
    list: bool,
    /// Make them anew even where they are there and right
    #[arg(long)]
    force: bool,
}

/// Runs the command.
pub fn run(ctx: &Ctx, args: FixtureArgs) -> Result<Outcome> {
    // All names are looked up before anything is made.
    let fixtures: Vec<Fixture> = if args.names.is_empty() {
        fixture::list(&ctx.project)?
    } else {
        let load = |name: &String| fixture::load(&ctx.project, name);
        args.names.iter().map(load).collect::<Result<_>>()?
    };
    if args.list {
        return Ok(listed(ctx, &fixtures));
    }
    let made: Vec<fixture::Made> = fixtures
        .into_iter()
        .map(|fixture| fixture::ensure_with(ctx, fixture, args.force))
        .collect::<Result<_>>()?;
    let mut table = table(["NAME", "ARCH", "MB", "SHA256", "PATH", ""]);
    for one in &made {
        table.add_row([
            one.fixture.name.clone(),
            one.fixture.arch.clone(),
            format!("{:.1}", one.size as f64 / 1e6),
            one.fixture.sha256.to_string(),
            ctx.project.show(&one.path),
            if one.fresh { "made" } else { "was there" }.to_owned(),
        ]);
    }
    let data = made.iter().map(|one| {
        let mut data = describe(ctx, &one.fixture);
        data["size"] = json!(one.size);
        data["fresh"] = json!(one.fresh);
        data
    });
    let data = json!({ "fixtures": data.collect::<Vec<_>>() });
    Ok(Outcome::good(table.trim_fmt(), data))
}

fn listed(ctx: &Ctx, fixtures: &[Fixture]) -> Outcome {
    let mut table = table(["NAME", "ARCH", "ABOUT"]);
    for fixture in fixtures {
        table.add_row([&fixture.name, &fixture.arch, &fixture.about]);
    }
    let data = fixtures.iter().map(|fixture| describe(ctx, fixture));
    let data = json!({ "fixtures": data.collect::<Vec<_>>() });
    Outcome::good(table.trim_fmt(), data)
}

fn describe(ctx: &Ctx, fixture: &Fixture) -> Value {
    let path = fixture::path(&ctx.project, &fixture.name);
    let mut data = json!(fixture);
    data["path"] = json!(path);
    data
}

fn table<const N: usize>(head: [&str; N]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(head);
    table
}
